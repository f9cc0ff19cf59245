/* program - the forward pass of one rank as instructions, typed and placed */
#include "lib/program/program.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/program/build.h"
#include "lib/program/pass-reverse.h"
#include "lib/program/pass.h"
#include "lib/program/rotary.h"

/* ---- names ---- */

static struct binding *find_binding(struct builder *b, const char *name)
{
    for (size_t i = b->nbind; i-- > 0;)
        if (!strcmp(b->bind[i].name, name))
            return &b->bind[i];
    return NULL;
}

/* Binds NAME to V.  A name is assigned once in a section or layer, but a layer's result
 * may take the name of the layer's input. */
static int assign(struct builder *b, const char *name, int v, int depth)
{
    struct binding *old = find_binding(b, name);

    if (old && (old->assigned || depth == 0))
        return build_error(b, 0, "'%s' is assigned twice", name);
    if (old) {
        old->value = v;
        old->assigned = true;
        return 0;
    }
    b->bind = xgrow(b->bind, &b->bind_cap, b->nbind + 1, sizeof(*b->bind));
    b->bind[b->nbind++] =
        (struct binding){ .name = name, .value = v, .depth = depth, .assigned = true };
    return 0;
}

/* Forgets the names local to the layer; keeps those that go on to the next one. */
static void end_section(struct builder *b)
{
    size_t n = 0;

    for (size_t i = 0; i < b->nbind; i++) {
        if (b->bind[i].depth > 0)
            continue;
        b->bind[n] = b->bind[i];
        b->bind[n++].assigned = false;
    }
    b->nbind = n;
}

static void add_output(struct builder *b, char *name, int value)
{
    struct program *p = b->p;

    p->output = xrealloc(p->output, sizeof(*p->output) * (size_t)(p->noutputs + 1));
    p->output[p->noutputs++] = (struct program_output){ .name = name, .value = value };
}

/* ---- lines ---- */

static char *line_label(const struct builder *b, const char *name)
{
    const char *section = model_sections(b->m, NULL)[b->section].name;

    return b->layer < 0 ? str_dupf("%s.%s", section, name)
                        : str_dupf("%s.%d.%s", section, b->layer, name);
}

static void add_line(struct builder *b)
{
    char *label = line_label(b, b->line->name);
    struct program *p = b->p;

    p->line = xgrow(p->line, &b->line_cap, (size_t)p->nlines + 1, sizeof(*p->line));
    p->line[p->nlines++] = str_dupf("%s = %s", label, b->line->text);
    free(label);
}

/* Adds V to the outputs: its rows of this step, replicated. */
static void trace(struct builder *b, const char *name, int v)
{
    const struct program *p = b->p;

    if (p->value[v].kept)
        v = p->inst[p->value[v].first].src[0];
    add_output(b, line_label(b, name), build_whole(b, v));
}

static bool has_tensor(const struct builder *b, const char *key)
{
    return model_tensor_at(b->m, key, strlen(key), b->layer, -1) >= 0;
}

static int build_line(struct builder *b, const struct family_line *line, int depth)
{
    struct operand out;
    struct node *tree;
    struct err e = { 0 };
    bool wanted;
    int ret = -1;

    b->line = line;
    if (model_when(b->m, line->doc, line->when, b->layer, b->opt->training, &wanted,
                   b->err) < 0)
        return -1;
    if (wanted && line->needs)
        wanted = has_tensor(b, line->needs);
    if (wanted && line->lacks)
        wanted = !has_tensor(b, line->lacks);
    if (!wanted)
        return 0;
    add_line(b);
    if (line_parse_tree(&tree, line->text, &e) < 0) {
        return build_error(b, e.column - 1, "%s", e.text);
    }
    if (eval_tree(b, tree, &out) < 0)
        goto out;
    if (out.kind != OPERAND_VALUE) {
        build_error(b, 0, "'%s' is no value", line->name);
        goto out;
    }
    if (!b->p->value[out.index].name)
        b->p->value[out.index].name = line->name;
    if (assign(b, line->name, out.index, depth) < 0)
        goto out;
    if (b->opt->trace)
        trace(b, line->name, out.index);
    ret = 0;
out:
    node_free(tree);
    return ret;
}

static int build_sections(struct builder *b)
{
    int n;
    const struct model_section *section = model_sections(b->m, &n);

    for (b->section = 0; b->section < n; b->section++) {
        const struct model_section *sec = &section[b->section];
        const struct family_section *lines = &model_family(b->m)->section[b->section];

        b->last_section = b->section == n - 1 && !sec->repeated;
        for (int i = 0; i < sec->count; i++) {
            b->layer = sec->repeated ? i : -1;
            for (size_t k = 0; k < lines->n; k++)
                if (build_line(b, &lines->line[k], sec->repeated) < 0)
                    return -1;
            if (!b->last_section)
                end_section(b);
        }
    }
    b->section = -1;
    b->layer = -1;
    return 0;
}

