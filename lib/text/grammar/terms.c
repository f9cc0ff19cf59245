/* terms - sets of byte strings, and what is left of them after a byte */
#include "lib/text/grammar/terms.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

/* Limits: of a grammar as it is written, of what is made of it while it is used, of
 * calls inside one another, of alternatives of a term, and of the derivatives of one
 * mask. */
enum {
    MOST_WRITTEN = 200000,
    MOST_MADE = 500000,
    MOST_ROWS = 8 << 20, /* entries of all rows */
    MOST_DEEP = 3000,
    MOST_WIDE = 2000,
    MOST_WORK = 500000,
    MOST_STEPS = 15000000, /* small ones, of reading a grammar or of a mask */
    MOST_SETS = 4096,
    MOST_ROUNDS = 50000000 /* terms that are looked at to find what is nullable */
};
#define UNKNOWN UINT32_MAX

enum kind { NONE, EMPTY, BYTES, CAT, ALT, REPEAT, RULE };

struct term {
    uint8_t kind;
    bool nullable;
    bool lives;    /* some text is in it */
    uint32_t a, b; /* BYTES: a is a set; RULE: a is the rule */
    uint32_t min, max;
};

struct terms {
    struct term *v; /* [n] */
    size_t n, cap, written;
    uint32_t *index; /* [nindex]: a hash table of ids + 1 */
    size_t nindex;
    uint64_t (*set)[4]; /* [nsets] */
    size_t nsets, cap_sets;
    uint16_t set_at[2 * MOST_SETS]; /* a hash table of sets + 1 */
    uint32_t *body;                 /* [nrules] */
    size_t nrules, cap_rules;
    bool sealed;
    uint8_t class_of[256];
    unsigned nclasses;
    unsigned char byte_of[256]; /* [nclasses]: one byte of each */
    uint32_t *row;              /* [n]: of a term, 1 + the number of its row; 0: none */
    size_t cap_row;
    uint32_t *rows; /* [nrows][nclasses]: derivatives */
    size_t nrows, cap_rows;
    unsigned deep;
    size_t work, steps;
    _Atomic(const char *) failed; /* which other threads may ask */
};

/* ---- making terms ---- */

struct terms *terms_new(void)
{
    struct terms *t = xcalloc(1, sizeof(*t));

    t->v = xgrow(t->v, &t->cap, 2, sizeof(*t->v));
    t->v[TERM_NONE] = (struct term){ .kind = NONE };
    t->v[TERM_EMPTY] = (struct term){ .kind = EMPTY, .nullable = true, .lives = true };
    t->n = 2;
    t->steps = MOST_STEPS;
    return t;
}

void terms_free(struct terms *t)
{
    if (!t)
        return;
    free(t->v);
    free(t->index);
    free(t->set);
    free(t->body);
    free(t->row);
    free(t->rows);
    free(t);
}

static uint32_t fail(struct terms *t, const char *why)
{
    if (!t->failed)
        t->failed = why;
    return TERM_NONE;
}

const char *terms_failed(const struct terms *t)
{
    return t->failed;
}

bool terms_spend(struct terms *t, size_t n)
{
    if (t->steps < n)
        fail(t, "it needs too much work");
    else
        t->steps -= n;
    return !t->failed;
}

static size_t hash(const struct term *x)
{
    uint64_t h = x->kind;

    h = (h ^ x->a) * 0x9e3779b97f4a7c15;
    h = (h ^ h >> 29 ^ x->b) * 0xbf58476d1ce4e5b9;
    h = (h ^ h >> 32 ^ x->min) * 0x94d049bb133111eb;
    h = (h ^ h >> 29 ^ x->max) * 0x9e3779b97f4a7c15;
    return (size_t)(h ^ h >> 31);
}

static bool equal(const struct term *x, const struct term *y)
{
    return x->kind == y->kind && x->a == y->a && x->b == y->b && x->min == y->min &&
           x->max == y->max;
}

static void index_all(struct terms *t, size_t size)
{
    free(t->index);
    t->index = xcalloc(size, sizeof(*t->index));
    t->nindex = size;
    for (size_t i = 2; i < t->n; i++) {
        size_t at = hash(&t->v[i]) & (size - 1);

        while (t->index[at])
            at = (at + 1) & (size - 1);
        t->index[at] = (uint32_t)i + 1;
    }
}

static bool is_nullable(const struct terms *t, const struct term *x)
{
    switch ((enum kind)x->kind) {
    case CAT:
        return t->v[x->a].nullable && t->v[x->b].nullable;
    case ALT:
        return t->v[x->a].nullable || t->v[x->b].nullable;
    case REPEAT:
        return !x->min || t->v[x->a].nullable;
    case RULE:
        return t->v[t->body[x->a]].nullable;
    default:
        return x->kind == EMPTY;
    }
}

