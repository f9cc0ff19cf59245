/* simulate - how long a table of actions takes, and what it holds meanwhile */
#include "lib/pipe/simulate.h"

#include <stdlib.h>

#include "lib/base/mem.h"

static const double NEVER = -1;

struct simulation {
    const struct action_table *t;
    const struct pipe_times *times;
    struct pipe_result *out;
    double *forward, *input; /* [stage * micro_batches + micro_batch]: ends, or NEVER */
    int *chunks;             /* [ranks]: stages that it has */
    size_t *next;            /* [ranks] */
    double *free_at;         /* [ranks] */
};

static int count_stages(const struct action_table *t, int rank)
{
    int n = 0;

    for (int s = 0; s < t->stages; s++)
        n += t->rank_of[s] == rank;
    return n / t->chains;
}

static double duration(const struct pipe_times *times, const struct action *a, int rank,
                       int chunks)
{
    if (times->each)
        return times->each[a->stage * ACTION_KINDS + (int)a->kind];
    return (a->kind == ACTION_FORWARD  ? times->forward[rank]
            : a->kind == ACTION_INPUT  ? times->input[rank]
            : a->kind == ACTION_WEIGHT ? times->weight[rank]
                                       : times->input[rank] + times->weight[rank]) /
           chunks;
}

double pipe_duration(const struct action_table *t, const struct pipe_times *times,
                     const struct action *a)
{
    int rank = t->rank_of[a->stage];

    return duration(times, a, rank, count_stages(t, rank));
}

static size_t cell(const struct simulation *s, int stage, int micro_batch)
{
    return (size_t)stage * (size_t)s->t->micro_batches + (size_t)micro_batch;
}

/* The time when the output of stage FROM reaches stage TO; NEVER: not computed yet. */
static double arrival(const struct simulation *s, const double *ends, int from, int to,
                      int micro_batch)
{
    double end = ends[cell(s, from, micro_batch)];

    if (end == NEVER || s->t->rank_of[from] == s->t->rank_of[to])
        return end;
    end += s->times->latency;
    if (s->times->bandwidth > 0)
        end += s->times->message_bytes / s->times->bandwidth;
    return end;
}

/* When A may start; NEVER when something it needs is not made yet. */
static double ready(const struct simulation *s, const struct action *a)
{
    if (a->kind == ACTION_FORWARD)
        return !action_begins(s->t, a->stage)
                   ? arrival(s, s->forward, a->stage - 1, a->stage, a->micro_batch)
                   : 0;
    if (a->kind == ACTION_WEIGHT)
        return s->input[cell(s, a->stage, a->micro_batch)];
    if (action_ends(s->t, a->stage))
        return s->forward[cell(s, a->stage, a->micro_batch)];
    return arrival(s, s->input, a->stage + 1, a->stage, a->micro_batch);
}

static void take(struct simulation *s, int r, const struct action *a, double at,
                 double end)
{
    bool forward = a->kind == ACTION_FORWARD;
    bool sends = !(forward ? action_ends : action_begins)(s->t, a->stage);
    int other = a->stage + (forward ? 1 : -1);

    s->out->start[r][s->next[r]++] = at;
    s->free_at[r] = end;
    if (a->kind == ACTION_FORWARD)
        s->forward[cell(s, a->stage, a->micro_batch)] = end;
    else if (a->kind != ACTION_WEIGHT)
        s->input[cell(s, a->stage, a->micro_batch)] = end;
    if (a->kind != ACTION_WEIGHT && sends && s->t->rank_of[other] != r)
        s->out->transfers++;
}

/* Take R's next N actions, which begin and end together; false where they cannot yet.
 */
static bool take_together(struct simulation *s, int r, size_t n)
{
    const struct action *a = &s->t->row[r].v[s->next[r]];
    double at = s->free_at[r], end = 0;

    for (size_t i = 0; i < n; i++) {
        double when = ready(s, &a[i]);

        if (when == NEVER)
            return false;
        at = when > at ? when : at;
        end += duration(s->times, &a[i], r, s->chunks[r]);
    }
    for (size_t i = 0; i < n; i++)
        take(s, r, &a[i], at, at + end);
    return true;
}

