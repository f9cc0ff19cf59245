/* adaptersave - checkpoints of an adapter that is trained beside a frozen model */
#include "lib/train/adaptersave.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/hash.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/ckpt/safetensors.h"
#include "lib/reshard/describe.h"
#include "lib/run/adapterstack.h"
#include "lib/run/base.h"

enum { SOME = 1 << 16 }; /* numbers that are summed at a time */

static const char MATRICES[] = "adapter_model.safetensors",
                  CONFIG[] = "adapter_config.json";

/* A rank's weight: number WEIGHT of P; NULL: other ranks' alone. */
struct home {
    struct parameters *p;
    int weight;
};

/* A tensor of the checkpoint: PART of adapter INDEX, or what stands in place of the
 * model's tensor INDEX, or a slot of either.  Of experts that share it those from INDEX
 * on, by .of; their slots are tensors of their own. */
struct entry {
    char *name;
    size_t index;
    bool saved; /* the second */
    enum adapter_part part;
    int slot; /* -1: the part itself */
    struct adapter_stack of;
    uint64_t shape[MODEL_MAX_DIMS], n, offset; /* of what is written, */
    int ndim;
    enum manifest_form form;
    uint64_t cols; /* and of all of the part: its last axis */
    uint32_t crc;
};

struct written {
    uint64_t size;
    uint32_t crc;
};

struct adaptersave {
    struct trainer *t;
    struct checkpoint *c;
    struct comm *world;
    struct entry *entry; /* first all matrices, then all slots */
    size_t n, parts;     /* the first .parts are matrices */
    double *
        matrix; /* [ADAPTER_NORM * nadapters + ntensors]: is it one to the optimizer? */
    struct home *home; /* the same, of several stages of this rank the first's */
    struct manifest_file *base; /* rank 0 */
    size_t nbase;
    struct pool pool;
    double *some; /* [SOME] */
    struct written matrices, slots, config;
};

bool adaptersave_applies(const struct trainer *t)
{
    const struct model *m = t->stage->program->model;

    for (size_t i = 0; i < m->nadapters; i++)
        if (m->adapter[i].trained)
            return true;
    return false;
}

/* ---- opening ---- */

/* Adds E, of the axes AXIS, which is called NAME, or SLOT of it. */
static void add_one(struct adaptersave *b, struct entry e, char *name, int slot,
                    const struct axis *const *axis, bool matrix)
{
    const struct parameters *store = &b->t->stage->parameters;
    const struct optimizer_slot *of = slot < 0 ? NULL : &store->form[slot];
    const int ndim = e.ndim;

    if (of && (matrix ? of->matrix : of->other) == SLOT_NONE) {
        free(name);
        return;
    }
    e.form = of ? store->state[slot].form : MANIFEST_LIKE;
    e.cols = ndim ? axis[ndim - 1]->size : 1;
    e.ndim = 0;
    e.slot = slot;
    e.name =
        slot < 0 ? xstrdup(name) : str_dupf("%s.%s", name, store->state[slot].role);
    e.n = 1;
    for (int k = 0; k < ndim; k++) {
        if (k == manifest_lacks(e.form, ndim))
            continue;
        e.shape[e.ndim++] = axis[k]->size;
        e.n *= axis[k]->size;
    }
    b->entry[b->n++] = e;
    free(name);
}

static void add_saved(struct adaptersave *b, size_t index, int slot)
{
    const struct model *m = b->c->model;

    if (!m->tensor[index].frozen)
        add_one(b,
                (struct entry){
                    .saved = true, .index = index, .ndim = m->tensor[index].ndim },
                adapter_saved_dup(m, index), slot,
                (const struct axis *const *)m->tensor[index].axis,
                b->matrix[ADAPTER_NORM * m->nadapters + index] > 0);
}

/* Adds the matrix that has PART of adapter INDEX and of the other experts, if it is the
 * first: true, if they share one. */
