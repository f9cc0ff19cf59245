/* unpack - the values of quantized weights */
#include "lib/reshard/unpack.h"

#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/codes.h"
#include "lib/base/ggml.h"
#include "lib/base/mem.h"
#include "lib/base/shares.h"

/* This shard of one of the tensors that store the weight. */
struct piece {
    const char *name;
    void *data; /* NULL: no such tensor */
    enum dtype dtype;
    int ndim;
    uint64_t dim[MODEL_MAX_DIMS];
    const struct axis *axis[MODEL_MAX_DIMS];
    const struct runs *runs[MODEL_MAX_DIMS];
    float byte[256]; /* values of the 256 bytes, for 8-bit types */
};

struct unpacker {
    const struct model_packing *p;
    const char *name;
    uint64_t rows, cols;
    struct piece part[PACKED_NROLES];
    uint64_t *row, *col; /* [rows], [cols]: indices in the whole weight */
    /* [rows], [cols]: indices in this shard's scales, zero points and values */
    uint64_t *scale_row, *scale_col, *zero_row, *zero_col, *value_row, *value_col;
    enum dtype to; /* of the result OUT */
    void *out;
};

/* ---- formats ---- */

/* Element (R, C) of a matrix, or R of a vector; element 0 of a scalar. */
static float number_at(const struct piece *p, uint64_t r, uint64_t c)
{
    uint64_t i = p->ndim == 2 ? r * p->dim[1] + c : p->ndim == 1 ? r : 0;

    switch (p->dtype) {
    case DTYPE_F32:
        return ((const float *)p->data)[i];
    case DTYPE_F16:
        return dtype_f16_to_f32(((const uint16_t *)p->data)[i]);
    case DTYPE_BF16:
        return dtype_bf16_to_f32(((const uint16_t *)p->data)[i]);
    default:
        return p->byte[((const uint8_t *)p->data)[i]];
    }
}

/* Field I, from the lowest bits, of word (R, C), in fields of BITS bits. */
static int value_at(const struct piece *p, uint64_t r, uint64_t c, unsigned i, int bits)
{
    uint32_t word = ((const uint32_t *)p->data)[r * p->dim[1] + c];

    return (int)(word >> (i * (unsigned)bits) & ((1U << bits) - 1));
}

/* How many columns from C on, of U's COLS, have the same place in AT. */
static uint64_t alike(const struct unpacker *u, const uint64_t *at, uint64_t c)
{
    uint64_t end = c + 1;

    while (end < u->cols && at[end] == at[c])
        end++;
    return end - c;
}

/* 8-bit values times a scale. */
static void scaled_row(const struct unpacker *u, uint64_t r, float *y)
{
    const struct piece *values = &u->part[PACKED_VALUES],
                       *scales = &u->part[PACKED_SCALES];
    const uint8_t *x = (const uint8_t *)values->data + r * u->cols;

    for (uint64_t c = 0, end; c < u->cols; c = end) {
        double scale = (double)number_at(scales, u->scale_row[r], u->scale_col[c]);

        for (end = c + alike(u, u->scale_col, c); c < end; c++)
            y[c] = (float)((double)values->byte[x[c]] * scale * u->p->scale);
    }
}

/* GPTQ: a word packs values of consecutive columns, or zero points of consecutive rows;
 * a group of columns has a scale and a zero point for each row.  The older format
 * stores zero points minus 1, and AutoGPTQ's kernels wrap on adding it: 2^bits - 1
 * stands for 0. */
static void gptq_row(const struct unpacker *u, uint64_t r, float *y)
{
    const struct piece *values = &u->part[PACKED_VALUES],
                       *scales = &u->part[PACKED_SCALES],
                       *zeros = &u->part[PACKED_ZEROS],
                       *groups = &u->part[PACKED_GROUPS];
    unsigned bits = (unsigned)u->p->bits, word = 32 / bits;

    for (uint64_t c = 0; c < u->cols; c++) {
        uint64_t g = groups->data ? (uint64_t)((const int32_t *)groups->data)[c]
                                  : u->scale_col[c];
        int q = value_at(values, u->value_col[c], u->value_row[r],
                         (unsigned)(u->col[c] % word), u->p->bits);
        int z = value_at(zeros, g, u->zero_row[r], (unsigned)(u->row[r] % word),
                         u->p->bits);

        z = (z + u->p->zero_less_one) & ((1 << bits) - 1);
        y[c] = (float)(q - z) * number_at(scales, g, u->scale_row[r]);
    }
}

