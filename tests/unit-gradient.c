/* unit-gradient - the reverse of every small causal model, and of two stacks
 *
 * What each tensor's gradient is, by PyTorch in float64, stands in data/gradients.tsv
 * (oracle/make-gradients.py says what is in it).  Every layout gives it, to the bit
 * over threads; and along a direction it is the difference of the losses on both
 * sides.  So it is where elements are dropped, which every layout drops alike.  What is
 * recomputed has the same bits, in less memory. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "lib/base/fs.h"
#include "lib/base/json.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/run/launch.h"
#include "lib/run/runner.h"
#include "lib/train/ties.h"
#include "tests/tap.h"

enum { MOST = 256, SHARED = 1 << 26, SUMS = 4 };

/* What the ranks share. */
struct shared {
    double loss;
    uint64_t arena; /* bytes of rank 0's activations */
    bool refused;
    size_t at[4096]; /* of each tensor's gradient in x, plus 1; 0: not made */
    float x[];
};

struct job {
    struct checkpoint *c;
    struct mesh mesh;
    const int32_t *ids;
    int across;         /* ranks that exchange heads */
    size_t n, begin;    /* tokens; a rank of threads THREADS */
    bool encodes;       /* an encoder, whose targets are those of make-gradients.py */
    const void *source; /* of two stacks: NSOURCE ids, or features */
    size_t nsource;
    int threads;
    bool divided;               /* tokens over tp, between products */
    bool differences, absorbed; /* the lines that training does not run */
    double dropout;
    uint64_t seed, token; /* of it */
    struct recompute_plan recompute;
    struct shared *out;
};

static double sign(uint64_t i, unsigned k)
{
    uint32_t h = (uint32_t)(i * 0x9E3779B1u + k * 0x85EBCA77u);

    h ^= h >> 15;
    h *= 0x2C1B3C6Du;
    return h >> 31 ? -1 : 1;
}

static size_t place(size_t n, unsigned k)
{
    return (size_t)((k * 7919u + 13u) * 104729ull % n);
}

/* ---- one rank ---- */

struct rank {
    const struct job *job;
    struct program *program;
    struct device *device;
    struct parameters params;
    struct gradients gradients;
    struct ties ties;
    struct engine *engine;
    struct engine_groups groups;
    int32_t target[MOST];
    size_t counted; /* targets that are none but -1 */
};

/* The labels: the next ids, or of an encoder those of every third token, or of the
 * text. */
static size_t find_targets(const struct rank *r, int32_t *target)
{
    const struct job *job = r->job;
    double classes = 0, text = 0;
    size_t counted = 0;

    if (job->encodes && !(model_number(job->c->model, "lm", &classes) && classes))
        text = model_number(job->c->model, "tag", &text) && text ? 0 : 1;
    (void)!model_number(job->c->model, classes > 0 ? "vocab" : "labels", &classes);
    for (size_t i = 0; i < job->n; i++) {
        if (!job->encodes)
            target[i] = i + 1 < job->n ? job->ids[i + 1] : -1;
        else if (text > 0)
            target[i] = i + 1 < job->n ? -1 : 3 % (int32_t)classes;
        else
            target[i] = i % 3 ? -1 : (int32_t)(i * 7 + 3) % (int32_t)classes;
        counted += target[i] >= 0;
    }
    return counted;
}

/* Ranks of ep have the same tokens here, too. */
static struct gradients_replicas replicas_of(const struct rank *r)
{
    return (struct gradients_replicas){ .sharing = r->groups.sequence,
                                        .experts = r->groups.expert->size > 1
                                                       ? r->groups.expert
                                                       : NULL };
}

static int open_rank(struct rank *r, const struct job *job, struct comm *world,
                     struct err *err)
{
    struct program_options options = { .tail = TAIL_NLL,
                                       .reverse = true,
                                       .training = !job->absorbed,
                                       .sequence = job->divided,
                                       .recompute = job->recompute,
                                       .dropout = job->dropout };
    struct engine_limits limits = { .tokens = job->n,
                                    .context = job->n,
                                    .source = job->nsource };
    int coord[MESH_NAXES];