/* ---- outputs ---- */

static const char *const output_names[] = { "logits", "last_hidden_state",
                                            "pooler_output", "seq_relationship_logits",
                                            NULL };

/* The sum of each row of V over the columns of all ranks. */
static int sum_columns(struct builder *b, int v)
{
    struct inst *inst =
        build_emit_plain(b, OP_ROW_SUM, 1, DTYPE_F64, b->p->value[v].rows);
    int sum = inst->dst;

    inst->src[inst->nsrc++] = v;
    inst->norm.width = b->p->value[v].cols;
    inst->norm.whole_width = b->p->value[v].whole_cols;
    inst->norm.owned = true;
    if (b->p->value[v].place != PLACE_CUT)
        return sum;
    b->p->value[sum].place = PLACE_PARTIAL;
    return build_sum(b, sum, MESH_TP);
}

/* One column computed from each row of the logits by way of its OP_ROW_STATS, which are
 * all-gathered if the logits are sharded. */
static int row_result(struct builder *b, enum op op, int logits, const char *name)
{
    enum { STATS = 4 };
    uint64_t first = 0, vocab = b->p->value[logits].whole_cols;
    int rows = b->p->value[logits].rows;
    struct inst *inst;
    int stats, sum = -1;

    if (b->p->value[logits].place == PLACE_PARTIAL ||
        (b->opt->deterministic && op == OP_NLL))
        logits = build_whole(b, logits);
    if (b->p->value[logits].place == PLACE_CUT)
        first = b->share[axis_dealt(&b->type[logits].col, &b->m->scope)].start;
    inst = build_emit_plain(b, OP_ROW_STATS, STATS, DTYPE_F64, rows);
    inst->src[inst->nsrc++] = logits;
    inst->row.first = first;
    inst->row.vocab = vocab;
    stats = inst->dst;
    if (b->p->value[logits].place == PLACE_CUT)
        stats = build_collect(b, stats, STATS * (uint64_t)b->p->mesh.size[MESH_TP]);
    if (op == OP_NLL && b->opt->smooth > 0)
        sum = sum_columns(b, logits);
    inst = build_emit_plain(b, op, 1, op == OP_NLL ? DTYPE_F32 : DTYPE_I32, rows);
    inst->src[inst->nsrc++] = stats;
    if (sum >= 0) {
        inst->src[inst->nsrc++] = sum;
        inst->row.vocab = vocab;
        inst->row.smooth = b->opt->smooth;
    }
    if (op == OP_NLL)
        inst->row.z = b->opt->z;
    add_output(b, xstrdup(name), inst->dst);
    return 0;
}

/* The balance of experts, from the sums of all layers. */
static int balance_result(struct builder *b)
{
    struct inst *inst;
    int sums;

    if (!b->opt->balance)
        return 0;
    if (!b->balance.sums)
        return err_set(b->err, ERR_NO,
                       "family %s: this model has no router whose experts could be "
                       "balanced",
                       b->m->family);
    sums = build_shared_rows(b, b->balance.sums - 1);
    inst = build_emit_plain(b, OP_BALANCE, 2, DTYPE_F32, ROWS_ONE);
    inst->src[inst->nsrc++] = sums;
    inst->top = b->balance.top;
    add_output(b, xstrdup("balance"), inst->dst);
    return 0;
}

static void draw_result(struct builder *b, int logits)
{
    struct inst *inst =
        build_emit_plain(b, OP_SAMPLE, 1, DTYPE_I32, b->p->value[logits].rows);

    inst->src[inst->nsrc++] = logits;
    add_output(b, xstrdup("next"), inst->dst);
    if (b->opt->keeps_logits)
        add_output(b, xstrdup("logits"), logits);
}

/* The states that the head reads: the source of the last product on the way to the
 * logits, which may be scaled or capped after it; -1: there is none. */
static int head_source(const struct builder *b, int v)
{
    for (int i = b->p->ninsts; i-- > 0;) {
        const struct inst *inst = &b->p->inst[i];

        if (inst->dst != v)
            continue;
        if (inst->nsrc == 0)
            return -1;
        v = inst->src[0];
        if (inst->op == OP_LINEAR)
            return v;
    }
    return -1;
}

