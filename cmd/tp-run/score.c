/* score - how well a model predicts a text */
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

enum { CHUNK = 512, UNBOUNDED_WINDOW = 2048 };

/* What a document comes to. */
struct result {
    double sum; /* of nll */
    uint64_t counted;
};

struct score {
    struct session *session;
    struct inputs inputs;
    uint64_t window;
    uint64_t stride;   /* tokens from window to window; 0: they do not overlap */
    bool windowed;     /* --window was given */
    size_t skip, seen; /* targets of the present window: scored before it, and so far */
    struct result now; /* of the present document; on the last stage */
    size_t printed;    /* documents; at the front */
};

static int see(void *arg, struct engine *e, struct err *err)
{
    struct score *s = arg;
    const float *nll;
    size_t rows;

    if (engine_output(e, 0, &nll, &rows, err) < 0)
        return -1;
    for (size_t i = 0; i < rows; i++, s->seen++)
        if (s->seen >= s->skip) {
            s->now.sum += (double)nll[i];
            s->now.counted++;
        }
    return 0;
}

static void print_result(const struct score *s, const struct input *in,
                         const struct result *r)
{
    const char *name = in->name;
    double nll = r->sum / (double)r->counted;
    struct str out = { 0 };

    if (s->session->opt.json) {
        str_add(&out, "{\"type\":\"score\",\"file\":");
        str_add_json(&out, name);
        if (in->line)
            str_addf(&out, ",\"line\":%zu", in->line);
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

/* Print the results of the documents before END at the front; RESULT holds its own. */
static int print_until(struct score *s, struct runner *r, struct result *result,
                       size_t end, struct err *err)
{
    for (; s->printed < end && r->world->rank == 0; s->printed++) {
        size_t i = s->printed;
        int replica = (int)(i % (size_t)r->nreplicas);

        if (s->inputs.v[i].bad && s->session->opt.json)
            inputs_print_bad(&s->inputs, i);
        if (!s->inputs.v[i].bad) {
            if (runner_take(r, replica, r->nstages - 1, &result[i], sizeof(*result),
                            err) < 0)
                return -1;
            print_result(s, &s->inputs.v[i], &result[i]);
        }
        if (fflush(stdout) < 0)
            return err_errno(err, "standard output");
    }
    return 0;
}

/* Run N tokens from AT as one window. */
static int score_window(struct score *s, struct runner *r, const struct input *d,
                        size_t at, size_t n, struct err *err)
{
    struct segment window = { .ids = d->ids.v + at,
                              .token_types = d->types.n ? d->types.v + at : NULL,
                              .targets = d->ids.v + at + 1,
                              .source = d->source.v,
                              .nsource = d->source.n,
                              .n = n };

    s->seen = 0;
    return runner_feed(r, &window, see, s, err);
}

/* Inputs are all tokens but the last, in windows that do not overlap; targets are the
 * next ones. */
static int score_apart(struct score *s, struct runner *r, const struct input *d,
                       bool speaks, struct err *err)
{
    size_t inputs = d->ids.n - 1;

    s->skip = 0;
    for (size_t at = 0; at < inputs; at += s->window) {
        size_t n = inputs - at < s->window ? inputs - at : s->window;

        if (score_window(s, r, d, at, n, err) < 0)
            return -1;
        if (speaks)
            fprintf(stderr, "\r%s: %zu of %zu tokens", d->name, at + n, inputs);
    }
    return 0;
}

/* Windows that begin stride tokens after one another, targets within them: each token
 * is predicted once, by the first window that holds it.  These are the windows of
 * "Perplexity of fixed-length models" in transformers' documentation. */
static int score_strided(struct score *s, struct runner *r, const struct input *d,
                         bool speaks, struct err *err)
{
    size_t n = d->ids.n, before = 1, end;

    for (size_t at = 0; before < n; at += s->stride, before = end) {
        end = n - at < s->window ? n : at + s->window;
        s->skip = before - at - 1;
        if (score_window(s, r, d, at, end - at - 1, err) < 0)
            return -1;
        if (speaks)
            fprintf(stderr, "\r%s: %zu of %zu tokens", d->name, end, n);
    }
    return 0;
}

static int score_document(struct score *s, struct runner *r, const struct input *d,
                          struct err *err)
{
    bool speaks = r->world->rank == 0 && cmd_progress(s->session->opt.quiet);

    s->now = (struct result){ 0 };
    if ((s->stride ? score_strided : score_apart)(s, r, d, speaks, err) < 0)
        return -1;
    if (speaks)
        fputs("\r\033[K", stderr);
    return runner_give(r, r->nstages - 1, &s->now, sizeof(s->now), err);
}

/* The front asks for results when as many further documents are on their way as there
 * are stages, so that no stage waits for it. */
static int score_documents(struct score *s, struct runner *r, struct err *err)
{
    struct result *result = xcalloc(s->inputs.n + 1, sizeof(*result));
    size_t step = (size_t)r->nreplicas, lag = (size_t)(r->nstages - 1) * step;
    int ret = 0;

    for (size_t i = (size_t)r->replica; i < s->inputs.n && ret == 0; i += step) {
        if (!s->inputs.v[i].bad)
            ret = score_document(s, r, &s->inputs.v[i], err);
        result[i] = s->now;
        if (ret == 0)
            ret = print_until(s, r, result, i + 1 > lag ? i + 1 - lag : 0, err);
    }
    if (ret == 0)
        ret = print_until(s, r, result, s->inputs.n, err);
    free(result);
    return ret;
}

static int score_rank(void *arg, struct comm *comm, struct err *err)
{
    struct score *s = arg;
    struct program_options options = { .tail = TAIL_NLL };
    size_t most = CHUNK * (size_t)s->session->mesh.size[MESH_SP];
    size_t chunk = s->window < most ? (size_t)s->window : most;
    struct engine_limits limits = { .tokens = chunk,
                                    .wanted = 1,
                                    .context = (size_t)s->window };
    struct runner r;
    int ret = 0;

    for (size_t i = 0; i < s->inputs.n; i++)
        if (s->inputs.v[i].source.n > limits.source)
            limits.source = s->inputs.v[i].source.n;
    if (runner_open(&r, s->session->checkpoint, &s->session->mesh, &s->session->machine,
                    comm, &options, &limits, err) < 0)
        return -1;
    ret = session_report(s->session, &r, comm, err);
    if (ret == 0 && !r.program->causal)
        ret = err_set(err, ERR_INPUT,
                      "family %s is an encoder and predicts no next token",
                      s->session->checkpoint->model->family);
    if (ret == 0)
        ret = score_documents(s, &r, err);
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

/* Nothing but bad lines: what is printed of them, and no run. */
static int print_refused(const struct score *s)
{
    bool speaks = s->session->opt.json && launcher_is_front(&s->session->launcher);

    for (size_t i = 0; speaks && i < s->inputs.n; i++)
        inputs_print_bad(&s->inputs, i);
    return ERR_INPUT;
}

int score_main(const char *program, int argc, char **argv)
{
    struct session_options opt = SESSION_DEFAULTS;
    struct opt_list ids = { 0 }, lines = { 0 };
    struct session session = { 0 };
    struct score s = { .session = &session };
    static const char *const invalid[] = { "refuse", "replace", NULL };
    int how = 0;
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
        { OPT_CHOICE, '\0', "invalid", &how, "HOW",
          "bytes that are not UTF-8: refuse, replace", invalid, NULL },
        SESSION_OPTIONS(opt),
        { .type = OPT_END },
    };
    const struct cmd cmd = {
        .name = "score",
        .program = program,
        .synopsis = "[OPTION]... [FILE]... CHECKPOINT",
        .summary = "Print the negative log-likelihood and perplexity of text",
        .opts = opts,
        .min_args = 1,
        .max_args = -1
    };
    char **operand = cmd_parse(&cmd, argc, argv);
    struct err err = { 0 };
    int n = 0, status;

    if (s.windowed && !s.window) {
        free(ids.v);
        free(lines.v);
        return cmd_usage(&cmd, "--window: '0' is not a whole number from 1");
    }
    while (operand[n])
        n++;
    if (n > 1 && fs_is_dir(operand[0]) && fs_exists(operand[n - 1]) &&
        !fs_is_dir(operand[n - 1])) {
        free(ids.v);
        free(lines.v);
        return cmd_usage(&cmd, "the texts come first, then the checkpoint: %s %s",
                         operand[n - 1], operand[0]);
    }
    if (session_open(&session, &cmd, &opt, operand[n - 1], &err) < 0 ||
        session_need_lm(&session, &err) < 0 || set_window(&s, &err) < 0) {
        status = cmd_fail(&cmd, &err);
        goto out;
    }
    session.strict = how == 0;
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
    free(lines.v);
    free(ids.v);
    session_close(&session);
    return status;
}
