/* zerodir - reads checkpoints of DeepSpeed's ZeRO, stages 0 to 3 */
#include "lib/ckpt/zerodir.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/ckpt/boxes.h"
#include "lib/ckpt/dictindex.h"
#include "lib/ckpt/flatvec.h"
#include "lib/ckpt/pickle.h"

enum {
    MOST_TAG = 4096,
    MOST_RANKS = 1 << 20,
    MASTERS = 0,
    NVECTORS = 3,
    LEAST_STEPS = 1 << 28, /* entries that may be looked at, and for each byte read */
    BYTE_STEPS = 16
};

/* The flat vectors: masters, and the moments of Adam. */
static const char *const vectors[NVECTORS] = { "fp32", "exp_avg", "exp_avg_sq" };

/* A file of the tag's directory: its name, and the data-parallel rank in it. */
struct file {
    char *name;
    int rank;
};

struct files {
    struct file *v; /* by rank */
    size_t n, cap;
};

struct reader {
    struct source *s;
    char *dir;      /* of the tag */
    bool universal; /* the parameters are in files of their own */
    int part;       /* the pipeline's stage being read; 0 without a pipeline */
    struct files models, optims; /* of the part */
    struct pickle_values *model; /* [models.n] */
    char **path;                 /* [models.n] */
    int *input;                  /* [models.n] */
    struct dictindex *fragments; /* [models.n] of frozen parameters */
    struct dictindex module;     /* the weights and buffers that rank 0 has whole */
    int64_t stage;               /* 0 to 3 */
    enum dtype dtype;            /* of the masters */
    bool typed;                  /* .dtype is known */
    int nvectors;                /* 1, or NVECTORS when moments are read */
    struct flatvec
        *flat[NVECTORS]; /* [nflat] of the groups, or with stage 3 of the ranks */
    size_t nflat;
    uint64_t *padding; /* after each parameter, all groups joined; NULL: none */
    size_t npadding;
    struct tensor *tensor;
    size_t n, cap;
    uint64_t read;  /* bytes of pickles */
    uint64_t steps; /* entries of optimizers looked at */
};

/* ---- the files ---- */

/* If NAME is zero_pp_rank_D_mp_rank_00 or mp_rank_00 and the end WHAT: sets *rank to D
 * or 0. */
static bool is_file(const char *name, const char *what, int *rank, int *part)
{
    static const char *const heads[] = { "bf16_zero_pp_rank_%7d_mp_rank_%7d%n",
                                         "zero_pp_rank_%7d_mp_rank_%7d%n" };
    int used = 0;

    for (size_t i = 0; i < 2; i++)
        if (sscanf(name, heads[i], rank, part, &used) == 2)
            break;
    if (!used) {
        *rank = 0;
        if (sscanf(name, "mp_rank_%7d%n", part, &used) != 1)
            return false;
    }
    name += used + (name[used] == '_');
    return *rank >= 0 && *rank < MOST_RANKS && !strcmp(name, what);
}

static int compare_files(const void *a, const void *b)
{
    const struct file *x = a, *y = b;

    return x->rank != y->rank ? (x->rank < y->rank ? -1 : 1) : strcmp(x->name, y->name);
}

static void add_file(struct files *f, const char *name, int rank)
{
    f->v = xgrow(f->v, &f->cap, f->n + 1, sizeof(*f->v));
    f->v[f->n++] = (struct file){ xstrdup(name), rank };
}

static void free_files(struct files *f)
{
    for (size_t i = 0; i < f->n; i++)
        free(f->v[i].name);
    free(f->v);
    *f = (struct files){ 0 };
}

/* The files must be those of ranks 0 to n - 1, each once. */
static int check_ranks(const struct reader *r, struct files *f, struct err *err)
{
    if (f->n)
        qsort(f->v, f->n, sizeof(*f->v), compare_files);
    for (size_t i = 0; i < f->n; i++)
        if (f->v[i].rank != (int)i)
            return i && f->v[i].rank == f->v[i - 1].rank
                       ? err_set(err, ERR_INPUT, "%s: both %s and %s", r->dir,
                                 f->v[i - 1].name, f->v[i].name)
                       : err_set(err, ERR_INPUT,
                                 "%s: no file like %s of data-parallel rank %zu",
                                 r->dir, f->v[i].name, i);
    return 0;
}

/* Counts the model-parallel parts in the N names.  They are a pipeline's stages if
 * there are files of layers, of one tensor-parallel rank; otherwise they are not read.
 */
