/* zerodir - reads checkpoints of DeepSpeed's ZeRO, stages 0 to 3 */
#include "lib/ckpt/zerodir.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/ckpt/boxes.h"
#include "lib/ckpt/dictindex.h"
#include "lib/ckpt/flatvec.h"
#include "lib/ckpt/pickle.h"
#include "lib/ckpt/zerotag.h"
#include "lib/ckpt/zerovectors.h"

struct reader {
    struct source *s;
    char *dir;      /* of the tag */
    bool universal; /* the parameters are in files of their own */
    int part;       /* the pipeline's stage being read; 0 without a pipeline */
    struct zerotag_files models, optims; /* of the part */
    struct pickle_values *model;         /* [models.n] */
    char **path;                         /* [models.n] */
    int *input;                          /* [models.n] */
    struct dictindex *fragments;         /* [models.n] of frozen parameters */
    struct dictindex module; /* the weights and buffers that rank 0 has whole */
    struct zerovectors v;    /* of the part */
    struct tensor *tensor;
    size_t n, cap;
    uint64_t read;        /* bytes of pickles */
    size_t group, shapes; /* the group of shapes that is read, of so many */
};

/* Opens file NAME of the tag's directory; *path is its path, which the caller frees. */
static int open_values(struct reader *r, struct pickle_values *v, const char *name,
                       char **path, int *input, struct err *err)
{
    char *shown = fs_join_dup(fs_basename(r->dir), name);
    int fd, ret;

    *path = fs_join_dup(r->dir, name);
    ret = form_add_input(r->s, shown, *path, input, &fd, err);
    free(shown);
    if (ret < 0)
        return -1;
    ret = pickle_values_read(v, fd, *path, err);
    close(fd);
    if (ret == 0) {
        r->read += unpickle_read(&v->m);
        if (v->archive)
            form_add_archive(r->s, *input, 0, v->size);
    }
    return ret;
}

static int wrong(const char *path, const char *what, struct err *err)
{
    return err_set(err, ERR_INPUT, "%s: %s", path, what);
}

static int read_optims(struct reader *r, struct err *err)
{
    r->v.ranks = r->optims.n;
    for (size_t i = 0; i < r->optims.n; i++) {
        struct pickle_values v = { 0 };
        char *path;
        int input;
        int ret = open_values(r, &v, r->optims.v[i].name, &path, &input, err);

        if (ret == 0)
            ret = zerovectors_add_rank(&r->v, &v, i, path, input, err);
        pickle_values_clear(&v);
        free(path);
        if (ret < 0)
            return -1;
    }
    return 0;
}

/* ---- tensors ---- */

/* Sets name and shape of *t from an entry of param_shapes, and *elements. */
static int begin_tensor(struct reader *r, struct tensor *t, uint64_t *elements,
                        const struct pickled *name, const struct pickled *shape,
                        struct err *err)
{
    uint64_t *sizes;

    if (name->kind != PICKLED_TEXT || shape->kind != PICKLED_TUPLE ||
        shape->list.n > TENSOR_MAX_DIMS)
        return wrong(r->path[0], "a parameter without a name or a shape", err);
    *t = (struct tensor){ .ndim = (int)shape->list.n };
    sizes = pool_take(&r->s->pool, (shape->list.n + 1) * sizeof(*sizes), 8);
    *elements = 1;
    for (size_t k = 0; k < shape->list.n; k++) {
        if (shape->list.v[k]->kind != PICKLED_NUMBER || shape->list.v[k]->number < 0)
            return wrong(r->path[0], "a shape that is no tuple of sizes", err);
        sizes[k] = (uint64_t)shape->list.v[k]->number;
        if (!mem_mul(elements, *elements, sizes[k]))
            return err_set(err, ERR_INPUT, "%s: %s: its shape overflows", r->path[0],
                           name->text.s);
    }
    t->shape = sizes;
    return form_keep_name(r->s, &t->name, name->text.s, r->read, r->path[0], err);
}

static void add_tensor(struct reader *r, const struct tensor *t)
{
    r->tensor = xgrow(r->tensor, &r->cap, r->n + 1, sizeof(*r->tensor));
    r->tensor[r->n++] = *t;
}

/* Adds the moment VECTOR of the weight of T's name, which is of the group of shapes
 * that is read: a group of the optimizer, or with stage 3 a part of one. */
