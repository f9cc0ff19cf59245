/* schedule - simulates pipeline schedules */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/conversion.h"
#include "cmd/picture.h"
#include "cmd/pipechart.h"
#include "cmd/pp-partition/pp-partition.h"
#include "cmd/pp-partition/stages.h"
#include "cmd/table.h"
#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/pipe/csv.h"
#include "lib/pipe/order.h"
#include "lib/pipe/search.h"
#include "lib/plot/stacks.h"

/* The schedules with a fixed order, and the search. */
static const char *const schedule_names[] = {
    "naive",    "gpipe",     "1f1b",           "interleaved", "zb-h1",  "zb-h2", "zb-v",
    "dualpipe", "dualpipev", "zb-interleaved", "v-min",       "v-half", "zb",    NULL
};
enum { SEARCHED = ORDERS };

/* limit of any time, so that sums stay finite */
static const double LONGEST = 1e100;

struct settings {
    int name, ranks, micro_batches, chunks;
    const char *forward, *backward, *input, *weight; /* numbers or lists */
    const char *plan;        /* or a model to derive the times from, */
    const char *stages;      /* with so many layers on each stage, or NULL */
    const char *families;    /* SHARDUTILS_FAMILY_PATH, for that model */
    const char *calibration; /* or a calibration file, which is read into: */
    struct calibration measured;
    double latency, bandwidth, message, freed;
    const char *memory_cap; /* NULL: none; it is one of: */
    int cap_count;          /* micro-batches in flight on a whole stage */
    uint64_t cap_bytes;     /* bytes of activations on a stage */
    bool json, csv, compare, bandwidth_given;
    const char *plot, *command;
};

/* Times of each rank; the caller frees the arrays. */
struct times {
    double *forward, *input, *weight;
    double *bytes;    /* activations of one micro-batch; NULL without a model */
    int *layers;      /* [stages] of it; NULL without a model */
    bool is_measured; /* the table was, and no option gives other times: */
    struct passtimes measured; /* its own */
};

static void clear_times(struct times *t)
{
    free(t->forward);
    free(t->input);
    free(t->weight);
    free(t->bytes);
    free(t->layers);
    passtimes_clear(&t->measured);
}

/* ---- options ---- */

/* Parses TEXT: one number, or RANKS numbers separated by commas. */
static int parse_list(double **out, const char *option, const char *text, int ranks,
                      struct err *err)
{
    double *v = xcalloc((size_t)ranks, sizeof(*v));
    const char *p = text;
    int n = 0;

    for (;; p++) {
        size_t len = strcspn(p, ",");
        char *word = xstrndup(p, len);
        bool ok = n < ranks && str_double(word, &v[n]) && v[n] >= 0 && v[n] <= LONGEST;

        free(word);
        if (!ok) {
            free(v);
            return err_set(err, ERR_USAGE,
                           "%s: '%s' is not one time or %d times, none above %g",
                           option, text, ranks, LONGEST);
        }
        n++;
        p += len;
        if (!*p)
            break;
    }
    if (n != 1 && n != ranks) {
        free(v);
        return err_set(err, ERR_USAGE, "%s: %d times for %d stages", option, n, ranks);
    }
    for (int r = n; r < ranks; r++)
        v[r] = v[0];
    *out = v;
    return 0;
}

/* --backward is the time of both gradients.  Each gets half, unless one is given. */
static int parse_backward(struct times *out, const struct settings *s, int ranks,
                          struct err *err)
{
    double *whole = NULL;
    int ret = -1;

    if ((s->input &&
         parse_list(&out->input, "--backward-input", s->input, ranks, err) < 0) ||
        (s->weight &&
         parse_list(&out->weight, "--backward-weight", s->weight, ranks, err) < 0) ||
        parse_list(&whole, "--backward", s->backward ? s->backward : "2", ranks, err) <
            0)
        goto out;
    if (s->backward && s->input && s->weight) {
        err_set(err, ERR_USAGE,
                "--backward: is the sum of --backward-input and --backward-weight");
        goto out;
    }
    if (!out->input) {
        out->input = xcalloc((size_t)ranks, sizeof(double));
        for (int r = 0; r < ranks; r++)
            out->input[r] = out->weight && s->backward ? whole[r] - out->weight[r]
                            : s->backward              ? whole[r] / 2
                            : out->weight              ? out->weight[r]
                                                       : out->forward[r];
    }
    if (!out->weight) {
        out->weight = xcalloc((size_t)ranks, sizeof(double));
        for (int r = 0; r < ranks; r++)
            out->weight[r] = s->backward ? whole[r] - out->input[r] : out->input[r];
    }
    for (int r = 0; r < ranks; r++)
        if (out->input[r] < 0 || out->weight[r] < 0) {
            err_set(err, ERR_USAGE, "--backward: is less than a part of it");
            goto out;
        }
    ret = 0;
out:
    free(whole);
    return ret;
}

