/* foreign - what other programs call options and commands, and what answers here */
#include "cmd/foreign.h"

#include <string.h>

#include "cmd/cmd.h"

#define TRAIN         "tp-run", "train"
#define GENERATE      "tp-run", "generate"
#define RUNS          "tp-run", "generate score classify embed bench logits"
#define SWEEP         "hpo-sweep", NULL
#define ANY           NULL, NULL
#define CUTS          "tp-shard pp-partition", NULL
#define MODELS        "tp-run tp-shard pp-partition mem-estimate", NULL
#define IS            NULL, NULL, NULL /* the value as given */
#define FLAG(ours)    ours, NULL, NULL
#define VALUES(pairs) NULL, pairs, NULL
#define INSTEAD(text) NULL, NULL, NULL, text

static const char *const types[] = { "float32", "f32",      "float", "f32",     "fp32",
                                     "f32",     "bfloat16", "bf16",  "float16", "f16",
                                     "half",    "f16",      "fp16",  "f16",     NULL };
static const char *const schedules[] = {
    "Interleaved1F1B", "interleaved", "ZBVZeroBubble", "zb-v", "DualPipeV",
    "dualpipev",       NULL
};
static const char *const decays[] = { "inverse-square-root", "inverse_sqrt", NULL };

/* transformers' Trainer and generate, and its example programs (run_clm); PEFT; vLLM;
 * llama.cpp; torchrun, torchtitan, Megatron and DeepSpeed; Optuna, Ray Tune and
 * W&B.  Grouped by what answers. */