static int add_state(struct reader *r, const struct tensor *t, int vector,
                     const char *path, struct err *err)
{
    const size_t groups = r->s->progress.ngroups;

    if (form_add_state(r->s, t, t->name, zerovectors_names[vector], r->read, path,
                       err) < 0)
        return -1;
    if (groups == 1 || (groups && groups == r->shapes))
        r->s->group[r->s->nstates - 1] = groups == 1 ? 0 : (int)r->group;
    return 0;
}

/* Adds the tensor T, of ELEMENTS elements of type DTYPE, which P's pieces make: a
 * parameter, or the moment VECTOR of it. */
static int end_tensor(struct reader *r, struct tensor *t, uint64_t elements,
                      enum dtype dtype, struct flatvec_boxes *p, int vector,
                      struct err *err)
{
    uint64_t *shape = pool_take(&r->s->pool, sizeof(*shape), sizeof(*shape));

    *shape = elements;
    t->dtype = dtype;
    if (!dtype_bytes(&t->size, dtype, elements))
        return err_set(err, ERR_INPUT, "%s: %s: its size overflows", r->path[0],
                       t->name);
    if (boxes_new(&t->boxes, &r->s->pool, 1, shape, p->box, p->n, r->dir, t->name,
                  err) < 0)
        return -1;
    form_join_boxes(t);
    p->n = 0;
    if (vector != ZEROVECTORS_MASTERS)
        return add_state(r, t, vector, r->dir, err);
    add_tensor(r, t);
    return 0;
}

/* Rounds X up to what a group's length is a multiple of: of 2 times the ranks. */
static uint64_t round_up(const struct reader *r, uint64_t x)
{
    uint64_t unit = 2 * r->optims.n;

    return (x + unit - 1) / unit * unit;
}

/* Adds the parameter T of ELEMENTS elements, from AT on in group G's vectors, or with
 * stage 3 in each rank's: of the masters, or of moment VECTOR. */
static int add_parameter(struct reader *r, const struct tensor *t, uint64_t elements,
                         size_t g, uint64_t at, int vector, struct err *err)
{
    uint64_t ranks = r->optims.n, each = elements / ranks + (elements % ranks > 0);
    size_t width = (size_t)dtype_bits(r->v.dtype) / 8;
    struct tensor made = *t;
    struct flatvec_boxes p = { 0 };
    bool fits = true;
    int ret;

    if (r->v.stage < 3)
        fits = g < r->v.nflat && flatvec_cut(&p, &r->s->pool, &r->v.flat[vector][g],
                                             width, at, elements, 0);
    for (uint64_t d = 0, first = 0;
         r->v.stage == 3 && d < ranks && first < elements && fits; d++) {
        uint64_t n = elements - first < each ? elements - first : each;

        fits = flatvec_cut(&p, &r->s->pool, &r->v.flat[vector][d], width, at, n, first);
        first += n;
    }
    ret = fits ? end_tensor(r, &made, elements, r->v.dtype, &p, vector, err)
               : err_set(err, ERR_INPUT, "%s: %s: reaches beyond the masters", r->dir,
                         t->name);
    free(p.box);
    return ret;
}

/* Adds the parameters of GROUP, number G, a dictionary of shapes.  *at is the next
 * element of each rank's vector, *nth the number of parameters before. */
static int add_group(struct reader *r, const struct pickled *group, size_t g,
                     uint64_t *at, size_t *nth, struct err *err)
{
    uint64_t ranks = r->optims.n, elements, pos = 0;
    struct tensor t;

    for (size_t i = 0; i + 1 < group->list.n; i += 2, (*nth)++) {
        bool fits = true;

        if (begin_tensor(r, &t, &elements, group->list.v[i], group->list.v[i + 1],
                         err) < 0)
            return -1;
        for (int k = 0; k < r->v.nvectors; k++)
            if (add_parameter(r, &t, elements, g, r->v.stage < 3 ? pos : *at, k, err) <
                0)
                return -1;
        if (r->v.stage < 3) {
            pos += elements;
            if (*nth < r->v.npadding)
                fits = mem_add(&pos, pos, r->v.padding[*nth]);
        } else {
            fits = mem_add(at, *at, elements / ranks + (elements % ranks > 0));
        }
        if (!fits)
            return err_set(err, ERR_INPUT, "%s: %s: its padding overflows", r->dir,
                           t.name);
    }
    if (r->v.stage < 3 && g < r->v.nflat &&
        round_up(r, pos) != round_up(r, r->v.flat[ZEROVECTORS_MASTERS][g].length))
        return err_set(err, ERR_INPUT,
                       "%s: group %zu has %" PRIu64 " masters; its parameters have "
                       "%" PRIu64,
                       r->dir, g, r->v.flat[ZEROVECTORS_MASTERS][g].length, pos);
    return 0;
}