static bool add_shared(struct adaptersave *b, size_t index, enum adapter_part part)
{
    const struct model *m = b->c->model;
    struct entry e = { .index = index, .part = part, .slot = -1, .ndim = 2 };

    e.name = adapter_shared_dup(b->c->adapter, m, index, part, &e.of);
    if (!e.name)
        return false;
    if (e.of.expert) {
        free(e.name);
        return true;
    }
    adapter_stack_shape(&e.of, m, index, part, e.shape);
    e.n = e.shape[0] * e.shape[1];
    b->entry[b->n++] = e;
    return true;
}

static void add_entry(struct adaptersave *b, size_t index, enum adapter_part part,
                      int slot)
{
    const struct model *m = b->c->model;
    const struct axis *axis[2];
    int ndim = model_adapter_axes(m, index, part, axis);

    if (slot < 0 && part <= ADAPTER_B && add_shared(b, index, part))
        return;
    add_one(b, (struct entry){ .index = index, .part = part, .ndim = ndim },
            adapter_tensor_dup(m, index, part), slot, axis,
            b->matrix[ADAPTER_NORM * index + part] > 0);
}

/* Finds this rank's weights, and what is a matrix to the optimizer, also on other
 * stages. */
static int find_weights(struct adaptersave *b, struct err *err)
{
    const struct model *m = b->c->model;
    const size_t parts = ADAPTER_NORM * m->nadapters, n = parts + m->ntensors;

    b->matrix = xcalloc(n + 1, sizeof(*b->matrix));
    b->home = xcalloc(n + 1, sizeof(*b->home));
    for (int k = 0; k < b->t->nstages; k++) {
        struct parameters *store = &b->t->stage[k].parameters;

        for (int i = 0; i < store->program->nweights; i++) {
            const struct weight *w = &store->program->weight[i];
            size_t at = w->adapter
                            ? ADAPTER_NORM * ((size_t)w->adapter - 1) + (size_t)w->part
                            : parts + w->tensor;

            if (w->adapter && w->part == ADAPTER_NORM)
                continue;
            if (!b->home[at].p)
                b->home[at] = (struct home){ store, i };
            if (store->row[i].trained && store->row[i].matrix)
                b->matrix[at] = 1;
        }
    }
    return comm_run(b->world, comm_all_reduce_f64(b->matrix, n), err);
}

int adaptersave_open(struct adaptersave **out, struct trainer *t, struct checkpoint *c,
                     struct comm *world, struct err *err)
{
    const struct model *m = c->model;
    struct adaptersave *b = xcalloc(1, sizeof(*b));
    int slots = t->stage->parameters.slots, ret;

    *b = (struct adaptersave){ .t = t, .c = c, .world = world };
    ret = find_weights(b, err);
    b->entry =
        xcalloc((ADAPTER_NORM * m->nadapters + m->ntensors) * (size_t)(slots + 1) + 1,
                sizeof(*b->entry));
    for (int k = -1; k < slots; k++) {
        for (size_t i = 0; i < m->nadapters; i++)
            for (enum adapter_part part = 0;
                 part < ADAPTER_NORM && m->adapter[i].trained; part++)
                if (part < ADAPTER_MAGNITUDE || m->adapter[i].magnitudes)
                    add_entry(b, i, part, k);
        for (size_t i = 0; i < m->ntensors; i++)
            add_saved(b, i, k);
        if (k < 0)
            b->parts = b->n;
    }
    b->some = xcalloc(SOME, sizeof(*b->some));
    if (ret == 0 && world->rank == 0)
        ret = base_identify(&b->base, &b->nbase, &b->pool, c, err);
    if (ret < 0)
        adaptersave_close(b);
    else
        *out = b;
    return ret;
}

void adaptersave_close(struct adaptersave *b)
{
    if (!b)
        return;
    for (size_t i = 0; i < b->n; i++)
        free(b->entry[i].name);
    free(b->entry);
    free(b->base);
    free(b->some);
    free(b->matrix);
    free(b->home);
    pool_clear(&b->pool);
    free(b);
}

