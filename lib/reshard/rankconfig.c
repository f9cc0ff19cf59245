/* rankconfig - one directory per shard, in which the shard opens as a model of its
 * own */
#include "lib/reshard/rankconfig.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/hash.h"
#include "lib/base/mem.h"
#include "lib/model/partconfig.h"

const char RANKCONFIG_WEIGHTS[] = "model.safetensors";

char *rankconfig_link_dup(const int mesh[MANIFEST_AXES], int p)
{
    char *name = manifest_part_name_dup(mesh, p), *link = str_dupf("../%s", name);

    free(name);
    return link;
}

int rankconfig_make(struct rankconfig *r, const struct checkpoint *from,
                    const struct mesh *mesh, struct err *err)
{
    const char *config = from->sharded ? from->manifest.config : from->source.config;
    int coord[MESH_NAXES];

    *r = (struct rankconfig){ .nparts = manifest_nparts(mesh->size) };
    memcpy(r->mesh, mesh->size, sizeof(r->mesh));
    r->text = xcalloc((size_t)r->nparts, sizeof(*r->text));
    r->crc = xcalloc((size_t)r->nparts, sizeof(*r->crc));
    for (int p = 0; p < r->nparts; p++) {
        struct str s = { 0 };

        manifest_part_coord(mesh->size, p, coord);
        if (partconfig_print(&s, from->model, "config.json", config, mesh, coord, err) <
            0) {
            str_clear(&s);
            return -1;
        }
        r->crc[p] = hash_crc32(0, s.s, s.len);
        r->text[p] = str_steal(&s);
    }
    return 0;
}

static int write_one(const struct outdir *o, const char *name, const char *text,
                     const char *link, struct err *err)
{
    struct outdir dir;
    int ret = -1;

    if (outdir_enter(&dir, o, name, err) < 0)
        return -1;
    if ((unlinkat(dir.dir, RANKCONFIG_WEIGHTS, 0) < 0 && errno != ENOENT) ||
        symlinkat(link, dir.dir, RANKCONFIG_WEIGHTS) < 0)
        err_errno(err, "%s", dir.partial);
    else
        ret = outdir_write(&dir, "config.json", text, strlen(text), 0666, err);
    return outdir_leave(&dir, ret, err);
}

int rankconfig_write(const struct rankconfig *r, const struct outdir *o,
                     struct err *err)
{
    int ret = 0;

    for (int p = 0; p < r->nparts && ret == 0; p++) {
        char *name = manifest_config_dir_dup(r->mesh, p);
        char *link = rankconfig_link_dup(r->mesh, p);

        ret = write_one(o, name, r->text[p], link, err);
        free(name);
        free(link);
    }
    return ret;
}

void rankconfig_clear(struct rankconfig *r)
{
    for (int p = 0; r->text && p < r->nparts; p++)
        free(r->text[p]);
    free(r->text);
    free(r->crc);
    *r = (struct rankconfig){ 0 };
}
