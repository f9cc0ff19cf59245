/* inputlines - the inputs of a file: texts, lines of JSON, elements of an array */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/tp-run/inputs.h"
#include "cmd/tp-run/named.h"
#include "lib/base/fs.h"
#include "lib/base/json.h"
#include "lib/base/jsonlex.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

static const uint64_t MOST_BYTES = UINT64_C(1) << 32;

static const char *name_of(const char *path)
{
    return strcmp(path, "-") ? path : "standard input";
}

/* ---- JSON lines ---- */

/* Reads a JSON array of numbers as ids. */
static int add_numbers(const struct session *s, struct ids *out, const cJSON *array,
                       const char *name, struct err *err)
{
    const char *key =
        array->string ? array->string : "choices"; /* an element of them */
    struct str list = { 0 };
    const cJSON *one;
    int ret;

    if (!cJSON_IsArray(array))
        return err_set(err, ERR_INPUT, "%s: '%s' is no list", name, key);
    cJSON_ArrayForEach(one, array)
    {
        if (!cJSON_IsNumber(one)) {
            str_clear(&list);
            return err_set(err, ERR_INPUT, "%s: '%s' has an element that is no number",
                           name, key);
        }
        str_addf(&list, "%s%.17g", list.len ? "," : "", one->valuedouble);
    }
    ret = session_parse_ids(s, out, str_text(&list), name, err);
    str_clear(&list);
    return ret;
}

/* Does LINE[len] contain half of a surrogate pair of \u escapes?  *at is its offset. */
static bool has_lone_surrogate(const char *line, size_t len, size_t *at)
{
    bool high = false; /* the previous escape is a high surrogate */

    for (size_t i = 0; i < len; i++) {
        unsigned code = 0;
        bool escape = line[i] == '\\' && i + 5 < len && line[i + 1] == 'u';

        if (escape)
            escape = sscanf(line + i + 2, "%4x", &code) == 1;
        if (high && !(escape && code >= 0xDC00 && code <= 0xDFFF))
            return true;
        if (!high && escape && code >= 0xDC00 && code <= 0xDFFF) {
            *at = i;
            return true;
        }
        high = !high && escape && code >= 0xD800 && code <= 0xDBFF;
        if (high)
            *at = i;
        i += escape ? 5 : line[i] == '\\';
    }
    return high;
}

/* Does LINE[len] have the escape of U+0000, which would end a text?  *at is its
 * offset. */
static bool has_nul(const char *line, size_t len, size_t *at)
{
    for (size_t i = 0; i + 1 < len; i++)
        if (line[i] == '\\') {
            *at = i++;
            if (len - i >= 5 && !memcmp(line + i, "u0000", 5))
                return true;
        }
    return false;
}

/* Parses LINE[len] as one JSON value; NULL on error. */
static cJSON *parse_line(const char *name, const char *line, size_t len,
                         struct err *err)
{
    cJSON *root;
    size_t at;

    if (json_check_cost(name, line, len, err) < 0)
        return NULL;
    if (has_nul(line, len, &at)) {
        err_set(err, ERR_INPUT, "%s: a text has the character U+0000, at byte %zu",
                name, at);
        return NULL;
    }
    root = strlen(line) == len ? cJSON_ParseWithOpts(line, NULL, true) : NULL;
    if (!root && has_lone_surrogate(line, len, &at))
        err_set(err, ERR_INPUT,
                "%s: not valid JSON: half of a surrogate pair, %.6s, at byte %zu", name,
                line + at, at);
    else if (!root)
        err_set(err, ERR_INPUT, "%s: not valid JSON", name);
    return root;
}

/* Member A of ROOT, or else member B, or NULL. */
static const cJSON *member(const cJSON *root, const char *a, const char *b)
{
    const cJSON *j = cJSON_GetObjectItemCaseSensitive(root, a);

    return j || !b ? j : cJSON_GetObjectItemCaseSensitive(root, b);
}

/* Adds an input for each element of CHOICES beside TEXT; adds all or none. */
static int add_choices(struct inputs *in, const struct session *s, const char *name,
                       const char *text, const cJSON *choices, size_t line,
                       struct err *err)
{
    size_t before = in->n;
    const cJSON *one;

    cJSON_ArrayForEach(one, choices)
    {
        if (!cJSON_IsString(one))
            err_set(err, ERR_INPUT, "%s: 'choices' has an element that is no text",
                    name);
        if (!cJSON_IsString(one) ||
            inputs_add_pair(in, s, name, text, one->valuestring, err) < 0) {
            while (in->n > before)
                inputs_drop(&in->v[--in->n]);
            return -1;
        }
        in->v[in->n - 1].line = line;
    }
    if (in->n == before)
        return err_set(err, ERR_INPUT, "%s: no choices", name);
    in->v[before].choices = in->n - before;
    return 0;
}

