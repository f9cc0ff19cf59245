/* sampling - how the tokens of a text are chosen and where it ends: options, the
 * model's settings, and those of a line */
#include "cmd/tp-run/sampling.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/tp-run/asked.h"
#include "cmd/tp-run/grammars.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/run/pick.h"

enum { MOST_LIKELY = 10000 }; /* tokens that are told with each */

const char *const sampling_early_names[] = { "false", "true", "never", NULL };
const char *const finish_names[] = { NULL, "stop", "length", "context", NULL };

int sampling_check(const struct sampling *s, struct err *err)
{
    if (s->likely > MOST_LIKELY)
        return err_set(err, ERR_USAGE, "--logprobs %d: at most %d", s->likely,
                       MOST_LIKELY);
    if (s->processed && !s->given.likely)
        return err_set(err, ERR_USAGE, "--processed-logprobs needs --logprobs");
    if (s->beams > SAMPLING_BEAMS || s->returns > SAMPLING_BEAMS)
        return err_set(err, ERR_USAGE, "--%s: at most %d",
                       s->beams > SAMPLING_BEAMS ? "beams" : "num-return",
                       SAMPLING_BEAMS);
    for (size_t i = 0; i < s->lists.stops.n; i++)
        if (!*s->lists.stops.v[i])
            return err_set(err, ERR_USAGE, "--stop: an empty text");
    return processors_check(&s->how, NULL, err);
}

/* ---- options that need the model ---- */

uint64_t sampling_vocab(const struct session *s)
{
    double vocab;

    return model_number(s->checkpoint->model, "vocab", &vocab) ? (uint64_t)vocab
                                                               : INT32_MAX;
}

int sampling_add_bad_word(struct processors *p, const struct session *s,
                          const char *text, struct err *err)
{
    for (int space = 0; space < 2; space++) {
        char *word = str_dupf("%s%s", space ? " " : "", text);
        struct tokens t = { 0 };
        struct ids ids = { 0 };
        int ret = s->tokenizer ? tokenizer_encode(s->tokenizer, word, strlen(word),
                                                  false, &t, err)
                               : err_set(err, ERR_USAGE, "needs a tokenizer");

        if (ret == 0)
            ret = session_add_tokens(s, &ids, &t, err);
        if (ret == 0 && ids.n)
            processors_add(p, PROCESSOR_BAD_WORDS, ids.v, ids.n, 0);
        tokens_clear(&t);
        ids_clear(&ids);
        free(word);
        if (ret < 0)
            return -1;
    }
    return 0;
}

static int add_bad_word(struct processors *p, const struct session *s, const char *text,
                        struct err *err)
{
    return sampling_add_bad_word(p, s, text, err) < 0 ? err_prefix(err, "--bad-words")
                                                      : 0;
}

static int add_bias(struct processors *p, const struct session *s, const char *text,
                    struct err *err)
{
    const char *colon = strchr(text, ':');
    char *id = xstrndup(text, colon ? (size_t)(colon - text) : 0);
    struct ids ids = { 0 };
    double bias;
    int ret = -1;

    if (!colon || !str_double(colon + 1, &bias))
        err_set(err, ERR_USAGE, "--logit-bias: '%s' is no ID:BIAS", text);
    else
        ret = session_parse_ids(s, &ids, id, "--logit-bias", err);
    if (ret == 0)
        processors_add(p, PROCESSOR_LOGIT_BIAS, ids.v, ids.n, bias);
    ids_clear(&ids);
    free(id);
    return ret;
}

static int add_suppressed(struct processors *p, const struct session *s,
                          const char *text, struct err *err)
{
    struct ids ids = { 0 };
    int ret = session_parse_ids(s, &ids, text, "--suppress-tokens", err);

    for (size_t i = 0; i < ids.n && ret == 0; i++)
        processors_add(p, PROCESSOR_SUPPRESS, &ids.v[i], 1, 0);
    ids_clear(&ids);
    return ret;
}

