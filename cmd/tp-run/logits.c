/* logits - writes a model's outputs as safetensors */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/tp-run/commands.h"
#include "cmd/tp-run/inputs.h"
#include "cmd/tp-run/named.h"
#include "cmd/tp-run/outputs.h"
#include "cmd/tp-run/session.h"
#include "lib/base/mem.h"
#include "lib/base/output.h"
#include "lib/ckpt/npy.h"
#include "lib/ckpt/safetensors.h"
#include "lib/run/scheduler.h"

/* One output of the model for one input. */
struct result {
    char *name;
    uint64_t shape[2];
    float *x;
    bool traced; /* from --trace, not an output of the model */
};

struct logits {
    struct session *session;
    struct inputs inputs;
    const char *out, *trace;
    struct result *result; /* [nresults]: in the order of inputs; on rank 0 */
    size_t nresults;
    struct runner *runner;
};

/* ---- on rank 0 ---- */

static size_t result_bytes(const struct result *r)
{
    return r->shape[0] * r->shape[1] * sizeof(*r->x);
}

/* Writes the traced results, or the others, to PATH; "-" is standard output. */
static int write_results(const struct logits *l, const char *path, bool traced,
                         struct err *err)
{
    struct safetensors_header h = { 0 };
    uint64_t total = 0;
    char *bytes = NULL, *end;
    int ret = -1;

    safetensors_header_begin(&h, NULL);
    for (size_t i = 0; i < l->nresults; i++) {
        const struct result *r = &l->result[i];

        if (r->x && r->traced == traced)
            safetensors_header_add(&h, r->name, DTYPE_F32, 2, r->shape,
                                   result_bytes(r));
        total += r->traced == traced ? result_bytes(r) : 0;
    }
    if (safetensors_header_finish(&h, path, err) < 0)
        goto out;
    bytes = mem_alloc(h.text.len + total, path, err);
    if (!bytes)
        goto out;
    memcpy(bytes, h.text.s, h.text.len);
    end = bytes + h.text.len;
    for (size_t i = 0; i < l->nresults; i++) {
        const struct result *r = &l->result[i];

        if (!r->x || r->traced != traced)
            continue;
        memcpy(end, r->x, result_bytes(r));
        end += result_bytes(r);
    }
    ret = output_write(path, bytes, (size_t)(end - bytes), false, err);
out:
    safetensors_header_clear(&h);
    free(bytes);
    return ret;
}

/* Allocates output I of input AT, with ROWS rows. */
static int open_result(struct logits *l, const struct program *p, size_t at, int i,
                       uint64_t rows, float **x, size_t *bytes, struct err *err)
{
    const struct program_output *o = &p->output[i];
    struct result *r = &l->result[at * (size_t)p->noutputs + (size_t)i];

    r->name = l->inputs.n == 1 ? xstrdup(o->name) : str_dupf("%zu.%s", at, o->name);
    r->shape[0] = rows;
    r->shape[1] = p->value[o->value].whole_cols;
    r->traced = strchr(o->name, '.') != NULL;
    *bytes = r->shape[0] * r->shape[1] * sizeof(*r->x);
    *x = r->x = mem_alloc(*bytes, r->name, err);
    return r->x ? 0 : -1;
}

/* Receives the outputs of an input from other ranks. */
static int take_outputs(void *arg, const struct scheduler_part *part, struct err *err)
{
    struct logits *l = arg;
    struct runner *r = l->runner;
    const struct program *p = r->program;

    for (int i = 0; i < p->noutputs; i++) {
        int stage = p->output[i].stage;
        uint64_t rows;
        size_t bytes;
        float *x;

        if (part->replica == 0 && stage == 0)
            continue;
        if (runner_receive(r, part->replica, stage, &rows, sizeof(rows), err) < 0 ||
            open_result(l, p, (size_t)part->tag, i, rows, &x, &bytes, err) < 0 ||
            runner_receive(r, part->replica, stage, x, bytes, err) < 0)
            return -1;
    }
    return 0;
}

/* ---- on every rank ---- */

