/* sample - draw the next token from logits */
#include "cmd/tp-run/sample.h"

#include <math.h>
#include <stdlib.h>

#include "lib/base/mem.h"
#include "lib/base/rng.h"

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

int32_t sample(const struct sampling *s, const float *logits, size_t vocab,
               uint64_t position)
{
    struct candidate *c = xcalloc(vocab, sizeof(*c));
    double largest = -INFINITY, total = 0, sum = 0, draw;
    size_t n = vocab;
    struct rng rng;
    int32_t id;

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
    rng_init(&rng, s->seed, position);
    draw = rng_uniform(&rng) * total;
    id = c[n - 1].id;
    sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += c[i].weight;
        if (draw < sum) {
            id = c[i].id;
            break;
        }
    }
    free(c);
    return id;
}
