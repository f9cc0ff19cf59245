/* calls - the CUDA backend's kernel of each row of the table of operations
 *
 * Each function launches kernels for an instruction and its buffers.  What there is no
 * kernel for is written LACKS, and what a kernel does not take stands beside the
 * table. */
#include <stdlib.h>

#include "lib/base/mem.h"
#include "lib/gpu/back.h"
#include "lib/gpu/bounds.h"
#include "lib/gpu/blas.h"
#include "lib/gpu/cuda.h"
#include "lib/gpu/gpu.h"
#include "lib/gpu/gpuround.h"

/* ---- buffers ---- */

static struct span rows_of(const struct call *c, const struct buffer *b)
{
    const int32_t *sent = c->expert_rows + c->nexperts;

    if (c->expert_rows && b->rows == sent)
        return (struct span){ c->expert_rows, b->most, true };
    return (struct span){ b->rows, b->most, false };
}

static struct span result_rows(const struct call *c)
{
    return rows_of(c, &c->y);
}

static float *result(const struct call *c)
{
    return c->y.data;
}

static const float *source(const struct call *c, int k)
{
    return c->x[k].data;
}

static bool is_bf16(const struct buffer *b)
{
    return b->format == FORMAT_BF16;
}

static struct matrix weight_of(const struct matrix *w)
{
    return w ? *w : (struct matrix){ 0 };
}

/* Checks that the launches succeeded. */
static int launched(const struct device *d, const struct call *c, struct err *err)
{
    CUDA_TRY(d, cudaGetLastError(), op_table[c->inst->op].name, err);
    return 0;
}

static int run_kernel(struct device *d, const struct call *c, kernel *run,
                      struct err *err);

