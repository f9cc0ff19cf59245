/* shards - weights and gradients that a rank has only while a step needs them */
#include "lib/train/shards.h"

#include <stdlib.h>

#include "lib/base/mem.h"

void shards_open(struct shards *s, struct gradients *g, const struct program *program)
{
    const bool reverse = program->ninsts > program->nforward;

    *s = (struct shards){ .g = g };
    s->turns = xcalloc((size_t)program->ninsts + 2, sizeof(*s->turns));
    if (parameters_gathers(g->p))
        units_reads(&s->reads, &g->p->units, program, &g->p->image);
    if (reverse)
        s->makes = &g->makes;
    for (int i = 0; i < s->reads.n; i++) {
        const struct unit_stay *stay = &s->reads.v[i];

        s->turns[stay->fetch] = s->turns[stay->begin] = s->turns[stay->end] = true;
    }
    for (int i = 0; s->makes && i < s->makes->n; i++) {
        s->turns[s->makes->v[i].begin] = true;
        s->turns[s->makes->v[i].end] = true;
    }
}

void shards_close(struct shards *s)
{
    unit_stays_clear(&s->reads);
    free(s->turns);
    *s = (struct shards){ 0 };
}

/* The engine finds the weights of the unit of STAY at X; NULL: nowhere. */
static void aim(struct shards *s, const struct unit_stay *stay, const float *x)
{
    struct parameters *p = s->g->p;
    const struct weight_unit *unit = &p->units.v[stay->unit];

    for (int i = unit->first; i < unit->end; i++)
        if (p->units.of[i] == stay->unit)
            p->matrix[i].data = x ? (const char *)x + p->image.at[i] : NULL;
}

/* What is over before instruction INST leaves its memory first. */
static int before(void *arg, int inst, bool over, struct err *err)
{
    struct shards *s = arg;
    const struct unit_stays *reads = &s->reads, *makes = s->makes;

    if (!s->turns[inst])
        return 0;
    for (int i = 0; makes && i < makes->n; i++)
        if (makes->v[i].end == inst && gradients_end_unit(s->g, &makes->v[i], err) < 0)
            return -1;
    for (int i = 0; i < reads->n; i++)
        if (reads->v[i].end == inst)
            aim(s, &reads->v[i], NULL);
    if (over)
        return 0;
    for (int i = 0; makes && i < makes->n; i++)
        if (makes->v[i].begin == inst &&
            gradients_begin_unit(s->g, &makes->v[i], err) < 0)
            return -1;
    for (int i = 0; i < reads->n; i++) {
        const struct unit_stay *stay = &reads->v[i];

        if (stay->fetch == inst && gradients_gather(s->g, stay, err) < 0)
            return -1;
    }
    for (int i = 0; i < reads->n; i++) {
        const struct unit_stay *stay = &reads->v[i];

        if (stay->begin != inst)
            continue;
        if (gradients_gathered(s->g, err) < 0)
            return -1;
        aim(s, stay, s->g->p->gathered + stay->at);
    }
    return 0;
}

void shards_follow(struct shards *s, struct engine *e)
{
    engine_follow(e, before, s);
}
