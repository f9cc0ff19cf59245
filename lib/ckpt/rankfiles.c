/* rankfiles - reads the files that the ranks of an FSDP run save each */
#include "lib/ckpt/rankfiles.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/ckpt/boxes.h"
#include "lib/ckpt/numberedstate.h"
#include "lib/ckpt/pickle.h"
#include "lib/ckpt/zip.h"

enum {
    MOST_RANKS = 1 << 20,
    MOST_MESH = 8,
    MOST_RUNS = 4096,
    LEAST_BYTES = 40 << 20, /* of shapes and boxes, and for each byte of the pickles */
    BYTE_BYTES = 64
};

/* One of several copies of a piece, whose archive has its CRC-32. */
struct copy {
    const uint64_t *start; /* [ndim] of the piece; a whole tensor has none */
    int ndim, rank;
    uint32_t crc;
};

/* A parameter that is being put together. */
struct param {
    struct tensor t;
    struct box *box;
    size_t n, cap;
    struct copy *copy;
    size_t ncopies, copies_cap;
    const char *weight, *role; /* of a moment: whose it is, and which; else NULL */
    bool plain;                /* the same on every rank */
    bool begins;               /* rank 0 has some of it */
    uint64_t begin;            /* the offset of that in its file */
    int seen;                  /* the last rank that had it, plus 1 */
};

struct reader {
    struct source *s;
    const char *dir;
    const char *what; /* whose files: "model" or "optim" */
    int ranks;
    const struct reader *weights; /* of the model, once they are read, for moments */
    struct param *param;          /* in the order of rank 0 */
    size_t n, cap;
    struct tensor *named; /* the parameters' names, for the index */
    size_t nnamed;
    struct tensor_index index;
    uint64_t read; /* bytes of pickles */
    char *path;    /* of the file being read */
    int rank, input;
    struct zip_member *member; /* of it, by offset, if it is an archive */
    size_t nmembers;
};

#define FILE_NAME "%s_world_size_%d_rank_%d.pt"

static int wrong(const struct reader *r, const char *name, const char *what,
                 struct err *err)
{
    return err_set(err, ERR_INPUT, "%s: %s: %s", r->path, name, what);
}

/* ---- placements ---- */

/* Indices of an axis that a rank has, in the order of its rows: runs. */
struct run {
    uint64_t start, count;
};

struct indices {
    struct run *v;
    size_t n, cap;
    uint64_t count;
};

static void add_run(struct indices *x, uint64_t start, uint64_t count)
{
    if (!count)
        return;
    x->v = xgrow(x->v, &x->cap, x->n + 1, sizeof(*x->v));
    x->v[x->n++] = (struct run){ start, count };
    x->count += count;
}

/* Appends to OUT the indices number [FIRST, FIRST + N) of X. */
static void add_part(struct indices *out, const struct indices *x, uint64_t first,
                     uint64_t n)
{
    for (size_t i = 0; i < x->n && n; i++) {
        uint64_t skip = first < x->v[i].count ? first : x->v[i].count;
        uint64_t count = x->v[i].count - skip < n ? x->v[i].count - skip : n;

        first -= skip;
        n -= count;
        add_run(out, x->v[i].start + skip, count);
    }
}

/* The range of piece C when N are cut into M by ceil(N / M): its start; *count. */
static uint64_t piece_of(uint64_t n, uint64_t m, uint64_t c, uint64_t *count)
{
    uint64_t each = n / m + (n % m > 0), start;

    if (!each || c > n / each) {
        *count = 0;
        return n;
    }
    start = c * each < n ? c * each : n;
    *count = n - start < each ? n - start : each;
    return start;
}

/* Leaves of X what the rank of coordinate C of M has after the axis was cut into FACTOR
 * pieces: Shard if FACTOR is 1, else _StridedShard. */
