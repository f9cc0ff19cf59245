/* codes-fp8 - loops for weights in FP8
 *
 * Terms of x are not rounded.  A number of a weight is widened to f32, which is exact;
 * the sum over the numbers that share a scale is multiplied by it.  Terms are added one
 * after another, so that zeros before the first change nothing: ranks that hold other
 * parts of a row round alike. */
#include "lib/cpu/product/codes-linear.h"
#include "lib/cpu/product/codes-loops.h"

/* ROWS, GROUPS and E5M2 are constants after inlining. */
static inline __attribute__((always_inline)) void
sum_words(const struct codes_tile *t, int rows, int groups, bool e5m2)
{
    const int tiles = rows > 1 ? rows : groups;
    const size_t ahead = groups > 1 ? STREAMS_AHEAD : rows > 1 ? AHEAD : ALONE_AHEAD;
    const float *scale = t->scale;
    vec total[CODES_TILE];
    size_t left = t->left;

    ALL(int i = 0; i < tiles; i++) total[i] = (vec){ 0 };
    for (size_t k = 0; k < t->count; left = t->per, scale += CODES_ROWS) {
        const size_t end = t->count - k < left ? t->count : k + left;
        vec acc[CODES_TILE], by;

        ALL(int i = 0; i < tiles; i++) acc[i] = (vec){ 0 };
        for (; k < end; k++)
            ALL(int g = 0; g < groups; g++)
            {
                const uint8_t *at = t->w + (size_t)g * t->apart + k * LINE;
                vec_u32 codes;

                __builtin_prefetch((const void *)((uintptr_t)at + ahead), 0, 3);
                memcpy(&codes, at, sizeof(codes));
                ALL(int j = 0; j < 4; j++)
                {
                    vec v;

                    fp8_values(&v, &codes, j, e5m2);
                    if (groups > 1)
                        acc[g] += v * t->x->term[4 * k + (size_t)j];
                    ALL(int i = 0; i < rows && groups == 1; i++)
                    acc[i] += v * t->x[(size_t)i * t->stride].term[4 * k + (size_t)j];
                }
            }
        ALL(int i = 0; i < tiles; i++)
        {
            vec_load_f32(&by, scale + (groups > 1 ? (size_t)i * t->scales_apart : 0));
            total[i] += acc[i] * by;
        }
    }
    ALL(int i = 0; i < tiles; i++)
    {
        vec at;

        vec_load_f32(&at, t->y + i * CODES_ROWS);
        at += total[i];
        memcpy(t->y + i * CODES_ROWS, &at, sizeof(at));
    }
}

#define SUM(name, e5m2)                                     \
    CPU_CLONES static void name(const struct codes_tile *t) \
    {                                                       \
        if (t->groups == CODES_TILE)                        \
            sum_words(t, 1, CODES_TILE, e5m2);              \
        else if (t->rows == 4)                              \
            sum_words(t, 4, 1, e5m2);                       \
        else if (t->rows == 3)                              \
            sum_words(t, 3, 1, e5m2);                       \
        else if (t->rows == 2)                              \
            sum_words(t, 2, 1, e5m2);                       \
        else                                                \
            sum_words(t, 1, 1, e5m2);                       \
    }
SUM(sum_e4m3, false)
SUM(sum_e5m2, true)

void codes_fp8_segment(const struct codes_tile *t)
{
    if (t->format == FORMAT_E5M2)
        sum_e5m2(t);
    else
        sum_e4m3(t);
}