static int take_lists(struct sampling *s, const struct session *session,
                      struct err *err)
{
    static const enum processor row[] = { PROCESSOR_BAD_WORDS, PROCESSOR_SUPPRESS,
                                          PROCESSOR_LOGIT_BIAS };
    const struct opt_list *given[] = { &s->lists.bad_words, &s->lists.suppressed,
                                       &s->lists.biases };
    int (*const add[])(struct processors * p, const struct session *session,
                       const char *text,
                       struct err *err) = { add_bad_word, add_suppressed, add_bias };

    for (size_t k = 0; k < sizeof(row) / sizeof(*row); k++)
        for (size_t i = 0; i < given[k]->n; i++) {
            s->how.v[row[k]].given = true;
            if (add[k](&s->how, session, given[k]->v[i], err) < 0)
                return -1;
        }
    if (s->grammar) {
        struct grammar *g;

        if (grammars_take_option(session->grammars, &g, s->grammar, err) < 0)
            return -1;
        processors_set_grammar(&s->how, g);
        s->how.v[PROCESSOR_GRAMMAR].given = true;
    }
    for (size_t i = 0; i < s->lists.ends.n; i++)
        if (session_parse_ids(session, &s->ends, s->lists.ends.v[i], "--stop-ids",
                              err) < 0)
            return -1;
    for (size_t i = 0; i < s->lists.stops.n; i++)
        stops_add(&s->stops, s->lists.stops.v[i]);
    return 0;
}

/* ---- the model's settings ---- */

static void take_beams(struct sampling *s, const struct asked *a)
{
    if (!s->given.beams)
        s->beams = (int)a->beams.n;
    if (!s->given.returns)
        s->returns = (int)a->returns;
    if (!s->given.early)
        s->early = (int)a->beams.early;
    if (!s->given.length_penalty)
        s->length_penalty = a->beams.length_penalty;
    s->normal = a->normal;
}

static int take_settings(struct sampling *s, struct session *session, struct err *err)
{
    struct asked a;
    struct processors own = PROCESSORS_NEUTRAL;
    int ret = asked_read(&a, session, s->searches, err);

    if (ret == 0 && !s->given.n && a.max_new)
        s->max_tokens = a.max_new;
    else if (ret == 0 && !s->given.n && a.max_length) {
        s->max_tokens = a.max_length;
        s->max_length = a.max_length;
    }
    processors_copy(&own, &s->how);
    if (ret == 0)
        processors_copy(&s->how, &a.how);
    for (enum processor i = 0; i < PROCESSORS_N && ret == 0; i++) {
        s->how.v[i].given = false;
        if (own.v[i].given)
            processors_take(&s->how, &own, i);
    }
    if (ret == 0)
        take_beams(s, &a);
    if (ret == 0 && !s->stops.n)
        stops_copy(&s->stops, &a.stops);
    if (ret == 0 && a.start >= 0 && session->source)
        session->start = a.start;
    processors_clear(&own);
    asked_clear(&a);
    return ret;
}

/* WHERE: of a line; NULL: options. */
static int check_beams(const struct sampling *s, const char *where, struct err *err)
{
    const char *what = NULL;

    if (s->returns > 1 && s->beams <= 1 && !sampling_draws(s))
        what = where ? "num_return_sequences needs num_beams or a temperature"
                     : "--num-return needs --beams or --temperature";
    else if (s->beams > 1 && s->returns > s->beams)
        what = where ? "num_return_sequences is above num_beams"
                     : "--num-return is above --beams";
    else if (s->beams > 1 && s->likely >= 0)
        what = where ? "logprobs are of no text of beams: leave out num_beams"
                     : "--logprobs are of no text of --beams";
    return !what   ? 0
           : where ? err_set(err, ERR_INPUT, "%s: %s", where, what)
                   : err_set(err, ERR_USAGE, "%s", what);
}

int sampling_settle(struct sampling *s, struct session *session, struct err *err)
{
    if (launcher_agree(&session->launcher, take_lists(s, session, err), err) < 0)
        return -1;
    if (!s->ignore &&
        launcher_agree(&session->launcher, take_settings(s, session, err), err) < 0)
        return -1;
    return processors_check_drawn(&s->how, NULL, err) < 0 ? -1
                                                          : check_beams(s, NULL, err);
}

/* ---- settings of a line ---- */

