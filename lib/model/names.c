/* names - how other frameworks store a family's tensors */
#include "lib/model/names.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/model/state.h"

static const char IGNORE[] = "ignore"; /* a list of names, in which * is any text */

bool names_has(const struct model *m, const char *dialect)
{
    return dialect && family_get(&m->state->family->names, dialect) != NULL;
}

/* Matches NAME against GLOB, in which '*' matches any characters. */
static bool matches(const char *glob, const char *name)
{
    for (; *glob && *glob != '*'; glob++, name++)
        if (*glob != *name)
            return false;
    if (!*glob)
        return !*name;
    for (; *name; name++)
        if (matches(glob + 1, name))
            return true;
    return matches(glob + 1, name);
}

bool names_ignores(const struct model *m, const char *dialect, const char *name)
{
    const struct family_entry *e = family_get(&m->state->family->names, dialect);
    const struct json *list = e ? json_get(e->json, IGNORE) : NULL;

    for (const struct json *j = list ? list->first : NULL; j; j = j->next)
        if (json_string(j) && matches(j->text, name))
            return true;
    return false;
}

/* ---- one way ---- */

/* Appends the value of the expression of N bytes at TEXT, a whole number; J is for
 * messages. */
static int add_value(struct str *out, const struct model *m,
                     const struct family_entry *e, const struct json *j,
                     const char *text, size_t n, int layer, struct err *err)
{
    struct err cause = { 0 };
    struct expr_value v;

    if (model_eval(m, text, n, layer, &v, &cause) < 0) {
        family_place(e->doc, j, 0, &cause, err);
        return -1;
    }
    if (v.kind != EXPR_NUMBER || v.number < 0 || v.number > 1e9 ||
        v.number != (double)(int)v.number)
        return family_error(e->doc, j, 0, err, "{%.*s} is no whole number from 0 on",
                            (int)n, text);
    str_addf(out, "%d", (int)v.number);
    return 0;
}

/* The pattern J with captures and expressions in braces replaced by their values.
 * LEFT: bit k leaves out capture K with the full stop behind it.  1, 0 when the pattern
 * has no such capture, or -1. */
static int fill(struct str *out, const struct model *m, const struct family_entry *e,
                const struct tensor_def *d, const struct json *j, const int value[2],
                unsigned left, struct err *err)
{
    unsigned met = 0;

    for (const char *p = j->text; *p;) {
        size_t n = *p == '{' ? strcspn(p + 1, "}") : 0;
        int slot = -1;

        for (int k = 0; n && k < 2; k++)
            if (d->capture_name[k] && strlen(d->capture_name[k]) == n &&
                !strncmp(d->capture_name[k], p + 1, n))
                slot = k;
        if (!n) {
            str_addc(out, *p++);
            continue;
        }
        if (slot < 0 && add_value(out, m, e, j, p + 1, n, value[0], err) < 0)
            return -1;
        p += n + 1 + (p[n + 1] == '}');
        if (slot < 0)
            continue;
        met |= 1u << slot;
        if (left & 1u << slot)
            p += *p == '.';
        else
            str_addf(out, "%d", value[slot]);
    }
    return (left & ~met) == 0;
}

/* The value of the expression J, in which {shards} is SHARDS. */
static int number(const struct model *m, const struct family_entry *e,
                  const struct json *j, int layer, uint64_t shards, uint64_t *out,
                  struct err *err)
{
    struct str text = { 0 };
    struct expr_value v;
    struct err cause = { 0 };
    const char *s = json_string(j);
    int ret = -1;

    if (!s)
        return family_error(e->doc, j, 0, err, "expected an expression");
    while (*s) {
        if (str_starts(s, "{shards}")) {
            str_addf(&text, "%llu", (unsigned long long)shards);
            s += strlen("{shards}");
        } else {
            str_addc(&text, *s++);
        }
    }
    if (model_eval(m, str_text(&text), text.len, layer, &v, &cause) < 0)
        family_place(e->doc, j, 0, &cause, err);
    else if (v.kind != EXPR_NUMBER || v.number < 0 || v.number > 1e15 ||
             v.number != (double)(uint64_t)v.number)
        family_error(e->doc, j, 0, err, "is no whole number from 0 on");
    else {
        *out = (uint64_t)v.number;
        ret = 0;
    }
    str_clear(&text);
    return ret;
}

