/* classify - prints a classifier's results for texts */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/tp-run/commands.h"
#include "cmd/tp-run/outputs.h"
#include "lib/base/mem.h"

/* How logits become scores; AUTO follows problem_type, as in transformers'
 * text-classification pipeline. */
enum function { FUNCTION_AUTO, FUNCTION_SOFTMAX, FUNCTION_SIGMOID, FUNCTION_NONE };

static const char *const function_names[] = { "auto", "softmax", "sigmoid", "none",
                                              NULL };

enum head { HEAD_TEXT, HEAD_TOKENS, HEAD_ANSWER, HEAD_CHOICE };

enum { ANSWER_TOKENS = 15 }; /* the default limit, as in transformers' pipeline */

struct classify {
    struct session *session;
    struct inputs inputs;
    enum head head;
    int function; /* enum function */
    uint64_t answer_tokens;
    double *choice; /* scores of the current text, which has several inputs */
    size_t nchoices, choices;
    size_t first; /* its first input */
};

/* ---- labels and scores ---- */

/* Appends the name of label I: from config.json's id2label, or LABEL_I. */
static void add_label(const struct classify *c, size_t i, struct str *out)
{
    const cJSON *config = model_config(c->session->checkpoint->model);
    const cJSON *names = cJSON_GetObjectItemCaseSensitive(config, "id2label"), *name;
    char *key = str_dupf("%zu", i);

    name = cJSON_GetObjectItemCaseSensitive(names, key);
    if (cJSON_IsString(name))
        str_add(out, name->valuestring);
    else
        str_addf(out, "LABEL_%zu", i);
    free(key);
}

static void softmax(double *p, size_t n)
{
    double most = -INFINITY, sum = 0;

    for (size_t i = 0; i < n; i++)
        most = p[i] > most ? p[i] : most;
    for (size_t i = 0; i < n; i++)
        sum += p[i] = exp(p[i] - most);
    for (size_t i = 0; i < n; i++)
        p[i] /= sum;
}

static enum function function_of(const struct classify *c, size_t labels)
{
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(
        model_config(c->session->checkpoint->model), "problem_type");
    const char *kind = cJSON_IsString(type) ? type->valuestring : "";

    if (c->function != FUNCTION_AUTO)
        return (enum function)c->function;
    if (!strcmp(kind, "regression"))
        return FUNCTION_NONE;
    if (!strcmp(kind, "multi_label_classification") || labels == 1)
        return FUNCTION_SIGMOID;
    return FUNCTION_SOFTMAX;
}

/* The function that was asked for, or softmax. */
static enum function softmax_or(const struct classify *c)
{
    return c->function == FUNCTION_AUTO ? FUNCTION_SOFTMAX : (enum function)c->function;
}

/* Makes scores of the N logits in P. */
static void score(enum function function, double *p, size_t n)
{
    for (size_t i = 0; function == FUNCTION_SIGMOID && i < n; i++)
        p[i] = 1 / (1 + exp(-p[i]));
    if (function == FUNCTION_SOFTMAX)
        softmax(p, n);
}

/* The scores of N logits; release with free(). */
static double *scores_of(enum function function, const float *x, size_t n)
{
    double *p = xmalloc(sizeof(*p) * (n + 1));

    for (size_t i = 0; i < n; i++)
        p[i] = (double)x[i];
    score(function, p, n);
    return p;
}

static size_t best_of(const double *p, size_t n)
{
    size_t best = 0;

    for (size_t i = 1; i < n; i++)
        best = p[i] > p[best] ? i : best;
    return best;
}

/* ---- printing ---- */

static void begin_json(struct str *out, const char *type, const struct input *in)
{
    str_addf(out, "{\"type\":\"%s\"", type);
    inputs_add_place(out, in);
    str_addf(out, ",\"tokens\":%zu", in->ids.n);
}

static void add_label_json(const struct classify *c, size_t i, struct str *out)
{
    struct str label = { 0 };

    add_label(c, i, &label);
    str_add_json(out, str_text(&label));
    str_clear(&label);
}

