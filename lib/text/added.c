/* added - added tokens, which are found in the text before the model sees it */
#include "lib/text/added.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/text/chars.h"
#include "lib/text/setting.h"

struct added {
    struct added_token *v;
    size_t n;
    bool begins[2][256]; /* [normalized]: a token begins with this byte */
};

static int set_match(struct added_token *a, const char *path,
                     const struct normalizer *n, struct err *err)
{
    struct str match = { 0 };
    bool kept;

    if (!a->normalized) {
        a->match = xstrdup(a->text);
    } else if (normalizer_run(n, a->text, strlen(a->text), &match, &kept, NULL, err) <
               0) {
        str_clear(&match);
        return err_prefix(err, "%s: added_tokens", path);
    } else {
        a->match = str_steal(&match);
    }
    a->len = a->match ? strlen(a->match) : 0;
    return a->len ? 0
                  : err_set(err, ERR_INPUT,
                            "%s: added_tokens: nothing is left of '%s' when normalized",
                            path, a->text);
}

static int read_token(struct added *a, const char *path, const cJSON *j,
                      const struct normalizer *n, struct err *err)
{
    const char *text = setting_string(j, "content");
    struct added_token *t;
    long id;

    if (!text || !*text || !setting_id(cJSON_GetObjectItemCaseSensitive(j, "id"), &id))
        return err_set(err, ERR_INPUT, "%s: bad entry in added_tokens", path);
    a->v = xrealloc(a->v, sizeof(*a->v) * (a->n + 1));
    t = &a->v[a->n++];
    *t = (struct added_token){
        .text = xstrdup(text),
        .id = (uint32_t)id,
        .special = setting_flag(j, "special", false),
        .lstrip = setting_flag(j, "lstrip", false),
        .rstrip = setting_flag(j, "rstrip", false),
        .single_word = setting_flag(j, "single_word", false),
    };
    t->normalized = setting_flag(j, "normalized", !t->special);
    if (set_match(t, path, n, err) < 0)
        return -1;
    a->begins[t->normalized][(unsigned char)t->match[0]] = true;
    return 0;
}

int added_open(struct added **out, const char *path, const cJSON *list,
               const struct normalizer *n, struct err *err)
{
    struct added *a = xcalloc(1, sizeof(*a));
    const cJSON *j;

    cJSON_ArrayForEach(j, list)
    {
        if (read_token(a, path, j, n, err) < 0) {
            added_free(a);
            return -1;
        }
    }
    *out = a;
    return 0;
}

int added_check(const struct added *a, const char *path, const struct vocab *v,
                struct err *err)
{
    size_t next = vocab_count(v);

    for (size_t i = 0; i < a->n; i++) {
        const struct added_token *t = &a->v[i];
        const struct added_token *before = added_by_text(a, t->text);
        long id = vocab_id(v, t->text, strlen(t->text));

        if (id < 0)
            id = before < t ? (long)before->id : (long)next;
        if ((uint32_t)id != t->id)
            return err_set(err, ERR_INPUT,
                           "%s: added_tokens: '%s' has the id %u where %ld follows",
                           path, t->text, (unsigned)t->id, id);
        if ((size_t)id >= next)
            next = (size_t)id + 1;
    }
    return 0;
}

void added_free(struct added *a)
{
    if (!a)
        return;
    for (size_t i = 0; i < a->n; i++) {
        free(a->v[i].text);
        free(a->v[i].match);
    }
    free(a->v);
    free(a);
}

void added_splits_clear(struct added_splits *s)
{
    free(s->v);
    *s = (struct added_splits){ 0 };
}

/* The longest token at AT; among equal ones a special token, then the first. */
static const struct added_token *token_at(const struct added *a, bool normalized,
                                          const char *text, size_t left)
{
    const struct added_token *best = NULL;

    if (!a->begins[normalized][(unsigned char)*text])
        return NULL;
    for (size_t i = 0; i < a->n; i++) {
        const struct added_token *t = &a->v[i];

        if (t->normalized == normalized && t->len <= left &&
            (!best || t->len > best->len ||
             (t->len == best->len && t->special && !best->special)) &&
            !memcmp(text, t->match, t->len))
            best = t;
    }
    return best;
}

static bool stands_alone(const char *text, size_t len, size_t start, size_t end)
{
    size_t used;

    return !(start && chars_is_word(chars_before(text, start, &used))) &&
           !(end < len && chars_is_word(chars_at(text + end, len - end, &used)));
}

static void add_split(struct added_splits *out, const struct added_token *token,
                      size_t start, size_t end)
{
    out->v = xgrow(out->v, &out->cap, out->n + 1, sizeof(*out->v));
    out->v[out->n++] = (struct added_split){ token, start, end };
}

void added_find(const struct added *a, bool normalized, const char *text, size_t len,
                struct added_splits *out)
{
    size_t done = 0, at = 0, used;

    while (at < len) {
        const struct added_token *t = token_at(a, normalized, text + at, len - at);
        size_t start = at, end;

        at += t ? t->len : 1;
        if (!t || (t->single_word && !stands_alone(text, len, start, at)))
            continue;
        end = at;
        while (t->lstrip && start > done &&
               chars_is_space(chars_before(text, start, &used)))
            start -= used;
        while (t->rstrip && end < len &&
               chars_is_space(chars_at(text + end, len - end, &used)))
            end += used;
        if (start > done)
            add_split(out, NULL, done, start);
        add_split(out, t, start, end);
        done = end;
    }
    if (done < len)
        add_split(out, NULL, done, len);
}

const struct added_token *added_by_id(const struct added *a, uint32_t id)
{
    for (size_t i = 0; i < a->n; i++)
        if (a->v[i].id == id)
            return &a->v[i];
    return NULL;
}

const struct added_token *added_by_text(const struct added *a, const char *text)
{
    for (size_t i = 0; i < a->n; i++)
        if (!strcmp(a->v[i].text, text))
            return &a->v[i];
    return NULL;
}

const struct added_token *added_at(const struct added *a, size_t i)
{
    return i < a->n ? &a->v[i] : NULL;
}

size_t added_size(const struct added *a)
{
    size_t size = 0;

    for (size_t i = 0; i < a->n; i++)
        if (a->v[i].id >= size)
            size = (size_t)a->v[i].id + 1;
    return size;
}
