/* codes8 - states of an optimizer in codes of 8 bits */
#include "lib/train/codes8.h"

#include <math.h>
#include <stdlib.h>

enum { EXPONENTS = 7 };

/* The middles of N equal parts of [0.1, 1], times a power of ten: as many as there are
 * bits left beside the exponent's. */
static int add_middles(float *to, int n, double times)
{
    for (int i = 0; i < n; i++)
        to[i] = (float)(times * (0.1 + 0.9 * (i + 0.5) / n));
    return n;
}

static int compare(const void *a, const void *b)
{
    const float *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

void codes8_map(float map[CODES8], enum slot_form form)
{
    int n = 0;

    for (int e = 0; e < EXPONENTS; e++) {
        const double power = pow(10, e - EXPONENTS + 1);
        const int some = form == SLOT_SQUARES ? 2 << e : 1 << e;

        n += add_middles(map + n, some, power);
        if (form != SLOT_SQUARES)
            n += add_middles(map + n, some, -power);
    }
    map[n++] = 0;
    map[n++] = 1;
    qsort(map, (size_t)n, sizeof(*map), compare);
}

void codes8_decode(float *x, const uint8_t *code, float scale, uint64_t n,
                   const float map[CODES8])
{
    for (uint64_t i = 0; i < n; i++)
        x[i] = map[code[i]] * scale;
}

/* The nearest part to X; of two as near the greater one. */
static uint8_t nearest(float x, const float map[CODES8])
{
    int at = 0, up;

    for (int half = CODES8 / 2; half; half /= 2)
        at += x >= map[at + half] ? half : 0;
    up = at < CODES8 - 1 ? at + 1 : at;
    return (uint8_t)(x - map[at] >= (map[up] - map[at]) * 0.5F ? up : at);
}

/* The least scale of which PART is MOST. */
static float least_scale(float most, float part)
{
    float scale = most / part, less;

    while (part * scale < most)
        scale = nextafterf(scale, INFINITY);
    while (part * scale > most)
        scale = nextafterf(scale, 0);
    for (less = nextafterf(scale, 0); part * less == most; less = nextafterf(less, 0))
        scale = less;
    return scale;
}

/* The largest magnitude of N numbers; *NEGATIVE: no positive number has it; *ANY: a
 * negative one has. */
static float most_of(const float *x, uint64_t n, bool *negative, bool *any)
{
    float most = 0;

    *negative = *any = false;
    for (uint64_t i = 0; i < n; i++) {
        const float size = fabsf(x[i]);

        if (size < most)
            continue;
        *negative = (size > most || *negative) && x[i] < 0;
        *any = (size == most && *any) || x[i] < 0;
        most = size;
    }
    return most;
}

static void encode(uint8_t *code, const float *x, float scale, uint64_t n,
                   const float map[CODES8])
{
    for (uint64_t i = 0; i < n; i++)
        code[i] = nearest(x[i] / scale, map);
}

static const float LEAST = 1e-12F;

/* The map has 1, and no -1: of the scales for which a block with a largest negative
 * number will have the same one there, the least is taken, which is found again from
 * it. */
float codes8_encode(uint8_t *code, const float *x, uint64_t n, const float map[CODES8])
{
    bool negative, any;
    float scale = most_of(x, n, &negative, &any);

    if (!(scale > LEAST))
        scale = LEAST;
    else if (negative)
        scale = least_scale(-map[0] * scale, -map[0]);
    encode(code, x, scale, n, map);
    return scale;
}

float codes8_encode_again(uint8_t *code, const float *x, uint64_t n,
                          const float map[CODES8])
{
    bool negative, any;
    float scale = most_of(x, n, &negative, &any);

    if (any && scale > 0)
        scale = least_scale(scale, -map[0]);
    if (!(scale > LEAST))
        scale = LEAST;
    encode(code, x, scale, n, map);
    return scale;
}

struct codes8 codes8_open(void *slot, const struct program *p, int i)
{
    struct codes8 c = { .scale = slot,
                        .rows = p->weight[i].rows,
                        .cols = p->weight[i].cols };

    c.blocks = optimizer_blocks(p, i, &c.ends);
    c.code = (uint8_t *)(c.scale + c.blocks * c.rows);
    return c;
}

void codes8_close(struct codes8 *c)
{
    free(c->ends);
}

void codes8_read(const void *slot, const struct program *p, int i, enum slot_form form,
                 uint64_t at, float *to, uint64_t n)
{
    struct codes8 c = codes8_open((void *)(uintptr_t)slot, p, i);
    float map[CODES8];
    uint64_t done = 0, row = at / c.cols, col = at % c.cols, b = 0;

    codes8_map(map, form);
    while (b < c.blocks && c.ends[b] <= col)
        b++;
    while (done < n) {
        uint64_t some = c.ends[b] - col < n - done ? c.ends[b] - col : n - done;

        codes8_decode(to + done, c.code + row * c.cols + col,
                      c.scale[row * c.blocks + b], some, map);
        done += some;
        col += some;
        b += col == c.ends[b];
        if (b == c.blocks) {
            b = col = 0;
            row++;
        }
    }
    codes8_close(&c);
}

void codes8_write(void *slot, const struct program *p, int i, enum slot_form form,
                  const float *from)
{
    struct codes8 c = codes8_open(slot, p, i);
    float map[CODES8];

    codes8_map(map, form);
    for (uint64_t row = 0; row < c.rows; row++)
        for (uint64_t b = 0, col = 0; b < c.blocks; col = c.ends[b++])
            c.scale[row * c.blocks + b] =
                codes8_encode_again(c.code + row * c.cols + col,
                                    from + row * c.cols + col, c.ends[b] - col, map);
    codes8_close(&c);
}
