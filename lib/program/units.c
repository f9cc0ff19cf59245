/* units - weights of a program that are shared out, gathered and summed together */
#include "lib/program/units.h"

#include <stdlib.h>

#include "lib/base/mem.h"
#include "lib/program/gaps.h"
#include "lib/program/roundable.h"

enum { NO_PART = -1 };

/* ---- units ---- */

/* Weights from I on that an instruction which names I means: those of all experts. */
static int count_of(const struct program *p, int i)
{
    return p->weight[i].experts ? (int)p->weight[i].experts : 1;
}

static void see_reader(const struct program *p, int inst, int weight, int *part,
                       bool *alone)
{
    const struct value *v = &p->value[p->inst[inst].dst];
    int own = model_part(p->model, v->section, v->layer);

    for (int i = weight; weight >= 0 && i < weight + count_of(p, weight); i++) {
        alone[i] |= (part[i] != NO_PART && part[i] != own) ||
                    (v->layer >= 0 && !p->weight[i].adapter &&
                     p->model->tensor[p->weight[i].tensor].section < 0);
        part[i] = part[i] == NO_PART ? own : part[i];
    }
}

static bool has_ties(const struct model *m, size_t tensor)
{
    for (size_t t = 0; t < m->ntensors; t++)
        if (m->tensor[t].tied >= 0 && (size_t)m->tensor[t].tied == tensor)
            return true;
    return false;
}

static bool is_apart(const struct weight *w)
{
    return w->summed || w->by_some;
}

void units_find(struct units *u, const struct program *p, const bool *trains)
{
    int *part = xmalloc(((size_t)p->nweights + 1) * sizeof(*part)), last = -1;
    bool *alone = xcalloc((size_t)p->nweights + 1, sizeof(*alone));
    uint64_t at = 0;

    *u = (struct units){ .v = xcalloc((size_t)p->nweights + 1, sizeof(*u->v)),
                         .of = xmalloc(((size_t)p->nweights + 1) * sizeof(*u->of)) };
    for (int i = 0; i < p->nweights; i++)
        part[i] = NO_PART;
    for (int i = 0; i < p->nforward; i++) {
        see_reader(p, i, p->inst[i].weight, part, alone);
        see_reader(p, i, p->inst[i].weight2, part, alone);
    }
    for (int i = 0; i < p->nweights; i++) {
        uint64_t n = p->weight[i].rows * p->weight[i].cols;

        u->of[i] = -1;
        if (!trains[i])
            continue;
        alone[i] |= !p->weight[i].adapter && has_ties(p->model, p->weight[i].tensor);
        if (last < 0 || alone[i] || alone[last] || part[i] != part[last] ||
            is_apart(&p->weight[i]) != is_apart(&p->weight[last]))
            u->v[u->n++] = (struct weight_unit){ .first = i,
                                                 .at = at,
                                                 .apart = is_apart(&p->weight[i]) };
        u->of[i] = u->n - 1;
        u->v[u->n - 1].end = i + 1;
        u->v[u->n - 1].n += n;
        at += n;
        last = i;
    }
    free(part);
    free(alone);
}

void units_clear(struct units *u)
{
    free(u->v);
    free(u->of);
    *u = (struct units){ 0 };
}

/* ---- what is gathered ---- */

void unit_images_find(struct unit_images *m, const struct units *u,
                      const struct program *p, bool narrow)
{
    *m = (struct unit_images){ .at = xcalloc((size_t)p->nweights + 1, sizeof(*m->at)),
                               .bytes = xcalloc((size_t)u->n + 1, sizeof(*m->bytes)),
                               .narrow = narrow ? roundable_new(p)
                                                : xcalloc((size_t)p->nweights + 1,
                                                          sizeof(*m->narrow)) };
    for (int i = 0; i < p->nweights; i++) {
        const uint64_t n = p->weight[i].rows * p->weight[i].cols;

        if (u->of[i] < 0)
            continue;
        m->at[i] = m->bytes[u->of[i]];
        m->bytes[u->of[i]] +=
            m->narrow[i] ? (n + n % 2) * sizeof(uint16_t) : n * sizeof(float);
    }
}

void unit_images_clear(struct unit_images *m)
{
    free(m->at);
    free(m->bytes);
    free(m->narrow);
    *m = (struct unit_images){ 0 };
}

/* ---- stays ---- */

/* Instruction INST needs WEIGHT, for as long as the chunk lasts that it is in;
 * SPAN[unit] grows. */
