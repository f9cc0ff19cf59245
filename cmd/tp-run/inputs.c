/* inputs - the input texts of a command */
#include "cmd/tp-run/inputs.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/tp-run/features.h"
#include "lib/base/fs.h"
#include "lib/base/json.h"
#include "lib/base/jsonlex.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/reshard/nonfinite.h"

static const uint64_t MOST_BYTES = UINT64_C(1) << 32;

enum { BOX_MARKS = 6 }; /* left, top, right, bottom, height, width */

const char *const input_format_names[] = { "auto", "text", "json", NULL };
const char *const input_invalid_names[] = { "refuse", "replace", NULL };

static void clear_one(struct input *in)
{
    free(in->name);
    free(in->id);
    free(in->why);
    free(in->prompt);
    ids_clear(&in->ids);
    ids_clear(&in->types);
    ids_clear(&in->marks);
    ids_clear(&in->source);
    free(in->features);
}

void inputs_clear(struct inputs *in)
{
    for (size_t i = 0; i < in->n; i++)
        clear_one(&in->v[i]);
    free(in->v);
    *in = (struct inputs){ .format = in->format, .keeps_empty = in->keeps_empty };
}

/* Takes ownership of ONE if RET is 0, otherwise releases it; returns RET. */
static int add(struct inputs *in, struct input *one, int ret)
{
    if (ret < 0) {
        clear_one(one);
        return -1;
    }
    in->v = xrealloc(in->v, sizeof(*in->v) * (in->n + 1));
    in->v[in->n++] = *one;
    return 0;
}

/* session_encode, with NAME in the error. */
static int encode(const struct session *s, struct ids *out, const char *name,
                  const char *text, size_t len, struct err *err)
{
    int ret = session_encode(s, out, text, len, err);

    if (ret < 0 && !strncmp(err->text, "not UTF-8", 9))
        err_prefix(err, "%s", name);
    return ret;
}

static void keep_text(const struct inputs *in, struct input *one, const char *text,
                      size_t len)
{
    if (!in->keeps_text)
        return;
    free(one->prompt);
    one->prompt = xstrndup(text, len);
}

int inputs_add_text(struct inputs *in, const struct session *s, const char *name,
                    const char *text, size_t len, struct err *err)
{
    struct input one = { .name = xstrdup(name) };

    keep_text(in, &one, text, len);
    return add(in, &one, encode(s, &one.ids, name, text, len, err));
}

int inputs_add_pair(struct inputs *in, const struct session *s, const char *name,
                    const char *text, const char *pair, struct err *err)
{
    struct input one = { .name = xstrdup(name) };

    return add(in, &one,
               session_encode_pair(s, &one.ids, &one.types, one.pair, text, pair, err));
}

int inputs_add_ids(struct inputs *in, const struct session *s, const char *name,
                   const char *list, struct err *err)
{
    struct input one = { .name = xstrdup(name) };

    return add(in, &one, session_parse_ids(s, &one.ids, list, name, err));
}

static const char *name_of(const char *path)
{
    return strcmp(path, "-") ? path : "standard input";
}

/* ---- JSON lines ---- */

/* Converts a JSON array of numbers to the text that session_parse_* parse. */
static int add_numbers(const struct session *s, struct ids *out, const cJSON *array,
                       const char *name,
                       int (*parse)(const struct session *s, struct ids *out,
                                    const char *text, const char *what,
                                    struct err *err),
                       struct err *err)
{
    struct str list = { 0 };
    const cJSON *one;
    int ret;

    if (!cJSON_IsArray(array))
        return err_set(err, ERR_INPUT, "%s: '%s' is no list", name, array->string);
    cJSON_ArrayForEach(one, array)
    {
        if (!cJSON_IsNumber(one)) {
            str_clear(&list);
            return err_set(err, ERR_INPUT, "%s: '%s' has an element that is no number",
                           name, array->string);
        }
        str_addf(&list, "%s%.17g", list.len ? "," : "", one->valuedouble);
    }
    ret = parse(s, out, str_text(&list), name, err);
    str_clear(&list);
    return ret;
}

/* The last mark: the distance in tokens from the first token with the same second and
 * third mark (the same table cell) to token AT. */
