/* emit - a plan as a script of this toolkit's commands, or for another framework
 *
 * Other frameworks are emitframework.c's.  A script of this toolkit shards the model
 * once, in its current directory.  Then tp-run generates text, or with an encoder
 * writes logits: on this machine if one node is enough, else started by mpirun or srun.
 * The script's arguments are passed to tp-run. */
#include "cmd/mem-estimate/emit.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/mem-estimate/emitframework.h"
#include "cmd/picture.h"
#include "lib/base/mem.h"
#include "lib/estimate/reversed.h"
#include "lib/sweep/format/words.h"

const char *const emit_names[] = { "sh",        "make",       "slurm", "megatron",
                                   "deepspeed", "torchtitan", "vllm",  NULL };

enum framework emit_framework(enum emit_format format)
{
    static const enum framework of[] = { [EMIT_MEGATRON] = FRAMEWORK_MEGATRON,
                                         [EMIT_DEEPSPEED] = FRAMEWORK_DEEPSPEED,
                                         [EMIT_TORCHTITAN] = FRAMEWORK_TORCHTITAN,
                                         [EMIT_VLLM] = FRAMEWORK_VLLM };

    return of[format];
}

struct script {
    const struct planned *p;
    const struct planner_options *o;
    const struct request *r;
    enum emit_format format;
    int nodes;
    char *reason;       /* why the script is only an estimate, or NULL */
    char *model, *name; /* the operand, quoted for the shell; its last component */
    char *title;        /* the name, quoted */
    char *family;       /* " --family FILE" and " --config FILE", or "" */
    char *parts;        /* the checkpoint to run, quoted */
    bool cut;           /* the script must make that checkpoint first */
    bool encoder;       /* tp-run logits instead of tp-run generate */
    struct str out;
};

/* ---- what the script does ---- */

static char *quote_dup(const char *text)
{
    char *words[] = { str_dupf("%s%s", *text == '-' ? "./" : "", text), NULL };
    struct str out = { 0 };

    words_quote(&out, words);
    free(words[0]);
    return str_steal(&out);
}

static char *reason_dup(const struct script *s)
{
    const struct weight_type *t = s->r->memory.weights;

    if (!s->r->summary.checkpoint)
        return str_dupf("%s has no weights", s->r->path);
    if (t && strcmp(t->name, "f32") != 0 && strcmp(t->name, "bf16") != 0 &&
        strcmp(t->name, "f16") != 0)
        return str_dupf("tp-shard does not store weights as %s", t->name);
    return NULL;
}

/* tp-run trains all weights.
 * ERR_USAGE names the option that restricts a plan to that. */
static int check_training(const struct script *s, struct err *err)
{
    const struct planned *p = s->p;
    const struct memory_options *m = &s->o->start;
    const struct {
        bool asked;
        const char *option;
    } refused[] = {
        { p->mesh.size[MESH_PP] > 1 && p->order.order != ORDER_GPIPE &&
              p->order.order != ORDER_1F1B,
          "--schedule 1f1b plans with what it has" },
        { m->lora_rank || m->freeze || m->only, "it trains all weights here" },
        { m->offload == OFFLOAD_PARAMS || m->away,
          "--offload optimizer is what it has" },
        { optimizer_table[m->optimizer].matrices != MATRICES_NONE &&
              m->offload != OFFLOAD_OPTIMIZER,
          "the CPU updates matrices there: give --offload optimizer" },
        { s->reason != NULL, s->reason },
    };

    for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++)
        if (refused[i].asked)
            return err_set(err, ERR_USAGE,
                           "--emit %s: tp-run train cannot run the fastest layout: %s",
                           emit_names[s->format], refused[i].option);
    return 0;
}

/* "bard" for "models/bard/", "bard.json" and "bard.tp2". */
static char *name_dup(const char *path)
{
    char *name = picture_name_dup(path);
    const char *end = strstr(name, ".tp");

    if (end && end > name && end[3] >= '1' && end[3] <= '9')
        name[end - name] = '\0';
    if (str_ends(name, ".json") && strlen(name) > strlen(".json"))
        name[strlen(name) - strlen(".json")] = '\0';
    return name;
}

static void add_layout(struct str *out, const struct planned *p, const char *before,
                       const char *between)
{
    for (int a = 0; a < MESH_NAXES; a++) {
        int size = a == MESH_EP ? planned_ep(p) : p->mesh.size[a];

        if (size > 1)
            str_addf(out, "%s%s%s%d", before, mesh_axis_names[a], between, size);
    }
    if (p->etp)
        str_addf(out, "%setp%s%d", before, between, p->etp);
}

