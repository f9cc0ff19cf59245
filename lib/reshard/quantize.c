/* quantize - writes a Hugging Face directory in 8 or 4 bits, and back */
#include "lib/reshard/quantize.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/ggml.h"
#include "lib/base/codes.h"
#include "lib/base/fs.h"
#include "lib/base/hash.h"
#include "lib/base/jsonlex.h"
#include "lib/base/mem.h"
#include "lib/ckpt/outdir.h"
#include "lib/ckpt/safetensors.h"
#include "lib/model/quant.h"
#include "lib/reshard/smallfile.h"

static const char FILE_NAME[] = "model.safetensors";

enum { STRIP_BYTES = 4 << 20 };

/* What is written of a tensor of the input. */
enum how { COPY, CODES, SCALES, PLAIN };

struct item {
    char *name;
    enum how how;
    size_t from;                   /* tensor of the input: of SCALES, of the matrix */
    size_t scales;                 /* of PLAIN: those of the input */
    bool cols;                     /* of CODES and PLAIN: outputs are columns */
    const struct ggml_row *blocks; /* of PLAIN: in which the input has them, or NULL */
    enum dtype dtype;
    int ndim;
    uint64_t shape[TENSOR_MAX_DIMS], bytes, offset;
};

struct writer {
    struct checkpoint *c;
    const struct convert_options *opt;
    struct convert_result *result;
    struct outdir out;
    struct cut *cut;
    char *path;
    int fd;
    struct item *item;
    size_t n, cap;
    uint64_t header; /* bytes */
    int bits;
    /* the matrix at work */
    const struct tensor *t;
    bool cols; /* outputs are columns */
    const struct item *codes, *scales, *plain;
    float *scale;                                /* of all columns, and when reading */
    float *wide;                                 /* the numbers of a strip */
    float *strip_scale;                          /* the scales of a strip's codes */
    uint8_t *strip;                              /* bytes of rows that came */
    uint64_t row_bytes, strip_rows, have, first; /* bytes of them; rows before them */
    int (*work)(struct writer *w, uint64_t rows, struct err *err);
};

/* ---- streams of rows ---- */

static int put(struct writer *w, const struct item *i, uint64_t at, const void *data,
               uint64_t n, struct err *err)
{
    w->result->bytes += n;
    return fs_pwrite(w->fd, data, (size_t)n, w->header + i->offset + at, w->path, err);
}

/* Changes the N bytes at AT of I, which is no code, if that is asked for. */
static int change(struct writer *w, const struct item *i, uint64_t at, void *data,
                  uint64_t n, struct err *err)
{
    const struct convert_change *c = w->opt->change;

    return c ? c->add(c->arg, i->name, i->dtype, at, data, (size_t)n, err) : 0;
}

/* Called with the bytes of a tensor in their order. */
static int take(void *arg, int part, uint64_t offset, void *buf, size_t n,
                struct err *err)
{
    struct writer *w = arg;
    const char *from = buf;

    (void)part;
    (void)offset;
    while (n) {
        uint64_t room = w->strip_rows * w->row_bytes - w->have;
        size_t some = n < room ? n : (size_t)room;

        memcpy(w->strip + w->have, from, some);
        w->have += some;
        from += some;
        n -= some;
        if (w->have < w->strip_rows * w->row_bytes)
            continue;
        if (w->work(w, w->strip_rows, err) < 0)
            return -1;
        w->first += w->strip_rows;
        w->have = 0;
    }
    return 0;
}

/* Frees the buffers of a strip. */
static void clear_strip(struct writer *w)
{
    free(w->strip);
    free(w->wide);
    free(w->strip_scale);
    w->strip = NULL;
    w->wide = w->strip_scale = NULL;
}

/* Streams tensor T of the input, the matrix at work, through WORK: strips of a
 * multiple of LEAST_ROWS rows.  WIDE has room for NUMBERS numbers of each row. */
static int stream(struct writer *w, size_t t, uint64_t least_rows, uint64_t numbers,
                  int (*work)(struct writer *w, uint64_t rows, struct err *err),
                  struct err *err)
{
    const struct cut_side to = { .nparts = 1, .io = take, .arg = w };
    const char *what = w->t->name;
    uint64_t rows, row_bytes = w->t->shape[1] * (uint64_t)dtype_bits(w->t->dtype) / 8;

