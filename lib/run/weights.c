/* weights - the weights of one rank in device memory */
#include "lib/run/weights.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/hash.h"
#include "lib/base/mem.h"
#include "lib/reshard/unpack.h"
#include "lib/run/adapter.h"
#include "lib/run/link.h"

/* ---- CRC checks of mapped weights ---- */

/* A tensor that is mapped from its file. */
struct lying {
    const void *data;
    uint64_t bytes;
    size_t tensor;
};

struct weights_check {
    const struct checkpoint *checkpoint;
    int part;
    struct lying *v;
    size_t n, cap;
    pthread_t thread;
    atomic_bool stop;
    int ret;
    struct err err;
    bool begun, alone; /* alone: no thread could be started */
};

/* The CRC-32 of BYTES at DATA; broken off when *STOP becomes true, unless NULL. */
static uint32_t crc_of(const void *data, uint64_t bytes, const atomic_bool *stop)
{
    enum { SOME = 1 << 20 };
    uint32_t crc = 0;

    for (uint64_t at = 0; at < bytes && !(stop && atomic_load(stop)); at += SOME) {
        uint64_t left = bytes - at;

        crc =
            hash_crc32(crc, (const char *)data + at, left < SOME ? (size_t)left : SOME);
    }
    return crc;
}

static void *check_all(void *arg)
{
    struct weights_check *c = arg;

    for (size_t i = 0; i < c->n && c->ret == 0; i++) {
        uint32_t crc = crc_of(c->v[i].data, c->v[i].bytes, &c->stop);

        if (atomic_load(&c->stop))
            break;
        c->ret =
            checkpoint_check_part(c->checkpoint, c->v[i].tensor, c->part, crc, &c->err);
    }
    return NULL;
}

/* Adds a check of TENSOR, which is mapped at DATA. */
static void add_check(struct weights *w, const struct checkpoint *c, int part,
                      const void *data, uint64_t bytes, size_t tensor)
{
    struct weights_check *k = w->check;

    if (!k) {
        k = w->check = xcalloc(1, sizeof(*k));
        k->checkpoint = c;
        k->part = part;
    }
    k->v = xgrow(k->v, &k->cap, k->n + 1, sizeof(*k->v));
    k->v[k->n++] = (struct lying){ data, bytes, tensor };
}

/* Starts the checks; runs them here if no thread can be started. */
static void begin_checks(struct weights *w)
{
    struct weights_check *k = w->check;

    if (!k)
        return;
    k->begun = true;
    k->alone = pthread_create(&k->thread, NULL, check_all, k) != 0;
    if (k->alone)
        check_all(k);
}

int weights_settle(struct weights *w, struct err *err)
{
    struct weights_check *k = w->check;
    int ret;

    if (!k)
        return 0;
    if (!k->alone)
        pthread_join(k->thread, NULL);
    ret = k->ret;
    if (ret < 0)
        *err = k->err;
    free(k->v);
    free(k);
    w->check = NULL;
    return ret;
}

/* ---- loading ---- */

/* Reads TENSOR into a temporary host buffer and copies its BYTES to device memory
 * TO. */
static int copy_in(const struct weights *w, struct loader *loader, size_t tensor,
                   void *to, uint64_t bytes, struct err *err)
{
    void *host = mem_alloc(bytes, "a tensor on its way", err);
    int ret = -1;

    if (host && loader_read(loader, tensor, host, err) == 0)
        ret = w->ops->copy_in(w->device, to, host, bytes, err);
    free(host);
    return ret;
}

/* Copies the BYTES of TENSOR, mapped at LYING, to device memory TO, and checks them
 * while they are in the cache. */
static int copy_mapped(const struct weights *w, const struct checkpoint *c, int part,
                       size_t tensor, void *to, const void *lying, uint64_t bytes,
                       struct err *err)
{
    if (w->ops->copy_in(w->device, to, lying, bytes, err) < 0)
        return -1;
    return part < 0 ? 0
                    : checkpoint_check_part(c, tensor, part, crc_of(lying, bytes, NULL),
                                            err);
}

