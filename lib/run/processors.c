/* processors - what is done to the logits of a text's next token before it is chosen */
#include "lib/run/processors.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"

/* What a row takes: a number, a whole number, a number above its least, ids, [start,
 * factor], sequences of ids, sequences with a bias each, or what the caller has
 * opened. */
enum kind { NUMBER, WHOLE, FRACTION, IDS, PAIR, SEQUENCES, BIASES, OPENED };
enum { MOST_BIASES = 10000 }; /* each is compared with those before it */

/* What a row sees of a text. */
struct seen {
    const struct choosing *c;
    const struct processor_setting *own;
    const int32_t *ids; /* [n] */
    size_t n;
    struct edits *e;
    struct pick *pick;
    struct grammar_cursor *cursor;
};

/* ---- edits ---- */

void edits_clear(struct edits *e)
{
    free(e->v);
    free(e->at);
    free(e->allowed);
    *e = (struct edits){ 0 };
}

static void begin(struct edits *e)
{
    for (size_t i = 0; i < e->n; i++)
        e->at[e->v[i].id] = 0;
    e->n = 0;
    e->made = (struct pick_edits){ 0 };
}

/* The edit of ID, which does nothing if it is new. */
static struct edit *edit_of(struct edits *e, int32_t id)
{
    size_t had = e->nat;

    if ((size_t)id >= had) {
        e->at = xgrow(e->at, &e->nat, (size_t)id + 1, sizeof(*e->at));
        memset(e->at + had, 0, (e->nat - had) * sizeof(*e->at));
    }
    if (!e->at[id]) {
        e->v = xgrow(e->v, &e->cap, e->n + 1, sizeof(*e->v));
        e->v[e->n++] = (struct edit){ .id = id, .scale = 1 };
        e->at[id] = (uint32_t)e->n;
    }
    return &e->v[e->at[id] - 1];
}

static void ban(const struct seen *s, int32_t id)
{
    edit_of(s->e, id)->after = -INFINITY;
}

static void ban_stops(const struct seen *s)
{
    for (size_t i = 0; i < s->c->nstop; i++)
        ban(s, s->c->stop[i]);
}

/* ---- the rows ---- */

/* Do the text's last ids, and then ID[n - 1], make the sequence ID[n]? */
static bool ends_with(const struct seen *s, const int32_t *id, size_t n)
{
    return n && n - 1 <= s->n &&
           !memcmp(s->ids + s->n - (n - 1), id, (n - 1) * sizeof(*id));
}

static void apply_biases(const struct seen *s)
{
    const struct id_lists *l = &s->own->list;

    for (size_t i = 0, from = 0; i < l->n; from = l->end[i++])
        if (ends_with(s, l->id + from, l->end[i] - from))
            edit_of(s->e, l->id[l->end[i] - 1])->bias += (float)l->bias[i];
}

static bool is_stop(const struct seen *s, int32_t id)
{
    for (size_t i = 0; i < s->c->nstop; i++)
        if (s->c->stop[i] == id)
            return true;
    return false;
}

static void apply_bad_words(const struct seen *s)
{
    const struct id_lists *l = &s->own->list;

    for (size_t i = 0, from = 0; i < l->n; from = l->end[i++]) {
        const size_t n = l->end[i] - from;

        if (n == 1 && is_stop(s, l->id[from]))
            continue;
        if (ends_with(s, l->id + from, n))
            ban(s, l->id[l->end[i] - 1]);
    }
}

/* Multiplies the scale of each id among IDS[n], once, by FACTOR. */
static void scale_once(const struct seen *s, const int32_t *ids, size_t n, float factor)
{
    const size_t before = s->e->n;
    size_t i;

    /* ids that had an edit are found by their old scale */
    float *old = xcalloc(before + 1, sizeof(*old));

    for (i = 0; i < before; i++)
        old[i] = s->e->v[i].scale;
    for (i = 0; i < n; i++) {
        struct edit *e = edit_of(s->e, ids[i]);
        const size_t at = (size_t)(e - s->e->v);

        e->scale = (at < before ? old[at] : 1) * factor;
    }
    free(old);
}

static void apply_repetition(const struct seen *s)
{
    scale_once(s, s->ids, s->n, (float)s->own->number);
}

static const int32_t *source_of(const struct seen *s, size_t *n)
{
    *n = s->c->source ? s->c->nsource : s->c->prompt;
    return s->c->source ? s->c->source : s->ids;
}

