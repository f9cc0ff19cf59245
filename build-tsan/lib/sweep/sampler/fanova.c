/* fanova - how much of the losses' variance each parameter explains */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/rng.h"
#include "lib/sweep/sampler/fanova.h"

enum { TREES = 64, DEPTH = 64 };

/* The trials as a table.  A number is in [0, 1]; one that is not in force is in the
 * middle.  Of a choice that some trial does not have, one more level stands for that.
 */
struct table {
    size_t n, d;
    double *x;      /* [n][d] */
    double *y;      /* [n] */
    size_t *levels; /* [d]: of a choice, 0 for a number */
};

/* The part of the space in which a leaf's value holds. */
struct leaf {
    double value;
    double volume;     /* part of the whole */
    double *low, *end; /* [d]: of numbers */
    bool **inside;     /* [d]: of a choice, [levels]; else NULL */
};

struct forest {
    const struct table *t;
    struct leaf *leaves; /* of the tree at hand */
    size_t n, cap;
};

struct split {
    size_t dim;
    double at; /* numbers below go left; of a choice, that level alone goes left */
    double gain;
};

struct sorted {
    double x, y;
};

static int compare_sorted(const void *a, const void *b)
{
    const struct sorted *p = a, *q = b;

    return p->x < q->x ? -1 : p->x > q->x;
}

/* The best way to part the rows by number DIM: the least sum of squares that is left,
 * which is the largest sum of (sum of a side)^2 / (its size). */
static void split_number(struct split *best, const struct table *t, const size_t *rows,
                         size_t n, size_t dim, struct sorted *room)
{
    double total = 0, left = 0;

    for (size_t i = 0; i < n; i++) {
        room[i] = (struct sorted){ t->x[rows[i] * t->d + dim], t->y[rows[i]] };
        total += room[i].y;
    }
    qsort(room, n, sizeof(*room), compare_sorted);
    for (size_t i = 1; i < n; i++) {
        double right, gain;

        left += room[i - 1].y;
        if (!(room[i - 1].x < room[i].x))
            continue;
        right = total - left;
        gain = left * left / (double)i + right * right / (double)(n - i) -
               total * total / (double)n;
        if (gain > best->gain)
            *best = (struct split){ dim, 0.5 * (room[i - 1].x + room[i].x), gain };
    }
}

static void split_choice(struct split *best, const struct table *t, const size_t *rows,
                         size_t n, size_t dim)
{
    for (size_t level = 0; level < t->levels[dim]; level++) {
        double in = 0, out = 0, gain;
        size_t count = 0;

        for (size_t i = 0; i < n; i++) {
            bool hit = t->x[rows[i] * t->d + dim] == (double)level;

            count += hit;
            in += hit ? t->y[rows[i]] : 0;
            out += hit ? 0 : t->y[rows[i]];
        }
        if (count == 0 || count == n)
            continue;
        gain = in * in / (double)count + out * out / (double)(n - count) -
               (in + out) * (in + out) / (double)n;
        if (gain > best->gain)
            *best = (struct split){ dim, (double)level, gain };
    }
}

static void copy_leaf(struct leaf *out, const struct leaf *l, const struct table *t)
{
    *out = *l;
    out->low = xcalloc(2 * t->d, sizeof(*out->low));
    out->end = out->low + t->d;
    memcpy(out->low, l->low, 2 * t->d * sizeof(*out->low));
    out->inside = xcalloc(t->d, sizeof(*out->inside));
    for (size_t i = 0; i < t->d; i++)
        if (t->levels[i]) {
            out->inside[i] = xcalloc(t->levels[i], sizeof(bool));
            memcpy(out->inside[i], l->inside[i], t->levels[i] * sizeof(bool));
        }
}

static void clear_leaf(struct leaf *l, size_t d)
{
    for (size_t i = 0; i < d; i++)
        free(l->inside[i]);
    free(l->inside);
    free(l->low);
}

