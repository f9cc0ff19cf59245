/* grammar - what a generated text may be, and which tokens may follow */
#include "lib/text/grammar/grammar.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/text/grammar/jsonschema.h"
#include "lib/text/grammar/regex.h"
#include "lib/text/grammar/terms.h"

enum {
    MOST_MASKS = 32 << 20, /* bytes that are kept */
    KEPT = 64              /* tokens that a cursor may go back when memory is cleared */
};

/* The tokens that may follow a term. */
struct mask {
    uint32_t term;
    bool any;
};

struct grammar {
    atomic_uint holders;
    struct vocabulary *vocabulary;
    struct terms *terms;
    uint32_t start, unit; /* UNIT: a character of a string of JSON, or TERM_NONE */
    uint64_t turn;        /* 1, and one more for each time that memory was cleared */
    struct mask *mask;    /* [nmasks] */
    uint32_t *bits;       /* [nmasks][words] */
    size_t nmasks, cap_masks, cap_bits;
    uint32_t *index; /* [nindex]: by term: a mask + 1 */
    size_t nindex;
    uint32_t *stack; /* [deepest + 1]: terms on the way down the tree */
    char *source;
};

/* ---- opening ---- */

static struct grammar *grammar_new(struct vocabulary *v)
{
    struct grammar *g = xcalloc(1, sizeof(*g));

    atomic_init(&g->holders, 1);
    g->vocabulary = v;
    g->terms = terms_new();
    g->turn = 1;
    return g;
}

/* A mark, as a control token or as characters. */
static uint32_t mark(struct terms *t, const char *text)
{
    const uint32_t plain = terms_literal(t, text, strlen(text));
    const unsigned control = (unsigned char)VOCABULARY_MARK;

    return terms_alt(t, plain, terms_cat(t, terms_range(t, control, control), plain));
}

/* Text in which WORD does not appear but at its end: a state for each beginning of WORD
 * that has been read (Knuth, Morris and Pratt 1977). */
static uint32_t up_to(struct terms *t, const char *word)
{
    const size_t n = strlen(word);
    uint32_t state[32];

    for (size_t i = 0; i < n; i++)
        state[i] = terms_rule(t);
    for (size_t i = 0; i < n; i++) {
        uint32_t all = TERM_NONE;
        uint64_t other[4] = { ~0ULL, ~0ULL, ~0ULL, ~0ULL };

        other[3] &= ~((uint64_t)1 << 63);
        for (size_t k = i + 1; k-- > 0;) {
            const unsigned char b = (unsigned char)word[k];

            /* after the first i bytes, byte k of WORD leads to k + 1 */
            if (memcmp(word, word + i - k, k) != 0 || !(other[b / 64] >> b % 64 & 1))
                continue;
            other[b / 64] &= ~((uint64_t)1 << b % 64);
            all = terms_alt(t, all,
                            terms_cat(t, terms_range(t, b, b),
                                      k + 1 == n ? TERM_EMPTY : state[k + 1]));
        }
        all = terms_alt(t, all, terms_cat(t, terms_bytes(t, other), state[0]));
        terms_define(t, state[i], all);
    }
    return state[0];
}

/* Thoughts from where they have begun, with their end: the control token, or where the
 * vocabulary has none, its characters. */
static uint32_t thoughts(struct terms *t, struct vocabulary *v)
{
    static const char end[] = "\xff</think>";
    uint32_t text;

    if (!vocabulary_has(v, end))
        return up_to(t, end + 1);
    text = terms_repeat(t, terms_range(t, 0, 0xfe), 0, TERMS_MANY);
    return terms_cat(t, text, terms_literal(t, end, strlen(end)));
}

static uint32_t spaces(struct terms *t)
{
    return terms_repeat(
        t, terms_alt(t, terms_range(t, ' ', ' '), terms_range(t, '\n', '\n')), 0, 4);
}

static uint32_t marked(struct terms *t, uint32_t body,
                       const struct grammar_frame *frame)
{
    if (frame->before)
        body = terms_cat(t, mark(t, frame->before), body);
    if (frame->after)
        body = terms_cat(t, body,
                         terms_cat(t, terms_optional(t, terms_range(t, '\n', '\n')),
                                   mark(t, frame->after)));
    return body;
}

/* What may stand in place of the text. */
static int make_other(struct grammar *g, const struct grammar_frame *frame,
                      uint32_t *out, struct err *err)
{
    uint32_t unit = TERM_NONE;
    struct json_doc doc;
    int ret;

    if (json_parse(&doc, "calls", frame->other, strlen(frame->other), err) < 0)
        return -1;
    ret = jsonschema_compile(g->terms, &doc, doc.root, out, &unit, err);
    json_clear(&doc);
    if (g->unit == TERM_NONE)
        g->unit = unit;
    *out = marked(g->terms, *out, frame);
    return ret;
}