/* ---- gathering ---- */

/* Where a number of a matrix's state is: of one number for each element, row, or
 * column. */
struct places {
    enum manifest_form form;
    uint64_t cols, whole_cols; /* of the rank's shard of the matrix, and of all of it */
};

/* The number of element HERE of the shard; *IN is its place in the whole state.  False:
 * another element stands for it. */
static bool find_place(const struct places *p, size_t here, size_t whole, size_t *at,
                       size_t *in)
{
    *at = here;
    *in = whole;
    if (p->form == MANIFEST_ROWS) {
        *at = here / p->cols;
        *in = whole / p->whole_cols;
        return whole % p->whole_cols == 0;
    }
    if (p->form == MANIFEST_COLUMNS) {
        *at = here % p->cols;
        *in = whole % p->whole_cols;
        return whole < p->whole_cols;
    }
    return true;
}

/* This rank's numbers of an entry on their way to the whole tensor. */
struct placing {
    struct places of;
    const struct entry *e;
    struct adapter_stack stack; /* of one of those that share it, */
    uint64_t rank;              /* and its rank */
    const float *here; /* numbers from FIRST of the rank's shard; COUNT of them */
    uint64_t first, count;
    uint32_t *whole; /* their bits */
};

static void place_run(void *arg, size_t here, size_t whole, size_t n, bool owned)
{
    const struct placing *p = arg;

    for (size_t k = 0; k < n && owned; k++) {
        size_t at, in;

        if (!find_place(&p->of, here + k, whole + k, &at, &in) || at < p->first ||
            at >= p->first + p->count)
            continue;
        if (p->e->of.experts)
            in = (size_t)adapter_stack_place(&p->stack, p->e->part, p->rank,
                                             p->e->shape[1], in / p->of.whole_cols,
                                             in % p->of.whole_cols);
        memcpy(&p->whole[in], &p->here[at - p->first], sizeof(float));
    }
}

/* Copies what this rank owns of E, as it has it at HOME, to AT. */
static int place_one(struct adaptersave *b, const struct entry *e,
                     const struct home *home, struct placing *at, struct err *err)
{
    struct parameters *p = home->p;
    const int replica = b->t->copies->rank;
    const struct parameter *row;
    float *host;
    bool all;
    int ret;

    if (!p)
        return 0;
    row = &p->row[home->weight];
    all = e->slot < 0 && !parameters_gathers(p);
    if (replica >= p->owner.size || (replica && all))
        return 0;
    at->of.cols = p->program->weight[home->weight].cols;
    at->first = all ? 0 : row->first;
    at->count = all ? row->n : row->count;
    if (e->slot >= 0)
        parameters_kept(p, home->weight, e->slot, &at->first, &at->count);
    if (!at->count)
        return 0;
    host = mem_alloc(at->count * sizeof(float), "a matrix to save", err);
    if (!host)
        return -1;
    ret = e->slot >= 0 ? parameters_take_slot(p, host, home->weight, e->slot, at->first,
                                              at->count, err)
                       : p->ops->copy_out(p->device, host, all ? row->weight : row->own,
                                          (size_t)at->count * sizeof(float), err);
    at->here = host;
    if (ret == 0)
        parameters_runs(p, home->weight, place_run, at);
    free(host);
    return ret;
}

/* Copies what this rank owns of E to WHOLE, which is 0 elsewhere. */
static int place_own(struct adaptersave *b, const struct entry *e, uint32_t *whole,
                     struct err *err)
{
    const struct model *m = b->c->model;
    const size_t parts = ADAPTER_NORM * m->nadapters;
    const struct axis *axis[2];
    struct placing at = { .e = e, .whole = whole, .stack = e->of };
    int ret = 0;