static int wrong(const char *where, const char *name, const char *what, struct err *err)
{
    return err_set(err, ERR_INPUT, "%s: %s %s", where, name, what);
}

static int take_whole(uint64_t *out, const cJSON *value, double most, const char *where,
                      struct err *err)
{
    const double x = cJSON_IsNumber(value) ? value->valuedouble : -1;

    if (!(x >= 0 && x <= most && x == floor(x)))
        return wrong(where, value->string, "is no whole number in its range", err);
    *out = (uint64_t)x;
    return 0;
}

static int read_max_tokens(struct sampling *s, const struct session *session,
                           const cJSON *value, const char *where, struct err *err)
{
    (void)session;
    s->max_length = 0;
    return take_whole(&s->max_tokens, value, 1e15, where, err);
}

static int read_seed(struct sampling *s, const struct session *session,
                     const cJSON *value, const char *where, struct err *err)
{
    (void)session;
    return take_whole(&s->seed, value, 9007199254740992.0, where, err);
}

static int read_logprobs(struct sampling *s, const struct session *session,
                         const cJSON *value, const char *where, struct err *err)
{
    uint64_t n = 0;

    (void)session;
    if (take_whole(&n, value, MOST_LIKELY, where, err) < 0)
        return -1;
    s->likely = (int)n;
    return 0;
}

static int read_bool(struct sampling *s, const struct session *session,
                     const cJSON *value, const char *where, struct err *err)
{
    (void)session;
    if (!cJSON_IsBool(value))
        return wrong(where, value->string, "is neither true nor false", err);
    *(!strcmp(value->string, "ignore_eos") ? &s->ignore_eos : &s->normal) =
        cJSON_IsTrue(value);
    return 0;
}

static int read_stop(struct sampling *s, const struct session *session,
                     const cJSON *value, const char *where, struct err *err)
{
    const cJSON *one = cJSON_IsArray(value) ? value->child : value;

    (void)session;
    stops_clear(&s->stops);
    for (; one; one = cJSON_IsArray(value) ? one->next : NULL) {
        if (!cJSON_IsString(one) || !*one->valuestring)
            return wrong(where, value->string, "has an element that is no text", err);
        stops_add(&s->stops, one->valuestring);
    }
    return 0;
}

static int read_stop_ids(struct sampling *s, const struct session *session,
                         const cJSON *value, const char *where, struct err *err)
{
    const double vocab = (double)sampling_vocab(session);
    const cJSON *one;

    if (!cJSON_IsArray(value))
        return wrong(where, value->string, "is no list", err);
    s->ends.n = 0;
    cJSON_ArrayForEach(one, value)
    {
        if (!cJSON_IsNumber(one) ||
            !(one->valuedouble >= 0 && one->valuedouble < vocab &&
              one->valuedouble == floor(one->valuedouble)))
            return wrong(where, value->string, "has an element that is no id", err);
        ids_add(&s->ends, (int32_t)one->valuedouble);
    }
    return 0;
}

static int read_beams(struct sampling *s, const struct session *session,
                      const cJSON *value, const char *where, struct err *err)
{
    uint64_t n = 0;

    (void)session;
    if (take_whole(&n, value, SAMPLING_BEAMS, where, err) < 0)
        return -1;
    if (!n)
        return wrong(where, value->string, "is no whole number in its range", err);
    *(!strcmp(value->string, "num_beams") ? &s->beams : &s->returns) = (int)n;
    return 0;
}

static int read_length_penalty(struct sampling *s, const struct session *session,
                               const cJSON *value, const char *where, struct err *err)
{
    (void)session;
    if (!cJSON_IsNumber(value) || !(fabs(value->valuedouble) <= 1e3))
        return wrong(where, value->string, "is no number from -1000 to 1000", err);
    s->length_penalty = value->valuedouble;
    return 0;
}

static int read_early(struct sampling *s, const struct session *session,
                      const cJSON *value, const char *where, struct err *err)
{
    (void)session;
    if (cJSON_IsBool(value))
        s->early = cJSON_IsTrue(value) ? BEAMS_EARLY : BEAMS_SOON;
    else if (cJSON_IsString(value) && !strcmp(value->valuestring, "never"))
        s->early = BEAMS_NEVER;
    else
        return wrong(where, value->string, "is neither true nor false nor \"never\"",
                     err);
    return 0;
}