/* Sends this stage's outputs for an input to rank 0, which keeps its own. */
static int give_outputs(void *arg, const struct scheduler_part *part, struct err *err)
{
    struct logits *l = arg;
    struct runner *r = l->runner;
    const struct program *p = r->program;
    size_t at = (size_t)part->tag;

    for (int i = 0; i < p->noutputs; i++) {
        const struct value *v = &p->value[p->output[i].value];
        size_t rows, bytes;
        const float *made;
        uint64_t n;
        float *x;

        if (p->output[i].stage != r->stage)
            continue;
        if (engine_output(part->engine, i, &made, &rows, err) < 0)
            return -1;
        made = scheduler_rows(part, v->rows, made, v->whole_cols, &rows);
        if (!strcmp(p->output[i].name, "logits"))
            outputs_last(l->session, &l->inputs.v[at], &made, &rows, v->whole_cols);
        n = rows;
        if (r->world->rank == 0) {
            if (open_result(l, p, at, i, n, &x, &bytes, err) < 0)
                return -1;
            memcpy(x, made, bytes);
            continue;
        }
        bytes = rows * v->whole_cols * sizeof(*made);
        if (runner_send(r, r->stage, &n, sizeof(n), err) < 0 ||
            runner_send(r, r->stage, made, bytes, err) < 0)
            return -1;
    }
    return 0;
}

static int run_inputs(struct logits *l, struct runner *r,
                      const struct engine_limits *limits, struct err *err)
{
    const struct scheduler_options how = {
        .limits = limits, .see = give_outputs, .collect = take_outputs, .arg = l
    };
    bool front = r->world->rank == 0;
    struct scheduler *s;
    int ret;

    l->runner = r;
    if (front) {
        l->nresults = l->inputs.n * (size_t)r->program->noutputs;
        l->result = xcalloc(l->nresults + 1, sizeof(*l->result));
    }
    ret = scheduler_open(&s, r, &how, err) < 0 ? -1
          : front ? outputs_run_inputs(s, l->session, &l->inputs, err)
                  : scheduler_follow(s, err);
    return scheduler_close(s, ret, err);
}

static struct program_options options_of(const struct logits *l)
{
    return (struct program_options){ .trace = l->trace != NULL,
                                     .deterministic = l->session->opt.same_bits,
                                     .rounded =
                                         l->session->opt.compute == COMPUTE_BF16 };
}

static int choose_backend(const struct logits *l, struct err *err)
{
    const struct program_options options = options_of(l);

    return session_choose(l->session, &options, 1, err);
}

static int logits_rank(void *arg, struct comm *comm, struct err *err)
{
    struct logits *l = arg;
    const struct program_options options = options_of(l);
    struct engine_limits limits = outputs_limits(l->session, &l->inputs);
    struct runner r;
    int ret;

    if (runner_open(&r, l->session->checkpoint, &l->session->mesh, &l->session->machine,
                    comm, &options, &limits, err) < 0)
        return -1;
    ret = session_report(l->session, &r, comm, err);
    if (ret == 0 && npy_is(l->out) && (l->inputs.n > 1 || r.program->noutputs > 1))
        ret = err_set(err, ERR_USAGE,
                      "--output: %s holds one array, of %zu inputs with %d outputs; "
                      "name it .safetensors",
                      l->out, l->inputs.n, r.program->noutputs);
    if (ret == 0)
        ret = run_inputs(l, &r, &limits, err);
    if (ret == 0 && comm->rank == 0 && l->out)
        ret = npy_is(l->out)
                  ? npy_write(l->out, l->result[0].shape, l->result[0].x, err)
                  : write_results(l, l->out, false, err);
    if (ret == 0 && comm->rank == 0 && l->trace)
        ret = write_results(l, l->trace, true, err);
    ret = runner_finish(&r, ret, err);
    runner_close(&r);
    for (size_t i = 0; i < l->nresults; i++) {
        free(l->result[i].name);
        free(l->result[i].x);
    }
    free(l->result);
    return ret;
}

