/* rounding - stochastic rounding to bf16
 *
 * A number's random bits are those of its place, so the number of threads changes no
 * bit. */
#include "lib/device/rounding.h"

#include <string.h>

#include "lib/cpu/cpu.h"

enum { STEP = 1 << 14 }; /* numbers of a task */

/* Numbers [I, END), a row of the tensor after another. */
static void round_some(const struct rounding *r, uint64_t i, uint64_t end)
{
    while (i < end) {
        const uint64_t left = r->cols - (i + r->skip) % r->cols;
        const uint64_t stop = end - i < left ? end : i + left;
        uint64_t at = rounding_place(r, i);
        uint32_t word[4], bits;

        rounding_words(word, r, at / ROUNDING_EACH);
        for (; i < stop; i++, at++) {
            if (at % ROUNDING_EACH == 0)
                rounding_words(word, r, at / ROUNDING_EACH);
            memcpy(&bits, &r->x[i], sizeof(bits));
            r->y[i] = rounding_bf16(bits, word, at);
        }
    }
}

static void run(void *arg, size_t task, int thread)
{
    const struct rounding *r = arg;
    const uint64_t i = (uint64_t)task * STEP;

    (void)thread;
    round_some(r, i, r->n - i < STEP ? r->n : i + STEP);
}

int cpu_round(struct device *d, const struct rounding *r, struct err *err)
{
    struct rounding own = *r;

    (void)err;
    cpu_parallel(d, (size_t)((r->n + STEP - 1) / STEP), run, &own);
    return 0;
}