/* Adds a file of a parameter of ELEMENTS elements of a universal checkpoint, which T
 * describes: the masters, or the moment VECTOR. */
static int add_universal(struct reader *r, const struct tensor *t, uint64_t elements,
                         int vector, struct err *err)
{
    struct pickle_values v = { 0 };
    struct tensor found;
    const struct pickled *param;
    char *path = NULL,
         *file = str_dupf("zero/%s/%s.pt", t->name, zerovectors_names[vector]);
    int input, ret = -1;
    bool there = true;

    /* weights alone have no moments */
    if (vector != ZEROVECTORS_MASTERS && fs_find_in(&there, r->dir, file, err) < 0)
        goto out;
    if (!there) {
        ret = 0;
        goto out;
    }
    if (open_values(r, &v, file, &path, &input, err) < 0)
        goto out;
    param = pickled_is(v.root, PICKLED_DICT) ? pickled_get(v.root, "param") : v.root;
    if (!pickled_is(param, PICKLED_TENSOR)) {
        wrong(path, "no tensor param", err);
        goto out;
    }
    if (pickle_tensor(&found, param, &r->s->pool, path, t->name, err) < 0)
        goto out;
    if (found.ndim == 1 && !found.stride && found.shape[0] == elements) {
        found.ndim = t->ndim; /* of stage 3 they are flat */
        found.shape = t->shape;
    }
    if (found.ndim != t->ndim ||
        memcmp(found.shape, t->shape, (size_t)t->ndim * sizeof(*t->shape)) != 0) {
        wrong(path, "another shape than the model states say", err);
        goto out;
    }
    found.name = t->name;
    found.input = input;
    ret = 0;
    if (vector == ZEROVECTORS_MASTERS)
        add_tensor(r, &found);
    else
        ret = add_state(r, &found, vector, path, err);
out:
    pickle_values_clear(&v);
    free(path);
    free(file);
    return ret;
}

/* Takes the groups of the optimizer, and its updates, which are those of the engine
 * where no state of it says them (torch's optimizers at stages 1 and 2). */
static int read_universal_progress(struct reader *r, struct err *err)
{
    static const char FILE_NAME[] = "zero/optimizer_state.pt";
    struct progress *p = &r->s->progress;
    struct pickle_values v = { 0 };
    char *path = NULL;
    bool there;
    int input, ret;

    if (fs_find_in(&there, r->dir, FILE_NAME, err) < 0)
        return -1;
    if (!there)
        return 0;
    ret = open_values(r, &v, FILE_NAME, &path, &input, err);
    if (ret == 0)
        ret = zerovectors_progress(
            r->s, &v, pickled_get(v.root, "param_groups"),
            pickled_get(pickled_get(v.root, "optimizer_state_dict"), "state"), path,
            err);
    if (ret == 0 && isnan(p->updates) && p->steps != UINT64_MAX)
        progress_see(p, (double)(p->scheduled < p->steps ? p->scheduled : p->steps));
    p->path = r->dir;
    pickle_values_clear(&v);
    free(path);
    return ret;
}

static int add_all_universal(struct reader *r, const struct pickled *shapes,
                             struct err *err)
{
    if (r->s->moments && !r->s->progress.ngroups && read_universal_progress(r, err) < 0)
        return -1;
    for (size_t g = 0; g < shapes->list.n; g++) {
        const struct pickled *group = shapes->list.v[g];

        r->group = g;
        for (size_t i = 0; pickled_is(group, PICKLED_DICT) && i + 1 < group->list.n;
             i += 2) {
            struct tensor t;
            uint64_t elements;

            if (begin_tensor(r, &t, &elements, group->list.v[i], group->list.v[i + 1],
                             err) < 0)
                return -1;
            if (!fs_is_plain_name(t.name) || strchr(t.name, '/'))
                return err_set(err, ERR_INPUT, "%s: '%s' is no name of a directory",
                               r->path[0], t.name);
            for (int k = 0; k < r->v.nvectors; k++)
                if (add_universal(r, &t, elements, k, err) < 0)
                    return -1;
        }
    }
    return 0;
}