/* The slice that follows M in the same tensor. */
static struct matrix next_slice(struct matrix m)
{
    m.data =
        (const char *)m.data + m.rows * m.cols * (uint64_t)format_bits(m.format) / 8;
    return m;
}

/* Weights as codes.  The slices of one tensor have one memory, which is released after
 * the last. */
struct packing {
    struct held *held; /* [n] */
    struct encoder encoder;
    struct loader *loader;
    void *block; /* memory that codes have replaced, or will; or NULL */
    bool host;   /* it is not the device's */
    bool lay;    /* they have replaced what was mapped */
};

static void release_block(struct weights *w, struct packing *p)
{
    if (p->host)
        free(p->block);
    else
        w->ops->release(w->device, p->block);
    p->block = NULL;
    p->host = false;
}

/* May the host read and write weight I as it is stored?  What becomes codes is in host
 * memory until then. */
static bool is_at_host(const struct weights *w, const struct packing *p, int i)
{
    return w->ops->host_memory || p->held[i].coded;
}

/* Sets weight I's data to BYTES of memory, and returns it. */
static void *make_room(struct weights *w, int i, struct packing *p, uint64_t bytes,
                       const char *name, struct err *err)
{
    void *data;

    w->bytes += bytes;
    if (w->ops->host_memory || !is_at_host(w, p, i)) {
        data = w->ops->alloc(w->device, bytes, name, err);
    } else {
        release_block(w, p);
        data = p->block = mem_alloc(bytes, name, err);
        p->host = w->mapped[i] = true; /* the device does not release it */
    }
    w->matrix[i].data = data;
    return data;
}

/* Maps the BYTES of TENSOR for weight I, or else allocates memory and copies them, to a
 * device from the mapped file if possible. */
static int place(struct weights *w, int i, struct packing *p,
                 const struct checkpoint *c, size_t tensor, uint64_t bytes,
                 const char *name, struct err *err)
{
    struct loader *loader = p->loader;
    const void *lying = loader_map(loader, tensor, bytes);
    void *data;

    if (lying && is_at_host(w, p, i)) {
        w->bytes += bytes;
        w->matrix[i].data = lying;
        w->mapped[i] = true;
        w->file_bytes += bytes;
        if (loader_part(loader) >= 0)
            add_check(w, c, loader_part(loader), lying, bytes, tensor);
        return 0;
    }
    data = make_room(w, i, p, bytes, name, err);
    if (!data)
        return -1;
    if (is_at_host(w, p, i))
        return loader_read(loader, tensor, data, err);
    if (lying)
        return copy_mapped(w, c, loader_part(loader), tensor, data, lying, bytes, err);
    return copy_in(w, loader, tensor, data, bytes, err);
}

/* Dequantizes weight I, which is stored as P says, into device memory; via a temporary
 * host buffer if the host cannot write device memory.  What becomes codes is f32. */
static int load_packed(struct weights *w, int i, struct packing *to,
                       const struct checkpoint *c, const struct weight *need,
                       uint64_t elements, struct err *err)
{
    const struct model_packing *p = &to->held[i].packing;
    const char *name = c->model->tensor[need->tensor].name;
    enum format format = to->held[i].wide;
    void *wide = NULL, *data;
    uint64_t bytes;
    int ret = -1;

    if (model_check_packing(c->model, need->tensor, p, err) < 0)
        return -1;
    w->matrix[i] =
        (struct matrix){ .format = format, .rows = need->rows, .cols = need->cols };
    if (!dtype_bytes(&bytes, format_dtype(format), elements))
        return err_set(err, ERR_INPUT, "tensor %s: too large", name);
    data = make_room(w, i, to, bytes, name, err);
    if (!data)
        return -1;
    if (!is_at_host(w, to, i)) {
        wide = mem_alloc(bytes, name, err);
        if (!wide)
            return -1;
    }
    ret = unpack_weight(
        to->loader, c, need->tensor, p, need->cols ? elements / need->cols : 0,
        need->cols, format_dtype(format), wide ? wide : data, to->encoder.threads, err);
    if (ret == 0 && wide)
        ret = w->ops->copy_in(w->device, data, wide, bytes, err);
    free(wide);
    return ret;
}