    if (w->t->ndim == 3)
        row_bytes *= w->t->shape[2];
    rows = row_bytes < STRIP_BYTES ? STRIP_BYTES / row_bytes : 1;
    if (rows > w->t->shape[0])
        rows = w->t->shape[0];
    rows = (rows + least_rows - 1) / least_rows * least_rows;
    w->row_bytes = row_bytes;
    w->strip_rows = rows;
    w->have = w->first = 0;
    w->work = work;
    clear_strip(w);
    w->strip = mem_alloc(rows * row_bytes + 1, what, err);
    w->wide = mem_alloc(rows * numbers * sizeof(float) + 1, what, err);
    w->strip_scale =
        mem_alloc(rows * (numbers / CODES_BLOCK + 1) * sizeof(float), what, err);
    if (!w->strip || !w->wide || !w->strip_scale ||
        checkpoint_copy(w->c, w->cut, t, w->c->tensor[t].dtype, &to, NULL, NULL, NULL,
                        err) < 0)
        return -1;
    return w->have ? work(w, w->have / row_bytes, err) : 0;
}

/* ---- to codes ---- */

static int check_finite(const struct writer *w, float largest, struct err *err)
{
    return isfinite(largest)
               ? 0
               : err_set(err, ERR_INPUT,
                         "%s: tensor %s: NaN or an infinite number has no code",
                         w->c->path, w->t->name);
}

static int find_columns(struct writer *w, uint64_t rows, struct err *err)
{
    uint64_t cols = w->t->shape[1];

    dtype_to_f32(w->t->dtype, w->strip, w->wide, (size_t)(rows * cols));
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t c = 0; c < cols; c++) {
            float pair[] = { w->scale[c], w->wide[r * cols + c] };

            w->scale[c] = codes_largest(pair, 2);
            if (check_finite(w, w->scale[c], err) < 0)
                return -1;
        }
    return 0;
}

static int encode8(struct writer *w, uint64_t rows, struct err *err)
{
    uint64_t cols = w->t->shape[1];
    int8_t *code = (int8_t *)w->strip; /* no larger than what it replaces */

    dtype_to_f32(w->t->dtype, w->strip, w->wide, (size_t)(rows * cols));
    for (uint64_t r = 0; r < rows; r++) {
        const float *x = w->wide + r * cols;
        float scale;

        if (w->cols) {
            for (uint64_t c = 0; c < cols; c++)
                codes_make8(code + r * cols + c, x + c, 1, w->scale[c]);
            continue;
        }
        scale = codes_largest(x, (size_t)cols);
        if (check_finite(w, scale, err) < 0)
            return -1;
        scale = codes_scale8(scale);
        codes_make8(code + r * cols, x, (size_t)cols, scale);
        w->strip_scale[r] = scale;
    }
    if (!w->cols && put(w, w->scales, w->first * sizeof(float), w->strip_scale,
                        rows * sizeof(float), err) < 0)
        return -1;
    return put(w, w->codes, w->first * cols, code, rows * cols, err);
}

/* The block of numbers that begins AT and are STEP apart, as bytes from CODE on, STEP
 * apart, too. */
static int encode_block(struct writer *w, const float *at, uint64_t step, uint8_t *code,
                        uint16_t *scale, struct err *err)
{
    float x[CODES_BLOCK];
    int8_t c[CODES_BLOCK];

    for (int i = 0; i < CODES_BLOCK; i++)
        x[i] = at[(uint64_t)i * step];
    if (check_finite(w, codes_largest(x, CODES_BLOCK), err) < 0)
        return -1;
    *scale = codes_scale4(x, false);
    codes_make4(c, x, *scale);
    for (int i = 0; i < CODES_BLOCK / 2; i++)
        code[(uint64_t)i * step] = (uint8_t)((c[2 * i] + 8) | (c[2 * i + 1] + 8) << 4);
    return 0;
}

