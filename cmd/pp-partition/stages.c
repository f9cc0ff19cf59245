/* stages - the options that divide layers into stages, and the resulting costs */
#define _DEFAULT_SOURCE /* strsep */
#include "cmd/pp-partition/stages.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/estimate/costmodel.h"
#include "lib/estimate/stagecut.h"
#include "lib/pipe/calibration.h"
#include "lib/pipe/partition.h"
#include "lib/program/cost.h"

const char *const balance_words[] = { "layers", "params", "flops", "memory", NULL };
const char *const remainder_names[] = { "first", "middle", "last", NULL };

enum { MAX_PARTS = 4096, MAX_LAYERS = 1 << 16 };

/* ---- costs ---- */

static uint64_t unit_params(const struct unit *u)
{
    uint64_t n = 0;

    for (int c = 0; c < WEIGHT_CLASSES; c++)
        n += u->weight[c].elements;
    return n;
}

static uint64_t *place_of(struct stage_costs *c, const struct model *m,
                          const struct unit *u)
{
    int part = model_part(m, u->index, u->layer);

    return part == 0 ? &c->first : part > c->nlayers ? &c->last : &c->layer[part - 1];
}

enum what { PARAMS, FLOPS, MEMORY, ACTIVATIONS };

/* Bytes per parameter in mixed-precision training with Adam: bf16 weight and gradient,
 * f32 master weight and two moments (ZeRO, Rajbhandari et al. 2020). */
enum { TRAINED_BYTES = 16 };

static uint64_t unit_cost(const struct unit *u, enum what what, uint64_t context)
{
    switch (what) {
    case PARAMS:
        return unit_params(u);
    case MEMORY:
        return TRAINED_BYTES * unit_params(u) + unit_cost(u, ACTIVATIONS, context);
    case ACTIVATIONS: /* bf16 activations, and an f32 logsumexp for each row of scores
                       */
        return context *
               (2 * (u->kept.columns.cut + u->kept.columns.whole) + 4 * u->kept.heads);
    case FLOPS:
        break;
    }
    return 0;
}

/* Forward FLOPs per token, averaged over a sequence of CONTEXT tokens. */
static void sum_flops(struct stage_costs *out, const struct model *m,
                      const struct costmodel *a, uint64_t context)
{
    const struct program *p = a->program;
    struct cost_step s = cost_token((double)context);
    double *flops = xcalloc((size_t)a->nunits + 1, sizeof(*flops));

    for (int i = 0; i < p->ninsts; i++) {
        struct cost c = cost_of(p, &p->inst[i], &s);

        flops[costmodel_unit(a, &p->value[p->inst[i].dst])] += c.products + c.attention;
    }
    for (int i = 0; i < a->nunits; i++)
        *place_of(out, m, &a->unit[i]) += (uint64_t)llround(flops[i]);
    free(flops);
}

static void sum_costs(struct stage_costs *out, const struct model *m,
                      const struct costmodel *a, enum what what)
{
    const uint64_t of_element[] = {
        [PARAMS] = 1, [FLOPS] = 0, [MEMORY] = TRAINED_BYTES, [ACTIVATIONS] = 0
    };
    uint64_t context = model_context(m) ? model_context(m) : 2048;

    if (what == FLOPS) {
        sum_flops(out, m, a, context);
        return;
    }
    for (int i = 0; i < a->nunits; i++)
        *place_of(out, m, &a->unit[i]) += unit_cost(&a->unit[i], what, context);
    for (int i = 0; i < a->ncommons; i++) {
        const struct common *c = &a->common[i];
        uint64_t cost = of_element[what] * c->sum.elements;

        if (!c->read_by)
            out->first += cost;
        for (int u = 0; u < a->nunits; u++)
            if (a->unit[u].layer < 0 && c->read_by >> a->unit[u].index & 1)
                *place_of(out, m, &a->unit[u]) += cost;
    }
}

static uint64_t scaled(double x, double most)
{
    return most > 0 ? (uint64_t)round(x / most * 1e9) : 0;
}

