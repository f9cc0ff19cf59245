/* fuzz-config - config.json: the family it asks for, its model, and a rank's program */
#include <stdint.h>
#include <stdlib.h>

#include "lib/base/mem.h"
#include "lib/model/partconfig.h"
#include "lib/program/program.h"

enum { MOST_TENSORS = 1000 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const struct model *m, const char *config)
{
    const struct program_options options = { .tail = TAIL_NONE };
    int coord[MESH_NAXES] = { 0 };
    struct err err = { 0 };
    struct str text = { 0 };
    struct program *p;
    struct mesh mesh;

    mesh_one(&mesh);
    if (program_build(&p, m, &mesh, coord, &options, &err) == 0)
        program_free(p);
    mesh.size[MESH_TP] = mesh.nranks = 2;
    coord[MESH_TP] = 1;
    if (program_build(&p, m, &mesh, coord, &options, &err) == 0)
        program_free(p);
    mesh.keep_vocab = true;
    (void)partconfig_print(&text, m, "fuzz", config, &mesh, coord, &err);
    str_clear(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = xstrndup((const char *)data, size);
    struct err err = { 0 };
    struct model *m;

    if (model_open(&m, "fuzz", text, NULL, NULL, &err) == 0) {
        if (m->ntensors < MOST_TENSORS)
            use(m, text);
        model_free(m);
    }
    free(text);
    return 0;
}
