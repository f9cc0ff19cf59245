/* reversed - the memory of tp-run train, from the program that it runs */
#include "lib/estimate/reversed.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/device/arrays.h"
#include "lib/estimate/served.h"
#include "lib/estimate/tally.h"
#include "lib/model/frozen.h"
#include "lib/program/program.h"
#include "lib/program/pass-reverse.h"
#include "lib/program/roundable.h"
#include "lib/program/units.h"
#include "lib/run/adapter.h"
#include "lib/run/cache.h"
#include "lib/run/engine.h"
#include "lib/run/held.h"

enum { WHOLE_STAGE = 1000 }; /* unit of memory_options.inflight */
enum { SP_KINDS = 2 };       /* the first rank of sp has programs of its own */

bool reversed_applies(const struct memory_options *o)
{
    return o->train && o->framework == FRAMEWORK_TP_RUN &&
           o->offload != OFFLOAD_PARAMS &&
           (o->nstages || (o->fold == FOLD_NONE && o->chunks <= 1)) && !o->etp &&
           !o->eager;
}

static uint64_t documents_of(const struct memory_options *o)
{
    return o->documents ? o->documents : 1;
}

/* Micro-batches in flight on stage S. */
static uint64_t in_flight(const struct memory_options *o, int s)
{
    if (o->nstages)
        return (uint64_t)o->flights[s];
    return o->inflight ? (o->inflight[s] + WHOLE_STAGE - 1) / WHOLE_STAGE : 1;
}

void reversed_clear(struct reversed_programs *known)
{
    for (int i = 0; i < RECOMPUTE_KINDS * known->ranks; i++)
        program_free(known->program[i]);
    for (int k = 0; k < RECOMPUTE_KINDS; k++)
        free(known->own[k]);
    free(known->program);
    free(known->trained);
    *known = (struct reversed_programs){ 0 };
}

/* Does the config ask for a balance loss of experts? */
static bool balances(const struct model *m)
{
    double x;

    return model_number(m, "balance", &x) && x > 0;
}

/* Marks in M what is not trained, and adds the adapters that are asked for. */
static int prepare(struct model *m, const struct memory_options *o, struct err *err)
{
    const struct adapter_wish wish = { .rank = o->lora_rank,
                                       .alpha = 8,
                                       .dora = o->dora,
                                       .names = o->lora_targets,
                                       .saved = o->lora_saved };

    if (o->lora_rank)
        return adapter_foretell(m, &wish, err);
    return (o->freeze && frozen_names(m, "--freeze", o->freeze, true, err) < 0) ||
                   (o->only && frozen_names(m, "--train-only", o->only, false, err) < 0)
               ? -1
               : 0;
}

/* Builds the program of what is trained: the model knows it for as long as that takes.
 * TRAINED[ntensors] becomes what it is, beside adapters. */
static int build(struct program **p, bool *trained, const struct model *m,
                 const struct memory_options *o, const int coord[MESH_NAXES],
                 const struct program_options *options, struct err *err)
{
    struct model *own = (struct model *)(uintptr_t)m;
    bool *frozen = xcalloc(m->ntensors + 1, sizeof(*frozen));
    int ret;

    for (size_t t = 0; t < m->ntensors; t++)
        frozen[t] = m->tensor[t].frozen;
    ret = prepare(own, o, err);
    if (ret == 0)
        ret = program_build(p, m, &o->mesh, coord, options, err);
    for (size_t t = 0; t < m->ntensors; t++) {
        trained[t] = !m->tensor[t].frozen;
        own->tensor[t].frozen = frozen[t];
    }
    model_unadapt(own);
    free(frozen);
    return ret;
}

/* Is weight I of P, one of KNOWN, trained? */
static bool trains_weight(const struct reversed_programs *known,
                          const struct program *p, int i)
{
    const struct weight *w = &p->weight[i];

    return w->adapter ? w->part != ADAPTER_NORM : known->trained[w->tensor];
}

/* The program of the rank at COORD, whose place in pp is a stage's, borrowed from
 * KNOWN; NULL with *err set. */
