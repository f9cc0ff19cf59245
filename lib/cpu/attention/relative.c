/* relative - attention with relative positions (DeBERTa, Transformer-XL)
 *
 * He et al. 2021, "DeBERTa: Decoding-enhanced BERT with Disentangled Attention", eq. 4:
 * the score of query i and key j is q_i k_j + q_i p_r + k_j u_r.  p and u are the
 * position table projected as keys and as queries, r is the row for the distance i - j.
 * Dai et al. 2019, "Transformer-XL", section 3.3, has another query for positions and
 * no u; Yang et al. 2019, "XLNet", section 2.5, adds the product of a third query and
 * one of two vectors, for a key of the same segment or of another.  Dai et al. 2020,
 * "Funnel-Transformer", section 2.2, has fewer queries than keys: the distance of rows
 * that were pooled is that of the tokens at which they begin.  A task is one head of
 * one text. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/cpu/attention/attention.h"
#include "lib/cpu/cpu.h"

/* Row of the table for DISTANCE, clamped to the table. */
static size_t row_of(const struct inst *inst, int64_t distance)
{
    return (size_t)positions_row(distance, (int64_t)inst->attention.span,
                                 (int64_t)inst->attention.far);
}

struct job {
    const struct cpu_relate *c;
    const struct inst *inst;
    size_t stride; /* columns of a row of q, k, v, the tables and y */
    size_t most;   /* tokens of the longest text */
    float *types;  /* [2][stride], or NULL */
    size_t *row;   /* [2 most - 1]: table row of the distances 1 - most to most - 1 */
    float *room;   /* [threads][room_n] */
    size_t room_n;
};

static float dot(const float *a, const float *b, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return (float)sum;
}

/* The type of the token at which ROW of a text, whose types are TYPE, begins. */
static int32_t type_of(const int32_t *type, const struct pooled_text *p, uint64_t times,
                       size_t row)
{
    return type[row ? cpu_pooled_token(row, p, times) : 0];
}

/* Adds to the scores S[n] of query ROW of a text, whose queries begin at FIRST and
 * whose tokens have the types TYPES, what its head HEAD says of keys of the same type
 * and of others. */
static void add_types(const struct job *j, float *s, size_t row, size_t first,
                      const int32_t *types, size_t n, size_t head)
{
    const struct cpu_relate *c = j->c;
    const struct inst *inst = j->inst;
    const struct pooled_text *p = &inst->attention.pool;
    size_t dim = inst->attention.head_dim;
    const float *q = c->q_type + (first + row) * j->stride + head * dim;
    size_t at = inst->attention.other_first ? j->stride : 0;
    float same = dot(q, j->types + at + head * dim, dim);
    float other = dot(q, j->types + j->stride - at + head * dim, dim);
    int32_t type = type_of(types, p, p->times, row);

    for (size_t t = p->apart; t < n && !(p->apart && !row); t++) {
        int32_t key = type_of(types, p, inst->attention.keys_pooled, t);

        s[t] += type == key || type == inst->attention.any_type ||
                        key == inst->attention.any_type
                    ? same
                    : other;
    }
}

/* Adds to the scores S[n] of query I those by distance: BY_QUERY, and BY_KEY[n], or
 * NULL, for USED rows of the table from LOW on. */
static void add_distances(const struct job *j, float *s, size_t i, size_t n,
                          const float *by_query, const float *by_key, size_t low,
                          size_t used)
{
    const struct pooled_text *p = &j->inst->attention.pool;
    const size_t *row = j->row + j->most - 1; /* row[0]: distance 0 */
    int64_t at = cpu_pooled_token(i, p, p->times);

    if (p->apart && !i) /* the first token has no place */
        return;
    for (size_t t = p->apart; t < n; t++) {
        size_t r =
            row[at - cpu_pooled_token(t, p, j->inst->attention.keys_pooled)] - low;

        s[t] += by_query[r] + (by_key ? by_key[t * used + r] : 0);
    }
}