/* Rank I of N has the stages I and N - 1 - I: takes the mean of both. */
static void fold(double *v, int n)
{
    for (int i = 0; i < n / 2; i++)
        v[i] = v[n - 1 - i] = (v[i] + v[n - 1 - i]) / 2;
}

/* Each of the two gradients has as many products as the forward pass. */
static int plan_times(struct times *out, const struct settings *s,
                      const struct action_table *t, struct err *err)
{
    size_t bytes = (size_t)t->ranks * sizeof(double);
    int chunks = t->stages / t->ranks / t->chains;

    if (s->plan ? stages_times(&out->forward, &out->bytes, &out->layers, s->plan,
                               s->families, s->stages, t->ranks, chunks, t->rank_of,
                               err) < 0
                : stages_calibrated(&out->forward, &s->measured, t->ranks, chunks,
                                    t->rank_of, err) < 0)
        return -1;
    if (t->chains > 1) { /* each rank has two stages */
        fold(out->forward, t->ranks);
        if (out->bytes)
            fold(out->bytes, t->ranks);
    }
    out->input = xmalloc(bytes);
    out->weight = xmalloc(bytes);
    memcpy(out->input, out->forward, bytes);
    memcpy(out->weight, out->forward, bytes);
    return 0;
}

/* Reads --calibration; its latency and bandwidth are the defaults of the options. */
static int take_calibration(struct settings *s, struct err *err)
{
    if (calibration_read(&s->measured, s->calibration, err) < 0)
        return -1;
    if (s->latency == 0)
        s->latency = s->measured.latency;
    if (s->bandwidth == 0)
        s->bandwidth = s->measured.bandwidth;
    if (s->message == 0)
        s->message = s->measured.message;
    return 0;
}

static int parse_times(struct times *out, const struct settings *s,
                       const struct action_table *t, struct err *err)
{
    double sum = 0;

    if (!(s->latency >= 0 && s->latency <= LONGEST && s->message >= 0 &&
          s->message <= LONGEST))
        return err_set(err, ERR_USAGE,
                       "--latency and --message: none is negative or above %g",
                       LONGEST);
    if (s->bandwidth_given && !(s->bandwidth > 0 && isfinite(s->bandwidth)))
        return err_set(err, ERR_USAGE, "--bandwidth %g: nothing would arrive",
                       s->bandwidth);
    if (s->plan || s->calibration)
        return plan_times(out, s, t, err);
    if (parse_list(&out->forward, "--forward", s->forward ? s->forward : "1", t->ranks,
                   err) < 0)
        return -1;
    for (int r = 0; r < t->ranks; r++)
        sum += out->forward[r];
    if (sum <= 0)
        return err_set(err, ERR_USAGE, "--forward %s: no stage takes any time",
                       s->forward);
    return parse_backward(out, s, t->ranks, err);
}

/* ---- results ---- */

struct ratios {
    double of_total, of_ideal, of_span;
};

static struct ratios ratios_of(const struct pipe_result *r)
{
    double idle = fmax(0, r->makespan - r->ideal); /* sums are rounded */

    return (struct ratios){
        .of_total = r->makespan > 0 ? idle / r->makespan : 0,
        .of_ideal = r->ideal > 0 ? idle / r->ideal : 0,
        .of_span = r->span > 0 ? fmax(0, r->span - r->ideal) / r->span : 0,
    };
}

/* The largest activation memory of any rank, in chunks; the input gradient frees its
 * share. */
static double largest_held(const struct pipe_result *r)
{
    double most = 0;

    for (int i = 0; i < r->ranks; i++)
        most = r->held[i] > most ? r->held[i] : most;
    return most;
}