static double longest(const struct calibration *c)
{
    double most = 0;

    for (int i = 0; i < c->nlayers + 2; i++)
        most = fmax(most, c->part[i].prefill);
    return most;
}

/* The measured times of the parts, scaled as in read_costs. */
static int calibrated_costs(struct stage_costs *out, const char *path, const char *text,
                            struct err *err)
{
    struct calibration c;
    double most;

    if (calibration_parse(&c, path, text, strlen(text), err) < 0)
        return -1;
    if (c.nlayers != out->nlayers) {
        err_set(err, ERR_INPUT, "%s: measured with %d layers, the model has %d", path,
                c.nlayers, out->nlayers);
        calibration_clear(&c);
        return -1;
    }
    most = longest(&c);
    out->first = scaled(c.part[0].prefill, most);
    for (int i = 0; i < c.nlayers; i++)
        out->layer[i] = scaled(c.part[i + 1].prefill, most);
    out->last = scaled(c.part[c.nlayers + 1].prefill, most);
    out->exact = xcalloc((size_t)c.nlayers + 2, sizeof(*out->exact));
    for (int i = 0; i < c.nlayers + 2; i++)
        out->exact[i] = c.part[i].prefill;
    calibration_clear(&c);
    return 0;
}

/* Reads one number per line: before the layers, each layer, after the layers.  Scales
 * them to integers; the largest becomes 10^9. */
static int read_costs(struct stage_costs *out, const char *path, struct err *err)
{
    int n = out->nlayers + 2, i = 0;
    double *v = xcalloc((size_t)n, sizeof(*v)), most = 0;
    char *text = NULL;
    int ret = -1;

    if (fs_read_file(&text, NULL, path, 1 << 24, err) < 0)
        goto out;
    if (calibration_is_text(text)) {
        ret = calibrated_costs(out, path, text, err);
        goto out;
    }
    for (char *p = text, *line; (line = strsep(&p, "\n")) != NULL;) {
        if (!*line)
            continue;
        if (i == n || !str_double(line, &v[i]) || !(v[i] >= 0 && v[i] <= 1e100)) {
            err_set(err, ERR_INPUT, "%s:%d: %s", path, i + 1,
                    i == n ? "more costs than embedding, layers and head"
                           : "is no cost");
            goto out;
        }
        most = fmax(most, v[i++]);
    }
    if (i < n) {
        err_set(err, ERR_INPUT,
                "%s: %d costs for %d layers, the embedding and the head", path, i,
                out->nlayers);
        goto out;
    }
    if (most <= 0) {
        err_set(err, ERR_INPUT, "%s: all costs are 0", path);
        goto out;
    }
    out->first = scaled(v[0], most);
    out->last = scaled(v[n - 1], most);
    for (i = 0; i < out->nlayers; i++)
        out->layer[i] = scaled(v[i + 1], most);
    out->exact = v;
    v = NULL;
    ret = 0;
out:
    free(text);
    free(v);
    return ret;
}

/* Adds the costs WHAT of M's layers to *out. */
static int count_costs(struct stage_costs *out, const struct model *m, enum what what,
                       struct err *err)
{
    const int origin[MESH_NAXES] = { 0 };
    struct costmodel *a;
    struct mesh one;

    mesh_one(&one);
    if (costmodel_open(&a, m, &one, origin, NULL, NULL, err) < 0)
        return -1;
    sum_costs(out, m, a, what);
    costmodel_close(a);
    return 0;
}

int stage_costs(struct stage_costs *out, const struct model *m, const char *what,
                struct err *err)
{
    struct stage_costs made = { .nlayers = model_layers(m) };
    static const char *const counted[] = {
        [PARAMS] = "params", [FLOPS] = "flops", [MEMORY] = "memory"
    };
    int kind = PARAMS;

    made.layer = xcalloc((size_t)made.nlayers + 1, sizeof(*made.layer));
    while (kind <= MEMORY && strcmp(what, counted[kind]) != 0)
        kind++;
    if (!strcmp(what, "layers")) {
        for (int i = 0; i < made.nlayers; i++)
            made.layer[i] = 1;
    } else if (kind > MEMORY ? read_costs(&made, what, err) < 0
                             : count_costs(&made, m, (enum what)kind, err) < 0) {
        goto fail;
    }
    *out = made;
    return 0;
fail:
    stage_costs_clear(&made);
    return -1;
}