static int encode4(struct writer *w, uint64_t rows, struct err *err)
{
    uint64_t cols = w->t->shape[1], n = rows * cols / CODES_BLOCK, done = 0;
    uint16_t *scale = (uint16_t *)(void *)w->strip_scale;
    uint8_t *code = w->strip;
    int ret = 0;

    dtype_to_f32(w->t->dtype, w->strip, w->wide, (size_t)(rows * cols));
    for (uint64_t b = 0; b < n && ret == 0; b++) {
        /* blocks along rows, or along columns: 32 rows make a row of them */
        uint64_t at =
            w->cols ? b / cols * cols * CODES_BLOCK + b % cols : b * CODES_BLOCK;
        uint64_t to = w->cols ? b / cols * cols * (CODES_BLOCK / 2) + b % cols
                              : b * (CODES_BLOCK / 2);

        ret = encode_block(w, w->wide + at, w->cols ? cols : 1, code + to, &scale[b],
                           err);
    }
    done = w->first * cols;
    if (ret < 0 || put(w, w->scales, done / CODES_BLOCK * sizeof(*scale), scale,
                       n * sizeof(*scale), err) < 0)
        return -1;
    return put(w, w->codes, done / 2, code, rows * cols / 2, err);
}

static int write_codes(struct writer *w, size_t t, struct err *err)
{
    uint64_t cols = w->t->shape[1];

    if (w->bits == 4)
        return stream(w, t, w->cols ? CODES_BLOCK : 1, cols, encode4, err);
    if (w->cols) {
        w->scale = xcalloc((size_t)cols, sizeof(*w->scale));
        if (stream(w, t, 1, cols, find_columns, err) < 0)
            return -1;
        for (uint64_t c = 0; c < cols; c++)
            w->scale[c] = codes_scale8(w->scale[c]);
        if (put(w, w->scales, 0, w->scale, cols * sizeof(float), err) < 0)
            return -1;
    }
    return stream(w, t, 1, cols, encode8, err);
}

/* ---- and back ---- */

static int put_plain(struct writer *w, uint64_t at, uint64_t n, struct err *err)
{
    enum dtype to = w->plain->dtype;
    uint64_t unit = (uint64_t)dtype_bits(to) / 8;
    uint16_t *half = (uint16_t *)(void *)w->wide; /* shorter, so in place */

    for (uint64_t i = 0; i < n && to != DTYPE_F32; i++)
        half[i] = to == DTYPE_BF16 ? dtype_f32_to_bf16(w->wide[i])
                                   : dtype_f32_to_f16(w->wide[i]);
    if (change(w, w->plain, at * unit, w->wide, n * unit, err) < 0)
        return -1;
    return put(w, w->plain, at * unit, w->wide, n * unit, err);
}

static int decode8(struct writer *w, uint64_t rows, struct err *err)
{
    uint64_t cols = w->t->shape[1];
    const int8_t *code = (const int8_t *)w->strip;

    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t c = 0; c < cols; c++)
            w->wide[r * cols + c] =
                code[r * cols + c] * w->scale[w->cols ? c : w->first + r];
    return put_plain(w, w->first * cols, rows * cols, err);
}

static int decode4(struct writer *w, uint64_t rows, struct err *err)
{
    uint64_t cols = w->t->shape[1];

    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t c = 0; c < cols; c++) {
            uint8_t byte = w->strip[r * cols + c];
            uint64_t row = w->first + r;

            for (unsigned k = 0; k < 2; k++) {
                int code = (k ? byte >> 4 : byte & 15) - 8;
                uint64_t to = w->cols ? (2 * r + k) * cols + c : (r * cols + c) * 2 + k;
                uint64_t block = w->cols ? row / (CODES_BLOCK / 2) * cols + c
                                         : (row * cols + c) / (CODES_BLOCK / 2);

                w->wide[to] = (float)code * w->scale[block];
            }
        }
    return put_plain(w, 2 * w->first * cols, 2 * rows * cols, err);
}

static int decode_blocks(struct writer *w, uint64_t rows, struct err *err)
{
    uint64_t cols = w->plain->shape[1];

    ggml_widen(w->plain->blocks, w->wide, w->strip, (size_t)(rows * cols));
    return put_plain(w, w->first * cols, rows * cols, err);
}

static int gather_scales(struct writer *w, uint64_t rows, struct err *err)
{
    const struct tensor *s = &w->c->tensor[w->scales->from];
    uint64_t n = rows * s->shape[1];
    float *to = w->scale + w->first * s->shape[1];

    dtype_to_f32(s->dtype, w->strip, to, (size_t)n);
    for (uint64_t i = 0; i < n; i++)
        if (!isfinite(to[i]))
            return err_set(err, ERR_INPUT, "%s: tensor %s: a scale is not finite",
                           w->c->path, s->name);
    return 0;
}

