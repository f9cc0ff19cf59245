/* cache - the KV cache of one rank, in blocks */
#include "lib/run/cache.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

/* ---- groups ---- */

static bool attends(const struct inst *inst)
{
    return op_table[inst->op].role == ROLE_ATTENDS;
}

/* The slot in which side SIDE of INST is cached, or -1. */
static int slot_of(const struct program *p, const struct inst *inst, int side)
{
    const struct value *v = &p->value[inst->src[side]];

    return v->kept ? p->inst[v->first].keep.slot : -1;
}

/* The window of a slot: the widest of its readers. */
struct reading {
    bool read;
    size_t window;
};

static void note_window(struct reading *r, size_t window)
{
    if (!r->read || !window || (r->window && window > r->window))
        r->window = window;
    r->read = true;
}

/* Gives keys and values of one attention the same window. */
static bool join_windows(struct reading *k, struct reading *v)
{
    if (k->window == v->window)
        return false;
    k->window = v->window = 0;
    return true;
}

static struct reading *find_windows(const struct program *p, bool windows)
{
    struct reading *r = xcalloc((size_t)p->nslots + 1, sizeof(*r));
    bool changed = true;

    for (int i = 0; i < p->ninsts; i++)
        for (int side = 1; attends(&p->inst[i]) && side < 3; side++) {
            const struct inst *inst = &p->inst[i];
            int slot = slot_of(p, inst, side);

            if (slot >= 0)
                note_window(&r[slot], windows && inst->attention.causal
                                          ? inst->attention.window
                                          : 0);
        }
    while (changed) {
        changed = false;
        for (int i = 0; i < p->ninsts; i++) {
            int k = attends(&p->inst[i]) ? slot_of(p, &p->inst[i], 1) : -1;
            int v = k >= 0 ? slot_of(p, &p->inst[i], 2) : -1;

            if (v >= 0)
                changed |= join_windows(&r[k], &r[v]);
        }
    }
    return r;
}

static int find_group(struct cache *c, size_t window, bool source)
{
    for (int i = 0; i < c->ngroups; i++)
        if (c->group[i].window == window && c->group[i].source == source)
            return i;
    c->group = xrealloc(c->group, sizeof(*c->group) * (size_t)(c->ngroups + 1));
    c->group[c->ngroups] = (struct cache_group){ .window = window, .source = source };
    return c->ngroups++;
}

static void find_groups(struct cache *c, const struct cache_limits *l)
{
    const struct program *p = c->program;
    struct reading *r = find_windows(p, l->windows);

    for (int i = 0; i < p->nslots; i++) {
        const struct value *v = &p->value[p->slot_value[i]];

        c->group_of[i] = v->first < 0 || !r[i].read
                             ? -1
                             : find_group(c, r[i].window, v->rows == ROWS_SOURCE);
    }
    free(r);
}

/* ---- opening ---- */

static size_t blocks_of(size_t rows)
{
    return (rows + CACHE_BLOCK - 1) / CACHE_BLOCK;
}

size_t cache_blocks(size_t context, size_t sequences, size_t rows)
{
    size_t blocks = blocks_of(context) * sequences;

    return rows && rows / CACHE_BLOCK < blocks ? rows / CACHE_BLOCK : blocks;
}

/* Sizes a group's pool.  A sliding window needs blocks for what the first row of a step
 * sees and for the step; the first and the last block may be partly used. */
static void size_group(struct cache *c, struct cache_group *g,
                       const struct cache_limits *l)
{
    size_t blocks, all = blocks_of(g->source ? l->source : l->context);
    size_t texts = g->source && l->texts ? l->texts : c->sequences;

    blocks = all;
    if (g->window && g->window - 1 < l->context && l->tokens < l->context)
        blocks = blocks_of(g->window - 1 + l->tokens) + 1;
    if (blocks > all)
        blocks = all;
    g->most = blocks;
    blockpool_init(&g->pool, cache_blocks(blocks * CACHE_BLOCK, texts, l->rows));
    g->rows = g->pool.n * CACHE_BLOCK;
    if (g->pool.n == all &&
        c->sequences == 1) /* the last block ends at the text's end */
        g->rows = g->source ? l->source : l->context;
    g->table = xcalloc(c->sequences + 1, sizeof(*g->table));
}

