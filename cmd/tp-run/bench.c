/* bench - measures this machine: memory and matrix rates, a model's parts, the links of
 * ranks */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/tp-run/benchcomm.h"
#include "cmd/tp-run/commands.h"
#include "cmd/tp-run/session.h"
#include "lib/base/clock.h"
#include "lib/base/codes.h"
#include "lib/base/mem.h"
#include "lib/base/output.h"
#include "lib/cpu/machine.h"
#include "lib/estimate/torch.h"
#include "lib/pipe/calibration.h"
#include "lib/pipe/order.h"
#include "lib/pipe/simulate.h"
#include "lib/program/cost.h"
#include "lib/run/rates.h"
#include "lib/train/trainer.h"

enum {
    MOST_TOKENS = 512,
    PING = 1 << 23, /* bytes of a long message */
    PINGS = 20,     /* short ones */
    PER_STAGE = 4,  /* micro-batches per stage in the run with stages */
};

struct bench {
    struct session *session;
    uint64_t tokens;
    int repeat;
    bool train;
    const char *out;
    bool collectives; /* only these */
    struct calibration c;
    struct device_rates rates; /* of a device that measures itself */
    bool rounded;              /* products of many rows are of bf16 */
    enum format type;          /* of the weights of most products */
    /* the part being timed */
    const struct runner *runner;
    double *seconds; /* [nlayers + 2] of this step */
    double since;
    int part;
    /* the run with pipeline stages */
    int micro_batches;
    double measured, simulated;
};

/* ---- the parts of the model ---- */

static void see(void *arg, int part)
{
    struct bench *b = arg;
    struct err late = { 0 }; /* a device error is reported at the end of the step */
    double t;

    if (b->runner->ops->wait(b->runner->device, &late) < 0)
        return;
    t = clock_seconds();
    if (b->part >= 0)
        b->seconds[b->part] += t - b->since;
    b->part = part;
    b->since = t;
}

/* Runs a step of N tokens at position START. */
static int step(struct runner *r, const int32_t *ids, size_t n, size_t start,
                struct err *err)
{
    struct segment s = { .input = { [FEED_IDS] = ids }, .n = n, .start = start };
    int32_t last = (int32_t)n - 1;

    s.wanted = &last;
    s.nwanted = 1;
    if (r->program->source && start == 0)
        segment_source(&s, r->program, ids, n);
    return engine_step(r->engine, &s, 1, err);
}

/* Times the parts in steps of N tokens at START; LEAST gets the minimum of several
 * runs. */
static int time_parts(struct bench *b, struct runner *r, const int32_t *ids, size_t n,
                      size_t start, double *least, struct err *err)
{
    int parts = b->c.nlayers + 2;

    for (int k = 0; k <= b->repeat; k++) { /* the first run warms up */
        memset(b->seconds, 0, (size_t)parts * sizeof(*b->seconds));
        b->part = -1;
        if (step(r, ids, n, start, err) < 0)
            return -1;
        for (int i = 0; i < parts && k > 0; i++)
            if (k == 1 || b->seconds[i] < least[i])
                least[i] = b->seconds[i];
    }
    return 0;
}

/* The cost of this rank's program: FLOPs of a step of TOKENS, and bytes of weights read
 * for one more token. */
static void fold(const struct runner *r, uint64_t tokens, double *flops, double *bytes)
{
    double *each = xcalloc((size_t)r->weights.n + 1, sizeof(*each));
    struct cost_step prefill = cost_prompt((double)tokens), decode = cost_token(1);
    struct cost all, one;

    for (int i = 0; i < r->weights.n; i++)
        each[i] = encode_width(&r->weights.matrix[i]);
    decode.each = each;
    all = cost_program(r->program, &prefill);
    one = cost_program(r->program, &decode);
    *flops = all.products + all.attention;
    *bytes = one.weights;
    free(each);
}

/* Adds the work of INST in step S, counted as mem-estimate does: operations that
 * PyTorch does not execute move no bytes. */
static void add_inst(struct calibrated_work *w, const struct program *p,
                     const struct inst *inst, const struct cost_step *s)
{
    struct cost c = cost_of(p, inst, s);

    w->products += c.products;
    w->attention += c.attention;
    w->weights += c.weights;
    if (torch_usual(inst).free || inst->parts)
        return;
    w->values += c.sharded + c.whole;
    w->instructions++;
}