/* How much of dimension I the leaf takes. */
static double extent(const struct leaf *l, const struct table *t, size_t i)
{
    size_t inside = 0;

    if (!t->levels[i])
        return l->end[i] - l->low[i];
    for (size_t k = 0; k < t->levels[i]; k++)
        inside += l->inside[i][k];
    return (double)inside / (double)t->levels[i];
}

static bool goes_left(const struct table *t, const struct split *s, size_t row)
{
    double x = t->x[row * t->d + s->dim];

    return t->levels[s->dim] ? x == s->at : x < s->at;
}

/* Grow the tree of ROWS[n] inside BOX, which is taken; its leaves go to F. */
static void grow(struct forest *f, size_t *rows, size_t n, struct leaf *box, int depth,
                 struct sorted *room)
{
    const struct table *t = f->t;
    double least = INFINITY, most = -INFINITY, sum = 0;
    struct split best = { .gain = 0 };
    struct leaf side;
    size_t left = 0;

    for (size_t i = 0; i < n; i++) {
        least = fmin(least, t->y[rows[i]]);
        most = fmax(most, t->y[rows[i]]);
        sum += t->y[rows[i]];
    }
    for (size_t i = 0; i < t->d && n > 1 && least < most && depth < DEPTH; i++) {
        if (t->levels[i])
            split_choice(&best, t, rows, n, i);
        else
            split_number(&best, t, rows, n, i, room);
    }
    if (!(best.gain > 0)) {
        box->value = sum / (double)n;
        box->volume = 1;
        for (size_t i = 0; i < t->d; i++)
            box->volume *= extent(box, t, i);
        f->leaves = xgrow(f->leaves, &f->cap, f->n + 1, sizeof(*f->leaves));
        f->leaves[f->n++] = *box;
        return;
    }
    for (size_t i = 0; i < n; i++)
        if (goes_left(t, &best, rows[i])) {
            size_t swap = rows[left];

            rows[left++] = rows[i];
            rows[i] = swap;
        }
    copy_leaf(&side, box, t);
    if (t->levels[best.dim]) {
        size_t level = (size_t)best.at;

        for (size_t k = 0; k < t->levels[best.dim]; k++)
            side.inside[best.dim][k] = k == level;
        box->inside[best.dim][level] = false;
    } else {
        side.end[best.dim] = box->low[best.dim] = best.at;
    }
    grow(f, rows, left, &side, depth + 1, room);
    grow(f, rows + left, n - left, box, depth + 1, room);
}

/* The variance of a choice's marginal mean, MEAN being that over all the space. */
static double choice_variance(const struct forest *f, size_t i, double mean)
{
    size_t levels = f->t->levels[i];
    double variance = 0;

    for (size_t k = 0; k < levels; k++) {
        double here = 0;

        for (size_t l = 0; l < f->n; l++)
            if (f->leaves[l].inside[i][k] && f->leaves[l].volume > 0)
                here += f->leaves[l].value * f->leaves[l].volume /
                        extent(&f->leaves[l], f->t, i);
        variance += (here - mean) * (here - mean) / (double)levels;
    }
    return variance;
}

/* The same of a number: its marginal mean changes where a leaf begins or ends. */
static double number_variance(const struct forest *f, size_t i, double mean)
{
    struct sorted *at = xcalloc(2 * f->n + 1, sizeof(*at));
    double variance = 0, here = 0;

    for (size_t l = 0; l < f->n; l++) {
        const struct leaf *leaf = &f->leaves[l];
        double part = leaf->volume > 0 /* else rounding left it no width */
                          ? leaf->value * leaf->volume / extent(leaf, f->t, i)
                          : 0;

        at[2 * l] = (struct sorted){ leaf->low[i], part };
        at[2 * l + 1] = (struct sorted){ leaf->end[i], -part };
    }
    qsort(at, 2 * f->n, sizeof(*at), compare_sorted);
    for (size_t k = 0; k + 1 < 2 * f->n; k++) {
        here += at[k].y;
        variance += (at[k + 1].x - at[k].x) * (here - mean) * (here - mean);
    }
    free(at);
    return variance;
}

