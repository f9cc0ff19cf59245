/* request - the model, layout, types and batch that an estimate is for */
#define _GNU_SOURCE
#include "cmd/mem-estimate/request.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/conversion.h"
#include "lib/base/mem.h"
#include "lib/estimate/foretold.h"
#include "lib/estimate/habits.h"
#include "lib/estimate/reversed.h"
#include "lib/estimate/served.h"
#include "lib/estimate/stagecut.h"
#include "lib/pipe/order.h"
#include "lib/pipe/simulate.h"

const char *const balance_names[] = { "layers", "memory", NULL };
enum { BACKEND_CPU, BACKEND_CUDA };
const char *const backend_names[] = { "cpu", "cuda", NULL };
const char *const flash_names[] = { "on", "off", "2", NULL };
const char *const lora_rank[] = { "16", NULL };
const char *const weight_words[] = { "bf16", "f16",  "f32",   "fp8",   "int8", "int4",
                                     "nf4",  "gptq", "awq",   "mxfp4", "q8_0", "q6_K",
                                     "q4_K", "q4_0", "codes", NULL };
const char *const float_words[] = { "bf16", "f16", "f32", "fp8", "int8", NULL };
const char *const cache_words[] = { "bf16", "f16", "f32", "fp8", "int8", "int4", NULL };

/* Prompt tokens of a step: vLLM's max_num_batched_tokens on large devices; tp-run's. */
enum { PREFILL = 8192, TP_RUN_PREFILL = 512 };

static const uint64_t GIB = UINT64_C(1) << 30;

void assumption_add(struct str *text, struct str *codes, const char *code,
                    const char *what)
{
    str_addf(text, "%s%s", text->len ? "; " : "", what);
    str_addf(codes, "%s{\"code\":\"%s\",\"text\":", codes->len ? "," : "", code);
    str_add_json(codes, what);
    str_addc(codes, '}');
}

__attribute__((format(printf, 3, 4))) static void
assume(struct request *r, const char *code, const char *fmt, ...)
{
    char text[160];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    assumption_add(&r->assumed, &r->codes, code, text);
}

/* ---- types ---- */

static int float_bytes(uint64_t *out, const char *option, const char *name,
                       struct err *err)
{
    enum dtype t;

    if (!dtype_parse(&t, name) && strcmp(name, "fp8") != 0)
        return err_set(err, ERR_USAGE, "%s: '%s' is no type", option, name);
    *out = strcmp(name, "fp8") ? (uint64_t)dtype_bits(t) / 8 : 1;
    if (!*out || *out > 4)
        return err_set(err, ERR_USAGE, "%s: '%s' is none of f32, bf16, f16, fp8, int8",
                       option, name);
    return 0;
}

/* The type of the config, or a default. */
static const struct weight_type *own_type(const struct request *r)
{
    const struct weight_type *own = weight_type_of(r->summary.dtype);

    if (!r->summary.dtype_known && !r->summary.checkpoint)
        return weight_type_find("bf16"); /* as models are kept and trained */
    return own && own->scope == SCOPE_ALL ? own : weight_type_find("bf16");
}

/* 1: bitsandbytes has R's matrices in blocks of 4 bits, 2: and their scales in 8; 0:
 * neither, or trained without ADAPTERS. */
static int in_nf4(const struct request *r, bool adapters)
{
    const struct checkpoint *c = r->summary.checkpoint;
    const char *method = model_quantized(r->summary.model);

    if (r->memory.train && !adapters)
        return 0;
    return c                                           ? c->source.fours
           : method && !strcmp(method, "bitsandbytes") ? model_in_nf4(r->summary.model)
                                                       : 0;
}

/* The type that a config alone gives matrices of layers, where it is not told by each
 * tensor (foretold.h): bitsandbytes' blocks of 4 bits, and tp-shard's codes. */
static const struct weight_type *config_type(const struct request *r, bool adapters)
{
    const struct model *m = r->summary.model;
    const char *method = model_quantized(m);
    int bits = method ? model_code_bits(m) : 0;

    if (r->memory.train && !adapters)
        method = NULL;
    if (in_nf4(r, adapters) && r->memory.framework != FRAMEWORK_TP_RUN)
        return weight_type_find(in_nf4(r, adapters) == 2 ? "nf4-dq" : "nf4");
    return !method || !bits ? own_type(r)
           : bits == 4      ? weight_type_find("int4")
                            : weight_type_find("int8");
}

/* The type of products for --compute NAME. */
static enum gpu_rate rate_named(const char *name)
{
    return !strcmp(name, "f32") || !strcmp(name, "fp32") || !strcmp(name, "F32")
               ? GPU_FP32
           : !strcmp(name, "tf32")                         ? GPU_TF32
           : !strcmp(name, "f16") || !strcmp(name, "fp16") ? GPU_FP16
           : !strcmp(name, "fp8") || !strcmp(name, "int8") ? GPU_FP8
           : !strcmp(name, "fp4")                          ? GPU_FP4
                                                           : GPU_BF16;
}

/* Evaluates --compute: the type of products and of activations.  Products in tf32 have
 * f32 activations; in fp4, and in training in fp8, bf16. */
static int set_compute(struct request *r, const char *name, struct err *err)
{
    r->rate_given = true;
    r->rate = rate_named(name);
    r->memory.half = r->rate == GPU_FP16;
    if (r->rate == GPU_TF32)
        name = "f32";
    else if (r->rate == GPU_FP4 || (r->rate == GPU_FP8 && r->memory.train))
        name = "bf16";
    return float_bytes(&r->given.compute_bytes, "--compute", name, err);
}

