/* generate - continue prompts */
#include "cmd/tp-run/commands.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cmd/tp-run/sample.h"
#include "cmd/tp-run/session.h"
#include "lib/base/fs.h"
#include "lib/base/mem.h"

enum { CHUNK = 512 }; /* tokens of a prompt that are run at a time */

struct generate {
    struct session *session;
    struct ids *prompt;
    size_t nprompts;
    uint64_t max_tokens;
    struct sampling sampling;
};

/* One text in the making. */
struct text {
    struct generate *g;
    const struct ids *prompt;
    struct ids ids; /* new ones */
    const char *finish;
    struct token_stream *stream; /* rank 0 with a tokenizer */
    struct str said;
    double seconds;
};

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static bool is_stop(const struct session *s, int32_t id)
{
    for (size_t i = 0; i < s->stop.n; i++)
        if (s->stop.v[i] == id)
            return true;
    return false;
}

/* Take the new ID; rank 0 says it.  Returns false at the end of the text. */
static bool take(struct text *t, int32_t id, bool speaks)
{
    struct str bytes = { 0 };
    bool stop = is_stop(t->g->session, id);

    ids_add(&t->ids, id);
    if (stop)
        t->finish = "stop";
    else if (t->ids.n >= t->g->max_tokens)
        t->finish = "length";
    else if (t->g->session->context &&
             t->prompt->n + t->ids.n >= t->g->session->context)
        t->finish = "context";
    if (!speaks)
        return !t->finish;
    if (t->stream && !stop)
        token_stream_feed(t->stream, (uint32_t)id, &bytes);
    if (t->stream && t->finish)
        token_stream_end(t->stream, &bytes);
    str_addn(&t->said, str_text(&bytes), bytes.len);
    if (!t->g->session->opt.json) {
        if (t->stream)
            fwrite(str_text(&bytes), 1, bytes.len, stdout);
        else if (!stop)
            printf("%s%d", t->ids.n > 1 ? "," : "", (int)id);
        fflush(stdout);
    }
    str_clear(&bytes);
    return !t->finish;
}

static void print_json(const struct text *t)
{
    struct str out = { 0 };

    str_add(&out, "{\"type\":\"generation\",\"prompt_ids\":");
    ids_print_json(&out, t->prompt);
    str_add(&out, ",\"ids\":");
    ids_print_json(&out, &t->ids);
    str_add(&out, ",\"text\":");
    if (t->g->session->tokenizer)
        str_add_jsonn(&out, str_text(&t->said), t->said.len);
    else
        str_add(&out, "null");
    str_addf(&out, ",\"finish\":\"%s\",\"tokens_per_second\":%.6g}\n", t->finish,
             t->seconds > 0 ? (double)t->ids.n / t->seconds : 0);
    fputs(str_text(&out), stdout);
    str_clear(&out);
}

/* The next token from the last step's output, the same on every rank. */
static int32_t next_id(const struct runner *r, const struct text *t)
{
    size_t rows;
    const float *out = engine_output(r->engine, 0, &rows);
    size_t vocab = r->program->value[r->program->output[0].value].whole_cols;

    if (t->g->sampling.temperature <= 0)
        return (int32_t)out[0];
    return sample(&t->g->sampling, out, vocab, t->prompt->n + t->ids.n);
}

static int continue_text(struct text *t, struct runner *r, bool speaks, struct err *err)
{
    const struct session *s = t->g->session;
    double start = now();
    bool more;

    if (t->g->max_tokens == 0 || (s->context && t->prompt->n >= s->context)) {
        t->finish = t->g->max_tokens ? "context" : "length";
        return 0;
    }
    if (runner_feed(r, t->prompt->v, NULL, t->prompt->n, 0, NULL, NULL, err) < 0)
        return -1;
    more = take(t, next_id(r, t), speaks);
    while (more) {
        int32_t last = t->ids.v[t->ids.n - 1];

        if (runner_feed(r, &last, NULL, 1, t->prompt->n + t->ids.n - 1, NULL, NULL,
                        err) < 0)
            return -1;
        more = take(t, next_id(r, t), speaks);
        if (speaks && ferror(stdout))
            return err_set(err, ERR_SYSTEM, "standard output cannot be written");
    }
    t->seconds = now() - start;
    return 0;
}

static int one_prompt(struct generate *g, struct runner *r, size_t i, bool speaks,
                      struct err *err)
{
    struct text t = { .g = g, .prompt = &g->prompt[i] };
    int ret;

    if (speaks && g->session->tokenizer)
        t.stream = token_stream_new(g->session->tokenizer, true);
    ret = continue_text(&t, r, speaks, err);
    if (ret == 0 && speaks) {
        if (g->session->opt.json)
            print_json(&t);
        else
            putchar('\n');
        if (fflush(stdout) < 0)
            ret = err_errno(err, "standard output");
    }
    token_stream_free(t.stream);
    str_clear(&t.said);
    ids_clear(&t.ids);
    return ret;
}

