/* weights - the weights of one rank in memory */
#include "lib/run/weights.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/run/link.h"

/* The tensor's BYTES by way of the host to device memory TO. */
static int copy_in(const struct weights *w, struct loader *loader, size_t tensor,
                   void *to, uint64_t bytes, struct err *err)
{
    void *host = mem_alloc(bytes, "a tensor on its way", err);
    int ret = -1;

    if (host && loader_read(loader, tensor, host, err) == 0)
        ret = w->ops->copy_in(w->device, to, host, bytes, err);
    free(host);
    return ret;
}

/* A part of a padded table may have rows of zeros after those that are needed. */
static int load(struct weights *w, int i, struct loader *loader,
                const struct checkpoint *c, const struct weight *need, bool padded,
                struct err *err)
{
    const struct model_tensor *t = &c->model->tensor[need->tensor];
    uint64_t bytes, expected;
    enum dtype dtype;
    void *data;

    if (t->source < 0)
        return err_set(err, ERR_INPUT,
                       "tensor %s: stored quantised; cannot compute with it", t->name);
    dtype = c->tensor[t->source].dtype;
    if (dtype != DTYPE_F32 && dtype != DTYPE_BF16 && dtype != DTYPE_F16)
        return err_set(err, ERR_INPUT, "tensor %s: cannot compute with type %s",
                       t->name, dtype_name(dtype));
    if (loader_bytes(loader, need->tensor, &bytes, err) < 0)
        return -1;
    if (!mem_mul(&expected, need->rows, need->cols) ||
        !dtype_bytes(&expected, dtype, expected) ||
        (padded ? expected > bytes : expected != bytes))
        return err_set(err, ERR_INPUT, "tensor %s: %llu bytes, expected %llu x %llu %s",
                       t->name, (unsigned long long)bytes,
                       (unsigned long long)need->rows, (unsigned long long)need->cols,
                       dtype_name(dtype));
    data = w->ops->alloc(w->device, bytes, t->name, err);
    w->matrix[i] = (struct matrix){ data, dtype, need->rows, need->cols };
    w->bytes += bytes;
    if (!data)
        return -1;
    if (w->ops->host_memory)
        return loader_read(loader, need->tensor, data, err);
    return copy_in(w, loader, need->tensor, data, bytes, err);
}

/* A copy of a tied tensor must be what was loaded as weight I. */
static int check_copy(const struct weights *w, int i, struct link *link,
                      struct loader *loader, const struct checkpoint *c, size_t copy,
                      struct err *err)
{
    const struct model_tensor *t = &c->model->tensor[copy];
    const struct model_tensor *to = &c->model->tensor[t->tied];
    const void *loaded;
    uint64_t bytes;
    char *data;
    bool same;

    same = c->tensor[t->source].dtype == c->tensor[to->source].dtype;
    if (loader_bytes(loader, copy, &bytes, err) < 0)
        return -1;
    data = mem_alloc(bytes, t->name, err);
    if (!data || loader_read(loader, copy, data, err) < 0) {
        free(data);
        return -1;
    }
    if (link_read(link, w->matrix[i].data, bytes, &loaded, err) < 0) {
        free(data);
        return -1;
    }
    same = same && !memcmp(data, loaded, (size_t)bytes);
    free(data);
    return same ? 0
                : err_set(err, ERR_INPUT, "%s: tensors %s and %s are tied but differ",
                          c->path, t->name, to->name);
}

/* The copies that an uncut checkpoint stores; those of a cut one were compared then. */
static int check_copies(const struct weights *w, struct loader *loader,
                        const struct checkpoint *c, const struct program *program,
                        struct err *err)
{
    struct link link;
    int ret = 0;

    link_init(&link, w->ops, w->device);
    for (size_t t = 0; t < c->model->ntensors && !c->sharded; t++) {
        const struct model_tensor *copy = &c->model->tensor[t];

        if (copy->tied < 0 || copy->source < 0)
            continue;
        for (int i = 0; i < w->n && ret == 0; i++)
            if (program->weight[i].tensor == (size_t)copy->tied)
                ret = check_copy(w, i, &link, loader, c, t, err);
    }
    link_clear(&link);
    return ret;
}

int weights_open(struct weights *w, struct checkpoint *c, const struct program *program,
                 const struct backend *ops, struct device *device, struct err *err)
{
    struct loader *loader;
    int ret = 0;

    *w = (struct weights){ .n = program->nweights, .ops = ops, .device = device };
    if (loader_open(&loader, c, &program->mesh, program->coord, err) < 0)
        return -1;
    w->matrix = xcalloc((size_t)w->n + 1, sizeof(*w->matrix));
    for (int i = 0; i < w->n && ret == 0; i++)
        ret = load(w, i, loader, c, &program->weight[i], program->mesh.pad_vocab > 0,
                   err);
    if (ret == 0)
        ret = check_copies(w, loader, c, program, err);
    loader_close(loader);
    if (ret < 0)
        weights_close(w);
    return ret;
}

void weights_close(struct weights *w)
{
    for (int i = 0; w->matrix && i < w->n; i++)
        w->ops->release(w->device, (void *)(uintptr_t)w->matrix[i].data);
    free(w->matrix);
    *w = (struct weights){ 0 };
}
