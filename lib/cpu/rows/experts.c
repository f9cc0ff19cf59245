/* experts - the choice of the top-k experts of each row, their weights, and their rows
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/cpu/cpu.h"

/* An operation on rows. */
struct row_job {
    float *y;
    const float *x, *s;
    const int32_t *row;
    int32_t *choice;
    size_t cols, r_cols, col;
    const struct inst *inst;
    float *scratch; /* [threads][each] */
    size_t each;
};

/* Index of the largest of the N values at X, the first of equals. */
static size_t largest(const float *x, size_t n)
{
    size_t best = 0;

    for (size_t k = 1; k < n; k++)
        if (x[k] > x[best])
            best = k;
    return best;
}

/* Keeps the scores of the best groups only (DeepSeek-V2, 2024, section 2.2.2; V3 adds
 * up the best two of a group).  SPARE has room for a row and its groups. */
static void limit_groups(float *score, size_t cols, const struct inst *inst,
                         float *spare)
{
    size_t groups = inst->route.groups, size = cols / groups;
    float *sum = spare + cols;

    memcpy(spare, score, cols * sizeof(*spare));
    for (size_t g = 0; g < groups; g++) {
        sum[g] = 0;
        for (uint64_t i = 0; i < inst->route.best; i++) {
            size_t at = g * size + largest(spare + g * size, size);

            sum[g] += spare[at];
            spare[at] = -INFINITY;
        }
    }
    for (uint64_t i = 0; i < inst->route.of; i++) {
        size_t g = largest(sum, groups);

        sum[g] = -INFINITY; /* chosen */
    }
    for (size_t k = 0; k < cols; k++)
        if (sum[k / size] > -INFINITY)
            score[k] = -INFINITY;
}

static void choose_row(void *arg, size_t task, int thread)
{
    const struct row_job *r = arg;
    const struct inst *inst = r->inst;
    float *score = r->scratch + (size_t)thread * r->each, *spare = score + r->cols;
    int32_t *choice = r->choice + task * inst->route.top;

    memcpy(score, r->x + task * r->cols, r->cols * sizeof(*score));
    for (size_t k = 0; k < r->cols && r->s; k++)
        score[k] += r->s[k];
    if (inst->route.of < inst->route.groups)
        limit_groups(score, r->cols, inst, spare);
    for (uint64_t i = 0; i < inst->route.top; i++) {
        size_t k = largest(score, r->cols);
        bool none = i && (choice[i - 1] < 0 || score[k] == -INFINITY);

        choice[i] = none ? -1 : (int32_t)k;
        score[k] = -INFINITY;
    }
}

void cpu_choose(struct device *d, int32_t *choice, const float *x, size_t rows,
                size_t cols, const struct inst *inst, const struct matrix *bias)
{
    size_t each = 3 * cols;
    float *wide = bias ? xcalloc(cols, sizeof(*wide)) : NULL;
    struct row_job r = {
        .choice = choice, .x = x, .cols = cols, .inst = inst, .each = each
    };

    r.scratch = xcalloc(each * (size_t)cpu_threads(d), sizeof(*r.scratch));
    if (bias)
        r.s = cpu_widen(bias, 0, cols, wide);
    cpu_parallel(d, rows, choose_row, &r);
    free(r.scratch);
    free(wide);
}

bool cpu_route_near(const struct inst *inst, const float *x, const int32_t *choice,
                    uint64_t i, size_t k)
{
    double best = (double)x[choice[i]], score = (double)x[k];

    for (uint64_t j = 0; j < i; j++)
        if (choice[j] == (int32_t)k)
            return false;
    return best - score <= inst->route.near * fmax(fabs(score), best);
}

double cpu_route_softmax(const struct inst *inst, const float *x, size_t cols,
                         const int32_t *choice, uint64_t i)
{
    double sum = 0;

    for (size_t k = 0; k < cols; k++)
        if (cpu_route_near(inst, x, choice, i, k))
            sum += exp((double)(x[k] - x[choice[i]]));
    return sum;
}

static void route_row(void *arg, size_t task, int thread)
{
    const struct row_job *r = arg;
    const struct inst *inst = r->inst;
    const float *x = r->x + task * r->cols;
    const int32_t *choice = r->row + task * inst->route.top;
    float *y = r->y + task * r->cols;
    double sum = 0, factor = inst->route.scale;

    (void)thread;
    memset(y, 0, r->cols * sizeof(*y));
    for (uint64_t i = 0; i < inst->route.top && choice[i] >= 0; i++)
        sum += (double)x[choice[i]];
    if (inst->route.renorm)
        factor /= sum + 1e-20;
    for (uint64_t i = 0; i < inst->route.top && choice[i] >= 0; i++)
        y[choice[i]] =
            (float)(factor * (inst->route.near > 0
                                  ? 1 / cpu_route_softmax(inst, x, r->cols, choice, i)
                                  : (double)x[choice[i]]));
}

void cpu_route(struct device *d, float *y, const float *x, const int32_t *choice,
               size_t rows, size_t cols, const struct inst *inst)
{
    struct row_job r = { .y = y, .x = x, .row = choice, .cols = cols, .inst = inst };

    cpu_parallel(d, rows, route_row, &r);
}

struct row_copies {
    char *y;
    const char *x;
    const int32_t *row;
    size_t bytes;
};

static void take_row(void *arg, size_t task, int thread)
{
    const struct row_copies *r = arg;

    (void)thread;
    memcpy(r->y + task * r->bytes, r->x + (size_t)r->row[task] * r->bytes, r->bytes);
}

void cpu_take_rows(struct device *d, void *y, const void *x, const int32_t *row,
                   size_t rows, size_t bytes)
{
    struct row_copies r = { .y = y, .x = x, .row = row, .bytes = bytes };

    cpu_parallel(d, rows, take_row, &r);
}

static void add_row(void *arg, size_t task, int thread)
{
    const struct row_job *r = arg;
    size_t row = (size_t)r->row[task];
    float weight = r->s[row * r->r_cols + r->col];

    (void)thread;
    for (size_t k = 0; k < r->cols; k++)
        r->y[row * r->cols + k] += weight * r->x[task * r->cols + k];
}

void cpu_add_rows(struct device *d, float *y, const float *x, const int32_t *row,
                  size_t rows, size_t cols, const float *s, size_t r_cols, size_t col)
{
    struct row_job r = { .y = y, .x = x, .s = s, .row = row, .cols = cols };

    r.r_cols = r_cols;
    r.col = col;
    cpu_parallel(d, rows, add_row, &r);
}
