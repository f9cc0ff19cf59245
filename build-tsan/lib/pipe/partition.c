/* partition - layers over pipeline stages, contiguous and balanced
 *
 * Dynamic programming over suffixes: first the smallest largest cost, then, with no
 * stage above it, the smallest sum of squares. */
#include "lib/pipe/partition.h"

#include <stdlib.h>

#include "lib/base/mem.h"

__extension__ typedef unsigned __int128 wide;

static const wide NEVER = ~(wide)0;

struct search {
    const uint64_t *before; /* [n+1]: cost of the layers before i */
    uint64_t first, last;
    int n, parts, least; /* layers of a stage at least */
    wide *best;          /* [parts+1][n+1]: of the layers from i on in k stages */
};

/* Cost of the layers [i, j) as the stage before K others. */
static uint64_t stage_cost(const struct search *s, int i, int j, int k)
{
    return s->before[j] - s->before[i] + (k == s->parts - 1 ? s->first : 0) +
           (k == 0 ? s->last : 0);
}

static wide *best(const struct search *s, int k, int i)
{
    return &s->best[(size_t)k * (size_t)(s->n + 1) + (size_t)i];
}

/* Fill BEST: the smallest maximum, or (LIMIT > 0) the smallest sum of squares of stages
 * that cost LIMIT at most. */
static void fill(struct search *s, uint64_t limit)
{
    for (int i = 0; i <= s->n; i++)
        *best(s, 0, i) = i == s->n ? 0 : NEVER;
    for (int k = 1; k <= s->parts; k++)
        for (int i = 0; i <= s->n; i++) {
            *best(s, k, i) = NEVER;
            for (int j = i + s->least; j <= s->n; j++) {
                wide rest = *best(s, k - 1, j), cost = stage_cost(s, i, j, k - 1), all;

                if (rest == NEVER || (limit && cost > limit))
                    continue;
                all = limit ? rest + cost * cost : rest > cost ? rest : cost;
                if (all < *best(s, k, i))
                    *best(s, k, i) = all;
            }
        }
}

/* Follow the smallest sums of squares, the lightest first stage first. */
static void read_off(const struct search *s, uint64_t limit, int *count)
{
    int i = 0;

    for (int k = s->parts; k > 0; k--)
        for (int j = i + s->least; j <= s->n; j++) {
            wide rest = *best(s, k - 1, j), cost = stage_cost(s, i, j, k - 1);

            if (rest == NEVER || cost > limit || rest + cost * cost != *best(s, k, i))
                continue;
            count[s->parts - k] = j - i;
            i = j;
            break;
        }
}

int partition_balance(int *count, const uint64_t *cost, int n, uint64_t first,
                      uint64_t last, int parts, bool empty, struct err *err)
{
    struct search s = {
        .first = first, .last = last, .n = n, .parts = parts, .least = empty ? 0 : 1
    };
    uint64_t *before, limit;

    if (!empty && parts > n)
        return err_set(err, ERR_NO, "pp %d: the model has %d layers", parts, n);
    before = xcalloc((size_t)n + 1, sizeof(*before));
    for (int i = 0; i < n; i++)
        before[i + 1] = before[i] + cost[i];
    s.before = before;
    s.best = xmalloc(sizeof(*s.best) * (size_t)(parts + 1) * (size_t)(n + 1));
    fill(&s, 0);
    limit = (uint64_t)*best(&s, parts, 0);
    limit = limit ? limit : 1;
    fill(&s, limit);
    read_off(&s, limit, count);
    free(s.best);
    free(before);
    return 0;
}

void partition_deal(int *count, int n, int parts, enum remainder where)
{
    int each = n / parts, more = n % parts;
    int begin = where == REMAINDER_FIRST    ? 0
                : where == REMAINDER_MIDDLE ? parts / 2 - more / 2
                                            : parts - more;

    for (int s = 0; s < parts; s++)
        count[s] = each + (s >= begin && s < begin + more);
}
