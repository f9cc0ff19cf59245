/* save - writes the training state as a checkpoint */
#include "lib/train/save.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/fs.h"
#include "lib/base/hash.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/ckpt/outdir.h"
#include "lib/ckpt/safetensors.h"
#include "lib/reshard/checkpoint.h"
#include "lib/reshard/describe.h"
#include "lib/reshard/smallfile.h"
#include "lib/train/adaptersave.h"
#include "lib/train/sharing.h"

/* The source of a tensor of the checkpoint: a file, the f32 weights, or a state that
 * the store keeps. */
enum block {
    BLOCK_FILE,
    BLOCK_WEIGHT,
    BLOCK_SLOTS,
    BLOCKS = BLOCK_SLOTS + PARAMETER_SLOTS
};

struct entry {
    const char *name, *role;
    size_t tensor; /* index in the checkpoint that was read; gives the shape */
    enum block block;
    int weight; /* weight on this rank, or -1 */
    int ndim;   /* of what is written, */
    const uint64_t *shape;
    int lacks;        /* and the axis, from 1, that the weight's tensor has more */
    enum dtype dtype; /* as written */
    bool held;        /* this rank's shard stores some of it */
    uint64_t offset;  /* in the shard file */
    uint32_t crc;
};

struct saver {
    struct trainer *t;
    struct checkpoint *c;
    struct comm *world;
    struct mesh mesh;
    int part;    /* shard index of this rank */
    bool writes; /* the first rank with this shard; it writes the file */
    bool serves; /* it shares state with that one, which asks for it */
    bool apart;  /* no access to the directory: rank 0 writes its file */
    struct adaptersave
        *beside; /* an adapter is saved, and nothing below is used; or NULL */
    struct cutter *by_unit, *in_file;
    struct entry *entry;
    size_t n;
    struct pool pool;
    struct smallfile *small; /* rank 0 */
    size_t nsmall;
    mode_t mode;
    /* the checkpoint in progress */
    bool busy, started; /* begun; the thread was started */
    pthread_t thread;
    atomic_bool written, failed, stop; /* stop: another rank has failed */
    int ret;
    struct err err;
    struct outdir out;
    char *path, *last, *training;
    float *copy[BLOCKS]; /* copies in host memory, if .owns; else NULL.  Of weights, and
                          * of a state of all trained elements, whoever owns them */
    bool owns;
    uint64_t size; /* size and CRC-32 of the shard file */
    uint32_t crc;
};

struct outcome {
    int ret;
    struct err err;
};

int saver_agree(struct comm *world, int ret, struct err *err)
{
    struct outcome mine = { .ret = ret }, *all;

    if (ret < 0)
        mine.err = *err;
    all = xcalloc((size_t)world->size, sizeof(*all));
    if (comm_run(world, comm_all_gather(&mine, all, sizeof(mine)), err) < 0) {
        free(all);
        return -1;
    }
    ret = 0;
    for (int r = 0; r < world->size && ret == 0; r++) {
        ret = all[r].ret;
        if (ret < 0)
            *err = all[r].err;
    }
    free(all);
    return ret;
}

/* ---- the tensors to write ---- */

/* The tensor that holds the values of T; differs from T if T is tied. */
static size_t values_of(const struct model *m, size_t t)
{
    return m->tensor[t].tied >= 0 ? (size_t)m->tensor[t].tied : t;
}

/* Finds the model's tensors that some rank trains, and which of them are matrices to
 * the optimizer. */
static int find_trained(struct saver *s, double *trained, double *matrix,
                        struct err *err)
{
    const struct program *p = s->t->program;
    const size_t n = p->model->ntensors;

    for (int i = 0; i < p->nweights; i++)
        if (s->t->parameters.row[i].trained) {
            trained[p->weight[i].tensor] = 1;
            matrix[p->weight[i].tensor] = s->t->parameters.row[i].matrix;
        }
    return comm_run(s->world, comm_all_reduce_f64(trained, n), err) < 0 ||
                   comm_run(s->world, comm_all_reduce_f64(matrix, n), err) < 0
               ? -1
               : 0;
}

/* Leaves out the axis of E that its form lacks. */
static void shape_entry(struct saver *s, struct entry *e, enum manifest_form form)
{
    const struct tensor *t = &s->c->tensor[e->tensor];
    uint64_t *shape =
        pool_take(&s->pool, ((size_t)t->ndim + 1) * sizeof(*shape), sizeof(*shape));

    e->lacks = manifest_lacks(form, t->ndim) + 1;
    for (int k = 0; k < t->ndim; k++)
        if (k + 1 != e->lacks)
            shape[e->ndim++] = t->shape[k];
    e->shape = shape;
}

