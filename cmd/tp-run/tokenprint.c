/* tokenprint - prints the tokens of texts, and the texts of tokens */
#include "cmd/tp-run/tokenprint.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/fs.h"
#include "lib/base/json.h"
#include "lib/base/mem.h"
#include "lib/ckpt/gguftokens.h"
#include "lib/text/oldfiles.h"

enum { MOST_TEXT = 1 << 28, MOST_CONFIG = 1 << 24 };

/* ---- opening ---- */

/* The model_type of the directory's config.json; *out is NULL if there is none. */
static int read_type(char **out, const char *dir, struct err *err)
{
    char *path = fs_join_dup(dir, "config.json"), *text = NULL;
    cJSON *config = NULL;
    int ret = fs_read_optional(&text, NULL, path, MOST_CONFIG, err);

    *out = NULL;
    if (ret == 0 && text)
        ret = json_read_config(&config, path, text, strlen(text), err);
    if (ret == 0 && config) {
        const cJSON *type = cJSON_GetObjectItemCaseSensitive(config, "model_type");

        *out = cJSON_IsString(type) ? xstrdup(type->valuestring) : NULL;
    }
    cJSON_Delete(config);
    free(text);
    free(path);
    return ret;
}

static int open_directory(struct tokenizer **out, const char *dir, struct err *err)
{
    char *path = fs_join_dup(dir, "tokenizer.json"), *type = NULL;
    bool found;
    int ret = fs_find(&found, path, err);

    *out = NULL;
    if (ret == 0 && found)
        ret = tokenizer_open(out, path, err);
    else if (ret == 0 && (ret = read_type(&type, dir, err)) == 0)
        ret = oldfiles_open(out, dir, type, err);
    if (ret == 0 && !*out)
        ret = err_set(err, ERR_INPUT, "%s: no tokenizer.json, nor an older tokenizer",
                      dir);
    free(type);
    free(path);
    return ret;
}

int tokenprint_open(struct tokenizer **out, const char *model, struct err *err)
{
    char *made = NULL;
    bool is_dir;
    int ret;

    if (fs_find_dir(&is_dir, model, err) < 0)
        return -1;
    if (is_dir)
        return open_directory(out, model, err);
    ret = oldfiles_open_file(out, model, err);
    if (ret < 0 || *out)
        return ret;
    ret = gguf_read_tokenizer(&made, model, err);
    if (ret == 0)
        ret = made ? tokenizer_parse(out, model, made, err)
                   : tokenizer_open(out, model, err);
    free(made);
    return ret;
}

/* ---- tokens ---- */

struct place {
    size_t start, end; /* bytes of the text */
};

/* How many bytes at the end of the N bytes at GIVEN are those of token ID, if that is
 * less than all of them: the bytes before were held back, as those of a character that
 * had no token of its own. */
static size_t own_bytes(const struct tokenizer *t, uint32_t id, const char *given,
                        size_t n)
{
    struct str own = { 0 };
    size_t len;

    tokenizer_decode(t, &id, 1, false, &own);
    len = own.len < n && !memcmp(given + n - own.len, str_text(&own), own.len) ? own.len
                                                                               : 0;
    str_clear(&own);
    return len;
}

/* Sets PLACE[i] to what token i is of the LEN bytes at TEXT.  Tokens that are parts of
 * a character have all of it.  Returns false if the tokens' text is not the text, but
 * for spaces before it, which decoders drop: a normalizer has changed it. */
static bool find_places(const struct tokenizer *t, const struct tokens *tokens,
                        const char *text, size_t len, struct place *place)
{
    struct token_stream *stream = token_stream_new(t, false);
    struct str back = { 0 };
    size_t open = 0, lost;
    bool same;

    for (size_t i = 0; i <= tokens->n; i++) {
        size_t before = back.len;

        if (i < tokens->n)
            token_stream_feed(stream, tokens->id[i], &back);
        else
            token_stream_end(stream, &back);
        if (back.len == before && i < tokens->n)
            continue;
        if (open < i && i < tokens->n) {
            size_t own =
                own_bytes(t, tokens->id[i], back.s + before, back.len - before);

            for (; open < i && own; open++)
                place[open] = (struct place){ before, back.len - own };
            before = own ? back.len - own : before;
        }
        for (; open <= i && open < tokens->n; open++)
            place[open] = (struct place){ before, back.len };
    }
    lost = back.len < len ? len - back.len : 0;
    same = strspn(text, " ") >= lost && back.len + lost == len &&
           !memcmp(str_text(&back), text + lost, back.len);
    for (size_t i = 0; i < tokens->n && lost; i++) {
        place[i].start += i ? lost : 0;
        place[i].end += lost;
    }
    token_stream_free(stream);
    str_clear(&back);
    return same;
}

