/* weights - the weights of one rank in memory */
#include "lib/run/weights.h"

#include <stdlib.h>

#include "lib/base/mem.h"

static int load(struct weights *w, int i, struct loader *loader,
                const struct checkpoint *c, const struct weight *need, struct err *err)
{
    const struct model_tensor *t = &c->model->tensor[need->tensor];
    enum dtype dtype = c->tensor[t->source].dtype;
    uint64_t bytes, expected;
    void *data;

    if (dtype != DTYPE_F32 && dtype != DTYPE_BF16 && dtype != DTYPE_F16)
        return err_set(err, ERR_INPUT, "tensor %s: cannot compute with type %s",
                       t->name, dtype_name(dtype));
    if (loader_bytes(loader, need->tensor, &bytes, err) < 0)
        return -1;
    if (!mem_mul(&expected, need->rows, need->cols) ||
        !dtype_bytes(&expected, dtype, expected) || expected != bytes)
        return err_set(err, ERR_INPUT, "tensor %s: %llu bytes, expected %llu x %llu %s",
                       t->name, (unsigned long long)bytes,
                       (unsigned long long)need->rows, (unsigned long long)need->cols,
                       dtype_name(dtype));
    data = mem_alloc(bytes, t->name, err);
    w->matrix[i] = (struct matrix){ data, dtype, need->rows, need->cols };
    w->bytes += bytes;
    return data ? loader_read(loader, need->tensor, data, err) : -1;
}

int weights_open(struct weights *w, struct checkpoint *c, const struct program *program,
                 struct err *err)
{
    struct loader *loader;
    int ret = 0;

    *w = (struct weights){ .n = program->nweights };
    if (loader_open(&loader, c, &program->mesh, program->coord, err) < 0)
        return -1;
    w->matrix = xcalloc((size_t)w->n + 1, sizeof(*w->matrix));
    for (int i = 0; i < w->n && ret == 0; i++)
        ret = load(w, i, loader, c, &program->weight[i], err);
    loader_close(loader);
    if (ret < 0)
        weights_close(w);
    return ret;
}

void weights_close(struct weights *w)
{
    for (int i = 0; w->matrix && i < w->n; i++)
        free((void *)w->matrix[i].data);
    free(w->matrix);
    *w = (struct weights){ 0 };
}