static bool lives(const struct terms *t, const struct term *x)
{
    switch ((enum kind)x->kind) {
    case CAT:
        return t->v[x->a].lives && t->v[x->b].lives;
    case ALT:
        return t->v[x->a].lives || t->v[x->b].lives;
    case REPEAT:
        return !x->min || t->v[x->a].lives;
    case RULE:
        return t->v[t->body[x->a]].lives;
    default:
        return x->kind != NONE;
    }
}

/* The id of X. */
static uint32_t intern(struct terms *t, struct term x)
{
    size_t at;

    if (!t->sealed && !terms_spend(t, 1))
        return TERM_NONE;
    if ((t->n + 1) * 2 > t->nindex)
        index_all(t, t->nindex ? t->nindex * 2 : 1024);
    for (at = hash(&x) & (t->nindex - 1); t->index[at]; at = (at + 1) & (t->nindex - 1))
        if (equal(&t->v[t->index[at] - 1], &x))
            return t->index[at] - 1;
    if (t->n >= (t->sealed ? t->written + MOST_MADE : MOST_WRITTEN))
        return fail(t, "it has too many parts");
    t->v = xgrow(t->v, &t->cap, t->n + 1, sizeof(*t->v));
    x.nullable = is_nullable(t, &x);
    x.lives = t->sealed || lives(t, &x);
    t->v[t->n] = x;
    t->index[at] = (uint32_t)t->n + 1;
    return (uint32_t)t->n++;
}

uint32_t terms_bytes(struct terms *t, const uint64_t set[4])
{
    uint64_t h = 0;
    size_t at;

    if (!(set[0] | set[1] | set[2] | set[3]))
        return TERM_NONE;
    for (int i = 0; i < 4; i++)
        h = (h ^ h >> 29 ^ set[i]) * 0x9e3779b97f4a7c15;
    for (at = h >> 51; t->set_at[at]; at = (at + 1) % (2 * MOST_SETS))
        if (!memcmp(t->set[t->set_at[at] - 1], set, sizeof(*t->set)))
            break;
    if (!t->set_at[at]) {
        if (t->nsets == MOST_SETS)
            return fail(t, "it has too many sets of bytes");
        t->set = xgrow(t->set, &t->cap_sets, t->nsets + 1, sizeof(*t->set));
        memcpy(t->set[t->nsets++], set, sizeof(*t->set));
        t->set_at[at] = (uint16_t)t->nsets;
    }
    return intern(t, (struct term){ .kind = BYTES, .a = t->set_at[at] - 1U });
}

uint32_t terms_range(struct terms *t, unsigned first, unsigned last)
{
    uint64_t set[4] = { 0 };

    for (unsigned b = first; b <= last; b++)
        set[b / 64] |= (uint64_t)1 << b % 64;
    return terms_bytes(t, set);
}

uint32_t terms_literal(struct terms *t, const char *text, size_t n)
{
    uint32_t out = TERM_EMPTY;

    while (n--)
        out = terms_cat(
            t, terms_range(t, (unsigned char)text[n], (unsigned char)text[n]), out);
    return out;
}

/* Ids, of which few need no memory. */
struct list {
    uint32_t few[16], *v; /* [n] */
    size_t n, cap;
};

static void list_init(struct list *l)
{
    l->v = l->few;
    l->n = l->cap = 0;
}

static void list_add(struct list *l, uint32_t id)
{
    if (l->n == 16 && !l->cap) {
        l->v = xgrow(NULL, &l->cap, 64, sizeof(*l->v));
        memcpy(l->v, l->few, sizeof(l->few));
    } else if (l->n >= 16)
        l->v = xgrow(l->v, &l->cap, l->n + 1, sizeof(*l->v));
    l->v[l->n++] = id;
}

static void list_clear(struct list *l)
{
    if (l->cap)
        free(l->v);
}

uint32_t terms_cat(struct terms *t, uint32_t a, uint32_t b)
{
    struct list l;

    list_init(&l);
    if (a == TERM_NONE || b == TERM_NONE)
        return TERM_NONE;
    if (a == TERM_EMPTY)
        return b;
    if (b == TERM_EMPTY)
        return a;
    /* parts follow one another: only the second of two may have parts */
    for (; t->v[a].kind == CAT; a = t->v[a].b)
        list_add(&l, t->v[a].a);
    list_add(&l, a);
    while (l.n && b != TERM_NONE && terms_spend(t, 1))
        b = intern(t, (struct term){ .kind = CAT, .a = l.v[--l.n], .b = b });
    list_clear(&l);
    return t->failed ? TERM_NONE : b;
}

