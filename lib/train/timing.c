/* timing - when the actions of a step began and ended, on the ranks of a pipeline */
#include "lib/train/timing.h"

#include <math.h>
#include <stdlib.h>

#include "lib/base/clock.h"
#include "lib/base/mem.h"

enum { ROUNDS = 8 }; /* of messages that compare clocks */

void timing_open(struct timing *m, const struct action_table *t, struct comm *pipe)
{
    *m = (struct timing){ .pipe = pipe };
    action_table_apart(&m->table, t);
    for (int r = 0; r < t->ranks; r++)
        m->most = t->row[r].n > m->most ? t->row[r].n : m->most;
    m->mark = xcalloc(2 * m->most + 1, sizeof(*m->mark));
    m->behind = xcalloc((size_t)t->ranks + 1, sizeof(*m->behind));
}

void timing_close(struct timing *m)
{
    action_table_clear(&m->table);
    free(m->mark);
    free(m->behind);
    *m = (struct timing){ 0 };
}

/* Each rank sends its clock to all, ROUNDS times.  What the first receives bounds its
 * distance to another from above, what the other receives from below. */
int timing_begin(struct timing *m, struct err *err)
{
    const size_t n = (size_t)m->pipe->size;
    double *clock = xcalloc(n, sizeof(*clock)), *most = xcalloc(n, sizeof(*most));
    double least = -(double)INFINITY;
    int ret = 0;

    for (size_t r = 0; r < n; r++)
        most[r] = (double)INFINITY;
    for (int i = 0; i < ROUNDS && ret == 0; i++) {
        const double mine = clock_seconds();
        double now;

        ret = comm_run(m->pipe, comm_all_gather(&mine, clock, sizeof(mine)), err);
        now = clock_seconds();
        least = fmax(least, clock[0] - now);
        for (size_t r = 0; r < n; r++)
            most[r] = fmin(most[r], now - clock[r]);
    }
    if (ret == 0)
        ret = comm_run(m->pipe, comm_all_gather(&least, clock, sizeof(least)), err);
    for (size_t r = 0; r < n; r++)
        m->behind[r] = clock[r] <= 0 && most[r] >= 0 ? 0 : clock[r] / 2 + most[r] / 2;
    free(clock);
    free(most);
    return ret;
}

void timing_enter(struct timing *m)
{
    m->entered = m->received = clock_seconds();
}

void timing_leave(struct timing *m, size_t i)
{
    m->mark[2 * i] = fmax(m->entered, m->received);
    m->mark[2 * i + 1] = clock_seconds();
}

int timing_end(struct timing *m, struct err *err)
{
    const size_t each = 2 * m->most;
    double *all = xcalloc(each * (size_t)m->pipe->size + 1, sizeof(*all));
    double first = (double)INFINITY;
    int ret =
        comm_run(m->pipe, comm_all_gather(m->mark, all, each * sizeof(*all)), err);

    for (int r = 0; r < m->table.ranks && ret == 0; r++)
        if (m->table.row[r].n)
            first = fmin(first, all[(size_t)r * each] + m->behind[r]);
    for (int r = 0; r < m->table.ranks && ret == 0; r++)
        for (size_t i = 0; i < m->table.row[r].n; i++) {
            const double *mark = &all[(size_t)r * each + 2 * i];
            struct action *a = &m->table.row[r].v[i];

            a->timed = true;
            a->start = fmax(0, mark[0] + m->behind[r] - first);
            a->seconds = mark[1] - mark[0];
        }
    free(all);
    return ret;
}
