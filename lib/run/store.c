/* store - the weights on disk that a rank runs: a sharded checkpoint or a Hugging Face
 * directory */
#include "lib/run/store.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/hash.h"
#include "lib/base/mem.h"
#include "lib/ckpt/safetensors.h"

/* ---- opening ---- */

static int bind_source(struct store *s, struct err *err)
{
    struct model_input *in = xcalloc(s->source.n + 1, sizeof(*in));
    int ret;

    for (size_t i = 0; i < s->source.n; i++)
        in[i] = (struct model_input){ .name = s->source.tensor[i].name,
                                      .dtype = s->source.tensor[i].dtype,
                                      .ndim = s->source.tensor[i].ndim,
                                      .shape = s->source.tensor[i].shape };
    ret = model_bind(s->model, in, s->source.n, err);
    free(in);
    return ret < 0 ? err_prefix(err, "%s", s->path) : 0;
}

static int bind_manifest(struct store *s, struct err *err)
{
    struct model_input *in = xcalloc(s->manifest.ntensors + 1, sizeof(*in));
    int ret;

    for (size_t i = 0; i < s->manifest.ntensors; i++)
        in[i] = (struct model_input){ .name = s->manifest.tensor[i].name,
                                      .dtype = s->manifest.tensor[i].dtype,
                                      .ndim = s->manifest.tensor[i].ndim,
                                      .shape = s->manifest.tensor[i].shape };
    ret = model_bind(s->model, in, s->manifest.ntensors, err);
    free(in);
    return ret < 0 ? err_prefix(err, "%s", s->path) : 0;
}

static int open_sharded(struct store *s, const char *file, const int size[MESH_NAXES],
                        struct err *err)
{
    if (manifest_read(&s->manifest, file, err) < 0)
        return -1;
    s->sharded = true;
    for (int a = 0; a < MESH_NAXES; a++)
        if (size[a] && size[a] != s->manifest.mesh[a])
            return err_set(
                err, ERR_USAGE,
                "%s is cut for %s %d, not %d; cut it anew from a merged copy", s->path,
                mesh_axis_names[a], s->manifest.mesh[a], size[a]);
    if (mesh_set(&s->mesh, s->manifest.mesh, NULL, err) < 0 ||
        model_open_flat(&s->model, file, s->manifest.config, s->manifest.family, err) <
            0)
        return -1;
    return bind_manifest(s, err);
}

static int open_source(struct store *s, const int size[MESH_NAXES],
                       const char *family_file, const char *family_path,
                       struct err *err)
{
    if (source_open(&s->source, s->path, err) < 0)
        return -1;
    if (!s->source.config) {
        source_clear(&s->source);
        return err_set(err, ERR_INPUT, "%s: no config.json", s->path);
    }
    if (mesh_set(&s->mesh, size, NULL, err) < 0 ||
        model_open(&s->model, s->source.config_path, s->source.config, family_file,
                   family_path, err) < 0)
        return -1;
    return bind_source(s, err);
}

int store_open(struct store *s, const char *path, const int size[MESH_NAXES],
               const char *family_file, const char *family_path, struct err *err)
{
    char *file = fs_join_dup(path, MANIFEST_NAME);
    int ret;

    *s = (struct store){ .path = xstrdup(path) };
    if (fs_exists(file))
        ret = open_sharded(s, file, size, err);
    else
        ret = open_source(s, size, family_file, family_path, err);
    if (ret == 0)
        ret = model_check_mesh(s->model, &s->mesh, err);
    if (ret < 0)
        store_close(s);
    free(file);
    return ret;
}

void store_close(struct store *s)
{
    model_free(s->model);
    if (s->sharded)
        manifest_clear(&s->manifest);
    else
        source_clear(&s->source);
    free(s->path);
    *s = (struct store){ 0 };
}

/* ---- weights ---- */

struct mapping {
    char *data;
    uint64_t size;
    int fd;
};

static int map_file(struct mapping *m, const char *path, struct err *err)
{
    *m = (struct mapping){ .fd = open(path, O_RDONLY | O_CLOEXEC) };
    if (m->fd < 0)
        return err_errno(err, "%s", path);
    if (fs_size(&m->size, path, err) < 0)
        return -1;
    if (!m->size)
        return err_set(err, ERR_INPUT, "%s: empty", path);
    m->data = mmap(NULL, m->size, PROT_READ, MAP_SHARED, m->fd, 0);
    if (m->data == MAP_FAILED) {
        m->data = NULL;
        return err_errno(err, "%s", path);
    }
    return 0;
}