static void shard(struct indices *x, uint64_t factor, uint64_t m, uint64_t c)
{
    struct indices out = { 0 };

    for (uint64_t k = 0; k < factor; k++) {
        uint64_t outer, n, inner, count;

        outer = piece_of(x->count, factor, k, &n);
        inner = piece_of(n, m, c, &count);
        add_part(&out, x, outer + inner, count);
    }
    free(x->v);
    *x = out;
}

/* A rank's place in a mesh. */
struct place {
    int ndim;
    uint64_t size[MOST_MESH], at[MOST_MESH];
};

static bool take_number(const struct pickled *v, uint64_t *out)
{
    if (!pickled_is(v, PICKLED_NUMBER) || v->number < 0)
        return false;
    *out = (uint64_t)v->number;
    return true;
}

/* The sizes of a mesh: of its layout's axes, or of the tensor of ranks that it was
 * before there were layouts. */
static bool find_sizes(struct place *p, const struct pickled *mesh)
{
    const struct pickled *layout = pickled_get(mesh, "_layout"),
                         *axes = pickled_get(layout, "axes");
    const struct pickled *ranks = pickled_get(mesh, "mesh");

    if (!layout && pickled_is(ranks, PICKLED_TENSOR) &&
        ranks->tensor.ndim <= MOST_MESH) {
        p->ndim = ranks->tensor.ndim;
        for (int k = 0; k < p->ndim; k++)
            p->size[k] = ranks->tensor.shape[k];
        return true;
    }
    if (!pickled_is(axes, PICKLED_TUPLE) || axes->list.n > MOST_MESH)
        return false;
    p->ndim = (int)axes->list.n;
    for (int k = 0; k < p->ndim; k++) {
        const struct pickled *shape = pickled_get(axes->list.v[k], "shape");
        uint64_t n;

        if (!pickled_is(shape, PICKLED_TUPLE) || shape->list.n > MOST_MESH)
            return false;
        p->size[k] = 1;
        for (size_t i = 0; i < shape->list.n; i++)
            if (!take_number(shape->list.v[i], &n) ||
                !mem_mul(&p->size[k], p->size[k], n))
                return false;
    }
    return true;
}

static bool find_place(struct place *p, const struct pickled *mesh)
{
    const struct pickled *at = pickled_get(mesh, "_coordinate_on_dim");

    if (!find_sizes(p, mesh) || !at ||
        (at->kind != PICKLED_TUPLE && at->kind != PICKLED_LIST) ||
        at->list.n != (size_t)p->ndim)
        return false;
    for (int k = 0; k < p->ndim; k++)
        if (!take_number(at->list.v[k], &p->at[k]) || !p->size[k] ||
            p->at[k] >= p->size[k] || p->size[k] > MOST_RANKS)
            return false;
    return true;
}

/* ---- boxes ---- */

static uint64_t *take_numbers(struct reader *r, int n)
{
    return pool_take(&r->s->pool, ((size_t)n + 1) * sizeof(uint64_t), sizeof(uint64_t));
}

static struct box *new_box(struct param *p)
{
    p->box = xgrow(p->box, &p->cap, p->n + 1, sizeof(*p->box));
    return &p->box[p->n++];
}

/* Adds the boxes of the local tensor LOCAL, which has the indices X along each axis. */
static int add_boxes(struct reader *r, struct param *p, const struct tensor *local,
                     const struct indices *x, struct err *err)
{
    uint64_t width = (uint64_t)dtype_bits(local->dtype) / 8, total = 1;
    uint64_t *stride = take_numbers(r, local->ndim), packed = 1;

    for (int k = local->ndim - 1; k >= 0; k--) {
        stride[k] = local->stride ? local->stride[k] : packed;
        packed *= local->shape[k];
        total *= x[k].n;
        if (total > MOST_RUNS)
            return wrong(r, p->t.name, "too many pieces", err);
    }
    if (!r->rank && !p->begins) {
        p->begins = true;
        p->begin = local->offset;
    }
    for (uint64_t i = 0; i < total; i++) {
        uint64_t *start = take_numbers(r, local->ndim), rest = i, at = 0;
        uint64_t *size = take_numbers(r, local->ndim);

        for (int k = local->ndim - 1; k >= 0; k--) {
            size_t run = (size_t)(rest % x[k].n);

            rest /= x[k].n;
            for (size_t before = 0; before < run; before++)
                at += x[k].v[before].count * stride[k];
            start[k] = x[k].v[run].start;
            size[k] = x[k].v[run].count;
        }
        *new_box(p) = (struct box){ .input = r->input,
                                    .offset = local->offset + at * width,
                                    .start = start,
                                    .size = size,
                                    .stride = stride };
    }
    return 0;
}

