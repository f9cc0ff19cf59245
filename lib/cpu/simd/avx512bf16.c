/* avx512bf16 - the products of tiles of amx.h, on CPUs with AVX512-BF16 alone */
#include "lib/cpu/simd/avx512bf16.h"

#include <string.h>

#include "lib/cpu/simd/vec.h"

#if CPU_HAS_WIDE
#define EACH _Pragma("GCC unroll 16") for

enum {
    OUTS = 8, /* that are multiplied by a register together */
    HALVES = AMX_SIDE / AMX_ROWS,
    PAIRS = AMX_SIDE / 2 /* of terms, of a step */
};

bool avx512bf16_has(void)
{
    return cpu_is_wide() && __builtin_cpu_supports("avx512bf16");
}

/* v[OUTS][HALVES] = products with the outputs at W; of one half unless BOTH, a
 * constant. */
static inline CPU_WIDE __attribute__((always_inline)) void
make_sums(vec v[OUTS * HALVES], const struct amx_product *p, const uint16_t *w,
          bool both)
{
    const uint16_t *x = p->x;
    vec acc[OUTS * HALVES];

    EACH(int i = 0; i < OUTS * HALVES; i++) acc[i] = (vec){ 0 };
    for (size_t k = 0; k < p->steps; k++, x += AMX_SIDE * AMX_SIDE, w += AMX_SIDE)
        for (size_t j = 0; j < PAIRS; j++) {
            vec_pairs half[HALVES];

            EACH(int h = 0; h < HALVES; h++)
            if (h == 0 || both) {
                memcpy(&half[h], x + ((size_t)h * PAIRS + j) * AMX_SIDE,
                       sizeof(half[h]));
                __asm__("" : "+v"(half[h]));
            }
            EACH(int i = 0; i < OUTS; i++)
            {
                vec_pairs pair;

                __asm__("vbroadcastss %1, %0"
                        : "=v"(pair)
                        : "m"(*(const uint16_t(*)[2])(w + (size_t)i * p->w_stride +
                                                      2 * j)));
                EACH(int h = 0; h < HALVES; h++)
                if (h == 0 || both)
                    vec_add_pairs(&acc[i * HALVES + h], &half[h], &pair);
            }
        }
    EACH(int i = 0; i < OUTS * HALVES; i++) v[i] = acc[i];
}

CPU_WIDE void avx512bf16_multiply(const struct amx_product *p)
{
    for (size_t i = 0; i < p->outs; i += OUTS) {
        const size_t left = p->outs - i;
        const uint16_t *w = p->w + i * p->w_stride;
        vec v[OUTS * HALVES];

        if (p->rows > AMX_ROWS)
            make_sums(v, p, w, true);
        else
            make_sums(v, p, w, false);
        for (size_t o = 0; o < (left < OUTS ? left : OUTS); o++)
            memcpy(p->y + (i + o) * p->y_stride, &v[o * HALVES],
                   p->rows * sizeof(*p->y));
    }
}
#else
bool avx512bf16_has(void)
{
    return false;
}

void avx512bf16_multiply(const struct amx_product *p)
{
    (void)p;
}
#endif
