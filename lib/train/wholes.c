/* wholes - updates of whole tensors: those of optimizers that have matrices */
#include "lib/train/wholes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/shares.h"
#include "lib/train/codes8.h"

enum { NUMBERS = 1 << 14 }; /* that are worth a thread */

struct wholes {
    struct parameters *p;
    struct comm *tensor;
    int threads;
    const struct backend *ops; /* of memory of the host: makes products */
    struct device *device;
    bool *cut;      /* [nweights]: some rank of the group has not all of it */
    float *room;    /* [nroom] */
    float *own, *x; /* [nlocal]: a weight and its gradient on the host; NULL: they are
                     * there */
    uint64_t nroom, nlocal;
};

/* One weight, on this rank and on all. */
struct tensor_here {
    struct wholes *w;
    int i;
    uint64_t rows, cols, whole_rows, whole_cols;
    float *y, *g; /* [rows][cols]: numbers and gradients; the latter times FACTOR */
    float factor;
};

/* ---- opening ---- */

bool wholes_has(const struct wholes *w, int i)
{
    return w && (w->p->row[i].matrix || w->p->optimizer == OPTIMIZER_ADAFACTOR) &&
           !w->p->row[i].load;
}

/* Of a slice, the shape of one expert's part. */
static void whole_shape(const struct wholes *w, int i, uint64_t *rows, uint64_t *cols)
{
    const struct axis *axis[MODEL_MAX_DIMS];
    const int ndim = program_weight_axes(w->p->program, i, axis);
    const bool matrix = w->p->row[i].matrix;

    *rows = matrix ? axis[ndim - 2]->size : 1;
    *cols = matrix ? axis[ndim - 1]->size : 1;
    for (int k = w->p->program->weight[i].slice ? 1 : 0; k < ndim && !matrix; k++)
        *cols *= axis[k]->size;
}

/* Finds what is cut: the same on all ranks of the group.  A rank without any part of a
 * tensor does not know who updates it. */
static int find_cut(struct wholes *w, struct err *err)
{
    const int n = w->p->program->nweights;
    double *sum = xcalloc(2 * (size_t)n + 1, sizeof(*sum));
    int ret;

    for (int i = 0; i < n; i++) {
        uint64_t rows, cols;

        whole_shape(w, i, &rows, &cols);
        sum[i] = w->p->row[i].n != rows * cols;
        sum[n + i] = !w->p->row[i].n && wholes_has(w, i);
    }
    ret = comm_run(w->tensor, comm_all_reduce_f64(sum, 2 * (size_t)n), err);
    for (int i = 0; i < n; i++)
        w->cut[i] = sum[i] > 0;
    for (int i = 0; i < n && ret == 0; i++)
        if (sum[n + i] > 0) {
            char *name = program_weight_name_dup(w->p->program, i);

            ret = err_set(err, ERR_NO,
                          "tensor %s: a rank has no part of it; --optimizer %s cannot "
                          "update it",
                          name, optimizer_names[w->p->optimizer]);
            free(name);
        }
    free(sum);
    return ret;
}

static int make_room(struct wholes *w, struct err *err)
{
    const struct parameters *p = w->p;

    for (int i = 0; i < p->program->nweights; i++) {
        uint64_t n;

        if (!p->row[i].trained || !p->row[i].count || !wholes_has(w, i))
            continue;
        n = p->row[i].matrix ? optimizer_room(p->optimizer, p->program, i) : 0;
        w->nroom = n > w->nroom ? n : w->nroom;
        w->nlocal = p->row[i].n > w->nlocal ? p->row[i].n : w->nlocal;
    }
    if (p->ops->host_memory) {
        w->nlocal = 0;
    } else if (w->nlocal) {
        w->own = mem_alloc(w->nlocal * sizeof(float), "an update", err);
        w->x = w->own ? mem_alloc(w->nlocal * sizeof(float), "an update", err) : NULL;
        if (!w->x)
            return -1;
    }
    if (!w->nroom)
        return 0;
    w->room = w->ops->alloc(w->device, w->nroom * sizeof(float), "an update", err);
    return w->room ? 0 : -1;
}