/* ---- copies ---- */

static int compare_members(const void *a, const void *b)
{
    const struct zip_member *x = a, *y = b;

    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Lists the members of the file V by offset. */
static int list_members(struct reader *r, const struct pickle_values *v,
                        struct err *err)
{
    struct zip z;

    r->nmembers = 0;
    if (!v->archive)
        return 0;
    if (zip_read(&z, r->path, v->data, v->size, err) < 0)
        return -1;
    r->member = xmalloc((z.n + 1) * sizeof(*r->member));
    r->nmembers = z.n;
    if (z.n) {
        memcpy(r->member, z.member, z.n * sizeof(*r->member));
        qsort(r->member, z.n, sizeof(*r->member), compare_members);
    }
    zip_clear(&z);
    return 0;
}

/* Notes the CRC-32 of the rank's copy LOCAL of P's piece, or of all of it if X is NULL,
 * where it is a member of the archive by itself. */
static void note_copy(struct reader *r, struct param *p, const struct tensor *local,
                      const struct indices *x)
{
    const struct zip_member key = { .offset = local->offset };
    const struct zip_member *m = r->nmembers ? bsearch(&key, r->member, r->nmembers,
                                                       sizeof(key), compare_members)
                                             : NULL;
    uint64_t *start;

    if (!m || !local->size || m->size != local->size || local->stride)
        return;
    start = take_numbers(r, x ? local->ndim : 0);
    for (int k = 0; x && k < local->ndim; k++)
        start[k] = x[k].v[0].start;
    p->copy = xgrow(p->copy, &p->copies_cap, p->ncopies + 1, sizeof(*p->copy));
    p->copy[p->ncopies++] =
        (struct copy){ start, x ? local->ndim : 0, r->rank, m->crc };
}

static int compare_copies(const void *a, const void *b)
{
    const struct copy *x = a, *y = b;
    int order = memcmp(x->start, y->start, (size_t)x->ndim * sizeof(*x->start));

    return order ? order : (x->rank > y->rank) - (x->rank < y->rank);
}

/* Says so of the first parameter whose copies differ. */
static void compare_all_copies(struct reader *r, struct param *p)
{
    if (p->ncopies)
        qsort(p->copy, p->ncopies, sizeof(*p->copy), compare_copies);
    for (size_t i = 1; i < p->ncopies && !r->s->note; i++) {
        const struct copy *a = &p->copy[i - 1], *b = &p->copy[i];
        char *note;

        if (a->crc == b->crc ||
            memcmp(a->start, b->start, (size_t)a->ndim * sizeof(*a->start)) != 0)
            continue;
        note = str_dupf("%s is not the same on ranks %d and %d, which should have "
                        "copies; that of the lowest rank is read",
                        p->t.name, a->rank, b->rank);
        r->s->note = pool_strdup(&r->s->pool, note);
        free(note);
    }
}

/* Applies the placements of SPEC to the axes X of a tensor of NDIM axes.  *copies
 * becomes true if other ranks have copies, and *copy if this is not the first. */
static int apply(struct reader *r, const char *name, const struct pickled *spec,
                 struct indices *x, int ndim, bool *copies, bool *copy, struct err *err)
{
    const struct pickled *placements = pickled_get(spec, "placements");
    struct place place;

    if (!find_place(&place, pickled_get(spec, "mesh")) ||
        !pickled_is(placements, PICKLED_TUPLE) ||
        placements->list.n != (size_t)place.ndim)
        return wrong(r, name, "a DTensor with a mesh or placements of unknown form",
                     err);
    for (int m = 0; m < place.ndim; m++) {
        const struct pickled *v = placements->list.v[m];
        bool strided = pickled_is_a(v, "_StridedShard");
        uint64_t dim, factor = 1;

        if (pickled_is_a(v, "Replicate")) {
            *copies |= place.size[m] > 1;
            *copy |= place.at[m] > 0;
            continue;
        }
        if (!strided && !pickled_is_a(v, "Shard"))
            return wrong(r, name, "placed otherwise than sharded or replicated", err);
        if (!take_number(pickled_get(v, "dim"), &dim) || dim >= (uint64_t)ndim ||
            (strided && !take_number(pickled_get(v, "split_factor"), &factor)) ||
            factor < 1 || factor > MOST_RUNS)
            return wrong(r, name, "a shard of an unknown axis", err);
        shard(&x[dim], factor, place.size[m], place.at[m]);
    }
    return 0;
}

/* Adds the rank's part of the DTensor with the state V. */
static int add_dtensor(struct reader *r, struct param *p, const struct pickled *state,
                       struct err *err)
{
    const struct pickled *value = pickled_get(state, "_local_tensor");
    struct indices x[TENSOR_MAX_DIMS] = { { 0 } };
    struct tensor local;
    bool copies = false, copy = false;
    int ret = -1;

    if (!pickled_is(value, PICKLED_TENSOR))
        return wrong(r, p->t.name, "a DTensor without a local tensor", err);
    if (pickle_tensor(&local, value, &r->s->pool, r->path, p->t.name, err) < 0)
        return -1;
    for (int k = 0; k < p->t.ndim; k++)
        add_run(&x[k], 0, p->t.shape[k]);
    if (apply(r, p->t.name, pickled_get(state, "_spec"), x, p->t.ndim, &copies, &copy,
              err) < 0)
        goto out;
    for (int k = 0; k < p->t.ndim; k++)
        if (local.ndim != p->t.ndim || local.shape[k] != x[k].count) {
            wrong(r, p->t.name,
                  "its local tensor has another shape than its placements", err);
            goto out;
        }
    if (local.ndim != p->t.ndim || local.dtype != p->t.dtype) {
        wrong(r, p->t.name, "its local tensor is of another type", err);
        goto out;
    }
    if (copies && local.size)
        note_copy(r, p, &local, x);
    ret = copy || !local.size ? 0 : add_boxes(r, p, &local, x, err);
out:
    for (int k = 0; k < p->t.ndim; k++)
        free(x[k].v);
    return ret;
}

/* Adds one shard of a ShardedTensor: a record Shard. */
static int add_shard(struct reader *r, struct param *p, const struct pickled *v,
                     struct err *err)
{
    const struct pickled *value = pickled_get(v, "tensor");
    const struct pickled *meta = pickled_get(v, "metadata");
    const struct pickled *offsets = pickled_get(meta, "shard_offsets");
    struct indices x[TENSOR_MAX_DIMS] = { { 0 } };
    struct tensor local;
    int ret = 0;

    if (!pickled_is(value, PICKLED_TENSOR) || !offsets ||
        (offsets->kind != PICKLED_LIST && offsets->kind != PICKLED_TUPLE) ||
        offsets->list.n != (size_t)p->t.ndim)
        return wrong(r, p->t.name, "a shard without a tensor or offsets", err);
    if (pickle_tensor(&local, value, &r->s->pool, r->path, p->t.name, err) < 0)
        return -1;
    if (local.ndim != p->t.ndim || local.dtype != p->t.dtype)
        return wrong(r, p->t.name, "a shard of another type", err);
    if (!local.size)
        return 0;
    for (int k = 0; k < p->t.ndim && ret == 0; k++) {
        uint64_t first;

        if (!take_number(offsets->list.v[k], &first))
            ret = wrong(r, p->t.name, "a shard without offsets", err);
        else
            add_run(&x[k], first, local.shape[k]);
    }
    if (ret == 0)
        ret = add_boxes(r, p, &local, x, err);
    for (int k = 0; k < p->t.ndim; k++)
        free(x[k].v);
    return ret;
}

static int add_sharded(struct reader *r, struct param *p, const struct pickled *state,
                       struct err *err)
{
    const struct pickled *shards = state->list.n ? state->list.v[0] : NULL;

    if (!pickled_is(shards, PICKLED_LIST))
        return wrong(r, p->t.name, "a ShardedTensor without local shards", err);
    for (size_t i = 0; i < shards->list.n; i++)
        if (add_shard(r, p, shards->list.v[i], err) < 0)
            return -1;
    return 0;
}

/* ---- the state dict of a rank ---- */

/* Sets type and shape of *t from the arguments of _rebuild_wrapper_subclass. */
static int read_wrapper(struct reader *r, struct tensor *t, const char *name,
                        const struct pickled *args, struct err *err)
{
    const struct pickled *type = args->list.n > 2 ? args->list.v[1] : NULL;
    const struct pickled *size = args->list.n > 2 ? args->list.v[2] : NULL;
    uint64_t *shape, elements = 1;

    if (!pickled_is(type, PICKLED_GLOBAL) ||
        type->global.global != PICKLED_ELEMENT_TYPE ||
        !pickled_is(size, PICKLED_TUPLE) || size->list.n > TENSOR_MAX_DIMS)
        return wrong(r, name, "a tensor without type or size", err);
    shape = take_numbers(r, (int)size->list.n);
    for (size_t k = 0; k < size->list.n; k++)
        if (!take_number(size->list.v[k], &shape[k]) ||
            !mem_mul(&elements, elements, shape[k]))
            return wrong(r, name, "a size that is none", err);
    *t = (struct tensor){ .dtype = type->global.dtype,
                          .ndim = (int)size->list.n,
                          .shape = shape };
    return dtype_bytes(&t->size, t->dtype, elements)
               ? 0
               : wrong(r, name, "its size overflows", err);
}

/* The parameter NAME, entry number I of the rank's dictionary; T describes it. */
static int find_param(struct reader *r, struct param **out, const char *name, size_t i,
                      const struct tensor *t, struct err *err)
{
    struct param *p;
    long at = (long)i;

    if (!r->rank) {
        r->param = xgrow(r->param, &r->cap, r->n + 1, sizeof(*r->param));
        p = &r->param[r->n++];
        *p = (struct param){ .t = *t, .seen = 1 };
        *out = p;
        return form_keep_name(r->s, &p->t.name, name, r->read, r->path, err);
    }
    if (i >= r->n || strcmp(r->param[i].t.name, name) != 0)
        at = tensor_index_find(&r->index, name);
    if (at < 0)
        return wrong(r, name, "rank 0 has no such tensor", err);
    p = &r->param[at];
    if (p->t.dtype != t->dtype || p->t.ndim != t->ndim ||
        memcmp(p->t.shape, t->shape, (size_t)t->ndim * sizeof(*t->shape)) != 0)
        return wrong(r, name, "of another type or shape than on rank 0", err);
    if (p->seen > r->rank)
        return wrong(r, name, "stored twice", err);
    p->seen = r->rank + 1;
    *out = p;
    return 0;
}

/* Adds entry number I, the value V by the name NAME. */
static int add_value(struct reader *r, const char *name, const struct pickled *v,
                     size_t i, struct err *err)
{
    const struct pickled *state = v->kind == PICKLED_RECORD ? v->record.state : NULL;
    struct param *p;
    struct tensor t;

    if (r->s->pool.taken > LEAST_BYTES + BYTE_BYTES * r->read)
        return wrong(r, name, "too many pieces for so small files", err);
    if (strstr(name, "_flat_param"))
        return wrong(r, name,
                     "a flat parameter of LOCAL_STATE_DICT, which has no shapes; save "
                     "SHARDED_STATE_DICT",
                     err);
    if (v->kind == PICKLED_TENSOR) {
        if (pickle_tensor(&t, v, &r->s->pool, r->path, name, err) < 0 ||
            find_param(r, &p, name, i, &t, err) < 0)
            return -1;
        if (!r->rank) {
            p->plain = p->begins = true;
            p->begin = t.offset;
            p->t.input = r->input;
        }
        if (!p->plain)
            return wrong(r, name, "sharded on rank 0, but not here", err);
        note_copy(r, p, &t, NULL);
        return 0;
    }
    if (!pickled_is_a(v, "_rebuild_wrapper_subclass"))
        return wrong(r, name, "an object that is no tensor of a known form", err);
    if (read_wrapper(r, &t, name, v->record.args, err) < 0 ||
        find_param(r, &p, name, i, &t, err) < 0)
        return -1;
    if (p->plain)
        return wrong(r, name, "not sharded on rank 0, but here", err);
    if (pickled_get(state, "_spec"))
        return add_dtensor(r, p, state, err);
    if (pickled_is(state, PICKLED_TUPLE))
        return add_sharded(r, p, state, err);
    return wrong(r, name, "an object that is no tensor of a known form", err);
}

/* Adds the tensors of the rank's dictionary. */
static int add_state(struct reader *r, const struct pickled *root, struct err *err)
{
    const struct pickled *inner = pickled_get(root, "model");
    size_t n = 0;

    if (pickled_is(inner, PICKLED_DICT))
        root = inner;
    if (!pickled_is(root, PICKLED_DICT))
        return err_set(err, ERR_INPUT, "%s: no dictionary of tensors", r->path);
    for (size_t i = 0; i + 1 < root->list.n; i += 2) {
        const struct pickled *key = root->list.v[i], *v = root->list.v[i + 1];

        if (key->kind != PICKLED_TEXT ||
            (v->kind != PICKLED_TENSOR && v->kind != PICKLED_RECORD))
            continue;
        if (add_value(r, key->text.s, v, n++, err) < 0)
            return -1;
    }
    return 0;
}

/* Adds the moments in the optimizer's dictionary of the rank. */
static int add_moments(struct reader *r, const struct pickled *root, struct err *err)
{
    const struct reader *w = r->weights;
    struct numberedstate *state;
    size_t n, made = 0;
    int ret;

    if (numberedstate_read(&state, &n, root, w->named, w->nnamed, r->path, err) < 0)
        return -1;
    ret = 0;
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < NUMBEREDSTATE_NROLES && ret == 0; k++) {
            const char *weight = w->named[state[i].param].name;
            const char *role = numberedstate_roles[k];
            const struct pickled *v = pickled_get(state[i].state, role);
            char *name = str_dupf("%s.%s", weight, role);

            if (v)
                ret = add_value(r, name, v, made++, err);
            if (v && ret == 0 && !r->rank) {
                r->param[r->n - 1].weight = weight;
                r->param[r->n - 1].role = role;
            }
            free(name);
        }
    free(state);
    return ret;
}

