/* score - measures how well a model predicts a text */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/tp-run/commands.h"
#include "cmd/tp-run/inputs.h"
#include "cmd/tp-run/named.h"
#include "cmd/tp-run/references.h"
#include "cmd/tp-run/session.h"
#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/run/cache.h"
#include "lib/run/scheduler.h"

enum {
    TOP = 20,
    MOST_TOP = 1 << 16,
    CHUNK = 512,
    UNBOUNDED_WINDOW = 2048,
    MOST = 32 /* windows of a step */
};

/* The result of a document. */
struct result {
    double sum; /* of the losses */
    uint64_t counted;
    size_t windows, done; /* how many it has, and of these are scored */
    float *nll;           /* [tokens]: of each, with --per-token, */
    float *top; /* [tokens][2 * references.top]: or what a teacher tells of it */
};

struct score {
    struct session *session;
    struct inputs inputs;
    uint64_t window;
    uint64_t stride; /* distance of windows in tokens; 0: they do not overlap */
    bool windowed;   /* --window was given */
    bool each;       /* --per-token */
    struct references references;
    struct runner *runner;
    /* on rank 0 */
    struct window {
        size_t document, at, n;
        size_t skip; /* targets already scored by an earlier window */
    } * window_of;   /* [nwindows]; a window's index is its tag */
    size_t nwindows, cap, done;
    struct result *result; /* [inputs] */
    float *nll;            /* [rows of a step][width_of]: received */
    size_t printed;        /* number of documents printed */
};

/* Numbers of a token: its loss, or what a teacher tells of it. */
static size_t width_of(const struct score *s)
{
    return s->references.kind == REFERENCES_DISTIL ? 2 * s->references.top : 1;
}

/* Keeps what is told of a window's tokens, at X. */
static int keep_top(struct score *s, const struct scheduler_part *part, const float *x,
                    struct err *err)
{
    const struct window *w = &s->window_of[part->tag];
    struct result *r = &s->result[w->document];
    const size_t width = width_of(s);

    for (size_t i = 0; i < part->n; i++) {
        const size_t at = w->at + part->start + i + 1;

        if (isnan(x[i * width + 1]))
            return inputs_not_finite(&s->inputs, s->session, w->document, "logits", at,
                                     err);
        memcpy(r->top + at * width, x + i * width, width * sizeof(*x));
    }
    r->done += part->last;
    s->done += part->last;
    return 0;
}

/* Adds the losses of a window's tokens. */
static int add_losses(struct score *s, const struct scheduler_part *part,
                      const float *nll, struct err *err)
{
    const struct window *w = &s->window_of[part->tag];
    struct result *r = &s->result[w->document];

    if (r->top)
        return keep_top(s, part, nll, err);
    for (size_t i = 0; i < part->n; i++) {
        const size_t at = w->at + part->start + i + 1; /* of the token */

        if (isnan(nll[i])) /* inf: the model leaves out the token, by a logit of -inf */
            return inputs_not_finite(&s->inputs, s->session, w->document, "logits", at,
                                     err);
        if (part->start + i < w->skip || at < s->inputs.v[w->document].pair[0])
            continue;
        r->sum += (double)nll[i];
        r->counted++;
        if (r->nll)
            r->nll[at] = nll[i];
    }
    r->done += part->last;
    s->done += part->last;
    return 0;
}

/* On the last stage: sends the losses of a window's tokens to rank 0, which keeps its
 * own. */
static int see(void *arg, const struct scheduler_part *part, struct err *err)
{
    struct score *s = arg;
    const struct program *p = s->runner->program;
    const size_t width = width_of(s);
    const size_t cols = width > 1 ? (size_t)p->value[p->output[0].value].cols : 1;
    const float *nll;
    size_t rows;

    if (!runner_is_last(s->runner))
        return 0;
    if (engine_output(part->engine, 0, &nll, &rows, err) < 0)
        return -1;
    nll = scheduler_rows(part, ROWS_TOKENS, nll, cols, &rows);
    if (width > 1) {
        for (size_t i = 0; i < rows; i++)
            references_find_top(&s->references, nll + i * cols, cols,
                                s->nll + i * width);
        nll = s->nll;
    }
    if (s->runner->world->rank == 0)
        return add_losses(s, part, nll, err);
    return runner_send(s->runner, s->runner->stage, nll, rows * width * sizeof(*nll),
                       err);
}

