/* emitframework - a plan as the options of another framework
 *
 * Options of Megatron-LM core_v0.16 (megatron/training/arguments.py), DeepSpeed 0.19
 * (runtime/config.py and the sections that it reads), torchtitan 0.3
 * (config/configs.py) and vLLM 0.19 (engine/arg_utils.py);
 * tests/oracle/check-launch.py gives them to these frameworks' own parsers. */
#include "cmd/mem-estimate/emitframework.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/cmd.h"
#include "lib/base/mem.h"
#include "lib/estimate/habits.h"
#include "lib/sweep/format/words.h"

/* What all forms are made of. */
struct launch {
    const struct planned *p;
    const struct planner_options *o;
    const struct memory_options *m; /* of O */
    const struct request *r;
    const int *size;    /* of P's mesh */
    const char *type;   /* of the weights: "bf16" */
    bool experts, bare; /* a configuration alone */
    int layers, nodes, here;
    struct str *out;
    const char *comment;
};

struct refusal {
    bool asked;
    const char *why;
};

static int refuse(const struct launch *l, const struct refusal *list, size_t n,
                  struct err *err)
{
    for (size_t i = 0; i < n; i++)
        if (list[i].asked)
            return err_set(err, ERR_USAGE,
                           "--emit %s: it cannot be told the fastest layout: %s",
                           framework_names[l->m->framework], list[i].why);
    return 0;
}

/* True for types that every framework computes in. */
static bool is_plain(const char *type)
{
    return strcmp(type, "f32") == 0 || strcmp(type, "bf16") == 0 ||
           strcmp(type, "f16") == 0;
}

/* The beginning of a script, up to its command. */
static void add_head(const struct launch *l)
{
    str_addf(l->out, "#!/bin/sh\n%s", l->comment);
    if (l->nodes > 1)
        str_add(l->out, "# run it on every node, with NODE_RANK and MASTER_ADDR\n");
    str_add(l->out, "set -eu\nexec ");
}

/* Which of several nodes it runs on. */
static void add_node(const struct launch *l)
{
    str_addf(l->out,
             "--nnodes %d --node-rank \"${NODE_RANK:?}\" --master-addr "
             "\"${MASTER_ADDR:?}\"",
             l->nodes);
}

/* A script that starts PROGRAM on every device, up to its last options. */
static void add_torchrun(const struct launch *l, const char *program)
{
    add_head(l);
    str_addf(l->out, "torchrun --nproc-per-node %d", l->here);
    if (l->nodes > 1) {
        str_add(l->out, " \\\n    ");
        add_node(l);
    }
    str_addf(l->out, " \\\n    %s", program);
}

/* Starts a new line of options. */
static void add_line(const struct launch *l)
{
    str_add(l->out, " \\\n   ");
}

static void add_number(const struct launch *l, const char *option, uint64_t n)
{
    str_addf(l->out, " %s %" PRIu64, option, n);
}

/* Layers of the I'th of N stages: the first ones have one more if they do not divide.
 */
static int layers_of(const struct launch *l, int i, int n)
{
    return l->layers / n + (i < l->layers % n);
}

double launch_dropout(const struct request *r, bool attention)
{
    static const char *const names[] = { "drop_hidden", "drop_embedding", "drop_ffn",
                                         "drop_act", "drop" };
    double most = 0, x;

    if (attention)
        return model_number(r->summary.model, "drop_attention", &x) ? x : 0;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (model_number(r->summary.model, names[i], &x) && x > most)
            most = x;
    return most;
}

/* ---- Megatron-LM ---- */

/* Stages as "Ett|tt|tL": embedding, decoder layers, loss. */
static void add_megatron_stages(const struct launch *l, int n)
{
    str_add(l->out, " --pipeline-model-parallel-layout '");
    for (int i = 0; i < n; i++) {
        str_add(l->out, i ? "|" : "E");
        for (int k = 0; k < layers_of(l, i, n); k++)
            str_add(l->out, "t");
    }
    str_add(l->out, "L'");
}

