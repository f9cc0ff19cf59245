/* unit-model - meshes, deals, shapes, expressions and cuts */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/model/axis.h"
#include "lib/model/deal.h"
#include "lib/model/expr.h"
#include "lib/model/family.h"
#include "lib/model/mesh.h"
#include "lib/model/model.h"
#include "lib/reshard/cut.h"
#include "tests/tap.h"

/* "start+count" of each part, '*' after parts that own their share. */
static char *deal_text(uint64_t n, uint64_t grain, int parts)
{
    struct str s = { 0 };

    for (int p = 0; p < parts; p++) {
        struct share share = deal_units(n, grain, parts, p);

        str_addf(&s, "%s%d+%d", p ? " " : "", (int)share.start, (int)share.count);
    }
    return str_steal(&s);
}

static char *groups_text(uint64_t groups, uint64_t per_group, int parts)
{
    struct str s = { 0 };

    for (int p = 0; p < parts; p++) {
        struct share group, within;

        deal_groups(groups, per_group, parts, p, &group, &within);
        str_addf(&s, "%s%d+%d%s:%d+%d", p ? " " : "", (int)group.start,
                 (int)group.count, group.owned ? "*" : "", (int)within.start,
                 (int)within.count);
    }
    return str_steal(&s);
}

static void check_text(char *got, const char *want, const char *name)
{
    tap_is(got, want, name);
    free(got);
}

static void test_deals(void)
{
    check_text(deal_text(52, 1, 8), "0+7 7+7 14+7 21+7 28+6 34+6 40+6 46+6",
               "52 heads over 8 ranks: the first four take seven");
    check_text(deal_text(10, 4, 3), "0+4 4+4 8+2",
               "a grain is never split but at the end");
    check_text(deal_text(2, 1, 3), "0+1 1+1 2+0", "the last parts may get nothing");
    check_text(groups_text(10, 4, 4), "0+3*:0+4 3+3*:0+4 6+2*:0+4 8+2*:0+4",
               "groups stay whole when there are enough");
    check_text(groups_text(2, 7, 4), "0+1*:0+4 0+1:4+3 1+1*:0+4 1+1:4+3",
               "ranks that share a group deal its heads; the first owns its KV head");
    check_text(groups_text(3, 2, 5), "0+1*:0+1 0+1:1+1 1+1*:0+1 1+1:1+1 2+1*:0+2",
               "three groups over five ranks");
}

static void test_mesh(void)
{
    int size[MESH_NAXES] = { 0 }, coord[MESH_NAXES];
    struct err err = { 0 };
    struct mesh m, base;

    mesh_one(&base);
    base.size[MESH_TP] = 4;
    tap_ok(mesh_parse(size, "pp=2,ep=3", &err) == 0, "a mesh is named by its axes");
    tap_ok(mesh_set(&m, size, &base, &err) == 0 && m.size[MESH_TP] == 4 &&
               m.nranks == 24,
           "an axis that is not named is kept from the base");
    mesh_coord(&m, 17, coord);
    tap_ok(coord[MESH_TP] == 1 && coord[MESH_EP] == 1 && coord[MESH_PP] == 1,
           "tp is the fastest axis and pp the slowest");
    tap_is_int(mesh_rank(&m, coord), 17, "coordinates lead back to the rank");
    tap_ok(mesh_parse(size, "tp=2,tp=3", &err) < 0 && err.kind == ERR_USAGE,
           "an axis given twice is refused");
    tap_ok(mesh_parse(size, "tp=0", &err) < 0, "a size of nought is refused");
    tap_ok(mesh_parse(size, "xp=2", &err) < 0, "an unknown axis is refused");
}

static const struct axis_symbol symbols[] = {
    { "heads", 6, true, 1, 2 },
    { "kv_heads", 3, true, -1, -1 },
    { "group", 2, true, -1, -1 },
    { "head_dim", 2, false, -1, -1 },
    { "hidden", 12, false, -1, -1 },
    { "ffn", 5, true, -1, -1 },
    { "many", 1ull << 40, false, -1, -1 },
    { "h8", 8, true, -1, -1 },
};
static const struct axis_scope scope = { symbols, sizeof(symbols) / sizeof(*symbols) };

