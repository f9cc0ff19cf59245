/* bpe - byte-pair encoding: a piece's symbols merged by rank (Sennrich et al. 2016) */
#include "lib/text/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

enum { MAX_ID = 1 << 24, NONE = -1 };

/* Open addressing; the table's size is a power of two and at most half full. */
struct word {
    const char *text; /* NULL: empty */
    uint32_t len, id;
};

struct merge {
    uint32_t left, right; /* ids */
    uint32_t rank, id;    /* the result's */
    bool used;
};

struct bpe {
    struct word *word;
    size_t words; /* size of the table */
    struct merge *merge;
    size_t merges;
    const char **text; /* [size] by id, borrowed from the words */
    size_t size;
    char *block; /* the words' text */
};

static uint64_t hash_bytes(const char *p, size_t n)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325); /* FNV-1a */

    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)p[i]) * UINT64_C(0x100000001b3);
    return h ^ h >> 29;
}

static uint64_t hash_pair(uint32_t left, uint32_t right)
{
    uint64_t h = ((uint64_t)left << 32 | right) * UINT64_C(0x9e3779b97f4a7c15);

    return h ^ h >> 31;
}

static size_t table_size(size_t n)
{
    size_t size = 16;

    while (size < 2 * n)
        size *= 2;
    return size;
}

static struct word *find_word(const struct bpe *b, const char *text, size_t len)
{
    size_t at = hash_bytes(text, len) & (b->words - 1);

    while (b->word[at].text &&
           (b->word[at].len != len || memcmp(b->word[at].text, text, len)))
        at = (at + 1) & (b->words - 1);
    return &b->word[at];
}

static struct merge *find_merge(const struct bpe *b, uint32_t left, uint32_t right)
{
    size_t at = hash_pair(left, right) & (b->merges - 1);

    while (b->merge[at].used &&
           (b->merge[at].left != left || b->merge[at].right != right))
        at = (at + 1) & (b->merges - 1);
    return &b->merge[at];
}

long bpe_id(const struct bpe *b, const char *text, size_t len)
{
    const struct word *w = find_word(b, text, len);

    return w->text ? (long)w->id : NONE;
}

const char *bpe_text(const struct bpe *b, uint32_t id)
{
    return id < b->size ? b->text[id] : NULL;
}

size_t bpe_size(const struct bpe *b)
{
    return b->size;
}

/* ---- opening ---- */

static int read_vocab(struct bpe *b, const char *path, const cJSON *vocab,
                      struct err *err)
{
    const cJSON *j;
    size_t n = 0, bytes = 0;
    char *to;

    cJSON_ArrayForEach(j, vocab)
    {
        if (!cJSON_IsNumber(j) || j->valuedouble < 0 || j->valuedouble > MAX_ID ||
            j->valuedouble != (double)j->valueint)
            return err_set(err, ERR_INPUT, "%s: vocab: '%s' has no valid id", path,
                           j->string);
        n++;
        bytes += strlen(j->string) + 1;
        if ((size_t)j->valueint >= b->size)
            b->size = (size_t)j->valueint + 1;
    }
    b->words = table_size(n);
    b->word = xcalloc(b->words, sizeof(*b->word));
    b->text = xcalloc(b->size + 1, sizeof(*b->text));
    b->block = to = xmalloc(bytes + 1);
    cJSON_ArrayForEach(j, vocab)
    {
        size_t len = strlen(j->string);
        struct word *w = find_word(b, j->string, len);

        if (w->text || b->text[j->valueint])
            return err_set(err, ERR_INPUT, "%s: vocab: '%s' or its id is given twice",
                           path, j->string);
        memcpy(to, j->string, len + 1);
        *w = (struct word){ to, (uint32_t)len, (uint32_t)j->valueint };
        b->text[j->valueint] = to;
        to += len + 1;
    }
    return 0;
}

/* The two sides of a merge: "a b", or ["a", "b"]. */
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

    b->merges = table_size((size_t)cJSON_GetArraySize(merges));
    b->merge = xcalloc(b->merges, sizeof(*b->merge));
    cJSON_ArrayForEach(j, merges)
    {
        const char *left, *right;
        size_t len;
        long l, r, id;
        struct merge *m;

        if (!merge_sides(j, &left, &len, &right)) {
            str_clear(&joined);
            return err_set(err, ERR_INPUT, "%s: merges: number %u is no pair", path,
                           rank);
        }
        str_reset(&joined);
        str_addn(&joined, left, len);
        str_add(&joined, right);
        l = bpe_id(b, left, len);
        r = bpe_id(b, right, strlen(right));
        id = bpe_id(b, str_text(&joined), joined.len);
        if (l < 0 || r < 0 || id < 0) {
            str_clear(&joined);
            return err_set(err, ERR_INPUT,
                           "%s: merges: number %u is not in the vocabulary", path,
                           rank);
        }
        m = find_merge(b, (uint32_t)l, (uint32_t)r);
        *m = (struct merge){ (uint32_t)l, (uint32_t)r, rank++, (uint32_t)id, true };
    }
    str_clear(&joined);
    return 0;
}