static int emit_megatron(const struct launch *l, struct err *err)
{
    const struct planned *p = l->p;
    int pp = l->size[MESH_PP], chunks = p->order.chunks, stages = pp * chunks;
    const struct refusal refused[] = {
        { l->m->lora_rank || l->m->freeze,
          "it is told nothing of --lora and --freeze" },
        { !is_plain(l->type), "--weights bf16 plans what it trains" },
    };

    if (refuse(l, refused, sizeof(refused) / sizeof(*refused), err) < 0)
        return -1;
    add_torchrun(l, "\"${MEGATRON:-Megatron-LM}/pretrain_gpt.py\"");
    add_line(l);
    add_number(l, "--tensor-model-parallel-size", (uint64_t)l->size[MESH_TP]);
    add_number(l, "--pipeline-model-parallel-size", (uint64_t)pp);
    if (l->size[MESH_SP] > 1)
        add_number(l, "--context-parallel-size", (uint64_t)l->size[MESH_SP]);
    if (planned_ep(p) > 1)
        add_number(l, "--expert-model-parallel-size", (uint64_t)planned_ep(p));
    if (p->etp)
        add_number(l, "--expert-tensor-parallel-size", (uint64_t)p->etp);
    if (pp > 1 && l->layers % stages) {
        add_line(l);
        add_megatron_stages(l, stages);
    } else if (chunks > 1) {
        add_number(l, "--num-virtual-stages-per-pipeline-rank", (uint64_t)chunks);
    }
    add_line(l);
    add_number(l, "--micro-batch-size", p->micro_batch);
    add_number(l, "--global-batch-size", l->o->global_batch);
    add_number(l, "--seq-length", l->m->seq);
    add_line(l);
    if (p->sequence_parallel)
        str_add(l->out, " --sequence-parallel");
    if (p->zero)
        str_add(l->out, " --use-distributed-optimizer");
    if (l->m->offload == OFFLOAD_OPTIMIZER)
        str_add(l->out, " --optimizer-cpu-offload --use-precision-aware-optimizer");
    if (p->recompute == RECOMPUTE_FULL)
        str_add(l->out, " --recompute-granularity full --recompute-method uniform "
                        "--recompute-num-layers 1");
    if (p->recompute == RECOMPUTE_ATTENTION)
        str_add(l->out, " --recompute-granularity selective");
    str_addf(l->out, " --attention-backend %s", l->m->flash ? "flash" : "unfused");
    add_line(l); /* its own default is 0.1 */
    str_addf(l->out, " --attention-dropout %g --hidden-dropout %g",
             l->m->dropout ? launch_dropout(l->r, true) : 0,
             l->m->dropout ? launch_dropout(l->r, false) : 0);
    if (l->m->fused_loss)
        str_add(l->out, " --cross-entropy-loss-fusion");
    if (strcmp(l->type, "f32") != 0)
        str_addf(l->out, " --%s", strcmp(l->type, "f16") == 0 ? "fp16" : "bf16");
    str_add(l->out, " \"$@\"\n");
    return 0;
}

/* ---- DeepSpeed ---- */

static int emit_deepspeed(const struct launch *l, struct err *err)
{
    const struct planned *p = l->p;
    int tp = l->size[MESH_TP], pp = l->size[MESH_PP], ep = l->size[MESH_EP];
    enum offload offload = l->m->offload;
    const struct refusal refused[] = { { !is_plain(l->type) && !l->m->lora_rank,
                                         "--weights bf16 plans what it trains" } };

    if (refuse(l, refused, sizeof(refused) / sizeof(*refused), err) < 0)
        return -1;
    str_addf(l->out, "{\n  \"train_batch_size\": %" PRIu64 ",\n", l->o->global_batch);
    str_addf(l->out,
             "  \"train_micro_batch_size_per_gpu\": %" PRIu64
             ",\n  \"gradient_accumulation_steps\": %" PRIu64 ",\n",
             p->micro_batch, p->micro_batches);
    if (tp > 1)
        str_addf(l->out, "  \"tensor_parallel\": { \"autotp_size\": %d },\n", tp);
    if (l->size[MESH_SP] > 1)
        str_addf(l->out, "  \"sequence_parallel_size\": %d,\n", l->size[MESH_SP]);
    if (ep > 1)
        str_addf(l->out,
                 "  \"expert_parallel\": { \"enabled\": true, \"autoep_size\": %d, "
                 "\"expert_tensor_parallel_size\": %d },\n",
                 ep, tp);
    if (pp > 1)
        str_addf(l->out,
                 "  \"pipeline\": { \"stages\": %d, \"partition\": \"uniform\", "
                 "\"activation_checkpoint_interval\": %d },\n",
                 pp, p->recompute == RECOMPUTE_FULL);
    if (strcmp(l->type, "f32") != 0)
        str_addf(l->out, "  \"%s\": { \"enabled\": true },\n",
                 strcmp(l->type, "f16") == 0 ? "fp16" : "bf16");
    if (l->m->away) /* of models that checkpoint by deepspeed.checkpointing */
        str_add(l->out,
                "  \"activation_checkpointing\": { \"cpu_checkpointing\": true },\n");
    str_addf(l->out, "  \"zero_optimization\": { \"stage\": %d", p->zero);
    if (offload != OFFLOAD_NONE)
        str_add(l->out, ",\n    \"offload_optimizer\": { \"device\": \"cpu\", "
                        "\"pin_memory\": true }");
    if (offload == OFFLOAD_PARAMS)
        str_add(l->out, ",\n    \"offload_param\": { \"device\": \"cpu\", "
                        "\"pin_memory\": true }");
    str_add(l->out, " }\n}\n");
    return 0;
}