    *r = (struct rank){ .job = job,
                        .groups = { .across = job->across, .trains = true } };
    mesh_coord(&job->mesh, world->rank, coord);
    if (runner_group(&r->groups.tensor, world, &job->mesh, coord, MESH_TP, err) < 0 ||
        runner_group(&r->groups.sequence, world, &job->mesh, coord, MESH_SP, err) < 0 ||
        runner_group(&r->groups.expert, world, &job->mesh, coord, MESH_EP, err) < 0 ||
        runner_group(&r->groups.pipe, world, &job->mesh, coord, MESH_PP, err) < 0)
        return -1;
    if (program_build(&r->program, job->c->model, &job->mesh, coord, &options, err) <
        0) {
        job->out->refused |= err->kind == ERR_NO;
        return -1;
    }
    if (backend_cpu.open(&r->device, job->threads, 0, err) < 0 ||
        parameters_open(&r->params, job->c, r->program, &backend_cpu, r->device,
                        OPTIMIZER_SGD, (struct parameters_owner){ .size = 1 },
                        err) < 0 ||
        ties_find(&r->ties, (struct parameters *const[]){ &r->params }, 1,
                  r->groups.pipe, r->groups.pipe->size, err) < 0 ||
        gradients_open(&r->gradients, &r->params, &r->groups, replicas_of(r), 0, err) <
            0 ||
        engine_open(&r->engine, r->program, &backend_cpu, r->device, r->params.matrix,
                    &r->groups, &limits, err) < 0)
        return -1;
    r->counted = find_targets(r, r->target);
    engine_differentiate(
        r->engine, r->gradients.into,
        (const float[STEP_FACTORS]){
            1 / (float)(r->counted * (size_t)r->groups.expert->size) });
    engine_drop(r->engine, job->seed);
    return 0;
}

static void close_rank(struct rank *r)
{
    struct comm *all[] = { r->groups.tensor, r->groups.sequence, r->groups.expert,
                           r->groups.pipe };

    engine_free(r->engine);
    ties_close(&r->ties);
    gradients_close(&r->gradients);
    parameters_close(&r->params);
    backend_cpu.close(r->device);
    program_free(r->program);
    for (int i = 0; i < 4; i++)
        if (all[i])
            all[i]->ops->close(all[i]);
}

/* Run the ids; the mean likelihood of their targets, where it is made. */
static int step(struct rank *r, bool reverse, double *loss, struct err *err)
{
    const struct job *job = r->job;
    struct segment s = {
        .input = { job->ids }, .targets = r->target, .n = job->n, .token = job->token
    };
    const float *nll;
    size_t rows;

    if (job->nsource)
        segment_source(&s, r->program, job->source, job->nsource);
    if (engine_forward(r->engine, &s, 1, err) < 0)
        return -1;
    if (r->program->output[0].stage == r->program->coord[MESH_PP] &&
        r->groups.sequence->rank == 0) {
        if (engine_output(r->engine, 0, &nll, &rows, err) < 0)
            return -1;
        *loss = 0;
        for (size_t i = 0; i < rows; i++)
            if (r->target[rows == 1 ? job->n - 1 : i] >= 0)
                *loss += (double)nll[i] / (double)r->counted;
    }
    return reverse ? engine_reverse(r->engine, err) : 0;
}

struct giving {
    float *here, *whole;
};

static void give_run(void *arg, size_t here, size_t whole, size_t n, bool owned)
{
    const struct giving *g = arg;

    if (owned)
        memcpy(g->whole + whole, g->here + here, n * sizeof(float));
}

/* Rank 0 of all lays the tensors out: every rank knows all of the model's. */
static void give(struct rank *r)
{
    for (int i = 0; i < r->program->nweights; i++) {
        size_t tensor = r->program->weight[i].tensor;
        struct giving g = { r->params.row[i].gradient,
                            r->job->out->x + r->job->out->at[tensor] - 1 };

        if (g.here) /* not of what is frozen */
            parameters_runs(&r->params, i, give_run, &g);
    }
}