/* clang-format off */
const struct foreign foreign_table[] = {
    /* the layout */
    { "tensor-parallel-size", ANY, "tp", IS },
    { "tensor-model-parallel-size", ANY, "tp", IS },
    { "target-tensor-parallel-size", ANY, "tp", IS },
    { "tp-size", ANY, "tp", IS },
    { "pipeline-parallel-size", ANY, "pp", IS },
    { "pipeline-model-parallel-size", ANY, "pp", IS },
    { "target-pipeline-parallel-size", ANY, "pp", IS },
    { "pp-size", ANY, "pp", IS },
    { "num-stages", ANY, "pp", IS },
    { "stages", ANY, "pp", IS },
    { "data-parallel-size", ANY, "dp", IS },
    { "dp-size", ANY, "dp", IS },
    { "expert-parallel-size", ANY, "ep", IS },
    { "expert-model-parallel-size", ANY, "ep", IS },
    { "ep-size", ANY, "ep", IS },
    { "context-parallel-size", ANY, "sp", IS },
    { "num-virtual-stages-per-pipeline-rank", ANY, "model-chunks", IS },
    { "enable-expert-parallel", ANY, INSTEAD("--ep N says over how many ranks") },
    { "num-layers-per-virtual-pipeline-stage", ANY,
      INSTEAD("--model-chunks N says how many chunks a stage has") },
    { "tensor-split", ANY, INSTEAD("--tp N divides evenly, as far as heads allow") },
    { "split-mode", ANY, INSTEAD("--tp N shards layers, --pp N deals them out") },

    /* types */
    { "torch-dtype", "tp-shard", NULL, "dtype", VALUES(types) },
    { "kv-cache-dtype", ANY, "kv-dtype", VALUES(types) },
    { "dtype", TRAIN, INSTEAD("see --compute, the type of products; all else is f32") },
    { "dtype", ANY,
      INSTEAD("see --compute, the type of products, and --weights, how weights are "
              "held") },
    { "torch-dtype", ANY,
      INSTEAD("see --compute, the type of products, and --weights, how weights are "
              "held") },
    { "cache-type-k", ANY, INSTEAD("--kv-dtype TYPE sets keys and values") },
    { "cache-type-v", ANY, INSTEAD("--kv-dtype TYPE sets keys and values") },
    { "bf16", RUNS, "compute", FLAG("bf16") },
    { "bf16", TRAIN, "compute", FLAG("bf16") },
    { "bf16", "mem-estimate", NULL, INSTEAD("see --weights bf16 and --compute bf16") },
    { "fp16", "mem-estimate", NULL, INSTEAD("see --weights f16 and --compute f16") },
    { "fp16", "tp-run", NULL,
      INSTEAD("see --compute bf16: there are no products of f16") },
    { "load-in-8bit", "mem-estimate", NULL, "weights", FLAG("int8") },
    { "load-in-8bit", RUNS, INSTEAD("see --weights int8") },
    { "load-in-4bit", RUNS, INSTEAD("see --weights int4") },
    { "load-in-4bit", "mem-estimate", NULL,
      INSTEAD("see --weights nf4 and --weights int4") },
    { "quantization", ANY, INSTEAD("see --weights int8 and --weights int4") },
    { "mixed-precision", "mem-estimate", NULL,
      INSTEAD("see --weights, --compute and --master") },

    /* training */
    { "learning-rate", TRAIN, "lr", IS },
    { "num-train-epochs", TRAIN, "epochs", IS },
    { "num-epochs", TRAIN, "epochs", IS },
    { "max-steps", TRAIN, "steps", IS },
    { "train-iters", TRAIN, "steps", IS },
    { "training-steps", TRAIN, "steps", IS },
    { "per-device-train-batch-size", ANY, "micro-batch", IS },
    { "micro-batch-size", ANY, "micro-batch", IS },
    { "train-micro-batch-size-per-gpu", ANY, "micro-batch", IS },
    { "gradient-accumulation-steps", "tp-run", "train", "micro-batches", IS },
    { "gradient-accumulation-steps", "mem-estimate", NULL, "micro-batches", IS },
    { "global-batch-size", ANY, "global-batch", IS },
    { "train-batch-size", ANY, "global-batch", IS },
    { "warmup-steps", TRAIN, "warmup", IS },
    { "lr-warmup-iters", TRAIN, "warmup", IS },
    { "lr-scheduler-type", TRAIN, "lr-schedule", IS },
    { "lr-decay-style", TRAIN, "lr-schedule",
      VALUES(decays) },
    { "adam-beta1", TRAIN, "beta1", IS },
    { "adam-beta2", TRAIN, "beta2", IS },
    { "adam-epsilon", TRAIN, "eps", IS },
    { "adam-eps", TRAIN, "eps", IS },
    { "max-grad-norm", TRAIN, "clip", IS },
    { "clip-grad", TRAIN, "clip", IS },
    { "block-size", TRAIN, "seq", IS },
    { "seq-length", ANY, "seq", IS },
    { "train-file", TRAIN, "data", IS },
    { "validation-file", TRAIN, "eval-data", IS },
    { "output-dir", TRAIN, "output", IS },
    { "overwrite-output-dir", TRAIN, "force", IS },
    { "eval-steps", TRAIN, "eval-every", IS },
    { "eval-interval", TRAIN, "eval-every", IS },
    { "save-steps", TRAIN, "save-every", IS },
    { "save-interval", TRAIN, "save-every", IS },
    { "save-total-limit", TRAIN, "keep", IS },
    { "warmup-ratio", TRAIN, INSTEAD("--warmup N counts steps") },
    { "resume-from-checkpoint", TRAIN, INSTEAD("--resume goes on with the run in -o") },
    { "per-device-eval-batch-size", TRAIN,
      INSTEAD("an evaluation uses --micro-batch") },
    { "optim", TRAIN, INSTEAD("see --optimizer") },
    { "optim", "mem-estimate", NULL, INSTEAD("see --optimizer") },
    { "gradient-checkpointing", ANY, "recompute", FLAG("full") },
    { "recompute-activations", ANY, "recompute", FLAG("attention") },
    { "recompute-granularity", ANY, "recompute", IS },
    { "recompute-num-layers", ANY, "recompute", IS },
    { "lora-r", ANY, "lora", IS },
    { "lora-rank", ANY, "lora", IS },
    { "zero-stage", ANY, "zero", IS },
    { "deepspeed", TRAIN, INSTEAD("--tp, --pp and --dp choose the layout") },
    { "fsdp", TRAIN, INSTEAD("--tp, --pp and --dp choose the layout") },
    { "do-train", TRAIN, INSTEAD("training is what the command does") },
    { "do-eval", TRAIN, INSTEAD("see --eval-data and --eval-fraction") },
    { "logging-steps", TRAIN, INSTEAD("every step is logged; see --log") },
    { "logging-dir", TRAIN,
      INSTEAD("the log is log.jsonl in the run's directory; see --log") },
    { "eval-strategy", TRAIN, INSTEAD("see --eval-every") },
    { "evaluation-strategy", TRAIN, INSTEAD("see --eval-every") },
    { "load-best-model-at-end", TRAIN, INSTEAD("see --keep") },
    { "data-seed", TRAIN, INSTEAD("see --seed") },
    { "dataloader-num-workers", TRAIN,
      INSTEAD("leave it out: texts are tokenized by --threads") },
    { "packing", TRAIN, INSTEAD("see --pack") },
    { "report-to", TRAIN, INSTEAD("--log FILE gets a line of JSON for each step") },
    { "hidden-dropout", TRAIN, INSTEAD("--dropout X sets every dropout") },
    { "attention-dropout", TRAIN, INSTEAD("--dropout X sets every dropout") },
    { "use-distributed-optimizer", "mem-estimate", NULL, INSTEAD("see --zero 1") },
    { "attn-implementation", "mem-estimate", NULL, INSTEAD("see --flash") },
    { "cpu-offload", "mem-estimate", NULL, INSTEAD("see --offload") },

    /* texts */
    { "max-new-tokens", GENERATE, "max-tokens", IS },
    { "n-predict", GENERATE, "max-tokens", IS },
    { "predict", GENERATE, "max-tokens", IS },
    { "temp", GENERATE, "temperature", IS },
    { "max-num-seqs", GENERATE, "requests", IS },
    { "random-seed", GENERATE, "seed", IS },
    { "n", GENERATE, INSTEAD("see --max-tokens") },
    { "max-length", GENERATE, INSTEAD("--max-tokens N counts the new tokens alone") },
    { "min-new-tokens", GENERATE, "min-tokens", IS },
    { "do-sample", GENERATE,
      INSTEAD("--temperature 1 samples, --temperature 0 does not") },
    { "num-beams", GENERATE, "beams", IS },
    { "num-return-sequences", GENERATE, "num-return", IS },
    { "repeat-penalty", GENERATE, "repetition-penalty", IS },
    { "file", GENERATE,
      INSTEAD("give the text on standard input, or lines by --input") },
    { "f", GENERATE,
      INSTEAD("give the text on standard input, or lines by --input") },
    { "s", GENERATE, INSTEAD("see --seed") },
    { "use-cache", GENERATE, INSTEAD("leave it out: keys and values are cached") },
    { "stream", GENERATE, INSTEAD("text is written as it is made") },
    { "ctx-size", RUNS,
      INSTEAD("the cache is as long as the texts need; see --cache-tokens") },
    { "c", RUNS,
      INSTEAD("the cache is as long as the texts need; see --cache-tokens") },
    { "max-model-len", RUNS,
      INSTEAD("the cache is as long as the texts need; see --cache-tokens") },
    { "max-model-len", "mem-estimate", NULL, "seq", IS },
    { "max-seq-len", ANY, "seq", IS },
    { "max-seq-length", ANY, "seq", IS },
    { "max-num-batched-tokens", "mem-estimate", NULL, "prefill-tokens", IS },
    { "block-size", "mem-estimate", NULL, "kv-block", IS },
    { "batch-size", "mem-estimate", NULL, "micro-batch", IS },
    { "batch-size", "tp-run", NULL,
      INSTEAD("see --micro-batches") },
    { "n-samples", ANY, INSTEAD("repeat --prompt") },

    /* the machine */
    { "t", "tp-run", NULL, INSTEAD("see --threads") },
    { "num-threads", "tp-run", NULL, "threads", IS },
    { "device", "tp-run", NULL,
      INSTEAD("see --backend, and --devices for one of several") },
    { "device", TRAIN, INSTEAD("see --backend") },
    { "n-gpu-layers", "tp-run", NULL,
      INSTEAD("leave it out: a GPU holds every layer; see --pp for several devices") },
    { "gpu-layers", "tp-run", NULL,
      INSTEAD("leave it out: a GPU holds every layer; see --pp for several devices") },
    { "ngl", "tp-run", NULL,
      INSTEAD("leave it out: a GPU holds every layer; see --pp for several devices") },
    { "gpu-memory-utilization", "tp-run", NULL,
      INSTEAD("memory is taken as it is needed; see --cache-tokens and "
              "mem-estimate(1)") },
    { "enforce-eager", "tp-run", NULL,
      INSTEAD("leave it out: the backend decides what it records") },
    { "flash-attn", "tp-run", NULL,
      INSTEAD("leave it out: the backend chooses its kernel") },
    { "mlock", "tp-run", NULL, INSTEAD("leave it out: files are mapped") },
    { "no-mmap", "tp-run", NULL, INSTEAD("leave it out: files are mapped") },
    { "num-gpus", "mem-estimate", NULL, "gpus", IS },
    { "num-gpus", "tp-run", NULL,
      INSTEAD("--tp, --pp and --dp say how many ranks there are") },
    { "nproc-per-node", "tp-run", NULL,
      INSTEAD("--tp, --pp and --dp say how many ranks there are") },
    { "nnodes", "tp-run", NULL,
      INSTEAD("give it to torchrun, or use mpirun or srun") },
    { "local-rank", "tp-run", NULL,
      INSTEAD("leave it out: a launcher's variables say which rank this is") },
    { "master-addr", "tp-run", NULL, INSTEAD("set MASTER_ADDR, as torchrun does") },
    { "master-port", "tp-run", NULL, INSTEAD("set MASTER_PORT, as torchrun does") },
    { "rdzv-backend", "tp-run", NULL, INSTEAD("give it to torchrun") },
    { "trust-remote-code", MODELS, INSTEAD("leave it out: no code of a model is run") },
    { "download-dir", MODELS,
      INSTEAD("nothing is downloaded; give the model's directory") },
    { "cache-dir", MODELS,
      INSTEAD("nothing is downloaded; give the model's directory") },
    { "model", MODELS, INSTEAD("the model is an operand: give it without an option") },
    { "m", MODELS, INSTEAD("the model is an operand: give it without an option") },
    { "model-name-or-path", MODELS,
      INSTEAD("the model is an operand: give it without an option") },
    { "tokenizer", "tp-run", "generate score classify embed train",
      INSTEAD("the model's own tokenizer is used") },

    /* files */
    { "output-dir", CUTS,
      INSTEAD("the output is an operand: give it last, without an option") },
    { "save-dir", CUTS,
      INSTEAD("the output is an operand: give it last, without an option") },
    { "load-dir", CUTS, INSTEAD("the model is an operand: give it without an option") },
    { "make-vocab-size-divisible-by", "tp-shard", NULL, INSTEAD("see --pad-vocab") },
    { "max-shard-size", "tp-shard", NULL,
      INSTEAD("files are one a rank, or after merge the original's") },
    { "safe-serialization", "tp-shard", NULL,
      INSTEAD("leave it out: files are safetensors") },

    /* pipelines */
    { "num-microbatches", ANY, "micro-batches", IS },
    { "n-microbatches", ANY, "micro-batches", IS },
    { "microbatches", ANY, "micro-batches", IS },
    { "gradient-accumulation-steps", "pp-partition", NULL, "micro-batches", IS },
    { "pipeline-parallel-schedule", ANY, "schedule", VALUES(schedules) },
    { "pipeline-schedule", ANY, "schedule", VALUES(schedules) },
    { "pipeline-model-parallel-layout", "pp-partition", NULL, "stage-layout", IS },

    /* sweeps */
    { "n-trials", SWEEP, "trials", IS },
    { "num-samples", SWEEP, "trials", IS },
    { "count", SWEEP, "trials", IS },
    { "n-jobs", SWEEP, "jobs", IS },
    { "max-concurrent-trials", SWEEP, "jobs", IS },
    { "study-name", SWEEP, "study", IS },
    { "timeout", SWEEP, "time-budget", IS },
    { "time-budget-s", SWEEP, "time-budget", IS },
    { "gpus-per-trial", SWEEP, "devices-per-trial", IS },
    { "directions", SWEEP, INSTEAD("repeat --direction, once for each objective") },
    { "mode", SWEEP, INSTEAD("see --direction") },
    { "method", SWEEP, INSTEAD("see --sampler") },
    { "load-if-exists", SWEEP, INSTEAD("leave it out: a study that exists goes on") },
    { "skip-if-exists", SWEEP, INSTEAD("leave it out: a study that exists goes on") },
    { "n-startup-trials", SWEEP, INSTEAD("see --sampler in hpo-sweep(1)") },
    { "scheduler", SWEEP, INSTEAD("see --pruner") },
    { "project", SWEEP,
      INSTEAD("a study is kept in --storage, under the name --study") },
    { "entity", SWEEP,
      INSTEAD("a study is kept in --storage, under the name --study") },
};
/* clang-format on */
const size_t foreign_count = sizeof(foreign_table) / sizeof(*foreign_table);