/* "json", "regex:EXPRESSION", or a schema. */
static int read_grammar(struct sampling *s, const struct session *session,
                        const cJSON *value, const char *where, struct err *err)
{
    const char *text = cJSON_IsString(value) ? value->valuestring : NULL;
    struct grammar *g;
    char *schema = NULL;
    int ret;

    if (text && strcmp(text, "json") != 0 && !str_starts(text, "regex:"))
        return wrong(where, value->string,
                     "is neither \"json\", nor \"regex:...\", nor a schema", err);
    if (!text)
        schema = xcheck(cJSON_PrintUnformatted(value));
    ret = grammars_take(session->grammars, &g, text ? text : schema, NULL, err);
    free(schema);
    if (ret < 0)
        return err_prefix(err, "%s: %s", where, value->string);
    processors_set_grammar(&s->how, g);
    return 0;
}

/* What a line may set beside processors. */
static const struct {
    const char *name;
    int (*read)(struct sampling *s, const struct session *session, const cJSON *value,
                const char *where, struct err *err);
} settings[] = {
    { "max_tokens", read_max_tokens },
    { "seed", read_seed },
    { "stop", read_stop },
    { "stop_ids", read_stop_ids },
    { "logprobs", read_logprobs },
    { "grammar", read_grammar },
    { "ignore_eos", read_bool },
    { "renormalize_logits", read_bool },
    { "num_beams", read_beams },
    { "num_return_sequences", read_beams },
    { "length_penalty", read_length_penalty },
    { "early_stopping", read_early },
};
enum { NSETTINGS = sizeof(settings) / sizeof(*settings) };

static int find_setting(const char *name)
{
    for (int i = 0; i < NSETTINGS; i++)
        if (!strcmp(settings[i].name, name))
            return i;
    return -1;
}

bool sampling_is_setting(const char *name)
{
    return find_setting(name) >= 0 || processors_find(name) >= 0;
}

void sampling_copy(struct sampling *out, const struct sampling *s)
{
    *out = *s;
    out->how = (struct processors)PROCESSORS_NEUTRAL;
    processors_copy(&out->how, &s->how);
    out->stops = (struct stops){ 0 };
    stops_copy(&out->stops, &s->stops);
    out->ends = out->stop = (struct ids){ 0 };
    for (size_t i = 0; i < s->ends.n; i++)
        ids_add(&out->ends, s->ends.v[i]);
}

static int read_settings(struct sampling *s, const struct session *session,
                         const cJSON *line, const char *where, struct err *err)
{
    const cJSON *value;
    int ret = 0;

    cJSON_ArrayForEach(value, line)
    {
        const int row = processors_find(value->string);
        const int own = find_setting(value->string);

        if (ret == 0 && row >= 0)
            ret = processors_read(&s->how, (enum processor)row, value,
                                  sampling_vocab(session), where, err);
        else if (ret == 0 && own >= 0 && !cJSON_IsNull(value))
            ret = settings[own].read(s, session, value, where, err);
    }
    return ret < 0 || processors_check_drawn(&s->how, where, err) < 0
               ? -1
               : check_beams(s, where, err);
}

int sampling_read(struct sampling *out, const struct sampling *s,
                  const struct session *session, const char *line, const char *where,
                  struct err *err)
{
    cJSON *root = cJSON_Parse(line);
    int ret;

    sampling_copy(out, s);
    ret = read_settings(out, session, root, where, err);
    cJSON_Delete(root);
    return ret;
}

void sampling_clear(struct sampling *s)
{
    processors_clear(&s->how);
    stops_clear(&s->stops);
    ids_clear(&s->ends);
    ids_clear(&s->stop);
}

/* ---- a text ---- */

