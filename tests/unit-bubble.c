/* unit-bubble - a long pipeline counted in rounds is the whole of it simulated */
#include <math.h>
#include <stdio.h>

#include "lib/estimate/bubble.h"
#include "tests/tap.h"

enum { RANKS = 8 };

static const double even[RANKS] = { 1, 1, 1, 1, 1, 1, 1, 1 };
static const double twice[RANKS] = { 2, 2, 2, 2, 2, 2, 2, 2 };
static const double uneven[RANKS] = { 1.2, 1, 1, 1, 1.1, 1, 0.9, 1.4 };
static const double nearly[RANKS] = { 1.06, 1, 1, 1, 1, 1, 1, 1 };
static const double long_input[RANKS] = { 3.3, 3.2, 3.2, 3.2, 3.2, 3.2, 3.2, 3.2 };
static const double heavy_end[RANKS] = { 1, 1, 1, 1, 1, 1, 1, 1.5 };

struct whole {
    double span;
    int peak[RANKS];
};

static struct whole simulate(enum order order, int ranks, int m, int chunks,
                             const struct pipe_times *times)
{
    struct whole out = { .span = -1 };
    struct action_table t;
    struct pipe_result result;
    struct err err;

    if (order_make(&t, order, ranks, m, chunks, &err) < 0)
        return out;
    if (pipe_simulate(&result, &t, times, &err) == 0) {
        out.span = result.span;
        for (int r = 0; r < ranks; r++)
            out.peak[r] = result.peak[r];
        pipe_result_clear(&result);
    }
    action_table_clear(&t);
    return out;
}

/* The largest relative difference in spans, over many lengths; -1 when the
 * micro-batches in flight differ. */
static double worst(enum order order, int ranks, int chunks,
                    const struct pipe_times *times)
{
    struct bubbles b = { 0 };
    double most = 0;

    for (int m = 1; m <= 40 * ranks; m += m < 3 * ranks ? 1 : 7 * ranks / 2) {
        struct whole w = simulate(order, ranks, m, chunks, times);
        double span = bubbles_span(&b, order, ranks, m, chunks, times);
        const uint64_t *inflight = bubbles_inflight(&b, order, ranks, m, chunks);

        if (w.span < 0) {
            if (span >= 0 || inflight)
                most = INFINITY;
            continue;
        }
        if (fabs(span - w.span) / w.span > most)
            most = fabs(span - w.span) / w.span;
        for (int r = 0; r < ranks; r++)
            if (inflight[r] !=
                ((uint64_t)w.peak[r] * 1000 + (uint64_t)chunks - 1) / (uint64_t)chunks)
                most = INFINITY;
    }
    bubbles_clear(&b);
    return most;
}

int main(void)
{
    static const struct {
        enum order order;
        int chunks;
    } kinds[] = { { ORDER_GPIPE, 1 },       { ORDER_1F1B, 1 },
                  { ORDER_INTERLEAVED, 2 }, { ORDER_INTERLEAVED, 4 },
                  { ORDER_ZB_H1, 1 },       { ORDER_ZB_H2, 1 },
                  { ORDER_ZB_V, 2 },        { ORDER_DUALPIPE, 2 },
                  { ORDER_DUALPIPE_V, 2 },  { ORDER_ZB_INTERLEAVED, 2 },
                  { ORDER_V_MIN, 2 },       { ORDER_V_HALF, 2 } };
    static const struct {
        const char *name;
        struct pipe_times times;
        double within;
    } machines[] = {
        { "equal stages", { .forward = even, .input = even, .weight = even }, 1e-12 },
        { "messages",
          { .forward = even, .input = twice, .weight = even, .latency = 0.1 },
          1e-12 },
        { "a heavy last stage",
          { .forward = heavy_end, .input = heavy_end, .weight = heavy_end },
          1e-3 },
        { "nearly equal stages and a long way back",
          { .forward = nearly, .input = long_input, .weight = nearly },
          1e-3 },
        { "unequal stages",
          { .forward = uneven, .input = uneven, .weight = even, .latency = 0.03 },
          1e-3 },
    };

    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
        for (size_t k = 0; k < sizeof(machines) / sizeof(*machines); k++)
            for (int ranks = 2; ranks <= RANKS; ranks *= 2) {
                double d =
                    worst(kinds[i].order, ranks, kinds[i].chunks, &machines[k].times);

                tap_ok(d <= machines[k].within,
                       "%s x%d of %d with %s takes as long counted in rounds",
                       order_names[kinds[i].order], kinds[i].chunks, ranks,
                       machines[k].name);
                if (d > machines[k].within)
                    printf("# off by %g\n", d);
            }
    return tap_done();
}