static int make_index(struct reader *r, struct err *err)
{
    const struct tensor *twice;

    r->nnamed = r->n;
    r->named = xmalloc((r->n + 1) * sizeof(*r->named));
    for (size_t i = 0; i < r->n; i++)
        r->named[i] = r->param[i].t;
    twice = tensor_index_init(&r->index, r->named, r->n);
    return twice ? wrong(r, twice->name, "stored twice", err) : 0;
}

static int read_rank(struct reader *r, struct err *err)
{
    char *name = str_dupf(FILE_NAME, r->what, r->ranks, r->rank);
    struct pickle_values v = { 0 };
    int fd, ret;

    r->path = fs_join_dup(r->dir, name);
    ret = form_add_input(r->s, name, r->path, &r->input, &fd, err);
    if (ret == 0) {
        ret = pickle_values_read(&v, fd, r->path, err);
        close(fd);
    }
    if (ret == 0) {
        r->read += unpickle_read(&v.m);
        if (v.archive)
            form_add_archive(r->s, r->input, 0, v.size);
        ret = list_members(r, &v, err);
    }
    if (ret == 0) {
        ret = r->weights ? add_moments(r, v.root, err) : add_state(r, v.root, err);
    }
    if (ret == 0 && !r->rank)
        ret = make_index(r, err);
    for (size_t i = 0; i < r->n && ret == 0; i++)
        if (r->param[i].seen != r->rank + 1)
            ret = wrong(r, r->param[i].t.name, "missing", err);
    pickle_values_clear(&v);
    free(r->member);
    r->member = NULL;
    free(r->path);
    r->path = NULL;
    free(name);
    return ret;
}

