/* bpe - byte-pair encoding: merges symbols of a piece by rank (Sennrich et al. 2016) */
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/text/chars.h"
#include "lib/text/setting.h"
#include "lib/text/subword.h"

enum { NONE = -1, MISSING = -2 };

struct merge {
    uint32_t left, right; /* ids */
    uint32_t rank, id;    /* the result's */
    bool used;
};

/* A hash table with open addressing; its size is a power of two, at least half of it
 * free. */
struct bpe {
    const struct vocab *vocab;
    struct merge *merge;
    size_t merges;
    char *prefix, *suffix; /* for inner symbols and for the last; or NULL */
    long unknown;          /* an id, NONE (not configured) or MISSING (not in the
                            * vocabulary) */
    bool fuse_unknown, byte_fallback, ignore_merges;
};

static uint64_t hash_pair(uint32_t left, uint32_t right)
{
    uint64_t h = ((uint64_t)left << 32 | right) * UINT64_C(0x9e3779b97f4a7c15);

    return h ^ h >> 31;
}

static struct merge *find_merge(const struct bpe *b, uint32_t left, uint32_t right)
{
    size_t at = hash_pair(left, right) & (b->merges - 1);

    while (b->merge[at].used &&
           (b->merge[at].left != left || b->merge[at].right != right))
        at = (at + 1) & (b->merges - 1);
    return &b->merge[at];
}

/* Splits a merge into its two sides: "a b", or ["a", "b"]. */
static bool merge_sides(const cJSON *j, const char **left, size_t *left_len,
                        const char **right)
{
    const char *space;

    if (cJSON_IsArray(j) && cJSON_GetArraySize(j) == 2 && cJSON_IsString(j->child) &&
        cJSON_IsString(j->child->next)) {
        *left = j->child->valuestring;
        *left_len = strlen(*left);
        *right = j->child->next->valuestring;
        return true;
    }
    if (!cJSON_IsString(j))
        return false;
    space = strchr(j->valuestring, ' ');
    if (!space)
        return false;
    *left = j->valuestring;
    *left_len = (size_t)(space - j->valuestring);
    *right = space + 1;
    return true;
}

static int read_merges(struct bpe *b, const char *path, const cJSON *merges,
                       struct err *err)
{
    const cJSON *j;
    uint32_t rank = 0;
    struct str joined = { 0 };
    size_t skip = b->prefix ? strlen(b->prefix) : 0;

    for (b->merges = 16; b->merges < 2 * (size_t)cJSON_GetArraySize(merges);)
        b->merges *= 2;
    b->merge = xcalloc(b->merges, sizeof(*b->merge));
    cJSON_ArrayForEach(j, merges)
    {
        const char *left, *right;
        size_t len;
        long l, r, id;

        if (!merge_sides(j, &left, &len, &right)) {
            str_clear(&joined);
            return err_set(err, ERR_INPUT, "%s: merges: number %u is no pair", path,
                           rank);
        }
        l = vocab_id(b->vocab, left, len);
        r = vocab_id(b->vocab, right, strlen(right));
        str_reset(&joined);
        str_addn(&joined, left, len);
        str_add(&joined, right + (strlen(right) < skip ? strlen(right) : skip));
        id = vocab_id(b->vocab, str_text(&joined), joined.len);
        if (l < 0 || r < 0 || id < 0) {
            str_clear(&joined);
            return err_set(err, ERR_INPUT,
                           "%s: merges: number %u is not in the vocabulary", path,
                           rank);
        }
        *find_merge(b, (uint32_t)l, (uint32_t)r) =
            (struct merge){ (uint32_t)l, (uint32_t)r, rank++, (uint32_t)id, true };
    }
    str_clear(&joined);
    return 0;
}

static char *affix(const cJSON *model, const char *name)
{
    const char *text = setting_string(model, name);

    return text && *text ? xstrdup(text) : NULL;
}

static void bpe_free(void *model)
{
    struct bpe *b = model;

    if (!b)
        return;
    free(b->merge);
    free(b->prefix);
    free(b->suffix);
    free(b);
}