int cache_plan(struct cache *c, const struct program *program,
               const struct backend *ops, const uint64_t *cols, const uint64_t *width,
               const struct cache_limits *limits, struct err *err)
{
    *c = (struct cache){ .program = program,
                         .ops = ops,
                         .sequences = limits->sequences };
    c->group_of = xcalloc((size_t)program->nslots + 1, sizeof(*c->group_of));
    c->cols = xcalloc((size_t)program->nslots + 1, sizeof(*c->cols));
    c->memory = xcalloc((size_t)program->nslots + 1, sizeof(*c->memory));
    c->width = xcalloc((size_t)program->nslots + 1, sizeof(*c->width));
    c->size = xcalloc((size_t)program->nslots + 1, sizeof(*c->size));
    memcpy(c->cols, cols, sizeof(*cols) * (size_t)program->nslots);
    c->format = limits->format;
    for (int i = 0; i < program->nslots; i++)
        c->width[i] = format_cached_per(c->format, width[i]);
    find_groups(c, limits);
    for (int i = 0; i < c->ngroups; i++) {
        size_group(c, &c->group[i], limits);
        if (i)
            c->group[i].first =
                c->group[i - 1].first + c->group[i - 1].most * c->sequences;
    }
    if (cache_tables_bytes(c) / sizeof(int32_t) > INT32_MAX)
        return err_set(err, ERR_SYSTEM, "the block tables overflow");
    for (int i = 0; i < program->nslots; i++) {
        uint64_t bytes;

        if (c->group_of[i] < 0)
            continue;
        if (!mem_mul(&bytes, cols[i], 2 * sizeof(float)) ||
            !mem_mul(&bytes, c->group[c->group_of[i]].rows,
                     format_row_bytes(c->format, cols[i], width[i])))
            return err_set(err, ERR_SYSTEM, "the size of the KV cache overflows");
        c->size[i] = bytes;
        if (!mem_add(&c->bytes, c->bytes, bytes))
            return err_set(err, ERR_SYSTEM, "the size of the KV cache overflows");
    }
    return 0;
}

int cache_open(struct cache *c, struct device *device, struct err *err)
{
    c->device = device;
    if (cache_tables_bytes(c)) {
        c->tables = c->ops->alloc(device, cache_tables_bytes(c), "block tables", err);
        if (!c->tables)
            return -1;
    }
    for (int i = 0; i < c->program->nslots; i++) {
        if (c->group_of[i] < 0)
            continue;
        c->memory[i] = c->ops->alloc(device, c->size[i], "the cache", err);
        if (!c->memory[i])
            return -1;
    }
    return 0;
}

void cache_close(struct cache *c)
{
    for (int i = 0; c->device && i < c->program->nslots; i++)
        c->ops->release(c->device, c->memory[i]);
    if (c->device)
        c->ops->release(c->device, c->tables);
    for (int i = 0; i < c->ngroups; i++) {
        for (size_t k = 0; k < c->sequences; k++)
            free(c->group[i].table[k].block);
        blockpool_clear(&c->group[i].pool);
        free(c->group[i].table);
    }
    free(c->group);
    free(c->group_of);
    free(c->cols);
    free(c->width);
    free(c->size);
    free(c->memory);
    *c = (struct cache){ 0 };
}

int cache_side(const struct cache *c, const struct inst *inst, int side)
{
    int slot = slot_of(c->program, inst, side);

    return slot < 0 ? -1 : c->group_of[slot];
}

/* ---- blocks ---- */

static void drop_blocks(struct cache_group *g, struct cache_table *t, size_t n)
{
    for (size_t i = 0; i < n; i++)
        blockpool_drop(&g->pool, t->block[i]);
    memmove(t->block, t->block + n, (t->n - n) * sizeof(*t->block));
    t->n -= n;
    t->first += n * CACHE_BLOCK;
    t->known = n ? 0 : t->known; /* all entries have moved */
}

void cache_reset(struct cache *c, size_t sequence)
{
    for (int i = 0; i < c->ngroups; i++) {
        struct cache_table *t = &c->group[i].table[sequence];

        if (t->n)
            drop_blocks(&c->group[i], t, t->n);
        t->first = t->end = t->known = 0;
    }
}

size_t cache_held(const struct cache *c)
{
    size_t n = 0;

    for (int g = 0; g < c->ngroups; g++)
        n += c->group[g].pool.used;
    return n;
}

void cache_truncate(struct cache *c, size_t sequence, size_t n)
{
    for (int i = 0; i < c->ngroups; i++) {
        struct cache_group *g = &c->group[i];
        struct cache_table *t = &g->table[sequence];

        if (g->source)
            continue;
        assert(t->first <= n && t->end >= n);
        while (t->n > blocks_of(n - t->first))
            blockpool_drop(&g->pool, t->block[--t->n]);
        t->known = t->known < t->n ? t->known : t->n;
        t->end = n;
    }
}

