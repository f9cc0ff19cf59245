/* dropout - elements that are 0 at random, the others larger (Srivastava et al. 2014)
 *
 * Which they are is not stored: the numbers are counted (rng_block), by the place in
 * the model, the token's number and the column, so the reverse draws them again, and a
 * rank draws those of its own rows and heads. */
#include "lib/base/rng.h"
#include "lib/cpu/cpu.h"

enum { WORDS = 4 };

void cpu_drop(float *x, size_t first, size_t n, double rate, uint64_t key, uint64_t row,
              uint32_t line)
{
    uint32_t least = (uint32_t)(rate * 0x1p32);
    float factor = (float)(1 / (1 - rate));
    uint32_t word[WORDS];

    for (size_t i = 0; i < n; i++) {
        size_t at = first + i;

        if (i == 0 || at % WORDS == 0) {
            word[0] = (uint32_t)row;
            word[1] = (uint32_t)(row >> 32);
            word[2] = (uint32_t)(at / WORDS);
            word[3] = line;
            rng_block(word, key);
        }
        x[i] = word[at % WORDS] < least ? 0 : x[i] * factor;
    }
}

struct job {
    float *y;
    const float *x;
    size_t cols;
    const struct inst *inst;
    const uint64_t *token;
    uint64_t seed;
};

static void drop_row(void *arg, size_t row, int thread)
{
    const struct job *j = arg;
    float *y = j->y + row * j->cols;

    (void)thread;
    for (size_t i = 0; i < j->cols; i++)
        y[i] = j->x[row * j->cols + i];
    cpu_drop(y, 0, j->cols, j->inst->drop.rate, j->seed ^ j->inst->drop.site,
             j->token[row], 0);
}

void cpu_dropout(struct device *d, float *y, const float *x, size_t rows, size_t cols,
                 const struct inst *inst, const uint64_t *token, uint64_t seed)
{
    struct job j = { y, x, cols, inst, token, seed };

    cpu_parallel(d, rows, drop_row, &j);
}
