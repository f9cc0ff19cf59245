/* generate - continues prompts */
#include "cmd/tp-run/commands.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cmd/tp-run/answers.h"
#include "cmd/tp-run/chatfile.h"
#include "cmd/tp-run/drafting.h"
#include "cmd/tp-run/inputs.h"
#include "cmd/tp-run/messages.h"
#include "cmd/tp-run/named.h"
#include "cmd/tp-run/sampling.h"
#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/run/cache.h"
#include "lib/run/scheduler.h"
#include "lib/run/serving.h"

/* What becomes of a text that fills the model's context. */
enum when_full { FULL_STOPS, FULL_SLIDES };
static const char *const when_full_names[] = { "stop", "slide", NULL };
/* First tokens draw much attention whatever they say (Xiao et al. 2024, "Efficient
 * streaming language models with attention sinks", which keeps four). */
enum { SINKS = 4 };

struct generate {
    struct session *session;
    struct inputs prompts;
    struct sampling sampling;
    struct drafting drafting;
    int requests;       /* texts in generation at a time; 0: as the cache permits */
    int cache_tokens;   /* capacity of a rank's cache; 0: see serving.h */
    int slides;         /* enum when_full */
    int kept;           /* first tokens that stay when a text slides */
    bool no_sharing;    /* each prompt is computed by itself */
    bool chats;         /* the prompts are chats */
    bool echo;          /* prints the text of a prompt first */
    struct text *text;  /* [first[prompts.n]] */
    size_t *first;      /* [prompts.n + 1]: the first text of a prompt */
    struct ids most;    /* [prompts.n]: tokens of each text at its longest */
    bool draws, logits; /* some text does, or needs them */
    size_t widest, all; /* texts in generation: of one prompt at most, of all */
    /* on rank 0 */
    struct sampling *own; /* [prompts.n]: of lines that say how they are generated */
    struct scheduler *scheduler;
    struct drafter *drafter; /* or NULL */
    struct beams *beams;
    size_t turn, part; /* the prompt that is printed now, and which of its texts */
    const char *output;
    bool resume;
    struct answers answers; /* of --output */
};

/* A text in generation, or one that a search finds. */
struct text {
    const struct ids *prompt, *source;
    const struct input *input;
    size_t at;      /* the index of its prompt */
    struct ids ids; /* new tokens */
    enum finish finish;
    /* on rank 0: */
    const struct sampling *how;
    struct choosing choosing;
    struct likely *told; /* [ids.n][1 + choosing.likely], where these are told */
    size_t ntold, cap_told;
    struct token_stream *stream; /* with a tokenizer */
    struct saying said;
    struct ids slid; /* what it goes on from, once it has slid */
    size_t dropped;  /* tokens between those */
    float score;     /* of what a search has found */
    bool missing;    /* it has found fewer */
    bool echoed;     /* its prompt is printed */
    size_t shown;    /* bytes of SAID, or ids without a tokenizer, already printed */
    double first, seconds; /* time of its first new token; time since then */
};

/* ---- printing: texts in order, the current one as it is generated ---- */

static void add_likely(struct str *out, const struct generate *g,
                       const struct likely *one)
{
    const uint32_t id = (uint32_t)one->id;
    struct str text = { 0 };

    str_addf(out, "\"id\":%d,\"token\":", (int)one->id);
    if (g->session->tokenizer) {
        tokenizer_decode(g->session->tokenizer, &id, 1, false, &text);
        str_add_jsonn(out, str_text(&text), text.len);
    } else
        str_add(out, "null");
    str_addf(out, ",\"logprob\":%.9g", (double)one->logprob);
    str_clear(&text);
}

/* Each new token with its log-probability, and the likeliest in its place. */
static void add_logprobs(struct str *out, const struct generate *g,
                         const struct text *t)
{
    const size_t each = 1 + (size_t)t->choosing.likely;

    str_add(out, ",\"logprobs\":[");
    for (size_t i = 0; i < t->ids.n; i++) {
        const struct likely *told = t->told + i * each;

        str_add(out, i ? ",{" : "{");
        add_likely(out, g, told);
        str_add(out, ",\"top\":[");
        for (size_t k = 1; k < each && told[k].id >= 0; k++) {
            str_add(out, k > 1 ? ",{" : "{");
            add_likely(out, g, &told[k]);
            str_addc(out, '}');
        }
        str_add(out, "]}");
    }
    str_addc(out, ']');
}

static size_t texts_of(const struct generate *g, size_t i)
{
    return g->first[i + 1] - g->first[i];
}

/* What is generated. */
static void add_text(struct str *out, const struct generate *g, const struct text *t)
{
    str_add(out, "\"ids\":");
    ids_print_json(out, &t->ids);
    str_add(out, ",\"text\":");
    if (g->session->tokenizer)
        str_add_jsonn(out, str_text(&t->said.text), t->said.text.len);
    else
        str_add(out, "null");
    if (g->chats) {
        str_add(out, ",\"role\":\"assistant\",\"content\":");
        str_add_jsonn(out, str_text(&t->said.text), t->said.text.len);
    }
    if (t->choosing.of == PICK_SCORES)
        str_addf(out, ",\"score\":%.9g", (double)t->score);
    else if (t->choosing.likely >= 0)
        add_logprobs(out, g, t);
    str_addf(out, ",\"finish\":\"%s\",\"tokens_per_second\":%.6g",
             finish_names[t->finish],
             t->seconds > 0 ? (double)(t->ids.n - 1) / t->seconds : 0);
}

