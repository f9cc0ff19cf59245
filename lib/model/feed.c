/* feed - the named inputs of a model: numbers that a text brings besides its tokens */
#include "lib/model/feed.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/json.h"
#include "lib/base/mem.h"
#include "lib/model/expr.h"
#include "lib/model/family.h"
#include "lib/model/state.h"

static const struct model_feed plain[FEED_OWN] = {
    [FEED_IDS] = { .name = "ids", .rows = "tokens" },
    [FEED_POSITIONS] = { .name = "positions", .rows = "tokens", .fill = FILL_POSITION },
    [FEED_TOKEN_TYPES] = { .name = "token_types", .rows = "tokens", .given = true },
    [FEED_SOURCE] = { .name = "source", .rows = "source" },
    [FEED_SOURCE_POSITIONS] = { .name = "source_positions",
                                .rows = "source",
                                .fill = FILL_POSITION },
    [FEED_EVERY] = { .name = "every", .rows = "table", .fill = FILL_POSITION },
};

/* Words of "otherwise". */
static const char *const fills[] = {
    [FILL_ZERO] = "zero",     [FILL_POSITION] = "position", [FILL_FIRST] = "first",
    [FILL_BEFORE] = "before", [FILL_AFTER] = "after",       [FILL_CHOSEN] = "",
    [FILL_ALIKE] = "alike",   [FILL_ALIKE + 1] = NULL
};

/* The inputs of a text that chooses an adapter. */
static const struct model_feed choices[] = {
    { .name = "adapters", .rows = "tokens", .dtype = DTYPE_F32, .fill = FILL_CHOSEN },
    { .name = "source_adapters",
      .rows = "source",
      .dtype = DTYPE_F32,
      .fill = FILL_CHOSEN },
};

const struct model_feed *model_feeds(const struct model *m, int *n)
{
    if (n)
        *n = m->state->nfeeds;
    return m->state->feed;
}

int model_feed_find(const struct model *m, const char *name, size_t len)
{
    for (int i = 0; i < m->state->nfeeds; i++)
        if (strlen(m->state->feed[i].name) == len &&
            !memcmp(m->state->feed[i].name, name, len))
            return i;
    return -1;
}

void feeds_clear(struct model *m)
{
    for (int i = 0; i < m->state->nfeeds; i++) {
        axis_clear(&m->state->feed[i].axis);
        free(m->state->feed[i].below);
    }
    free(m->state->feed);
    m->state->feed = NULL;
    m->state->nfeeds = 0;
}

/* Has the family TEXT an input called NAME? */
static bool text_has(const char *text, const char *name)
{
    struct err none = { 0 };
    struct json_doc doc;
    bool has = false;

    if (!strstr(text, "\"inputs\"") || !strstr(text, name) ||
        json_parse(&doc, "", text, strlen(text), &none) < 0)
        return false;
    has = json_get(json_get(doc.root, "inputs"), name) != NULL;
    json_clear(&doc);
    return has;
}

bool feeds_any_has(const char *name)
{
    for (size_t i = 0; family_builtins[i].name; i++)
        if (text_has(family_builtins[i].text, name))
            return true;
    return false;
}

/* ---- reading "inputs" ---- */

/* The value of the string J of E, an expression. */
static int eval(const struct model *m, const struct family_entry *e,
                const struct json *j, struct expr_value *out, struct err *err)
{
    struct err cause = { 0 };

    if (!json_string(j))
        return family_error(e->doc, j ? j : e->json, 0, err, "expected a string");
    return model_eval(m, j->text, j->n, -1, out, &cause) < 0
               ? family_place(e->doc, j, 0, &cause, err)
               : 0;
}

static int eval_whole(const struct model *m, const struct family_entry *e,
                      const struct json *j, double most, double *out, struct err *err)
{
    struct expr_value v;

    if (eval(m, e, j, &v, err) < 0)
        return -1;
    if (v.kind != EXPR_NUMBER || !(v.number >= 0 && v.number <= most) ||
        v.number != floor(v.number))
        return family_error(e->doc, j, 0, err, "expected a whole number to %.0f", most);
    *out = v.number;
    return 0;
}