/* Loads weight I, a matrix of an adapter. */
static int load_adapter(struct weights *w, int i, struct packing *p,
                        const struct checkpoint *c, const struct program *program,
                        struct err *err)
{
    const struct weight *need = &program->weight[i];
    const char *name = c->model->tensor[need->tensor].name;
    const struct held *h = &p->held[i];
    void *data, *host = NULL;
    uint64_t bytes;
    int ret = -1;

    w->matrix[i] =
        (struct matrix){ .format = h->wide, .rows = need->rows, .cols = need->cols };
    if (!format_bytes(&bytes, h->wide, need->rows, need->cols))
        return err_set(err, ERR_INPUT, "tensor %s: its adapter is too large", name);
    data = make_room(w, i, p, bytes, name, err);
    if (data && !is_at_host(w, p, i))
        host = mem_alloc(bytes, name, err);
    if (data && (host || is_at_host(w, p, i)))
        ret = adapter_load(c->adapter, program, need, host ? host : data, err);
    if (ret == 0 && host)
        ret = w->ops->copy_in(w->device, data, host, bytes, err);
    free(host);
    return ret;
}

/* A shard of a padded table may have rows of zeros after the rows that the program
 * needs. */
static int load(struct weights *w, int i, struct packing *p, const struct checkpoint *c,
                const struct weight *need, bool padded, struct err *err)
{
    const struct model_tensor *t = &c->model->tensor[need->tensor];
    uint64_t bytes, expected;
    enum dtype dtype;

    if (need->adapter)
        return load_adapter(w, i, p, c, p->encoder.program, err);
    if (!mem_mul(&expected, need->rows, need->cols) ||
        !mem_mul(&expected, expected, need->slice ? need->experts : 1))
        return err_set(err, ERR_INPUT, "tensor %s: too large", t->name);
    if (p->held[i].packed)
        return load_packed(w, i, p, c, need, expected, err);
    if (t->source < 0)
        return err_set(err, ERR_INPUT, "tensor %s is missing", t->name);
    dtype = checkpoint_dtype(c, (size_t)t->source);
    if (p->held[i].foreign)
        return err_set(
            err, ERR_INPUT, "%s: tensor %s: cannot compute with type %s%s",
            c->sharded ? c->path : source_place(&c->source, &c->tensor[t->source]),
            t->name, dtype_name(dtype),
            dtype_is_float(dtype) ? "; tp-shard split --dtype f32 converts it" : "");
    if (loader_bytes(p->loader, need->tensor, &bytes, err) < 0)
        return -1;
    if (!dtype_bytes(&expected, dtype, expected) ||
        (padded ? expected > bytes : expected != bytes))
        return err_set(err, ERR_INPUT, "tensor %s: %llu bytes, expected %llu x %llu %s",
                       t->name, (unsigned long long)bytes,
                       (unsigned long long)need->rows *
                           (need->slice ? need->experts : 1),
                       (unsigned long long)need->cols, dtype_name(dtype));
    w->matrix[i] = (struct matrix){ .format = p->held[i].wide,
                                    .rows = need->rows,
                                    .cols = need->cols };
    return place(w, i, p, c, need->tensor, bytes, t->name, err);
}

/* Replaces weight I, stored in *M, by its codes, if they are asked for. */
static int pack(struct weights *w, int i, struct packing *p, const struct matrix *m,
                struct err *err)
{
    const struct weight *need = &p->encoder.program->weight[i];
    struct slice slice;
    uint64_t bytes, stored;

