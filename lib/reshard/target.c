/* target - the weight files that a conversion writes */
#define _GNU_SOURCE /* sync_file_range */

#include "lib/reshard/target.h"

#include "lib/reshard/convert.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/hash.h"
#include "lib/base/jsonlex.h"
#include "lib/base/mem.h"
#include "lib/ckpt/safetensors.h"

enum { START_WRITING = 16 << 20 };

static uint64_t *slot(const struct target *to, size_t i, int p)
{
    return &to->offset[i * (size_t)to->nparts + (size_t)p];
}

uint64_t target_place(const struct target *to, size_t i, int p)
{
    return *slot(to, i, p);
}

struct target_file *target_file(const struct target *to, size_t i, int p)
{
    return &to->file[to->cut ? p : to->file_of[i]];
}

int target_part_bytes(const struct target *to, size_t i, int p, uint64_t *bytes,
                      bool *held, struct err *err)
{
    struct cut_tensor t = checkpoint_cut_tensor(to->from, i, to->dtype[i]);

    return cut_part_bytes(bytes, held, &to->side, p, &t, t.to, err);
}

/* Starts writing F's new bytes to disk without waiting, so that the final sync is
 * short. */
static void start_writing(struct target_file *f, size_t n)
{
    f->unsynced += n;
#ifdef SYNC_FILE_RANGE_WRITE
    if (f->unsynced >= START_WRITING) {
        sync_file_range(f->fd, 0, 0, SYNC_FILE_RANGE_WRITE);
        f->unsynced = 0;
    }
#endif
}

static int write_to_files(void *arg, int part, uint64_t offset, void *buf, size_t n,
                          struct err *err)
{
    struct target *to = arg;
    struct target_file *f = target_file(to, to->tensor, part);
    const struct convert_change *change = to->change;

    if (change && to->tensor < to->from->nweights &&
        change->add(change->arg, to->from->tensor[to->tensor].name,
                    to->dtype[to->tensor], offset, buf, n, err) < 0)
        return -1;
    if (fs_pwrite(f->fd, buf, n, *slot(to, to->tensor, part) + offset, f->path, err) <
        0)
        return -1;
    start_writing(f, n);
    to->done += n;
    if (to->progress)
        to->progress(to->arg, to->done, to->total);
    return 0;
}

/* ---- creating the files ---- */

/* Is input I of FROM a weight of the model, and not a quantized one's scale? */
static bool is_weight(const struct checkpoint *from, size_t i)
{
    const struct model *m = from->model;

    return from->which[i] >= 0 && i < from->nweights &&
           model_kind(m, m->tensor[from->which[i]].kind).companion_of < 0;
}

/* Chooses each tensor's output type.  Only real floating weights of the model are
 * converted. */
static void choose_dtypes(struct target *to)
{
    for (size_t i = 0; i < to->n; i++) {
        enum dtype t = to->from->tensor[i].dtype;
        bool cast =
            to->cast && is_weight(to->from, i) &&
            (t == DTYPE_F64 || t == DTYPE_F32 || t == DTYPE_F16 || t == DTYPE_BF16);

        to->dtype[i] = cast ? *to->cast : t;
    }
}

/* Creates file F, or reopens it, and writes HEADER at its start; without an output only
 * counts it. */
static int make_file(struct target *to, struct target_file *f, const char *name,
                     const struct str *header, uint64_t data, struct err *err)
{
    f->name = xstrdup(name);
    f->header_crc = hash_crc32(0, header->s, header->len);
    f->header_size = header->len;
    f->size = header->len + data;
    if (!target_wants(to, (size_t)(f - to->file)))
        return 0;
    to->total += data;
    if (!to->out)
        return 0;
    f->path = fs_join_dup(to->out->partial, name);
    f->fd = outdir_reopen(to->out, name, err);
    if (f->fd < 0)
        return -1;
    return fs_pwrite(f->fd, header->s, header->len, 0, f->path, err);
}

/* Returns the tensors sorted by element width, widest first, so that all data in a file
 * is aligned; ties keep the order of the source. */
static uint32_t *aligned_order(const struct target *to)
{
    uint32_t *order = xmalloc(to->n * sizeof(*order));
    size_t n = 0;

    for (int bits = 64; bits >= 4; bits--)
        for (size_t i = 0; i < to->n; i++)
            if (dtype_bits(to->dtype[i]) == bits)
                order[n++] = (uint32_t)i;
    return order;
}