static const struct program *program_at(struct reversed_programs *known,
                                        const struct model *m,
                                        const struct memory_options *o,
                                        const int coord[MESH_NAXES], struct err *err)
{
    const struct recompute_plan plan = { o->recompute, o->recompute_layers };
    const bool rounds = o->compute_bytes == sizeof(uint16_t);
    const struct program_options options = { .tail = o->logits ? TAIL_LOGITS : TAIL_NLL,
                                             .reverse = true,
                                             .training = true,
                                             .rounded = rounds && !o->half,
                                             .half = rounds && o->half,
                                             .recompute = plan,
                                             .deterministic = o->deterministic,
                                             .split = o->split,
                                             .sequence = o->sequence_parallel,
                                             .balance = balances(m),
                                             .dropout = o->dropout ? -1 : 0 };
    const int *size = o->mesh.size;
    const int sp = size[MESH_SP] < SP_KINDS ? size[MESH_SP] : SP_KINDS;
    const int other = coord[MESH_SP] < SP_KINDS ? coord[MESH_SP] : SP_KINDS - 1;
    struct program **p;

    if (memcmp(known->size, size, sizeof(known->size)) != 0 ||
        known->layers != plan.layers || known->split != o->split) {
        reversed_clear(known);
        memcpy(known->size, size, sizeof(known->size));
        known->ranks = size[MESH_TP] * size[MESH_PP] * size[MESH_EP] * sp;
        known->program = xcalloc((size_t)RECOMPUTE_KINDS * (size_t)known->ranks,
                                 sizeof(*known->program));
        known->layers = plan.layers;
        known->split = o->split;
        known->trained = xcalloc(m->ntensors + 1, sizeof(*known->trained));
    }
    p = &known->program[((((int)plan.kind * size[MESH_TP] + coord[MESH_TP]) *
                              size[MESH_PP] +
                          coord[MESH_PP]) *
                             size[MESH_EP] +
                         coord[MESH_EP]) *
                            sp +
                        other];
    if (*p)
        return *p;
    if (build(p, known->trained, m, o, coord, &options, err) < 0) {
        *p = NULL;
    } else if (reverse_check_model(*p, err) < 0) {
        program_free(*p);
        *p = NULL;
    }
    return *p;
}

/* ---- what a CPU takes beside: where the threads are known ---- */

/* Is weight I of P, of a stage at an end, on the stage at the other end, too? */
static bool is_tied(const struct program *p, const struct program *other, int i)
{
    for (int k = 0; other && !p->weight[i].adapter && k < other->nweights; k++)
        if (!other->weight[k].adapter && other->weight[k].tensor == p->weight[i].tensor)
            return true;
    return false;
}

/* Elements of the room in which gradients come from other ranks (train/gradients.c). */
static uint64_t exchanged(const struct program *p, const struct program *other,
                          const bool *trains)
{
    enum { PIECE = 1 << 15 };
    uint64_t most = 0;

    for (int i = 0; i < p->nweights; i++) {
        const struct axis *axis[MODEL_MAX_DIMS];
        const struct weight *w = &p->weight[i];
        uint64_t n = 1, own = w->rows * w->cols;
        int ndim = w->adapter ? 0 : program_weight_axes(p, i, axis);

        for (int k = 0; k < ndim; k++)
            n *= axis[k]->size;
        if (w->adapter) /* one that is summed is not sharded */
            n = own;
        if (!trains[i] || (!w->summed && !is_tied(p, other, i)))
            continue;
        n = w->summed ? n : own < PIECE ? own : PIECE;
        most = n > most ? n : most;
    }
    return most;
}