static void add_entry(struct saver *s, size_t tensor, enum block block,
                      const char *role, enum manifest_form form, int weight)
{
    const struct tensor *t = &s->c->tensor[tensor];
    struct entry *e = &s->entry[s->n++];
    char *name = block == BLOCK_FILE || !strcmp(role, "weight")
                     ? xstrdup(t->name)
                     : str_dupf("%s.%s", t->name, role);

    *e = (struct entry){ .name = pool_strdup(&s->pool, name),
                         .role = role,
                         .tensor = tensor,
                         .block = block,
                         .weight = weight,
                         .dtype = strcmp(role, "weight") ? DTYPE_F32 : t->dtype };
    shape_entry(s, e, form);
    free(name);
}

static int list_entries(struct saver *s, struct err *err)
{
    const struct checkpoint *c = s->c;
    const struct program *p = s->t->program;
    const struct model *m = p->model;
    const struct parameters *store = &s->t->parameters;
    double *trained = xcalloc(2 * m->ntensors + 1, sizeof(*trained));
    double *matrix = trained + m->ntensors;
    int *own = xmalloc((m->ntensors + 1) * sizeof(*own)), ret = -1;

    for (size_t t = 0; t < m->ntensors; t++)
        own[t] = -1;
    for (int i = 0; i < p->nweights; i++)
        if (p->weight[i].slice <= 1) /* later slices of a tensor share this memory */
            own[p->weight[i].tensor] = i;
    s->entry = xcalloc((BLOCKS + 1) * c->nweights + 1, sizeof(*s->entry));
    if (find_trained(s, trained, matrix, err) < 0)
        goto out;
    for (size_t i = 0; i < c->nweights; i++) {
        bool is = c->which[i] >= 0 && trained[values_of(m, (size_t)c->which[i])] > 0;

        add_entry(s, i, is ? BLOCK_WEIGHT : BLOCK_FILE, "weight", MANIFEST_LIKE,
                  is ? own[values_of(m, (size_t)c->which[i])] : -1);
    }
    for (size_t i = 0; i < c->nweights; i++) {
        size_t t = c->which[i] < 0 ? 0 : (size_t)c->which[i];

        if (c->which[i] < 0 || values_of(m, t) != t || !(trained[t] > 0))
            continue;
        if (c->tensor[i].dtype != DTYPE_F32)
            add_entry(s, i, BLOCK_WEIGHT, "master", MANIFEST_LIKE, own[t]);
        for (int k = 0; k < store->slots; k++)
            if ((matrix[t] > 0 ? store->form[k].matrix : store->form[k].other) !=
                SLOT_NONE)
                add_entry(s, i, (enum block)(BLOCK_SLOTS + k), store->state[k].role,
                          store->state[k].form, own[t]);
    }
    ret = 0;
out:
    free(trained);
    free(own);
    return ret;
}

/* Describes the copy of entry E from its source type to its own. */
static struct cut_tensor cut_of(const struct saver *s, const struct entry *e)
{
    struct cut_tensor t = checkpoint_cut_tensor(s->c, e->tensor, e->dtype);

    t.name = e->name;
    t.lacks = e->lacks;
    t.ndim = e->ndim;
    t.shape = e->shape;
    if (e->block != BLOCK_FILE)
        t.from = DTYPE_F32;
    return t;
}

static struct cut_side file_side(struct saver *s)
{
    return (struct cut_side){ .nparts = 1, .cutter = &s->in_file };
}

static int part_bytes(struct saver *s, const struct entry *e, uint64_t *bytes,
                      bool *held, struct err *err)
{
    struct cut_tensor t = cut_of(s, e);
    struct cut_side side = file_side(s);

    if (cut_part_bytes(bytes, held, &side, 0, &t, t.to, err) < 0)
        return -1;
    if (s->c->which[e->tensor] < 0)
        *held = s->part == 0;
    return 0;
}

static int find_held(struct saver *s, struct err *err)
{
    for (size_t i = 0; i < s->n; i++) {
        struct entry *e = &s->entry[i];
        uint64_t bytes;

        if (part_bytes(s, e, &bytes, &e->held, err) < 0)
            return -1;
        if (e->held && e->block != BLOCK_FILE && e->weight < 0)
            return err_set(err, ERR_NO,
                           "tensor %s is stored where it is not trained; this layout "
                           "cannot be saved",
                           e->name);
    }
    return 0;
}

/* ---- small files ---- */