int wholes_open(struct wholes **out, struct parameters *p, struct comm *tensor,
                int threads, struct err *err)
{
    struct wholes *w;

    *out = NULL;
    if (optimizer_table[p->optimizer].matrices == MATRICES_NONE)
        return 0;
    if (!p->ops->host_memory && !p->offload)
        return err_set(err, ERR_NO,
                       "--optimizer %s: it is the CPU that updates matrices: give "
                       "--offload optimizer",
                       optimizer_names[p->optimizer]);
    w = xcalloc(1, sizeof(*w));
    *w = (struct wholes){ .p = p,
                          .tensor = tensor,
                          .threads = threads,
                          .ops = p->ops->host_memory ? p->ops : &backend_cpu,
                          .device = p->ops->host_memory ? p->device
                                                        : offload_device(p->offload) };
    w->cut = xcalloc((size_t)p->program->nweights + 1, sizeof(*w->cut));
    if (find_cut(w, err) < 0 || make_room(w, err) < 0) {
        wholes_close(w);
        return -1;
    }
    *out = w;
    return 0;
}

void wholes_close(struct wholes *w)
{
    if (!w)
        return;
    w->ops->release(w->device, w->room);
    free(w->own);
    free(w->x);
    free(w->cut);
    free(w);
}

int wholes_divided(const struct wholes *w)
{
    int n = 0;

    for (int i = 0; w && i < w->p->program->nweights; i++)
        n += w->p->row[i].matrix && w->p->row[i].trained &&
             w->p->optimizer == OPTIMIZER_ADAM8BIT &&
             optimizer_divides(w->p->program, i);
    return n;
}

void wholes_memory(const struct wholes *w, struct ledger *list)
{
    const bool host = w && (w->own || w->p->offload);

    if (w)
        ledger_add(list, "optimizer_room", host ? LEDGER_HOST : LEDGER_DEVICE,
                   (w->nroom + 2 * w->nlocal) * sizeof(float));
}

/* ---- parts of a tensor ---- */

struct part_walk {
    const struct tensor_here *t;
    float *whole;        /* gets or gives this rank's numbers, */
    const float *from;   /* from here, if not NULL, what it owns, */
    float *to;           /* or to here all */
    uint64_t *row, *col; /* or: where each of its rows and columns is in the whole; */
    bool *owned;         /* [rows][cols]: has this rank the primary replica? */
};

static void walk_part(void *arg, size_t here, size_t whole, size_t n, bool owned)
{
    struct part_walk *k = arg;
    const struct tensor_here *t = k->t;
    const uint64_t at = whole % (t->whole_rows * t->whole_cols);

    if (k->from && owned)
        memcpy(k->whole + at, k->from + here, n * sizeof(float));
    if (k->to)
        memcpy(k->to + here, k->whole + at, n * sizeof(float));
    if (!k->row)
        return;
    for (size_t e = 0; e < n; e++) {
        k->row[(here + e) / t->cols] = (at + e) / t->whole_cols;
        k->col[(here + e) % t->cols] = (at + e) % t->whole_cols;
        k->owned[here + e] = owned;
    }
}

static void walk(const struct tensor_here *t, struct part_walk k)
{
    k.t = t;
    parameters_group_runs(t->w->p, t->i, walk_part, &k);
}

/* ---- AdamW with moments in codes (Dettmers et al. 2022) ---- */

struct codes_update {
    const struct tensor_here *t;
    struct adamw_numbers by;
    struct codes8 m, v;
    float signs[CODES8], squares[CODES8];
};