static int bpe_open(void **out, struct vocab **vocab, const char *path,
                    const cJSON *model, struct err *err)
{
    const cJSON *words = cJSON_GetObjectItemCaseSensitive(model, "vocab");
    const cJSON *merges = cJSON_GetObjectItemCaseSensitive(model, "merges");
    const cJSON *dropout = cJSON_GetObjectItemCaseSensitive(model, "dropout");
    const char *unknown = setting_string(model, "unk_token");
    struct bpe *b;

    if (!cJSON_IsObject(words) || !cJSON_IsArray(merges))
        return err_set(err, ERR_INPUT, "%s: BPE needs vocab and merges", path);
    if (cJSON_IsNumber(dropout) && dropout->valuedouble != 0)
        return err_set(err, ERR_INPUT, "%s: BPE with dropout is not known", path);
    if (vocab_open(vocab, path, words, err) < 0)
        return -1;
    b = xcalloc(1, sizeof(*b));
    b->vocab = *vocab;
    b->prefix = affix(model, "continuing_subword_prefix");
    b->suffix = affix(model, "end_of_word_suffix");
    b->fuse_unknown = setting_flag(model, "fuse_unk", false);
    b->byte_fallback = setting_flag(model, "byte_fallback", false);
    b->ignore_merges = setting_flag(model, "ignore_merges", false);
    b->unknown = unknown ? vocab_id(*vocab, unknown, strlen(unknown)) : NONE;
    if (unknown && b->unknown < 0)
        b->unknown = MISSING;
    if (read_merges(b, path, merges, err) < 0) {
        bpe_free(b);
        return -1;
    }
    *out = b;
    return 0;
}

/* ---- encoding ---- */

/* The symbols form a linked list; possible merges are in a heap ordered by (rank,
 * position). */
struct symbol {
    uint32_t id;
    uint32_t len;   /* bytes of the piece */
    int prev, next; /* -1 at the ends; a merged-away symbol has id UINT32_MAX */
};

struct candidate {
    uint32_t rank, id;
    int at;               /* index of the left symbol */
    uint32_t left, right; /* the symbols when the candidate was added */
};

struct heap {
    struct candidate *v;
    size_t n, cap;
};

