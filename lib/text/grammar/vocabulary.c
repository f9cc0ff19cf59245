/* vocabulary - the tokens of a tokenizer by their bytes, for grammars */
#include "lib/text/grammar/vocabulary.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

enum { PLAIN_MOST = 16 /* characters */ };

struct vocabulary {
    const struct tokenizer *t;
    bool prepared, drops;
    size_t n;
    struct str text; /* the bytes of all tokens */
    size_t *at;      /* [n + 1] */
    int32_t *same;   /* [n] */
    struct vocabulary_tree all, rest;
    uint32_t *plain;
};

int vocabulary_open(struct vocabulary **out, const struct tokenizer *t, struct err *err)
{
    struct vocabulary *v;

    if (!tokenizer_has_bytes(t))
        return err_set(err, ERR_INPUT,
                       "the text of a token depends on the tokens after it, which a "
                       "grammar cannot know");
    v = xcalloc(1, sizeof(*v));
    v->t = t;
    v->n = tokenizer_size(t);
    *out = v;
    return 0;
}

void vocabulary_free(struct vocabulary *v)
{
    if (!v)
        return;
    str_clear(&v->text);
    free(v->at);
    free(v->same);
    free(v->all.v);
    free(v->rest.v);
    free(v->plain);
    free(v);
}

size_t vocabulary_size(const struct vocabulary *v)
{
    return v->n;
}

size_t vocabulary_words(const struct vocabulary *v)
{
    return (v->n + 31) / 32;
}

/* ---- the tree ---- */

struct sorted {
    const char *text;
    size_t len;
    int32_t id;
};

static int by_bytes(const void *a, const void *b)
{
    const struct sorted *x = a, *y = b;
    const size_t n = x->len < y->len ? x->len : y->len;
    const int order = memcmp(x->text, y->text, n);

    return order              ? order
           : x->len != y->len ? (x->len > y->len) - (x->len < y->len)
                              : (x->id > y->id) - (x->id < y->id);
}

/* Makes OUT of the N tokens S, which are sorted. */
static void make_tree(struct vocabulary *v, struct vocabulary_tree *out,
                      const struct sorted *s, size_t n)
{
    uint32_t path[4096]; /* the open node of each depth */
    size_t depth = 0;

    for (size_t i = 0; i < n; i++) {
        size_t common = 0;

        while (i && common < depth && common < s[i].len &&
               s[i].text[common] == s[i - 1].text[common])
            common++;
        if (i && common == s[i].len && common == s[i - 1].len) {
            v->same[s[i - 1].id] = s[i].id;
            continue;
        }
        while (depth > common)
            out->v[path[--depth]].end = (uint32_t)out->n;
        out->v = xgrow(out->v, &out->cap, out->n + s[i].len - depth, sizeof(*out->v));
        for (; depth < s[i].len; depth++) {
            path[depth] = (uint32_t)out->n;
            out->v[out->n++] =
                (struct vocabulary_node){ .id = -1,
                                          .depth = (uint32_t)depth,
                                          .byte = (unsigned char)s[i].text[depth] };
        }
        out->v[out->n - 1].id = s[i].id;
        out->deepest = depth > out->deepest ? depth : out->deepest;
    }
    while (depth > 0)
        out->v[path[--depth]].end = (uint32_t)out->n;
}

/* The characters of TEXT[n]; more than PLAIN_MOST if it is no part of a string of JSON
 * as it is. */
static size_t plain_characters(const char *text, size_t n)
{
    size_t count = 0;

    for (size_t at = 0; at < n; count++) {
        uint32_t cp;
        const size_t used = str_utf8_decode(text + at, n - at, &cp);

        if (!used || cp < 0x20 || cp == '"' || cp == '\\')
            return PLAIN_MOST + 1;
        at += used;
    }
    return count;
}

/* A token for a byte that no text has is not to be taken for the mark of others. */
static bool has_mark(const struct str *bytes)
{
    return bytes->len && (bytes->len == 1 ? *bytes->s == VOCABULARY_MARK
                                          : memchr(bytes->s + 1, VOCABULARY_MARK,
                                                   bytes->len - 1) != NULL);
}