static int32_t place_in_cell(const int32_t *marks, size_t at)
{
    const int32_t *own = marks + at * MARKS;
    size_t first = 0;

    if (at && own[1 - MARKS] == own[1] && own[2 - MARKS] == own[2])
        return own[-1] + 1; /* the previous token's last mark plus one */
    while (marks[first * MARKS + 1] != own[1] || marks[first * MARKS + 2] != own[2])
        first++;
    return (int32_t)(at - first);
}

/* Reads the marks of one token.  A box has four numbers, left, top, right and bottom;
 * its height and width are appended. */
static int read_marks(const struct session *s, int32_t *mark, const cJSON *row,
                      bool box, const char *name, const char *key, struct err *err)
{
    const struct model *m = s->checkpoint->model;
    const cJSON *one;
    double count;
    int n = 0, want;

    if (!model_number(m, "marks", &count))
        return err_set(err, ERR_INPUT, "%s: family %s has no '%s'", name, m->family,
                       key);
    /* the last of MARKS is the place in the cell */
    if (!(count >= (box ? BOX_MARKS : 1) && count < MARKS))
        return err_set(err, ERR_INPUT,
                       "%s: family %s has %g marks, '%s' needs %d to %d", name,
                       m->family, count, key, box ? BOX_MARKS : 1, MARKS - 1);
    want = box ? 4 : (int)count;
    cJSON_ArrayForEach(one, row)
    {
        double number = cJSON_IsNumber(one) ? one->valuedouble : -1;

        if (n == want || !(number >= 0 && number <= INT32_MAX))
            break;
        mark[n++] = (int32_t)number;
    }
    if (!cJSON_IsArray(row) || one || n != want)
        return err_set(err, ERR_INPUT, "%s: '%s' must have %d numbers for each token",
                       name, key, want);
    if (box) {
        if (mark[2] < mark[0] || mark[3] < mark[1])
            return err_set(err, ERR_INPUT, "%s: a box ends before it begins", name);
        mark[4] = mark[3] - mark[1];
        mark[5] = mark[2] - mark[0];
    }
    for (int k = 0; k < (int)count; k++) {
        char symbol[] = { 'm', 'a', 'r', 'k', 's', (char)('0' + k), '\0' };
        double size;

        if (model_number(m, symbol, &size) && !(mark[k] < size))
            return err_set(err, ERR_INPUT,
                           "%s: '%s' has %d, which is not below the model's %.0f", name,
                           key, mark[k], size);
    }
    return 0;
}

/* Reads the marks of all tokens of ONE from a list of lists. */
static int add_marks(const struct session *s, struct input *one, const cJSON *array,
                     bool boxes, struct err *err)
{
    const char *key = array->string;
    size_t at = 0, n = (size_t)cJSON_GetArraySize(array);
    const cJSON *row;

    if (!cJSON_IsArray(array) || n != one->ids.n)
        return err_set(err, ERR_INPUT, "%s: '%s' has %zu elements for %zu tokens",
                       one->name, key, n, one->ids.n);
    if (s->context && n > s->context)
        return 0; /* the length is reported later */
    one->marks.v =
        xgrow(one->marks.v, &one->marks.cap, n * MARKS + 1, sizeof(*one->marks.v));
    one->marks.n = n * MARKS;
    memset(one->marks.v, 0, n * MARKS * sizeof(*one->marks.v));
    cJSON_ArrayForEach(row, array)
    {
        int32_t *mark = one->marks.v + at * MARKS;

        if (read_marks(s, mark, row, boxes, one->name, key, err) < 0)
            return -1;
        mark[MARKS - 1] = place_in_cell(one->marks.v, at++);
    }
    return 0;
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

/* Parses LINE[len] as one JSON value; NULL on error. */
static cJSON *parse_line(const char *name, const char *line, size_t len,
                         struct err *err)
{
    cJSON *root;
    size_t at;

    if (json_check_cost(name, line, len, err) < 0)
        return NULL;
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
                clear_one(&in->v[--in->n]);
            return -1;
        }
        in->v[in->n - 1].line = line;
    }
    if (in->n == before)
        return err_set(err, ERR_INPUT, "%s: no choices", name);
    in->v[before].choices = in->n - before;
    return 0;
}

