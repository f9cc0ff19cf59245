/* score - measures how well a model predicts a text */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/tp-run/commands.h"
#include "cmd/tp-run/inputs.h"
#include "cmd/tp-run/session.h"
#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/run/cache.h"
#include "lib/run/scheduler.h"

enum { CHUNK = 512, UNBOUNDED_WINDOW = 2048, MOST = 32 /* windows of a step */ };

/* The result of a document. */
struct result {
    double sum; /* of the losses */
    uint64_t counted;
};

struct score {
    struct session *session;
    struct inputs inputs;
    uint64_t window;
    uint64_t stride; /* distance of windows in tokens; 0: they do not overlap */
    bool windowed;   /* --window was given */
    /* this replica's part */
    struct runner *runner;
    struct scheduler_text *plan; /* [windows] */
    size_t *document;            /* [windows]: the document of each */
    size_t *skip;                /* [windows]: targets already scored by an earlier
                                  * window */
    size_t nwindows, cap[3];
    struct result *result; /* [inputs]; of this replica's documents, on rank 0 of all */
    size_t printed;        /* on rank 0: number of documents printed */
};

/* Adds the losses of a window; after a document's last window sends the result to rank
 * 0. */
static int see(void *arg, const struct scheduler_part *part, struct err *err)
{
    struct score *s = arg;
    size_t at = s->document[part->text], rows;
    struct result *r = &s->result[at];
    const float *nll;

    if (!runner_is_last(s->runner))
        return 0;
    if (engine_output(part->engine, 0, &nll, &rows, err) < 0)
        return -1;
    nll = scheduler_rows(part, ROWS_TOKENS, nll, 1, &rows);
    for (size_t i = 0; i < rows; i++)
        if (isnan(nll[i])) /* inf: the model leaves out the token, by a logit of -inf */
            return inputs_not_finite(
                &s->inputs, s->session, at, "logits",
                (size_t)(s->plan[part->text].ids - s->inputs.v[at].ids.v) +
                    part->start + i + 1,
                err);
        else if (part->start + i >= s->skip[part->text]) {
            r->sum += (double)nll[i];
            r->counted++;
        }
    if (!part->last ||
        (part->text + 1 < s->nwindows && s->document[part->text + 1] == at))
        return 0;
    return runner_send(s->runner, s->runner->nstages - 1, r, sizeof(*r), err);
}

static void print_result(const struct score *s, const struct input *in,
                         const struct result *r)
{
    const char *name = in->name;
    double nll = r->sum / (double)r->counted;
    struct str out = { 0 };

    if (s->session->opt.json) {
        str_add(&out, "{\"type\":\"score\"");
        inputs_add_place(&out, in);
        str_addf(&out, ",\"tokens\":%" PRIu64 ",\"nll\":", r->counted);
        str_add_double(&out, nll);
        str_add(&out, ",\"perplexity\":");
        str_add_double(&out, exp(nll));
        str_addf(&out, ",\"window\":%" PRIu64 ",\"stride\":%" PRIu64 "}\n", s->window,
                 s->stride ? s->stride : s->window);
    } else {
        str_addf(&out,
                 "%s: %" PRIu64 " tokens, nll %.5f, perplexity %.4f, window %" PRIu64,
                 name, r->counted, nll, exp(nll), s->window);
        if (s->stride)
            str_addf(&out, ", stride %" PRIu64, s->stride);
        str_addc(&out, '\n');
    }
    fputs(str_text(&out), stdout);
    str_clear(&out);
}

/* On rank 0: prints the results of the documents before END. */
static int print_until(struct score *s, size_t end, struct err *err)
{
    struct runner *r = s->runner;

    for (; s->printed < end && r->world->rank == 0; s->printed++) {
        size_t i = s->printed;
        int replica = (int)(i % (size_t)r->nreplicas);

        if (s->inputs.v[i].bad && s->session->opt.json)
            inputs_print_bad(&s->inputs, i);
        if (!s->inputs.v[i].bad) {
            if (runner_receive(r, replica, r->nstages - 1, &s->result[i],
                               sizeof(*s->result), err) < 0)
                return -1;
            print_result(s, &s->inputs.v[i], &s->result[i]);
        }
        if (fflush(stdout) < 0)
            return err_errno(err, "standard output");
    }
    return 0;
}