static void add_label_plain(const struct classify *c, size_t i, struct str *out)
{
    struct str label = { 0 };

    add_label(c, i, &label);
    str_add_printable(out, str_text(&label));
    str_clear(&label);
}

/* Prints labels as a plain line.  SEVERAL: a multi-label model, prints all with a score
 * of at least 0.5. */
static void add_labels_plain(const struct classify *c, const double *p, size_t n,
                             size_t best, bool several, struct str *out)
{
    for (size_t i = 0; i < n; i++) {
        if (several ? i != best && p[i] < 0.5 : i != best)
            continue;
        str_add(out, out->len ? "\t" : "");
        add_label_plain(c, i, out);
        str_addf(out, "\t%.6f", p[i]);
    }
    str_addc(out, '\n');
}

static void print_text(const struct classify *c, size_t at, const float *x, size_t n,
                       struct str *out)
{
    enum function function = function_of(c, n);
    double *p = scores_of(function, x, n);
    size_t best = best_of(p, n);

    if (!c->session->opt.json) {
        add_labels_plain(c, p, n, best, function == FUNCTION_SIGMOID, out);
    } else {
        begin_json(out, "class", &c->inputs.v[at]);
        str_add(out, ",\"label\":");
        add_label_json(c, best, out);
        str_add(out, ",\"score\":");
        str_add_double(out, p[best]);
        str_add(out, ",\"scores\":{");
        for (size_t i = 0; i < n; i++) {
            str_add(out, i ? "," : "");
            add_label_json(c, i, out);
            str_addc(out, ':');
            str_add_double(out, p[i]);
        }
        str_add(out, "}}\n");
    }
    free(p);
}

/* Appends the text of the tokens FIRST to LAST of an input; nothing without a
 * tokenizer. */
static void add_tokens_text(const struct classify *c, const struct input *in,
                            size_t first, size_t last, struct str *out)
{
    const struct ids *ids = in->source.n ? &in->source : &in->ids;

    if (c->session->tokenizer)
        tokenizer_decode(c->session->tokenizer, (const uint32_t *)ids->v + first,
                         last - first + 1, false, out);
}

static void print_tokens(const struct classify *c, size_t at, const float *x,
                         size_t rows, size_t n, struct str *out)
{
    const struct input *in = &c->inputs.v[at];
    bool json = c->session->opt.json;
    enum function function = softmax_or(c);

    if (json) {
        begin_json(out, "tags", in);
        str_add(out, ",\"tags\":[");
    }
    for (size_t i = 0; i < rows && i < in->ids.n; i++) {
        double *p = scores_of(function, x + i * n, n);
        size_t best = best_of(p, n);
        struct str text = { 0 };

        add_tokens_text(c, in, i, i, &text);
        if (json) {
            str_addf(out, "%s{\"id\":%d,\"text\":", i ? "," : "", (int)in->ids.v[i]);
            str_add_json(out, str_text(&text));
            str_add(out, ",\"label\":");
            add_label_json(c, best, out);
            str_add(out, ",\"score\":");
            str_add_double(out, p[best]);
            str_addc(out, '}');
        } else {
            str_addf(out, "%d\t", (int)in->ids.v[i]);
            str_add_printable(out, str_text(&text));
            str_addc(out, '\t');
            add_label_plain(c, best, out);
            str_addf(out, "\t%.6f\n", p[best]);
        }
        str_clear(&text);
        free(p);
    }
    str_add(out, json ? "]}\n" : "\n");
}

/* Prints the span of the second text's tokens with the largest product of start and end
 * probabilities.  The softmax is over these tokens and the first token, to which models
 * assign questions without an answer. */