static int check_type(const char *name, enum dtype t, struct err *err)
{
    if (t == DTYPE_F32 || t == DTYPE_BF16 || t == DTYPE_F16)
        return 0;
    return err_set(err, ERR_INPUT, "tensor %s: cannot compute with type %s", name,
                   dtype_name(t));
}

/* Copy the part of dimension D and on of a tensor at SRC to *to; STRIDE[d] is the bytes
 * of one step along d. */
static void gather(char **to, const char *src, const struct slice *slice,
                   const struct model_tensor *t, const uint64_t *stride, int d)
{
    bool whole = true;

    for (int k = d + 1; k < slice->ndim; k++)
        whole &= slice->runs[k]->count == t->axis[k]->size && slice->runs[k]->n == 1;
    for (size_t i = 0; i < slice->runs[d]->n; i++) {
        const struct run *r = &slice->runs[d]->v[i];

        if (whole) {
            memcpy(*to, src + r->start * stride[d], r->count * stride[d]);
            *to += r->count * stride[d];
            continue;
        }
        for (uint64_t k = r->start; k < r->start + r->count; k++)
            gather(to, src + k * stride[d], slice, t, stride, d + 1);
    }
}

/* Is the slice one run of bytes in the file?  *start elements in. */
static bool is_one_run(const struct slice *slice, const struct model_tensor *t,
                       uint64_t *start)
{
    uint64_t inner = 1;

    *start = 0;
    for (int k = slice->ndim - 1; k >= 0; k--) {
        const struct runs *r = slice->runs[k];

        if (r->n != 1 || (k > 0 && r->count != t->axis[k]->size))
            return false;
        *start += r->v[0].start * inner;
        inner *= t->axis[k]->size;
    }
    return true;
}

static int slice_weight(struct weights *w, int i, const struct store *s,
                        struct cutter *cutter, const struct weight *need,
                        struct err *err)
{
    const struct model_tensor *t = &s->model->tensor[need->tensor];
    const struct tensor *stored = &s->source.tensor[t->source];
    const char *data = w->map[stored->file].data + stored->offset;
    uint64_t stride[MODEL_MAX_DIMS], bytes = need->rows * need->cols, start;
    uint64_t size = (uint64_t)dtype_bits(stored->dtype) / 8;
    struct slice slice;
    char *to;

    bytes *= size;
    cutter_slice(cutter, need->tensor, &slice);
    w->matrix[i] = (struct matrix){ .dtype = stored->dtype,
                                    .rows = need->rows,
                                    .cols = need->cols };
    w->bytes += bytes;
    if (is_one_run(&slice, t, &start)) {
        w->matrix[i].data = data + start * size;
        return 0;
    }
    w->copy[i] = to = mem_alloc(bytes, t->name, err);
    if (!to)
        return -1;
    w->matrix[i].data = to;
    for (int k = t->ndim - 1; k >= 0; k--) {
        stride[k] = size;
        size *= t->axis[k]->size;
    }
    gather(&to, data, &slice, t, stride, 0);
    return 0;
}

static int open_slices(struct weights *w, const struct store *s,
                       const struct program *p, struct err *err)
{
    struct cutter *cutter;
    int ret = -1;

    if (cutter_open(&cutter, s->model, &s->mesh, p->coord, err) < 0)
        return -1;
    w->map = xcalloc(s->source.nfiles + 1, sizeof(*w->map));
    for (w->nmaps = 0; w->nmaps < s->source.nfiles; w->nmaps++)
        if (map_file(&w->map[w->nmaps], s->source.file[w->nmaps].path, err) < 0) {
            w->nmaps++;
            goto out;
        }
    for (size_t f = 0; f < w->nmaps; f++)
        if (w->map[f].size != s->source.file[f].size) {
            err_set(err, ERR_INPUT, "%s: changed while it was read",
                    s->source.file[f].path);
            goto out;
        }
    for (int i = 0; i < p->nweights; i++) {
        const struct model_tensor *t = &s->model->tensor[p->weight[i].tensor];

        if (check_type(t->name, s->source.tensor[t->source].dtype, err) < 0 ||
            slice_weight(w, i, s, cutter, &p->weight[i], err) < 0)
            goto out;
    }
    ret = 0;
out:
    cutter_free(cutter);
    return ret;
}

/* The file as a whole is checked; when it is damaged, the tensor is looked for. */
static int check_crc(const struct store *s, int part, const char *path,
                     const struct mapping *m, const struct safetensors *st,
                     struct err *err)
{
    const struct manifest_file *f = NULL;