static int read_all_small(struct saver *s, struct err *err)
{
    size_t n = smallfile_count(s->c);

    s->small = xcalloc(n + 1, sizeof(*s->small));
    for (; s->nsmall < n; s->nsmall++)
        if (smallfile_read(&s->small[s->nsmall], s->c, s->nsmall, err) < 0)
            return -1;
    s->nsmall += smallfile_index(&s->small[n], s->c);
    return 0;
}

/* ---- opening ---- */

int saver_open(struct saver **out, struct trainer *t, struct checkpoint *c,
               struct comm *world, struct err *err)
{
    struct saver *s = xcalloc(1, sizeof(*s));
    int coord[MESH_NAXES];

    *s = (struct saver){ .t = t,
                         .c = c,
                         .world = world,
                         .mesh = t->program->mesh,
                         .out = { .dir = -1, .journal = -1 } };
    mesh_coord(&s->mesh, world->rank, coord);
    if (adaptersave_applies(t)) {
        int ret = saver_agree(world, checkpoint_open_files(c, -1, err), err);

        if (ret == 0)
            ret = adaptersave_open(&s->beside, t, c, world, err);
        if (saver_agree(world, ret, err) < 0) {
            saver_close(s);
            return -1;
        }
        *out = s;
        return 0;
    }
    s->writes = coord[MESH_DP] == 0 && coord[MESH_SP] == 0;
    s->serves =
        !s->writes && sharing_applies(t) && t->copies->rank < t->parameters.owner.size;
    coord[MESH_DP] = coord[MESH_SP] = 0;
    s->part = (coord[MESH_PP] * s->mesh.size[MESH_EP] + coord[MESH_EP]) *
                  s->mesh.size[MESH_TP] +
              coord[MESH_TP];
    if (cutter_open(&s->by_unit, c->model, &s->mesh, coord, err) < 0 ||
        cutter_open(&s->in_file, c->model, &s->mesh, coord, err) < 0 ||
        checkpoint_open_files(c, -1, err) < 0 || list_entries(s, err) < 0 ||
        find_held(s, err) < 0 || (world->rank == 0 && read_all_small(s, err) < 0)) {
        saver_close(s);
        return -1;
    }
    cutter_set_order(s->by_unit, SLICE_BY_UNIT);
    s->mode = checkpoint_mode(c);
    *out = s;
    return 0;
}

/* Releases the state of the checkpoint in progress. */
static void forget(struct saver *s)
{
    for (int i = 0; i < BLOCKS; i++) {
        free(s->copy[i]);
        s->copy[i] = NULL;
    }
    s->owns = s->busy = false;
    outdir_close(&s->out);
    free(s->training);
    s->training = NULL;
}

static void wait_for_thread(struct saver *s)
{
    if (s->started)
        pthread_join(s->thread, NULL);
    s->started = false;
}

void saver_close(struct saver *s)
{
    if (!s)
        return;
    wait_for_thread(s);
    forget(s);
    adaptersave_close(s->beside);
    if (s->by_unit)
        cutter_free(s->by_unit);
    if (s->in_file)
        cutter_free(s->in_file);
    for (size_t i = 0; i < s->nsmall; i++)
        smallfile_clear(&s->small[i]);
    free(s->small);
    free(s->entry);
    pool_clear(&s->pool);
    free(s->path);
    free(s->last);
    free(s);
}

/* ---- a shard file ---- */

struct writing {
    struct saver *s;
    const char *path;
    const float *from; /* values of the weight; or, of a state on the device: */
    bool shared;       /* other ranks have some of them, */
    int slot;          /* which, or SHARING_WEIGHTS, and */
    uint64_t first;    /* the first of its trained elements */
    uint64_t offset;   /* of the tensor in the file */
    int fd;            /* the file; or, when rank 0 writes: */
    char *piece;       /* [PIECE]: N bytes for offset AT, not sent yet */
    uint64_t at;
    size_t n;
    bool over; /* rank 0 has failed and accepts no more */
};

/* ---- shards sent to rank 0 in pieces, each acknowledged ---- */

enum { PIECE = 1 << 20 };

/* Header of a piece.  The last piece is empty; its AT is the size of the file. */
struct piece {
    uint64_t at, n;
    int ret; /* status of the shard; in the acknowledgement, rank 0's status */
    struct err err;
};

/* Sends a piece with RET and *ERR; returns rank 0's status. */
static int send_piece(struct writing *w, int ret, struct err *err)
{
    struct comm *c = w->s->world;
    struct piece p = { .at = w->at, .n = w->n, .ret = ret };

    if (ret < 0)
        p.err = *err;
    w->over = w->n == 0;
    if (c->ops->send(c, &p, sizeof(p), 0, err) < 0 ||
        (w->n && c->ops->send(c, w->piece, w->n, 0, err) < 0) ||
        c->ops->receive(c, &p, sizeof(p), 0, err) < 0)
        p.ret = -1;
    else if (p.ret < 0)
        *err = p.err;
    w->over |= p.ret < 0;
    w->n = 0;
    return p.ret;
}

