/* generate - continue prompts */
#include "cmd/tp-run/commands.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/tp-run/asked.h"
#include "cmd/tp-run/inputs.h"
#include "cmd/tp-run/session.h"
#include "lib/base/clock.h"
#include "lib/base/mem.h"

enum { CHUNK = 512 }; /* tokens of a prompt that are run at a time */

enum finish { UNFINISHED, STOP, LENGTH, CONTEXT, REFUSED };

static const char *const finish_names[] = { NULL, "stop", "length", "context", NULL };

struct generate {
    struct session *session;
    struct inputs prompts;
    uint64_t max_tokens; /* new ones */
    uint64_t max_length; /* with the prompt; 0: any */
    int micro_batches;   /* texts in the making at a time; 0: as many as stages */
    struct draw sampling;
    struct text *text; /* [prompts.n] */
    size_t turn;       /* text whose words are printed now; at the front */
};

/* One text in the making. */
struct text {
    const struct ids *prompt, *source;
    struct ids ids; /* new ones */
    enum finish finish;
    struct token_stream *stream; /* at the front, with a tokenizer */
    struct str said;
    size_t shown; /* bytes of SAID, or ids when there are no words */
    double start, seconds;
};

static bool is_stop(const struct session *s, int32_t id)
{
    for (size_t i = 0; i < s->stop.n; i++)
        if (s->stop.v[i] == id)
            return true;
    return false;
}

/* Is there anything to be added to a text of N tokens, NEW of them new?  The last token
 * that the model reads tells one more, which is not read. */
static enum finish end_of(const struct generate *g, size_t n, uint64_t new)
{
    if (new >= g->max_tokens || (g->max_length && n >= g->max_length))
        return LENGTH;
    return g->session->context && n > g->session->context ? CONTEXT : UNFINISHED;
}

/* ---- what is printed: text after text, the present one as it comes ---- */

static void print_json(const struct generate *g, const struct text *t, size_t line)
{
    struct str out = { 0 };

    str_add(&out, "{\"type\":\"generation\",");
    if (line)
        str_addf(&out, "\"line\":%zu,", line);
    if (t->source->n) {
        str_add(&out, "\"source_ids\":");
        ids_print_json(&out, t->source);
        str_addc(&out, ',');
    }
    str_add(&out, "\"prompt_ids\":");
    ids_print_json(&out, t->prompt);
    str_add(&out, ",\"ids\":");
    ids_print_json(&out, &t->ids);
    str_add(&out, ",\"text\":");
    if (g->session->tokenizer)
        str_add_jsonn(&out, str_text(&t->said), t->said.len);
    else
        str_add(&out, "null");
    str_addf(&out, ",\"finish\":\"%s\",\"tokens_per_second\":%.6g}\n",
             finish_names[t->finish],
             t->seconds > 0 ? (double)t->ids.n / t->seconds : 0);
    fputs(str_text(&out), stdout);
    str_clear(&out);
}

static void print_words(const struct generate *g, struct text *t)
{
    size_t n = t->ids.n - (t->finish == STOP);

    if (g->session->tokenizer) {
        fwrite(str_text(&t->said) + t->shown, 1, t->said.len - t->shown, stdout);
        t->shown = t->said.len;
    }
    for (; !g->session->tokenizer && t->shown < n; t->shown++)
        printf("%s%d", t->shown ? "," : "", (int)t->ids.v[t->shown]);
}

/* Print what can be: no text before the ones before it. */
static int print_texts(struct generate *g, struct err *err)
{
    for (; g->turn < g->prompts.n; g->turn++) {
        struct text *t = &g->text[g->turn];

        if (!g->session->opt.json)
            print_words(g, t);
        if (!t->finish)
            break;
        if (g->session->opt.json && t->finish == REFUSED)
            inputs_print_bad(&g->prompts, g->turn);
        else if (g->session->opt.json)
            print_json(g, t, g->prompts.v[g->turn].line);
        else
            putchar('\n');
    }
    if (fflush(stdout) < 0)
        return err_errno(err, "standard output");
    return 0;
}