void stage_costs_clear(struct stage_costs *c)
{
    free(c->layer);
    free(c->exact);
    *c = (struct stage_costs){ 0 };
}

/* ---- stages given by the user ---- */

static int parse_stages(int **out, int *parts, const char *text, struct err *err)
{
    int *v = NULL, n = 0;
    size_t cap = 0;

    for (const char *p = text;; p++) {
        size_t len = strcspn(p, ",");
        char *word = xstrndup(p, len);
        bool ok;

        v = xgrow(v, &cap, (size_t)n + 1, sizeof(*v));
        ok = n < MAX_PARTS && str_int(word, &v[n]) && v[n] >= 0 && v[n] <= MAX_LAYERS;
        n++;
        free(word);
        if (!ok) {
            free(v);
            return err_set(err, ERR_USAGE, "--stages: '%s' is no list of layers", text);
        }
        p += len;
        if (!*p)
            break;
    }
    *out = v;
    *parts = n;
    return 0;
}

struct layout {
    const char *text, *p;
    int stage[MAX_PARTS];
    int n;
    bool embed, loss;
    struct err *err;
};

static int bad_layout(const struct layout *l, const char *what)
{
    return err_set(l->err, ERR_USAGE, "--stage-layout: column %d: %s",
                   (int)(l->p - l->text) + 1, what);
}

static int take_letter(struct layout *l, char c)
{
    switch (c) {
    case '|':
        if (++l->n == MAX_PARTS)
            return bad_layout(l, "too many stages");
        return 0;
    case 't':
        if (l->loss || l->stage[l->n]++ == MAX_LAYERS)
            return bad_layout(l, "a layer after the loss, or too many");
        return 0;
    case 'E':
        if (l->embed || l->n || l->stage[0])
            return bad_layout(l, "the embedding stands first, once");
        l->embed = true;
        return 0;
    case 'L':
        if (l->loss)
            return bad_layout(l, "the loss stands last, once");
        l->loss = true;
        return 0;
    case 'm':
        return bad_layout(l, "no family has layers that predict several tokens");
    }
    return bad_layout(l, "expected one of E t L | ( , *");
}

/* Repeats the letters from BEGIN to END, TIMES in total. */
static int repeat(struct layout *l, const char *begin, const char *end)
{
    char *stop;
    long times = 1;

    if (*l->p == '*') {
        times = strtol(l->p + 1, &stop, 10);
        if (!isdigit((unsigned char)l->p[1]) || times < 1 || times > MAX_LAYERS) {
            l->p++;
            return bad_layout(l, "expected a number of times");
        }
        l->p = stop;
    }
    for (; times > 0; times--)
        for (const char *c = begin; c < end; c++)
            if (*c != ',' && take_letter(l, *c) < 0)
                return -1;
    return 0;
}

/* Megatron's notation: E embedding, t layer, L loss, | between stages; *N repeats a
 * letter or a group in brackets; commas are ignored. */
static int parse_layout(int **out, int *parts, const char *text, struct err *err)
{
    struct layout *l = xcalloc(1, sizeof(*l));
    int ret = -1;

    l->text = l->p = text;
    l->err = err;
    while (*l->p) {
        const char *begin = l->p, *end = l->p + 1;

        if (*begin == ',') {
            l->p++;
            continue;
        }
        if (*begin == '(') {
            end = strchr(begin, ')');
            if (!end || memchr(begin + 1, '(', (size_t)(end - begin - 1))) {
                bad_layout(l, "the group has no end");
                goto out;
            }
            l->p = end + 1;
            if (repeat(l, begin + 1, end) < 0)
                goto out;
            continue;
        }
        l->p = end;
        if (repeat(l, begin, end) < 0)
            goto out;
    }
    *parts = l->n + 1;
    *out = xmalloc(sizeof(**out) * (size_t)*parts);
    memcpy(*out, l->stage, sizeof(**out) * (size_t)*parts);
    ret = 0;
out:
    free(l);
    return ret;
}