/* Decoders with a head do not name their hidden states; they are asked for by name. */
static void add_hidden_states(struct builder *b, const struct binding *logits)
{
    int v = logits && !b->p->source ? head_source(b, logits->value) : -1;

    if (v >= 0)
        add_output(b, xstrdup(b->opt->only), build_whole(b, v));
}

static int build_tail(struct builder *b)
{
    const struct binding *logits = find_binding(b, "logits");

    if (b->opt->tail != TAIL_NONE && !logits)
        return err_set(b->err, ERR_INPUT, "family %s: this model has no logits",
                       b->m->family);
    switch (b->opt->tail) {
    case TAIL_NLL:
        return row_result(b, OP_NLL, logits->value, "nll") < 0 ? -1 : balance_result(b);
    case TAIL_ARGMAX:
        return row_result(b, OP_ARGMAX, logits->value, "next");
    case TAIL_SAMPLE:
        draw_result(b, build_whole(b, logits->value));
        return 0;
    case TAIL_LOGITS:
        add_output(b, xstrdup("logits"), build_whole(b, logits->value));
        return 0;
    case TAIL_NONE:
        break;
    }
    for (int i = 0; output_names[i]; i++) {
        const struct binding *out = find_binding(b, output_names[i]);

        if (out && (!b->opt->only || !strcmp(b->opt->only, output_names[i])))
            add_output(b, xstrdup(output_names[i]), build_whole(b, out->value));
    }
    if (!b->p->noutputs && b->opt->only && !strcmp(b->opt->only, "last_hidden_state"))
        add_hidden_states(b, logits);
    if (!b->p->noutputs && b->opt->only)
        return err_set(b->err, ERR_INPUT, "family %s: this model has no %s",
                       b->m->family, b->opt->only);
    if (!b->p->noutputs)
        return err_set(b->err, ERR_INPUT, "family %s: the forward pass has no output",
                       b->m->family);
    return 0;
}

/* ---- building ---- */

static int build_ropes(struct builder *b)
{
    const struct family_table *t = &model_family(b->m)->rope;
    struct program *p = b->p;

    p->rope = xcalloc(t->n + 1, sizeof(*p->rope));
    b->angles = xmalloc(sizeof(*b->angles) * (t->n * ROWS_MOST + 1));
    for (size_t i = 0; i < t->n * ROWS_MOST; i++)
        b->angles[i] = -1;
    for (size_t i = 0; i < t->n; i++) {
        if (rotary_init(&p->rope[i], b->m, &t->v[i], b->err) < 0)
            return -1;
        p->nropes++;
        p->dynamic_rope |= p->rope[i].dynamic;
    }
    return 0;
}

/* The spaces of the model's inputs. */
static int declare_inputs(struct builder *b)
{
    struct program *p = b->p;
    const struct model_feed *feed = model_feeds(b->m, &p->ninputs);

    rows_init(&p->rows);
    for (int i = 0; i < p->ninputs; i++) {
        p->input[i].feed = &feed[i];
        p->input[i].rows = rows_give(&p->rows, feed[i].rows, strlen(feed[i].rows));
        if (p->input[i].rows < 0)
            return err_set(b->err, ERR_INPUT, "family %s: input '%s' has no rows '%s'",
                           b->m->family, feed[i].name, feed[i].rows);
    }
    return 0;
}

/* Finds the inputs that instructions read; the ids and positions of tokens are always
 * there. */
static void find_read(struct program *p)
{
    p->input[FEED_IDS].read = p->input[FEED_POSITIONS].read = true;
    for (int i = 0; i < p->ninsts; i++) {
        const struct inst *inst = &p->inst[i];
        const enum op op = inst->op;

        if (op == OP_EMBEDDING || op == OP_EMBEDDING_BACK)
            p->input[inst->embedding.input].read = true;
        else if (op == OP_INPUT)
            p->input[inst->input].read = true;
        else if (op == OP_GLOBAL_ATTENTION)
            p->input[inst->attention.mask].read = true;
        else if (op == OP_RELATE_XL && inst->weight >= 0)
            p->input[FEED_TOKEN_TYPES].read = true;
        else if (op == OP_ANGLES || op == OP_SINUSOID || op == OP_TEMPER)
            p->input[program_positions(p, inst)].read = true;
    }
}