static void begin(struct script *s)
{
    const struct planned *p = s->p;
    const struct checkpoint *c = s->r->summary.checkpoint;
    const struct mesh *has = c && c->sharded ? &c->mesh : NULL;
    struct planned stored = *p;
    struct str parts = { 0 };

    s->nodes = (s->o->gpus + s->o->machine.per_node - 1) / s->o->machine.per_node;
    s->model = quote_dup(s->r->path);
    s->name = name_dup(s->r->path);
    s->title = quote_dup(s->name);
    s->family = xstrdup("");
    if (s->r->family && !has) { /* a checkpoint of tp-shard has its family */
        char *file = quote_dup(s->r->family);

        free(s->family);
        s->family = str_dupf(" --family %s", file);
        free(file);
    }
    if (s->r->config) {
        char *file = quote_dup(s->r->config), *both;

        both = str_dupf("%s --config %s", s->family, file);
        free(s->family);
        free(file);
        s->family = both;
    }
    s->reason = reason_dup(s);
    s->encoder = request_is_encoder(s->r);
    for (int a = 0; a < MESH_NAXES; a++) {
        if (a == MESH_SP || a == MESH_DP)
            stored.mesh.size[a] = 1; /* replicas share files */
        s->cut |= stored.mesh.size[a] != (has ? has->size[a] : 1);
    }
    s->cut |= c && s->r->memory.weights;
    if (s->o->start.train && !has)
        s->cut = false; /* tp-run shards it while loading */
    str_addf(&parts, "%s.", s->name);
    add_layout(&parts, &stored, "", "");
    if (s->r->memory.weights)
        str_addf(&parts, "%s%s", parts.s[parts.len - 1] == '.' ? "" : ".",
                 s->r->memory.weights->name);
    s->parts = s->cut ? quote_dup(parts.s) : xstrdup(s->model);
    str_clear(&parts);
}

static void end(struct script *s)
{
    str_clear(&s->out);
    free(s->reason);
    free(s->model);
    free(s->name);
    free(s->title);
    free(s->family);
    free(s->parts);
}

/* ---- the lines of the script ---- */

/* The estimate of the layout, as a comment. */
static void add_estimate(struct script *s)
{
    const struct planned *p = s->p;
    const struct memory_options *m = &s->o->start;

    str_addf(&s->out, "# mem-estimate %s", m->train ? "train" : "infer");
    if (m->framework)
        str_addf(&s->out, " --framework %s", framework_names[m->framework]);
    add_layout(&s->out, p, " --", " ");
    str_addf(&s->out,
             " --micro-batch %" PRIu64 " --micro-batches %" PRIu64 " --seq %" PRIu64,
             p->micro_batch, p->micro_batches, m->seq);
    if (s->r->memory.weights)
        str_addf(&s->out, " --weights %s", s->r->memory.weights->name);
    if (m->runtime != default_runtime(s->o->gpus))
        str_addf(&s->out, " --runtime %" PRIu64, m->runtime);
    if (m->train && p->mesh.size[MESH_PP] > 1)
        str_addf(&s->out, " --schedule %s", order_names[p->order.order]);
    if (m->train && order_interleaves(p->order.order))
        str_addf(&s->out, " --model-chunks %d", p->order.chunks);
    if (p->zero)
        str_addf(&s->out, " --zero %d", p->zero);
    if (p->hsdp)
        str_addf(&s->out, " --hsdp %d", p->hsdp);
    if (p->recompute)
        str_addf(&s->out, " --recompute %s", recompute_names[p->recompute]);
    if (offload_word(m))
        str_addf(&s->out, " --offload %s", offload_names[offload_word(m)]);
    if (m->train && m->optimizer != OPTIMIZER_ADAMW)
        str_addf(&s->out, " --optimizer %s", optimizer_names[m->optimizer]);
    if (m->train && !m->flash)
        str_add(&s->out, " --flash off");
    if (p->sequence_parallel)
        str_add(&s->out, " --sequence-parallel");
    str_addf(&s->out, "%s %s\n", s->family, s->model);
}