static int add_to_piece(struct writing *w, const char *buf, size_t n, uint64_t at,
                        struct err *err)
{
    if (w->n && at != w->at + w->n && send_piece(w, 0, err) < 0)
        return -1;
    while (n) {
        size_t part = n < PIECE - w->n ? n : PIECE - w->n;

        if (!w->n)
            w->at = at;
        memcpy(w->piece + w->n, buf, part);
        w->n += part;
        buf += part;
        at += part;
        n -= part;
        if (w->n == PIECE && send_piece(w, 0, err) < 0)
            return -1;
    }
    return 0;
}

/* Writes piece P, whose bytes are at BUF. */
static int take_piece(int fd, const struct piece *p, const char *buf, const char *path,
                      struct err *err)
{
    if (p->n)
        return fs_pwrite(fd, buf, (size_t)p->n, p->at, path, err);
    return ftruncate(fd, (off_t)p->at) < 0 || fsync(fd) < 0 ? err_errno(err, "%s", path)
                                                            : 0;
}

/* On rank 0: receives the file of shard PART from rank R.  After a failure on either
 * side no more pieces follow. */
static int take_part(struct saver *s, int r, int part, struct err *err)
{
    struct comm *c = s->world;
    char *name = manifest_part_name_dup(s->mesh.size, part);
    char *path = fs_join_dup(s->out.partial, name), *buf = xmalloc(PIECE);
    int fd = outdir_create(&s->out, name, err);
    int ret = fd < 0 ? -1 : outdir_share(&s->out, fd, s->mode, path, err);
    struct piece p;

    do {
        struct err lost = { 0 };

        if (c->ops->receive(c, &p, sizeof(p), r, &lost) < 0 ||
            (p.n && c->ops->receive(c, buf, (size_t)p.n, r, &lost) < 0)) {
            *err = lost;
            ret = -1;
            break;
        }
        if (ret == 0 && p.ret < 0) {
            *err = p.err;
            ret = -1;
        }
        if (ret == 0)
            ret = take_piece(fd, &p, buf, path, err);
        p.ret = ret;
        if (ret < 0)
            p.err = *err;
        if (c->ops->send(c, &p, sizeof(p), r, &lost) < 0) {
            *err = lost;
            ret = -1;
        }
    } while (p.n && ret == 0);
    if (fd >= 0)
        close(fd);
    free(buf);
    free(path);
    free(name);
    return ret;
}

/* ---- contents of the file ---- */

static int put(struct writing *w, void *buf, size_t n, uint64_t at, struct err *err)
{
    if (atomic_load(&w->s->stop))
        return err_set(err, ERR_SYSTEM, "%s: another rank has failed", w->path);
    return w->piece ? add_to_piece(w, buf, n, at, err)
                    : fs_pwrite(w->fd, buf, n, at, w->path, err);
}

/* Reads from the copy, or from the device. */
static int take_numbers(void *arg, int part, uint64_t offset, void *buf, size_t n,
                        struct err *err)
{
    const struct writing *w = arg;
    const struct parameters *p = &w->s->t->parameters;

    (void)part;
    if (w->shared)
        return sharing_fetch(w->s->t, w->slot, w->first + offset / sizeof(float), buf,
                             n / sizeof(float), err);
    if (!w->s->owns)
        return p->ops->copy_out(p->device, buf, (const char *)w->from + offset, n, err);
    memcpy(buf, (const char *)w->from + offset, n);
    return 0;
}

static int write_bytes(void *arg, int part, uint64_t offset, void *buf, size_t n,
                       struct err *err)
{
    struct writing *w = arg;

    (void)part;
    return put(w, buf, n, w->offset + offset, err);
}

/* Makes the header and lays out the tensors, widest elements first for alignment. */
static int lay_out(struct saver *s, struct safetensors_header *h, const char *name,
                   struct err *err)
{
    struct cut_side side = file_side(s);
    uint64_t shape[TENSOR_MAX_DIMS], bytes;

    safetensors_header_begin(h, "{\"format\":\"pt\"}");
    for (int bits = 64; bits >= 4; bits--)
        for (size_t i = 0; i < s->n; i++) {
            struct entry *e = &s->entry[i];
            struct cut_tensor t = cut_of(s, e);
            bool held;

            if (dtype_bits(e->dtype) != bits || !e->held)
                continue;
            if (part_bytes(s, e, &bytes, &held, err) < 0)
                return -1;
            cut_part_shape(shape, &side, 0, &t);
            e->offset = h->end;
            safetensors_header_add(h, e->name, e->dtype, t.ndim, shape, bytes);
        }
    if (safetensors_header_finish(h, name, err) < 0)
        return -1;
    for (size_t i = 0; i < s->n; i++)
        s->entry[i].offset += h->text.len;
    return 0;
}