    at.of = (struct places){ .form = e->form, .whole_cols = e->cols };
    if (!e->of.experts)
        return place_one(
            b, e,
            &b->home[e->saved ? parts + e->index : ADAPTER_NORM * e->index + e->part],
            &at, err);
    for (uint64_t k = 0; k < e->of.experts && ret == 0; k++) {
        const size_t index = e->index + k; /* they were added together */

        at.of.whole_cols = axis[model_adapter_axes(m, index, e->part, axis) - 1]->size;
        at.stack.expert = k;
        at.rank = m->adapter[index].rank.size;
        ret = place_one(b, e, &b->home[ADAPTER_NORM * index + e->part], &at, err);
    }
    return ret;
}

/* Adds the bits of all ranks, of which one alone has any for an element: WHOLE[n]
 * becomes the tensor on every rank.  NULL: this rank has failed, and only takes
 * part. */
static int add_all(struct adaptersave *b, uint32_t *whole, uint64_t n, struct err *err)
{
    for (uint64_t at = 0; at < n; at += SOME) {
        size_t some = n - at < SOME ? (size_t)(n - at) : SOME;

        for (size_t k = 0; k < some; k++)
            b->some[k] = whole ? (double)whole[at + k] : 0;
        if (comm_run(b->world, comm_all_reduce_f64(b->some, some), err) < 0)
            return -1;
        for (size_t k = 0; k < some && whole; k++)
            whole[at + k] = (uint32_t)b->some[k];
    }
    return 0;
}

/* ---- writing ---- */

/* A failure that rank 0 keeps until all ranks have sent what they hold. */
static void keep(int *ret, struct err *first, const struct err *err)
{
    if (*ret == 0)
        *first = *err;
    *ret = -1;
}

/* Lays out the entries [FROM, TO) and writes the header to FD. */
static int begin_file(struct adaptersave *b, size_t from, size_t to, int fd,
                      struct written *w, const char *path, struct err *err)
{
    struct safetensors_header h = { 0 };
    int ret;

    safetensors_header_begin(&h, "{\"format\":\"pt\"}");
    for (size_t i = from; i < to; i++) {
        struct entry *e = &b->entry[i];

        e->offset = h.end;
        safetensors_header_add(&h, e->name, DTYPE_F32, e->ndim, e->shape,
                               e->n * sizeof(float));
    }
    ret = safetensors_header_finish(&h, path, err);
    if (ret == 0)
        ret = fs_pwrite(fd, h.text.s, h.text.len, 0, path, err);
    *w = (struct written){ .size = h.text.len,
                           .crc = hash_crc32(0, h.text.s, h.text.len) };
    safetensors_header_clear(&h);
    return ret;
}

static int write_entry(struct adaptersave *b, struct entry *e, int fd,
                       struct written *w, const char *path, struct err *err, int *ret,
                       struct err *first)
{
    uint64_t n = e->n, bytes = n * sizeof(float);
    uint32_t *whole = mem_alloc(bytes, "a matrix to save", err);

    if (whole)
        memset(whole, 0, (size_t)bytes);
    if (!whole || place_own(b, e, whole, err) < 0)
        keep(ret, first, err);
    if (add_all(b, whole, n, err) < 0) {
        free(whole);
        return -1;
    }
    if (b->world->rank == 0 && *ret == 0) {
        e->crc = hash_crc32(0, whole, (size_t)bytes);
        if (fs_pwrite(fd, (const char *)whole, (size_t)bytes, w->size, path, err) < 0)
            keep(ret, first, err);
        w->crc = hash_crc32(w->crc, whole, (size_t)bytes);
        w->size += bytes;
    }
    free(whole);
    return 0;
}