static int write_plain(struct writer *w, size_t t, struct err *err)
{
    const struct tensor *codes = w->t, *s = &w->c->tensor[w->scales->from];
    uint64_t cols = codes->shape[1];
    int ret;

    w->scale = mem_alloc((s->shape[0] * s->shape[1] + 1) * sizeof(float), s->name, err);
    if (!w->scale)
        return -1;
    w->t = s;
    ret = stream(w, w->scales->from, 1, 0, gather_scales, err);
    w->t = codes;
    if (ret < 0)
        return -1;
    return w->bits == 4 ? stream(w, t, 1, 2 * cols, decode4, err)
                        : stream(w, t, 1, cols, decode8, err);
}

/* ---- the file ---- */

static struct item *add(struct writer *w, const char *name, enum how how, size_t from,
                        enum dtype dtype)
{
    const struct tensor *t = &w->c->tensor[from];
    struct item *i;

    w->item = xgrow(w->item, &w->cap, w->n + 1, sizeof(*w->item));
    i = &w->item[w->n++];
    *i = (struct item){
        .name = xstrdup(name), .how = how, .from = from, .dtype = dtype, .ndim = t->ndim
    };
    memcpy(i->shape, t->shape, (size_t)t->ndim * sizeof(*t->shape));
    return i;
}

/* The axis of tensor I with the outputs; -1 if it stays. */
static int outputs_of(const struct writer *w, size_t i)
{
    const struct tensor *t = &w->c->tensor[i];
    int axis = w->c->which[i] < 0 ? -1 : w->opt->outputs[w->c->which[i]];

    if (axis < 0 || t->ndim != 2 || !str_ends(t->name, ".weight") ||
        (t->dtype != DTYPE_F32 && t->dtype != DTYPE_BF16 && t->dtype != DTYPE_F16) ||
        !t->shape[0] || !t->shape[1])
        return -1;
    return w->bits == 4 && t->shape[!axis] % CODES_BLOCK ? -1 : axis;
}

static int plan_codes(struct writer *w, struct err *err)
{
    const struct tensor *first = NULL;

    for (size_t i = 0; i < w->c->nweights; i++) {
        const struct tensor *t = &w->c->tensor[i];
        int axis = outputs_of(w, i);
        struct str name = { 0 };
        struct item *codes, *scales;

        if (axis < 0) {
            add(w, t->name, COPY, i, t->dtype);
            continue;
        }
        if (first && first->dtype != t->dtype)
            return err_set(err, ERR_INPUT,
                           "%s: %s is %s but %s is %s; give them one type first",
                           w->c->path, first->name, dtype_name(first->dtype), t->name,
                           dtype_name(t->dtype));
        first = first ? first : t;
        str_addf(&name, "%s%s", t->name, w->bits == 4 ? ".int4" : "");
        codes = add(w, name.s, CODES, i, w->bits == 4 ? DTYPE_U8 : DTYPE_I8);
        codes->cols = axis == 1;
        if (w->bits == 4)
            codes->shape[!axis] /= 2;
        str_clear(&name);
        str_addf(&name, "%s.scale", t->name);
        scales = add(w, name.s, SCALES, i, w->bits == 4 ? DTYPE_F16 : DTYPE_F32);
        scales->shape[!axis] = w->bits == 4 ? t->shape[!axis] / CODES_BLOCK : 1;
        str_clear(&name);
    }
    return first ? 0
                 : err_set(err, ERR_INPUT, "%s: no matrix can be stored in %d bits",
                           w->c->path, w->bits);
}

/* The tensor with the scales of the matrix NAME, of N letters, or -1. */
static long find_scales(const struct tensor_index *index, const char *name, size_t n)
{
    char *scales = str_dupf("%.*s.scale", (int)n, name);
    long found = tensor_index_find(index, scales);

    free(scales);
    return found;
}