/* Adds what the engine of a micro-batch takes to LIST, but for the arena. */
static int add_engine(struct ledger *list, const struct program *p,
                      const struct held *held, const bool *trains,
                      const struct memory_options *o, const int coord[MESH_NAXES],
                      struct err *err)
{
    const size_t tokens = (size_t)(o->micro_batch * o->seq);
    const size_t texts = (size_t)(o->micro_batch * documents_of(o));
    const struct engine_limits limits = { .tokens = tokens,
                                          .segments = texts,
                                          .sequences = texts,
                                          .cache = tokens + texts * CACHE_BLOCK,
                                          .context = (size_t)o->seq,
                                          .source = p->source ? (size_t)o->seq : 0,
                                          .sources = p->source ? tokens : 0 };
    struct comm group[MESH_NAXES];
    const struct engine_groups groups = { .tensor = &group[MESH_TP],
                                          .sequence = &group[MESH_SP],
                                          .expert = &group[MESH_EP],
                                          .pipe = &group[MESH_PP],
                                          .across = o->across ? o->across
                                                              : o->mesh.size[MESH_SP],
                                          .trains = true };
    enum format *of = xcalloc((size_t)p->nweights + 1, sizeof(*of));
    bool *rounded = roundable_new(p);
    struct engine *e = NULL;
    int ret;

    for (int a = 0; a < MESH_NAXES; a++)
        group[a] = (struct comm){ .rank = coord[a], .size = o->mesh.size[a] };
    for (int i = 0; i < p->nweights; i++) {
        of[i] = held[i].format;
        if ((trains[i] || p->weight[i].rows == 1) && rounded[i] &&
            (p->rounded || p->half))
            of[i] = p->half ? FORMAT_F16 : FORMAT_BF16;
    }
    ret = engine_plan(&e, p, &served_cpu, o->threads, of, &groups, &limits, err);
    if (ret == 0) {
        engine_memory(e, list);
        engine_room(e, NULL, list);
    }
    engine_free(e);
    free(rounded);
    free(of);
    return ret;
}

/* Numbers of the copies that products read (train/rounded.h): of what the store has as
 * f32 numbers, which is what is TRAINED, and vectors.  ALONE: without masters there are
 * no copies. */
static uint64_t copies(const struct program *p, const bool *trained, bool gathers,
                       bool alone)
{
    bool *rounded = roundable_new(p);
    uint64_t n = 0;

    for (int i = 0; i < p->nweights; i++) {
        const struct weight *w = &p->weight[i];

        n += rounded[i] && (trained[i] ? !gathers && !alone : w->rows == 1)
                 ? w->rows * w->cols
                 : 0;
    }
    free(rounded);
    return n;
}

/* Adds what the optimizer keeps of the weights that the rank with SHARE[size] has of
 * unit U. */
static void add_slots(struct reversed_trained *t, const struct program *p,
                      const struct units *u, int unit, enum optimizer_kind kind,
                      const bool *matrix, const size_t *share, int rank)
{
    const struct optimizer_info *info = &optimizer_table[kind];
    uint64_t at = 0, first = 0, end;

    for (int r = 0; r < rank; r++)
        first += share[r];
    end = first + share[rank];
    t->owned += share[rank];
    for (int i = u->v[unit].first; i < u->v[unit].end; i++) {
        const uint64_t n = p->weight[i].rows * p->weight[i].cols;
        const uint64_t from = at > first ? at : first;
        const uint64_t to = at + n < end ? at + n : end;
        const uint64_t count = to > from ? to - from : 0;

        if (u->of[i] != unit)
            continue;
        at += n;
        for (int k = 0; info->slot[k].role; k++)
            t->slots += optimizer_slot_size(
                matrix[i] ? info->slot[k].matrix : info->slot[k].other, p, i, count);
        if (count && matrix[i] && optimizer_room(kind, p, i) > t->room)
            t->room = optimizer_room(kind, p, i);
        /* a weight and its gradient */
        if (count && (matrix[i] || kind == OPTIMIZER_ADAFACTOR) && 2 * n > t->local)
            t->local = 2 * n;
    }
}

/* The ranks that share what each of them would have: of dp, and of sp, which varies
 * faster. */
static int sharing_of(const struct memory_options *o)
{
    const int dp = o->mesh.size[MESH_DP], sp = o->mesh.size[MESH_SP];

    return !o->zero ? 1 : sp * (o->hsdp && o->hsdp < dp ? o->hsdp : dp);
}

/* Of weights without masters (train/parameters.c): the bytes of unit U's image before
 * its element AT, */