static void update_code_rows(void *arg, int share, uint64_t row, uint64_t end)
{
    const struct codes_update *c = arg;
    float m[OPTIMIZER_CODES], v[OPTIMIZER_CODES];

    (void)share;
    for (; row < end; row++)
        for (uint64_t b = 0, col = 0; b < c->m.blocks; col = c->m.ends[b++]) {
            const uint64_t at = row * c->m.cols + col, n = c->m.ends[b] - col;
            float *ms = &c->m.scale[row * c->m.blocks + b];
            float *vs = &c->v.scale[row * c->v.blocks + b];

            codes8_decode(m, c->m.code + at, *ms, n, c->signs);
            codes8_decode(v, c->v.code + at, *vs, n, c->squares);
            for (uint64_t k = 0; k < n; k++)
                update_adamw(&c->by, &c->t->y[at + k], c->t->g[at + k], &m[k], &v[k]);
            *ms = codes8_encode(c->m.code + at, m, n, c->signs);
            *vs = codes8_encode(c->v.code + at, v, n, c->squares);
        }
}

static uint64_t rows_a_thread(const struct tensor_here *t)
{
    return NUMBERS / t->cols + 1;
}

static int update_codes(const struct tensor_here *t, const union update_numbers *by)
{
    const struct parameters *p = t->w->p;
    struct codes_update c = { .t = t, .by = by->adamw };

    c.m = codes8_open(p->row[t->i].slot[0], p->program, t->i);
    c.v = codes8_open(p->row[t->i].slot[1], p->program, t->i);
    codes8_map(c.signs, SLOT_CODES);
    codes8_map(c.squares, SLOT_SQUARES);
    shares_run(t->rows, rows_a_thread(t), t->w->threads, update_code_rows, &c);
    codes8_close(&c.m);
    codes8_close(&c.v);
    return 0;
}

/* ---- Muon (Jordan et al. 2024), as torch.optim.Muon but in f32 ---- */

/* y = x z */
static int multiply(struct wholes *w, float *y, const float *x, const float *z,
                    uint64_t rows, uint64_t inner, uint64_t cols, struct err *err)
{
    const struct array_call c = {
        .n = rows * cols, .y = y, .x = x, .z = z, .rows = rows, .inner = inner
    };

    return w->ops->array[ARRAY_PRODUCT](w->device, &c, err);
}

static void transpose(float *y, const float *x, uint64_t rows, uint64_t cols)
{
    enum { SIDE = 16 };

    for (uint64_t i = 0; i < rows; i += SIDE)
        for (uint64_t k = 0; k < cols; k += SIDE)
            for (uint64_t a = i; a < i + SIDE && a < rows; a++)
                for (uint64_t b = k; b < k + SIDE && b < cols; b++)
                    y[b * rows + a] = x[a * cols + b];
}

/* y = a x + b y */
static void mix(float *y, const float *x, float a, float b, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        y[i] = a * x[i] + b * y[i];
}

/* Brings the singular values of X[rows][cols], rows <= cols, near 1 by five steps of a
 * Newton-Schulz iteration.  Its numbers are in X or in ROOM, which is as large;
 * *OUT says where. */
static int orthogonalize(struct wholes *w, float **out, float *x, float *room,
                         float *gram, uint64_t rows, uint64_t cols, struct err *err)
{
    enum { STEPS = 5 };
    const float a = 3.4445F, b = -4.775F, c = 2.0315F;
    const double least = 1e-7;
    float *square = gram + rows * rows;
    const uint64_t n = rows * cols;
    double norm = 0;

    for (uint64_t i = 0; i < n; i++)
        norm += (double)x[i] * x[i];
    norm = sqrt(norm) > least ? sqrt(norm) : least;
    for (uint64_t i = 0; i < n; i++)
        x[i] = (float)(x[i] / norm);
    for (int step = 0; step < STEPS; step++) {
        float *other = room;

        transpose(room, x, rows, cols);
        if (multiply(w, gram, x, room, rows, cols, rows, err) < 0 ||
            multiply(w, square, gram, gram, rows, rows, rows, err) < 0)
            return -1;
        mix(square, gram, b, c, rows * rows);
        if (multiply(w, room, square, x, rows, rows, cols, err) < 0)
            return -1;
        mix(room, x, a, 1, n);
        room = x;
        x = other;
    }
    *out = x;
    return 0;
}

static double muon_rate(const struct tensor_here *t, const struct optimizer_options *o,
                        double rate)
{
    const double rows = (double)t->whole_rows, cols = (double)t->whole_cols;

    return o->adjust == MUON_MATCH_RMS_ADAMW
               ? rate * 0.2 * sqrt(rows > cols ? rows : cols)
               : rate * sqrt(rows > cols ? rows / cols : 1);
}

