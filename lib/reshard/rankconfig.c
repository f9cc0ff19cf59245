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

/* Opens or creates the directory NAME in O and sets its final mode.  Returns the
 * descriptor, or -1 with *err set. */
static int open_dir(const struct outdir *o, const char *name, const char *path,
                    struct err *err)
{
    int fd = -1;

    if (mkdirat(o->dir, name, 0700) == 0 || errno == EEXIST)
        fd = openat(o->dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && fchmod(fd, 0777 & ~o->umask) == 0)
        return fd;
    err_errno(err, "%s", path);
    if (fd >= 0)
        close(fd);
    return -1;
}

static int write_one(const struct outdir *o, const char *name, const char *text,
                     const char *link, struct err *err)
{
    char *path = fs_join_dup(o->partial, name);
    struct outdir dir = { .partial = path, .dir = -1, .umask = o->umask };
    int ret = -1;

    dir.dir = open_dir(o, name, path, err);
    if (dir.dir < 0)
        goto out;
    if ((unlinkat(dir.dir, RANKCONFIG_WEIGHTS, 0) < 0 && errno != ENOENT) ||
        symlinkat(link, dir.dir, RANKCONFIG_WEIGHTS) < 0) {
        err_errno(err, "%s", path);
        goto out;
    }
    if (outdir_write(&dir, "config.json", text, strlen(text), 0666, err) < 0)
        goto out;
    ret = fsync(dir.dir) < 0 ? err_errno(err, "%s", path) : 0;
out:
    if (dir.dir >= 0)
        close(dir.dir);
    free(path);
    return ret;
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
