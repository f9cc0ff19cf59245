/* history - what a sampler and the analyses need to know of a study's trials */
#include <math.h>
#include <stdlib.h>

#include "lib/base/mem.h"
#include "lib/sweep/space/history.h"

void history_init(struct history *h, size_t nparams, size_t nobjectives)
{
    *h = (struct history){ .nparams = nparams, .nobjectives = nobjectives };
}

void history_clear(struct history *h)
{
    for (size_t i = 0; i < h->n; i++)
        free(h->trials[i].x);
    free(h->trials);
    *h = (struct history){ 0 };
}

struct past *history_add(struct history *h, int number, enum past_state state)
{
    struct past *t;

    h->trials = xgrow(h->trials, &h->cap, h->n + 1, sizeof(*h->trials));
    t = &h->trials[h->n++];
    *t = (struct past){ .number = number,
                        .state = state,
                        .last_step = -1,
                        .last_loss = NAN,
                        .generation = -1,
                        .member = -1 };
    t->x = xcalloc(h->nparams + h->nobjectives, sizeof(*t->x)); /* x, then loss */
    t->loss = t->x + h->nparams;
    for (size_t k = 0; k < h->nparams; k++)
        t->x[k] = NAN;
    return t;
}

static bool same_point(const double *a, const double *b, size_t n)
{
    for (size_t k = 0; k < n; k++)
        if (a[k] != b[k] && !(isnan(a[k]) && isnan(b[k])))
            return false;
    return true;
}

bool history_has(const struct history *h, const double *x)
{
    for (size_t i = 0; i < h->n; i++)
        if (same_point(h->trials[i].x, x, h->nparams))
            return true;
    return false;
}
