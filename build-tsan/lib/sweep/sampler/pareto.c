/* pareto - fronts, non-domination ranks and hypervolumes of losses */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/sweep/sampler/pareto.h"

/* A row to be sorted; carries M, since qsort passes no context. */
struct row {
    const double *loss;
    size_t m, index;
};

bool pareto_dominates(const double *a, const double *b, size_t m)
{
    bool smaller = false;

    for (size_t i = 0; i < m; i++) {
        if (a[i] > b[i])
            return false;
        smaller |= a[i] < b[i];
    }
    return smaller;
}

static int compare_losses(const double *a, const double *b, size_t m)
{
    for (size_t i = 0; i < m; i++)
        if (a[i] != b[i])
            return a[i] < b[i] ? -1 : 1;
    return 0;
}

static int compare_rows(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    int order = compare_losses(x->loss, y->loss, x->m);

    return order ? order : x->index < y->index ? -1 : x->index > y->index;
}

static struct row *sorted_rows(const double *losses, size_t n, size_t m)
{
    struct row *rows = xcalloc(n + 1, sizeof(*rows));

    for (size_t i = 0; i < n; i++)
        rows[i] = (struct row){ losses + i * m, m, i };
    qsort(rows, n, sizeof(*rows), compare_rows);
    return rows;
}

/* Move the front of the sorted, different ROWS[n] to its start, order kept on both
 * sides; returns its size.  A row can only be dominated by one before it, and if so,
 * by one of the front.  SPARE has room for N. */
static size_t split_front(struct row *rows, size_t n, size_t m, struct row *spare)
{
    size_t front = 0, rest = 0;
    double least = INFINITY;

    for (size_t i = 0; i < n; i++) {
        bool on_front = true;

        if (m == 1) {
            on_front = front == 0;
        } else if (m == 2) {
            on_front = front == 0 || rows[i].loss[1] < least;
            if (on_front)
                least = rows[i].loss[1];
        } else {
            for (size_t k = 0; k < front && on_front; k++)
                on_front = !pareto_dominates(rows[k].loss, rows[i].loss, m);
        }
        if (on_front)
            rows[front++] = rows[i]; /* front <= i: nothing unread is lost */
        else
            spare[rest++] = rows[i];
    }
    memcpy(rows + front, spare, rest * sizeof(*rows));
    return front;
}

/* Leave one of each group of equal rows; FIRST[i] becomes the row kept for row i. */
static size_t drop_equal(struct row *rows, size_t n, size_t *first)
{
    size_t kept = 0;

    for (size_t i = 0; i < n; i++) {
        if (!kept || compare_losses(rows[kept - 1].loss, rows[i].loss, rows[i].m)) {
            first[rows[i].index] = rows[i].index;
            rows[kept++] = rows[i];
        } else {
            first[rows[i].index] = rows[kept - 1].index;
        }
    }
    return kept;
}

void pareto_ranks(size_t *rank, const double *losses, size_t n, size_t m, size_t enough)
{
    struct row *rows = sorted_rows(losses, n, m);
    struct row *spare = xcalloc(n + 1, sizeof(*spare));
    size_t *first = xcalloc(n + 1, sizeof(*first));
    size_t different = drop_equal(rows, n, first), done = 0, level = 0;

    if (!enough || enough > different)
        enough = different;
    while (done < enough) {
        size_t front = split_front(rows + done, different - done, m, spare);

        for (size_t i = 0; i < front; i++)
            rank[rows[done + i].index] = level;
        done += front;
        level++;
    }
    for (; done < different; done++)
        rank[rows[done].index] = level;
    for (size_t i = 0; i < n; i++)
        rank[i] = rank[first[i]];
    free(rows);
    free(spare);
    free(first);
}

static double box(const double *p, const double *ref, size_t m)
{
    double volume = 1;

    for (size_t i = 0; i < m; i++)
        volume *= ref[i] - p[i];
    return volume;
}

/* Sorted front of the N points, all within REF; in place.  Returns its size. */
static size_t reduce(double *points, size_t n, size_t m)
{
    struct row *rows = sorted_rows(points, n, m);
    struct row *spare = xcalloc(n + 1, sizeof(*spare));
    size_t *first = xcalloc(n + 1, sizeof(*first));
    double *copy = xcalloc(n + 1, m * sizeof(*copy));
    size_t front = split_front(rows, drop_equal(rows, n, first), m, spare);

    for (size_t i = 0; i < front; i++)
        memcpy(copy + i * m, rows[i].loss, m * sizeof(*copy));
    memcpy(points, copy, front * m * sizeof(*copy));
    free(rows);
    free(spare);
    free(first);
    free(copy);
    return front;
}

/* The volume of a sorted front. */
static double front_volume(const double *front, size_t n, size_t m, const double *ref)
{
    double volume = 0, top = m > 1 ? ref[1] : 0;
    double *limited;

    if (n == 0)
        return 0;
    if (m == 1)
        return ref[0] - front[0];
    if (m == 2) { /* ascending in the first, so descending in the second */
        for (size_t i = 0; i < n; i++) {
            volume += (ref[0] - front[2 * i]) * (top - front[2 * i + 1]);
            top = front[2 * i + 1];
        }
        return volume;
    }
    limited = xcalloc(n, m * sizeof(*limited));
    for (size_t i = 0; i < n; i++) {
        size_t count = n - i - 1;

        for (size_t k = 0; k < count; k++)
            for (size_t c = 0; c < m; c++)
                limited[k * m + c] = fmax(front[i * m + c], front[(i + 1 + k) * m + c]);
        count = reduce(limited, count, m);
        volume += box(front + i * m, ref, m) - front_volume(limited, count, m, ref);
    }
    free(limited);
    return volume;
}