static bool before(const struct candidate *a, const struct candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void push(struct heap *h, struct candidate c)
{
    size_t i = h->n++;

    h->v = xgrow(h->v, &h->cap, h->n, sizeof(*h->v));
    for (; i && before(&c, &h->v[(i - 1) / 2]); i = (i - 1) / 2)
        h->v[i] = h->v[(i - 1) / 2];
    h->v[i] = c;
}

static struct candidate pop(struct heap *h)
{
    struct candidate top = h->v[0], last = h->v[--h->n];
    size_t i = 0;

    for (;;) {
        size_t kid = 2 * i + 1;

        if (kid >= h->n)
            break;
        if (kid + 1 < h->n && before(&h->v[kid + 1], &h->v[kid]))
            kid++;
        if (!before(&h->v[kid], &last))
            break;
        h->v[i] = h->v[kid];
        i = kid;
    }
    h->v[i] = last;
    return top;
}

static void consider(const struct bpe *b, struct heap *h, const struct symbol *s,
                     int at)
{
    const struct merge *m;

    if (at < 0 || s[at].next < 0)
        return;
    m = find_merge(b, s[at].id, s[s[at].next].id);
    if (m->used)
        push(h, (struct candidate){ m->rank, m->id, at, m->left, m->right });
}

static void merge_all(const struct bpe *b, struct symbol *s, int n)
{
    struct heap h = { 0 };

    for (int i = 0; i + 1 < n; i++)
        consider(b, &h, s, i);
    while (h.n) {
        struct candidate c = pop(&h);
        int next = s[c.at].next;

        if (s[c.at].id != c.left || next < 0 || s[next].id != c.right)
            continue; /* outdated: one of the two symbols has been merged */
        s[c.at].id = c.id;
        s[c.at].len += s[next].len;
        s[next].id = UINT32_MAX;
        s[c.at].next = s[next].next;
        if (s[next].next >= 0)
            s[s[next].next].prev = c.at;
        consider(b, &h, s, s[c.at].prev);
        consider(b, &h, s, c.at);
    }
    free(h.v);
}

/* The symbols of a piece before any merge. */
struct symbols {
    struct symbol *v;
    int n;
    long held; /* an unknown token that may still be fused with the next, or NONE */
    size_t held_len;
};

static void add_symbol(struct symbols *s, long id, size_t len)
{
    s->v[s->n] = (struct symbol){ (uint32_t)id, (uint32_t)len, s->n - 1, s->n + 1 };
    s->n++;
}

static void add_held(struct symbols *s)
{
    if (s->held >= 0)
        add_symbol(s, s->held, s->held_len);
    s->held = NONE;
    s->held_len = 0;
}

/* Adds a character of N bytes, LEN of the piece, that is not in the vocabulary: its
 * bytes, or the unknown token, or nothing. */
static int add_unknown(const struct bpe *b, struct symbols *s, const char *text,
                       size_t n, size_t len, struct err *err)
{
    bool all = b->byte_fallback;

    for (size_t i = 0; i < n && all; i++)
        all = vocab_byte(b->vocab, (unsigned char)text[i]) >= 0;
    for (size_t i = 0; i < n && all; i++)
        add_symbol(s, vocab_byte(b->vocab, (unsigned char)text[i]), 1);
    if (all || b->unknown == NONE)
        return 0;
    if (b->unknown == MISSING)
        return err_set(err, ERR_INPUT,
                       "neither '%.*s' nor the unknown token is in the vocabulary",
                       (int)n, text);
    if (!b->fuse_unknown)
        add_held(s);
    s->held = b->unknown;
    s->held_len += len;
    return 0;
}

static int add_symbols(const struct bpe *b, struct symbols *s, const char *piece,
                       size_t len, struct err *err)
{
    struct str text = { 0 };
    size_t used;
    int ret = 0;

    for (size_t at = 0; at < len && ret == 0; at += used) {
        const char *symbol = piece + at;
        size_t n;
        long id;

        chars_at(symbol, len - at, &used);
        n = used;
        if ((b->prefix && at) || (b->suffix && at + used == len)) {
            str_reset(&text);
            str_add(&text, b->prefix && at ? b->prefix : "");
            str_addn(&text, symbol, used);
            str_add(&text, b->suffix && at + used == len ? b->suffix : "");
            symbol = str_text(&text);
            n = text.len;
        }
        id = vocab_id(b->vocab, symbol, n);
        if (id < 0) {
            ret = add_unknown(b, s, symbol, n, used, err);
            continue;
        }
        add_held(s);
        add_symbol(s, id, used);
    }
    add_held(s);
    str_clear(&text);
    return ret;
}

static int bpe_encode(const void *model, const char *piece, size_t len,
                      struct tokens *out, struct err *err)
{
    const struct bpe *b = model;
    long whole = b->ignore_merges ? vocab_id(b->vocab, piece, len) : NONE;
    size_t affixes =
        (b->prefix ? strlen(b->prefix) : 0) + (b->suffix ? strlen(b->suffix) : 0);
    struct symbols s = { .held = NONE };
    size_t at = 0;
    int ret;

    if (whole >= 0) {
        tokens_add_part(out, (uint32_t)whole, 0, len);
        return 0;
    }
    s.v = xmalloc(sizeof(*s.v) * (len * (1 + affixes) + 1));
    ret = add_symbols(b, &s, piece, len, err);
    if (s.n)
        s.v[s.n - 1].next = -1;
    if (ret == 0)
        merge_all(b, s.v, s.n);
    for (int i = s.n && ret == 0 ? 0 : -1; i >= 0; i = s.v[i].next) {
        tokens_add_part(out, s.v[i].id, at, at + s.v[i].len);
        at += s.v[i].len;
    }
    free(s.v);
    return ret;
}

static long bpe_unknown(const void *model)
{
    return ((const struct bpe *)model)->unknown;
}

const struct subword_kind bpe_kind = { .type = "BPE",
                                       .open = bpe_open,
                                       .encode = bpe_encode,
                                       .unknown = bpe_unknown,
                                       .free = bpe_free };
