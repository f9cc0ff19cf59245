/* part - the part of a model, of its states and of a batch that one rank has */
#include "lib/estimate/part.h"

#include <string.h>

/* ---- layers ---- */

struct part part_of(const struct anatomy *a, const struct memory_options *o, int stage)
{
    int nlayers = model_layers(a->model) ? model_layers(a->model) : 1;
    int pp = o->mesh.size[MESH_PP];
    struct mesh halves = { .size = { [MESH_PP] = 2 * pp } };
    struct part p = { .n = o->folded ? 2 : 1 };

    if (!o->folded) {
        mesh_stage(&o->mesh, nlayers, stage, &p.first[0], &p.count[0]);
        return p;
    }
    mesh_stage(&halves, nlayers, stage, &p.first[0], &p.count[0]);
    mesh_stage(&halves, nlayers, 2 * pp - 1 - stage, &p.first[1], &p.count[1]);
    return p;
}

bool part_runs(const struct part *p, const struct unit *u)
{
    return anatomy_runs(u, p->first[0], p->count[0]) ||
           (p->n > 1 && anatomy_runs(u, p->first[1], p->count[1]));
}

bool part_holds(const struct part *p, const struct anatomy *a, const struct common *c)
{
    return anatomy_holds(a, c, p->first[0], p->count[0]) ||
           (p->n > 1 && anatomy_holds(a, c, p->first[1], p->count[1]));
}

void part_weights(struct weight_sum out[WEIGHT_CLASSES], const struct part *p,
                  const struct anatomy *a)
{
    memset(out, 0, WEIGHT_CLASSES * sizeof(*out));
    for (int i = 0; i < a->nunits + a->ncommons; i++) {
        const struct common *common = i < a->nunits ? NULL : &a->common[i - a->nunits];

        if (common ? !part_holds(p, a, common) : !part_runs(p, &a->unit[i]))
            continue;
        for (int c = 0; c < WEIGHT_CLASSES; c++) {
            const struct weight_sum *from =
                common ? &common->sum : &a->unit[i].weight[c];

            if (common && (int)common->class != c)
                continue;
            out[c].elements += from->elements;
            out[c].rows += from->rows;
            out[c].bytes += from->bytes;
            out[c].trained += from->trained;
            out[c].trained_sides += from->trained_sides;
            out[c].adapted_sides += from->adapted_sides;
        }
    }
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
    uint64_t n = tally_times(s, part_trained(s, o, w), o->grad_bytes);

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