/* The texts of a prompt, of which T is the first. */
static void add_json(struct str *out, const struct generate *g, const struct text *t,
                     size_t line)
{
    str_add(out, "{\"type\":\"generation\",");
    if (line)
        str_addf(out, "\"line\":%zu,", line);
    if (t->input->id)
        str_addf(out, "\"id\":%s,", t->input->id);
    if (t->source->n) {
        str_add(out, "\"source_ids\":");
        ids_print_json(out, t->source);
        str_addc(out, ',');
    }
    if (g->echo) {
        str_add(out, "\"prompt\":");
        if (t->input->prompt)
            str_add_json(out, t->input->prompt);
        else
            str_add(out, "null");
        str_addc(out, ',');
    }
    str_add(out, "\"prompt_ids\":");
    ids_print_json(out, t->prompt);
    str_addc(out, ',');
    if (texts_of(g, t->at) == 1)
        add_text(out, g, t);
    else
        str_add(out, "\"choices\":[");
    for (size_t k = 0; texts_of(g, t->at) > 1 && k < texts_of(g, t->at); k++) {
        if (t[k].missing)
            continue;
        str_add(out, k ? ",{" : "{");
        add_text(out, g, &t[k]);
        str_addc(out, '}');
    }
    str_add(out, texts_of(g, t->at) == 1 ? "}\n" : "]}\n");
}

/* Writes the finished texts of prompt AT as a line of JSON. */
static int write_json(struct generate *g, size_t at, struct err *err)
{
    const struct text *t = &g->text[g->first[at]];
    struct str out = { 0 };
    int ret = 0;

    if (t->finish == REFUSED)
        inputs_add_bad(&out, &g->prompts, at);
    else
        add_json(&out, g, t, g->prompts.v[at].line);
    if (g->output)
        ret = answers_add(&g->answers, &g->prompts.v[at], &out, err);
    else
        fputs(str_text(&out), stdout);
    str_clear(&out);
    return ret;
}

static void print_words(const struct generate *g, struct text *t)
{
    size_t n = t->ids.n - (t->finish == STOP);

    if (g->echo && !t->echoed && t->finish != REFUSED && t->input->prompt)
        fputs(t->input->prompt, stdout);
    t->echoed = true;
    if (g->session->tokenizer) {
        const size_t end = t->said.text.len - t->said.held;

        fwrite(str_text(&t->said.text) + t->shown, 1, end - t->shown, stdout);
        t->shown = end;
    }
    for (; !g->session->tokenizer && t->shown < n; t->shown++)
        printf("%s%d", t->shown ? "," : "", (int)t->ids.v[t->shown]);
}

/* Prints what can be printed of the texts of this turn.  Returns whether that is all.
 */
static bool print_plain(struct generate *g)
{
    for (; g->part < texts_of(g, g->turn); g->part++) {
        struct text *t = &g->text[g->first[g->turn] + g->part];

        if (t->missing)
            continue;
        print_words(g, t);
        if (!t->finish)
            return false;
        putchar('\n');
    }
    return true;
}

static bool is_over(const struct generate *g, size_t i)
{
    for (size_t k = g->first[i]; k < g->first[i + 1]; k++)
        if (!g->text[k].finish)
            return false;
    return true;
}

/* Prints all that can be printed: a text only after all texts before it. */
static int print_texts(struct generate *g, struct err *err)
{
    bool json = g->session->opt.json || g->output;

    for (; g->turn < g->prompts.n; g->turn++, g->part = 0) {
        if (json ? !is_over(g, g->turn) : !print_plain(g))
            break;
        if (json && write_json(g, g->turn, err) < 0)
            return -1;
    }
    if (fflush(stdout) < 0)
        return err_errno(err, "standard output");
    return 0;
}

/* ---- generating ---- */

/* Most tokens of a text that is over when it has them; 0: any number. */
static uint64_t context_of(const struct generate *g)
{
    return g->slides == FULL_SLIDES ? 0 : g->session->context;
}

/* Appends the new token ID and decodes it. */
static void add_id(const struct generate *g, struct text *t, int32_t id)
{
    bool stop = sampling_is_stop(t->how, id);

    if (!t->ids.n && t->first <= 0)
        t->first = clock_seconds();
    ids_add(&t->ids, id);
    t->finish =
        stop ? STOP
             : sampling_end(t->how, context_of(g), t->prompt->n + t->ids.n, t->ids.n);
    if (t->stream && !stop)
        token_stream_feed(t->stream, (uint32_t)id, &t->said.text);
    if (t->stream && t->finish)
        token_stream_end(t->stream, &t->said.text);
    if (sampling_cut(t->how, &t->said, t->finish != UNFINISHED))
        t->finish = STOP;
    if (t->finish)
        t->seconds = t->ids.n > 1 ? clock_seconds() - t->first : 0;
}

/* Keeps what is told of the next token: OWN, and the likeliest in its place. */
static void keep_told(struct text *t, const struct likely *own,
                      const struct scheduler_gain *by)
{
    if (t->choosing.likely < 0)
        return;
    t->told =
        xgrow(t->told, &t->cap_told, t->ntold + 1 + by->nlikely, sizeof(*t->told));
    t->told[t->ntold++] = *own;
    memcpy(t->told + t->ntold, by->likely + 1, by->nlikely * sizeof(*by->likely));
    t->ntold += by->nlikely;
}

