/* print - programs as text and as JSON */
#include "lib/program/print.h"

#include <ctype.h>
#include <inttypes.h>

static const char *const place_names[] = {
    [PLACE_WHOLE] = "replicated", [PLACE_CUT] = "sharded", [PLACE_PARTIAL] = "partial"
};
/* The operation's name; collectives are spelled all-reduce, all-gather. */
static void add_operation(struct str *out, const struct inst *inst)
{
    const struct op_info *op = &op_table[inst->op];

    for (const char *c = op->name; *c; c++)
        str_addc(out, *c == '_' && op->collective != COLLECTIVE_NONE ? '-' : *c);
}

static bool is_collective(const struct inst *inst)
{
    return op_table[inst->op].collective != COLLECTIVE_NONE;
}

static const char *tensor_name(const struct program *p, int weight)
{
    return p->model->tensor[p->weight[weight].tensor].name;
}

/* Leaves of the tree by which INST sums; 0: it has none. */
static int leaves_of(const struct program *p, const struct inst *inst)
{
    int tree = 0;

    if (inst->op == OP_LINEAR || inst->op == OP_MATMUL)
        tree = inst->tree;
    else if (inst->op == OP_ROW_SUM || inst->op == OP_ROW_SQUARES)
        tree = inst->norm.tree;
    return tree ? p->tree[tree - 1].n : 0;
}

/* The family's line whose result INST makes; NULL for a value inside a line. */
static const char *line_of(const struct program *p, const struct inst *inst)
{
    return p->value[inst->dst].name ? p->line[inst->line] : NULL;
}

static double bytes_of(const struct cost *c)
{
    return c->sharded + c->whole + c->weights;
}

/* "f32" */
static void add_dtype(struct str *out, enum dtype dtype)
{
    for (const char *c = dtype_name(dtype); *c; c++)
        str_addc(out, (char)tolower((unsigned char)*c));
}

/* X without superfluous digits. */
static void add_number(struct str *out, double x)
{
    if (x < 1e15 && x == (double)(uint64_t)x)
        str_addf(out, "%" PRIu64, (uint64_t)x);
    else
        str_addf(out, "%.6g", x);
}

/* ---- as text ---- */

static void add_value(struct str *out, const struct program *p, int value)
{
    const struct value *v = &p->value[value];

    if (v->gradient) {
        const struct weight *w = &p->weight[v->gradient - 1];

        str_addf(out, "%%%d [%" PRIu64 "][%" PRIu64 "] f32 gradient of %s%s", value,
                 w->rows, w->cols, tensor_name(p, v->gradient - 1),
                 w->summed ? ", to be summed over tp" : "");
        return;
    }
    str_addf(out, "%%%d [%s][%" PRIu64, value, p->rows.v[v->rows].name, v->cols);
    if (v->place == PLACE_CUT)
        str_addf(out, " of %" PRIu64, v->whole_cols);
    str_add(out, "] ");
    add_dtype(out, v->dtype);
    str_addf(out, " %s", place_names[v->place]);
}

static void add_weight(struct str *out, const struct program *p, int weight)
{
    const struct weight *w = &p->weight[weight];

    str_addf(out, "%s%s%s [%" PRIu64 "][%" PRIu64 "]", tensor_name(p, weight),
             w->adapter ? " " : "", w->adapter ? program_part_names[w->part] : "",
             w->rows, w->cols);
    if (w->experts)
        str_addf(out, " x %" PRIu64, w->experts);
}

/* The column of an input that an embedding reads. */
static void add_column(struct str *out, const struct program *p,
                       const struct inst *inst)
{
    const struct model_feed *f = p->input[inst->embedding.input].feed;

    str_addf(out, ", %s", f->name);
    if (f->axis.size > 1)
        str_addf(out, ".%d", inst->embedding.column);
    if (inst->embedding.minus >= 0)
        str_addf(out, " - %s.%d", f->name, inst->embedding.minus);
}

