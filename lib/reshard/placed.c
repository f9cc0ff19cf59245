/* placed - the tensors of a checkpoint as another framework stores them */
#include "lib/reshard/placed.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

void placed_clear(struct placed *p)
{
    for (size_t i = 0; i < p->n; i++)
        free(p->tensor[i].name);
    for (size_t i = 0; i < p->nparts; i++)
        free(p->part[i].view.stored);
    free(p->tensor);
    free(p->part);
    *p = (struct placed){ 0 };
}

bool placed_is_plain(const struct placed *p, size_t i)
{
    const struct placed_tensor *t = &p->tensor[i];
    const struct names_view *v = &p->part[t->first].view;

    return t->nparts == 1 && !v->ndigits && !v->transposed && !v->plus;
}

/* ---- the parts ---- */

static int compare_parts(const void *a, const void *b)
{
    const struct placed_part *x = a, *y = b;

    return x->from < y->from ? -1 : x->from > y->from;
}

static int list_parts(struct placed *p, const struct checkpoint *c, const char *dialect,
                      unsigned stacks, struct err *err)
{
    const struct model *m = c->model;

    p->part = xcalloc(m->ntensors + 1, sizeof(*p->part));
    for (size_t t = 0; t < m->ntensors; t++) {
        struct placed_part *q = &p->part[p->nparts];
        int ret;

        if (m->tensor[t].source < 0 || m->tensor[t].tied >= 0 /* a copy */)
            continue;
        ret = names_written(&q->view, m, dialect, t, stacks, err);
        if (ret < 0)
            return -1;
        if (!ret)
            return err_set(err, ERR_NO,
                           "%s: tensor %s: family %s has no name for it in a "
                           "checkpoint of %s",
                           c->path, m->tensor[t].name, m->family, dialect);
        q->from = (size_t)m->tensor[t].source;
        p->nparts++;
    }
    if (p->nparts)
        qsort(p->part, p->nparts, sizeof(*p->part), compare_parts);
    return 0;
}

/* ---- the stored tensors ---- */

/* One more than the highest row of the stored tensor that is one of V's; *axis0 is how
 * many rows the weight has. */
static uint64_t end_row(const struct names_view *v, uint64_t rows)
{
    uint64_t end = v->first + 1;

    if (!v->ndigits)
        return rows;
    for (int k = 0; k < v->ndigits; k++)
        end += (v->digit[k].count - 1) * v->digit[k].stride;
    return end;
}

/* The stored tensor NAME, which is appended if there is none; INDEX has those there
 * are, by hash. */
struct index {
    size_t *slot;
    size_t mask;
};

