/* sample - draw the next token from logits
 *
 * Nothing is sorted: what is too unlikely is left out first, and the likeliest of the
 * others are separated by choosing pivots (Hoare 1961, "Find"). */
#include <math.h>
#include <string.h>

#include "lib/base/rng.h"
#include "lib/cpu/cpu.h"
#include "lib/cpu/simd/vec.h"

enum { GROUP = 4 * VEC }; /* logits of which a largest one is kept */

static bool is_likelier(const struct cpu_candidate *a, const struct cpu_candidate *b)
{
    return a->logit > b->logit || (a->logit == b->logit && a->id < b->id);
}

static void swap(struct cpu_candidate *a, struct cpu_candidate *b)
{
    struct cpu_candidate c = *a;

    *a = *b;
    *b = c;
}

/* Puts the likeliest of C[N], N > 0, first: as few, in any order but for the least
 * likely of them, which is the last, as have weights whose sum is at least LIMIT, or
 * above it if MORE.  Returns how many; *SUM is theirs. */
static size_t likeliest(struct cpu_candidate *c, size_t n, double limit, bool more,
                        double *sum)
{
    size_t low = 0, high = n; /* those before LOW are among them */
    double before = 0;

    while (low < high) {
        struct cpu_candidate *last = &c[high - 1], *middle = &c[low + (high - low) / 2];
        size_t at = low;
        double found = 0;

        /* the pivot, the median of three, goes to the end */
        if (is_likelier(middle, &c[low]))
            swap(middle, &c[low]);
        if (is_likelier(last, &c[low]))
            swap(last, &c[low]);
        if (is_likelier(middle, last))
            swap(middle, last);
        for (size_t i = low; i < high - 1; i++)
            if (is_likelier(&c[i], last)) {
                found += c[i].weight;
                swap(&c[i], &c[at++]);
            }
        swap(&c[at], last);
        if (at > low && (more ? before + found > limit : before + found >= limit)) {
            high = at;
            continue;
        }
        before += found + c[at].weight;
        low = at + 1;
        if (more ? before > limit : before >= limit)
            break;
    }
    *sum = before;
    return low;
}

/* A logit that at least K of the N are not below.  ROOM has a float for each GROUP. */
static float bound_of(const float *logits, size_t n, size_t k, float *room)
{
    size_t groups = n / GROUP, low = 0, high = groups;

    if (k > groups)
        return -INFINITY;
    for (size_t i = 0; i < groups; i++)
        room[i] = cpu_largest(logits + i * GROUP, GROUP);
    /* the K-th largest of these: each is at least one of K logits */
    while (high - low > 1) {
        const float pivot = room[low + (high - low) / 2];
        size_t above = low, equal = low;

        for (size_t i = low; i < high; i++) {
            const float x = room[i];

            if (x < pivot)
                continue;
            room[i] = room[equal];
            room[equal] = x;
            if (x > pivot) {
                room[equal] = room[above];
                room[above++] = x;
            }
            equal++;
        }
        if (k <= above)
            high = above;
        else if (k <= equal)
            return pivot;
        else
            low = equal;
    }
    return room[low];
}

/* Puts the candidates of C[N] that are as likely as the last of the first LOW after
 * them, and returns how many these are then. */
static size_t add_equals(struct cpu_candidate *c, size_t low, size_t n)
{
    const float least = c[low - 1].logit;

    for (size_t i = low; i < n; i++)
        if (c[i].logit == least)
            swap(&c[i], &c[low++]);
    return low;
}

/* The first of the largest logits. */
static int32_t first_of(const float *logits, size_t vocab, float largest)
{
    int32_t first = -1;

    for (size_t i = vocab; i-- > 0;) {
        if (isnan(logits[i]))
            return -1;
        if (logits[i] == largest)
            first = (int32_t)i;
    }
    return first;
}

int32_t cpu_sample(const float *logits, size_t vocab, const struct draw *s, void *room)
{
    struct cpu_candidate *c = room;
    double *weight = (double *)(void *)(c + vocab);
    const float largest = cpu_largest(logits, vocab);
    const bool some = s->top_k && s->top_k < vocab;
    double total = 0, least = 0, draw;
    float bound = -INFINITY;
    bool bad = !isfinite(largest);
    size_t n = 0;
    struct rng rng;

    if (s->temperature <= 0)
        return bad ? -1 : first_of(logits, vocab, largest);
    rng_init(&rng, s->seed, s->position);
    draw = rng_uniform(&rng);
    if (some)
        bound = bound_of(logits, vocab, (size_t)s->top_k, (float *)(void *)weight);
    else
        total = cpu_exp_terms(weight, logits, vocab, (double)largest, s->temperature);
    if (bad || isnan(total))
        return -1;
    if (!s->top_k && s->top_p >= 1) {
        draw *= total;
        for (total = 0; n + 1 < vocab; n++) {
            total += weight[n];
            if (draw < total)
                break;
        }
        return (int32_t)n;
    }
    /* all that weigh less add up to less than what may be left out */
    if (!some)
        least = (1 - s->top_p) * total / (double)vocab / 2;
    for (size_t i = 0; i < vocab; i++) {
        bad |= isnan(logits[i]);
        if (some ? logits[i] >= bound : weight[i] >= least)
            c[n++] =
                (struct cpu_candidate){ some ? 1 : weight[i], logits[i], (int32_t)i };
    }
    if (bad)
        return -1;
    if (some) {
        n = add_equals(c, likeliest(c, n, (double)s->top_k, false, &total), n);
        total = 0;
        for (size_t i = 0; i < n; i++)
            total += cpu_exp_terms(&c[i].weight, &c[i].logit, 1, (double)largest,
                                   s->temperature);
    }
    if (s->top_p < 1)
        n = likeliest(c, n, s->top_p * total, false, &total);
    n = likeliest(c, n, draw * total, true, &total);
    return c[n - 1].id;
}
