/* encode - the weights of products as codes of 8 or 4 bits, made at load */
#include "lib/run/encode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/codes.h"
#include "lib/base/mem.h"
#include "lib/base/shares.h"

/* Outputs that are read together: of a transposed matrix, neighbours. */
enum { STRIP = 32 };

int encode_open(struct encoder *e, enum weights_form form,
                const struct program *program, const struct backend *ops,
                struct device *device, struct comm *tensor, struct err *err)
{
    *e = (struct encoder){
        .form = form, .program = program, .ops = ops, .device = device, .tensor = tensor
    };
    if (form == WEIGHTS_STORED)
        return 0;
    e->packable = packable_new(program->model, err);
    if (!e->packable)
        return -1;
    e->reader = xcalloc((size_t)program->nweights + 1, sizeof(*e->reader));
    for (int k = 0; k < program->ninsts; k++) {
        const struct inst *inst = &program->inst[k];
        int n = 1;

        if (inst->weight >= 0 && program->weight[inst->weight].experts)
            n = (int)program->weight[inst->weight].experts;
        for (int i = inst->weight; i >= 0 && i < inst->weight + n; i++)
            e->reader[i] = inst;
    }
    return 0;
}

void encode_close(struct encoder *e)
{
    free(e->packable);
    free(e->reader);
    *e = (struct encoder){ 0 };
}

/* The axis of weight I's tensor that has its inputs. */
static const struct axis *inputs_of(const struct encoder *e, int i)
{
    const struct model_tensor *t =
        &e->program->model->tensor[e->program->weight[i].tensor];
    bool rows = e->packable[e->program->weight[i].tensor] == PACKABLE_ROWS;

    return t->ndim < 2 ? NULL : t->axis[rows ? t->ndim - 1 : t->ndim - 2];
}

bool encode_takes(const struct encoder *e, int i)
{
    const struct axis *in;

    if (e->form == WEIGHTS_STORED || !e->reader[i] ||
        e->packable[e->program->weight[i].tensor] == PACKABLE_NOT)
        return false;
    in = inputs_of(e, i);
    return in && (e->form == WEIGHTS_INT8 || in->size % CODES_BLOCK == 0);
}

/* A weight on its way. */
struct coding {
    const struct matrix *m;
    const char *name;
    bool turned;         /* m has a column for each output */
    bool decoded;        /* the numbers were codes in the checkpoint */
    uint64_t rows, cols; /* outputs and inputs */
    float *strip;        /* [STRIP][cols] */
    float *largest;      /* [rows] */
    uint8_t *codes;
    void *scales;
    /* what a thread does: WORK on the outputs [from, end) */
    int (*work)(struct coding *c);
    uint64_t from, end;
    int ret;
    struct err err;
};

/* Outputs FIRST to FIRST + N as f32 rows. */
static void read_strip(const struct coding *c, uint64_t first, size_t n)
{
    size_t unit = (size_t)dtype_bits(c->m->dtype) / 8;
    const char *data = c->m->data;
    float wide[STRIP];

    if (!c->turned) {
        dtype_to_f32(c->m->dtype, data + first * c->cols * unit, c->strip,
                     n * (size_t)c->cols);
        return;
    }
    for (uint64_t k = 0; k < c->cols; k++) {
        dtype_to_f32(c->m->dtype, data + (k * c->rows + first) * unit, wide, n);
        for (size_t j = 0; j < n; j++)
            c->strip[j * c->cols + k] = wide[j];
    }
}

static size_t strip_at(const struct coding *c, uint64_t first)
{
    return c->end - first < STRIP ? (size_t)(c->end - first) : STRIP;
}

