/* habits - memory that a framework uses beyond the closed forms
 *
 * Megatron-LM: gradients accumulate in f32 buffers that live throughout (DDP config
 * grad_reduce_in_fp32) and are reduced in place; the loss (cross_entropy.py) holds the
 * logits in f32 and their exponentials.
 *
 * torchtitan: with pipeline stages, FSDP2 does not reshard after the forward pass, and
 * reduces gradients after the last micro-batch; until then they accumulate in the type
 * of the reduction, f32 (torch.distributed.fsdp, _fsdp_param.py).  DTensor's products
 * save their gathered input.  torch.distributed.pipelining keeps each stage's outputs
 * until their backward pass, and one buffer for each message of a step (stage.py).  The
 * loss runs in eager mode: logits in f32, their logarithms and two gradients; with
 * loss_parallel also the exponentials.  Its tables show memory reserved by PyTorch's
 * allocator: 10 % more activations and messages than allocated.  This number is fitted
 * to tables 1 to 3 of its benchmarks of December 2024 (mean error 1 %; tables 4 to 6
 * were not used).
 *
 * DeepSpeed: its memory estimators (runtime/zero) count 4 bytes of f32 gradient beside
 * the optimizer's 12; reduce_bucket_size and allgather_bucket_size are 5e8 elements,
 * stage3_max_live_parameters 1e9.  Its pipeline engine refuses ZeRO-2 and ZeRO-3.
 *
 * vLLM: each rank has one table of cosines and sines of all positions for each kind of
 * rotary embedding, in the type of the activations (rotary_embedding/base.py). */
#include "lib/estimate/habits.h"

const char *const framework_names[FRAMEWORKS + 1] = {
    "none", "megatron", "torchtitan", "deepspeed", "tp-run", "vllm", NULL
};

enum { WIDE = 4, BUCKET = 500000000, LIVE = 1000000000 };

static const double RESERVED = 0.1;

enum framework habits_framework(const struct memory_options *o)
{
    bool shards_stages = o->train && o->zero >= 3 && o->mesh.size[MESH_PP] > 1;

    return o->framework == FRAMEWORK_NONE && shards_stages ? FRAMEWORK_TORCHTITAN
                                                           : o->framework;
}

struct habits habits_of(const struct memory_options *o)
{
    struct habits h = { 0 };

    h.tables = o->framework == FRAMEWORK_VLLM;
    if (!o->train)
        return h;
    switch (habits_framework(o)) {
    case FRAMEWORK_MEGATRON:
        h.keeps_stage = h.buffers = true;
        h.grad_bytes = WIDE;
        h.of_logit = 2 * WIDE;
        break;
    case FRAMEWORK_TORCHTITAN:
        h.keeps_stage = h.keeps_gathered = h.keeps_messages = true;
        h.reserved = RESERVED;
        h.of_logit = (o->mesh.size[MESH_TP] > 1 ? 4 : 3) * WIDE;
        break;
    case FRAMEWORK_DEEPSPEED:
        h.refuses = true;
        h.grad_state = WIDE;
        h.bucket = BUCKET;
        h.live = LIVE;
        break;
    case FRAMEWORK_TP_RUN:
        h.grad_bytes = WIDE;
        break;
    case FRAMEWORK_NONE:
    case FRAMEWORK_VLLM:
    case FRAMEWORKS:
        break;
    }
    return h;
}

/* Megatron-LM's --num-layers-per-virtual-pipeline-stage and distributed optimizer;
 * DeepSpeed's TrainSchedule; the seven schedules of torch.distributed.pipelining that
 * torchtitan takes by name; its weights are whole or sharded (FSDP).  tp-run:
 * --pipeline and --zero of tp-run-train(1).  vLLM: --tensor-parallel-size, -pipeline-,
 * -data- and
 * --enable-expert-parallel. */