/* Moves what is trained by H along the direction, or adds the gradient along it to
 * *ALONG and its square to *SIZE. */
static void move(struct rank *r, float h, double *along, double *size)
{
    uint64_t at = 0;

    for (int w = 0; w < r->program->nweights; w++) {
        const struct parameter *p = &r->params.row[w];

        for (uint64_t i = 0; i < p->n && p->trained; i++, at++) {
            p->weight[i] += h * (float)sign(at, 9);
            if (along) {
                *along += sign(at, 9) * (double)p->gradient[i];
                *size += (double)p->gradient[i] * (double)p->gradient[i];
            }
        }
    }
}

/* The loss along a direction, on both sides of where it is. */
static int difference(struct rank *r, double *found, double *wanted, double *size,
                      struct err *err)
{
    const float h = 3e-4f;
    size_t n = (size_t)r->params.n;
    float *old = xmalloc(n * sizeof(*old) + 1);
    double loss[2];
    int ret = 0;

    memcpy(old, r->params.weight, n * sizeof(*old));
    *wanted = *size = 0;
    move(r, 0, wanted, size);
    *size = sqrt(*size);
    for (int side = 0; side < 2 && ret == 0; side++) {
        move(r, side ? h : -h, NULL, NULL);
        ret = step(r, false, &loss[side], err);
        memcpy(r->params.weight, old, n * sizeof(*old));
    }
    *found = (loss[1] - loss[0]) / (2 * (double)h);
    free(old);
    return ret;
}

static int run_rank(void *arg, struct comm *world, struct err *err)
{
    const struct job *job = arg;
    struct rank r;
    double found, wanted, size, loss = -1;
    int ret = -1;

    if (open_rank(&r, job, world, err) < 0 || step(&r, true, &loss, err) < 0 ||
        gradients_sum(&r.gradients, err) < 0 ||
        ties_sum(&r.ties, (struct gradients *const[]){ &r.gradients }, 1, err) < 0)
        goto out;
    if (loss >= 0)
        job->out->loss = loss;
    if (world->rank == 0) {
        struct ledger list = { 0 };

        engine_memory(r.engine, &list);
        job->out->arena = ledger_of(&list, "activations");
    }
    give(&r);
    ret = 0;
    if (job->differences && !r.program->nmixtures) { /* a choice jumps */
        if (difference(&r, &found, &wanted, &size, err) < 0)
            ret = -1;
        else if (!(fabs(found - wanted) <
                   (job->nsource || job->encodes ? 0.08 : 0.04) * size + 3e-3))
            ret = err_set(err, ERR_INPUT, "%.6g along a direction, not %.6g (of %.3g)",
                          wanted, found, size);
    }
out:
    close_rank(&r);
    return ret;
}

/* ---- one model ---- */

struct line {
    char name[40], tensor[200];
    size_t n;
    double most, sum[SUMS], some[SUMS];
};

static bool read_line(FILE *f, struct line *l)
{
    char text[600];

    return fgets(text, sizeof(text), f) &&
           sscanf(text, "%39s %199s %zu %lf %lf %lf %lf %lf %lf %lf %lf %lf", l->name,
                  l->tensor, &l->n, &l->most, &l->sum[0], &l->sum[1], &l->sum[2],
                  &l->sum[3], &l->some[0], &l->some[1], &l->some[2], &l->some[3]) == 12;
}

/* The list KEY; 0 without it. */
static int read_list(const char *path, const char *key, int32_t *ids)
{
    char *file = fs_join_dup(path, "expected.json"), *text;
    struct json_doc doc;
    struct err err;
    size_t size;
    int n = 0;

    if (fs_read_file(&text, &size, file, 1 << 24, &err) < 0)
        abort();
    if (json_parse(&doc, file, text, size, &err) < 0)
        abort();
    for (const struct json *list = json_get(doc.root, key),
                           *j = list ? list->first : NULL;
         j && n < MOST; j = j->next) {
        double x;

        json_double(j, &x);
        ids[n++] = (int32_t)x;
    }
    json_clear(&doc);
    free(text);
    free(file);
    return n;
}