static int generate_rank(void *arg, struct comm *comm, struct err *err)
{
    struct generate *g = arg;
    struct program_options options = { .wanted = true };
    struct engine_limits limits = { .threads = session_threads(g->session),
                                    .tokens = CHUNK,
                                    .wanted = 1 };
    struct runner r;
    size_t longest = 0;
    int ret = 0;

    options.tail = g->sampling.temperature > 0 ? TAIL_LOGITS : TAIL_ARGMAX;
    for (size_t i = 0; i < g->nprompts; i++)
        longest = g->prompt[i].n > longest ? g->prompt[i].n : longest;
    limits.context =
        g->max_tokens < SIZE_MAX - longest ? longest + (size_t)g->max_tokens : SIZE_MAX;
    if (g->session->context && limits.context > g->session->context)
        limits.context = g->session->context;
    if (limits.tokens > longest)
        limits.tokens = longest;
    if (runner_open(&r, g->session->checkpoint, &g->session->mesh, comm, &options,
                    &limits, err) < 0)
        return -1;
    ret = session_report(g->session, &r, comm, err);
    if (ret == 0 && !r.program->causal)
        ret = err_set(err, ERR_INPUT, "family %s is an encoder and generates no text",
                      g->session->checkpoint->model->family);
    for (size_t i = 0; i < g->nprompts && ret == 0; i++)
        ret = one_prompt(g, &r, i, comm->rank == 0, err);
    runner_close(&r);
    return ret;
}

/* ---- prompts ---- */

static int add_prompt(struct generate *g, struct ids ids, struct err *err)
{
    if (!ids.n) {
        ids_clear(&ids);
        return err_set(err, ERR_INPUT, "an empty prompt");
    }
    if (g->session->context && ids.n > g->session->context) {
        err_set(err, ERR_INPUT, "the prompt has %zu tokens, the model takes %llu",
                ids.n, (unsigned long long)g->session->context);
        ids_clear(&ids);
        return -1;
    }
    g->prompt = xrealloc(g->prompt, sizeof(*g->prompt) * (g->nprompts + 1));
    g->prompt[g->nprompts++] = ids;
    return 0;
}

/* The prompt in TEXT (LEN bytes), or, when IS_IDS, the ids it lists. */
static int read_prompt(struct generate *g, const char *text, size_t len, bool is_ids,
                       struct err *err)
{
    struct ids ids = { 0 };
    int ret = is_ids ? session_parse_ids(g->session, &ids, text, "--ids", err)
                     : session_encode(g->session, &ids, text, len, err);

    if (ret == 0)
        return add_prompt(g, ids, err);
    ids_clear(&ids);
    return -1;
}

static int read_prompts(struct generate *g, const struct opt_list *prompts,
                        const struct opt_list *id_lists, struct err *err)
{
    char *text;
    size_t len;
    int ret;

    for (size_t i = 0; i < prompts->n; i++)
        if (read_prompt(g, prompts->v[i], strlen(prompts->v[i]), false, err) < 0)
            return -1;
    for (size_t i = 0; i < id_lists->n; i++)
        if (read_prompt(g, id_lists->v[i], 0, true, err) < 0)
            return -1;
    if (g->nprompts)
        return 0;
    if (fs_read_file(&text, &len, "-", 1 << 30, err) < 0)
        return -1;
    ret = read_prompt(g, text, len, false, err);
    free(text);
    return ret;
}

int generate_main(const char *program, int argc, char **argv)
{
    struct session_options opt = { 0 };
    struct opt_list prompts = { 0 }, id_lists = { 0 };
    struct session session = { 0 };
    struct generate g = { .session = &session,
                          .max_tokens = 128,
                          .sampling = { .top_p = 1 } };
    const struct opt opts[] = {
        { OPT_LIST, '\0', "prompt", &prompts, "TEXT",
          "text to continue (default: standard input)", NULL, NULL },
        { OPT_LIST, '\0', "ids", &id_lists, "LIST", "the prompt as ids, such as 1,2,3",
          NULL, NULL },
        { OPT_U64, '\0', "max-tokens", &g.max_tokens, "N",
          "most new tokens (default 128)", NULL, NULL },
        { OPT_DOUBLE, '\0', "temperature", &g.sampling.temperature, "T",
          "sample at this temperature (default 0: greedy)", NULL, NULL },
        { OPT_U64, '\0', "top-k", &g.sampling.top_k, "K", "from the K likeliest tokens",
          NULL, NULL },
        { OPT_DOUBLE, '\0', "top-p", &g.sampling.top_p, "P",
          "from the likeliest tokens that sum to P", NULL, NULL },
        { OPT_U64, '\0', "seed", &g.sampling.seed, "S",
          "seed of the sampling (default 0)", NULL, NULL },
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
                             .max_args = 1 };
    char **operand = cmd_parse(&cmd, argc, argv);
    struct err err = { 0 };
    int status;

    if (g.sampling.temperature < 0 || !(g.sampling.top_p > 0 && g.sampling.top_p <= 1))
        status = cmd_usage(&cmd, "--temperature must be at least 0, --top-p above 0 "
                                 "and at most 1");
    else if (session_open(&session, &cmd, &opt, operand[0], &err) < 0 ||
             read_prompts(&g, &prompts, &id_lists, &err) < 0)
        status = cmd_fail(&cmd, &err);
    else
        status = session_run(&session, generate_rank, &g);
    for (size_t i = 0; i < g.nprompts; i++)
        ids_clear(&g.prompt[i]);
    free(g.prompt);
    free(prompts.v);
    free(id_lists.v);
    session_close(&session);
    return status;
}