static int update_muon(const struct tensor_here *t, const struct optimizer_options *o,
                       double rate, double decay, struct err *err)
{
    struct wholes *w = t->w;
    const uint64_t n = t->rows * t->cols, whole = t->whole_rows * t->whole_cols;
    const bool turned = t->whole_rows > t->whole_cols, cut = w->cut[t->i];
    const uint64_t rows = turned ? t->whole_cols : t->whole_rows;
    const float keep = (float)(1 - rate * decay), by = (float)-muon_rate(t, o, rate);
    const float left = (float)(1 - o->momentum);
    float *sum = w->p->row[t->i].slot[0], *first = w->room, *second = first + whole;
    float *made;

    for (uint64_t i = 0; i < n; i++) {
        const float own = t->g[i] * t->factor;

        sum[i] += left * (own - sum[i]);
        t->g[i] = sum[i] + left * (own - sum[i]);
    }
    if (cut) {
        memset(first, 0, (size_t)whole * sizeof(*first));
        walk(t, (struct part_walk){ .whole = first, .from = t->g });
        if (comm_run(w->tensor, comm_all_reduce(first, (size_t)whole), err) < 0)
            return -1;
    } else {
        memcpy(first, t->g, (size_t)n * sizeof(*first));
    }
    if (turned) {
        transpose(second, first, t->whole_rows, t->whole_cols);
        first = second;
        second = w->room;
    }
    if (orthogonalize(w, &made, first, second, w->room + 2 * whole, rows, whole / rows,
                      err) < 0)
        return -1;
    if (turned) {
        float *to = made == first ? second : first;

        transpose(to, made, t->whole_cols, t->whole_rows);
        made = to;
    }
    if (cut)
        walk(t, (struct part_walk){ .whole = made, .to = t->g });
    else
        memcpy(t->g, made, (size_t)n * sizeof(*made));
    for (uint64_t i = 0; i < n; i++)
        t->y[i] = t->y[i] * keep + by * t->g[i];
    return 0;
}

/* ---- Adafactor (Shazeer and Stern 2018), as transformers has it ---- */

struct factors {
    const struct tensor_here *t;
    bool matrix, cut;
    uint64_t *row, *col; /* of .cut: where they are in the whole; */
    bool *owned;         /* [rows][cols] */
    double *rows, *cols; /* [whole_rows], [whole_cols]: sums of squares, and more */
    double *some;        /* [rows]: of each row here */
    float *row_factor, *col_factor; /* [rows], [cols] */
    float *square;                  /* of a vector: the average of its squares */
    float keep, add;
};

static const float LEAST_SQUARE = 1e-30F;

static bool owns(const struct factors *f, uint64_t at)
{
    return !f->cut || f->owned[at];
}

static float square_of(const struct factors *f, uint64_t at)
{
    const float g = f->t->g[at] * f->t->factor;

    return g * g + LEAST_SQUARE;
}

static void sum_rows(void *arg, int share, uint64_t row, uint64_t end)
{
    const struct factors *f = arg;

    (void)share;
    for (; row < end; row++) {
        double sum = 0;

        for (uint64_t k = row * f->t->cols; k < (row + 1) * f->t->cols; k++)
            sum += owns(f, k) ? (double)square_of(f, k) : 0;
        f->rows[f->cut ? f->row[row] : row] = sum;
    }
}

static void sum_columns(void *arg, int share, uint64_t col, uint64_t end)
{
    const struct factors *f = arg;

    (void)share;
    for (uint64_t row = 0; row < f->t->rows; row++)
        for (uint64_t k = col; k < end; k++) {
            const uint64_t at = row * f->t->cols + k;

            f->cols[f->cut ? f->col[k] : k] +=
                owns(f, at) ? (double)square_of(f, at) : 0;
        }
}