bool foreign_same_start(const char *ours, const char *name, size_t len)
{
    size_t i = 0;

    while (i < len && ours[i] == (name[i] == '_' ? '-' : name[i]))
        i++;
    return i == len;
}

bool foreign_same(const char *ours, const char *name, size_t len)
{
    return strlen(ours) == len && foreign_same_start(ours, name, len);
}

/* Is WORD one of the words of LIST? */
static bool has_word(const char *list, const char *word)
{
    size_t len = strlen(word), n;

    for (const char *p = list; *p; p += n + (p[n] == ' ')) {
        n = strcspn(p, " ");
        if (n == len && !memcmp(p, word, n))
            return true;
    }
    return false;
}

static bool has_option(const struct cmd *cmd, const char *name, size_t len)
{
    for (const struct opt *o = cmd->opts; o && o->type != OPT_END; o++)
        if (strlen(o->long_name) == len && !memcmp(o->long_name, name, len))
            return true;
    return false;
}

bool foreign_counts(const struct foreign *f, const struct cmd *cmd)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
    const char *program = cmd->program ? cmd->program : cmd->name;
    size_t len;

    if ((f->program && !has_word(f->program, program)) ||
        (f->commands && !has_word(f->commands, cmd->name)))
        return false;
    if (f->option)
        return has_option(cmd, f->option, strlen(f->option));
    for (const char *p = f->hint; (p = strstr(p, "--")) != NULL; p += len) {
        p += 2;
        len = strspn(p, letters);
        if (!has_option(cmd, p, len))
            return false;
    }
    return true;
}