/* Alternatives are a list with falling ids, so that one that is made after the others
 * comes before them, and lists that grow have them in common.  .max is their number. */
static uint32_t head_of(const struct terms *t, uint32_t a)
{
    return t->v[a].kind == ALT ? t->v[a].a : a;
}

static uint32_t tail_of(const struct terms *t, uint32_t a)
{
    return t->v[a].kind == ALT ? t->v[a].b : TERM_NONE;
}

/* A, which is none of the alternatives B and has a larger id, before them. */
static uint32_t prepend(struct terms *t, uint32_t a, uint32_t b)
{
    const uint32_t n = t->v[b].kind == ALT ? t->v[b].max : 1;

    if (b == TERM_NONE)
        return a;
    if (n >= MOST_WIDE)
        return fail(t, "it has too many alternatives");
    return intern(t, (struct term){ .kind = ALT, .a = a, .b = b, .max = n + 1 });
}

uint32_t terms_alt(struct terms *t, uint32_t a, uint32_t b)
{
    struct list l;

    list_init(&l);
    while (a != TERM_NONE && b != TERM_NONE && a != b) {
        const uint32_t x = head_of(t, a), y = head_of(t, b);

        list_add(&l, x > y ? x : y);
        if (x >= y)
            a = tail_of(t, a);
        if (y >= x)
            b = tail_of(t, b);
    }
    a = a == TERM_NONE ? b : a;
    while (l.n && terms_spend(t, 1))
        a = prepend(t, l.v[--l.n], a);
    list_clear(&l);
    return t->failed ? TERM_NONE : a;
}

static int by_falling_id(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;

    return (*x < *y) - (*x > *y);
}

/* One of those in L, which it clears. */
static uint32_t one_of(struct terms *t, struct list *l)
{
    uint32_t out = TERM_NONE;
    struct list all;

    list_init(&all);
    for (size_t i = 0; i < l->n; i++)
        for (uint32_t a = l->v[i]; a != TERM_NONE; a = tail_of(t, a))
            list_add(&all, head_of(t, a));
    list_clear(l);
    terms_spend(t, all.n);
    qsort(all.v, all.n, sizeof(*all.v), by_falling_id);
    while (all.n-- > 0 && !t->failed)
        if (all.v[all.n] != head_of(t, out))
            out = prepend(t, all.v[all.n], out);
    list_clear(&all);
    return out;
}

uint32_t terms_repeat(struct terms *t, uint32_t a, uint32_t min, uint32_t max)
{
    if (max < min || (a == TERM_NONE && min))
        return TERM_NONE;
    if (!max || a == TERM_NONE || a == TERM_EMPTY)
        return TERM_EMPTY;
    if (min == 1 && max == 1)
        return a;
    return intern(t, (struct term){ .kind = REPEAT, .a = a, .min = min, .max = max });
}

uint32_t terms_optional(struct terms *t, uint32_t a)
{
    return terms_alt(t, TERM_EMPTY, a);
}

uint32_t terms_rule(struct terms *t)
{
    t->body = xgrow(t->body, &t->cap_rules, t->nrules + 1, sizeof(*t->body));
    t->body[t->nrules] = TERM_NONE;
    return intern(t, (struct term){ .kind = RULE, .a = (uint32_t)t->nrules++ });
}

void terms_define(struct terms *t, uint32_t rule, uint32_t body)
{
    if (rule != TERM_NONE)
        t->body[t->v[rule].a] = body;
}

/* ---- sealing ---- */

/* Finds what is nullable and what has a text, until nothing changes: rules refer to
 * terms that come after them. */
static int settle(struct terms *t, struct err *err)
{
    size_t rounds = 0;
    bool changed = true;

    while (changed) {
        changed = false;
        for (size_t i = 2; i < t->n; i++) {
            struct term *x = &t->v[i];
            const bool null = is_nullable(t, x), live = lives(t, x);

            changed |= null != x->nullable || live != x->lives;
            x->nullable = null;
            x->lives = live;
        }
        rounds += t->n;
        if (rounds > MOST_ROUNDS)
            return err_set(err, ERR_INPUT, "it has too many rules");
    }
    return 0;
}

/* Does a rule begin with itself?  STATE of a term: 0 not looked at, 1 being looked at,
 * 2 done. */