void sampling_begin(struct sampling *s, const struct session *session,
                    const struct ids *model)
{
    const uint64_t vocab = sampling_vocab(session);

    s->stop.n = 0;
    for (size_t i = 0; i < model->n && !s->ignore_eos; i++)
        if (model->v[i] >= 0 && (uint64_t)model->v[i] < vocab)
            ids_add(&s->stop, model->v[i]);
    for (size_t i = 0; i < s->ends.n; i++)
        if ((uint64_t)s->ends.v[i] < vocab)
            ids_add(&s->stop, s->ends.v[i]);
}

int sampling_check_end(const struct sampling *s, const char *where, struct err *err)
{
    if (!s->how.v[PROCESSOR_GRAMMAR].grammar || s->stop.n)
        return 0;
    return err_set(err, where ? ERR_INPUT : ERR_USAGE,
                   "%s%sa grammar needs an id that ends a text, and there is none%s",
                   where ? where : "", where ? ": " : "",
                   s->ignore_eos ? ": the model's are ignored"
                   : where       ? ""
                                 : "; give --stop-ids");
}

bool sampling_is_stuck(const struct sampling *s, int32_t next, size_t n,
                       struct err *err)
{
    const struct grammar *g = s->how.v[PROCESSOR_GRAMMAR].grammar;

    if (!g || next != PICK_NOTHING)
        return false;
    if (grammar_failed(g))
        err_set(err, ERR_INPUT, "the grammar cannot be followed after %zu tokens: %s",
                n, grammar_failed(g));
    else
        err_set(err, ERR_NO,
                "after %zu tokens no token that the grammar allows is possible", n);
    return true;
}

bool sampling_needs_logits(const struct sampling *s)
{
    return s->likely >= 0 || s->beams > 1 || s->returns > 1 || processors_edit(&s->how);
}

size_t sampling_width(const struct sampling *s)
{
    return (size_t)(s->beams > s->returns ? s->beams : s->returns);
}

struct beams_how sampling_beams(const struct sampling *s)
{
    return (struct beams_how){ .n = (size_t)s->beams,
                               .length_penalty = s->length_penalty,
                               .early = (enum beams_early)s->early };
}

bool sampling_draws(const struct sampling *s)
{
    return s->how.v[PROCESSOR_TEMPERATURE].number > 0;
}

/* The tokens of a text whose prompt has N, but for the model's context. */
static size_t longest(const struct sampling *s, size_t n)
{
    size_t most = s->max_tokens < SIZE_MAX - n ? n + (size_t)s->max_tokens : SIZE_MAX;

    return s->max_length && most > s->max_length ? (size_t)s->max_length : most;
}

void sampling_choose(const struct sampling *s, struct choosing *c, size_t n)
{
    *c = (struct choosing){ .processors = &s->how,
                            .prompt = n,
                            .stop = s->stop.v,
                            .nstop = s->stop.n,
                            .most = longest(s, n),
                            .likely = s->likely,
                            .of = s->processed ? PICK_PROCESSED : PICK_RAW,
                            .normal = s->normal,
                            .draws = s->returns };
    if (s->beams > 1) {
        const struct beams_how how = sampling_beams(s);

        c->of = PICK_SCORES;
        c->draws = 0;
        c->likely = (int)beams_candidates(&how, s->stop.n);
    }
}

enum finish sampling_end(const struct sampling *s, uint64_t context, size_t n,
                         uint64_t new)
{
    if (new >= s->max_tokens || (s->max_length && n >= s->max_length))
        return LENGTH;
    return context && n > context ? CONTEXT : UNFINISHED;
}

size_t sampling_most(const struct sampling *s, uint64_t context, size_t n)
{
    const size_t most = longest(s, n);

    return context && most > context ? (size_t)context : most;
}

bool sampling_is_stop(const struct sampling *s, int32_t id)
{
    for (size_t i = 0; i < s->stop.n; i++)
        if (s->stop.v[i] == id)
            return true;
    return false;
}

bool sampling_cut(const struct sampling *s, struct saying *said, bool over)
{
    const size_t len = said->text.len;
    const size_t at = stops_find(&s->stops, str_text(&said->text), len, said->searched);

    said->searched = at;
    said->held =
        over || at < len ? 0 : stops_held(&s->stops, str_text(&said->text), len);
    said->cut |= at < len;
    str_cut(&said->text, at);
    return said->cut;
}