const struct foreign *foreign_find(const struct cmd *cmd, const char *name, size_t len)
{
    const struct foreign *hint = NULL;

    for (size_t i = 0; i < foreign_count; i++) {
        const struct foreign *f = &foreign_table[i];

        if (!foreign_same(f->name, name, len) || !foreign_counts(f, cmd))
            continue;
        if (f->option)
            return f;
        if (!hint)
            hint = f;
    }
    return hint;
}

const char *foreign_value(const struct foreign *f, const char *value)
{
    if (f->fixed)
        return f->fixed;
    for (const char *const *v = f->values; v && *v; v += 2)
        if (!strcmp(v[0], value))
            return v[1];
    return value;
}

const char *foreign_command(const struct cmd *cmd, const char *name)
{
    static const char *const names[][2] = {
        { "info", "show" },       { "inspect", "show" },   { "ls", "show" },
        { "shard", "split" },     { "check", "verify" },   { "convert", "reshard" },
        { "run", "generate" },    { "chat", "generate" },  { "eval", "score" },
        { "inference", "infer" }, { "training", "train" }, { "simulate", "schedule" },
        { "optimize", "run" },    { "start", "run" },
    };

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        for (const struct cmd_sub *s = cmd->subs; !strcmp(names[i][0], name) && s->name;
             s++)
            if (!strcmp(names[i][1], s->name))
                return s->name;
    return NULL;
}