static uint64_t bytes_before(const struct program *p, const struct units *units, int u,
                             const struct unit_images *image, uint64_t at)
{
    uint64_t first = 0;

    for (int i = units->v[u].first; i < units->v[u].end; i++) {
        const uint64_t n = p->weight[i].rows * p->weight[i].cols;

        if (units->of[i] != u)
            continue;
        if (at < first + n)
            return image->at[i] +
                   (at - first) * (image->narrow[i] ? sizeof(uint16_t) : sizeof(float));
        first += n;
    }
    return image->bytes[u];
}

/* and what rank RANK of SIZE that share keeps of them, and of others: T's weights, and
 * the room of an update. */
static void without_masters(struct reversed_trained *t, const struct program *p,
                            const bool *trains, const struct units *u,
                            const struct unit_images *image,
                            const struct memory_options *o, int rank, int size)
{
    const uint64_t four = sizeof(float);
    size_t *share = xcalloc((size_t)size, sizeof(*share));
    uint64_t bytes = 0, most = 0;

    for (int k = 0; k < u->n; k++) {
        uint64_t first = 0, end, from, at = 0;

        optimizer_deal(o->optimizer, p, u, k, size, share);
        for (int r = 0; r < rank; r++)
            first += share[r];
        end = first + share[rank];
        from = bytes_before(p, u, k, image, first);
        if (size > 1 && o->zero >= 3)
            bytes +=
                (from % four + bytes_before(p, u, k, image, end) - from + four - 1) /
                four * four;
        else
            bytes += image->bytes[k];
        for (int i = u->v[k].first; i < u->v[k].end; i++) {
            const uint64_t n = p->weight[i].rows * p->weight[i].cols;
            const uint64_t low = at > first ? at : first;
            const uint64_t high = at + n < end ? at + n : end;

            if (u->of[i] != k)
                continue;
            at += n;
            if (trains[i] && image->narrow[i] && high > low && high - low > most)
                most = high - low;
        }
    }
    t->weights = bytes / four;
    most = most < OPTIMIZER_WITHOUT ? most : OPTIMIZER_WITHOUT;
    t->room = most > t->room ? most : t->room;
    free(share);
}

struct reversed_trained reversed_trained(const struct program *p, const bool *trains,
                                         const struct memory_options *o,
                                         const int coord[MESH_NAXES])
{
    const int size = sharing_of(o);
    const int rank = coord[MESH_DP] * o->mesh.size[MESH_SP] + coord[MESH_SP];
    const int stage = size > 1 ? o->zero : 0;
    uint64_t all = 0, summed = 0;
    const bool narrow = o->compute_bytes == sizeof(uint16_t);
    struct unit_stays reads, makes;
    struct reversed_trained t = { 0 };
    struct unit_images image;
    size_t *share = xcalloc((size_t)size, sizeof(*share));
    bool *matrix = optimizer_matrices_new(o->optimizer, p);
    struct units u;

    units_find(&u, p, trains);
    unit_images_find(&image, &u, p, narrow);
    units_reads(&reads, &u, p, &image);
    units_makes(&makes, &u, p);
    for (int i = 0; i < u.n; i++) {
        optimizer_deal(o->optimizer, p, &u, i, size, share);
        add_slots(&t, p, &u, i, o->optimizer, matrix, share, rank % size);
        all += u.v[i].n;
        summed += u.v[i].apart ? u.v[i].n : 0;
    }
    t.weights = stage >= 3 ? t.owned : all;
    t.gathered = stage >= 3 ? reads.room : 0;
    t.copies =
        narrow ? copies(p, trains, stage >= 3, !o->master) * sizeof(uint16_t) : 0;
    if (narrow && !o->master)
        without_masters(&t, p, trains, &u, &image, o, rank % size, size);
    t.gradients = stage >= 2 ? t.owned + makes.room + summed : all;
    if (o->deterministic && stage == 1)
        t.gradients += t.owned;
    t.sums = stage ? t.owned : all;
    free(share);
    free(matrix);
    units_clear(&u);
    unit_images_clear(&image);
    unit_stays_clear(&reads);
    unit_stays_clear(&makes);
    return t;
}

/* Adds to *BYTES those of weight I of P, which is not trained: a matrix as HELD, a
 * vector in f32.  False on overflow. */
