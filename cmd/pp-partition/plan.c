/* plan - prints what each stage would run and store */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/conversion.h"
#include "cmd/picture.h"
#include "cmd/pp-partition/pp-partition.h"
#include "cmd/pp-partition/stages.h"
#include "cmd/table.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/plot/stacks.h"

struct plan {
    const char *path;
    struct summary summary;
    struct mesh mesh; /* its pp is the number of chunks */
    int *stages;
    int chunks;
    const char *balance;
    struct cutter **cutter;   /* [pp] */
    struct stage_costs flops; /* of one token */
    struct stage_costs cost;  /* the costs to balance */
    double *memory;           /* [pp]: bytes in training, if they are balanced */
    bool costed;              /* there are costs: not for parameters, which the parts
                               * count */
};

/* Parameters that part S stores, including tied copies. */
static uint64_t part_params(const struct plan *p, int s)
{
    const struct model *m = p->summary.model;
    uint64_t total = 0;

    for (size_t i = 0; i < m->ntensors; i++) {
        uint64_t n = 1;
        struct slice slice;

        cutter_slice(p->cutter[s], i, &slice);
        for (int k = 0; k < m->tensor[i].ndim; k++)
            n *= m->tensor[i].axis[k]->size;
        if (slice.held && summary_has(m, i))
            total += n;
    }
    return total;
}

static uint64_t part_cost(const struct plan *p, const struct stage_costs *c, int s)
{
    uint64_t sum =
        (s == 0 ? c->first : 0) + (s == p->mesh.size[MESH_PP] - 1 ? c->last : 0);
    int first, count;

    mesh_stage(&p->mesh, c->nlayers, s, &first, &count);
    for (int i = first; i < first + count; i++)
        sum += c->layer[i];
    return sum;
}

/* The same in the units of the user's file of costs, if there is one. */
static double exact_cost(const struct plan *p, const struct stage_costs *c, int s)
{
    bool last = s == p->mesh.size[MESH_PP] - 1;
    int first, count;
    double sum;

    if (!c->exact)
        return (double)part_cost(p, c, s);
    sum = (s == 0 ? c->exact[0] : 0) + (last ? c->exact[c->nlayers + 1] : 0);
    mesh_stage(&p->mesh, c->nlayers, s, &first, &count);
    for (int i = first; i < first + count; i++)
        sum += c->exact[i + 1];
    return sum;
}

static bool holds(const struct plan *p, int s, size_t i)
{
    struct slice slice;

    cutter_slice(p->cutter[s], i, &slice);
    return slice.held;
}

/* Adds a JSON array of the tensors outside layers that part S stores; SHARED: only
 * those that another part stores too. */
static void add_held(struct str *out, const struct plan *p, int s, bool shared)
{
    const struct model *m = p->summary.model;
    bool any = false;

    str_addc(out, '[');
    for (size_t i = 0; i < m->ntensors; i++) {
        bool elsewhere = false;

        if (m->tensor[i].section >= 0 || !summary_has(m, i) || !holds(p, s, i))
            continue;
        for (int other = 0; other < p->mesh.size[MESH_PP] && shared; other++)
            elsewhere |= other != s && holds(p, other, i);
        if (shared && !elsewhere)
            continue;
        if (any)
            str_addc(out, ',');
        str_add_json(out, m->tensor[i].name);
        any = true;
    }
    str_addc(out, ']');
}

static uint64_t bytes_of(const struct plan *p, uint64_t params)
{
    return params * (uint64_t)dtype_bits(p->summary.dtype) / 8;
}

static void print_json(const struct plan *p, int s)
{
    int pp = p->mesh.size[MESH_PP] / p->chunks, first, count;
    uint64_t params = part_params(p, s);
    struct str out = { 0 };

    mesh_stage(&p->mesh, p->flops.nlayers, s, &first, &count);
    str_addf(&out, "{\"type\":\"stage\",\"stage\":%d,\"chunk\":%d,\"first_layer\":%d",
             s % pp, s / pp, first);
    str_addf(&out, ",\"layer_count\":%d,\"params\":%" PRIu64 ",\"bytes\":%" PRIu64,
             count, params, bytes_of(p, params));
    str_addf(&out, ",\"flops\":%" PRIu64 ",\"held\":", part_cost(p, &p->flops, s));
    add_held(&out, p, s, false);
    str_add(&out, ",\"shared\":");
    add_held(&out, p, s, true);
    str_addc(&out, '}');
    puts(out.s);
    str_clear(&out);
}

