/* adapternorm - by what adapters with magnitudes divide (DoRA) */
#include "lib/run/adapternorm.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/shares.h"

/* The norms of one adapter. */
struct job {
    const struct matrix *w; /* in memory of the host */
    bool turned;            /* W is [in][out] */
    const float *a;         /* [rank][in] */
    const float *b;         /* [out][rank]; turned [rank][out] */
    const bool *counts;     /* [in]: a rank has the primary replica of it */
    uint64_t in, out, rank;
    float scale;
    double *sum; /* [out]: the squares */
    bool failed; /* of memory */
};

/* Y += X FACTOR, of N numbers */
static void add_scaled(float *y, const float *x, float factor, uint64_t n)
{
    for (uint64_t k = 0; k < n; k++)
        y[k] += factor * x[k];
}

static void widen(const struct job *j, float *x, uint64_t row, uint64_t first,
                  uint64_t n)
{
    const struct matrix *w = j->w;

    format_table[w->format].widen(
        x,
        &(struct format_codes){ .data = (void *)(uintptr_t)w->data,
                                .scale = (void *)(uintptr_t)w->scale,
                                .rows = w->rows,
                                .cols = w->cols,
                                .per = w->per },
        row, first, n);
}

/* The sums of the outputs [FROM, END). */
static void sum_outputs(struct job *j, uint64_t from, uint64_t end, float *row)
{
    for (uint64_t o = from; o < end; o++) {
        double sum = 0;

        widen(j, row, o, 0, j->in);
        for (uint64_t r = 0; r < j->rank; r++)
            add_scaled(row, j->a + r * j->in, j->scale * j->b[o * j->rank + r], j->in);
        for (uint64_t i = 0; i < j->in; i++)
            sum += j->counts[i] ? (double)row[i] * (double)row[i] : 0;
        j->sum[o] = sum;
    }
}

static void sum_columns(struct job *j, uint64_t from, uint64_t end, float *row)
{
    for (uint64_t i = 0; i < j->in; i++) {
        if (!j->counts[i])
            continue;
        widen(j, row, i, from, end - from);
        for (uint64_t r = 0; r < j->rank; r++)
            add_scaled(row, j->b + r * j->out + from, j->scale * j->a[r * j->in + i],
                       end - from);
        for (uint64_t o = from; o < end; o++)
            j->sum[o] += (double)row[o - from] * (double)row[o - from];
    }
}

static void run_share(void *arg, int share, uint64_t from, uint64_t end)
{
    struct job *j = arg;
    struct err err;
    float *row = mem_alloc((j->in + j->out + 1) * sizeof(*row), "a row", &err);

    (void)share;
    if (!row)
        j->failed = true;
    else if (j->turned)
        sum_columns(j, from, end, row);
    else
        sum_outputs(j, from, end, row);
    free(row);
}

/* The weight of N's program that is PART of the adapter of W, or, PART being -1, the
 * adapted one. */
static int beside(const struct adapternorm *n, const struct weight *w, int part)
{
    for (int i = 0; i < n->program->nweights; i++) {
        const struct weight *other = &n->program->weight[i];

        if (part < 0 ? !other->adapter && other->tensor == w->tensor
                     : other->adapter == w->adapter && (int)other->part == part)
            return i;
    }
    return -1;
}

/* Reads weight I to memory that the caller frees. */
static float *read_part(const struct adapternorm *n, int i, struct err *err)
{
    const struct matrix *m = &n->matrix[i];
    const struct weight *w = &n->program->weight[i];
    uint64_t count = w->rows * w->cols;
    float *to = mem_alloc(count * sizeof(*to) + 1, "a matrix of an adapter", err);
    uint64_t bytes = 0;
    void *raw = NULL;
    int ret = -1;

    if (to && n->read) {
        ret = n->read(n->arg, i, to, err);
    } else if (to && format_bytes(&bytes, m->format, w->rows, w->cols)) {
        raw = mem_alloc(bytes + 1, "a matrix of an adapter", err);
        ret = raw ? n->ops->copy_out(n->device, raw, m->data, (size_t)bytes, err) : -1;
        if (ret == 0)
            (void)dtype_to_f32(format_dtype(m->format), raw, to, (size_t)count);
    }
    free(raw);
    if (ret == 0)
        return to;
    free(to);
    return NULL;
}

/* *OUT = M in memory of the host, whose own parts are freed where they are not M's. */
static int take_matrix(const struct adapternorm *n, struct matrix *out,
                       const struct matrix *m, struct err *err)
{
    uint64_t bytes, scales;
    void *data, *scale;

    *out = *m;
    if (n->ops->host_memory)
        return 0;
    out->data = out->scale = NULL;
    if (!format_bytes(&bytes, m->format, m->rows, m->cols) ||
        !format_scale_bytes(&scales, m->format, m->rows, m->cols, m->per))
        return err_set(err, ERR_INPUT, "a weight is too large");
    out->data = data = mem_alloc(bytes + 1, "a weight", err);
    out->scale = scale = data ? mem_alloc(scales + 1, "scales", err) : NULL;
    return scale && n->ops->copy_out(n->device, data, m->data, (size_t)bytes, err) == 0
               ? m->scale
                     ? n->ops->copy_out(n->device, scale, m->scale, (size_t)scales, err)
                     : 0
               : -1;
}