/* AWQ: a word packs values of 8 rows, in the order 0 2 4 6 1 3 5 7. */
static void awq_row(const struct unpacker *u, uint64_t r, float *y)
{
    static const unsigned char at[] = { 0, 4, 1, 5, 2, 6, 3, 7 };
    const struct piece *values = &u->part[PACKED_VALUES],
                       *scales = &u->part[PACKED_SCALES],
                       *zeros = &u->part[PACKED_ZEROS];
    unsigned i = at[u->row[r] % 8];

    for (uint64_t c = 0; c < u->cols; c++) {
        uint64_t g = u->scale_col[c];
        int q = value_at(values, u->value_col[c], u->value_row[r], i, 4);
        int z = value_at(zeros, g, u->zero_row[r], i, 4);

        y[c] = (float)(q - z) * number_at(scales, g, u->scale_row[r]);
    }
}

/* compressed-tensors: a word packs values of consecutive columns, or zero points of
 * consecutive rows.  Without zero points the zero point is 2^(bits - 1). */
static void words_row(const struct unpacker *u, uint64_t r, float *y)
{
    const struct piece *values = &u->part[PACKED_VALUES],
                       *scales = &u->part[PACKED_SCALES],
                       *zeros = &u->part[PACKED_ZEROS];
    unsigned bits = (unsigned)u->p->bits, word = 32 / bits;

    for (uint64_t c = 0; c < u->cols; c++) {
        int q = value_at(values, u->value_row[r], u->value_col[c],
                         (unsigned)(u->col[c] % word), u->p->bits);
        int z = zeros->data ? value_at(zeros, u->zero_row[r], u->zero_col[c],
                                       (unsigned)(u->row[r] % word), u->p->bits)
                            : 1 << (bits - 1);

        y[c] = (float)(q - z) * number_at(scales, u->scale_row[r], u->scale_col[c]);
    }
}

/* FP4 (E2M1), the sign in the highest of 4 bits (OCP Microscaling Formats 1.0, 2023) */
static float fp4_value(int four)
{
    static const float value[] = { 0, 0.5F, 1, 1.5F, 2, 3, 4, 6 };

    return four & 8 ? -value[four & 7] : value[four & 7];
}

/* compressed-tensors' FP4: the first of two neighbours is in the lower half of a byte;
 * a group's scale is a power of two, or of FP8 and divided by the scale of all. */
static void fours_row(const struct unpacker *u, uint64_t r, float *y)
{
    const struct piece *values = &u->part[PACKED_VALUES],
                       *scales = &u->part[PACKED_SCALES],
                       *whole = &u->part[PACKED_WHOLE];
    const uint8_t *x = (const uint8_t *)values->data + u->value_row[r] * values->dim[1];
    float by = whole->data ? number_at(whole, 0, 0) : 1;

    for (uint64_t c = 0, end; c < u->cols; c = end) {
        float scale = number_at(scales, u->scale_row[r], u->scale_col[c]);

        if (scales->dtype == DTYPE_U8)
            scale = ldexpf(1, (int)scale - 127);
        scale /= by;
        for (end = c + alike(u, u->scale_col, c); c < end; c++)
            y[c] =
                fp4_value(x[u->value_col[c]] >> (u->col[c] % 2 ? 4 : 0) & 15) * scale;
    }
}

/* Our own 4 bits: a byte has the codes, plus 8, of two neighbours along the inputs. */
static void int4_row(const struct unpacker *u, uint64_t r, float *y)
{
    const struct piece *values = &u->part[PACKED_VALUES],
                       *scales = &u->part[PACKED_SCALES];
    bool rows = values->axis[0]->block == 2;
    const uint8_t *x = (const uint8_t *)values->data + u->value_row[r] * values->dim[1];

    for (uint64_t c = 0, end; c < u->cols; c = end) {
        float scale = number_at(scales, u->scale_row[r], u->scale_col[c]);

        for (end = c + alike(u, u->scale_col, c); c < end; c++) {
            int byte = x[u->value_col[c]];
            bool high = (rows ? u->row[r] : u->col[c]) & 1;

            y[c] = (float)((high ? byte >> 4 : byte & 15) - 8) * scale;
        }
    }
}

