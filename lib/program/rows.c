/* rows - row spaces: what the rows of a value stand for, and how many there are */
#include "lib/program/rows.h"

#include <stdio.h>
#include <string.h>

void rows_init(struct row_spaces *r)
{
    static const struct row_space all[ROWS_OWN] = {
        [ROWS_TOKENS] = { .name = "tokens", .how = HOW_GIVEN, .parent = -1 },
        [ROWS_WANTED] = { .name = "outputs", .how = HOW_WANTED, .parent = ROWS_TOKENS },
        [ROWS_ONE] = { .name = "sequences",
                       .how = HOW_PER_SEQUENCE,
                       .parent = ROWS_TOKENS },
        [ROWS_SOURCE] = { .name = "source", .how = HOW_GIVEN, .parent = -1 },
        [ROWS_TABLE] = { .name = "table", .how = HOW_FIXED, .parent = -1 },
        [ROWS_SENT] = { .name = "sent", .how = HOW_EXPERT, .parent = -1 },
        [ROWS_CHOSEN] = { .name = "choices", .how = HOW_EXPERT, .parent = -1 }
    };

    memset(r, 0, sizeof(*r));
    memcpy(r->v, all, sizeof(all));
    r->n = ROWS_OWN;
}

int rows_find(const struct row_spaces *r, const char *name, size_t len)
{
    for (int k = 0; k < r->n; k++)
        if (strlen(r->v[k].name) == len && !memcmp(r->v[k].name, name, len))
            return k;
    return -1;
}

static int add(struct row_spaces *r, const struct row_space *of, const char *name,
               size_t len)
{
    struct row_space *s = &r->v[r->n];

    if (r->n == ROWS_MOST || len >= sizeof(s->name))
        return -1;
    *s = *of;
    memset(s->name, 0, sizeof(s->name));
    memcpy(s->name, name, len);
    return r->n++;
}

int rows_give(struct row_spaces *r, const char *name, size_t len)
{
    int k = rows_find(r, name, len);

    if (k < 0)
        return add(r, &(struct row_space){ .how = HOW_GIVEN, .parent = -1 }, name, len);
    return r->v[k].how == HOW_GIVEN || r->v[k].how == HOW_FIXED ? k : -1;
}

static bool is_like(const struct row_space *a, const struct row_space *b)
{
    return a->how == b->how && a->parent == b->parent && a->times == b->times &&
           a->by == b->by && a->plus == b->plus && a->least == b->least;
}

int rows_derive(struct row_spaces *r, const struct row_space *of, const char *name,
                size_t len)
{
    char made[sizeof(of->name) * 2];
    int k = -1;

    if (of->times == of->by && !of->plus && !len)
        return of->parent;
    for (int i = 0; !len && i < r->n && k < 0; i++)
        k = is_like(&r->v[i], of) ? i : -1;
    if (k >= 0)
        return k;
    if (!len) {
        len = (size_t)snprintf(made, sizeof(made), "%s/%llu", r->v[of->parent].name,
                               (unsigned long long)of->by);
        name = made;
    }
    k = rows_find(r, name, len);
    if (k < 0)
        return add(r, of, name, len);
    if (k == ROWS_SOURCE && r->v[k].how == HOW_GIVEN) {
        struct row_space *s = &r->v[k], own = *s;

        if (rows_root(r, of->parent) == k)
            return -1;
        *s = *of;
        memcpy(s->name, own.name, sizeof(s->name));
    }
    return is_like(&r->v[k], of) ? k : -1;
}

int rows_root(const struct row_spaces *r, int k)
{
    while (r->v[k].how == HOW_RATIO)
        k = r->v[k].parent;
    return k;
}

int rows_depth(const struct row_spaces *r, int k)
{
    int n = 0;

    for (; r->v[k].how == HOW_RATIO; k = r->v[k].parent)
        n++;
    return n;
}

