/* dropout - zeroes elements at random and scales the others (Srivastava et al. 2014)
 *
 * No mask is stored: the random numbers are a function (rng_block) of the place in the
 * model, the token's number and the column.  So the reverse computes them again, and
 * each rank computes those of its own rows and heads. */
#include "lib/base/rng.h"
#include "lib/cpu/cpu.h"
#include "lib/cpu/simd/vec.h"

enum { WORDS = 4, BLOCKS = 16 };

/* The blocks FIRST to FIRST + BLOCKS - 1 of a line, equal to rng_block's, side by side
 * for vector instructions: Philox4x32-10 (Salmon et al., SC'11). */
CPU_CLONES static void many_blocks(uint32_t *word, uint64_t row, uint32_t first,
                                   uint32_t line, uint64_t key)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t a[BLOCKS], b[BLOCKS], c[BLOCKS], d[BLOCKS];

    for (uint32_t i = 0; i < BLOCKS; i++) {
        a[i] = (uint32_t)row;
        b[i] = (uint32_t)(row >> 32);
        c[i] = first + i;
        d[i] = line;
    }
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            uint64_t p = (uint64_t)0xD2511F53 * a[i], q = (uint64_t)0xCD9E8D57 * c[i];

            a[i] = (uint32_t)(q >> 32) ^ b[i] ^ k0;
            b[i] = (uint32_t)q;
            c[i] = (uint32_t)(p >> 32) ^ d[i] ^ k1;
            d[i] = (uint32_t)p;
        }
        k0 += 0x9E3779B9;
        k1 += 0xBB67AE85;
    }
    for (int i = 0; i < BLOCKS; i++) {
        word[i * WORDS] = a[i];
        word[i * WORDS + 1] = b[i];
        word[i * WORDS + 2] = c[i];
        word[i * WORDS + 3] = d[i];
    }
}

static void one_block(uint32_t *word, uint64_t row, uint32_t block, uint32_t line,
                      uint64_t key)
{
    word[0] = (uint32_t)row;
    word[1] = (uint32_t)(row >> 32);
    word[2] = block;
    word[3] = line;
    rng_block(word, key);
}

CPU_CLONES static void drop(float *x, const uint32_t *word, size_t n, uint32_t least,
                            float factor)
{
    for (size_t i = 0; i < n; i++)
        x[i] = word[i] < least ? 0 : x[i] * factor;
}

void cpu_drop(float *x, size_t first, size_t n, double rate, uint64_t key, uint64_t row,
              uint32_t line)
{
    uint32_t least = (uint32_t)(rate * 0x1p32), word[BLOCKS * WORDS];
    float factor = (float)(1 / (1 - rate));

    while (n) {
        size_t in = first % WORDS, have = WORDS, some;
        uint32_t block = (uint32_t)(first / WORDS);

        if (in + n > WORDS * 2) {
            have = BLOCKS * WORDS;
            many_blocks(word, row, block, line, key);
        } else {
            one_block(word, row, block, line, key);
        }
        some = have - in < n ? have - in : n;
        drop(x, word + in, some, least, factor);
        x += some;
        first += some;
        n -= some;
    }
}

struct job {
    float *y;
    const float *x;
    size_t cols;
    const struct inst *inst;
    const struct runs *runs;
    const uint64_t *token;
    uint64_t seed;
};

static void drop_row(void *arg, size_t row, int thread)
{
    const struct job *j = arg;
    const struct run all = { .count = j->cols }, *run = j->runs ? j->runs->v : &all;
    float *y = j->y + row * j->cols;

    (void)thread;
    for (size_t i = 0; i < j->cols; i++)
        y[i] = j->x[row * j->cols + i];
    for (size_t at = 0; at < j->cols; at += (size_t)run->count, run++)
        cpu_drop(y + at, (size_t)run->start, (size_t)run->count, j->inst->drop.rate,
                 j->seed ^ j->inst->drop.site, j->token[row], 0);
}

void cpu_dropout(struct device *d, float *y, const float *x, size_t rows, size_t cols,
                 const struct inst *inst, const struct runs *runs,
                 const uint64_t *token, uint64_t seed)
{
    struct job j = { y, x, cols, inst, runs, token, seed };

    cpu_parallel(d, rows, drop_row, &j);
}