/* Evaluates --kv-dtype. */
static int set_cache(struct request *r, const char *name, struct err *err)
{
    bool tp_run = r->memory.framework == FRAMEWORK_TP_RUN;
    uint64_t bytes = 0;

    if (!strcmp(name, "int4") && !tp_run)
        return err_set(err, ERR_USAGE, "--kv-dtype int4: is of --framework=tp-run");
    if (strcmp(name, "int4") != 0 && float_bytes(&bytes, "--kv-dtype", name, err) < 0)
        return -1;
    r->given.kv_format = !bytes                  ? FORMAT_CACHE_INT4
                         : bytes == 4            ? FORMAT_F32
                         : bytes == 2            ? FORMAT_BF16
                         : !strcmp(name, "int8") ? FORMAT_CACHE_INT8
                                                 : FORMAT_CACHE_FP8;
    r->given.kv = true;
    return 0;
}

void request_set_weights(struct request *r, const struct weight_type *weights)
{
    struct memory_options *m = &r->memory;
    uint64_t own; /* bytes of what was not given */

    m->weights = weights;
    m->other = weights && weights->scope == SCOPE_ALL ? weights : own_type(r);
    own = m->framework == FRAMEWORK_TP_RUN ? sizeof(float) : m->other->block_bytes;
    m->compute_bytes = r->given.compute_bytes ? r->given.compute_bytes : own;
    m->kv_format = r->given.kv                         ? r->given.kv_format
                   : m->compute_bytes == sizeof(float) ? FORMAT_F32
                   : m->compute_bytes == 1             ? FORMAT_CACHE_FP8
                                                       : FORMAT_BF16;
    m->kv_scales = m->framework == FRAMEWORK_TP_RUN &&
                   format_table[m->kv_format].axis == FORMAT_CACHED;
    if (!r->rate_given)
        r->rate = m->compute_bytes == sizeof(float) ? GPU_FP32 : GPU_BF16;
    own = habits_of(m).grad_bytes;
    m->grad_bytes = r->given.grad_bytes ? r->given.grad_bytes
                    : own               ? own
                                        : m->other->block_bytes;
}

static int set_types(struct request *r, const struct request_options *o,
                     struct err *err)
{
    const struct weight_type *own = own_type(r), *weights = NULL;

    r->memory.codes = o->weights && !strcmp(o->weights, "codes");
    if (r->memory.codes &&
        (!r->stored || (!served_applies(&r->memory) &&
                        !(r->memory.train && r->memory.framework == FRAMEWORK_TP_RUN))))
        return err_set(err, ERR_USAGE,
                       "--weights codes: is of a checkpoint, --framework=tp-run and "
                       "--threads or --backend");
    if (r->memory.codes && r->memory.mesh.pad_vocab)
        return err_set(err, ERR_USAGE, "--weights codes: not with --pad-vocab");
    if (r->memory.codes)
        assume(r, "weights",
               "FP8 and MXFP4 kept as codes, other quantized weights unpacked");
    if (o->weights && !r->memory.codes && (!r->stored || r->summary.checkpoint)) {
        weights = weight_type_find(o->weights);
        if (!weights) {
            char *names = weight_type_names_dup();

            err_set(err, ERR_USAGE, "--weights: '%s' is none of %s", o->weights, names);
            free(names);
            return -1;
        }
    } else if (!r->stored || (!o->weights && in_nf4(r, o->lora) &&
                              r->memory.framework != FRAMEWORK_TP_RUN)) {
        weights = config_type(r, o->lora);
        if (r->summary.dtype_known)
            assume(r, "weights", "weights %s", own->name);
    }
    if ((o->compute && set_compute(r, o->compute, err) < 0) ||
        (o->kv_dtype && set_cache(r, o->kv_dtype, err) < 0) ||
        (o->grad_dtype &&
         float_bytes(&r->given.grad_bytes, "--grad-dtype", o->grad_dtype, err) < 0))
        return -1;
    request_set_weights(r, weights);
    if (in_nf4(r, o->lora) && r->memory.framework == FRAMEWORK_TP_RUN && !o->weights)
        assume(r, "weights", "quantized weights unpacked to %s", own->name);
    if (!r->summary.dtype_known && r->memory.other == own &&
        !(o->weights && weights && weights->scope == SCOPE_ALL))
        assume(r, "weights", "%sweights %s (the config names no type)",
               o->weights || r->stored ? "other " : "", own->name);
    return 0;
}

/* ---- batch ---- */

/* The global batch of a training by tp-run of which nothing is said; 0: another, or one
 * that its replicas cannot share. */
static uint64_t usual_global(const struct request *r, uint64_t replicas)
{
    const struct memory_options *m = &r->memory;

    return m->train && m->framework == FRAMEWORK_TP_RUN && !r->batch.size &&
                   !r->batch.number && TP_RUN_GLOBAL % replicas == 0
               ? TP_RUN_GLOBAL
               : 0;
}

/* Sets size and number of micro-batches.  Of size, number and global batch two
 * determine the third. */
static int derive_batch(struct request *r, struct err *err)
{
    struct memory_options *m = &r->memory;
    uint64_t replicas =
        (uint64_t)m->mesh.size[MESH_DP] * (uint64_t)m->mesh.size[MESH_EP];
    uint64_t size = r->batch.size, number = r->batch.number, global = r->batch.global;
    bool ours = m->train && m->framework == FRAMEWORK_TP_RUN;
    uint64_t each, known;

    global = global ? global : usual_global(r, replicas);
    each = global / replicas;
    if (!size && !(global && number))
        size = 1;
    if (!number && !global) /* tp-run: one, as of a device's batch size in Trainer */
        number = (ours || !m->train) && r->batch.size
                     ? 1 /* in inference, a batch is all requests */
                     : (uint64_t)m->mesh.size[MESH_PP];
    if (global % replicas)
        return err_set(err, ERR_USAGE,
                       "--global-batch %" PRIu64
                       " is no multiple of dp x ep = %" PRIu64,
                       global, replicas);
    known = (size ? size : 1) * (number ? number : 1);
    if (global && (each % known || (size && number && each != known)))
        return err_set(
            err, ERR_USAGE,
            "--global-batch %" PRIu64 " is not size x number x dp x ep = %" PRIu64 "%s",
            global, known * replicas, size && number ? "" : " times a whole number");
    m->micro_batch = size ? size : each / known;
    m->micro_batches = number ? number : each / known;
    return 0;
}