/* How the tokens of a text are drawn, the position of its first one. */
static struct draw draw_of(const struct generate *g, const struct text *t)
{
    return (struct draw){ .seed =
                              t->how->seed + (uint64_t)(t - g->text) - g->first[t->at],
                          .position = ((uint64_t)t->at << 32) + t->dropped };
}

/* Has T, which goes on, more tokens than the model takes? */
static bool is_full(const struct generate *g, const struct text *t)
{
    return g->session->context &&
           t->prompt->n + t->ids.n - t->dropped > g->session->context;
}

static int32_t token_of(const struct text *t, size_t i)
{
    return i < t->prompt->n ? t->prompt->v[i] : t->ids.v[i - t->prompt->n];
}

/* T goes on from its first tokens and the newest half of what there is room for beside
 * them, as from a prompt.  A draw belongs to the place of its token in the whole text.
 */
static int slide(struct generate *g, struct text *t, struct err *err)
{
    const size_t kept = (size_t)g->kept, n = t->prompt->n + t->ids.n;
    const size_t newest = (g->session->context - kept) / 2, from = n - newest;
    const size_t longest = t->choosing.most + t->dropped;
    struct scheduler_text next = { .how = &t->choosing,
                                   .tag = (uint64_t)(t - g->text) };
    struct draw draw;
    uint64_t id;

    t->slid.n = 0;
    for (size_t i = 0; i < kept; i++)
        ids_add(&t->slid, token_of(t, i));
    for (size_t i = from; i < n; i++)
        ids_add(&t->slid, token_of(t, i));
    t->dropped = from - kept;
    t->choosing.prompt = (kept < t->prompt->n ? kept : t->prompt->n) +
                         (from < t->prompt->n ? t->prompt->n - from : 0);
    t->choosing.most = longest - t->dropped;
    t->choosing.draws = 0;
    draw = draw_of(g, t);
    next.adapter = t->input->adapter;
    next.draw = &draw;
    next.ids = t->slid.v;
    next.n = t->slid.n;
    next.most =
        t->choosing.most < g->session->context ? t->choosing.most : g->session->context;
    named_give(t->input, g->session, 0, next.input, next.rows);
    return scheduler_submit(g->scheduler, &next, &id, err);
}

/* The prompt of T has been read: the other texts that it gets go on from there. */
static int fork_texts(struct generate *g, struct text *t,
                      const struct scheduler_gain *by, struct err *err)
{
    for (size_t k = 0; k < by->nothers; k++) {
        struct text *other = t + 1 + k;
        const struct draw draw = draw_of(g, other);
        const int32_t next = by->others[k].id;
        uint64_t id;

        keep_told(other, &by->others[k], by);
        add_id(g, other, next);
        if (other->finish == UNFINISHED && is_full(g, other) &&
            slide(g, other, err) < 0)
            return -1;
        if (other->finish != UNFINISHED || is_full(g, other))
            continue;
        if (scheduler_fork(g->scheduler, by->id, &draw, (uint64_t)(other - g->text),
                           &id, err) < 0)
            return -1;
        scheduler_append(g->scheduler, id, &next, 1);
    }
    return 0;
}

/* A text gains its next token. */
static int gain(void *arg, const struct scheduler_gain *by, struct err *err)
{
    struct generate *g = arg;
    struct text *t = &g->text[by->tag];
    size_t n = t->prompt->n + t->ids.n;
    int32_t next = by->next;

    if (next < 0 && sampling_is_stuck(t->how, next, n, err))
        return err_prefix(err, "%s", t->input->name);
    if (next < 0)
        return inputs_not_finite(&g->prompts, g->session, t->at, "logits", n, err);
    if (t->choosing.of == PICK_SCORES) {
        t->first = t->first <= 0 ? clock_seconds() : t->first;
        beams_gain(g->beams, by);
        return 0;
    }
    if (fork_texts(g, t, by, err) < 0)
        return -1;
    keep_told(t, by->likely, by);
    add_id(g, t, next);
    if (t->finish != UNFINISHED)
        return 0;
    if (is_full(g, t))
        return slide(g, t, err);
    scheduler_append(g->scheduler, by->id, &next, 1);
    return 0;
}

/* ---- what searches find ---- */

/* Does the text of the ids IDS[N] have a stop? */
static bool has_stop(const struct generate *g, const struct text *t, const int32_t *ids,
                     size_t n)
{
    struct token_stream *stream = token_stream_new(g->session->tokenizer, true);
    struct str said = { 0 };
    bool found;

    for (size_t i = 0; i < n; i++)
        token_stream_feed(stream, (uint32_t)ids[i], &said);
    found = stops_find(&t->how->stops, str_text(&said), said.len, 0) < said.len;
    token_stream_free(stream);
    str_clear(&said);
    return found;
}

static bool ends(void *arg, uint64_t tag, const int32_t *ids, size_t n)
{
    const struct generate *g = arg;
    const struct text *t = &g->text[tag];

    return sampling_is_stop(t->how, ids[n - 1]) ||
           sampling_end(t->how, context_of(g), t->prompt->n + n, n) ||
           (t->how->stops.n && g->session->tokenizer && has_stop(g, t, ids, n));
}

static int take_found(void *arg, uint64_t tag, const struct beams_found *v, size_t n,
                      struct err *err)
{
    struct generate *g = arg;
    struct text *t = &g->text[tag];

