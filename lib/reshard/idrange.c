/* idrange - token ids that a model's files name, against the rows of its vocabulary */
#include "lib/reshard/idrange.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/fs.h"
#include "lib/base/jsonlex.h"
#include "lib/base/str.h"

enum { MAX_JSON = 256 << 20 };

/* The largest id of a file, and the ids below 0. */
struct ids {
    int64_t most, least;
    uint64_t beyond; /* ids without a row */
    uint64_t rows;
    struct str of; /* the token or key of the largest */
    bool any;
};

static void add_id(struct ids *ids, int64_t id, const char *of)
{
    ids->beyond += id >= 0 && (uint64_t)id >= ids->rows;
    if (!ids->any || id < ids->least)
        ids->least = id;
    if (!ids->any || id > ids->most) {
        ids->most = id;
        str_reset(&ids->of);
        str_add(&ids->of, of);
    }
    ids->any = true;
}

/* The keys of the objects that are open. */
struct keys {
    struct str key[JSONLEX_DEPTH + 1]; /* by depth */
};

static bool key_is(const struct keys *k, int depth, const char *name)
{
    return !strcmp(str_text(&k->key[depth]), name);
}

static bool is_id_key(const char *key)
{
    static const char *const names[] = {
        "bos_token_id",           "eos_token_id", "pad_token_id",
        "decoder_start_token_id", "sep_token_id", "cls_token_id",
        "mask_token_id",          "unk_token_id", NULL
    };

    for (size_t i = 0; names[i]; i++)
        if (!strcmp(key, names[i]))
            return true;
    return false;
}

/* The current token is a number: is it an id?  *OF is then what it is the id of. */
static bool number_is_id(const struct jsonlex *lex, const struct keys *k,
                         enum idrange_form form, const char **of)
{
    int depth = lex->depth;

    *of = str_text(&k->key[depth]);
    switch (form) {
    case IDRANGE_TOKENIZER:
        if (depth == 3 && key_is(k, 1, "model") && key_is(k, 2, "vocab"))
            return true;
        return depth == 3 && key_is(k, 1, "added_tokens") && key_is(k, 3, "id");
    case IDRANGE_VOCAB:
        return depth == 1;
    case IDRANGE_ADDED:
        return false;
    case IDRANGE_SETTINGS:
        if (is_id_key(*of))
            return depth == 1 || (depth == 2 && key_is(k, 1, "text_config"));
        if (depth != 2)
            return false;
        *of = str_text(&k->key[1]);
        return is_id_key(*of);
    }
    return false;
}

/* Reads all ids of a file. */
static int read_ids(struct ids *ids, const char *path, const char *text, size_t n,
                    enum idrange_form form, struct err *err)
{
    struct keys k = { 0 };
    struct jsonlex lex;
    int64_t pieces = 0, id;
    const char *of;
    int ret = -1;

    jsonlex_init(&lex, path, text, n);
    lex.constants = true;
    while (jsonlex_next(&lex, err) == 0) {
        if (lex.token == JSONLEX_END) {
            ret = 0;
            break;
        }
        if (lex.token == JSONLEX_KEY) {
            str_reset(&k.key[lex.depth]);
            str_add(&k.key[lex.depth], lex.text.s);
            if (form == IDRANGE_ADDED && lex.depth == 2 &&
                key_is(&k, 1, "added_tokens_decoder") && str_i64(lex.text.s, &id))
                add_id(ids, id, "added_tokens_decoder");
        } else if (lex.token == JSONLEX_ARRAY || lex.token == JSONLEX_OBJECT) {
            str_reset(&k.key[lex.depth]);
            /* Unigram's vocabulary is a list: a piece's place is its id */
            if (form == IDRANGE_TOKENIZER && lex.token == JSONLEX_ARRAY &&
                lex.depth == 4 && key_is(&k, 1, "model") && key_is(&k, 2, "vocab"))
                add_id(ids, pieces++, "a piece");
        } else if (lex.token == JSONLEX_NUMBER && str_i64(lex.text.s, &id) &&
                   number_is_id(&lex, &k, form, &of)) {
            add_id(ids, id, of);
        }
    }
    for (int i = 0; i <= JSONLEX_DEPTH; i++)
        str_clear(&k.key[i]);
    jsonlex_clear(&lex);
    return ret;
}

int idrange_read(struct inspection *out, const char *name, const char *path,
                 const char *text, size_t n, enum idrange_form form, uint64_t rows,
                 struct err *err)
{
    struct ids ids = { .rows = rows };
    struct str token = { 0 };
    int ret = read_ids(&ids, path, text, n, form, err);

    if (ret == 0) {
        str_add_json(&token, str_text(&ids.of));
        if (ids.beyond == 1)
            inspection_add(out, INSPECTION_ERROR, name, NULL,
                           "%s has the id %" PRId64 ", but the embedding has %" PRIu64
                           " rows",
                           str_text(&token), ids.most, rows);
        else if (ids.beyond)
            inspection_add(out, INSPECTION_ERROR, name, NULL,
                           "%" PRIu64 " ids up to %" PRId64
                           " (%s), but the embedding has %" PRIu64 " rows",
                           ids.beyond, ids.most, str_text(&token), rows);
        if (ids.any && ids.least < 0)
            inspection_add(
                out, form == IDRANGE_SETTINGS ? INSPECTION_NOTE : INSPECTION_ERROR,
                name, NULL, "names the id %" PRId64 ", which is no token", ids.least);
    }
    str_clear(&ids.of);
    str_clear(&token);
    return ret;
}

static int inspect_ids(struct inspection *out, const char *dir, const char *name,
                       enum idrange_form form, uint64_t rows, struct err *err)
{
    char *path = fs_join_dup(dir, name), *text = NULL;
    struct err cause = { 0 };
    size_t n;
    int ret = 0;

    if (fs_read_optional(&text, &n, path, MAX_JSON, &cause) < 0 ||
        (text && idrange_read(out, name, path, text, n, form, rows, &cause) < 0))
        ret = inspection_take(out, INSPECTION_ERROR, name, path, &cause, err);
    free(text);
    free(path);
    return ret;
}

int idrange_inspect(struct inspection *out, const char *dir, uint64_t rows,
                    struct err *err)
{
    static const struct {
        const char *name;
        enum idrange_form form;
    } files[] = {
        { "tokenizer.json", IDRANGE_TOKENIZER },
        { "vocab.json", IDRANGE_VOCAB },
        { "added_tokens.json", IDRANGE_VOCAB },
        { "tokenizer_config.json", IDRANGE_ADDED },
        { "generation_config.json", IDRANGE_SETTINGS },
        { "config.json", IDRANGE_SETTINGS },
    };

    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++)
        if (inspect_ids(out, dir, files[i].name, files[i].form, rows, err) < 0)
            return -1;
    return 0;
}
