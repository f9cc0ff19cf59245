/* rankconfig - a directory for each part, in which it opens as a model of its own */
#include "lib/reshard/rankconfig.h"

#include <errno.h>
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

static int write_one(const char *dir, const char *text, const char *link,
                     struct err *err)
{
    char *config = fs_join_dup(dir, "config.json");
    char *weights = fs_join_dup(dir, RANKCONFIG_WEIGHTS);
    int ret = -1;

    if ((mkdir(dir, 0777) < 0 && errno != EEXIST) ||
        (unlink(weights) < 0 && errno != ENOENT) || symlink(link, weights) < 0) {
        err_errno(err, "%s", dir);
        goto out;
    }
    if (fs_write_file(config, text, strlen(text), true, err) < 0)
        goto out;
    ret = fs_sync_dir(dir, err);
out:
    free(config);
    free(weights);
    return ret;
}

int rankconfig_write(const struct rankconfig *r, const char *dir, struct err *err)
{
    int ret = 0;

    for (int p = 0; p < r->nparts && ret == 0; p++) {
        char *name = manifest_config_dir_dup(r->mesh, p);
        char *path = fs_join_dup(dir, name), *link = rankconfig_link_dup(r->mesh, p);

        ret = write_one(path, r->text[p], link, err);
        free(name);
        free(path);
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