/* The work of the program's parts. */
static void fold_parts(const struct runner *r, const struct cost_step *s,
                       struct calibrated_work *work)
{
    const struct program *p = r->program;

    for (int i = 0; i < p->ninsts; i++) {
        const struct value *v = &p->value[p->inst[i].dst];

        add_inst(&work[model_part(p->model, v->section, v->layer)], p, &p->inst[i], s);
    }
}

/* The work of the reverse of P; a weight's gradient is moved like a weight. */
static struct calibrated_work fold_reverse(const struct program *p, double tokens)
{
    struct cost_step s = cost_prompt(tokens);
    struct calibrated_work sum = { 0 };

    s.rows[ROWS_WANTED] = s.rows[ROWS_TOKENS]; /* every token has a loss */
    for (int i = p->nforward; i < p->ninsts; i++) {
        const struct value *v = &p->value[p->inst[i].dst];

        s.rows[ROWS_ONE] = !v->gradient;
        add_inst(&sum, p, &p->inst[i], &s);
        if (v->gradient)
            sum.weights += 2 * (double)sizeof(float) * (double)v->cols;
    }
    return sum;
}

/* The type of most elements of R's weights. */
static enum format matrix_type(const struct runner *r)
{
    uint64_t of[FORMAT_COUNT] = { 0 };
    enum format most = FORMAT_F32;

    for (int i = 0; i < r->weights.n; i++)
        of[r->weights.matrix[i].format] +=
            r->program->weight[i].rows * r->program->weight[i].cols;
    for (int t = 0; t < FORMAT_COUNT; t++)
        if (of[t] > of[most])
            most = (enum format)t;
    return most;
}

/* Adds the parts' work to the file; only if every rank has all tokens of a step. */
static int add_work(struct bench *b, const struct runner *r, struct err *err)
{
    size_t parts = (size_t)b->c.nlayers + 2;
    struct calibrated_work *work = xcalloc(parts * 2, sizeof(*work));
    double *each = xcalloc((size_t)r->weights.n + 1, sizeof(*each));
    struct cost_step step = cost_prompt((double)b->tokens);
    struct cost_step token = cost_token((double)b->tokens + 1);
    int ret;

    for (int i = 0; i < r->weights.n; i++)
        each[i] = encode_width(&r->weights.matrix[i]);
    step.each = token.each = each;
    token.whole = false;
    fold_parts(r, &step, work);
    fold_parts(r, &token, work + parts);
    ret = bench_largest(r->world, (double *)work,
                        parts * 2 * sizeof(*work) / sizeof(double), err);
    for (size_t i = 0; i < parts; i++) {
        b->c.part[i].step = work[i];
        b->c.part[i].token = work[parts + i];
    }
    step.rows[ROWS_WANTED] = step.rows[ROWS_TOKENS]; /* every token has a loss */
    memset(work, 0, parts * sizeof(*work));
    fold_parts(r, &step, work);
    for (size_t i = 1; i < parts && ret == 0; i++)
        for (size_t k = 0; k < sizeof(*work) / sizeof(double); k++)
            ((double *)work)[k] += ((const double *)&work[i])[k];
    if (ret == 0)
        ret = bench_largest(r->world, (double *)work, sizeof(*work) / sizeof(double),
                            err);
    b->c.training.work = work[0];
    b->c.works = r->groups.sequence->size == 1;
    b->c.memory = r->ops->memory(r->device);
    snprintf(b->c.weights, sizeof(b->c.weights), "%s",
             dtype_name(format_dtype(matrix_type(r))));
    free(each);
    free(work);
    return ret;
}

static double sum(const struct calibration *c, bool prefill)
{
    double total = 0;

    for (int i = 0; i < c->nlayers + 2; i++)
        total += prefill ? c->part[i].prefill : c->part[i].decode;
    return total;
}

static int measure_parts(struct bench *b, struct runner *r, const int32_t *ids,
                         struct err *err)
{
    int parts = b->c.nlayers + 2;
    double *times = xcalloc((size_t)parts * 2, sizeof(*times));
    double rates[4], all[4];
    int at_once, ret = -1;