static char *runs_text(const char *axis, const struct share *share)
{
    struct err err = { 0 };
    struct str s = { 0 };
    struct axis a;
    struct runs r;

    if (axis_parse(&a, axis, &scope, &err) < 0)
        return str_dupf("column %u: %s", err.column, err.text);
    axis_runs(&r, &a, &scope, share);
    for (size_t i = 0; i < r.n; i++)
        str_addf(&s, "%s%d+%d%s", i ? " " : "", (int)r.v[i].start, (int)r.v[i].count,
                 r.v[i].owned ? "" : "-");
    runs_clear(&r);
    axis_clear(&a);
    return str_steal(&s);
}

static bool axes_equal(const char *x, const char *y)
{
    struct err err = { 0 };
    struct axis a, b;
    bool same;

    if (axis_parse(&a, x, &scope, &err) < 0 || axis_parse(&b, y, &scope, &err) < 0)
        return false;
    same = axis_equal(&a, &b);
    axis_clear(&a);
    axis_clear(&b);
    return same;
}

/* Whether the segment SEGMENT of the axis X is the axis Y. */
static bool segment_equal(const char *x, const char *segment, const char *y)
{
    struct err err = { 0 };
    struct axis a, b, s;
    bool same;

    if (axis_parse(&a, x, &scope, &err) < 0 || axis_parse(&b, y, &scope, &err) < 0)
        return false;
    same = axis_segment(&s, &a, segment);
    if (same) {
        same = axis_equal(&s, &b);
        axis_clear(&s);
    }
    axis_clear(&a);
    axis_clear(&b);
    return same;
}

static void test_axes(void)
{
    /* the second of two ranks that share group 1 */
    struct share share[] = { { 0, 6, true, 0 }, { 1, 1, false, 0 }, { 1, 1, true, 0 },
                             { 0, 2, true, 0 }, { 0, 12, true, 0 }, { 2, 2, true, 0 },
                             { 0, 1, true, 0 }, { 3, 2, true, 0 } };

    check_text(runs_text("heads*head_dim", share), "6+2",
               "a head is cut out of the rows");
    check_text(runs_text("kv_heads*head_dim", share), "2+2-",
               "a shared KV head is not owned");
    check_text(runs_text("q:heads*head_dim + k:kv_heads*head_dim", share), "6+2 14+2-",
               "every segment is cut");
    check_text(runs_text("heads*(q:1 + k:1 + v:1)*head_dim", share), "18+6",
               "interleaved q, k and v are stored segment by segment");
    check_text(runs_text("kv_heads*(q:group + k:1)*head_dim", share), "8+2 10+2-",
               "a group's queries and key are taken apart");
    check_text(runs_text("ffn*(gate:1 + up:1)", share), "4+1 6+1 5+1 7+1",
               "elements interleaved one by one are taken apart");
    check_text(runs_text("h8.outer(4)*(q:1 + v:1)*h8.inner(4)*head_dim", share),
               "10+2 16+2 14+2 20+2", "a head's number in two digits");
    check_text(runs_text("hidden", share), "0+12", "what is not dealt is whole");
    tap_ok(axes_equal("heads*head_dim", "kv_heads*group*head_dim"),
           "heads equals kv_heads*group");
    tap_ok(segment_equal("h8.outer(4)*(q:1 + v:1)*h8.inner(4)*head_dim", "v",
                         "h8*head_dim"),
           "a segment joins the two digits of a head's number");
    tap_ok(!axes_equal("heads*head_dim", "hidden"), "equal sizes are not equal axes");
    check_text(runs_text("0*head_dim", share), "column 1: a factor must be at least 1",
               "nothing is no factor");
    check_text(runs_text("(((((((hidden)))))))", share), "0+12",
               "parentheses are nested");
    check_text(runs_text("((((((((hidden))))))))", share),
               "column 9: nested too deeply", "but not more than 7 deep");
    check_text(runs_text("heads*", share),
               "column 7: expected a number, a symbol or '('",
               "an error names the column");
    check_text(runs_text("many*many", share), "column 6: the size overflows",
               "an overflow is refused");
    check_text(runs_text("hidden*nothing", share),
               "column 8: 'nothing' is no symbol with a whole value",
               "an unknown symbol is named");
}