/* ---- a text's course ---- */

/* Add the new ID, on every rank of the replica; its words at the front. */
static void add_id(const struct generate *g, struct text *t, int32_t id)
{
    bool stop = is_stop(g->session, id);

    ids_add(&t->ids, id);
    t->finish = stop ? STOP : end_of(g, t->prompt->n + t->ids.n, t->ids.n);
    if (t->stream && !stop)
        token_stream_feed(t->stream, (uint32_t)id, &t->said);
    if (t->stream && t->finish)
        token_stream_end(t->stream, &t->said);
    if (t->finish)
        t->seconds = clock_seconds() - t->start;
}

/* Run what the text has gained since the last step: its prompt, or its last id.  The
 * last stage chooses the next id and tells the others. */
static int advance(struct generate *g, struct text *t, struct runner *r,
                   size_t sequence, int32_t *next, struct err *err)
{
    struct segment step = { .sequence = sequence };
    struct draw draw = g->sampling;
    const float *out;
    size_t rows;

    if (t->ids.n) {
        step.ids = &t->ids.v[t->ids.n - 1];
        step.n = 1;
        step.start = t->prompt->n + t->ids.n - 1;
    } else {
        step.source = t->source->v;
        step.nsource = t->source->n;
        step.ids = t->prompt->v;
        step.n = t->prompt->n;
        t->start = clock_seconds();
    }
    /* another text draws otherwise, on every layout alike */
    draw.position = ((uint64_t)(t - g->text) << 32) + t->prompt->n + t->ids.n;
    step.draw = &draw;
    if (runner_feed(r, &step, NULL, NULL, err) < 0)
        return -1;
    if (!runner_is_last(r))
        return 0;
    if (engine_output(r->engine, 0, &out, &rows, err) < 0)
        return -1;
    *next = (int32_t)out[0];
    return runner_tell(r, next, sizeof(*next), err);
}

/* A place for a text that is being made: a sequence of the engines' cache. */
struct slot {
    struct text *text; /* NULL: none */
    int32_t next;      /* chosen by the last step; on the last stage */
};

/* The next text of this replica that there is something to do for, or NULL. */
static struct text *next_text(struct generate *g, const struct runner *r, size_t *at)
{
    while (*at < g->prompts.n) {
        struct text *t = &g->text[*at];

        *at += (size_t)r->nreplicas;
        if (t->finish == REFUSED)
            continue;
        t->finish = end_of(g, t->prompt->n, 0);
        if (!t->finish)
            return t;
    }
    return NULL;
}

/* One turn of a place: what its last step has chosen is added, then the next step is
 * taken, for another text when this one has ended.  *WORKED when it was. */
static int take_turn(struct generate *g, struct runner *r, struct slot *p,
                     size_t sequence, size_t *at, bool *worked, struct err *err)
{
    if (p->text) {
        if (runner_hear(r, &p->next, sizeof(p->next), err) < 0)
            return -1;
        add_id(g, p->text, p->next);
        if (p->text->finish)
            p->text = NULL;
    }
    if (!p->text)
        p->text = next_text(g, r, at);
    if (!p->text)
        return 0;
    *worked = true;
    return advance(g, p->text, r, sequence, &p->next, err);
}

/* The places take turns, so that a stage works for one text while the others work for
 * others. */
static int make_texts(struct generate *g, struct runner *r, size_t nplaces,
                      struct err *err)
{
    struct slot *slot = xcalloc(nplaces, sizeof(*slot));
    bool prints = r->world->rank == 0 && r->nreplicas == 1, worked = true;
    size_t at = (size_t)r->replica;
    int ret = 0;

    while (worked && ret == 0) {
        worked = false;
        for (size_t i = 0; i < nplaces && ret == 0; i++) {
            ret = take_turn(g, r, &slot[i], i, &at, &worked, err);
            if (ret == 0 && prints)
                ret = print_texts(g, err);
        }
    }
    free(slot);
    return ret;
}