static int make_part(struct target *to, int p, const uint32_t *order, struct err *err)
{
    struct safetensors_header h;
    char *name = manifest_part_name_dup(to->mesh.size, p);
    uint64_t shape[TENSOR_MAX_DIMS], bytes;
    bool held;
    int ret = -1;

    safetensors_header_begin(&h, "{\"format\":\"pt\"}");
    for (size_t k = 0; k < to->n; k++) {
        size_t i = order[k];
        struct cut_tensor t = checkpoint_cut_tensor(to->from, i, to->dtype[i]);

        *slot(to, i, p) = TARGET_NOT_THERE;
        if (target_part_bytes(to, i, p, &bytes, &held, err) < 0)
            goto out;
        if (!held)
            continue;
        cut_part_shape(shape, &to->side, p, &t);
        *slot(to, i, p) = h.end;
        safetensors_header_add(&h, t.name, t.to, t.ndim, shape, bytes);
    }
    if (safetensors_header_finish(&h, name, err) < 0)
        goto out;
    for (size_t i = 0; i < to->n; i++)
        if (*slot(to, i, p) != TARGET_NOT_THERE)
            *slot(to, i, p) += h.text.len;
    ret = make_file(to, &to->file[p], name, &h.text, h.end, err);
out:
    safetensors_header_clear(&h);
    free(name);
    return ret;
}

static int make_parts(struct target *to, struct err *err)
{
    uint32_t *order = aligned_order(to);
    int ret = 0;

    to->nfiles = (size_t)to->nparts;
    to->file = xcalloc(to->nfiles, sizeof(*to->file));
    for (size_t i = 0; i < to->nfiles; i++)
        to->file[i].fd = -1;
    for (int p = 0; p < to->nparts && ret == 0; p++)
        ret = make_part(to, p, order, err);
    free(order);
    return ret;
}

/* The text of "__metadata__" in a header, or NULL. */
static char *metadata_dup(const struct manifest_source *s)
{
    struct jsonlex lex;
    char *found = NULL;

    jsonlex_init(&lex, s->name, s->header, s->header_len);
    while (!found && jsonlex_next(&lex, NULL) == 0 && lex.token != JSONLEX_END) {
        size_t start;

        if (lex.token != JSONLEX_KEY || lex.depth != 1 ||
            strcmp(lex.text.s, "__metadata__"))
            continue;
        if (jsonlex_next(&lex, NULL) < 0)
            break;
        start = lex.start;
        if (jsonlex_skip(&lex, NULL) < 0)
            break;
        found = xstrndup(s->header + start, lex.end - start);
    }
    jsonlex_clear(&lex);
    return found;
}

/* Lays out the tensors [first, first + n) in the merged file S.  The original header is
 * reused unless a type changed. */
static int lay_out_source(struct target *to, const struct manifest_source *s,
                          size_t first, const struct safetensors *st,
                          const struct tensor_index *index, struct str *header,
                          uint64_t *data, struct err *err)
{
    char *metadata = metadata_dup(s);
    struct safetensors_header h;
    bool cast = false;
    uint64_t bytes;
    bool held;
    int ret = -1;

    safetensors_header_begin(&h, metadata);
    for (size_t i = first; i < first + st->n; i++) {
        const struct tensor *t = &to->from->tensor[i];
        long at = tensor_index_find(index, t->name);

        if (at < 0) {
            err_set(err, ERR_INPUT, "%s: %s: the header of %s does not name it",
                    to->from->path, t->name, s->name);
            goto out;
        }
        if (target_part_bytes(to, i, 0, &bytes, &held, err) < 0)
            goto out;
        cast |= to->dtype[i] != st->tensor[at].dtype;
        *slot(to, i, 0) = h.end;
        safetensors_header_add(&h, t->name, to->dtype[i], t->ndim, t->shape, bytes);
    }
    if (cast) {
        if (safetensors_header_finish(&h, s->name, err) < 0)
            goto out;
        str_addn(header, h.text.s, h.text.len);
        *data = h.end;
        for (size_t i = first; i < first + st->n; i++)
            *slot(to, i, 0) += h.text.len;
    } else {
        unsigned char length[8];

        safetensors_put_length(length, s->header_len);
        str_addn(header, length, sizeof(length));
        str_addn(header, s->header, s->header_len);
        *data = st->size - st->data;
        for (size_t i = first; i < first + st->n; i++)
            *slot(to, i, 0) =
                st->tensor[tensor_index_find(index, to->from->tensor[i].name)].offset;
    }
    ret = 0;
out:
    safetensors_header_clear(&h);
    free(metadata);
    return ret;
}