/* Add to OUT[d] what each dimension explains of the tree's variance. */
static void add_tree(double *out, const struct forest *f)
{
    double mean = 0, total = 0;

    for (size_t l = 0; l < f->n; l++)
        mean += f->leaves[l].value * f->leaves[l].volume;
    for (size_t l = 0; l < f->n; l++)
        total += f->leaves[l].volume * (f->leaves[l].value - mean) *
                 (f->leaves[l].value - mean);
    for (size_t i = 0; total > 0 && i < f->t->d; i++)
        out[i] += (f->t->levels[i] ? choice_variance(f, i, mean)
                                   : number_variance(f, i, mean)) /
                  total;
}

/* A tree from as many trials as there are, drawn with replacement. */
static void add_random_tree(double *out, const struct table *t, struct rng *rng)
{
    size_t *rows = xcalloc(t->n, sizeof(*rows));
    struct sorted *room = xcalloc(t->n, sizeof(*room));
    struct forest f = { .t = t };
    struct leaf box = { .low = xcalloc(2 * t->d, sizeof(*box.low)),
                        .inside = xcalloc(t->d, sizeof(*box.inside)) };

    box.end = box.low + t->d;
    for (size_t i = 0; i < t->d; i++) {
        box.end[i] = 1;
        if (t->levels[i])
            box.inside[i] = xcalloc(t->levels[i], sizeof(bool));
        for (size_t k = 0; k < t->levels[i]; k++)
            box.inside[i][k] = true;
    }
    for (size_t i = 0; i < t->n; i++)
        rows[i] = rng_below(rng, t->n);
    grow(&f, rows, t->n, &box, 0, room);
    add_tree(out, &f);
    for (size_t l = 0; l < f.n; l++)
        clear_leaf(&f.leaves[l], t->d);
    free(f.leaves);
    free(rows);
    free(room);
}

static void fill_table(struct table *t, const struct history *h,
                       const struct space *space)
{
    *t = (struct table){ .d = space->n };
    t->x = xcalloc(h->n + 1, (space->n + 1) * sizeof(*t->x));
    t->y = xcalloc(h->n + 1, sizeof(*t->y));
    t->levels = xcalloc(space->n + 1, sizeof(*t->levels));
    for (size_t i = 0; i < space->n; i++)
        if (space->params[i].dist.kind == DIST_CATEGORICAL)
            t->levels[i] = space->params[i].dist.nchoices;
    for (size_t k = 0; k < h->n; k++) {
        const struct past *p = &h->trials[k];

        if (p->state != PAST_COMPLETE || !isfinite(p->loss[0]))
            continue;
        for (size_t i = 0; i < space->n; i++) {
            const struct dist *dist = &space->params[i].dist;
            double *x = &t->x[t->n * t->d + i];

            if (isnan(p->x[i])) {
                *x = t->levels[i] ? (double)dist->nchoices : 0.5;
                if (t->levels[i])
                    t->levels[i] = dist->nchoices + 1;
            } else if (t->levels[i]) {
                *x = p->x[i];
            } else {
                *x = dist_single(dist) ? 0.5 : space_to_unit(dist, p->x[i]);
                *x = fmin(fmax(*x, 0), 1);
            }
        }
        t->y[t->n++] = p->loss[0];
    }
}

void fanova_importance(double *out, const struct history *h, const struct space *space)
{
    struct table t;
    struct rng rng;
    double sum = 0;

    fill_table(&t, h, space);
    memset(out, 0, space->n * sizeof(*out));
    for (uint64_t tree = 0; tree < TREES && t.n > 0 && t.d > 0; tree++) {
        rng_init(&rng, 0, tree); /* the same forest every time */
        add_random_tree(out, &t, &rng);
    }
    for (size_t i = 0; i < t.d; i++)
        sum += out[i];
    for (size_t i = 0; t.n > 0 && i < t.d; i++)
        out[i] = sum > 0 ? out[i] / sum : 1.0 / (double)t.d;
    free(t.x);
    free(t.y);
    free(t.levels);
}