    (void)err;
    for (size_t k = 0; k < texts_of(g, t->at); k++) {
        t[k].first = t->first;
        t[k].missing = k >= n;
        for (size_t i = 0; k < n && i < v[k].n; i++)
            add_id(g, &t[k], v[k].ids[i]);
        t[k].score = k < n ? v[k].score : 0;
        if (t[k].missing)
            t[k].finish = LENGTH;
    }
    return 0;
}

static int draft(void *arg, struct scheduler_draft *v, size_t n, struct err *err)
{
    struct generate *g = arg;

    return drafter_draft(g->drafter, v, n, err);
}

/* Submits all texts that need a token; those before g->turn are answered. */
static int submit(struct generate *g, struct err *err)
{
    for (size_t i = g->turn; i < g->prompts.n; i++) {
        struct text *t = &g->text[g->first[i]];
        const struct draw draw = draw_of(g, t);
        struct scheduler_text plan = { .ids = t->prompt->v,
                                       .n = t->prompt->n,
                                       .most = sampling_most(
                                           t->how, g->session->context, t->prompt->n),
                                       .draw = &draw,
                                       .how = &t->choosing,
                                       .adapter = t->input->adapter,
                                       .tag = g->first[i] };
        uint64_t id;

        named_give(t->input, g->session, 0, plan.input, plan.rows);
        for (size_t k = 0; k < texts_of(g, i) && t[k].finish != REFUSED; k++)
            t[k].finish = sampling_end(t->how, context_of(g), t->prompt->n, 0);
        if (t->finish != UNFINISHED)
            continue;
        if (t->choosing.of == PICK_SCORES) {
            const struct beams_how how = sampling_beams(t->how);

            beams_submit(g->beams, &plan, &how);
        } else if (scheduler_submit(g->scheduler, &plan, &id, err) < 0)
            return -1;
    }
    return 0;
}

static void note_counts(const struct generate *g)
{
    const struct scheduler_counts c = scheduler_counts(g->scheduler);

    drafting_note(g->session, g->drafter, g->scheduler);
    if (!c.shared)
        return;
    cmd_note(g->session->cmd,
             "%" PRIu64 " tokens computed, and %" PRIu64
             " of prompts that another had computed",
             c.computed, c.shared);
}

/* On rank 0: generates the texts, and prints what can be printed after each step. */
static int make_texts(struct generate *g, size_t places, struct err *err)
{
    const struct beams_options how = { .scheduler = g->scheduler,
                                       .places = places,
                                       .ends = ends,
                                       .found = take_found,
                                       .arg = g };
    int more, searches;

    g->beams = beams_new(&how);
    more = searches = submit(g, err) < 0 ? -1 : 1;
    while (more > 0 || searches > 0) {
        searches = beams_advance(g->beams, err);
        more = searches < 0 ? -1 : scheduler_step(g->scheduler, err);
        if (more < 0 || print_texts(g, err) < 0) {
            more = -1;
            break;
        }
    }
    beams_free(g->beams);
    if (more == 0)
        note_counts(g);
    return more;
}

static size_t longest(const struct generate *g)
{
    size_t most = 0;

    for (size_t i = 0; i < g->most.n; i++)
        most = (size_t)g->most.v[i] > most ? (size_t)g->most.v[i] : most;
    return most;
}

/* Prompts whose texts are in generation at a time, each with as many texts as one has
 * at most; a step of ranks that share a sequence has one text. */
static size_t requests_of(const struct generate *g)
{
    size_t n = SERVING_REQUESTS / g->widest;

    if (g->requests)
        n = (size_t)g->requests;
    else if (g->widest == 1)
        return 0;
    else if (g->session->mesh.size[MESH_SP] > 1 || !n)
        n = 1;
    return n * g->widest;
}

/* The sizes of the engine.  All prompts are known, so that neither steps nor texts need
 * be larger than these. */
static struct engine_limits limits_of(const struct generate *g)
{
    const struct inputs_sizes sizes = inputs_sizes(&g->prompts);
    const struct serving serving = {
        .context = longest(g),
        .source = sizes.source,
        .requests = requests_of(g),
        .cache_tokens = (size_t)g->cache_tokens,
        .texts = g->all,
        .drafts = drafting_most(&g->drafting),
    };
    struct engine_limits limits = serving_limits(&serving, &g->session->mesh);
    size_t all = 0;

    for (size_t i = 0; i < g->prompts.n; i++) {
        size_t n = g->prompts.v[i].ids.n;

        /* a preempted text is recomputed with its generated tokens */
        if (g->cache_tokens || g->widest > 1 || g->slides == FULL_SLIDES)
            n = (size_t)g->most.v[i];
        all += n < limits.tokens ? n : limits.tokens;
    }
    if (limits.segments == 1 && all > sizes.longest)
        all = sizes.longest;
    limits.tokens = limits.tokens > all ? all : limits.tokens;
    limits.sources = limits.sources > sizes.sources ? sizes.sources : limits.sources;
    /* beams are forks, which read what their text's encoder has made; where a fork may
     * have to wait, it makes that again */
    if (g->widest > 1 && !limits.cache && g->session->mesh.size[MESH_DP] == 1 &&
        g->session->mesh.size[MESH_EP] == 1 && g->session->mesh.size[MESH_SP] == 1)
        limits.texts = (limits.sequences + g->widest - 1) / g->widest;
    inputs_limit(&sizes, &limits);
    return limits;
}