    if (!p->held[i].coded)
        return 0;
    if (!w->part[i]) {
        bool own = p->block && p->block == m->data; /* make_room's */

        if (!own)
            release_block(w, p);
        p->lay = w->mapped[i] && !own;
        if (!p->lay)
            p->block = (void *)(uintptr_t)m->data;
        w->mapped[i] = w->part[i] = true; /* until it has memory of its own */
    }
    loader_slice(p->loader, need->tensor, &slice);
    if (encode_weight(&p->encoder, i, m, &slice, &w->matrix[i], &bytes, err) < 0)
        return -1;
    w->mapped[i] = w->part[i] = false;
    (void)format_bytes(&stored, m->format, m->rows, m->cols);
    w->bytes += bytes - stored;
    if (p->lay)
        w->file_bytes -= stored;
    if (!need->slice)
        release_block(w, p);
    return 0;
}

/* Loads weight I with its own codes: all slices of its tensor with the first. */
static int keep(struct weights *w, int i, struct packing *p, const struct checkpoint *c,
                const struct weight *need, struct err *err)
{
    size_t n = need->slice ? (size_t)need->experts : 1;
    struct matrix *made;
    uint64_t bytes;

    if (need->slice > 1)
        return 0;
    made = xcalloc(n, sizeof(*made));
    if (encode_keep(&p->encoder, i, n, p->loader, c, made, &bytes, err) < 0) {
        free(made);
        return -1;
    }
    memcpy(w->matrix + i, made, n * sizeof(*made));
    w->bytes += bytes;
    free(made);
    return 0;
}

static int load_all(struct weights *w, struct packing *p, const struct checkpoint *c,
                    const struct program *program, struct err *err)
{
    struct matrix last = { 0 };
    int ret = 0;

    for (int i = 0; i < w->n && ret == 0; i++) {
        if (p->held[i].kept) {
            ret = keep(w, i, p, c, &program->weight[i], err);
            continue;
        }
        if (program->weight[i].slice > 1) {
            w->matrix[i] = next_slice(last);
            w->part[i] = true;
        } else {
            ret =
                load(w, i, p, c, &program->weight[i], program->mesh.pad_vocab > 0, err);
        }
        last = w->matrix[i];
        if (ret == 0)
            ret = pack(w, i, p, &last, err);
    }
    release_block(w, p);
    return ret;
}

int weights_survey(enum format *stored, uint64_t *bytes, struct checkpoint *c,
                   const struct program *program, enum weights_form form,
                   struct err *err)
{
    struct loader *loader;
    struct err ignored;
    struct held *held;
    bool over = false;

    *bytes = 0;
    if (held_find(&held, c, program, form, false, err) < 0)
        return -1;
    if (loader_open(&loader, c, &program->mesh, program->coord, err) < 0) {
        free(held);
        return -1;
    }
    for (int i = 0; i < program->nweights; i++) {
        const struct weight *need = &program->weight[i];
        const struct held *h = &held[i];
        uint64_t more = 0;

        stored[i] = h->format;
        if (h->packed || h->coded || need->adapter) /* slice by slice */
            over |= !held_bytes(&more, h, need);
        else if (!h->foreign && need->slice <= 1) /* of all slices */
            (void)!loader_bytes(loader, need->tensor, &more, &ignored);
        over |= !mem_add(bytes, *bytes, more);
    }
    loader_close(loader);
    free(held);
    return over ? err_set(err, ERR_INPUT, "%s: too large", c->path) : 0;
}