/* Reads "rows": [["COUNT", "STRIDE"]...]. */
static int read_rows(struct names_view *out, const struct model *m,
                     const struct family_entry *e, const struct json *rows, int layer,
                     uint64_t shards, struct err *err)
{
    for (const struct json *j = rows->first; j; j = j->next) {
        struct names_digit *d = &out->digit[out->ndigits];

        if (j->type != JSON_ARRAY || j->n != 2 || out->ndigits == NAMES_MOST_DIGITS)
            return family_error(e->doc, j, 0, err,
                                "expected at most %d pairs of count and stride",
                                (int)NAMES_MOST_DIGITS);
        if (number(m, e, j->first, layer, shards, &d->count, err) < 0 ||
            number(m, e, j->first->next, layer, shards, &d->stride, err) < 0)
            return -1;
        if (d->count != 1)
            out->ndigits++;
    }
    if (!out->ndigits)
        out->digit[out->ndigits++] = (struct names_digit){ 1, 1 };
    return 0;
}

static int read_options(struct names_view *out, const struct model *m,
                        const struct family_entry *e, const struct json *options,
                        int layer, uint64_t shards, struct err *err)
{
    const struct json *rows = json_get(options, "rows");
    const struct json *first = json_get(options, "first");
    const struct json *plus = json_get(options, "plus");

    for (const struct json *j = options->first; j; j = j->next)
        if (strcmp(j->key, "rows") != 0 && strcmp(j->key, "first") != 0 &&
            strcmp(j->key, "transposed") != 0 && strcmp(j->key, "padded") != 0 &&
            strcmp(j->key, "plus") != 0 && strcmp(j->key, "unwritten") != 0)
            return family_error(e->doc, j, 0, err, "unknown key '%s'", j->key);
    out->transposed = json_is_true(json_get(options, "transposed"));
    out->padded = json_is_true(json_get(options, "padded"));
    out->unwritten = json_is_true(json_get(options, "unwritten"));
    if (rows && rows->type != JSON_ARRAY)
        return family_error(e->doc, rows, 0, err, "expected a list");
    if (rows && read_rows(out, m, e, rows, layer, shards, err) < 0)
        return -1;
    if (plus && number(m, e, plus, layer, shards, &out->plus, err) < 0)
        return -1;
    return first ? number(m, e, first, layer, shards, &out->first, err) : 0;
}

/* Alternative I of the entry J, "NAME" or ["NAME", {OPTIONS}] or a list of such. */
static const struct json *alternative(const struct json *j, size_t i)
{
    if (j->type != JSON_ARRAY || !j->first || j->first->type != JSON_ARRAY)
        return i ? NULL : j;
    j = j->first;
    while (j && i--)
        j = j->next;
    return j;
}

int names_view(struct names_view *out, const struct model *m, const char *dialect,
               size_t t, size_t way, uint64_t shards, struct err *err)
{
    const struct family_entry *e = family_get(&m->state->family->names, dialect);
    const struct model_tensor *mt = &m->tensor[t];
    const struct tensor_def *d = &m->state->def[mt->kind];
    const struct json *j = e ? json_get(e->json, d->entry->key) : NULL, *name;
    const int value[2] = { mt->layer, mt->expert };
    struct str stored = { 0 };
    unsigned left = way % 4;
    int ret;

    *out = (struct names_view){ 0 };
    j = j ? alternative(j, way / 4) : NULL;
    if (!j)
        return 0;
    name = j->type == JSON_ARRAY ? j->first : j;
    if (!json_string(name) ||
        (j->type == JSON_ARRAY &&
         (j->n > 2 || (j->n == 2 && name->next->type != JSON_OBJECT))))
        return family_error(e->doc, j, 0, err,
                            "expected a name, or a name and options");
    for (int k = 0; k < 2; k++)
        if (left & 1u << k)
            out->lead[out->nlead++] = (uint64_t)value[k];
    ret = fill(&stored, m, e, d, name, value, left, err);
    if (ret <= 0)
        str_clear(&stored);
    if (ret < 0)
        return -1;
    if (!ret)
        return names_view(out, m, dialect, t, way + 1, shards, err);
    ret = j->type == JSON_ARRAY && j->n == 2
              ? read_options(out, m, e, name->next, mt->layer, shards, err)
              : 0;
    if (ret < 0)
        str_clear(&stored);
    else
        out->stored = str_steal(&stored);
    return ret < 0 ? -1 : 1;
}

int names_written(struct names_view *out, const struct model *m, const char *dialect,
                  size_t t, unsigned stacks, struct err *err)
{
    const struct model_tensor *mt = &m->tensor[t];
    unsigned left = stacks & ((mt->layer >= 0 ? 1u : 0) | (mt->expert >= 0 ? 2u : 0));

    for (size_t way = left;; way += 4) {
        int ret = names_view(out, m, dialect, t, way, 1, err);

        if (ret <= 0 || !out->unwritten)
            return ret;
        free(out->stored);
    }
}

/* ---- the check ---- */

/* Which rows of a stored tensor are rows of which tensor. */
struct fused {
    char *stored;
    unsigned char *taken; /* [n] */
    uint64_t n, rows;
};