/* On rank 0: how the text of prompt I is generated. */
static const struct sampling *how_of(const struct generate *g, size_t i)
{
    return g->prompts.v[i].settings ? &g->own[i] : &g->sampling;
}

/* Checks that the cache has room for each text alone. */
static int check_room(const struct generate *g, struct err *err)
{
    for (size_t i = 0; i < g->prompts.n && g->cache_tokens; i++) {
        const struct input *in = &g->prompts.v[i];
        size_t most = sampling_most(how_of(g, i), g->session->context, in->ids.n);
        size_t source = in->rows[ROWS_SOURCE], need = most > source ? most : source;

        if (!in->bad &&
            cache_blocks(need, 1, 0) > (size_t)g->cache_tokens / CACHE_BLOCK)
            return err_set(err, ERR_INPUT,
                           "--cache-tokens %d: %s may need room for %zu tokens, in "
                           "blocks of %d",
                           g->cache_tokens, in->name, need, CACHE_BLOCK);
    }
    return 0;
}

static void open_text(struct generate *g, struct text *t, size_t i, bool front)
{
    *t = (struct text){ .prompt = &g->prompts.v[i].ids,
                        .source = &g->prompts.v[i].source,
                        .input = &g->prompts.v[i],
                        .at = i,
                        .finish = g->prompts.v[i].bad ? REFUSED : UNFINISHED };
    if (!front)
        return;
    t->how = how_of(g, i);
    sampling_choose(t->how, &t->choosing, g->prompts.v[i].ids.n);
    t->choosing.source = g->prompts.v[i].source.v;
    t->choosing.nsource = g->prompts.v[i].source.n;
    if (g->session->tokenizer)
        t->stream = token_stream_new(g->session->tokenizer, true);
}

static void open_texts(struct generate *g, bool front)
{
    g->first = xcalloc(g->prompts.n + 1, sizeof(*g->first));
    for (size_t i = 0; i < g->prompts.n; i++) {
        const bool alone = !front || g->prompts.v[i].bad;

        g->first[i + 1] = g->first[i] + (alone ? 1 : (size_t)how_of(g, i)->returns);
    }
    g->text = xcalloc(g->first[g->prompts.n] + 1, sizeof(*g->text));
    for (size_t i = 0; i < g->prompts.n; i++)
        for (size_t k = g->first[i]; k < g->first[i + 1]; k++)
            open_text(g, &g->text[k], i, front);
}

static void close_texts(struct generate *g)
{
    for (size_t i = 0; i < g->first[g->prompts.n]; i++) {
        token_stream_free(g->text[i].stream);
        str_clear(&g->text[i].said.text);
        free(g->text[i].told);
        ids_clear(&g->text[i].ids);
        ids_clear(&g->text[i].slid);
    }
    free(g->text);
    free(g->first);
}

static struct program_options options_of(const struct generate *g)
{
    return (struct program_options){
        .tail = g->draws || g->logits ? TAIL_SAMPLE : TAIL_ARGMAX,
        .keeps_logits = g->logits,
        .wanted = true,
        .deterministic = g->session->opt.same_bits,
        .rounded = g->session->opt.compute == COMPUTE_BF16
    };
}

/* Before the lines are read, which may say that they need more. */
static int choose_backend(struct generate *g, struct err *err)
{
    struct program_options options[2];

    g->widest = g->all = 1;
    g->draws = sampling_draws(&g->sampling);
    g->logits = sampling_needs_logits(&g->sampling);
    options[0] = options[1] = options_of(g);
    options[1].tail = TAIL_SAMPLE;
    options[1].keeps_logits = true;
    return session_choose(g->session, options, 2, err);
}

static int generate_rank(void *arg, struct comm *comm, struct err *err)
{
    struct generate *g = arg;
    const struct program_options options = options_of(g);
    struct engine_limits limits = limits_of(g);
    const struct scheduler_options how = { .grow = true,
                                           .no_sharing = g->no_sharing,
                                           .limits = &limits,
                                           .gain = gain,
                                           .draft = g->drafting.what ? draft : NULL,
                                           .arg = g };
    struct runner r;
    int ret;

    if (runner_open(&r, g->session->checkpoint, &g->session->mesh, &g->session->machine,
                    comm, &options, &limits, err) < 0)
        return -1;
    ret = drafting_start(&g->drafter, &g->drafting, g->session, &r, &limits,
                         g->draws || g->logits, sampling_vocab(g->session), err);
    if (ret == 0)
        ret = drafting_report(g->session, &r, g->drafter, comm, err);
    if (ret == 0 && !r.program->causal)
        ret = err_set(err, ERR_INPUT, "family %s is an encoder and generates no text",
                      g->session->checkpoint->model->family);
    if (ret == 0) {
        open_texts(g, comm->rank == 0);
        ret = scheduler_open(&g->scheduler, &r, &how, err);
        if (g->drafter)
            drafter_try(g->drafter, g->scheduler, r.nstages);
        if (ret == 0)
            ret = comm->rank == 0
                      ? make_texts(g, limits.sequences * (size_t)r.nreplicas, err)
                      : scheduler_follow(g->scheduler, err);
        close_texts(g);
        ret = scheduler_close(g->scheduler, ret, err);
    }
    drafter_close(g->drafter);
    if (ret == 0 && comm->rank == 0 && g->output)
        ret = answers_finish(&g->answers, err);
    ret = runner_finish(&r, ret, err);
    runner_close(&r);
    return ret;
}