/* The ids of an encoder, with commas between them. */
static int read_own(const char *path, int32_t *ids)
{
    char *file = fs_join_dup(path, "ids");
    FILE *f = fopen(file, "r");
    int n = 0;

    while (f && n < MOST && fscanf(f, "%d,", &ids[n]) == 1)
        n++;
    if (f)
        fclose(f);
    free(file);
    return n;
}

static int read_ids(const char *path, int32_t *ids)
{
    return read_list(path, "ids", ids);
}

/* Lay out room for every tensor; bytes in all. */
static void lay_out(struct shared *s, const struct model *m)
{
    size_t end = 0;

    memset(s->at, 0, sizeof(s->at));
    for (size_t i = 0; i < m->ntensors; i++) {
        size_t n = 1;

        for (int k = 0; k < m->tensor[i].ndim; k++)
            n *= (size_t)m->tensor[i].axis[k]->size;
        s->at[i] = end + 1;
        end += n;
    }
    if (end * sizeof(float) > SHARED - sizeof(*s))
        abort();
    memset(s->x, 0, end * sizeof(float));
}

/* How far the gradient is from what LINE says, in parts of its largest element, or of
 * LEAST: a key's bias moves nothing. */
static double distance(const struct line *l, double least, const float *x)
{
    double off = 0, sum[SUMS] = { 0 }, most = l->most > least ? l->most : least;

    for (size_t i = 0; i < l->n; i++)
        for (unsigned k = 0; k < SUMS; k++)
            sum[k] += sign(i, k) * (double)x[i];
    for (unsigned k = 0; k < SUMS; k++) {
        double a = fabs(sum[k] - l->sum[k]) / sqrt((double)l->n);
        double b = fabs((double)x[place(l->n, k)] - l->some[k]);

        off = !(a <= off) ? a : off;
        off = !(b <= off) ? b : off;
    }
    return off / most;
}

/* Recomputations to try, as bits. */
enum { ATTENTION = 1, FULL = 2, PRODUCTS = 4, FIRST = 8 };

static const struct layout {
    const char *name;
    int tp, pp, threads;
    bool absorbed;
    int again;
    int sp, across, ep;
    bool divided;
} layouts[] = {
    { "one rank", 1, 1, 1, false, ATTENTION | FULL | PRODUCTS | FIRST, 1, 1, 1, false },
    { "three threads", 1, 1, 3, false, 0, 1, 1, 1, false },
    { "tp 2", 2, 1, 1, false, PRODUCTS, 1, 1, 1, false },
    { "tp 3", 3, 1, 1, false, FULL, 1, 1, 1, false },
    { "pp 2", 1, 2, 1, false, 0, 1, 1, 1, false },
    { "tp 2 pp 2", 2, 2, 1, false, FULL, 1, 1, 1, false },
    { "one rank, lines of generation", 1, 1, 1, true, FULL, 1, 1, 1, false },
    { "tp 2, lines of generation", 2, 1, 1, true, 0, 1, 1, 1, false },
    { "sp 2", 1, 1, 1, false, FULL, 2, 2, 1, false },
    { "tp 2 sp 2 pp 2", 2, 2, 1, false, 0, 2, 2, 1, false },
    { "sp 3", 1, 1, 1, false, 0, 3, 3, 1, false },
    { "a ring of 2", 1, 1, 1, false, FULL, 2, 1, 1, false },
    { "a ring of 3, tp 2", 2, 1, 1, false, 0, 3, 1, 1, false },
    { "a ring of 2 pairs", 1, 1, 1, false, 0, 4, 2, 1, false },
    { "ep 2", 1, 1, 1, false, FULL, 1, 1, 2, false },
    { "ep 3", 1, 1, 1, false, 0, 1, 1, 3, false },
    { "ep 2 tp 2", 2, 1, 1, false, 0, 1, 1, 2, false },
    { "ep 2 sp 2", 1, 1, 1, false, 0, 2, 2, 2, false },
    { "tp 2 sp 2 pp 2, tokens divided", 2, 2, 1, false, PRODUCTS, 2, 2, 1, true },
};
static const struct {
    int bit;
    const char *text;
} ways[] = { { ATTENTION, "attention" },
             { FULL, "full" },
             { PRODUCTS, "products" },
             { FIRST, "1" } };