enum { MOST_ROWS = 1 << 20 };

static int take_rows(struct fused *f, const struct model_tensor *mt,
                     const struct names_view *v, const char *dialect, struct err *err)
{
    uint64_t rows = 1;

    for (int k = 0; k < v->ndigits; k++)
        rows = rows > MOST_ROWS ? rows : rows * v->digit[k].count;
    if (rows != mt->axis[0]->size)
        return err_set(err, ERR_INPUT,
                       "%s: %s: its rows of %s are %llu, but it has %llu", dialect,
                       mt->key, v->stored, (unsigned long long)rows,
                       (unsigned long long)mt->axis[0]->size);
    for (uint64_t i = 0; i < rows; i++) {
        uint64_t rest = i, row = v->first;

        for (int k = v->ndigits - 1; k >= 0; k--) {
            row += rest % v->digit[k].count * v->digit[k].stride;
            rest /= v->digit[k].count;
        }
        if (row >= MOST_ROWS)
            return err_set(err, ERR_INPUT, "%s: %s: row %llu of %s", dialect, mt->key,
                           (unsigned long long)row, v->stored);
        if (row >= f->n) {
            f->taken = xrealloc(f->taken, row + 1);
            memset(f->taken + f->n, 0, row + 1 - f->n);
            f->n = row + 1;
        }
        if (f->taken[row]++)
            return err_set(err, ERR_INPUT, "%s: %s: row %llu of %s is also another's",
                           dialect, mt->key, (unsigned long long)row, v->stored);
        f->rows++;
    }
    return 0;
}

static struct fused *find_fused(struct fused **list, size_t *n, size_t *cap,
                                const char *stored)
{
    for (size_t i = 0; i < *n; i++)
        if (!strcmp((*list)[i].stored, stored))
            return &(*list)[i];
    *list = xgrow(*list, cap, *n + 1, sizeof(**list));
    (*list)[*n] = (struct fused){ .stored = xstrdup(stored) };
    return &(*list)[(*n)++];
}

/* The WAY-th way of every tensor, if the fused ones are joined of SHARDS shards. */
static int check_way(const struct model *m, const char *dialect, size_t way,
                     uint64_t shards, struct err *err)
{
    struct fused *list = NULL;
    size_t n = 0, cap = 0;
    int ret = 0;

    for (size_t t = 0; t < m->ntensors && ret == 0; t++) {
        const struct model_tensor *mt = &m->tensor[t];
        struct names_view v;

        if (mt->layer > 0 || mt->expert > 0)
            continue;
        ret = names_view(&v, m, dialect, t, way, shards, err);
        if (ret <= 0)
            continue;
        ret = v.ndigits ? take_rows(find_fused(&list, &n, &cap, v.stored), mt, &v,
                                    dialect, err)
                        : 0;
        if (ret == 0 && v.transposed && (mt->ndim != 2 || v.ndigits))
            ret = err_set(err, ERR_INPUT, "%s: %s: only a whole matrix is transposed",
                          dialect, mt->key);
        free(v.stored);
    }
    for (size_t i = 0; i < n; i++) {
        if (ret == 0 && list[i].rows != list[i].n)
            ret = err_set(err, ERR_INPUT,
                          "%s: %s: of %llu rows, %llu are rows of a tensor", dialect,
                          list[i].stored, (unsigned long long)list[i].n,
                          (unsigned long long)list[i].rows);
        free(list[i].stored);
        free(list[i].taken);
    }
    free(list);
    return ret;
}

static bool is_own(const struct model *m, const struct family_entry *e)
{
    const char *name = json_string(json_get(e->doc->root, "family"));

    return name && !strcmp(name, m->family);
}

/* Every key names a tensor of the family. */
static int check_keys(const struct model *m, const struct family_entry *e,
                      struct err *err)
{
    if (e->json->type != JSON_OBJECT)
        return family_error(e->doc, e->json, 0, err, "expected an object");
    /* a family that inherits a dialect may lack some tensors */
    for (const struct json *j = e->json->first; j; j = j->next)
        if (is_own(m, e) && strcmp(j->key, IGNORE) != 0 &&
            !family_get(&m->state->family->tensors, j->key))
            return json_error(e->doc, j, err, "no tensor is called '%s'", j->key);
    return 0;
}

int names_check(const struct model *m, struct err *err)
{
    const struct family_table *t = &m->state->family->names;

    for (size_t i = 0; i < t->n; i++) {
        if (check_keys(m, &t->v[i], err) < 0)
            return -1;
        for (size_t way = 0; way < 12; way += 4)
            if (check_way(m, t->v[i].key, way, 1, err) < 0)
                return -1;
    }
    return 0;
}