static void sum_weights(void *arg, int share, uint64_t row, uint64_t end)
{
    const struct factors *f = arg;

    (void)share;
    for (; row < end; row++) {
        f->some[row] = 0;
        for (uint64_t k = row * f->t->cols; k < (row + 1) * f->t->cols; k++)
            f->some[row] += owns(f, k) ? (double)f->t->y[k] * f->t->y[k] : 0;
    }
}

/* The update of element K of row ROW, before it is clipped. */
static float update_of(const struct factors *f, uint64_t row, uint64_t k)
{
    const uint64_t at = row * f->t->cols + k;
    const float g = f->t->g[at] * f->t->factor;

    return f->matrix ? f->row_factor[row] * f->col_factor[k] * g
                     : 1.0F / sqrtf(f->square[at]) * g;
}

static void sum_updates(void *arg, int share, uint64_t row, uint64_t end)
{
    const struct factors *f = arg;

    (void)share;
    for (; row < end; row++) {
        f->some[row] = 0;
        for (uint64_t k = 0; k < f->t->cols; k++) {
            const double u = owns(f, row * f->t->cols + k) ? update_of(f, row, k) : 0;

            f->some[row] += u * u;
        }
    }
}

/* *SUM becomes the sum over the rows here, and over the group. */
static int sum_all(const struct factors *f, shares_task *run, double *sum,
                   struct err *err)
{
    const struct tensor_here *t = f->t;

    *sum = 0;
    shares_run(t->rows, rows_a_thread(t), t->w->threads, run, (void *)(uintptr_t)f);
    for (uint64_t row = 0; row < t->rows; row++)
        *sum += f->some[row];
    return f->cut ? comm_run(t->w->tensor, comm_all_reduce_f64(sum, 1), err) : 0;
}

/* Averages the squares of rows and columns, and finds the factors of an update. */
static int find_factors(struct factors *f, struct err *err)
{
    const struct tensor_here *t = f->t;
    const struct parameter *row = &t->w->p->row[t->i];
    const uint64_t both = t->whole_rows + t->whole_cols;
    float *r = row->slot[0], *c = row->slot[1], mean;
    double sum = 0;

    memset(f->rows, 0, (size_t)both * sizeof(*f->rows));
    shares_run(t->rows, rows_a_thread(t), t->w->threads, sum_rows, f);
    shares_run(t->cols, NUMBERS / t->rows + 1, t->w->threads, sum_columns, f);
    if (f->cut &&
        comm_run(t->w->tensor, comm_all_reduce_f64(f->rows, (size_t)both), err) < 0)
        return -1;
    for (uint64_t i = 0; i < t->rows; i++) {
        r[i] =
            r[i] * f->keep +
            (float)(f->rows[f->cut ? f->row[i] : i] / (double)t->whole_cols) * f->add;
        /* whoever has a row's first column counts it */
        for (uint64_t k = 0; k < t->cols && f->cut; k++)
            if (f->col[k] == 0 && f->owned[i * t->cols + k])
                sum += (double)r[i];
        sum += f->cut ? 0 : (double)r[i];
    }
    for (uint64_t k = 0; k < t->cols; k++) {
        c[k] =
            c[k] * f->keep +
            (float)(f->cols[f->cut ? f->col[k] : k] / (double)t->whole_rows) * f->add;
        f->col_factor[k] = 1.0F / sqrtf(c[k]);
    }
    if (f->cut && comm_run(t->w->tensor, comm_all_reduce_f64(&sum, 1), err) < 0)
        return -1;
    mean = (float)(sum / (double)t->whole_rows);
    for (uint64_t i = 0; i < t->rows; i++)
        f->row_factor[i] = 1.0F / sqrtf(r[i] / mean);
    return 0;
}

static void find_places(struct factors *f)
{
    const struct tensor_here *t = f->t;

    if (!f->cut)
        return;
    f->row = xcalloc((size_t)t->rows + 1, sizeof(*f->row));
    f->col = xcalloc((size_t)t->cols + 1, sizeof(*f->col));
    f->owned = xcalloc((size_t)(t->rows * t->cols) + 1, sizeof(*f->owned));
    walk(t, (struct part_walk){ .row = f->row, .col = f->col, .owned = f->owned });
}

