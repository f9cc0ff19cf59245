/* convert - writing a checkpoint anew: cut, merged, or cut otherwise, in one pass
 *
 * The tensors are copied in the order of the source's files and data, each read once.
 * A line of the journal follows each: its number, and the CRC-32s that were made.  A
 * later run takes a line's word only after reading the written bytes back. */
#define _GNU_SOURCE /* sync_file_range */

#include "lib/model/convert.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/hash.h"
#include "lib/base/jsonlex.h"
#include "lib/base/mem.h"
#include "lib/ckpt/outdir.h"
#include "lib/ckpt/safetensors.h"

static const uint64_t NOT_THERE = UINT64_MAX;

enum { READ_BACK = 1 << 20, START_WRITING = 16 << 20 };

/* One file of weights that is made. */
struct target_file {
    char *name, *path;
    int fd;
    uint64_t size;       /* bytes */
    uint64_t unsynced;   /* bytes written since the disk was last set to work */
    uint32_t header_crc; /* of the length and the header */
    uint64_t header_len;
};

struct convert {
    struct checkpoint *from;
    const struct convert_options *opt;
    struct convert_result *result;
    struct outdir out;
    struct mesh mesh;
    int nparts;             /* of the output; 1 when merging */
    struct cutter **cutter; /* [nparts] or NULL when merging */
    struct cut_side side;
    struct target_file *file;
    size_t nfiles;
    enum dtype *dtype;           /* [ntensors] in the output */
    int *file_of;                /* [ntensors], merging only */
    uint64_t *offset;            /* [ntensors * nparts] in the file */
    uint32_t *crc;               /* [ntensors * nparts] of what was written */
    uint32_t *whole_crc;         /* [ntensors] of what was read, from an uncut source */
    size_t tensor;               /* being copied */
    struct manifest_file *small; /* small files, names borrowed from the source */
    size_t nsmall;
    uint64_t total; /* bytes of weights to write */
    uint64_t done;
};

static uint64_t *place(struct convert *c, size_t i, int p)
{
    return &c->offset[i * (size_t)c->nparts + (size_t)p];
}

static struct target_file *file_for(struct convert *c, size_t i, int p)
{
    return &c->file[c->opt->mesh ? p : c->file_of[i]];
}

static int part_bytes(struct convert *c, size_t i, int p, uint64_t *bytes, bool *held,
                      struct err *err)
{
    struct cut_tensor t = checkpoint_cut_tensor(c->from, i, c->dtype[i]);

    return cut_part_bytes(bytes, held, &c->side, p, &t, t.to, err);
}

/* Have the disk begin with what F has, without waiting, so that the sync at the end is
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
    struct convert *c = arg;
    struct target_file *f = file_for(c, c->tensor, part);

    if (fs_pwrite(f->fd, buf, n, *place(c, c->tensor, part) + offset, f->path, err) < 0)
        return -1;
    start_writing(f, n);
    c->done += n;
    if (c->opt->progress)
        c->opt->progress(c->opt->arg, c->done, c->total);
    return 0;
}

/* ---- the files to be made ---- */

/* Which type each tensor gets; only real floating tensors that are used change
 * theirs. */
static void choose_dtypes(struct convert *c)
{
    for (size_t i = 0; i < c->from->ntensors; i++) {
        enum dtype t = c->from->tensor[i].dtype;
        bool cast =
            c->opt->dtype && c->from->which[i] >= 0 &&
            (t == DTYPE_F64 || t == DTYPE_F32 || t == DTYPE_F16 || t == DTYPE_BF16);

        c->dtype[i] = cast ? *c->opt->dtype : t;
    }
}