/* The texts of the other replicas, to the front. */
static int collect(struct generate *g, struct runner *r, struct err *err)
{
    int last = r->nstages - 1;

    for (size_t i = 0; i < g->prompts.n && r->nreplicas > 1; i++) {
        int replica = (int)(i % (size_t)r->nreplicas);
        struct text *t = &g->text[i];
        uint64_t n = t->ids.n;

        if (t->finish == REFUSED)
            continue;
        if (replica == r->replica && replica > 0 &&
            (runner_give(r, last, &n, sizeof(n), err) < 0 ||
             runner_give(r, last, &t->seconds, sizeof(t->seconds), err) < 0 ||
             runner_give(r, last, t->ids.v, n * sizeof(*t->ids.v), err) < 0))
            return -1;
        if (replica == 0 || r->world->rank != 0)
            continue;
        if (runner_take(r, replica, last, &n, sizeof(n), err) < 0 ||
            runner_take(r, replica, last, &t->seconds, sizeof(t->seconds), err) < 0)
            return -1;
        t->finish = n ? UNFINISHED : end_of(g, t->prompt->n, 0);
        for (uint64_t k = 0; k < n; k++) {
            double seconds = t->seconds;
            int32_t id;

            if (runner_take(r, replica, last, &id, sizeof(id), err) < 0)
                return -1;
            add_id(g, t, id);
            t->seconds = seconds;
        }
    }
    return 0;
}

static struct engine_limits limits_of(const struct generate *g, size_t places)
{
    struct engine_limits limits = { .tokens =
                                        CHUNK * (size_t)g->session->mesh.size[MESH_SP],
                                    .wanted = 1,
                                    .sequences = places };
    size_t longest = 0;

    for (size_t i = 0; i < g->prompts.n; i++) {
        const struct input *in = &g->prompts.v[i];

        longest = in->ids.n > longest ? in->ids.n : longest;
        limits.source = in->source.n > limits.source ? in->source.n : limits.source;
    }
    limits.context =
        g->max_tokens < SIZE_MAX - longest ? longest + (size_t)g->max_tokens : SIZE_MAX;
    if (g->max_length && limits.context > g->max_length)
        limits.context = g->max_length;
    if (g->session->context && limits.context > g->session->context)
        limits.context = g->session->context;
    if (limits.tokens > longest)
        limits.tokens = longest;
    return limits;
}

/* Texts in the making at a time. */
static size_t places_of(const struct generate *g)
{
    const struct mesh *mesh = &g->session->mesh;
    size_t places = (size_t)(g->micro_batches ? g->micro_batches : mesh->size[MESH_PP]);
    size_t dp = (size_t)mesh->size[MESH_DP], most = (g->prompts.n + dp - 1) / dp;

    return places < most ? places : most;
}

static void open_texts(struct generate *g, bool front)
{
    g->text = xcalloc(g->prompts.n + 1, sizeof(*g->text));
    for (size_t i = 0; i < g->prompts.n; i++) {
        g->text[i].prompt = &g->prompts.v[i].ids;
        g->text[i].source = &g->prompts.v[i].source;
        g->text[i].finish = g->prompts.v[i].bad ? REFUSED : UNFINISHED;
        if (front && g->session->tokenizer)
            g->text[i].stream = token_stream_new(g->session->tokenizer, true);
    }
}

static void close_texts(struct generate *g)
{
    for (size_t i = 0; i < g->prompts.n; i++) {
        token_stream_free(g->text[i].stream);
        str_clear(&g->text[i].said);
        ids_clear(&g->text[i].ids);
    }
    free(g->text);
}

