/* parameters - the weights of one rank, and what training keeps for them */
#include "lib/train/parameters.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/model/decay.h"
#include "lib/program/roundable.h"
#include "lib/run/weights.h"
#include "lib/train/codes8.h"

/* ---- operations ---- */

int parameters_run(struct parameters *p, enum array_op op, const struct array_call *c,
                   struct err *err)
{
    return p->ops->array[op](p->device, c, err);
}

int parameters_update(struct parameters *p, enum array_op op,
                      const struct array_call *c, struct err *err)
{
    return p->offload ? offload_run(p->offload, op, c, false, err)
                      : parameters_run(p, op, c, err);
}

int parameters_zero(struct parameters *p, void *y, uint64_t n, struct err *err)
{
    const struct array_call c = { .n = n, .y = y };

    return parameters_run(p, ARRAY_ZERO, &c, err);
}

int parameters_add(struct parameters *p, float *y, const float *x, const float *z,
                   uint64_t n, struct err *err)
{
    const struct array_call c = { .n = n, .y = y, .x = x, .z = z };

    return parameters_run(p, ARRAY_SUM, &c, err);
}

/* ---- what decays ---- */

static void find_matrices(struct parameters *p)
{
    bool *is = optimizer_matrices_new(p->optimizer, p->program);

    for (int i = 0; i < p->program->nweights; i++)
        p->row[i].matrix = is[i];
    free(is);
}

void parameters_find_decay(struct parameters *p, enum decay_kind kind)
{
    const struct program *program = p->program;
    bool *decays = decay_new(program->model, kind);

    for (int i = 0; i < program->nweights; i++)
        p->row[i].decays =
            program->weight[i].adapter || decays[program->weight[i].tensor];
    free(decays);
}

/* Weights whose gradient counts rows (OP_ROUTER_LOAD). */
static void find_loads(struct parameters *p)
{
    const struct program *program = p->program;

    for (int i = program->nforward; i < program->ninsts; i++) {
        const struct inst *inst = &program->inst[i];

        if (inst->op != OP_ROUTER_LOAD)
            continue;
        p->row[inst->weight].load = program->value[inst->src[0]].cols;
        p->row[inst->weight].loads = p->row[inst->weight].n;
    }
}

/* ---- memory ---- */

bool parameters_gathers(const struct parameters *p)
{
    return p->owner.size > 1 && p->owner.stage == 3;
}

bool parameters_sums_late(const struct parameters *p)
{
    return p->owner.size > 1 && p->owner.stage >= 2;
}

bool parameters_sums_own(const struct parameters *p)
{
    return p->owner.size > 1 && (p->owner.stage >= 2 || p->owner.tree);
}

uint64_t parameters_before(const struct parameters *p, int u)
{
    const size_t *share = p->share + (size_t)u * (size_t)p->owner.size;
    uint64_t first = 0;

    for (int r = 0; r < p->owner.rank; r++)
        first += share[r];
    return first;
}

