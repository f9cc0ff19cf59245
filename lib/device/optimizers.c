/* optimizers - the table of optimizers: how gradients change weights */
#include "lib/device/optimizers.h"

#include <math.h>
#include <stdlib.h>

#include "lib/base/mem.h"

const char *const optimizer_names[OPTIMIZER_KINDS + 1] = {
    "adamw", "sgd", "momentum", "lion", "adam8bit", "adafactor", "muon", NULL
};
const char *const optimizer_masters[] = {
    [MASTER_F32] = "f32", [MASTER_NONE] = "none", NULL
};

const char *const muon_adjusts[MUON_ADJUSTS + 1] = { "original", "match-rms-adamw",
                                                     NULL };

/* PyTorch computes scalars in double and rounds them to f32 once. */
static void set_adamw(union update_numbers *by, const struct optimizer_options *o,
                      double rate, uint64_t t, double decay)
{
    struct adamw_numbers *a = &by->adamw;

    a->keep = (float)(1 - rate * decay);
    a->b2 = (float)o->beta2;
    a->one_b1 = (float)(1 - o->beta1);
    a->one_b2 = (float)(1 - o->beta2);
    a->root = (float)sqrt(1 - pow(o->beta2, (double)t));
    a->eps = (float)o->eps;
    a->by = (float)(-(rate / (1 - pow(o->beta1, (double)t))));
}

/* Of what Muon leaves to AdamW. */
static void set_muon(union update_numbers *by, const struct optimizer_options *o,
                     double rate, uint64_t t, double decay)
{
    set_adamw(by, o, rate * o->others, t, decay);
}

static void set_sgd(union update_numbers *by, const struct optimizer_options *o,
                    double rate, uint64_t t, double decay)
{
    (void)t;
    by->sgd.decay = (float)decay;
    by->sgd.momentum = (float)o->momentum;
    by->sgd.by = (float)-rate;
}

static void set_lion(union update_numbers *by, const struct optimizer_options *o,
                     double rate, uint64_t t, double decay)
{
    struct lion_numbers *a = &by->lion;

    (void)t;
    a->keep = (float)(1 - rate * decay);
    a->b1 = (float)o->beta1;
    a->one_b1 = (float)(1 - o->beta1);
    a->b2 = (float)o->beta2;
    a->one_b2 = (float)(1 - o->beta2);
    a->by = (float)-rate;
}

const struct optimizer_info optimizer_table[OPTIMIZER_KINDS] = {
    [OPTIMIZER_ADAMW] = { .slot = { { "exp_avg", SLOT_LIKE, SLOT_LIKE },
                                    { "exp_avg_sq", SLOT_LIKE, SLOT_LIKE } },
                          .update = ARRAY_ADAMW,
                          .uses = OPTIMIZER_USES_BETAS | OPTIMIZER_USES_EPS,
                          .set = set_adamw },
    [OPTIMIZER_SGD] = { .update = ARRAY_SGD, .set = set_sgd },
    [OPTIMIZER_MOMENTUM] = { .slot = { { "momentum_buffer", SLOT_LIKE, SLOT_LIKE } },
                             .update = ARRAY_MOMENTUM,
                             .uses = OPTIMIZER_USES_MOMENTUM,
                             .set = set_sgd },
    [OPTIMIZER_LION] = { .slot = { { "exp_avg", SLOT_LIKE, SLOT_LIKE } },
                         .update = ARRAY_LION,
                         .uses = OPTIMIZER_USES_BETAS,
                         .beta2 = 0.99,
                         .set = set_lion },
    [OPTIMIZER_ADAM8BIT] = { .slot = { { "exp_avg", SLOT_CODES, SLOT_LIKE },
                                       { "exp_avg_sq", SLOT_SQUARES, SLOT_LIKE } },
                             .update = ARRAY_ADAMW,
                             .matrices = MATRICES_LARGE,
                             .uses = OPTIMIZER_USES_BETAS | OPTIMIZER_USES_EPS,
                             .set = set_adamw },
    [OPTIMIZER_ADAFACTOR] = { .slot = { { "exp_avg_sq_row", SLOT_ROWS, SLOT_NONE },
                                        { "exp_avg_sq_col", SLOT_COLUMNS, SLOT_NONE },
                                        { "exp_avg_sq", SLOT_NONE, SLOT_LIKE } },
                              .update = ARRAY_ADAMW,
                              .matrices = MATRICES_ALL,
                              .uses = OPTIMIZER_USES_FACTORS,
                              .set = set_adamw },
    [OPTIMIZER_MUON] = { .slot = { { "momentum_buffer", SLOT_LIKE, SLOT_NONE },
                                   { "exp_avg", SLOT_NONE, SLOT_LIKE },
                                   { "exp_avg_sq", SLOT_NONE, SLOT_LIKE } },
                         .update = ARRAY_ADAMW,
                         .matrices = MATRICES_HIDDEN,
                         .uses = OPTIMIZER_USES_BETAS | OPTIMIZER_USES_EPS |
                                 OPTIMIZER_USES_MOMENTUM | OPTIMIZER_USES_SHAPES,
                         .momentum = 0.95,
                         .set = set_muon },
};