/* ---- choices that go on from a text ---- */

/* The ids of the text JSON, or of the list of ids that it is. */
static int take_either(const struct session *s, struct ids *out, const char *name,
                       const cJSON *json, struct err *err)
{
    return cJSON_IsString(json) ? inputs_encode(s, out, name, json->valuestring,
                                                strlen(json->valuestring), err)
                                : add_numbers(s, out, json, name, err);
}

/* *ONE = TEXT with CHOICE after it, as one text; spaces at the end of TEXT belong to
 * the choice, whose tokens are those after as many as TEXT alone has. */
static int join_texts(const struct session *s, struct input *one, const char *text,
                      const char *choice, struct err *err)
{
    char *all = str_dupf("%s%s", text, choice);
    size_t n = strlen(text);
    struct ids alone = { 0 };
    int ret;

    while (n && text[n - 1] == ' ')
        n--;
    ret = inputs_encode(s, &one->ids, one->name, all, strlen(all), err);
    if (ret == 0 && n)
        ret = inputs_encode(s, &alone, one->name, text, n, err);
    one->pair[0] = alone.n;
    free(all);
    ids_clear(&alone);
    return ret;
}

static int join_ids(const struct session *s, struct input *one, const cJSON *ids,
                    const cJSON *choice, struct err *err)
{
    if (add_numbers(s, &one->ids, ids, one->name, err) < 0)
        return -1;
    one->pair[0] = one->ids.n;
    return add_numbers(s, &one->ids, choice, one->name, err);
}

/* *ONE = what CHOICE makes of the object ROOT. */
static int read_continued(const struct session *s, struct input *one, const cJSON *root,
                          const cJSON *choice, struct err *err)
{
    const cJSON *text = member(root, "text", "prompt"),
                *ids = member(root, "ids", NULL);
    const cJSON *source = member(root, "source", "source_ids");
    int ret;

    if (s->source && !source && !text)
        ret = err_set(err, ERR_INPUT, "%s: choices need a 'text' or a 'source'",
                      one->name);
    else if (s->source)
        ret = take_either(s, &one->source, one->name, source ? source : text, err) < 0
                  ? -1
                  : take_either(s, &one->ids, one->name, choice, err);
    else if (cJSON_IsString(text) && cJSON_IsString(choice))
        ret = join_texts(s, one, text->valuestring, choice->valuestring, err);
    else if (cJSON_IsArray(ids) && cJSON_IsArray(choice))
        ret = join_ids(s, one, ids, choice, err);
    else
        ret = err_set(err, ERR_INPUT,
                      "%s: choices are texts after a 'text', or lists after 'ids'",
                      one->name);
    one->pair[1] = one->ids.n;
    if (ret == 0 && (one->ids.n <= one->pair[0] || (!s->source && one->ids.n < 2)))
        ret =
            err_set(err, ERR_INPUT, "%s: a choice has no token of its own", one->name);
    for (const char *p = choice->valuestring; cJSON_IsString(choice) && *p; p++)
        one->letters += ((unsigned char)*p & 0xC0) != 0x80;
    return ret;
}

/* Adds an input for each element of CHOICES; all or none. */
static int add_continued(struct inputs *in, const struct session *s, const char *name,
                         const cJSON *root, const cJSON *choices, size_t line,
                         struct err *err)
{
    const size_t before = in->n;
    const cJSON *one;
    int ret = 0;

    cJSON_ArrayForEach(one, choices)
    {
        struct input own = { .name = xstrdup(name), .line = line };

        ret = inputs_add(in, &own, read_continued(s, &own, root, one, err));
        if (ret < 0)
            break;
    }
    if (ret == 0 && in->n < before + 2)
        ret = err_set(err, ERR_INPUT, "%s: fewer than two choices", name);
    if (ret < 0) {
        while (in->n > before)
            inputs_drop(&in->v[--in->n]);
        return -1;
    }
    in->v[before].choices = in->n - before;
    return 0;
}

/* Keeps LINE[len], the object ROOT, if it says how its text is generated. */
static void keep_settings(const struct inputs *in, struct input *one, const cJSON *root,
                          const char *line, size_t len)
{
    const cJSON *value;
    bool any = false;

    if (!in->is_setting || !cJSON_IsObject(root))
        return;
    cJSON_ArrayForEach(value, root) any |= in->is_setting(value->string);
    if (any)
        one->settings = xstrndup(line, len);
}

