/* passtimes - what the actions of a table took */
#include "lib/pipe/passtimes.h"

#include <math.h>
#include <stdlib.h>

#include "lib/base/mem.h"

static const char *const kind_names[ACTION_KINDS] = {
    [ACTION_FORWARD] = "forward",
    [ACTION_BACKWARD] = "backward",
    [ACTION_INPUT] = "backward_input",
    [ACTION_WEIGHT] = "backward_weight",
};

bool passtimes_is(const struct action_table *t)
{
    for (int r = 0; r < t->ranks; r++)
        for (size_t i = 0; i < t->row[r].n; i++)
            if (!t->row[r].v[i].timed)
                return false;
    return true;
}

static size_t place(const struct action *a)
{
    return (size_t)a->stage * ACTION_KINDS + (size_t)a->kind;
}

void passtimes_open(struct passtimes *m, const struct action_table *t)
{
    const size_t cells = (size_t)t->stages * ACTION_KINDS;
    size_t *n = xcalloc(cells + 1, sizeof(*n));
    double first = (double)INFINITY, last = 0;

    *m = (struct passtimes){ .each = xcalloc(cells + 1, sizeof(*m->each)) };
    for (int r = 0; r < t->ranks; r++)
        for (size_t i = 0; i < t->row[r].n; i++) {
            const struct action *a = &t->row[r].v[i];

            first = fmin(first, a->start);
            last = fmax(last, a->start + a->seconds);
            m->each[place(a)] += a->seconds;
            n[place(a)]++;
        }
    for (size_t i = 0; i < cells; i++)
        m->each[i] /= n[i] ? (double)n[i] : 1;
    m->first = first < (double)INFINITY ? first : 0;
    m->makespan = fmax(0, last - m->first);
    free(n);
}

void passtimes_clear(struct passtimes *m)
{
    free(m->each);
    *m = (struct passtimes){ 0 };
}

int passtimes_simulate(struct pipe_result *out, struct pipe_times *times,
                       const struct passtimes *m, const struct action_table *t,
                       struct err *err)
{
    *times = (struct pipe_times){ .each = m->each };
    return pipe_simulate(out, t, times, err);
}

/* Which of its rank's stages STAGE is. */
static int chunk_of(const struct action_table *t, int stage)
{
    int n = 0;

    for (int s = 0; s < stage; s++)
        n += t->rank_of[s] == t->rank_of[stage];
    return n;
}

void passtimes_add_json(struct str *out, const struct passtimes *m,
                        const struct action_table *t)
{
    str_addc(out, '[');
    for (int s = 0; s < t->stages; s++) {
        str_addf(out, "%s{\"stage\":%d,\"rank\":%d,\"chunk\":%d", s ? "," : "", s,
                 t->rank_of[s], chunk_of(t, s));
        for (int k = 0; k < ACTION_KINDS; k++) {
            const double mean = m->each[s * ACTION_KINDS + k];

            if (!(mean > 0))
                continue;
            str_addf(out, ",\"%s\":", kind_names[k]);
            str_add_double(out, mean);
        }
        str_addc(out, '}');
    }
    str_addc(out, ']');
}

static void add_event(struct str *out, const struct action_table *t, int rank,
                      const struct action *a)
{
    const int chunk = chunk_of(t, a->stage);

    str_addf(out,
             ",\n{\"name\":\"%s %d\",\"cat\":\"%s\",\"ph\":\"X\",\"ts\":%.3f,"
             "\"dur\":%.3f,\"pid\":%d,\"tid\":%d,\"args\":{\"stage\":%d,\"chunk\":%d,"
             "\"micro_batch\":%d}}",
             kind_names[a->kind], a->micro_batch, kind_names[a->kind], 1e6 * a->start,
             1e6 * a->seconds, rank, chunk, a->stage, chunk, a->micro_batch);
}

void passtimes_add_trace(struct str *out, const struct action_table *t)
{
    str_add(out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
    for (int r = 0; r < t->ranks; r++)
        str_addf(out,
                 "%s{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{"
                 "\"name\":\"rank %d\"}}",
                 r ? ",\n" : "\n", r, r);
    for (int s = 0; s < t->stages; s++)
        str_addf(out,
                 ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,"
                 "\"args\":{\"name\":\"stage %d\"}}",
                 t->rank_of[s], chunk_of(t, s), s);
    for (int r = 0; r < t->ranks; r++)
        for (size_t i = 0; i < t->row[r].n; i++)
            add_event(out, t, r, &t->row[r].v[i]);
    str_add(out, "\n]}\n");
}