static void read_tokens(struct vocabulary *v)
{
    enum { LONGEST = 4095 };
    struct str one = { 0 };

    for (size_t i = 0; i < v->n; i++) {
        size_t len;

        v->at[i] = v->text.len;
        v->same[i] = -1;
        str_reset(&one);
        if (tokenizer_piece(v->t, (uint32_t)i, &len) &&
            tokenizer_bytes(v->t, (uint32_t)i, &one, VOCABULARY_MARK) &&
            one.len <= LONGEST && !has_mark(&one))
            str_addn(&v->text, str_text(&one), one.len);
    }
    v->at[v->n] = v->text.len;
    str_clear(&one);
}

/* Does a text that begins with token ID lose the space of it? */
static bool loses_space(const struct vocabulary *v, uint32_t id)
{
    struct str alone = { 0 };
    bool loses;

    tokenizer_decode(v->t, &id, 1, false, &alone);
    loses = alone.len && *alone.s != ' ';
    str_clear(&alone);
    return loses;
}

/* The first token that is a space and a letter tells for all of them. */
static bool find_drops(const struct vocabulary *v)
{
    for (size_t i = 0; i < v->n; i++)
        if (v->at[i + 1] > v->at[i] + 1 && v->text.s[v->at[i]] == ' ' &&
            v->text.s[v->at[i] + 1] > ' ')
            return loses_space(v, (uint32_t)i);
    return false;
}

void vocabulary_prepare(struct vocabulary *v)
{
    struct sorted *s;
    size_t n = 0, rest = 0;

    if (v->prepared)
        return;
    v->prepared = true;
    v->at = xcalloc(v->n + 1, sizeof(*v->at));
    v->same = xcalloc(v->n + 1, sizeof(*v->same));
    v->plain = xcalloc(vocabulary_words(v) + 1, sizeof(*v->plain));
    read_tokens(v);
    v->drops = find_drops(v);
    s = xcalloc(v->n + 1, sizeof(*s));
    for (size_t i = 0; i < v->n; i++)
        if (v->at[i + 1] > v->at[i])
            s[n++] = (struct sorted){ v->text.s + v->at[i], v->at[i + 1] - v->at[i],
                                      (int32_t)i };
    qsort(s, n, sizeof(*s), by_bytes);
    make_tree(v, &v->all, s, n);
    for (size_t i = 0; i < n; i++)
        if (plain_characters(s[i].text, s[i].len) <= PLAIN_MOST)
            v->plain[s[i].id / 32] |= 1U << s[i].id % 32;
        else
            s[rest++] = s[i];
    make_tree(v, &v->rest, s, rest);
    free(s);
}

const struct vocabulary_tree *vocabulary_tree(const struct vocabulary *v)
{
    return &v->all;
}

const struct vocabulary_tree *vocabulary_rest(const struct vocabulary *v,
                                              const uint32_t **plain, size_t *longest)
{
    *plain = v->plain;
    *longest = PLAIN_MOST;
    return &v->rest;
}

int32_t vocabulary_same(const struct vocabulary *v, int32_t id)
{
    return v->same[id];
}

bool vocabulary_drops_space(const struct vocabulary *v)
{
    return v->drops;
}

const char *vocabulary_bytes(struct vocabulary *v, uint32_t id, bool first, size_t *len)
{
    const char *text;

    vocabulary_prepare(v);
    if (id >= v->n || v->at[id] == v->at[id + 1])
        return NULL;
    text = v->text.s + v->at[id];
    *len = v->at[id + 1] - v->at[id];
    if (first && v->drops && *text == ' ') {
        text++;
        --*len;
    }
    return text;
}

bool vocabulary_has(struct vocabulary *v, const char *bytes)
{
    const size_t n = strlen(bytes);

    vocabulary_prepare(v);
    for (size_t i = 0; i < v->n; i++)
        if (v->at[i + 1] - v->at[i] == n && !memcmp(v->text.s + v->at[i], bytes, n))
            return true;
    return false;
}