static void print_answer(const struct classify *c, size_t at, const float *x,
                         size_t rows, struct str *out)
{
    const struct input *in = &c->inputs.v[at];
    size_t low = in->pair[1] ? in->pair[0] : 0;
    size_t high = in->pair[1] ? in->pair[1] : rows;
    size_t n = high - low + 1, first = low, last = low;
    double *begin = xmalloc(sizeof(*begin) * n), *end = xmalloc(sizeof(*end) * n);
    double most = -1;
    struct str text = { 0 };

    for (size_t i = 0; i < n; i++) {
        size_t row = i ? low + i - 1 : 0;

        begin[i] = i || low ? (double)x[2 * row] : -INFINITY;
        end[i] = i || low ? (double)x[2 * row + 1] : -INFINITY;
    }
    softmax(begin, n);
    softmax(end, n);
    for (size_t i = 1; i < n; i++)
        for (size_t k = i; k < n && k < i + c->answer_tokens; k++)
            if (begin[i] * end[k] > most) {
                most = begin[i] * end[k];
                first = low + i - 1;
                last = low + k - 1;
            }
    add_tokens_text(c, in, first, last, &text);
    if (c->session->opt.json) {
        begin_json(out, "answer", in);
        str_add(out, ",\"answer\":");
        str_add_json(out, str_text(&text));
        str_addf(out, ",\"first\":%zu,\"last\":%zu,\"score\":", first, last);
        str_add_double(out, most);
        str_add(out, "}\n");
    } else {
        str_add_printable(out, str_text(&text));
        str_addf(out, "\t%.6f\n", most);
    }
    str_clear(&text);
    free(begin);
    free(end);
}

/* Adds a choice of a text; the last choice prints the result. */
static void print_choice(struct classify *c, size_t at, float x, struct str *out)
{
    const struct input *in = &c->inputs.v[at];
    size_t best;

    if (!c->nchoices) {
        c->choices = in->choices ? in->choices : 1;
        c->choice = xmalloc(sizeof(*c->choice) * c->choices);
        c->first = at;
    }
    c->choice[c->nchoices++] = (double)x;
    if (c->nchoices < c->choices)
        return;
    score(softmax_or(c), c->choice, c->choices);
    best = best_of(c->choice, c->choices);
    if (c->session->opt.json) {
        begin_json(out, "choice", &c->inputs.v[c->first]);
        str_addf(out, ",\"choice\":%zu,\"score\":", best);
        str_add_double(out, c->choice[best]);
        str_add(out, ",\"scores\":[");
        for (size_t i = 0; i < c->choices; i++) {
            str_add(out, i ? "," : "");
            str_add_double(out, c->choice[i]);
        }
        str_add(out, "]}\n");
    } else {
        str_addf(out, "%zu\t%.6f\n", best, c->choice[best]);
    }
    free(c->choice);
    c->choice = NULL;
    c->nchoices = 0;
}

static int print(void *arg, size_t at, const float *x, size_t rows, size_t cols,
                 struct err *err)
{
    struct classify *c = arg;
    struct str out = { 0 };

    if (!x && c->session->opt.json)
        inputs_print_bad(&c->inputs, at);
    else if (!x)
        putchar('\n');
    else if (c->head == HEAD_TEXT)
        print_text(c, at, x, cols, &out);
    else if (c->head == HEAD_TOKENS)
        print_tokens(c, at, x, rows, cols, &out);
    else if (c->head == HEAD_ANSWER)
        print_answer(c, at, x, rows, &out);
    else
        print_choice(c, at, x[0], &out);
    fputs(str_text(&out), stdout);
    str_clear(&out);
    return fflush(stdout) < 0 ? err_errno(err, "standard output") : 0;
}

/* ---- the run ---- */

static const char output_name[] = "logits";

static int classify_rank(void *arg, struct comm *comm, struct err *err)
{
    struct classify *c = arg;
    struct outputs o = { .session = c->session,
                         .inputs = &c->inputs,
                         .name = output_name,
                         .done = print,
                         .arg = c };
    int ret = outputs_run(&o, comm, err);

    free(c->choice);
    return ret;
}