static bool add_held(uint64_t *bytes, const struct held *held, const struct program *p,
                     int i)
{
    const struct weight *w = &p->weight[i];
    const bool alone = held[i].packed || held[i].coded;
    uint64_t n = w->rows * w->cols * sizeof(float);

    if (w->rows > 1 && !alone && w->slice > 1) /* the first slice counts all */
        return true;
    if (w->rows > 1 && (!held_bytes(&n, &held[i], w) ||
                        (!alone && w->slice && !mem_mul(&n, n, w->experts))))
        return false;
    return mem_add(bytes, *bytes, n);
}

/* *HELD = how the weights of P are held, of which TRAINS are trained. */
static int foretell(struct held **held, const struct program *p, const bool *trains,
                    const enum dtype *stored, const struct memory_options *o,
                    struct err *err)
{
    const char *asked = o->weights ? o->weights->name : "";
    const enum weights_form form = o->codes                 ? WEIGHTS_CODES
                                   : !strcmp(asked, "int8") ? WEIGHTS_INT8
                                   : !strcmp(asked, "int4") ? WEIGHTS_INT4
                                                            : WEIGHTS_STORED;
    struct held_types types = { .stored = stored };

    if (!stored)
        model_config_dtype(p->model, &types.all);
    return held_foretell(held, &types, p, form, trains, err);
}

/* Levels of the tree over a replica's micro-batches (struct trainer_options); 0: there
 * is none. */
static int count_levels(uint64_t *levels, const struct memory_options *o,
                        struct err *err)
{
    const uint64_t dp = (uint64_t)o->mesh.size[MESH_DP], share = o->micro_batches;

    if (!o->deterministic)
        return 0;
    if ((share & (share - 1)) || (dp & (dp - 1)))
        return err_set(err, ERR_USAGE,
                       "--deterministic: dp and the micro-batches of a replica must be "
                       "powers of 2; they are %" PRIu64 " and %" PRIu64,
                       dp, share);
    while (UINT64_C(1) << *levels < share)
        ++*levels;
    ++*levels;
    return 0;
}

/* What a rank has, by category, and of that on the host. */
struct sums {
    struct tally of[MEMORY_CATEGORIES], host;
    uint64_t kernels; /* that the stages of a rank share */
    bool over;
};

/* Adds what a rank has of the stage at COORD[MESH_PP] of O's mesh, whose pp is the
 * number of stages. */
static int add_stage(struct sums *sums, struct reversed_programs *known,
                     const struct model *m, const enum dtype *stored,
                     const struct memory_options *o, const int coord[MESH_NAXES],
                     struct err *err)
{
    const bool shares = o->mesh.size[MESH_SP] > 1 || o->mesh.size[MESH_EP] > 1;
    const uint64_t tokens = o->micro_batch * o->seq,
                   texts = o->micro_batch * documents_of(o);
    uint64_t most[ROWS_MOST] = {
        [ROWS_TOKENS] = tokens, [ROWS_SOURCE] = tokens, [ROWS_ONE] = texts
    };
    const int sp = o->mesh.size[MESH_SP];
    struct tally *const sum = sums->of, *const host = &sums->host;
    uint64_t *offset, arena = 0, weights = 0, beside = 0, kernels;
    struct ledger list = { 0 };
    struct reversed_trained trained;
    bool *trains;
    const struct program *p = program_at(known, m, o, coord, err);
    struct held *held;
    uint64_t levels = 0;
    bool ok = true;