/* Describes file F of the merged form; *header is to be freed. */
static int find_source(struct target *to, size_t f, struct manifest_source *out,
                       char **header, struct err *err)
{
    const struct source *s = &to->from->source;
    size_t n;

    *header = NULL;
    if (to->from->sharded) {
        *out = to->from->manifest.source[f];
        return 0;
    }
    if (source_header(header, &n, s, f, err) < 0)
        return -1;
    *out = (struct manifest_source){ .name = s->file[f].name,
                                     .size = s->file[f].whole,
                                     .header = *header,
                                     .header_len = n };
    return 0;
}

/* Creates file F of the merged form, S; *first is its first tensor, and becomes the
 * first of the next file. */
static int make_source(struct target *to, size_t f, const struct manifest_source *s,
                       size_t *first, struct err *err)
{
    struct tensor_index index = { 0 };
    struct str header = { 0 };
    struct safetensors st;
    uint64_t data = 0;
    int ret = -1;

    if (safetensors_parse(&st, s->name, s->header, s->header_len, s->size, err) < 0)
        return err_prefix(err, "%s", to->from->path);
    tensor_index_init(&index, st.tensor, st.n);
    if (st.n > to->n - *first) {
        err_set(err, ERR_INPUT, "%s: %s names tensors that the manifest lacks",
                to->from->path, s->name);
        goto out;
    }
    if (lay_out_source(to, s, *first, &st, &index, &header, &data, err) < 0 ||
        make_file(to, &to->file[f], s->name, &header, data, err) < 0)
        goto out;
    for (size_t i = *first; i < *first + st.n; i++)
        to->file_of[i] = (int)f;
    *first += st.n;
    ret = 0;
out:
    tensor_index_clear(&index);
    safetensors_clear(&st);
    str_clear(&header);
    return ret;
}

static int make_sources(struct target *to, struct err *err)
{
    size_t first = 0;

    to->nfiles =
        to->from->sharded ? to->from->manifest.nsources : to->from->source.nfiles;
    to->file = xcalloc(to->nfiles, sizeof(*to->file));
    for (size_t i = 0; i < to->nfiles; i++)
        to->file[i].fd = -1;
    to->file_of = xcalloc(to->n, sizeof(*to->file_of));
    for (size_t i = 0; i < to->nfiles; i++) {
        struct manifest_source s;
        char *header;
        int ret = find_source(to, i, &s, &header, err);

        if (ret == 0)
            ret = make_source(to, i, &s, &first, err);
        free(header);
        if (ret < 0)
            return -1;
    }
    if (first != to->n)
        return err_set(err, ERR_INPUT, "%s: tensor %s belongs to no source file",
                       to->from->path, to->from->tensor[first].name);
    return 0;
}

/* ---- checksums and sync ---- */

struct stretch {
    uint64_t offset, bytes;
    uint32_t crc;
};