/* The unit that has element AT of the trained ones. */
static int unit_at(const struct parameters *p, uint64_t at)
{
    int low = 0, high = p->units.n - 1;

    while (low < high) {
        int middle = (low + high + 1) / 2;

        if (p->units.v[middle].at <= at)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

void parameters_own(const struct parameters *p, uint64_t at, uint64_t n,
                    uint64_t *first, uint64_t *count)
{
    int u = unit_at(p, at);
    uint64_t begin = p->units.v[u].at + parameters_before(p, u);
    uint64_t end = begin + p->place[u + 1] - p->place[u];

    begin = begin > at ? begin : at;
    end = end < at + n ? end : at + n;
    *first = begin < end ? begin - at : 0;
    *count = begin < end ? end - begin : 0;
}

uint64_t parameters_place(const struct parameters *p, uint64_t at)
{
    int u = unit_at(p, at);

    return p->place[u] + at - p->units.v[u].at - parameters_before(p, u);
}

int parameters_owner_of(const struct parameters *p, uint64_t at, uint64_t *left)
{
    int u = unit_at(p, at), r = 0;
    const size_t *share = p->share + (size_t)u * (size_t)p->owner.size;
    uint64_t end = p->units.v[u].at + share[0];

    while (end <= at)
        end += share[++r];
    *left = end - at;
    return r;
}

/* Does weight I stay as it is held for answers?  Vectors do not: kernels of the reverse
 * read them as f32. */
static bool is_held(const struct parameters *p, int i)
{
    return !p->drawn && !program_trains(p->program, i) &&
           p->program->weight[i].rows > 1;
}

/* Bytes of unit U, as it is gathered, before its element AT. */
static uint64_t bytes_before(const struct parameters *p, int u, uint64_t at)
{
    const struct weight_unit *unit = &p->units.v[u];
    uint64_t first = 0;

    for (int i = unit->first; i < unit->end; i++) {
        const uint64_t n = p->program->weight[i].rows * p->program->weight[i].cols;

        if (p->units.of[i] != u)
            continue;
        if (at < first + n)
            return p->image.at[i] +
                   (at - first) *
                       (p->image.narrow[i] ? sizeof(uint16_t) : sizeof(float));
        first += n;
    }
    return p->image.bytes[u];
}

/* How units lie where they are gathered, or kept without masters. */
static void plan_images(struct parameters *p)
{
    const size_t size = (size_t)p->owner.size;

    unit_images_find(&p->image, &p->units, p->program, p->owner.gathers != FORMAT_F32);
    if (parameters_gathers(p))
        units_reads(&p->reads, &p->units, p->program, &p->image);
    p->share_bytes = xcalloc((size_t)p->units.n * size + 1, sizeof(*p->share_bytes));
    for (int u = 0; u < p->units.n; u++) {
        uint64_t at = 0;

        for (size_t k = (size_t)u * size; k < ((size_t)u + 1) * size; k++) {
            p->share_bytes[k] =
                (size_t)(bytes_before(p, u, at + p->share[k]) - bytes_before(p, u, at));
            at += p->share[k];
        }
    }
}

/* Finds where the weights of each unit are kept.  A rank's part of one begins at an
 * address of four bytes, as the whole does, if it is in f32. */
static void place_units(struct parameters *p)
{
    p->unit_at = xcalloc((size_t)p->units.n + 2, sizeof(*p->unit_at));
    p->own_at = xcalloc((size_t)p->units.n + 2, sizeof(*p->own_at));
    for (int u = 0; u < p->units.n; u++) {
        const uint64_t first = parameters_before(p, u);
        const uint64_t end = first + p->place[u + 1] - p->place[u];
        uint64_t from = first * sizeof(float), to = end * sizeof(float), at;

        p->unit_at[u + 1] =
            p->unit_at[u] +
            (p->no_master ? p->image.bytes[u] : p->units.v[u].n * sizeof(float));
        if (p->no_master) {
            from = bytes_before(p, u, first);
            to = bytes_before(p, u, end);
        }
        p->own_at[u] = p->own_at[u] + from % sizeof(float);
        at = p->own_at[u] + to - from;
        p->own_at[u + 1] = (at + sizeof(float) - 1) / sizeof(float) * sizeof(float);
    }
}

/* Deals each unit to the ranks that share it. */
static void deal(struct parameters *p)
{
    const size_t size = (size_t)p->owner.size;
    bool *trains = xcalloc((size_t)p->program->nweights + 1, sizeof(*trains));

    for (int i = 0; i < p->program->nweights; i++)
        trains[i] = program_trains(p->program, i);
    units_find(&p->units, p->program, trains);
    p->share = xcalloc((size_t)p->units.n * size + 1, sizeof(*p->share));
    p->place = xcalloc((size_t)p->units.n + 2, sizeof(*p->place));
    for (int u = 0; u < p->units.n; u++) {
        optimizer_deal(p->optimizer, p->program, &p->units, u, p->owner.size,
                       p->share + (size_t)u * size);
        p->place[u + 1] =
            p->place[u] + p->share[(size_t)u * size + (size_t)p->owner.rank];
    }
    p->owned = p->place[p->units.n];
    if (p->owner.no_master) {
        p->no_master = roundable_new(p->program);
        for (int i = 0; i < p->program->nweights; i++)
            p->no_master[i] &= trains[i];
    }
    free(trains);
    if (parameters_gathers(p) || p->no_master)
        plan_images(p);
    place_units(p);
}

static void find_sizes(struct parameters *p)
{
    uint64_t at = 0;

    deal(p);
    for (int i = 0; i < p->program->nweights; i++) {
        const struct weight *w = &p->program->weight[i];
        struct parameter *row = &p->row[i];

        row->n = w->rows * w->cols;
        row->trained = program_trains(p->program, i);
        p->n += is_held(p, i) ? 0 : row->n;
        if (!row->trained)
            continue;
        row->at = at;
        parameters_own(p, at, row->n, &row->first, &row->count);
        at += row->n;
    }
    p->trained = at;
}

/* ---- slots ---- */

enum slot_form parameters_form(const struct parameters *p, int i, int k)
{
    return p->row[i].matrix ? p->form[k].matrix : p->form[k].other;
}

void parameters_kept(const struct parameters *p, int i, int k, uint64_t *first,
                     uint64_t *count)
{
    const struct parameter *row = &p->row[i];
    const enum slot_form form = parameters_form(p, i, k);

    *first = form == SLOT_LIKE ? row->first : 0;
    *count = !row->count         ? 0
             : form == SLOT_LIKE ? row->count
                                 : optimizer_slot_stored(form, p->program, i);
}

static bool has_codes(enum slot_form form)
{
    return form == SLOT_CODES || form == SLOT_SQUARES;
}

int parameters_take_slot(const struct parameters *p, float *to, int i, int k,
                         uint64_t at, uint64_t n, struct err *err)
{
    const enum slot_form form = parameters_form(p, i, k);
    const float *from = p->row[i].slot[k];

    if (has_codes(form)) {
        codes8_read(from, p->program, i, form, at, to, n);
        return 0;
    }
    from += form == SLOT_LIKE ? at - p->row[i].first : at;
    if (!p->offload)
        return p->ops->copy_out(p->device, to, from, (size_t)n * sizeof(*to), err);
    memcpy(to, from, (size_t)n * sizeof(*to));
    return 0;
}

int parameters_put_slot(struct parameters *p, int i, int k, const float *from,
                        uint64_t at, uint64_t n, struct err *err)
{
    const enum slot_form form = parameters_form(p, i, k);
    float *to = p->row[i].slot[k];

    if (has_codes(form)) {
        codes8_write(to, p->program, i, form, from);
        return 0;
    }
    to += form == SLOT_LIKE ? at - p->row[i].first : at;
    if (!p->offload)
        return p->ops->copy_in(p->device, to, from, (size_t)n * sizeof(*from), err);
    memcpy(to, from, (size_t)n * sizeof(*from));
    return 0;
}

enum { SOME = 1 << 11 }; /* numbers that are in both types at a time */

/* The address of element AT of weight I, of SIZE bytes an element. */
static char *address_of(const struct parameters *p, int i, uint64_t at, size_t *size)
{
    const struct parameter *row = &p->row[i];
    const bool part = row->trained && parameters_gathers(p),
               narrow = parameters_lacks_master(p, i);
    char *from = narrow ? (char *)(part ? row->own_bf16 : row->bf16)
                        : (char *)(part ? row->own : row->weight);

    *size = narrow ? sizeof(uint16_t) : sizeof(float);
    return from + (at - (part ? row->first : 0)) * *size;
}

int parameters_take(const struct parameters *p, float *to, int i, uint64_t at,
                    uint64_t n, struct err *err)
{
    size_t size;
    const char *from = address_of(p, i, at, &size);
    uint16_t some[SOME];

    if (size == sizeof(float))
        return p->ops->copy_out(p->device, to, from, (size_t)n * size, err);
    for (uint64_t k = 0, left; k < n; k += left) {
        left = n - k < SOME ? n - k : SOME;
        if (p->ops->copy_out(p->device, some, from + k * size, (size_t)left * size,
                             err) < 0)
            return -1;
        dtype_to_f32(DTYPE_BF16, some, to + k, (size_t)left);
    }
    return 0;
}

int parameters_put(struct parameters *p, int i, const float *from, uint64_t at,
                   uint64_t n, struct err *err)
{
    size_t size;
    char *to = address_of(p, i, at, &size);
    uint16_t some[SOME];

    if (size == sizeof(float))
        return p->ops->copy_in(p->device, to, from, (size_t)n * size, err);
    for (uint64_t k = 0, left; k < n; k += left) {
        left = n - k < SOME ? n - k : SOME;
        for (uint64_t j = 0; j < left; j++)
            some[j] = dtype_f32_to_bf16(from[k + j]);
        if (p->ops->copy_in(p->device, to + k * size, some, (size_t)left * size, err) <
            0)
            return -1;
    }
    return 0;
}

/* Sizes of slot K. */
static void measure_slot(struct parameters *p, int k)
{
    const int n = p->program->nweights;

    p->stored[k] = xcalloc((size_t)n + 2, sizeof(*p->stored[k]));
    p->size[k] = 0;
    for (int i = 0; i < n; i++) {
        const struct parameter *row = &p->row[i];
        const enum slot_form form = parameters_form(p, i, k);

        p->stored[k][i + 1] = p->stored[k][i];
        if (!row->trained)
            continue;
        p->stored[k][i + 1] += optimizer_slot_stored(form, p->program, i);
        p->size[k] += optimizer_slot_size(form, p->program, i, row->count);
    }
}

/* Points the rows at their parts of slot K. */
static void aim_slot(struct parameters *p, int k)
{
    float *at = p->slot[k];

    for (int i = 0; i < p->program->nweights; i++) {
        struct parameter *row = &p->row[i];
        uint64_t n = optimizer_slot_size(parameters_form(p, i, k), p->program, i,
                                         row->trained ? row->count : 0);

        row->slot[k] = n ? at : NULL;
        at += n;
    }
}

/* Allocates N floats, which are 0; of none *OUT stays NULL. */
static int floats_make(struct parameters *p, float **out, uint64_t n, const char *what,
                       struct err *err)
{
    if (!n)
        return 0;
    *out = p->ops->alloc(p->device, n * sizeof(float), what, err);
    return *out ? parameters_zero(p, *out, n, err) : -1;
}

static int slot_make(struct parameters *p, int k, struct err *err)
{
    measure_slot(p, k);
    if (!p->offload || !p->size[k]) {
        if (floats_make(p, &p->slot[k], p->size[k], "the optimizer", err) < 0)
            return -1;
    } else {
        p->slot[k] = offload_slot_new(p->size[k], err);
        if (!p->slot[k])
            return -1;
    }
    aim_slot(p, k);
    return 0;
}

bool parameters_lacks_master(const struct parameters *p, int i)
{
    return p->no_master && p->no_master[i];
}

/* Where the numbers of weight I begin: all, or NULL, and those that this rank updates.
 */
static void *find_weight(const struct parameters *p, int i, void **own)
{
    const struct parameter *row = &p->row[i];
    const int u = p->units.of[i];
    const uint64_t before = parameters_before(p, u), in = row->at - p->units.v[u].at;
    const size_t unit =
        parameters_lacks_master(p, i) ? sizeof(uint16_t) : sizeof(float);
    const uint64_t first = p->no_master ? p->image.at[i] : in * sizeof(float);
    const uint64_t from =
        p->no_master ? bytes_before(p, u, before) : before * sizeof(float);
    const uint64_t mine = first + row->first * unit;
    char *all = (char *)p->weight + p->unit_at[u] + first;

    if (parameters_gathers(p)) {
        *own = row->count ? (char *)p->own + p->own_at[u] + mine - from : NULL;
        return NULL;
    }
    *own = row->count ? all + row->first * unit : NULL;
    return all;
}

/* Points trained weight I at its numbers. */
static void aim(struct parameters *p, int i)
{
    struct parameter *row = &p->row[i];
    void *own, *all = find_weight(p, i, &own);

    if (parameters_lacks_master(p, i)) {
        row->bf16 = all;
        row->own_bf16 = own;
    } else {
        row->weight = all;
        row->own = own;
    }
    if (!parameters_sums_late(p))
        row->gradient = p->gradient + row->at;
    if (!row->count)
        return;
    row->sum = p->sum ? p->sum + parameters_place(p, row->at + row->first)
                      : row->gradient + row->first;
}

/* Numbers that an update has in f32 at a time, of weights without masters. */
static uint64_t most_without(const struct parameters *p)
{
    uint64_t most = 0;

    for (int i = 0; i < p->program->nweights; i++)
        if (parameters_lacks_master(p, i) && p->row[i].count > most)
            most = p->row[i].count;
    return most < PARAMETERS_ROOM ? most : PARAMETERS_ROOM;
}

/* How the engine reads weight I, which is not held as for answers. */
static struct matrix matrix_of(const struct parameters *p, int i)
{
    const struct parameter *row = &p->row[i];
    const bool gathers = row->trained && parameters_gathers(p);
    struct matrix m = { .format = FORMAT_F32,
                        .data = row->weight,
                        .rows = p->program->weight[i].rows,
                        .cols = p->program->weight[i].cols };

    if (gathers && p->image.narrow[i])
        m.format = p->owner.gathers;
    if (parameters_lacks_master(p, i)) {
        m.format = FORMAT_BF16;
        m.data = row->bf16;
    }
    return m;
}

/* Allocates the arrays and points the rows at them. */
static int make_arrays(struct parameters *p, struct err *err)
{
    const bool gathers = parameters_gathers(p);
    uint64_t n = gathers ? 0 : p->unit_at[p->units.n] / sizeof(float);

    p->weight_floats = n + p->n - p->trained;
    p->own_floats = gathers ? p->own_at[p->units.n] / sizeof(float) : 0;
    p->nroom = most_without(p);
    if (floats_make(p, &p->weight, p->weight_floats, "the weights", err) < 0 ||
        floats_make(p, &p->own, p->own_floats, "the weights", err) < 0 ||
        floats_make(p, &p->room, p->nroom, "an update", err) < 0 ||
        floats_make(p, &p->gathered, p->reads.room, "gathered weights", err) < 0 ||
        floats_make(p, &p->gradient, parameters_sums_late(p) ? 0 : p->trained,
                    "the gradients", err) < 0 ||
        floats_make(p, &p->sum, parameters_sums_own(p) ? p->owned : 0, "the gradients",
                    err) < 0)
        return -1;
    for (int k = 0; k < p->slots; k++)
        if (slot_make(p, k, err) < 0)
            return -1;
    for (int i = 0; i < p->program->nweights; i++) {
        struct parameter *row = &p->row[i];

        if (is_held(p, i))
            continue;
        if (row->trained) {
            aim(p, i);
        } else {
            row->weight = p->weight + n;
            n += row->n;
        }
        p->matrix[i] = matrix_of(p, i);
    }
    return 0;
}

void parameters_memory(const struct parameters *p, struct ledger *list)
{
    const uint64_t f = sizeof(float);
    uint64_t gradients = parameters_sums_late(p) ? 0 : p->trained, slots = 0;

    for (int k = 0; k < p->slots; k++)
        slots += p->size[k];
    gradients += parameters_sums_own(p) ? p->owned : 0;
    ledger_add(list, "weights", LEDGER_DEVICE, (p->weight_floats + p->own_floats) * f);
    if (p->held.n)
        weights_memory(&p->held, list);
    ledger_add(list, "gathered_weights", LEDGER_DEVICE, p->reads.room * f);
    ledger_add(list, "gradients", LEDGER_DEVICE, gradients * f);
    if (p->nroom)
        ledger_add(list, "optimizer_room", LEDGER_DEVICE, p->nroom * f);
    ledger_add(list, "optimizer", p->offload ? LEDGER_HOST : LEDGER_DEVICE, slots * f);
    if (p->offload)
        offload_memory(p->offload, list);
}

/* ---- opening ---- */

/* Casts what this rank keeps of weight I, which W has. */
static int take(struct parameters *p, struct weights *w, int i, struct err *err)
{
    const struct parameter *row = &p->row[i];
    const bool part = parameters_gathers(p) && row->trained;
    const struct matrix *m = &w->matrix[i];
    const uint64_t before = row->first * (uint64_t)format_bits(m->format) / 8;
    struct array_call cast = { .n = part ? row->count : row->n,
                               .y = part ? row->own : row->weight,
                               .x = (const char *)m->data + (part ? before : 0),
                               .y_format = FORMAT_F32,
                               .x_format = m->format };

    if (parameters_lacks_master(p, i)) {
        cast.y = part ? row->own_bf16 : row->bf16;
        cast.y_format = FORMAT_BF16;
    }
    return parameters_run(p, ARRAY_CAST, &cast, err);
}

static int load(struct parameters *p, struct checkpoint *c, enum weights_form form,
                struct comm *tensor, int threads, struct err *err)
{
    struct weights *w = &p->held;
    bool holds = false;
    int ret = 0;

    if (c->drawn)
        return 0;
    if (weights_open(w, c, p->program, p->ops, p->device, form, tensor, threads, err) <
        0) {
        *w = (struct weights){ 0 };
        return -1;
    }
    for (int i = 0; i < w->n && ret == 0; i++) {
        if (!is_held(p, i))
            ret = take(p, w, i, err);
        else
            p->matrix[i] = w->matrix[i];
        holds |= is_held(p, i);
    }
    if (ret == 0)
        ret = p->ops->wait(p->device, err);
    if (ret == 0)
        ret = weights_settle(w, err);
    for (int i = 0; i < w->n; i++)
        if (!is_held(p, i))
            weights_drop(w, p->program, i);
    if (!holds)
        weights_close(w);
    return ret;
}

/* Weights unpacked from a quantized form cannot be saved in that form. */
static int refuse_packed(const struct program *p, struct err *err)
{
    const char *method = model_quantized(p->model);
    struct model_packing packing;

    for (int i = 0; method && i < p->nweights; i++)
        if (program_trains(p, i) && !p->weight[i].adapter &&
            model_packing(p->model, p->weight[i].tensor, &packing))
            return err_set(err, ERR_NO,
                           "%s: weights quantized by %s (quantization_config) cannot "
                           "be trained; an adapter of them can (--lora)",
                           model_config_name(p->model), method);
    return 0;
}

static void list_states(struct parameters *p, enum optimizer_kind optimizer)
{
    for (int k = 0; k < optimizer_slots(optimizer); k++) {
        const struct optimizer_slot *slot = &optimizer_table[optimizer].slot[k];

        p->form[k] = *slot;
        p->state[k] =
            (struct manifest_state){ .role = slot->role,
                                     .kind = MANIFEST_SLOT,
                                     .form = slot->matrix == SLOT_ROWS ? MANIFEST_ROWS
                                             : slot->matrix == SLOT_COLUMNS
                                                 ? MANIFEST_COLUMNS
                                                 : MANIFEST_LIKE };
        p->slots = k + 1;
    }
}

int parameters_average(struct parameters *p, const struct parameter *row,
                       const float *x, uint64_t at, uint64_t n, double by,
                       struct err *err)
{
    const struct array_call c = { .n = n,
                                  .y = row->slot[p->average] + at,
                                  .x = x,
                                  .by.average = { .factor = 1, .by = (float)by } };

    return p->offload ? offload_run(p->offload, ARRAY_AVERAGE, &c, true, err)
                      : parameters_run(p, ARRAY_AVERAGE, &c, err);
}

int parameters_keep_average(struct parameters *p, struct err *err)
{
    const int k = p->slots;

    p->state[k] = (struct manifest_state){ "ema", MANIFEST_AVERAGE, MANIFEST_LIKE };
    p->form[k] = (struct optimizer_slot){ "ema", SLOT_LIKE, SLOT_LIKE };
    if (slot_make(p, k, err) < 0)
        return -1;
    p->average = k;
    p->slots++;
    return parameters_begin_average(p, err);
}

/* The same of a weight without a master. */
static int begin_piecewise(struct parameters *p, const struct parameter *row,
                           struct err *err)
{
    for (uint64_t at = 0, n; at < row->count; at += n) {
        struct array_call widen = { .y = p->room,
                                    .x = row->own_bf16 + at,
                                    .y_format = FORMAT_F32,
                                    .x_format = FORMAT_BF16 };

        n = row->count - at < p->nroom ? row->count - at : p->nroom;
        widen.n = n;
        if (parameters_run(p, ARRAY_CAST, &widen, err) < 0 ||
            parameters_average(p, row, p->room, at, n, 1, err) < 0)
            return -1;
    }
    return 0;
}

int parameters_begin_average(struct parameters *p, struct err *err)
{
    if (p->average < 0 || !p->owned)
        return 0;
    if (p->offload)
        memset(p->slot[p->average], 0, (size_t)p->owned * sizeof(float));
    else if (parameters_zero(p, p->slot[p->average], p->owned, err) < 0)
        return -1;
    for (int i = 0; i < p->program->nweights; i++) {
        const struct parameter *row = &p->row[i];

        if (parameters_lacks_master(p, i)
                ? begin_piecewise(p, row, err) < 0
                : row->count &&
                      parameters_average(p, row, row->own, 0, row->count, 1, err) < 0)
            return -1;
    }
    return 0;
}

int parameters_open(struct parameters *p, struct checkpoint *c,
                    const struct program *program, const struct backend *ops,
                    struct device *device, enum optimizer_kind optimizer,
                    struct parameters_owner owner, struct err *err)
{
    return parameters_open_as(p, c, program, ops, device, optimizer, owner,
                              WEIGHTS_STORED, NULL, 1, err);
}

int parameters_open_as(struct parameters *p, struct checkpoint *c,
                       const struct program *program, const struct backend *ops,
                       struct device *device, enum optimizer_kind optimizer,
                       struct parameters_owner owner, enum weights_form form,
                       struct comm *tensor, int threads, struct err *err)
{
    size_t n = (size_t)program->nweights;
    int coord[MESH_NAXES];

    *p = (struct parameters){
        .program = program,
        .ops = ops,
        .device = device,
        .owner = owner,
        .drawn = c->drawn,
        .average = -1,
        .optimizer = optimizer,
    };
    list_states(p, optimizer);
    if (refuse_packed(program, err) < 0)
        return -1;
    memcpy(coord, program->coord, sizeof(coord));
    coord[MESH_DP] = coord[MESH_SP] = 0; /* all replicas own what the first owns */
    p->row = xcalloc(n + 1, sizeof(*p->row));
    p->matrix = xcalloc(n + 1, sizeof(*p->matrix));
    p->tied = xcalloc(program->model->ntensors + program->model->nadapters + 1,
                      sizeof(*p->tied));
    find_sizes(p);
    find_matrices(p);
    parameters_find_decay(p, DECAY_USUAL);
    find_loads(p);
    if ((owner.offloads && offload_open(&p->offload, ops, device, threads, err) < 0) ||
        make_arrays(p, err) < 0 ||
        cutter_open(&p->cutter, c->model, &program->mesh, coord, err) < 0 ||
        load(p, c, form, tensor, threads, err) < 0) {
        parameters_close(p);
        return -1;
    }
    cutter_set_order(p->cutter, SLICE_BY_UNIT);
    return 0;
}

void parameters_close(struct parameters *p)
{
    if (p->cutter)
        cutter_free(p->cutter);
    if (p->device) {
        if (p->held.n)
            weights_close(&p->held);
        p->ops->release(p->device, p->weight);
        p->ops->release(p->device, p->gradient);
        p->ops->release(p->device, p->own);
        p->ops->release(p->device, p->sum);
        p->ops->release(p->device, p->gathered);
        p->ops->release(p->device, p->room);
        for (int k = 0; k < PARAMETER_SLOTS; k++)
            if (p->offload)
                free(p->slot[k]);
            else
                p->ops->release(p->device, p->slot[k]);
        offload_close(p->offload);
    }
    units_clear(&p->units);
    unit_stays_clear(&p->reads);
    unit_images_clear(&p->image);
    free(p->share_bytes);
    free(p->no_master);
    free(p->unit_at);
    free(p->own_at);
    free(p->share);
    free(p->place);
    for (int k = 0; k < PARAMETER_SLOTS; k++)
        free(p->stored[k]);
    free(p->matrix);
    free(p->row);
    free(p->tied);
    *p = (struct parameters){ 0 };
}

/* ---- positions of elements ---- */

enum tied parameters_tied(const struct parameters *p, int i)
{
    const struct weight *w = &p->program->weight[i];

    return p->tied[w->adapter ? p->program->model->ntensors + (size_t)w->adapter - 1
                              : w->tensor];
}

struct walk {
    const struct runs *const *runs; /* [ndim] */
    uint64_t size[MODEL_MAX_DIMS];  /* of the whole tensor */
    int ndim;
    void (*see)(void *arg, size_t here, size_t whole, size_t n, bool owned);
    void *arg;
    size_t here;
};

/* Visits the runs of axis K and the axes inside it; the global offset is WHOLE. */
static void walk_axis(struct walk *w, int k, size_t whole, bool owned)
{
    const struct runs *runs = w->runs[k];
    size_t inner = 1;

    for (int i = k + 1; i < w->ndim; i++)
        inner *= (size_t)w->size[i];
    for (size_t r = 0; r < runs->n; r++) {
        const struct run *run = &runs->v[r];
        size_t at = whole + (size_t)run->start * inner;

        if (k == w->ndim - 1) {
            w->see(w->arg, w->here, at, (size_t)run->count, owned && run->owned);
            w->here += (size_t)run->count;
            continue;
        }
        for (uint64_t i = 0; i < run->count; i++)
            walk_axis(w, k + 1, at + (size_t)i * inner, owned && run->owned);
    }
}

/* The same for index N of the first local axis. */
static void walk_slice(struct walk *w, uint64_t n, bool owned)
{
    const struct runs *runs = w->runs[0];
    size_t inner = 1, r = 0;

    for (int i = 1; i < w->ndim; i++)
        inner *= (size_t)w->size[i];
    for (; n >= runs->v[r].count; r++)
        n -= runs->v[r].count;
    walk_axis(w, 1, (size_t)(runs->v[r].start + n) * inner, owned && runs->v[r].owned);
}

/* A matrix of an adapter: the first rank of ep, unless it is of an expert, and of the
 * tensor group if it is not sharded, has the primary replica; with GROUP all of ep
 * have. OWNED: this stage has that, of several that have it. */
static void walk_adapter(struct walk *w, const struct program *p, int i, bool owned,
                         bool group)
{
    struct share *share = model_shares(p->model, &p->mesh, p->coord);
    const struct axis *axis[MODEL_MAX_DIMS];
    struct runs runs[2];
    bool cut = false;

    w->ndim = program_weight_axes(p, i, axis);
    w->runs = (const struct runs *const[]){ &runs[0], &runs[1] };
    for (int k = 0; k < w->ndim; k++) {
        axis_runs(&runs[k], axis[k], &p->model->scope, share);
        w->size[k] = axis[k]->size;
        cut |= runs[k].count != axis[k]->size;
    }
    walk_axis(w, 0, 0,
              owned && (cut || !p->coord[MESH_TP]) &&
                  (group || p->weight[i].experts || !p->coord[MESH_EP]));
    for (int k = 0; k < w->ndim; k++)
        runs_clear(&runs[k]);
    free(share);
}

static void walk_runs(struct parameters *p, int i, bool group,
                      void (*see)(void *arg, size_t here, size_t whole, size_t n,
                                  bool owned),
                      void *arg)
{
    const struct program *program = p->program;
    size_t tensor = program->weight[i].tensor;
    const struct axis *axis[MODEL_MAX_DIMS];
    struct walk w = { .see = see, .arg = arg };
    bool owned = group || parameters_tied(p, i) != TIED_LATER;
    struct slice slice;

    if (program->weight[i].adapter) {
        walk_adapter(&w, program, i, owned, group);
        return;
    }
    w.ndim = program_weight_axes(program, i, axis);
    for (int k = 0; k < w.ndim; k++)
        w.size[k] = axis[k]->size;
    cutter_slice(p->cutter, tensor, &slice);
    w.runs = slice.runs;
    owned &= group || slice.primary;
    if (program->weight[i].slice)
        walk_slice(&w, program->weight[i].slice - 1, owned);
    else
        walk_axis(&w, 0, 0, owned);
}

void parameters_runs(struct parameters *p, int i,
                     void (*see)(void *arg, size_t here, size_t whole, size_t n,
                                 bool owned),
                     void *arg)
{
    walk_runs(p, i, false, see, arg);
}

void parameters_group_runs(struct parameters *p, int i,
                           void (*see)(void *arg, size_t here, size_t whole, size_t n,
                                       bool owned),
                           void *arg)
{
    walk_runs(p, i, true, see, arg);
}

uint64_t parameters_whole(const struct parameters *p, int i)
{
    const struct axis *axis[MODEL_MAX_DIMS];
    int ndim = program_weight_axes(p->program, i, axis);
    uint64_t n = 1;

    for (int k = 0; k < ndim; k++)
        n *= axis[k]->size;
    return n;
}