/* Writes the entries [FROM, TO) to the file NAME. */
static int write_file(struct adaptersave *b, struct outdir *out, const char *name,
                      size_t from, size_t to, struct written *w, struct err *err)
{
    bool writes = b->world->rank == 0;
    char *path = writes ? fs_join_dup(out->partial, name) : xstrdup(name);
    struct err first = { 0 };
    int fd = -1, ret = 0, sent = 0;

    if (writes) {
        fd = outdir_create(out, name, err);
        if (fd < 0 || outdir_share(out, fd, checkpoint_mode(b->c), path, err) < 0 ||
            begin_file(b, from, to, fd, w, path, err) < 0)
            keep(&ret, &first, err);
    }
    for (size_t i = from; i < to && sent == 0; i++)
        sent = write_entry(b, &b->entry[i], fd, w, path, err, &ret, &first);
    if (sent == 0 && writes && ret == 0 && fsync(fd) < 0) {
        err_errno(err, "%s", path);
        keep(&ret, &first, err);
    }
    if (fd >= 0)
        close(fd);
    free(path);
    if (sent < 0)
        return -1;
    if (ret < 0)
        *err = first;
    return ret;
}

int adaptersave_write(struct adaptersave *b, struct outdir *out, struct err *err)
{
    const int one[MANIFEST_AXES] = { 1, 1, 1, 1, 1 };
    size_t matrices = b->parts;
    char *name = manifest_part_name_dup(one, 0);
    int ret = write_file(b, out, MATRICES, 0, matrices, &b->matrices, err);

    if (saver_agree(b->world, ret, err) < 0)
        goto out;
    ret = write_file(b, out, name, matrices, b->n, &b->slots, err);
    if (ret == 0 && b->world->rank == 0) {
        const char *text = adapter_config(b->c->adapter);
        size_t n = strlen(text);

        b->config = (struct written){ n, hash_crc32(0, text, n) };
        ret = outdir_write(out, CONFIG, text, n, checkpoint_mode(b->c), err);
    }
    ret = saver_agree(b->world, ret, err);
    free(name);
    return ret;
out:
    free(name);
    return -1;
}

/* ---- the manifest ---- */

static void add_tensors(struct adaptersave *b, struct manifest *m)
{
    m->tensor = xcalloc(b->n + 1, sizeof(*m->tensor));
    for (size_t i = 0; i < b->n; i++) {
        const struct entry *e = &b->entry[i];
        uint64_t *held = describe_held(m);
        uint32_t *crc = pool_take(&m->pool, sizeof(*crc), sizeof(*crc));

        if (e->slot < 0)
            continue;
        *crc = e->crc;
        held[0] = 1;
        m->tensor[m->ntensors++] =
            (struct manifest_tensor){ .name = e->name,
                                      .role =
                                          b->t->stage->parameters.state[e->slot].role,
                                      .shape = e->shape,
                                      .crc = crc,
                                      .held = held,
                                      .dtype = DTYPE_F32,
                                      .ndim = e->ndim };
    }
}

int adaptersave_finish(struct adaptersave *b, struct outdir *out, const char *training,
                       struct err *err)
{
    const struct checkpoint *c = b->c;
    const struct parameters *store = &b->t->stage->parameters;
    struct manifest m = { .mesh = { 1, 1, 1, 1, 1 },
                          .nparts = 1,
                          .training = training,
                          .base = b->base,
                          .nbase = b->nbase,
                          .config = c->sharded ? c->manifest.config : c->source.config,
                          .family = model_family_text(c->model) };
    char *part = manifest_part_name_dup(m.mesh, 0);
    struct manifest_file file[] = {
        { part, b->slots.size, b->slots.crc, 0 },
        { CONFIG, b->config.size, b->config.crc, -1 },
        { MATRICES, b->matrices.size, b->matrices.crc, -1 },
    };
    int ret;

    m.file = file;
    m.nfiles = sizeof(file) / sizeof(*file);
    add_tensors(b, &m);
    ret = manifest_list_states(&m, store->state, (size_t)store->slots, out->path, err);
    if (ret == 0)
        ret = describe_write(&m, out, MANIFEST_NAME, checkpoint_mode(c), err);
    m.file = NULL;
    m.base = NULL;
    manifest_clear(&m);
    free(part);
    return ret;
}

