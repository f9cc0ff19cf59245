/* ties - weights that several stages of a pipeline have and train together */
#include "lib/train/ties.h"

#include <stdlib.h>

#include "lib/base/mem.h"

/* ---- finding them ---- */

/* Stages of which one number says which have a tensor: a sum of powers of two that a
 * double has exactly. */
enum { STAGES = 48 };

static int stage_of(const struct parameters *p)
{
    return p->program->coord[MESH_PP];
}

/* What weight I is of: a tensor, or an adapter. */
static size_t index_of(const struct program *p, int i)
{
    const struct weight *w = &p->weight[i];

    return w->adapter ? p->model->ntensors + (size_t)w->adapter - 1 : w->tensor;
}

static bool has_stage(const double *on, size_t all, size_t index, int stage)
{
    const double word = on[(size_t)(stage / STAGES) * all + index];

    return ((uint64_t)word >> stage % STAGES & 1) != 0;
}

/* Adds the stages of INDEX, if they are several. */
static void add_tie(struct ties *t, size_t *cap, size_t *stage_cap, const double *on,
                    size_t all, size_t index, int stages)
{
    int first = t->n ? t->v[t->n - 1].first + t->v[t->n - 1].n : 0, n = 0;

    for (int s = 0; s < stages; s++)
        if (has_stage(on, all, index, s)) {
            t->stage =
                xgrow(t->stage, stage_cap, (size_t)(first + n) + 1, sizeof(*t->stage));
            t->stage[first + n++] = s;
        }
    if (n < 2)
        return;
    t->v = xgrow(t->v, cap, (size_t)t->n + 1, sizeof(*t->v));
    t->v[t->n++] = (struct tie){ index, first, n };
}

static void note(const struct ties *t, struct parameters *p)
{
    for (int k = 0; k < t->n; k++) {
        const struct tie *tie = &t->v[k];

        for (int i = 0; i < tie->n; i++)
            if (t->stage[tie->first + i] == stage_of(p))
                p->tied[tie->index] = i ? TIED_LATER : TIED_FIRST;
    }
}

int ties_find(struct ties *t, struct parameters *const *p, int n, struct comm *pipe,
              int stages, struct err *err)
{
    const struct model *m = p[0]->program->model;
    const size_t all = m->ntensors + m->nadapters;
    const size_t words = (size_t)(stages + STAGES - 1) / STAGES;
    double *on = xcalloc(words * all + 1, sizeof(*on));
    size_t cap = 0, stage_cap = 0;
    int ret;

    *t = (struct ties){ .ntensors = m->ntensors };
    for (int k = 0; k < n; k++) {
        const int s = stage_of(p[k]);
        double *word = on + (size_t)(s / STAGES) * all;

        for (int i = 0; i < p[k]->program->nweights; i++) {
            const size_t index = index_of(p[k]->program, i);

            if (p[k]->row[i].trained && !has_stage(on, all, index, s))
                word[index] += (double)(UINT64_C(1) << s % STAGES);
        }
    }
    ret = comm_run(pipe, comm_all_reduce_f64(on, words * all), err);
    for (size_t index = 0; index < all && ret == 0; index++)
        add_tie(t, &cap, &stage_cap, on, all, index, stages);
    for (int k = 0; k < n && ret == 0; k++)
        note(t, p[k]);
    free(on);
    return ret;
}

void ties_close(struct ties *t)
{
    free(t->v);
    free(t->stage);
    *t = (struct ties){ 0 };
}

/* ---- sums ---- */

/* What is done with the weights of a tie on one stage. */
typedef int tied_step(struct gradients *g, int weight, int stage, struct err *err);

/* Does STEP with OTHER for the weights of INDEX that G has. */
static int each(struct gradients *g, size_t index, int other, tied_step *step,
                struct err *err)
{
    for (int i = 0; i < g->p->program->nweights; i++)
        if (index_of(g->p->program, i) == index && g->p->row[i].trained &&
            step(g, i, other, err) < 0)
            return -1;
    return 0;
}

/* The stage of G[n] that has NUMBER; or NULL. */
static struct gradients *own(struct gradients *const *g, int n, int number)
{
    for (int k = 0; k < n; k++)
        if (stage_of(g[k]->p) == number)
            return g[k];
    return NULL;
}

static int sum_one(const struct ties *t, const struct tie *tie,
                   struct gradients *const *g, int n, struct err *err)
{
    const int *stage = &t->stage[tie->first];
    struct gradients *first = own(g, n, stage[0]);

    for (int k = 1; k < tie->n; k++) {
        struct gradients *later = own(g, n, stage[k]);

        if (later && each(later, tie->index, stage[0], gradients_send, err) < 0)
            return -1;
    }
    for (int k = 1; k < tie->n && first; k++)
        if (each(first, tie->index, stage[k], gradients_receive_term, err) < 0)
            return -1;
    for (int k = 1; k < tie->n && first; k++)
        if (each(first, tie->index, stage[k], gradients_send, err) < 0)
            return -1;
    for (int k = 1; k < tie->n; k++) {
        struct gradients *later = own(g, n, stage[k]);

        if (later && each(later, tie->index, stage[0], gradients_receive_sum, err) < 0)
            return -1;
    }
    return 0;
}

int ties_sum(const struct ties *t, struct gradients *const *g, int n, struct err *err)
{
    for (int k = 0; k < t->n; k++)
        if (sum_one(t, &t->v[k], g, n, err) < 0)
            return -1;
    return 0;
}