/* MXFP4: blocks of 32 FP4 (E2M1) values with a shared power-of-two scale (E8M0); even
 * values are in the low halves of the bytes (OCP Microscaling Formats 1.0, 2023). */
static void mxfp4_row(const struct unpacker *u, uint64_t r, float *y)
{
    uint64_t n = u->cols / 32;
    const uint8_t *block =
        (const uint8_t *)u->part[PACKED_VALUES].data + r * (u->cols / 2);
    const uint8_t *scale = (const uint8_t *)u->part[PACKED_SCALES].data + r * n;

    for (uint64_t i = 0; i < n; i++, block += 16)
        for (int k = 0; k < 32; k++) {
            int four = block[k / 2] >> (k % 2 ? 4 : 0) & 15;

            *y++ = ldexpf(fp4_value(four), scale[i] - 127);
        }
}

/* ggml's blocks: part [row][block][byte]. */
static void blocks_of_row(const struct unpacker *u, uint64_t r, float *y)
{
    const struct piece *values = &u->part[PACKED_VALUES];
    const struct ggml_row *of = u->p->blocks;
    const uint8_t *x =
        (const uint8_t *)values->data + u->value_row[r] * values->dim[1] * of->bytes;
    float block[GGML_MOST];

    for (uint64_t c = 0, end; c < u->cols; c = end) {
        of->widen(block, x + u->value_col[c] * of->bytes);
        for (end = c + alike(u, u->value_col, c); c < end; c++)
            y[c] = block[u->col[c] % of->numbers];
    }
}

static const struct form {
    void (*row)(const struct unpacker *u, uint64_t r, float *y);
    enum dtype values; /* type of the tensors other than scales; U8: the row function
                        * reads raw bytes */
    /* axes of {values, scales, zero points} along the weight's rows and columns */
    int out[3], in[3]; /* -1: none */
} forms[] = {
    [FORM_SCALED] = { scaled_row, DTYPE_I8, { 0, 0, -1 }, { 1, 1, -1 } },
    [FORM_GPTQ] = { gptq_row, DTYPE_I32, { 1, 1, 1 }, { 0, 0, 0 } },
    [FORM_AWQ] = { awq_row, DTYPE_I32, { 1, 1, 1 }, { 0, 0, 0 } },
    [FORM_WORDS] = { words_row, DTYPE_I32, { 0, 0, 0 }, { 1, 1, 1 } },
    [FORM_FOURS] = { fours_row, DTYPE_U8, { 0, 0, -1 }, { 1, 1, -1 } },
    [FORM_INT4] = { int4_row, DTYPE_U8, { 0, 0, -1 }, { 1, 1, -1 } },
    [FORM_MXFP4] = { mxfp4_row, DTYPE_U8, { -1, -1, -1 }, { -1, -1, -1 } },
    [FORM_BLOCKS] = { blocks_of_row, DTYPE_U8, { 0, -1, -1 }, { 1, -1, -1 } },
};

/* ---- reading the tensors ---- */

/* Reads this shard of tensor T to P. */
static int fetch(struct piece *p, struct loader *l, const struct checkpoint *c,
                 size_t t, struct err *err)
{
    const struct model_tensor *mt = &c->model->tensor[t];
    struct slice slice;
    uint64_t bytes = 0, expected = 1;

    loader_slice(l, t, &slice);
    if (slice.pad)
        return err_set(err, ERR_NO, "tensor %s: quantized tables cannot be padded",
                       mt->name);
    p->name = mt->name;
    p->dtype = c->tensor[mt->source].dtype;
    p->ndim = mt->ndim;
    for (int k = 0; k < mt->ndim; k++) {
        p->axis[k] = mt->axis[k];
        p->runs[k] = slice.runs[k];
        p->dim[k] = slice.runs[k]->count;
        if (!mem_mul(&expected, expected, p->dim[k]))
            return err_set(err, ERR_INPUT, "tensor %s: too large", mt->name);
    }
    if (loader_bytes(l, t, &bytes, err) < 0)
        return -1;
    if (!dtype_bytes(&expected, p->dtype, expected) || bytes != expected)
        return err_set(err, ERR_INPUT, "tensor %s: %llu bytes, expected %llu", mt->name,
                       (unsigned long long)bytes, (unsigned long long)expected);
    p->data = mem_alloc(bytes + 1, mt->name, err);
    if (!p->data || loader_read(l, t, p->data, err) < 0)
        return -1;
    for (int i = 0; dtype_bits(p->dtype) == 8 && i < 256; i++) {
        uint8_t b = (uint8_t)i;

        p->byte[i] = (float)dtype_get(p->dtype, &b, 0);
    }
    return 0;
}