static int set_batch(struct request *r, const struct request_options *o,
                     struct err *err)
{
    struct memory_options *m = &r->memory;

    r->batch.size = (uint64_t)o->micro_batch;
    r->batch.number = (uint64_t)o->micro_batches;
    r->batch.global = (uint64_t)o->global_batch;
    if (derive_batch(r, err) < 0)
        return -1;
    if (!r->batch.size && !(r->batch.global && r->batch.number))
        assume(r, "micro_batch", "micro-batch 1");
    if (!r->batch.number && !r->batch.global && m->micro_batches > 1)
        assume(r, "micro_batches", "%" PRIu64 " micro-batches", m->micro_batches);
    m->seq = o->seq;
    if (!m->seq && o->seq_given)
        return err_set(err, ERR_USAGE, "--seq 0: no tokens");
    if (!m->seq) {
        m->seq = model_context(r->summary.model);
        if (m->train && m->framework == FRAMEWORK_TP_RUN &&
            (!m->seq || m->seq > TP_RUN_SEQ))
            m->seq = TP_RUN_SEQ;
        if (!m->seq)
            m->seq = 2048;
        assume(r, "seq", "seq %" PRIu64 "%s", m->seq,
               m->seq == model_context(r->summary.model) ? " (the model's maximum)"
                                                         : "");
    }
    m->prefill = o->prefill ? (uint64_t)o->prefill
                 : m->framework == FRAMEWORK_TP_RUN
                     ? (uint64_t)TP_RUN_PREFILL *
                           (uint64_t)(m->threads || m->cuda ? m->mesh.size[MESH_SP] : 1)
                     : PREFILL;
    if (!m->train && !o->prefill && m->micro_batch * m->seq > m->prefill)
        assume(r, "prefill_tokens", "%" PRIu64 " tokens of prompts at once",
               m->prefill);
    if (m->seq > UINT32_MAX)
        return err_set(err, ERR_USAGE, "--seq %" PRIu64 ": more than %u", m->seq,
                       UINT32_MAX);
    return 0;
}

/* ---- training ---- */

static int set_lora(struct request *r, const struct request_options *o, struct err *err)
{
    const char *colon = strchr(o->lora, ':');
    char *rank =
        colon ? xstrndup(o->lora, (size_t)(colon - o->lora)) : xstrdup(o->lora);
    bool ok = str_u64(rank, &r->memory.lora_rank) && r->memory.lora_rank > 0 &&
              r->memory.lora_rank < 1 << 20 && !(colon && !colon[1]);

    free(rank);
    if (!ok)
        return err_set(err, ERR_USAGE, "--lora: '%s' is not RANK[:NAMES]", o->lora);
    if (colon) {
        r->lora_targets = xstrdup(colon + 1);
        r->memory.lora_targets = r->lora_targets;
    }
    return 0;
}

/* A number of layers is what tp-run counts: its programs are added up. */
static int set_recompute(struct memory_options *m, const struct request_options *o,
                         struct err *err)
{
    struct recompute_plan plan = { 0 };

    if (o->recompute && recompute_parse(&plan, o->recompute, err) < 0)
        return -1;
    if (plan.layers && m->framework != FRAMEWORK_TP_RUN)
        return err_set(err, ERR_USAGE,
                       "--recompute %s: a number of layers is estimated with "
                       "--framework tp-run alone",
                       o->recompute);
    m->recompute = plan.kind;
    m->recompute_layers = plan.layers;
    return 0;
}

/* The loss of tp-run train, by default that of the model's head. */
static int set_loss(struct request *r, const struct request_options *o, struct err *err)
{
    enum { CHOICES = 4 };
    const enum loss_kind kind =
        o->loss ? (enum loss_kind)(o->loss - 1) : losses_usual(r->summary.model);
    struct memory_options *m = &r->memory;

    if (o->choices && kind != LOSS_CHOICE)
        return err_set(err, ERR_USAGE, "--choices %d: are of --loss choice",
                       o->choices);
    if (m->framework != FRAMEWORK_TP_RUN || !m->train)
        return 0;
    m->logits = loss_table[kind].rows;
    m->loss = losses_room(kind);
    m->documents = (uint64_t)loss_table[kind].documents;
    if (kind == LOSS_CHOICE) {
        m->documents = o->choices ? (uint64_t)o->choices : CHOICES;
        if (!o->choices)
            assume(r, "choices", "%d choices of a text", CHOICES);
    }
    return 0;
}

static int set_training(struct request *r, const struct request_options *o,
                        struct err *err)
{
    struct memory_options *m = &r->memory;