static int count_parts(const struct reader *r, int *parts, char **names, size_t n,
                       struct err *err)
{
    bool layers = false;

    *parts = 1;
    for (size_t i = 0; i < n; i++) {
        int rank, part, layer, used = 0;

        if (is_file(names[i], "model_states.pt", &rank, &part) && part >= *parts)
            *parts = part + 1;
        if (str_starts(names[i], "layer_") && strstr(names[i], "_expert_"))
            return err_set(err, ERR_INPUT,
                           "%s/%s: of an expert, which DeepSpeed stores apart, and "
                           "which is not read",
                           r->dir, names[i]);
        if (sscanf(names[i], "layer_%7d-%n", &layer, &used) != 1 || !used)
            continue;
        layers = true;
        if (strcmp(names[i] + used, "model_states.pt") != 0)
            return err_set(err, ERR_INPUT,
                           "%s/%s: of a tensor-parallel rank, which is not read",
                           r->dir, names[i]);
    }
    if (layers)
        r->s->dialect = "pipeline";
    if (*parts > 1 && !layers)
        return err_set(err, ERR_INPUT,
                       "%s: of %d tensor-parallel ranks, which are not read", r->dir,
                       *parts);
    return 0;
}

static int find_files(struct reader *r, char **names, size_t n, struct err *err)
{
    for (size_t i = 0; i < n; i++) {
        int rank, part;
        bool model = is_file(names[i], "model_states.pt", &rank, &part);

        if ((model || is_file(names[i], "optim_states.pt", &rank, &part)) &&
            part == r->part)
            add_file(model ? &r->models : &r->optims, names[i], rank);
    }
    if (check_ranks(r, &r->models, err) < 0)
        return -1;
    return check_ranks(r, &r->optims, err);
}

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

/* ---- flat vectors ---- */

static int wrong(const char *path, const char *what, struct err *err)
{
    return err_set(err, ERR_INPUT, "%s: %s", path, what);
}

/* Counts a search of V.  A hostile file has few bytes for many names that are sought in
 * many entries: false after too many. */
static bool count_steps(struct reader *r, const struct pickled *v)
{
    r->steps += pickled_is(v, PICKLED_DICT) ? v->list.n / 2 : 0;
    return r->steps <= LEAST_STEPS + BYTE_STEPS * r->read;
}

/* Appends the one-dimensional tensor V of file PATH, input INPUT, to F. */
static int add_span(struct reader *r, struct flatvec *f, const struct pickled *v,
                    const char *path, int input, struct err *err)
{
    struct tensor t;

    if (!pickled_is(v, PICKLED_TENSOR))
        return wrong(path, "a group's masters or moments are no tensor", err);
    if (pickle_tensor(&t, v, &r->s->pool, path, "a group of masters", err) < 0)
        return -1;
    if (t.ndim != 1 || t.stride || (r->typed && t.dtype != r->dtype))
        return wrong(
            path, "a group's masters or moments are no flat vector of one type", err);
    r->typed = true;
    r->dtype = t.dtype;
    return flatvec_append(f, input, t.offset, t.shape[0])
               ? 0
               : wrong(path, "a group is too large", err);
}

/* Reads the paddings of OPTIM, a list of lists of numbers, if it has any. */
static int read_paddings(struct reader *r, const struct pickled *optim,
                         const char *path, struct err *err)
{
    const struct pickled *all = pickled_get(optim, "param_alignment_paddings");
    size_t n = 0, cap = 0;

    if (!pickled_is(all, PICKLED_LIST))
        return 0;
    for (size_t g = 0; g < all->list.n; g++) {
        const struct pickled *group = all->list.v[g];

        for (size_t i = 0; pickled_is(group, PICKLED_LIST) && i < group->list.n; i++) {
            if (group->list.v[i]->kind != PICKLED_NUMBER ||
                group->list.v[i]->number < 0 || n > r->read)
                return wrong(path, "a padding that is no number", err);
            r->padding = xgrow(r->padding, &cap, n + 1, sizeof(*r->padding));
            r->padding[n++] = (uint64_t)group->list.v[i]->number;
        }
    }
    r->npadding = n;
    return 0;
}

/* The number of ranks in partition_count, a number or a list of them. */
static int64_t count_ranks(const struct pickled *count)
{
    int64_t most = 0;

    if (pickled_is(count, PICKLED_NUMBER))
        return count->number;
    for (size_t i = 0; pickled_is(count, PICKLED_LIST) && i < count->list.n; i++)
        if (count->list.v[i]->kind == PICKLED_NUMBER && count->list.v[i]->number > most)
            most = count->list.v[i]->number;
    return most;
}