static int compare_stretches(const void *a, const void *b)
{
    const struct stretch *x = a, *y = b;

    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* Combines the CRC-32 of file F from those of its header and tensors. */
int target_crc(const struct target *to, size_t f, uint32_t *crc, struct err *err)
{
    struct stretch *s = xmalloc(to->n * sizeof(*s));
    int p = to->cut ? (int)f : 0;
    size_t n = 0;
    bool held;
    int ret = -1;

    for (size_t i = 0; i < to->n; i++) {
        if (*slot(to, i, p) == TARGET_NOT_THERE ||
            target_file(to, i, p) != &to->file[f])
            continue;
        s[n].offset = *slot(to, i, p);
        s[n].crc = to->crc[i * (size_t)to->nparts + (size_t)p];
        if (target_part_bytes(to, i, p, &s[n++].bytes, &held, err) < 0)
            goto out;
    }
    if (n)
        qsort(s, n, sizeof(*s), compare_stretches);
    *crc = to->file[f].header_crc;
    for (size_t k = 0; k < n; k++)
        *crc = hash_crc32_join(*crc, s[k].crc, s[k].bytes);
    ret = 0;
out:
    free(s);
    return ret;
}

int target_sync(struct target *to, struct err *err)
{
    mode_t mode = checkpoint_mode(to->from);

    for (size_t f = 0; f < to->nfiles; f++)
        if (!target_wants(to, f))
            continue;
        else if (ftruncate(to->file[f].fd, (off_t)to->file[f].size) < 0)
            return err_errno(err, "%s", to->file[f].path);
        else if (outdir_share(to->out, to->file[f].fd, mode, to->file[f].path, err) < 0)
            return -1;
        else if (fsync(to->file[f].fd) < 0)
            return err_errno(err, "%s", to->file[f].path);
    return 0;
}

/* ---- the whole ---- */

static int make_cutters(struct target *to, struct err *err)
{
    int coord[MESH_NAXES];

    to->nparts = manifest_nparts(to->mesh.size);
    to->cutter = xcalloc((size_t)to->nparts, sizeof(struct cutter *));
    for (int p = 0; p < to->nparts; p++) {
        manifest_part_coord(to->mesh.size, p, coord);
        if (cutter_open(&to->cutter[p], to->from->model, &to->mesh, coord, err) < 0)
            return -1;
    }
    return 0;
}

int target_init(struct target *to, struct checkpoint *from, const struct mesh *mesh,
                const enum dtype *cast, struct err *err)
{
    size_t places;

    *to =
        (struct target){ .from = from, .cut = mesh != NULL, .cast = cast, .nparts = 1 };
    if (mesh) {
        to->mesh = *mesh;
        if (make_cutters(to, err) < 0)
            return -1;
    }
    to->side = (struct cut_side){
        .nparts = to->nparts, .cutter = to->cutter, .io = write_to_files, .arg = to
    };
    to->n = mesh ? from->ntensors : from->nweights;
    places = from->ntensors * (size_t)to->nparts;
    to->dtype = xcalloc(from->ntensors, sizeof(*to->dtype));
    to->offset = xcalloc(places, sizeof(*to->offset));
    to->crc = xcalloc(places, sizeof(*to->crc));
    choose_dtypes(to);
    return 0;
}

void target_choose(struct target *to, int first, int last)
{
    to->first = first;
    to->last = last;
    to->chosen = true;
}

bool target_wants(const struct target *to, size_t f)
{
    return !to->chosen || ((int)f >= to->first && (int)f <= to->last);
}

/* Sets .wanted, which cut_copy reads. */
static int mark_wanted(struct target *to, struct err *err)
{
    size_t n = to->cut             ? (size_t)to->nparts
               : to->from->sharded ? to->from->manifest.nsources
                                   : to->from->source.nfiles;

    if (!to->chosen)
        return 0;
    if (to->last >= (int)n)
        return err_set(err, ERR_USAGE, "--ranks: there are %s 0 to %d",
                       to->cut ? "ranks" : "files", (int)n - 1);
    if (!to->cut)
        return 0;
    to->wanted = xcalloc(n, sizeof(*to->wanted));
    for (size_t f = 0; f < n; f++)
        to->wanted[f] = target_wants(to, f);
    to->side.wanted = to->wanted;
    return 0;
}

static void drop_files(struct target *to)
{
    for (size_t f = 0; to->file && f < to->nfiles; f++) {
        if (to->file[f].fd >= 0)
            close(to->file[f].fd);
        free(to->file[f].name);
        free(to->file[f].path);
    }
    free(to->file);
    free(to->file_of);
    free(to->wanted);
    to->file = NULL;
    to->file_of = NULL;
    to->wanted = NULL;
    to->nfiles = 0;
    to->total = 0;
}

int target_begin(struct target *to, const struct outdir *out, struct err *err)
{
    drop_files(to);
    to->out = out;
    if (mark_wanted(to, err) < 0)
        return -1;
    return to->cut ? make_parts(to, err) : make_sources(to, err);
}

void target_clear(struct target *to)
{
    drop_files(to);
    for (int p = 0; to->cutter && p < to->nparts; p++)
        cutter_free(to->cutter[p]);
    free(to->cutter);
    free(to->dtype);
    free(to->offset);
    free(to->crc);
    *to = (struct target){ 0 };
}
