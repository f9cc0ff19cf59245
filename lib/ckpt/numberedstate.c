/* numberedstate - an optimizer's state as PyTorch stores it: by number */
#include "lib/ckpt/numberedstate.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"

const char *const numberedstate_roles[NUMBEREDSTATE_NROLES] = { "exp_avg",
                                                                "exp_avg_sq" };

enum { MOST_KEYS = 256 }; /* of a group or a state; PyTorch has fewer than thirty */

/* A key of the dictionary state: a number, or a name. */
struct entry {
    int64_t number;
    const char *name; /* NULL: it has a number */
    const struct pickled *value;
};

/* A parameter in the order of shapes, then of the model. */
struct shaped {
    const struct tensor *t;
    size_t param;
    size_t first; /* of those of its shape */
    size_t used;  /* of the first of its shape: how many have a state */
    size_t group; /* of the first of its shape: the group of these; SIZE_MAX: none */
};

struct reader {
    const char *path;
    struct entry *entry; /* sorted */
    size_t n;
    const struct tensor *param;
    size_t nparams;
    struct tensor_index index;
    struct shaped *shaped;
    struct numberedstate *out;
    size_t nout, cap;
    size_t listed; /* parameters of groups */
};

static int wrong(const struct reader *r, const char *what, struct err *err)
{
    return err_set(err, ERR_INPUT, "%s: %s", r->path, what);
}

/* ---- the entries ---- */

static int compare_entries(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    if (!x->name != !y->name)
        return x->name ? 1 : -1;
    if (x->name)
        return strcmp(x->name, y->name);
    return (x->number > y->number) - (x->number < y->number);
}

static struct entry entry_of(const struct pickled *key)
{
    return (struct entry){
        .number = pickled_is(key, PICKLED_NUMBER) ? key->number : -1,
        .name = pickled_is(key, PICKLED_TEXT) ? key->text.s : NULL,
    };
}

static bool is_record(const struct pickled *v)
{
    return pickled_is(v, PICKLED_DICT) && v->list.n <= 2 * MOST_KEYS;
}

static int list_entries(struct reader *r, const struct pickled *state, struct err *err)
{
    r->entry = xmalloc((state->list.n / 2 + 1) * sizeof(*r->entry));
    for (size_t i = 0; i + 1 < state->list.n; i += 2) {
        r->entry[r->n] = entry_of(state->list.v[i]);
        if (!is_record(r->entry[r->n++].value = state->list.v[i + 1]))
            return wrong(r, "a parameter's state is no dictionary", err);
    }
    if (r->n)
        qsort(r->entry, r->n, sizeof(*r->entry), compare_entries);
    return 0;
}

/* The state of the parameter KEY of a group; NULL: it has none. */
static const struct pickled *find_entry(const struct reader *r,
                                        const struct pickled *key)
{
    const struct entry sought = entry_of(key);
    const struct entry *found =
        r->n ? bsearch(&sought, r->entry, r->n, sizeof(sought), compare_entries) : NULL;

    return found ? found->value : NULL;
}

/* ---- whose they are, by shape ---- */

static int compare_shapes(const struct tensor *a, const struct tensor *b)
{
    if (a->ndim != b->ndim)
        return a->ndim < b->ndim ? -1 : 1;
    for (int k = 0; k < a->ndim; k++)
        if (a->shape[k] != b->shape[k])
            return a->shape[k] < b->shape[k] ? -1 : 1;
    return 0;
}

static int compare_shaped(const void *a, const void *b)
{
    const struct shaped *x = a, *y = b;
    int order = compare_shapes(x->t, y->t);

    return order ? order : (x->param > y->param) - (x->param < y->param);
}

static void list_shapes(struct reader *r)
{
    r->shaped = xmalloc((r->nparams + 1) * sizeof(*r->shaped));
    for (size_t i = 0; i < r->nparams; i++)
        r->shaped[i] =
            (struct shaped){ .t = &r->param[i], .param = i, .group = SIZE_MAX };
    if (r->nparams)
        qsort(r->shaped, r->nparams, sizeof(*r->shaped), compare_shaped);
    for (size_t i = 1; i < r->nparams; i++)
        r->shaped[i].first = compare_shapes(r->shaped[i].t, r->shaped[i - 1].t)
                                 ? i
                                 : r->shaped[i - 1].first;
}

/* Sets the shape of *t, whose numbers are at SHAPE, to that of a state's first moment:
 * of a tensor, or of one that is sharded, which is in the arguments of
 * _rebuild_wrapper_subclass. */
static bool find_shape(struct tensor *t, uint64_t *shape, const struct pickled *state)
{
    const struct pickled *v = pickled_get(state, numberedstate_roles[0]), *size;

    *t = (struct tensor){ .shape = shape };
    if (pickled_is(v, PICKLED_TENSOR) && v->tensor.ndim <= TENSOR_MAX_DIMS) {
        t->ndim = v->tensor.ndim;
        memcpy(shape, v->tensor.shape, (size_t)t->ndim * sizeof(*shape));
        return true;
    }
    if (!pickled_is_a(v, "_rebuild_wrapper_subclass") || v->record.args->list.n < 3)
        return false;
    size = v->record.args->list.v[2];
    if (!pickled_is(size, PICKLED_TUPLE) || size->list.n > TENSOR_MAX_DIMS)
        return false;
    t->ndim = (int)size->list.n;
    for (int k = 0; k < t->ndim; k++) {
        if (size->list.v[k]->kind != PICKLED_NUMBER)
            return false;
        shape[k] = (uint64_t)size->list.v[k]->number;
    }
    return true;
}