/* Task: head TASK % heads of text TASK / heads. */
static void one_head(void *arg, size_t task, int thread)
{
    const struct job *j = arg;
    const struct cpu_relate *c = j->c;
    size_t heads = j->inst->attention.heads, dim = j->inst->attention.head_dim;
    size_t text = task / heads, head = task % heads;
    size_t n, queries, keys, from = cpu_text(&c->tokens, text, &n);
    size_t first = cpu_text(&c->queries, text, &queries);
    size_t seen = cpu_text(&c->keys, text, &keys);
    const float *k = c->k + seen * j->stride + head * dim;
    const float *v = c->v + seen * j->stride + head * dim;
    const size_t *row = j->row + j->most - 1; /* row[0]: distance 0 */
    size_t low, used;
    float *key_score, *score, *query_score;

    if (!n)
        return;
    low = row[1 - (ptrdiff_t)n];
    used = row[(ptrdiff_t)n - 1] - low + 1;
    key_score = j->room + (size_t)thread * j->room_n; /* [n][used] */
    score = key_score + n * used;                     /* [RELATE_BLOCK][n] */
    query_score = score + RELATE_BLOCK * n;           /* [RELATE_BLOCK][used] */
    if (c->as_query)
        cpu_dots(key_score, used, k, j->stride, keys,
                 c->as_query + low * j->stride + head * dim, j->stride, used, dim);
    for (size_t at = 0; at < queries; at += RELATE_BLOCK) {
        size_t some = queries - at < RELATE_BLOCK ? queries - at : RELATE_BLOCK;
        const float *q = c->q + (first + at) * j->stride + head * dim;
        float *y = c->y + (first + at) * j->stride + head * dim;

        cpu_dots(score, n, q, j->stride, some, k, j->stride, keys, dim);
        cpu_dots(query_score, used, c->q_far + (first + at) * j->stride + head * dim,
                 j->stride, some, c->as_key + low * j->stride + head * dim, j->stride,
                 used, dim);
        for (size_t i = 0; i < some; i++) {
            add_distances(j, score + i * n, at + i, keys, query_score + i * used,
                          c->as_query ? key_score : NULL, low, used);
            if (j->types)
                add_types(j, score + i * n, at + i, first, c->type + from, keys, head);
            cpu_softmax_row(score + i * n, keys, (float)j->inst->attention.scale);
            memset(y + i * j->stride, 0, dim * sizeof(*y));
        }
        cpu_add_weighted(y, j->stride, score, n, some, v, j->stride, dim, keys);
    }
}

int cpu_relate(struct device *d, const struct inst *inst, const struct cpu_relate *c,
               struct err *err)
{
    struct job j = { .c = c, .inst = inst, .most = 1 };
    uint64_t used;
    int ret = -1;

    j.stride = inst->attention.heads * inst->attention.head_dim;
    for (size_t i = 0, n; i < c->tokens.n; i++) {
        (void)cpu_text(&c->tokens, i, &n);
        j.most = n > j.most ? n : j.most;
    }
    if (!inst->attention.heads || !c->queries.rows)
        return 0;
    j.row = cpu_take(d, (2 * j.most - 1) * sizeof(*j.row), "rows by distance", err);
    if (!j.row)
        return -1;
    for (size_t i = 0; i < 2 * j.most - 1; i++)
        j.row[i] = row_of(inst, (int64_t)i - (int64_t)(j.most - 1));
    used = j.row[2 * j.most - 2] - j.row[0] + 1;
    j.room_n = j.most * used + RELATE_BLOCK * (j.most + used);
    j.room = cpu_take(d, (uint64_t)cpu_threads(d) * j.room_n * sizeof(float),
                      "attention scores", err);
    if (c->types)
        j.types = cpu_take(d, 2 * j.stride * sizeof(float), "vectors of types", err);
    if (j.types)
        dtype_to_f32(format_dtype(c->types->format), c->types->data, j.types,
                     2 * j.stride);
    if (j.room && (j.types || !c->types)) {
        cpu_parallel(d, c->tokens.n * inst->attention.heads, one_head, &j);
        ret = 0;
    }
    cpu_give(d, j.row);
    cpu_give(d, j.room);
    cpu_give(d, j.types);
    return ret;
}