static int lookup(void *arg, const char *name, size_t len, struct expr_value *out,
                  struct err *err)
{
    const cJSON *item = NULL;

    (void)err;
    cJSON_ArrayForEach(item,
                       (const cJSON *)arg) if (strlen(item->string) == len &&
                                               !memcmp(item->string, name, len)) break;
    *out = expr_from_json(item);
    return 0;
}

static char *expr_text(const cJSON *config, const char *text)
{
    struct expr_env env = { .lookup = lookup, .arg = (void *)config };
    struct expr_value v;
    struct err err = { 0 };

    if (expr_eval(&v, text, strlen(text), &env, &err) < 0)
        return str_dupf("column %u: %s", err.column, err.text);
    switch (v.kind) {
    case EXPR_NULL:
        return strdup("null");
    case EXPR_BOOL:
        return strdup(v.number != 0 ? "true" : "false");
    case EXPR_NUMBER:
        return str_dupf("%g", v.number);
    case EXPR_WORD:
        return str_dupf("'%.*s'", (int)v.len, v.word);
    case EXPR_JSON:
        break;
    }
    return strdup("json");
}

static void test_expressions(void)
{
    cJSON *c = cJSON_Parse(
        "{\"a\":6,\"b\":4,\"act\":\"gelu\",\"no\":null,\"list\":[\"x\",\"y\"],"
        "\"in\":{\"deep\":8},\"flag\":false}");

    check_text(expr_text(c, "1 + a*b - 2"), "23", "products bind tighter than sums");
    check_text(expr_text(c, "a/b"), "1.5", "division is exact");
    check_text(expr_text(c, "gone ?? no ?? b"), "4", "the first that is not null");
    check_text(expr_text(c, "gone/2 ?? 7"), "7", "arithmetic with null is null");
    check_text(expr_text(c, "flag ?? true"), "false", "false is not null");
    check_text(expr_text(c, "in.deep * 2"), "16", "a member of an object");
    check_text(expr_text(c, "list[1]"), "'y'", "an element of a list");
    check_text(expr_text(c, "'x' in list && !('z' in list)"), "true", "membership");
    check_text(expr_text(c, "act == 'gelu' ? 1 : gone.x[0]"), "1", "a choice");
    check_text(expr_text(c, "a > b ? 'more' : 'less'"), "'more'", "a comparison");
    check_text(expr_text(c, "min(a, b) + sqrt(4)"), "6", "functions");
    check_text(expr_text(c, "a +"), "column 4: an operand is missing",
               "a missing operand");
    check_text(expr_text(c, "foo(1)"),
               "column 1: no function of that name (min max sqrt pow floor ceil log "
               "len ends given)",
               "an unknown function");
    check_text(expr_text(c, "a b"), "column 3: expected an operator or the end",
               "a stray operand");
    cJSON_Delete(c);
}

/* The lines called NAME in section SECTION of the family TEXT, as "text | text
 * [when]". */
static char *lines_text(const char *text, const char *section, const char *name)
{
    struct family_library *lib = NULL;
    struct family *f = NULL;
    struct err err = { 0 };
    struct str s = { 0 };

    if (family_library_open(&lib, NULL, &err) < 0 ||
        family_parse(&f, lib, "child.json", text, &err) < 0) {
        str_add(&s, err.text);
        family_library_free(lib);
        return str_steal(&s);
    }
    for (size_t i = 0; i < f->nsections; i++)
        for (size_t k = 0; k < f->section[i].n && !strcmp(f->section[i].name, section);
             k++) {
            const struct family_line *l = &f->section[i].line[k];

            if (!strcmp(l->name, name))
                str_addf(&s, "%s%s [%s]", s.len ? " | " : "", l->text,
                         l->when ? l->when->text : "");
        }
    family_free(f);
    family_library_free(lib);
    return str_steal(&s);
}