/* Peak bytes of activations on rank I, when a micro-batch has BYTES. */
static double held_bytes(const struct action_table *t, const struct pipe_result *r,
                         const double *bytes, int i)
{
    return r->held[i] * t->ranks * t->chains / t->stages * bytes[i];
}

/* Prints the result; BYTES: a micro-batch's activations on each rank, or NULL; M: what
 * the table took, or NULL. */
static void print_json(const char *name, const struct action_table *t,
                       const struct pipe_result *r, const double *bytes,
                       const int *layers, const struct passtimes *m)
{
    struct ratios ratio = ratios_of(r);
    const struct {
        const char *key;
        double value;
    } numbers[] = {
        { "makespan", r->makespan },
        { "span", r->span },
        { "ideal", r->ideal },
        { "bubble_of_total", ratio.of_total },
        { "bubble_of_ideal", ratio.of_ideal },
        { "bubble_of_span", ratio.of_span },
    };
    struct str s = { 0 };

    str_add(&s, "{\"type\":\"schedule\",\"schedule\":");
    str_add_json(&s, name);
    str_addf(&s, ",\"stages\":%d,\"micro_batches\":%d,\"model_chunks\":%d", t->ranks,
             t->micro_batches, t->stages / t->ranks);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
        str_addf(&s, ",\"%s\":", numbers[i].key);
        str_add_double(&s, numbers[i].value);
    }
    str_add(&s, ",\"peak_activations\":[");
    for (int i = 0; i < r->ranks; i++)
        str_addf(&s, "%s%d", i ? "," : "", r->peak[i]);
    str_add(&s, "],\"held\":[");
    for (int i = 0; i < r->ranks; i++)
        str_addf(&s, "%s%.9g", i ? "," : "", r->held[i]);
    for (int i = 0; i < r->ranks && bytes; i++)
        str_addf(&s, "%s%.0f", i ? "," : "],\"held_bytes\":[",
                 held_bytes(t, r, bytes, i));
    str_addf(&s, "],\"transfers\":%" PRIu64 ",\"transferred_bytes\":", r->transfers);
    str_add_double(&s, r->transferred_bytes);
    str_addf(&s, ",\"copies\":%d", t->chains);
    for (int i = 0; i < t->stages / t->chains && layers; i++)
        str_addf(&s, "%s%d", i ? "," : ",\"layers\":[", layers[i]);
    str_add(&s, layers ? "]" : "");
    if (m) {
        str_add(&s, ",\"measured\":");
        str_add_double(&s, m->makespan);
        str_add(&s, ",\"passes\":");
        passtimes_add_json(&s, m, t);
    }
    str_addc(&s, '}');
    puts(s.s);
    str_clear(&s);
}

/* Appends the result as text. */
static void add_text(struct str *s, const char *name, const struct action_table *t,
                     const struct pipe_result *r, const double *bytes,
                     const int *layers)
{
    struct ratios ratio = ratios_of(r);
    char size[32];

    str_addf(s, "%s, %d stages, %d micro-batches", name, t->ranks, t->micro_batches);
    if (t->stages > t->ranks)
        str_addf(s, ", %d chunks a stage", t->stages / t->ranks);
    for (int i = 0; i < t->stages / t->chains && layers; i++)
        str_addf(s, "%s%d", i ? "," : "\nlayers     ", layers[i]);
    str_addf(s, "\nmakespan   %g, of which the busiest stage works %g\n", r->makespan,
             r->ideal);
    str_addf(s, "bubble     %.2f %% of the makespan, %.2f %% of the work\n",
             100 * ratio.of_total, 100 * ratio.of_ideal);
    str_addf(s, "span       %g, of which %.2f %% idle\n", r->span, 100 * ratio.of_span);
    str_addf(s, "held       at most");
    for (int i = 0; i < r->ranks; i++)
        str_addf(s, " %.4g", r->held[i] * t->ranks * t->chains / t->stages);
    str_addf(s, " micro-batches\n");
    if (bytes) {
        str_addf(s, "bytes      at most");
        for (int i = 0; i < r->ranks; i++)
            str_addf(s, "%s %s", i ? "," : "",
                     str_human(size, (uint64_t)held_bytes(t, r, bytes, i)));
        str_addc(s, '\n');
    }
    str_addf(s, "transfers  %" PRIu64, r->transfers);
    if (r->transferred_bytes > 0)
        str_addf(s, ", %s", str_human(size, (uint64_t)r->transferred_bytes));
    str_addc(s, '\n');
}

