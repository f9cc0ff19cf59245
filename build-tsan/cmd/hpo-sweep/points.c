/* points - which points of a sweep have a value, and which have only failed */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/hpo-sweep/hpo-sweep.h"
#include "lib/base/json.h"
#include "lib/base/mem.h"

/* A trial and its point. */
struct row {
    const double *x; /* [n] */
    size_t n;
    int number;
    enum past_state state;
    bool infeasible;
};

/* NaN, a parameter that is not in force, comes before every number. */
static int compare_values(double a, double b)
{
    if (isnan(a) || isnan(b))
        return isnan(b) - isnan(a);
    return a < b ? -1 : a > b;
}

static int compare(const void *a, const void *b)
{
    const struct row *p = a, *q = b;

    for (size_t i = 0; i < p->n; i++) {
        int order = compare_values(p->x[i], q->x[i]);

        if (order)
            return order;
    }
    return p->number < q->number ? -1 : p->number > q->number;
}

static bool same_point(const struct row *a, const struct row *b)
{
    for (size_t i = 0; i < a->n; i++)
        if (compare_values(a->x[i], b->x[i]))
            return false;
    return true;
}

/* Mark in WAITS the trials that one that waits will try again. */
static void mark_waiting(bool *waits, const struct study *s)
{
    for (size_t i = 0; i < s->n; i++) {
        const struct study_trial *t = &s->trials[i];
        const char *history =
            t->state == STUDY_WAITING ? study_attr(&t->system, STUDY_RETRY_KEY) : NULL;
        struct json_doc doc;
        uint64_t number;

        if (!history ||
            json_parse(&doc, STUDY_RETRY_KEY, history, strlen(history), NULL) < 0)
            continue;
        for (const struct json *j = doc.root->first; j; j = j->next)
            if (json_u64(j, &number) && number < s->n)
                waits[number] = true;
        json_clear(&doc);
    }
}

/* Take in the ROWS of one point. */
static void add_point(struct points *p, const struct row *rows, size_t n,
                      const bool *waits)
{
    bool filled = false, open = false;

    for (size_t i = 0; i < n; i++) {
        filled |= rows[i].state == PAST_COMPLETE || rows[i].state == PAST_PRUNED ||
                  rows[i].infeasible;
        open |= rows[i].state == PAST_RUNNING || waits[rows[i].number];
    }
    p->filled += filled;
    if (!filled && !open)
        p->failed[p->nfailed++] = rows[n - 1].number;
}

void points_init(struct points *p, const struct session *s)
{
    size_t n = s->study.n, same;
    bool *waits = xcalloc(n + 1, sizeof(*waits));
    struct row *rows = xcalloc(n + 1, sizeof(*rows));
    struct history h;

    *p = (struct points){ .failed = xcalloc(n + 1, sizeof(*p->failed)) };
    mark_waiting(waits, &s->study);
    study_history(&h, &s->study, &s->file.space, NULL, -1);
    for (size_t i = 0; i < h.n; i++)
        rows[i] = (struct row){ .x = h.trials[i].x,
                                .n = h.nparams,
                                .number = h.trials[i].number,
                                .state = h.trials[i].state,
                                .infeasible = h.trials[i].violation > 0 };
    qsort(rows, h.n, sizeof(*rows), compare);
    for (size_t i = 0; i < h.n; i += same) {
        for (same = 1; i + same < h.n && same_point(&rows[i], &rows[i + same]);)
            same++;
        add_point(p, rows + i, same, waits);
    }
    history_clear(&h);
    free(rows);
    free(waits);
}

void points_clear(struct points *p)
{
    free(p->failed);
    *p = (struct points){ 0 };
}