int optimizer_slots(enum optimizer_kind kind)
{
    int n = 0;

    while (optimizer_table[kind].slot[n].role)
        n++;
    return n;
}

/* ---- matrices ---- */

static uint64_t whole_size(const struct program *p, int i)
{
    const struct axis *axis[MODEL_MAX_DIMS];
    int ndim = program_weight_axes(p, i, axis);
    uint64_t n = 1;

    for (int k = p->weight[i].slice ? 1 : 0; k < ndim; k++)
        n *= axis[k]->size;
    return n;
}

static bool is_product(enum op op)
{
    return op == OP_LINEAR || op == OP_MATMUL || op == OP_HEAD_LINEAR ||
           op == OP_HEAD_MATMUL;
}

/* Leaves in IS the weights that only products of layers read. */
static void keep_hidden(bool *is, const struct program *p)
{
    for (int k = 0; k < p->nforward; k++) {
        const struct inst *inst = &p->inst[k];
        const int reads[] = { inst->weight, inst->weight2 };

        for (int r = 0; r < 2; r++) {
            const int i = reads[r];
            const int end = i < 0                  ? i
                            : p->weight[i].experts ? i + (int)p->weight[i].experts
                                                   : i + 1;

            for (int w = i; w < end; w++)
                if (!p->weight[w].adapter)
                    is[w] &= is_product(inst->op) && p->value[inst->dst].layer >= 0;
        }
    }
}

bool *optimizer_matrices_new(enum optimizer_kind kind, const struct program *p)
{
    const enum optimizer_matrices which = optimizer_table[kind].matrices;
    bool *is = xcalloc((size_t)p->nweights + 1, sizeof(*is));

    for (int i = 0; i < p->nweights && which != MATRICES_NONE; i++) {
        const struct axis *axis[MODEL_MAX_DIMS];

        is[i] = program_weight_axes(p, i, axis) == (p->weight[i].slice ? 3 : 2) &&
                (which != MATRICES_LARGE || whole_size(p, i) >= OPTIMIZER_LARGE);
    }
    if (which == MATRICES_HIDDEN)
        keep_hidden(is, p);
    return is;
}

uint64_t optimizer_blocks(const struct program *p, int i, uint64_t **ends)
{
    struct share *share = model_shares(p->model, &p->mesh, p->coord);
    const struct axis *axis[MODEL_MAX_DIMS];
    const int ndim = program_weight_axes(p, i, axis);
    uint64_t n = 0, here = 0, next = 0;
    struct runs runs;
    size_t cap = 0;

    axis_runs(&runs, axis[ndim - 1], &p->model->scope, share);
    free(share);
    *ends = NULL;
    for (size_t k = 0; k < runs.n; k++) {
        uint64_t at = runs.v[k].start, end = at + runs.v[k].count;

        while (at < end) {
            uint64_t left = OPTIMIZER_CODES - at % OPTIMIZER_CODES;
            const bool goes_on = n && at == next && at % OPTIMIZER_CODES;

            left = left < end - at ? left : end - at;
            at += left;
            here += left;
            next = at;
            *ends = xgrow(*ends, &cap, (size_t)n + 1, sizeof(**ends));
            n += !goes_on;
            (*ends)[n - 1] = here;
        }
    }
    runs_clear(&runs);
    return n;
}

bool optimizer_divides(const struct program *p, int i)
{
    struct share *share = model_shares(p->model, &p->mesh, p->coord);
    const struct axis *axis[MODEL_MAX_DIMS];
    const int ndim = program_weight_axes(p, i, axis);
    const uint64_t size = axis[ndim - 1]->size;
    uint64_t next = 0;
    struct runs runs;
    bool divides = false;

    axis_runs(&runs, axis[ndim - 1], &p->model->scope, share);
    free(share);
    for (size_t k = 0; k < runs.n; k++) {
        const uint64_t start = runs.v[k].start;

        if (start != next) /* what is before this run, and what follows the last one */
            divides |= start % OPTIMIZER_CODES || next % OPTIMIZER_CODES;
        next = start + runs.v[k].count;
    }
    divides |= next != size && next % OPTIMIZER_CODES;
    runs_clear(&runs);
    return divides;
}

