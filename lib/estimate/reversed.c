/* reversed - the memory of tp-run train, from the program that it runs */
#include "lib/estimate/reversed.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/estimate/tally.h"
#include "lib/program/program.h"
#include "lib/program/pass-reverse.h"
#include "lib/program/units.h"
#include "lib/run/adapter.h"

enum { WHOLE_STAGE = 1000 }; /* unit of memory_options.inflight */

int reversed_slots(const struct memory_options *o)
{
    return o->optimizer < OPTIMIZER_TRAINED ? optimizer_slots(o->optimizer) : -1;
}

bool reversed_applies(const struct memory_options *o)
{
    return o->train && o->framework == FRAMEWORK_TP_RUN && reversed_slots(o) >= 0 &&
           o->offload != OFFLOAD_PARAMS && o->fold == FOLD_NONE && o->chunks <= 1 &&
           !o->sequence_parallel && !o->freeze && !o->eager &&
           o->mesh.size[MESH_SP] == 1 && o->mesh.size[MESH_EP] == 1;
}

/* Micro-batches in flight on stage S. */
static uint64_t in_flight(const struct memory_options *o, int s)
{
    return o->inflight ? (o->inflight[s] + WHOLE_STAGE - 1) / WHOLE_STAGE : 1;
}

void reversed_clear(struct reversed_programs *known)
{
    for (int i = 0; i < RECOMPUTE_KINDS * known->tp * known->pp; i++)
        program_free(known->program[i]);
    for (int k = 0; k < RECOMPUTE_KINDS; k++)
        free(known->own[k]);
    free(known->program);
    *known = (struct reversed_programs){ 0 };
}

/* Does the config ask for a balance loss of experts? */
static bool balances(const struct model *m)
{
    double x;

    return model_number(m, "balance", &x) && x > 0;
}

/* Builds the program, with the adapters that are asked for: the model has them for as
 * long as that takes. */
static int build(struct program **p, const struct model *m,
                 const struct memory_options *o, const int coord[MESH_NAXES],
                 const struct program_options *options, struct err *err)
{
    const struct adapter_wish wish = { .rank = o->lora_rank,
                                       .alpha = 8,
                                       .names = o->lora_targets };
    struct model *own = (struct model *)(uintptr_t)m;
    bool *frozen;
    int ret;

    if (!o->lora_rank)
        return program_build(p, m, &o->mesh, coord, options, err);
    frozen = xcalloc(m->ntensors + 1, sizeof(*frozen));
    ret = adapter_foretell(own, &wish, err);
    for (size_t t = 0; t < m->ntensors; t++) {
        frozen[t] = m->tensor[t].frozen;
        own->tensor[t].frozen = true;
    }
    if (ret == 0)
        ret = program_build(p, m, &o->mesh, coord, options, err);
    for (size_t t = 0; t < m->ntensors; t++)
        own->tensor[t].frozen = frozen[t];
    model_unadapt(own);
    free(frozen);
    return ret;
}

/* The program of the rank at COORD, borrowed from KNOWN; NULL with *err set. */
static const struct program *program_at(struct reversed_programs *known,
                                        const struct model *m,
                                        const struct memory_options *o,
                                        const int coord[MESH_NAXES], struct err *err)
{
    const struct recompute_plan plan = { o->recompute, o->recompute_layers };
    const struct program_options options = { .tail = TAIL_NLL,
                                             .reverse = true,
                                             .recompute = plan,
                                             .balance = balances(m),
                                             .dropout = o->dropout ? -1 : 0 };
    int tp = o->mesh.size[MESH_TP], pp = o->mesh.size[MESH_PP];
    struct program **p;

    if (known->tp != tp || known->pp != pp || known->layers != plan.layers) {
        reversed_clear(known);
        known->program = xcalloc((size_t)RECOMPUTE_KINDS * (size_t)tp * (size_t)pp,
                                 sizeof(*known->program));
        known->tp = tp;
        known->pp = pp;
        known->layers = plan.layers;
    }
    p = &known->program[((int)plan.kind * tp + coord[MESH_TP]) * pp + coord[MESH_PP]];
    if (*p)
        return *p;
    if (build(p, m, o, coord, &options, err) < 0) {
        *p = NULL;
    } else if (reverse_check_model(*p, err) < 0) {
        program_free(*p);
        *p = NULL;
    }
    return *p;
}

/* Elements of f32 that a rank has for its trained weights. */
struct trained {
    uint64_t weights, gathered, gradients, slots;
};

/* The same of P's TRAINS[i] as train/parameters and train/gradients have them, by the
 * stage of ZeRO of O. */
static struct trained count_trained(const struct program *p, const bool *trains,
                                    const struct memory_options *o,
                                    const int coord[MESH_NAXES])
{
    const int dp = o->mesh.size[MESH_DP];
    const int size = !o->zero ? 1 : o->hsdp && o->hsdp < dp ? o->hsdp : dp;
    const int stage = size > 1 ? o->zero : 0;
    uint64_t all = 0, summed = 0;
    struct unit_stays reads, makes;
    struct trained t = { 0 };
    struct units u;

    units_find(&u, p, trains);
    units_reads(&reads, &u, p);
    units_makes(&makes, &u, p);
    for (int i = 0; i < u.n; i++) {
        uint64_t first, n;

        optimizer_range(u.v[i].n, coord[MESH_DP] % size, size, &first, &n);
        t.slots += n;
        all += u.v[i].n;
        summed += u.v[i].summed ? u.v[i].n : 0;
    }
    t.weights = stage >= 3 ? t.slots : all;
    t.gathered = stage >= 3 ? reads.room : 0;
    t.gradients = stage >= 2 ? t.slots + makes.room + summed : all;
    units_clear(&u);
    unit_stays_clear(&reads);
    unit_stays_clear(&makes);
    return t;
}

