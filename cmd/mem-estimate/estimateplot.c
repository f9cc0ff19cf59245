/* estimateplot - draws estimates and plans: memory of ranks, time of layouts */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cmd/mem-estimate/emit.h"
#include "cmd/mem-estimate/mem-estimate.h"
#include "cmd/picture.h"
#include "lib/plot/stacks.h"

static const double GIB = 1024. * 1024 * 1024;

char *report_model_dup(const struct request *q)
{
    double params = (double)costmodel_params(q->summary.model);
    bool giga = params >= 1e9;
    char *name = picture_name_dup(q->path);
    char *out = str_dupf("%s (%s, %.3g %s parameters)", name, q->summary.model->family,
                         params / (giga ? 1e9 : 1e6), giga ? "G" : "M");

    free(name);
    return out;
}

/* "8 x a100-80g, tp 2, pp 2, ..." */
static void add_layout(struct str *s, const struct request *q)
{
    for (int a = 0; a < MESH_NAXES; a++)
        if (q->memory.mesh.size[a] > 1)
            str_addf(s, ", %s %d", mesh_axis_names[a], q->memory.mesh.size[a]);
    str_addf(s, ", weights %s",
             q->memory.weights ? q->memory.weights->name : "as stored");
}

int report_plot(const struct report *r, const char *path, const char *command,
                struct err *err)
{
    const struct memory_estimate *e = r->estimate;
    const struct request *q = r->request;
    struct str title = { 0 }, limit = { 0 };
    struct stacks s;
    struct figure f;
    struct html page;
    char size[32], *model = report_model_dup(q);
    int ret = -1;

    stacks_init(&s, MEMORY_CATEGORIES, e->nkinds);
    for (int k = 0; k < MEMORY_CATEGORIES; k++)
        s.part[k] = (struct legend_entry){ memory_category_names[k], canvas_colour(k),
                                           LEGEND_BOX };
    for (size_t i = 0; i < e->nkinds; i++) {
        struct str name = { 0 };

        report_add_rank(&name, q, &e->kind[i]);
        s.row[i].label = str_steal(&name);
        s.row[i].note = str_dupf("%s", str_human(size, e->kind[i].total));
        for (int k = 0; k < MEMORY_CATEGORIES; k++)
            s.row[i].value[k] = (double)e->kind[i].peak[k] / GIB;
    }
    str_addf(&title, "%s: %s", model, q->memory.train ? "training" : "inference");
    add_layout(&title, q);
    s.title = title.s;
    s.unit = "GiB of each rank at its peak";
    if (q->gpu_memory) {
        str_addf(&limit, "%s of %s", str_human(size, q->gpu_memory),
                 q->gpu ? q->gpu->name : "a device");
        s.limit = (double)q->gpu_memory / GIB;
        s.limit_label = limit.s;
    }
    f = stacks_figure(&s, "Memory of each kind of rank by category");
    if (!html_is_named(path)) {
        ret = figure_write(&f, path, err);
        goto out;
    }
    html_init(&page, s.title);
    if (q->gpu_memory)
        html_text(&page, r->fits ? "It fits." : "It does not fit.");
    if (html_figure(&page, &f, err) < 0) {
        html_clear(&page);
        goto out;
    }
    report_page(&page, r);
    ret = picture_write_page(&page, path, command, err);
out:
    stacks_clear(&s);
    str_clear(&title);
    str_clear(&limit);
    free(model);
    return ret;
}

/* ---- plans ---- */

/* What makes a layout: "tp 2 dp 4", for training also ZeRO and so on. */
static char *planned_dup(const struct planned *p, bool train)
{
    struct str s = { 0 };

    for (int a = 0; a < MESH_NAXES; a++)
        if (p->mesh.size[a] > 1)
            str_addf(&s, "%s%s %d", s.len ? " " : "", mesh_axis_names[a],
                     p->mesh.size[a]);
    if (!s.len)
        str_add(&s, "one device");
    if (train && p->mesh.size[MESH_PP] > 1)
        str_addf(&s, p->order.chunks > 1 ? ", %s x%d" : ", %s",
                 order_names[p->order.order], p->order.chunks);
    if (train && p->zero)
        str_addf(&s, ", zero %d", p->zero);
    if (train && p->recompute != RECOMPUTE_NONE)
        str_addf(&s, ", %s recomputation", recompute_names[p->recompute]);
    return str_steal(&s);
}

/* Seconds in a unit that suits MOST of them. */
static double unit_for(double most, const char **name)
{
    static const struct {
        double seconds;
        const char *name;
    } units[] = { { 1, "s" }, { 1e-3, "ms" }, { 1e-6, "us" } };
    int i = most >= 1 ? 0 : most >= 1e-3 ? 1 : 2;

    *name = units[i].name;
    return units[i].seconds;
}