    m->optimizer = (enum optimizer_kind)o->optimizer;
    m->master = o->master == MASTER_F32;
    m->zero = o->zero;
    m->hsdp = o->hsdp;
    offload_set(m, o->offload);
    m->flash = o->flash != 1;
    m->fused_loss = o->fused_loss;
    m->dropout = o->dropout;
    m->deterministic = o->deterministic;
    m->eager = o->eager;
    m->sequence_parallel = o->sequence_parallel || o->etp ||
                           (m->framework == FRAMEWORK_TORCHTITAN && m->train);
    m->etp = o->etp;
    m->freeze = o->freeze;
    m->only = o->only;
    m->lora_saved = o->saved;
    m->dora = o->dora;
    if ((o->saved || o->dora) && !o->lora)
        return err_set(err, ERR_USAGE, "--%s: give --lora as well",
                       o->saved ? "modules-to-save" : "dora");
    if (o->deterministic && m->framework != FRAMEWORK_TP_RUN)
        return err_set(err, ERR_USAGE, "--deterministic: is of --framework=tp-run");
    if (o->dora && m->framework != FRAMEWORK_TP_RUN)
        return err_set(err, ERR_USAGE,
                       "--dora: is estimated with --framework tp-run alone");
    if (o->freeze && o->only)
        return err_set(err, ERR_USAGE,
                       "--freeze and --train-only: one of them says what is trained");
    if (o->lora && (o->freeze || o->only) && m->framework == FRAMEWORK_TP_RUN)
        return err_set(err, ERR_USAGE,
                       "--%s: an adapter alone is trained, and all else is frozen",
                       o->freeze ? "freeze" : "train-only");
    if (set_recompute(m, o, err) < 0 || set_loss(r, o, err) < 0)
        return -1;
    if (m->zero > 3)
        return err_set(err, ERR_USAGE, "--zero %d: no stage above 3", m->zero);
    if (!m->train)
        return 0;
    if (o->optimizer == OPTIMIZER_ADAMW)
        assume(r, "optimizer", "optimizer adamw");
    if (m->master && m->other->block_bytes < 4)
        assume(r, "master", "master weights f32");
    if (!m->eager)
        assume(r, "fused", "fused operations");
    if (m->framework == FRAMEWORK_TORCHTITAN && m->mesh.size[MESH_TP] > 1)
        assume(r, "sequence_parallel",
               "values that are whole over tp sharded by tokens");
    return o->lora ? set_lora(r, o, err) : 0;
}

/* ---- devices ---- */

/* What nvidia-smi reports of the first device. */
static int find_here(char name[128], uint64_t *memory, struct err *err)
{
    FILE *fp = popen("nvidia-smi --query-gpu=name,memory.total --format=csv,noheader,"
                     "nounits 2>/dev/null",
                     "r");
    char line[256] = "", *comma;
    unsigned long long mib;
    bool ok = fp && fgets(line, sizeof(line), fp);

    if (fp)
        pclose(fp);
    comma = strrchr(line, ',');
    if (!ok || !comma || sscanf(comma + 1, "%llu", &mib) != 1)
        return err_set(err, ERR_SYSTEM, "--gpu here: nvidia-smi finds no device");
    *comma = '\0';
    snprintf(name, 128, "%.127s", line);
    *memory = (uint64_t)mib << 20;
    return 0;
}

uint64_t default_runtime(int ranks)
{
    return GIB * 3 / 4 + (ranks > 1 ? GIB : 0);
}

const char *request_gpu_name(const char *text, int *n)
{
    size_t digits = text ? strspn(text, "0123456789") : 0;
    char *number = digits ? xstrndup(text, digits) : NULL;
    bool found = digits && (text[digits] == 'x' || text[digits] == 'X') &&
                 text[digits + 1] && str_int(number, n) && *n > 0;

    free(number);
    if (!found)
        *n = 0;
    return found ? text + digits + 1 : text;
}

/* Of N devices with similar names the only one that is no PCIe card. */
static const struct gpu *only_module(const struct gpu *const *match, size_t n)
{
    const struct gpu *found = NULL;

    for (size_t i = 0; i < n; i++) {
        if (strstr(match[i]->product, "PCIe") || strstr(match[i]->product, "NVL"))
            continue;
        if (found)
            return NULL;
        found = match[i];
    }
    return found;
}

/* Finds the device called NAME, or the only one whose name contains it, PCIe cards
 * aside. */
static int find_device(struct request *r, const char *name, struct err *err)
{
    const struct gpu **match = xcalloc(gpu_count, sizeof(*match)), **out = &r->gpu;
    size_t n = gpu_matches(match, name);
    struct str names = { 0 };
    int ret = 0;

    *out = gpu_find(name);
    if (!*out && n == 1) {
        *out = match[0];
    } else if (!*out && n && only_module(match, n)) {
        *out = only_module(match, n);
        for (size_t i = 0; i < n; i++)
            if (match[i] != *out)
                str_addf(&names, "%s%s", names.len ? ", " : "", match[i]->name);
        assume(r, "gpu_form", "%s, the SXM form, not %s", (*out)->name,
               str_text(&names));
    } else if (!*out && n) {
        for (size_t i = 0; i < n; i++)
            str_addf(&names, "%s%s", i ? ", " : "", match[i]->name);
        ret =
            err_set(err, ERR_USAGE, "--gpu: '%s' is any of %s", name, str_text(&names));
    } else if (!*out) {
        ret = err_set(err, ERR_USAGE, "--gpu: '%s' is not known; nearest is '%s'", name,
                      gpu_nearest(name));
    }
    str_clear(&names);
    free(match);
    return ret;
}

/* Refuses BYTES below 1 MiB for OPTION.  A small number probably lacks its unit. */
static int check_size(const char *option, uint64_t bytes, struct err *err)
{
    if (bytes >= 1 << 20)
        return 0;
    if (bytes < 1024)
        return err_set(err, ERR_USAGE,
                       "%s: %" PRIu64 " bytes are less than 1 MiB: write %" PRIu64
                       "GiB (or MiB, GB, MB) if that is meant",
                       option, bytes, bytes);
    return err_set(err, ERR_USAGE,
                   "%s: %" PRIu64 " bytes are less than 1 MiB: is the unit right?",
                   option, bytes);
}