/* ---- restoring ---- */

struct taking {
    struct places of;
    const float *whole;
    float *here; /* numbers from FIRST of the shard; COUNT of them */
    uint64_t first, count;
};

static void take_run(void *arg, size_t here, size_t whole, size_t n, bool owned)
{
    const struct taking *t = arg;

    (void)owned;
    for (size_t k = 0; k < n; k++) {
        size_t at, in;

        (void)find_place(&t->of, here + k, whole + k, &at, &in);
        if (at >= t->first && at < t->first + t->count)
            t->here[at - t->first] = t->whole[in];
    }
}

/* Reads slot K of weight I from the file FD, which has the tensors of INDEX. */
static int restore_slot(struct parameters *p, int i, int k,
                        const struct safetensors *st, const struct tensor_index *index,
                        int fd, const char *path, struct err *err)
{
    const struct weight *w = &p->program->weight[i];
    const struct model *m = p->program->model;
    char *name = w->adapter ? adapter_tensor_dup(m, (size_t)w->adapter - 1, w->part)
                            : adapter_saved_dup(m, w->tensor);
    char *full = str_dupf("%s.%s", name, p->state[k].role);
    long at = tensor_index_find(index, full);
    const struct axis *axis[MODEL_MAX_DIMS];
    struct taking take = { .of = { .form = p->state[k].form, .cols = w->cols } };
    uint64_t bytes = sizeof(float);
    float *whole = NULL;
    int ndim, ret = -1;

    ndim = program_weight_axes(p->program, i, axis);
    take.of.whole_cols = axis[ndim - 1]->size;
    for (int d = 0; d < ndim; d++)
        bytes *= d == manifest_lacks(take.of.form, ndim) ? 1 : axis[d]->size;
    parameters_kept(p, i, k, &take.first, &take.count);
    if (at < 0) {
        err_set(err, ERR_INPUT, "%s: has no %s of %s", path, p->state[k].role, name);
    } else if (st->tensor[at].dtype != DTYPE_F32 || st->tensor[at].size != bytes) {
        err_set(err, ERR_INPUT, "%s: tensor %s is not as the adapter", path, full);
    } else if (!take.count) {
        ret = 0;
    } else {
        whole = mem_alloc(bytes, "an optimizer's state", err);
        take.whole = whole;
        take.here =
            whole ? mem_alloc(take.count * sizeof(float), "an optimizer's state", err)
                  : NULL;
        if (take.here &&
            fs_pread(fd, whole, (size_t)bytes, st->tensor[at].offset, path, err) == 0) {
            parameters_runs(p, i, take_run, &take);
            ret = parameters_put_slot(p, i, k, take.here, take.first, take.count, err);
        }
        free(take.here);
        free(whole);
    }
    free(full);
    free(name);
    return ret;
}

int adaptersave_restore(struct parameters *p, const char *dir, struct err *err)
{
    const int one[MANIFEST_AXES] = { 1, 1, 1, 1, 1 };
    char *name = manifest_part_name_dup(one, 0), *path = fs_join_dup(dir, name);
    struct tensor_index index = { 0 };
    struct safetensors st;
    int fd = fs_open_regular(path, err), ret = -1;

    free(name);
    if (fd >= 0 && safetensors_read(&st, NULL, fd, path, err) == 0) {
        tensor_index_init(&index, st.tensor, st.n);
        ret = 0;
        for (int i = 0; i < p->program->nweights && ret == 0; i++)
            for (int k = 0; k < p->slots && p->row[i].trained && ret == 0; k++)
                if (parameters_form(p, i, k) != SLOT_NONE)
                    ret = restore_slot(p, i, k, &st, &index, fd, path, err);
        tensor_index_clear(&index);
        safetensors_clear(&st);
    }
    if (fd >= 0)
        close(fd);
    free(path);
    return ret;
}