static int wrong_type(const struct piece *p, struct err *err)
{
    return err_set(err, ERR_INPUT, "tensor %s: type %s is not supported here", p->name,
                   dtype_name(p->dtype));
}

static int check_types(const struct unpacker *u, struct err *err)
{
    for (int r = 0; r < PACKED_NROLES; r++) {
        const struct piece *p = &u->part[r];
        enum dtype t = p->dtype;
        bool right;

        if (!p->data)
            continue;
        if (r == PACKED_SCALES && u->p->form != FORM_MXFP4)
            right = t == DTYPE_F32 || t == DTYPE_F16 || t == DTYPE_BF16 ||
                    t == DTYPE_F8_E8M0 ||
                    (u->p->form == FORM_FOURS && (t == DTYPE_F8_E4M3 || t == DTYPE_U8));
        else if (r == PACKED_WHOLE)
            right = t == DTYPE_F32 || t == DTYPE_F16 || t == DTYPE_BF16;
        else if (r == PACKED_VALUES && u->p->form == FORM_SCALED)
            right = t == DTYPE_I8 || (dtype_is_float(t) && dtype_bits(t) == 8);
        else
            right = t == forms[u->p->form].values || r == PACKED_FORMAT;
        if (!right)
            return wrong_type(p, err);
    }
    return 0;
}

/* Each column's group number must be one of the scales' groups.  Only row order 0 is
 * supported. */
static int check_indices(const struct unpacker *u, struct err *err)
{
    const struct piece *groups = &u->part[PACKED_GROUPS],
                       *order = &u->part[PACKED_FORMAT];

    for (uint64_t c = 0; groups->data && c < u->cols; c++) {
        int32_t g = ((const int32_t *)groups->data)[c];

        if (g < 0 || (uint64_t)g >= u->part[PACKED_SCALES].dim[0])
            return err_set(err, ERR_INPUT, "tensor %s: there is no group %ld",
                           groups->name, (long)g);
    }
    if (order->data && dtype_get(order->dtype, order->data, 0) != 0)
        return err_set(err, ERR_INPUT, "tensor %s: this order of rows is not supported",
                       order->name);
    return 0;
}

static int check_scales(const struct unpacker *u, struct err *err)
{
    const struct piece *p = &u->part[PACKED_SCALES];
    uint64_t n = 1;

    for (int k = 0; k < p->ndim; k++)
        n *= p->dim[k];
    for (uint64_t i = 0; p->data && i < n; i++) { /* GGUF blocks hold theirs */
        double x = p->dtype == DTYPE_F8_E8M0 ? 1 : dtype_get(p->dtype, p->data, i);

        if (!isfinite(x) ||
            (u->p->form == FORM_FOURS && p->dtype == DTYPE_U8 && x >= 255))
            return err_set(err, ERR_INPUT, "tensor %s: a scale is not finite", p->name);
    }
    p = &u->part[PACKED_WHOLE];
    if (p->data && !(fabs(1 / (double)number_at(p, 0, 0)) <= FLT_MAX))
        return err_set(err, ERR_INPUT, "tensor %s: is %g, by which nothing is divided",
                       p->name, (double)number_at(p, 0, 0));
    return 0;
}

/* Indices of the elements of R in the whole axis. */
static uint64_t *whole_places(const struct runs *r)
{
    uint64_t *at = xmalloc((r->count + 1) * sizeof(*at)), n = 0;

    for (size_t i = 0; i < r->n; i++)
        for (uint64_t k = 0; k < r->v[i].count; k++)
            at[n++] = r->v[i].start + k;
    return at;
}

/* For each of the N indices AT in the whole axis: the index in this shard of its block
 * of axis K of P; 0 if P has no such axis.  NULL if the shard does not have one of the
 * blocks. */