static int set_device(struct request *r, const struct request_options *o,
                      struct err *err)
{
    char name[128];

    if (o->memory_given && check_size("--gpu-mem", o->gpu_memory, err) < 0)
        return -1;
    if (o->runtime && check_size("--runtime", o->runtime, err) < 0)
        return -1;
    if (o->gpu && !strcmp(o->gpu, "here")) {
        if (find_here(name, &r->gpu_memory, err) < 0)
            return -1;
        r->gpu = gpu_find(name);
    } else if (o->gpu) {
        if (find_device(r, o->gpu, err) < 0)
            return -1;
    }
    if (o->gpu_file) {
        if (o->gpu)
            return err_set(err, ERR_USAGE, "--gpu and --gpu-file: one of them");
        r->measured = xcalloc(1, sizeof(*r->measured));
        if (measured_read(r->measured, o->gpu_file, err) < 0)
            return -1;
        r->gpu_memory = r->measured->memory;
    }
    if (r->gpu)
        r->gpu_memory = gpu_memory(r->gpu);
    if (o->gpu_memory)
        r->gpu_memory = o->gpu_memory;
    if (o->fragmentation < 0 || o->fragmentation > 100)
        return err_set(err, ERR_USAGE, "--fragmentation %g: not from 0 to 100",
                       o->fragmentation);
    r->memory.fragmentation = o->fragmentation / 100;
    if (!o->fragmentation_given && o->framework && habits_of(&r->memory).reserved > 0)
        r->memory.fragmentation = habits_of(&r->memory).reserved;
    if (!(o->margin >= 0 && o->margin < 100))
        return err_set(err, ERR_USAGE, "--margin %g: not from 0 to below 100",
                       o->margin);
    r->margin = o->margin / 100;
    r->memory.runtime = o->runtime;
    if (!o->runtime_given) {
        r->runtime_follows = true;
        r->memory.runtime = default_runtime(r->memory.mesh.nranks);
        assume(r, "runtime", "runtime %s",
               r->memory.mesh.nranks > 1 ? "1.75 GiB a rank" : "0.75 GiB");
    }
    return 0;
}

/* ---- micro-batches in flight ---- */

/* Sets the layers of each stage if they are not split evenly. */
static int cut_stages(struct request *r, struct err *err)
{
    const int origin[MESH_NAXES] = { 0 };
    const struct costmodel *a;
    struct costmodels all = { 0 };
    int pp = r->memory.mesh.size[MESH_PP], ret = -1;

    if (pp == 1 || (!r->stages_given && !r->by_memory))
        return 0;
    if (r->chunks > 1)
        return err_set(err, ERR_USAGE,
                       "--stages and --balance: of stages with one chunk of layers");
    r->stages = xrealloc(r->stages, sizeof(*r->stages) * (size_t)pp);
    r->memory.mesh.stages = NULL;
    if (r->stages_given) {
        ret = stagecut_parse(r->stages, pp, model_layers(r->summary.model),
                             r->stages_given, err);
    } else {
        a = costmodels_at(&all, r->summary.model, r->stored, &r->memory, origin, err);
        ret = a ? stagecut_memory(r->stages, a, &r->memory, err) : -1;
        costmodels_clear(&all);
    }
    if (ret == 0)
        r->memory.mesh.stages = r->stages;
    return ret;
}

/* The stages of each rank of tp-run, and what is in flight on them under T. */
static void find_flights(struct request *r, const struct action_table *t)
{
    const size_t bytes = sizeof(int) * (size_t)t->stages;
    struct memory_options *m = &r->memory;

    m->nstages = 0;
    if (!m->train || m->framework != FRAMEWORK_TP_RUN || t->chains > 1)
        return;
    r->rank_of = xrealloc(r->rank_of, bytes);
    r->flights = xrealloc(r->flights, bytes);
    for (int s = 0; s < t->stages; s++) {
        r->rank_of[s] = t->rank_of[s];
        r->flights[s] = action_in_flight(&t->row[t->rank_of[s]], s);
    }
    m->rank_of = r->rank_of;
    m->flights = r->flights;
    m->nstages = t->stages;
}

int request_settle(struct request *r, struct err *err)
{
    int pp = r->memory.mesh.size[MESH_PP];
    double *one = xmalloc(sizeof(*one) * (size_t)pp);
    struct pipe_times times = { .forward = one, .input = one, .weight = one };
    struct action_table t;
    struct pipe_result result;
    int ret = -1;

    for (int s = 0; s < pp; s++)
        one[s] = 1;
    if (derive_batch(r, err) < 0 ||
        mesh_parse_sp_mode(&r->memory.across, r->sp_mode, r->memory.mesh.size[MESH_SP],
                           err) < 0)
        goto out;
    if (r->runtime_follows)
        r->memory.runtime = default_runtime(r->memory.mesh.nranks);
    if (r->memory.micro_batches > INT32_MAX) {
        err_set(err, ERR_USAGE, "--micro-batches: too many");
        goto out;
    }
    if (order_make(&t, (enum order)r->schedule, pp, (int)r->memory.micro_batches,
                   r->chunks, err) < 0)
        goto out;
    r->memory.fold = memory_fold((enum order)r->schedule);
    r->memory.chunks = r->chunks;
    r->memory.split = order_splits((enum order)r->schedule);
    find_flights(r, &t);
    ret = pipe_simulate(&result, &t, &times, err);
    if (ret == 0) {
        r->inflight = xrealloc(r->inflight, sizeof(*r->inflight) * (size_t)pp);
        for (int s = 0; s < pp; s++)
            r->inflight[s] =
                ((uint64_t)result.peak[s] * 1000 + (uint64_t)r->chunks - 1) /
                (uint64_t)r->chunks;
        r->memory.inflight = r->inflight;
        pipe_result_clear(&result);
        ret = cut_stages(r, err);
    }
    action_table_clear(&t);
out:
    free(one);
    return ret;
}