/* Sets COUNTS, of the inputs of W on this rank; returns whether they are sharded. */
static bool find_inputs(const struct adapternorm *n, const struct weight *w,
                        bool *counts)
{
    const struct program *p = n->program;
    struct share *share = model_shares(p->model, &p->mesh, p->coord);
    const struct axis *axis[2];
    struct runs runs;
    uint64_t at = 0;
    bool cut;

    model_adapter_axes(p->model, (size_t)w->adapter - 1, ADAPTER_A, axis);
    axis_runs(&runs, axis[1], &p->model->scope, share);
    cut = runs.count != axis[1]->size;
    for (size_t r = 0; r < runs.n; r++)
        for (uint64_t k = 0; k < runs.v[r].count; k++)
            counts[at++] = !cut || runs.v[r].owned;
    runs_clear(&runs);
    free(share);
    return cut;
}

/* TO[cols][rows] = FROM[rows][cols] */
static float *transposed(const float *from, uint64_t rows, uint64_t cols,
                         struct err *err)
{
    float *to = mem_alloc(rows * cols * sizeof(*to) + 1, "a matrix of an adapter", err);

    for (uint64_t i = 0; to && i < rows; i++)
        for (uint64_t k = 0; k < cols; k++)
            to[k * rows + i] = from[i * cols + k];
    return to;
}

/* The squares of J's outputs over all ranks. */
static int sum_squares(const struct adapternorm *n, struct job *j, bool cut,
                       struct err *err)
{
    shares_run(j->out, 64, n->threads, run_share, j);
    if (j->failed)
        return err_set(err, ERR_SYSTEM, "no memory for the norms of an adapter");
    return cut && n->tensor
               ? comm_run(n->tensor, comm_all_reduce_f64(j->sum, j->out), err)
               : 0;
}

/* Writes the norms to weight I, inverted, and to MAGNITUDE if these begin. */
static int put(const struct adapternorm *n, int i, int magnitude, const double *sum,
               uint64_t out, struct err *err)
{
    float *norm = mem_alloc(2 * out * sizeof(*norm), "norms", err), *inverse;
    char *name;
    int ret = 0;

    if (!norm)
        return -1;
    inverse = norm + out;
    for (uint64_t o = 0; o < out && ret == 0; o++) {
        norm[o] = (float)sqrt(sum[o]);
        inverse[o] = (float)(1 / sqrt(sum[o]));
        if (norm[o] > 0 && isfinite(norm[o]) && isfinite(inverse[o]))
            continue;
        name = program_weight_name_dup(n->program, i);
        ret = err_set(err, ERR_INPUT,
                      "tensor %s: output %" PRIu64 " has a norm of %g, by which DoRA "
                      "cannot divide",
                      name, o, sqrt(sum[o]));
        free(name);
    }
    if (ret == 0 && magnitude >= 0 && n->begin)
        ret = n->begin(n->arg, magnitude, norm, err);
    if (ret == 0)
        ret = n->ops->copy_in(n->device, (void *)(uintptr_t)n->matrix[i].data, inverse,
                              (size_t)out * sizeof(*inverse), err);
    free(norm);
    return ret;
}

/* Makes the norms that weight I is. */
static int make_one(const struct adapternorm *n, int i, struct err *err)
{
    const struct weight *w = &n->program->weight[i];
    const struct model_adapter *own = &n->program->model->adapter[w->adapter - 1];
    int at = beside(n, w, -1), a = beside(n, w, ADAPTER_A), b = beside(n, w, ADAPTER_B);
    struct matrix held = { 0 };
    struct job j = { .turned = own->turned, .scale = (float)own->scale };
    float *down = read_part(n, a, err), *up = down ? read_part(n, b, err) : NULL;
    float *turned = NULL;
    bool *counts, cut;
    int ret = -1;

    j.in = n->program->weight[a].cols;
    j.rank = n->program->weight[a].rows;
    j.out = w->cols;
    counts = xcalloc(j.in + 1, sizeof(*counts));
    j.sum = xcalloc(j.out + 1, sizeof(*j.sum));
    cut = find_inputs(n, w, counts);
    if (!up || take_matrix(n, &held, &n->matrix[at], err) < 0)
        goto out;
    j.turned = own->turned && !format_is_coded(held.format); /* codes are by outputs */
    if (j.turned) {
        turned = transposed(up, j.out, j.rank, err);
        if (!turned)
            goto out;
    }
    j.w = &held;
    j.a = down;
    j.b = turned ? turned : up;
    j.counts = counts;
    if (sum_squares(n, &j, cut, err) == 0)
        ret = put(n, i, beside(n, w, ADAPTER_MAGNITUDE), j.sum, j.out, err);
out:
    if (!n->ops->host_memory) {
        free((void *)(uintptr_t)held.data);
        free((void *)(uintptr_t)held.scale);
    }
    free(down);
    free(up);
    free(turned);
    free(counts);
    free(j.sum);
    return ret;
}

int adapternorm_make(const struct adapternorm *n, struct err *err)
{
    for (int i = 0; i < n->program->nweights; i++)
        if (n->program->weight[i].adapter &&
            n->program->weight[i].part == ADAPTER_NORM && make_one(n, i, err) < 0)
            return -1;
    return 0;
}