/* Finds the numbers of entry E: in the copy, or on devices. */
static void find_numbers(struct writing *w, const struct entry *e)
{
    const struct saver *s = w->s;
    const struct parameters *p = &s->t->parameters;
    const struct parameter *row = &p->row[e->weight];
    const bool state = e->block >= BLOCK_SLOTS;

    w->shared = !s->owns && (state || parameters_gathers(p));
    w->slot = state ? (int)e->block - BLOCK_SLOTS : SHARING_WEIGHTS;
    w->first = state ? p->stored[w->slot][e->weight] : row->at;
    w->from = s->owns ? s->copy[e->block] + w->first : row->weight;
}

static int write_entry(struct saver *s, struct cut *cut, struct writing *w,
                       struct entry *e, struct err *err)
{
    struct cut_side to = file_side(s);
    struct cut_side from = { .nparts = 1,
                             .cutter = &s->by_unit,
                             .io = take_numbers,
                             .arg = w,
                             .replicas = true };
    struct cut_tensor t = cut_of(s, e);

    to.io = write_bytes;
    to.arg = w;
    w->offset = e->offset;
    if (e->block == BLOCK_FILE)
        return checkpoint_copy(s->c, cut, e->tensor, e->dtype, &to, NULL, &e->crc, NULL,
                               err);
    find_numbers(w, e);
    return cut_copy(cut, &t, &from, &to, NULL, NULL, &e->crc, NULL, err);
}

static int compare_offsets(const void *a, const void *b)
{
    const struct entry *const *x = a, *const *y = b;

    return (*x)->offset < (*y)->offset ? -1 : (*x)->offset > (*y)->offset;
}

/* Combines the file's CRC-32 from those of its header and tensors. */
static int sum_part(struct saver *s, uint32_t crc, struct err *err)
{
    struct entry **held = xmalloc((s->n + 1) * sizeof(*held));
    size_t n = 0;
    int ret = 0;

    for (size_t i = 0; i < s->n; i++)
        if (s->entry[i].held)
            held[n++] = &s->entry[i];
    qsort(held, n, sizeof(struct entry *), compare_offsets);
    for (size_t i = 0; i < n && ret == 0; i++) {
        uint64_t bytes;
        bool is;

        ret = part_bytes(s, held[i], &bytes, &is, err);
        if (ret == 0 && bytes)
            crc = hash_crc32_join(crc, held[i]->crc, bytes);
    }
    s->crc = crc;
    free(held);
    return ret;
}

static int open_part(struct saver *s, struct writing *w, const char *name,
                     struct err *err)
{
    if (s->apart) {
        w->piece = xmalloc(PIECE);
        return 0;
    }
    w->fd = outdir_create(&s->out, name, err);
    return w->fd < 0 ? -1 : outdir_share(&s->out, w->fd, s->mode, w->path, err);
}

static int write_entries(struct saver *s, struct writing *w,
                         struct safetensors_header *h, struct err *err)
{
    struct cut *cut = cut_new();
    int ret = put(w, h->text.s, h->text.len, 0, err);

    for (size_t i = 0; i < s->n && ret == 0; i++)
        if (s->entry[i].held)
            ret = write_entry(s, cut, w, &s->entry[i], err);
    if (ret == 0)
        ret = sum_part(s, hash_crc32(0, h->text.s, h->text.len), err);
    cut_free(cut);
    return ret;
}

/* Sends the last piece and the status; or syncs the file. */
static int close_part(struct saver *s, struct writing *w, int ret, struct err *err)
{
    if (s->apart) {
        if (ret == 0 && w->n)
            ret = send_piece(w, 0, err);
        w->n = 0;
        w->at = s->size;
        return w->over ? ret : send_piece(w, ret, err);
    }
    if (ret == 0 && (ftruncate(w->fd, (off_t)s->size) < 0 || fsync(w->fd) < 0))
        ret = err_errno(err, "%s", w->path);
    return ret;
}

static int write_part(struct saver *s, struct err *err)
{
    char *name = manifest_part_name_dup(s->mesh.size, s->part);
    char *path = fs_join_dup(s->apart ? s->path : s->out.partial, name);
    struct safetensors_header h = { 0 };
    struct writing w = { .s = s, .path = path, .fd = -1 };
    int ret = lay_out(s, &h, name, err);

    s->size = h.text.len + h.end;
    if (ret == 0)
        ret = open_part(s, &w, name, err);
    if (ret == 0)
        ret = write_entries(s, &w, &h, err);
    ret = close_part(s, &w, ret, err);
    if (w.fd >= 0)
        close(w.fd);
    safetensors_header_clear(&h);
    free(w.piece);
    free(path);
    free(name);
    return ret;
}