/* ---- opening ---- */

/* An option in O that only the other mode has, or NULL. */
static const char *foreign_option(const struct request_options *o, bool train)
{
    const struct {
        bool given;
        const char *name;
    } of_training[] = {
        { o->optimizer, "optimizer" },
        { o->master, "master" },
        { o->grad_dtype, "grad-dtype" },
        { o->zero, "zero" },
        { o->hsdp, "hsdp" },
        { o->offload, "offload" },
        { o->recompute, "recompute" },
        { o->flash, "flash" },
        { o->fused_loss, "fused-loss" },
        { o->eager, "eager" },
        { o->dropout, "dropout" },
        { o->deterministic, "deterministic" },
        { o->sequence_parallel, "sequence-parallel" },
        { o->sp_mode, "sp-mode" },
        { o->loss, "loss" },
        { o->choices, "choices" },
        { o->etp > 0, "etp" },
        { o->lora, "lora" },
        { o->freeze, "freeze" },
        { o->only, "train-only" },
        { o->saved, "modules-to-save" },
        { o->dora, "dora" },
    };

    if (train)
        return o->kv_dtype       ? "kv-dtype"
               : o->kv_block     ? "kv-block"
               : o->prefill      ? "prefill-tokens"
               : o->cache_tokens ? "cache-tokens"
                                 : NULL;
    for (size_t i = 0; i < sizeof(of_training) / sizeof(*of_training); i++)
        if (of_training[i].given)
            return of_training[i].name;
    return NULL;
}

/* True if O has an option, beside model, mesh and output, on which bytes depend. */
static bool is_detailed(const struct request_options *o)
{
    bool types = o->weights || o->compute || o->kv_dtype || o->grad_dtype;
    bool batch = o->micro_batch || o->micro_batches || o->global_batch || o->seq_given;
    bool states = o->optimizer || o->master || o->zero || o->hsdp || o->offload ||
                  o->lora || o->freeze || o->only;
    bool values = o->recompute || o->flash || o->fused_loss || o->dropout || o->eager ||
                  o->sequence_parallel || o->prefill || o->kv_block ||
                  o->cache_tokens || o->threads || o->backend_given || o->sp_mode ||
                  o->loss || o->choices || o->deterministic;
    bool device = o->gpu || o->gpu_file || o->memory_given || o->runtime_given ||
                  o->fragmentation_given || o->framework || o->schedule != ORDER_1F1B ||
                  o->model_chunks;

    return types || batch || states || values || device;
}

/* Options of tp-run's engines alone. */
static int check_engine(const struct request_options *o, struct err *err)
{
    bool other = o->framework != FRAMEWORK_TP_RUN;

    if (o->threads && other)
        return err_set(err, ERR_USAGE, "--threads %d: are of --framework=tp-run",
                       o->threads);
    if (o->sp_mode && other)
        return err_set(err, ERR_USAGE, "--sp-mode %s: is of --framework=tp-run",
                       o->sp_mode);
    if (o->loss && other)
        return err_set(err, ERR_USAGE, "--loss %s: is of --framework=tp-run",
                       loss_choices[o->loss]);
    if (o->choices && other)
        return err_set(err, ERR_USAGE, "--choices %d: are of --framework=tp-run",
                       o->choices);
    if (o->backend_given && other)
        return err_set(err, ERR_USAGE, "--backend %s: is of --framework=tp-run",
                       backend_names[o->backend]);
    if (o->backend_given && o->backend == BACKEND_CPU && !o->threads)
        return err_set(err, ERR_USAGE, "--backend cpu: --threads is missing");
    return 0;
}

/* What of its device the memory depends on. */
static int set_backend(struct request *r, struct err *err)
{
    if (!r->memory.cuda || !r->gpu)
        return 0;
    if (!strncmp(r->gpu->product, "AMD", 3))
        return err_set(err, ERR_USAGE, "--backend cuda: --gpu %s is of AMD",
                       r->gpu->name);
    r->memory.no_bf16 = r->gpu->tflops[GPU_BF16] <= 0;
    return 0;
}

/* Notes an assumption if the config names a model without a head: families of decoders
 * have only language models. */
static void assume_head(struct request *r)
{
    static const char *const heads[] = { "LM", "LMHeadModel",
                                         "ForConditionalGeneration", "ForPreTraining" };
    const int origin[MESH_NAXES] = { 0 };
    const struct model *m = r->summary.model;
    const cJSON *all =
        cJSON_GetObjectItemCaseSensitive(model_config(m), "architectures");
    const cJSON *name = cJSON_GetArrayItem(all, 0);
    struct costmodel *a;
    struct mesh one;
    struct err none;

    if (!cJSON_IsString(name))
        return;
    for (size_t i = 0; i < sizeof(heads) / sizeof(*heads); i++)
        if (str_ends(name->valuestring, heads[i]))
            return;
    mesh_one(&one);
    if (costmodel_open(&a, m, &one, origin, NULL, NULL, &none) < 0)
        return;
    if (a->vocab)
        assume(r, "head", "the head of a language model, unlike %.80s",
               name->valuestring);
    costmodel_close(a);
}

/* Does NAME, of --weights, leave those of M as their config has them? */
static bool is_own(const struct model *m, const char *name)
{
    return !name || !strcmp(name, "codes") || str_ends(model_quantized(m), name);
}

/* Of a config alone: what it says of quantized weights, unless OTHER is asked for.  A
 * training has them if it does not train them. */