/* Take R's actions as far as they can be; true when some were. */
static bool advance(struct simulation *s, int r)
{
    const struct action_row *row = &s->t->row[r];
    bool moved = false;

    while (s->next[r] < row->n) {
        size_t i = s->next[r];

        if (!take_together(s, r, row->v[i].paired && i + 1 < row->n ? 2 : 1))
            break;
        moved = true;
    }
    return moved;
}

static int run(struct simulation *s, struct err *err)
{
    bool moved = true;

    while (moved) {
        moved = false;
        for (int r = 0; r < s->t->ranks; r++)
            moved |= advance(s, r);
        for (int r = s->t->ranks - 1; r >= 0; r--)
            moved |= advance(s, r);
    }
    for (int r = 0; r < s->t->ranks; r++)
        if (s->next[r] < s->t->row[r].n) {
            struct str text = { 0 };

            action_print(&text, &s->t->row[r].v[s->next[r]]);
            err_set(err, ERR_INPUT, "deadlock: rank %d waits for ever to begin %s", r,
                    text.s);
            str_clear(&text);
            return -1;
        }
    return 0;
}

/* What A adds to the chunks of activations that are held. */
static double change(const struct action *a, double freed)
{
    switch (a->kind) {
    case ACTION_FORWARD:
        return 1;
    case ACTION_INPUT:
        return -freed;
    case ACTION_WEIGHT:
        return freed - 1;
    case ACTION_BACKWARD:
    case ACTION_KINDS:
        break;
    }
    return -1;
}

/* Spans, own work and activations of each rank. */
static void sum_up(struct simulation *s)
{
    for (int r = 0; r < s->t->ranks; r++) {
        const struct action_row *row = &s->t->row[r];
        double work = 0, full = 0, span;
        int held = 0;

        for (size_t i = 0; i < row->n; i++) {
            work += duration(s->times, &row->v[i], r, s->chunks[r]);
            if (row->v[i].kind == ACTION_FORWARD && ++held > s->out->peak[r])
                s->out->peak[r] = held;
            if (row->v[i].kind == ACTION_BACKWARD || row->v[i].kind == ACTION_WEIGHT)
                held--;
            full += change(&row->v[i], s->times->freed);
            if (full > s->out->held[r])
                s->out->held[r] = full;
        }
        if (!row->n)
            continue;
        span = s->free_at[r] - s->out->start[r][0];
        s->out->span = span > s->out->span ? span : s->out->span;
        s->out->ideal = work > s->out->ideal ? work : s->out->ideal;
        if (s->free_at[r] > s->out->makespan)
            s->out->makespan = s->free_at[r];
    }
    s->out->transferred_bytes = (double)s->out->transfers * s->times->message_bytes;
}

int pipe_simulate(struct pipe_result *out, const struct action_table *t,
                  const struct pipe_times *times, struct err *err)
{
    size_t cells = (size_t)t->stages * (size_t)t->micro_batches;
    struct simulation s = { .t = t, .times = times, .out = out };
    int ret;

    *out = (struct pipe_result){ .ranks = t->ranks };
    out->peak = xcalloc((size_t)t->ranks, sizeof(*out->peak));
    out->held = xcalloc((size_t)t->ranks, sizeof(*out->held));
    out->start = xcalloc((size_t)t->ranks, sizeof(*out->start));
    s.forward = xmalloc(sizeof(*s.forward) * (cells + 1));
    s.input = xmalloc(sizeof(*s.input) * (cells + 1));
    for (size_t i = 0; i < cells; i++)
        s.forward[i] = s.input[i] = NEVER;
    s.chunks = xcalloc((size_t)t->ranks, sizeof(*s.chunks));
    s.next = xcalloc((size_t)t->ranks, sizeof(*s.next));
    s.free_at = xcalloc((size_t)t->ranks, sizeof(*s.free_at));
    for (int r = 0; r < t->ranks; r++) {
        out->start[r] = xmalloc(sizeof(**out->start) * (t->row[r].n + 1));
        s.chunks[r] = count_stages(t, r);
    }
    ret = run(&s, err);
    if (ret == 0)
        sum_up(&s);
    else
        pipe_result_clear(out);
    free(s.forward);
    free(s.input);
    free(s.chunks);
    free(s.next);
    free(s.free_at);
    return ret;
}

void pipe_result_clear(struct pipe_result *r)
{
    for (int i = 0; r->start && i < r->ranks; i++)
        free(r->start[i]);
    free(r->start);
    free(r->peak);
    free(r->held);
    *r = (struct pipe_result){ 0 };
}