    b->runner = r;
    engine_watch(r->engine, see, b);
    if (time_parts(b, r, ids, b->tokens, 0, times, err) < 0 ||
        time_parts(b, r, ids, 1, b->tokens, times + parts, err) < 0)
        goto out;
    engine_watch(r->engine, NULL, NULL);
    if (bench_largest(r->world, times, (size_t)parts * 2, err) < 0)
        goto out;
    for (int i = 0; i < parts; i++)
        b->c.part[i] =
            (struct calibrated){ .prefill = times[i], .decode = times[parts + i] };
    fold(r, b->tokens, &rates[0], &rates[1]);
    rates[2] = b->c.memory_read;
    rates[3] = b->c.product;
    memcpy(all, rates, sizeof(all));
    if (comm_run(r->world, comm_all_reduce_f64(all, 4), err) < 0)
        goto out;
    /* the mean over the ranks */
    b->c.memory_read = all[2] / r->world->size;
    b->c.product = all[3] / r->world->size;
    /* ranks of a sequence group share a step's tokens, but each reads all weights */
    at_once = r->groups.tensor->size * r->groups.sequence->size * r->nreplicas;
    b->c.prefill_share =
        all[0] / r->groups.sequence->size / sum(&b->c, true) / (b->c.product * at_once);
    b->c.decode_share = all[1] / sum(&b->c, false) / (b->c.memory_read * at_once);
    ret = 0;
out:
    free(times);
    return ret;
}

/* ---- training ---- */

/* Times training steps with learning rate 0 on one sample of B's tokens per replica;
 * takes the minimum. */
static int measure_training(struct bench *b, struct comm *world, const int32_t *ids,
                            struct err *err)
{
    struct session *session = b->session;
    int copies = session->mesh.size[MESH_DP];
    const struct trainer_options options = {
        .length = (size_t)b->tokens,
        .micro_batch = 1,
        .global = copies,
        .order = ORDER_1F1B,
        .optimizer = { .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .decay = 0.01 }
    };
    struct sample *sample = xcalloc((size_t)copies, sizeof(*sample));
    struct trainer_result result;
    struct trainer t;
    int ret;

    for (int i = 0; i < copies; i++)
        sample[i] = (struct sample){ .id = ids, .target = ids, .n = (size_t)b->tokens };
    ret = trainer_open(&t, session->checkpoint, &session->mesh, &session->machine,
                       world, &options, err);
    if (ret < 0)
        goto out;
    for (int k = 0; k <= b->repeat && ret == 0; k++) { /* the first warms up */
        double start = clock_seconds(), took;

        ret = trainer_step(&t, sample, 0, &result, err);
        took = clock_seconds() - start;
        if (k == 1 || (k && took < b->c.training.seconds))
            b->c.training.seconds = took;
    }
    b->c.training.reverse = fold_reverse(t.stage->program, (double)b->tokens);
    for (int k = 0; k < t.stage->parameters.slots; k++)
        b->c.training.states += (double)t.stage->parameters.size[k] * sizeof(float);
    trainer_close(&t);
    if (ret == 0)
        ret = bench_largest(world, &b->c.training.seconds, 1, err);
    if (ret == 0)
        ret = bench_largest(world, &b->c.training.states, 1, err);
    if (ret == 0)
        ret = bench_largest(world, (double *)&b->c.training.reverse,
                            sizeof(struct calibrated_work) / sizeof(double), err);
out:
    free(sample);
    return ret;
}

/* ---- messages ---- */

/* Sends N bytes back and forth between the first two ranks; seconds of one
 * direction. */
static int ping(struct comm *c, char *buf, size_t n, int times, double *one_way,
                struct err *err)
{
    double start = clock_seconds();

    for (int i = 0; i < times && c->rank < 2; i++) {
        if (c->rank == 0 && (c->ops->send(c, buf, n, 1, err) < 0 ||
                             c->ops->receive(c, buf, n, 1, err) < 0))
            return -1;
        if (c->rank == 1 && (c->ops->receive(c, buf, n, 0, err) < 0 ||
                             c->ops->send(c, buf, n, 0, err) < 0))
            return -1;
    }
    *one_way = (clock_seconds() - start) / times / 2;
    return comm_run(c, comm_broadcast(one_way, sizeof(*one_way), 0), err);
}

static int measure_messages(struct bench *b, struct comm *c, struct err *err)
{
    double seconds, least = 0;
    char *buf;
    int ret;

    if (c->size == 1)
        return 0;
    buf = xcalloc(1, PING);
    ret = ping(c, buf, 8, PINGS, &seconds, err);
    if (ret == 0)
        ret = ping(c, buf, 8, PINGS, &b->c.latency, err);
    for (int i = 0; i < 3 && ret == 0; i++) {
        ret = ping(c, buf, PING, 2, &seconds, err);
        least = i == 0 || seconds < least ? seconds : least;
    }
    b->c.bandwidth = least > 0 ? PING / least : 0;
    free(buf);
    return ret;
}

