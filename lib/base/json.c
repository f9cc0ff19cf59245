/* json - a strict JSON parser that records positions and rejects duplicate keys */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "lib/base/json.h"
#include "lib/base/jsonlex.h"
#include "lib/base/mem.h"

enum { FEW_MEMBERS = 8 };

static const char *keep_text(struct json_doc *doc, const struct str *s)
{
    return pool_strndup(&doc->pool, s->s, s->len);
}

/* Allocates the node of the value that begins with the lexer's current token. */
static struct json *new_node(struct json_doc *doc, const struct jsonlex *lex,
                             const char *key)
{
    static const enum json_type TYPES[] = {
        [JSONLEX_OBJECT] = JSON_OBJECT, [JSONLEX_ARRAY] = JSON_ARRAY,
        [JSONLEX_STRING] = JSON_STRING, [JSONLEX_NUMBER] = JSON_NUMBER,
        [JSONLEX_TRUE] = JSON_TRUE,     [JSONLEX_FALSE] = JSON_FALSE,
        [JSONLEX_NULL] = JSON_NULL,
    };
    struct json *node = pool_take(&doc->pool, sizeof(*node), _Alignof(struct json));

    *node = (struct json){
        .type = TYPES[lex->token], .line = lex->line, .col = lex->col, .key = key
    };
    if (lex->token == JSONLEX_STRING || lex->token == JSONLEX_NUMBER) {
        node->text = keep_text(doc, &lex->text);
        node->n = (uint32_t)lex->text.len;
    }
    return node;
}

/* Orders members by their position in the file. */
static int compare_places(const void *a, const void *b)
{
    const struct json *x = *(const struct json *const *)a;
    const struct json *y = *(const struct json *const *)b;

    if (x->line != y->line)
        return x->line < y->line ? -1 : 1;
    return x->col < y->col ? -1 : x->col > y->col;
}

/* Orders members by key, and equal keys by their position. */
static int compare_members(const void *a, const void *b)
{
    const struct json *x = *(const struct json *const *)a;
    const struct json *y = *(const struct json *const *)b;
    int order = strcmp(x->key, y->key);

    return order ? order : compare_places(a, b);
}

/* Sorts large objects, so that a hostile file costs O(n log n) at most. */
const struct json *json_find_duplicate(const struct json *object)
{
    const struct json **sorted;
    const struct json *found = NULL;
    size_t n = 0;

    if (object->n <= FEW_MEMBERS) {
        for (const struct json *a = object->first; a; a = a->next)
            for (const struct json *b = object->first; b != a; b = b->next)
                if (!strcmp(a->key, b->key))
                    return a;
        return NULL;
    }
    sorted = xmalloc(object->n * sizeof(*sorted));
    for (const struct json *m = object->first; m; m = m->next)
        sorted[n++] = m;
    qsort(sorted, n, sizeof(*sorted), compare_members);
    for (size_t i = 1; i < n; i++)
        if (!strcmp(sorted[i - 1]->key, sorted[i]->key) &&
            (!found || sorted[i]->line < found->line ||
             (sorted[i]->line == found->line && sorted[i]->col < found->col)))
            found = sorted[i];
    free(sorted);
    return found;
}

/* Removes the members of OBJECT that a later one of the same key replaces. */
static void keep_last(struct json *object)
{
    struct json **sorted, **to, *last = NULL;
    size_t n = 0, kept = 0;

    if (!json_find_duplicate(object))
        return;
    sorted = xmalloc(object->n * sizeof(*sorted));
    for (struct json *m = (struct json *)object->first; m; m = (struct json *)m->next)
        sorted[n++] = m;
    qsort(sorted, n, sizeof(*sorted), compare_members);
    to = xmalloc(n * sizeof(*to));
    for (size_t i = 0; i < n; i++)
        if (i + 1 == n || strcmp(sorted[i]->key, sorted[i + 1]->key) != 0)
            to[kept++] = sorted[i];
    qsort(to, kept, sizeof(*to), compare_places);
    for (size_t i = 0; i < kept; i++) {
        to[i]->next = i + 1 < kept ? to[i + 1] : NULL;
        last = to[i];
    }
    object->first = last ? to[0] : NULL;
    object->n = (uint32_t)kept;
    free(sorted);
    free(to);
}

/* Builds the tree of N bytes of text.  OPEN is the stack of containers around the
 * current token; LAST has the most recent member of each. */
