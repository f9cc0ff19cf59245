/* rows-back - gradients of tables and vectors, and of rows and columns that are taken
 */
#include <string.h>

#include "lib/cpu/reverse/gradient.h"
#include "lib/cpu/simd/vec.h"

static void add_embeddings(void *arg, size_t task, int thread)
{
    const struct gradient_columns *s = arg;
    const struct inst *inst = s->c->inst;
    const struct cpu_index index = cpu_index_of(s->c);
    size_t end, first = gradient_span(task, GRADIENT_COLS, s->cols, &end);

    (void)thread;
    for (size_t t = 0; t < s->rows; t++) {
        uint64_t row = (uint64_t)cpu_index_at(&index, t) + inst->embedding.offset;

        if (row == inst->embedding.padding || row < inst->embedding.first ||
            row - inst->embedding.first >= s->c->w->rows)
            continue;
        row -= inst->embedding.first;
        for (size_t k = first; k < end; k++)
            s->y[row * s->cols + k] += s->d[t * s->cols + k];
    }
}

int kernel_embedding_back(struct device *d, const struct call *c, struct err *err)
{
    struct gradient_columns s = { .c = c,
                                  .y = c->y.data,
                                  .d = c->x[0].data,
                                  .rows = gradient_rows(&c->x[0]),
                                  .cols = c->w->cols };

    (void)err;
    cpu_parallel(d, gradient_blocks(s.cols, GRADIENT_COLS), add_embeddings, &s);
    return 0;
}

static void add_columns(void *arg, size_t task, int thread)
{
    const struct gradient_columns *s = arg;
    size_t end, first = gradient_span(task, GRADIENT_COLS, s->cols, &end);

    (void)thread;
    for (size_t from = 0, to; from < s->rows; from = to) {
        double sum[GRADIENT_COLS] = { 0 };

        to = from + program_chunk_rows((s->rows - from) / s->part) * s->part;
        for (size_t t = from; t < to; t++)
            for (size_t k = first; k < end; k++)
                sum[k - first] += (double)s->d[t * s->cols + k];
        for (size_t k = first; k < end; k++)
            s->y[k] += (float)sum[k - first];
    }
}

int kernel_column_sum(struct device *d, const struct call *c, struct err *err)
{
    struct gradient_columns s = { .y = c->y.data,
                                  .d = c->x[0].data,
                                  .cols = c->w->rows * c->w->cols };

    (void)err;
    if (s.cols) { /* a vector may stand for every group of a row's columns */
        s.rows = gradient_rows(&c->x[0]) * (c->x[0].cols / s.cols);
        s.part = c->x[0].cols / s.cols;
    }
    cpu_parallel(d, gradient_blocks(s.cols, GRADIENT_COLS), add_columns, &s);
    return 0;
}

static void row_dot(void *arg, size_t task, int thread)
{
    const struct gradient_columns *s = arg;
    double sum = 0;

    (void)thread;
    for (size_t k = 0; k < s->cols; k++)
        sum += (double)s->d[task * s->cols + k] * (double)s->x[task * s->cols + k];
    s->y[task] = (float)sum;
}

int kernel_row_dot(struct device *d, const struct call *c, struct err *err)
{
    struct gradient_columns s = {
        .y = c->y.data, .d = c->x[0].data, .x = c->x[1].data, .cols = c->x[0].cols
    };

    (void)err;
    cpu_parallel(d, gradient_rows(&c->y), row_dot, &s);
    return 0;
}

static void clear(const struct call *c)
{
    memset(c->y.data, 0, gradient_rows(&c->y) * c->y.cols * sizeof(float));
}

int kernel_segment_back(struct device *d, const struct call *c, struct err *err)
{
    size_t cols = c->x[0].cols;

    (void)d;
    (void)err;
    clear(c);
    for (size_t i = 0; i < gradient_rows(&c->y); i++)
        memcpy((float *)c->y.data + i * c->y.cols + c->inst->segment.first,
               (const float *)c->x[0].data + i * cols, cols * sizeof(float));
    return 0;
}

int kernel_first_back(struct device *d, const struct call *c, struct err *err)
{
    const int32_t *row = c->step->first[c->program->value[c->inst->dst].rows];
    size_t cols = c->y.cols;

    (void)d;
    (void)err;
    clear(c);
    for (size_t i = 0; i < gradient_rows(&c->x[0]); i++)
        if (row[i] >= 0)
            memcpy((float *)c->y.data + (size_t)row[i] * cols,
                   (const float *)c->x[0].data + i * cols, cols * sizeof(float));
    return 0;
}

/* Runs of this rank's columns. */
static const struct runs *own_runs(const struct call *c)
{
    return &c->program->gather[c->inst->gather.gather].runs[c->program->coord[MESH_TP]];
}

int kernel_slice_owned(struct device *d, const struct call *c, struct err *err)
{
    const struct runs *runs = own_runs(c);
    const float *from = c->x[0].data;
    float *to = c->y.data;

    (void)d;
    (void)err;
    clear(c);
    for (size_t i = 0; i < gradient_rows(&c->y); i++, from += c->x[0].cols)
        for (size_t k = 0; k < runs->n; to += runs->v[k++].count)
            if (runs->v[k].owned)
                memcpy(to, from + runs->v[k].start, runs->v[k].count * sizeof(*to));
    return 0;
}

int kernel_unslice(struct device *d, const struct call *c, struct err *err)
{
    const struct runs *runs = own_runs(c);
    const float *from = c->x[0].data;
    float *to = c->y.data;

    (void)d;
    (void)err;
    clear(c);
    for (size_t i = 0; i < gradient_rows(&c->y); i++, to += c->y.cols)
        for (size_t k = 0; k < runs->n; from += runs->v[k++].count)
            memcpy(to + runs->v[k].start, from, runs->v[k].count * sizeof(*to));
    return 0;
}