/* Checks the optimizer states of rank I, and takes the stage from those of rank 0. */
static int check_optim(struct reader *r, const struct pickled *optim, size_t i,
                       const char *path, struct err *err)
{
    const struct pickled *stage = pickled_get(optim, "zero_stage");
    int64_t found = 1, ranks; /* BF16_Optimizer, which is like stage 1, names none */

    if (!pickled_is(optim, PICKLED_DICT) ||
        (stage && !pickled_integer(stage, &found)) || found < 1 || found > 3)
        return wrong(path, "no optimizer states of ZeRO's stages 1 to 3", err);
    if (i && found != r->stage)
        return wrong(path, "of another stage than rank 0", err);
    r->stage = found;
    ranks = count_ranks(pickled_get(optim, "partition_count"));
    if (ranks && ranks != (int64_t)r->optims.n)
        return err_set(err, ERR_INPUT,
                       "%s: %zu files of optimizer states; %" PRId64
                       " ranks wrote them",
                       r->dir, r->optims.n, ranks);
    return 0;
}

/* Vector number VECTOR of group G of OPTIM; or NULL. */
static const struct pickled *find_moment(struct reader *r, const struct pickled *optim,
                                         size_t g, int vector)
{
    const struct pickled *state =
        pickled_get(pickled_get(optim, r->stage == 3 ? "optimizer_state_dict"
                                                     : "base_optimizer_state"),
                    "state");

    if (!count_steps(r, optim) || !count_steps(r, state))
        return NULL;
    for (size_t i = 0; pickled_is(state, PICKLED_DICT) && i + 1 < state->list.n; i += 2)
        if (state->list.v[i]->kind == PICKLED_NUMBER &&
            state->list.v[i]->number == (int64_t)g)
            return pickled_get(state->list.v[i + 1], vectors[vector]);
    return NULL;
}

/* Reads the vectors of rank I, whose optimizer states are OPTIM. */
static int add_rank(struct reader *r, const struct pickled *optim, size_t i,
                    const char *path, int input, struct err *err)
{
    const struct pickled *groups;

    if (check_optim(r, optim, i, path, err) < 0)
        return -1;
    groups = pickled_get(optim, r->stage == 3 ? "fp32_flat_groups"
                                              : "single_partition_of_fp32_groups");
    if (!pickled_is(groups, PICKLED_LIST))
        return wrong(path, "no groups of f32 masters", err);
    if (!i) {
        r->nflat = r->stage == 3 ? r->optims.n : groups->list.n;
        for (int k = 0; k < NVECTORS; k++)
            r->flat[k] = xcalloc(r->nflat + 1, sizeof(*r->flat[k]));
        if (r->stage < 3 && read_paddings(r, optim, path, err) < 0)
            return -1;
    }
    if (r->stage < 3 && groups->list.n != r->nflat)
        return wrong(path, "another number of groups than rank 0 has", err);
    for (size_t g = 0; g < groups->list.n; g++)
        for (int k = 0; k < r->nvectors; k++) {
            const struct pickled *v =
                k == MASTERS ? groups->list.v[g] : find_moment(r, optim, g, k);

            if (add_span(r, &r->flat[k][r->stage == 3 ? i : g], v, path, input, err) <
                0)
                return -1;
        }
    return 0;
}

static int read_optims(struct reader *r, struct err *err)
{
    for (size_t i = 0; i < r->optims.n; i++) {
        struct pickle_values v = { 0 };
        char *path;
        int input;
        int ret = open_values(r, &v, r->optims.v[i].name, &path, &input, err);

        if (ret == 0)
            ret = add_rank(r, pickled_get(v.root, "optimizer_state_dict"), i, path,
                           input, err);
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
    if (vector != MASTERS)
        return form_add_state(r->s, t, t->name, vectors[vector], r->read, r->dir, err);
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
    size_t width = (size_t)dtype_bits(r->dtype) / 8;
    struct tensor made = *t;
    struct flatvec_boxes p = { 0 };
    bool fits = true;
    int ret;

    if (r->stage < 3)
        fits = g < r->nflat && flatvec_cut(&p, &r->s->pool, &r->flat[vector][g], width,
                                           at, elements, 0);
    for (uint64_t d = 0, first = 0;
         r->stage == 3 && d < ranks && first < elements && fits; d++) {
        uint64_t n = elements - first < each ? elements - first : each;

        fits = flatvec_cut(&p, &r->s->pool, &r->flat[vector][d], width, at, n, first);
        first += n;
    }
    ret = fits ? end_tensor(r, &made, elements, r->dtype, &p, vector, err)
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
        for (int k = 0; k < r->nvectors; k++)
            if (add_parameter(r, &t, elements, g, r->stage < 3 ? pos : *at, k, err) < 0)
                return -1;
        if (r->stage < 3) {
            pos += elements;
            if (*nth < r->npadding)
                fits = mem_add(&pos, pos, r->padding[*nth]);
        } else {
            fits = mem_add(at, *at, elements / ranks + (elements % ranks > 0));
        }
        if (!fits)
            return err_set(err, ERR_INPUT, "%s: %s: its padding overflows", r->dir,
                           t.name);
    }
    if (r->stage < 3 && g < r->nflat &&
        round_up(r, pos) != round_up(r, r->flat[MASTERS][g].length))
        return err_set(err, ERR_INPUT,
                       "%s: group %zu has %" PRIu64 " masters; its parameters have "
                       "%" PRIu64,
                       r->dir, g, r->flat[MASTERS][g].length, pos);
    return 0;
}

