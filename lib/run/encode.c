/* encode - the weights of products as codes, made at load or kept */
#include "lib/run/encode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/codes.h"
#include "lib/base/mem.h"
#include "lib/base/shares.h"
#include "lib/reshard/unpack.h"

/* Outputs that are read together: of a transposed matrix, neighbours. */
enum { STRIP = 32 };

/* A weight on its way. */
struct coding {
    const struct matrix *m;
    const char *name;
    enum format format;  /* of the codes */
    bool turned;         /* m has a column for each output */
    bool decoded;        /* the numbers were codes in the checkpoint */
    uint64_t rows, cols; /* outputs and inputs */
    float *strip;        /* [STRIP][cols] */
    float *largest;      /* [rows] */
    struct format_codes codes;
    /* what a thread does: WORK on the outputs [from, end) */
    int (*work)(struct coding *c);
    uint64_t from, end;
    int ret;
    struct err err;
};

/* Outputs FIRST to FIRST + N as f32 rows. */
static void read_strip(const struct coding *c, uint64_t first, size_t n)
{
    const enum dtype type = format_dtype(c->m->format);
    const size_t unit = (size_t)dtype_bits(type) / 8;
    const char *data = c->m->data;
    float wide[STRIP];

    if (!c->turned) {
        dtype_to_f32(type, data + first * c->cols * unit, c->strip,
                     n * (size_t)c->cols);
        return;
    }
    for (uint64_t k = 0; k < c->cols; k++) {
        dtype_to_f32(type, data + (k * c->rows + first) * unit, wide, n);
        for (size_t j = 0; j < n; j++)
            c->strip[j * c->cols + k] = wide[j];
    }
}

static size_t strip_at(const struct coding *c, uint64_t first)
{
    return c->end - first < STRIP ? (size_t)(c->end - first) : STRIP;
}

static int not_finite(struct coding *c)
{
    return err_set(&c->err, ERR_INPUT,
                   "tensor %s: NaN or an infinite number has no code", c->name);
}

static int find_largest(struct coding *c)
{
    for (uint64_t r = c->from; r < c->end; r += STRIP) {
        size_t n = strip_at(c, r);

        read_strip(c, r, n);
        for (size_t j = 0; j < n; j++) {
            float x = codes_largest(c->strip + j * c->cols, (size_t)c->cols);

            if (!isfinite(x))
                return not_finite(c);
            c->largest[r + j] = x;
        }
    }
    return 0;
}

/* The largest of whole outputs, of which each rank of GROUP has a part. */
static int share_largest(struct coding *c, struct comm *group, struct err *err)
{
    size_t n = (size_t)c->rows, size = (size_t)group->size;
    float *all = mem_alloc((n * size + 1) * sizeof(*all), "scales of all ranks", err);
    int ret = -1;

    if (all)
        ret = comm_run(group, comm_all_gather(c->largest, all, n * sizeof(*all)), err);
    for (size_t i = 0; ret == 0 && i < n * size; i++)
        if (all[i] > c->largest[i % n])
            c->largest[i % n] = all[i];
    free(all);
    return ret;
}

static int make_codes(struct coding *c)
{
    for (uint64_t r = c->from; r < c->end; r += STRIP) {
        size_t n = strip_at(c, r);

        read_strip(c, r, n);
        for (size_t j = 0; j < n; j++) {
            const float *x = c->strip + j * c->cols;

            if (!isfinite(codes_largest(x, (size_t)c->cols)))
                return not_finite(c);
            format_table[c->format].encode(&c->codes, r + j, x, c->largest[r + j],
                                           c->decoded);
        }
    }
    return 0;
}

static void run_work(void *arg, int share, uint64_t from, uint64_t end)
{
    struct coding *c = (struct coding *)arg + share;

    c->from = from;
    c->end = end;
    c->strip = mem_alloc((STRIP * c->cols + 1) * sizeof(*c->strip), c->name, &c->err);
    c->ret = c->strip ? c->work(c) : -1;
    free(c->strip);
}

/* Does WORK on all outputs of C, shared by at most THREADS threads; a share is whole
 * groups of outputs. */
