/* parameters - the trainable weights of one rank, and their gradients */
#include "lib/train/parameters.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/run/weights.h"

static int load(struct parameters *p, struct checkpoint *c, const struct backend *ops,
                struct device *device, struct err *err)
{
    struct weights w;
    int ret;

    for (int i = 0; i < p->program->nweights; i++)
        p->matrix[i] = (struct matrix){ .data = p->weight + p->at[i],
                                        .format = FORMAT_F32,
                                        .rows = p->program->weight[i].rows,
                                        .cols = p->program->weight[i].cols };
    if (c->drawn)
        return 0;
    if (weights_open(&w, c, p->program, ops, device, WEIGHTS_STORED, NULL, 1, err) < 0)
        return -1;
    for (int i = 0; i < w.n; i++) {
        const struct matrix *m = &w.matrix[i];

        dtype_to_f32(format_dtype(m->format), m->data, p->weight + p->at[i],
                     (size_t)(m->rows * m->cols));
    }
    ret = weights_settle(&w, err);
    weights_close(&w);
    return ret;
}

/* Weights unpacked from a quantized form cannot be saved in that form. */
static int refuse_packed(const struct model *m, struct err *err)
{
    const char *method = model_quantized(m);

    return !method ? 0
                   : err_set(err, ERR_NO,
                             "%s: weights quantized by %s (quantization_config) cannot "
                             "be trained",
                             model_config_name(m), method);
}

int parameters_open(struct parameters *p, struct checkpoint *c,
                    const struct program *program, const struct backend *ops,
                    struct device *device, struct err *err)
{
    int n = program->nweights, coord[MESH_NAXES];

    *p = (struct parameters){ .program = program };
    if (refuse_packed(program->model, err) < 0)
        return -1;
    memcpy(coord, program->coord, sizeof(coord));
    coord[MESH_DP] = 0; /* all dp replicas own what the first owns */
    p->at = xcalloc((size_t)n + 1, sizeof(*p->at));
    p->matrix = xcalloc((size_t)n + 1, sizeof(*p->matrix));
    p->shared = xcalloc(program->model->ntensors + 1, sizeof(*p->shared));
    for (int i = 0; i < n; i++)
        p->at[i + 1] =
            p->at[i] + (size_t)(program->weight[i].rows * program->weight[i].cols);
    p->weight = mem_alloc((p->at[n] + 1) * sizeof(float), "the weights", err);
    p->gradient = mem_alloc((p->at[n] + 1) * sizeof(float), "the gradients", err);
    if (!p->weight || !p->gradient ||
        cutter_open(&p->cutter, c->model, &program->mesh, coord, err) < 0 ||
        load(p, c, ops, device, err) < 0) {
        parameters_close(p);
        return -1;
    }
    cutter_set_order(p->cutter, SLICE_BY_UNIT);
    parameters_zero(p);
    return 0;
}

void parameters_close(struct parameters *p)
{
    if (p->cutter)
        cutter_free(p->cutter);
    free(p->weight);
    free(p->gradient);
    free(p->matrix);
    free(p->at);
    free(p->shared);
    *p = (struct parameters){ 0 };
}

void parameters_zero(struct parameters *p)
{
    memset(p->gradient, 0, p->at[p->program->nweights] * sizeof(float));
}

/* ---- positions of elements ---- */

/* A tied tensor is used by the first and the last stage, or twice on a single stage. */
int parameters_find_shared(struct parameters *p, struct comm *pipe, struct err *err)
{
    size_t n = p->program->model->ntensors;
    double *has = xcalloc(n + 1, sizeof(*has));
    bool end = pipe->rank == 0 || pipe->rank == pipe->size - 1;
    int ret;

    for (int i = 0; i < p->program->nweights && end; i++)
        has[p->program->weight[i].tensor] = 1;
    ret = comm_run(pipe, comm_all_reduce_f64(has, n), err);
    for (size_t t = 0; t < n; t++)
        p->shared[t] = has[t] > 1;
    free(has);
    return ret;
}

struct walk {
    const struct slice *slice;
    const struct model_tensor *tensor;
    void (*see)(void *arg, size_t here, size_t whole, size_t n, bool owned);
    void *arg;
    size_t here;
};

/* Visits the runs of axis K and the axes inside it; the global offset is WHOLE. */
static void walk_axis(struct walk *w, int k, size_t whole, bool owned)
{
    const struct runs *runs = w->slice->runs[k];
    size_t inner = 1;

    for (int i = k + 1; i < w->slice->ndim; i++)
        inner *= (size_t)w->tensor->axis[i]->size;
    for (size_t r = 0; r < runs->n; r++) {
        const struct run *run = &runs->v[r];
        size_t at = whole + (size_t)run->start * inner;

        if (k == w->slice->ndim - 1) {
            w->see(w->arg, w->here, at, (size_t)run->count, owned && run->owned);
            w->here += (size_t)run->count;
            continue;
        }
        for (uint64_t i = 0; i < run->count; i++)
            walk_axis(w, k + 1, at + (size_t)i * inner, owned && run->owned);
    }
}