static const struct column compared_columns[] = {
    { "schedule", 0, 12, false, 0, false }, { "chunks", 1, 6, true, 0, false },
    { "makespan", 1, 12, true, 0, false },  { "span", 1, 12, true, 2, false },
    { "% total", 1, 9, true, 0, false },    { "% ideal", 1, 9, true, 4, false },
    { "% span", 1, 9, true, 3, false },     { "held", 1, 8, true, 0, false },
    { "models", 1, 6, true, 0, false },     { "transfers", 1, 10, true, 1, false },
    { "", 2, 0, false, 0, false },
};

static void add_row(struct table *out, const char *name, const struct action_table *t,
                    const struct pipe_result *r, bool best)
{
    struct ratios ratio = ratios_of(r);

    table_add(out, name);
    table_addf(out, "%d", t->stages / t->ranks);
    table_addf(out, "%g", r->makespan);
    table_addf(out, "%g", r->span);
    table_addf(out, "%.2f", 100 * ratio.of_total);
    table_addf(out, "%.2f", 100 * ratio.of_ideal);
    table_addf(out, "%.2f", 100 * ratio.of_span);
    table_addf(out, "%.4g", largest_held(r) * t->ranks * t->chains / t->stages);
    table_addf(out, "%d", t->chains);
    table_addf(out, "%" PRIu64, r->transfers);
    table_add(out, best ? "best" : "");
    table_paint(out, PAINT_GOOD);
}

/* ---- running ---- */

static int read_table(struct action_table *t, const char *path, struct err *err)
{
    char *text;
    size_t n;
    int ret;

    if (fs_read_file(&text, &n, path, UINT64_C(1) << 28, err) < 0)
        return -1;
    ret = csv_parse(t, path, text, n, err);
    free(text);
    if (ret < 0)
        return -1;
    if (action_check(t, err) == 0)
        return 0;
    action_table_clear(t);
    return err_prefix(err, "%s", path);
}

static int simulate(struct pipe_result *r, const struct action_table *t,
                    const struct settings *s, struct times *times,
                    struct pipe_times *set, struct err *err)
{
    if (parse_times(times, s, t, err) < 0)
        return -1;
    times->is_measured = passtimes_is(t) && !(s->plan || s->calibration || s->forward ||
                                              s->backward || s->input || s->weight);
    if (times->is_measured)
        passtimes_open(&times->measured, t);
    *set = (struct pipe_times){ .each = times->measured.each,
                                .forward = times->forward,
                                .input = times->input,
                                .weight = times->weight,
                                .latency = s->latency,
                                .bandwidth = s->bandwidth,
                                .message_bytes = s->message,
                                .freed = s->freed };
    return pipe_simulate(r, t, set, err);
}

/* Does some stage exceed --memory-cap? */
static bool over_cap(const struct settings *s, const struct action_table *t,
                     const struct pipe_result *r, const double *bytes)
{
    double chunks = t->stages / t->ranks / t->chains;

    for (int i = 0; i < r->ranks && s->cap_bytes; i++)
        if (held_bytes(t, r, bytes, i) > (double)s->cap_bytes)
            return true;
    return s->cap_count && largest_held(r) > s->cap_count * chunks + 1e-6;
}

/* --memory-cap in micro-batches; bytes are divided by the activations of the stage that
 * saves the most. */
static double cap_of(const struct settings *s, const struct times *times)
{
    double most = 0;

    for (int r = 0; r < s->ranks && s->cap_bytes; r++)
        most = times->bytes[r] > most ? times->bytes[r] : most;
    if (most > 0)
        return (double)s->cap_bytes / most;
    return s->cap_count ? s->cap_count : 2 * s->ranks;
}

/* What a unit of time is. */
static const char *unit_of(const struct settings *s, bool measured)
{
    return s->calibration || measured ? "seconds"
           : s->plan                  ? "time, in forward passes of a mean stage"
                                      : "time, in units of --forward";
}