static int generate_rank(void *arg, struct comm *comm, struct err *err)
{
    struct generate *g = arg;
    struct program_options options = { .wanted = true };
    size_t places = places_of(g);
    struct engine_limits limits = limits_of(g, places);
    struct runner r;
    int ret = 0;

    options.tail = g->sampling.temperature > 0 ? TAIL_SAMPLE : TAIL_ARGMAX;
    if (runner_open(&r, g->session->checkpoint, &g->session->mesh, &g->session->machine,
                    comm, &options, &limits, err) < 0)
        return -1;
    ret = session_report(g->session, &r, comm, err);
    if (ret == 0 && !r.program->causal)
        ret = err_set(err, ERR_INPUT, "family %s is an encoder and generates no text",
                      g->session->checkpoint->model->family);
    open_texts(g, comm->rank == 0);
    if (ret == 0)
        ret = make_texts(g, &r, places, err);
    if (ret == 0)
        ret = collect(g, &r, err);
    if (ret == 0 && comm->rank == 0)
        ret = print_texts(g, err);
    close_texts(g);
    runner_close(&r);
    return ret;
}

/* ---- prompts ---- */

static int read_prompts(struct generate *g, const struct opt_list *prompts,
                        const struct opt_list *ids, const struct opt_list *lines,
                        struct err *err)
{
    const struct session *s = g->session;
    struct inputs *in = &g->prompts;

    for (size_t i = 0; i < prompts->n; i++)
        if (inputs_add_text(in, s, "--prompt", prompts->v[i], strlen(prompts->v[i]),
                            err) < 0)
            return -1;
    for (size_t i = 0; i < ids->n; i++)
        if (inputs_add_ids(in, s, "--ids", ids->v[i], err) < 0)
            return -1;
    for (size_t i = 0; i < lines->n; i++)
        if (inputs_add_lines(in, s, lines->v[i], err) < 0)
            return -1;
    if (!prompts->n && !ids->n && !lines->n &&
        inputs_add_file(in, s, "-", false, err) < 0)
        return -1;
    if (inputs_use(in, s, INPUT_PROMPT, err) < 0)
        return -1;
    for (size_t i = 0; i < in->n; i++) {
        const struct input *one = &in->v[i];

        if (one->bad)
            continue;
        if (!one->ids.n)
            err_set(err, ERR_INPUT, "an empty prompt");
        else if (s->context && one->ids.n > s->context)
            err_set(err, ERR_INPUT, "the prompt has %zu tokens, the model takes %llu",
                    one->ids.n, (unsigned long long)s->context);
        else if (g->max_length && one->ids.n >= g->max_length)
            err_set(
                err, ERR_INPUT,
                "the prompt has %zu tokens, and the model's max_length is %llu; give "
                "--max-tokens",
                one->ids.n, (unsigned long long)g->max_length);
        if (err->kind && inputs_refuse(in, s, i, err) < 0)
            return -1;
    }
    return 0;
}

static int take_prompts(struct generate *g, const struct opt_list *prompts,
                        const struct opt_list *ids, const struct opt_list *lines,
                        struct err *err)
{
    bool front = launcher_is_front(&g->session->launcher);

    return inputs_share(&g->prompts, g->session,
                        front ? read_prompts(g, prompts, ids, lines, err) : 0, err);
}

/* Nothing but bad lines: what is printed of them, and no run. */
static int print_refused(struct generate *g, struct err *err)
{
    int ret;

    open_texts(g, false);
    ret = launcher_is_front(&g->session->launcher) ? print_texts(g, err) : 0;
    close_texts(g);
    return ret;
}

/* What of the settings was given as an option. */
struct given {
    bool tokens, temperature, top_k, top_p;
};

/* The model's own settings, where no option says otherwise. */
static int take_settings(struct generate *g, const struct given *given, struct err *err)
{
    struct asked a;

    if (asked_read(&a, g->session, err) < 0)
        return -1;
    if (!given->tokens && a.max_new)
        g->max_tokens = a.max_new;
    else if (!given->tokens && a.max_length) {
        g->max_tokens = a.max_length;
        g->max_length = a.max_length;
    }
    if (!given->temperature)
        g->sampling.temperature = a.sampling.temperature;
    if (!given->top_k)
        g->sampling.top_k = a.sampling.top_k;
    if (!given->top_p)
        g->sampling.top_p = a.sampling.top_p;
    return 0;
}