/* Compare with the lines of the model; the worst tensor's in *text. */
static double compare(const struct checkpoint *c, const struct shared *out,
                      const struct line *line, size_t n, char **text)
{
    double worst = 0, most = 0;

    for (size_t i = 0; i < n; i++)
        most = line[i].most > most ? line[i].most : most;
    free(*text);
    *text = NULL;
    for (size_t i = 0; i < n; i++) {
        long t = model_find(c->model, line[i].tensor);
        double off;

        if (t < 0 || c->model->tensor[t].frozen)
            continue; /* what no model reads, or no training changes */
        if (c->model->tensor[t].tied >= 0)
            t = c->model->tensor[t].tied;
        off = distance(&line[i], most * 1e-2, out->x + out->at[t] - 1);
        if (!(off <= worst) || !*text) {
            worst = off;
            free(*text);
            *text = str_dupf("%s is off by %.2g of the largest", line[i].tensor, off);
        }
    }
    return worst;
}

/* Runs JOB once more with each of the recomputations AGAIN; the END floats of the
 * gradients, and the loss, are to be what they are now. */
static void try_again(struct job *job, const char *name, const char *layout, int again,
                      size_t end)
{
    uint64_t arena = job->out->arena;
    double loss = job->out->loss;
    float *x = xmalloc(end * sizeof(float) + 1);
    struct err err = { .text = "" };
    bool less;
    int sig;

    memcpy(x, job->out->x, end * sizeof(float));
    job->differences = false;
    for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
        if (!(ways[i].bit & again))
            continue;
        memset(job->out->x, 0, end * sizeof(float));
        job->out->arena = UINT64_MAX;
        if (recompute_parse(&job->recompute, ways[i].text, &err) < 0 ||
            launch_ranks(job->mesh.nranks, run_rank, job, &sig, &err) < 0)
            printf("# %s\n", err.text);
        tap_ok(loss == job->out->loss && !memcmp(x, job->out->x, end * sizeof(float)),
               "%s on %s, recomputing %s: the same bits", name, layout, ways[i].text);
        less = ways[i].bit == FULL ? job->out->arena < arena : job->out->arena <= arena;
        if (job->mesh.size[MESH_PP] == 1 && /* stages of one layer have little input */
            !tap_ok(less, "%s on %s, recomputing %s: less memory", name, layout,
                    ways[i].text))
            printf("# %llu bytes, not %llu\n", (unsigned long long)job->out->arena,
                   (unsigned long long)arena);
    }
    job->recompute = (struct recompute_plan){ 0 };
    free(x);
}

/* There are fewer heads than ranks, or two stacks, which no ring can share. */
static bool refuses_to_share(const struct err *err)
{
    return err->kind == ERR_NO && (strstr(err->text, "share a sequence") ||
                                   strstr(err->text, "share the seq"));
}

