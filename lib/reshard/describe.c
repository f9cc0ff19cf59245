/* describe - the manifest of a checkpoint that is made from another one */
#include "lib/reshard/describe.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"

static void copy_sources(struct manifest *m, const struct manifest *from, bool sums)
{
    m->nsources = from->nsources;
    m->source = xcalloc(m->nsources + 1, sizeof(*m->source));
    for (size_t f = 0; f < m->nsources; f++) {
        m->source[f] = from->source[f];
        if (!sums) {
            m->source[f].crc = 0;
            m->source[f].origin = NULL;
        }
    }
}

int describe_sources(struct manifest *m, const struct checkpoint *c,
                     uint32_t (*crc)(void *arg, size_t f, const char *header, size_t n),
                     void *arg, struct err *err)
{
    if (c->sharded) {
        copy_sources(m, &c->manifest, crc != NULL);
        return 0;
    }
    m->source = xcalloc(c->source.nfiles + 1, sizeof(*m->source));
    for (size_t f = 0; f < c->source.nfiles; f++) {
        const struct source_file *file = &c->source.file[f];
        struct manifest_source *s = &m->source[m->nsources++];
        char *header;
        size_t n;

        if (source_header(&header, &n, &c->source, f, err) < 0)
            return -1;
        *s = (struct manifest_source){ .name = file->name,
                                       .size = file->whole,
                                       .header = pool_strndup(&m->pool, header, n),
                                       .header_len = n };
        if (crc) {
            s->crc = crc(arg, f, header, n);
            s->origin = file->origin;
            s->origin_size = file->origin ? c->source.input[f].size : 0;
        }
        free(header);
    }
    return 0;
}

const char **describe_axes(struct manifest *m, const struct checkpoint *c, size_t i,
                           int lacks)
{
    const struct model_tensor *t;
    const char **axis;
    int n = 0;

    if (c->which[i] < 0)
        return NULL;
    t = &c->model->tensor[c->which[i]];
    axis = pool_take(&m->pool, ((size_t)t->ndim + 1) * sizeof(*axis), sizeof(*axis));
    for (int d = 0; d < t->ndim; d++)
        if (d + 1 != lacks)
            axis[n++] = t->axis[d]->text;
    return axis;
}

uint64_t *describe_held(struct manifest *m)
{
    size_t bytes = ((size_t)m->nparts + 63) / 64 * sizeof(uint64_t);
    uint64_t *held = pool_take(&m->pool, bytes, sizeof(*held));

    memset(held, 0, bytes);
    return held;
}

int describe_write(const struct manifest *m, const struct outdir *out, const char *name,
                   mode_t mode, struct err *err)
{
    char *path = fs_join_dup(out->partial, name);
    int fd = outdir_create(out, name, err), ret = -1;

    if (fd >= 0 && outdir_share(out, fd, mode, path, err) == 0)
        ret = manifest_write(m, fd, path, err);
    if (fd >= 0)
        close(fd);
    free(path);
    return ret;
}
