/* served - the memory of tp-run generate, from the engines that it opens */
#include "lib/estimate/served.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/cpu/room.h"
#include "lib/gpu/room.h"
#include "lib/program/program.h"
#include "lib/run/engine.h"
#include "lib/run/held.h"
#include "lib/run/serving.h"

bool served_applies(const struct memory_options *o)
{
    return !o->train && o->framework == FRAMEWORK_TP_RUN && (o->threads || o->cuda);
}

/* Backends as far as they are planned for: no kernels. */
static void room_on_cpu(const struct device *d, const struct program *program,
                        const struct room_limits *limits, struct ledger *list)
{
    (void)d;
    ledger_add(list, "kernels", LEDGER_DEVICE, cpu_room(program, limits));
}

static void room_on_gpu(const struct gpu_facts *gpu, const struct program *program,
                        const struct room_limits *limits, struct ledger *list)
{
    const struct gpu_room need = gpu_room_of(gpu, program, limits);

    gpu_room_add(list, &need);
}

static void room_on_new_gpu(const struct device *d, const struct program *program,
                            const struct room_limits *limits, struct ledger *list)
{
    (void)d;
    room_on_gpu(&(struct gpu_facts){ .bf16 = true, .blas = true }, program, limits,
                list);
}

/* One whose tensor cores, if it has any, multiply f16 alone. */
static void room_on_old_gpu(const struct device *d, const struct program *program,
                            const struct room_limits *limits, struct ledger *list)
{
    (void)d;
    room_on_gpu(&(struct gpu_facts){ .blas = true }, program, limits, list);
}

const struct backend served_cpu = { .name = "cpu",
                                    .host_memory = true,
                                    .room = room_on_cpu };
static const struct backend on_new_gpu = { .name = "cuda", .room = room_on_new_gpu };
static const struct backend on_old_gpu = { .name = "cuda", .room = room_on_old_gpu };

static const struct backend *planned(const struct memory_options *o)
{
    return !o->cuda ? &served_cpu : o->no_bf16 ? &on_old_gpu : &on_new_gpu;
}

/* The limits of 'tp-run generate' for as many texts as the estimate has sequences. */
static struct engine_limits limits_of(const struct memory_options *o,
                                      const struct program *p)
{
    bool alone = o->mesh.size[MESH_SP] > 1;
    size_t texts = (size_t)(o->micro_batch * o->micro_batches), seq = (size_t)o->seq;
    size_t all = alone || texts == 1 ? seq : texts * seq;
    size_t prefill = o->prefill ? (size_t)o->prefill : all;
    struct engine_limits l = { .context = seq,
                               .cache = (size_t)o->cache_tokens,
                               .sequences = texts,
                               .segments = alone ? 1 : texts,
                               .kept = o->kv_format };

    l.tokens = prefill < all ? prefill : all;
    l.snapshots = texts == 1 || alone ? 0 : serving_snapshots(texts);
    l.running = !alone && texts > 1 ? texts : 0;
    l.wanted = l.segments;
    if (p->source) {
        l.source = seq;
        l.sources = seq > prefill ? seq : prefill;
        l.sources = l.sources < texts * seq ? l.sources : texts * seq;
    }
    return l;
}

/* The form of weights that tp-run takes; false: O has another type, which it lacks. */
static bool form_of(enum weights_form *form, const struct model *m,
                    const struct memory_options *o)
{
    int own = model_code_bits(m);
    const char *asked = o->weights ? o->weights->name : "";

    *form = o->codes   ? WEIGHTS_CODES
            : own == 4 ? WEIGHTS_INT4
            : own == 8 ? WEIGHTS_INT8
                       : WEIGHTS_STORED;
    if (o->codes && own)
        *form = own == 4 ? WEIGHTS_INT4 : WEIGHTS_INT8;
    if (!strcmp(asked, "int8"))
        *form = WEIGHTS_INT8;
    else if (!strcmp(asked, "int4"))
        *form = WEIGHTS_INT4;
    else
        return !o->weights;
    return true;
}

/* *HELD = how each weight of P is held, the caller's; NULL: that is not known.  *KNOWN:
 * it is what tp-run does with O, and not only near it. */
static int foretell(struct held **held, bool *known, const struct program *p,
                    const enum dtype *stored, const struct memory_options *o,
                    struct err *err)
{
    enum weights_form form = WEIGHTS_STORED;

    *held = NULL;
    *known = form_of(&form, p->model, o) && stored;
    return stored ? held_foretell(held, &(struct held_types){ .stored = stored }, p,
                                  *known ? form : WEIGHTS_STORED, NULL, err)
                  : 0;
}

/* The format of weight I, which HELD may know. */
static enum format format_in(const struct held *held, int i,
                             const struct memory_options *o)
{
    return held && !held[i].foreign     ? held[i].format
           : o->other->block_bytes == 2 ? FORMAT_BF16
                                        : FORMAT_F32;
}

/* *OF = the format of each weight of P, the caller's, and *BYTES those of the weights
 * that it reads, which may be fewer than the model has; 0: they are not known, and the
 * formats are OTHER's where they are not stored. */
static int weigh(enum format **of, uint64_t *bytes, const struct program *p,
                 const enum dtype *stored, const struct memory_options *o,
                 struct err *err)
{
    bool known, over = false;
    struct held *h;
    enum format *f;