/* BODY, or OTHER, after thoughts. */
static uint32_t framed(struct terms *t, struct vocabulary *v, uint32_t body,
                       uint32_t other, const struct grammar_frame *frame)
{
    if (!frame)
        return body;
    body = frame->other ? terms_alt(t, body, other) : marked(t, body, frame);
    if (frame->thinks)
        return terms_cat(t, thoughts(t, v), terms_cat(t, spaces(t), body));
    if (frame->may_think)
        return terms_alt(
            t, body,
            terms_cat(t, spaces(t),
                      terms_cat(t, mark(t, "<think>"),
                                terms_cat(t, thoughts(t, v),
                                          terms_cat(t, spaces(t), body)))));
    return body;
}

static int seal(struct grammar **out, struct grammar *g, uint32_t body,
                const struct grammar_frame *frame, int ret, struct err *err)
{
    uint32_t other = TERM_NONE;

    if (ret == 0 && frame && frame->other)
        ret = make_other(g, frame, &other, err);
    if (ret == 0) {
        g->start = framed(g->terms, g->vocabulary, body, other, frame);
        ret = terms_seal(g->terms, &g->start, err);
    }
    if (ret < 0)
        grammar_drop(g);
    else
        *out = g;
    return ret;
}

int grammar_open_schema(struct grammar **out, struct vocabulary *v,
                        const struct json_doc *doc, const struct json *schema,
                        const struct grammar_frame *frame, struct err *err)
{
    struct grammar *g = grammar_new(v);
    uint32_t body = TERM_NONE;
    const int ret = jsonschema_compile(g->terms, doc, schema, &body, &g->unit, err);

    return seal(out, g, body, frame, ret, err);
}

int grammar_open_regex(struct grammar **out, struct vocabulary *v, const char *text,
                       const struct grammar_frame *frame, struct err *err)
{
    struct grammar *g = grammar_new(v);
    uint32_t body = TERM_NONE;
    const int ret = regex_compile(g->terms, text, REGEX_WHOLE, &body, err);

    return seal(out, g, body, frame, ret, err);
}

void grammar_name(struct grammar *g, const char *source)
{
    free(g->source);
    g->source = xstrdup(source);
}

const char *grammar_source(const struct grammar *g)
{
    return g->source ? g->source : "";
}

struct grammar *grammar_hold(struct grammar *g)
{
    if (g)
        atomic_fetch_add(&g->holders, 1);
    return g;
}

void grammar_drop(struct grammar *g)
{
    if (!g || atomic_fetch_sub(&g->holders, 1) > 1)
        return;
    terms_free(g->terms);
    free(g->mask);
    free(g->bits);
    free(g->index);
    free(g->stack);
    free(g->source);
    free(g);
}

const char *grammar_failed(const struct grammar *g)
{
    return terms_failed(g->terms);
}

bool grammar_has(struct grammar *g, const char *text, size_t n)
{
    uint32_t at = g->start;

    for (size_t i = 0; i < n && at != TERM_NONE; i++)
        at = terms_after(g->terms, at, (unsigned char)text[i]);
    return terms_is_nullable(g->terms, at);
}

/* ---- masks ---- */

static void allow(const struct grammar *g, uint32_t *bits, int32_t id)
{
    for (; id >= 0; id = vocabulary_same(g->vocabulary, id))
        bits[id / 32] |= 1U << id % 32;
}

/* Adds to BITS the tokens of TREE that may follow AT.  DROPS: a space with which a
 * token begins is none, and tokens with other spaces are left out, since some decoders
 * drop these, too. */
static void walk(struct grammar *g, const struct vocabulary_tree *tree, uint32_t at,
                 bool drops, uint32_t *bits)
{
    uint32_t *stack = g->stack;

    stack[0] = at;
    for (size_t i = 0; i < tree->n;) {
        const struct vocabulary_node *node = &tree->v[i];
        const bool free_space = drops && !node->depth && node->byte == ' ';
        uint32_t next = TERM_NONE;

        if (free_space)
            next = at;
        else if (!drops || node->byte != ' ')
            next = terms_after(g->terms, stack[node->depth], node->byte);

        if (next == TERM_NONE) {
            i = node->end;
            continue;
        }
        if (node->id >= 0 && !free_space)
            allow(g, bits, node->id);
        stack[node->depth + 1] = next;
        i++;
    }
}

static void clear_masks(struct grammar *g)
{
    g->nmasks = 0;
    memset(g->index, 0, g->nindex * sizeof(*g->index));
}

/* The place of TERM in the index. */
static uint32_t *find_mask(const struct grammar *g, uint32_t term)
{
    size_t at = term * 0x9e3779b1U & (g->nindex - 1);

    while (g->index[at] && g->mask[g->index[at] - 1].term != term)
        at = (at + 1) & (g->nindex - 1);
    return &g->index[at];
}

static void make_room(struct grammar *g)
{
    const size_t words = vocabulary_words(g->vocabulary);

    if (!g->nindex) {
        size_t most = MOST_MASKS / 4 / (words + 1);

        most = most < 16 ? 16 : most > 32768 ? 32768 : most;
        for (g->nindex = 16; g->nindex < 2 * most;)
            g->nindex *= 2;
        g->index = xcalloc(g->nindex, sizeof(*g->index));
        g->stack =
            xcalloc(vocabulary_tree(g->vocabulary)->deepest + 2, sizeof(*g->stack));
    }
    if (g->nmasks * 2 >= g->nindex || g->nmasks * words >= MOST_MASKS / 4)
        clear_masks(g);
    g->mask = xgrow(g->mask, &g->cap_masks, g->nmasks + 1, sizeof(*g->mask));
    g->bits =
        xgrow(g->bits, &g->cap_bits, (g->nmasks + 1) * words + 1, sizeof(*g->bits));
}