static int find_largest(struct coding *c)
{
    for (uint64_t r = c->from; r < c->end; r += STRIP) {
        size_t n = strip_at(c, r);

        read_strip(c, r, n);
        for (size_t j = 0; j < n; j++) {
            float x = codes_largest(c->strip + j * c->cols, (size_t)c->cols);

            if (!isfinite(x))
                return err_set(&c->err, ERR_INPUT,
                               "tensor %s: NaN or an infinite number has no code",
                               c->name);
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

static int make_codes8(struct coding *c)
{
    float *scale = c->scales;
    int8_t *code = xmalloc((size_t)c->cols + 1);

    for (uint64_t r = c->from; r < c->end; r += STRIP) {
        size_t n = strip_at(c, r);

        read_strip(c, r, n);
        for (size_t j = 0; j < n; j++) {
            scale[r + j] = codes_scale8(c->largest[r + j]);
            codes_make8(code, c->strip + j * c->cols, (size_t)c->cols, scale[r + j]);
            codes_put8(c->codes, c->cols, r + j, code);
        }
    }
    free(code);
    return 0;
}

/* Row ROW, whose numbers are X. */
static int make_row4(struct coding *c, uint64_t row, const float *x)
{
    for (uint64_t b = 0; b < c->cols / CODES_BLOCK; b++, x += CODES_BLOCK) {
        int8_t code[CODES_BLOCK];
        uint16_t scale;

        if (!isfinite(codes_largest(x, CODES_BLOCK)))
            return err_set(&c->err, ERR_INPUT,
                           "tensor %s: NaN or an infinite number has no code", c->name);
        scale = codes_scale4(x, c->decoded);
        codes_make4(code, x, scale);
        codes_put4(c->codes, c->scales, c->cols, row, b, code, scale);
    }
    return 0;
}

static int make_codes4(struct coding *c)
{
    for (uint64_t r = c->from; r < c->end; r += STRIP) {
        size_t n = strip_at(c, r);

        read_strip(c, r, n);
        for (size_t j = 0; j < n; j++)
            if (make_row4(c, r + j, c->strip + j * c->cols) < 0)
                return -1;
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

/* ERR_NO unless RUNS, and the leaves of INST's tree, are whole blocks. */
static int check_blocks(const struct encoder *e, const struct inst *inst,
                        const struct runs *runs, const char *name, struct err *err)
{
    const struct sum_tree *t = inst->tree ? &e->program->tree[inst->tree - 1] : NULL;
    uint64_t odd = 0;

    for (size_t i = 0; i < runs->n && !odd; i++)
        odd = runs->v[i].start % CODES_BLOCK ? runs->v[i].start % CODES_BLOCK
                                             : runs->v[i].count % CODES_BLOCK;
    if (odd)
        return err_set(err, ERR_NO,
                       "tensor %s: this layout divides a block of %d inputs, which "
                       "share a scale in int4; try int8 or fewer ranks",
                       name, CODES_BLOCK);
    for (int i = 0; t && i < t->n; i++)
        if (t->leaf[i].cols % CODES_BLOCK)
            return err_set(err, ERR_NO,
                           "tensor %s: --deterministic sums %llu inputs at a time, "
                           "which are no whole blocks of %d, as int4 needs",
                           name, (unsigned long long)t->leaf[i].cols, CODES_BLOCK);
    return 0;
}

static int fill(const struct encoder *e, const struct inst *inst, struct coding *c,
                struct err *err)
{
    struct err own = { 0 };
    int ret;

    if (e->form == WEIGHTS_INT4)
        return share_work(c, make_codes4, e->threads, err);
    ret = share_work(c, find_largest, e->threads, &own);
    /* a rank that fails takes part all the same: the others must not wait for it */
    if (e->program->value[inst->dst].place == PLACE_PARTIAL &&
        share_largest(c, e->tensor, err) < 0)
        return -1;
    if (ret < 0) {
        *err = own;
        return -1;
    }
    return share_work(c, make_codes8, e->threads, err);
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

int encode_weight(const struct encoder *e, int i, const struct matrix *m,
                  const struct slice *slice, struct matrix *out, uint64_t *bytes,
                  struct err *err)
{
    size_t tensor = e->program->weight[i].tensor;
    bool turned = e->packable[tensor] == PACKABLE_COLS, four = e->form == WEIGHTS_INT4;
    struct coding c = { .m = m,
                        .name = e->program->model->tensor[tensor].name,
                        .turned = turned,
                        .decoded = e->decoded,
                        .rows = turned ? m->cols : m->rows,
                        .cols = turned ? m->rows : m->cols };
    int bits = four ? 4 : 8;
    uint64_t codes = codes_bytes(bits, c.rows, c.cols);
    uint64_t scales = codes_scale_bytes(bits, c.rows, c.cols);
    struct matrix to = { .dtype = four ? DTYPE_U8 : DTYPE_I8,
                         .rows = c.rows,
                         .cols = c.cols };
    void *data, *scale;
    int ret = -1, axis = turned ? slice->ndim - 2 : slice->ndim - 1;

    if (four && check_blocks(e, e->reader[i], slice->runs[axis], c.name, err) < 0)
        return -1;
    c.largest = mem_alloc((c.rows + 1) * sizeof(*c.largest), c.name, err);
    data = c.largest ? e->ops->alloc(e->device, codes, c.name, err) : NULL;
    scale = data ? e->ops->alloc(e->device, scales, c.name, err) : NULL;
    c.codes = open_host(e, data, codes, c.name, err);
    c.scales = open_host(e, scale, scales, c.name, err);
    if (c.codes && c.scales) {
        codes_clear(bits, c.codes, c.rows, c.cols);
        memset(c.scales, 0, scales);
        memset(c.largest, 0, c.rows * sizeof(*c.largest));
        ret = fill(e, e->reader[i], &c, err);
    }
    ret = close_host(e, data, c.codes, codes, ret, err);
    ret = close_host(e, scale, c.scales, scales, ret, err);
    free(c.largest);
    if (ret < 0) {
        e->ops->release(e->device, data);
        e->ops->release(e->device, scale);
        return -1;
    }
    to.data = data;
    to.scale = scale;
    *bytes = codes + scales;
    *out = to;
    return 0;
}

double encode_width(const struct matrix *m)
{
    int bits = m->dtype == DTYPE_I8 ? 8 : 4;

    if (m->dtype != DTYPE_I8 && m->dtype != DTYPE_U8)
        return (double)dtype_bits(m->dtype) / 8;
    return (double)(codes_bytes(bits, m->rows, m->cols) +
                    codes_scale_bytes(bits, m->rows, m->cols)) /
           (double)(m->rows * m->cols);
}