/* ---- prompts ---- */

/* What is read: options that may be repeated. */
struct sources {
    struct opt_list prompts, ids, lines, chats;
    struct messages_options form;
};

struct chat_reader {
    struct generate *g;
    const struct messages_form *form;
};

static int add_chat(void *arg, const struct chatfile_chat *chat, struct err *err)
{
    struct chat_reader *to = arg;
    struct input one = { .name = xstrdup(chat->name), .line = chat->line };
    const struct json *id = json_get(chat->chat, "id"),
                      *adapter = json_get(chat->chat, "adapter");
    struct str text = { 0 };
    struct messages messages;
    int ret = chat->chat ? messages_parse(&messages, chat->doc, chat->chat, err) : -1;

    if (!chat->chat)
        *err = chat->err;
    if (ret == 0)
        ret = messages_ids(to->form, &messages, &one.ids, &text, err);
    if (ret == 0 && adapter && adapter->type != JSON_NULL)
        ret = json_string(adapter)
                  ? session_adapter(to->g->session, &one.adapter, adapter->text, err)
                  : json_error(chat->doc, adapter, err, "adapter is no text");
    one.prompt = str_steal(&text);
    if (id) {
        json_print(&text, id);
        one.id = str_steal(&text);
    }
    return inputs_take(&to->g->prompts, to->g->session, &one, ret, err);
}

static int read_chats(struct generate *g, const struct sources *from, struct err *err)
{
    struct messages_form form;
    struct chat_reader reader = { .g = g, .form = &form };
    int ret = messages_open(&form, g->session, &from->form, err);

    if (ret == 0)
        ret = messages_stop(&form, &g->session->stop, err);
    for (size_t i = 0; i < from->chats.n && ret == 0; i++)
        ret = chatfile_read(from->chats.v[i], add_chat, &reader, err);
    messages_close(&form);
    return ret;
}

/* Reads the settings of input I, if it has some. */
static int read_settings(struct generate *g, size_t i, struct err *err)
{
    struct input *one = &g->prompts.v[i];

    if (!one->settings)
        return 0;
    if (sampling_read(&g->own[i], &g->sampling, g->session, one->settings, one->name,
                      err) < 0)
        return -1;
    sampling_begin(&g->own[i], g->session, &g->session->stop);
    return 0;
}

/* Sets *err if the text of prompt I cannot slide. */
static void check_slide(const struct generate *g, size_t i, struct err *err)
{
    const struct input *one = &g->prompts.v[i];
    bool named = false;

    if (g->slides == FULL_STOPS)
        return;
    for (int k = 0; k < FEEDS_MOST; k++)
        named |= one->named[k].v != NULL;
    if (how_of(g, i)->how.v[PROCESSOR_GRAMMAR].grammar)
        err_set(err, ERR_INPUT, "--context slide: not with a grammar");
    else if (how_of(g, i)->beams > 1)
        err_set(err, ERR_INPUT, "--context slide: beams do not slide");
    else if (named)
        err_set(err, ERR_INPUT,
                "--context slide: inputs beside ids do not slide with them");
}

/* On every rank. */
static int check_kept(const struct generate *g, struct err *err)
{
    const uint64_t most = g->session->context;

    if (g->slides == FULL_SLIDES && most && (uint64_t)g->kept + 2 > most)
        return err_set(err, ERR_USAGE, "--context-keep %d: the model takes %" PRIu64,
                       g->kept, most);
    return 0;
}

static int read_prompts(struct generate *g, const struct sources *from, struct err *err)
{
    const struct session *s = g->session;
    struct inputs *in = &g->prompts;

    for (size_t i = 0; i < from->prompts.n; i++)
        if (inputs_add_text(in, s, "--prompt", from->prompts.v[i],
                            strlen(from->prompts.v[i]), err) < 0)
            return -1;
    for (size_t i = 0; i < from->ids.n; i++)
        if (inputs_add_ids(in, s, "--ids", from->ids.v[i], err) < 0)
            return -1;
    for (size_t i = 0; i < from->lines.n; i++)
        if (inputs_add_lines(in, s, from->lines.v[i], err) < 0)
            return -1;
    if (g->chats && read_chats(g, from, err) < 0)
        return -1;
    if (!from->prompts.n && !from->ids.n && !from->lines.n && !g->chats &&
        inputs_add_file(in, s, "-", false, err) < 0)
        return -1;
    if (inputs_use(in, s, INPUT_PROMPT, err) < 0)
        return -1;
    sampling_begin(&g->sampling, s, &s->stop);
    g->own = xcalloc(in->n + 1, sizeof(*g->own));
    for (size_t i = 0; i < in->n; i++) {
        const struct input *one = &in->v[i];

        if (one->bad)
            continue;
        if (!one->ids.n)
            err_set(err, ERR_INPUT, "an empty prompt");
        else if (s->context && one->ids.n > s->context)
            err_set(err, ERR_INPUT, "the prompt has %zu tokens, the model takes %llu",
                    one->ids.n, (unsigned long long)s->context);
        else if (read_settings(g, i, err) == 0 && how_of(g, i)->max_length &&
                 one->ids.n >= how_of(g, i)->max_length)
            err_set(
                err, ERR_INPUT,
                "the prompt has %zu tokens, and the model's max_length is %llu; give "
                "--max-tokens",
                one->ids.n, (unsigned long long)g->sampling.max_length);
        if (!err->kind && sampling_check_end(how_of(g, i), one->name, err) == 0)
            check_slide(g, i, err);
        if (err->kind && inputs_refuse(in, s, i, err) < 0)
            return -1;
    }
    return 0;
}

