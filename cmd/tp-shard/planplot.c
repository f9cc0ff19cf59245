/* planplot - draws which shard of each tensor each rank stores
 *
 * There is a row for each kind of tensor and in it a lane for each part.  A lane spans
 * the sharded axis (or the first axis) and is filled where the part stores it: in the
 * part's colour for a primary replica, lighter for other replicas.  Tensors of one kind
 * that all parts store alike (layers of a stage, experts of a rank) have one row, which
 * says how many more there are. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/picture.h"
#include "cmd/tp-shard/tp-shard.h"
#include "lib/base/hash.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/plot/chart.h"

enum { MOST_PARTS = 16, LONGEST_AXIS = 44 };

static const double MARGIN = 24, NAME = 330, AXIS = 380, BEHIND = 210, LANE = 5,
                    GAP = 5, SIDE = 8, TITLE = 24, KEY = 34;

/* A tensor that is drawn. */
struct row {
    size_t index;  /* of the model's tensors */
    uint32_t key;  /* equal for tensors that are stored alike */
    size_t others; /* stored alike */
};

struct drawing {
    const struct plan_picture *p;
    struct row *row;
    size_t nrows;
    char *title;
    struct legend_entry *legend; /* [nparts] */
};

/* The axis of T to draw: the first of which some part does not store all. */
static int shown_axis(const struct drawing *d, const struct model_tensor *t,
                      size_t index)
{
    for (int k = 0; k < t->ndim; k++)
        for (int p = 0; p < d->p->nparts; p++) {
            struct slice slice;

            cutter_slice(d->p->cutter[p], index, &slice);
            if (slice.runs[k]->count != t->axis[k]->size)
                return k;
        }
    return 0;
}

static struct colour lighter(struct colour c)
{
    return (struct colour){ (c.r + 2) / 3, (c.g + 2) / 3, (c.b + 2) / 3 };
}

static void draw_lane(struct canvas *canvas, const struct drawing *d,
                      const struct model_tensor *t, size_t index, int part, int axis,
                      double y)
{
    const double x = MARGIN + NAME;
    struct colour colour = canvas_colour(part);
    struct slice slice;

    cutter_slice(d->p->cutter[part], index, &slice);
    if (!slice.held)
        return;
    if (!t->ndim) {
        canvas_rectangle(canvas, x, y, AXIS, LANE - 1,
                         slice.primary ? colour : lighter(colour));
        return;
    }
    for (size_t i = 0; i < slice.runs[axis]->n; i++) {
        const struct run *r = &slice.runs[axis]->v[i];
        double size = (double)t->axis[axis]->size;

        canvas_rectangle(canvas, x + AXIS * (double)r->start / size, y,
                         AXIS * (double)r->count / size, LANE - 1,
                         slice.primary && r->owned ? colour : lighter(colour));
    }
}

static double row_height(const struct drawing *d)
{
    /* room for the name where there are few lanes */
    double lanes = d->p->nparts * LANE;

    return lanes < 2 * LANE ? 2 * LANE : lanes;
}

static void draw_row(struct canvas *canvas, const struct drawing *d,
                     const struct row *row, double y)
{
    const struct model_tensor *t = &d->p->ckpt->model->tensor[row->index];
    double lanes = d->p->nparts * LANE, middle = y + lanes / 2;
    int axis = shown_axis(d, t, row->index);
    char *label;

    label = row->others ? str_dupf("%s and %zu more alike", t->name, row->others)
                        : xstrdup(t->name);
    canvas_text(canvas, MARGIN, middle, SIDE, ALIGN_LEFT, canvas_ink, label);
    free(label);
    canvas_rectangle(canvas, MARGIN + NAME, y, AXIS, lanes - 1,
                     (struct colour){ 0.96, 0.96, 0.96 });
    for (int p = 0; p < d->p->nparts; p++)
        draw_lane(canvas, d, t, row->index, p, axis, y + p * LANE);
    label = t->ndim ? str_dupf("%s = %llu", t->axis[axis]->text,
                               (unsigned long long)t->axis[axis]->size)
                    : str_dupf("one number");
    if (strlen(label) > LONGEST_AXIS)
        memcpy(label + LONGEST_AXIS - 3, "...", 4);
    canvas_text(canvas, MARGIN + NAME + AXIS + 10, middle, SIDE, ALIGN_LEFT, canvas_ink,
                label);
    free(label);
}

static void draw(struct canvas *canvas, const void *arg)
{
    const struct drawing *d = arg;
    const double width = NAME + AXIS + BEHIND;
    double y = MARGIN;

    canvas_text(canvas, MARGIN, y, 12, ALIGN_LEFT, canvas_ink, d->title);
    y += TITLE;
    y += legend_draw(canvas, MARGIN, y, width, d->legend, (size_t)d->p->nparts);
    canvas_text(canvas, MARGIN, y, SIDE, ALIGN_LEFT, canvas_ink,
                "A lane for each part, along the sharded axis: filled where the part "
                "stores it, lighter where it is a copy.");
    y += KEY - SIDE;
    for (size_t i = 0; i < d->nrows; i++, y += row_height(d) + GAP)
        draw_row(canvas, d, &d->row[i], y);
}

