/* backends - the backends that are compiled in, in order of preference, and what they
 * can run */
#include <stdio.h>
#include <string.h>

#include "config.h"
#include "lib/device/device.h"

static const struct backend *const backends[] = {
#ifdef HAVE_CUDA
    &backend_cuda,
#endif
    &backend_cpu,
};

const struct backend *backend_find(const char *name, struct err *err)
{
    for (size_t i = 0; i < sizeof(backends) / sizeof(*backends); i++) {
        const struct backend *b = backends[i];

        if (name && strcmp(name, b->name) != 0)
            continue;
        if (b->probe())
            return b;
        if (name) {
            err_set(err, ERR_SYSTEM,
                    "--backend %s: there is no such device here that can be used: see "
                    "'tp-run devices'",
                    name);
            return NULL;
        }
    }
    err_set(err, ERR_USAGE, "--backend: no backend is called '%s'", name ? name : "");
    return NULL;
}

const struct backend *backend_at(size_t i)
{
    return i < sizeof(backends) / sizeof(*backends) ? backends[i] : NULL;
}

/* ---- what a backend can run ---- */

enum { PLAIN = 1 << FORMAT_F32 | 1 << FORMAT_BF16 | 1 << FORMAT_F16 };

/* Does R read or write the KV cache? */
static bool is_cached(const struct device_request *r)
{
    const struct inst *inst = r->inst;
    const struct value *v = r->program->value;
    bool cached = inst->op == OP_KEEP || inst->op == OP_CACHE_READ;

    for (int k = 1; k <= inst->parts; k++)
        cached |= inst[k].op == OP_KEEP;
    if (op_table[inst->op].role == ROLE_ATTENDS)
        for (int k = 0; k < inst->nsrc; k++)
            cached |= v[inst->src[k]].kept;
    return cached;
}

/* "no kernel for OP WITH bf16" */
static int lacks(const struct device_request *r, const char *with, enum format format,
                 struct err *err)
{
    return err_set(err, ERR_NO, "no kernel for %s with %s of %s",
                   op_table[r->inst->op].name, with, format_name(format));
}

int backend_supports(const struct backend *b, const struct device_request *r,
                     struct err *err)
{
    enum op op = r->inst->op;
    const struct kernel_limits *l = &b->limits[op];
    unsigned weights = r->inst->back ? l->back : l->weight;
    unsigned caches = l->cache ? l->cache : 1 << FORMAT_F32;

    weights = weights ? weights : PLAIN;
    if (!op_table[op].on_device)
        return 0;
    if (!b->kernel[op])
        return err_set(err, ERR_NO, "no kernel for %s%s", op_table[op].name,
                       r->reverse ? ", which training needs" : "");
    if ((r->inst->weight >= 0 || r->inst->parts) && !(weights >> r->weight & 1))
        return lacks(r, "weights", r->weight, err);
    if (is_cached(r) && !(caches >> r->cache & 1))
        return lacks(r, "a cache", r->cache, err);
    if (backend_takes_bf16(b->bf16, r, err) < 0)
        return -1;
    return l->fits ? l->fits(r, err) : 0;
}

int backend_supports_array(const struct backend *b, enum array_op op, struct err *err)
{
    return b->array[op]
               ? 0
               : err_set(err, ERR_NO, "no kernel for %s of arrays", array_names[op]);
}