/* Each predicted token of document I with its log-probability: as the members of a
 * JSON object, or a line each. */
static void add_tokens(struct str *out, const struct score *s, size_t i)
{
    const struct input *in = &s->inputs.v[i];
    const bool json = s->session->opt.json;
    const char *join = "";

    if (json)
        str_add(out, ",\"logprobs\":[");
    for (size_t k = in->pair[0] ? in->pair[0] : 1; k < in->ids.n; k++, join = ",") {
        const uint32_t id = (uint32_t)in->ids.v[k];
        struct str text = { 0 };

        if (s->session->tokenizer)
            tokenizer_decode(s->session->tokenizer, &id, 1, false, &text);
        str_addf(out, json ? "%s{\"id\":%d,\"token\":" : "%s%d\t", json ? join : "",
                 (int)in->ids.v[k]);
        if (!json)
            str_addf(out, "%.5f\t", -(double)s->result[i].nll[k]);
        if (s->session->tokenizer)
            str_add_jsonn(out, str_text(&text), text.len);
        else
            str_add(out, json ? "null" : "");
        if (json) {
            str_add(out, ",\"logprob\":");
            str_add_double(out, -(double)s->result[i].nll[k]);
        }
        str_addc(out, json ? '}' : '\n');
        str_clear(&text);
    }
    if (json)
        str_addc(out, ']');
}

static void add_result(struct str *out, const struct score *s, size_t i)
{
    const struct input *in = &s->inputs.v[i];
    const struct result *r = &s->result[i];
    const double nll = r->sum / (double)r->counted;

    if (s->session->opt.json) {
        str_add(out, "{\"type\":\"score\"");
        inputs_add_place(out, in);
        str_addf(out, ",\"tokens\":%" PRIu64 ",\"nll\":", r->counted);
        str_add_double(out, nll);
        str_add(out, ",\"perplexity\":");
        str_add_double(out, exp(nll));
        str_addf(out, ",\"window\":%" PRIu64 ",\"stride\":%" PRIu64, s->window,
                 s->stride ? s->stride : s->window);
        if (s->each)
            add_tokens(out, s, i);
        str_add(out, "}\n");
        return;
    }
    if (s->each)
        add_tokens(out, s, i);
    str_addf(out, "%s: %" PRIu64 " tokens, nll %.5f, perplexity %.4f, window %" PRIu64,
             in->name, r->counted, nll, exp(nll), s->window);
    if (s->stride)
        str_addf(out, ", stride %" PRIu64, s->stride);
    str_addc(out, '\n');
}

/* ---- choices ---- */

/* By what choices are ranked: the sum of log-probabilities, or that divided by the
 * number of tokens, or of characters (lm_eval's acc and acc_norm: the first and the
 * last). */
enum { BY_SUM, BY_TOKEN, BY_LETTER, NBY };

static double value_of(const struct score *s, size_t i, int by)
{
    const double n = by == BY_SUM     ? 1
                     : by == BY_TOKEN ? (double)s->result[i].counted
                                      : (double)s->inputs.v[i].letters;

    return -s->result[i].sum / n;
}

/* The best of the N documents from I on, and by how much.  Without a length in
 * characters, as of ids, none is: N. */
static size_t best_of(const struct score *s, size_t i, size_t n, int by, double *margin)
{
    size_t best = 0;
    double second = -INFINITY;

    for (size_t k = 0; k < n; k++)
        if (by == BY_LETTER && !s->inputs.v[i + k].letters)
            return n;
    for (size_t k = 1; k < n; k++) {
        const double value = value_of(s, i + k, by), most = value_of(s, i + best, by);

        second = value > most ? most : value > second ? value : second;
        best = value > most ? k : best;
    }
    *margin = value_of(s, i + best, by) - second;
    return best;
}