/* A number that is equal for tensors of one kind that all parts store alike. */
static uint32_t key_of(const struct plan_picture *p, size_t index)
{
    const struct model_tensor *t = &p->ckpt->model->tensor[index];
    uint32_t key = hash_crc32(0, &t->kind, sizeof(t->kind));

    for (int part = 0; part < p->nparts; part++) {
        struct slice s;
        bool has[2];

        cutter_slice(p->cutter[part], index, &s);
        has[0] = s.held;
        has[1] = s.primary;
        key = hash_crc32(key, has, sizeof(has));
        for (int k = 0; s.held && k < s.ndim; k++)
            for (size_t i = 0; i < s.runs[k]->n; i++) {
                const struct run *r = &s.runs[k]->v[i];
                const uint64_t v[] = { t->axis[k]->size, r->start, r->count, r->owned };

                key = hash_crc32(key, v, sizeof(v));
            }
    }
    return key;
}

/* Chooses the tensors to draw: the first of those that are stored alike. */
static void choose_rows(struct drawing *d)
{
    const struct model *m = d->p->ckpt->model;

    d->row = xcalloc(m->ntensors + 1, sizeof(*d->row));
    for (size_t i = 0; i < m->ntensors; i++) {
        uint32_t key;
        size_t k = 0;

        if (m->tensor[i].source < 0)
            continue;
        key = key_of(d->p, i);
        while (k < d->nrows && d->row[k].key != key)
            k++;
        if (k < d->nrows)
            d->row[k].others++;
        else
            d->row[d->nrows++] = (struct row){ .index = i, .key = key };
    }
}

static void make_legend(struct drawing *d)
{
    d->legend = xcalloc((size_t)d->p->nparts + 1, sizeof(*d->legend));
    for (int i = 0; i < d->p->nparts; i++) {
        int coord[MESH_NAXES];
        struct str s = { 0 };
        char size[32];

        manifest_part_coord(d->p->mesh->size, i, coord);
        for (int a = 0; a < MESH_NAXES; a++)
            if (d->p->mesh->size[a] > 1 && a != MESH_DP && a != MESH_SP)
                str_addf(&s, "%s%s%d", s.len ? " " : "", mesh_axis_names[a], coord[a]);
        str_addf(&s, "%s: %s", s.len ? "" : "all", str_human(size, d->p->bytes[i]));
        d->legend[i] =
            (struct legend_entry){ str_steal(&s), canvas_colour(i), LEGEND_BOX };
    }
}

static char *title_dup(const struct plan_picture *p)
{
    char *name = picture_name_dup(p->ckpt->path);
    struct str s = { 0 };
    bool whole = true;

    str_addf(&s, "%s (%s): ", name, p->ckpt->model->family);
    for (int a = 0; a < MESH_NAXES; a++)
        if (p->mesh->size[a] > 1) {
            str_addf(&s, "%s%s %d", whole ? "" : ", ", mesh_axis_names[a],
                     p->mesh->size[a]);
            whole = false;
        }
    str_add(&s, whole ? "one part" : "");
    free(name);
    return str_steal(&s);
}

/* The page: the picture, and what each part stores. */
static int write_page(const struct drawing *d, const struct figure *f, struct err *err)
{
    static const char *const heads[] = { "part", ">tensors", ">bytes", "size" };
    const struct plan_picture *p = d->p;
    struct html page;
    char size[32];

    html_init(&page, d->title);
    html_table(&page, heads, sizeof(heads) / sizeof(*heads));
    for (int i = 0; i < p->nparts; i++) {
        char *name = manifest_part_name_dup(p->mesh->size, i);

        html_cell(&page, "%s", name);
        html_cell(&page, "%zu", p->tensors[i]);
        html_cell(&page, "%llu", (unsigned long long)p->bytes[i]);
        html_cell(&page, "%s", str_human(size, p->bytes[i]));
        free(name);
    }
    html_table_end(&page);
    if (html_figure(&page, f, err) < 0) {
        html_clear(&page);
        return -1;
    }
    return picture_write_page(&page, p->path, p->command, err);
}

int plan_plot(const struct plan_picture *p, struct err *err)
{
    struct drawing d = { .p = p };
    struct figure f;
    int ret;

    if (p->nparts > MOST_PARTS)
        return err_set(err, ERR_NO,
                       "%s: %d parts are too many to draw (the most is %d)", p->path,
                       p->nparts, MOST_PARTS);
    choose_rows(&d);
    make_legend(&d);
    d.title = title_dup(p);
    f = (struct figure){ .caption = "Which part of each tensor each rank stores",
                         .width = 2 * MARGIN + NAME + AXIS + BEHIND,
                         .height = 2 * MARGIN + TITLE + KEY +
                                   legend_height(NAME + AXIS + BEHIND, d.legend,
                                                 (size_t)p->nparts) +
                                   (double)d.nrows * (row_height(&d) + GAP),
                         .draw = draw,
                         .arg = &d };
    ret = html_is_named(p->path) ? write_page(&d, &f, err)
                                 : figure_write(&f, p->path, err);
    for (int i = 0; i < p->nparts; i++)
        free((char *)d.legend[i].name);
    free(d.legend);
    free(d.row);
    free(d.title);
    return ret;
}