static void add_plans(struct html *page, const struct planner_result *result,
                      bool train)
{
    static const char *const heads[] = { "layout",   ">batch",    "schedule", ">GiB",
                                         ">step, s", ">tokens/s", ">MFU, %" };

    html_table(page, heads, sizeof(heads) / sizeof(*heads));
    for (size_t i = 0; i < result->n; i++) {
        const struct planned *p = &result->plan[i];
        bool pipe = train && p->mesh.size[MESH_PP] > 1;
        char *layout = planned_dup(p, train);

        html_cell(page, "%s", layout);
        html_cell(page, "%" PRIu64 " x %" PRIu64, p->micro_batch, p->micro_batches);
        html_cell(page, p->order.chunks > 1 ? "%s x%d" : "%s",
                  pipe ? order_names[p->order.order] : "-", p->order.chunks);
        html_cell(page, "%.2f", (double)p->memory / GIB);
        html_cell(page, "%.4g", p->step.seconds);
        html_cell(page, "%.0f", p->tokens);
        html_cell(page, "%.1f", 100 * p->utilisation);
        free(layout);
    }
    html_table_end(page);
}

static void add_rejections(struct html *page, const struct planner_result *result)
{
    static const char *const heads[] = { ">layouts", "why not" };

    html_heading(page, "Rejected");
    html_table(page, heads, 2);
    for (int i = 0; i < RULES; i++)
        if (result->rejected[i]) {
            html_cell(page, "%" PRIu64, result->rejected[i]);
            html_cell(page, "%s", planner_rules[i]);
        }
    html_table_end(page);
}

static void fill_plans(struct stacks *s, const struct planner_result *result,
                       double unit, bool train)
{
    static const char *const names[] = { "products", "tp", "sp and ep", "pp", "dp" };

    for (size_t k = 0; k < s->nparts; k++)
        s->part[k] =
            (struct legend_entry){ names[k], canvas_colour((int)k), LEGEND_BOX };
    for (size_t i = 0; i < result->n; i++) {
        const struct planned *p = &result->plan[i];
        const double parts[] = { p->step.compute, p->step.tensor, p->step.all_to_all,
                                 p->step.pipeline, p->step.data };

        for (size_t k = 0; k < s->nparts; k++)
            s->row[i].value[k] = parts[k] > 0 ? parts[k] / unit : 0;
        s->row[i].label = planned_dup(p, train);
        s->row[i].note =
            str_dupf("%.4g tokens/s, %.1f GiB", p->tokens, (double)p->memory / GIB);
    }
}

static int write_plan_page(const struct plan_picture *pic, const struct figure *f,
                           const char *title, struct err *err)
{
    const struct planner_result *result = pic->result;
    bool train = pic->options->start.train;
    struct str script = { 0 };
    struct err none = { 0 };
    struct html page;
    char *counts = str_dupf("%" PRIu64 " layouts tried, %" PRIu64 " fit.",
                            result->tried, result->fit);

    html_init(&page, title);
    html_text(&page, counts);
    free(counts);
    if (result->n && html_figure(&page, f, err) < 0) {
        html_clear(&page);
        return -1;
    }
    if (result->n)
        add_plans(&page, result, train);
    else
        html_text(&page, "Nothing fits.");
    if (*pic->others) {
        html_heading(&page, "Other choices take longer");
        html_text(&page, pic->others);
    }
    add_rejections(&page, result);
    html_heading(&page, "Assumed");
    html_text(&page, str_text(&pic->request->assumed));
    html_heading(&page, "Commands");
    html_lines(&page, pic->command);
    if (result->n && emit_plan(&script, &result->plan[0], pic->options, pic->request,
                               EMIT_SH, &none) == 0) {
        html_text(&page, "A script that runs the first layout:");
        html_lines(&page, str_text(&script));
    } else if (result->n) {
        html_text(&page, "There is no script for the first layout:");
        html_lines(&page, none.text);
    }
    str_clear(&script);
    return html_write(&page, pic->path, err);
}

int plan_plot(const struct plan_picture *pic, struct err *err)
{
    const struct planner_result *result = pic->result;
    bool train = pic->options->start.train;
    double most = 0, unit;
    char *model = report_model_dup(pic->request), *title, *scale;
    const char *name;
    struct stacks s;
    struct figure f;
    int ret;

    title = str_dupf("%s: %s on %d x %s, batch %" PRIu64 ", %" PRIu64 " tokens each",
                     model, train ? "training" : "inference", pic->options->gpus,
                     pic->device, pic->options->global_batch, pic->options->start.seq);
    for (size_t i = 0; i < result->n; i++)
        most =
            result->plan[i].step.seconds > most ? result->plan[i].step.seconds : most;
    unit = unit_for(most, &name);
    scale = str_dupf("%s of %s, predicted", name, train ? "a step" : "a token");
    stacks_init(&s, 5, result->n);
    fill_plans(&s, result, unit, train);
    s.title = title;
    s.unit = scale;
    f = stacks_figure(&s, "Predicted time of the fastest layouts, by what takes it");
    if (html_is_named(pic->path))
        ret = write_plan_page(pic, &f, title, err);
    else if (result->n)
        ret = figure_write(&f, pic->path, err);
    else
        ret = 0; /* a picture of nothing; the table says so */
    stacks_clear(&s);
    free(model);
    free(title);
    free(scale);
    return ret;
}