/* ---- torchtitan ---- */

/* Names that torch.distributed.pipelining gives its schedules. */
static const char *const titan_orders[ORDERS] = {
    [ORDER_GPIPE] = "GPipe",
    [ORDER_1F1B] = "1F1B",
    [ORDER_INTERLEAVED] = "Interleaved1F1B",
    [ORDER_ZB_V] = "ZBVZeroBubble",
    [ORDER_DUALPIPE_V] = "DualPipeV",
    [ORDER_ZB_INTERLEAVED] = "InterleavedZeroBubble",
};

/* Its sharding takes sp's ranks with it, and experts are dealt over ranks of
 * dp_shard * cp * tp, those of tp included. */
static int emit_torchtitan(const struct launch *l, struct err *err)
{
    const struct planned *p = l->p;
    int tp = l->size[MESH_TP], pp = l->size[MESH_PP], sp = l->size[MESH_SP],
        ep = l->size[MESH_EP], chunks = p->order.chunks, stages = pp * chunks;
    int copies = l->size[MESH_DP] * ep, shard = !p->zero  ? 1
                                                : p->hsdp ? p->hsdp / sp
                                                          : copies;
    int each = (l->layers + stages - 1) / stages;
    const struct refusal refused[] = {
        { l->m->lora_rank || l->m->freeze,
          "it is told nothing of --lora and --freeze" },
        { strcmp(l->type, "f32") != 0 && strcmp(l->type, "bf16") != 0,
          "--weights bf16 plans what it trains" },
        { pp > 1 && chunks > 2 && (l->layers + each - 1) / each != stages,
          "--model-chunks 2 divides its layers" },
    };
    static const char *const ways[] = { [RECOMPUTE_NONE] = "none",
                                        [RECOMPUTE_PRODUCTS] = "selective",
                                        [RECOMPUTE_FULL] = "full" };

    if (refuse(l, refused, sizeof(refused) / sizeof(*refused), err) < 0)
        return -1;
    add_torchrun(l, "-m torchtitan.train --module \"${MODULE:-llama3}\" --config "
                    "\"${CONFIG:?}\"");
    add_line(l);
    add_number(l, "--parallelism.tensor-parallel-degree", (uint64_t)tp);
    add_number(l, "--parallelism.data-parallel-shard-degree", (uint64_t)shard);
    add_number(l, "--parallelism.data-parallel-replicate-degree",
               (uint64_t)(copies / shard));
    if (sp > 1)
        add_number(l, "--parallelism.context-parallel-degree", (uint64_t)sp);
    if (l->experts && ep * tp > 1)
        add_number(l, "--parallelism.expert-parallel-degree", (uint64_t)(ep * tp));
    if (tp > 1 && !p->sequence_parallel)
        str_add(l->out, " --parallelism.no-enable-sequence-parallel");
    if (pp > 1) {
        add_line(l);
        add_number(l, "--parallelism.pipeline-parallel-degree", (uint64_t)pp);
        str_addf(l->out, " --parallelism.pipeline-parallel-schedule %s",
                 titan_orders[p->order.order]);
        add_number(l, "--parallelism.pipeline-parallel-microbatch-size",
                   p->micro_batch);
        add_line(l);
        add_number(l, "--parallelism.pipeline-parallel-first-stage-less-layers", 0);
        add_number(l, "--parallelism.pipeline-parallel-last-stage-less-layers", 0);
        if (chunks > 2)
            add_number(l, "--parallelism.pipeline-parallel-layers-per-stage",
                       (uint64_t)each);
        str_add(l->out, " --training.disable-cuda-graphs");
    }
    add_line(l);
    add_number(l, "--training.local-batch-size",
               pp > 1 ? p->micro_batch * p->micro_batches : p->micro_batch);
    add_number(l, "--training.global-batch-size", l->o->global_batch);
    add_number(l, "--training.seq-len", l->m->seq);
    if (strcmp(l->type, "f32") == 0)
        str_add(l->out, " --training.mixed-precision-param float32");
    if (l->m->offload == OFFLOAD_PARAMS)
        str_add(l->out, " --training.enable-cpu-offload");
    str_addf(l->out, " \"$@\" \\\n    activation-checkpoint:%s\n", ways[p->recompute]);
    return 0;
}