static int find_stated(struct request *r, const char *other, bool adapters,
                       struct err *err)
{
    const struct weight_type *own = own_type(r);
    struct model *m = r->summary.model;
    enum dtype plain = DTYPE_BF16;

    if (!model_quantized(m) || !is_own(m, other) || (r->memory.train && !adapters))
        return 0;
    dtype_parse(&plain, own->name);
    if (foretold_types(&r->stored, m, plain, err) < 0)
        return -1;
    if (r->stored)
        assume(r, "weights", "weights as %s has them, others %s", model_quantized(m),
               own->name);
    return 0;
}

/* Sets the types of the checkpoint's tensors, unless OTHER types are asked for. */
static int find_stored(struct request *r, const char *other, bool adapters,
                       struct err *err)
{
    const struct checkpoint *c = r->summary.checkpoint;
    const struct model *m = r->summary.model;
    struct model_packing p;

    if (!c && find_stated(r, other, adapters, err) < 0)
        return -1;
    if (c) {
        r->stored = xcalloc(c->ntensors + 1, sizeof(*r->stored));
        for (size_t i = 0; i < c->ntensors; i++)
            r->stored[i] = c->tensor[i].dtype;
    }
    for (size_t t = 0; t < m->ntensors && r->stored; t++) {
        long scales = model_packing(m, t, &p) ? p.part[PACKED_SCALES] : -1;

        if (scales < 0 || other || r->memory.framework != FRAMEWORK_TP_RUN)
            continue;
        assume(
            r, "weights", "quantized weights unpacked to %s",
            weight_type_of(model_unpacked(m, &p, r->stored[m->tensor[scales].source]))
                ->name);
        break;
    }
    return 0;
}

/* Sets OUT's ep to the ranks of an expert group that are not tensor ranks, of M's. */
static int fold_experts(struct mesh_options *out, const struct mesh_options *m, int etp,
                        const struct model *model, struct err *err)
{
    int size[MESH_NAXES] = { 0 }, tp, ep;
    struct mesh folded;

    *out = *m;
    if (!etp)
        return 0;
    if (m->spec && mesh_parse(size, m->spec, err) < 0)
        return err_prefix(err, "--mesh");
    tp = m->tp ? m->tp : size[MESH_TP] ? size[MESH_TP] : 1;
    ep = m->ep ? m->ep : size[MESH_EP] ? size[MESH_EP] : 1;
    if (tp % etp || ep * etp % tp)
        return err_set(
            err, ERR_USAGE,
            "--etp %d: %d tensor ranks and %d of experts cannot be folded so", etp, tp,
            ep);
    memset(size, 0, sizeof(size));
    size[MESH_TP] = etp;
    size[MESH_EP] = ep;
    if (mesh_set(&folded, size, NULL, err) < 0 ||
        model_check_mesh(model, &folded, err) < 0)
        return -1;
    if (m->spec && !m->ep)
        return err_set(err, ERR_USAGE, "--etp %d: give --ep and --tp, not --mesh", etp);
    out->ep = ep * etp / tp;
    return 0;
}

/* Adds replicas up to GPUS ranks, if that is given. */
static int set_replicas(struct mesh *m, int gpus, struct err *err)
{
    uint64_t pad = m->pad_vocab;
    int size[MESH_NAXES];

    if (!gpus || m->nranks == gpus)
        return 0;
    if (gpus % m->nranks || m->size[MESH_DP] > 1)
        return err_set(err, ERR_USAGE, "--gpus %d: the layout has %d ranks%s", gpus,
                       m->nranks, m->size[MESH_DP] > 1 ? "" : " a replica");
    memcpy(size, m->size, sizeof(size));
    size[MESH_DP] = gpus / m->nranks;
    if (mesh_set(m, size, NULL, err) < 0)
        return -1;
    m->pad_vocab = pad;
    return 0;
}

int request_open(struct request *r, const struct cmd *cmd,
                 const struct request_options *o, bool train, const char *path,
                 struct err *err)
{
    const struct checkpoint_options options = {
        .family_file = o->family,
        .config = o->config,
        .family_path = family_path(cmd),
    };
    const char *foreign = foreign_option(o, train);
    const struct mesh *base = NULL;
    struct mesh_options mesh;
    uint64_t context;

    if (foreign)
        return err_set(err, ERR_USAGE, "--%s is an option of %s", foreign,
                       train ? "inference" : "training");
    if (train && o->framework == FRAMEWORK_VLLM)
        return err_set(err, ERR_USAGE, "--framework vllm: trains nothing");
    if (check_engine(o, err) < 0)
        return -1;
    *r = (struct request){ .path = path,
                           .family = o->family,
                           .config = o->config,
                           .layout = mesh_is_given(&o->mesh) || o->gpus };
    r->memory.train = train;
    r->memory.framework = (enum framework)o->framework;
    r->stages_given = o->stages;
    r->by_memory = o->balance == 1 && !o->stages;
    if (summary_open(&r->summary, path, &options, err) < 0)
        return -1;
    if (check_config(cmd, r->summary.model, KEYS_COSTS, err) < 0)
        goto fail;
    if (r->summary.checkpoint && r->summary.checkpoint->sharded) {
        base = &r->summary.checkpoint->mesh;
        r->layout |= base->nranks > 1;
    }
    r->detailed = r->layout || is_detailed(o);
    if (find_stored(r, o->weights, o->lora, err) < 0)
        goto fail;
    assume_head(r);
    context = model_context(r->summary.model);
    if (cmd && context && o->seq > context)
        cmd_warn(cmd, "--seq %" PRIu64 ": the model has %" PRIu64 " positions", o->seq,
                 context);
    r->memory.cache_tokens = (uint64_t)o->cache_tokens;
    r->memory.threads = o->threads;
    r->memory.cuda = o->backend == BACKEND_CUDA;
    r->memory.kv_block = o->kv_block ? (uint64_t)o->kv_block : 1;
    if (fold_experts(&mesh, &o->mesh, o->etp, r->summary.model, err) < 0 ||
        mesh_from_options(&r->memory.mesh, &mesh, base, err) < 0 ||
        set_replicas(&r->memory.mesh, o->gpus, err) < 0 || set_types(r, o, err) < 0 ||
        set_batch(r, o, err) < 0 || set_training(r, o, err) < 0 ||
        set_device(r, o, err) < 0 || set_backend(r, err) < 0)
        goto fail;
    r->sp_mode = o->sp_mode;
    r->schedule = o->schedule;
    r->chunks = o->model_chunks ? o->model_chunks
                : order_interleaves((enum order)o->schedule) &&
                        !(train && r->memory.framework == FRAMEWORK_TP_RUN)
                    ? 1
                    : order_chunks((enum order)o->schedule);
    if (request_settle(r, err) < 0)
        goto fail;
    return 0;
fail:
    request_close(r);
    return -1;
}

