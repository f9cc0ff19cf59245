/* outputs - computes a model output for many inputs, and returns them in order */
#include "cmd/tp-run/outputs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/tp-run/named.h"
#include "lib/base/mem.h"
#include "lib/run/cache.h"
#include "lib/run/scheduler.h"

enum {
    STEP = 512, /* limits of a step with several inputs: tokens, */
    MOST = 32   /* and inputs */
};

int outputs_read_inputs(struct inputs *in, struct session *s, const struct given *g,
                        struct err *err)
{
    s->replaces = in->invalid == INVALID_REPLACE;
    if (g->ids && inputs_add_ids(in, s, "--ids", g->ids, err) < 0)
        return -1;
    if (g->prompt && g->pair &&
        inputs_add_pair(in, s, "--prompt", g->prompt, g->pair, err) < 0)
        return -1;
    if (g->prompt && !g->pair &&
        inputs_add_text(in, s, "--prompt", g->prompt, strlen(g->prompt), err) < 0)
        return -1;
    for (size_t i = 0; i < g->tensors.n; i++)
        if (inputs_add_tensors(in, s, g->tensors.v[i], err) < 0)
            return -1;
    for (size_t i = 0; i < g->lines.n; i++)
        if (inputs_add_lines(in, s, g->lines.v[i], err) < 0)
            return -1;
    return 0;
}

/* Each input is run in one step.  Short ones share a step, except with sequence
 * parallelism. */
struct engine_limits outputs_limits(const struct session *s, const struct inputs *in)
{
    const struct inputs_sizes sizes = inputs_sizes(in);
    struct engine_limits limits = {
        .segments = 1,
        .sequences = 1,
        .tokens = sizes.tokens < STEP ? sizes.tokens : STEP,
        .context = sizes.longest,
        .source = sizes.source,
    };

    if (limits.context > limits.tokens || s->mesh.size[MESH_SP] > 1)
        limits.tokens = limits.context;
    if (limits.tokens > limits.context) {
        limits.segments = limits.sequences = in->n < MOST ? in->n : MOST;
        limits.cache =
            cache_blocks(limits.tokens > limits.source ? limits.tokens : limits.source,
                         1, 0) *
            CACHE_BLOCK;
    }
    limits.sources = limits.source * limits.segments;
    limits.sources = limits.sources < sizes.sources ? limits.sources : sizes.sources;
    limits.wanted = limits.segments;
    inputs_limit(&sizes, &limits);
    return limits;
}

bool outputs_last(const struct session *s, const struct input *in, const float **made,
                  size_t *rows, size_t cols)
{
    const struct model *m = s->checkpoint->model;
    size_t last = in->ids.n;
    double yes, pad;

    if (!model_number(m, "at_last", &yes) || yes == 0)
        return false;
    if (*rows != in->ids.n)
        return true;
    if (model_number(m, "pad_token_id", &pad))
        while (last > 1 && (double)in->ids.v[last - 1] == pad)
            last--;
    *made += (last - 1) * cols;
    *rows = 1;
    return true;
}

int outputs_check_inputs(struct inputs *in, const struct session *s, struct err *err)
{
    double shifted = 0;

    (void)!model_number(s->checkpoint->model, "shifted", &shifted);
    if (inputs_use(in, s, shifted > 0 ? INPUT_SHIFTED : INPUT_GIVEN, err) < 0)
        return -1;
    for (size_t i = 0; i < in->n; i++) {
        const struct input *one = &in->v[i];

        if (one->bad || one->empty)
            continue;
        if (!one->ids.n)
            err_set(err, ERR_INPUT, "%s: no tokens", one->name);
        else if (s->context && one->ids.n > s->context)
            err_set(err, ERR_INPUT, "%s: %zu tokens, the model takes %llu", one->name,
                    one->ids.n, (unsigned long long)s->context);
        if (err->kind && inputs_refuse(in, s, i, err) < 0)
            return -1;
    }
    return 0;
}

int outputs_run_inputs(struct scheduler *s, const struct session *session,
                       const struct inputs *inputs, struct err *err)
{
    for (size_t i = 0; i < inputs->n; i++) {
        const struct input *in = &inputs->v[i];
        struct scheduler_text text = {
            .ids = in->ids.v, .n = in->ids.n, .adapter = in->adapter, .tag = i
        };
        uint64_t id;

        named_give(in, session, 0, text.input, text.rows);
        if (!in->bad && !in->empty && scheduler_submit(s, &text, &id, err) < 0)
            return -1;
    }
    return scheduler_run(s, err);
}

/* ---- on rank 0 ---- */

/* Passes the inputs whose outputs are known to done(), in order. */
static int hand_over(struct outputs *o, struct err *err)
{
    const struct program *p = o->runner->program;
    size_t cols = p->value[p->output[0].value].whole_cols;

    for (; o->next < o->inputs->n; o->next++) {
        size_t at = o->next;
        const struct input *in = &o->inputs->v[at];
        float *x = o->made[at];
        int ret;

        if (!x && !in->bad && !in->empty)
            break;
        ret = o->done(o->arg, at, x, o->nmade[at], cols, err);
        free(x);
        o->made[at] = NULL;
        if (ret < 0)
            return -1;
    }
    return 0;
}

/* Receives the output of an input, if another rank has made it. */
static int collect(void *arg, const struct scheduler_part *part, struct err *err)
{
    struct outputs *o = arg;
    struct runner *r = o->runner;
    const struct program *p = r->program;
    size_t cols = p->value[p->output[0].value].whole_cols;
    int stage = p->output[0].stage;
    uint64_t n;
    float *x;

    if (part->replica > 0 || stage > 0) {
        if (runner_receive(r, part->replica, stage, &n, sizeof(n), err) < 0)
            return -1;
        x = mem_alloc(n * cols * sizeof(*x) + 1, o->name, err);
        o->made[part->tag] = x;
        o->nmade[part->tag] = (size_t)n;
        if (!x ||
            runner_receive(r, part->replica, stage, x, n * cols * sizeof(*x), err) < 0)
            return -1;
    }
    return hand_over(o, err);
}