/* ---- the whole ---- */

/* A box that sorts by its place. */
struct sorted {
    struct box box;
    int ndim;
};

static int compare_places(const void *a, const void *b)
{
    const struct sorted *x = a, *y = b;
    size_t bytes = (size_t)x->ndim * sizeof(uint64_t);
    int order = memcmp(x->box.start, y->box.start, bytes);

    if (!order)
        order = memcmp(x->box.size, y->box.size, bytes);
    return order ? order : x->box.input < y->box.input ? -1 : 1;
}

/* Keeps one of the boxes of P that several ranks have: a mesh of some of the axes, such
 * as that of data parallelism, leaves the ranks of the others with copies. */
static void drop_copies(struct param *p)
{
    struct sorted *s = xmalloc((p->n + 1) * sizeof(*s));
    size_t bytes = (size_t)p->t.ndim * sizeof(uint64_t), kept = 0;

    for (size_t i = 0; i < p->n; i++)
        s[i] = (struct sorted){ p->box[i], p->t.ndim };
    if (p->n)
        qsort(s, p->n, sizeof(*s), compare_places);
    for (size_t i = 0; i < p->n; i++)
        if (!i || memcmp(s[i].box.start, s[i - 1].box.start, bytes) != 0 ||
            memcmp(s[i].box.size, s[i - 1].box.size, bytes) != 0)
            p->box[kept++] = s[i].box;
    p->n = kept;
    free(s);
}

