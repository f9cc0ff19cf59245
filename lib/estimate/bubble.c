/* bubble - in-flight micro-batches and duration of pipeline schedules, cached */
#include "lib/estimate/bubble.h"

#include <stdlib.h>

#include "lib/base/mem.h"

enum { ROUNDS = 5 }; /* simulated rounds of a long schedule */

struct bubble_table {
    enum order order;
    int ranks, micro_batches, chunks;
    uint64_t *inflight; /* [ranks]; NULL: the schedule does not exist */
};

/* Most chunks in flight on each rank, in thousandths of CHUNKS. */
static uint64_t *count_inflight(const struct action_table *t, int chunks)
{
    uint64_t *out = xcalloc((size_t)t->ranks, sizeof(*out));

    for (int r = 0; r < t->ranks; r++) {
        uint64_t held = 0, most = 0;

        for (size_t i = 0; i < t->row[r].n; i++) {
            enum action_kind kind = t->row[r].v[i].kind;

            held += kind == ACTION_FORWARD;
            most = held > most ? held : most;
            held -= kind == ACTION_BACKWARD || kind == ACTION_WEIGHT;
        }
        out[r] = (most * 1000 + (uint64_t)chunks - 1) / (uint64_t)chunks;
    }
    return out;
}

static size_t hash_of(const struct bubble_table *t)
{
    uint64_t h = (uint64_t)t->order;

    h = h * 1000003 + (uint64_t)t->ranks;
    h = h * 1000003 + (uint64_t)t->micro_batches;
    h = h * 1000003 + (uint64_t)t->chunks;
    return (size_t)((h ^ h >> 29) * UINT64_C(0x9e3779b97f4a7c15) >> 20);
}

/* The slot of the table with T's numbers, or the free slot for it. */
static size_t *find_slot(const struct bubbles *b, const struct bubble_table *t)
{
    size_t i = hash_of(t) & (b->nslots - 1);

    for (; b->slot[i]; i = (i + 1) & (b->nslots - 1)) {
        const struct bubble_table *u = &b->table[b->slot[i] - 1];

        if (u->order == t->order && u->ranks == t->ranks && u->chunks == t->chunks &&
            u->micro_batches == t->micro_batches)
            break;
    }
    return &b->slot[i];
}

/* Keeps at least half of the slots free. */
static void grow_slots(struct bubbles *b)
{
    if (2 * b->n < b->nslots)
        return;
    b->nslots = b->nslots ? 2 * b->nslots : 64;
    free(b->slot);
    b->slot = xcalloc(b->nslots, sizeof(*b->slot));
    for (size_t i = 0; i < b->n; i++)
        *find_slot(b, &b->table[i]) = i + 1;
}

/* The table for these numbers; borrowed until the next one is made. */
static const struct bubble_table *find_table(struct bubbles *b, enum order order,
                                             int ranks, int micro_batches, int chunks)
{
    const struct bubble_table wanted = {
        .order = order, .ranks = ranks, .micro_batches = micro_batches, .chunks = chunks
    };
    struct bubble_table *t;
    struct action_table actions;
    struct err err;
    size_t *slot;

    grow_slots(b);
    slot = find_slot(b, &wanted);
    if (*slot)
        return &b->table[*slot - 1];
    b->table = xgrow(b->table, &b->cap, b->n + 1, sizeof(*t));
    t = &b->table[b->n++];
    *slot = b->n;
    *t = wanted;
    if (order_make(&actions, order, ranks, micro_batches, chunks, &err) == 0) {
        t->inflight = count_inflight(&actions, chunks);
        action_table_clear(&actions); /* spans_new makes the few it simulates again */
    }
    return t;
}

/* Number of micro-batches to simulate: without whole rounds in the middle, except for
 * GPipe, where all micro-batches are in flight at once, and for interleaved groups of
 * different sizes. */
static int simulated(enum order order, int ranks, int micro_batches)
{
    int most = ROUNDS * ranks;

    bool whole =
        order == ORDER_GPIPE || (order_interleaves(order) && micro_batches % ranks);

    return micro_batches <= most || whole ? micro_batches
                                          : most + micro_batches % ranks;
}

const uint64_t *bubbles_inflight(struct bubbles *b, enum order order, int ranks,
                                 int micro_batches, int chunks)
{
    return find_table(b, order, ranks, simulated(order, ranks, micro_batches), chunks)
        ->inflight;
}

/* Time from each rank's first start to its last end: [RANKS], allocated.  NULL if the
 * schedule does not exist. */
static double *spans_new(struct bubbles *b, enum order order, int ranks,
                         int micro_batches, int chunks, const struct pipe_times *times)
{
    const struct bubble_table *t = find_table(b, order, ranks, micro_batches, chunks);
    struct action_table actions;
    struct pipe_result result;
    struct err err;
    double *span;

    if (!t->inflight ||
        order_make(&actions, order, ranks, micro_batches, chunks, &err) < 0)
        return NULL;
    if (pipe_simulate(&result, &actions, times, &err) < 0) {
        action_table_clear(&actions);
        return NULL;
    }
    span = xcalloc((size_t)ranks, sizeof(*span));
    for (int r = 0; r < ranks; r++) {
        const struct action_row *row = &actions.row[r];

        if (row->n)
            span[r] = result.start[r][row->n - 1] - result.start[r][0] +
                      pipe_duration(&actions, times, &row->v[row->n - 1]);
    }
    pipe_result_clear(&result);
    action_table_clear(&actions);
    return span;
}

/* A further round adds to each rank's time what the last simulated one did, but at
 * least the rank's own work: if stages differ a little, the busiest rank may idle for
 * many rounds until all others wait for it. */
double bubbles_span(struct bubbles *b, enum order order, int ranks, int micro_batches,
                    int chunks, const struct pipe_times *times)
{
    int few = simulated(order, ranks, micro_batches);
    double rounds = (double)(micro_batches - few) / ranks, most = -1;
    double *span = spans_new(b, order, ranks, few, chunks, times), *less = NULL;

    if (span && rounds > 0)
        less = spans_new(b, order, ranks, few - ranks, chunks, times);
    for (int r = 0; span && r < ranks; r++) {
        double work = times->forward[r] + times->input[r] + times->weight[r];
        double more = less ? span[r] - less[r] : 0;

        more = more > work * ranks ? more : work * ranks;
        if (span[r] + rounds * more > most)
            most = span[r] + rounds * more;
    }
    free(span);
    free(less);
    return most;
}

void bubbles_clear(struct bubbles *b)
{
    for (size_t i = 0; i < b->n; i++)
        free(b->table[i].inflight);
    free(b->table);
    free(b->slot);
    *b = (struct bubbles){ 0 };
}