const struct abilities abilities[FRAMEWORKS] = {
    [FRAMEWORK_NONE] = { ~0U, 0xf, true, false },
    [FRAMEWORK_MEGATRON] = { 1U << ORDER_1F1B | 1U << ORDER_INTERLEAVED, 0x3, true,
                             true },
    [FRAMEWORK_TORCHTITAN] = { 1U << ORDER_GPIPE | 1U << ORDER_1F1B |
                                   1U << ORDER_INTERLEAVED | 1U << ORDER_ZB_V |
                                   1U << ORDER_DUALPIPE_V | 1U << ORDER_ZB_INTERLEAVED,
                               0x9, true, false },
    [FRAMEWORK_DEEPSPEED] = { 1U << ORDER_1F1B, 0xf, true, false },
    [FRAMEWORK_TP_RUN] = { 1U << ORDER_1F1B | 1U << ORDER_GPIPE, 0xf, true, false },
    [FRAMEWORK_VLLM] = { ~0U, 0x1, false, false },
};

/* Megatron-LM: its optimizer is offloaded by the distributed one alone
 * (--optimizer-cpu-offload).  DeepSpeed: sequences are split by Ulysses, whose groups
 * its pipeline engine does not make; AutoEP with AutoTP needs ep above 1 and no offload
 * (module_inject/auto_ep_folding.py).  torchtitan: weights are sharded over its context
 * ranks, and experts dealt over ranks that shard (config/configs.py), while its offload
 * takes parameters along; recomputing is full, or of every second product.  vLLM deals
 * experts over all ranks of tp and dp. */
const char *framework_lacks(const struct memory_options *o, bool experts)
{
    const int *size = o->mesh.size;
    bool tp = size[MESH_TP] > 1, sp = size[MESH_SP] > 1, ep = size[MESH_EP] > 1,
         dp = size[MESH_DP] > 1, pp = size[MESH_PP] > 1;
    const struct {
        enum framework framework;
        bool asked;
        const char *without;
    } list[] = {
        { FRAMEWORK_MEGATRON, o->offload == OFFLOAD_PARAMS,
          "--offload optimizer is what it has" },
        { FRAMEWORK_MEGATRON, o->away, "--offload optimizer is what it has" },
        { FRAMEWORK_TORCHTITAN, o->away, "--offload params is what it has" },
        { FRAMEWORK_TP_RUN, o->away || o->offload == OFFLOAD_PARAMS,
          "--offload optimizer is what it has" },
        { FRAMEWORK_DEEPSPEED, o->away && o->recompute != RECOMPUTE_FULL,
          "--recompute full has the activations that it offloads" },
        { FRAMEWORK_MEGATRON, o->offload != OFFLOAD_NONE && !o->zero,
          "--zero 1 offloads" },
        { FRAMEWORK_MEGATRON, o->recompute == RECOMPUTE_PRODUCTS,
          "--recompute none, attention or full is what it has" },
        { FRAMEWORK_DEEPSPEED, o->recompute == RECOMPUTE_PRODUCTS,
          "--recompute none or full is what it has" },
        { FRAMEWORK_MEGATRON, o->hsdp > 0, "it has no groups of --hsdp" },
        { FRAMEWORK_DEEPSPEED, sp && pp, "--sp 1 plans pipelines" },
        { FRAMEWORK_DEEPSPEED, tp && experts && !ep,
          "--tp 1 plans experts without ep" },
        { FRAMEWORK_DEEPSPEED, tp && ep && o->offload != OFFLOAD_NONE,
          "--offload none shards experts over tp" },
        { FRAMEWORK_DEEPSPEED, o->offload != OFFLOAD_NONE && !o->zero,
          "--zero 1 offloads" },
        { FRAMEWORK_DEEPSPEED, o->hsdp > 0, "it has no groups of --hsdp" },
        { FRAMEWORK_TORCHTITAN, !o->zero && (sp || ep),
          "--zero 3 shards over sp and ep" },
        { FRAMEWORK_TORCHTITAN, o->hsdp % size[MESH_SP] != 0,
          "a group of --hsdp holds all ranks of sp" },
        { FRAMEWORK_TORCHTITAN, o->recompute == RECOMPUTE_ATTENTION,
          "--recompute none or full is what it has" },
        { FRAMEWORK_TORCHTITAN, o->offload == OFFLOAD_OPTIMIZER,
          "--offload params takes both" },
        { FRAMEWORK_VLLM, sp, "--sp 1 plans what it runs" },
        { FRAMEWORK_VLLM, dp && ep, "--dp 1 deals experts over all ranks" },
    };

    for (size_t i = 0; i < sizeof(list) / sizeof(*list); i++)
        if (list[i].framework == o->framework && list[i].asked)
            return list[i].without;
    return NULL;
}