/* Sets *number to the adapter that the line ROOT chooses; 0: none. */
static int read_adapter(const struct session *s, int *number, const char *name,
                        const cJSON *root, struct err *err)
{
    const cJSON *adapter = cJSON_GetObjectItemCaseSensitive(root, "adapter");
    struct err cause = { 0 };

    if (!adapter || cJSON_IsNull(adapter))
        return 0;
    if (!cJSON_IsString(adapter))
        return err_set(err, ERR_INPUT, "%s: 'adapter' is no text", name);
    return session_adapter(s, number, adapter->valuestring, &cause) < 0
               ? err_set(err, cause.kind, "%s: %s", name, cause.text)
               : 0;
}

/* Adds what ROOT, the line LINE[len], says. */
static int add_root(struct inputs *in, const struct session *s, const char *name,
                    size_t number, const cJSON *root, const char *line, size_t len,
                    bool *has_text, struct err *err)
{
    const cJSON *text = root, *ids = NULL, *source = NULL, *pair = NULL;
    const cJSON *choices = NULL;
    struct input one = { .name = xstrdup(name) };
    struct ids types = { 0 };
    int ret;

    if (cJSON_IsObject(root)) {
        text = member(root, "text", "prompt");
        pair = member(root, "pair", NULL);
        choices = member(root, "choices", NULL);
        if (!text && !pair) {
            text = member(root, "question", NULL);
            pair = text ? member(root, "context", NULL) : NULL;
        }
        ids = cJSON_GetObjectItemCaseSensitive(root, "ids");
        source = cJSON_GetObjectItemCaseSensitive(root, "source");
        if (!source)
            source = cJSON_GetObjectItemCaseSensitive(root, "source_ids");
    }
    *has_text = cJSON_IsString(text) || cJSON_IsString(source);
    if ((pair && !cJSON_IsString(pair)) || (choices && !cJSON_IsArray(choices)))
        ret = err_set(err, ERR_INPUT, "%s: '%s' is no %s", name,
                      (cJSON_IsString(pair) || !pair ? choices : pair)->string,
                      cJSON_IsString(pair) || !pair ? "list" : "text");
    else if (in->continues && choices) {
        ret = add_continued(in, s, name, root, choices, number, err);
        inputs_drop(&one);
        return ret;
    } else if (ids)
        ret = add_numbers(s, &one.ids, ids, name, err);
    else if (cJSON_IsString(text) && cJSON_IsArray(choices)) {
        ret = add_choices(in, s, name, text->valuestring, choices, number, err);
        inputs_drop(&one);
        return ret;
    } else if (cJSON_IsString(text) && cJSON_IsString(pair))
        ret = session_encode_pair(s, &one.ids, &types, one.pair, text->valuestring,
                                  pair->valuestring, err);
    else if (cJSON_IsString(text)) {
        inputs_keep_text(in, &one, text->valuestring, strlen(text->valuestring));
        ret = inputs_encode(s, &one.ids, name, text->valuestring,
                            strlen(text->valuestring), err);
    } else if (cJSON_IsObject(root) && !text && (source || s->source))
        ret = 0;
    else
        ret = err_set(err, ERR_INPUT,
                      "%s: neither a text nor an object with 'text' or "
                      "'ids'",
                      name);
    if (ret == 0 && cJSON_IsString(source))
        ret = inputs_encode(s, &one.source, name, source->valuestring,
                            strlen(source->valuestring), err);
    else if (ret == 0 && source)
        ret = add_numbers(s, &one.source, source, name, err);
    if (ret == 0 && types.n)
        named_take(&one, FEED_TOKEN_TYPES, &types);
    ids_clear(&types);
    if (ret == 0 && cJSON_IsObject(root))
        ret = named_add_json(&one, s, root, err);
    keep_settings(in, &one, root, line, len);
    return inputs_add(in, &one, ret);
}

static int add_json(struct inputs *in, const struct session *s, const char *name,
                    size_t number, const char *line, size_t len, bool *has_text,
                    struct err *err)
{
    cJSON *root = parse_line(name, line, len, err);
    size_t first = in->n;
    int ret, adapter = 0;

    *has_text = false;
    if (root && read_adapter(s, &adapter, name, root, err) == 0)
        ret = add_root(in, s, name, number, root, line, len, has_text, err);
    else {
        struct input one = { .name = xstrdup(name) };

        keep_settings(in, &one, root, line, len);
        ret = inputs_add(in, &one, -1);
    }
    for (size_t i = first; i < in->n; i++)
        in->v[i].adapter = adapter;
    cJSON_Delete(root);
    return ret;
}

