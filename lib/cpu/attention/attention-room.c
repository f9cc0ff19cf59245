/* attention-room - what attention takes beside its buffers (lib/cpu/room.h) */
#include "lib/cpu/attention/attention.h"
#include "lib/cpu/room.h"

/* Sizes of the largest range: queries, the keys that they see, heads. */
struct sizes {
    uint64_t threads, rows, keys, heads, kv_heads, dim, value_dim;
};

static struct sizes sizes_of(const struct cpu_most *m)
{
    const struct inst *inst = m->inst;

    return (struct sizes){ .threads = m->threads,
                           .rows = m->limits->queries,
                           .keys = m->limits->keys,
                           .heads = inst->attention.heads,
                           .kv_heads = inst->attention.kv_heads,
                           .dim = inst->attention.head_dim,
                           .value_dim = inst->attention.value_dim };
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Keys of the last panel, too. */
static uint64_t panelled(uint64_t keys)
{
    return amx_sides(keys) * AMX_SIDE;
}

static uint64_t of_runs(const struct cpu_most *m)
{
    return cpu_whole((m->limits->keys / m->limits->block_rows + 2) *
                     sizeof(struct attention_run));
}

/* open_room: of N queries of all threads, or of the heads of a single query, with
 * SCORES scores and PARTS sums of values. */
static uint64_t of_scores(const struct sizes *s, uint64_t n, uint64_t scores,
                          uint64_t parts)
{
    uint64_t floats = attention_whole_lines(scores) +
                      attention_whole_lines(parts * s->value_dim) +
                      attention_whole_lines(n);

    return cpu_whole(floats * sizeof(float) +
                     n * decode_int8_terms(s->dim) * sizeof(int16_t) +
                     s->threads * decode_int8_sum_size(s->value_dim));
}

/* prefill_bf16_open: keys and values in tiles, and of each thread queries and
 * weights. */
static uint64_t of_tiles(const struct sizes *s)
{
    uint64_t steps = panelled(s->dim), columns = panelled(s->value_dim);
    uint64_t keys = panelled(s->keys);

    return cpu_whole((s->kv_heads * keys * (steps + columns) +
                      s->threads * BLOCK * (steps + keys + 2 * AMX_SIDE)) *
                     sizeof(uint16_t));
}

/* bias_open, bias_open_sinks and bias_open_stream; a table of biases has a column for
 * each head of the model. */
static uint64_t of_biases(const struct cpu_most *m, const struct sizes *s)
{
    uint64_t distances = s->keys + s->rows;
    uint64_t sinks = cpu_whole(s->heads * sizeof(float));
    uint64_t table = m->inst->weight < 0 ? 0 : m->program->weight[m->inst->weight].cols;

    if (m->inst->op == OP_STREAM)
        return cpu_whole((s->keys + 1) * sizeof(size_t)) +
               cpu_whole(s->rows * s->heads * sizeof(float));
    if (m->inst->attention.sinks || m->inst->weight < 0)
        return sinks;
    return cpu_whole(distances * s->heads * sizeof(float)) +
           cpu_whole(distances * table * sizeof(float)) +
           cpu_whole(distances * sizeof(int32_t));
}

uint64_t attention_room(const struct cpu_most *m)
{
    const struct sizes s = sizes_of(m);
    uint64_t one = of_scores(&s, s.heads, s.heads * decode_score_stride(s.keys),
                             (s.keys / PART + 2) * s.heads);
    uint64_t many = of_scores(&s, s.threads * BLOCK,
                              s.threads * BLOCK * panelled(s.keys), s.threads * BLOCK);
    uint64_t wide =
        cpu_whole(s.threads * WIDE * larger(s.dim, s.value_dim) * sizeof(float));
    bool rounds = m->limits->rounded && !m->program->deterministic;

    return of_runs(m) + of_biases(m, &s) + (s.rows > 1 ? larger(one, many) : one) +
           wide + (rounds && s.rows > 1 ? of_tiles(&s) : 0);
}

uint64_t attention_room_back(const struct cpu_most *m)
{
    const struct sizes s = sizes_of(m);

    return of_runs(m) + of_biases(m, &s) +
           cpu_whole((s.keys + s.rows) * sizeof(int32_t)) +
           cpu_whole(s.heads * sizeof(float)) +
           cpu_whole(s.rows * s.heads * sizeof(float)) +
           cpu_whole(s.threads * 2 * BLOCK * s.keys * sizeof(float)) +
           cpu_whole(s.heads * s.keys * (s.dim + s.value_dim) * sizeof(float));
}

uint64_t attention_room_relate(const struct cpu_most *m)
{
    enum { QUERIES = RELATE_BLOCK };
    uint64_t n = m->limits->most[ROWS_TOKENS], used = 2 * n;
    uint64_t stride = m->inst->attention.heads * m->inst->attention.head_dim;

    if (2 * m->inst->attention.span < used)
        used = 2 * m->inst->attention.span;
    return cpu_whole(2 * n * sizeof(size_t)) +
           cpu_whole(m->threads * (n * used + QUERIES * (n + used)) * sizeof(float)) +
           cpu_whole(2 * stride * sizeof(float));
}

uint64_t attention_room_globals(const struct cpu_most *m)
{
    return cpu_whole(m->threads * GLOBALS_BLOCK * m->rows * sizeof(float)) +
           cpu_whole(m->threads * globals_parts(m->rows) * sizeof(struct globals_part));
}

/* The tables of biases while they are made, then these and the scores. */
uint64_t attention_room_side(const struct cpu_most *m)
{
    const struct program *p = m->program;
    const struct inst *inst = m->inst;
    uint64_t heads = inst->attention.heads, reach = inst->attention.window;
    uint64_t sides = program_rows(p, &p->value[inst->src[3]], m->limits->most);
    uint64_t near = side_distances(m->rows < reach ? m->rows : reach);
    uint64_t apart = side_distances(sides), most = larger(near, apart);

    return cpu_whole(near * heads * sizeof(float)) +
           cpu_whole(apart * heads * sizeof(float)) +
           cpu_whole(most * heads * sizeof(float)) + cpu_whole(most * sizeof(int32_t)) +
           cpu_whole(m->threads * SIDE_BLOCK * (near + SIDE_BLOCK + sides) *
                     sizeof(float));
}