/* A limit to the tokens drawn from is nothing where none is drawn. */
static int check_sampling(const struct generate *g, const struct given *given,
                          struct err *err)
{
    if ((!given->top_k && !given->top_p) || given->temperature ||
        g->sampling.temperature > 0)
        return 0;
    return err_set(err, ERR_USAGE, "--%s needs --temperature",
                   given->top_k ? "top-k" : "top-p");
}

int generate_main(const char *program, int argc, char **argv)
{
    struct session_options opt = SESSION_DEFAULTS;
    struct opt_list prompts = { 0 }, id_lists = { 0 }, lines = { 0 };
    struct session session = { 0 };
    struct generate g = { .session = &session,
                          .max_tokens = 128,
                          .sampling = { .top_p = 1 } };
    struct given given = { 0 };
    bool ignore = false;
    const struct opt opts[] = {
        { OPT_LIST, 'p', "prompt", &prompts, "TEXT",
          "text to continue (default: standard input)", NULL, NULL },
        { OPT_LIST, '\0', "ids", &id_lists, "LIST", NULL, NULL, NULL },
        { OPT_LIST, '\0', "input", &lines, "FILE",
          "each line of FILE is a prompt (text, or JSON)", NULL, NULL },
        INPUT_FORMAT_OPTION(g.prompts),
        { OPT_U64, '\0', "max-tokens", &g.max_tokens, "N",
          "most new tokens (default: the model's, or 128)", NULL, &given.tokens },
        { OPT_DOUBLE, '\0', "temperature", &g.sampling.temperature, "T",
          "sample at this temperature (0: greedy)", NULL, &given.temperature },
        { OPT_U64, '\0', "top-k", &g.sampling.top_k, "K", "from the K likeliest tokens",
          NULL, &given.top_k },
        { OPT_DOUBLE, '\0', "top-p", &g.sampling.top_p, "P",
          "from the likeliest tokens that sum to P", NULL, &given.top_p },
        { OPT_U64, '\0', "seed", &g.sampling.seed, "S",
          "seed of the sampling (default 0)", NULL, NULL },
        { OPT_FLAG, '\0', "ignore-generation-config", &ignore, NULL, NULL, NULL, NULL },
        { OPT_COUNT, '\0', "micro-batches", &g.micro_batches, "N", NULL, NULL, NULL },
        SESSION_OPTIONS(opt),
        { .type = OPT_END },
    };
    const struct cmd cmd = { .name = "generate",
                             .program = program,
                             .synopsis = "[OPTION]... CHECKPOINT",
                             .summary =
                                 "Continue text with a model, streaming the result",
                             .opts = opts,
                             .min_args = 1,
                             .max_args = 1,
                             .excess = "text to continue follows --prompt" };
    char **operand = cmd_parse(&cmd, argc, argv);
    struct err err = { 0 };
    int status;

    if (g.sampling.temperature < 0 || !(g.sampling.top_p > 0 && g.sampling.top_p <= 1))
        status = cmd_usage(&cmd, "--temperature must be at least 0, --top-p above 0 "
                                 "and at most 1");
    else if (session_open(&session, &cmd, &opt, operand[0], &err) < 0 ||
             session_need_lm(&session, &err) < 0 ||
             (!ignore && launcher_agree(&session.launcher,
                                        take_settings(&g, &given, &err), &err) < 0) ||
             check_sampling(&g, &given, &err) < 0 ||
             take_prompts(&g, &prompts, &id_lists, &lines, &err) < 0)
        status = cmd_fail(&cmd, &err);
    else if (g.prompts.nbad == g.prompts.n && print_refused(&g, &err) < 0)
        status = cmd_fail(&cmd, &err);
    else if (g.prompts.nbad == g.prompts.n)
        status = cmd_finish(&cmd, ERR_INPUT);
    else
        status = inputs_status(&g.prompts, session_run(&session, generate_rank, &g));
    inputs_clear(&g.prompts);
    free(lines.v);
    free(prompts.v);
    free(id_lists.v);
    session_close(&session);
    return status;
}