    if (!p || count_levels(&levels, o, err) < 0)
        return -1;
    trains = xcalloc((size_t)p->nweights + 1, sizeof(*trains));
    for (int i = 0; i < p->nweights; i++)
        trains[i] = trains_weight(known, p, i);
    if (foretell(&held, p, trains, stored, o, err) < 0) {
        free(trains);
        return -1;
    }
    for (int i = 0; i < p->nweights && ok; i++)
        ok = trains[i] || add_held(&weights, held, p, i);
    trained = reversed_trained(p, trains, o, coord);
    if (o->threads) {
        int there[MESH_NAXES];
        const int last = o->mesh.size[MESH_PP] - 1;
        const struct program *other = NULL;

        memcpy(there, coord, sizeof(there));
        there[MESH_PP] = last - coord[MESH_PP];
        if (last && (coord[MESH_PP] == 0 || coord[MESH_PP] == last))
            other = program_at(known, m, o, there, err);
        tally_add(&sum[MEMORY_COMM], exchanged(p, other, trains) * sizeof(float) +
                                         SQUARES_WORDS * sizeof(uint64_t));
        if (add_engine(&list, p, held, trains, o, coord, err) < 0) {
            free(trains);
            free(held);
            return -1;
        }
        arena = ledger_of(&list, "activations");
        kernels = ledger_of(&list, "kernels");
        beside = ledger_sum(&list, LEDGER_DEVICE) - arena - kernels;
        sums->kernels = kernels > sums->kernels ? kernels : sums->kernels;
    }
    if (!o->threads && shares) {
        struct memory_options one = *o;

        one.threads = 1;
        if (add_engine(&list, p, held, trains, &one, coord, err) < 0) {
            free(trains);
            free(held);
            return -1;
        }
        arena = ledger_of(&list, "activations");
        beside = ledger_of(&list, "exchange") + ledger_of(&list, "expert_rows");
    }
    free(trains);
    free(held);
    if (!list.n) {
        offset = xcalloc((size_t)p->nvalues + 1, sizeof(*offset));
        rows_most(&p->rows, most);
        ok &= program_arena(p, most, offset, &arena);
        free(offset);
    }
    tally_add(&sum[MEMORY_WEIGHTS],
              weights + trained.weights * sizeof(float) + trained.copies);
    tally_add(&sum[MEMORY_COMM], trained.gathered * sizeof(float));
    tally_add(&sum[MEMORY_GRADIENTS], trained.gradients * sizeof(float));
    tally_add(&sum[MEMORY_GRADIENTS], levels * trained.sums * sizeof(float));
    tally_add(o->offload == OFFLOAD_OPTIMIZER ? host : &sum[MEMORY_OPTIMIZER],
              trained.slots * sizeof(float));
    tally_add(o->offload == OFFLOAD_OPTIMIZER && o->master ? host
                                                           : &sum[MEMORY_WORKING],
              trained.room * sizeof(float));
    if (o->offload == OFFLOAD_OPTIMIZER && !o->threads)
        tally_add(host, trained.local * sizeof(float));
    for (uint64_t i = 0; i < in_flight(o, coord[MESH_PP]); i++) {
        tally_add(&sum[MEMORY_ACTIVATIONS], arena);
        tally_add(&sum[MEMORY_WORKING], beside);
    }
    tally_add(&sum[MEMORY_WORKING],
              sizeof(float) *
                  lossroom_numbers(p, o->loss, tokens, texts, sp, coord[MESH_SP],
                                   (tokens + (uint64_t)sp - 1) / (uint64_t)sp));
    sums->over |= !ok;
    return 0;
}

int reversed_rank(struct rank_memory *out, struct reversed_programs *known,
                  const struct model *m, const enum dtype *stored,
                  const struct memory_options *o, const int coord[MESH_NAXES],
                  struct err *err)
{
    struct memory_options staged = *o;
    struct sums sums = { 0 };
    int at[MESH_NAXES];

    memcpy(at, coord, sizeof(at));
    if (o->nstages > o->mesh.size[MESH_PP]) {
        staged.mesh.nranks = o->mesh.nranks / o->mesh.size[MESH_PP] * o->nstages;
        staged.mesh.size[MESH_PP] = o->nstages;
        staged.mesh.stages = NULL;
    }
    for (int s = 0; s < staged.mesh.size[MESH_PP]; s++) {
        at[MESH_PP] = s;
        if ((o->nstages ? o->rank_of[s] : s) == coord[MESH_PP] &&
            add_stage(&sums, known, m, stored, &staged, at, err) < 0)
            return -1;
    }
    tally_add(&sums.of[MEMORY_WORKING], sums.kernels);
    tally_add(&sums.of[MEMORY_RUNTIME], o->runtime);
    *out = (struct rank_memory){ .moment = MOMENT_BACKWARD, .host = sums.host.v };
    sums.over |= sums.host.over;
    for (int c = 0; c < MEMORY_CATEGORIES; c++) {
        out->peak[c] = out->bytes[c] = sums.of[c].v;
        out->total += sums.of[c].v;
        sums.over |= sums.of[c].over;
    }
    memcpy(out->coord, coord, sizeof(out->coord));
    return sums.over ? err_set(err, ERR_USAGE, "the bytes of this layout overflow") : 0;
}