/* Create (or open again) file F with HEADER in front. */
static int make_file(struct convert *c, struct target_file *f, const char *name,
                     const struct str *header, uint64_t data, struct err *err)
{
    f->name = xstrdup(name);
    f->path = fs_join_dup(c->out.partial, name);
    f->header_len = header->len;
    f->header_crc = hash_crc32(0, header->s, header->len);
    f->size = header->len + data;
    c->total += data;
    f->fd = open(f->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (f->fd < 0)
        return err_errno(err, "%s", f->path);
    return fs_pwrite(f->fd, header->s, header->len, 0, f->path, err);
}

/* Tensors by the width of their elements, widest first, so that all of a file's data is
 * aligned; within one width in the source's order. */
static uint32_t *aligned_order(const struct convert *c)
{
    uint32_t *order = xmalloc(c->from->ntensors * sizeof(*order));
    size_t n = 0;

    for (int bits = 64; bits >= 4; bits--)
        for (size_t i = 0; i < c->from->ntensors; i++)
            if (dtype_bits(c->dtype[i]) == bits)
                order[n++] = (uint32_t)i;
    return order;
}

static int make_part(struct convert *c, int p, const uint32_t *order, struct err *err)
{
    struct safetensors_header h;
    char *name = manifest_part_name_dup(c->mesh.size, p);
    uint64_t shape[TENSOR_MAX_DIMS], bytes;
    bool held;
    int ret = -1;

    safetensors_header_begin(&h, "{\"format\":\"pt\"}");
    for (size_t k = 0; k < c->from->ntensors; k++) {
        size_t i = order[k];
        struct cut_tensor t = checkpoint_cut_tensor(c->from, i, c->dtype[i]);

        *place(c, i, p) = NOT_THERE;
        if (part_bytes(c, i, p, &bytes, &held, err) < 0)
            goto out;
        if (!held)
            continue;
        cut_part_shape(shape, &c->side, p, &t);
        *place(c, i, p) = h.end;
        safetensors_header_add(&h, t.name, t.to, t.ndim, shape, bytes);
    }
    if (safetensors_header_finish(&h, name, err) < 0)
        goto out;
    for (size_t i = 0; i < c->from->ntensors; i++)
        if (*place(c, i, p) != NOT_THERE)
            *place(c, i, p) += h.text.len;
    ret = make_file(c, &c->file[p], name, &h.text, h.end, err);
out:
    safetensors_header_clear(&h);
    free(name);
    return ret;
}

static int make_parts(struct convert *c, struct err *err)
{
    uint32_t *order = aligned_order(c);
    int ret = 0;

    c->nfiles = (size_t)c->nparts;
    c->file = xcalloc(c->nfiles, sizeof(*c->file));
    for (size_t i = 0; i < c->nfiles; i++)
        c->file[i].fd = -1;
    for (int p = 0; p < c->nparts && ret == 0; p++)
        ret = make_part(c, p, order, err);
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

/* Where the tensors [first, first + n) of the source file S go, which has its old
 * header unless a type has changed. */
static int lay_out_source(struct convert *c, const struct manifest_source *s,
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
        const struct tensor *t = &c->from->tensor[i];
        long at = tensor_index_find(index, t->name);

        if (at < 0) {
            err_set(err, ERR_INPUT, "%s: %s: the header of %s does not name it",
                    c->from->path, t->name, s->name);
            goto out;
        }
        if (part_bytes(c, i, 0, &bytes, &held, err) < 0)
            goto out;
        cast |= c->dtype[i] != st->tensor[at].dtype;
        *place(c, i, 0) = h.end;
        safetensors_header_add(&h, t->name, c->dtype[i], t->ndim, t->shape, bytes);
    }
    if (cast) {
        if (safetensors_header_finish(&h, s->name, err) < 0)
            goto out;
        str_addn(header, h.text.s, h.text.len);
        *data = h.end;
        for (size_t i = first; i < first + st->n; i++)
            *place(c, i, 0) += h.text.len;
    } else {
        unsigned char length[8];

        safetensors_put_length(length, s->header_len);
        str_addn(header, length, sizeof(length));
        str_addn(header, s->header, s->header_len);
        *data = st->size - st->data;
        for (size_t i = first; i < first + st->n; i++)
            *place(c, i, 0) =
                st->tensor[tensor_index_find(index, c->from->tensor[i].name)].offset;
    }
    ret = 0;
out:
    safetensors_header_clear(&h);
    free(metadata);
    return ret;
}

/* Make file F of the merged form; *first is the first of its tensors and becomes the
 * next file's. */
static int make_source(struct convert *c, size_t f, size_t *first, struct err *err)
{
    const struct manifest_source *s = &c->from->manifest.source[f];
    struct tensor_index index = { 0 };
    struct str header = { 0 };
    struct safetensors st;
    uint64_t data = 0;
    int ret = -1;

    if (safetensors_parse(&st, s->name, s->header, s->header_len, s->size, err) < 0)
        return err_prefix(err, "%s", c->from->path);
    tensor_index_init(&index, st.tensor, st.n);
    if (st.n > c->from->ntensors - *first) {
        err_set(err, ERR_INPUT, "%s: %s names tensors that the manifest lacks",
                c->from->path, s->name);
        goto out;
    }
    if (lay_out_source(c, s, *first, &st, &index, &header, &data, err) < 0 ||
        make_file(c, &c->file[f], s->name, &header, data, err) < 0)
        goto out;
    for (size_t i = *first; i < *first + st.n; i++)
        c->file_of[i] = (int)f;
    *first += st.n;
    ret = 0;
out:
    tensor_index_clear(&index);
    safetensors_clear(&st);
    str_clear(&header);
    return ret;
}

static int make_sources(struct convert *c, struct err *err)
{
    size_t first = 0;

    c->nfiles = c->from->manifest.nsources;
    c->file = xcalloc(c->nfiles, sizeof(*c->file));
    for (size_t i = 0; i < c->nfiles; i++)
        c->file[i].fd = -1;
    c->file_of = xcalloc(c->from->ntensors, sizeof(*c->file_of));
    for (size_t i = 0; i < c->nfiles; i++)
        if (make_source(c, i, &first, err) < 0)
            return -1;
    if (first != c->from->ntensors)
        return err_set(err, ERR_INPUT, "%s: tensor %s belongs to no source file",
                       c->from->path, c->from->tensor[first].name);
    return 0;
}

/* ---- small files ---- */

static size_t count_small(const struct checkpoint *k)
{
    return k->sharded ? k->manifest.nfiles - (size_t)k->manifest.nparts
                      : k->source.nsmall;
}

static const char *small_name(const struct checkpoint *k, size_t i)
{
    return k->sharded ? k->manifest.file[(size_t)k->manifest.nparts + i].name
                      : k->source.small[i];
}

/* Write a small file in place: the directory has not its name yet. */
static int write_small(const char *path, const char *text, size_t n, struct err *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    int ret;

    if (fd < 0)
        return err_errno(err, "%s", path);
    ret = fs_write(fd, text, n, path, err);
    if (ret == 0 && fsync(fd) < 0)
        ret = err_errno(err, "%s", path);
    close(fd);
    return ret;
}

static int copy_small(struct convert *c, size_t i, struct err *err)
{
    const struct checkpoint *k = c->from;
    const char *name = small_name(k, i);
    char *from = fs_join_dup(k->path, name), *to = fs_join_dup(c->out.partial, name);
    char *text = NULL;
    size_t n;
    int ret = -1;

    if (fs_read_file(&text, &n, from, UINT32_MAX, err) < 0)
        goto out;
    c->small[i] = (struct manifest_file){ name, n, hash_crc32(0, text, n), -1 };
    if (k->sharded &&
        (c->small[i].crc != k->manifest.file[(size_t)k->manifest.nparts + i].crc ||
         n != k->manifest.file[(size_t)k->manifest.nparts + i].size)) {
        err_set(err, ERR_INPUT, "%s: is not the file that the manifest lists", from);
        goto out;
    }
    ret = write_small(to, text, n, err);
out:
    free(text);
    free(from);
    free(to);
    return ret;
}

/* Shards of torch.save get the index that their merged form needs. */
static int make_index(struct convert *c, struct err *err)
{
    static const char NAME[] = "model.safetensors.index.json";
    char *text = c->from->sharded ? NULL : source_index_dup(&c->from->source);
    char *path = fs_join_dup(c->out.partial, NAME);
    int ret = 0;

    if (text) {
        c->small[c->nsmall++] =
            (struct manifest_file){ NAME, strlen(text),
                                    hash_crc32(0, text, strlen(text)), -1 };
        ret = write_small(path, text, strlen(text), err);
    }
    free(text);
    free(path);
    return ret;
}

static int copy_all_small(struct convert *c, struct err *err)
{
    c->nsmall = count_small(c->from);
    c->small = xcalloc(c->nsmall + 1, sizeof(*c->small));
    for (size_t i = 0; i < c->nsmall; i++)
        if (copy_small(c, i, err) < 0)
            return -1;
    return make_index(c, err);
}

/* ---- the journal ---- */

/* One line that names the request: what is read, and what is made of it. */
static char *identity_dup(const struct convert *c)
{
    const struct checkpoint *k = c->from;
    struct str s = { 0 };

    str_add(&s, c->opt->mesh ? "cut" : "merge");
    for (int a = 0; c->opt->mesh && a < MESH_NAXES; a++)
        str_addf(&s, " %s=%d", mesh_axis_names[a], c->mesh.size[a]);
    str_addf(&s, " dtype=%s", c->opt->dtype ? dtype_name(*c->opt->dtype) : "kept");
    if (k->model)
        str_addf(&s, " family=%08" PRIx32,
                 hash_crc32(0, model_family_text(k->model),
                            strlen(model_family_text(k->model))));
    for (size_t i = 0; !k->sharded && i < k->source.nfiles; i++) {
        str_addc(&s, ' ');
        str_add_json(&s, k->source.file[i].name);
        str_addf(&s, ":%" PRIu64 ":%" PRId64, k->source.file[i].size,
                 k->source.file[i].mtime_ns);
    }
    if (!k->sharded && k->source.config)
        str_addf(&s, " config=%08" PRIx32,
                 hash_crc32(0, k->source.config, strlen(k->source.config)));
    for (size_t i = 0; k->sharded && i < k->manifest.nfiles; i++) {
        str_addc(&s, ' ');
        str_add_json(&s, k->manifest.file[i].name);
        str_addf(&s, ":%" PRIu64 ":%08" PRIx32, k->manifest.file[i].size,
                 k->manifest.file[i].crc);
    }
    return str_steal(&s);
}

static int note_tensor(struct convert *c, size_t i, struct err *err)
{
    struct str s = { 0 };
    int ret;

    str_addf(&s, "%zu %08" PRIx32, i, c->whole_crc[i]);
    for (int p = 0; p < c->nparts; p++)
        if (*place(c, i, p) != NOT_THERE)
            str_addf(&s, " %08" PRIx32, c->crc[i * (size_t)c->nparts + (size_t)p]);
    ret = outdir_note(&c->out, s.s, err);
    str_clear(&s);
    return ret;
}

/* A hexadecimal word of the journal at *s; false when there is none. */
static bool take_word(const char **s, uint32_t *out)
{
    char *end;
    unsigned long value;

    if (**s != ' ')
        return false;
    value = strtoul(*s + 1, &end, 16);
    if (end != *s + 9)
        return false;
    *s = end;
    *out = (uint32_t)value;
    return true;
}

/* Are the bytes of tensor I in part P those of CRC? */
static bool written_before(struct convert *c, size_t i, int p, uint32_t crc, char *buf)
{
    struct target_file *f = file_for(c, i, p);
    uint64_t bytes, at = *place(c, i, p);
    uint32_t found = 0;
    bool held;

    if (part_bytes(c, i, p, &bytes, &held, NULL) < 0)
        return false;
    for (uint64_t done = 0; done < bytes;) {
        size_t n = bytes - done < READ_BACK ? (size_t)(bytes - done) : READ_BACK;

        if (fs_pread(f->fd, buf, n, at + done, f->path, NULL) < 0)
            return false;
        found = hash_crc32(found, buf, n);
        done += n;
    }
    if (found != crc)
        return false;
    c->crc[i * (size_t)c->nparts + (size_t)p] = crc;
    c->done += bytes;
    return true;
}

/* Take the earlier run's word where it holds: DONE[i] for each tensor whose bytes are
 * there. */
static void take_up(struct convert *c, bool *done)
{
    const char *line = c->out.done;
    char *buf = xmalloc(READ_BACK);

    while (*line) {
        const char *next = strchr(line, '\n') + 1;
        char *end;
        unsigned long i = strtoul(line, &end, 10);
        const char *s = end;
        uint32_t crc;
        bool good =
            end > line && i < c->from->ntensors && take_word(&s, &c->whole_crc[i]);

        for (int p = 0; good && p < c->nparts; p++)
            if (*place(c, i, p) != NOT_THERE)
                good = take_word(&s, &crc) && written_before(c, i, p, crc, buf);
        if (good)
            done[i] = true;
        line = next;
    }
    c->result->continued = c->done;
    free(buf);
}

/* ---- copying ---- */

static int copy_tensors(struct convert *c, struct err *err)
{
    bool *done = xcalloc(c->from->ntensors, sizeof(*done));
    struct cut *cut = cut_new();
    int ret = -1;

    take_up(c, done);
    for (size_t i = 0; i < c->from->ntensors; i++) {
        if (done[i])
            continue;
        c->tensor = i;
        if (checkpoint_copy(c->from, cut, i, c->dtype[i], &c->side, &c->whole_crc[i],
                            &c->crc[i * (size_t)c->nparts], &c->result->overflows,
                            err) < 0 ||
            note_tensor(c, i, err) < 0)
            goto out;
    }
    ret = 0;
out:
    cut_free(cut);
    free(done);
    return ret;
}

/* What the family ties and the source stores twice must be equal. */
static int check_tied(const struct convert *c, struct err *err)
{
    const struct checkpoint *k = c->from;

    for (size_t i = 0; i < k->model->ntensors; i++) {
        const struct model_tensor *t = &k->model->tensor[i], *to;

        if (t->tied < 0 || t->source < 0)
            continue;
        to = &k->model->tensor[t->tied];
        if (to->source >= 0 &&
            (k->tensor[t->source].dtype != k->tensor[to->source].dtype ||
             c->whole_crc[t->source] != c->whole_crc[to->source]))
            return err_set(err, ERR_INPUT, "%s: tensors %s and %s are tied but differ",
                           k->path, t->name, to->name);
    }
    return 0;
}

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

/* The CRC-32 of file F from those of its header and tensors. */
static int file_crc(struct convert *c, size_t f, uint32_t *crc, struct err *err)
{
    struct stretch *s = xmalloc(c->from->ntensors * sizeof(*s));
    int p = c->opt->mesh ? (int)f : 0;
    size_t n = 0;
    bool held;
    int ret = -1;

    for (size_t i = 0; i < c->from->ntensors; i++) {
        if (*place(c, i, p) == NOT_THERE || file_for(c, i, p) != &c->file[f])
            continue;
        s[n].offset = *place(c, i, p);
        s[n].crc = c->crc[i * (size_t)c->nparts + (size_t)p];
        if (part_bytes(c, i, p, &s[n++].bytes, &held, err) < 0)
            goto out;
    }
    if (n)
        qsort(s, n, sizeof(*s), compare_stretches);
    *crc = c->file[f].header_crc;
    for (size_t k = 0; k < n; k++)
        *crc = hash_crc32_join(*crc, s[k].crc, s[k].bytes);
    ret = 0;
out:
    free(s);
    return ret;
}

/* The CRC-32 of the uncut source file F, whose raw header is given. */
static uint32_t source_crc(const struct convert *c, size_t f, const char *header,
                           size_t n)
{
    const struct checkpoint *k = c->from;
    unsigned char length[8];
    uint32_t crc;

    safetensors_put_length(length, n);
    crc = hash_crc32(hash_crc32(0, length, sizeof(length)), header, n);
    for (size_t i = 0; i < k->ntensors; i++)
        if (k->tensor[i].file == (int)f)
            crc = hash_crc32_join(crc, c->whole_crc[i], k->tensor[i].size);
    return crc;
}

/* ---- the manifest ---- */

static int add_sources(struct convert *c, struct manifest *m, struct err *err)
{
    const struct checkpoint *k = c->from;

    if (k->sharded) {
        m->nsources = k->manifest.nsources;
        m->source = xmalloc(m->nsources * sizeof(*m->source));
        memcpy(m->source, k->manifest.source, m->nsources * sizeof(*m->source));
        return 0;
    }
    m->source = xcalloc(k->source.nfiles, sizeof(*m->source));
    for (size_t f = 0; f < k->source.nfiles; f++) {
        const struct source_file *file = &k->source.file[f];
        char *header;
        size_t n;

        if (source_header(&header, &n, &k->source, f, err) < 0)
            return -1;
        m->source[m->nsources++] =
            (struct manifest_source){ .name = file->name,
                                      .size = file->whole,
                                      .crc = source_crc(c, f, header, n),
                                      .header = pool_strndup(&m->pool, header, n),
                                      .header_len = n,
                                      .origin = file->origin,
                                      .origin_size = file->size };
        free(header);
        if (file->origin &&
            source_crc32(&m->source[f].origin_crc, &k->source, f, err) < 0)
            return -1;
    }
    return 0;
}

static int add_files(struct convert *c, struct manifest *m, struct err *err)
{
    m->file = xcalloc(c->nfiles + c->nsmall, sizeof(*m->file));
    for (size_t f = 0; f < c->nfiles; f++) {
        m->file[f] =
            (struct manifest_file){ c->file[f].name, c->file[f].size, 0, (int)f };
        if (file_crc(c, f, &m->file[f].crc, err) < 0)
            return -1;
    }
    if (c->nsmall)
        memcpy(m->file + c->nfiles, c->small, c->nsmall * sizeof(*c->small));
    m->nfiles = c->nfiles + c->nsmall;
    return 0;
}

static void add_tensors(struct convert *c, struct manifest *m)
{
    const struct checkpoint *k = c->from;
    size_t words = ((size_t)c->nparts + 63) / 64;

    m->tensor = xcalloc(k->ntensors, sizeof(*m->tensor));
    for (size_t i = 0; i < k->ntensors; i++) {
        struct manifest_tensor *t = &m->tensor[m->ntensors++];
        uint64_t *held = pool_take(&m->pool, words * sizeof(*held), sizeof(*held));
        const char **axis = NULL;

        memset(held, 0, words * sizeof(*held));
        for (int p = 0; p < c->nparts; p++)
            if (*place(c, i, p) != NOT_THERE)
                held[p / 64] |= UINT64_C(1) << p % 64;
        if (k->which[i] >= 0) {
            const struct model_tensor *mt = &k->model->tensor[k->which[i]];

            axis = pool_take(&m->pool, (size_t)mt->ndim * sizeof(*axis), sizeof(*axis));
            for (int d = 0; d < mt->ndim; d++)
                axis[d] = mt->axis[d]->text;
        }
        *t = (struct manifest_tensor){ .name = k->tensor[i].name,
                                       .role = "weight",
                                       .shape = k->tensor[i].shape,
                                       .axis = axis,
                                       .crc = &c->crc[i * (size_t)c->nparts],
                                       .held = held,
                                       .dtype = c->dtype[i],
                                       .ndim = k->tensor[i].ndim };
    }
}

static int write_manifest(struct convert *c, struct err *err)
{
    const struct checkpoint *k = c->from;
    struct manifest m = { .nparts = c->nparts,
                          .cast = c->opt->dtype || (k->sharded && k->manifest.cast),
                          .config = k->sharded ? k->manifest.config : k->source.config,
                          .family = model_family_text(k->model) };
    char *path = fs_join_dup(c->out.partial, MANIFEST_NAME);
    int ret = -1;

    memcpy(m.mesh, c->mesh.size, sizeof(m.mesh));
    if (add_sources(c, &m, err) < 0 || add_files(c, &m, err) < 0)
        goto out;
    add_tensors(c, &m);
    ret = manifest_write(&m, path, err);
out:
    manifest_clear(&m);
    free(path);
    return ret;
}

/* ---- the whole ---- */

/* Where no type was ever changed, a merge must have given the source's files back. */
static int check_merged(struct convert *c, struct err *err)
{
    for (size_t f = 0; f < c->nfiles; f++) {
        const struct manifest_source *s = &c->from->manifest.source[f];
        uint32_t crc;

        if (file_crc(c, f, &crc, err) < 0)
            return -1;
        if (crc != s->crc)
            return err_set(err, ERR_INPUT,
                           "%s: %s would have the CRC-32 %08" PRIx32
                           " where the original had %08" PRIx32,
                           c->from->path, s->name, crc, s->crc);
    }
    return 0;
}

static int sync_files(struct convert *c, struct err *err)
{
    for (size_t f = 0; f < c->nfiles; f++)
        if (ftruncate(c->file[f].fd, (off_t)c->file[f].size) < 0 ||
            fsync(c->file[f].fd) < 0)
            return err_errno(err, "%s", c->file[f].path);
    return 0;
}

static int open_output(struct convert *c, const char *path, struct err *err)
{
    const struct checkpoint *k = c->from;
    size_t n = count_small(k);
    const char **names =
        xmalloc((n + (k->sharded ? k->manifest.nsources : 0)) * sizeof(*names));
    char *identity = identity_dup(c);
    int ret;

    for (size_t i = 0; i < n; i++)
        names[i] = small_name(k, i);
    for (size_t i = 0; k->sharded && !c->opt->mesh && i < k->manifest.nsources; i++)
        names[n++] = k->manifest.source[i].name;
    ret = outdir_open(&c->out, path, identity, c->opt->force, names, n, err);
    free(identity);
    free(names);
    return ret;
}

static int make_cutters(struct convert *c, struct err *err)
{
    int coord[MESH_NAXES];

    c->nparts = 1;
    if (!c->opt->mesh)
        return 0;
    c->mesh = *c->opt->mesh;
    c->nparts = manifest_nparts(c->mesh.size);
    c->cutter = xcalloc((size_t)c->nparts, sizeof(struct cutter *));
    for (int p = 0; p < c->nparts; p++) {
        manifest_part_coord(c->mesh.size, p, coord);
        if (cutter_open(&c->cutter[p], c->from->model, &c->mesh, coord, err) < 0)
            return -1;
    }
    return 0;
}

static void clear(struct convert *c)
{
    for (size_t f = 0; c->file && f < c->nfiles; f++) {
        if (c->file[f].fd >= 0)
            close(c->file[f].fd);
        free(c->file[f].name);
        free(c->file[f].path);
    }
    for (int p = 0; c->cutter && p < c->nparts; p++)
        cutter_free(c->cutter[p]);
    free(c->cutter);
    free(c->file);
    free(c->dtype);
    free(c->file_of);
    free(c->offset);
    free(c->crc);
    free(c->whole_crc);
    free(c->small);
    outdir_close(&c->out);
}

int convert(struct checkpoint *ckpt, const char *path,
            const struct convert_options *opt, struct convert_result *result,
            struct err *err)
{
    struct convert c = {
        .from = ckpt, .opt = opt, .result = result, .out = { .lock = -1, .journal = -1 }
    };
    size_t places;
    int ret = -1;

    *result = (struct convert_result){ 0 };
    if (!ckpt->model)
        return err_set(err, ERR_INPUT, "%s: a single file has no config.json to cut by",
                       ckpt->path);
    if (!opt->mesh && !ckpt->sharded)
        return err_set(err, ERR_INPUT, "%s: not a sharded checkpoint (no %s)",
                       ckpt->path, MANIFEST_NAME);
    if (make_cutters(&c, err) < 0)
        goto out;
    c.side = (struct cut_side){ c.nparts, c.cutter, write_to_files, &c };
    places = ckpt->ntensors * (size_t)c.nparts;
    c.dtype = xcalloc(ckpt->ntensors, sizeof(*c.dtype));
    c.offset = xcalloc(places, sizeof(*c.offset));
    c.crc = xcalloc(places, sizeof(*c.crc));
    c.whole_crc = xcalloc(ckpt->ntensors, sizeof(*c.whole_crc));
    choose_dtypes(&c);
    if (checkpoint_open_files(ckpt, -1, err) < 0 || open_output(&c, path, err) < 0 ||
        (opt->mesh ? make_parts(&c, err) : make_sources(&c, err)) < 0 ||
        copy_tensors(&c, err) < 0 || (!ckpt->sharded && check_tied(&c, err) < 0) ||
        copy_all_small(&c, err) < 0)
        goto out;
    if (!opt->mesh && !opt->dtype && !ckpt->manifest.cast && check_merged(&c, err) < 0)
        goto out;
    if (sync_files(&c, err) < 0 || (opt->mesh && write_manifest(&c, err) < 0) ||
        outdir_finish(&c.out, err) < 0)
        goto out;
    result->bytes = c.total;
    ret = 0;
out:
    clear(&c);
    return ret;
}