uint64_t optimizer_slot_stored(enum slot_form form, const struct program *p, int i)
{
    const struct weight *w = &p->weight[i];

    switch (form) {
    case SLOT_NONE:
        return 0;
    case SLOT_ROWS:
        return w->rows;
    case SLOT_COLUMNS:
        return w->cols;
    case SLOT_LIKE:
    case SLOT_CODES:
    case SLOT_SQUARES:
        break;
    }
    return w->rows * w->cols;
}

uint64_t optimizer_slot_size(enum slot_form form, const struct program *p, int i,
                             uint64_t count)
{
    uint64_t *ends, blocks;

    if (form == SLOT_LIKE)
        return count;
    if (!count)
        return 0;
    if (form != SLOT_CODES && form != SLOT_SQUARES)
        return optimizer_slot_stored(form, p, i);
    blocks = optimizer_blocks(p, i, &ends);
    free(ends);
    return (count + sizeof(float) - 1) / sizeof(float) + blocks * p->weight[i].rows;
}

/* Muon: the matrix, room of as much, and two square ones of its lesser side.
 * Adafactor: sums of all its rows and columns and two more in double, and a factor of
 * each row and column here. */
uint64_t optimizer_room(enum optimizer_kind kind, const struct program *p, int i)
{
    const struct axis *axis[MODEL_MAX_DIMS];
    const int ndim = program_weight_axes(p, i, axis);
    const uint64_t rows = axis[ndim - 2]->size, cols = axis[ndim - 1]->size;
    const uint64_t least = rows < cols ? rows : cols;

    if (kind == OPTIMIZER_MUON)
        return 2 * rows * cols + 2 * least * least;
    return kind == OPTIMIZER_ADAFACTOR
               ? 2 * (rows + cols + 2) + p->weight[i].rows + p->weight[i].cols
               : 0;
}

/* ---- ranges ---- */

/* Numbers of N before the range of rank RANK; without a product that overflows. */
static uint64_t before(uint64_t n, uint64_t rank, uint64_t size)
{
    uint64_t blocks = n / OPTIMIZER_BLOCK;

    if (rank == size)
        return n;
    return (blocks / size * rank + blocks % size * rank / size) * OPTIMIZER_BLOCK;
}

void optimizer_range(uint64_t n, int rank, int size, uint64_t *first, uint64_t *count)
{
    *first = before(n, (uint64_t)rank, (uint64_t)size);
    *count = before(n, (uint64_t)rank + 1, (uint64_t)size) - *first;
}

/* Whole weights: the borders nearest to equal shares, by the sizes of whole tensors,
 * which are the same on all ranks of a tensor group; a weight that is alone has the
 * rank of its tensor's index, so that all stages deal it alike. */
static void deal_weights(const struct program *p, const struct units *units, int u,
                         int size, size_t *share)
{
    const struct weight_unit *unit = &units->v[u];
    uint64_t all = 0, before = 0;
    int n = 0;

    for (int i = unit->first; i < unit->end; i++)
        if (units->of[i] == u) {
            all += whole_size(p, i);
            n++;
        }
    for (int i = unit->first; i < unit->end; i++) {
        const uint64_t whole = whole_size(p, i),
                       local = p->weight[i].rows * p->weight[i].cols;
        double middle;
        int r;

        if (units->of[i] != u)
            continue;
        middle = ((double)before + (double)whole / 2) / (double)all;
        r = n == 1 ? (int)(p->weight[i].tensor % (size_t)size)
                   : (int)(middle * (double)size);
        share[r < size ? r : size - 1] += (size_t)local;
        before += whole;
    }
}

void optimizer_deal(enum optimizer_kind kind, const struct program *p,
                    const struct units *units, int u, int size, size_t *share)
{
    for (int r = 0; r < size; r++) {
        uint64_t first, n;

        optimizer_range(units->v[u].n, r, size, &first, &n);
        share[r] = optimizer_table[kind].matrices == MATRICES_NONE ? (size_t)n : 0;
    }
    if (optimizer_table[kind].matrices != MATRICES_NONE)
        deal_weights(p, units, u, size, share);
}