/* The given stages must contain all layers; an empty stage needs
 * --allow-empty. */
static int check_given(const int *stages, int parts, int want,
                       const struct stage_options *o, int nlayers, struct err *err)
{
    int64_t sum = 0;

    if (want && parts != want)
        return err_set(err, ERR_USAGE, "%d stages are given, %d wanted", parts, want);
    for (int s = 0; s < parts; s++) {
        sum += stages[s];
        if (!stages[s] && !o->empty)
            return err_set(err, ERR_NO, "stage %d has no layer (see --allow-empty)", s);
    }
    return sum == nlayers
               ? 0
               : err_set(err, ERR_NO, "stages of %lld layers in all: the model has %d",
                         (long long)sum, nlayers);
}

/* ---- balancing ---- */

int stages_by_memory(int *count, double *bytes, const struct model *m, int pp,
                     struct err *err)
{
    uint64_t *inflight = xcalloc((size_t)pp, sizeof(*inflight));
    const int origin[MESH_NAXES] = { 0 };
    struct memory_options o;
    struct costmodels all = { 0 };
    struct rank_memory r;
    const struct costmodel *a;
    int ret = -1;

    stagecut_training(&o, m, pp, inflight);
    a = costmodels_at(&all, m, NULL, &o, origin, err);
    if (!a || (!bytes && stagecut_memory(count, a, &o, err) < 0))
        goto out;
    o.mesh.stages = count;
    for (int s = 0; s < pp && bytes; s++) {
        if (!memory_of_stage(&r, a, &o, s)) {
            err_set(err, ERR_USAGE, "the bytes of stage %d overflow", s);
            goto out;
        }
        bytes[s] = (double)r.total;
    }
    ret = 0;
out:
    costmodels_clear(&all);
    free(inflight);
    return ret;
}

static int balance(int *out, int parts, const struct stage_options *o,
                   const struct model *m, const struct stage_costs *costs,
                   struct err *err)
{
    const char *what = o->balance ? o->balance : "layers";
    struct stage_costs c = { 0 };
    int ret;

    if (!strcmp(what, "layers")) {
        if (parts > model_layers(m) && !o->empty)
            return err_set(err, ERR_NO, "pp %d: the model has %d layers", parts,
                           model_layers(m));
        partition_deal(out, model_layers(m), parts, (enum remainder)o->remainder);
        return 0;
    }
    if (!strcmp(what, "memory") && parts == o->pp && !o->empty)
        return stages_by_memory(out, NULL, m, parts, err);
    if (!costs && stage_costs(&c, m, what, err) < 0)
        return -1;
    costs = costs ? costs : &c;
    ret = partition_balance(out, costs->layer, costs->nlayers, costs->first,
                            costs->last, parts, o->empty, err);
    stage_costs_clear(&c);
    return ret;
}

int stages_choose(int **out, int *parts, const struct stage_options *o, int chunks,
                  const struct model *m, const struct stage_costs *costs,
                  struct err *err)
{
    int *made = NULL, n = o->pp * chunks;

    if (o->stages && o->layout)
        return err_set(err, ERR_USAGE, "--stages and --stage-layout say the same");
    if (o->stages || o->layout) {
        int given = 0;

        if ((o->stages ? parse_stages(&made, &given, o->stages, err)
                       : parse_layout(&made, &given, o->layout, err)) < 0)
            return -1;
        if (check_given(made, given, n, o, model_layers(m), err) < 0) {
            free(made);
            return -1;
        }
        n = given;
    } else {
        if (!o->pp)
            return err_set(err, ERR_USAGE, "--pp is missing");
        if (n > MAX_PARTS)
            return err_set(err, ERR_USAGE, "--pp %d: too many", o->pp);
        made = xcalloc((size_t)n, sizeof(*made));
        if (balance(made, n, o, m, costs, err) < 0) {
            free(made);
            return -1;
        }
    }
    *out = made;
    *parts = n;
    return 0;
}