static void add_choice(struct str *out, const struct score *s, size_t i)
{
    str_addf(out, "{\"tokens\":%" PRIu64 ",\"logprob\":", s->result[i].counted);
    str_add_double(out, -s->result[i].sum);
    if (s->each)
        add_tokens(out, s, i);
    str_addc(out, '}');
}

/* The choices of a line, N documents from I on. */
static void add_ranked(struct str *out, const struct score *s, size_t i, size_t n)
{
    static const char *const names[NBY] = { "", "_by_token", "_by_character" };
    static const char *const words[NBY] = { "best", "by token", "by character" };
    const struct input *in = &s->inputs.v[i];
    const bool json = s->session->opt.json;

    if (json) {
        str_add(out, "{\"type\":\"choice\"");
        inputs_add_place(out, in);
        str_add(out, ",\"choices\":[");
    }
    for (size_t k = 0; k < n; k++) {
        if (json) {
            str_add(out, k ? "," : "");
            add_choice(out, s, i + k);
        } else if (s->each) {
            str_addf(out, "choice %zu\n", k);
            add_tokens(out, s, i + k);
        }
    }
    str_addf(out, json ? "]" : "%s:", in->name);
    for (int by = 0; by < NBY; by++) {
        double margin;
        const size_t best = best_of(s, i, n, by, &margin);

        if (best == n)
            continue;
        if (!json) {
            str_addf(out, "%s %s %zu (margin %.5f)", by ? "," : "", words[by], best,
                     margin);
            continue;
        }
        str_addf(out, ",\"best%s\":%zu,\"margin%s\":", names[by], best, names[by]);
        str_add_double(out, margin);
    }
    str_add(out, json ? "}\n" : "\n");
}

/* ---- printing ---- */

/* The line of N texts from I on, with what was found of them. */
static void add_referenced(struct str *out, const struct score *s, size_t i, size_t n)
{
    float **nll = xcalloc(n, sizeof(*nll)), **top = xcalloc(n, sizeof(*top));

    for (size_t k = 0; k < n; k++) {
        nll[k] = s->result[i + k].nll;
        top[k] = s->result[i + k].top;
    }
    references_add(out, &s->references, s->inputs.v[i].line - 1, &s->inputs.v[i], n,
                   nll, top);
    free(nll);
    free(top);
}

/* How many documents make one result with document I. */
static size_t group_of(const struct score *s, size_t i)
{
    return s->inputs.v[i].choices ? s->inputs.v[i].choices : 1;
}

static bool is_known(const struct score *s, size_t i, size_t n)
{
    for (size_t k = i; k < i + n; k++)
        if (!s->inputs.v[k].bad && s->result[k].done < s->result[k].windows)
            return false;
    return true;
}

/* Prints the results that are known, in order. */
static int print_results(struct score *s, struct err *err)
{
    size_t n = 1;

    for (; s->printed < s->inputs.n; s->printed += n) {
        const size_t i = s->printed;
        struct str out = { 0 };

        n = group_of(s, i);
        if (!is_known(s, i, n))
            break;
        if (s->inputs.v[i].bad && s->session->opt.json)
            inputs_print_bad(&s->inputs, i);
        else if (s->references.kind)
            add_referenced(&out, s, i, n);
        else if (!s->inputs.v[i].bad && s->inputs.v[i].choices)
            add_ranked(&out, s, i, n);
        else if (!s->inputs.v[i].bad)
            add_result(&out, s, i);
        fputs(str_text(&out), stdout);
        str_clear(&out);
        if (fflush(stdout) < 0)
            return err_errno(err, "standard output");
    }
    return 0;
}

/* On rank 0: receives the losses of a window's tokens from another rank. */
static int collect(void *arg, const struct scheduler_part *part, struct err *err)
{
    struct score *s = arg;
    struct runner *r = s->runner;
    int last = r->nstages - 1;

    if (part->replica == 0 && last == 0)
        return 0;
    if (runner_receive(r, part->replica, last, s->nll,
                       part->n * width_of(s) * sizeof(*s->nll), err) < 0)
        return -1;
    return add_losses(s, part, s->nll, err);
}