void weights_drop(struct weights *w, const struct program *program, int i)
{
    struct matrix *m = &w->matrix[i];
    uint64_t copies = program->weight[i].slice ? program->weight[i].experts : 1;
    uint64_t bytes;

    if (!m->data)
        return;
    if (!w->part[i] && format_bytes(&bytes, m->format, m->rows, m->cols)) {
        w->bytes -= bytes * copies;
        w->file_bytes -= w->mapped[i] ? bytes * copies : 0;
    }
    if (!w->part[i] && !w->mapped[i])
        w->ops->release(w->device, (void *)(uintptr_t)m->data);
    m->data = NULL;
}

void weights_memory(const struct weights *w, struct ledger *list)
{
    ledger_add(list, "weights", LEDGER_DEVICE, w->bytes - w->file_bytes);
    ledger_add(list, "weights", LEDGER_FILE, w->file_bytes);
    ledger_add(list, "weight_copies", LEDGER_DEVICE, w->resident.bytes);
}

int weights_open(struct weights *w, struct checkpoint *c, const struct program *program,
                 const struct backend *ops, struct device *device,
                 enum weights_form form, struct comm *tensor, int threads,
                 struct err *err)
{
    struct packing p = { 0 };
    int ret = -1, own = model_code_bits(c->model);

    *w = (struct weights){ .n = program->nweights, .ops = ops, .device = device };
    if (held_find(&p.held, c, program, form, program->ninsts > program->nforward, err) <
        0)
        return -1;
    p.encoder = (struct encoder){ .held = p.held,
                                  .program = program,
                                  .ops = ops,
                                  .device = device,
                                  .tensor = tensor,
                                  .threads = threads,
                                  .decoded = own == (form == WEIGHTS_INT4 ? 4 : 8) };
    if (loader_open(&p.loader, c, &program->mesh, program->coord, err) < 0)
        goto out;
    w->matrix = xcalloc((size_t)w->n + 1, sizeof(*w->matrix));
    w->part = xcalloc((size_t)w->n + 1, sizeof(*w->part));
    w->mapped = xcalloc((size_t)w->n + 1, sizeof(*w->mapped));
    ret = load_all(w, &p, c, program, err);
    loader_close(p.loader);
    if (ret < 0)
        weights_close(w);
    else
        begin_checks(w);
out:
    free(p.held);
    return ret;
}

/* Is weight I read by anything but the lookup of some of its rows? */
static bool is_read_whole(const struct program *p, int i)
{
    for (int k = 0; k < p->ninsts; k++)
        if (p->inst[k].weight == i && p->inst[k].op != OP_EMBEDDING)
            return true;
    return false;
}

void weights_plan(struct weights *w, const struct program *program, uint64_t steps,
                  int ranks)
{
    for (int i = 0; i < w->n; i++) {
        const struct matrix *m = &w->matrix[i];
        uint64_t copies = program->weight[i].slice ? program->weight[i].experts : 1;

        if (w->mapped[i] && !w->part[i] && is_read_whole(program, i))
            resident_add(&w->resident, m->data,
                         m->rows * m->cols * (uint64_t)format_bits(m->format) / 8 *
                             copies);
    }
    resident_plan(&w->resident, w->ops, w->device, steps, ranks);
}

void weights_step(struct weights *w)
{
    resident_step(&w->resident, w->matrix, w->n);
}

void weights_close(struct weights *w)
{
    struct err ignored;

    if (w->check && !w->check->begun) { /* loading failed before begin_checks */
        free(w->check->v);
        free(w->check);
    } else if (w->check) {
        atomic_store(&w->check->stop, true);
        (void)!weights_settle(w, &ignored);
    }
    for (int i = 0; w->matrix && i < w->n; i++)
        if (!w->part[i] && !w->mapped[i]) {
            w->ops->release(w->device, (void *)(uintptr_t)w->matrix[i].data);
            w->ops->release(w->device, (void *)(uintptr_t)w->matrix[i].scale);
        }
    resident_clear(&w->resident);
    free(w->matrix);
    free(w->part);
    free(w->mapped);
    *w = (struct weights){ 0 };
}
