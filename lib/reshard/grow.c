/* grow - a model with more rows of the vocabulary than its files have */
#include "lib/reshard/grow.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/jsonlex.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/ckpt/safetensors.h"

enum { BYTES_AT_ONCE = 1 << 20 };

struct grown {
    size_t n; /* tensors */
    struct grown_tensor {
        uint64_t stored;    /* bytes in the files; UINT64_MAX: all */
        uint64_t *shape;    /* with the new rows */
        unsigned char *row; /* a new one; NULL: none is needed yet */
        size_t row_bytes;
    } * v;         /* [n] */
    char **header; /* [files]: of the files, with the new shapes */
    size_t nfiles;
};

/* ---- the config ---- */

/* The config TEXT with another vocab_size; NULL where that is no number in it. */
static char *with_vocab(const char *text, uint64_t rows)
{
    struct str out = { 0 };
    struct jsonlex lex;
    size_t n = strlen(text), copied = 0;

    jsonlex_init(&lex, "config.json", text, n);
    while (jsonlex_next(&lex, NULL) == 0 && lex.token != JSONLEX_END) {
        if (lex.token != JSONLEX_KEY || lex.depth != 1 ||
            strcmp(lex.text.s, "vocab_size") != 0)
            continue;
        if (jsonlex_next(&lex, NULL) < 0 || lex.token != JSONLEX_NUMBER)
            break;
        str_addn(&out, text + copied, lex.start - copied);
        str_addf(&out, "%" PRIu64, rows);
        copied = lex.end;
    }
    jsonlex_clear(&lex);
    if (!copied) {
        str_clear(&out);
        return NULL;
    }
    str_addn(&out, text + copied, n - copied);
    return str_steal(&out);
}

static int open_again(struct checkpoint *c, uint64_t rows,
                      const struct checkpoint_options *opt, struct err *err)
{
    char *text = with_vocab(c->source.config, rows);
    double now;

    if (!text)
        return err_set(err, ERR_NO, "%s: no vocab_size that could be changed",
                       c->source.config_path);
    free(c->source.config);
    c->source.config = text;
    model_free(c->model);
    c->model = NULL;
    if (model_open(&c->model, c->source.config_path, text, opt->family_file,
                   opt->family_path, err) < 0)
        return -1;
    return model_number(c->model, "vocab", &now) && now == (double)rows
               ? 0
               : err_set(err, ERR_NO, "%s: vocab_size is not what its tensors follow",
                         c->source.config_path);
}

/* ---- tensors ---- */

static int grow_tensor(struct checkpoint *c, size_t i, uint64_t rows, struct err *err)
{
    struct tensor *t = &c->tensor[i];
    struct grown_tensor *g = &c->grown->v[i];

    if (t->stride || t->boxes || t->blocks ||
        (t->dtype != DTYPE_F32 && t->dtype != DTYPE_BF16 && t->dtype != DTYPE_F16))
        return err_set(err, ERR_NO,
                       "%s: tensor %s cannot get more rows as it is stored", c->path,
                       t->name);
    if (g->shape) /* tied tensors share it */
        return 0;
    g->stored = t->size;
    g->row_bytes = (size_t)(t->size / t->shape[0]);
    g->shape = xmalloc((size_t)t->ndim * sizeof(*g->shape));
    memcpy(g->shape, t->shape, (size_t)t->ndim * sizeof(*g->shape));
    g->shape[0] = rows;
    t->shape = g->shape;
    t->size = rows * g->row_bytes;
    return 0;
}

/* The index of the tensor of file F that lies first behind AFTER; -1: none does. */
static long next_in_file(const struct checkpoint *c, int f, uint64_t after)
{
    long best = -1;

    for (size_t i = 0; i < c->nweights; i++) {
        const struct tensor *t = &c->tensor[i];

        if (t->file == f && t->offset >= after &&
            (best < 0 || t->offset < c->tensor[best].offset))
            best = (long)i;
    }
    return best;
}

/* A merge writes a file by its header, which now has the new shapes. */
static int make_header(struct checkpoint *c, int f, struct err *err)
{
    struct source_file *file = &c->source.file[f];
    struct safetensors_header h;
    uint64_t after = 0;
    long i;

    safetensors_header_begin(&h, "{\"format\":\"pt\"}");
    while ((i = next_in_file(c, f, after)) >= 0) {
        const struct tensor *t = &c->tensor[i];

        safetensors_header_add(&h, t->name, t->dtype, t->ndim, t->shape, t->size);
        after = t->offset + 1;
    }
    if (safetensors_header_finish(&h, file->name, err) < 0) {
        safetensors_header_clear(&h);
        return -1;
    }
    file->data = h.text.len;
    file->whole = h.text.len + h.end;
    file->header = c->grown->header[f] = xstrndup(h.text.s + 8, h.text.len - 8);
    safetensors_header_clear(&h);
    return 0;
}