/* Reports how far the work is, and prints what is new. */
static int show(struct score *s, struct err *err)
{
    bool speaks = cmd_progress(s->session->opt.quiet);
    size_t before = s->printed;

    if (speaks)
        fprintf(stderr, "\r%zu of %zu windows", s->done, s->nwindows);
    if (speaks &&
        (s->done == s->nwindows || s->result[before].done == s->result[before].windows))
        fputs("\r\033[K", stderr);
    return print_results(s, err);
}

/* Adds N tokens of document DOCUMENT from AT as a window; an earlier window has scored
 * SKIP of them. */
static void add_window(struct score *s, size_t document, size_t at, size_t n,
                       size_t skip)
{
    s->window_of = xgrow(s->window_of, &s->cap, s->nwindows + 1, sizeof(*s->window_of));
    s->window_of[s->nwindows++] = (struct window){ document, at, n, skip };
    s->result[document].windows++;
}

/* Without a stride, inputs are all tokens but the last, in windows that do not overlap,
 * and targets are the next tokens.  With a stride, a window begins every STRIDE tokens
 * and its targets lie inside it; each token is predicted once, in the first window that
 * contains it.  These are the windows of "Perplexity of fixed-length models" in
 * transformers' documentation. */
static void add_windows(struct score *s, size_t document)
{
    size_t n = s->inputs.v[document].ids.n, before = 1, end;

    for (size_t at = 0; !s->stride && at < n - 1; at += s->window)
        add_window(s, document, at, n - 1 - at < s->window ? n - 1 - at : s->window, 0);
    for (size_t at = 0; s->stride && before < n; at += s->stride, before = end) {
        end = n - at < s->window ? n : at + s->window;
        add_window(s, document, at, end - at - 1, before - at - 1);
    }
}

/* Upper bound. */
static size_t windows_of(const struct score *s, const struct input *d)
{
    uint64_t step = s->stride ? s->stride : s->window;

    return d->bad ? 0 : (size_t)((d->ids.n - 1 + step - 1) / step);
}

static int submit_window(struct score *s, struct scheduler *to, size_t i,
                         struct err *err)
{
    const struct window *w = &s->window_of[i];
    const struct input *d = &s->inputs.v[w->document];
    struct scheduler_text text = { .ids = d->ids.v + w->at,
                                   .targets = d->ids.v + w->at + 1,
                                   .n = w->n,
                                   .adapter = d->adapter,
                                   .tag = i };
    uint64_t id;

    named_give(d, s->session, w->at, text.input, text.rows);
    return scheduler_submit(to, &text, &id, err);
}

static int lead(struct score *s, struct scheduler *to, struct err *err)
{
    int more = 1;

    for (size_t i = 0; i < s->inputs.n; i++) {
        if (s->inputs.v[i].bad)
            continue;
        add_windows(s, i);
        if (s->references.kind == REFERENCES_DISTIL)
            s->result[i].top =
                xcalloc(s->inputs.v[i].ids.n * width_of(s), sizeof(float));
        else if (s->each)
            s->result[i].nll = xcalloc(s->inputs.v[i].ids.n, sizeof(float));
    }
    for (size_t i = 0; i < s->nwindows; i++)
        if (submit_window(s, to, i, err) < 0)
            return -1;
    while (more > 0) {
        more = scheduler_step(to, err);
        if (more >= 0 && show(s, err) < 0)
            return -1;
    }
    return more;
}

static int score_documents(struct score *s, struct runner *r,
                           const struct engine_limits *limits, struct err *err)
{
    const struct scheduler_options how = {
        .limits = limits, .see = see, .collect = collect, .arg = s
    };
    bool front = r->world->rank == 0;
    struct scheduler *scheduler;
    int ret;

    s->runner = r;
    s->result = xcalloc(s->inputs.n + 1, sizeof(*s->result));
    s->nll = xcalloc(limits->tokens * width_of(s) + 1, sizeof(*s->nll));
    ret = scheduler_open(&scheduler, r, &how, err) < 0 ? -1
          : front                                      ? lead(s, scheduler, err)
                  : scheduler_follow(scheduler, err);
    ret = scheduler_close(scheduler, ret, err);
    for (size_t i = 0; i < s->inputs.n; i++) {
        free(s->result[i].nll);
        free(s->result[i].top);
    }
    free(s->result);
    free(s->nll);
    free(s->window_of);
    return ret;
}

