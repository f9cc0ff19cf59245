/* merges - the merges of a BPE vocabulary that has only scores */
#include "lib/base/merges.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

enum { MOST_PIECE = 256 };

/* The pieces by their text: a hash table. */
struct table {
    const struct merges_piece *piece;
    uint32_t *slot; /* [mask + 1] piece plus 1; 0: empty */
    uint64_t mask;
};

static uint64_t hash_text(const char *s, size_t n)
{
    uint64_t h = UINT64_C(14695981039346656037); /* FNV-1a */

    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)s[i]) * UINT64_C(1099511628211);
    return h ^ h >> 29;
}

/* The slot of the text, or of where it belongs. */
static uint32_t *find_slot(const struct table *t, const char *s, size_t n)
{
    for (uint64_t at = hash_text(s, n);; at++) {
        uint32_t *slot = &t->slot[at & t->mask];
        const struct merges_piece *of = *slot ? &t->piece[*slot - 1] : NULL;

        if (!of || (of->n == n && !memcmp(of->s, s, n)))
            return slot;
    }
}

static void make_table(struct table *t, const struct merges_piece *p, uint32_t n)
{
    *t = (struct table){ .piece = p, .mask = 16 };
    while (t->mask < 2 * (uint64_t)n)
        t->mask *= 2;
    t->slot = xcalloc((size_t)t->mask, sizeof(*t->slot));
    t->mask--;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t *slot = find_slot(t, p[i].s, p[i].n);

        if (!*slot)
            *slot = i + 1;
    }
}

struct scored {
    struct merge merge;
    float score;
};

static int compare(const void *a, const void *b)
{
    const struct scored *x = a, *y = b;

    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    if (x->merge.left != y->merge.left)
        return x->merge.left > y->merge.left ? -1 : 1;
    return (x->merge.piece > y->merge.piece) - (x->merge.piece < y->merge.piece);
}

bool merges_list(struct merge **out, size_t *count, const struct merges_piece *p,
                 uint32_t n, uint64_t limit)
{
    struct scored *all = NULL;
    struct table t;
    size_t found = 0, cap = 0;
    bool fits = true;

    make_table(&t, p, n);
    for (uint32_t i = 0; i < n && fits; i++) {
        if (!p[i].made || p[i].n > MOST_PIECE)
            continue;
        for (uint32_t left = 1; left < p[i].n; left++)
            if (*find_slot(&t, p[i].s, left) &&
                *find_slot(&t, p[i].s + left, p[i].n - left)) {
                all = xgrow(all, &cap, found + 1, sizeof(*all));
                all[found++] = (struct scored){ { i, left }, p[i].score };
            }
        fits = found * sizeof(*all) <= limit;
    }
    free(t.slot);
    if (found)
        qsort(all, found, sizeof(*all), compare);
    *out = fits ? xcalloc(found + 1, sizeof(**out)) : NULL;
    *count = fits ? found : 0;
    for (size_t i = 0; i < *count; i++)
        (*out)[i] = all[i].merge;
    free(all);
    return fits;
}