static const struct column columns[] = {
    { "stage", 0, 5, true, 0, false },          { "chunk", 1, 5, true, 2, false },
    { "layers", 1, 9, true, 0, false },         { "count", 1, 6, true, 1, false },
    { "params", 1, 14, true, 0, false },        { "bytes", 1, 12, true, 0, false },
    { "FLOPs a token", 1, 14, true, 0, false }, { "shared", 2, 0, false, 0, true },
};

static void add_row(struct table *t, const struct plan *p, int s)
{
    int pp = p->mesh.size[MESH_PP] / p->chunks, first, count;
    uint64_t params = part_params(p, s);
    struct str shared = { 0 };
    char size[32], layers[32] = "-";

    mesh_stage(&p->mesh, p->flops.nlayers, s, &first, &count);
    if (count)
        snprintf(layers, sizeof(layers), "%d-%d", first, first + count - 1);
    add_held(&shared, p, s, true);
    table_addf(t, "%d", s % pp);
    table_addf(t, "%d", s / pp);
    table_add(t, layers);
    table_addf(t, "%d", count);
    table_addf(t, "%" PRIu64, params);
    table_add(t, str_human(size, bytes_of(p, params)));
    table_addf(t, "%.4g", (double)part_cost(p, &p->flops, s));
    table_add(t, strcmp(shared.s, "[]") ? shared.s : "");
    str_clear(&shared);
}

/* Prints how evenly the balanced costs are divided. */
static void print_summary(const struct plan *p, bool json)
{
    int stages = p->mesh.size[MESH_PP] / p->chunks;
    double most = 0, sum = 0;
    struct str out = { 0 };

    for (int s = 0; s < stages; s++) {
        double all = 0; /* sum over its chunks */

        for (int k = s; k < stages * p->chunks; k += stages)
            all += p->memory   ? p->memory[k]
                   : p->costed ? exact_cost(p, &p->cost, k)
                               : (double)part_params(p, k);
        most = all > most ? all : most;
        sum += all;
    }
    if (json) {
        str_addf(&out, "{\"type\":\"summary\",\"stages\":%d,\"balance\":", stages);
        str_add_json(&out, p->balance);
        str_add(&out, ",\"max\":");
        str_add_double(&out, most);
        str_add(&out, ",\"mean\":");
        str_add_double(&out, sum / stages);
        str_add(&out, ",\"imbalance\":");
        str_add_double(&out, sum > 0 ? most * stages / sum : 1);
        str_addc(&out, '}');
        puts(out.s);
        str_clear(&out);
    } else {
        printf("%s: the largest is %.4g, %.2f %% above the mean\n", p->balance, most,
               sum > 0 ? 100 * (most * stages / sum - 1) : 0);
    }
}

/* ---- the picture ---- */

/* What is balanced, in a unit, and how much of it is inside layers. */
static const char *unit_of(const struct plan *p)
{
    if (!strcmp(p->balance, "memory"))
        return "bytes of training with one sequence in flight";
    if (!strcmp(p->balance, "params"))
        return "parameters";
    if (!strcmp(p->balance, "flops"))
        return "FLOPs of a token";
    return !strcmp(p->balance, "layers") ? "layers" : "costs of the file";
}

static double layers_of(const struct plan *p, int s)
{
    const struct model *m = p->summary.model;
    struct stage_costs inner = p->cost;
    double params = 0;

    if (p->costed) {
        double ends[2] = { 0 };

        inner.first = inner.last = 0;
        if (inner.exact) {
            ends[0] = inner.exact[0];
            ends[1] = inner.exact[inner.nlayers + 1];
        }
        return exact_cost(p, &inner, s) - (s == 0 ? ends[0] : 0) -
               (s == p->mesh.size[MESH_PP] - 1 ? ends[1] : 0);
    }
    for (size_t i = 0; i < m->ntensors; i++) {
        double n = 1;

        for (int k = 0; k < m->tensor[i].ndim; k++)
            n *= (double)m->tensor[i].axis[k]->size;
        if (m->tensor[i].section >= 0 && summary_has(m, i) && holds(p, s, i))
            params += n;
    }
    return params;
}