/* Called when the windows before END have been run and their results have been sent. */
static int settled(void *arg, size_t end, struct err *err)
{
    struct score *s = arg;
    bool speaks = s->runner->world->rank == 0 && cmd_progress(s->session->opt.quiet);
    size_t done = end < s->nwindows ? s->document[end] : s->inputs.n;

    if (speaks)
        fprintf(stderr, "\r%zu of %zu windows", end, s->nwindows);
    if (speaks && (done > s->printed || end == s->nwindows))
        fputs("\r\033[K", stderr);
    return runner_keeps_step(s->runner) ? 0 : print_until(s, done, err);
}

/* Adds N tokens of document DOCUMENT from AT as a window; an earlier window has scored
 * SKIP of them. */
static void add_window(struct score *s, size_t document, size_t at, size_t n,
                       size_t skip)
{
    const struct input *d = &s->inputs.v[document];
    size_t i = s->nwindows++;

    s->plan = xgrow(s->plan, &s->cap[0], i + 1, sizeof(*s->plan));
    s->document = xgrow(s->document, &s->cap[1], i + 1, sizeof(*s->document));
    s->skip = xgrow(s->skip, &s->cap[2], i + 1, sizeof(*s->skip));
    s->plan[i] =
        (struct scheduler_text){ .ids = d->ids.v + at,
                                 .token_types = d->types.n ? d->types.v + at : NULL,
                                 .marks = d->marks.n ? d->marks.v + at * MARKS : NULL,
                                 .targets = d->ids.v + at + 1,
                                 .source = d->source.v,
                                 .nsource = d->source.n,
                                 .features = d->features,
                                 .nframes = d->nframes,
                                 .n = n };
    s->document[i] = document;
    s->skip[i] = skip;
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

/* Rank 0 asks for results only after they have been sent, so no stage waits for it. */
static int score_documents(struct score *s, struct runner *r,
                           const struct engine_limits *limits, struct err *err)
{
    struct scheduler plan = {
        .runner = r, .limits = limits, .see = see, .settled = settled, .arg = s
    };
    int ret;

    s->runner = r;
    s->result = xcalloc(s->inputs.n + 1, sizeof(*s->result));
    for (size_t i = (size_t)r->replica; i < s->inputs.n; i += (size_t)r->nreplicas)
        if (!s->inputs.v[i].bad)
            add_windows(s, i);
    plan.text = s->plan;
    plan.ntexts = s->nwindows;
    ret = scheduler_run(&plan, err);
    if (ret == 0)
        ret = print_until(s, s->inputs.n, err);
    free(s->result);
    free(s->skip);
    free(s->document);
    free(s->plan);
    return ret;
}

/* A step has windows of several documents, except with sequence parallelism. */
static struct engine_limits limits_of(const struct score *s)
{
    size_t sp = (size_t)s->session->mesh.size[MESH_SP];
    struct engine_limits limits = { .wanted = 1,
                                    .source = inputs_sizes(&s->inputs).source };
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
    return limits;
}

static struct program_options options_of(const struct score *s)
{
    return (struct program_options){ .tail = TAIL_NLL,
                                     .deterministic = s->session->opt.same_bits,
                                     .rounded =
                                         s->session->opt.compute == COMPUTE_BF16 };
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

static int read_documents(struct score *s, char **file, int nfiles,
                          const struct opt_list *ids, const struct opt_list *lines,
                          struct err *err)
{
    struct inputs *in = &s->inputs;

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
    struct score s = { .session = &session };
    const struct opt opts[] = {
        { OPT_LIST, '\0', "ids-file", &ids, "FILE",
          "score the ids in FILE instead of text", NULL, NULL },
        { OPT_LIST, '\0', "input", &lines, "FILE",
          "score each line of FILE (text, or JSON)", NULL, NULL },
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
    session_close(&session);
    return status;
}