static int read_inputs(struct logits *l, const struct given *given, const char *types,
                       const char *source, struct err *err)
{
    const struct session *s = l->session;
    struct inputs *in = &l->inputs;
    struct ids kinds = { 0 };

    if (outputs_read_inputs(in, l->session, given, err) < 0)
        return -1;
    if (types && in->n &&
        (session_parse_types(s, &kinds, types, "--token-types", err) < 0 ||
         kinds.n != in->v[0].ids.n)) {
        if (!err->kind)
            err_set(err, ERR_USAGE, "--token-types has %zu numbers for %zu tokens",
                    kinds.n, in->v[0].ids.n);
        ids_clear(&kinds);
        return -1;
    }
    if (kinds.n)
        named_take(&in->v[0], FEED_TOKEN_TYPES, &kinds);
    if (source && in->n &&
        session_parse_ids(s, &in->v[0].source, source, "--source-ids", err) < 0)
        return -1;
    if (!in->n)
        return err_set(err, ERR_INPUT, "no tokens");
    return outputs_check_inputs(in, s, err);
}

int logits_main(const char *program, int argc, char **argv)
{
    struct session_options opt = SESSION_DEFAULTS;
    struct session session = { 0 };
    struct logits l = { .session = &session };
    const char *types = NULL, *source = NULL;
    struct given given = { 0 };
    const struct opt opts[] = {
        { OPT_STRING, '\0', "ids", &given.ids, "LIST", "the tokens, such as 1,2,3",
          NULL, NULL },
        { OPT_STRING, 'p', "prompt", &given.prompt, "TEXT", "the tokens as text", NULL,
          NULL },
        INPUT_TENSORS_OPTION(given),
        { OPT_STRING, '\0', "token-types", &types, "LIST", NULL, NULL, NULL },
        { OPT_LIST, '\0', "input", &given.lines, "FILE",
          "the tokens of each line of FILE (text, or JSON)", NULL, NULL },
        INPUT_FORMAT_OPTION(l.inputs),
        INPUT_INVALID_OPTION(l.inputs),
        { OPT_STRING, '\0', "source-ids", &source, "LIST",
          "the source, for models that read one", NULL, NULL },
        { OPT_STRING, 'o', "output", &l.out, "FILE",
          "write the outputs to FILE (safetensors, .npy)", NULL, NULL },
        { OPT_STRING, '\0', "trace", &l.trace, "FILE", NULL, NULL, NULL },
        SESSION_OPTIONS(opt),
        { .type = OPT_END },
    };
    const struct cmd cmd = {
        .name = "logits",
        .program = program,
        .own_page = true,
        .synopsis = "[OPTION]... -o FILE CHECKPOINT",
        .summary = "Write a model's outputs for some tokens as safetensors",
        .opts = opts,
        .min_args = 1,
        .max_args = 1
    };
    char **operand = cmd_parse(&cmd, argc, argv);
    struct err err = { 0 };
    int status;

    if (!l.out && !l.trace)
        return cmd_usage(&cmd, "--output or --trace is needed");
    if (npy_is(l.trace))
        return cmd_usage(&cmd, "--trace: writes many arrays; name it .safetensors");
    if (npy_is(l.out) && l.trace)
        return cmd_usage(&cmd, "--output: with --trace, name it .safetensors");
    if (!!given.ids + !!given.prompt + !!given.lines.n + !!given.tensors.n != 1)
        return cmd_usage(&cmd, "one of --ids, --prompt, --input and --input-tensors is "
                               "needed");
    if ((types || source) && !given.ids && !given.prompt)
        return cmd_usage(&cmd,
                         "--token-types and --source-ids go with --ids or --prompt");
    if (session_open(&session, &cmd, &opt, operand[0], &err) < 0 ||
        choose_backend(&l, &err) < 0 ||
        inputs_share(&l.inputs, &session,
                     launcher_is_front(&session.launcher)
                         ? read_inputs(&l, &given, types, source, &err)
                         : 0,
                     &err) < 0)
        status = cmd_fail(&cmd, &err);
    else if (l.inputs.nbad == l.inputs.n)
        status = cmd_finish(&cmd, ERR_INPUT);
    else
        status = inputs_status(&l.inputs, session_run(&session, logits_rank, &l));
    inputs_clear(&l.inputs);
    session_close(&session);
    return status;
}
