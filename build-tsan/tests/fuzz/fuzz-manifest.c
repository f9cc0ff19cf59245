/* fuzz-manifest - checkpoint.json, as it is and with the checksum made right */
#include <stdint.h>
#include <stdlib.h>

#include "lib/ckpt/manifest.h"
#include "tests/fuzz/seal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Every part's names, and who holds what. */
static void walk(const struct manifest *m)
{
    for (int p = 0; p < m->nparts && p < 64; p++) {
        free(manifest_part_name_dup(m->mesh, p));
        free(manifest_config_dir_dup(m->mesh, p));
        for (size_t i = 0; i < m->ntensors; i++)
            (void)manifest_holds(&m->tensor[i], p);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str sealed = { 0 };
    struct manifest m;
    struct err err = { 0 };

    if (manifest_parse(&m, "fuzz", (const char *)data, size, &err) == 0)
        manifest_clear(&m);
    seal(&sealed, (const char *)data, size);
    if (manifest_parse(&m, "fuzz", sealed.s, sealed.len, &err) == 0) {
        walk(&m);
        manifest_clear(&m);
    }
    str_clear(&sealed);
    return 0;
}