/* The same for index N of the first local axis. */
static void walk_slice(struct walk *w, uint64_t n, bool owned)
{
    const struct runs *runs = w->slice->runs[0];
    size_t inner = 1, r = 0;

    for (int i = 1; i < w->slice->ndim; i++)
        inner *= (size_t)w->tensor->axis[i]->size;
    for (; n >= runs->v[r].count; r++)
        n -= runs->v[r].count;
    walk_axis(w, 1, (size_t)(runs->v[r].start + n) * inner, owned && runs->v[r].owned);
}

void parameters_runs(struct parameters *p, int i,
                     void (*see)(void *arg, size_t here, size_t whole, size_t n,
                                 bool owned),
                     void *arg)
{
    size_t tensor = p->program->weight[i].tensor;
    struct slice slice;
    struct walk w = { .slice = &slice,
                      .tensor = &p->program->model->tensor[tensor],
                      .see = see,
                      .arg = arg };

    bool owned;

    cutter_slice(p->cutter, tensor, &slice);
    owned = slice.primary && (p->program->coord[MESH_PP] == 0 || !p->shared[tensor]);
    if (p->program->weight[i].slice)
        walk_slice(&w, p->program->weight[i].slice - 1, owned);
    else
        walk_axis(&w, 0, 0, owned);
}

uint64_t parameters_whole(const struct parameters *p, int i)
{
    const struct model_tensor *t =
        &p->program->model->tensor[p->program->weight[i].tensor];
    uint64_t n = 1;

    for (int k = 0; k < t->ndim; k++)
        n *= t->axis[k]->size;
    return n;
}

/* ---- all-reduce over the tensor group ---- */

struct copying {
    float *here, *whole;
    bool back;
};

static void copy_run(void *arg, size_t here, size_t whole, size_t n, bool owned)
{
    const struct copying *c = arg;

    (void)owned;
    if (c->back)
        memcpy(c->here + here, c->whole + whole, n * sizeof(float));
    else
        memcpy(c->whole + whole, c->here + here, n * sizeof(float));
}

/* Sums via a buffer of the global tensor, in which each rank fills in its elements. */
static int sum_one(struct parameters *p, int i, struct comm *c, struct err *err)
{
    size_t n = (size_t)parameters_whole(p, i);
    struct copying copy = { .here = p->gradient + p->at[i] };
    int ret;

    copy.whole = mem_alloc((n + 1) * sizeof(float), "a gradient", err);
    if (!copy.whole)
        return -1;
    memset(copy.whole, 0, n * sizeof(float));
    parameters_runs(p, i, copy_run, &copy);
    ret = comm_run(c, comm_all_reduce(copy.whole, n), err);
    copy.back = true;
    if (ret == 0)
        parameters_runs(p, i, copy_run, &copy);
    free(copy.whole);
    return ret;
}

int parameters_sum(struct parameters *p, struct comm *c, struct err *err)
{
    for (int i = 0; i < p->program->nweights; i++)
        if (p->program->weight[i].summed && sum_one(p, i, c, err) < 0)
            return -1;
    return 0;
}

/* ---- tied tensors ---- */

/* Exchanges the gradient of weight I with the stage at the other end.  Both add the
 * first stage's term first, so both get the same bits. */
static int tie_one(struct parameters *p, int i, struct comm *pipe, struct err *err)
{
    bool first = pipe->rank == 0;
    int other = first ? pipe->size - 1 : 0;
    size_t n = p->at[i + 1] - p->at[i], bytes = n * sizeof(float);
    float *own = p->gradient + p->at[i];
    float *theirs = mem_alloc(bytes + 1, "a gradient", err);
    int ret = -1;

    if (theirs && pipe->ops->send(pipe, own, bytes, other, err) == 0 &&
        pipe->ops->receive(pipe, theirs, bytes, other, err) == 0) {
        for (size_t k = 0; k < n; k++)
            own[k] = first ? own[k] + theirs[k] : theirs[k] + own[k];
        ret = 0;
    }
    free(theirs);
    return ret;
}

int parameters_tie(struct parameters *p, struct comm *pipe, struct err *err)
{
    if (pipe->size == 1 || (pipe->rank > 0 && pipe->rank < pipe->size - 1))
        return 0;
    for (int i = 0; i < p->program->nweights; i++)
        if (p->shared[p->program->weight[i].tensor] && tie_one(p, i, pipe, err) < 0)
            return -1;
    return 0;
}