static void apply_encoder_repetition(const struct seen *s)
{
    size_t n;
    const int32_t *ids = source_of(s, &n);

    scale_once(s, ids, n, 1 / (float)s->own->number);
}

/* Each id that was generated loses something, once. */
static void apply_presence(const struct seen *s)
{
    for (size_t i = s->c->prompt; i < s->n; i++)
        edit_of(s->e, s->ids[i])->after = -(float)s->own->number;
}

/* The same for each time; PRESENCE comes before it. */
static void apply_frequency(const struct seen *s)
{
    for (size_t i = s->c->prompt; i < s->n; i++)
        edit_of(s->e, s->ids[i])->after -= (float)s->own->number;
}

/* Bans what followed the text's last ids in IDS[n]. */
static void ban_ngrams(const struct seen *s, const int32_t *ids, size_t n)
{
    const size_t size = (size_t)s->own->number;

    for (size_t i = 0; size && size - 1 <= s->n && i + size <= n; i++)
        if (!memcmp(ids + i, s->ids + s->n - (size - 1), (size - 1) * sizeof(*ids)))
            ban(s, ids[i + size - 1]);
}

static void apply_no_repeat_ngram(const struct seen *s)
{
    ban_ngrams(s, s->ids, s->n);
}

static void apply_encoder_no_repeat_ngram(const struct seen *s)
{
    size_t n;
    const int32_t *ids = source_of(s, &n);

    ban_ngrams(s, ids, n);
}

static void apply_min_length(const struct seen *s)
{
    if ((double)s->n < s->own->number)
        ban_stops(s);
}

static void apply_min_tokens(const struct seen *s)
{
    if ((double)(s->n - s->c->prompt) < s->own->number)
        ban_stops(s);
}

static void apply_forced_first(const struct seen *s)
{
    if (s->n == 1)
        s->pick->only = s->own->list.id[0];
}

static void apply_forced_last(const struct seen *s)
{
    if (s->c->most && s->n + 1 == s->c->most)
        s->pick->only = s->own->list.id[0];
}

static void apply_decay(const struct seen *s)
{
    const double start = s->own->list.bias[0] + (double)s->c->prompt;
    const double factor = s->own->list.bias[1];

    if ((double)s->n > start)
        for (size_t i = 0; i < s->c->nstop; i++)
            edit_of(s->e, s->c->stop[i])->decay =
                (float)(pow(factor, (double)s->n - start) - 1);
}

static void ban_list(const struct seen *s)
{
    const struct id_lists *l = &s->own->list;

    for (size_t i = 0; i < l->n; i++)
        ban(s, l->id[i]);
}

/* A first token that is forced is no beginning. */
static void apply_begin_suppress(const struct seen *s)
{
    const bool forced =
        s->c->processors->v[PROCESSOR_FORCED_FIRST].list.n && s->c->prompt <= 1;

    if (s->n == s->c->prompt + forced)
        ban_list(s);
}

static bool is_allowed(const uint32_t *bits, size_t words, int32_t id)
{
    return (size_t)id / 32 < words && bits[id / 32] >> id % 32 & 1;
}

/* The one id of BITS[words]; -1: there are none, or several. */
static int32_t only_of(const uint32_t *bits, size_t words)
{
    int32_t only = -1;

    for (size_t i = 0; i < words; i++)
        if (bits[i] && (only >= 0 || (bits[i] & (bits[i] - 1))))
            return -1;
        else if (bits[i])
            only = (int32_t)(i * 32) + __builtin_ctz(bits[i]);
    return only;
}

/* The ids that end a text are possible where it is whole, and nowhere else.  Where it
 * has to end, nothing keeps it from that; after drafted tokens that do not fit, of
 * which nobody will hear, all is possible. */
static void apply_grammar(const struct seen *s)
{
    struct grammar *g = s->own->grammar;
    const struct grammar_next next =
        grammar_follow(g, s->cursor, s->ids + s->c->prompt, s->n - s->c->prompt);
    size_t words = next.words;
    uint32_t *bits;

    if (!next.fits && !grammar_failed(g))
        return;
    if (next.must && s->c->nstop) {
        s->pick->only = s->c->stop[0];
        return;
    }
    for (size_t i = 0; i < s->c->nstop; i++)
        if ((size_t)s->c->stop[i] / 32 >= words)
            words = (size_t)s->c->stop[i] / 32 + 1;
    s->e->allowed =
        xgrow(s->e->allowed, &s->e->cap_allowed, words + 1, sizeof(*s->e->allowed));
    bits = s->e->allowed;
    memcpy(bits, next.allowed, next.words * sizeof(*bits));
    memset(bits + next.words, 0, (words - next.words) * sizeof(*bits));
    for (size_t i = 0; i < s->c->nstop; i++) {
        const uint32_t bit = 1U << s->c->stop[i] % 32;

        bits[s->c->stop[i] / 32] &= ~bit;
        bits[s->c->stop[i] / 32] |= next.may_end ? bit : 0;
    }
    if (s->pick->only >= 0 && is_allowed(bits, words, s->pick->only))
        return;
    s->pick->only = only_of(bits, words);
    s->e->made.allowed = bits;
    s->e->made.words = words;
}