static int build(struct json_doc *doc, struct jsonlex *lex, size_t n, bool last_wins,
                 struct err *err)
{
    struct json *open[JSONLEX_DEPTH], *last[JSONLEX_DEPTH];
    uint64_t most = mem_allowance(n);
    const char *key = NULL;
    int depth = 0;

    while (jsonlex_next(lex, err) == 0) {
        struct json *node;

        if (lex->token == JSONLEX_END)
            return 0;
        if (lex->token == JSONLEX_KEY) {
            key = keep_text(doc, &lex->text);
            continue;
        }
        if (lex->token == JSONLEX_OBJECT_END || lex->token == JSONLEX_ARRAY_END) {
            bool object = lex->token == JSONLEX_OBJECT_END;
            const struct json *twice =
                object && !last_wins ? json_find_duplicate(open[depth - 1]) : NULL;

            if (twice)
                return json_error(doc, twice, err, "duplicate key \"%s\"", twice->key);
            if (object && last_wins)
                keep_last(open[depth - 1]);
            depth--;
            continue;
        }
        node = new_node(doc, lex, key);
        key = NULL;
        if (!depth) {
            doc->root = node;
        } else {
            if (last[depth - 1])
                last[depth - 1]->next = node;
            else
                open[depth - 1]->first = node;
            last[depth - 1] = node;
            if (open[depth - 1]->n++ == UINT32_MAX)
                return json_error(doc, node, err, "too many values");
        }
        if (doc->pool.taken > most)
            return mem_refuse(doc->name, n, err);
        if (lex->token == JSONLEX_OBJECT || lex->token == JSONLEX_ARRAY) {
            open[depth] = node;
            last[depth++] = NULL;
        }
    }
    return -1;
}

static int reparse(struct json_doc *doc, const char *name, uint32_t line,
                   const char *text, size_t n, bool constants, struct err *err)
{
    struct jsonlex lex;
    int ret;

    pool_reset(&doc->pool);
    doc->name = name;
    doc->root = NULL;
    if (n >= UINT32_MAX)
        return err_set(err, ERR_INPUT, "%s: too large for JSON text", name);
    jsonlex_init_at(&lex, name, line, 1, text, n);
    lex.constants = constants;
    lex.text = doc->token;
    ret = build(doc, &lex, n, constants, err);
    doc->token = lex.text;
    if (ret < 0)
        doc->root = NULL;
    return ret;
}

int json_reparse(struct json_doc *doc, const char *name, uint32_t line,
                 const char *text, size_t n, struct err *err)
{
    return reparse(doc, name, line, text, n, false, err);
}

static int parse(struct json_doc *doc, const char *name, const char *text, size_t n,
                 bool constants, struct err *err)
{
    struct json_doc made = { 0 };

    if (reparse(&made, name, 1, text, n, constants, err) < 0) {
        json_clear(&made);
        return -1;
    }
    str_clear(&made.token);
    *doc = made;
    return 0;
}

int json_parse(struct json_doc *doc, const char *name, const char *text, size_t n,
               struct err *err)
{
    return parse(doc, name, text, n, false, err);
}

int json_parse_config(struct json_doc *doc, const char *name, const char *text,
                      size_t n, struct err *err)
{
    static const char pointer[] = "version https://git-lfs";
    size_t mark = n >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3) ? 3 : 0;

    if (n >= sizeof(pointer) && !memcmp(text, pointer, sizeof(pointer) - 1))
        return err_set(err, ERR_INPUT, "%s: is a pointer of Git LFS (git lfs pull)",
                       name);
    return parse(doc, name, text + mark, n - mark, true, err);
}

/* bytes of a cJSON node with malloc's overhead, and of a short string that it owns */
enum { CJSON_NODE = 80, CJSON_TEXT = 32 };

int json_check_cost(const char *name, const char *text, size_t n, struct err *err)
{
    /* with malloc, cJSON reports running out of memory as malformed JSON */
    cJSON_Hooks bookkeeping = { xmalloc, free };
    uint64_t cost = n;
    bool quoted = false;

    cJSON_InitHooks(&bookkeeping);
    for (size_t i = 0; i < n; i++) {
        char c = text[i];

        if (quoted && c == '\\') {
            i++;
        } else if (c == '"') {
            quoted = !quoted;
            cost += quoted ? CJSON_TEXT : 0;
        } else if (!quoted && (c == ',' || c == '[' || c == '{')) {
            cost += CJSON_NODE;
        }
    }
    return cost > mem_allowance(n) ? mem_refuse(name, n, err) : 0;
}