/* Options that would change the ids and are not known here. */
static int check_options(const char *path, const cJSON *model, struct err *err)
{
    static const char *const flags[] = { "fuse_unk", "byte_fallback", "ignore_merges" };
    static const char *const words[] = { "continuing_subword_prefix",
                                         "end_of_word_suffix", "unk_token" };

    for (int i = 0; i < 3; i++) {
        const cJSON *j = cJSON_GetObjectItemCaseSensitive(model, flags[i]);
        const cJSON *w = cJSON_GetObjectItemCaseSensitive(model, words[i]);

        if (cJSON_IsTrue(j))
            return err_set(err, ERR_INPUT, "%s: BPE with %s is not known", path,
                           flags[i]);
        /* an unknown token never occurs where all 256 bytes are in the vocabulary */
        if (i < 2 && cJSON_IsString(w) && *w->valuestring)
            return err_set(err, ERR_INPUT, "%s: BPE with %s is not known", path,
                           words[i]);
    }
    return 0;
}

int bpe_open(struct bpe **out, const char *path, const cJSON *model, struct err *err)
{
    const cJSON *vocab = cJSON_GetObjectItemCaseSensitive(model, "vocab");
    const cJSON *merges = cJSON_GetObjectItemCaseSensitive(model, "merges");
    struct bpe *b;

    if (!cJSON_IsObject(vocab) || !cJSON_IsArray(merges))
        return err_set(err, ERR_INPUT, "%s: BPE needs vocab and merges", path);
    if (check_options(path, model, err) < 0)
        return -1;
    b = xcalloc(1, sizeof(*b));
    if (read_vocab(b, path, vocab, err) < 0 || read_merges(b, path, merges, err) < 0) {
        bpe_free(b);
        return -1;
    }
    *out = b;
    return 0;
}

void bpe_free(struct bpe *b)
{
    if (!b)
        return;
    free(b->word);
    free(b->merge);
    free(b->text);
    free(b->block);
    free(b);
}

/* ---- encoding ---- */

/* Symbols in a list, and the merges that are possible now in a heap by (rank,
 * place). */
struct symbol {
    uint32_t id;
    int prev,
        next; /* -1 at the ends; a symbol that was merged away has id UINT32_MAX */
};

struct candidate {
    uint32_t rank, id;
    int at;               /* index of the left symbol */
    uint32_t left, right; /* what the symbols were when this was found */
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
            continue; /* found before one of the two was merged */
        s[c.at].id = c.id;
        s[next].id = UINT32_MAX;
        s[c.at].next = s[next].next;
        if (s[next].next >= 0)
            s[s[next].next].prev = c.at;
        consider(b, &h, s, s[c.at].prev);
        consider(b, &h, s, c.at);
    }
    free(h.v);
}

int bpe_encode(const struct bpe *b, const char *piece, size_t len, struct tokens *out,
               struct err *err)
{
    struct symbol *s = xmalloc(sizeof(*s) * (len + 1));
    int n = 0;

    for (size_t at = 0; at < len;) {
        uint32_t cp;
        size_t used = str_utf8_decode(piece + at, len - at, &cp);
        long id = used ? bpe_id(b, piece + at, used) : NONE;

        if (id < 0) {
            err_set(err, ERR_INPUT, "the vocabulary lacks '%.*s'", (int)used,
                    piece + at);
            free(s);
            return -1;
        }
        s[n] = (struct symbol){ (uint32_t)id, n - 1, n + 1 };
        n++;
        at += used;
    }
    if (n)
        s[n - 1].next = -1;
    merge_all(b, s, n);
    for (int i = n ? 0 : -1; i >= 0; i = s[i].next) {
        out->id = xgrow(out->id, &out->cap, out->n + 1, sizeof(*out->id));
        out->id[out->n++] = s[i].id;
    }
    free(s);
    return 0;
}