static uint64_t *local_places(const struct piece *p, int k, const uint64_t *at,
                              uint64_t n)
{
    uint64_t *local = xcalloc(n + 1, sizeof(*local));

    if (k < 0 || k >= p->ndim || p->axis[k]->size == 1)
        return local;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t block = at[i] / p->axis[k]->block, before = 0;
        size_t j = 0;

        while (j < p->runs[k]->n &&
               (block < p->runs[k]->v[j].start ||
                block - p->runs[k]->v[j].start >= p->runs[k]->v[j].count))
            before += p->runs[k]->v[j++].count;
        if (j == p->runs[k]->n) {
            free(local);
            return NULL;
        }
        local[i] = before + block - p->runs[k]->v[j].start;
    }
    return local;
}

/* Finds the indices of the values, scales and zero points for each row and column. */
static int find_places(struct unpacker *u, struct loader *l, size_t t, struct err *err)
{
    uint64_t **row[] = { &u->value_row, &u->scale_row, &u->zero_row };
    uint64_t **col[] = { &u->value_col, &u->scale_col, &u->zero_col };
    const struct form *f = &forms[u->p->form];
    struct slice slice;

    if (u->p->form == FORM_MXFP4)
        return 0;
    loader_slice(l, t, &slice);
    u->row = whole_places(slice.runs[0]);
    u->col = whole_places(slice.runs[1]);
    for (int r = 0; r < 3; r++) {
        *row[r] = local_places(&u->part[r], f->out[r], u->row, u->rows);
        *col[r] = local_places(&u->part[r], f->in[r], u->col, u->cols);
        if (!*row[r] || !*col[r])
            return err_set(err, ERR_NO,
                           "tensor %s: the layout divides a quantization block",
                           u->part[r].name);
    }
    return 0;
}

/* ---- a weight ---- */

static void store(void *out, enum dtype to, uint64_t at, const float *x, uint64_t n)
{
    uint16_t *half = (uint16_t *)out + at;

    if (to == DTYPE_F32)
        memcpy((float *)out + at, x, n * sizeof(*x));
    else if (to == DTYPE_BF16)
        for (uint64_t i = 0; i < n; i++)
            half[i] = dtype_f32_to_bf16(x[i]);
    else
        for (uint64_t i = 0; i < n; i++)
            half[i] = dtype_f32_to_f16(x[i]);
}

/* Checks that the tensors have as many elements as the row function reads. */
static int check_sizes(const struct unpacker *u, const struct slice *s, struct err *err)
{
    const struct piece *v = &u->part[PACKED_VALUES], *x = &u->part[PACKED_SCALES];
    uint64_t have = 1, scales = 1, want;

    for (int k = 0; k < s->ndim; k++)
        if (!mem_mul(&have, have, s->runs[k]->count))
            return err_set(err, ERR_INPUT, "tensor %s: too large", u->name);
    if (!mem_mul(&want, u->rows, u->cols) || have != want)
        return err_set(err, ERR_INPUT, "tensor %s: %llu elements, expected %llu",
                       u->name, (unsigned long long)have, (unsigned long long)want);
    if (u->p->form != FORM_MXFP4)
        return s->ndim == 2 && (!want || s->runs[0]->count == u->rows)
                   ? 0
                   : err_set(err, ERR_INPUT, "tensor %s: not a matrix", u->name);
    have = 1;
    for (int k = 0; k < v->ndim; k++)
        have *= v->dim[k];
    for (int k = 0; k < x->ndim; k++)
        scales *= x->dim[k];
    return u->cols % 32 == 0 && have == want / 2 && scales == want / 32
               ? 0
               : err_set(err, ERR_INPUT, "tensor %s: %llu bytes for %llu values",
                         v->name, (unsigned long long)have, (unsigned long long)want);
}

static void clear(struct unpacker *u)
{
    for (int r = 0; r < PACKED_NROLES; r++)
        free(u->part[r].data);
    free(u->row);
    free(u->col);
    free(u->scale_row);
    free(u->scale_col);
    free(u->zero_row);
    free(u->zero_col);
    free(u->value_row);
    free(u->value_col);
}