static bool begins_with_itself(struct terms *t, uint8_t *state, uint32_t a)
{
    const struct term *x = &t->v[a];
    bool found;

    if (state[a] || x->kind <= BYTES)
        return state[a] == 1;
    if (t->deep >= MOST_DEEP) {
        fail(t, "it is too deep");
        return false;
    }
    t->deep++;
    state[a] = 1;
    found = begins_with_itself(t, state, x->kind == RULE ? t->body[x->a] : x->a);
    if (!found && (x->kind == ALT || (x->kind == CAT && t->v[x->a].nullable)))
        found = begins_with_itself(t, state, x->b);
    state[a] = 2;
    t->deep--;
    return found;
}

/* Removes what has no text.  Parts of a term have smaller ids, so that they are done
 * before it; BECOMES[n]. */
static void prune(struct terms *t, uint32_t *becomes)
{
    const size_t n = t->n;

    for (size_t i = 0; i < n; i++) {
        const struct term x = t->v[i];

        if (!x.lives)
            becomes[i] = TERM_NONE;
        else if (x.kind == CAT)
            becomes[i] = terms_cat(t, becomes[x.a], becomes[x.b]);
        else if (x.kind == ALT)
            becomes[i] = terms_alt(t, becomes[x.a], becomes[x.b]);
        else if (x.kind == REPEAT)
            becomes[i] = terms_repeat(t, becomes[x.a], x.min, x.max);
        else
            becomes[i] = (uint32_t)i;
    }
    for (size_t i = 0; i < t->nrules; i++)
        t->body[i] = becomes[t->body[i]];
}

/* Bytes that are in the same sets are one class: each set divides those so far. */
static void classify(struct terms *t)
{
    t->nclasses = 1;
    for (size_t i = 0; i < t->nsets && t->nclasses < 256; i++) {
        int part[256][2];
        unsigned n = 0;

        memset(part, 0xff, sizeof(part));
        for (unsigned b = 0; b < 256; b++) {
            int *of = &part[t->class_of[b]][t->set[i][b / 64] >> b % 64 & 1];

            *of = *of < 0 ? (int)n++ : *of;
            t->class_of[b] = (uint8_t)*of;
        }
        t->nclasses = n;
    }
    for (unsigned b = 256; b-- > 0;)
        t->byte_of[t->class_of[b]] = (unsigned char)b;
}
int terms_seal(struct terms *t, uint32_t *start, struct err *err)
{
    uint8_t *state;
    uint32_t *becomes;
    bool loops = false;

    if (t->failed)
        return err_set(err, ERR_INPUT, "%s", t->failed);
    if (settle(t, err) < 0)
        return -1;
    becomes = xcalloc(t->n, sizeof(*becomes));
    prune(t, becomes);
    *start = becomes[*start];
    free(becomes);
    if (settle(t, err) < 0)
        return -1;
    state = xcalloc(t->n, sizeof(*state));
    for (uint32_t i = 2; i < t->n && !loops; i++)
        loops = begins_with_itself(t, state, i);
    free(state);
    if (t->failed)
        return err_set(err, ERR_INPUT, "%s", t->failed);
    if (*start == TERM_NONE)
        return err_set(err, ERR_INPUT, "no text meets it");
    if (loops)
        return err_set(err, ERR_INPUT,
                       "something refers to itself before anything else");
    classify(t);
    t->written = t->n;
    t->sealed = true;
    terms_allow(t);
    return 0;
}

/* ---- derivatives ---- */

bool terms_is_nullable(const struct terms *t, uint32_t a)
{
    return t->v[a].nullable;
}

static uint32_t less(uint32_t n)
{
    return n && n != UINT32_MAX ? n - 1 : n;
}

static uint32_t after(struct terms *t, uint32_t a, unsigned c);

static uint32_t derive(struct terms *t, const struct term x, unsigned c)
{
    const unsigned byte = t->byte_of[c];
    struct list l;
    uint32_t out;

    switch ((enum kind)x.kind) {
    case BYTES:
        return t->set[x.a][byte / 64] >> byte % 64 & 1 ? TERM_EMPTY : TERM_NONE;
    case CAT:
        out = terms_cat(t, after(t, x.a, c), x.b);
        return t->v[x.a].nullable ? terms_alt(t, out, after(t, x.b, c)) : out;
    case ALT:
        list_init(&l);
        list_add(&l, after(t, x.a, c));
        for (uint32_t b = x.b; b != TERM_NONE && !t->failed; b = tail_of(t, b))
            list_add(&l, after(t, head_of(t, b), c));
        return one_of(t, &l);
    case REPEAT:
        out = after(t, x.a, c);
        return terms_cat(t, out, terms_repeat(t, x.a, less(x.min), less(x.max)));
    case RULE:
        return after(t, t->body[x.a], c);
    default:
        return TERM_NONE;
    }
}