static void print_json(const struct tokenprint *p, const char *name,
                       const struct tokens *ids, size_t front, size_t n,
                       const struct place *place, size_t len)
{
    struct str out = { 0 };

    str_add(&out, "{\"type\":\"tokens\",\"file\":");
    if (name)
        str_add_json(&out, name);
    else
        str_add(&out, "null");
    str_addf(&out, ",\"count\":%zu", ids->n);
    for (int part = 0; part < 3 && !p->count; part++) {
        static const char *const keys[] = { "ids", "pieces", "offsets" };

        str_addf(&out, ",\"%s\":", keys[part]);
        if (part == 2 && !place) {
            str_add(&out, "null");
            continue;
        }
        str_addc(&out, '[');
        for (size_t i = 0; i < ids->n; i++) {
            size_t piece_len;
            const char *piece = tokenizer_piece(p->tokenizer, ids->id[i], &piece_len);

            str_add(&out, i ? "," : "");
            if (part == 0)
                str_addf(&out, "%u", (unsigned)ids->id[i]);
            else if (part == 1)
                str_add_jsonn(&out, piece ? piece : "", piece ? piece_len : 0);
            else if (i < front)
                str_add(&out, "[0,0]");
            else if (i >= front + n)
                str_addf(&out, "[%zu,%zu]", len, len);
            else
                str_addf(&out, "[%zu,%zu]", place[i - front].start,
                         place[i - front].end);
        }
        str_addc(&out, ']');
    }
    str_addc(&out, '}');
    puts(out.s);
    str_clear(&out);
}

static void print_table(const struct tokenprint *p, const struct tokens *ids,
                        size_t front, size_t n, const struct place *place)
{
    for (size_t i = 0; i < ids->n; i++) {
        size_t len;
        const char *piece = tokenizer_piece(p->tokenizer, ids->id[i], &len);
        struct str quoted = { 0 }, at = { 0 };

        str_add_jsonn(&quoted, piece ? piece : "", piece ? len : 0);
        if (place && i >= front && i < front + n)
            str_addf(&at, "%zu-%zu", place[i - front].start, place[i - front].end);
        else
            str_addc(&at, '-');
        printf("%7u  %-13s  %s\n", (unsigned)ids->id[i], at.s, quoted.s);
        str_clear(&quoted);
        str_clear(&at);
    }
}

/* How many of IDS are before the ids of the text alone, OWN. */
static size_t find_front(const struct tokens *ids, const struct tokens *own)
{
    for (size_t front = 0; front + own->n <= ids->n; front++)
        if (!own->n || !memcmp(ids->id + front, own->id, own->n * sizeof(*own->id)))
            return front;
    return 0;
}

/* NAME: of the file, or NULL. */
static int print_text(const struct tokenprint *p, const char *name, const char *text,
                      size_t len, struct err *err)
{
    struct tokens ids = { 0 }, own = { 0 };
    struct place *place = NULL;
    int ret = tokenizer_encode(p->tokenizer, text, len, !p->bare, &ids, err);

    if (ret == 0 && !p->count)
        ret = tokenizer_encode(p->tokenizer, text, len, false, &own, err);
    if (ret < 0)
        goto out;
    if (!p->count) {
        place = xcalloc(own.n + 1, sizeof(*place));
        if (!find_places(p->tokenizer, &own, text, len, place)) {
            free(place);
            place = NULL;
        }
    }
    if (p->json)
        print_json(p, name, &ids, find_front(&ids, &own), own.n, place, len);
    else if (!p->count)
        print_table(p, &ids, find_front(&ids, &own), own.n, place);
    else
        printf(name ? "%zu %s\n" : "%zu\n", ids.n, name);
out:
    free(place);
    tokens_clear(&ids);
    tokens_clear(&own);
    return ret;
}

int tokenprint_files(const struct tokenprint *p, char **file, struct err *err)
{
    char *const standard[] = { (char[]){ "-" }, NULL };

    if (p->text)
        return print_text(p, NULL, p->text, strlen(p->text), err);
    for (char *const *f = file[0] ? file : standard; *f; f++) {
        char *text;
        size_t len;
        int ret;

        if (fs_read_file(&text, &len, *f, MOST_TEXT, err) < 0)
            return -1;
        ret = print_text(p, strcmp(*f, "-") ? *f : NULL, text, len, err);
        free(text);
        if (ret < 0)
            return -1;
    }
    return 0;
}