static int join(struct reader *r, struct err *err)
{
    int ret = 0;

    for (size_t i = 0; i < r->n && ret == 0; i++) {
        struct param *p = &r->param[i];

        compare_all_copies(r, p);
        if (p->plain)
            continue;
        drop_copies(p);
        ret = boxes_new(&p->t.boxes, &r->s->pool, p->t.ndim, p->t.shape, p->box, p->n,
                        r->dir, p->t.name, err);
        if (ret == 0)
            form_join_boxes(&p->t);
    }
    return ret;
}

/* Hands the tensors over: weights, or moments. */
static int present(struct reader *r, struct err *err)
{
    struct tensor *t = xmalloc((r->n + 1) * sizeof(*t));
    int ret = 0;

    for (size_t i = 0; i < r->n && ret == 0; i++) {
        t[i] = r->param[i].t;
        if (r->weights)
            ret = form_add_state(r->s, &t[i], r->param[i].weight, r->param[i].role,
                                 r->read, r->dir, err);
    }
    if (ret == 0 && !r->weights)
        ret = form_present(r->s, t, r->n, err);
    free(t);
    return ret;
}

/* Where rank 0 has the beginning of a parameter. */
struct place_of {
    uint64_t offset;
    size_t param;
};

static int compare_offsets(const void *a, const void *b)
{
    const struct place_of *x = a, *y = b;

    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return (x->param > y->param) - (x->param < y->param);
}