static void try_layout(struct job *job, const struct layout *l, const struct line *line,
                       size_t n, float **one)
{
    int size[MESH_NAXES] = {
        [MESH_TP] = l->tp, [MESH_PP] = l->pp, [MESH_SP] = l->sp, [MESH_EP] = l->ep
    };
    const struct model *m = job->c->model;
    struct err err = { .text = "" };
    char *text = NULL;
    size_t end = 0;
    double off;
    int sig, ret;

    if (l->absorbed && !strstr(model_family_text(m), "training"))
        return;
    job->absorbed = l->absorbed;
    job->divided = l->divided;
    if (mesh_set(&job->mesh, size, NULL, &err) < 0 ||
        model_check_mesh(m, &job->mesh, &err) < 0)
        return;
    lay_out(job->out, m);
    for (size_t i = 0; i < m->ntensors; i++)
        end = job->out->at[i] > end ? job->out->at[i] : end;
    job->threads = l->threads;
    job->across = l->across;
    job->differences = job->mesh.nranks == 1 && l->threads == 1;
    job->out->refused = false;
    ret = launch_ranks(job->mesh.nranks, run_rank, job, &sig, &err);
    if (ret < 0 && l->sp > 1 && refuses_to_share(&err)) {
        printf("# %s on %s: %s\n", line->name, l->name, err.text);
        return;
    }
    if (ret < 0) {
        tap_ok(false, "%s on %s", line->name, l->name);
        printf("# %s\n", err.text);
        return;
    }
    off = compare(job->c, job->out, line, n, &text);
    /* of two stacks, f32 in PyTorch is up to 2.2e-5 off itself */
    if (!tap_ok(off < (strchr(line->name, '/') ? 2.5e-5 : 1e-5),
                "%s on %s: gradients as PyTorch's", line->name, l->name))
        printf("# %s\n", text ? text : "");
    free(text);
    if (l->threads > 1 && *one)
        tap_ok(!memcmp(*one, job->out->x, end * sizeof(float)),
               "%s: the same bits on more threads", line->name);
    if (!*one) {
        *one = xmalloc(end * sizeof(float) + 1);
        memcpy(*one, job->out->x, end * sizeof(float));
    }
    try_again(job, line->name, l->name, l->again, end);
}

/* ---- dropout ---- */

/* One run on layout L; floats of the gradients, 0 after a failure or where L does not
 * fit. */
static size_t run_dropped(struct job *job, const struct layout *l, const char *name)
{
    int size[MESH_NAXES] = {
        [MESH_TP] = l->tp, [MESH_PP] = l->pp, [MESH_SP] = l->sp, [MESH_EP] = l->ep
    };
    int sig;
    const struct model *m = job->c->model;
    struct err err = { .text = "" };
    size_t end = 0;

    if (mesh_set(&job->mesh, size, NULL, &err) < 0 ||
        model_check_mesh(m, &job->mesh, &err) < 0)
        return 0;
    lay_out(job->out, m);
    for (size_t i = 0; i < m->ntensors; i++)
        end = job->out->at[i] > end ? job->out->at[i] : end;
    job->threads = l->threads;
    job->across = l->across;
    job->differences = job->mesh.nranks == 1 && l->threads == 1;
    if (launch_ranks(job->mesh.nranks, run_rank, job, &sig, &err) < 0) {
        if (l->sp == 1 || !refuses_to_share(&err))
            tap_ok(false, "%s on %s, dropped: %s", name, l->name, err.text);
        return 0;
    }
    return end;
}

/* Models take the layouts but the first in turns; those of the other directories
 * (OTHER) fewer. */
static bool is_tried(size_t layout, size_t turn, bool other)
{
    return !layout || (layout + turn) % tap_one_of(other ? 4 : 2, 4) == 0;
}

static void try_dropout(struct job *job, const char *name)
{
    static size_t turn;
    float *one = NULL, *x = job->out->x;
    double loss = 0;
    size_t n = 0;

    job->dropout = 0.25;
    job->seed = 7;
    job->token = UINT64_C(1) << 40;
    turn++;
    for (size_t i = 0; i < sizeof(layouts) / sizeof(*layouts); i++) {
        double off = 0, most = 0;
        size_t end = is_tried(i, turn, false) ? run_dropped(job, &layouts[i], name) : 0;

        if (end && !one) {
            one = xmalloc(end * sizeof(float) + 1);
            memcpy(one, x, end * sizeof(float));
            loss = job->out->loss;
            n = end;
            tap_ok(true, "%s: with dropout the gradient is the loss's", name);
            try_again(job, name, "one rank, dropped", FULL, end);
            continue;
        }
        for (size_t k = 0; one && k < end; k++) {
            most = fmax(most, fabs((double)one[k]));
            off = fmax(off, fabs((double)one[k] - (double)x[k]));
        }
        if (end && layouts[i].threads > 1)
            tap_ok(!memcmp(one, x, n * sizeof(float)), "%s: on more threads its bits",
                   name);
        else if (end && !tap_ok(off < 1e-5 * most && fabs(job->out->loss - loss) < 1e-5,
                                "%s on %s: the same elements are dropped", name,
                                layouts[i].name))
            printf("# off by %.3g of %.3g, loss %.9g, not %.9g\n", off, most,
                   job->out->loss, loss);
    }
    job->token++;
    if (one && run_dropped(job, &layouts[0], name))
        tap_ok(job->out->loss != loss, "%s: others of other tokens", name);
    job->token--;
    job->seed++;
    if (one && run_dropped(job, &layouts[0], name))
        tap_ok(job->out->loss != loss, "%s: others of another seed", name);
    free(one);
}

