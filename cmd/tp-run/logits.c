/* logits - write a model's outputs as safetensors */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/tp-run/commands.h"
#include "cmd/tp-run/session.h"
#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/ckpt/safetensors.h"

struct logits {
    struct session *session;
    struct ids ids, types;
    const char *out, *trace;
};

/* Write the outputs whose names have a dot (a trace's) or have none to PATH; "-" is
 * standard output. */
static int write_outputs(const struct runner *r, const char *path, bool dotted,
                         struct err *err)
{
    const struct program *p = r->program;
    struct safetensors_header h = { 0 };
    struct str bytes = { 0 };
    int ret = -1;

    safetensors_header_begin(&h, NULL);
    for (int i = 0; i < p->noutputs; i++) {
        uint64_t shape[2] = { 0, p->value[p->output[i].value].whole_cols };
        size_t rows;

        if ((strchr(p->output[i].name, '.') != NULL) != dotted)
            continue;
        engine_output(r->engine, i, &rows);
        shape[0] = rows;
        safetensors_header_add(&h, p->output[i].name, DTYPE_F32, 2, shape,
                               shape[0] * shape[1] * sizeof(float));
    }
    if (safetensors_header_finish(&h, path, err) < 0)
        goto out;
    str_addn(&bytes, h.text.s, h.text.len);
    for (int i = 0; i < p->noutputs; i++) {
        size_t rows;
        const float *x = engine_output(r->engine, i, &rows);

        if ((strchr(p->output[i].name, '.') != NULL) == dotted)
            str_addn(&bytes, x,
                     rows * p->value[p->output[i].value].whole_cols * sizeof(*x));
    }
    ret = fs_write_file(path, bytes.s, bytes.len, false, err);
out:
    safetensors_header_clear(&h);
    str_clear(&bytes);
    return ret;
}

static int logits_rank(void *arg, struct comm *comm, struct err *err)
{
    struct logits *l = arg;
    struct program_options options = { .trace = l->trace != NULL };
    struct engine_limits limits = { .threads = session_threads(l->session),
                                    .tokens = l->ids.n,
                                    .wanted = 1,
                                    .context = l->ids.n };
    struct step step = { .ids = l->ids.v,
                         .token_types = l->types.n ? l->types.v : NULL,
                         .n = l->ids.n };
    struct runner r;
    int ret;

    if (runner_open(&r, l->session->checkpoint, &l->session->mesh, comm, &options,
                    &limits, err) < 0)
        return -1;
    ret = session_report(l->session, &r, comm, err);
    if (ret == 0)
        ret = engine_step(r.engine, &step, err);
    if (ret == 0 && comm->rank == 0 && l->out)
        ret = write_outputs(&r, l->out, false, err);
    if (ret == 0 && comm->rank == 0 && l->trace)
        ret = write_outputs(&r, l->trace, true, err);
    runner_close(&r);
    return ret;
}

static int read_input(struct logits *l, const char *ids, const char *types,
                      const char *prompt, struct err *err)
{
    const struct session *s = l->session;

    if (ids && session_parse_ids(s, &l->ids, ids, "--ids", err) < 0)
        return -1;
    if (types && session_parse_types(s, &l->types, types, "--token-types", err) < 0)
        return -1;
    if (prompt && session_encode(s, &l->ids, prompt, strlen(prompt), err) < 0)
        return -1;
    if (!l->ids.n)
        return err_set(err, ERR_INPUT, "no tokens");
    if (l->types.n && l->types.n != l->ids.n)
        return err_set(err, ERR_USAGE, "--token-types has %zu numbers for %zu tokens",
                       l->types.n, l->ids.n);
    if (s->context && l->ids.n > s->context)
        return err_set(err, ERR_INPUT, "%zu tokens, the model takes %llu", l->ids.n,
                       (unsigned long long)s->context);
    return 0;
}

int logits_main(const char *program, int argc, char **argv)
{
    struct session_options opt = { 0 };
    struct session session = { 0 };
    struct logits l = { .session = &session };
    const char *ids = NULL, *types = NULL, *prompt = NULL;
    const struct opt opts[] = {
        { OPT_STRING, '\0', "ids", &ids, "LIST", "the tokens, such as 1,2,3", NULL,
          NULL },
        { OPT_STRING, '\0', "prompt", &prompt, "TEXT", "the tokens as text", NULL,
          NULL },
        { OPT_STRING, '\0', "token-types", &types, "LIST",
          "a type for each token (default 0)", NULL, NULL },
        { OPT_STRING, 'o', "output", &l.out, "FILE",
          "write the outputs to FILE (safetensors)", NULL, NULL },
        { OPT_STRING, '\0', "trace", &l.trace, "FILE",
          "write the value of every line to FILE", NULL, NULL },
        SESSION_OPTIONS(opt),
        { .type = OPT_END },
    };
    const struct cmd cmd = {
        .name = "logits",
        .program = program,
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
    if (!ids == !prompt)
        return cmd_usage(&cmd, "either --ids or --prompt is needed");
    if (session_open(&session, &cmd, &opt, operand[0], &err) < 0 ||
        read_input(&l, ids, types, prompt, &err) < 0)
        status = cmd_fail(&cmd, &err);
    else
        status = session_run(&session, logits_rank, &l);
    ids_clear(&l.ids);
    ids_clear(&l.types);
    session_close(&session);
    return status;
}