static double whole_of(const struct plan *p, int s)
{
    return p->memory   ? p->memory[s]
           : p->costed ? exact_cost(p, &p->cost, s)
                       : (double)part_params(p, s);
}

static char *stage_dup(const struct plan *p, int s)
{
    int pp = p->mesh.size[MESH_PP] / p->chunks;

    return p->chunks > 1 ? str_dupf("stage %d, chunk %d", s % pp, s / pp)
                         : str_dupf("stage %d", s);
}

/* "layers 0 to 7, 8.46 GiB" */
static char *note_dup(int first, int count, uint64_t bytes)
{
    char size[32];

    str_human(size, bytes);
    if (!count)
        return str_dupf("no layer, %s", size);
    return count == 1 ? str_dupf("layer %d, %s", first, size)
                      : str_dupf("layers %d to %d, %s", first, first + count - 1, size);
}

static void add_table(struct html *page, const struct plan *p)
{
    static const char *const heads[] = { "stage",
                                         "layers",
                                         ">count",
                                         ">params",
                                         ">size",
                                         ">FLOPs a token",
                                         "stored elsewhere, too" };

    html_table(page, heads, sizeof(heads) / sizeof(*heads));
    for (int s = 0; s < p->mesh.size[MESH_PP]; s++) {
        uint64_t params = part_params(p, s);
        struct str shared = { 0 };
        char size[32], *name = stage_dup(p, s);
        int first, count;

        mesh_stage(&p->mesh, p->flops.nlayers, s, &first, &count);
        add_held(&shared, p, s, true);
        html_cell(page, "%s", name);
        html_cell(page, count ? "%d to %d" : "-", first, first + count - 1);
        html_cell(page, "%d", count);
        html_cell(page, "%" PRIu64, params);
        html_cell(page, "%s", str_human(size, bytes_of(p, params)));
        html_cell(page, "%.4g", (double)part_cost(p, &p->flops, s));
        html_cell(page, "%s", strcmp(shared.s, "[]") ? shared.s : "-");
        free(name);
        str_clear(&shared);
    }
    html_table_end(page);
}

static int draw_plan(const struct plan *p, const char *path, const char *command,
                     struct err *err)
{
    int parts = p->mesh.size[MESH_PP], ret;
    char *model = picture_name_dup(p->path), *title;
    struct stacks bars;
    struct figure f;
    struct html page;

    title = str_dupf("%s (%s): %d pipeline stages, balanced by %s", model,
                     p->summary.model->family, parts / p->chunks, p->balance);
    stacks_init(&bars, 2, (size_t)parts);
    bars.part[0] = (struct legend_entry){ p->memory ? "the stage" : "layers",
                                          canvas_colour(0), LEGEND_BOX };
    bars.part[1] = (struct legend_entry){ "outside layers: embedding, head",
                                          canvas_colour(1), LEGEND_BOX };
    for (int s = 0; s < parts; s++) {
        double whole = whole_of(p, s), layers = p->memory ? whole : layers_of(p, s);
        int first, count;

        mesh_stage(&p->mesh, p->flops.nlayers, s, &first, &count);
        bars.row[s].label = stage_dup(p, s);
        bars.row[s].value[0] = layers;
        bars.row[s].value[1] = whole > layers ? whole - layers : 0;
        bars.row[s].note = note_dup(first, count, bytes_of(p, part_params(p, s)));
    }
    bars.title = title;
    bars.unit = unit_of(p);
    f = stacks_figure(&bars, "What each stage has of the balanced costs");
    if (!html_is_named(path)) {
        ret = figure_write(&f, path, err);
    } else {
        html_init(&page, title);
        ret = html_figure(&page, &f, err);
        add_table(&page, p);
        if (ret == 0)
            ret = picture_write_page(&page, path, command, err);
        else
            html_clear(&page);
    }
    stacks_clear(&bars);
    free(title);
    free(model);
    return ret;
}

