/* score - how well a model predicts a text */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/tp-run/commands.h"
#include "cmd/tp-run/session.h"
#include "lib/base/fs.h"
#include "lib/base/mem.h"

enum { CHUNK = 512, UNBOUNDED_WINDOW = 2048 };

struct document {
    const char *name;
    struct ids ids;
};

struct score {
    struct session *session;
    struct document *doc;
    size_t ndocs;
    uint64_t window;
    bool windowed; /* --window was given */
    double sum;    /* of the present document's nll */
    size_t counted;
};

static void see(void *arg, struct engine *e, size_t first, size_t count)
{
    struct score *s = arg;
    size_t rows;
    const float *nll = engine_output(e, 0, &rows);

    (void)first;
    for (size_t i = 0; i < count; i++)
        s->sum += (double)nll[i];
    s->counted += count;
}

static void print_result(const struct score *s, const struct document *d)
{
    double nll = s->sum / (double)s->counted;
    struct str out = { 0 };

    if (s->session->opt.json) {
        str_add(&out, "{\"type\":\"score\",\"file\":");
        str_add_json(&out, d->name);
        str_addf(&out, ",\"tokens\":%zu,\"nll\":", s->counted);
        str_add_double(&out, nll);
        str_add(&out, ",\"perplexity\":");
        str_add_double(&out, exp(nll));
        str_add(&out, "}\n");
    } else {
        str_addf(&out, "%s: %zu tokens, nll %.5f, perplexity %.4f\n", d->name,
                 s->counted, nll, exp(nll));
    }
    fputs(str_text(&out), stdout);
    str_clear(&out);
}

/* Inputs are all tokens but the last, in windows that do not overlap; targets are the
 * next ones. */
static int score_document(struct score *s, struct runner *r, const struct document *d,
                          bool speaks, struct err *err)
{
    size_t inputs = d->ids.n - 1;

    s->sum = 0;
    s->counted = 0;
    for (size_t at = 0; at < inputs; at += s->window) {
        size_t n = inputs - at < s->window ? inputs - at : s->window;

        if (runner_feed(r, d->ids.v + at, d->ids.v + at + 1, n, 0, see, s, err) < 0)
            return -1;
        if (speaks && cmd_progress(s->session->opt.quiet))
            fprintf(stderr, "\r%s: %zu of %zu tokens", d->name, at + n, inputs);
    }
    if (speaks && cmd_progress(s->session->opt.quiet))
        fputs("\r\033[K", stderr);
    if (speaks) {
        print_result(s, d);
        if (fflush(stdout) < 0)
            return err_errno(err, "standard output");
    }
    return 0;
}

static int score_rank(void *arg, struct comm *comm, struct err *err)
{
    struct score *s = arg;
    struct program_options options = { .tail = TAIL_NLL };
    size_t chunk = s->window < CHUNK ? (size_t)s->window : CHUNK;
    struct engine_limits limits = { .threads = session_threads(s->session),
                                    .tokens = chunk,
                                    .wanted = 1,
                                    .context = (size_t)s->window };
    struct runner r;
    int ret = 0;

    if (runner_open(&r, s->session->checkpoint, &s->session->mesh, comm, &options,
                    &limits, err) < 0)
        return -1;
    ret = session_report(s->session, &r, comm, err);
    if (ret == 0 && !r.program->causal)
        ret = err_set(err, ERR_INPUT,
                      "family %s is an encoder and predicts no next token",
                      s->session->checkpoint->model->family);
    for (size_t i = 0; i < s->ndocs && ret == 0; i++)
        ret = score_document(s, &r, &s->doc[i], comm->rank == 0, err);
    runner_close(&r);
    return ret;
}

static int add_document(struct score *s, const char *name, bool is_ids, struct err *err)
{
    struct document d = { .name = !strcmp(name, "-") ? "standard input" : name };
    char *text;
    size_t len;
    int ret;

    if (fs_read_file(&text, &len, name, UINT64_C(1) << 32, err) < 0)
        return -1;
    if (is_ids)
        ret = session_parse_ids(s->session, &d.ids, text, d.name, err);
    else
        ret = session_encode(s->session, &d.ids, text, len, err);
    free(text);
    if (ret == 0 && d.ids.n < 2)
        ret = err_set(err, ERR_INPUT, "%s: %zu tokens; two are needed to predict one",
                      d.name, d.ids.n);
    if (ret < 0) {
        ids_clear(&d.ids);
        return -1;
    }
    s->doc = xrealloc(s->doc, sizeof(*s->doc) * (s->ndocs + 1));
    s->doc[s->ndocs++] = d;
    return 0;
}

static int read_documents(struct score *s, char **file, int nfiles,
                          const struct opt_list *ids, struct err *err)
{
    for (int i = 0; i < nfiles; i++)
        if (add_document(s, file[i], false, err) < 0)
            return -1;
    for (size_t i = 0; i < ids->n; i++)
        if (add_document(s, ids->v[i], true, err) < 0)
            return -1;
    return s->ndocs ? 0 : add_document(s, "-", false, err);
}

static int set_window(struct score *s, struct err *err)
{
    uint64_t most = s->session->context;

    if (!s->window)
        s->window = most ? most : UNBOUNDED_WINDOW;
    if (most && s->window > most)
        return err_set(err, ERR_INPUT, "--window %llu: the model takes %llu tokens",
                       (unsigned long long)s->window, (unsigned long long)most);
    return 0;
}

int score_main(const char *program, int argc, char **argv)
{
    struct session_options opt = { 0 };
    struct opt_list ids = { 0 };
    struct session session = { 0 };
    struct score s = { .session = &session };
    const struct opt opts[] = {
        { OPT_LIST, '\0', "ids-file", &ids, "FILE",
          "score the ids in FILE instead of text", NULL, NULL },
        { OPT_U64, '\0', "window", &s.window, "N",
          "input tokens at a time (default: the model's most)", NULL, &s.windowed },
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
        return cmd_usage(&cmd, "--window: '0' is not a whole number from 1");
    }
    while (operand[n])
        n++;
    if (session_open(&session, &cmd, &opt, operand[n - 1], &err) < 0 ||
        set_window(&s, &err) < 0 || read_documents(&s, operand, n - 1, &ids, &err) < 0)
        status = cmd_fail(&cmd, &err);
    else
        status = session_run(&session, score_rank, &s);
    for (size_t i = 0; i < s.ndocs; i++)
        ids_clear(&s.doc[i].ids);
    free(s.doc);
    free(ids.v);
    session_close(&session);
    return status;
}