/* Those whose lines drop in ways of their own. */
static const char *const dropped[] = {
    "llama-gqa",     "gpt2-untied",  "bigcode", "neox",        "neox-serial",
    "bloom",         "codegen",      "mpt",     "opt",         "opt-narrow",
    "falcon-groups", "falcon-alibi", "phi",     "phi3",        "gemma2",
    "deepseek-v2",   "mixtral",      "biogpt",  "gpt-neo",     "openai-gpt",
    "persimmon",     "stablelm",     "granite", "decoder-bert"
};

static void try_dropped(const char *models, const char *name, struct shared *out)
{
    char *path = fs_join_dup(models, name);
    struct checkpoint_options options = { 0 };
    struct err err = { .text = "" };
    int32_t ids[MOST];
    struct job job = { .ids = ids, .out = out };

    if (checkpoint_open(&job.c, path, &options, &err) < 0) {
        tap_ok(false, "%s: %s", name, err.text);
    } else {
        job.n = (size_t)read_ids(path, ids);
        try_dropout(&job, name);
        checkpoint_close(job.c);
    }
    free(path);
}

static void try_model(const char *models, const struct line *line, size_t n,
                      struct shared *out)
{
    static size_t turn;
    char *path = strchr(line->name, '/') ? str_dupf("%s/../%s", models, line->name)
                                         : fs_join_dup(models, line->name);
    struct checkpoint_options options = { 0 };
    struct err err = { .text = "" };
    int32_t ids[MOST], source[MOST];
    struct job job = { .ids = ids, .source = source, .out = out };
    float *one = NULL;

    if (checkpoint_open(&job.c, path, &options, &err) < 0) {
        tap_ok(false, "%s: %s", line->name, err.text);
        free(path);
        return;
    }
    job.encodes =
        !strncmp(line->name, "encoders/", 9) || !strncmp(line->name, "heads/", 6);
    job.n = (size_t)(job.encodes ? read_own(path, ids) : read_ids(path, ids));
    job.nsource = job.encodes ? 0 : (size_t)read_list(path, "source_ids", source);
    for (size_t i = 0; i < sizeof(layouts) / sizeof(*layouts); i++)
        if (is_tried(i, turn, strchr(line->name, '/')))
            try_layout(&job, &layouts[i], line, n, &one);
    turn++;
    free(one);
    checkpoint_close(job.c);
    free(path);
}

int main(int argc, char **argv)
{
    char *models = str_dupf("%s/tests/data/models", getenv("top_srcdir"));
    char *file = str_dupf("%s/tests/data/gradients.tsv", getenv("top_srcdir"));
    struct shared *out =
        mmap(NULL, SHARED, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    FILE *f = fopen(file, "r");
    struct line *line = NULL, next;
    size_t n = 0, cap = 0;
    bool more = f && read_line(f, &next);

    while (more) {
        line = xgrow(line, &cap, n + 1, sizeof(*line));
        line[n++] = next;
        more = read_line(f, &next);
        if (!more || strcmp(next.name, line->name) != 0) {
            if (argc < 2 || !strcmp(argv[1], line->name))
                try_model(models, line, n, out);
            n = 0;
        }
    }
    fclose(f);
    for (size_t i = 0; i < sizeof(dropped) / sizeof(*dropped); i++)
        if (argc < 2 || !strcmp(argv[1], dropped[i]))
            try_dropped(models, dropped[i], out);
    free(line);
    free(file);
    free(models);
    return tap_done();
}
