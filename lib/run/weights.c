/* weights - the weights of one rank in device memory */
#include "lib/run/weights.h"

#include <math.h>
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

/* Makes weight I the slice that follows weight I - 1 in the same tensor. */
static int next_slice(struct weights *w, int i)
{
    struct matrix m = w->matrix[i - 1];

    m.data = (const char *)m.data + m.rows * m.cols * (uint64_t)dtype_bits(m.dtype) / 8;
    w->matrix[i] = m;
    w->part[i] = true;
    return 0;
}

/* Weight I, of BYTES: from HOST, which has them, or for NULL the loader's TENSOR. */
static int place(struct weights *w, int i, struct loader *loader, size_t tensor,
                 const void *host, uint64_t bytes, const char *name, struct err *err)
{
    void *data = w->ops->alloc(w->device, bytes, name, err);

    w->matrix[i].data = data;
    w->bytes += bytes;
    if (!data)
        return -1;
    if (host)
        return w->ops->copy_in(w->device, data, host, bytes, err);
    if (w->ops->host_memory)
        return loader_read(loader, tensor, data, err);
    return copy_in(w, loader, tensor, data, bytes, err);
}

/* What part of tensor T the loader has, freshly; it must have N bytes. */
static void *fetch(struct loader *loader, const struct checkpoint *c, size_t t,
                   uint64_t n, struct err *err)
{
    const struct model_tensor *mt = &c->model->tensor[t];
    uint64_t bytes = 0;
    void *data;

    if (mt->source < 0) {
        err_set(err, ERR_INPUT, "tensor %s is missing", mt->name);
        return NULL;
    }
    if (loader_bytes(loader, t, &bytes, err) < 0)
        return NULL;
    if (bytes != n || c->tensor[mt->source].dtype != DTYPE_U8) {
        err_set(err, ERR_INPUT, "tensor %s: %llu bytes of type %s, expected %llu of U8",
                mt->name, (unsigned long long)bytes,
                dtype_name(c->tensor[mt->source].dtype), (unsigned long long)n);
        return NULL;
    }
    data = mem_alloc(n + 1, mt->name, err);
    if (data && loader_read(loader, t, data, err) < 0) {
        free(data);
        data = NULL;
    }
    return data;
}

/* N blocks of 32 values of four bits, with the power of two that multiplies each, as
 * bf16, which has them all exactly (OCP Microscaling Formats 1.0, 2023: FP4 E2M1, E8M0;
 * the even values of a block are in the low halves of its bytes). */
static void unpack_mxfp4(uint16_t *y, const uint8_t *block, const uint8_t *scale,
                         uint64_t n)
{
    static const float value[] = { 0, 0.5F, 1, 1.5F, 2, 3, 4, 6 };

    for (uint64_t i = 0; i < n; i++, block += 16, y += 32)
        for (int k = 0; k < 32; k++) {
            int four = block[k / 2] >> (k % 2 ? 4 : 0) & 15;
            float x = ldexpf(value[four & 7], scale[i] - 127);
            uint32_t bits;

            memcpy(&bits, &x, sizeof(bits));
            y[k] = (uint16_t)(bits >> 16 | (uint32_t)(four >> 3) << 15);
        }
}

/* Weight I, whose ELEMENTS are stored as BLOCKS and SCALES. */
static int load_packed(struct weights *w, int i, struct loader *loader,
                       const struct checkpoint *c, const struct weight *need,
                       size_t blocks, size_t scales, uint64_t elements, struct err *err)
{
    const char *name = c->model->tensor[need->tensor].name;
    uint64_t n = elements / 32;
    uint8_t *block = fetch(loader, c, blocks, n * 16, err);
    uint8_t *scale = block ? fetch(loader, c, scales, n, err) : NULL;
    uint16_t *wide =
        scale ? mem_alloc((elements + 1) * sizeof(*wide), name, err) : NULL;
    int ret = -1;

    w->matrix[i] = (struct matrix){ NULL, DTYPE_BF16, need->rows, need->cols };
    if (wide) {
        unpack_mxfp4(wide, block, scale, n);
        ret = place(w, i, loader, 0, wide, elements * sizeof(*wide), name, err);
    }
    free(wide);
    free(scale);
    free(block);
    return ret;
}

/* A shard of a padded table may have rows of zeros after the rows that the program
 * needs. */
static int load(struct weights *w, int i, struct loader *loader,
                const struct checkpoint *c, const struct weight *need, bool padded,
                struct err *err)
{
    const struct model_tensor *t = &c->model->tensor[need->tensor];
    uint64_t bytes, expected;
    size_t blocks, scales;
    enum dtype dtype;

    if (!mem_mul(&expected, need->rows, need->cols) ||
        !mem_mul(&expected, expected, need->slice ? need->experts : 1))
        return err_set(err, ERR_INPUT, "tensor %s: too large", t->name);
    if (t->source < 0 && model_packing(c->model, need->tensor, &blocks, &scales))
        return load_packed(w, i, loader, c, need, blocks, scales, expected, err);
    if (t->source < 0)
        return err_set(err, ERR_INPUT,
                       "tensor %s: stored quantised; cannot compute with it", t->name);
    dtype = c->tensor[t->source].dtype;
    if (dtype != DTYPE_F32 && dtype != DTYPE_BF16 && dtype != DTYPE_F16)
        return err_set(err, ERR_INPUT, "tensor %s: cannot compute with type %s",
                       t->name, dtype_name(dtype));
    if (loader_bytes(loader, need->tensor, &bytes, err) < 0)
        return -1;
    if (!dtype_bytes(&expected, dtype, expected) ||
        (padded ? expected > bytes : expected != bytes))
        return err_set(err, ERR_INPUT, "tensor %s: %llu bytes, expected %llu x %llu %s",
                       t->name, (unsigned long long)bytes,
                       (unsigned long long)need->rows *
                           (need->slice ? need->experts : 1),
                       (unsigned long long)need->cols, dtype_name(dtype));
    w->matrix[i] = (struct matrix){ NULL, dtype, need->rows, need->cols };
    return place(w, i, loader, need->tensor, NULL, bytes, t->name, err);
}

/* Checks that the stored copy of a tied tensor equals weight I. */
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

/* Checks the copies in an unsharded checkpoint; those of a sharded one were checked by
 * split. */
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
    w->part = xcalloc((size_t)w->n + 1, sizeof(*w->part));
    for (int i = 0; i < w->n && ret == 0; i++)
        ret = program->weight[i].slice > 1 ? next_slice(w, i)
                                           : load(w, i, loader, c, &program->weight[i],
                                                  program->mesh.pad_vocab > 0, err);
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
        if (!w->part[i])
            w->ops->release(w->device, (void *)(uintptr_t)w->matrix[i].data);
    free(w->matrix);
    free(w->part);
    *w = (struct weights){ 0 };
}