/* Begins the kernel of a row of the table. */
#define KERNEL(word)                                                                   \
    static int launch_##word(struct device *d, const struct call *c, struct err *err); \
    static int kernel_##word(struct device *d, const struct call *c, struct err *err)  \
    {                                                                                  \
        return run_kernel(d, c, launch_##word, err);                                   \
    }                                                                                  \
    static int launch_##word(struct device *d, const struct call *c, struct err *err)

/* ---- products and elementwise operations ---- */

static struct indices index_of(const struct call *c)
{
    const struct inst *inst = c->inst;
    const int32_t *x = c->step->input[inst->embedding.input];

    return (struct indices){
        .x = x + inst->embedding.column,
        .minus = inst->embedding.minus < 0 ? NULL : x + inst->embedding.minus,
        .cols = c->program->input[inst->embedding.input].feed->axis.size
    };
}

KERNEL(embedding)
{
    gpu_embedding(result(c), *c->w, index_of(c), result_rows(c),
                  c->inst->embedding.offset, c->inst->embedding.first, d->stream);
    return launched(d, c, err);
}

KERNEL(input)
{
    gpu_input(result(c), c->step->input[c->inst->input], result_rows(c), c->y.cols,
              d->stream);
    return launched(d, c, err);
}

/* The same by weights that are codes, which have a row for each output. */
static int coded_product(struct device *d, const struct call *c, struct err *err)
{
    size_t n = c->expert_rows ? c->nexperts : 1;
    struct coded p = { .y = c->y.data,
                       .x = c->x[0].data,
                       .format = c->w->format,
                       .in = c->w->cols,
                       .out = c->w->rows,
                       .per = c->w->per ? c->w->per : c->w->cols,
                       .rows = result_rows(c) };

    for (size_t first = 0; first < n; first += GPU_PRODUCTS) {
        p.n = (unsigned)(n - first < GPU_PRODUCTS ? n - first : GPU_PRODUCTS);
        p.rows.rows = result_rows(c).rows + first;
        for (size_t i = 0; i < p.n; i++) {
            p.w[i] = c->w[first + i].data;
            p.scale[i] = c->w[first + i].scale;
        }
        gpu_codes(p, d->stream);
    }
    return launched(d, c, err);
}

/* Memory for the parts of P's x, if skinny.cu wants it. */
static int take_parts(struct device *d, struct products *p, struct err *err)
{
    uint64_t bytes = gpu_is_skinny(p) ? gpu_skinny_parts(p) : 0;

    p->parts = bytes ? cuda_room(d, bytes, "parts of rows", err) : NULL;
    return bytes && !p->parts ? -1 : 0;
}

/* A product, or one for each expert. */
static int product(struct device *d, const struct call *c, bool plain, struct err *err)
{
    size_t n = c->expert_rows ? c->nexperts : 1;
    struct products p = { .y = c->y.data,
                          .x = c->x[0].data,
                          .format = c->w->format,
                          .in = plain ? c->w->rows : c->w->cols,
                          .out = plain ? c->w->cols : c->w->rows,
                          .w_stride = c->w->cols,
                          .rows = result_rows(c),
                          .each = c->y.most / n,
                          .plain = plain,
                          .rounded = c->program->rounded && (!plain || c->inst->back) &&
                                     c->w->format != FORMAT_F32,
                          .bf16 = is_bf16(&c->x[0]),
                          .cores = d->has_bf16 };
    int done;

    if (format_is_coded(c->w->format))
        return coded_product(d, c, err);
    p.x_stride = p.in;
    p.y_stride = p.out;
    for (size_t first = 0; first < n; first += GPU_PRODUCTS) {
        p.n = (unsigned)(n - first < GPU_PRODUCTS ? n - first : GPU_PRODUCTS);
        for (size_t i = 0; i < p.n; i++)
            p.w[i] = c->w[first + i].data;
        if (take_parts(d, &p, err) < 0)
            return -1;
        done = gpu_is_skinny(&p) ? 0 : blas_product(d, d->blas, &p, err);
        if (done < 0)
            return -1;
        if (!done)
            gpu_product(p, d->stream);
        p.rows.rows += p.n;
    }
    return launched(d, c, err);
}

KERNEL(linear)
{
    return product(d, c, false, err);
}

KERNEL(matmul)
{
    return product(d, c, true, err);
}

/* A product for each head, with its rows of one weight. */
static int head_product(struct device *d, const struct call *c, bool plain,
                        struct err *err)
{
    uint64_t in = c->inst->head.a, out = c->inst->head.b, heads = c->inst->head.count;
    uint64_t unit = (uint64_t)format_bits(c->w->format) / 8;
    struct products p = { .y = c->y.data,
                          .x = c->x[0].data,
                          .format = c->w->format,
                          .in = in,
                          .out = out,
                          .x_stride = heads * in,
                          .y_stride = heads * out,
                          .w_stride = c->w->cols,
                          .x_step = in,
                          .y_step = out,
                          .w_step = (plain ? in : out) * c->w->cols,
                          .rows = result_rows(c),
                          .n = (unsigned)heads,
                          .plain = plain,
                          .cores = d->has_bf16 };

    p.w[0] = (const char *)c->w->data + c->inst->head.row * c->w->cols * unit;
    if (take_parts(d, &p, err) < 0)
        return -1;
    gpu_product(p, d->stream);
    return launched(d, c, err);
}

KERNEL(head_linear)
{
    return head_product(d, c, false, err);
}

KERNEL(head_matmul)
{
    return head_product(d, c, true, err);
}

static int elementwise(struct device *d, const struct call *c, int what, double number,
                       double least, struct err *err)
{
    gpu_elementwise(what, result(c), source(c, 0), c->x[1].data, result_rows(c),
                    c->y.cols, (float)number, (float)least, d->stream);
    return launched(d, c, err);
}

static int elementwise_bf16(struct device *d, const struct call *c, int what,
                            struct err *err)
{
    gpu_elementwise_bf16(what, c->y.data, source(c, 0), c->x[1].data, result_rows(c),
                         c->y.cols, d->stream);
    return launched(d, c, err);
}

KERNEL(add)
{
    return elementwise(d, c, GPU_ADD, 0, 0, err);
}

KERNEL(mul)
{
    if (is_bf16(&c->y))
        return elementwise_bf16(d, c, GPU_MUL, err);
    return elementwise(d, c, GPU_MUL, 0, 0, err);
}

KERNEL(scale)
{
    return elementwise(d, c, GPU_SCALE, c->inst->scalar, 0, err);
}

KERNEL(softcap)
{
    return elementwise(d, c, GPU_SOFTCAP, c->inst->scalar, 0, err);
}

KERNEL(clip)
{
    return elementwise(d, c, GPU_CLIP, c->inst->clip.most, c->inst->clip.least, err);
}

KERNEL(activation)
{
    if (is_bf16(&c->y))
        return elementwise_bf16(d, c, GPU_ACTIVATION + c->inst->act, err);
    return elementwise(d, c, GPU_ACTIVATION + c->inst->act, 0, 0, err);
}

KERNEL(add_vector)
{
    struct span rows = result_rows(c);

    if (!c->expert_rows)
        gpu_add_vector(result(c), source(c, 0), *c->w, rows, d->stream);
    for (size_t e = 0; c->expert_rows && e < c->nexperts; e += GPU_PRODUCTS) {
        struct vectors w = { .format = c->w->format, .cols = c->w->cols };

        for (; w.n < GPU_PRODUCTS && e + w.n < c->nexperts; w.n++)
            w.v[w.n] = c->w[e + w.n].data;
        gpu_add_vectors(result(c), source(c, 0), w, rows, d->stream);
        rows.rows += w.n;
    }
    return launched(d, c, err);
}

KERNEL(mul_vector)
{
    gpu_mul_vector(result(c), source(c, 0), *c->w, result_rows(c), d->stream);
    return launched(d, c, err);
}

KERNEL(xielu)
{
    gpu_xielu(result(c), source(c, 0), *c->w, *c->w2, result_rows(c), c->y.cols,
              d->stream);
    return launched(d, c, err);
}

KERNEL(mul_rows)
{
    gpu_mul_rows(result(c), source(c, 0), source(c, 1) + c->inst->column, c->x[1].cols,
                 result_rows(c), c->y.cols, d->stream);
    return launched(d, c, err);
}

KERNEL(softmax)
{
    gpu_softmax(result(c), source(c, 0), result_rows(c), c->y.cols, d->stream);
    return launched(d, c, err);
}

/* ---- norms ---- */

static struct groups groups_of(const struct call *c, const struct buffer *rows)
{
    return (struct groups){ .rows = rows_of(c, rows),
                            .cols = c->x[0].cols,
                            .width = c->inst->norm.width,
                            .whole_width = (double)c->inst->norm.whole_width };
}

static struct norm_weights norm_weights_of(const struct call *c, bool centred)
{
    return (struct norm_weights){ .w = weight_of(c->w),
                                  .b = weight_of(c->w2),
                                  .eps = c->inst->norm.eps,
                                  .plus = c->inst->norm.plus_one,
                                  .centred = centred,
                                  .bf16 = is_bf16(&c->y) };
}

KERNEL(rmsnorm)
{
    gpu_norm(c->y.data, source(c, 0), groups_of(c, &c->y), norm_weights_of(c, false),
             d->stream);
    return launched(d, c, err);
}

KERNEL(layernorm)
{
    gpu_norm(c->y.data, source(c, 0), groups_of(c, &c->y), norm_weights_of(c, true),
             d->stream);
    return launched(d, c, err);
}

KERNEL(row_sum)
{
    gpu_group_sum(c->y.data, source(c, 0), NULL, false, c->inst->norm.owned,
                  groups_of(c, &c->y), d->stream);
    return launched(d, c, err);
}

KERNEL(row_squares)
{
    gpu_group_sum(c->y.data, source(c, 0), c->x[1].data, true, c->inst->norm.owned,
                  groups_of(c, &c->y), d->stream);
    return launched(d, c, err);
}

KERNEL(rms_apply)
{
    gpu_norm_apply(c->y.data, source(c, 0), c->x[1].data, NULL, groups_of(c, &c->y),
                   norm_weights_of(c, false), d->stream);
    return launched(d, c, err);
}

KERNEL(layer_apply)
{
    gpu_norm_apply(c->y.data, source(c, 0), c->x[1].data, c->x[2].data,
                   groups_of(c, &c->y), norm_weights_of(c, true), d->stream);
    return launched(d, c, err);
}

/* ---- positions ---- */

KERNEL(angles)
{
    const struct rope *r = &c->program->rope[c->inst->rope.table];
    struct angles a = { .inv_freq = r->inv_freq,
                        .long_freq = r->long_freq,
                        .half = r->dim / 2,
                        .context = r->dynamic || r->long_freq ? r->context : 0,
                        .scale = r->scale,
                        .theta = r->theta,
                        .factor = r->factor };

    gpu_angles(result(c), c->step->input[program_positions(c->program, c->inst)],
               c->step->length, a, result_rows(c), d->stream);
    return launched(d, c, err);
}

KERNEL(sinusoid)
{
    const struct rope *r = &c->program->rope[c->inst->rope.table];

    gpu_sinusoid(result(c), c->inst->nsrc ? source(c, 0) : NULL,
                 c->step->input[program_positions(c->program, c->inst)],
                 c->inst->rope.offset, r->inv_freq, r->dim / 2, result_rows(c),
                 d->stream);
    return launched(d, c, err);
}

KERNEL(temper)
{
    gpu_temper(result(c), source(c, 0),
               c->step->input[program_positions(c->program, c->inst)],
               c->inst->temper.step, c->inst->temper.amount, result_rows(c), c->y.cols,
               d->stream);
    return launched(d, c, err);
}

KERNEL(rope)
{
    const struct rope *r = &c->program->rope[c->inst->rope.table];

    gpu_rope(result(c), source(c, 0), source(c, 1), result_rows(c), c->y.cols,
             c->inst->rope.head, r->dim, r->interleaved, d->stream);
    return launched(d, c, err);
}

/* ---- the cache ---- */

/* The rows of B, which has COLS columns. */
static struct cached cached_of(const struct buffer *b, uint64_t cols)
{
    struct cached c = { .data = b->data,
                        .format = b->format,
                        .bytes = (uint32_t)format_row_bytes(b->format, cols, b->width),
                        .cols = (uint32_t)cols,
                        .per = 1 };

    if (format_table[b->format].axis == FORMAT_CACHED) {
        c.per = (uint32_t)b->width;
        c.codes = (uint32_t)(cols / b->width * format_table[b->format].scale_bytes);
    }
    return c;
}

KERNEL(keep)
{
    gpu_keep(cached_of(&c->y, c->x[0].cols), source(c, 0), c->range, d->stream);
    return launched(d, c, err);
}

KERNEL(cache_read)
{
    gpu_cache_read(result(c), cached_of(&c->x[0], c->x[0].cols), c->range, d->stream);
    return launched(d, c, err);
}

KERNEL(attention)
{
    const struct inst *inst = c->inst;
    struct attention a = { .shape = inst->attention.shape };
    struct cached k = cached_of(&c->x[1], a.kv_heads * a.head_dim);
    struct cached v = cached_of(&c->x[2], a.kv_heads * a.value_cols);
    uint64_t bytes;
    void *room = NULL;

    a.narrow = c->narrow && d->has_bf16;
    a.rounded = c->rounded;
    a.bf16 = is_bf16(&c->y);
    *(inst->attention.sinks ? &a.sinks : &a.bias) = weight_of(c->w);
    bytes = gpu_attention_room(c->y.data, source(c, 0), k, v, a, c->range);
    if (bytes) {
        room = cuda_room(d, bytes, "attention", err);
        if (!room)
            return -1;
    }
    gpu_attention(c->y.data, c->lse, source(c, 0), k, v, a, c->range, room, d->stream);
    return launched(d, c, err);
}

KERNEL(stream)
{
    const struct inst *inst = c->inst;
    struct attention a = { .heads = inst->attention.heads,
                           .kv_heads = inst->attention.heads,
                           .head_dim = inst->attention.head_dim,
                           .far = inst->attention.far,
                           .scale = inst->attention.scale,
                           .causal = true,
                           .bias = { .rows = inst->attention.span } };
    struct streams o = { .biases = source(c, 3) };

    if (inst->nsrc > 4) {
        o.own_k = source(c, 4);
        o.own_v = source(c, 5);
    }
    gpu_stream(result(c), source(c, 0), cached_of(&c->x[1], a.heads * a.head_dim),
               cached_of(&c->x[2], a.heads * a.head_dim), a, o, c->range, d->stream);
    return launched(d, c, err);
}

static struct pooled pooled_of(const struct pooled_text *p)
{
    return (struct pooled){ .times = p->times, .apart = p->apart, .cut = p->cut };
}

/* The texts of the rows of a space, and of value V. */
static struct texts texts_in(const struct call *c, int rows)
{
    return (struct texts){ c->step->first[rows], c->step->rows[ROWS_ONE],
                           c->step->rows[rows] };
}

static struct texts texts_of(const struct call *c, int v)
{
    return texts_in(c, c->program->value[v].rows);
}

KERNEL(relate)
{
    const struct inst *inst = c->inst;
    struct relation a = { .heads = inst->attention.heads,
                          .dim = inst->attention.head_dim,
                          .span = (int64_t)inst->attention.span,
                          .far = (int64_t)inst->attention.far,
                          .scale = inst->attention.scale };

    a.q_far = source(c, 0);
    a.as_key = source(c, 3);
    a.as_query = source(c, 4);
    a.queries = a.keys = a.tokens = texts_of(c, inst->dst);
    gpu_relate(result(c), source(c, 0), source(c, 1), source(c, 2), a, result_rows(c),
               d->stream);
    return launched(d, c, err);
}

KERNEL(relate_xl)
{
    const struct inst *inst = c->inst;
    struct relation a = { .heads = inst->attention.heads,
                          .dim = inst->attention.head_dim,
                          .span = (int64_t)inst->attention.span,
                          .scale = inst->attention.scale,
                          .q_far = source(c, 3),
                          .as_key = source(c, 4),
                          .types = weight_of(c->w),
                          .type = c->step->input[FEED_TOKEN_TYPES],
                          .queries = texts_of(c, inst->dst),
                          .keys = texts_of(c, inst->src[1]),
                          .tokens = texts_in(c, ROWS_TOKENS),
                          .pool = pooled_of(&inst->attention.pool),
                          .keys_pooled = inst->attention.keys_pooled,
                          .other_first = inst->attention.other_first,
                          .any_type = inst->attention.any_type };

    if (c->w)
        a.q_type = source(c, 5);
    gpu_relate(result(c), source(c, 0), source(c, 1), source(c, 2), a, result_rows(c),
               d->stream);
    return launched(d, c, err);
}

KERNEL(global_attention)
{
    const struct inst *inst = c->inst;
    struct globals a = { .heads = inst->attention.heads,
                         .dim = inst->attention.head_dim,
                         .window = (int64_t)inst->attention.window,
                         .scale = inst->attention.scale,
                         .q_all = source(c, 3),
                         .k_all = source(c, 4),
                         .v_all = source(c, 5),
                         .mask = c->step->input[inst->attention.mask],
                         .texts = texts_of(c, inst->dst) };

    gpu_global_attention(result(c), source(c, 0), source(c, 1), source(c, 2), a,
                         result_rows(c), d->stream);
    return launched(d, c, err);
}

KERNEL(side_attention)
{
    const struct inst *inst = c->inst;
    struct sides a = { .heads = inst->attention.heads,
                       .dim = inst->attention.head_dim,
                       .window = (int64_t)inst->attention.window,
                       .block = (int64_t)inst->attention.block,
                       .far = inst->attention.far,
                       .scale = inst->attention.scale,
                       .k = source(c, 3),
                       .v = source(c, 4),
                       .bias = weight_of(c->w),
                       .side = weight_of(c->w2),
                       .texts = texts_of(c, inst->dst),
                       .sides = texts_of(c, inst->src[3]) };

    gpu_side_attention(result(c), source(c, 0), source(c, 1), source(c, 2), a,
                       result_rows(c), d->stream);
    return launched(d, c, err);
}

/* ---- rows beside a row ---- */

KERNEL(block_sum)
{
    gpu_block_sum(result(c), source(c, 0), c->inst->block, texts_of(c, c->inst->src[0]),
                  texts_of(c, c->inst->dst), result_rows(c), c->y.cols, d->stream);
    return launched(d, c, err);
}

KERNEL(unfold)
{
    gpu_unfold(result(c), source(c, 0), texts_of(c, c->inst->src[0]),
               texts_of(c, c->inst->dst), result_rows(c), c->x[0].cols,
               c->inst->unfold.reach, c->inst->unfold.stride, c->inst->unfold.before,
               d->stream);
    return launched(d, c, err);
}

KERNEL(shift)
{
    gpu_shift(result(c), source(c, 0), c->inst->shift, texts_of(c, c->inst->dst),
              result_rows(c), c->y.cols, d->stream);
    return launched(d, c, err);
}

static int pool(struct device *d, const struct call *c, bool back, struct err *err)
{
    gpu_pool(result(c), source(c, 0), pooled_of(&c->inst->pool.at), c->inst->pool.most,
             back, texts_of(c, c->inst->src[0]), texts_of(c, c->inst->dst),
             result_rows(c), c->y.cols, d->stream);
    return launched(d, c, err);
}

KERNEL(pool)
{
    return pool(d, c, false, err);
}

KERNEL(unpool)
{
    return pool(d, c, true, err);
}

KERNEL(convolve)
{
    gpu_convolve(result(c), source(c, 0), *c->w, texts_of(c, c->inst->dst),
                 result_rows(c), c->y.cols, c->inst->taps.count, d->stream);
    return launched(d, c, err);
}

KERNEL(causal_convolve)
{
    gpu_causal_convolve(result(c), source(c, 0), *c->w, c->state, result_rows(c),
                        c->y.cols, c->inst->taps.count, d->stream);
    return launched(d, c, err);
}

KERNEL(dynamic)
{
    gpu_dynamic(result(c), source(c, 0), source(c, 1), texts_of(c, c->inst->dst),
                result_rows(c), c->inst->taps.heads, c->inst->taps.dim,
                c->inst->taps.count, d->stream);
    return launched(d, c, err);
}

KERNEL(merge)
{
    uint64_t heads = c->x[0].cols;

    gpu_merge(result(c), c->x[0].data, source(c, 1), source(c, 2), result_rows(c),
              heads, heads ? c->y.cols / heads : 0, d->stream);
    return launched(d, c, err);
}

/* ---- rows and columns ---- */

/* Copies N runs of columns from source 0; frees RUN. */
static int copy_columns(struct device *d, const struct call *c, struct column_run *run,
                        size_t n, struct err *err)
{
    gpu_copy_columns(c->y.data, c->x[0].data, is_bf16(&c->y), run, n, result_rows(c),
                     c->y.cols, d->stream);
    free(run);
    return launched(d, c, err);
}

/* Copies a part of the heads of each row, out of full rows or into them. */
static int copy_heads(struct device *d, const struct call *c, bool to_whole,
                      struct err *err)
{
    const struct head_part *h = &c->inst->heads;
    uint64_t count = h->within_count * h->dim;
    struct column_run *run = xcalloc(h->group_count + 1, sizeof(*run));

    for (uint64_t g = 0; g < h->group_count; g++) {
        uint64_t whole = ((h->group_start + g) * h->within + h->within_start) * h->dim;

        run[g] = (struct column_run){ .to = to_whole ? whole : g * count,
                                      .from = to_whole ? g * count : whole,
                                      .count = count,
                                      .from_cols =
                                          to_whole ? h->group_count * count
                                                   : h->groups * h->within * h->dim };
    }
    gpu_copy_columns(
        c->y.data, c->x[0].data, is_bf16(&c->y), run, h->group_count, result_rows(c),
        to_whole ? h->groups * h->within * h->dim : h->group_count * count, d->stream);
    free(run);
    return launched(d, c, err);
}

KERNEL(heads_pack)
{
    return copy_heads(d, c, false, err);
}

KERNEL(heads_unpack)
{
    return copy_heads(d, c, true, err);
}

KERNEL(concat)
{
    gpu_concat(result(c), source(c, 0), source(c, 1), result_rows(c),
               c->inst->head.count, c->inst->head.a, c->inst->head.b,
               c->inst->head.shared, d->stream);
    return launched(d, c, err);
}

/* y[t] = columns of x[row[t]] from FIRST on */
static int take_rows(struct device *d, const struct call *c, const int32_t *row,
                     uint64_t first, struct err *err)
{
    gpu_take_rows(c->y.data, c->x[0].data, is_bf16(&c->y), row, result_rows(c),
                  c->y.cols, c->x[0].cols, first, d->stream);
    return launched(d, c, err);
}

KERNEL(segment)
{
    return take_rows(d, c, NULL, c->inst->segment.first, err);
}

KERNEL(take)
{
    return take_rows(d, c, c->step->output, 0, err);
}

KERNEL(first)
{
    return take_rows(d, c, c->step->first[c->program->value[c->inst->src[0]].rows], 0,
                     err);
}

KERNEL(arrange)
{
    const struct gather *g = &c->program->gather[c->inst->gather.gather];
    struct column_run *run;
    uint64_t base = 0;
    size_t n = 0;

    for (int r = 0; r < g->parts; r++)
        n += g->runs[r].n;
    run = xcalloc(n + 1, sizeof(*run));
    n = 0;
    for (int r = 0; r < g->parts; r++) {
        uint64_t from = 0;

        for (size_t k = 0; k < g->runs[r].n; k++) {
            const struct run *v = &g->runs[r].v[k];

            if (v->owned)
                run[n++] = (struct column_run){ .to = v->start,
                                                .from = from,
                                                .count = v->count,
                                                .from_cols = g->runs[r].count,
                                                .base = base };
            from += v->count;
        }
        base += g->runs[r].count;
    }
    return copy_columns(d, c, run, n, err);
}

KERNEL(slice)
{
    const struct gather *g = &c->program->gather[c->inst->gather.gather];
    const struct runs *runs = &g->runs[c->program->coord[MESH_TP]];
    struct column_run *run = xcalloc(runs->n + 1, sizeof(*run));
    uint64_t to = 0;

    for (size_t k = 0; k < runs->n; k++) {
        run[k] = (struct column_run){ .to = to,
                                      .from = runs->v[k].start,
                                      .count = runs->v[k].count,
                                      .from_cols = c->x[0].cols };
        to += runs->v[k].count;
    }
    return copy_columns(d, c, run, runs->n, err);
}

/* ---- experts ---- */

static struct routing routing_of(const struct call *c)
{
    return (struct routing){ .top = c->inst->route.top,
                             .groups = c->inst->route.groups,
                             .of = c->inst->route.of,
                             .best = c->inst->route.best,
                             .scale = c->inst->route.scale,
                             .near = c->inst->route.near,
                             .renorm = c->inst->route.renorm,
                             .bias = weight_of(c->w) };
}

KERNEL(choose)
{
    gpu_choose(c->y.data, source(c, 0), routing_of(c), result_rows(c), c->x[0].cols,
               d->stream);
    return launched(d, c, err);
}

KERNEL(route)
{
    gpu_route(result(c), source(c, 0), c->x[1].data, routing_of(c), result_rows(c),
              c->y.cols, d->stream);
    return launched(d, c, err);
}

static uint64_t experts_of(const struct call *c)
{
    return c->program->mixture[c->inst->mixture].all;
}

KERNEL(expert_count)
{
    gpu_expert_count(c->y.data, c->x[0].data, rows_of(c, &c->x[0]), c->x[0].cols,
                     experts_of(c), d->stream);
    return launched(d, c, err);
}

KERNEL(expert_index)
{
    gpu_expert_index(c->y.data, c->x[0].data, c->x[1].data, rows_of(c, &c->x[0]),
                     c->x[0].cols, experts_of(c), d->stream);
    return launched(d, c, err);
}

KERNEL(expert_gather)
{
    return take_rows(d, c, c->x[1].data, 0, err);
}

KERNEL(expert_combine)
{
    gpu_expert_combine(result(c), source(c, 0), source(c, 1), c->x[2].data,
                       c->x[3].data, result_rows(c), c->y.cols, experts_of(c),
                       d->stream);
    return launched(d, c, err);
}

/* ---- results of rows ---- */

/* Number of ranks whose statistics are in source 0: four numbers each. */
static uint64_t parts_of(const struct call *c)
{
    return c->x[0].cols / 4;
}

KERNEL(row_stats)
{
    int kind = c->program->value[c->inst->dst].rows;
    uint64_t part = gpu_row_stats_part(c->y.most, c->x[0].cols);
    double *room = NULL;

    if (part) {
        room = cuda_room(d, part * sizeof(*room), "statistics of rows", err);
        if (!room)
            return -1;
    }
    gpu_row_stats(c->y.data, source(c, 0), c->step->target[kind], result_rows(c),
                  c->x[0].cols, c->inst->row.first, room, d->stream);
    return launched(d, c, err);
}

KERNEL(nll)
{
    gpu_nll(result(c), c->x[0].data, parts_of(c), result_rows(c), d->stream);
    return launched(d, c, err);
}

KERNEL(argmax)
{
    gpu_argmax(c->y.data, c->x[0].data, parts_of(c), result_rows(c), d->stream);
    return launched(d, c, err);
}

KERNEL(sample)
{
    gpu_sample(c->y.data, source(c, 0), c->step->draw, result_rows(c), c->x[0].cols,
               d->stream);
    return launched(d, c, err);
}

/* ---- gradients ---- */

/* Y = 0 */
static void clear(struct device *d, const struct buffer *y)
{
    struct array_call c = { .n = y->most * y->cols, .y = y->data };

    gpu_array(ARRAY_ZERO, c, d->stream);
}

static int elementwise_back(struct device *d, const struct call *c, int what,
                            double number, double least, struct err *err)
{
    gpu_elementwise_back(what, result(c), source(c, 0), source(c, 1), result_rows(c),
                         c->y.cols, (float)number, (float)least, d->stream);
    return launched(d, c, err);
}

KERNEL(activation_back)
{
    return elementwise_back(d, c, GPU_ACTIVATION + c->inst->act, 0, 0, err);
}

KERNEL(softcap_back)
{
    return elementwise_back(d, c, GPU_SOFTCAP, c->inst->scalar, 0, err);
}

KERNEL(clip_back)
{
    return elementwise_back(d, c, GPU_CLIP, c->inst->clip.most, c->inst->clip.least,
                            err);
}

KERNEL(softmax_back)
{
    gpu_softmax_back(result(c), source(c, 0), source(c, 1), result_rows(c), c->y.cols,
                     d->stream);
    return launched(d, c, err);
}

KERNEL(row_dot)
{
    gpu_row_dot(result(c), source(c, 0), source(c, 1), result_rows(c), c->x[0].cols,
                d->stream);
    return launched(d, c, err);
}

KERNEL(rope_back)
{
    const struct rope *r = &c->program->rope[c->inst->rope.table];

    gpu_rope_back(result(c), source(c, 0), source(c, 1), result_rows(c), c->y.cols,
                  c->inst->rope.head, r->dim, r->interleaved, d->stream);
    return launched(d, c, err);
}

KERNEL(segment_back)
{
    struct column_run run = { .to = c->inst->segment.first,
                              .count = c->x[0].cols,
                              .from_cols = c->x[0].cols };

    clear(d, &c->y);
    gpu_copy_columns(c->y.data, c->x[0].data, false, &run, 1, result_rows(c), c->y.cols,
                     d->stream);
    return launched(d, c, err);
}

KERNEL(first_back)
{
    clear(d, &c->y);
    gpu_put_rows(result(c), source(c, 0),
                 c->step->first[c->program->value[c->inst->dst].rows],
                 rows_of(c, &c->x[0]), c->y.cols, d->stream);
    return launched(d, c, err);
}

/* This rank's columns of full rows: out of them, but those of other owners, or into
 * them. */
static int copy_own(struct device *d, const struct call *c, bool to_whole,
                    struct err *err)
{
    const struct gather *g = &c->program->gather[c->inst->gather.gather];
    const struct runs *runs = &g->runs[c->program->coord[MESH_TP]];
    struct column_run *run = xcalloc(runs->n + 1, sizeof(*run));
    uint64_t at = 0;
    size_t n = 0;

    for (size_t k = 0; k < runs->n; at += runs->v[k++].count)
        if (to_whole || runs->v[k].owned)
            run[n++] = (struct column_run){ .to = to_whole ? runs->v[k].start : at,
                                            .from = to_whole ? at : runs->v[k].start,
                                            .count = runs->v[k].count,
                                            .from_cols = c->x[0].cols };
    clear(d, &c->y);
    return copy_columns(d, c, run, n, err);
}

KERNEL(slice_owned)
{
    return copy_own(d, c, false, err);
}

KERNEL(unslice)
{
    return copy_own(d, c, true, err);
}

/* Of a norm in the reverse: sources 0 and 1 are d and a. */
static struct groups back_groups(const struct call *c)
{
    struct groups g = groups_of(c, &c->x[0]);

    g.cols = c->x[1].cols;
    return g;
}

static struct norm_sums norm_sums_of(const struct call *c, int squares)
{
    struct norm_sums s = { .corrects = c->inst->norm.owned };

    if (squares && c->inst->nsrc > squares) {
        s.squares = c->x[squares].data;
        s.total = c->x[squares + 1].data;
    }
    return s;
}

KERNEL(norm_back)
{
    gpu_norm_back(result(c), source(c, 0), source(c, 1), back_groups(c),
                  norm_weights_of(c, c->inst->norm.centred), norm_sums_of(c, 0),
                  d->stream);
    return launched(d, c, err);
}

KERNEL(norm_terms)
{
    gpu_norm_terms(c->y.data, source(c, 0), source(c, 1), back_groups(c),
                   norm_weights_of(c, c->inst->norm.centred), norm_sums_of(c, 2),
                   d->stream);
    return launched(d, c, err);
}

KERNEL(norm_apply_back)
{
    struct norm_sums s = norm_sums_of(c, 3);

    s.terms = c->x[2].data;
    gpu_norm_back(result(c), source(c, 0), source(c, 1), back_groups(c),
                  norm_weights_of(c, c->inst->norm.centred), s, d->stream);
    return launched(d, c, err);
}

KERNEL(norm_weight)
{
    struct groups g = back_groups(c);
    double *room;

    if (!c->w->cols)
        return 0;
    room = cuda_room(
        d, gpu_sum_bytes(c->w->cols, g.rows.most * (g.cols / (g.width ? g.width : 1))),
        "sums of rows", err);
    if (!room)
        return -1;
    gpu_norm_weight(result(c), source(c, 0), source(c, 1), g,
                    norm_weights_of(c, c->inst->norm.centred), norm_sums_of(c, 2), room,
                    d->stream);
    return launched(d, c, err);
}

KERNEL(column_sum)
{
    uint64_t cols = c->w->rows * c->w->cols;
    double *room;

    if (!cols)
        return 0;
    room = cuda_room(d, gpu_sum_bytes(cols, 0), "sums of rows", err);
    if (!room)
        return -1;
    gpu_column_sum(result(c), source(c, 0), rows_of(c, &c->x[0]), cols,
                   c->x[0].cols / cols, room, d->stream);
    return launched(d, c, err);
}

KERNEL(embedding_back)
{
    struct table_rows r = { .index = index_of(c),
                            .offset = c->inst->embedding.offset,
                            .first = c->inst->embedding.first,
                            .padding = c->inst->embedding.padding,
                            .rows = c->w->rows };
    struct span rows = rows_of(c, &c->x[0]);
    int32_t *room = cuda_room(d, gpu_add_rows_bytes(rows.most), "rows of a table", err);

    if (!room)
        return -1;
    gpu_add_rows(result(c), source(c, 0), r, rows, c->w->cols, room, d->stream);
    return launched(d, c, err);
}

static int outer(struct device *d, const struct call *c, struct outer o,
                 struct err *err)
{
    int done;

    o.a = source(c, 0);
    o.b = source(c, 1);
    o.rows = rows_of(c, &c->x[0]);
    o.rounded = c->program->rounded;
    done = blas_outer(d, d->blas, &o, err);
    if (done < 0)
        return -1;
    if (!done)
        gpu_outer(o, d->stream);
    return launched(d, c, err);
}

KERNEL(outer)
{
    return outer(
        d, c,
        (struct outer){ .y = c->y.data, .m = c->w->rows, .n = c->w->cols, .heads = 1 },
        err);
}

KERNEL(head_outer)
{
    return outer(d, c,
                 (struct outer){ .y = result(c) + c->inst->head.row * c->w->cols,
                                 .m = c->inst->head.a,
                                 .n = c->inst->head.b,
                                 .heads = c->inst->head.count },
                 err);
}

KERNEL(attention_back)
{
    const struct inst *inst = c->inst;
    struct attention a = { .shape = inst->attention.shape };
    struct cached k = cached_of(&c->x[2], a.kv_heads * a.head_dim);
    struct cached v = cached_of(&c->x[3], a.kv_heads * a.value_cols);
    struct span rows = rows_of(c, &c->x[1]);
    uint64_t own;
    struct attention_back b = {
        .y = c->y.data,
        .cols = c->y.cols,
        .queries = inst->attention.gradients != GRADIENTS_KEYS,
        .keys = inst->attention.gradients != GRADIENTS_QUERIES,
        .d = source(c, 0),
        .q = source(c, 1),
        .k = source(c, 2),
        .v = source(c, 3),
        .key_rows = c->x[2].most,
    };
    float *made, *lse;
    char *room;

    a.narrow = c->narrow && d->has_bf16;
    a.rounded = c->rounded;
    *(inst->attention.sinks ? &a.sinks : &a.bias) = weight_of(c->w);
    own = gpu_attention_back_own(&a, rows.most, b.key_rows);
    b.k_at = b.queries ? a.heads * a.head_dim : 0;
    b.v_at = b.k_at + k.cols;
    b.sink_at = b.bias_at = b.keys ? b.v_at + v.cols : b.k_at;
    if (a.bias.data && b.queries && b.cols > b.bias_at)
        b.bias_cols = a.bias.cols;
    room = cuda_room(d, own + gpu_attention_room(NULL, b.q, k, v, a, c->range),
                     "attention", err);
    if (!room)
        return -1;
    made = (float *)(void *)room;
    lse = made + rows.most * a.heads * a.value_dim;
    b.made = made;
    b.lse = lse;
    b.delta = lse + rows.most * a.heads;
    if (gpu_is_back_cores(&a) &&
        !(((uintptr_t)b.q | (uintptr_t)b.k | (uintptr_t)b.v | (uintptr_t)b.d) % 16))
        b.rounded = room + gpu_attention_back_made(&a, rows.most);
    gpu_attention(made, lse, b.q, k, v, a, c->range, room + own, d->stream);
    gpu_attention_back(b, a, c->range, rows, d->stream);
    return launched(d, c, err);
}

static struct sent_rows sent_of(const struct call *c)
{
    const struct mixture *m = &c->program->mixture[c->inst->mixture];

    return (struct sent_rows){ .index = c->x[2].data,
                               .counts = c->x[3].data,
                               .all = m->all,
                               .first = m->first,
                               .count = (int32_t)m->count };
}

KERNEL(expert_spread)
{
    gpu_expert_spread(result(c), source(c, 0), source(c, 1), sent_of(c), result_rows(c),
                      c->y.cols, d->stream);
    return launched(d, c, err);
}

KERNEL(expert_dot)
{
    clear(d, &c->y);
    gpu_expert_dot(result(c), source(c, 0), source(c, 1), sent_of(c),
                   rows_of(c, &c->x[1]), c->x[0].cols, d->stream);
    return launched(d, c, err);
}

/* Rows of a token are added in their order. */
KERNEL(expert_scatter)
{
    struct table_rows r = { .index = { .x = c->x[1].data, .cols = 1 },
                            .padding = UINT64_MAX,
                            .rows = c->y.most };
    struct span rows = rows_of(c, &c->x[0]);
    int32_t *room = cuda_room(d, gpu_add_rows_bytes(rows.most), "rows of experts", err);

    if (!room)
        return -1;
    clear(d, &c->y);
    gpu_add_rows(result(c), source(c, 0), r, rows, c->y.cols, room, d->stream);
    return launched(d, c, err);
}

KERNEL(route_back)
{
    clear(d, &c->y);
    gpu_route_back(result(c), source(c, 0), source(c, 1), c->x[2].data, routing_of(c),
                   result_rows(c), c->y.cols, d->stream);
    return launched(d, c, err);
}

KERNEL(nll_back)
{
    const struct inst *inst = c->inst;
    const int kind = c->program->value[inst->src[1]].rows;
    struct likelihood n = { .target = c->step->target[kind],
                            .factor = &c->step->factor[FACTOR_NLL],
                            .weight = kind == ROWS_TOKENS ? c->step->weight : NULL,
                            .parts = parts_of(c),
                            .first = inst->row.first,
                            .smooth = (float)inst->row.smooth,
                            .each = inst->row.smooth > 0
                                        ? (float)(inst->row.smooth /
                                                  (double)inst->row.vocab)
                                        : 0 };

    gpu_nll_back(result(c), c->x[0].data, source(c, 1), n, result_rows(c), c->y.cols,
                 d->stream);
    return launched(d, c, err);
}

/* ---- the table ---- */

/* Runs KERNEL for each expert, with its weights, on the rows that it gets. */
static int by_expert(struct device *d, const struct call *c, kernel *run,
                     struct err *err)
{
    for (size_t e = 0; e < c->nexperts; e++) {
        struct call one = *c;

        one.expert_rows = c->expert_rows + e;
        one.nexperts = 1;
        for (int k = 0; k < c->inst->nsrc; k++)
            if (c->x[k].rows == c->expert_rows + c->nexperts)
                one.x[k].rows = one.expert_rows + 1;
        if (c->y.rows == c->expert_rows + c->nexperts)
            one.y.rows = one.expert_rows + 1;
        else /* the gradient of its weight */
            one.y.data = (float *)c->y.data + e * c->y.cols;
        one.w += c->inst->weight >= 0 ? e : 0;
        one.w2 += c->inst->weight2 >= 0 ? e : 0;
        if (run(d, &one, err) < 0)
            return -1;
    }
    return 0;
}

/* Runs KERNEL, once or for each expert, and reports to blas what it writes. */
static int run_kernel(struct device *d, const struct call *c, kernel *run,
                      struct err *err)
{
    bool once = c->inst->op == OP_LINEAR || c->inst->op == OP_MATMUL ||
                c->inst->op == OP_ADD_VECTOR;
    int ret = c->expert_rows && !once ? by_expert(d, c, run, err) : run(d, c, err);

    if (c->lse || c->inst->op == OP_KEEP)
        blas_forget(d->blas);
    blas_wrote(d->blas, c->y.data,
               c->y.most * c->y.cols * (uint64_t)format_bits(c->y.format) / 8);
    return ret;
}

/* ---- fused operations ---- */

/* Reports to blas what the launches of RUN write. */
static int run_fused(struct device *d, const struct call *c, kernel *run,
                     struct err *err)
{
    int ret = run(d, c, err);

    for (int i = 0; i < c->nparts; i++) {
        const struct buffer *y = &c->part[i].y;

        if (c->part[i].inst->op == OP_KEEP)
            blas_forget(d->blas);
        else if (y->data)
            blas_wrote(d->blas, y->data,
                       y->most * y->cols * (uint64_t)format_bits(y->format) / 8);
    }
    return ret;
}

/* Begins the kernel of a fused row of the table. */
#define FUSED_KERNEL(word)                                                             \
    static int launch_##word(struct device *d, const struct call *c, struct err *err); \
    static int kernel_##word(struct device *d, const struct call *c, struct err *err)  \
    {                                                                                  \
        return run_fused(d, c, launch_##word, err);                                    \
    }                                                                                  \
    static int launch_##word(struct device *d, const struct call *c, struct err *err)

/* The part that reads the value V; NULL: none does. */
static const struct call *part_reading(const struct call *c, int v)
{
    for (int i = 0; i < c->nparts; i++)
        if (c->part[i].inst->src[0] == v)
            return &c->part[i];
    return NULL;
}

/* A product among the parts, the bias that is added to it or NULL, and the result. */
struct biased {
    const struct call *product, *bias;
    float *y;
};

/* Each by itself. */
static int separate_products(struct device *d, const struct biased *b, int n,
                             struct err *err)
{
    for (int i = 0; i < n; i++) {
        struct call one = *b[i].product;

        one.y.data = b[i].y;
        if (kernel_linear(d, &one, err) < 0)
            return -1;
        if (!b[i].bias)
            continue;
        one = *b[i].bias;
        one.x[0].data = one.y.data = b[i].y;
        if (kernel_add_vector(d, &one, err) < 0)
            return -1;
    }
    return 0;
}

/* In one launch, where one kernel takes them all. */
static int joined_products(struct device *d, const struct biased *b, int n,
                           struct err *err)
{
    struct products p = { .x = b[0].product->x[0].data,
                          .format = b[0].product->w->format,
                          .in = b[0].product->w->cols,
                          .rows = result_rows(b[0].product),
                          .rounded = b[0].product->program->rounded,
                          .bf16 = is_bf16(&b[0].product->x[0]),
                          .cores = d->has_bf16 };
    bool alike = true;

    p.x_stride = p.w_stride = p.in;
    for (int i = 0; i < n; i++) {
        const struct matrix *w = b[i].product->w,
                            *bias = b[i].bias ? b[i].bias->w : NULL;

        p.n = 1;
        p.w[0] = w->data;
        p.out = w->rows;
        alike = alike && !b[i].product->expert_rows && w->format == p.format &&
                !format_is_coded(w->format) && w->rows && gpu_is_skinny(&p);
        p.joined[i] =
            (struct joined){ .y = b[i].y,
                             .out = w->rows,
                             .bias = bias ? bias->data : NULL,
                             .bias_format = bias ? bias->format : FORMAT_F32 };
    }
    if (!alike)
        return separate_products(d, b, n, err);
    p.n = (unsigned)n;
    for (int i = 0; i < n; i++) {
        p.w[i] = b[i].product->w->data;
        p.out = p.joined[i].out > p.out ? p.joined[i].out : p.out;
    }
    if (take_parts(d, &p, err) < 0)
        return -1;
    gpu_skinny(p, d->stream);
    return launched(d, b[0].product, err);
}

/* The products of C, in order. */
static int products_of(const struct call *c, struct biased b[GPU_JOINED])
{
    int n = 0;

    for (int i = 0; i < c->nparts; i++)
        if (c->part[i].inst->op == OP_LINEAR) {
            const struct call *reader = part_reading(c, c->part[i].inst->dst);
            bool biased = reader && reader->inst->op == OP_ADD_VECTOR;

            b[n++] = (struct biased){ &c->part[i], biased ? reader : NULL,
                                      (biased ? reader : &c->part[i])->y.data };
        }
    return n;
}

FUSED_KERNEL(linears)
{
    struct biased b[GPU_JOINED];

    return joined_products(d, b, products_of(c, b), err);
}

/* The gate and the other factor, and what combines them: where the result is bf16, the
 * other factor has no room in it. */
FUSED_KERNEL(gated_linear)
{
    const struct call *act = NULL, *mul = &c->part[c->nparts - 1];
    const uint64_t numbers = mul->y.most * mul->y.cols;
    const bool bf16 = is_bf16(&mul->y);
    struct biased b[GPU_JOINED];
    int n = products_of(c, b);
    /* the parts of x are at the beginning of the same room */
    const uint64_t before = GPU_SKINNY * b[0].product->x[0].cols;
    float *room = cuda_room(d, (before + numbers * (bf16 ? 2 : 1)) * sizeof(*room),
                            "the gate of a product", err);
    float *other;

    if (!room)
        return -1;
    room += before;
    other = bf16 ? room + numbers : mul->y.data;
    for (int i = 0; i < n; i++) {
        int made = b[i].bias ? b[i].bias->inst->dst : b[i].product->inst->dst;
        const struct call *reader = part_reading(c, made);
        bool gate = reader && reader->inst->op == OP_ACTIVATION;

        b[i].y = gate ? room : other;
        act = gate ? reader : act;
    }
    if (joined_products(d, b, n, err) < 0)
        return -1;
    gpu_gate(mul->y.data, bf16, room, other, (int)act->inst->act, result_rows(mul),
             mul->y.cols, d->stream);
    return launched(d, c, err);
}

FUSED_KERNEL(add_norm)
{
    const struct call *add = &c->part[0], *norm = &c->part[1];

    gpu_add_norm(norm->y.data, result(add), source(add, 0), source(add, 1),
                 groups_of(norm, &norm->y),
                 norm_weights_of(norm, norm->inst->op == OP_LAYERNORM), d->stream);
    return launched(d, c, err);
}

static struct rotated rotated_by(const struct call *rope, void *to)
{
    const struct rope *r = &rope->program->rope[rope->inst->rope.table];

    return (struct rotated){ .x = source(rope, 0),
                             .y = to,
                             .cols = rope->y.cols,
                             .head = rope->inst->rope.head,
                             .dim = r->dim,
                             .interleaved = r->interleaved };
}

FUSED_KERNEL(rope_keep)
{
    struct rotated q = { 0 }, k = { 0 }, v = { 0 };
    struct ranges of_k = { 0 }, of_v = { 0 };
    const float *angles = NULL;
    struct span rows = { 0 };

    for (int i = 0; i < c->nparts; i++) {
        const struct call *part = &c->part[i], *keep = part_reading(c, part->inst->dst);

        if (part->inst->op == OP_ROPE) {
            angles = source(part, 1);
            rows = result_rows(part);
            if (keep) {
                k = rotated_by(part, keep->y.data);
                of_k = keep->range;
            } else {
                q = rotated_by(part, part->y.data);
            }
        } else if (part->x[0].data) { /* not of the rotated keys */
            v = (struct rotated){ .x = source(part, 0),
                                  .y = part->y.data,
                                  .cols = part->x[0].cols,
                                  .head = part->x[0].cols };
            of_v = part->range;
        }
    }
    gpu_rope_keep(q, k, v, angles, rows, of_k, of_v, d->stream);
    return launched(d, c, err);
}

/* models with scans run on CPUs */
#define kernel_scan LACKS(scan)

/* for training */
#define kernel_dropout          LACKS(dropout)
#define kernel_xielu_weight     LACKS(xielu_weight)
#define kernel_xielu_back       LACKS(xielu_back)
#define kernel_router_sums      LACKS(router_sums)
#define kernel_router_sums_back LACKS(router_sums_back)
#define kernel_router_load      LACKS(router_load)
#define kernel_balance          LACKS(balance)
#define kernel_balance_back     LACKS(balance_back)

#define DEVICE(word)           kernel_##word
#define FUSED(word)            kernel_##word
#define COMM(word)             NULL
#define ROW(id, word, on, ...) [OP_##id] = on(word),
kernel *const cuda_kernels[OP_COUNT] = { OPS(ROW) };
#undef ROW

/* ---- arrays ---- */

#define ROW(id, word)                                                     \
    static int array_##word(struct device *d, const struct array_call *c, \
                            struct err *err)                              \
    {                                                                     \
        gpu_array(ARRAY_##id, *c, d->stream);                             \
        CUDA_TRY(d, cudaGetLastError(), array_names[ARRAY_##id], err);    \
        return 0;                                                         \
    }
ARRAY_OPS(ROW)
#undef ROW

#define ROW(id, word) [ARRAY_##id] = array_##word,
array_kernel *const cuda_arrays[ARRAY_COUNT] = { ARRAY_OPS(ROW) };
#undef ROW

int cuda_round(struct device *d, const struct rounding *r, struct err *err)
{
    gpu_round(*r, d->stream);
    CUDA_TRY(d, cudaGetLastError(), "rounding", err);
    return 0;
}

/* ---- what a kernel does not take ---- */

/* Only the CPU sums by a tree. */
static int fits_tree(const struct device_request *r, int tree, struct err *err)
{
    return tree ? err_set(err, ERR_NO,
                          "no kernel for %s with the same bits on all layouts "
                          "(--deterministic)",
                          op_table[r->inst->op].name)
                : 0;
}

static int fits_product(const struct device_request *r, struct err *err)
{
    return fits_tree(r, r->inst->tree, err);
}

static int fits_groups(const struct device_request *r, struct err *err)
{
    return r->inst->norm.groups
               ? err_set(err, ERR_NO, "no kernel for %s of groups on several ranks",
                         op_table[r->inst->op].name)
               : 0;
}

static int fits_row_sum(const struct device_request *r, struct err *err)
{
    if (fits_groups(r, err) < 0)
        return -1;
    return fits_tree(r, r->inst->norm.tree, err);
}

static int fits_columns(const struct device_request *r, uint64_t dim, struct err *err)
{
    return dim <= GPU_VALUE_DIM
               ? 0
               : err_set(err, ERR_NO,
                         "no kernel for %s over heads of %llu columns, only of %d",
                         op_table[r->inst->op].name, (unsigned long long)dim,
                         GPU_VALUE_DIM);
}

static int fits_heads(const struct device_request *r, struct err *err)
{
    return fits_columns(r, r->inst->attention.head_dim, err);
}

static int fits_attention(const struct device_request *r, struct err *err)
{
    if (r->inst->attention.drop > 0)
        return err_set(err, ERR_NO, "no kernel for attention with dropout");
    return fits_heads(r, err) < 0 ? -1
                                  : fits_columns(r, r->inst->attention.value_dim, err);
}

/* Texts that are read in blocks train on CPUs. */
static int fits_attention_back(const struct device_request *r, struct err *err)
{
    if (r->inst->attention.over)
        return err_set(err, ERR_NO, "no kernel for attention_back in blocks of keys");
    return fits_attention(r, err);
}

static int fits_outer(const struct device_request *r, struct err *err)
{
    if (r->program->half)
        return err_set(err, ERR_NO, "no kernel for %s with --compute f16",
                       op_table[r->inst->op].name);
    return fits_tree(r, r->program->deterministic, err);
}

static int fits_route_back(const struct device_request *r, struct err *err)
{
    return r->inst->route.near > 0
               ? err_set(err, ERR_NO, "no kernel for route_back of SparseMixer")
               : 0;
}

static int fits_nll(const struct device_request *r, struct err *err)
{
    return r->inst->row.smooth > 0
               ? err_set(err, ERR_NO, "no kernel for nll with label smoothing")
               : 0;
}

static int fits_choose(const struct device_request *r, struct err *err)
{
    uint64_t experts = r->program->value[r->inst->src[0]].cols;

    return experts <= GPU_EXPERTS
               ? 0
               : err_set(err, ERR_NO,
                         "no kernel for choose of %llu experts, only of %d",
                         (unsigned long long)experts, GPU_EXPERTS);
}

enum {
    CODED = 1 << FORMAT_F32 | 1 << FORMAT_BF16 | 1 << FORMAT_F16 | 1 << FORMAT_INT8 |
            1 << FORMAT_INT4 | 1 << FORMAT_E4M3 | 1 << FORMAT_E5M2 | 1 << FORMAT_MXFP4,
    CACHES = 1 << FORMAT_F32 | 1 << FORMAT_BF16 | 1 << FORMAT_CACHE_INT8 |
             1 << FORMAT_CACHE_FP8 | 1 << FORMAT_CACHE_INT4,
};

const struct kernel_limits cuda_limits[OP_COUNT] = {
    [OP_KEEP] = { .cache = CACHES },
    [OP_CACHE_READ] = { .cache = CACHES },
    [OP_LINEAR] = { .weight = CODED, .fits = fits_product },
    [OP_MATMUL] = { .weight = CODED, .fits = fits_product },
    [OP_LINEARS] = { .weight = CODED },
    [OP_GATED_LINEAR] = { .weight = CODED },
    [OP_ROW_SUM] = { .fits = fits_row_sum },
    [OP_ROW_SQUARES] = { .fits = fits_row_sum },
    [OP_RMS_APPLY] = { .fits = fits_groups },
    [OP_ATTENTION] = { .cache = CACHES, .fits = fits_attention },
    [OP_ATTENTION_BACK] = { .fits = fits_attention_back },
    [OP_OUTER] = { .fits = fits_outer },
    [OP_HEAD_OUTER] = { .fits = fits_outer },
    [OP_NLL] = { .fits = fits_nll },
    [OP_ROUTE_BACK] = { .fits = fits_route_back },
    [OP_STREAM] = { .cache = CACHES, .fits = fits_heads },
    [OP_RELATE] = { .fits = fits_heads },
    [OP_RELATE_XL] = { .fits = fits_heads },
    [OP_GLOBAL_ATTENTION] = { .fits = fits_heads },
    [OP_SIDE_ATTENTION] = { .fits = fits_heads },
    [OP_CHOOSE] = { .fits = fits_choose },
};
