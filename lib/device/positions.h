/* positions - what C and CUDA compute alike of positions and heads: the keys that a
 * query sees, what distances add to its scores, and rows that were pooled */
#ifndef LIB_DEVICE_POSITIONS_H
#define LIB_DEVICE_POSITIONS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/base/hostdevice.h"

/* The keys visible to the query at POSITION, of KEYS from position FIRST_KEY on:
 * [*first, *end), counted from FIRST_KEY, which may be empty.  See struct inst for the
 * others. */
HOST_DEVICE void positions_visible(int64_t position, int32_t first_key, int32_t keys,
                                   int64_t window, bool causal, bool chunked,
                                   int64_t *first, int64_t *end)
{
    int64_t low = first_key, high = low + keys;

    if (chunked)
        window = position % window + 1;
    if (causal && position + 1 < high)
        high = position + 1;
    if (window && position + 1 - window > low)
        low = position + 1 - window;
    if (window && !causal && position + window < high)
        high = position + window;
    if (low > first_key + keys) /* of a ring's other keys it sees none */
        low = first_key + keys;
    *first = low - first_key;
    *end = high > low ? high - first_key : *first;
}

/* Attention in blocks (Zaheer et al. 2020, "Big Bird", arXiv:2007.14062, section 2):
 * how the query at POSITION of a text of KEYS tokens sees a key.  A query of the first
 * or the last block sees all; others the blocks beside their own, the last, and the
 * first, whose keys count struct attention_shape's COPIES times. */
enum { UNSEEN, SEEN, SEEN_COPIES };
HOST_DEVICE int positions_in_blocks(int64_t position, int64_t key, int64_t keys,
                                    int64_t block)
{
    int64_t own = position / block, at = key / block, last = (keys - 1) / block;

    if (own == 0 || own >= last)
        return SEEN;
    if (at == 0)
        return SEEN_COPIES;
    return at == last || (at + 1 >= own && at <= own + 1) ? SEEN : UNSEEN;
}

/* Side attention (Guo et al. 2021, "LongT5", arXiv:2112.07916, section 2.2): the side
 * row of the token at POSITION, one of SIDES, of BLOCK tokens each; those after the
 * last whole block belong to it. */
HOST_DEVICE int64_t positions_side(int64_t position, int64_t sides, int64_t block)
{
    int64_t at = position / block;

    return at < sides ? at : sides - 1;
}

/* Index in the whole model of a rank's HEAD, PER of which share keys and values: groups
 * have PER_GROUP heads in the model, and the rank's begin with GROUP, at its head
 * WITHIN. */
HOST_DEVICE uint64_t positions_head(uint64_t head, uint64_t per, uint64_t group,
                                    uint64_t per_group, uint64_t within)
{
    return (group + head / per) * per_group + within + head % per;
}

/* ALiBi: the slope of HEAD of N heads.  With p the largest power of two that is at most
 * N, the first p heads have 2^(-8/p), 2^(-16/p), ...; the others have every second
 * slope of 2p heads (Press et al. 2022, "Train Short, Test Long", and its code). */
HOST_DEVICE double positions_slope(uint64_t head, uint64_t n)
{
    uint64_t power = 1;

    while (power * 2 <= n)
        power *= 2;
    if (head < power)
        return exp2(-8.0 * (double)(head + 1) / (double)power);
    return exp2(-8.0 * (double)(2 * (head - power) + 1) / (double)(2 * power));
}

/* T5's bucket of a key at DISTANCE from its query.  BOTH: half of the buckets are for
 * keys after the query.  Half of the buckets of a direction stand for one distance
 * each; the others grow logarithmically up to FAR (Raffel et al. 2020, "Exploring the
 * Limits of Transfer Learning", section 2.1, and its code). */
HOST_DEVICE uint64_t positions_bucket(int64_t distance, uint64_t buckets, uint64_t far,
                                      bool both)
{
    uint64_t base = 0, exact, away;
    float f;

    if (both) {
        buckets /= 2;
        base = distance > 0 ? buckets : 0;
        away = (uint64_t)(distance < 0 ? -distance : distance);
    } else {
        away = distance < 0 ? (uint64_t)-distance : 0;
    }
    exact = buckets / 2;
    if (away < exact)
        return base + away;
    f = logf((float)away / (float)exact) / (float)log((double)far / (double)exact) *
        (float)(buckets - exact);
    away = exact + (uint64_t)(f > 0 ? f : 0);
    return base + (away < buckets - 1 ? away : buckets - 1);
}

/* Row of a table of 2 SPAN relative positions for DISTANCE (query minus key), clamped
 * to the table.  Distances up to half of SPAN have a row each, longer ones share rows
 * on a logarithmic scale up to FAR; FAR 0: each has its own (build_relative_position of
 * DeBERTa's code, in f32 as there). */
HOST_DEVICE int64_t positions_row(int64_t distance, int64_t span, int64_t far)
{
    int64_t mid = span / 2, away = distance < 0 ? -distance : distance;
    int64_t row = distance;

    if (far && away > mid) {
        float f =
            ceilf(logf((float)away / (float)mid) /
                  logf((float)((double)(far - 1) / (double)mid)) * (float)(mid - 1)) +
            (float)mid;

        row = distance < 0 ? -(int64_t)f : (int64_t)f;
    }
    row += span;
    return row < 0 ? 0 : row > 2 * span - 1 ? 2 * span - 1 : row;
}

/* The rows of a text of ROWS tokens after it was pooled TIMES times (APART, CUT: see
 * struct pooled_text), and the token at which such a row begins: for a first row that
 * is apart, one before the text. */
HOST_DEVICE int64_t positions_pooled_rows(int64_t rows, bool apart, bool cut,
                                          uint64_t times)
{
    for (uint64_t i = 0; i < times && rows > (apart ? 2 : 1); i++)
        rows = (rows + 1 + (apart && !cut)) / 2;
    return rows;
}

HOST_DEVICE int64_t positions_pooled_token(int64_t row, bool apart, uint64_t times)
{
    int64_t by = (int64_t)1 << times;

    return apart ? 1 + (row - 1) * by : row * by;
}

#endif