/* A step has windows of several documents, except with sequence parallelism. */
static struct engine_limits limits_of(const struct score *s)
{
    size_t sp = (size_t)s->session->mesh.size[MESH_SP];
    const struct inputs_sizes sizes = inputs_sizes(&s->inputs);
    struct engine_limits limits = { .wanted = 1, .source = sizes.source };
    size_t longest = 0, all = 0, windows = 0;

    for (size_t i = 0; i < s->inputs.n; i++) {
        const struct input *in = &s->inputs.v[i];
        size_t n = in->ids.n ? in->ids.n - 1 : 0;

        if (in->bad)
            continue;
        windows += windows_of(s, in);
        all += n;
        n = n < s->window ? n : (size_t)s->window;
        longest = n > longest ? n : longest;
    }
    limits.tokens = sp > 1 ? longest : all;
    if (limits.tokens > CHUNK * sp)
        limits.tokens = CHUNK * sp;
    limits.context = longest;
    limits.segments = limits.sequences = 1;
    if (sp == 1 && windows > 1 && longest < limits.tokens) {
        limits.segments = limits.sequences = windows < MOST ? windows : MOST;
        limits.cache =
            cache_blocks(limits.tokens > limits.source ? limits.tokens : limits.source,
                         1, 0) *
            CACHE_BLOCK;
    }
    limits.sources = limits.source * limits.segments;
    limits.wanted = limits.segments;
    inputs_limit(&sizes, &limits);
    return limits;
}

static struct program_options options_of(const struct score *s)
{
    return (struct program_options){
        .tail = s->references.kind == REFERENCES_DISTIL ? TAIL_LOGITS : TAIL_NLL,
        .deterministic = s->session->opt.same_bits,
        .rounded = s->session->opt.compute == COMPUTE_BF16
    };
}

static int choose_backend(const struct score *s, struct err *err)
{
    const struct program_options options = options_of(s);

    return session_choose(s->session, &options, 1, err);
}

static int score_rank(void *arg, struct comm *comm, struct err *err)
{
    struct score *s = arg;
    const struct program_options options = options_of(s);
    struct engine_limits limits = limits_of(s);
    struct runner r;
    int ret = 0;

    if (runner_open(&r, s->session->checkpoint, &s->session->mesh, &s->session->machine,
                    comm, &options, &limits, err) < 0)
        return -1;
    ret = session_report(s->session, &r, comm, err);
    if (ret == 0 && !r.program->causal)
        ret = err_set(err, ERR_INPUT,
                      "family %s is an encoder and predicts no next token",
                      s->session->checkpoint->model->family);
    if (ret == 0)
        ret = score_documents(s, &r, &limits, err);
    ret = runner_finish(&r, ret, err);
    runner_close(&r);
    return ret;
}

/* A choice is scored in one window: the line of document I, whose choices are the N
 * from I on, is bad if one does not fit. */
static int check_choices(struct score *s, size_t i, struct err *err)
{
    struct inputs *in = &s->inputs;
    const size_t n = in->v[i].choices;
    size_t most = 0;

    for (size_t k = i; k < i + n; k++)
        most = in->v[k].ids.n > most ? in->v[k].ids.n : most;
    if (!n || most - 1 <= s->window)
        return 0;
    for (size_t k = i + 1; k < i + n; k++)
        inputs_drop(&in->v[k]);
    in->n -= n - 1;
    memmove(&in->v[i + 1], &in->v[i + n], (in->n - i - 1) * sizeof(*in->v));
    err_set(err, ERR_INPUT, "%s: the text and a choice have %zu tokens, a window %llu",
            in->v[i].name, most, (unsigned long long)s->window);
    return inputs_refuse(in, s->session, i, err);
}