    for (size_t i = 0; i < s->manifest.nfiles; i++)
        if (s->manifest.file[i].part == part)
            f = &s->manifest.file[i];
    if (!f || f->size != m->size)
        return err_set(err, ERR_INPUT, "%s: %llu bytes, but the manifest says %llu",
                       path, (unsigned long long)m->size,
                       (unsigned long long)(f ? f->size : 0));
    if (hash_crc32(0, m->data, m->size) == f->crc)
        return 0;
    for (size_t i = 0; i < s->manifest.ntensors; i++) {
        const struct manifest_tensor *t = &s->manifest.tensor[i];

        for (size_t k = 0; k < st->n; k++)
            if (!strcmp(st->tensor[k].name, t->name) && manifest_holds(t, part) &&
                hash_crc32(0, m->data + st->tensor[k].offset, st->tensor[k].size) !=
                    t->crc[part])
                return err_set(err, ERR_INPUT,
                               "%s: tensor %s is damaged (wrong CRC-32)", path,
                               t->name);
    }
    return err_set(err, ERR_INPUT, "%s: damaged (wrong CRC-32)", path);
}

static int use_part(struct weights *w, int i, const struct store *s,
                    const struct weight *need, const struct safetensors *st,
                    const struct tensor_index *index, const char *path, struct err *err)
{
    const char *name = s->model->tensor[need->tensor].name;
    long at = tensor_index_find(index, name);
    const struct tensor *t;

    if (at < 0)
        return err_set(err, ERR_INPUT, "%s: tensor %s is missing", path, name);
    t = &st->tensor[at];
    if (check_type(name, t->dtype, err) < 0)
        return -1;
    if (t->size != need->rows * need->cols * (uint64_t)dtype_bits(t->dtype) / 8)
        return err_set(err, ERR_INPUT,
                       "%s: tensor %s has %llu bytes, expected %llu x %llu", path, name,
                       (unsigned long long)t->size, (unsigned long long)need->rows,
                       (unsigned long long)need->cols);
    w->matrix[i] = (struct matrix){ .data = w->map[0].data + t->offset,
                                    .dtype = t->dtype,
                                    .rows = need->rows,
                                    .cols = need->cols };
    w->bytes += t->size;
    return 0;
}

static int part_of(const struct mesh *m, const int coord[MESH_NAXES])
{
    return (coord[MESH_PP] * m->size[MESH_EP] + coord[MESH_EP]) * m->size[MESH_TP] +
           coord[MESH_TP];
}

static int open_part(struct weights *w, const struct store *s, const struct program *p,
                     struct err *err)
{
    int part = part_of(&s->mesh, p->coord), ret = -1;
    char *name = manifest_part_name_dup(s->manifest.mesh, part);
    char *path = fs_join_dup(s->path, name);
    struct safetensors st = { 0 };
    struct tensor_index index = { 0 };

    w->map = xcalloc(1, sizeof(*w->map));
    w->nmaps = 1;
    if (map_file(&w->map[0], path, err) < 0 ||
        safetensors_read(&st, NULL, w->map[0].fd, path, err) < 0)
        goto out;
    tensor_index_init(&index, st.tensor, st.n);
    if (check_crc(s, part, path, &w->map[0], &st, err) < 0)
        goto out;
    for (int i = 0; i < p->nweights; i++)
        if (use_part(w, i, s, &p->weight[i], &st, &index, path, err) < 0)
            goto out;
    ret = 0;
out:
    tensor_index_clear(&index);
    safetensors_clear(&st);
    free(name);
    free(path);
    return ret;
}

int weights_open(struct weights *w, const struct store *s,
                 const struct program *program, struct err *err)
{
    *w = (struct weights){ 0 };
    w->matrix = xcalloc((size_t)program->nweights + 1, sizeof(*w->matrix));
    w->copy = xcalloc((size_t)program->nweights + 1, sizeof(*w->copy));
    w->n = program->nweights;
    if ((s->sharded ? open_part(w, s, program, err)
                    : open_slices(w, s, program, err)) == 0)
        return 0;
    weights_close(w);
    return -1;
}

void weights_close(struct weights *w)
{
    for (size_t i = 0; i < w->nmaps; i++) {
        if (w->map[i].data)
            munmap(w->map[i].data, w->map[i].size);
        if (w->map[i].fd >= 0)
            close(w->map[i].fd);
    }
    for (int i = 0; i < w->n; i++)
        free(w->copy[i]);
    free(w->copy);
    free(w->map);
    free(w->matrix);
    *w = (struct weights){ 0 };
}