static void add_comments(struct script *s)
{
    const struct planned *p = s->p;
    const char *device = s->r->gpu        ? s->r->gpu->name
                         : s->r->measured ? s->r->measured->name
                                          : "measured devices";
    char size[32];

    if (s->reason && !emit_framework(s->format))
        str_addf(&s->out, "# estimate-only: %s\n", s->reason);
    str_addf(&s->out, "# %s on %d x %s:", s->name, s->o->gpus, device);
    if (p->mesh.nranks == 1)
        str_add(&s->out, " one rank");
    add_layout(&s->out, p, " ", " ");
    str_addf(&s->out, "; batch %" PRIu64 ", %" PRIu64 " tokens each\n",
             s->o->global_batch, s->o->start.seq);
    str_addf(&s->out,
             "# predicted: %s a rank at most, %.4g s a step, %.4g tokens/s there\n",
             str_human(size, p->memory), p->step.seconds, p->tokens);
    if (s->r->gpu_memory &&
        (double)p->memory > (double)s->r->gpu_memory * (1 - s->r->margin))
        str_addf(&s->out, "# tight: less than %g %% of the memory is left\n",
                 100 * s->r->margin);
    add_estimate(s);
    if (!s->reason && !emit_framework(s->format))
        str_add(&s->out,
                "# tp-run computes on GPUs if it can use them, else on CPUs; the times "
                "are of the devices planned for\n");
}

/* The tp-shard command that makes the checkpoint. */
static void add_cut(struct script *s, const char *model, const char *parts)
{
    const struct checkpoint *c = s->r->summary.checkpoint;
    const int *size = s->p->mesh.size;

    str_addf(&s->out, "tp-shard %s -q%s --tp %d --pp %d%s%s %s %s\n",
             c->sharded ? "reshard" : "split", s->family, size[MESH_TP], size[MESH_PP],
             s->r->memory.weights ? " --dtype " : "",
             s->r->memory.weights ? s->r->memory.weights->name : "", model, parts);
}

static const char *run_command(const struct script *s)
{
    return s->o->start.train ? "tp-run train"
           : s->encoder      ? "tp-run logits"
                             : "tp-run generate";
}

static void add_threads(struct script *s)
{
    if (s->format == EMIT_SLURM && s->r->job.cpus)
        str_addf(&s->out, " --threads %d", s->r->job.cpus);
}

static void add_training(struct script *s, const char *args, const char *model)
{
    const struct planned *p = s->p;
    struct planned shown = *p;

    if (s->format == EMIT_SLURM) /* the script counts its replicas */
        shown.mesh.size[MESH_DP] = 1;

    str_add(&s->out, run_command(s));
    add_threads(s);
    add_layout(&s->out, &shown, " --", " ");
    str_addf(&s->out, " --global-batch %" PRIu64 " --micro-batch %" PRIu64,
             s->o->global_batch, p->micro_batch);
    str_addf(&s->out, " --seq %" PRIu64, s->o->start.seq);
    if (p->recompute)
        str_addf(&s->out, " --recompute %s", recompute_names[p->recompute]);
    if (p->zero)
        str_addf(&s->out, " --zero %d", p->zero);
    if (p->hsdp)
        str_addf(&s->out, " --hsdp %d", p->hsdp);
    if (s->o->start.offload != OFFLOAD_NONE)
        str_addf(&s->out, " --offload %s", offload_names[s->o->start.offload]);
    if (s->o->start.framework == FRAMEWORK_TP_RUN &&
        s->o->start.compute_bytes == sizeof(uint16_t))
        str_addf(&s->out, " --compute %s", s->o->start.half ? "f16" : "bf16");
    if (s->o->start.optimizer != OPTIMIZER_ADAMW)
        str_addf(&s->out, " --optimizer %s", optimizer_names[s->o->start.optimizer]);
    if (p->mesh.size[MESH_PP] > 1)
        str_addf(&s->out, " --schedule %s", order_names[p->order.order]);
    if (!s->o->start.dropout &&
        launch_dropout(s->r, true) + launch_dropout(s->r, false) > 0)
        str_add(&s->out, " --dropout 0"); /* it was not planned */
    str_addf(&s->out, "%s %s %s\n", s->family, args, model);
}

