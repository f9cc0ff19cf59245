/* embed - prints embeddings of texts */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/tp-run/commands.h"
#include "cmd/tp-run/outputs.h"
#include "cmd/tp-run/pooling.h"
#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/output.h"
#include "lib/base/str.h"
#include "lib/ckpt/npy.h"
#include "lib/ckpt/safetensors.h"

static const char *const pooling_names[] = { "mean", "cls", "last", "pooler", NULL };

struct embed {
    struct session *session;
    struct inputs inputs;
    const char *out;
    struct pooling pooling;
    float *vector; /* [inputs][cols], with --output; on rank 0 */
    size_t cols;
};

/* Runs on the rank that has the rows of a text. */
static void pool(void *arg, size_t at, const float *x, size_t rows, size_t cols,
                 float *room)
{
    const struct embed *e = arg;

    (void)at;
    pooling_apply(&e->pooling, x, rows, cols, room);
}

static void print_vector(const struct embed *e, size_t at, const float *x, size_t cols)
{
    const struct input *in = &e->inputs.v[at];
    struct str out = { 0 };
    char number[32];

    if (e->session->opt.json) {
        str_add(&out, "{\"type\":\"embedding\"");
        inputs_add_place(&out, in);
        str_addf(&out, ",\"tokens\":%zu,\"embedding\":[", in->ids.n);
    }
    for (size_t c = 0; c < cols; c++) {
        snprintf(number, sizeof(number), "%.9g", (double)x[c]);
        if (!isfinite(x[c]) && e->session->opt.json)
            snprintf(number, sizeof(number), "null");
        str_addf(&out, "%s%s", !c ? "" : e->session->opt.json ? "," : " ", number);
    }
    str_add(&out, e->session->opt.json ? "]}\n" : "\n");
    fputs(str_text(&out), stdout);
    str_clear(&out);
}

static int take(void *arg, size_t at, const float *x, size_t rows, size_t cols,
                struct err *err)
{
    struct embed *e = arg;

    (void)rows;
    if (!e->out) {
        if (x)
            print_vector(e, at, x, cols);
        else if (e->session->opt.json)
            inputs_print_bad(&e->inputs, at);
        else
            putchar('\n');
        return fflush(stdout) < 0 ? err_errno(err, "standard output") : 0;
    }
    if (!e->vector) {
        e->vector = mem_alloc(e->inputs.n * cols * sizeof(*e->vector) + 1, e->out, err);
        if (!e->vector)
            return -1;
        e->cols = cols;
    }
    for (size_t c = 0; c < cols; c++)
        e->vector[at * cols + c] = x ? x[c] : NAN;
    return 0;
}

static int write_vectors(const struct embed *e, struct err *err)
{
    struct safetensors_header h = { 0 };
    uint64_t shape[2] = { e->inputs.n, e->cols };
    size_t size = e->inputs.n * e->cols * sizeof(*e->vector);
    char *bytes = NULL;
    int ret = -1;

    safetensors_header_begin(&h, NULL);
    safetensors_header_add(&h, "embeddings", DTYPE_F32, 2, shape, size);
    if (safetensors_header_finish(&h, e->out, err) == 0)
        bytes = mem_alloc(h.text.len + size, e->out, err);
    if (bytes) {
        memcpy(bytes, h.text.s, h.text.len);
        memcpy(bytes + h.text.len, e->vector, size);
        ret = output_write(e->out, bytes, h.text.len + size, false, err);
    }
    safetensors_header_clear(&h);
    free(bytes);
    return ret;
}

/* Writes the vectors to E->out by its name: .npy or .safetensors. */
static int write_output(const struct embed *e, struct err *err)
{
    const uint64_t shape[2] = { e->inputs.n, e->cols };

    return npy_is(e->out) ? npy_write(e->out, shape, e->vector, err)
                          : write_vectors(e, err);
}

static const char *output_name(const struct embed *e)
{
    return e->pooling.kind == POOL_POOLER ? "pooler_output" : "last_hidden_state";
}

static int embed_rank(void *arg, struct comm *comm, struct err *err)
{
    struct embed *e = arg;
    struct outputs o = { .session = e->session,
                         .inputs = &e->inputs,
                         .name = output_name(e),
                         .reduce = pool,
                         .done = take,
                         .arg = e };
    int ret = outputs_run(&o, comm, err);

    if (ret == 0 && comm->rank == 0 && e->out)
        ret = write_output(e, err);
    free(e->vector);
    return ret;
}

/* As ASKED (.kind < 0: not at all), or as the model says. */
static int choose_pooling(struct embed *e, const struct pooling *asked, struct err *err)
{
    e->pooling = *asked;
    if (asked->kind >= 0)
        return 0;
    if (pooling_read(&e->pooling, e->session->checkpoint->home, err) < 0)
        return -1;
    e->pooling.normalize |= asked->normalize;
    return 0;
}

int embed_main(const char *program, int argc, char **argv)
{
    struct session_options opt = SESSION_DEFAULTS;
    struct session session = { 0 };
    struct embed e = { .session = &session };
    struct given given = { 0 };
    bool skip = false;
    struct pooling asked = { .kind = -1 };
    const struct opt opts[] = {
        { OPT_CHOICE, '\0', "pooling", &asked.kind, "HOW",
          "mean, cls, last (token), or the model's pooler", pooling_names, NULL },
        { OPT_FLAG, '\0', "normalize", &asked.normalize, NULL,
          "scale vectors to length 1", NULL, NULL },
        { OPT_LIST, '\0', "input", &given.lines, "FILE",
          "a text in each line of FILE (text, or JSON)", NULL, NULL },
        INPUT_FORMAT_OPTION(e.inputs),
        INPUT_INVALID_OPTION(e.inputs),
        { OPT_FLAG, '\0', "skip-empty", &skip, NULL, NULL, NULL, NULL },
        { OPT_STRING, 'p', "prompt", &given.prompt, "TEXT", "this text", NULL, NULL },
        { OPT_STRING, '\0', "ids", &given.ids, "LIST", NULL, NULL, NULL },
        { OPT_STRING, 'o', "output", &e.out, "FILE",
          "write the vectors to FILE.npy, or FILE.safetensors", NULL, NULL },
        SESSION_OPTIONS(opt),
        { .type = OPT_END },
    };
    const struct cmd cmd = { .name = "embed",
                             .program = program,
                             .own_page = true,
                             .synopsis = "[OPTION]... CHECKPOINT",
                             .summary = "Print a vector for each text",
                             .opts = opts,
                             .min_args = 1,
                             .max_args = 1 };
    char **operand = cmd_parse(&cmd, argc, argv);
    struct err err = { 0 };
    int status;

    e.inputs.keeps_empty = !skip;
    if (e.out && !npy_is(e.out) && !str_ends(e.out, ".safetensors") &&
        strchr(fs_basename(e.out), '.'))
        return cmd_usage(&cmd, "--output: %s ends neither in .npy nor in .safetensors",
                         e.out);
    if (session_open(&session, &cmd, &opt, operand[0], &err) < 0 ||
        choose_pooling(&e, &asked, &err) < 0)
        status = cmd_fail(&cmd, &err);
    else
        status = outputs_main(&session, &e.inputs, &given, output_name(&e), NULL,
                              embed_rank, &e, &err);
    inputs_clear(&e.inputs);
    session_close(&session);
    return status;
}