/* "llama-3-8b: 1f1b, 4 stages, 8 micro-batches, 27.3 % idle"; the caller frees it. */
static char *title_dup(const struct settings *s, const char *name,
                       const struct action_table *t, const struct pipe_result *r)
{
    char *model = s->plan ? picture_name_dup(s->plan) : NULL;
    char *title = str_dupf("%s%s%s, %d stages, %d micro-batches, %.1f %% idle",
                           model ? model : "", model ? ": " : "", name, t->ranks,
                           t->micro_batches, 100 * ratios_of(r).of_total);

    free(model);
    return title;
}

/* Simulates, prints and draws one schedule. */
static int show(const struct settings *s, const struct action_table *t,
                const char *name, bool *fits, struct err *err)
{
    struct times times = { 0 };
    struct pipe_times set;
    struct pipe_result r;
    struct str lines = { 0 };
    const struct passtimes *m;
    char *title;
    int ret = -1;

    if (simulate(&r, t, s, &times, &set, err) < 0)
        goto out;
    m = times.is_measured ? &times.measured : NULL;
    add_text(&lines, name, t, &r, times.bytes, times.layers);
    if (m)
        str_addf(&lines, "measured   %g, %.4g times the makespan\n", m->makespan,
                 r.makespan > 0 ? m->makespan / r.makespan : 1);
    *fits = !over_cap(s, t, &r, times.bytes);
    if (s->csv) {
        struct str text = { 0 };

        csv_print(&text, t);
        fputs(str_text(&text), stdout);
        str_clear(&text);
    } else if (s->json) {
        print_json(name, t, &r, times.bytes, times.layers, m);
    } else {
        fputs(lines.s, stdout);
    }
    if (!*fits && !s->json && !s->csv)
        printf("more than %s %s held\n", s->memory_cap, s->cap_bytes ? "is" : "are");
    title = title_dup(s, name, t, &r);
    ret = s->plot ? pipechart_write(&(struct pipechart){ .path = s->plot,
                                                         .command = s->command,
                                                         .title = title,
                                                         .text = lines.s,
                                                         .unit = unit_of(s, m != NULL),
                                                         .table = t,
                                                         .times = &set,
                                                         .result = &r,
                                                         .measured = m },
                                    err)
                  : 0;
    free(title);
    pipe_result_clear(&r);
out:
    str_clear(&lines);
    clear_times(&times);
    return ret;
}

/* Searches a schedule; without a cap it may use as much activation memory as ZB-H2. */
static int search(struct action_table *t, const struct settings *s, struct err *err)
{
    struct action_table simple;
    struct times times = { 0 };
    struct pipe_times set;
    struct pipe_result r;
    int ret = -1;

    if (s->chunks > 1 && !s->compare)
        return err_set(err, ERR_USAGE, "--model-chunks: zb has one chunk on a stage");
    if (order_make(&simple, ORDER_ZB_H1, s->ranks, s->micro_batches, 1, err) < 0)
        return -1;
    if (simulate(&r, &simple, s, &times, &set, err) == 0) {
        pipe_result_clear(&r);
        ret = search_make(t, s->ranks, s->micro_batches, &set, cap_of(s, &times), err);
    }
    clear_times(&times);
    action_table_clear(&simple);
    return ret;
}

/* One schedule of a comparison. */
struct compared {
    const char *name;
    struct action_table table;
    struct pipe_result result;
    double *bytes; /* of a micro-batch on each rank, or NULL */
    int *layers;   /* of the model's stages, or NULL */
};

struct comparison {
    struct compared v[ORDERS + 5]; /* interleaved ones are tried three times, and the
                                    * search once */
    int n;
};

static double held_whole(const struct compared *c)
{
    return largest_held(&c->result) * c->table.ranks * c->table.chains /
           c->table.stages;
}

/* Orders by makespan, then by activation memory. */
static int by_makespan(const void *a, const void *b)
{
    const struct compared *x = a, *y = b;
    double dx = x->result.makespan, dy = y->result.makespan;

    if (dx == dy) {
        dx = held_whole(x);
        dy = held_whole(y);
    }
    return (dx > dy) - (dx < dy);
}

/* Simulates schedule WHICH with CHUNKS per stage.  Skips it if it does not exist for
 * these numbers, needs more layers than the model has, or exceeds the cap. */