/* Copies the first N rows of block FROM of GROUP to block TO, in every slot. */
static int copy_rows(struct cache *c, int group, int32_t to, int32_t from, size_t n,
                     struct err *err)
{
    for (int i = 0; i < c->program->nslots; i++) {
        uint64_t row = format_row_bytes(c->format, c->cols[i], c->width[i]);
        char *memory = c->memory[i];

        if (c->group_of[i] == group && row &&
            c->ops->copy(c->device, memory + (uint64_t)to * CACHE_BLOCK * row,
                         memory + (uint64_t)from * CACHE_BLOCK * row, n * row, err) < 0)
            return -1;
    }
    return 0;
}

/* The same of one group, whose rows from N on stay FROM's alone. */
static int share_group(struct cache *c, int group, size_t to, size_t from, size_t n,
                       struct err *err)
{
    struct cache_group *g = &c->group[group];
    struct cache_table *t = &g->table[to];
    const struct cache_table *f = &g->table[from];
    size_t full = g->source ? f->n : (n - f->first) / CACHE_BLOCK;
    size_t rest = g->source ? 0 : (n - f->first) % CACHE_BLOCK;
    int32_t block;

    assert(g->source || (n >= f->first && f->end >= n));
    t->block = xgrow(t->block, &t->cap, full + 1, sizeof(*t->block));
    t->first = f->first;
    t->end = g->source ? f->end : n;
    for (t->n = 0; t->n < full; t->n++) {
        t->block[t->n] = f->block[t->n];
        blockpool_hold(&g->pool, t->block[t->n]);
    }
    if (!rest)
        return 0;
    block = blockpool_take(&g->pool, 0);
    if (block < 0)
        return err_set(err, ERR_SYSTEM, "the KV cache is full at %zu tokens", n);
    t->block[t->n++] = block;
    return copy_rows(c, group, block, f->block[full], rest, err);
}

int cache_share(struct cache *c, size_t to, size_t from, size_t n, struct err *err)
{
    cache_reset(c, to);
    for (int i = 0; i < c->ngroups; i++)
        if (share_group(c, i, to, from, n, err) < 0)
            return -1;
    return 0;
}

size_t cache_window(const struct cache *c)
{
    size_t window = 0;

    for (int i = 0; i < c->ngroups; i++) {
        size_t own = c->group[i].window;

        if (own && (!window || own < window))
            window = own;
    }
    return window;
}

int cache_extend(struct cache *c, int group, size_t sequence, size_t start, size_t n,
                 struct err *err)
{
    struct cache_group *g = &c->group[group];
    struct cache_table *t = &g->table[sequence];
    size_t seen = g->window && start > g->window - 1 ? start - (g->window - 1) : 0;

    if (g->window && seen > t->first) {
        size_t blocks = (seen - t->first) / CACHE_BLOCK;

        drop_blocks(g, t, blocks < t->n ? blocks : t->n);
    }
    t->end = start + n;
    while (t->first + t->n * CACHE_BLOCK < t->end) {
        int32_t block = blockpool_take(&g->pool, t->n ? (size_t)t->block[t->n - 1] + 1
                                                      : sequence * g->most);

        if (block < 0)
            return err_set(err, ERR_SYSTEM, "the KV cache is full at %zu tokens",
                           t->end);
        t->block = xgrow(t->block, &t->cap, t->n + 1, sizeof(*t->block));
        t->block[t->n++] = block;
    }
    return 0;
}

int cache_sync(struct cache *c, int group, size_t sequence, struct err *err)
{
    struct cache_table *t = &c->group[group].table[sequence];
    size_t from = t->known;

    assert(t->n <= c->group[group].most);
    if (t->n <= from)
        return 0;
    t->known = t->n;
    return c->ops->copy_in(c->device,
                           c->tables + cache_table(c, group, sequence) + from,
                           t->block + from, (t->n - from) * sizeof(*t->block), err);
}

int32_t cache_table(const struct cache *c, int group, size_t sequence)
{
    const struct cache_group *g = &c->group[group];

    return (int32_t)(g->first + sequence * g->most);
}

uint64_t cache_tables_bytes(const struct cache *c)
{
    uint64_t n = 0;

    for (int i = 0; i < c->ngroups; i++)
        n += (uint64_t)c->group[i].most * c->sequences * sizeof(int32_t);
    return n;
}
