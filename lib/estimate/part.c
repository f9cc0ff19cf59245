/* part - one rank's part of the layers, the training states and the batch */
#include "lib/estimate/part.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/estimate/habits.h"

/* ---- layers ---- */

struct part part_of(const struct costmodel *a, const struct memory_options *o,
                    int stage)
{
    int nlayers = model_layers(a->model) ? model_layers(a->model) : 1;
    int pp = o->mesh.size[MESH_PP];
    struct mesh halves = { .size = { [MESH_PP] = 2 * pp } };
    struct part p = { .n = o->fold == FOLD_NONE ? 1 : 2 };

    if (o->fold != FOLD_V) {
        mesh_stage(&o->mesh, nlayers, stage, &p.first[0], &p.count[0]);
        mesh_stage(&o->mesh, nlayers, pp - 1 - stage, &p.first[1], &p.count[1]);
        return p;
    }
    mesh_stage(&halves, nlayers, stage, &p.first[0], &p.count[0]);
    mesh_stage(&halves, nlayers, 2 * pp - 1 - stage, &p.first[1], &p.count[1]);
    return p;
}

/* Adds the units of RUN whose depth is in [FROM, TO). */
static void add_slice(struct part *p, const struct costmodel *a,
                      const struct unit_run *run, int from, int to)
{
    int depth = a->unit[run->first].depth;

    from = from > depth ? from : depth;
    to = to < depth + run->n ? to : depth + run->n;
    if (from >= to)
        return;
    p->slice[p->nslices++] = (struct unit_run){ run->first + from - depth, to - from };
    p->sections |= UINT64_C(1) << a->unit[run->first].index;
}

void part_open(struct part *p, const struct costmodel *a,
               const struct memory_options *o, int stage)
{
    int low, high, from, to;

    *p = part_of(a, o, stage);
    p->slice = xmalloc(2 * (size_t)(a->nruns + 1) * sizeof(*p->slice));
    low = p->n > 1 && p->first[1] < p->first[0];
    high = p->n > 1 && !low;
    from = p->first[low];
    to = from + p->count[low];
    for (int i = 0; i < a->nruns; i++) {
        int next = p->first[high];

        add_slice(p, a, &a->run[i], from, to);
        if (p->n > 1)
            add_slice(p, a, &a->run[i], next > to ? next : to, next + p->count[high]);
    }
}

void part_clear(struct part *p)
{
    free(p->slice);
}

bool part_holds(const struct part *p, const struct common *c)
{
    if (c->read_by)
        return (c->read_by & p->sections) != 0;
    return p->first[0] == 0 || (p->n > 1 && p->first[1] == 0);
}

static void add_sum(struct weight_sum *out, const struct weight_sum *from, uint64_t n)
{
    out->elements += n * from->elements;
    out->rows += n * from->rows;
    out->bytes += n * from->bytes;
    out->trained += n * from->trained;
    out->trained_sides += n * from->trained_sides;
    out->adapted_sides += n * from->adapted_sides;
    for (int k = 0; k < 2; k++) {
        out->coded[k].bytes += n * from->coded[k].bytes;
        out->coded[k].others += n * from->coded[k].others;
        out->coded[k].stored += n * from->coded[k].stored;
    }
}

void part_weights(struct weight_sum out[WEIGHT_CLASSES], const struct part *p,
                  const struct costmodel *a)
{
    memset(out, 0, WEIGHT_CLASSES * sizeof(*out));
    for (int i = 0; i < p->nslices; i++)
        for (int c = 0; c < WEIGHT_CLASSES; c++)
            add_sum(&out[c], &a->unit[p->slice[i].first].weight[c],
                    (uint64_t)p->slice[i].n);
    for (int i = 0; i < a->ncommons; i++)
        if (part_holds(p, &a->common[i]))
            add_sum(&out[a->common[i].class], &a->common[i].sum, 1);
}

/* ---- states ---- */

uint64_t part_replicas(const struct memory_options *o, int class)
{
    uint64_t n = (uint64_t)o->mesh.size[MESH_DP] * (uint64_t)o->mesh.size[MESH_SP];

    return class == WEIGHT_EXPERT ? n : n * (uint64_t)o->mesh.size[MESH_EP];
}

uint64_t part_group(const struct memory_options *o, int class)
{
    uint64_t n = part_replicas(o, class);

    return o->hsdp && (uint64_t)o->hsdp < n ? (uint64_t)o->hsdp : n;
}

uint64_t part_trained(struct tally *s, const struct memory_options *o,
                      const struct weight_sum *w)
{
    return w->trained + tally_times(s, o->lora_rank, w->adapted_sides);
}

uint64_t part_gradients(struct tally *s, const struct memory_options *o, int class,
                        const struct weight_sum *w)
{
    bool whole = o->zero >= 3 && o->mesh.size[MESH_PP] > 1 && habits_of(o).keeps_stage;
    uint64_t each = whole && o->grad_bytes < 4 ? 4 : o->grad_bytes;
    uint64_t n = tally_times(s, part_trained(s, o, w), each);

    if (whole) /* accumulated over micro-batches before they are reduced */
        return n;
    return o->zero >= 2 ? tally_part(n, part_group(o, class)) : n;
}

/* ---- batch ---- */

uint64_t part_tokens(struct tally *s, const struct memory_options *o)
{
    return tally_times(s, o->micro_batch,
                       tally_part(o->seq, (uint64_t)o->mesh.size[MESH_SP]));
}

uint64_t part_columns(const struct memory_options *o, uint64_t n)
{
    return o->sequence_parallel ? tally_part(n, (uint64_t)o->mesh.size[MESH_TP]) : n;
}