static void *write_beside(void *arg)
{
    struct saver *s = arg;

    s->ret = write_part(s, &s->err);
    if (s->ret < 0 && atomic_load(&s->stop))
        s->ret = 0; /* the other rank says why */
    atomic_store(&s->failed, s->ret < 0);
    atomic_store(&s->written, true);
    return NULL;
}

/* Discards the failed checkpoint. */
static void give_up(struct saver *s)
{
    struct err other = { 0 };

    wait_for_thread(s);
    if (s->world->rank == 0 && s->out.partial)
        s->ret = fs_remove_tree(s->out.partial, &other); /* keep the first failure */
    forget(s);
}

/* ---- beginning ---- */

/* Numbers of block I. */
static uint64_t numbers_of(const struct saver *s, int i)
{
    const struct parameters *p = &s->t->parameters;

    return i < BLOCK_SLOTS ? p->trained
                           : p->stored[i - BLOCK_SLOTS][p->program->nweights];
}

/* Copies the state, so that training can continue.  Without memory for a copy the state
 * itself is written, and training waits. */
static int take_copy(struct saver *s, struct err *err)
{
    const struct parameters *p = &s->t->parameters;
    int blocks = BLOCK_SLOTS + p->slots, ret = 0;

    /* a rank that sends to rank 0 writes before it continues; but the replicas that
     * share its states do not wait for that */
    s->owns = s->writes && (!s->apart || sharing_applies(s->t));
    for (int i = BLOCK_WEIGHT; i < blocks && s->owns; i++) {
        s->copy[i] = mem_alloc((numbers_of(s, i) + 1) * sizeof(float), "a copy to save",
                               s->apart ? err : NULL);
        s->owns = s->copy[i] != NULL;
    }
    if (!s->owns && s->apart && sharing_applies(s->t))
        return -1;
    if (s->owns)
        ret = parameters_gathers(p)
                  ? sharing_fetch(s->t, SHARING_WEIGHTS, 0, s->copy[BLOCK_WEIGHT],
                                  (size_t)p->trained, err)
                  : p->ops->copy_out(p->device, s->copy[BLOCK_WEIGHT], p->weight,
                                     (size_t)p->trained * sizeof(float), err);
    for (int k = 0; k < p->slots && s->owns && ret == 0; k++)
        ret = sharing_fetch(s->t, k, 0, s->copy[BLOCK_SLOTS + k],
                            (size_t)numbers_of(s, BLOCK_SLOTS + k), err);
    return ret;
}

/* Takes the copy and starts to write, or writes. */
static int begin_part(struct saver *s, struct err *err)
{
    int ret;

    if (!s->writes)
        return s->serves ? sharing_serve(s->t, err) : 0;
    ret = take_copy(s, err);
    if (ret == 0 && !s->apart) {
        if (s->owns && pthread_create(&s->thread, NULL, write_beside, s) == 0)
            s->started = true;
        else
            write_beside(s);
    }
    if (sharing_applies(s->t)) {
        struct err lost = { 0 };

        if (sharing_dismiss(s->t, ret < 0 ? &lost : err) < 0)
            ret = -1;
    }
    return ret;
}

static int open_output(struct saver *s, const char *path, struct err *err)
{
    static const char identity[] = "training";
    char *stamp = str_dupf("process %ld", (long)getpid());
    char *partial = str_dupf("%s.partial", path);
    int ret = fs_remove_tree(partial, err);

    if (ret == 0)
        ret = outdir_open(&s->out, path, identity, stamp, true, NULL, 0, err);
    free(partial);
    free(stamp);
    return ret;
}

/* Can this rank create files in the directory that rank 0 made?  A sign file
 * distinguishes it from a directory of the same name on another machine. */