/* Chats have outputs of their own; an option about them is of no use without. */
static int check_options(struct generate *g, const struct sources *from, bool json,
                         struct err *err)
{
    const struct messages_options *form = &from->form;

    g->chats = from->chats.n > 0;
    if (g->chats && (from->prompts.n || from->ids.n || from->lines.n))
        return err_set(err, ERR_USAGE, "--chat has its own prompts: leave out --%s",
                       from->prompts.n ? "prompt"
                       : from->ids.n   ? "ids"
                                       : "input");
    if (!g->chats && (form->template || form->args.n || form->date))
        return err_set(err, ERR_USAGE, "--%s needs --chat",
                       form->template ? "template"
                       : form->args.n ? "template-arg"
                                      : "date");
    if (g->sampling.given.likely && !json && !g->output)
        return err_set(err, ERR_USAGE, "--logprobs needs --json or --output");
    if (g->resume && !g->output)
        return err_set(err, ERR_USAGE, "--resume needs --output");
    if (g->output && !strcmp(g->output, "-"))
        return err_set(err, ERR_USAGE,
                       "--output: a file that --resume can continue, not '-'");
    return 0;
}

/* What the answers depend on, as a line of JSON. */
static int add_settings(struct str *out, const struct generate *g, bool chats,
                        struct err *err)
{
    const struct session *s = g->session;
    const struct sampling *how = &g->sampling;
    uint32_t model;

    if (session_identity(&model, s, err) < 0)
        return -1;
    str_addf(out, "{\"type\":\"settings\",\"model_crc32\":\"%08" PRIx32 "\"", model);
    str_addf(out, ",\"inputs\":%zu", g->prompts.n);
    str_addf(out, ",\"max_tokens\":%" PRIu64 ",\"max_length\":%" PRIu64,
             how->max_tokens, how->max_length);
    processors_print(out, &how->how);
    str_addf(out, ",\"seed\":%" PRIu64 ",\"logprobs\":%d,\"processed\":%s", how->seed,
             how->likely, how->processed ? "true" : "false");
    str_addf(out,
             ",\"context\":\"%s\",\"context_keep\":%d,\"beams\":%d,\"length_penalty\":%"
             ".17g,\"early_stopping\":\"%s\","
             "\"num_return\":%d",
             when_full_names[g->slides], g->kept, how->beams, how->length_penalty,
             sampling_early_names[how->early], how->returns);
    str_add(out, ",\"stop_texts\":[");
    for (size_t i = 0; i < how->stops.n; i++) {
        str_add(out, i ? "," : "");
        str_add_json(out, how->stops.v[i]);
    }
    str_add(out, "],\"stop\":");
    ids_print_json(out, &how->stop);
    str_addf(out, ",\"compute\":\"%s\",\"weights\":\"%s\",\"kv_dtype\":",
             session_compute_names[s->opt.compute],
             session_weights_names[s->opt.weights]);
    str_add_json(out, s->opt.kv_dtype ? s->opt.kv_dtype : "f32");
    str_addf(out, ",\"deterministic\":%s,\"echo\":%s,\"chats\":%s}",
             s->opt.same_bits ? "true" : "false", g->echo ? "true" : "false",
             chats ? "true" : "false");
    return 0;
}

/* The answers would replace what they are made from. */
static int check_inputs(const struct generate *g, const struct opt_list *files,
                        struct err *err)
{
    struct stat out, in;

    for (size_t i = 0; i < files->n && stat(g->output, &out) == 0; i++)
        if (stat(files->v[i], &in) == 0 && in.st_dev == out.st_dev &&
            in.st_ino == out.st_ino)
            return err_set(err, ERR_USAGE, "--output: %s is the input %s", g->output,
                           files->v[i]);
    return 0;
}

static int open_answers(struct generate *g, const struct sources *from, struct err *err)
{
    struct str settings = { 0 };
    int ret = 0;

    if (g->output)
        ret = check_inputs(g, &from->lines, err) < 0 ||
                      check_inputs(g, &from->chats, err) < 0 ||
                      add_settings(&settings, g, from->chats.n > 0, err) < 0
                  ? -1
                  : answers_open(&g->answers, g->session, g->output, g->resume,
                                 str_text(&settings), &g->prompts, err);
    g->turn = g->answers.n;
    str_clear(&settings);
    return ret;
}

/* Tells the other ranks what the texts need. */
static int share_needs(struct generate *g, struct err *err)
{
    struct ids needs = { 0 };
    int ret;

    g->all = 0;
    for (size_t i = 0; i < g->prompts.n && launcher_is_front(&g->session->launcher);
         i++) {
        const struct sampling *how = how_of(g, i);
        const size_t most =
            sampling_most(how, g->session->context, g->prompts.v[i].ids.n);

        ids_add(&g->most, most < INT32_MAX ? (int32_t)most : INT32_MAX);
        g->draws |= sampling_draws(how);
        g->logits |= sampling_needs_logits(how);
        g->widest = sampling_width(how) > g->widest ? sampling_width(how) : g->widest;
        g->all += sampling_width(how);
    }
    ids_add(&needs, g->draws);
    ids_add(&needs, g->logits);
    ids_add(&needs, (int32_t)g->widest);
    ids_add(&needs, g->all < INT32_MAX ? (int32_t)g->all : INT32_MAX);
    ret = session_share_ids(g->session, &needs, err);
    g->draws = needs.v[0];
    g->logits = needs.v[1];
    g->widest = (size_t)needs.v[2];
    g->all = (size_t)needs.v[3];
    ids_clear(&needs);
    return ret < 0 ? -1 : session_share_ids(g->session, &g->most, err);
}