/* Checks the scales S of the codes T; *cols: whether their outputs are columns. */
static int check_scales(const struct writer *w, const struct tensor *t,
                        const struct tensor *s, bool *cols, struct err *err)
{
    /* numbers of T under one scale, along the axis with the inputs */
    uint64_t group = t->dtype == DTYPE_U8 ? CODES_BLOCK / 2 : 0;
    bool fits[2] = { false, false };

    if (t->ndim == 2 && s->ndim == 2 && t->shape[0] && t->shape[1] &&
        dtype_is_float(s->dtype) && dtype_bits(s->dtype) >= 16)
        for (int in = 0; in < 2; in++)
            fits[in] = s->shape[!in] == t->shape[!in] &&
                       (group ? t->shape[in] % group == 0 &&
                                    s->shape[in] == t->shape[in] / group
                              : s->shape[in] == 1);
    *cols = fits[0] && !fits[1];
    return fits[0] || fits[1]
               ? 0
               : err_set(err, ERR_INPUT, "%s: tensor %s: does not fit the codes in %s",
                         w->c->path, s->name, t->name);
}

/* The blocks in which T has a weight, whose name is the first *n letters of its own;
 * NULL: it is none. */
static const struct ggml_row *blocks_of(const struct tensor *t, size_t *n)
{
    static const char weight[] = ".weight";
    const char *dot = strrchr(t->name, '.');
    size_t own = strlen(weight);
    const struct ggml_row *found = NULL;

    if (dot && t->dtype == DTYPE_U8 && t->ndim == 3 && (size_t)(dot - t->name) >= own &&
        !strncmp(dot - own, weight, own))
        found = ggml_named(dot + 1);
    if (!found || t->shape[2] != found->bytes || t->shape[1] > UINT32_MAX ||
        !t->shape[0] || !t->shape[1])
        return NULL;
    *n = (size_t)(dot - t->name);
    return found;
}

/* Adds the weight that tensor I has in BLOCKS, as numbers of type TO; its name has N
 * letters. */
static void plan_blocks(struct writer *w, size_t i, const struct ggml_row *blocks,
                        size_t n, enum dtype to)
{
    struct item *item = add(w, w->c->tensor[i].name, PLAIN, i, to);

    item->name[n] = '\0';
    item->blocks = blocks;
    item->ndim = 2;
    item->shape[1] *= blocks->numbers;
}

static int plan_plain(struct writer *w, struct err *err)
{
    enum dtype to = w->opt->dtype ? *w->opt->dtype : quantize_type(w->c);
    struct tensor_index index = { 0 };
    int ret = 0;

    tensor_index_init(&index, w->c->tensor, w->c->nweights);
    for (size_t i = 0; i < w->c->nweights && ret == 0; i++) {
        const struct tensor *t = &w->c->tensor[i];
        size_t n = strlen(t->name);
        bool four = t->dtype == DTYPE_U8 && str_ends(t->name, ".weight.int4");
        const struct ggml_row *blocks =
            model_in_blocks(w->c->model) ? blocks_of(t, &n) : NULL;
        struct item *item;
        long scales;
        bool cols;

        if (blocks) {
            plan_blocks(w, i, blocks, n, to);
            continue;
        }
        if (str_ends(t->name, ".weight.scale"))
            continue;
        if (!four && t->dtype != DTYPE_I8) {
            add(w, t->name, COPY, i, t->dtype);
            continue;
        }
        n -= four ? strlen(".int4") : 0;
        scales = find_scales(&index, t->name, n);
        if (scales < 0) {
            ret = err_set(err, ERR_INPUT,
                          "%s: tensor %s: is quantized, but has no scales", w->c->path,
                          t->name);
            continue;
        }
        ret = check_scales(w, t, &w->c->tensor[scales], &cols, err);
        if (ret < 0)
            continue;
        item = add(w, t->name, PLAIN, i, to);
        item->name[n] = '\0';
        item->scales = (size_t)scales;
        item->cols = cols;
        if (four)
            item->shape[!cols] *= 2;
    }
    tensor_index_clear(&index);
    return ret;
}

/* Widest elements first, so that all are aligned. */
static int write_header(struct writer *w, struct err *err)
{
    struct safetensors_header h;
    int ret = -1;

    safetensors_header_begin(&h, "{\"format\":\"pt\"}");
    for (int bits = 64; bits >= 4; bits--)
        for (size_t i = 0; i < w->n; i++) {
            struct item *it = &w->item[i];
            uint64_t elements = 1;

            if (dtype_bits(it->dtype) != bits)
                continue;
            for (int k = 0; k < it->ndim; k++)
                elements *= it->shape[k];
            if (!dtype_bytes(&it->bytes, it->dtype, elements)) {
                err_set(err, ERR_INPUT, "tensor %s: too large", it->name);
                goto out;
            }
            it->offset = h.end;
            safetensors_header_add(&h, it->name, it->dtype, it->ndim, it->shape,
                                   it->bytes);
        }
    if (safetensors_header_finish(&h, FILE_NAME, err) < 0)
        goto out;
    w->header = h.text.len;
    ret = fs_pwrite(w->fd, h.text.s, h.text.len, 0, w->path, err);
out:
    safetensors_header_clear(&h);
    return ret;
}