/* Adds a file of a parameter of a universal checkpoint, which T describes: the masters,
 * or the moment VECTOR. */
static int add_universal(struct reader *r, const struct tensor *t, int vector,
                         struct err *err)
{
    struct pickle_values v = { 0 };
    struct tensor found;
    const struct pickled *param;
    char *path = NULL, *file = str_dupf("zero/%s/%s.pt", t->name, vectors[vector]);
    int input, ret = -1;

    if (open_values(r, &v, file, &path, &input, err) < 0)
        goto out;
    param = pickled_is(v.root, PICKLED_DICT) ? pickled_get(v.root, "param") : v.root;
    if (!pickled_is(param, PICKLED_TENSOR)) {
        wrong(path, "no tensor param", err);
        goto out;
    }
    if (pickle_tensor(&found, param, &r->s->pool, path, t->name, err) < 0)
        goto out;
    if (found.ndim != t->ndim ||
        memcmp(found.shape, t->shape, (size_t)t->ndim * sizeof(*t->shape)) != 0) {
        wrong(path, "another shape than the model states say", err);
        goto out;
    }
    found.name = t->name;
    found.input = input;
    ret = 0;
    if (vector == MASTERS)
        add_tensor(r, &found);
    else
        ret =
            form_add_state(r->s, &found, t->name, vectors[vector], r->read, path, err);
out:
    pickle_values_clear(&v);
    free(path);
    free(file);
    return ret;
}

static int add_all_universal(struct reader *r, const struct pickled *shapes,
                             struct err *err)
{
    for (size_t g = 0; g < shapes->list.n; g++) {
        const struct pickled *group = shapes->list.v[g];

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
            for (int k = 0; k < r->nvectors; k++)
                if (add_universal(r, &t, k, err) < 0)
                    return -1;
        }
    }
    return 0;
}

/* Adds the trained parameters. */
static int add_trained(struct reader *r, struct err *err)
{
    const struct pickled *shapes = pickled_get(r->model[0].root, "param_shapes");
    uint64_t at = 0;
    size_t nth = 0;

    if (!pickled_is(shapes, PICKLED_LIST))
        return wrong(r->path[0], "no param_shapes", err);
    if (r->universal)
        return add_all_universal(r, shapes, err);
    if (r->stage < 3 && shapes->list.n != r->nflat)
        return wrong(r->path[0], "other groups than the optimizer has", err);
    for (size_t g = 0; g < shapes->list.n; g++) {
        if (shapes->list.v[g]->kind != PICKLED_DICT)
            return wrong(r->path[0], "a group of shapes is no dictionary", err);
        if (nth > r->read || add_group(r, shapes->list.v[g], g, &at, &nth, err) < 0)
            return nth > r->read ? wrong(r->path[0], "too many groups", err) : -1;
    }
    for (size_t d = 0; r->stage == 3 && d < r->nflat; d++)
        if (r->flat[MASTERS][d].length != at)
            return err_set(err, ERR_INPUT,
                           "%s: rank %zu has %" PRIu64 " masters; its parameters have "
                           "%" PRIu64,
                           r->dir, d, r->flat[MASTERS][d].length, at);
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
    ret = end_tensor(r, &t, elements, dtype, &p, MASTERS, err);
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
        if (r->stage == 3) {
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
    if (find_files(r, names, n, err) < 0)
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
    if (r->stage == 3 && r->models.n != r->optims.n)
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
    for (int k = 0; k < NVECTORS; k++) {
        for (size_t i = 0; i < r->nflat; i++)
            flatvec_clear(&r->flat[k][i]);
        free(r->flat[k]);
        r->flat[k] = NULL;
    }
    free_files(&r->models);
    free_files(&r->optims);
    free(r->model);
    free(r->path);
    free(r->input);
    free(r->padding);
    free(r->fragments);
    dictindex_clear(&r->module);
    r->fragments = NULL;
    r->model = NULL;
    r->path = NULL;
    r->input = NULL;
    r->padding = NULL;
    r->nflat = r->npadding = 0;
}

/* The stages of a pipeline that own a tied module have it each: keeps the first of the
 * N tensors at T, and of what is at ROLE beside them, if that is given; returns how
 * many are left. */
static size_t drop_tied(struct tensor *t, const char **role, size_t n)
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

    if (fs_find_in(&r->universal, r->dir, "zero", err) < 0 ||
        fs_list(&names, &n, r->dir, err) < 0)
        return -1;
    ret = count_parts(r, &parts, names, n, err);
    for (; r->part < parts && ret == 0; r->part++) {
        ret = read_part(r, names, n, err);
        clear_part(r);
    }
    if (parts > 1) {
        r->n = drop_tied(r->tensor, NULL, r->n);
        r->s->nstates = drop_tied(r->s->state, r->s->role, r->s->nstates);
    }
    fs_list_free(names, n);
    return ret;
}