/* The steps of the engine, and those that it has skipped. */
static void read_steps(struct reader *r)
{
    const struct pickled *root = r->model[0].root;
    const struct pickled *steps = pickled_get(root, "global_steps");
    const struct pickled *skipped = pickled_get(root, "skipped_steps");
    struct progress *p = &r->s->progress;

    if (!pickled_is(steps, PICKLED_NUMBER) || steps->number < 0)
        return;
    p->steps = (uint64_t)steps->number;
    if (pickled_is(skipped, PICKLED_NUMBER) && skipped->number > 0 &&
        skipped->number <= steps->number)
        p->scheduled = p->steps - (uint64_t)skipped->number;
}

/* Adds the trained parameters. */
static int add_trained(struct reader *r, struct err *err)
{
    const struct pickled *shapes = pickled_get(r->model[0].root, "param_shapes");
    uint64_t at = 0;
    size_t nth = 0;

    if (!pickled_is(shapes, PICKLED_LIST))
        return wrong(r->path[0], "no param_shapes", err);
    r->shapes = shapes->list.n;
    if (r->s->moments)
        read_steps(r);
    if (r->universal)
        return add_all_universal(r, shapes, err);
    if (r->v.stage < 3 && shapes->list.n != r->v.nflat)
        return wrong(r->path[0], "other groups than the optimizer has", err);
    for (size_t g = 0; g < shapes->list.n; g++) {
        r->group = g;
        if (shapes->list.v[g]->kind != PICKLED_DICT)
            return wrong(r->path[0], "a group of shapes is no dictionary", err);
        if (nth > r->read || add_group(r, shapes->list.v[g], g, &at, &nth, err) < 0)
            return nth > r->read ? wrong(r->path[0], "too many groups", err) : -1;
    }
    for (size_t d = 0; r->v.stage == 3 && d < r->v.nflat; d++)
        if (r->v.flat[ZEROVECTORS_MASTERS][d].length != at)
            return err_set(err, ERR_INPUT,
                           "%s: rank %zu has %" PRIu64 " masters; its parameters have "
                           "%" PRIu64,
                           r->dir, d, r->v.flat[ZEROVECTORS_MASTERS][d].length, at);
    return 0;
}

/* Adds the tensor V of model states M by the name KEY. */
static int add_whole(struct reader *r, size_t m, const struct pickled *key,
                     const struct pickled *v, struct err *err)
{
    struct tensor t;
    const char *name;

    if (form_keep_name(r->s, &name, key->text.s, r->read, r->path[m], err) < 0 ||
        pickle_tensor(&t, v, &r->s->pool, r->path[m], name, err) < 0)
        return -1;
    t.name = name;
    t.input = r->input[m];
    add_tensor(r, &t);
    return 0;
}

/* Adds the frozen parameter NAME of stage 3: each rank has a piece of it. */
static int add_fragments(struct reader *r, const struct pickled *name,
                         const struct pickled *shape, struct err *err)
{
    uint64_t elements, first = 0;
    struct flatvec_boxes p = { 0 };
    enum dtype dtype = DTYPE_F32;
    struct tensor t, piece;
    int ret = -1;

    if (begin_tensor(r, &t, &elements, name, shape, err) < 0)
        return -1;
    for (size_t m = 0; m < r->models.n && first < elements; m++) {
        const struct pickled *v = dictindex_get(&r->fragments[m], name->text.s);
        uint64_t n;

        if (!pickled_is(v, PICKLED_TENSOR)) {
            err_set(err, ERR_INPUT, "%s: %s: no fragment", r->path[m], t.name);
            goto out;
        }
        if (pickle_tensor(&piece, v, &r->s->pool, r->path[m], t.name, err) < 0)
            goto out;
        if (piece.ndim != 1 || piece.stride || (m && piece.dtype != dtype)) {
            err_set(err, ERR_INPUT, "%s: %s: its fragment is no flat vector",
                    r->path[m], t.name);
            goto out;
        }
        dtype = piece.dtype;
        n = piece.shape[0] < elements - first ? piece.shape[0] : elements - first;
        flatvec_add(&p, &r->s->pool, r->input[m], piece.offset, n, first);
        first += n;
    }
    ret = end_tensor(r, &t, elements, dtype, &p, ZEROVECTORS_MASTERS, err);
out:
    free(p.box);
    return ret;
}