/* ---- on every rank ---- */

/* The number of rows of X[rows][cols] up to the first with a number that is NaN or
 * infinite, or 0.  A logit of -inf is a class that the model leaves out. */
static size_t bad_row(const float *x, size_t rows, size_t cols, bool logits)
{
    for (size_t i = 0; i < rows * cols; i++)
        if (!isfinite(x[i]) && !(logits && x[i] == -INFINITY))
            return i / cols + 1;
    return 0;
}

static int see(void *arg, const struct scheduler_part *part, struct err *err)
{
    struct outputs *o = arg;
    struct runner *r = o->runner;
    const struct program_output *out = &r->program->output[0];
    const struct value *v = &r->program->value[out->value];
    size_t at = (size_t)part->tag, rows, bad;
    bool logits = !strcmp(out->name, "logits");
    const float *made;
    float *room;
    uint64_t n;
    int ret;

    if (out->stage != r->stage)
        return 0;
    if (engine_output(part->engine, 0, &made, &rows, err) < 0)
        return -1;
    made = scheduler_rows(part, v->rows, made, v->whole_cols, &rows);
    if (logits)
        outputs_last(o->session, &o->inputs->v[at], &made, &rows, v->whole_cols);
    n = o->reduce ? 1 : rows;
    room = mem_alloc(n * v->whole_cols * sizeof(*room) + 1, o->name, err);
    if (!room)
        return -1;
    if (o->reduce)
        o->reduce(o->arg, at, made, rows, v->whole_cols, room);
    else
        memcpy(room, made, rows * v->whole_cols * sizeof(*room));
    bad = bad_row(room, (size_t)n, v->whole_cols, logits);
    if (bad) {
        bad = o->reduce ? bad_row(made, rows, v->whole_cols, logits) : bad;
        free(room);
        return inputs_not_finite(
            o->inputs, o->session, at, o->name,
            rows == o->inputs->v[at].ids.n && bad ? bad : o->inputs->v[at].ids.n, err);
    }
    if (r->world->rank == 0) {
        o->made[at] = room;
        o->nmade[at] = (size_t)n;
        return 0;
    }
    ret = runner_send(r, r->stage, &n, sizeof(n), err) < 0
              ? -1
              : runner_send(r, r->stage, room, n * v->whole_cols * sizeof(*room), err);
    free(room);
    return ret;
}

static int run_inputs(struct outputs *o, const struct engine_limits *limits,
                      struct err *err)
{
    const struct scheduler_options how = {
        .limits = limits, .see = see, .collect = collect, .arg = o
    };
    bool front = o->runner->world->rank == 0;
    struct scheduler *s;
    int ret;

    ret = scheduler_open(&s, o->runner, &how, err) < 0 ? -1
          : front ? outputs_run_inputs(s, o->session, o->inputs, err)
                  : scheduler_follow(s, err);
    if (ret == 0 && front)
        ret = hand_over(o, err);
    return scheduler_close(s, ret, err);
}

static struct program_options options_of(const struct session *s, const char *name)
{
    return (struct program_options){ .only = name,
                                     .deterministic = s->opt.same_bits,
                                     .rounded = s->opt.compute == COMPUTE_BF16 };
}

int outputs_main(struct session *s, struct inputs *in, const struct given *g,
                 const char *name, int (*check)(void *arg, struct err *err),
                 rank_main main, void *arg, struct err *err)
{
    const struct program_options options = options_of(s, name);
    int ret = 0;

    if (session_choose(s, &options, 1, err) < 0)
        return cmd_fail(s->cmd, err);
    if (launcher_is_front(&s->launcher)) {
        ret = outputs_read_inputs(in, s, g, err);
        if (ret == 0 && !g->ids && !g->prompt && !g->lines.n)
            ret = inputs_add_lines(in, s, "-", err);
        if (ret == 0)
            ret = outputs_check_inputs(in, s, err);
        if (ret == 0 && in->nempty && in->nempty == in->n)
            ret = err_set(err, ERR_INPUT, "%s: no line of text", in->v[0].name);
        if (ret == 0 && check)
            ret = check(arg, err);
    }
    if (inputs_share(in, s, ret, err) < 0)
        return cmd_fail(s->cmd, err);
    return in->nbad + in->nempty == in->n
               ? cmd_finish(s->cmd, ERR_INPUT)
               : inputs_status(in, session_run(s, main, arg));
}

int outputs_run(struct outputs *o, struct comm *comm, struct err *err)
{
    const struct program_options options = options_of(o->session, o->name);
    struct engine_limits limits = outputs_limits(o->session, o->inputs);
    struct runner r;
    int ret;

    if (runner_open(&r, o->session->checkpoint, &o->session->mesh, &o->session->machine,
                    comm, &options, &limits, err) < 0)
        return -1;
    o->runner = &r;
    o->made = xcalloc(o->inputs->n + 1, sizeof(*o->made));
    o->nmade = xcalloc(o->inputs->n + 1, sizeof(*o->nmade));
    ret = session_report(o->session, &r, comm, err);
    if (ret == 0)
        ret = run_inputs(o, &limits, err);
    for (size_t i = 0; i < o->inputs->n; i++)
        free(o->made[i]);
    free(o->made);
    free(o->nmade);
    ret = runner_finish(&r, ret, err);
    runner_close(&r);
    return ret;
}