static void need(struct unit_stay *span, const struct units *u, const struct program *p,
                 int inst, int weight)
{
    const struct program_chunk *c =
        inst < p->nforward ? &p->forward_chunk : &p->reverse_chunk;
    const bool in = inst >= c->first && inst < c->end;
    const int begin = in ? c->first : inst, end = in ? c->end : inst + 1;

    for (int i = weight; weight >= 0 && i < weight + count_of(p, weight); i++) {
        struct unit_stay *s = u->of[i] < 0 ? NULL : &span[u->of[i]];

        if (s && !s->end)
            s->begin = begin;
        if (s && s->end < end)
            s->end = end;
    }
}

static int compare_begins(const void *a, const void *b)
{
    const struct unit_stay *x = a, *y = b;

    return x->begin != y->begin ? (x->begin < y->begin ? -1 : 1)
                                : (x->unit > y->unit) - (x->unit < y->unit);
}

/* Adds the stays of SPAN, by unit, that there are, in their order. */
static void add_spans(struct unit_stays *s, const struct units *u,
                      struct unit_stay *span, bool early)
{
    int from = s->n;

    for (int i = 0; i < u->n; i++) {
        span[i].unit = i;
        if (span[i].end)
            s->v[s->n++] = span[i];
    }
    qsort(s->v + from, (size_t)(s->n - from), sizeof(*s->v), compare_begins);
    for (int i = from; i < s->n; i++)
        s->v[i].fetch = s->v[early && i > from ? i - 1 : i].begin;
    free(span);
}

/* Finds places in the room; by cache lines. */
static void place(struct unit_stays *s, const struct units *u,
                  const struct unit_images *m)
{
    enum { LINE = 16 };
    struct gaps gaps = { 0 };

    for (int i = 0; i < s->n; i++) {
        const int unit = s->v[i].unit;
        uint64_t n = m ? m->bytes[unit] / sizeof(float) : u->v[unit].n;

        n = (n + LINE - 1) / LINE * LINE;

        gaps_free_before(&gaps, s->v[i].fetch);
        s->v[i].at = gaps_take(&gaps, n, s->v[i].end - 1);
        if (s->v[i].at + n > s->room)
            s->room = s->v[i].at + n;
    }
    gaps_clear(&gaps);
}

static struct unit_stay *spans_new(const struct units *u)
{
    return xcalloc((size_t)u->n + 1, sizeof(struct unit_stay));
}

/* What makes a weight's gradient names the weight, and mostly does not read it. */
static bool reads_weights(const struct program *p, const struct inst *inst)
{
    return !p->value[inst->dst].gradient || inst->op == OP_XIELU_WEIGHT;
}

void units_reads(struct unit_stays *s, const struct units *u, const struct program *p,
                 const struct unit_images *m)
{
    const int border[] = { 0, p->nforward, p->nsplit, p->ninsts };

    *s = (struct unit_stays){ .v = xcalloc(3 * (size_t)u->n + 1, sizeof(*s->v)) };
    for (int k = 0; k < 3; k++) {
        struct unit_stay *span = spans_new(u);

        for (int i = border[k]; i < border[k + 1]; i++) {
            if (!reads_weights(p, &p->inst[i]))
                continue;
            need(span, u, p, i, p->inst[i].weight);
            need(span, u, p, i, p->inst[i].weight2);
            /* a chunk of the reverse begins with the logits again */
            for (int f = p->forward_chunk.first;
                 k > 0 && i == p->reverse_chunk.first && f < p->forward_chunk.end; f++)
                need(span, u, p, i, p->inst[f].weight);
        }
        add_spans(s, u, span, true);
    }
    place(s, u, m);
}

void units_makes(struct unit_stays *s, const struct units *u, const struct program *p)
{
    struct unit_stay *span = spans_new(u);

    *s = (struct unit_stays){ .v = xcalloc((size_t)u->n + 1, sizeof(*s->v)) };
    for (int i = p->nforward; i < p->ninsts; i++)
        need(span, u, p, i, p->value[p->inst[i].dst].gradient - 1);
    for (int i = 0; i < u->n; i++)
        if (u->v[i].apart)
            span[i] = (struct unit_stay){ 0 };
    add_spans(s, u, span, false);
    place(s, u, NULL);
}

void unit_stays_clear(struct unit_stays *s)
{
    free(s->v);
    *s = (struct unit_stays){ 0 };
}