int grow_vocab(struct checkpoint *c, uint64_t rows,
               const struct checkpoint_options *opt, struct err *err)
{
    const struct model *m = c->model;
    double now;
    bool found = false;

    if (c->sharded || !m || !c->source.config || !model_number(m, "vocab", &now))
        return err_set(err, ERR_USAGE, "%s: %s", c->path,
                       c->sharded ? "has been cut; its original can get more rows"
                                  : "has no vocabulary");
    if (!source_is_safetensors(&c->source) || c->source.dialect || c->source.stripped)
        return err_set(
            err, ERR_NO,
            "%s: only safetensors files by the names of transformers can get "
            "more rows; merge writes them",
            c->path);
    if ((double)rows < now)
        return err_set(err, ERR_USAGE, "%s: has %.0f tokens, more than %" PRIu64,
                       c->path, now, rows);
    if ((double)rows == now)
        return 0;
    c->grown = xcalloc(1, sizeof(*c->grown));
    c->grown->n = c->ntensors;
    c->grown->v = xcalloc(c->ntensors + 1, sizeof(*c->grown->v));
    for (size_t i = 0; i < c->ntensors; i++)
        c->grown->v[i].stored = UINT64_MAX;
    for (size_t t = 0; t < m->ntensors; t++)
        for (int k = 0; k < m->tensor[t].ndim; k++) {
            if (m->tensor[t].source < 0 ||
                strcmp(m->tensor[t].axis[k]->text, "vocab") != 0)
                continue;
            if (k > 0)
                return err_set(err, ERR_NO,
                               "%s: tensor %s cannot get more rows: its axis of tokens "
                               "is not the first",
                               c->path, m->tensor[t].name);
            if (grow_tensor(c, (size_t)m->tensor[t].source, rows, err) < 0)
                return -1;
            found = true;
        }
    c->grown->nfiles = c->source.nfiles;
    c->grown->header = xcalloc(c->source.nfiles + 1, sizeof(*c->grown->header));
    for (size_t f = 0; f < c->source.nfiles && found; f++)
        if (make_header(c, (int)f, err) < 0)
            return -1;
    return found ? open_again(c, rows, opt, err)
                 : err_set(err, ERR_NO, "%s: no tensor has a row for each token",
                           c->path);
}

/* ---- rows ---- */

/* The mean of the rows of tensor I in the files, in double, to SUM[COLS]. */
static int sum_rows(struct checkpoint *c, size_t i, double *sum, size_t cols,
                    struct err *err)
{
    const struct grown_tensor *g = &c->grown->v[i];
    const size_t step = g->row_bytes < BYTES_AT_ONCE
                            ? BYTES_AT_ONCE / g->row_bytes * g->row_bytes
                            : g->row_bytes;
    unsigned char *buf = mem_alloc(step, "rows", err);
    float *row = mem_alloc(cols * sizeof(*row), "a row", err);
    int ret = buf && row ? 0 : -1;

    for (uint64_t at = 0; at < g->stored && ret == 0; at += step) {
        size_t n = g->stored - at < step ? (size_t)(g->stored - at) : step;

        ret = checkpoint_read(c, i, at, buf, n, err);
        for (size_t k = 0; k < n && ret == 0; k += g->row_bytes) {
            dtype_to_f32(c->tensor[i].dtype, buf + k, row, cols);
            for (size_t e = 0; e < cols; e++)
                sum[e] += (double)row[e];
        }
    }
    free(buf);
    free(row);
    return ret;
}

static void store(enum dtype dtype, unsigned char *to, double x)
{
    const float f = (float)x;
    const uint16_t half =
        dtype == DTYPE_BF16 ? dtype_f32_to_bf16(f) : dtype_f32_to_f16(f);

    if (dtype == DTYPE_F32)
        memcpy(to, &f, sizeof(f));
    else
        memcpy(to, &half, sizeof(half));
}

static int make_row(struct checkpoint *c, size_t i, bool zero, struct err *err)
{
    struct grown_tensor *g = &c->grown->v[i];
    const size_t unit = (size_t)dtype_bits(c->tensor[i].dtype) / 8;
    const size_t cols = g->row_bytes / unit;
    const double rows = (double)(g->stored / g->row_bytes);
    double *sum;

    g->row = xcalloc(1, g->row_bytes);
    if (zero)
        return 0;
    sum = xcalloc(cols, sizeof(*sum));
    if (sum_rows(c, i, sum, cols, err) < 0) {
        free(sum);
        return -1;
    }
    for (size_t e = 0; e < cols; e++)
        store(c->tensor[i].dtype, g->row + e * unit, sum[e] / rows);
    free(sum);
    return 0;
}

int grow_rows(struct checkpoint *c, bool zero, struct err *err)
{
    for (size_t i = 0; c->grown && i < c->grown->n; i++)
        if (c->grown->v[i].shape && make_row(c, i, zero, err) < 0)
            return -1;
    return 0;
}

void grown_free(struct grown *g)
{
    if (!g)
        return;
    for (size_t i = 0; i < g->n; i++) {
        free(g->v[i].shape);
        free(g->v[i].row);
    }
    for (size_t f = 0; f < g->nfiles; f++)
        free(g->header[f]);
    free(g->header);
    free(g->v);
    free(g);
}

size_t grown_stored(const struct grown *g, size_t i, uint64_t offset, size_t n)
{
    const uint64_t stored = g && i < g->n ? g->v[i].stored : UINT64_MAX;

    return offset >= stored ? 0 : stored - offset < n ? (size_t)(stored - offset) : n;
}

void grown_fill(const struct grown *g, size_t i, uint64_t offset, void *buf, size_t n)
{
    const struct grown_tensor *t = &g->v[i];

    for (size_t done = 0; done < n;) {
        size_t at = (size_t)((offset + done) % t->row_bytes);
        size_t some = t->row_bytes - at < n - done ? t->row_bytes - at : n - done;

        memcpy((unsigned char *)buf + done, t->row + at, some);
        done += some;
    }
}
