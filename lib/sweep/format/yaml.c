/* yaml - YAML read into the tree of json.h, positions kept */
#include "config.h"

#include "lib/sweep/format/yaml.h"

#ifdef HAVE_YAML
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"

enum { DEPTH_MAX = 64, NODES_MAX = 1 << 20, ANCHORS_MAX = 1000 };

/* Everything a tree owns, freed together. */
struct block {
    struct block *next;
    char bytes[];
};

struct builder {
    struct yaml *y;
    yaml_document_t *source;
    size_t nodes;
    uint64_t taken; /* bytes of blocks */
    uint64_t read;  /* bytes of the file */
    struct err *err;
};

static void *take(struct builder *b, size_t size)
{
    size_t all = offsetof(struct block, bytes) + size;
    struct block *made = xcalloc(1, all);

    b->taken += all + 16; /* what malloc adds */
    made->next = b->y->blocks;
    b->y->blocks = made;
    return made->bytes;
}

static int fail(const struct builder *b, yaml_mark_t mark, const char *cause)
{
    return err_set(b->err, ERR_INPUT, "%s:%zu:%zu: %s", b->y->doc.name, mark.line + 1,
                   mark.column + 1, cause);
}

static bool is_one_of(const char *s, const char *const *words)
{
    for (; *words; words++)
        if (!strcmp(s, *words))
            return true;
    return false;
}

static enum json_type plain_type(const char *s)
{
    static const char *const nulls[] = { "", "~", "null", "Null", "NULL", NULL };
    static const char *const trues[] = { "true", "True", "TRUE", NULL };
    static const char *const falses[] = { "false", "False", "FALSE", NULL };
    double x;

    if (is_one_of(s, nulls))
        return JSON_NULL;
    if (is_one_of(s, trues))
        return JSON_TRUE;
    if (is_one_of(s, falses))
        return JSON_FALSE;
    return str_double(s, &x) ? JSON_NUMBER : JSON_STRING;
}

/* JSON's numbers have digits before and after a point and no leading zeros. */
static bool is_json_number(const char *s)
{
    struct json_doc doc;
    bool ok = json_parse(&doc, "", s, strlen(s), NULL) == 0;

    if (ok)
        json_clear(&doc);
    return ok;
}

static int set_scalar(struct builder *b, struct json *j, const yaml_node_t *node)
{
    const char *tag = (const char *)node->tag;
    size_t n = node->data.scalar.length;
    char *text = take(b, n + 48);
    bool plain = node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    struct str number = { 0 };
    double x;

    memcpy(text, node->data.scalar.value, n);
    if (strlen(text) != n)
        return fail(b, node->start_mark, "a NUL byte");
    if (tag && strcmp(tag, YAML_STR_TAG))
        return fail(b, node->start_mark, "a tag");
    j->type = plain ? plain_type(text) : JSON_STRING;
    j->text = text;
    j->n = (uint32_t)n;
    if (j->type == JSON_NUMBER && !is_json_number(text)) { /* +1, .5, 007 */
        str_double(text, &x);
        str_add_double(&number, x);
        memcpy(text, number.s, number.len + 1);
        str_clear(&number);
    }
    return 0;
}

static int build(struct builder *b, struct json *j, int index, int depth);

static int set_list(struct builder *b, struct json *j, const yaml_node_t *node,
                    int depth)
{
    const struct json **link = &j->first;

    j->type = JSON_ARRAY;
    for (yaml_node_item_t *i = node->data.sequence.items.start;
         i < node->data.sequence.items.top; i++) {
        struct json *child = take(b, sizeof(*child));

        if (build(b, child, *i, depth + 1) < 0)
            return -1;
        *link = child;
        link = &child->next;
        j->n++;
    }
    return 0;
}

static int set_object(struct builder *b, struct json *j, const yaml_node_t *node,
                      int depth)
{
    const struct json **link = &j->first, **last_name, *twice;
    struct json names = { .type = JSON_OBJECT };

    j->type = JSON_OBJECT;
    last_name = &names.first;
    for (yaml_node_pair_t *p = node->data.mapping.pairs.start;
         p < node->data.mapping.pairs.top; p++) {
        const yaml_node_t *key = yaml_document_get_node(b->source, p->key);
        struct json *child = take(b, sizeof(*child)), *name;

        if (key->type != YAML_SCALAR_NODE)
            return fail(b, key->start_mark, "a key that is not a word");
        name = take(b, sizeof(*name));
        name->line = (uint32_t)key->start_mark.line + 1;
        name->col = (uint32_t)key->start_mark.column + 1;
        if (set_scalar(b, name, key) < 0)
            return -1;
        if (key->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
            !strcmp(name->text, "<<"))
            return fail(b, key->start_mark, "a merge key, which is not read");
        name->key = name->text;
        *last_name = name;
        last_name = &name->next;
        names.n++;
        if (build(b, child, p->value, depth + 1) < 0)
            return -1;
        child->key = name->text;
        *link = child;
        link = &child->next;
        j->n++;
    }
    twice = json_find_duplicate(&names);
    return twice ? err_set(b->err, ERR_INPUT, "%s:%u:%u: duplicate key \"%s\"",
                           b->y->doc.name, twice->line, twice->col, twice->key)
                 : 0;
}