/* Adds the parameters that were not trained. */
static int add_frozen(struct reader *r, struct err *err)
{
    const struct pickled *root = r->model[0].root;
    const struct pickled *shapes = pickled_get(root, "frozen_param_shapes");

    for (size_t i = 0; pickled_is(shapes, PICKLED_DICT) && i + 1 < shapes->list.n;
         i += 2) {
        const struct pickled *name = shapes->list.v[i], *whole;

        if (name->kind != PICKLED_TEXT)
            return wrong(r->path[0], "a frozen parameter without a name", err);
        if (r->v.stage == 3) {
            if (add_fragments(r, name, shapes->list.v[i + 1], err) < 0)
                return -1;
            continue;
        }
        whole = dictindex_get(&r->fragments[0], name->text.s);
        if (!pickled_is(whole, PICKLED_TENSOR))
            whole = dictindex_get(&r->module, name->text.s);
        if (!pickled_is(whole, PICKLED_TENSOR))
            return err_set(err, ERR_INPUT, "%s: %s: frozen, and not stored", r->path[0],
                           name->text.s);
        if (add_whole(r, 0, name, whole, err) < 0)
            return -1;
    }
    return 0;
}

static int add_buffers(struct reader *r, struct err *err)
{
    const struct pickled *names = pickled_get(r->model[0].root, "buffer_names");

    for (size_t i = 0; pickled_is(names, PICKLED_LIST) && i < names->list.n; i++) {
        const struct pickled *v =
            names->list.v[i]->kind == PICKLED_TEXT
                ? dictindex_get(&r->module, names->list.v[i]->text.s)
                : NULL;

        if (pickled_is(v, PICKLED_TENSOR) &&
            add_whole(r, 0, names->list.v[i], v, err) < 0)
            return -1;
    }
    return 0;
}

/* Adds the second names of tied parameters: {absent: stored}. */
static int add_shared(struct reader *r, struct err *err)
{
    const struct pickled *shared = pickled_get(r->model[0].root, "shared_params");
    struct tensor_index index;
    size_t n = r->n;
    int ret = 0;

    if (!pickled_is(shared, PICKLED_DICT) || !shared->list.n)
        return 0;
    tensor_index_init(&index, r->tensor, n);
    for (size_t i = 0; i + 1 < shared->list.n && ret == 0; i += 2) {
        const struct pickled *name = shared->list.v[i], *of = shared->list.v[i + 1];
        long at = name->kind == PICKLED_TEXT && of->kind == PICKLED_TEXT
                      ? tensor_index_find(&index, of->text.s)
                      : -1;
        struct tensor t;

        if (at < 0 || tensor_index_find(&index, name->text.s) >= 0)
            continue;
        t = r->tensor[at];
        ret = form_keep_name(r->s, &t.name, name->text.s, r->read, r->path[0], err);
        if (ret == 0)
            add_tensor(r, &t);
        index.tensor = r->tensor; /* which may have moved */
    }
    tensor_index_clear(&index);
    return ret;
}

/* Stage 0: all is in the model states. */
static int add_module(struct reader *r, struct err *err)
{
    const struct pickled *module = pickled_get(r->model[0].root, "module");

    if (!pickled_is(module, PICKLED_DICT))
        return wrong(r->path[0], "no module, and no optimizer states beside it", err);
    for (size_t i = 0; i + 1 < module->list.n; i += 2)
        if (module->list.v[i]->kind == PICKLED_TEXT &&
            module->list.v[i + 1]->kind == PICKLED_TENSOR &&
            add_whole(r, 0, module->list.v[i], module->list.v[i + 1], err) < 0)
            return -1;
    return 0;
}

/* ---- opening ---- */

/* Reads a part, whose files are among the N names of the directory. */
static int read_part(struct reader *r, char **names, size_t n, struct err *err)
{
    if (zerotag_list(&r->models, &r->optims, r->dir, r->part, names, n, err) < 0)
        return -1;
    if (!r->models.n)
        return err_set(err, ERR_INPUT, "%s: no file of model states of rank %d", r->dir,
                       r->part);
    r->model = xcalloc(r->models.n, sizeof(*r->model));
    r->path = xcalloc(r->models.n, sizeof(*r->path));
    r->input = xcalloc(r->models.n, sizeof(*r->input));
    r->fragments = xcalloc(r->models.n, sizeof(*r->fragments));
    for (size_t i = 0; i < r->models.n; i++)
        if (open_values(r, &r->model[i], r->models.v[i].name, &r->path[i], &r->input[i],
                        err) < 0)
            return -1;
    for (size_t i = 0; i < r->models.n; i++)
        dictindex_init(&r->fragments[i],
                       pickled_get(r->model[i].root, "frozen_param_fragments"));
    dictindex_init(&r->module, pickled_get(r->model[0].root, "module"));
    if (read_optims(r, err) < 0)
        return -1;
    if (!r->optims.n && !r->universal && r->models.n > 1)
        return err_set(err, ERR_INPUT, "%s: no file of optimizer states", r->dir);
    if (r->v.stage == 3 && r->models.n != r->optims.n)
        return err_set(err, ERR_INPUT,
                       "%s: %zu files of model states and %zu of optimizer states",
                       r->dir, r->models.n, r->optims.n);
    if (!r->optims.n && !r->universal)
        return add_module(r, err);
    if (add_trained(r, err) < 0 || add_frozen(r, err) < 0 || add_buffers(r, err) < 0)
        return -1;
    return add_shared(r, err);
}

