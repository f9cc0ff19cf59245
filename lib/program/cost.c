/* cost - FLOPs, bytes and collectives of a program, summed from the table of
 * operations */
#include "lib/program/cost.h"

#include <math.h>

/* ---- steps ---- */

struct cost_step cost_token(double tokens)
{
    struct cost_step s = { .keys = tokens,
                           .whole = true,
                           .value_bytes = sizeof(float),
                           .weight_bytes = sizeof(float) };

    s.rows[ROWS_TOKENS] = s.rows[ROWS_WANTED] = s.rows[ROWS_SOURCE] = 1;
    s.rows[ROWS_ONE] = 1 / tokens;
    return s;
}

struct cost_step cost_prompt(double tokens)
{
    struct cost_step s = cost_token(tokens);

    s.rows[ROWS_TOKENS] = s.rows[ROWS_SOURCE] = tokens;
    s.rows[ROWS_WANTED] = s.rows[ROWS_ONE] = 1;
    return s;
}

/* ---- instructions ---- */

static bool multiplies(const struct inst *inst)
{
    return op_table[inst->op].traffic == TRAFFIC_PRODUCT;
}

/* Rows of mixture M that this rank's experts get, if all experts get as many. */
static double chosen_rows(const struct mixture *m, const struct cost_step *s)
{
    double senders = s->senders > 0 ? s->senders : 1;

    return s->rows[m->rows] * senders * (double)(m->count * m->top) / (double)m->all;
}

double cost_rows(const struct program *p, const struct value *value,
                 const struct cost_step *s)
{
    const struct mixture *m = value->mixture < 0 ? NULL : &p->mixture[value->mixture];
    double ratio;
    int known;

    if (m)
        return value->rows == ROWS_SENT ? s->rows[m->rows] * (double)m->top
                                        : chosen_rows(m, s);
    if (value->kept && !s->whole)
        return s->keys;
    if (value->rows == ROWS_TABLE) /* once per sequence */
        return s->rows[ROWS_ONE] * (double)p->rows.v[ROWS_TABLE].bound;
    ratio = rows_ratio(&p->rows, value->rows, &known);
    return s->rows[known] * ratio;
}

double cost_bytes(const struct program *p, const struct value *value,
                  const struct cost_step *s)
{
    double each = value->dtype == DTYPE_F32 ? s->value_bytes
                                            : (double)dtype_bits(value->dtype) / 8;

    return cost_rows(p, value, s) * (double)value->cols * each;
}

double cost_keys(const struct inst *inst, const struct cost_step *s)
{
    struct op_scores scores = op_scores(inst);
    double window = (double)scores.window;

    if (!scores.window || window > s->keys || s->dense)
        window = s->keys;
    if (s->dense || !s->whole || !scores.causal || s->keys <= 0)
        return window;
    /* row i of n sees min(i, window) keys; this is the mean over i */
    return window - window * window / (2 * s->keys);
}

double cost_weights(const struct program *p, const struct inst *inst, double rows)
{
    const struct mixture *m = inst->mixture < 0 ? NULL : &p->mixture[inst->mixture];
    double n;

    if (!multiplies(inst))
        return 0;
    n = op_flops(p, inst).row / 2;
    if (!m)
        return n;
    return n * (double)m->count * (1 - pow(1 - (double)m->top / (double)m->all, rows));
}

static double weight_bytes(const struct program *p, const struct inst *inst,
                           const struct cost_step *s)
{
    const struct mixture *m = inst->mixture < 0 ? NULL : &p->mixture[inst->mixture];
    double rows = 0, each = s->weight_bytes;

    if (!multiplies(inst))
        return 0;
    if (m)
        rows = s->rows[m->rows] * (s->senders > 0 ? s->senders : 1);
    if (s->each)
        each = s->each[inst->weight];
    return each * cost_weights(p, inst, rows);
}

/* Rows that INST works on: rows of its result, or of its first source if the result is
 * the gradient of a weight. */
static double worked_rows(const struct program *p, const struct inst *inst,
                          const struct cost_step *s)
{
    int v = p->value[inst->dst].gradient ? inst->src[0] : inst->dst;

    return cost_rows(p, &p->value[v], s);
}

/* Source K of INST; -1: its result.  OP_KEEP writes only the rows that it appends. */
static const struct value *moved_value(const struct program *p, const struct inst *inst,
                                       int k)
{
    if (k < 0 && op_table[inst->op].role != ROLE_CACHE)
        return &p->value[inst->dst];
    return &p->value[inst->src[k < 0 ? 0 : k]];
}

struct cost cost_of(const struct program *p, const struct inst *inst,
                    const struct cost_step *s)
{
    const struct op_info *op = &op_table[inst->op];
    double rows = worked_rows(p, inst, s);
    struct op_flops flops = op_flops(p, inst);
    struct cost c = { .products = rows * flops.row,
                      .weights = weight_bytes(p, inst, s) };

    if (flops.key > 0)
        c.attention = rows * flops.key * cost_keys(inst, s);
    for (int k = -1; k < inst->nsrc && op->traffic != TRAFFIC_NOTHING; k++) {
        bool copies = op->traffic == TRAFFIC_COPIES;
        const struct value *v = moved_value(p, inst, copies ? -1 : k);

        if (k < 1 || !copies)
            *(v->cols < v->whole_cols ? &c.sharded : &c.whole) +=
                cost_bytes(p, v, s) * (v->gradient ? 2 : 1); /* += reads it as well */
    }
    return c;
}

void cost_add(struct cost *sum, const struct cost *c)
{
    sum->products += c->products;
    sum->attention += c->attention;
    sum->sharded += c->sharded;
    sum->whole += c->whole;
    sum->weights += c->weights;
}

struct cost cost_program(const struct program *p, const struct cost_step *s)
{
    struct cost sum = { 0 };

    for (int i = 0; i < p->ninsts; i++) {
        struct cost c = cost_of(p, &p->inst[i], s);

        cost_add(&sum, &c);
    }
    return sum;
}

/* ---- collectives ---- */

enum mesh_axis cost_over(const struct inst *inst)
{
    switch (op_table[inst->op].collective) {
    case COLLECTIVE_ALL_REDUCE:
        return inst->over;
    case COLLECTIVE_ALL_TO_ALL:
        return MESH_EP;
    default:
        return MESH_TP;
    }
}

void cost_collectives(struct cost_collective out[COLLECTIVE_KINDS][MESH_NAXES],
                      const struct program *p, const struct cost_step *s)
{
    for (int i = 0; i < p->ninsts; i++) {
        const struct inst *inst = &p->inst[i];
        struct cost_collective *c =
            &out[op_table[inst->op].collective][cost_over(inst)];

        if (op_table[inst->op].collective == COLLECTIVE_NONE)
            continue;
        c->count++;
        c->bytes += cost_bytes(p, &p->value[inst->dst], s);
    }
}