/* Leaves out of the names those of tied parameters but the first: an optimizer knows
 * them once. */
static void drop_tied(struct reader *r)
{
    struct place_of *at = xmalloc((r->n + 1) * sizeof(*at));
    bool *tied = xcalloc(r->n + 1, sizeof(*tied));
    size_t n = 0, kept = 0;

    for (size_t i = 0; i < r->n; i++)
        if (r->param[i].begins)
            at[n++] = (struct place_of){ r->param[i].begin, i };
    if (n)
        qsort(at, n, sizeof(*at), compare_offsets);
    for (size_t i = 1; i < n; i++)
        tied[at[i].param] = at[i].offset == at[i - 1].offset;
    for (size_t i = 0; i < r->n; i++)
        if (!tied[i])
            r->named[kept++] = r->named[i];
    r->nnamed = kept;
    free(tied);
    free(at);
}

/* Sets *ranks to N of the files model_world_size_N_rank_R.pt in DIR; 0: none. */
static int find_ranks(int *ranks, const char *dir, struct err *err)
{
    char **names;
    size_t n;
    int ret = 0;

    *ranks = 0;
    if (fs_list(&names, &n, dir, err) < 0)
        return -1;
    for (size_t i = 0; i < n && ret == 0; i++) {
        int size, rank, used = 0;

        if (sscanf(names[i], "model_world_size_%7d_rank_%7d.pt%n", &size, &rank,
                   &used) != 2 ||
            !used || names[i][used] || size < 1 || rank < 0 || rank >= size)
            continue;
        if (*ranks && *ranks != size)
            ret = err_set(err, ERR_INPUT,
                          "%s: files of runs of %d and of %d ranks: which ones?", dir,
                          *ranks, size);
        *ranks = size;
    }
    fs_list_free(names, n);
    return ret;
}

