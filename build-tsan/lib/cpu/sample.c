/* sample - draw the next token from logits */
#include <math.h>
#include <stdlib.h>

#include "lib/base/mem.h"
#include "lib/base/rng.h"
#include "lib/cpu/cpu.h"

struct candidate {
    double weight; /* exp((logit - largest) / temperature) */
    int32_t id;
};

static int likelier_first(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;

    if (x->weight != y->weight)
        return x->weight < y->weight ? 1 : -1;
    return x->id < y->id ? -1 : 1;
}

int cpu_sample(float *id, const float *logits, size_t vocab, const struct draw *s,
               struct err *err)
{
    struct candidate *c = mem_alloc(vocab * sizeof(*c), "candidates", err);
    double largest = -INFINITY, total = 0, sum = 0, draw;
    size_t n = vocab;
    struct rng rng;

    if (!c)
        return -1;
    for (size_t i = 0; i < vocab; i++)
        largest = (double)logits[i] > largest ? (double)logits[i] : largest;
    for (size_t i = 0; i < vocab; i++)
        c[i] = (struct candidate){ exp(((double)logits[i] - largest) / s->temperature),
                                   (int32_t)i };
    if (s->top_k || s->top_p < 1)
        qsort(c, vocab, sizeof(*c), likelier_first);
    if (s->top_k && s->top_k < n)
        n = (size_t)s->top_k;
    for (size_t i = 0; i < n; i++)
        total += c[i].weight;
    if (s->top_p < 1) {
        size_t kept = 0;

        for (sum = 0; kept < n && sum < s->top_p * total; kept++)
            sum += c[kept].weight;
        n = kept;
        total = sum;
    }
    rng_init(&rng, s->seed, s->position);
    draw = rng_uniform(&rng) * total;
    *id = (float)c[n - 1].id;
    sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += c[i].weight;
        if (draw < sum) {
            *id = (float)c[i].id;
            break;
        }
    }
    free(c);
    return 0;
}