#define MEMBER(name, member)               \
    static void name(const struct seen *s) \
    {                                      \
        s->pick->member = s->own->number;  \
    }
MEMBER(apply_temperature, draw.temperature)
MEMBER(apply_top_h, top_h)
MEMBER(apply_top_p, draw.top_p)
MEMBER(apply_min_p, min_p)
MEMBER(apply_typical_p, typical_p)
MEMBER(apply_epsilon, epsilon)
MEMBER(apply_eta, eta)

static void apply_top_k(const struct seen *s)
{
    s->pick->draw.top_k = (uint64_t)s->own->number;
}

static void (*const apply[PROCESSORS_N])(const struct seen *s) = {
    [PROCESSOR_SEQUENCE_BIAS] = apply_biases,
    [PROCESSOR_LOGIT_BIAS] = apply_biases,
    [PROCESSOR_ENCODER_REPETITION] = apply_encoder_repetition,
    [PROCESSOR_REPETITION] = apply_repetition,
    [PROCESSOR_PRESENCE] = apply_presence,
    [PROCESSOR_FREQUENCY] = apply_frequency,
    [PROCESSOR_NO_REPEAT_NGRAM] = apply_no_repeat_ngram,
    [PROCESSOR_ENCODER_NO_REPEAT_NGRAM] = apply_encoder_no_repeat_ngram,
    [PROCESSOR_BAD_WORDS] = apply_bad_words,
    [PROCESSOR_MIN_LENGTH] = apply_min_length,
    [PROCESSOR_MIN_TOKENS] = apply_min_tokens,
    [PROCESSOR_FORCED_FIRST] = apply_forced_first,
    [PROCESSOR_FORCED_LAST] = apply_forced_last,
    [PROCESSOR_DECAY] = apply_decay,
    [PROCESSOR_SUPPRESS] = ban_list,
    [PROCESSOR_BEGIN_SUPPRESS] = apply_begin_suppress,
    [PROCESSOR_GRAMMAR] = apply_grammar,
    [PROCESSOR_TEMPERATURE] = apply_temperature,
    [PROCESSOR_TOP_H] = apply_top_h,
    [PROCESSOR_TOP_K] = apply_top_k,
    [PROCESSOR_TOP_P] = apply_top_p,
    [PROCESSOR_MIN_P] = apply_min_p,
    [PROCESSOR_TYPICAL_P] = apply_typical_p,
    [PROCESSOR_EPSILON_CUTOFF] = apply_epsilon,
    [PROCESSOR_ETA_CUTOFF] = apply_eta,
};