static int join_output(struct saver *s, const char *path, struct err *err)
{
    static const char sign[] = "sign";
    char *place = NULL, *text = NULL;
    double mark[2] = { (double)getpid(), clock_seconds() };
    int ret = 0;

    if (s->world->rank == 0)
        ret = outdir_write(&s->out, sign, (const char *)mark, sizeof(mark), 0600, err);
    if (saver_agree(s->world, ret, err) < 0 ||
        comm_run(s->world, comm_broadcast(mark, sizeof(mark), 0), err) < 0)
        return -1;
    s->apart = false;
    if (s->writes && s->world->rank > 0) {
        size_t n = 0;

        place = str_dupf("%s.partial/%s", path, sign);
        s->apart = fs_read_regular(&text, &n, place, sizeof(mark), NULL) < 0 ||
                   n != sizeof(mark) || memcmp(text, mark, n) != 0;
        if (!s->apart)
            ret = outdir_join(&s->out, path, err);
    }
    free(text);
    free(place);
    ret = saver_agree(s->world, ret, err);
    if (ret == 0 && s->world->rank == 0 && unlinkat(s->out.dir, sign, 0) < 0)
        ret = err_errno(err, "%s/%s", s->out.partial, sign);
    return saver_agree(s->world, ret, err);
}

/* Ranks that cannot access the directory send their shards to rank 0 now. */
static int gather_parts(struct saver *s, struct err *err)
{
    int mine = s->apart ? s->part : -1, ret;
    int *part = xcalloc((size_t)s->world->size, sizeof(*part));

    ret = comm_run(s->world, comm_all_gather(&mine, part, sizeof(mine)), err);
    for (int r = 1; r < s->world->size && ret == 0; r++) {
        if (part[r] < 0)
            continue;
        if (s->world->rank == 0)
            ret = take_part(s, r, part[r], err);
        else if (s->world->rank == r)
            ret = write_part(s, err);
        ret = saver_agree(s->world, ret, err);
    }
    free(part);
    return ret;
}

int saver_begin(struct saver *s, const char *path, const char *training,
                struct err *err)
{
    int ret = 0;

    free(s->path);
    s->path = xstrdup(path);
    s->training = xstrdup(training);
    s->busy = true;
    if (s->world->rank == 0)
        ret = open_output(s, path, err);
    ret = saver_agree(s->world, ret, err);
    if (ret == 0)
        ret = s->beside ? adaptersave_write(s->beside, &s->out, err)
                        : join_output(s, path, err);
    s->ret = 0;
    s->err = (struct err){ 0 };
    atomic_store(&s->written, !s->writes);
    atomic_store(&s->failed, false);
    atomic_store(&s->stop, false);
    if (ret == 0 && !s->beside)
        ret = begin_part(s, err);
    if (ret == 0 && !s->beside)
        ret = gather_parts(s, err);
    if (ret == 0 && s->apart)
        atomic_store(&s->written, true);
    if (ret < 0)
        give_up(s);
    return ret;
}

void saver_note(struct saver *s, const char *training)
{
    if (!s->busy)
        return;
    free(s->training);
    s->training = xstrdup(training);
}

bool saver_is_busy(const struct saver *s)
{
    return s->busy;
}

bool saver_is_written(struct saver *s)
{
    return s->busy && atomic_load(&s->written);
}

bool saver_has_failed(struct saver *s)
{
    return s->busy && atomic_load(&s->failed);
}

void saver_stop(struct saver *s)
{
    atomic_store(&s->stop, true);
}

const char *saver_last(const struct saver *s)
{
    return s->last;
}

/* ---- finishing: the manifest ---- */

/* What each rank reports to rank 0: CRC-32 and held flag of N entries, then this. */
struct part_sum {
    uint64_t size;
    uint32_t crc;
    int32_t part; /* -1: wrote no file */
};

static char *pack(const struct saver *s, size_t *bytes)
{
    struct part_sum sum = { s->size, s->crc, s->writes ? s->part : -1 };
    uint32_t *out;

    *bytes = 2 * s->n * sizeof(*out) + sizeof(sum);
    out = xcalloc(1, *bytes + 8);
    for (size_t i = 0; i < s->n; i++) {
        out[2 * i] = s->entry[i].crc;
        out[2 * i + 1] = s->entry[i].held;
    }
    memcpy(out + 2 * s->n, &sum, sizeof(sum));
    return (char *)out;
}

static void add_tensors(const struct saver *s, struct manifest *m, const char *all,
                        size_t bytes)
{
    size_t nparts = (size_t)m->nparts;

    m->tensor = xcalloc(s->n + 1, sizeof(*m->tensor));
    for (size_t i = 0; i < s->n; i++) {
        const struct entry *e = &s->entry[i];
        uint64_t *held = describe_held(m);
        uint32_t *crc = pool_take(&m->pool, nparts * sizeof(*crc), sizeof(*crc));

        memset(crc, 0, nparts * sizeof(*crc));
        for (int r = 0; r < s->world->size; r++) {
            const char *of = all + (size_t)r * bytes;
            struct part_sum sum;
            uint32_t pair[2];

            memcpy(pair, of + 2 * i * sizeof(*pair), sizeof(pair));
            memcpy(&sum, of + 2 * s->n * sizeof(*pair), sizeof(sum));
            if (sum.part < 0 || !pair[1])
                continue;
            crc[sum.part] = pair[0];
            held[sum.part / 64] |= UINT64_C(1) << sum.part % 64;
        }
        m->tensor[m->ntensors++] =
            (struct manifest_tensor){ .name = e->name,
                                      .role = e->role,
                                      .shape = e->shape,
                                      .axis =
                                          describe_axes(m, s->c, e->tensor, e->lacks),
                                      .crc = crc,
                                      .held = held,
                                      .dtype = e->dtype,
                                      .ndim = e->ndim };
    }
}