/* Reads the lines to which likelihoods are added; each text has one window. */
static int read_references(struct score *s, const struct opt_list *lines,
                           struct err *err)
{
    struct inputs *in = &s->inputs;

    s->each = true;
    for (size_t i = 0; i < lines->n; i++)
        if (references_read(&s->references, in, s->session, lines->v[i], err) < 0)
            return -1;
    for (size_t i = 0; i < in->n; i++)
        if (in->v[i].ids.n - 1 > s->window)
            return err_set(err, ERR_INPUT, "%s: %zu tokens, and a window has %llu",
                           in->v[i].name, in->v[i].ids.n - 1,
                           (unsigned long long)s->window);
    return 0;
}

static int read_documents(struct score *s, char **file, int nfiles,
                          const struct opt_list *ids, const struct opt_list *lines,
                          struct err *err)
{
    struct inputs *in = &s->inputs;

    if (s->references.kind)
        return read_references(s, lines, err);
    for (int i = 0; i < nfiles; i++)
        if (inputs_add_file(in, s->session, file[i], false, err) < 0)
            return -1;
    for (size_t i = 0; i < ids->n; i++)
        if (inputs_add_file(in, s->session, ids->v[i], true, err) < 0)
            return -1;
    for (size_t i = 0; i < lines->n; i++)
        if (inputs_add_lines(in, s->session, lines->v[i], err) < 0)
            return -1;
    if (!nfiles && !ids->n && !lines->n &&
        inputs_add_file(in, s->session, "-", false, err) < 0)
        return -1;
    if (inputs_use(in, s->session, INPUT_TARGET, err) < 0)
        return -1;
    for (size_t i = 0; i < in->n; i++) {
        if (check_choices(s, i, err) < 0)
            return -1;
        if (in->v[i].bad || in->v[i].ids.n >= 2)
            continue;
        err_set(err, ERR_INPUT, "%s: %zu tokens; two are needed to predict one",
                in->v[i].name, in->v[i].ids.n);
        if (inputs_refuse(in, s->session, i, err) < 0)
            return -1;
    }
    return 0;
}

static int set_window(struct score *s, struct err *err)
{
    uint64_t most = s->session->context;

    if (!s->window)
        s->window = most ? most : UNBOUNDED_WINDOW;
    if (most && s->window > most)
        return err_set(err, ERR_INPUT, "--window %llu: the model takes %llu tokens",
                       (unsigned long long)s->window, (unsigned long long)most);
    if (s->stride >= s->window && s->stride)
        return err_set(err, ERR_USAGE, "--stride %llu: the window has %llu tokens",
                       (unsigned long long)s->stride, (unsigned long long)s->window);
    return 0;
}

/* Without a usable document: prints the bad lines, and runs nothing. */
static int print_refused(const struct score *s)
{
    bool speaks = s->session->opt.json && launcher_is_front(&s->session->launcher);

    for (size_t i = 0; speaks && i < s->inputs.n; i++)
        inputs_print_bad(&s->inputs, i);
    return ERR_INPUT;
}

/* Is FIRST a checkpoint, and LAST a text? */
static int find_swapped(bool *swapped, const char *first, const char *last,
                        struct err *err)
{
    bool first_dir, last_dir, found;

    if (fs_find_dir(&first_dir, first, err) < 0 ||
        fs_find_dir(&last_dir, last, err) < 0 || fs_find(&found, last, err) < 0)
        return -1;
    *swapped = first_dir && found && !last_dir;
    return 0;
}