/* ---- vLLM ---- */

/* Its experts are dealt over all ranks of tp and dp, so that ranks of ep are replicas
 * to it. */
static int emit_vllm(const struct launch *l, struct err *err)
{
    const struct planned *p = l->p;
    int dp = l->size[MESH_DP], ep = l->size[MESH_EP];
    uint64_t each = p->micro_batch * p->micro_batches;
    char *words[] = { str_dupf("%s%s", *l->r->path == '-' ? "./" : "", l->r->path),
                      NULL };
    const struct refusal refused[] = {
        { l->r->given.kv && l->m->kv_format == FORMAT_CACHE_INT8,
          "--kv-dtype fp8 is the narrow cache that it has" },
        { l->r->memory.weights && !is_plain(l->type),
          "its files determine how weights are quantized, not --weights" },
    };
    int ret = refuse(l, refused, sizeof(refused) / sizeof(*refused), err);

    if (ret == 0) {
        add_head(l);
        str_add(l->out, "vllm serve ");
        if (l->bare)
            str_add(l->out, "\"${MODEL:?}\"");
        else
            words_quote(l->out, words);
        add_line(l);
        add_number(l, "--tensor-parallel-size", (uint64_t)l->size[MESH_TP]);
        add_number(l, "--pipeline-parallel-size", (uint64_t)l->size[MESH_PP]);
        if (dp * ep > 1)
            add_number(l, "--data-parallel-size", (uint64_t)(dp * ep));
        if (ep > 1)
            str_add(l->out, " --enable-expert-parallel");
        if (l->nodes > 1) {
            str_add(l->out, " \\\n    ");
            add_node(l);
            str_add(l->out, " \\\n    $([ \"$NODE_RANK\" = 0 ] || echo --headless)");
        }
        add_line(l);
        add_number(l, "--max-model-len", l->m->seq);
        add_number(l, "--max-num-seqs", each);
        if (l->m->prefill)
            add_number(l, "--max-num-batched-tokens", l->m->prefill);
        if (l->m->kv_block > 1)
            add_number(l, "--block-size", l->m->kv_block);
        if (l->r->gpu_memory)
            str_addf(l->out, " --gpu-memory-utilization %.2f",
                     (double)l->o->gpu_memory / (double)l->r->gpu_memory);
        if (l->r->memory.weights)
            str_addf(l->out, " --dtype %s",
                     strcmp(l->type, "f32") == 0   ? "float32"
                     : strcmp(l->type, "f16") == 0 ? "float16"
                                                   : "bfloat16");
        if (l->r->given.kv && l->m->kv_format == FORMAT_CACHE_FP8)
            str_add(l->out, " --kv-cache-dtype fp8");
        str_add(l->out, " \"$@\"\n");
    }
    free(words[0]);
    return ret;
}

/* ---- the frameworks ---- */

static const struct {
    int (*emit)(const struct launch *l, struct err *err);
    bool train;
} forms[FRAMEWORKS] = {
    [FRAMEWORK_MEGATRON] = { emit_megatron, true },
    [FRAMEWORK_TORCHTITAN] = { emit_torchtitan, true },
    [FRAMEWORK_DEEPSPEED] = { emit_deepspeed, true },
    [FRAMEWORK_VLLM] = { emit_vllm, false },
};

int launch_plan(struct str *out, const struct planned *p,
                const struct planner_options *o, const struct request *r,
                const char *comment, struct err *err)
{
    const struct memory_options *m = &o->start;
    const struct weight_type *t = m->weights ? m->weights : m->other;
    int per_node = o->machine.per_node;
    struct launch l = { .p = p,
                        .o = o,
                        .m = m,
                        .r = r,
                        .size = p->mesh.size,
                        .type = t ? t->name : "bf16",
                        .experts = planner_has_experts(r->summary.model),
                        .bare =
                            r->summary.checkpoint == NULL && str_ends(r->path, ".json"),
                        .layers = model_layers(r->summary.model),
                        .nodes = (o->gpus + per_node - 1) / per_node,
                        .here = o->gpus < per_node ? o->gpus : per_node,
                        .out = out,
                        .comment = comment };

    if (forms[m->framework].train != m->train)
        return err_set(err, ERR_USAGE, "--emit %s: it is a framework of %s: --mode %s",
                       framework_names[m->framework],
                       m->train ? "inference" : "training",
                       m->train ? "infer" : "train");
    return forms[m->framework].emit(&l, err);
}
