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

/* PLACE[ids->n], or NULL: of each token in the text. */
static void print_json(const struct tokenprint *p, const char *name,
                       const struct tokens *ids, const struct origin *place)
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
            size_t len;
            const char *piece = tokenizer_piece(p->tokenizer, ids->id[i], &len);

            str_add(&out, i ? "," : "");
            if (part == 0)
                str_addf(&out, "%u", (unsigned)ids->id[i]);
            else if (part == 1)
                str_add_jsonn(&out, piece ? piece : "", piece ? len : 0);
            else
                str_addf(&out, "[%zu,%zu]", place[i].start, place[i].end);
        }
        str_addc(&out, ']');
    }
    str_addc(&out, '}');
    puts(out.s);
    str_clear(&out);
}

static void print_table(const struct tokenprint *p, const struct tokens *ids,
                        const struct origin *place)
{
    for (size_t i = 0; i < ids->n; i++) {
        size_t len;
        const char *piece = tokenizer_piece(p->tokenizer, ids->id[i], &len);
        struct str quoted = { 0 }, at = { 0 };

        str_add_jsonn(&quoted, piece ? piece : "", piece ? len : 0);
        if (place && place[i].end)
            str_addf(&at, "%zu-%zu", place[i].start, place[i].end);
        else
            str_addc(&at, '-');
        printf("%7u  %-13s  %s\n", (unsigned)ids->id[i], at.s, quoted.s);
        str_clear(&quoted);
        str_clear(&at);
    }
}

/* NAME: of the file, or NULL. */
static int print_text(const struct tokenprint *p, const char *name, const char *text,
                      size_t len, struct err *err)
{
    struct tokens ids = { .traced = true };
    int ret = tokenizer_encode(p->tokenizer, text, len, !p->bare, &ids, err);
    /* of ill-formed bytes, which became U+FFFD, there are no places */
    const struct origin *place = str_is_utf8(text, len) ? ids.from : NULL;

    if (ret == 0 && p->json)
        print_json(p, name, &ids, place);
    else if (ret == 0 && !p->count)
        print_table(p, &ids, place);
    else if (ret == 0)
        printf(name ? "%zu %s\n" : "%zu\n", ids.n, name);
    tokens_clear(&ids);
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