static void add_operands(struct str *out, const struct program *p,
                         const struct inst *inst)
{
    const int weight[] = { inst->weight, inst->weight2 };
    bool first = true;

    str_addc(out, '(');
    for (int k = 0; k < inst->nsrc; k++, first = false) {
        str_add(out, first ? "" : ", ");
        add_value(out, p, inst->src[k]);
    }
    for (int k = 0; k < 2; k++) {
        if (weight[k] < 0)
            continue;
        str_add(out, first ? "" : ", ");
        add_weight(out, p, weight[k]);
        first = false;
    }
    if (inst->op == OP_EMBEDDING)
        add_column(out, p, inst);
    if (inst->op == OP_INPUT)
        str_add(out, p->input[inst->input].feed->name);
    if (inst->op == OP_DROPOUT)
        str_addf(out, ", %g", inst->drop.rate);
    if (inst->op == OP_ATTENTION && inst->attention.drop > 0)
        str_addf(out, ", dropout %g", inst->attention.drop);
    str_addc(out, ')');
}

static void add_instruction(struct str *out, const struct program *p,
                            const struct inst *inst, const struct cost_step *s)
{
    const struct value *v = &p->value[inst->dst];
    struct cost c = cost_of(p, inst, s);
    const char *line = line_of(p, inst);

    if (inst->parts) {
        str_addf(out, "%s of the next %d\n", op_table[inst->op].name, inst->parts);
        return;
    }
    add_value(out, p, inst->dst);
    str_add(out, " = ");
    add_operation(out, inst);
    add_operands(out, p, inst);
    if (is_collective(inst))
        str_addf(out, " over %s", mesh_axis_names[cost_over(inst)]);
    if (leaves_of(p, inst))
        str_addf(out, " by a tree of %d", leaves_of(p, inst));
    str_add(out, "; rows ");
    add_number(out, cost_rows(p, v, s));
    str_add(out, ", bytes ");
    add_number(out, is_collective(inst) ? cost_bytes(p, v, s) : bytes_of(&c));
    str_add(out, ", FLOPs ");
    add_number(out, c.products + c.attention);
    str_addf(out, "%s%s\n", line ? "  # " : "", line ? line : "");
}

static void add_boundary(struct str *out, const struct program *p, const char *what,
                         const int *v, int n)
{
    for (int i = 0; i < n; i++) {
        str_add(out, i ? ", " : what);
        add_value(out, p, v[i]);
        str_add(out, i == n - 1 ? "\n" : "");
    }
}

/* The name of a kind of collective. */
static void add_collective(struct str *out, const struct program *p,
                           enum op_collective kind)
{
    for (int i = 0; i < p->ninsts; i++)
        if (op_table[p->inst[i].op].collective == kind) {
            add_operation(out, &p->inst[i]);
            return;
        }
}

void print_program(struct str *out, const struct program *p, const struct cost_step *s)
{
    struct cost_collective all[COLLECTIVE_KINDS][MESH_NAXES] = { 0 };
    struct cost sum = cost_program(p, s);

    add_boundary(out, p, "receive ", p->import, p->nimports);
    for (int i = 0; i < p->nforward; i++)
        add_instruction(out, p, &p->inst[i], s);
    add_boundary(out, p, "send ", p->export, p->nexports);
    if (p->back_import)
        add_boundary(out, p, "receive back ", p->back_import, p->nexports);
    for (int i = p->nforward; i < p->ninsts; i++)
        add_instruction(out, p, &p->inst[i], s);
    if (p->back_export)
        add_boundary(out, p, "send back ", p->back_export, p->nimports);
    cost_collectives(all, p, s);
    for (int k = 0; k < COLLECTIVE_KINDS; k++)
        for (int a = 0; a < MESH_NAXES; a++) {
            if (!(all[k][a].count > 0))
                continue;
            str_add(out, "collectives: ");
            add_number(out, all[k][a].count);
            str_addc(out, ' ');
            add_collective(out, p, (enum op_collective)k);
            str_addf(out, " over %s of %d, bytes ", mesh_axis_names[a],
                     p->mesh.size[a]);
            add_number(out, all[k][a].bytes);
            str_addc(out, '\n');
        }
    str_addf(out, "total: instructions %d, bytes ", p->ninsts);
    add_number(out, bytes_of(&sum));
    str_add(out, " (weights ");
    add_number(out, sum.weights);
    str_add(out, "), FLOPs ");
    add_number(out, sum.products + sum.attention);
    str_add(out, " (attention ");
    add_number(out, sum.attention);
    str_add(out, ")\n");
}

/* ---- as JSON ---- */