/* ---- times ---- */

/* Adds each rank's costs WHAT to OUT. */
static int add_costs(double *out, const struct mesh *mesh, const struct model *m,
                     enum what what, const int *rank_of, struct err *err)
{
    int parts = mesh->size[MESH_PP], first, count;
    struct stage_costs c = { .nlayers = model_layers(m) };
    int ret;

    c.layer = xcalloc((size_t)c.nlayers + 1, sizeof(*c.layer));
    ret = count_costs(&c, m, what, err);
    for (int s = 0; s < parts && ret == 0; s++) {
        double *sum = &out[rank_of[s]];

        mesh_stage(mesh, c.nlayers, s, &first, &count);
        for (int i = first; i < first + count; i++)
            *sum += (double)c.layer[i];
        *sum += (double)((s == 0 ? c.first : 0) + (s == parts - 1 ? c.last : 0));
    }
    stage_costs_clear(&c);
    return ret;
}

int stages_times(double **out, double **bytes, int **layers, const char *path,
                 const char *families, const char *given, int ranks, int chunks,
                 const int *rank_of, struct err *err)
{
    const struct stage_options o = { .pp = ranks, .stages = given };
    const struct checkpoint_options options = { .family_path = families };
    double *time, *held, sum = 0;
    struct summary summary;
    int *stages = NULL, parts, ret = -1;
    struct mesh mesh;

    if (summary_open(&summary, path, &options, err) < 0)
        return -1;
    time = xcalloc((size_t)ranks, sizeof(*time));
    held = xcalloc((size_t)ranks, sizeof(*held));
    mesh_one(&mesh);
    if (summary.checkpoint && chunks == 1 && !given)
        mesh = summary.checkpoint->mesh;
    if (given || mesh.size[MESH_PP] != ranks * chunks) {
        if (stages_choose(&stages, &parts, &o, chunks, summary.model, NULL, err) < 0)
            goto out;
        mesh.size[MESH_PP] = parts;
        mesh.stages = stages;
    }
    if (add_costs(time, &mesh, summary.model, FLOPS, rank_of, err) < 0 ||
        add_costs(held, &mesh, summary.model, ACTIVATIONS, rank_of, err) < 0)
        goto out;
    for (int r = 0; r < ranks; r++)
        sum += time[r];
    for (int r = 0; r < ranks && sum > 0; r++)
        time[r] *= ranks / sum;
    *out = time;
    *bytes = held;
    *layers = xcalloc((size_t)ranks * (size_t)chunks, sizeof(**layers));
    for (int s = 0, first; s < ranks * chunks; s++)
        mesh_stage(&mesh, model_layers(summary.model), s, &first, &(*layers)[s]);
    ret = 0;
out:
    if (ret < 0) {
        free(time);
        free(held);
    }
    free(stages);
    summary_close(&summary);
    return ret;
}

int stages_calibrated(double **out, const struct calibration *c, int ranks, int chunks,
                      const int *rank_of, struct err *err)
{
    int parts = ranks * chunks, *count = xcalloc((size_t)parts, sizeof(*count));
    uint64_t *cost = xcalloc((size_t)c->nlayers + 1, sizeof(*cost));
    double most = longest(c), *time = xcalloc((size_t)ranks, sizeof(*time));
    int ret;

    for (int i = 0; i < c->nlayers; i++)
        cost[i] = scaled(c->part[i + 1].prefill, most);
    ret = partition_balance(count, cost, c->nlayers, scaled(c->part[0].prefill, most),
                            scaled(c->part[c->nlayers + 1].prefill, most), parts, false,
                            err);
    if (ret == 0) {
        int layer = 1;

        for (int s = 0; s < parts; s++)
            for (int i = 0; i < count[s]; i++)
                time[rank_of[s]] += c->part[layer++].prefill;
        time[rank_of[0]] += c->part[0].prefill;
        time[rank_of[parts - 1]] += c->part[c->nlayers + 1].prefill;
        *out = time;
    } else {
        free(time);
    }
    free(cost);
    free(count);
    return ret;
}