static void test_overrides(void)
{
    const char *head =
        "{ \"family\": \"child\", \"extends\": \"llama\", \"forward\": { \"layer\": ";
    struct str s = { 0 };

    str_addf(
        &s,
        "%s{ \"q\": [ { \"line\": \"linear(h, wq)\", \"when\": \"layer == 0\" }, "
        "{ \"line\": \"rope(linear(h, wq), rot)\", \"when\": \"layer > 0\" } ] } } }",
        head);
    check_text(lines_text(str_text(&s), "layer", "q"),
               "linear(h, wq) [layer == 0] | rope(linear(h, wq), rot) [layer > 0]",
               "an override may be a choice of lines");
    str_clear(&s);
    str_addf(&s, "%s{ \"nothing\": \"linear(h, wq)\" } } }", head);
    check_text(lines_text(str_text(&s), "layer", "q"),
               "child.json:1:77: section 'layer' has no line 'nothing'",
               "an override that matches nothing is refused");
    str_clear(&s);
}

/* ---- cuts ---- */

static int read_floats(void *arg, int part, uint64_t offset, void *buf, size_t n,
                       struct err *err)
{
    const float *value = arg;

    (void)part;
    (void)offset;
    (void)err;
    for (size_t i = 0; i < n; i += sizeof(*value))
        memcpy((char *)buf + i, value, sizeof(*value));
    return 0;
}

static int write_nothing(void *arg, int part, uint64_t offset, void *buf, size_t n,
                         struct err *err)
{
    (void)part;
    (void)offset;
    (void)buf;
    (void)err;
    *(size_t *)arg += n;
    return 0;
}

/* One rank's columns are converted, after a whole tensor of other numbers. */
static void test_partial_source(void)
{
    static const char config[] =
        "{\"model_type\": \"llama\", \"hidden_size\": 8, \"num_hidden_layers\": 1,"
        " \"num_attention_heads\": 2, \"num_key_value_heads\": 1,"
        " \"intermediate_size\": 12, \"vocab_size\": 16,"
        " \"max_position_embeddings\": 32, \"rms_norm_eps\": 1e-6}";
    static const char name[] = "model.layers.0.mlp.down_proj.weight";
    const uint64_t shape[] = { 8, 12 };
    const int coord[MESH_NAXES] = { 0 };
    float large = 1e30F, small = 1;
    uint64_t overflows = 0;
    size_t bytes = 0;
    struct err err = { 0 };
    struct mesh mesh;
    struct model *m = NULL;
    struct cutter *rank = NULL;
    struct cut *cut = cut_new();
    struct cut_side whole = { .nparts = 1, .io = read_floats, .arg = &large };
    struct cut_side part = {
        .nparts = 1, .cutter = &rank, .io = read_floats, .arg = &small, .replicas = true
    };
    struct cut_side sink = { .nparts = 1, .io = write_nothing, .arg = &bytes };
    struct cut_tensor t = {
        .name = name, .ndim = 2, .shape = shape, .from = DTYPE_F32, .to = DTYPE_BF16
    };

    mesh_one(&mesh);
    mesh.size[MESH_TP] = 2;
    if (model_open(&m, "config.json", config, NULL, NULL, &err) < 0 ||
        cutter_open(&rank, m, &mesh, coord, &err) < 0) {
        printf("Bail out! %s\n", err.text);
        exit(99);
    }
    t.model = model_find(m, name);
    tap_ok(cut_copy(cut, &t, &whole, &sink, NULL, NULL, NULL, &overflows, &err) == 0 &&
               overflows == 0 && bytes == 192,
           "a tensor is copied whole");
    sink.cutter = &rank;
    bytes = 0;
    t.to = DTYPE_F16;
    tap_ok(cut_copy(cut, &t, &part, &sink, NULL, NULL, NULL, &overflows, &err) == 0 &&
               bytes == 96,
           "and one rank's columns of it");
    tap_is_int((long)overflows, 0, "what the rank does not hold is no overflow");
    cut_free(cut);
    cutter_free(rank);
    model_free(m);
}

int main(void)
{
    test_mesh();
    test_partial_source();
    test_deals();
    test_axes();
    test_expressions();
    test_overrides();
    return tap_done();
}