int program_build(struct program **out, const struct model *model,
                  const struct mesh *mesh, const int coord[MESH_NAXES],
                  const struct program_options *opt, struct err *err)
{
    struct program *p = xcalloc(1, sizeof(*p));
    struct builder b = { .p = p,
                         .m = model,
                         .opt = opt,
                         .err = err,
                         .section = -1,
                         .layer = -1,
                         .mixture = -1,
                         .expert = -1 };
    int ret = -1;

    p->model = model;
    p->mesh = *mesh;
    memcpy(p->coord, coord, sizeof(p->coord));
    p->rounded = opt->rounded;
    p->half = opt->half;
    p->deterministic = opt->deterministic;
    if (model_check_mesh(model, mesh, err) < 0)
        goto out;
    b.share = model_shares(model, mesh, coord);
    b.weight_of = xcalloc(model->ntensors + 1, sizeof(*b.weight_of));
    if (declare_inputs(&b) < 0 || build_ropes(&b) < 0 || build_sections(&b) < 0 ||
        build_tail(&b) < 0)
        goto out;
    if (b.beside && p->causal) {
        err_set(err, ERR_INPUT,
                "family %s: a causal model cannot read the rows beside a token's own",
                model->family);
        goto out;
    }
    find_read(p);
    for (int i = 0; i < p->ninputs; i++) {
        p->input[i].used = p->input[i].read;
        p->input[i].read = false;
    }
    if (pass_run(&b) < 0)
        goto out;
    find_read(p);
    *out = p;
    ret = 0;
out:
    for (int i = 0; i < p->nvalues; i++)
        axis_clear(&b.type[i].col);
    free(b.type);
    free(b.share);
    free(b.weight_of);
    for (size_t i = 0; i < b.nviews; i++)
        free(b.view[i]);
    free(b.view);
    free(b.angles);
    free(b.bind);
    if (ret < 0)
        program_free(p);
    return ret;
}

enum feed program_positions(const struct program *p, const struct inst *inst)
{
    int rows = p->value[inst->dst].rows;

    return rows == ROWS_SOURCE  ? FEED_SOURCE_POSITIONS
           : rows == ROWS_TABLE ? FEED_EVERY
                                : FEED_POSITIONS;
}

unsigned program_bf16(const struct program *p, const struct inst *inst)
{
    unsigned set = p->value[inst->dst].dtype == DTYPE_BF16 ? BF16_RESULT : 0;

    for (int k = 0; k < inst->nsrc; k++)
        set |= p->value[inst->src[k]].dtype == DTYPE_BF16 ? 1U << k : 0;
    return set;
}

/* ---- weights ---- */

const char *const program_part_names[] = { [ADAPTER_A] = "lora_A",
                                           [ADAPTER_B] = "lora_B",
                                           [ADAPTER_MAGNITUDE] =
                                               "lora_magnitude_vector",
                                           [ADAPTER_NORM] = "inverse norms" };

bool program_trains(const struct program *p, int i)
{
    const struct weight *w = &p->weight[i];

    return w->adapter
               ? p->model->adapter[w->adapter - 1].trained && w->part != ADAPTER_NORM
               : !p->model->tensor[w->tensor].frozen;
}

int program_weight_axes(const struct program *p, int i,
                        const struct axis *axis[MODEL_MAX_DIMS])
{
    const struct weight *w = &p->weight[i];
    const struct model_tensor *t = &p->model->tensor[w->tensor];

    if (w->adapter)
        return model_adapter_axes(p->model, (size_t)w->adapter - 1, w->part, axis);
    memcpy(axis, t->axis, (size_t)t->ndim * sizeof(*axis));
    return t->ndim;
}

char *program_weight_name_dup(const struct program *p, int i)
{
    const struct weight *w = &p->weight[i];

    return str_dupf("%s%s%s", p->model->tensor[w->tensor].name, w->adapter ? " " : "",
                    w->adapter ? program_part_names[w->part] : "");
}

void program_free(struct program *p)
{
    if (!p)
        return;
    for (int i = 0; i < p->nropes; i++)
        rotary_clear(&p->rope[i]);
    for (int i = 0; i < p->ngathers; i++) {
        for (int k = 0; k < p->gather[i].parts; k++)
            runs_clear(&p->gather[i].runs[k]);
        free(p->gather[i].runs);
    }
    for (int i = 0; i < p->noutputs; i++)
        free((char *)p->output[i].name);
    for (int i = 0; i < p->nlines; i++)
        free(p->line[i]);
    free(p->value);
    free(p->inst);
    free(p->weight);
    free(p->rope);
    free(p->gather);
    for (int i = 0; i < p->nmixtures; i++)
        free(p->mixture[i].deal);
    free(p->mixture);
    free(p->tree);
    free(p->slot_value);
    free(p->output);
    free(p->line);
    free(p->import);
    free(p->export);
    free(p->back_import);
    free(p->back_export);
    free(p);
}