/* The tokens that may follow TERM; FIRST: at the beginning of a text. */
static const uint32_t *mask_of(struct grammar *g, uint32_t term, bool first)
{
    const size_t words = vocabulary_words(g->vocabulary);
    const bool drops = first && vocabulary_drops_space(g->vocabulary);
    const uint32_t *plain;
    const struct vocabulary_tree *rest;
    size_t longest;
    uint32_t *place, *bits;

    make_room(g);
    place = find_mask(g, term);
    if (*place && !drops)
        return g->bits + (size_t)(*place - 1) * words;
    terms_allow(g->terms);
    bits = g->bits + g->nmasks * words;
    rest = vocabulary_rest(g->vocabulary, &plain, &longest);
    if (!drops && g->unit != TERM_NONE &&
        terms_begins_with(g->terms, term, g->unit, (uint32_t)longest)) {
        memcpy(bits, plain, words * sizeof(*bits));
        walk(g, rest, term, false, bits);
    } else {
        memset(bits, 0, words * sizeof(*bits));
        walk(g, vocabulary_tree(g->vocabulary), term, drops, bits);
    }
    if (!drops) { /* a beginning is met once */
        g->mask[g->nmasks].term = term;
        *place = (uint32_t)++g->nmasks;
    }
    return bits;
}

/* ---- texts ---- */

void grammar_cursor_clear(struct grammar_cursor *c)
{
    free(c->ids);
    free(c->term);
    *c = (struct grammar_cursor){ 0 };
}

/* What may follow token ID after TERM. */
static uint32_t after_token(struct grammar *g, uint32_t term, int32_t id, bool first)
{
    size_t len;
    const char *bytes =
        id < 0 ? NULL : vocabulary_bytes(g->vocabulary, (uint32_t)id, first, &len);

    if (!bytes || !len)
        return TERM_NONE;
    for (size_t i = 0; i < len && term != TERM_NONE; i++)
        term = terms_after(g->terms, term, (unsigned char)bytes[i]);
    return term;
}

/* Makes room for more terms.  C goes on from its last ones; others begin again. */
static void trim(struct grammar *g, struct grammar_cursor *c)
{
    size_t kept;

    if (c->turn != g->turn)
        c->n = c->from = 0;
    kept = c->n - c->from < KEPT ? c->n - c->from : KEPT;
    if (terms_trim(g->terms, c->n ? c->term + (c->n - kept) : NULL,
                   c->n ? kept + 1 : 0)) {
        g->turn++;
        if (g->nindex)
            clear_masks(g);
        c->from = c->n - kept;
    }
    c->turn = g->turn;
}

/* Moves C to the end of IDS[n], and returns what may follow. */
static uint32_t move(struct grammar *g, struct grammar_cursor *c, const int32_t *ids,
                     size_t n)
{
    size_t same = 0;

    vocabulary_prepare(g->vocabulary);
    terms_allow(g->terms);
    trim(g, c);
    if (c->n <= n && (!c->n || !memcmp(c->ids, ids, c->n * sizeof(*ids))))
        same = c->n;
    while (same < c->n && same < n && c->ids[same] == ids[same])
        same++;
    if (same < c->from)
        same = c->from = 0;
    c->ids = xgrow(c->ids, &c->cap_ids, n + 1, sizeof(*c->ids));
    c->term = xgrow(c->term, &c->cap_term, n + 1, sizeof(*c->term));
    if (!same)
        c->term[0] = g->start;
    for (c->n = same; c->n < n; c->n++) {
        if (c->n - same == 64) { /* a long way, from the beginning */
            trim(g, c);
            terms_allow(g->terms);
            same = c->n;
        }
        c->ids[c->n] = ids[c->n];
        c->term[c->n + 1] = after_token(g, c->term[c->n], ids[c->n], !c->n);
    }
    return c->term[n];
}

struct grammar_next grammar_follow(struct grammar *g, struct grammar_cursor *c,
                                   const int32_t *ids, size_t n)
{
    const uint32_t term = move(g, c, ids, n);
    struct grammar_next next = { .words = vocabulary_words(g->vocabulary),
                                 .may_end = terms_is_nullable(g->terms, term),
                                 .must = term == TERM_EMPTY,
                                 .fits = term != TERM_NONE };

    next.allowed = mask_of(g, term, !n);
    return next;
}

size_t grammar_take(struct grammar *g, struct grammar_cursor *c, const int32_t *ids,
                    size_t n_ids, const int32_t *more, size_t n)
{
    uint32_t term = move(g, c, ids, n_ids);
    size_t i = 0;

    for (; i < n; i++) {
        term = after_token(g, term, more[i], !(n_ids + i));
        if (term == TERM_NONE)
            break;
    }
    return i;
}