#define ROW(WORD, name, option, kind, least, most, neutral) \
    [PROCESSOR_##WORD] = { name, option, kind, least, most, neutral },
static const struct {
    const char *name, *option;
    enum kind kind;
    double least, most, neutral;
} rows[PROCESSORS_N] = { PROCESSORS(ROW) };
#undef ROW

static bool is_number(enum processor row)
{
    return rows[row].kind <= FRACTION;
}

/* Rows that a backend's own sampler takes. */
static bool is_plain(enum processor row)
{
    return row == PROCESSOR_TEMPERATURE || row == PROCESSOR_TOP_K ||
           row == PROCESSOR_TOP_P;
}

static bool is_forced(enum processor row)
{
    return row == PROCESSOR_FORCED_FIRST || row == PROCESSOR_FORCED_LAST;
}

bool processors_edit(const struct processors *p)
{
    const bool drawn = p->v[PROCESSOR_TEMPERATURE].number > 0;

    for (enum processor i = 0; i < PROCESSORS_N; i++)
        if (!is_plain(i) && !is_forced(i) && !processors_is_neutral(p, i) &&
            (drawn || !processors_is_drawn(i)))
            return true;
    return false;
}

void processors_apply(const struct choosing *c, const int32_t *ids, size_t n,
                      struct grammar_cursor *cursor, struct edits *e, struct pick *pick)
{
    const struct draw draw = pick->draw;

    begin(e);
    *pick = (struct pick){ .draw = draw,
                           .typical_p = 1,
                           .only = -1,
                           .likely = c->likely,
                           .of = (uint8_t)c->of,
                           .draws = n == c->prompt ? c->draws : 0,
                           .normal = c->normal,
                           .fewest = c->of == PICK_SCORES ? (int32_t)c->nstop + 1 : 1 };
    pick->draw.temperature = 0;
    pick->draw.top_k = 0;
    pick->draw.top_p = 1;
    for (enum processor i = 0; i < PROCESSORS_N; i++)
        if (!processors_is_neutral(c->processors, i))
            apply[i](
                &(struct seen){ c, &c->processors->v[i], ids, n, e, pick, cursor });
    pick->edited = processors_edit(c->processors);
    e->made.v = e->v;
    e->made.n = e->n;
}

size_t processors_take_drafted(const struct choosing *c, const int32_t *ids, size_t n,
                               struct grammar_cursor *cursor, const int32_t *draft,
                               size_t ndrafted)
{
    struct grammar *g = c->processors->v[PROCESSOR_GRAMMAR].grammar;

    return g && n >= c->prompt ? grammar_take(g, cursor, ids + c->prompt, n - c->prompt,
                                              draft, ndrafted)
                               : ndrafted;
}

/* ---- settings ---- */

static void clear_list(struct id_lists *l)
{
    free(l->id);
    free(l->end);
    free(l->bias);
    *l = (struct id_lists){ 0 };
}

void processors_clear(struct processors *p)
{
    for (enum processor i = 0; i < PROCESSORS_N; i++)
        clear_list(&p->v[i].list);
    processors_set_grammar(p, NULL);
}

void processors_set_grammar(struct processors *p, struct grammar *g)
{
    grammar_drop(p->v[PROCESSOR_GRAMMAR].grammar);
    p->v[PROCESSOR_GRAMMAR].grammar = g;
}

static void add_to(struct id_lists *l, const int32_t *id, size_t n, double bias)
{
    const size_t from = l->n ? l->end[l->n - 1] : 0;

    l->id = xgrow(l->id, &l->cap_id, from + n + 1, sizeof(*l->id));
    l->end = xgrow(l->end, &l->cap_end, l->n + 1, sizeof(*l->end));
    l->bias = xgrow(l->bias, &l->cap_bias, l->n + 1, sizeof(*l->bias));
    if (n)
        memcpy(l->id + from, id, n * sizeof(*id));
    l->end[l->n] = from + n;
    l->bias[l->n++] = bias;
}

void processors_add(struct processors *p, enum processor row, const int32_t *id,
                    size_t n, double bias)
{
    add_to(&p->v[row].list, id, n, bias);
}

void processors_take(struct processors *out, const struct processors *p,
                     enum processor row)
{
    const struct id_lists *from = &p->v[row].list;

    clear_list(&out->v[row].list);
    if (row == PROCESSOR_GRAMMAR)
        processors_set_grammar(out, grammar_hold(p->v[row].grammar));
    out->v[row].number = p->v[row].number;
    out->v[row].given = p->v[row].given;
    for (size_t k = 0, at = 0; k < from->n; at = from->end[k++])
        add_to(&out->v[row].list, from->id + at, from->end[k] - at, from->bias[k]);
}

void processors_copy(struct processors *out, const struct processors *p)
{
    for (enum processor i = 0; i < PROCESSORS_N; i++)
        processors_take(out, p, i);
}

int processors_find(const char *name)
{
    for (enum processor i = 0; i < PROCESSORS_N; i++)
        if (rows[i].kind != OPENED && !strcmp(rows[i].name, name))
            return (int)i;
    return -1;
}

bool processors_is_drawn(enum processor row)
{
    return row >= PROCESSOR_TEMPERATURE;
}

bool processors_is_neutral(const struct processors *p, enum processor row)
{
    return is_number(row)             ? p->v[row].number == rows[row].neutral
           : rows[row].kind == OPENED ? !p->v[row].grammar
                                      : !p->v[row].list.n;
}

static bool is_in_range(enum processor row, double x)
{
    return x >= rows[row].least && x <= rows[row].most &&
           (rows[row].kind != WHOLE || x == floor(x)) &&
           (rows[row].kind != FRACTION || x > rows[row].least);
}

/* Refuses ROW, named as an option if WHERE is NULL. */
static int refuse(enum processor row, const char *where, const char *what,
                  struct err *err)
{
    return err_set(err, where ? ERR_INPUT : ERR_USAGE, "%s%s%s %s", where ? where : "",
                   where ? ": " : "--", where ? rows[row].name : rows[row].option,
                   what);
}

static int out_of_range(enum processor row, const char *where, struct err *err)
{
    char what[96];

    snprintf(what, sizeof(what), "must be %s %s %.10g %s %.10g",
             rows[row].kind == WHOLE ? "a whole number" : "a number",
             rows[row].kind == FRACTION ? "above" : "from", rows[row].least,
             rows[row].kind == FRACTION ? "and at most" : "to", rows[row].most);
    return refuse(row, where, what, err);
}

int processors_check(const struct processors *p, const char *where, struct err *err)
{
    for (enum processor i = 0; i < PROCESSORS_N; i++)
        if (is_number(i) && !is_in_range(i, p->v[i].number))
            return out_of_range(i, where, err);
    return 0;
}

int processors_check_drawn(const struct processors *p, const char *where,
                           struct err *err)
{
    const struct processor_setting *t = &p->v[PROCESSOR_TEMPERATURE];

    for (enum processor i = PROCESSOR_TEMPERATURE + 1; i < PROCESSORS_N; i++)
        if (p->v[i].given && t->number <= 0 && !t->given)
            return refuse(i, where,
                          where ? "needs a temperature" : "needs --temperature", err);
    return 0;
}

/* ---- as JSON, and from it ---- */

void processors_print(struct str *out, const struct processors *p)
{
    for (enum processor i = 0; i < PROCESSORS_N; i++) {
        const struct id_lists *l = &p->v[i].list;

        if (processors_is_neutral(p, i))
            continue;
        str_addf(out, ",\"%s\":", rows[i].name);
        if (is_number(i)) {
            str_addf(out, "%.17g", p->v[i].number);
            continue;
        }
        if (rows[i].kind == OPENED) {
            str_add_json(out, grammar_source(p->v[i].grammar));
            continue;
        }
        str_addc(out, '[');
        for (size_t k = 0, at = 0; k < l->n; at = l->end[k++]) {
            str_addf(out, "%s[[", k ? "," : "");
            for (size_t m = at; m < l->end[k]; m++)
                str_addf(out, "%s%d", m > at ? "," : "", (int)l->id[m]);
            str_addf(out, "],%.17g]", l->bias[k]);
        }
        str_addc(out, ']');
    }
}

/* A value that is read, and what to say about it. */
struct reading {
    enum processor row;
    uint64_t vocab;
    const char *where;
    struct err *err;
};

static int wrong(const struct reading *r, const char *what)
{
    return err_set(r->err, ERR_INPUT, "%s: %s %s", r->where, rows[r->row].name, what);
}

static int take_id(const struct reading *r, const cJSON *value, int32_t *id)
{
    const double x = cJSON_IsNumber(value) ? value->valuedouble : -1;

    if (!(x >= 0 && x == floor(x)))
        return wrong(r, "has an element that is no id");
    if (x >= (double)r->vocab)
        return wrong(r, "has an id that the model does not have");
    *id = (int32_t)x;
    return 0;
}

/* Adds the ids of the array LIST, as one sequence with BIAS. */
static int take_sequence(const struct reading *r, struct id_lists *out,
                         const cJSON *list, double bias)
{
    const cJSON *one;
    int32_t *id;
    size_t n = 0;
    int ret = cJSON_IsArray(list) && list->child
                  ? 0
                  : wrong(r, "has an element that is no list of ids");

    if (ret < 0)
        return -1;
    id = xcalloc((size_t)cJSON_GetArraySize(list), sizeof(*id));
    cJSON_ArrayForEach(one, list) if (ret == 0) ret = take_id(r, one, &id[n++]);
    if (ret == 0)
        add_to(out, id, n, bias);
    free(id);
    return ret;
}

/* One id, or a list of ids, each a sequence of its own.  -1 is none, as in Whisper's
 * configurations. */
static int take_ids(const struct reading *r, struct id_lists *out, const cJSON *value)
{
    const cJSON *one;
    int32_t id;

    if (cJSON_IsNumber(value)) {
        if (take_id(r, value, &id) < 0)
            return -1;
        add_to(out, &id, 1, 0);
        return 0;
    }
    if (!cJSON_IsArray(value))
        return wrong(r, "is no list of ids");
    cJSON_ArrayForEach(one, value)
    {
        if (take_id(r, one, &id) < 0)
            return -1;
        add_to(out, &id, 1, 0);
    }
    if (is_forced(r->row) && out->n > 1)
        return wrong(r, "has several ids, of which none is the one");
    return 0;
}

static int take_bias(const struct reading *r, const cJSON *value, double *bias)
{
    if (!cJSON_IsNumber(value) || !is_in_range(r->row, value->valuedouble))
        return wrong(r, "has a bias that is no number");
    *bias = value->valuedouble;
    return 0;
}

/* Removes the sequence that is the last one's and came before: the last counts. */
static void drop_earlier(struct id_lists *l)
{
    const size_t from = l->n > 1 ? l->end[l->n - 2] : 0;
    const size_t size = l->end[l->n - 1] - from;

    for (size_t i = 0, at = 0; i + 1 < l->n; at = l->end[i++])
        if (l->end[i] - at == size &&
            !memcmp(l->id + at, l->id + from, size * sizeof(*l->id))) {
            l->bias[i] = l->bias[l->n - 1];
            l->n--;
            return;
        }
}

/* The object {"ID": BIAS, ...}, or the list [[[ID, ...], BIAS], ...]. */
static int take_biases(const struct reading *r, struct id_lists *out,
                       const cJSON *value)
{
    const cJSON *one;
    double bias = 0;

    if (!cJSON_IsArray(value) && !cJSON_IsObject(value))
        return wrong(r, "is neither an object nor a list");
    if (cJSON_GetArraySize(value) > MOST_BIASES)
        return wrong(r, "has more than 10000 biases");
    cJSON_ArrayForEach(one, value)
    {
        if (cJSON_IsObject(value)) {
            uint64_t id;

            if (!str_u64(one->string, &id) || id >= r->vocab)
                return wrong(r, "has a name that is no id of the model");
            if (take_bias(r, one, &bias) < 0)
                return -1;
            add_to(out, &(int32_t){ (int32_t)id }, 1, bias);
        } else if (!cJSON_IsArray(one) || cJSON_GetArraySize(one) != 2)
            return wrong(r, "has an element that is no [[ID, ...], BIAS]");
        else if (take_bias(r, one->child->next, &bias) < 0 ||
                 take_sequence(r, out, one->child, bias) < 0)
            return -1;
        drop_earlier(out);
    }
    return 0;
}

/* [START, FACTOR], which are kept as biases. */
static int take_pair(const struct reading *r, struct id_lists *out, const cJSON *value)
{
    const cJSON *one;

    if (!cJSON_IsArray(value) || cJSON_GetArraySize(value) != 2)
        return wrong(r, "is no [START, FACTOR]");
    cJSON_ArrayForEach(one, value)
    {
        if (!cJSON_IsNumber(one) || !is_in_range(r->row, one->valuedouble))
            return wrong(r, "is no [START, FACTOR]");
        add_to(out, NULL, 0, one->valuedouble);
    }
    return 0;
}

static int take_list(const struct reading *r, struct id_lists *out, const cJSON *value)
{
    const cJSON *one;

    switch (rows[r->row].kind) {
    case IDS:
        return take_ids(r, out, value);
    case PAIR:
        return take_pair(r, out, value);
    case BIASES:
        return take_biases(r, out, value);
    default:
        break;
    }
    if (!cJSON_IsArray(value))
        return wrong(r, "is no list of lists of ids");
    cJSON_ArrayForEach(one, value) if (take_sequence(r, out, one, 0) < 0) return -1;
    return 0;
}

int processors_read(struct processors *p, enum processor row, const cJSON *value,
                    uint64_t vocab, const char *where, struct err *err)
{
    const struct reading r = { row, vocab, where, err };
    struct id_lists list = { 0 };

    if (!value || cJSON_IsNull(value))
        return 0;
    if (is_number(row)) {
        if (!cJSON_IsNumber(value) || !is_in_range(row, value->valuedouble))
            return out_of_range(row, where, err);
        p->v[row].number = value->valuedouble;
        p->v[row].given = true;
        return 0;
    }
    if (take_list(&r, &list, value) < 0) {
        clear_list(&list);
        return -1;
    }
    clear_list(&p->v[row].list);
    p->v[row].list = list;
    p->v[row].given = true;
    return 0;
}