static cJSON *number_node(const char *text)
{
    cJSON *node = cJSON_CreateNumber(0);

    if (!strcmp(text, "NaN"))
        node->valuedouble = NAN; /* valueint stays 0 */
    else if (strstr(text, "Infinity"))
        cJSON_SetNumberValue(node, *text == '-' ? -INFINITY : INFINITY);
    else
        cJSON_SetNumberValue(node, strtod(text, NULL));
    return node;
}

static cJSON *make_node(const struct json *j)
{
    cJSON *node = NULL;

    switch (j->type) {
    case JSON_NULL:
        return cJSON_CreateNull();
    case JSON_FALSE:
        return cJSON_CreateFalse();
    case JSON_TRUE:
        return cJSON_CreateTrue();
    case JSON_NUMBER:
        return number_node(j->text);
    case JSON_STRING:
        return cJSON_CreateString(j->text);
    case JSON_ARRAY:
        node = cJSON_CreateArray();
        break;
    case JSON_OBJECT:
        node = cJSON_CreateObject();
    }
    for (const struct json *m = j->first; m; m = m->next)
        if (m->key)
            cJSON_AddItemToObject(node, m->key, make_node(m));
        else
            cJSON_AddItemToArray(node, make_node(m));
    return node;
}

int json_read_config(cJSON **out, const char *name, const char *text, size_t n,
                     struct err *err)
{
    struct json_doc doc;

    if (json_check_cost(name, text, n, err) < 0 ||
        json_parse_config(&doc, name, text, n, err) < 0)
        return -1;
    *out = make_node(doc.root);
    json_clear(&doc);
    return 0;
}

void json_clear(struct json_doc *doc)
{
    pool_clear(&doc->pool);
    str_clear(&doc->token);
    *doc = (struct json_doc){ 0 };
}

const struct json *json_get(const struct json *obj, const char *key)
{
    if (!obj || obj->type != JSON_OBJECT)
        return NULL;
    for (const struct json *m = obj->first; m; m = m->next)
        if (m->key[0] == key[0] && !strcmp(m->key, key))
            return m;
    return NULL;
}

const char *json_string(const struct json *j)
{
    return j && j->type == JSON_STRING ? j->text : NULL;
}

bool json_u64(const struct json *j, uint64_t *out)
{
    return j && j->type == JSON_NUMBER && str_u64(j->text, out);
}

bool json_i64(const struct json *j, int64_t *out)
{
    return j && j->type == JSON_NUMBER && str_i64(j->text, out);
}

bool json_double(const struct json *j, double *out)
{
    return j && j->type == JSON_NUMBER && str_double(j->text, out);
}

bool json_is_true(const struct json *j)
{
    return j && j->type == JSON_TRUE;
}

int json_error(const struct json_doc *doc, const struct json *j, struct err *err,
               const char *fmt, ...)
{
    char cause[sizeof(err->text)];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(cause, sizeof(cause), fmt, ap);
    va_end(ap);
    if (j)
        return err_set(err, ERR_INPUT, "%s:%u:%u: %s", doc->name, j->line, j->col,
                       cause);
    return err_set(err, ERR_INPUT, "%s: %s", doc->name, cause);
}

void json_print(struct str *out, const struct json *j)
{
    static const char *const WORDS[] = {
        [JSON_NULL] = "null", [JSON_FALSE] = "false", [JSON_TRUE] = "true"
    };
    bool object = j->type == JSON_OBJECT;

    switch (j->type) {
    case JSON_NULL:
    case JSON_FALSE:
    case JSON_TRUE:
        str_add(out, WORDS[j->type]);
        return;
    case JSON_NUMBER:
        str_add(out, j->text);
        return;
    case JSON_STRING:
        str_add_jsonn(out, j->text, j->n);
        return;
    default:
        break;
    }
    str_addc(out, object ? '{' : '[');
    for (const struct json *m = j->first; m; m = m->next) {
        if (m != j->first)
            str_addc(out, ',');
        if (object) {
            str_add_json(out, m->key);
            str_addc(out, ':');
        }
        json_print(out, m);
    }
    str_addc(out, object ? '}' : ']');
}