static int open_plan(struct plan *p, const struct stage_options *o, struct err *err)
{
    int size[MESH_NAXES] = { 0 };

    p->balance = o->balance ? o->balance : "layers";
    p->costed = strcmp(p->balance, "params") != 0;
    if (p->costed && stage_costs(&p->cost, p->summary.model, p->balance, err) < 0)
        return -1;
    if (stages_choose(&p->stages, &size[MESH_PP], o, p->chunks, p->summary.model,
                      p->costed ? &p->cost : NULL, err) < 0 ||
        mesh_set(&p->mesh, size, NULL, err) < 0)
        return -1;
    p->mesh.stages = p->stages;
    if (size[MESH_PP] % p->chunks)
        return err_set(err, ERR_USAGE, "%d stages are no multiple of %d chunks",
                       size[MESH_PP], p->chunks);
    p->cutter = xcalloc((size_t)size[MESH_PP], sizeof(struct cutter *));
    for (int s = 0; s < size[MESH_PP]; s++) {
        int coord[MESH_NAXES] = { [MESH_PP] = s };

        if (cutter_open(&p->cutter[s], p->summary.model, &p->mesh, coord, err) < 0)
            return -1;
    }
    if (!strcmp(p->balance, "memory") && p->chunks == 1) {
        p->memory = xcalloc((size_t)size[MESH_PP], sizeof(*p->memory));
        if (stages_by_memory(p->stages, p->memory, p->summary.model, size[MESH_PP],
                             err) < 0)
            return -1;
    }
    return stage_costs(&p->flops, p->summary.model, "flops", err);
}

static void close_plan(struct plan *p)
{
    for (int s = 0; p->cutter && s < p->mesh.size[MESH_PP]; s++)
        cutter_free(p->cutter[s]);
    free(p->cutter);
    free(p->stages);
    free(p->memory);
    stage_costs_clear(&p->cost);
    stage_costs_clear(&p->flops);
    summary_close(&p->summary);
}

int plan_main(const char *program, int argc, char **argv)
{
    struct stage_options o = { 0 };
    struct plan p = { .chunks = 1 };
    const char *family = NULL, *config = NULL, *plot = NULL;
    bool json = false;
    const struct opt opts[] = {
        STAGE_OPTIONS(o),
        { OPT_COUNT, '\0', "model-chunks", &p.chunks, "N",
          "chunks of layers on a stage", NULL, NULL },
        { OPT_STRING, '\0', "family", &family, "FILE",
          "take the model family from FILE", NULL, NULL },
        { OPT_STRING, '\0', "config", &config, "FILE",
          "the model's config.json, or its directory", NULL, NULL },
        { OPT_STRING, '\0', "plot", &plot, "FILE", "draw the stages: " PICTURE_NAMES,
          NULL, NULL },
        { OPT_FLAG, '\0', "json", &json, NULL, "print JSON, one object a line", NULL,
          NULL },
        { .type = OPT_END },
    };
    const struct cmd cmd = {
        .name = "plan",
        .program = program,
        .synopsis = "[OPTION]... --pp=N MODEL",
        .summary = "Tell which layers each stage would run, and what it would hold",
        .opts = opts,
        .min_args = 1,
        .max_args = 1,
    };
    const char *command = picture_command(program, argc, argv);
    char **operand = cmd_parse(&cmd, argc, argv);
    const struct checkpoint_options options = { .family_file = family,
                                                .config = config,
                                                .family_path = family_path(&cmd) };
    struct err err = { 0 };
    struct table *table = NULL;
    int ret = -1, status;

    p.path = operand[0];
    if (plot && (status = picture_check(&cmd, "--plot", plot)) != 0)
        return status;
    if (summary_open(&p.summary, p.path, &options, &err) < 0)
        return cmd_fail(&cmd, &err);
    if (check_config(&cmd, p.summary.model, KEYS_COSTS, &err) < 0 ||
        open_plan(&p, &o, &err) < 0)
        goto out;
    if (!json)
        table = table_new(columns, sizeof(columns) / sizeof(*columns));
    for (int s = 0; s < p.mesh.size[MESH_PP]; s++) {
        if (json)
            print_json(&p, s);
        else
            add_row(table, &p, s);
    }
    if (table)
        table_print(table);
    print_summary(&p, json);
    ret = plot ? draw_plan(&p, plot, command, &err) : 0;
out:
    close_plan(&p);
    return ret < 0 ? cmd_fail(&cmd, &err) : cmd_finish(&cmd, EXIT_SUCCESS);
}