int reversed_largest(struct reversed_programs *known, const struct model *m,
                     const struct memory_options *o, int coord[MESH_NAXES],
                     struct err *err)
{
    const int dp = o->mesh.size[MESH_DP], sp = o->mesh.size[MESH_SP];
    const int size = sharing_of(o) / (o->zero ? sp : 1);
    uint64_t most = 0;
    int largest = dp - 1; /* no range of ZeRO is longer, but whole weights are dealt */
    const struct program *p;
    bool *trains;

    coord[MESH_DP] = largest;
    if (size == 1 || optimizer_table[o->optimizer].matrices == MATRICES_NONE)
        return 0;
    p = program_at(known, m, o, coord, err);
    if (!p)
        return -1;
    trains = xcalloc((size_t)p->nweights + 1, sizeof(*trains));
    for (int i = 0; i < p->nweights; i++)
        trains[i] = trains_weight(known, p, i);
    for (coord[MESH_DP] = 0; coord[MESH_DP] < size; coord[MESH_DP]++) {
        const struct reversed_trained t = reversed_trained(p, trains, o, coord);
        const uint64_t here = t.weights + t.gradients +
                              (o->offload == OFFLOAD_OPTIMIZER ? 0 : t.slots + t.room);

        if (here > most) {
            most = here;
            largest = coord[MESH_DP];
        }
    }
    free(trains);
    coord[MESH_DP] = largest;
    return 0;
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

/* Adds the ranks of dp and sp with the other coordinates of AT. */
static int add_replicas(struct memory_estimate *made, struct reversed_programs *known,
                        const struct model *m, const enum dtype *stored,
                        const struct memory_options *o, const int at[MESH_NAXES],
                        struct err *err)
{
    const int dp = o->mesh.size[MESH_DP], sp = o->mesh.size[MESH_SP];
    int coord[MESH_NAXES];

    memcpy(coord, at, sizeof(coord));
    for (int i = 0; i < (o->zero ? dp : 1) * sp; i++) {
        struct rank_memory one;
        const uint64_t count = o->zero ? 1 : (uint64_t)dp;

        coord[MESH_DP] = i / sp;
        coord[MESH_SP] = i % sp;
        if (reversed_rank(&one, known, m, stored, o, coord, err) < 0)
            return -1;
        add_kind(made, &one, count);
    }
    return 0;
}

int reversed_estimate(struct memory_estimate *e, const struct model *m,
                      const enum dtype *stored, const struct memory_options *o,
                      struct err *err)
{
    struct memory_estimate made = { 0 };
    struct reversed_programs known = { 0 };
    const int *size = o->mesh.size;
    int ret = 0;

    if (model_check_mesh(m, &o->mesh, err) < 0)
        return -1;
    for (int tp = 0; tp < size[MESH_TP] && ret == 0; tp++)
        for (int pp = 0; pp < size[MESH_PP] && ret == 0; pp++)
            for (int ep = 0; ep < size[MESH_EP] && ret == 0; ep++) {
                const int coord[MESH_NAXES] = {
                    [MESH_TP] = tp, [MESH_PP] = pp, [MESH_EP] = ep
                };

                ret = add_replicas(&made, &known, m, stored, o, coord, err);
            }
    if (ret < 0)
        goto out;
    made.peak = made.kind;
    for (size_t i = 1; i < made.nkinds; i++)
        if (made.kind[i].total > made.peak->total)
            made.peak = &made.kind[i];
    *e = made;
out:
    reversed_clear(&known);
    if (ret < 0)
        memory_estimate_clear(&made);
    return ret;
}