/* The bytes of the value of "id" in the JSON object TEXT[len], in one line; NULL: there
 * is none. */
static char *id_dup(const char *text, size_t len)
{
    struct jsonlex lex;
    struct err none = { 0 };
    char *id = NULL;

    jsonlex_init(&lex, "", text, len);
    if (jsonlex_next(&lex, &none) == 0 && lex.token == JSONLEX_OBJECT)
        while (!id && jsonlex_next(&lex, &none) == 0 && lex.token == JSONLEX_KEY) {
            bool found = !strcmp(str_text(&lex.text), "id");
            size_t start;

            if (jsonlex_next(&lex, &none) < 0)
                break;
            start = lex.start;
            if (jsonlex_skip(&lex, &none) < 0)
                break;
            if (found)
                id = xstrndup(text + start, lex.end - start);
        }
    jsonlex_clear(&lex);
    for (char *p = id; p && *p; p++)
        if (*p == '\n' || *p == '\r')
            *p = ' ';
    return id;
}

/* The inputs from FIRST on are made of the JSON object TEXT[len]. */
static void take_id(struct inputs *in, size_t first, const char *text, size_t len)
{
    char *id = id_dup(text, len);

    for (size_t i = first; id && i < in->n; i++)
        if (!in->v[i].id)
            in->v[i].id = xstrdup(id);
    free(id);
}

/* Adds LINE[len], line N of a file.  A missing tokenizer is fatal, because it affects
 * every line. */
static int add_line(struct inputs *in, const struct session *s, const char *name,
                    size_t n, bool json, const char *line, size_t len, struct err *err)
{
    struct input bad = { 0 };
    bool has_text = true;
    size_t first = in->n;
    int ret = json ? add_json(in, s, name, n, line, len, &has_text, err)
                   : inputs_add_text(in, s, name, line, len, err);

    if (ret < 0 && (err->kind != ERR_INPUT || (has_text && !s->tokenizer)))
        return -1;
    if (ret < 0) {
        bad.name = xstrdup(name);
        (void)!inputs_add(in, &bad, 0);
    }
    in->v[in->n - 1].line = n;
    if (json)
        take_id(in, first, line, len);
    if (ret < 0)
        inputs_make_bad(in, s, in->n - 1, err);
    return 0;
}

/* The first byte of TEXT[len] that is no white space of JSON, from AT on; or LEN. */
static size_t after_space(const char *text, size_t len, size_t at)
{
    while (at < len && strchr(" \t\r\n", text[at]) && text[at])
        at++;
    return at;
}

/* Is the file TEXT[len] an array, each element of which is a line? */
static int find_array(bool *array, const struct inputs *in, const char *path,
                      const char *text, size_t len, struct err *err)
{
    size_t at = after_space(text, len, 0);

    *array = false;
    if (in->format == INPUT_TEXT || at == len || text[at] != '[')
        return 0;
    *array = in->format == INPUT_JSON || str_ends(path, ".json");
    at = after_space(text, len, at + 1);
    if (*array || at == len || text[at] != '{')
        return 0;
    return err_set(
        err, ERR_USAGE,
        "%s: begins like an array of JSON objects; --input-format json reads "
        "its elements, --input-format text reads lines as text",
        name_of(path));
}

/* The next element of the array that LEX reads in TEXT, as it is written; NULL: LEX is
 * stricter than the parser that took the array, and does not read it. */
static char *element_dup(struct jsonlex *lex, const char *text)
{
    struct err none = { 0 };
    size_t start;

    if (jsonlex_next(lex, &none) < 0)
        return NULL;
    start = lex->start;
    return jsonlex_skip(lex, &none) < 0 ? NULL
                                        : xstrndup(text + start, lex->end - start);
}

static int add_elements(struct inputs *in, const struct session *s, const char *path,
                        const char *text, size_t len, struct err *err)
{
    cJSON *all = parse_line(name_of(path), text, len, err), *one;
    size_t n = 0;
    int ret = all ? 0 : -1;
    struct jsonlex lex;
    bool read;

    jsonlex_init(&lex, path, text, len);
    read = jsonlex_next(&lex, &(struct err){ 0 }) == 0 && lex.token == JSONLEX_ARRAY;
    cJSON_ArrayForEach(one, all)
    {
        char *name = str_dupf("%s:%zu", name_of(path), ++n);
        char *line = ret == 0 && read ? element_dup(&lex, text) : NULL;

        read = line != NULL;
        if (!read && ret == 0)
            line = cJSON_PrintUnformatted(one);
        if (line)
            ret = add_line(in, s, name, n, true, line, strlen(line), err);
        else if (ret == 0)
            ret = err_set(err, ERR_SYSTEM, "%s: out of memory", name);
        free(line);
        free(name);
    }
    jsonlex_clear(&lex);
    cJSON_Delete(all);
    return ret;
}