/* "below": a limit for all columns, or a list of one for each. */
static int read_below(struct model *m, struct model_feed *f,
                      const struct family_entry *e, const struct json *j,
                      struct err *err)
{
    const struct json *one = j->type == JSON_ARRAY ? j->first : j;
    double limit = 0;

    f->below = xcalloc(f->axis.size + 1, sizeof(*f->below));
    for (uint64_t k = 0; k < f->axis.size; k++) {
        if (!one || (j->type == JSON_ARRAY && j->n != f->axis.size))
            return family_error(e->doc, j, 0, err, "expected %llu limits",
                                (unsigned long long)f->axis.size);
        if (eval_whole(m, e, one, INT32_MAX, &limit, err) < 0)
            return -1;
        f->below[k] = (uint64_t)limit;
        one = j->type == JSON_ARRAY ? one->next : one;
    }
    return 0;
}

/* "otherwise": a word of fills[], with what it needs. */
static int read_fill(struct model *m, struct model_feed *f,
                     const struct family_entry *e, const struct json *options,
                     struct err *err)
{
    const struct json *j = json_get(options, "otherwise"),
                      *of = json_get(options, "of"),
                      *columns = json_get(options, "columns");
    struct expr_value v;
    double number = 0; /* set by eval_whole; gcc -O3 cannot see it */
    int fill = 0;

    if (!j)
        return 0;
    if (eval(m, e, j, &v, err) < 0)
        return -1;
    while (fills[fill] && !(v.kind == EXPR_WORD && expr_word_is(&v, fills[fill])))
        fill++;
    if (!fills[fill] || fill == FILL_CHOSEN || f->dtype != DTYPE_I32 ||
        f->axis.size != 1)
        return family_error(e->doc, j, 0, err,
                            "expected how a column of whole numbers is filled");
    f->fill = (enum feed_fill)fill;
    if (f->fill == FILL_BEFORE || f->fill == FILL_AFTER) {
        if (eval_whole(m, e, json_get(options, "separator"), INT32_MAX, &number, err) <
            0)
            return -1;
        f->separator = (int32_t)number;
    }
    if (f->fill != FILL_ALIKE)
        return 0;
    f->of = json_string(of) ? model_feed_find(m, of->text, of->n) : -1;
    if (f->of < 0 || m->state->feed[f->of].dtype != DTYPE_I32 ||
        strcmp(m->state->feed[f->of].rows, f->rows) != 0)
        return family_error(e->doc, of ? of : j, 0, err,
                            "\"of\" names an input before this one");
    columns = columns && columns->type == JSON_ARRAY && columns->n == 2 ? columns->first
                                                                        : NULL;
    for (int k = 0; k < 2; k++, columns = columns ? columns->next : NULL) {
        if (eval_whole(m, e, columns, (double)m->state->feed[f->of].axis.size - 1,
                       &number, err) < 0)
            return -1;
        f->column[k] = (int)number;
    }
    return 0;
}

static int read_options(struct model *m, struct model_feed *f,
                        const struct family_entry *e, const struct json *options,
                        struct err *err)
{
    static const char *const known[] = { "below",     "boxes", "needed",  "otherwise",
                                         "separator", "of",    "columns", NULL };
    const struct json *below = json_get(options, "below");

    for (const struct json *j = options ? options->first : NULL; j; j = j->next) {
        int i = 0;

        while (known[i] && strcmp(known[i], j->key))
            i++;
        if (!known[i])
            return family_error(e->doc, j, 0, err, "unknown key '%s' of an input",
                                j->key);
    }
    f->boxes = json_is_true(json_get(options, "boxes"));
    f->needed = json_is_true(json_get(options, "needed"));
    if (f->boxes && (f->axis.size != 4 || f->dtype != DTYPE_I32))
        return family_error(e->doc, e->json, 0, err, "boxes have 4 whole numbers");
    if (below && f->dtype != DTYPE_I32)
        return family_error(e->doc, below, 0, err, "only whole numbers have limits");
    if (below && read_below(m, f, e, below, err) < 0)
        return -1;
    return read_fill(m, f, e, options, err);
}