static int add_compared(struct comparison *all, const struct settings *s, int which,
                        int chunks, struct err *err)
{
    struct compared *c = &all->v[all->n];
    struct times times = { 0 };
    struct pipe_times set;
    struct err no = { 0 };
    int ret = 0;

    c->name = schedule_names[which];
    if (which == SEARCHED ? search(&c->table, s, &no) < 0
                          : order_make(&c->table, (enum order)which, s->ranks,
                                       s->micro_batches, chunks, &no) < 0)
        return 0;
    if (simulate(&c->result, &c->table, s, &times, &set, &no) < 0) {
        action_table_clear(&c->table);
        if (no.kind != ERR_NO || chunks == 1) {
            *err = no;
            ret = -1;
        }
    } else if (over_cap(s, &c->table, &c->result, times.bytes)) {
        pipe_result_clear(&c->result);
        action_table_clear(&c->table);
    } else {
        c->bytes = times.bytes;
        c->layers = times.layers;
        times.bytes = NULL;
        times.layers = NULL;
        all->n++;
    }
    clear_times(&times);
    return ret;
}

static int add_all(struct comparison *all, const struct settings *s, struct err *err)
{
    for (int i = 0; i < ORDERS; i++) {
        bool interleaved = order_interleaves((enum order)i);
        int chunks = order_chunks((enum order)i);
        int most = interleaved ? 8 : chunks;

        if (interleaved && s->chunks > 1)
            chunks = most = s->chunks;
        for (; chunks <= most; chunks *= 2)
            if (add_compared(all, s, i, chunks, err) < 0)
                return -1;
    }
    return add_compared(all, s, SEARCHED, 1, err);
}

/* The page of a comparison: the bars, and the numbers. */
static int write_compared(const struct settings *s, const struct comparison *all,
                          const struct figure *f, const char *title, struct err *err)
{
    static const char *const heads[] = { "schedule", ">chunks", ">makespan", ">span",
                                         ">idle, %", ">held",   ">transfers" };
    struct html page;

    html_init(&page, title);
    if (html_figure(&page, f, err) < 0) {
        html_clear(&page);
        return -1;
    }
    html_table(&page, heads, sizeof(heads) / sizeof(*heads));
    for (int i = 0; i < all->n; i++) {
        const struct compared *c = &all->v[i];

        html_cell(&page, "%s", c->name);
        html_cell(&page, "%d", c->table.stages / c->table.ranks);
        html_cell(&page, "%g", c->result.makespan);
        html_cell(&page, "%g", c->result.span);
        html_cell(&page, "%.2f", 100 * ratios_of(&c->result).of_total);
        html_cell(&page, "%.4g", held_whole(c));
        html_cell(&page, "%" PRIu64, c->result.transfers);
    }
    html_table_end(&page);
    return picture_write_page(&page, s->plot, s->command, err);
}

/* Draws the comparison: the work of the busiest stage, and its idle time. */
static int draw_compared(const struct settings *s, const struct comparison *all,
                         struct err *err)
{
    char *model = s->plan ? picture_name_dup(s->plan) : NULL, *title;
    struct stacks bars;
    struct figure f;
    int ret;

    title = str_dupf("%s%s%d stages, %d micro-batches", model ? model : "",
                     model ? ": " : "", s->ranks, s->micro_batches);
    stacks_init(&bars, 2, (size_t)all->n);
    bars.part[0] = (struct legend_entry){ "work of the busiest stage", canvas_colour(0),
                                          LEGEND_BOX };
    bars.part[1] = (struct legend_entry){ "idle", canvas_faint, LEGEND_BOX };
    for (int i = 0; i < all->n; i++) {
        const struct compared *c = &all->v[i];
        int chunks = c->table.stages / c->table.ranks;

        bars.row[i].label = str_dupf(chunks > 1 ? "%s x%d" : "%s", c->name, chunks);
        bars.row[i].value[0] = c->result.ideal;
        bars.row[i].value[1] = fmax(0, c->result.makespan - c->result.ideal);
        bars.row[i].note =
            str_dupf("%.1f %% idle, %.4g held%s", 100 * ratios_of(&c->result).of_total,
                     held_whole(c), c->table.chains > 1 ? ", the model twice" : "");
    }
    bars.title = title;
    bars.unit = unit_of(s, false);
    f = stacks_figure(&bars, "Makespan of each schedule; held: micro-batches whose "
                             "activations a stage keeps at most");
    ret = html_is_named(s->plot) ? write_compared(s, all, &f, title, err)
                                 : figure_write(&f, s->plot, err);
    stacks_clear(&bars);
    free(title);
    free(model);
    return ret;
}