static int copy_bytes(void *arg, int part, uint64_t offset, void *buf, size_t n,
                      struct err *err)
{
    struct writer *w = arg;

    (void)part;
    if (change(w, w->codes, offset, buf, n, err) < 0)
        return -1;
    return put(w, w->codes, offset, buf, n, err);
}

/* Writes item I; SCALES, which are the next item, with their codes. */
static int write_item(struct writer *w, size_t i, struct err *err)
{
    const struct item *it = &w->item[i], scales = { .from = it->scales };
    const struct cut_side to = { .nparts = 1, .io = copy_bytes, .arg = w };
    int ret = 0;

    w->t = &w->c->tensor[it->from];
    w->codes = w->plain = it;
    w->cols = it->cols;
    if (it->how == COPY) {
        ret = checkpoint_copy(w->c, w->cut, it->from, it->dtype, &to, NULL, NULL, NULL,
                              err);
    } else if (it->how == CODES) {
        w->scales = it + 1;
        ret = write_codes(w, it->from, err);
    } else if (it->blocks) {
        ret = stream(w, it->from, 1, it->shape[1], decode_blocks, err);
    } else if (it->how == PLAIN) {
        w->scales = &scales;
        w->bits = w->t->dtype == DTYPE_U8 ? 4 : 8;
        ret = write_plain(w, it->from, err);
    }
    clear_strip(w);
    free(w->scale);
    w->scale = NULL;
    if (w->opt->progress)
        w->opt->progress(w->opt->arg, i + 1, w->n);
    return ret;
}

static int write_file(struct writer *w, struct err *err)
{
    w->fd = outdir_create(&w->out, FILE_NAME, err);
    if (w->fd < 0 || write_header(w, err) < 0)
        return -1;
    for (size_t i = 0; i < w->n; i++)
        if (write_item(w, i, err) < 0)
            return -1;
    if (outdir_share(&w->out, w->fd, checkpoint_mode(w->c), w->path, err) < 0)
        return -1;
    return fsync(w->fd) < 0 ? err_errno(err, "%s", w->path) : 0;
}

/* ---- small files ---- */

enum dtype quantize_type(const struct checkpoint *ckpt)
{
    const cJSON *j = quant_setting(ckpt->model, "dtype");
    enum dtype t = DTYPE_F32;

    if (cJSON_IsString(j) && dtype_parse(&t, j->valuestring) &&
        (t == DTYPE_BF16 || t == DTYPE_F16))
        return t;
    return DTYPE_F32;
}

/* Adds quantization_config to the config.json at *TEXT. */
static void add_setting(const struct writer *w, char **text, size_t *n)
{
    struct str out = { 0 };
    size_t brace = strcspn(*text, "{") + 1;
    enum dtype t = DTYPE_F32;

    for (size_t i = 0; i < w->n; i++)
        if (w->item[i].how == CODES)
            t = w->c->tensor[w->item[i].from].dtype;
    str_addn(&out, *text, brace);
    str_addf(&out,
             "\n  \"quantization_config\": {\"quant_method\": \"shardutils\", "
             "\"bits\": %d, %s\"dtype\": ",
             w->bits, w->bits == 4 ? "\"group_size\": 32, " : "");
    str_add_json(&out, dtype_pytorch(t));
    str_add(&out, "},");
    str_addn(&out, *text + brace, *n - brace);
    free(*text);
    *n = out.len;
    *text = str_steal(&out);
}

