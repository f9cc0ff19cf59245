/* restore - reads the training state of a checkpoint */
#include "lib/train/restore.h"

#include <stdlib.h>

#include "lib/base/mem.h"
#include "lib/train/adaptersave.h"

struct loading {
    struct parameters *p;
    struct loader *loader;
    struct checkpoint *c;
    float *room; /* for the largest weight */
};

/* Elements of weight I's tensor: of all experts, if the tensor has these. */
static uint64_t stored_elements(const struct parameters *p, int i)
{
    const struct weight *w = &p->program->weight[i];

    return p->row[i].n * (w->slice ? w->experts : 1);
}

/* Reads the numbers of weight I in ROLE, a form of which has AXES, if this rank WANTS
 * them; *HELD: the checkpoint has it. */
static int read_one(struct loading *l, int i, const char *role, enum manifest_form form,
                    bool wants, bool *held, struct err *err)
{
    struct checkpoint *c = l->c;
    const struct parameters *p = l->p;
    size_t tensor = p->program->weight[i].tensor;
    long source = c->model->tensor[tensor].source;
    long from = source < 0 ? -1 : checkpoint_state(c, (size_t)source, role);

    *held = from >= 0;
    if (from < 0 || !wants)
        return 0;
    if (c->sharded && c->tensor[from].dtype != DTYPE_F32)
        return err_set(err, ERR_INPUT, "%s: %s is of type %s, not F32", c->path,
                       c->tensor[from].name, dtype_name(c->tensor[from].dtype));
    if (manifest_form_of(&c->manifest, role) != form)
        return err_set(err, ERR_INPUT, "%s: %s has other axes than this optimizer's",
                       c->path, c->tensor[from].name);
    return loader_read_state(l->loader, tensor, (size_t)from, l->room, err);
}

/* The weight behind I, and behind those that are slices of its tensor. */
static int behind(const struct parameters *p, int i)
{
    const struct weight *w = &p->program->weight[i];

    return i + (w->slice ? (int)w->experts : 1);
}

/* Reads the masters of weight I, and of those behind it that are slices of its tensor,
 * if there are any: what this rank keeps of them. */
static int load_masters(struct loading *l, int i, struct err *err)
{
    struct parameters *p = l->p;
    const bool gathers = parameters_gathers(p);
    const float *from = l->room;
    bool held, wants = false;

    for (int n = i; n < behind(p, i); n++)
        wants |= !gathers || p->row[n].count > 0;
    if (read_one(l, i, "master", MANIFEST_LIKE, wants, &held, err) < 0)
        return -1;
    for (int n = i; n < behind(p, i) && held && wants; n++) {
        const struct parameter *row = &p->row[n];
        const uint64_t first = gathers ? row->first : 0;
        const uint64_t count = gathers ? row->count : row->n;

        if (count && parameters_put(p, n, from + first, first, count, err) < 0)
            return -1;
        from += row->n;
    }
    return 0;
}

/* Reads slot K of weight I, and of those behind it that are slices of its tensor. */
static int load_slot(struct loading *l, int i, int k, struct err *err)
{
    struct parameters *p = l->p;
    const struct weight *w = &p->program->weight[i];
    const int end = behind(p, i);
    const float *from = l->room;
    bool held, wants = false;

    if (parameters_form(p, i, k) == SLOT_NONE)
        return 0;
    for (int n = i; n < end; n++)
        wants |= p->row[n].count > 0;
    if (read_one(l, i, p->state[k].role, p->state[k].form, wants, &held, err) < 0)
        return -1;
    if (!held)
        return err_set(err, ERR_INPUT, "%s: has no %s of %s", l->c->path,
                       p->state[k].role, l->c->model->tensor[w->tensor].name);
    for (int n = i; n < end && wants; n++) {
        uint64_t first, count;

        parameters_kept(p, n, k, &first, &count);
        if (count && parameters_put_slot(p, n, k, from + first, first, count, err) < 0)
            return -1;
        from += optimizer_slot_stored(parameters_form(p, n, k), p->program, n);
    }
    return 0;
}

/* Reads all of weight I that is there, and WHOLE: all that must be. */
static int load_weight(struct loading *l, int i, bool whole, struct err *err)
{
    if (load_masters(l, i, err) < 0)
        return -1;
    for (int k = 0; whole && k < l->p->slots; k++)
        if (load_slot(l, i, k, err) < 0)
            return -1;
    return 0;
}

/* Reads the state of what P has; WHOLE: all of it. */
static int restore_stage(struct parameters *p, struct checkpoint *c, bool whole,
                         struct err *err)
{
    const struct program *program = p->program;
    struct loading l = { .p = p, .c = c };
    uint64_t most = 0;
    int ret = 0;

    if (c->nweights == c->ntensors)
        return whole && p->slots
                   ? err_set(err, ERR_INPUT, "%s: has no state of a training", c->path)
                   : 0;
    for (int i = 0; i < program->nweights; i++)
        most = stored_elements(p, i) > most ? stored_elements(p, i) : most;
    l.room = mem_alloc(most * sizeof(float), "a weight", err);
    if (!l.room || loader_open(&l.loader, c, &program->mesh, program->coord, err) < 0) {
        free(l.room);
        return -1;
    }
    for (int i = 0; i < program->nweights && ret == 0; i++)
        if (p->row[i].trained && program->weight[i].slice <= 1)
            ret = load_weight(&l, i, whole, err);
    loader_close(l.loader);
    free(l.room);
    return ret < 0 || whole ? ret : parameters_begin_average(p, err);
}

int restore_state(struct trainer *t, struct checkpoint *c, bool whole, struct err *err)
{
    const bool adapts = adaptersave_applies(t);

    for (int k = 0; k < t->nstages; k++) {
        struct parameters *p = &t->stage[k].parameters;

        /* an adapter's matrices are read with the model's weights */
        if ((!adapts ? restore_stage(p, c, whole, err)
             : whole ? adaptersave_restore(p, adapter_dir(c->adapter), err)
                     : parameters_begin_average(p, err)) < 0)
            return -1;
    }
    return 0;
}
