/* planplot - draws which shard of each tensor each rank stores
 *
 * There is a row for each kind of tensor and in it a lane for each part.  A lane spans
 * the sharded axis (or the first axis) and is filled where the part stores it: in the
 * part's colour for a primary replica, lighter for other replicas.  Of equal layers
 * only the first is drawn. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/tp-shard/tp-shard.h"
#include "lib/base/str.h"
#include "lib/plot/canvas.h"

enum { MOST_PARTS = 16 };

static const double MARGIN = 24, NAME = 360, AXIS = 420, LANE = 5, GAP = 5, SIDE = 8;

struct drawing {
    struct canvas *canvas;
    struct cutter **cutter;
    int nparts;
    double y;
};

/* The axis of T to draw: the first of which some part does not store all. */
static int shown_axis(const struct drawing *d, const struct model_tensor *t,
                      size_t index)
{
    for (int k = 0; k < t->ndim; k++)
        for (int p = 0; p < d->nparts; p++) {
            struct slice slice;

            cutter_slice(d->cutter[p], index, &slice);
            if (slice.runs[k]->count != t->axis[k]->size)
                return k;
        }
    return 0;
}

static struct colour lighter(struct colour c)
{
    return (struct colour){ (c.r + 2) / 3, (c.g + 2) / 3, (c.b + 2) / 3 };
}

static void draw_lane(struct drawing *d, const struct model_tensor *t, size_t index,
                      int part, int axis)
{
    double x = MARGIN + NAME, y = d->y + part * LANE;
    struct colour colour = canvas_colour(part);
    struct slice slice;

    cutter_slice(d->cutter[part], index, &slice);
    if (!slice.held)
        return;
    if (!t->ndim) {
        canvas_rectangle(d->canvas, x, y, AXIS, LANE - 1,
                         slice.primary ? colour : lighter(colour));
        return;
    }
    for (size_t i = 0; i < slice.runs[axis]->n; i++) {
        const struct run *r = &slice.runs[axis]->v[i];
        double size = (double)t->axis[axis]->size;

        canvas_rectangle(d->canvas, x + AXIS * (double)r->start / size, y,
                         AXIS * (double)r->count / size, LANE - 1,
                         slice.primary && r->owned ? colour : lighter(colour));
    }
}

static void draw_tensor(struct drawing *d, const struct model *m, size_t index)
{
    const struct model_tensor *t = &m->tensor[index];
    double height = d->nparts * LANE;
    int axis = shown_axis(d, t, index);
    char *label;

    label = str_dupf("%s", t->name);
    canvas_text(d->canvas, MARGIN, d->y + height / 2, SIDE, ALIGN_LEFT, canvas_ink,
                label);
    free(label);
    canvas_rectangle(d->canvas, MARGIN + NAME, d->y, AXIS, height - 1,
                     (struct colour){ 0.96, 0.96, 0.96 });
    for (int p = 0; p < d->nparts; p++)
        draw_lane(d, t, index, p, axis);
    label = t->ndim ? str_dupf("%s = %llu", t->axis[axis]->text,
                               (unsigned long long)t->axis[axis]->size)
                    : str_dupf("one number");
    if (strlen(label) > 48)
        memcpy(label + 45, "...", 4);
    canvas_text(d->canvas, MARGIN + NAME + AXIS + 10, d->y + height / 2, SIDE,
                ALIGN_LEFT, canvas_ink, label);
    free(label);
    d->y += height + GAP;
}

/* Selects tensors outside layers, and those of the first layer (and first expert). */
static bool is_shown(const struct model_tensor *t)
{
    return t->source >= 0 && t->layer <= 0 && t->expert <= 0;
}

static void draw_legend(struct drawing *d, const uint64_t *bytes)
{
    double x = MARGIN;

    for (int p = 0; p < d->nparts; p++) {
        char size[32];
        char *label = str_dupf("part %d: %s", p, str_human(size, bytes[p]));
        double width = 16 + canvas_text_width(d->canvas, SIDE, label) + 16;

        if (x + width > 2 * MARGIN + NAME + AXIS + 200) {
            x = MARGIN;
            d->y += 14;
        }
        canvas_rectangle(d->canvas, x, d->y - 4, 10, 8, canvas_colour(p));
        canvas_text(d->canvas, x + 14, d->y, SIDE, ALIGN_LEFT, canvas_ink, label);
        x += width;
        free(label);
    }
    d->y += 20;
}

int plan_plot(const char *path, const struct checkpoint *c, struct cutter **cutter,
              int nparts, const uint64_t *bytes, struct err *err)
{
    const struct model *m = c->model;
    struct drawing d = { .cutter = cutter, .nparts = nparts, .y = MARGIN };
    double height = 2 * MARGIN + 60 + 14 * (nparts / 8);
    char *title;

    if (nparts > MOST_PARTS)
        return err_set(err, ERR_NO,
                       "%s: %d parts are too many to draw (the most is %d)", path,
                       nparts, MOST_PARTS);
    for (size_t i = 0; i < m->ntensors; i++)
        height += is_shown(&m->tensor[i]) ? nparts * LANE + GAP : 0;
    if (canvas_open(&d.canvas, path, 2 * MARGIN + NAME + AXIS + 220, height, err) < 0)
        return -1;
    title = str_dupf("%s (%s): what each of %d parts holds; lighter is a copy", c->path,
                     m->family, nparts);
    canvas_text(d.canvas, MARGIN, d.y, 12, ALIGN_LEFT, canvas_ink, title);
    free(title);
    d.y += 24;
    draw_legend(&d, bytes);
    for (size_t i = 0; i < m->ntensors; i++)
        if (is_shown(&m->tensor[i]))
            draw_tensor(&d, m, i);
    return canvas_close(d.canvas, err);
}