/* The place of A's derivative by class C. */
static uint32_t *place_of(struct terms *t, uint32_t a, unsigned c)
{
    if (a >= t->cap_row) {
        const size_t had = t->cap_row;

        t->row = xgrow(t->row, &t->cap_row, (size_t)a + 1, sizeof(*t->row));
        memset(t->row + had, 0, (t->cap_row - had) * sizeof(*t->row));
    }
    if (!t->row[a]) {
        t->rows = xgrow(t->rows, &t->cap_rows, (t->nrows + 1) * t->nclasses,
                        sizeof(*t->rows));
        memset(t->rows + t->nrows * t->nclasses, 0xff, t->nclasses * sizeof(*t->rows));
        t->row[a] = (uint32_t)++t->nrows;
    }
    return &t->rows[(size_t)(t->row[a] - 1) * t->nclasses + c];
}

static uint32_t after(struct terms *t, uint32_t a, unsigned c)
{
    uint32_t out;

    if (a <= TERM_EMPTY)
        return TERM_NONE;
    if (t->nrows * t->nclasses >= MOST_ROWS)
        fail(t, "it needs too much memory");
    if (t->failed)
        return TERM_NONE;
    out = *place_of(t, a, c);
    if (out != UNKNOWN)
        return out;
    if (!t->work || t->deep >= MOST_DEEP)
        return fail(t, t->work ? "it is too deep" : "it needs too much work");
    t->work--;
    t->deep++;
    out = derive(t, t->v[a], c);
    t->deep--;
    if (t->failed)
        return TERM_NONE;
    *place_of(t, a, c) = out;
    return out;
}

uint32_t terms_after(struct terms *t, uint32_t a, unsigned char byte)
{
    const unsigned c = t->class_of[byte];

    if (a < t->cap_row && t->row[a]) {
        const uint32_t out = t->rows[(size_t)(t->row[a] - 1) * t->nclasses + c];

        if (out != UNKNOWN)
            return out;
    }
    return after(t, a, c);
}

bool terms_begins_with(const struct terms *t, uint32_t a, uint32_t unit, uint32_t n)
{
    for (; a > TERM_EMPTY; a = tail_of(t, a)) {
        const uint32_t one = head_of(t, a);
        const uint32_t first = t->v[one].kind == CAT ? t->v[one].a : one;

        if (t->v[first].kind == REPEAT && t->v[first].a == unit && t->v[first].max >= n)
            return true;
    }
    return false;
}

static void forget_rows(struct terms *t)
{
    t->nrows = 0;
    memset(t->row, 0, t->cap_row * sizeof(*t->row));
}

/* Marks the made terms that A is made of, itself too. */
static void mark_parts(const struct terms *t, uint8_t *is, uint32_t a)
{
    for (; a >= t->written && !is[a - t->written]; a = t->v[a].b) {
        is[a - t->written] = 1;
        if (t->v[a].kind != BYTES && t->v[a].kind != RULE)
            mark_parts(t, is, t->v[a].a);
        if (t->v[a].kind != CAT && t->v[a].kind != ALT)
            break;
    }
}

bool terms_trim(struct terms *t, uint32_t *keep, size_t n)
{
    const size_t made = t->n - t->written;
    uint32_t *becomes;
    uint8_t *is;
    struct term *v;

    if (made < MOST_MADE / 2 && t->nrows * t->nclasses < MOST_ROWS / 2)
        return false;
    forget_rows(t);
    if (made < MOST_MADE / 2)
        return false;
    is = xcalloc(made, sizeof(*is));
    becomes = xcalloc(made, sizeof(*becomes));
    v = xcalloc(made, sizeof(*v));
    for (size_t i = 0; i < n; i++)
        mark_parts(t, is, keep[i]);
    memcpy(v, t->v + t->written, made * sizeof(*v));
    t->n = t->written;
    index_all(t, t->nindex);
    for (size_t i = 0; i < made; i++) { /* parts have smaller ids */
        struct term x = v[i];

        if (!is[i])
            continue;
        if (x.kind != BYTES && x.kind != RULE && x.a >= t->written)
            x.a = becomes[x.a - t->written];
        if ((x.kind == CAT || x.kind == ALT) && x.b >= t->written)
            x.b = becomes[x.b - t->written];
        becomes[i] = intern(t, x);
    }
    for (size_t i = 0; i < n; i++)
        if (keep[i] >= t->written)
            keep[i] = becomes[keep[i] - t->written];
    free(is);
    free(becomes);
    free(v);
    return true;
}

void terms_allow(struct terms *t)
{
    t->steps = MOST_STEPS;
    t->work = MOST_WORK;
}
