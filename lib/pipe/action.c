/* action - what the ranks of a pipeline do, in order */
#include "lib/pipe/action.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

void action_table_init(struct action_table *t, int ranks, int stages, int micro_batches)
{
    *t = (struct action_table){
        .ranks = ranks, .stages = stages, .micro_batches = micro_batches, .chains = 1
    };
    t->rank_of = xcalloc((size_t)stages + 1, sizeof(*t->rank_of));
    t->row = xcalloc((size_t)ranks + 1, sizeof(*t->row));
}

void action_table_copy(struct action_table *to, const struct action_table *from)
{
    action_table_init(to, from->ranks, from->stages, from->micro_batches);
    memcpy(to->rank_of, from->rank_of, (size_t)from->stages * sizeof(*to->rank_of));
    to->chains = from->chains;
    for (int r = 0; r < from->ranks; r++)
        for (size_t i = 0; i < from->row[r].n; i++) {
            const struct action *a = &from->row[r].v[i];

            action_add(to, r, a->kind, a->stage, a->micro_batch);
            to->row[r].v[i] = *a;
        }
}

void action_table_apart(struct action_table *to, const struct action_table *from)
{
    action_table_copy(to, from);
    for (int r = 0; r < to->ranks; r++)
        for (size_t i = 0; i < to->row[r].n; i++) {
            to->row[r].v[i].paired = false;
            to->row[r].v[i].timed = false;
        }
}

void action_table_clear(struct action_table *t)
{
    for (int r = 0; t->row && r < t->ranks; r++)
        free(t->row[r].v);
    free(t->row);
    free(t->rank_of);
    *t = (struct action_table){ 0 };
}

void action_add(struct action_table *t, int rank, enum action_kind kind, int stage,
                int micro_batch)
{
    struct action_row *row = &t->row[rank];

    row->v = xgrow(row->v, &row->cap, row->n + 1, sizeof(*row->v));
    row->v[row->n++] =
        (struct action){ .kind = kind, .stage = stage, .micro_batch = micro_batch };
}

bool action_passes(const struct action_table *t, int stage, int micro_batch)
{
    return stage / (t->stages / t->chains) ==
           (int)((int64_t)micro_batch * t->chains / t->micro_batches);
}

bool action_begins(const struct action_table *t, int stage)
{
    return stage % (t->stages / t->chains) == 0;
}

bool action_ends(const struct action_table *t, int stage)
{
    return (stage + 1) % (t->stages / t->chains) == 0;
}

int action_in_flight(const struct action_row *row, int stage)
{
    int now = 0, most = 0;

    for (size_t i = 0; i < row->n; i++) {
        const struct action *a = &row->v[i];

        if (a->stage != stage || a->kind == ACTION_INPUT)
            continue;
        now += a->kind == ACTION_FORWARD ? 1 : -1;
        most = now > most ? now : most;
    }
    return most;
}

void action_print(struct str *out, const struct action *a)
{
    static const char letters[ACTION_KINDS] = { [ACTION_FORWARD] = 'F',
                                                [ACTION_BACKWARD] = 'B',
                                                [ACTION_INPUT] = 'I',
                                                [ACTION_WEIGHT] = 'W' };

    str_addf(out, "%d%c%d", a->stage, letters[a->kind], a->micro_batch);
    if (a->timed)
        str_addf(out, "@%.9f+%.9f", a->start, a->seconds);
}

/* ---- checking ---- */

static int refuse(const struct action *a, int rank, const char *what, struct err *err)
{
    struct str s = { 0 };

    action_print(&s, a);
    err_set(err, ERR_INPUT, "rank %d: %s %s", rank, s.s, what);
    str_clear(&s);
    return -1;
}

/* What was done to each stage and micro-batch. */
enum { DONE_F = 1, DONE_I = 2, DONE_W = 4 };

static int check_action(const struct action_table *t, const struct action *a, int rank,
                        unsigned char *done, struct err *err)
{
    unsigned char *d =
        &done[(size_t)a->stage * (size_t)t->micro_batches + (size_t)a->micro_batch];
    unsigned adds = a->kind == ACTION_FORWARD    ? DONE_F
                    : a->kind == ACTION_BACKWARD ? DONE_I | DONE_W
                    : a->kind == ACTION_INPUT    ? DONE_I
                                                 : DONE_W;
    unsigned needs = a->kind == ACTION_FORWARD  ? 0
                     : a->kind == ACTION_WEIGHT ? DONE_F | DONE_I
                                                : DONE_F;

    if (t->rank_of[a->stage] != rank)
        return refuse(a, rank, "is of a stage that another rank has", err);
    if (*d & adds)
        return refuse(a, rank, "is there twice", err);
    if ((*d & needs) != needs)
        return refuse(a, rank, "comes before what it needs", err);
    *d |= (unsigned char)adds;
    return 0;
}

/* The first gap. */
static int check_whole(const struct action_table *t, const unsigned char *done,
                       struct err *err)
{
    for (int m = 0; m < t->micro_batches; m++)
        for (int s = 0; s < t->stages; s++) {
            unsigned d = done[(size_t)s * (size_t)t->micro_batches + (size_t)m];
            struct action a = { .kind = !(d & DONE_F)   ? ACTION_FORWARD
                                        : !(d & DONE_I) ? ACTION_INPUT
                                                        : ACTION_WEIGHT,
                                .stage = s,
                                .micro_batch = m };

            if (action_passes(t, s, m) && d != (DONE_F | DONE_I | DONE_W))
                return refuse(&a, t->rank_of[s], "is missing", err);
        }
    return 0;
}

int action_check(const struct action_table *t, struct err *err)
{
    unsigned char *done =
        xcalloc((size_t)t->stages * (size_t)t->micro_batches + 1, sizeof(*done));
    int ret = 0;

    for (int r = 0; r < t->ranks && ret == 0; r++)
        for (size_t i = 0; i < t->row[r].n && ret == 0; i++)
            ret = check_action(t, &t->row[r].v[i], r, done, err);
    if (ret == 0)
        ret = check_whole(t, done, err);
    free(done);
    return ret;
}