/* Task: some rows. */
static void unpack_rows(void *arg, int share, uint64_t from, uint64_t end)
{
    const struct unpacker *u = arg;
    float *y = xmalloc((u->cols + 1) * sizeof(*y));

    (void)share;
    for (uint64_t r = from; r < end; r++) {
        forms[u->p->form].row(u, r, y);
        store(u->out, u->to, r * u->cols, y, u->cols);
    }
    free(y);
}

/* Reads the tensors of U's weight, shard of tensor T, and checks them; *FOUND: it has
 * any element. */
static int open_weight(struct unpacker *u, struct loader *l, const struct checkpoint *c,
                       size_t t, bool *found, struct err *err)
{
    const struct model_packing *p = u->p;
    struct slice slice;

    if (model_check_packing(c->model, t, p, err) < 0)
        return -1;
    for (int r = 0; r < PACKED_NROLES; r++) {
        long part = r == PACKED_VALUES && p->part[r] < 0 ? (long)t : p->part[r];

        if (part >= 0 && fetch(&u->part[r], l, c, (size_t)part, err) < 0)
            return -1;
    }
    loader_slice(l, t, &slice);
    if (check_types(u, err) < 0 || check_sizes(u, &slice, err) < 0)
        return -1;
    *found = u->rows && u->cols; /* a rank may have nothing of it */
    return *found && (check_indices(u, err) < 0 || check_scales(u, err) < 0 ||
                      find_places(u, l, t, err) < 0)
               ? -1
               : 0;
}

int unpack_weight(struct loader *l, const struct checkpoint *c, size_t t,
                  const struct model_packing *p, uint64_t rows, uint64_t cols,
                  enum dtype to, void *out, int threads, struct err *err)
{
    struct unpacker u = { .p = p,
                          .name = c->model->tensor[t].name,
                          .rows = rows,
                          .cols = cols,
                          .to = to,
                          .out = out };
    bool found;
    int ret = open_weight(&u, l, c, t, &found, err);

    if (ret == 0 && found)
        shares_run(rows, SHARES_LEAST / cols + 1, threads, unpack_rows, &u);
    clear(&u);
    return ret;
}

/* ---- codes that are kept ---- */

bool unpack_keeps(enum format *f, uint64_t *per, const struct model *m,
                  const enum dtype *stored, size_t t, const struct model_packing *p)
{
    long values = p->part[PACKED_VALUES] < 0 ? (long)t : p->part[PACKED_VALUES];
    const struct model_tensor *scales;

    *per = 0;
    if (p->form == FORM_MXFP4) {
        *f = FORMAT_MXFP4;
        return true;
    }
    if (p->form == FORM_FOURS && p->part[PACKED_WHOLE] < 0 &&
        p->part[PACKED_SCALES] >= 0) {
        scales = &m->tensor[p->part[PACKED_SCALES]];
        *f = FORMAT_MXFP4;
        return scales->ndim == 2 && scales->axis[1]->block == CODES_BLOCK &&
               stored[scales->source] == DTYPE_U8;
    }
    if (p->form != FORM_SCALED || p->part[PACKED_SCALES] < 0 ||
        m->tensor[values].source < 0)
        return false;
    scales = &m->tensor[p->part[PACKED_SCALES]];
    if (scales->ndim == 2 && scales->axis[1]->size > 1)
        *per = scales->axis[1]->block;
    for (int i = 0; i < FORMAT_COUNT; i++)
        if (format_table[i].put && format_table[i].scale == SCALE_OF_SOME &&
            format_table[i].type == stored[m->tensor[values].source]) {
            *f = (enum format)i;
            return *per % format_table[i].numbers == 0;
        }
    return false;
}

struct keeper {
    const struct unpacker *u;
    const struct format_codes *out;
    enum format f;
    atomic_bool wrong; /* a code is no number */
};

/* Row R of an 8-bit matrix. */
static bool keep_scaled(const struct keeper *k, uint64_t r,
                        const struct format_codes *to)
{
    const struct unpacker *u = k->u;
    const struct piece *scales = &u->part[PACKED_SCALES];
    uint64_t per = to->per ? to->per : u->cols, blocks = (u->cols + per - 1) / per;
    float *scale = xmalloc((blocks + 1) * sizeof(*scale));
    bool right;

    for (uint64_t b = 0; b < blocks; b++)
        scale[b] =
            (float)((double)number_at(scales, u->scale_row[r], u->scale_col[b * per]) *
                    u->p->scale);
    right = format_table[k->f].put(
        to, r, (const uint8_t *)u->part[PACKED_VALUES].data + r * u->cols, scale);
    free(scale);
    return right;
}