/* The shortest of those that hold the model once, or of all. */
static int find_best(const struct comparison *all)
{
    for (int i = 0; i < all->n; i++)
        if (all->v[i].table.chains == 1)
            return i;
    return 0;
}

/* Compares all schedules that exist for these numbers and respect the cap, shortest
 * first. */
static int compare(const struct settings *s, bool *fits, struct err *err)
{
    struct comparison all = { 0 };
    struct table *out = NULL;
    int ret, best;

    ret = add_all(&all, s, err);
    qsort(all.v, (size_t)all.n, sizeof(*all.v), by_makespan);
    if (ret == 0 && s->plot && all.n)
        ret = draw_compared(s, &all, err);
    if (!s->json && ret == 0)
        out = table_new(compared_columns,
                        sizeof(compared_columns) / sizeof(*compared_columns));
    best = find_best(&all);
    for (int i = 0; i < all.n; i++) {
        struct compared *c = &all.v[i];

        if (ret == 0 && s->json)
            print_json(c->name, &c->table, &c->result, c->bytes, c->layers, NULL);
        else if (ret == 0)
            add_row(out, c->name, &c->table, &c->result, i == best);
        pipe_result_clear(&c->result);
        action_table_clear(&c->table);
        free(c->bytes);
        free(c->layers);
    }
    if (out)
        table_print(out);
    *fits = all.n > 0;
    return ret;
}

/* Parses the cap: a bare number is micro-batches, a number with a unit is bytes. */
static int parse_cap(struct settings *s, struct err *err)
{
    if (!s->memory_cap)
        return 0;
    if (str_int(s->memory_cap, &s->cap_count) && s->cap_count > 0)
        return 0;
    s->cap_count = 0;
    if (str_i64(s->memory_cap, &(int64_t){ 0 }) ||
        !str_size(s->memory_cap, &s->cap_bytes) || !s->cap_bytes)
        return err_set(err, ERR_USAGE,
                       "--memory-cap: '%s' is no number of micro-batches and no size "
                       "such as 4GiB",
                       s->memory_cap);
    if (!s->plan)
        return err_set(err, ERR_USAGE,
                       "--memory-cap %s: --plan MODEL says what a micro-batch holds",
                       s->memory_cap);
    return 0;
}

static int run(const struct settings *s, const char *path, bool *fits, struct err *err)
{
    struct action_table t;
    int chunks = s->chunks ? s->chunks
                 : s->name > ORDER_INTERLEAVED && s->name < ORDERS &&
                         !order_interleaves((enum order)s->name)
                     ? order_chunks((enum order)s->name)
                     : 1;
    int ret;

    if (s->compare)
        return compare(s, fits, err);
    if (!path && s->name == SEARCHED) {
        if (search(&t, s, err) < 0)
            return -1;
    } else if (path ? read_table(&t, path, err) < 0
                    : order_make(&t, (enum order)s->name, s->ranks, s->micro_batches,
                                 chunks, err) < 0)
        return -1;
    ret = show(s, &t, path ? path : schedule_names[s->name], fits, err);
    action_table_clear(&t);
    return ret;
}