static int probe(bool *found, const char *path, bool is_dir, struct err *err)
{
    struct err ignored = { 0 };
    int ranks = 0, ret = is_dir ? find_ranks(&ranks, path, &ignored) : 0;

    *found = ranks > 0;
    if (ret < 0 && !ranks)
        *err = ignored;
    return ranks ? 0 : ret;
}

/* Reads the files of all ranks. */
static int read_all(struct reader *r, struct err *err)
{
    int ret = 0;

    for (; r->rank < r->ranks && ret == 0; r->rank++)
        ret = read_rank(r, err);
    if (ret == 0)
        ret = join(r, err);
    return ret == 0 ? present(r, err) : -1;
}

static void clear(struct reader *r)
{
    for (size_t i = 0; i < r->n; i++) {
        free(r->param[i].box);
        free(r->param[i].copy);
    }
    free(r->param);
    free(r->named);
    tensor_index_clear(&r->index);
}

/* Reads the optimizer's files beside those of WEIGHTS, if there are any. */
static int read_moments(struct reader *weights, struct err *err)
{
    struct reader r = { .s = weights->s,
                        .dir = weights->dir,
                        .what = "optim",
                        .ranks = weights->ranks,
                        .weights = weights };
    char *first = str_dupf(FILE_NAME, r.what, r.ranks, 0);
    bool found = false;
    int ret = fs_find_in(&found, r.dir, first, err);

    free(first);
    if (ret == 0 && found) {
        tensor_index_clear(&weights->index);
        drop_tied(weights);
        ret = read_all(&r, err);
    }
    clear(&r);
    return ret;
}

static int open_directory(struct source *s, const char *path, struct err *err)
{
    struct reader r = { .s = s, .dir = path, .what = "model" };
    int ret = find_ranks(&r.ranks, path, err);

    if (ret == 0)
        ret = read_all(&r, err);
    if (ret == 0 && s->moments)
        ret = read_moments(&r, err);
    clear(&r);
    return ret;
}

const struct source_ops rankfiles_ops = { .name = "files of the ranks of an FSDP run",
                                          .probe = probe,
                                          .open = open_directory };