/* Of a vector: each number has a factor of its own. */
static void average_squares(const struct factors *f)
{
    for (uint64_t i = 0; i < f->t->cols; i++)
        f->square[i] = f->square[i] * f->keep + square_of(f, i) * f->add;
}

static int update_factors(const struct tensor_here *t,
                          const struct optimizer_options *o, double rate, double decay,
                          uint64_t step, struct err *err)
{
    const struct parameter *row = &t->w->p->row[t->i];
    const double n = (double)(t->whole_rows * t->whole_cols), least = 1e-3;
    const double beta = 1 - pow((double)step, o->power);
    struct factors f = { .t = t,
                         .matrix = row->matrix,
                         .cut = t->w->cut[t->i],
                         .square = row->slot[2],
                         .keep = (float)beta,
                         .add = (float)(1 - beta) };
    double weights = 0, updates = 0, over;
    float by, keep;
    int ret = -1;

    f.some = xcalloc((size_t)t->rows + 1, sizeof(*f.some));
    f.rows = (double *)(void *)t->w->room;
    f.cols = f.matrix ? f.rows + t->whole_rows : NULL;
    f.row_factor = f.matrix ? (float *)(void *)(f.cols + t->whole_cols + 2) : NULL;
    f.col_factor = f.matrix ? f.row_factor + t->rows : NULL;
    find_places(&f);
    if (o->scaled && sum_all(&f, sum_weights, &weights, err) < 0)
        goto out;
    if (f.matrix && find_factors(&f, err) < 0)
        goto out;
    if (!f.matrix)
        average_squares(&f);
    if (sum_all(&f, sum_updates, &updates, err) < 0)
        goto out;
    if (o->relative)
        rate *= fmin(1 / sqrt((double)step), o->warms ? 1e-6 * (double)step : 1e-2);
    if (o->scaled)
        rate *= sqrt(weights / n) > least ? sqrt(weights / n) : least;
    over = sqrt(updates / n) / o->threshold;
    by = (float)(rate / (over > 1 ? over : 1));
    keep = (float)(1 - rate * decay);
    for (uint64_t i = 0; i < t->rows; i++)
        for (uint64_t k = 0; k < t->cols; k++) {
            float *y = &t->y[i * t->cols + k];

            *y = *y * keep - by * update_of(&f, i, k);
        }
    ret = 0;
out:
    free(f.row);
    free(f.col);
    free(f.owned);
    free(f.some);
    return ret;
}

/* ---- an update ---- */

int wholes_update(struct wholes *w, int i, const struct optimizer_options *o,
                  double rate, uint64_t t, float factor, struct err *err)
{
    const struct parameters *p = w->p;
    const struct parameter *row = &p->row[i];
    const double decay = row->decays ? o->decay : 0;
    const size_t bytes = (size_t)row->n * sizeof(float);
    struct tensor_here here = { .w = w, .i = i, .y = row->own, .g = row->sum };
    union update_numbers by;
    int ret;

    here.factor = factor;
    here.rows = row->matrix ? p->program->weight[i].rows : 1;
    here.cols = row->n / here.rows;
    whole_shape(w, i, &here.whole_rows, &here.whole_cols);
    if (w->own) {
        here.y = w->own;
        here.g = w->x;
        if (p->ops->copy_out(p->device, here.y, row->own, bytes, err) < 0 ||
            p->ops->copy_out(p->device, here.g, row->sum, bytes, err) < 0)
            return -1;
    } else if (p->ops->wait(p->device, err) < 0) {
        return -1;
    }
    if (p->optimizer == OPTIMIZER_MUON) {
        ret = update_muon(&here, o, rate, decay, err);
    } else if (p->optimizer == OPTIMIZER_ADAFACTOR) {
        ret = update_factors(&here, o, rate, decay, t, err);
    } else {
        optimizer_table[p->optimizer].set(&by, o, rate, t, decay);
        by.factor = factor;
        ret = update_codes(&here, &by);
    }
    if (ret == 0 && w->own)
        ret = p->ops->copy_in(p->device, row->own, here.y, bytes, err);
    return ret;
}