/* An alias builds its anchor's tree again, so the number of nodes is bounded. */
static int build(struct builder *b, struct json *j, int index, int depth)
{
    const yaml_node_t *node = yaml_document_get_node(b->source, index);

    j->line = (uint32_t)node->start_mark.line + 1;
    j->col = (uint32_t)node->start_mark.column + 1;
    if (depth > DEPTH_MAX || ++b->nodes > NODES_MAX)
        return fail(b, node->start_mark, "nested too deeply");
    if (b->taken > mem_allowance(b->read))
        return mem_refuse(b->y->doc.name, b->read, b->err);
    switch (node->type) {
    case YAML_SEQUENCE_NODE:
        return set_list(b, j, node, depth);
    case YAML_MAPPING_NODE:
        return set_object(b, j, node, depth);
    default:
        return set_scalar(b, j, node);
    }
}

static int parse_error(const struct yaml *y, const yaml_parser_t *parser,
                       struct err *err)
{
    /* libyaml says what is wrong with a text, always */
    if (parser->error == YAML_MEMORY_ERROR || !parser->problem)
        return err_set(err, ERR_SYSTEM, "%s: no memory", y->doc.name);
    return err_set(err, ERR_INPUT, "%s:%zu:%zu: %s", y->doc.name,
                   parser->problem_mark.line + 1, parser->problem_mark.column + 1,
                   parser->problem);
}

/* What libyaml makes of a text costs some 200 bytes a node, measured; nodes are parted
 * by these characters. */
static int check_cost(const char *name, const char *text, size_t n, struct err *err)
{
    uint64_t cost = 0;

    for (size_t i = 0; i < n; i++)
        if (strchr(",:[{\n", text[i]))
            cost += 200;
    return cost > mem_allowance(n) ? mem_refuse(name, n, err) : 0;
}

/* What libyaml needs quadratic time for is refused before a document is made of it:
 * its scanner looks at all open brackets at each token, and each new anchor is compared
 * with all others. */
static int check_shape(const struct yaml *y, const char *text, size_t n,
                       struct err *err)
{
    const struct builder b = { .y = (struct yaml *)y, .err = err };
    yaml_parser_t parser;
    yaml_event_t event;
    bool goes_on = true;
    int depth = 0, anchors = 0, ret = 0;

    if (!yaml_parser_initialize(&parser))
        return err_set(err, ERR_SYSTEM, "%s: no memory", y->doc.name);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, n);
    while (ret == 0 && goes_on && yaml_parser_parse(&parser, &event)) {
        depth += event.type == YAML_SEQUENCE_START_EVENT ||
                 event.type == YAML_MAPPING_START_EVENT;
        depth -= event.type == YAML_SEQUENCE_END_EVENT ||
                 event.type == YAML_MAPPING_END_EVENT;
        anchors +=
            (event.type == YAML_SCALAR_EVENT && event.data.scalar.anchor) ||
            (event.type == YAML_SEQUENCE_START_EVENT &&
             event.data.sequence_start.anchor) ||
            (event.type == YAML_MAPPING_START_EVENT && event.data.mapping_start.anchor);
        if (depth > DEPTH_MAX)
            ret = fail(&b, event.start_mark, "nested too deeply");
        else if (anchors > ANCHORS_MAX)
            ret = fail(&b, event.start_mark, "more than 1,000 anchors");
        goes_on = event.type != YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    return ret; /* what is no YAML is told when it is read */
}

int yaml_parse(struct yaml *y, const char *name, const char *text, size_t n,
               struct err *err)
{
    struct yaml out = { .doc = { .name = name } };
    struct builder b = { .y = &out, .read = n, .err = err };
    struct json *root;
    yaml_document_t document = { 0 }, second = { 0 };
    yaml_parser_t parser;
    bool loaded = false;
    int ret = -1;

    if (check_cost(name, text, n, err) < 0 || check_shape(&out, text, n, err) < 0)
        return -1;
    if (!yaml_parser_initialize(&parser))
        return err_set(err, ERR_SYSTEM, "%s: no memory", name);
    root = take(&b, sizeof(*root));
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, n);
    loaded = yaml_parser_load(&parser, &document);
    if (!loaded) {
        parse_error(&out, &parser, err);
        goto out;
    }
    b.source = &document;
    if (!yaml_document_get_root_node(&document)) {
        err_set(err, ERR_INPUT, "%s: empty", name);
        goto out;
    }
    if (build(&b, root, 1, 0) < 0)
        goto out;
    if (!yaml_parser_load(&parser, &second)) {
        parse_error(&out, &parser, err);
        goto out;
    }
    if (yaml_document_get_root_node(&second)) {
        err_set(err, ERR_INPUT, "%s: more than one document", name);
        yaml_document_delete(&second);
        goto out;
    }
    yaml_document_delete(&second);
    out.doc.root = root;
    *y = out;
    out.blocks = NULL;
    ret = 0;
out:
    if (loaded)
        yaml_document_delete(&document);
    yaml_parser_delete(&parser);
    yaml_clear(&out);
    return ret;
}

void yaml_clear(struct yaml *y)
{
    struct block *b = y->blocks, *next;

    for (; b; b = next) {
        next = b->next;
        free(b);
    }
    y->blocks = NULL;
}

#else

int yaml_parse(struct yaml *y, const char *name, const char *text, size_t n,
               struct err *err)
{
    (void)y;
    (void)text;
    (void)n;
    return err_set(err, ERR_INPUT, "%s: not JSON, and this build reads no YAML", name);
}

void yaml_clear(struct yaml *y)
{
    (void)y;
}

#endif