/* Removes it. */
static void drop_setting(char **text, size_t *n)
{
    struct jsonlex lex;
    size_t from = 0, to = 0;

    jsonlex_init(&lex, "config.json", *text, *n);
    while (!to && jsonlex_next(&lex, NULL) == 0 && lex.token != JSONLEX_END) {
        if (lex.token != JSONLEX_KEY || lex.depth != 1 ||
            strcmp(lex.text.s, "quantization_config") != 0)
            continue;
        from = lex.start;
        if (jsonlex_next(&lex, NULL) < 0 || jsonlex_skip(&lex, NULL) < 0)
            break;
        to = lex.end;
    }
    jsonlex_clear(&lex);
    if (!to)
        return;
    to += strspn(*text + to, " \t\r\n");
    if ((*text)[to] == ',')
        to++;
    else
        while (from && (*text)[from] != ',')
            from--;
    while (from && strchr(" \t\r\n", (*text)[from - 1]))
        from--;
    memmove(*text + from, *text + to, *n - to + 1);
    *n -= to - from;
}

/* The output is one file, which needs no index. */
static bool is_index(const char *name)
{
    return str_ends(name, ".index.json");
}

static int copy_small(struct writer *w, size_t i, struct err *err)
{
    struct smallfile f;
    int ret;

    if (smallfile_read(&f, w->c, i, err) < 0)
        return -1;
    if (!strcmp(f.name, "config.json") && w->opt->codes)
        add_setting(w, &f.text, &f.n);
    else if (!strcmp(f.name, "config.json"))
        drop_setting(&f.text, &f.n);
    ret = outdir_write(&w->out, f.name, f.text, f.n, f.mode, err);
    smallfile_clear(&f);
    return ret;
}

static int copy_all_small(struct writer *w, struct err *err)
{
    for (size_t i = 0; i < smallfile_count(w->c); i++)
        if (!is_index(smallfile_name(w->c, i)) && copy_small(w, i, err) < 0)
            return -1;
    return 0;
}

/* ---- the whole ---- */

static int open_output(struct writer *w, const char *path, struct err *err)
{
    size_t n = smallfile_count(w->c), nfiles = 0;
    const char **files = xmalloc((n + 1) * sizeof(*files));
    char identity[64];
    int ret;

    files[nfiles++] = FILE_NAME;
    for (size_t i = 0; i < n; i++)
        if (!is_index(smallfile_name(w->c, i)))
            files[nfiles++] = smallfile_name(w->c, i);
    snprintf(identity, sizeof(identity), "quantize bits=%d", w->opt->codes);
    ret = outdir_open(&w->out, path, identity, "files", w->opt->force, files, nfiles,
                      err);
    free(files);
    return ret;
}

static int run(struct checkpoint *ckpt, const char *path,
               const struct convert_options *opt, struct convert_result *result,
               struct err *err)
{
    struct writer w = { .c = ckpt,
                        .opt = opt,
                        .result = result,
                        .out = { .dir = -1, .journal = -1 },
                        .fd = -1,
                        .bits = opt->codes };
    int ret = -1;

    *result = (struct convert_result){ 0 };
    if (!ckpt->model)
        return err_set(err, ERR_INPUT, "%s: a single file has no config.json",
                       ckpt->path);
    w.cut = cut_new();
    if ((opt->codes ? plan_codes(&w, err) : plan_plain(&w, err)) < 0 ||
        checkpoint_open_files(ckpt, -1, err) < 0 ||
        checkpoint_spares(ckpt, path, err) < 0 || open_output(&w, path, err) < 0)
        goto out;
    w.path = fs_join_dup(w.out.partial, FILE_NAME);
    if (write_file(&w, err) < 0 || copy_all_small(&w, err) < 0 ||
        outdir_finish(&w.out, err) < 0)
        goto out;
    ret = 0;
out:
    for (size_t i = 0; i < w.n; i++)
        free(w.item[i].name);
    free(w.item);
    free(w.path);
    cut_free(w.cut);
    if (w.fd >= 0)
        close(w.fd);
    outdir_close(&w.out);
    return ret;
}

int quantize(struct checkpoint *ckpt, const char *path,
             const struct convert_options *opt, struct convert_result *result,
             struct err *err)
{
    const char *method = ckpt->model ? model_quantized(ckpt->model) : NULL;

    if (method)
        return err_set(err, ERR_INPUT, "%s: is quantized already, by %s", ckpt->path,
                       method);
    return run(ckpt, path, opt, result, err);
}

int dequantize(struct checkpoint *ckpt, const char *path,
               const struct convert_options *opt, struct convert_result *result,
               struct err *err)
{
    return run(ckpt, path, opt, result, err);
}