/* Row R of a matrix of FORM_FOURS whose scales are powers of two. */
static bool keep_fours(const struct keeper *k, uint64_t r,
                       const struct format_codes *to)
{
    const struct unpacker *u = k->u;
    const struct piece *values = &u->part[PACKED_VALUES],
                       *scales = &u->part[PACKED_SCALES];
    const uint8_t *from =
        (const uint8_t *)values->data + u->value_row[r] * values->dim[1];
    const uint8_t *power =
        (const uint8_t *)scales->data + u->scale_row[r] * scales->dim[1];
    uint8_t *code = xmalloc(u->cols + 1), *scale = xmalloc(u->cols / CODES_BLOCK + 1);
    bool right;

    for (uint64_t c = 0; c < u->cols; c++)
        code[c] = from[u->value_col[c]] >> (u->col[c] % 2 ? 4 : 0) & 15;
    for (uint64_t b = 0; b < u->cols / CODES_BLOCK; b++)
        scale[b] = power[u->scale_col[b * CODES_BLOCK]];
    right = format_table[k->f].put(to, r, code, scale);
    free(code);
    free(scale);
    return right;
}

/* Row R of all of a matrix of MXFP4, row ROW of TO: even values are in the low halves
 * of bytes. */
static bool keep_mxfp4(const struct keeper *k, uint64_t r,
                       const struct format_codes *to, uint64_t row)
{
    const struct unpacker *u = k->u;
    const uint8_t *from =
        (const uint8_t *)u->part[PACKED_VALUES].data + r * (u->cols / 2);
    uint8_t *code = xmalloc(u->cols + 1);
    bool right;

    for (uint64_t c = 0; c < u->cols; c++)
        code[c] = from[c / 2] >> (c % 2 ? 4 : 0) & 15;
    right = format_table[k->f].put(to, row, code,
                                   (const uint8_t *)u->part[PACKED_SCALES].data +
                                       r * (u->cols / 32));
    free(code);
    return right;
}

static void keep_rows(void *arg, int share, uint64_t from, uint64_t end)
{
    struct keeper *k = arg;

    (void)share;
    for (uint64_t r = from; r < end; r++) {
        const struct format_codes *to = &k->out[r / k->out->rows];
        uint64_t row = r % k->out->rows;
        bool right = k->u->p->form == FORM_MXFP4   ? keep_mxfp4(k, r, to, row)
                     : k->u->p->form == FORM_FOURS ? keep_fours(k, r, to)
                                                   : keep_scaled(k, r, to);

        if (!right)
            atomic_store(&k->wrong, true);
    }
}

/* Do the columns that share a scale lie side by side, PER of them? */
static bool has_whole_scales(const struct unpacker *u, uint64_t per)
{
    for (uint64_t c = 0; c < u->cols && u->scale_col; c++)
        if (u->scale_col[c] != u->scale_col[per ? c / per * per : 0])
            return false;
    return true;
}

int unpack_codes(const struct format_codes *out, size_t n, struct loader *l,
                 const struct checkpoint *c, size_t t, const struct model_packing *p,
                 enum format f, int threads, struct err *err)
{
    struct unpacker u = { .p = p,
                          .name = c->model->tensor[t].name,
                          .rows = out->rows * n,
                          .cols = out->cols };
    struct keeper k = { .u = &u, .out = out, .f = f };
    bool found;
    int ret = open_weight(&u, l, c, t, &found, err);

    if (ret == 0 && found &&
        !has_whole_scales(&u, p->form == FORM_FOURS ? CODES_BLOCK : out->per))
        ret = err_set(err, ERR_NO, "tensor %s: the layout divides a quantization block",
                      u.name);
    if (ret == 0 && found) {
        shares_run(u.rows, SHARES_LEAST / u.cols + 1, threads, keep_rows, &k);
        if (atomic_load(&k.wrong))
            ret =
                err_set(err, ERR_INPUT,
                        "tensor %s: a code of %s is NaN or infinite; --weights stored "
                        "computes with it",
                        u.name, format_name(f));
    }
    clear(&u);
    return ret;
}