/* The tp-run command; ARGS passes the script's arguments on. */
static void add_run(struct script *s, const char *args, const char *parts)
{
    const struct planned *p = s->p;
    int sp = p->mesh.size[MESH_SP], dp = p->mesh.size[MESH_DP];
    uint64_t texts = p->micro_batch * p->micro_batches;
    double heads;

    if (s->o->start.train) {
        add_training(s, args, parts);
        return;
    }
    str_add(&s->out, run_command(s));
    add_threads(s);
    if (dp > 1)
        str_addf(&s->out, " --dp %d", dp);
    if (sp > 1)
        str_addf(&s->out, " --sp %d", sp);
    if (sp > 1 && model_number(s->r->summary.model, "heads", &heads) &&
        heads < (double)sp * p->mesh.size[MESH_TP])
        str_add(&s->out, " --sp-mode ring");
    if (!s->encoder && texts > (uint64_t)p->mesh.size[MESH_PP])
        str_addf(&s->out, " --requests %" PRIu64, texts);
    str_addf(&s->out, "%s %s %s\n", s->cut ? "" : s->family, args, parts);
}

/* The command that starts ranks on several nodes. */
static void add_launcher(struct script *s, const char *hosts)
{
    if (s->format == EMIT_SLURM)
        str_add(&s->out, "srun --mpi=pmix --kill-on-bad-exit ");
    else
        str_addf(&s->out, "mpirun%s -n %d --map-by ppr:%d:node ", hosts, s->o->gpus,
                 s->o->machine.per_node);
}

static void add_reason(struct script *s)
{
    char *word = quote_dup(s->reason);

    str_add(&s->out, word);
    free(word);
}

/* ---- formats ---- */

/* True for a job that trains: it is queued again at its limit, and goes on. */
static bool is_requeued(const struct script *s)
{
    return s->format == EMIT_SLURM && s->o->start.train && !s->reason;
}

/* What such a job does before its command, and after. */
static void add_replicas(struct script *s)
{
    const int *size = s->p->mesh.size;
    int here =
        s->o->gpus < s->o->machine.per_node ? s->o->gpus : s->o->machine.per_node;

    str_addf(
        &s->out,
        "# on fewer nodes (scontrol update JobId=N NumNodes=M NumTasks=K NumCPUs=%dK) "
        "it "
        "goes on with fewer "
        "replicas\n"
        "dp=$((${SLURM_JOB_NUM_NODES:-%d} * %d / %d))\n"
        "[ $dp -ge 1 ] || { echo \"$0: too few nodes for %d ranks of a replica\" >&2; "
        "exit 2; }\n",
        s->r->job.cpus ? s->r->job.cpus : 1, s->nodes, here,
        size[MESH_TP] * size[MESH_PP], size[MESH_TP] * size[MESH_PP]);
}

/* Slurm never requeues a job that reaches its limit: the job asks for it, when its
 * training has saved what it has. */
static const char at_limit[] =
    "run=$!\n"
    "limit=\n"
    "trap 'limit=yes; kill -USR1 $run' USR1\n"
    "trap 'kill -TERM $run' TERM\n"
    "while status=0; wait $run || status=$?; kill -0 $run 2> /dev/null; do :; done\n"
    "[ -z \"$limit\" ] || [ $status -lt 128 ] || scontrol requeue \"$SLURM_JOB_ID\"\n"
    "exit $status\n";

/* Bytes of memory that a node's HERE ranks have on CPUs; on GPUs they need less. */
static uint64_t here_bytes(const struct script *s, int here)
{
    return (uint64_t)here * (s->p->memory + s->p->host);
}

static void add_job(struct script *s)
{
    int here =
        s->o->gpus < s->o->machine.per_node ? s->o->gpus : s->o->machine.per_node;

    str_addf(&s->out, "#SBATCH --job-name=%s\n#SBATCH --nodes=%d\n", s->title,
             s->nodes);
    if (!is_requeued(s))
        str_addf(&s->out, "#SBATCH --ntasks=%d\n", s->o->gpus);
    str_addf(&s->out, "#SBATCH --ntasks-per-node=%d\n", here);
    str_addf(&s->out, "#SBATCH --gpus-per-node=%d\n", here);
    if (s->r->job.cpus)
        str_addf(&s->out, "#SBATCH --cpus-per-task=%d\n", s->r->job.cpus);
    str_addf(&s->out, "#SBATCH --mem=%" PRIu64 "M\n",
             (here_bytes(s, here) + (1 << 20) - 1) >> 20);
    if (s->r->job.minutes)
        str_addf(&s->out, "#SBATCH --time=%" PRIu64 "\n", s->r->job.minutes);
    if (is_requeued(s))
        str_add(&s->out, "#SBATCH --requeue\n#SBATCH --open-mode=append\n"
                         "#SBATCH --signal=B:USR1@60\n");
}

