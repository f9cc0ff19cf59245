/* grid - every point of a finite space, once */
#include <math.h>
#include <stdlib.h>

#include "lib/base/mem.h"
#include "lib/sweep/sampler/sampler.h"

static const struct setting settings[] = { { .name = NULL } };

static uint64_t nth_index(const struct dist *d, double value)
{
    if (d->kind == DIST_CATEGORICAL)
        return (uint64_t)value;
    return d->step > 0 ? (uint64_t)floor((value - d->low) / d->step + 0.5) : 0;
}

/* Points of the parameters from I on, given the values X of those before I; the
 * entries from I on are overwritten. */
static uint64_t count_from(const struct space *s, double *x, size_t i)
{
    uint64_t n, total = 0;

    if (i == s->n)
        return 1;
    if (!space_active(s, x, i)) {
        x[i] = NAN;
        return count_from(s, x, i + 1);
    }
    n = space_count(&s->params[i].dist);
    if (!space_is_parent(s, i)) {
        x[i] = space_nth(&s->params[i].dist, 0);
        return n * count_from(s, x, i + 1);
    }
    for (uint64_t k = 0; k < n; k++) {
        x[i] = space_nth(&s->params[i].dist, k);
        total += count_from(s, x, i + 1);
    }
    return total;
}

/* Point K of the space, the last parameter changing fastest. */
static void nth_point(double *x, const struct space *s, uint64_t k)
{
    for (size_t i = 0; i < s->n; i++) {
        const struct dist *d = &s->params[i].dist;
        uint64_t value = 0, below;

        if (!space_active(s, x, i)) {
            x[i] = NAN;
            continue;
        }
        x[i] = space_nth(d, 0);
        below = count_from(s, x, i + 1);
        if (!space_is_parent(s, i)) {
            value = k / below;
            k %= below;
        } else {
            while (k >= below) {
                k -= below;
                x[i] = space_nth(d, ++value);
                below = count_from(s, x, i + 1);
            }
        }
        x[i] = space_nth(d, value);
    }
}

/* The index of point X, or false when it is not on the grid. */
static bool point_index(const double *point, const struct space *s, double *x,
                        uint64_t *out)
{
    uint64_t k = 0;

    for (size_t i = 0; i < s->n; i++) {
        const struct dist *d = &s->params[i].dist;
        uint64_t value;

        if (!space_active(s, x, i)) {
            x[i] = NAN;
            continue;
        }
        if (isnan(point[i]) || space_nearest(d, point[i]) != point[i])
            return false;
        value = nth_index(d, point[i]);
        if (!space_is_parent(s, i)) {
            x[i] = point[i];
            k += value * count_from(s, x, i + 1);
        } else {
            for (uint64_t v = 0; v < value; v++) {
                x[i] = space_nth(d, v);
                k += count_from(s, x, i + 1);
            }
        }
        x[i] = point[i];
    }
    *out = k;
    return true;
}

static int check(const struct space *space, const double *set, struct err *err)
{
    (void)set;
    for (size_t i = 0; i < space->n; i++)
        if (!space_count(&space->params[i].dist))
            return err_set(err, ERR_USAGE,
                           "grid: '%s' has no end of values: give it a step or a list",
                           space->params[i].name);
    if (!space_size(space))
        return err_set(err, ERR_USAGE, "grid: the space has too many points");
    return 0;
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* Trial N tries point N.  Where that is taken, by an enqueued trial or because the
 * numbers have outrun the grid, the first point not taken is tried. */
static int draw(double *x, struct sampler_note *note, const struct sampler_task *task)
{
    const struct space *s = task->space;
    const struct history *h = task->history;
    uint64_t size = space_size(s), want, n = 0, free_point = 0;
    uint64_t *taken = xcalloc(h->n + 1, sizeof(*taken));
    double *scratch = xcalloc(s->n + 1, sizeof(*scratch));
    bool wanted_free;

    (void)note;
    for (size_t i = 0; i < h->n; i++)
        n += point_index(h->trials[i].x, s, scratch, &taken[n]);
    qsort(taken, n, sizeof(*taken), compare);
    want = (uint64_t)task->number;
    wanted_free = task->number >= 0 && want < size;
    for (uint64_t i = 0; i < n; i++) {
        if (taken[i] == want)
            wanted_free = false;
        if (taken[i] == free_point)
            free_point++;
    }
    if (!wanted_free)
        want = free_point;
    if (want < size)
        nth_point(x, s, want);
    free(taken);
    free(scratch);
    return want < size;
}

const struct sampler sampler_grid = {
    .name = "grid",
    .summary = "every point of a finite space, in order",
    .settings = settings,
    .ends = true,
    .check = check,
    .draw = draw,
};