int schedule_main(const char *program, int argc, char **argv)
{
    const char *command = picture_command(program, argc, argv);
    struct settings s = { .name = ORDER_1F1B, .command = command };
    const struct opt opts[] = {
        { OPT_CHOICE, '\0', "schedule", &s.name, "NAME",
          "naive gpipe 1f1b interleaved zb-h1 ...", schedule_names, NULL },
        { OPT_CHOICE, '\0', "pipeline", &s.name, "NAME", NULL, schedule_names, NULL },
        { OPT_COUNT, '\0', "pp", &s.ranks, "N", "pipeline stages", NULL, NULL },
        { OPT_COUNT, '\0', "micro-batches", &s.micro_batches, "N",
          "micro-batches of a step", NULL, NULL },
        { OPT_COUNT, '\0', "model-chunks", &s.chunks, "N",
          "chunks of layers on a stage", NULL, NULL },
        { OPT_STRING, '\0', "forward", &s.forward, "T",
          "time of a stage for one micro-batch, or a list", NULL, NULL },
        { OPT_STRING, '\0', "backward", &s.backward, "T", "of its backward pass", NULL,
          NULL },
        { OPT_STRING, '\0', "backward-input", &s.input, "T", NULL, NULL, NULL },
        { OPT_STRING, '\0', "backward-weight", &s.weight, "T", NULL, NULL, NULL },
        { OPT_STRING, '\0', "plan", &s.plan, "MODEL", "take times from a model's FLOPs",
          NULL, NULL },
        { OPT_STRING, '\0', "stages", &s.stages, "N,N,...", NULL, NULL, NULL },
        { OPT_STRING, '\0', "calibration", &s.calibration, "FILE", NULL, NULL, NULL },
        { OPT_DOUBLE, '\0', "latency", &s.latency, "T", "of a message", NULL, NULL },
        { OPT_DOUBLE, '\0', "bandwidth", &s.bandwidth, "RATE", NULL, NULL,
          &s.bandwidth_given },
        { OPT_DOUBLE, '\0', "message", &s.message, "BYTES", NULL, NULL, NULL },
        { OPT_STRING, '\0', "memory-cap", &s.memory_cap, "N|SIZE",
          "micro-batches, or bytes, that a stage can hold", NULL, NULL },
        { OPT_DOUBLE, '\0', "input-frees", &s.freed, "SHARE", NULL, NULL, NULL },
        { OPT_FLAG, '\0', "compare", &s.compare, NULL, "simulate every schedule", NULL,
          NULL },
        { OPT_FLAG, '\0', "csv", &s.csv, NULL, "print the table of actions", NULL,
          NULL },
        { OPT_STRING, '\0', "plot", &s.plot, "FILE",
          "draw the timeline: " PICTURE_NAMES, NULL, NULL },
        { OPT_FLAG, '\0', "json", &s.json, NULL, "print JSON, one object a line", NULL,
          NULL },
        { .type = OPT_END },
    };
    const struct cmd cmd = {
        .name = "schedule",
        .program = program,
        .synopsis = "[OPTION]... --pp=N [TABLE]",
        .summary = "Simulate a schedule of a pipeline, or the one in TABLE",
        .opts = opts,
        .max_args = 1,
    };
    char **operand = cmd_parse(&cmd, argc, argv);
    struct err err = { 0 };
    bool fits = true;
    int status;

    if (!(s.freed >= 0 && s.freed <= 1))
        return cmd_usage(&cmd, "--input-frees: is a share from 0 to 1");
    if (s.plot && (status = picture_check(&cmd, "--plot", s.plot)) != 0)
        return status;
    if ((s.plan || s.calibration) && (s.forward || s.backward || s.input || s.weight))
        return cmd_usage(&cmd, "--%s: gives all times",
                         s.plan ? "plan" : "calibration");
    if (s.plan)
        s.families = family_path(&cmd);
    /* one number is how many there are, as other tools have it */
    if (s.stages && !s.plan && !s.ranks && str_int(s.stages, &s.ranks) && s.ranks > 0)
        s.stages = NULL;
    if (s.stages && !s.plan)
        return cmd_usage(&cmd, "--stages: are of --plan MODEL");
    if (s.plan && s.calibration)
        return cmd_usage(&cmd, "--plan and --calibration: each gives all times");
    if (s.compare && (s.csv || operand[0]))
        return cmd_usage(&cmd, "--compare: shows no single table");
    if (!operand[0] && !s.ranks)
        return cmd_usage(&cmd, "--pp is missing");
    if (!s.micro_batches)
        s.micro_batches = s.ranks;
    if (parse_cap(&s, &err) < 0 || (s.calibration && take_calibration(&s, &err) < 0))
        return cmd_fail(&cmd, &err);
    status = run(&s, operand[0], &fits, &err) < 0 ? cmd_fail(&cmd, &err) : 0;
    calibration_clear(&s.measured);
    if (status)
        return status;
    return cmd_finish(&cmd, fits ? EXIT_SUCCESS : EXIT_FAILURE);
}