/* Has the directory DIR files of model states? */
static int find_states(bool *found, const char *dir, struct err *err)
{
    char **names;
    bool is_dir;
    size_t n;

    *found = false;
    if (fs_find_dir(&is_dir, dir, err) < 0)
        return -1;
    if (!is_dir)
        return 0;
    if (fs_list(&names, &n, dir, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        int rank, part;

        *found |= is_file(names[i], "model_states.pt", &rank, &part);
    }
    fs_list_free(names, n);
    return 0;
}

/* Sets *dir, which the caller frees, to the directory of the tag that the file LATEST
 * of PATH names, if it has model states; else NULL. */
static int follow(char **dir, const char *path, const char *latest, struct err *err)
{
    char *file = fs_join_dup(path, latest), *tag = NULL;
    bool found = false;
    struct stat st;
    size_t n;
    int ret = 0;

    *dir = NULL;
    /* other programs have directories, links and long files of that name */
    if (stat(file, &st) < 0)
        ret = errno == ENOENT || errno == ENOTDIR ? 0 : err_errno(err, "%s", file);
    else if (S_ISREG(st.st_mode) && st.st_size <= MOST_TAG)
        ret = fs_read_optional(&tag, &n, file, MOST_TAG, err);
    if (ret == 0 && tag) {
        tag[strcspn(tag, "\r\n")] = '\0';
        if (fs_is_plain_name(tag)) {
            *dir = fs_join_dup(path, tag);
            ret = find_states(&found, *dir, err);
        }
    }
    if (!found) {
        free(*dir);
        *dir = NULL;
    }
    free(tag);
    free(file);
    return ret;
}

/* Sets *dir, which the caller frees, to the directory of PATH's newest tag, or to PATH
 * if it is one itself; NULL: neither. */
static int find_tag(char **dir, const char *path, struct err *err)
{
    bool found = false;

    if (follow(dir, path, "latest", err) < 0 ||
        (!*dir && follow(dir, path, "latest_universal", err) < 0))
        return -1;
    if (*dir)
        return 0;
    if (find_states(&found, path, err) < 0)
        return -1;
    *dir = found ? xstrdup(path) : NULL;
    return 0;
}

static int probe(bool *found, const char *path, bool is_dir, struct err *err)
{
    char *dir = NULL;

    *found = false;
    if (is_dir && find_tag(&dir, path, err) < 0)
        return -1;
    *found = dir != NULL;
    free(dir);
    return 0;
}

static int open_directory(struct source *s, const char *path, struct err *err)
{
    struct reader r = { .s = s, .nvectors = s->moments ? NVECTORS : 1 };
    int ret = -1;

    if (find_tag(&r.dir, path, err) < 0)
        return -1;
    if (!r.dir)
        return err_set(err, ERR_INPUT, "%s: no checkpoint of DeepSpeed", path);
    if (read_all(&r, err) == 0)
        ret = form_present(s, r.tensor, r.n, err);
    free(r.tensor);
    free(r.dir);
    return ret;
}

const struct source_ops zerodir_ops = { .name = "a checkpoint of DeepSpeed",
                                        .probe = probe,
                                        .open = open_directory };