void request_close(struct request *r)
{
    summary_close(&r->summary);
    free(r->stored);
    free(r->inflight);
    free(r->rank_of);
    free(r->flights);
    free(r->stages);
    free(r->measured);
    free(r->lora_targets);
    str_clear(&r->assumed);
    str_clear(&r->codes);
}

int request_estimate(const struct request *r, struct memory_estimate *e,
                     struct err *err)
{
    return reversed_applies(&r->memory)
               ? reversed_estimate(e, r->summary.model, r->stored, &r->memory, err)
               : memory_estimate(e, r->summary.model, r->stored, &r->memory, err);
}

bool request_fits(const struct request *r, const struct memory_estimate *e)
{
    return !r->gpu_memory || e->peak->total <= r->gpu_memory;
}

bool request_is_encoder(const struct request *r)
{
    const int origin[MESH_NAXES] = { 0 };
    struct costmodel *a;
    struct mesh one;
    struct err err;
    bool encoder;

    mesh_one(&one);
    if (costmodel_open(&a, r->summary.model, &one, origin, NULL, NULL, &err) < 0)
        return false;
    encoder = !a->causal;
    costmodel_close(a);
    return encoder;
}

bool request_is_tight(const struct request *r, const struct memory_estimate *e)
{
    return r->gpu_memory && request_fits(r, e) &&
           (double)e->peak->total > (double)r->gpu_memory * (1 - r->margin);
}

/* Each chunk of a stage needs a layer. */
static void add_chunk_obstacle(struct str *out, const struct request *r)
{
    long long need = (long long)r->memory.mesh.size[MESH_PP] * r->chunks;

    if (need > model_layers(r->summary.model))
        str_addf(out, "--schedule %s: %d x %d chunks need as many layers, of %d\n",
                 order_names[r->schedule], r->memory.mesh.size[MESH_PP], r->chunks,
                 model_layers(r->summary.model));
}

/* --hsdp must divide the number of ranks that share the weights. */
static void add_group_obstacle(struct str *out, const struct memory_options *o)
{
    int n = o->mesh.size[MESH_DP] * o->mesh.size[MESH_EP] * o->mesh.size[MESH_SP];

    if (!o->zero)
        str_addf(out, "--hsdp %d: nothing is sharded without --zero\n", o->hsdp);
    if (n % o->hsdp)
        str_addf(out, "--hsdp %d: does not divide the %d ranks of dp x ep x sp\n",
                 o->hsdp, n);
}

char *request_obstacles_dup(const struct request *r)
{
    struct str out = { 0 };
    struct err e = { 0 };
    struct mesh one;
    bool offloads = r->memory.away || (r->memory.framework == FRAMEWORK_TP_RUN &&
                                       r->memory.offload == OFFLOAD_PARAMS);
    const char *lacks =
        r->memory.train && offloads ? framework_lacks(&r->memory, false) : NULL;

    for (int a = 0; a < MESH_NAXES; a++) {
        int size[MESH_NAXES] = { 0 };

        size[a] = r->memory.mesh.size[a];
        if (mesh_set(&one, size, NULL, &e) < 0 ||
            model_check_mesh(r->summary.model, &one, &e) < 0)
            str_addf(&out, "%s\n", e.text);
    }
    if (!out.len && model_check_mesh(r->summary.model, &r->memory.mesh, &e) < 0)
        str_addf(&out, "%s\n", e.text);
    if (r->memory.train && r->memory.offload == OFFLOAD_PARAMS && r->memory.zero < 3)
        str_addf(&out, "--offload params: needs --zero 3\n");
    if (r->memory.train && lacks)
        str_addf(&out, "--framework %s: %s\n", framework_names[r->memory.framework],
                 lacks);
    if (r->memory.train && r->memory.zero == 2 && r->memory.mesh.size[MESH_PP] > 1 &&
        r->memory.framework != FRAMEWORK_TP_RUN)
        str_addf(&out,
                 "--zero 2: gradients cannot stay sharded over the micro-batches of "
                 "a pipeline\n");
    if (habits_of(&r->memory).refuses && r->memory.zero >= 2 &&
        r->memory.mesh.size[MESH_PP] > 1)
        str_addf(&out, "--framework %s: its pipelines have no ZeRO-2 or 3\n",
                 framework_names[r->memory.framework]);
    if (r->chunks > 1 && r->memory.mesh.size[MESH_PP] > 1)
        add_chunk_obstacle(&out, r);
    if (r->memory.train && r->memory.hsdp)
        add_group_obstacle(&out, &r->memory);
    return out.s ? str_steal(&out) : xstrdup("");
}