/* The first parameter of the shape of T, or NULL. */
static struct shaped *find_shaped(struct reader *r, const struct tensor *t)
{
    size_t low = 0, high = r->nparams;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = compare_shapes(t, r->shaped[middle].t);

        if (!order)
            return &r->shaped[r->shaped[middle].first];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

static size_t count_shape(const struct reader *r, const struct shaped *first)
{
    size_t begin = (size_t)(first - r->shaped), n = begin;

    while (n < r->nparams && r->shaped[n].first == begin)
        n++;
    return n - begin;
}

/* Finds the parameter of the state V of group G; *last is the one before in the group,
 * plus 1. */
static int find_by_shape(struct reader *r, size_t *param, const struct pickled *v,
                         size_t g, size_t *last, struct err *err)
{
    uint64_t shape[TENSOR_MAX_DIMS];
    struct shaped *first, *next;
    struct tensor t;

    if (!find_shape(&t, shape, v))
        return wrong(r, "a parameter without moments, whose it cannot be told", err);
    first = find_shaped(r, &t);
    if (!first)
        return wrong(r, "a moment of a shape that no weight has", err);
    if (first->group != SIZE_MAX && first->group != g)
        return err_set(err, ERR_INPUT,
                       "%s: two groups of parameters without names have some of the "
                       "shape of %s: whose the moments are cannot be told",
                       r->path, first->t->name);
    first->group = g;
    next = first + first->used++;
    if ((size_t)(next - r->shaped) >= r->nparams ||
        &r->shaped[next->first] != first) /* of another shape */
        return err_set(err, ERR_INPUT,
                       "%s: more moments of the shape of %s than weights", r->path,
                       first->t->name);
    if (next->param < *last)
        return err_set(err, ERR_INPUT,
                       "%s: the moments are in another order than the weights: whose "
                       "they are cannot be told",
                       r->path);
    *last = next->param + 1;
    *param = next->param;
    return 0;
}

/* If some weights of a shape have no moments, which ones have cannot be told. */
static int check_shapes(const struct reader *r, struct err *err)
{
    for (size_t i = 0; i < r->nparams; i++) {
        const struct shaped *first = &r->shaped[i];
        size_t n = first->used ? count_shape(r, first) : 0;

        if (n > first->used)
            return err_set(err, ERR_INPUT,
                           "%s: moments of %zu of the %zu weights of the shape of %s: "
                           "of which ones cannot be told",
                           r->path, first->used, n, first->t->name);
    }
    return 0;
}

/* ---- groups ---- */

static int find_by_name(const struct reader *r, size_t *param,
                        const struct pickled *name, struct err *err)
{
    long at = pickled_is(name, PICKLED_TEXT)
                  ? tensor_index_find(&r->index, name->text.s)
                  : -1;

    if (at < 0)
        return err_set(err, ERR_INPUT, "%s: moments of %s, which is no weight", r->path,
                       pickled_is(name, PICKLED_TEXT) ? name->text.s : "no name");
    *param = (size_t)at;
    return 0;
}

static int add_group(struct reader *r, const struct pickled *group, size_t g,
                     struct err *err)
{
    const struct pickled *params = NULL, *names = NULL;
    size_t last = 0;

    if (is_record(group)) {
        params = pickled_get(group, "params");
        names = pickled_get(group, "param_names");
    }
    if (!pickled_is(params, PICKLED_LIST))
        return wrong(r, "a group without a list of parameters", err);
    if (params->list.n > r->nparams - r->listed)
        return wrong(r, "more parameters than the model has", err);
    r->listed += params->list.n;
    if (!pickled_is(names, PICKLED_LIST) || names->list.n != params->list.n)
        names = NULL;
    for (size_t i = 0; i < params->list.n; i++) {
        const struct pickled *key = params->list.v[i], *v = find_entry(r, key);
        const struct pickled *name = key->kind == PICKLED_TEXT ? key
                                     : names                   ? names->list.v[i]
                                                               : NULL;
        size_t param = 0;

        if (name && !v)
            continue; /* it never had a gradient */
        if (r->nout >= r->n)
            return wrong(r, "a state of two parameters", err);
        if (name ? find_by_name(r, &param, name, err) < 0
                 : find_by_shape(r, &param, v, g, &last, err) < 0)
            return -1;
        r->out = xgrow(r->out, &r->cap, r->nout + 1, sizeof(*r->out));
        r->out[r->nout++] = (struct numberedstate){ param, v, g, i, params->list.n };
    }
    return 0;
}

int numberedstate_read(struct numberedstate **out, size_t *n,
                       const struct pickled *optimizer, const struct tensor *param,
                       size_t n_params, const char *path, struct err *err)
{
    const struct pickled *state = pickled_get(optimizer, "state");
    const struct pickled *groups = pickled_get(optimizer, "param_groups");
    struct reader r = { .path = path, .param = param, .nparams = n_params };
    int ret;

    if (!pickled_is(state, PICKLED_DICT) || !pickled_is(groups, PICKLED_LIST))
        return wrong(&r, "no state of an optimizer of PyTorch", err);
    ret = list_entries(&r, state, err);
    list_shapes(&r);
    tensor_index_init(&r.index, param, n_params);
    for (size_t g = 0; g < groups->list.n && ret == 0; g++)
        ret = g > n_params ? wrong(&r, "more groups than parameters", err)
                           : add_group(&r, groups->list.v[g], g, err);
    if (ret == 0)
        ret = check_shapes(&r, err);
    tensor_index_clear(&r.index);
    free(r.entry);
    free(r.shaped);
    if (ret < 0) {
        free(r.out);
        return -1;
    }
    *out = r.out;
    *n = r.nout;
    return 0;
}