static void json_value(struct str *out, const struct program *p, int value,
                       const struct cost_step *s)
{
    const struct value *v = &p->value[value];

    str_addf(out, "{\"value\":%d,\"row_kind\":\"%s\",\"rows\":", value,
             p->rows.v[v->rows].name);
    add_number(out, cost_rows(p, v, s));
    str_addf(out, ",\"columns\":%" PRIu64 ",\"whole_columns\":%" PRIu64 ",\"dtype\":\"",
             v->cols, v->whole_cols);
    add_dtype(out, v->dtype);
    str_addf(out, "\",\"placement\":\"%s\"}", place_names[v->place]);
}

static void json_weights(struct str *out, const struct program *p,
                         const struct inst *inst)
{
    const int weight[] = { inst->weight, inst->weight2 };
    bool first = true;

    for (int k = 0; k < 2; k++) {
        const struct weight *w = weight[k] < 0 ? NULL : &p->weight[weight[k]];

        if (!w)
            continue;
        str_add(out, first ? "{\"tensor\":" : ",{\"tensor\":");
        str_add_json(out, tensor_name(p, weight[k]));
        str_addf(out, ",\"rows\":%" PRIu64 ",\"columns\":%" PRIu64 ",\"experts\":%u}",
                 w->rows, w->cols, (unsigned)w->experts);
        first = false;
    }
}

static void json_instruction(struct str *out, const struct program *p, int i,
                             const struct cost_step *s, int rank)
{
    const struct inst *inst = &p->inst[i];
    const struct value *v = &p->value[inst->dst];
    struct cost c = cost_of(p, inst, s);

    str_addf(out, "{\"type\":\"instruction\",\"rank\":%d,\"index\":%d,\"op\":\"", rank,
             i);
    add_operation(out, inst);
    if (inst->parts) {
        str_addf(out, "\",\"parts\":%d}\n", inst->parts);
        return;
    }
    str_add(out, "\",\"result\":");
    json_value(out, p, inst->dst, s);
    str_add(out, ",\"operands\":[");
    for (int k = 0; k < inst->nsrc; k++) {
        str_add(out, k ? "," : "");
        json_value(out, p, inst->src[k], s);
    }
    str_add(out, "],\"weights\":[");
    json_weights(out, p, inst);
    str_add(out, "],\"bytes\":");
    add_number(out, is_collective(inst) ? cost_bytes(p, v, s) : bytes_of(&c));
    str_add(out, ",\"weight_bytes\":");
    add_number(out, c.weights);
    str_add(out, ",\"flops\":");
    add_number(out, c.products + c.attention);
    if (is_collective(inst))
        str_addf(out, ",\"over\":\"%s\",\"group\":%d", mesh_axis_names[cost_over(inst)],
                 p->mesh.size[cost_over(inst)]);
    if (leaves_of(p, inst))
        str_addf(out, ",\"leaves\":%d", leaves_of(p, inst));
    if (line_of(p, inst)) {
        str_add(out, ",\"line\":");
        str_add_json(out, line_of(p, inst));
    }
    str_add(out, "}\n");
}

void print_program_json(struct str *out, const struct program *p,
                        const struct cost_step *s, int rank)
{
    struct cost_collective all[COLLECTIVE_KINDS][MESH_NAXES] = { 0 };
    struct cost sum = cost_program(p, s);
    bool first = true;

    for (int i = 0; i < p->ninsts; i++)
        json_instruction(out, p, i, s, rank);
    str_addf(out,
             "{\"type\":\"program\",\"rank\":%d,\"instructions\":%d,\"bytes\":", rank,
             p->ninsts);
    add_number(out, bytes_of(&sum));
    str_add(out, ",\"weight_bytes\":");
    add_number(out, sum.weights);
    str_add(out, ",\"flops\":");
    add_number(out, sum.products + sum.attention);
    str_add(out, ",\"attention_flops\":");
    add_number(out, sum.attention);
    str_add(out, ",\"collectives\":[");
    cost_collectives(all, p, s);
    for (int k = 0; k < COLLECTIVE_KINDS; k++)
        for (int a = 0; a < MESH_NAXES; a++) {
            if (!(all[k][a].count > 0))
                continue;
            str_add(out, first ? "{\"op\":\"" : ",{\"op\":\"");
            add_collective(out, p, (enum op_collective)k);
            str_addf(out,
                     "\",\"over\":\"%s\",\"group\":%d,\"count\":", mesh_axis_names[a],
                     p->mesh.size[a]);
            add_number(out, all[k][a].count);
            str_add(out, ",\"bytes\":");
            add_number(out, all[k][a].bytes);
            str_addc(out, '}');
            first = false;
        }
    str_add(out, "]}\n");
}