static int take_prompts(struct generate *g, const struct sources *from, struct err *err)
{
    bool front = launcher_is_front(&g->session->launcher);

    g->session->replaces = g->prompts.invalid == INVALID_REPLACE;
    return inputs_share(&g->prompts, g->session,
                        front && (read_prompts(g, from, err) < 0 ||
                                  check_room(g, err) < 0 ||
                                  open_answers(g, from, err) < 0)
                            ? -1
                            : 0,
                        err) < 0
               ? -1
               : share_needs(g, err);
}

/* Without a usable prompt: prints the bad lines, and runs nothing. */
static int print_refused(struct generate *g, struct err *err)
{
    int ret;

    bool front = launcher_is_front(&g->session->launcher);

    open_texts(g, false);
    ret = front ? print_texts(g, err) : 0;
    if (ret == 0 && front && g->output)
        ret = answers_finish(&g->answers, err);
    close_texts(g);
    return ret;
}

int generate_main(const char *program, int argc, char **argv)
{
    struct session_options opt = SESSION_DEFAULTS;
    struct sources from = { 0 };
    struct session session = { 0 };
    struct generate g = { .session = &session,
                          .sampling = SAMPLING_DEFAULTS(128),
                          .kept = SINKS,
                          .answers.fd = -1 };
    const struct opt opts[] = {
        { OPT_LIST, 'p', "prompt", &from.prompts, "TEXT",
          "text to continue (default: standard input)", NULL, NULL },
        { OPT_LIST, '\0', "ids", &from.ids, "LIST", NULL, NULL, NULL },
        { OPT_LIST, '\0', "input", &from.lines, "FILE",
          "each line of FILE is a prompt (text, or JSON)", NULL, NULL },
        { OPT_LIST, '\0', "chat", &from.chats, "FILE", NULL, NULL, NULL },
        MESSAGES_OPTIONS(from.form),
        { OPT_FLAG, '\0', "echo", &g.echo, NULL, NULL, NULL, NULL },
        { OPT_STRING, '\0', "output", &g.output, "FILE", NULL, NULL, NULL },
        { OPT_FLAG, '\0', "resume", &g.resume, NULL, NULL, NULL, NULL },
        INPUT_FORMAT_OPTION(g.prompts),
        INPUT_INVALID_OPTION(g.prompts),
        SAMPLING_OPTIONS(g.sampling, "most new tokens (default: the model's, or 128)"),
        SAMPLING_LOGPROBS_OPTIONS(g.sampling),
        SAMPLING_BEAMS_OPTIONS(g.sampling),
        { OPT_CHOICE, '\0', "context", &g.slides, "HOW", NULL, when_full_names, NULL },
        { OPT_INT, '\0', "context-keep", &g.kept, "K", NULL, NULL, NULL },
        BATCHING_OPTIONS(g),
        { OPT_COUNT, '\0', "micro-batches", &g.requests, "N", NULL, NULL, NULL },
        DRAFTING_OPTIONS(g.drafting),
        { OPT_FLAG, '\0', "average", &opt.average, NULL, NULL, NULL, NULL },
        SESSION_OPTIONS(opt),
        { .type = OPT_END },
    };
    const struct cmd cmd = { .name = "generate",
                             .program = program,
                             .own_page = true,
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

    g.sampling.searches = true;
    g.prompts.keeps_text = g.echo;
    g.prompts.is_setting = sampling_is_setting;
    if (sampling_check(&g.sampling, &err) < 0 ||
        check_options(&g, &from, opt.json, &err) < 0 ||
        session_open(&session, &cmd, &opt, operand[0], &err) < 0 ||
        session_need_lm(&session, &err) < 0 ||
        drafting_open(&g.drafting, &session, &err) < 0 ||
        sampling_settle(&g.sampling, &session, &err) < 0 || check_kept(&g, &err) < 0 ||
        choose_backend(&g, &err) < 0 || take_prompts(&g, &from, &err) < 0)
        status = cmd_fail(&cmd, &err);
    else if (g.prompts.nbad == g.prompts.n && print_refused(&g, &err) < 0)
        status = cmd_fail(&cmd, &err);
    else if (g.prompts.nbad == g.prompts.n)
        status = cmd_finish(&cmd, ERR_INPUT);
    else {
        session.machine.steps = g.sampling.max_tokens;
        status = inputs_status(&g.prompts, session_run(&session, generate_rank, &g));
    }
    answers_close(&g.answers);
    for (size_t i = 0; i < g.prompts.n && g.own; i++)
        sampling_clear(&g.own[i]);
    free(g.own);
    sampling_clear(&g.sampling);
    ids_clear(&g.most);
    inputs_clear(&g.prompts);
    drafting_close(&g.drafting);
    session_close(&session);
    return status;
}