static int share_work(const struct coding *c, int (*work)(struct coding *c),
                      int threads, struct err *err)
{
    uint64_t most = c->rows * c->cols / SHARES_LEAST + 1;
    int n = most < (uint64_t)threads ? (int)most : threads;
    struct coding *all;
    int shares = shares_of(c->rows, STRIP, n), ret = 0;

    all = xcalloc((size_t)shares, sizeof(*all));
    for (int i = 0; i < shares; i++) {
        all[i] = *c;
        all[i].work = work;
    }
    shares_run(c->rows, STRIP, n, run_work, all);
    for (int i = 0; i < shares && ret == 0; i++)
        if (all[i].ret < 0) {
            *err = all[i].err;
            ret = -1;
        }
    free(all);
    return ret;
}

/* ERR_NO unless the runs of SLICE along AXIS, and the leaves of INST's tree, are whole
 * blocks of F, if it has any. */
static int check_blocks(const struct encoder *e, const struct inst *inst,
                        const struct slice *slice, int axis, size_t tensor,
                        enum format f, struct err *err)
{
    const struct sum_tree *t = inst->tree ? &e->program->tree[inst->tree - 1] : NULL;
    const char *name = e->program->model->tensor[tensor].name;
    const struct runs *runs = slice->runs[axis];
    const size_t block = format_table[f].numbers;
    bool divided = false;

    if (!format_table[f].whole)
        return 0;
    for (size_t i = 0; i < runs->n; i++)
        divided |= runs->v[i].start % block || runs->v[i].count % block;
    if (divided) {
        err_set(err, ERR_NO,
                "tensor %s: this layout divides a block of %zu inputs, which share a "
                "scale in %s; int8 has none",
                name, block, format_name(f));
        cutter_tell_whole(e->program->model, &e->program->mesh, tensor, axis, block,
                          err);
        return -1;
    }
    for (int i = 0; t && i < t->n; i++)
        if (t->leaf[i].cols % block)
            return err_set(err, ERR_NO,
                           "tensor %s: --deterministic sums %llu inputs at a time, "
                           "which are no whole blocks of %zu, as %s needs",
                           name, (unsigned long long)t->leaf[i].cols, block,
                           format_name(f));
    return 0;
}

static int fill(const struct encoder *e, const struct inst *inst, struct coding *c,
                struct err *err)
{
    struct err own = { 0 };
    int ret;

    if (format_table[c->format].scale != SCALE_OF_ROW)
        return share_work(c, make_codes, e->threads, err);
    ret = share_work(c, find_largest, e->threads, &own);
    /* a rank that fails takes part all the same: the others must not wait for it */
    if (e->program->value[inst->dst].place == PLACE_PARTIAL &&
        share_largest(c, e->tensor, err) < 0)
        return -1;
    if (ret < 0) {
        *err = own;
        return -1;
    }
    return share_work(c, make_codes, e->threads, err);
}

/* Memory for BYTES that the host writes, and that are then put into AT (close_host);
 * AT itself where the host may write it. */
static void *open_host(const struct encoder *e, void *at, uint64_t bytes,
                       const char *what, struct err *err)
{
    return !at || e->ops->host_memory ? at : mem_alloc(bytes, what, err);
}

/* Frees HOST; if RET is 0, copies it to AT first.  Returns the status. */
static int close_host(const struct encoder *e, void *at, void *host, uint64_t bytes,
                      int ret, struct err *err)
{
    if (host == at)
        return ret;
    if (ret == 0)
        ret = e->ops->copy_in(e->device, at, host, bytes, err);
    free(host);
    return ret;
}

/* Memory of a device for codes of F, and of the host while it fills them. */
struct room {
    uint64_t codes, scales; /* bytes */
    void *data, *scale;
};

/* Opens R for C->rows x C->cols codes and clears C, or fails with nothing allocated but
 * what close_room frees. */
static int open_room(const struct encoder *e, struct room *r, enum format f,
                     struct format_codes *c, const char *name, struct err *err)
{
    *r = (struct room){ 0 };
    c->data = c->scale = NULL;
    if (!format_bytes(&r->codes, f, c->rows, c->cols) ||
        !format_scale_bytes(&r->scales, f, c->rows, c->cols, c->per))
        return err_set(err, ERR_INPUT, "tensor %s: too large", name);
    r->data = e->ops->alloc(e->device, r->codes, name, err);
    r->scale = r->data ? e->ops->alloc(e->device, r->scales, name, err) : NULL;
    if (!r->scale)
        return -1;
    c->data = open_host(e, r->data, r->codes, name, err);
    c->scale = c->data ? open_host(e, r->scale, r->scales, name, err) : NULL;
    if (!c->scale)
        return -1;
    format_clear(f, c);
    return 0;
}