static size_t find(struct placed *p, struct index *x, const char *name)
{
    uint64_t hash = 14695981039346656037u;
    size_t i;

    for (const char *c = name; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    for (i = hash & x->mask; x->slot[i]; i = (i + 1) & x->mask)
        if (!strcmp(p->tensor[x->slot[i] - 1].name, name))
            return x->slot[i] - 1;
    p->tensor[p->n].name = xstrdup(name);
    x->slot[i] = ++p->n;
    return p->n - 1;
}

static int wrong(const struct checkpoint *c, const struct placed_part *q,
                 const char *what, struct err *err)
{
    return err_set(err, ERR_NO, "%s: tensor %s: %s, as %s", c->path,
                   c->tensor[q->from].name, what, q->view.stored);
}

/* Adds part Q to the stored tensor T: its shape, and what of it is there. */
static int add_part(struct placed_tensor *t, const struct checkpoint *c,
                    struct placed_part *q, uint64_t lead[2], struct err *err)
{
    const struct names_view *v = &q->view;
    const struct tensor *w = &c->tensor[q->from];
    uint64_t rows = w->ndim ? w->shape[v->transposed ? 1 : 0] : 1, elements = 1;
    int rest = v->nlead + 1;

    if (v->transposed && w->ndim != 2)
        return wrong(c, q, "is no matrix", err);
    if (w->ndim > MODEL_MAX_DIMS)
        return wrong(c, q, "has too many axes", err);
    rows = v->transposed ? rows : end_row(v, rows);
    for (int k = 0; k < w->ndim; k++)
        elements *= w->shape[k]; /* no overflow: checked when they were read */
    if (!t->nparts) {
        t->ndim = v->nlead + (w->ndim ? w->ndim : 1);
        for (int k = 1; k < w->ndim; k++)
            t->shape[rest + k - 1] = w->shape[v->transposed ? 0 : k];
    }
    if (t->ndim != v->nlead + (w->ndim ? w->ndim : 1))
        return wrong(c, q, "has another shape than the rest", err);
    for (int k = 1; k < w->ndim; k++)
        if (t->shape[rest + k - 1] != w->shape[v->transposed ? 0 : k])
            return wrong(c, q, "has another shape than the rest", err);
    for (int k = 0; k < v->nlead; k++) {
        lead[k] = v->lead[k];
        if (t->shape[k] <= v->lead[k])
            t->shape[k] = v->lead[k] + 1;
    }
    if (t->rows < rows)
        t->rows = rows;
    t->plus |= v->plus > 0;
    t->elements += elements;
    t->nparts++;
    return 0;
}

/* Each element must be some part's: rows of a family are distinct (names_check), so
 * counting is enough. */
static int check_whole(struct placed *p, const struct checkpoint *c, struct err *err)
{
    for (size_t i = 0; i < p->n; i++) {
        struct placed_tensor *t = &p->tensor[i];
        const struct placed_part *q = &p->part[t->first];
        uint64_t all = 1;

        t->shape[q->view.nlead] = t->rows;
        for (int k = 0; k < t->ndim; k++)
            if (!mem_mul(&all, all, t->shape[k]))
                return wrong(c, q, "its shape overflows", err);
        if (all != t->elements)
            return err_set(err, ERR_NO,
                           "%s: %s: its tensors have %llu of the %llu numbers that a "
                           "whole one has",
                           c->path, t->name, (unsigned long long)t->elements,
                           (unsigned long long)all);
    }
    return 0;
}

int placed_make(struct placed *p, const struct checkpoint *c, const char *dialect,
                unsigned stacks, struct err *err)
{
    struct index x = { 0 };
    uint64_t(*lead)[2] = NULL;
    int ret = -1;

    *p = (struct placed){ 0 };
    if (!c->model)
        return err_set(err, ERR_INPUT, "%s: a single file has no config.json", c->path);
    if (!names_has(c->model, dialect))
        return err_set(err, ERR_NO, "%s: family %s has no names in a checkpoint of %s",
                       c->path, c->model->family, dialect);
    if (list_parts(p, c, dialect, stacks, err) < 0)
        goto out;
    for (x.mask = 1; x.mask < 4 * p->nparts;)
        x.mask *= 2;
    x.slot = xcalloc(x.mask--, sizeof(*x.slot));
    p->tensor = xcalloc(p->nparts + 1, sizeof(*p->tensor));
    lead = xcalloc(p->nparts + 1, sizeof(*lead));
    for (size_t i = 0; i < p->nparts; i++) {
        struct placed_part *q = &p->part[i];

        q->to = find(p, &x, q->view.stored);
        if (!p->tensor[q->to].nparts)
            p->tensor[q->to].first = i;
        if (add_part(&p->tensor[q->to], c, q, lead[i], err) < 0)
            goto out;
    }
    if (check_whole(p, c, err) < 0)
        goto out;
    for (size_t i = 0; i < p->nparts; i++) {
        struct placed_part *q = &p->part[i];
        const struct placed_tensor *t = &p->tensor[q->to];

        if (t->ndim && q->view.nlead)
            q->lead =
                q->view.nlead == 1 ? lead[i][0] : lead[i][0] * t->shape[1] + lead[i][1];
    }
    ret = 0;
out:
    free(x.slot);
    free(lead);
    if (ret < 0)
        placed_clear(p);
    return ret;
}