/* Releases what belongs to a part. */
static void clear_part(struct reader *r)
{
    for (size_t i = 0; i < r->models.n && r->model; i++) {
        pickle_values_clear(&r->model[i]);
        free(r->path[i]);
        dictindex_clear(&r->fragments[i]);
    }
    zerovectors_clear(&r->v);
    zerotag_files_clear(&r->models);
    zerotag_files_clear(&r->optims);
    free(r->model);
    free(r->path);
    free(r->input);
    free(r->fragments);
    dictindex_clear(&r->module);
    r->fragments = NULL;
    r->model = NULL;
    r->path = NULL;
    r->input = NULL;
}

/* The stages of a pipeline that own a tied module have it each: keeps the first of the
 * N tensors at T, and of what is at ROLE and GROUP beside them, if that is given;
 * returns how many are left. */
static size_t drop_tied(struct tensor *t, const char **role, int *group, size_t n)
{
    bool *drop = xcalloc(n + 1, sizeof(*drop));
    struct tensor_index index;
    size_t kept = 0;

    tensor_index_init(&index, t, n);
    for (size_t i = 1, of = 0; i < n; i++) { /* names in order; OF has the last's */
        size_t first = index.order[of], next = index.order[i];
        bool same = !strcmp(t[first].name, t[next].name);

        if (same && str_starts(t[next].name, "tied_modules."))
            drop[first < next ? next : first] = true;
        if (!same || next < first)
            of = i;
    }
    tensor_index_clear(&index);
    for (size_t i = 0; i < n; i++) {
        if (drop[i])
            continue;
        if (role)
            role[kept] = role[i];
        if (group)
            group[kept] = group[i];
        t[kept++] = t[i];
    }
    free(drop);
    return kept;
}

static int read_all(struct reader *r, struct err *err)
{
    char **names;
    size_t n;
    int parts, ret;
    bool layers;

    if (fs_find_in(&r->universal, r->dir, "zero", err) < 0 ||
        fs_list(&names, &n, r->dir, err) < 0)
        return -1;
    ret = zerotag_count_parts(&parts, &layers, r->dir, names, n, err);
    if (ret == 0 && layers)
        r->s->dialect = "pipeline";
    for (; r->part < parts && ret == 0; r->part++) {
        ret = read_part(r, names, n, err);
        r->s->mastered |= r->universal || r->optims.n > 0; /* ZeRO's stages from 1 on */
        clear_part(r);
    }
    if (parts > 1) {
        r->n = drop_tied(r->tensor, NULL, NULL, r->n);
        r->s->nstates = drop_tied(r->s->state, r->s->role, r->s->group, r->s->nstates);
    }
    fs_list_free(names, n);
    return ret;
}

static int probe(bool *found, const char *path, bool is_dir, struct err *err)
{
    char *dir = NULL;
    const char *note;

    *found = false;
    if (is_dir && zerotag_find(&dir, &note, path, err) < 0)
        return -1;
    *found = dir != NULL;
    free(dir);
    return 0;
}

static int open_directory(struct source *s, const char *path, struct err *err)
{
    struct reader r = { .s = s };
    int ret = -1;

    if (zerotag_find(&r.dir, &s->note, path, err) < 0)
        return -1;
    if (!r.dir)
        return err_set(err, ERR_INPUT, "%s: no checkpoint of DeepSpeed", path);
    r.v = (struct zerovectors){ .s = s,
                                .dir = r.dir,
                                .read = &r.read,
                                .nvectors = s->moments ? ZEROVECTORS_MOST : 1 };
    if (read_all(&r, err) == 0)
        ret = form_present(s, r.tensor, r.n, err);
    free(r.tensor);
    free(r.dir);
    return ret;
}

static const char *const own[] = { "latest", "latest_universal", NULL };

const struct source_ops zerodir_ops = { .name = "a checkpoint of DeepSpeed",
                                        .own = own,
                                        .probe = probe,
                                        .open = open_directory };