uint64_t rows_of_parent(const struct row_space *s, uint64_t parent)
{
    int64_t n;

    if (s->how != HOW_RATIO || parent <= s->least)
        return parent;
    n = (int64_t)(s->times * parent) + s->plus;
    return n < 0 ? 0 : (uint64_t)n / s->by;
}

struct share rows_share(const struct row_spaces *r, int k, uint64_t parent)
{
    const struct row_space *s = &r->v[k];

    return deal_units(parent, 1, (int)s->by, (int)s->plus);
}

/* A space's parent may come after it: ROWS_SOURCE is made of others. */
static void count(const struct row_spaces *r, size_t n[ROWS_MOST], int k)
{
    if (r->v[k].how != HOW_RATIO)
        return;
    count(r, n, r->v[k].parent);
    n[k] = (size_t)rows_of_parent(&r->v[k], n[r->v[k].parent]);
}

void rows_count(const struct row_spaces *r, size_t n[ROWS_MOST])
{
    n[ROWS_ONE] = 1;
    n[ROWS_TABLE] = (size_t)r->v[ROWS_TABLE].bound;
    for (int k = 0; k < r->n; k++)
        count(r, n, k);
}

/* Most rows of S in all texts, whose parents' rows are PARENT in all. */
static uint64_t most_below(const struct row_space *s, uint64_t parent, uint64_t texts)
{
    uint64_t more = s->plus > 0 ? (uint64_t)s->plus * texts : 0;

    return (s->times * parent + more) / s->by + s->least * texts;
}

/* Most rows of S's parent where S has ROWS in all. */
static uint64_t most_above(const struct row_space *s, uint64_t rows, uint64_t texts)
{
    int64_t each = (int64_t)s->by - 1 - s->plus;
    uint64_t slack = each > 0 ? ((uint64_t)each + s->times - 1) / s->times : 0;

    return s->by * rows / s->times + slack * texts;
}

void rows_most(const struct row_spaces *r, uint64_t most[ROWS_MOST])
{
    uint64_t texts = most[ROWS_ONE];

    if (!most[ROWS_TABLE])
        most[ROWS_TABLE] = r->v[ROWS_TABLE].bound;
    for (int k = ROWS_SOURCE; r->v[k].how == HOW_RATIO; k = r->v[k].parent)
        if (!most[r->v[k].parent])
            most[r->v[k].parent] = most_above(&r->v[k], most[k], texts);
    for (int k = ROWS_OWN; k < r->n; k++) { /* of own spaces, parents come first */
        const struct row_space *s = &r->v[k];

        if (s->how == HOW_RATIO && !most[k])
            most[k] = most_below(s, most[s->parent], texts);
        else if (s->how == HOW_GIVEN && !most[k])
            most[k] = texts;
        else if (s->how == HOW_SHARE)
            most[k] = (most[s->parent] + s->by - 1) / s->by;
    }
}

void rows_source(const struct row_spaces *r, size_t n[ROWS_MOST], size_t source)
{
    int k = ROWS_SOURCE;

    for (; r->v[k].how == HOW_RATIO; k = r->v[k].parent)
        source = (size_t)most_above(&r->v[k], source, 1);
    n[k] = source;
}

double rows_ratio(const struct row_spaces *r, int k, int *known)
{
    double ratio = 1;
    int of = k;

    for (; of >= ROWS_OWN && (r->v[of].how == HOW_RATIO || r->v[of].how == HOW_SHARE);
         of = r->v[of].parent)
        ratio *= (double)r->v[of].times / (double)r->v[of].by;
    *known = of;
    if (of < ROWS_OWN)
        return ratio;
    *known = ROWS_ONE;
    if (rows_root(r, ROWS_SOURCE) == of) {
        *known = ROWS_SOURCE;
        for (of = ROWS_SOURCE; r->v[of].how == HOW_RATIO; of = r->v[of].parent)
            ratio *= (double)r->v[of].by / (double)r->v[of].times;
    }
    return ratio;
}