static bool holds(const struct model *m, const char *symbol)
{
    double yes;

    return model_number(m, symbol, &yes) && yes != 0;
}

/* Finds which head this model has in the family. */
static int find_head(struct classify *c, struct err *err)
{
    const struct model *m = c->session->checkpoint->model;

    if (holds(m, "answers"))
        c->head = HEAD_ANSWER;
    else if (holds(m, "choices"))
        c->head = HEAD_CHOICE;
    else if (holds(m, "tag") || holds(m, "tagged"))
        c->head = HEAD_TOKENS;
    else if (holds(m, "classify") || holds(m, "scored"))
        c->head = HEAD_TEXT;
    else
        return err_set(err, ERR_INPUT, "%s: this model has no head that classifies",
                       model_config_name(m));
    return 0;
}

/* Checks that choices are used with a multiple-choice head only, and that the choices
 * of a text are all usable or all bad. */
static int check_choices(void *arg, struct err *err)
{
    const struct classify *c = arg;
    const struct inputs *in = &c->inputs;

    for (size_t i = 0; i < in->n; i++) {
        bool bad = false;

        for (size_t k = 0; k < in->v[i].choices; k++)
            bad |= in->v[i + k].bad;
        if (bad || (in->v[i].choices && c->head != HEAD_CHOICE))
            return err_set(err, ERR_INPUT, "%s: %s", in->v[i].name,
                           bad ? "a choice cannot be used"
                               : "choices are for a model of multiple choice");
    }
    return 0;
}

int classify_main(const char *program, int argc, char **argv)
{
    struct session_options opt = SESSION_DEFAULTS;
    struct session session = { 0 };
    struct classify c = { .session = &session, .answer_tokens = ANSWER_TOKENS };
    struct given given = { 0 };
    bool skip = false;
    const struct opt opts[] = {
        { OPT_LIST, '\0', "input", &given.lines, "FILE",
          "a text in each line of FILE (text, or JSON)", NULL, NULL },
        INPUT_FORMAT_OPTION(c.inputs),
        INPUT_INVALID_OPTION(c.inputs),
        { OPT_FLAG, '\0', "skip-empty", &skip, NULL, NULL, NULL, NULL },
        { OPT_STRING, 'p', "prompt", &given.prompt, "TEXT", "this text", NULL, NULL },
        { OPT_STRING, '\0', "pair", &given.pair, "TEXT", "beside it, a second text",
          NULL, NULL },
        { OPT_STRING, '\0', "ids", &given.ids, "LIST", NULL, NULL, NULL },
        { OPT_CHOICE, '\0', "function", &c.function, "NAME",
          "scores: auto, softmax, sigmoid, none", function_names, NULL },
        { OPT_U64, '\0', "answer-tokens", &c.answer_tokens, "N",
          "an answer's most tokens (default 15)", NULL, NULL },
        SESSION_OPTIONS(opt),
        { .type = OPT_END },
    };
    const struct cmd cmd = { .name = "classify",
                             .program = program,
                             .own_page = true,
                             .synopsis = "[OPTION]... CHECKPOINT",
                             .summary = "Print labels of texts or tokens, or answers",
                             .opts = opts,
                             .min_args = 1,
                             .max_args = 1 };
    char **operand = cmd_parse(&cmd, argc, argv);
    struct err err = { 0 };
    int status;

    c.inputs.keeps_empty = !skip;
    if (given.pair && !given.prompt)
        return cmd_usage(&cmd, "--pair goes with --prompt");
    if (!c.answer_tokens)
        return cmd_usage(&cmd, "--answer-tokens: '0' is not a whole number from 1");
    if (session_open(&session, &cmd, &opt, operand[0], &err) < 0 ||
        find_head(&c, &err) < 0)
        status = cmd_fail(&cmd, &err);
    else
        status = outputs_main(&session, &c.inputs, &given, output_name, check_choices,
                              classify_rank, &c, &err);
    inputs_clear(&c.inputs);
    session_close(&session);
    return status;
}