static int read_feed(struct model *m, const struct family_entry *e, struct err *err)
{
    const struct json *rows = e->json->type == JSON_ARRAY ? e->json->first : NULL,
                      *columns = rows ? rows->next : NULL,
                      *type = columns ? columns->next : NULL,
                      *options = type ? type->next : NULL;
    int i = model_feed_find(m, e->key, strlen(e->key));
    struct err cause = { 0 };
    struct model_feed *f;

    if (!json_string(rows) || !*rows->text || !json_string(columns) ||
        !json_string(type) ||
        (options && (options->type != JSON_OBJECT || options->next)))
        return family_error(e->doc, e->json, 0, err,
                            "expected [rows, columns, type, { options }]");
    if (i >= 0 && !m->state->feed[i].given)
        return family_error(e->doc, e->json, 0, err, "the engine makes '%s'", e->key);
    if (i < 0 && m->state->nfeeds == FEEDS_MOST)
        return family_error(e->doc, e->json, 0, err, "more than %d inputs", FEEDS_MOST);
    if (i < 0)
        i = m->state->nfeeds++;
    f = &m->state->feed[i];
    axis_clear(&f->axis);
    *f = (struct model_feed){ .name = e->key, .rows = rows->text, .given = true };
    if (axis_parse(&f->axis, columns->text, &m->scope, &cause) < 0)
        return family_place(e->doc, columns, 0, &cause, err);
    if (f->axis.size > 1 << 20)
        return family_error(e->doc, columns, 0, err, "more columns than 2^20");
    if (strcmp(type->text, "i32") != 0 && strcmp(type->text, "f32") != 0)
        return family_error(e->doc, type, 0, err, "a type is i32 or f32");
    f->dtype = *type->text == 'i' ? DTYPE_I32 : DTYPE_F32;
    return read_options(m, f, e, options, err);
}

int feeds_make(struct model *m, struct err *err)
{
    const struct family_table *t = &m->state->family->inputs;
    double types;

    m->state->feed = xcalloc(FEEDS_MOST, sizeof(*m->state->feed));
    for (int i = 0; i < FEED_OWN; i++) {
        struct model_feed *f = &m->state->feed[m->state->nfeeds++];

        *f = plain[i];
        f->dtype = DTYPE_I32;
        if (axis_parse(&f->axis, "1", &m->scope, err) < 0)
            return -1;
    }
    if (model_number(m, "types", &types) && types >= 1) {
        struct model_feed *f = &m->state->feed[FEED_TOKEN_TYPES];

        f->below = xcalloc(1, sizeof(*f->below));
        *f->below = (uint64_t)types;
    }
    for (size_t i = 0; i < t->n; i++)
        if (read_feed(m, &t->v[i], err) < 0)
            return -1;
    m->state->feed[FEED_TOKEN_TYPES].given =
        m->state->feed[FEED_TOKEN_TYPES].below ||
        family_get(t, plain[FEED_TOKEN_TYPES].name);
    return 0;
}

int feeds_choice(const struct model *m, const char *rows)
{
    for (int i = FEED_OWN; i < m->state->nfeeds; i++)
        if (m->state->feed[i].fill == FILL_CHOSEN &&
            !strcmp(m->state->feed[i].rows, rows))
            return i;
    return -1;
}

int feeds_offer(struct model *m, int n, struct err *err)
{
    struct axis axis;
    char text[16];

    snprintf(text, sizeof(text), "%d", n);
    for (size_t k = 0; k < sizeof(choices) / sizeof(*choices); k++) {
        int i = feeds_choice(m, choices[k].rows);

        if (i < 0 && m->state->nfeeds == FEEDS_MOST)
            return err_set(err, ERR_NO,
                           "family %s has %d inputs: none is left by which a text "
                           "chooses an adapter",
                           m->family, FEEDS_MOST);
        if (axis_parse(&axis, text, &m->scope, err) < 0)
            return -1;
        if (i < 0) {
            i = m->state->nfeeds++;
            m->state->feed[i] = choices[k];
        } else
            axis_clear(&m->state->feed[i].axis);
        m->state->feed[i].axis = axis;
    }
    return 0;
}