static int add_json(struct inputs *in, const struct session *s, const char *name,
                    size_t number, const char *line, size_t len, bool *has_text,
                    struct err *err)
{
    cJSON *root = parse_line(name, line, len, err);
    const cJSON *text = root, *ids = NULL, *types = NULL, *source = NULL, *pair = NULL;
    const cJSON *choices = NULL, *boxes = NULL, *features = NULL;
    struct input one = { .name = xstrdup(name) };
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
        types = cJSON_GetObjectItemCaseSensitive(root, "token_types");
        boxes = member(root, "bbox", NULL);
        features = member(root, "features", NULL);
        source = cJSON_GetObjectItemCaseSensitive(root, "source");
        if (!source)
            source = cJSON_GetObjectItemCaseSensitive(root, "source_ids");
    }
    *has_text = cJSON_IsString(text) || cJSON_IsString(source);
    if (!root)
        ret = -1;
    else if ((pair && !cJSON_IsString(pair)) || (choices && !cJSON_IsArray(choices)))
        ret = err_set(err, ERR_INPUT, "%s: '%s' is no %s", name,
                      (cJSON_IsString(pair) || !pair ? choices : pair)->string,
                      cJSON_IsString(pair) || !pair ? "list" : "text");
    else if (ids)
        ret = add_numbers(s, &one.ids, ids, name, session_parse_ids, err);
    else if (cJSON_IsString(text) && cJSON_IsArray(choices)) {
        ret = add_choices(in, s, name, text->valuestring, choices, number, err);
        cJSON_Delete(root);
        clear_one(&one);
        return ret;
    } else if (cJSON_IsString(text) && cJSON_IsString(pair))
        ret = session_encode_pair(s, &one.ids, &one.types, one.pair, text->valuestring,
                                  pair->valuestring, err);
    else if (cJSON_IsString(text)) {
        keep_text(in, &one, text->valuestring, strlen(text->valuestring));
        ret = encode(s, &one.ids, name, text->valuestring, strlen(text->valuestring),
                     err);
    } else if ((source || features) && !text)
        ret = 0;
    else
        ret = err_set(err, ERR_INPUT,
                      "%s: neither a text nor an object with 'text' or "
                      "'ids'",
                      name);
    if (ret == 0 && cJSON_IsString(source))
        ret = encode(s, &one.source, name, source->valuestring,
                     strlen(source->valuestring), err);
    else if (ret == 0 && source)
        ret = add_numbers(s, &one.source, source, name, session_parse_ids, err);
    if (ret == 0 && features)
        ret = features_add(&one, s, features, err);
    if (ret == 0 && types && cJSON_IsArray(types->child))
        ret = add_marks(s, &one, types, false, err), types = NULL;
    if (ret == 0 && boxes)
        ret = add_marks(s, &one, boxes, true, err);
    if (ret == 0 && types && !one.types.n)
        ret = add_numbers(s, &one.types, types, name, session_parse_types, err);
    if (ret == 0 && types && one.types.n != one.ids.n)
        ret = err_set(err, ERR_INPUT, "%s: %zu token types for %zu tokens", name,
                      one.types.n, one.ids.n);
    cJSON_Delete(root);
    return add(in, &one, ret);
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

/* Reports *err for input I and clears its contents. */
static void make_bad(struct inputs *in, const struct session *s, size_t i,
                     struct err *err)
{
    struct input *one = &in->v[i];
    struct input bad = { .name = xstrdup(one->name), .line = one->line, .bad = true };
    const char *text;

    if (!str_starts(err->text, one->name))
        err_prefix(err, "%s", one->name);
    cmd_warn(s->cmd, "%s", err->text);
    text = err->text + strlen(one->name);
    bad.why = xstrdup(text + strspn(text, ": "));
    bad.id = one->id;
    one->id = NULL;
    *err = (struct err){ 0 };
    clear_one(one);
    *one = bad;
    in->nbad++;
}

int inputs_refuse(struct inputs *in, const struct session *s, size_t i, struct err *err)
{
    if (!in->v[i].line)
        return -1;
    make_bad(in, s, i, err);
    return 0;
}