static void emit_shell(struct script *s)
{
    str_add(&s->out, "#!/bin/sh\n");
    if (s->format == EMIT_SLURM)
        add_job(s);
    add_comments(s);
    if (s->reason) {
        str_add(&s->out, "printf '%s: estimate-only: %s\\n' \"$0\" ");
        add_reason(s);
        str_add(&s->out, " >&2\nexit 1\n");
        return;
    }
    str_addf(&s->out, "# arguments are those of '%s', such as --%s\nset -eu\n",
             run_command(s), s->o->start.train ? "data FILE -o RUN" : "prompt");
    if (s->cut) {
        str_addf(&s->out, "model=%s\nparts=%s\n", s->model, s->parts);
        str_add(&s->out, "[ -e \"$parts/checkpoint.json\" ] ||\n    ");
        add_cut(s, "\"$model\"", "\"$parts\"");
    } else {
        str_addf(&s->out, "parts=%s\n", s->parts);
    }
    if (is_requeued(s))
        add_replicas(s);
    else
        str_add(&s->out, "exec ");
    if (s->nodes > 1)
        add_launcher(s, "${HOSTFILE:+ --hostfile \"$HOSTFILE\"}");
    add_run(s, is_requeued(s) ? "--dp $dp --resume \"$@\"" : "\"$@\"",
            is_requeued(s) ? "\"$parts\" &" : "\"$parts\"");
    if (is_requeued(s))
        str_add(&s->out, at_limit);
}

static void emit_make(struct script *s)
{
    add_comments(s);
    if (s->reason) {
        str_add(&s->out, "generate:\n");
        str_add(&s->out, "\t@printf 'estimate-only: %s\\n' ");
        add_reason(s);
        str_add(&s->out, " >&2; exit 1\n");
        str_add(&s->out, ".PHONY: generate\n");
        return;
    }
    str_addf(&s->out, "# make -f FILE ARGS='--%s', as of '%s'\n",
             s->o->start.train ? "data FILE -o RUN" : "prompt TEXT", run_command(s));
    if (s->cut)
        str_addf(&s->out, "MODEL = %s\n", s->model);
    str_addf(&s->out, "PARTS = %s\nARGS =\n", s->parts);
    if (s->nodes > 1)
        str_add(&s->out, "HOSTFILE =\n");
    str_addf(&s->out, "%s:%s\n\t", s->o->start.train ? "train" : "generate",
             s->cut ? " $(PARTS)/checkpoint.json" : "");
    if (s->nodes > 1)
        add_launcher(s, "$(if $(HOSTFILE), --hostfile $(HOSTFILE))");
    add_run(s, "$(ARGS)", "$(PARTS)");
    if (s->cut) {
        str_add(&s->out, "$(PARTS)/checkpoint.json:\n\t");
        add_cut(s, "$(MODEL)", "$(PARTS)");
    }
    str_addf(&s->out, ".PHONY: %s\n", s->o->start.train ? "train" : "generate");
}

/* True if a script can contain PATH: make cannot quote its own special characters. */
static bool can_name(const char *path, enum emit_format format)
{
    for (const char *c = path; *c; c++)
        if ((unsigned char)*c < ' ' ||
            (format == EMIT_MAKE && strchr(" #$%:=;|&<>()*?[]{}~'\"`\\", *c)))
            return false;
    return true;
}

int emit_plan(struct str *out, const struct planned *p, const struct planner_options *o,
              const struct request *r, enum emit_format format, struct err *err)
{
    struct script s = { .p = p, .o = o, .r = r, .format = format };
    int ret = 0;

    if (!can_name(r->path, format) || (r->family && !can_name(r->family, format)))
        return err_set(err, ERR_USAGE, "--emit %s: it cannot name '%s'",
                       emit_names[format],
                       can_name(r->path, format) ? r->family : r->path);
    begin(&s);
    if (emit_framework(format)) {
        add_comments(&s);
        ret = launch_plan(out, p, o, r, str_text(&s.out), err);
    } else if (!o->start.train || (ret = check_training(&s, err)) == 0) {
        if (format == EMIT_MAKE)
            emit_make(&s);
        else
            emit_shell(&s);
        str_addn(out, str_text(&s.out), s.out.len);
    }
    end(&s);
    return ret;
}
