/* library - loads NVIDIA's libraries at run time, if they are installed */
#include "lib/gpu/library.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

#include "config.h"

#ifndef CUDA_LIBDIR
#define CUDA_LIBDIR ""
#endif

void *library_open(const char *const *names)
{
    char path[4096];

    for (const char *const *name = names; *name; name++) {
        void *library = dlopen(*name, RTLD_NOW | RTLD_LOCAL);

        if (library)
            return library;
    }
    for (const char *const *name = names; *name && CUDA_LIBDIR[0]; name++) {
        void *library;

        snprintf(path, sizeof(path), "%s/%s", CUDA_LIBDIR, *name);
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library)
            return library;
    }
    return NULL;
}
