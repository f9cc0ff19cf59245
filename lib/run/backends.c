/* backends - the backends that are compiled in, in order of preference */
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