int score_main(const char *program, int argc, char **argv)
{
    struct session_options opt = SESSION_DEFAULTS;
    struct opt_list ids = { 0 }, lines = { 0 };
    struct session session = { 0 };
    struct score s = { .session = &session, .references = { .temperature = 1 } };
    bool has_top = false, has_temperature = false;
    uint64_t top = TOP;
    double vocab;
    const struct opt opts[] = {
        { OPT_LIST, '\0', "ids-file", &ids, "FILE",
          "score the ids in FILE instead of text", NULL, NULL },
        { OPT_LIST, '\0', "input", &lines, "FILE",
          "score each line of FILE (text, or JSON)", NULL, NULL },
        { OPT_FLAG, '\0', "per-token", &s.each, NULL,
          "print each token with its log-probability", NULL, NULL },
        { OPT_CHOICE, '\0', "references", &s.references.kind, "LOSS",
          "add what --loss LOSS of train needs to lines", reference_kinds, NULL },
        { OPT_U64, '\0', "teacher-top", &top, "N", NULL, NULL, &has_top },
        { OPT_DOUBLE, '\0', "teacher-temperature", &s.references.temperature, "T", NULL,
          NULL, &has_temperature },
        INPUT_FORMAT_OPTION(s.inputs),
        { OPT_U64, '\0', "window", &s.window, "N",
          "input tokens at a time (default: the model's most)", NULL, &s.windowed },
        { OPT_U64, '\0', "stride", &s.stride, "N",
          "tokens from window to window, which then overlap", NULL, NULL },
        { OPT_CHOICE, '\0', "invalid", &s.inputs.invalid, "HOW",
          "bytes that are not UTF-8: refuse, replace", input_invalid_names, NULL },
        SESSION_OPTIONS(opt),
        { .type = OPT_END },
    };
    const struct cmd cmd = {
        .name = "score",
        .program = program,
        .own_page = true,
        .synopsis = "[OPTION]... [FILE]... CHECKPOINT",
        .summary = "Print the negative log-likelihood and perplexity of text",
        .opts = opts,
        .min_args = 1,
        .max_args = -1
    };
    char **operand = cmd_parse(&cmd, argc, argv);
    struct err err = { 0 };
    bool swapped = false;
    int n = 0, status;

    if (s.windowed && !s.window)
        return cmd_usage(&cmd, "--window: '0' is not a whole number from 1");
    while (operand[n])
        n++;
    if (s.references.kind && (n > 1 || ids.n || !lines.n || s.stride || s.each))
        return cmd_usage(&cmd, "--references: reads the lines of --input alone, each "
                               "text of which is a window");
    if ((has_top || has_temperature) && s.references.kind != REFERENCES_DISTIL)
        return cmd_usage(&cmd, "--teacher-%s: goes with --references distill",
                         has_top ? "top" : "temperature");
    if (top < 1 || top > MOST_TOP || !(s.references.temperature > 0))
        return cmd_usage(&cmd,
                         "--teacher-top: a number from 1 to %d, and "
                         "--teacher-temperature: above 0",
                         MOST_TOP);
    s.references.top = (size_t)top;
    if (n > 1 && find_swapped(&swapped, operand[0], operand[n - 1], &err) < 0)
        return cmd_fail(&cmd, &err);
    if (swapped)
        return cmd_usage(&cmd, "the texts come first, then the checkpoint: %s %s",
                         operand[n - 1], operand[0]);
    if (session_open(&session, &cmd, &opt, operand[n - 1], &err) < 0 ||
        session_need_lm(&session, &err) < 0 || set_window(&s, &err) < 0 ||
        choose_backend(&s, &err) < 0) {
        status = cmd_fail(&cmd, &err);
        goto out;
    }
    s.inputs.continues = true;
    if (model_number(session.checkpoint->model, "vocab", &vocab) &&
        (double)s.references.top > vocab)
        s.references.top = (size_t)vocab;
    session.replaces = s.inputs.invalid == INVALID_REPLACE;
    if (inputs_share(&s.inputs, &session,
                     launcher_is_front(&session.launcher)
                         ? read_documents(&s, operand, n - 1, &ids, &lines, &err)
                         : 0,
                     &err) < 0)
        status = cmd_fail(&cmd, &err);
    else if (s.inputs.nbad == s.inputs.n)
        status = cmd_finish(&cmd, print_refused(&s));
    else
        status = inputs_status(&s.inputs, session_run(&session, score_rank, &s));
out:
    inputs_clear(&s.inputs);
    references_clear(&s.references);
    session_close(&session);
    return status;
}