/* Adds line N, which has no character. */
static void add_empty(struct inputs *in, const char *name, size_t n)
{
    struct input one = { .name = xstrdup(name), .line = n, .empty = true };

    (void)!inputs_add(in, &one, 0);
    in->nempty++;
}

/* Is the file JSON?  LINE[len] is its first nonempty line. */
static int find_format(bool *json, const struct inputs *in, const char *name,
                       const char *line, size_t len, struct err *err)
{
    cJSON *root;
    size_t at;

    *json = in->format == INPUT_JSON;
    if (in->format != INPUT_AUTO || (*line != '{' && *line != '"'))
        return 0;
    if (has_lone_surrogate(line, len, &at) || has_nul(line, len, &at)) {
        /* valid JSON except for this */
        *json = true;
        return 0;
    }
    root = parse_line(name, line, len, NULL);
    *json = root != NULL;
    cJSON_Delete(root);
    return *json ? 0
                 : err_set(err, ERR_USAGE,
                           "%s: begins like JSON but is not valid; --input-format text "
                           "reads lines as text",
                           name);
}

/* TEXT[len] is followed by a NUL. */
static int add_lines(struct inputs *in, const struct session *s, const char *path,
                     char *text, size_t len, struct err *err)
{
    bool json = false, known = false;
    size_t n = 0, empty = 0; /* lines before the first that tells the format */
    char *end;
    int ret = 0;

    for (char *line = text; line < text + len && ret == 0; line = end + 1) {
        char *name = str_dupf("%s:%zu", name_of(path), ++n);
        bool blank;

        end = memchr(line, '\n', (size_t)(text + len - line));
        if (!end)
            end = text + len;
        *end = '\0';
        blank = end == line || (end == line + 1 && *line == '\r');
        if (!blank && !known) {
            ret = find_format(&json, in, name, line, (size_t)(end - line), err);
            known = true;
            for (size_t i = 1; in->keeps_empty && !json && i <= empty; i++) {
                char *early = str_dupf("%s:%zu", name_of(path), i);

                add_empty(in, early, i);
                free(early);
            }
        }
        if (!blank && ret == 0)
            ret = add_line(in, s, name, n, json, line, (size_t)(end - line), err);
        else if (!known)
            empty++;
        else if (in->keeps_empty && !json && ret == 0)
            add_empty(in, name, n);
        free(name);
    }
    return ret;
}

/* Adds the lines, or the elements, of TEXT[len], which is followed by a NUL. */
static int add_many(struct inputs *in, const struct session *s, const char *path,
                    char *text, size_t len, struct err *err)
{
    size_t before = in->n;
    bool array;
    int ret = find_array(&array, in, path, text, len, err);

    if (ret == 0)
        ret = array ? add_elements(in, s, path, text, len, err)
                    : add_lines(in, s, path, text, len, err);
    if (ret == 0 && in->n == before)
        return err_set(err, ERR_INPUT, "%s: no line of text", name_of(path));
    return ret;
}

int inputs_add_lines(struct inputs *in, const struct session *s, const char *path,
                     struct err *err)
{
    size_t len, mark;
    char *text;
    int ret;

    if (fs_read_file(&text, &len, path, MOST_BYTES, err) < 0)
        return -1;
    mark = str_mark(text, len);
    ret = add_many(in, s, path, text + mark, len - mark, err);
    free(text);
    return ret;
}

int inputs_add_file(struct inputs *in, const struct session *s, const char *path,
                    bool is_ids, struct err *err)
{
    size_t len, mark;
    char *all, *text;
    int ret;

    if (fs_read_file(&all, &len, path, MOST_BYTES, err) < 0)
        return -1;
    mark = str_mark(all, len);
    text = all + mark;
    len -= mark;
    if (is_ids)
        ret = inputs_add_ids(in, s, name_of(path), text, err);
    else if (in->format == INPUT_JSON ||
             (in->format == INPUT_AUTO && jsonlex_begins_object(text, len)))
        ret = add_many(in, s, path, text, len, err);
    else
        ret = inputs_add_text(in, s, name_of(path), text, len, err);
    free(all);
    return ret;
}