/* ---- a run with stages, and its simulation ---- */

static int run_stages(struct bench *b, struct runner *r, const int32_t *ids,
                      struct err *err)
{
    double start;
    char done = 0;
    int ret = 0;

    b->micro_batches = PER_STAGE * r->nstages;
    for (int k = 0; k < 2; k++) { /* the first run warms up */
        if (comm_run(r->world, comm_all_reduce(&(float){ 0 }, 1), err) < 0)
            return -1;
        start = clock_seconds();
        for (int i = 0; i < b->micro_batches && ret == 0; i++)
            ret = step(r, ids, b->tokens, 0, err);
        if (ret < 0 || runner_send(r, r->nstages - 1, &done, 1, err) < 0 ||
            runner_receive(r, 0, r->nstages - 1, &done, 1, err) < 0)
            return -1;
        for (int i = 1; i < r->nreplicas; i++)
            if (runner_receive(r, i, r->nstages - 1, &done, 1, err) < 0)
                return -1;
        b->measured = clock_seconds() - start;
    }
    return 0;
}

/* Simulates this with the parts' times: the forward passes of a schedule that runs all
 * of them first. */
static int simulate(struct bench *b, struct err *err)
{
    const struct mesh *mesh = &b->session->mesh;
    int pp = mesh->size[MESH_PP], first, count;
    double *forward = xcalloc((size_t)pp, sizeof(*forward));
    double *none = xcalloc((size_t)pp, sizeof(*none));
    struct pipe_times times = { .forward = forward,
                                .input = none,
                                .weight = none,
                                .bandwidth = b->c.bandwidth,
                                .message_bytes = b->c.message };
    struct action_table t;
    struct pipe_result result;
    int ret = -1;

    for (int s = 0; s < pp; s++) {
        mesh_stage(mesh, b->c.nlayers, s, &first, &count);
        for (int i = first; i < first + count; i++)
            forward[s] += b->c.part[1 + i].prefill;
    }
    forward[0] += b->c.part[0].prefill;
    forward[pp - 1] += b->c.part[b->c.nlayers + 1].prefill;
    if (order_make(&t, ORDER_GPIPE, pp, b->micro_batches, 1, err) < 0)
        goto out;
    /* without the messages of gradients */
    ret = pipe_simulate(&result, &t, &times, err);
    if (ret == 0) {
        b->simulated = 0;
        for (int a = 0; a < b->micro_batches; a++) {
            double end = result.start[pp - 1][a] + forward[pp - 1];

            b->simulated = end > b->simulated ? end : b->simulated;
        }
        pipe_result_clear(&result);
    }
    action_table_clear(&t);
out:
    free(forward);
    free(none);
    return ret;
}

/* ---- results ---- */

static void print_times(const struct bench *b)
{
    const struct calibration *c = &b->c;
    char size[32];

    printf("memory      %.4g GB/s read, ", c->memory_read / 1e9);
    if (c->decode_share > 1) /* more than memory gives comes from elsewhere */
        puts("which decoding exceeds: the weights fit in a cache");
    else
        printf("of which decoding uses %.0f %%\n", 100 * c->decode_share);
    printf("products    %.4g GFLOP/s, of which a step of %llu tokens reaches %.0f %%\n",
           c->product / 1e9, (unsigned long long)c->tokens, 100 * c->prefill_share);
    if (b->rates.read > 0) {
        printf("kernels     %s; products of f32 %.4g GFLOP/s",
               machine_kernels(b->rounded, b->type), b->rates.f32 / 1e9);
        if (b->rates.bf16 > 0)
            printf(", of bf16 %.4g", b->rates.bf16 / 1e9);
        if (b->rates.int8 > 0)
            printf(", of int8 %.4g", b->rates.int8 / 1e9);
        if (b->rates.int8 > 0 && format_is_coded(b->type) && !b->rounded)
            printf(", of which the step reaches %.0f %%",
                   100 * c->prefill_share * c->product / b->rates.int8);
        putchar('\n');
    }
    if (c->latency > 0)
        printf("messages    %.3g ms, %s/s\n", 1e3 * c->latency,
               str_human(size, (uint64_t)c->bandwidth));
    printf("%-11s %12s %12s\n", "part", "step, ms", "token, ms");
    for (int i = 0; i < c->nlayers + 2; i++) {
        char name[32] = "begin";

        if (i > c->nlayers)
            snprintf(name, sizeof(name), "end");
        else if (i)
            snprintf(name, sizeof(name), "layer %d", i - 1);
        printf("%-11s %12.4g %12.4g\n", name, 1e3 * c->part[i].prefill,
               1e3 * c->part[i].decode);
    }
    if (c->training.seconds > 0)
        printf("training    %.4g ms a step of %llu tokens\n", 1e3 * c->training.seconds,
               (unsigned long long)c->tokens);
    if (b->micro_batches)
        printf("%d steps over %d stages: %.4g ms measured, %.4g ms simulated\n",
               b->micro_batches, b->session->mesh.size[MESH_PP], 1e3 * b->measured,
               1e3 * b->simulated);
}