int inputs_take(struct inputs *in, const struct session *s, struct input *one, int ret,
                struct err *err)
{
    if (ret < 0 && err->kind != ERR_INPUT) {
        clear_one(one);
        return -1;
    }
    (void)!add(in, one, 0);
    if (ret < 0)
        make_bad(in, s, in->n - 1, err);
    return 0;
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
        add(in, &bad, 0);
    }
    in->v[in->n - 1].line = n;
    if (json)
        take_id(in, first, line, len);
    if (ret < 0)
        make_bad(in, s, in->n - 1, err);
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

    (void)!add(in, &one, 0);
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
    if (has_lone_surrogate(line, len, &at)) { /* valid JSON except for this */
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

int inputs_not_finite(const struct inputs *in, const struct session *s, size_t i,
                      const char *what, size_t tokens, struct err *err)
{
    struct str weight = { 0 };
    bool of_line = in->v[i].line != 0;
    char *text = str_dupf("text %zu%s%s%s has NaN or infinite %s after %zu token%s",
                          i + 1, of_line ? " (" : "", of_line ? in->v[i].name : "",
                          of_line ? ")" : "", what, tokens, tokens == 1 ? "" : "s");

    if (nonfinite_find(&weight, s->checkpoint, err) == 0 && weight.len)
        err_set(err, ERR_INPUT, "%s, and %s", str_text(&weight), text);
    else if (!err->kind)
        err_set(err, ERR_NO, "%s, and all weights that are stored are finite", text);
    str_clear(&weight);
    free(text);
    return -1;
}

void inputs_add_bad(struct str *out, const struct inputs *in, size_t i)
{
    const struct input *one = &in->v[i];

    str_addf(out, "{\"type\":\"%s\"", one->empty ? "empty" : "error");
    inputs_add_place(out, one);
    if (one->why) {
        str_add(out, ",\"error\":");
        str_add_json(out, one->why);
    }
    str_add(out, "}\n");
}

void inputs_print_bad(const struct inputs *in, size_t i)
{
    struct str out = { 0 };

    inputs_add_bad(&out, in, i);
    fputs(str_text(&out), stdout);
    str_clear(&out);
}

struct inputs_sizes inputs_sizes(const struct inputs *in)
{
    struct inputs_sizes s = { 0 };

    for (size_t i = 0; i < in->n; i++) {
        const struct input *one = &in->v[i];

        if (one->bad)
            continue;
        s.longest = one->ids.n > s.longest ? one->ids.n : s.longest;
        s.source = one->source.n > s.source ? one->source.n : s.source;
        s.tokens += one->ids.n;
        s.sources += one->source.n;
    }
    return s;
}

void inputs_add_id(struct str *out, const struct input *in)
{
    if (in->id)
        str_addf(out, ",\"id\":%s", in->id);
}

void inputs_add_place(struct str *out, const struct input *in)
{
    const char *colon = in->line ? strrchr(in->name, ':') : NULL;
    char *file = colon ? xstrndup(in->name, (size_t)(colon - in->name)) : NULL;

    str_add(out, ",\"file\":");
    str_add_json(out, file ? file : in->name);
    if (in->line)
        str_addf(out, ",\"line\":%zu", in->line);
    inputs_add_id(out, in);
    free(file);
}

int inputs_status(const struct inputs *in, int status)
{
    return status == 0 && in->nbad ? ERR_INPUT : status;
}

/* ---- encoder inputs ---- */

/* Prepends the model's start id to IDS. */
static void begin_text(const struct session *s, struct ids *ids)
{
    struct ids out = { 0 };

    ids_add(&out, s->start);
    for (size_t i = 0; i < ids->n; i++)
        ids_add(&out, ids->v[i]);
    ids_clear(ids);
    *ids = out;
}

/* Checks that all IDS are below the symbol VOCAB; the encoder may have its own
 * vocabulary. */
static int check_ids(const struct input *one, const struct session *s,
                     const struct ids *ids, const char *vocab, struct err *err)
{
    double n;

    if (!model_number(s->checkpoint->model, "source_vocab", &n) ||
        !model_number(s->checkpoint->model, vocab, &n))
        return 0;
    for (size_t i = 0; i < ids->n; i++)
        if ((double)ids->v[i] >= n)
            return err_set(err, ERR_INPUT, "%s: id %d is not in the %s of %.0f",
                           one->name, (int)ids->v[i],
                           ids == &one->source ? "source's vocabulary" : "vocabulary",
                           n);
    return 0;
}

static int check_source(const struct input *one, const struct session *s,
                        struct err *err)
{
    double most;

    if (model_number(s->checkpoint->model, "source_context", &most) &&
        (double)one->source.n > most)
        return err_set(err, ERR_INPUT,
                       "%s: the source has %zu tokens, more than the model's %.0f",
                       one->name, one->source.n, most);
    return check_ids(one, s, &one->source, "source_vocab", err) < 0
               ? -1
               : check_ids(one, s, &one->ids, "vocab", err);
}

static int use(struct input *one, const struct session *s, enum input_use use,
               struct err *err)
{
    if (!s->source)
        return !one->source.n
                   ? 0
                   : err_set(err, ERR_INPUT, "%s: family %s has no encoder input",
                             one->name, s->checkpoint->model->family);
    if (s->features && !one->features)
        return err_set(err, ERR_INPUT,
                       "%s: family %s reads features: give --input lines such as "
                       "{\"features\":\"FILE.safetensors\"}",
                       one->name, s->checkpoint->model->family);
    if (!one->source.n && use == INPUT_PROMPT) {
        one->source = one->ids;
        one->ids = (struct ids){ 0 };
    }
    if (!one->source.n)
        return err_set(err, ERR_INPUT, "%s: family %s needs an encoder input, a source",
                       one->name, s->checkpoint->model->family);
    if (check_source(one, s, err) < 0)
        return -1;
    if (use != INPUT_GIVEN)
        begin_text(s, &one->ids);
    return 0;
}

int inputs_use(struct inputs *in, const struct session *s, enum input_use how,
               struct err *err)
{
    for (size_t i = 0; i < in->n; i++)
        if (!in->v[i].bad && !in->v[i].empty && use(&in->v[i], s, how, err) < 0 &&
            inputs_refuse(in, s, i, err) < 0)
            return -1;
    return 0;
}

/* ---- broadcast to all ranks ---- */

static int share(const struct session *s, void *p, size_t n, struct err *err)
{
    struct comm *c = s->launcher.world;

    return comm_run(c, comm_broadcast(p, n, 0), err);
}

static int share_features(const struct session *s, struct input *one, struct err *err)
{
    uint64_t n = one->nframes;

    if (share(s, &n, sizeof(n), err) < 0)
        return -1;
    if (!launcher_is_front(&s->launcher) && n) {
        one->features =
            mem_alloc(n * s->features * sizeof(*one->features), "features", err);
        if (!one->features)
            return -1;
        one->nframes = n;
    }
    return share(s, one->features, n * s->features * sizeof(*one->features), err);
}

static int share_name(const struct session *s, char **name, struct err *err)
{
    uint64_t n = *name ? strlen(*name) : 0;

    if (share(s, &n, sizeof(n), err) < 0)
        return -1;
    if (!launcher_is_front(&s->launcher))
        *name = xcalloc(n + 1, 1);
    return share(s, *name, n, err);
}

int inputs_share(struct inputs *in, const struct session *s, int ret, struct err *err)
{
    uint64_t n = in->n, bad = in->nbad, empty = in->nempty;

    ret = launcher_agree(&s->launcher, ret, err);
    if (ret < 0 || !s->launcher.world)
        return ret;
    if (share(s, &n, sizeof(n), err) < 0 || share(s, &bad, sizeof(bad), err) < 0 ||
        share(s, &empty, sizeof(empty), err) < 0)
        return -1;
    if (!launcher_is_front(&s->launcher)) {
        in->v = xcalloc(n + 1, sizeof(*in->v));
        in->n = n;
        in->nbad = bad;
        in->nempty = empty;
    }
    for (size_t i = 0; i < n; i++)
        if (share_name(s, &in->v[i].name, err) < 0 ||
            share(s, &in->v[i].line, sizeof(in->v[i].line), err) < 0 ||
            share(s, &in->v[i].bad, sizeof(in->v[i].bad), err) < 0 ||
            share(s, &in->v[i].empty, sizeof(in->v[i].empty), err) < 0 ||
            share(s, in->v[i].pair, sizeof(in->v[i].pair), err) < 0 ||
            share(s, &in->v[i].choices, sizeof(in->v[i].choices), err) < 0 ||
            session_share_ids(s, &in->v[i].ids, err) < 0 ||
            session_share_ids(s, &in->v[i].types, err) < 0 ||
            session_share_ids(s, &in->v[i].marks, err) < 0 ||
            session_share_ids(s, &in->v[i].source, err) < 0 ||
            share_features(s, &in->v[i], err) < 0)
            return -1;
    return 0;
}
