/* unit-partition - balanced stages against every way to cut */
#include <string.h>

#include "lib/base/rng.h"
#include "lib/pipe/partition.h"
#include "tests/tap.h"

enum { MOST = 9 };

struct best {
    uint64_t max, squares;
    uint64_t cost[MOST];
    int count[MOST];
    bool found;
};

/* Try all cuts of the layers from I on into the parts from K on. */
static void search(struct best *b, const uint64_t *cost, int n, uint64_t first,
                   uint64_t last, int parts, bool empty, int k, int i, int *count)
{
    uint64_t max = 0, squares = 0, sums[MOST];
    int at = 0;

    if (k < parts) {
        for (int c = empty ? 0 : 1; i + c <= n; c++) {
            count[k] = c;
            search(b, cost, n, first, last, parts, empty, k + 1, i + c, count);
        }
        return;
    }
    if (i < n)
        return;
    for (int p = 0; p < parts; p++) {
        sums[p] = (p == 0 ? first : 0) + (p == parts - 1 ? last : 0);
        for (int c = 0; c < count[p]; c++)
            sums[p] += cost[at++];
        max = sums[p] > max ? sums[p] : max;
        squares += sums[p] * sums[p];
    }
    if (b->found && (max > b->max || (max == b->max && squares > b->squares)))
        return;
    if (b->found && max == b->max && squares == b->squares)
        for (int p = 0; p < parts; p++) {
            if (sums[p] > b->cost[p])
                return;
            if (sums[p] < b->cost[p])
                break;
        }
    *b = (struct best){ .max = max, .squares = squares, .found = true };
    memcpy(b->cost, sums, sizeof(uint64_t) * (size_t)parts);
    memcpy(b->count, count, sizeof(int) * (size_t)parts);
}

int main(void)
{
    struct rng rng;
    int wrong = 0, tried = 0;

    rng_init(&rng, 11, 0);
    for (int round = 0; round < 2000; round++) {
        int n = 1 + (int)(rng_u64(&rng) % 8), parts = 1 + (int)(rng_u64(&rng) % 5);
        bool empty = rng_u64(&rng) % 2;
        uint64_t cost[MOST], first = rng_u64(&rng) % 12, last = rng_u64(&rng) % 12,
                             max = 0, squares = 0;
        struct best b = { 0 };
        int count[MOST], at = 0, scratch[MOST];
        struct err err = { 0 };

        for (int i = 0; i < n; i++)
            cost[i] = 1 + rng_u64(&rng) % 5;
        search(&b, cost, n, first, last, parts, empty, 0, 0, scratch);
        if (partition_balance(count, cost, n, first, last, parts, empty, &err) < 0) {
            wrong += b.found;
            continue;
        }
        for (int p = 0; p < parts; p++) {
            uint64_t sum = (p == 0 ? first : 0) + (p == parts - 1 ? last : 0);

            for (int c = 0; c < count[p]; c++)
                sum += cost[at++];
            max = sum > max ? sum : max;
            squares += sum * sum;
            wrong += sum != b.cost[p];
        }
        wrong += max != b.max || squares != b.squares || at != n;
        tried++;
    }
    tap_ok(tried > 1000 && wrong == 0,
           "stages are the best of all cuts: largest, then squares, then the first");
    return tap_done();
}