/* Prints TEXT, an object of several lines, on one line. */
static void print_line(const char *text)
{
    for (const char *p = text; *p; p++)
        if (*p != '\n')
            putchar(*p);
    putchar('\n');
}

static void print_stages(const struct bench *b)
{
    printf("{\"type\":\"stages\",\"stages\":%d,\"micro_batches\":%d,\"measured\":%.9g,"
           "\"simulated\":%.9g}\n",
           b->session->mesh.size[MESH_PP], b->micro_batches, b->measured, b->simulated);
}

static int report(struct bench *b, struct err *err)
{
    bool json = b->session->opt.json, printed = b->out && !strcmp(b->out, "-");
    struct str text = { 0 };
    int ret = 0;

    calibration_print(&text, &b->c);
    if (b->out)
        ret = output_write(b->out, text.s, text.len, false, err);
    if (ret == 0 && !printed && json)
        print_line(text.s);
    else if (ret == 0 && !printed)
        print_times(b);
    if (ret == 0 && json && b->micro_batches)
        print_stages(b);
    str_clear(&text);
    if (fflush(stdout) < 0)
        return err_errno(err, "standard output");
    return ret;
}

/* Measures this rank's device.  A rank with bf16 products is compared with those. */
static int measure_machine(struct bench *b, const struct runner *r, struct err *err)
{
    const enum format type = matrix_type(r);
    const bool rounded =
        r->program->rounded && (type == FORMAT_BF16 || format_is_coded(type));

    if (!r->ops->rates)
        return rates_measure(r->ops, r->device, r->program->rounded, &b->c.memory_read,
                             &b->c.product, err);
    if (r->ops->rates(r->device, &b->rates, err) < 0)
        return -1;
    b->rounded = rounded;
    b->type = type;
    b->c.memory_read = b->rates.read;
    b->c.product = rounded && b->rates.bf16 > 0 ? b->rates.bf16 : b->rates.f32;
    return 0;
}

static double message_bytes(const struct runner *r, uint64_t tokens)
{
    double cols = 0, hidden = 0;

    for (int i = 0; i < r->program->nexports; i++)
        cols += (double)r->program->value[r->program->export[i]].cols;
    if (cols == 0 && model_number(r->program->model, "hidden", &hidden))
        cols = hidden;
    return cols * (double)tokens * sizeof(float);
}

static int measure(struct bench *b, struct runner *r, struct err *err)
{
    int32_t *ids = xcalloc(b->tokens + 1, sizeof(*ids));
    double vocab = 2;
    int ret = -1;

    model_number(r->program->model, "vocab", &vocab);
    for (uint64_t i = 0; i < b->tokens; i++)
        ids[i] = (int32_t)(i * 7919 % (uint64_t)vocab);
    b->c.message = message_bytes(r, b->tokens);
    if (measure_machine(b, r, err) < 0 ||
        bench_largest(r->world, &b->c.message, 1, err) < 0 ||
        measure_parts(b, r, ids, err) < 0 || add_work(b, r, err) < 0 ||
        measure_messages(b, r->world, err) < 0)
        goto out;
    if (r->nstages > 1 && (run_stages(b, r, ids, err) < 0 || simulate(b, err) < 0))
        goto out;
    if (b->train && measure_training(b, r->world, ids, err) < 0)
        goto out;
    ret = r->world->rank == 0 ? report(b, err) : 0;
out:
    free(ids);
    return ret;
}

/* Does the model have logits?  An encoder without a head has outputs that the family
 * names. */
static bool has_logits(const struct session *s, const struct program_options *options)
{
    const int origin[MESH_NAXES] = { 0 };
    struct err no = { 0 };
    struct program *p;

    if (program_build(&p, s->checkpoint->model, &s->mesh, origin, options, &no) < 0)
        return false;
    program_free(p);
    return true;
}