int reversed_rank(struct rank_memory *out, struct reversed_programs *known,
                  const struct model *m, const struct memory_options *o,
                  const int coord[MESH_NAXES], struct err *err)
{
    const uint64_t most[ROWS_MOST] = {
        [ROWS_TOKENS] = o->micro_batch * o->seq, [ROWS_ONE] = o->micro_batch
    };
    struct tally sum[MEMORY_CATEGORIES] = { 0 }, host = { 0 };
    uint64_t *offset, arena = 0, weights = 0;
    struct trained trained;
    bool *trains;
    const struct program *p = program_at(known, m, o, coord, err);
    enum dtype stored = DTYPE_F32;
    bool ok;

    if (!p)
        return -1;
    model_config_dtype(m, &stored);
    trains = xcalloc((size_t)p->nweights + 1, sizeof(*trains));
    for (int i = 0; i < p->nweights; i++) {
        const struct weight *w = &p->weight[i];
        uint64_t n = w->rows * w->cols;

        trains[i] = o->lora_rank ? w->adapter > 0 : !m->tensor[w->tensor].frozen;
        if (!trains[i]) /* a matrix stays as it is stored */
            weights +=
                n * (w->rows == 1 ? sizeof(float) : (uint64_t)dtype_bits(stored) / 8);
    }
    trained = count_trained(p, trains, o, coord);
    free(trains);
    offset = xcalloc((size_t)p->nvalues + 1, sizeof(*offset));
    ok = program_arena(p, most, offset, &arena);
    free(offset);
    tally_add(&sum[MEMORY_WEIGHTS], weights + trained.weights * sizeof(float));
    tally_add(&sum[MEMORY_COMM], trained.gathered * sizeof(float));
    tally_add(&sum[MEMORY_GRADIENTS], trained.gradients * sizeof(float));
    tally_add(o->offload == OFFLOAD_OPTIMIZER ? &host : &sum[MEMORY_OPTIMIZER],
              trained.slots * sizeof(float) * (uint64_t)reversed_slots(o));
    tally_add(&sum[MEMORY_RUNTIME], o->runtime);
    for (uint64_t i = 0; i < in_flight(o, coord[MESH_PP]); i++)
        tally_add(&sum[MEMORY_ACTIVATIONS], arena);
    *out = (struct rank_memory){ .moment = MOMENT_BACKWARD, .host = host.v };
    ok &= !host.over;
    for (int c = 0; c < MEMORY_CATEGORIES; c++) {
        out->peak[c] = out->bytes[c] = sum[c].v;
        out->total += sum[c].v;
        ok &= !sum[c].over;
    }
    memcpy(out->coord, coord, sizeof(out->coord));
    return ok ? 0 : err_set(err, ERR_USAGE, "the bytes of this layout overflow");
}

const struct own_work *reversed_own(struct reversed_programs *known,
                                    const struct costmodel *a,
                                    const struct memory_options *o, struct err *err)
{
    int pp = o->mesh.size[MESH_PP];
    struct own_work *own = xcalloc((size_t)pp, sizeof(*own));

    for (int i = 0; i < pp; i++) {
        const int coord[MESH_NAXES] = { [MESH_PP] = i };
        const struct program *p = program_at(known, a->model, o, coord, err);

        if (!p) {
            free(own);
            return NULL;
        }
        if (known->own[o->recompute])
            break;
        own[i] = work_own(a, p, o);
    }
    if (known->own[o->recompute])
        free(own);
    else
        known->own[o->recompute] = own;
    return known->own[o->recompute];
}

static void add_kind(struct memory_estimate *e, const struct rank_memory *one,
                     uint64_t count)
{
    size_t i = 0;

    while (i < e->nkinds &&
           (e->kind[i].host != one->host ||
            memcmp(e->kind[i].bytes, one->bytes, sizeof(one->bytes)) != 0))
        i++;
    if (i == e->nkinds) {
        e->kind = xrealloc(e->kind, sizeof(*e->kind) * (e->nkinds + 1));
        e->kind[e->nkinds++] = *one;
    }
    e->kind[i].count += count;
}

int reversed_estimate(struct memory_estimate *e, const struct model *m,
                      const struct memory_options *o, struct err *err)
{
    struct memory_estimate made = { 0 };
    struct reversed_programs known = { 0 };
    int ret = -1;

    if (model_check_mesh(m, &o->mesh, err) < 0)
        return -1;
    for (int tp = 0; tp < o->mesh.size[MESH_TP]; tp++)
        for (int pp = 0; pp < o->mesh.size[MESH_PP]; pp++) {
            int coord[MESH_NAXES] = { [MESH_TP] = tp, [MESH_PP] = pp };
            int *dp = &coord[MESH_DP], each = o->zero ? o->mesh.size[MESH_DP] : 1;
            struct rank_memory one;

            for (; *dp < each; ++*dp) {
                if (reversed_rank(&one, &known, m, o, coord, err) < 0)
                    goto out;
                add_kind(&made, &one, (uint64_t)(o->mesh.size[MESH_DP] / each));
            }
        }
    made.peak = made.kind;
    for (size_t i = 1; i < made.nkinds; i++)
        if (made.kind[i].total > made.peak->total)
            made.peak = &made.kind[i];
    *e = made;
    ret = 0;
out:
    reversed_clear(&known);
    if (ret < 0)
        memory_estimate_clear(&made);
    return ret;
}