double pareto_hypervolume(const double *losses, size_t n, size_t m, const double *ref)
{
    double *points = xcalloc(n + 1, m * sizeof(*points));
    size_t kept = 0;
    double volume;

    for (size_t i = 0; i < n; i++) {
        bool within = true;

        for (size_t c = 0; c < m; c++)
            within = within && losses[i * m + c] <= ref[c];
        if (within)
            memcpy(points + kept++ * m, losses + i * m, m * sizeof(*points));
    }
    volume = front_volume(points, reduce(points, kept, m), m, ref);
    free(points);
    return volume;
}

/* What each point not yet chosen would add is an upper bound of what it will add
 * later, so only the largest bounds are computed anew (Minoux 1978). */
struct candidates {
    const double *losses, *ref;
    size_t m;
    double *chosen; /* [k][m] */
    size_t nchosen;
    double volume; /* of the chosen */
};

static double gain(struct candidates *c, const double *point)
{
    memcpy(c->chosen + c->nchosen * c->m, point, c->m * sizeof(*point));
    return pareto_hypervolume(c->chosen, c->nchosen + 1, c->m, c->ref) - c->volume;
}

static size_t best_candidate(struct candidates *c, double *bound,
                             const struct row *rows, size_t n)
{
    size_t best = n;
    double most = -INFINITY;

    for (;;) {
        size_t top = n;

        for (size_t i = 0; i < n; i++)
            if (!isnan(bound[i]) && (top == n || bound[i] > bound[top]))
                top = i;
        if (top == best)
            return best;
        bound[top] =
            c->nchosen ? fmin(bound[top], gain(c, rows[top].loss)) : bound[top];
        if (bound[top] > most || best == n) {
            most = bound[top];
            best = top;
        } else if (bound[top] == most && top < best) {
            best = top;
        }
    }
}

/* The first K of the different rows in order when some volume is infinite. */
static bool is_finite(const double *ref, size_t m)
{
    for (size_t i = 0; i < m; i++)
        if (!isfinite(ref[i]))
            return false;
    return true;
}

void pareto_choose(size_t *chosen, size_t k, const double *losses, size_t n, size_t m,
                   const double *ref)
{
    struct row *rows = sorted_rows(losses, n, m);
    size_t *first = xcalloc(n + 1, sizeof(*first));
    double *bound = xcalloc(n + 1, sizeof(*bound));
    bool *taken = xcalloc(n + 1, sizeof(*taken));
    size_t different = drop_equal(rows, n, first), count = 0;
    struct candidates c = { .losses = losses, .ref = ref, .m = m };

    c.chosen = xcalloc(k + 1, m * sizeof(*c.chosen));
    for (size_t i = 0; i < different; i++)
        bound[i] = box(rows[i].loss, ref, m);
    if (!is_finite(ref, m) || k >= different) {
        for (size_t i = 0; i < different && count < k; i++) {
            taken[rows[i].index] = true;
            chosen[count++] = rows[i].index;
        }
        for (size_t i = 0; i < n && count < k; i++)
            if (!taken[i])
                chosen[count++] = i;
        goto out;
    }
    while (count < k) {
        size_t best = best_candidate(&c, bound, rows, different);

        memcpy(c.chosen + c.nchosen * m, rows[best].loss, m * sizeof(*c.chosen));
        c.nchosen++;
        c.volume = pareto_hypervolume(c.chosen, c.nchosen, m, ref);
        bound[best] = NAN;
        chosen[count++] = rows[best].index;
    }
out:
    free(rows);
    free(first);
    free(bound);
    free(taken);
    free(c.chosen);
}

/* A tenth beyond the worst of each loss. */
static void set_reference(double *ref, const double *losses, size_t n, size_t m)
{
    for (size_t c = 0; c < m; c++) {
        ref[c] = -INFINITY;
        for (size_t i = 0; i < n; i++)
            ref[c] = fmax(ref[c], losses[i * m + c]);
        ref[c] = fmax(1.1 * ref[c], 0.9 * ref[c]);
        if (ref[c] == 0)
            ref[c] = 1e-12;
    }
}

static int compare_sizes(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;

    return x < y ? -1 : x > y;
}

void pareto_best(size_t *chosen, size_t k, const double *losses, size_t n, size_t m)
{
    double *tied = xcalloc(n + 1, m * sizeof(*tied)), *ref = xcalloc(m, sizeof(*ref));
    size_t *rank = xcalloc(n + 1, sizeof(*rank)), *row = xcalloc(n + 1, sizeof(*row));
    size_t count = 0;

    pareto_ranks(rank, losses, n, m, k);
    for (size_t level = 0; count < k; level++) {
        size_t ntied = 0, take;

        for (size_t i = 0; i < n; i++)
            if (rank[i] == level) {
                memcpy(tied + ntied * m, losses + i * m, m * sizeof(*tied));
                row[ntied++] = i;
            }
        take = ntied < k - count ? ntied : k - count;
        set_reference(ref, tied, ntied, m);
        pareto_choose(chosen + count, take, tied, ntied, m, ref);
        for (size_t i = 0; i < take; i++)
            chosen[count + i] = row[chosen[count + i]];
        count += take;
    }
    qsort(chosen, k, sizeof(*chosen), compare_sizes);
    free(tied);
    free(ref);
    free(rank);
    free(row);
}