/* The program that is timed. */
static struct program_options options_of(const struct bench *b)
{
    struct program_options options = { .tail = TAIL_ARGMAX, .wanted = true },
                           none = { 0 };

    if (!has_logits(b->session, &options))
        options = none;
    options.deterministic = b->session->opt.same_bits;
    options.rounded = b->session->opt.compute == COMPUTE_BF16;
    return options;
}

static int choose_backend(const struct bench *b, struct err *err)
{
    const struct program_options options[] = {
        options_of(b), { .tail = TAIL_NLL, .reverse = true, .training = true }
    };

    return session_choose(b->session, options, b->train ? 2 : 1, err);
}

static int bench_rank(void *arg, struct comm *comm, struct err *err)
{
    struct bench *b = arg;
    const struct model *m = b->session->checkpoint->model;
    const struct program_options options = options_of(b);
    struct engine_limits limits = { .tokens = (size_t)b->tokens,
                                    .wanted = 1,
                                    .source = (size_t)b->tokens,
                                    .context = (size_t)b->tokens + 1 };
    struct runner r;
    int ret;

    if (runner_open(&r, b->session->checkpoint, &b->session->mesh, &b->session->machine,
                    comm, &options, &limits, err) < 0)
        return -1;
    if (b->collectives) {
        ret = runner_finish(
            &r, bench_collectives(&r, b->repeat, b->session->opt.json, err), err);
        runner_close(&r);
        return ret;
    }
    b->c.tokens = b->tokens;
    b->c.nlayers = model_layers(m);
    b->c.part = xcalloc((size_t)b->c.nlayers + 2, sizeof(*b->c.part));
    b->seconds = xcalloc((size_t)b->c.nlayers + 2, sizeof(*b->seconds));
    ret = measure(b, &r, err);
    free(b->seconds);
    calibration_clear(&b->c);
    ret = runner_finish(&r, ret, err);
    runner_close(&r);
    return ret;
}

int bench_main(const char *program, int argc, char **argv)
{
    struct session_options opt = SESSION_DEFAULTS;
    struct session session = { 0 };
    struct bench b = { .session = &session, .repeat = 5 };
    const struct opt opts[] = {
        { OPT_STRING, 'o', "output", &b.out, "FILE",
          "write the calibration file for plan and schedule", NULL, NULL },
        { OPT_U64, '\0', "tokens", &b.tokens, "N", "of a step (default: at most 512)",
          NULL, NULL },
        { OPT_FLAG, '\0', "train", &b.train, NULL, "time a step of training, too", NULL,
          NULL },
        { OPT_COUNT, '\0', "repeat", &b.repeat, "N", "time each N times (default 5)",
          NULL, NULL },
        { OPT_FLAG, '\0', "collectives", &b.collectives, NULL, NULL, NULL, NULL },
        SESSION_OPTIONS(opt),
        { .type = OPT_END },
    };
    const struct cmd cmd = { .name = "bench",
                             .program = program,
                             .own_page = true,
                             .synopsis = "[OPTION]... CHECKPOINT",
                             .summary =
                                 "Measure this machine with a model, part by part",
                             .opts = opts,
                             .min_args = 1,
                             .max_args = 1 };
    char **operand = cmd_parse(&cmd, argc, argv);
    struct err err = { 0 };
    int status;

    opt.no_choice = true;
    if (session_open(&session, &cmd, &opt, operand[0], &err) < 0 ||
        choose_backend(&b, &err) < 0) {
        status = cmd_fail(&cmd, &err);
    } else if (b.collectives && (b.out || session.mesh.nranks == 1)) {
        err_set(&err, ERR_USAGE,
                b.out ? "--collectives writes no --output"
                      : "--collectives: there is one rank only");
        status = cmd_fail(&cmd, &err);
    } else {
        uint64_t most = session.context ? session.context - 1 : MOST_TOKENS;

        if (!b.tokens)
            b.tokens = most < MOST_TOKENS ? most : MOST_TOKENS;
        if (session.context && b.tokens > most) {
            err_set(&err, ERR_INPUT, "--tokens %llu: the model takes %llu",
                    (unsigned long long)b.tokens, (unsigned long long)session.context);
            status = cmd_fail(&cmd, &err);
        } else {
            status = session_run(&session, bench_rank, &b);
        }
    }
    session_close(&session);
    return status;
}