/* Puts C into the device's memory if RET is 0, and frees all of R otherwise. */
static int close_room(const struct encoder *e, struct room *r, struct format_codes *c,
                      int ret, struct err *err)
{
    if (c->data)
        ret = close_host(e, r->data, c->data, r->codes, ret, err);
    if (c->scale)
        ret = close_host(e, r->scale, c->scale, r->scales, ret, err);
    if (ret < 0) {
        e->ops->release(e->device, r->data);
        e->ops->release(e->device, r->scale);
    }
    return ret;
}

static struct matrix matrix_of(const struct room *r, enum format f,
                               const struct format_codes *c)
{
    return (struct matrix){ .data = r->data,
                            .format = f,
                            .rows = c->rows,
                            .cols = c->cols,
                            .scale = r->scale,
                            .per = c->per };
}

int encode_weight(const struct encoder *e, int i, const struct matrix *m,
                  const struct slice *slice, struct matrix *out, uint64_t *bytes,
                  struct err *err)
{
    const struct weight *need = &e->program->weight[i];
    const struct held *h = &e->held[i];
    struct coding c = { .m = m,
                        .name = e->program->model->tensor[need->tensor].name,
                        .format = h->format,
                        .turned = h->how == PACKABLE_COLS,
                        .decoded = e->decoded };
    int ret = -1, axis = c.turned ? slice->ndim - 2 : slice->ndim - 1;
    struct room r;

    held_shape(h, need, &c.rows, &c.cols);
    c.codes = (struct format_codes){ .rows = c.rows, .cols = c.cols };
    if (check_blocks(e, h->reader, slice, axis, need->tensor, h->format, err) < 0)
        return -1;
    c.largest = mem_alloc((c.rows + 1) * sizeof(*c.largest), c.name, err);
    if (!c.largest)
        return -1;
    memset(c.largest, 0, (c.rows + 1) * sizeof(*c.largest));
    ret = open_room(e, &r, h->format, &c.codes, c.name, err);
    if (ret == 0)
        ret = fill(e, h->reader, &c, err);
    ret = close_room(e, &r, &c.codes, ret, err);
    free(c.largest);
    if (ret < 0)
        return -1;
    *bytes = r.codes + r.scales;
    *out = matrix_of(&r, h->format, &c.codes);
    return 0;
}

int encode_keep(const struct encoder *e, int i, size_t n, struct loader *l,
                const struct checkpoint *c, struct matrix *out, uint64_t *bytes,
                struct err *err)
{
    const struct weight *need = &e->program->weight[i];
    const char *name = e->program->model->tensor[need->tensor].name;
    const struct held *h = &e->held[i];
    struct format_codes *codes = xcalloc(n, sizeof(*codes));
    struct room *room = xcalloc(n, sizeof(*room));
    struct slice slice;
    size_t opened = 0;
    int ret;

    loader_slice(l, need->tensor, &slice);
    ret = check_blocks(e, h->reader, &slice, slice.ndim - 1, need->tensor, h->format,
                       err);
    for (; ret == 0 && opened < n; opened++) {
        codes[opened] = (struct format_codes){ .rows = need->rows,
                                               .cols = need->cols,
                                               .per = h->per };
        ret = open_room(e, &room[opened], h->format, &codes[opened], name, err);
    }
    if (ret == 0)
        ret = unpack_codes(codes, n, l, c, need->tensor, &h->packing, h->format,
                           e->threads, err);
    *bytes = 0;
    for (size_t k = 0; k < opened; k++) {
        ret = close_room(e, &room[k], &codes[k], ret, err);
        *bytes += room[k].codes + room[k].scales;
        out[k] = matrix_of(&room[k], h->format, &codes[k]);
    }
    free(codes);
    free(room);
    return ret;
}

double encode_width(const struct matrix *m)
{
    uint64_t codes = 0, scales = 0, n = m->rows * m->cols;

    (void)format_bytes(&codes, m->format, m->rows, m->cols);
    (void)format_scale_bytes(&scales, m->format, m->rows, m->cols, m->per);
    return n ? (double)(codes + scales) / (double)n
             : (double)format_bits(m->format) / 8;
}