static void add_files(const struct saver *s, struct manifest *m, const char *all,
                      size_t bytes)
{
    size_t pair = 2 * sizeof(uint32_t);

    m->nfiles = (size_t)m->nparts + s->nsmall;
    m->file = xcalloc(m->nfiles + 1, sizeof(*m->file));
    for (int r = 0; r < s->world->size; r++) {
        struct part_sum sum;
        char *name;

        memcpy(&sum, all + (size_t)r * bytes + s->n * pair, sizeof(sum));
        if (sum.part < 0)
            continue;
        name = manifest_part_name_dup(s->mesh.size, sum.part);
        m->file[sum.part] = (struct manifest_file){ pool_strdup(&m->pool, name),
                                                    sum.size, sum.crc, sum.part };
        free(name);
    }
    for (size_t i = 0; i < s->nsmall; i++)
        m->file[(size_t)m->nparts + i] =
            (struct manifest_file){ s->small[i].name, s->small[i].n, s->small[i].crc,
                                    -1 };
}

static int write_manifest(struct saver *s, const char *all, size_t bytes,
                          struct err *err)
{
    const struct checkpoint *c = s->c;
    const struct parameters *store = &s->t->parameters;
    struct manifest m = { .nparts = manifest_nparts(s->mesh.size),
                          .stages = s->mesh.stages,
                          .keep_vocab = s->mesh.keep_vocab,
                          .cast = c->sharded && c->manifest.cast,
                          .training = s->training,
                          .config = c->sharded ? c->manifest.config : c->source.config,
                          .family = model_family_text(c->model) };
    int ret = -1;

    memcpy(m.mesh, s->mesh.size, sizeof(m.mesh));
    if (describe_sources(&m, c, NULL, NULL, err) == 0) {
        add_files(s, &m, all, bytes);
        add_tensors(s, &m, all, bytes);
        ret =
            manifest_list_states(&m, store->state, (size_t)store->slots, s->path, err);
    }
    if (ret == 0)
        ret = describe_write(&m, &s->out, MANIFEST_NAME, s->mode, err);
    manifest_clear(&m);
    return ret;
}

/* On rank 0: writes the remaining files and renames the directory. */
static int complete(struct saver *s, const char *all, size_t bytes, struct err *err)
{
    for (size_t i = 0; i < s->nsmall; i++)
        if (outdir_write(&s->out, s->small[i].name, s->small[i].text, s->small[i].n,
                         s->small[i].mode, err) < 0)
            return -1;
    if (write_manifest(s, all, bytes, err) < 0)
        return -1;
    return outdir_finish(&s->out, err);
}

/* The same of an adapter: rank 0 has all that the manifest says. */
static int finish_beside(struct saver *s, struct err *err)
{
    int ret = 0;

    if (s->world->rank == 0)
        ret = adaptersave_finish(s->beside, &s->out, s->training, err);
    if (ret == 0 && s->world->rank == 0)
        ret = outdir_finish(&s->out, err);
    return saver_agree(s->world, ret, err);
}

static int finish_parts(struct saver *s, struct err *err)
{
    size_t bytes;
    char *mine, *all;
    int ret;

    wait_for_thread(s);
    if (s->ret < 0)
        *err = s->err;
    ret = saver_agree(s->world, s->ret, err);
    mine = pack(s, &bytes);
    all = xcalloc((size_t)s->world->size, bytes);
    if (ret == 0)
        ret = comm_run(s->world, comm_all_gather(mine, all, bytes), err);
    if (ret == 0) {
        if (s->world->rank == 0)
            ret = complete(s, all, bytes, err);
        ret = saver_agree(s->world, ret, err);
    }
    free(mine);
    free(all);
    return ret;
}

int saver_finish(struct saver *s, struct err *err)
{
    if ((s->beside ? finish_beside(s, err) : finish_parts(s, err)) < 0) {
        give_up(s);
        return -1;
    }
    forget(s);
    free(s->last);
    s->last = xstrdup(s->path);
    return 0;
}