    *bytes = 0;
    if (foretell(&h, &known, p, stored, o, err) < 0)
        return -1;
    f = xcalloc((size_t)p->nweights + 1, sizeof(*f));
    for (int i = 0; i < p->nweights; i++) {
        const struct weight *w = &p->weight[i];
        bool alone = h && (h[i].packed || h[i].coded);
        uint64_t n = 0;

        f[i] = format_in(h, i, o);
        if (!h || (!alone && w->slice > 1)) /* the first slice counts all */
            continue;
        over |= !held_bytes(&n, &h[i], w) ||
                (!alone && w->slice && !mem_mul(&n, n, w->experts)) ||
                !mem_add(bytes, *bytes, n);
    }
    if (!known || p->mesh.pad_vocab) /* a padded table has rows of zeros */
        *bytes = 0;
    free(h);
    *of = f;
    return over ? err_set(err, ERR_USAGE, "the bytes of this layout overflow") : 0;
}

/* Bytes of NAME that the device allocates. */
static uint64_t of_device(const struct ledger *list, const char *name)
{
    for (int i = 0; i < list->n; i++)
        if (list->part[i].where == LEDGER_DEVICE && !strcmp(list->part[i].name, name))
            return list->part[i].bytes;
    return 0;
}

/* What the program that is built asks about. */
struct asked {
    const struct memory_options *o;
    const enum dtype *stored;
    struct held *held; /* of its weights, found when it is first needed */
    bool looked;
};

/* Will tp-run fuse INST? */
static bool fuses(void *arg, const struct program *p, const struct inst *inst)
{
    const struct memory_options *o = ((const struct asked *)arg)->o;

    (void)p;
    return o->cuda ? gpu_fuses(inst->op, o->kv_format) : cpu_fuses[inst->op];
}

/* Will it hold these operands of INST in bf16?  As choice_takes asks. */
static bool takes(void *arg, const struct program *p, const struct inst *inst,
                  unsigned bf16)
{
    struct asked *a = arg;
    struct device_request r = { .program = p, .inst = inst, .bf16 = bf16 };
    const int w = inst->weight;
    bool known, can = true;
    struct err no = { 0 };
    int n;

    if (!a->looked && foretell(&a->held, &known, p, a->stored, a->o, &no) < 0)
        a->held = NULL;
    a->looked = true;
    n = w < 0 || !p->weight[w].experts ? 1 : (int)p->weight[w].experts;
    for (int i = 0; i < n && can; i++) {
        r.weight = w < 0 ? FORMAT_F32 : format_in(a->held, w + i, a->o);
        can = backend_takes_bf16(a->o->cuda ? gpu_bf16 : cpu_bf16, &r, &no) == 0;
    }
    return can;
}

int served_rank(struct rank_memory *out, const struct model *m,
                const enum dtype *stored, const struct memory_options *o,
                const int coord[MESH_NAXES], struct err *err)
{
    struct asked asked = { .o = o, .stored = stored };
    const struct program_options options = { .tail = TAIL_ARGMAX,
                                             .wanted = true,
                                             .rounded = o->compute_bytes == 2,
                                             .types = { takes, &asked },
                                             .fuse = { fuses, &asked } };
    struct comm group[MESH_NAXES];
    struct engine_groups groups = { .tensor = &group[MESH_TP],
                                    .sequence = &group[MESH_SP],
                                    .expert = &group[MESH_EP],
                                    .pipe = &group[MESH_PP],
                                    .across = o->mesh.size[MESH_SP] };
    struct engine_limits limits;
    struct ledger list = { 0 };
    struct engine *e = NULL;
    struct program *p;
    enum format *of = NULL;
    uint64_t weights = 0;
    int ret;

    for (int a = 0; a < MESH_NAXES; a++)
        group[a] = (struct comm){ .rank = coord[a], .size = o->mesh.size[a] };
    ret = program_build(&p, m, &o->mesh, coord, &options, err);
    free(asked.held);
    if (ret < 0)
        return -1;
    limits = limits_of(o, p);
    ret = weigh(&of, &weights, p, stored, o, err);
    if (ret == 0 && weights)
        out->bytes[MEMORY_WEIGHTS] = weights;
    if (ret == 0)
        ret = engine_plan(&e, p, planned(o), o->threads ? o->threads : 1, of, &groups,
                          &limits, err);
    free(of);
    if (ret == 0) {
        engine_memory(e, &list);
        engine_room(e, NULL, &list);
        out->bytes[MEMORY_KV_CACHE] =
            ledger_of(&list, "kv_cache") + ledger_of(&list, "states");
        out->bytes[MEMORY_ACTIVATIONS] = ledger_of(&list, "activations");
        out->bytes[MEMORY_LOGITS] = 0;
        out->bytes[MEMORY_WORKING] =
            of_device(&list, "kernels") + of_device(&list, "inputs") +
            of_device(&list, "cublaslt") + of_device(&list, "rows_bf16");
        out->bytes[MEMORY_COMM] =
            ledger_sum(&list, LEDGER_DEVICE) - out->bytes[MEMORY_KV_CACHE] -
            out->bytes[MEMORY_ACTIVATIONS] - out->bytes[MEMORY_WORKING];
        if (list.over)
            ret = err_set(err, ERR_USAGE, "the bytes of this layout overflow");
    }
    engine_free(e);
    program_free(p);
    return ret;
}
