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

/* The shard of one of this rank's stages. */
struct shard {
    struct saver *s;
    struct trainer_stage *stage;
    int part; /* its index */
    struct cutter *by_unit, *in_file;
    struct entry *entry;
    size_t n;
    float *copy[BLOCKS]; /* copies in host memory, if .owns; else NULL.  Of weights, and
                          * of a state of all trained elements, whoever owns them */
    bool owns;
    bool done;     /* the file is written */
    uint64_t size; /* size and CRC-32 of the file */
    uint32_t crc;
};

struct saver {
    struct trainer *t;
    struct checkpoint *c;
    struct comm *world;
    struct mesh mesh;    /* with a rank for each stage */
    struct shard *shard; /* [nshards], one of each stage of this rank */
    int nshards;
    bool writes; /* the first rank with these shards; it writes the files */
    bool serves; /* it shares state with that one, which asks for it */
    bool apart;  /* no access to the directory: rank 0 writes its files */
    struct adaptersave
        *beside; /* an adapter is saved, and nothing below is used; or NULL */
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

/* What ranks tell each other of the model's tensors: which some rank trains, which of
 * them are matrices to the optimizer, and which have no master. */
struct known {
    double *trained, *matrix, *no_master; /* [ntensors]: 0 is no */
};

static int find_trained(struct saver *s, struct known *known, struct err *err)
{
    const size_t n = s->c->model->ntensors;

    known->trained = xcalloc(3 * n + 1, sizeof(*known->trained));
    known->matrix = known->trained + n;
    known->no_master = known->matrix + n;

    for (int k = 0; k < s->nshards; k++) {
        const struct parameters *store = &s->shard[k].stage->parameters;
        const struct program *p = store->program;

        for (int i = 0; i < p->nweights; i++)
            if (store->row[i].trained) {
                known->trained[p->weight[i].tensor] = 1;
                known->matrix[p->weight[i].tensor] = store->row[i].matrix;
                known->no_master[p->weight[i].tensor] =
                    parameters_lacks_master(store, i);
            }
    }
    return comm_run(s->world, comm_all_reduce_f64(known->trained, 3 * n), err);
}

/* Leaves out the axis of E that its form lacks. */
static void shape_entry(struct shard *f, struct entry *e, enum manifest_form form)
{
    struct saver *s = f->s;
    const struct tensor *t = &s->c->tensor[e->tensor];
    uint64_t *shape =
        pool_take(&s->pool, ((size_t)t->ndim + 1) * sizeof(*shape), sizeof(*shape));

    e->lacks = manifest_lacks(form, t->ndim) + 1;
    for (int k = 0; k < t->ndim; k++)
        if (k + 1 != e->lacks)
            shape[e->ndim++] = t->shape[k];
    e->shape = shape;
}

static void add_entry(struct shard *f, size_t tensor, enum block block,
                      const char *role, enum manifest_form form, int weight)
{
    const struct tensor *t = &f->s->c->tensor[tensor];
    struct entry *e = &f->entry[f->n++];
    char *name = block == BLOCK_FILE || !strcmp(role, "weight")
                     ? xstrdup(t->name)
                     : str_dupf("%s.%s", t->name, role);

    *e = (struct entry){ .name = pool_strdup(&f->s->pool, name),
                         .role = role,
                         .tensor = tensor,
                         .block = block,
                         .weight = weight,
                         .dtype = strcmp(role, "weight") ? DTYPE_F32 : t->dtype };
    shape_entry(f, e, form);
    free(name);
}

/* Is the f32 value of a tensor of TYPE another one than what is stored of it? */
static bool has_master(const struct known *known, size_t t, enum dtype type)
{
    return type != DTYPE_F32 && !(known->no_master[t] > 0 && type == DTYPE_BF16);
}

static void list_entries(struct shard *f, const struct known *known)
{
    const double *trained = known->trained, *matrix = known->matrix;
    const struct checkpoint *c = f->s->c;
    const struct parameters *store = &f->stage->parameters;
    const struct program *p = store->program;
    const struct model *m = p->model;
    int *own = xmalloc((m->ntensors + 1) * sizeof(*own));

    for (size_t t = 0; t < m->ntensors; t++)
        own[t] = -1;
    for (int i = 0; i < p->nweights; i++)
        if (p->weight[i].slice <= 1) /* later slices of a tensor share this memory */
            own[p->weight[i].tensor] = i;
    f->entry = xcalloc((BLOCKS + 1) * c->nweights + 1, sizeof(*f->entry));
    for (size_t i = 0; i < c->nweights; i++) {
        bool is = c->which[i] >= 0 && trained[values_of(m, (size_t)c->which[i])] > 0;

        add_entry(f, i, is ? BLOCK_WEIGHT : BLOCK_FILE, "weight", MANIFEST_LIKE,
                  is ? own[values_of(m, (size_t)c->which[i])] : -1);
    }
    for (size_t i = 0; i < c->nweights; i++) {
        size_t t = c->which[i] < 0 ? 0 : (size_t)c->which[i];

        if (c->which[i] < 0 || values_of(m, t) != t || !(trained[t] > 0))
            continue;
        if (has_master(known, t, c->tensor[i].dtype))
            add_entry(f, i, BLOCK_WEIGHT, "master", MANIFEST_LIKE, own[t]);
        for (int k = 0; k < store->slots; k++)
            if ((matrix[t] > 0 ? store->form[k].matrix : store->form[k].other) !=
                SLOT_NONE)
                add_entry(f, i, (enum block)(BLOCK_SLOTS + k), store->state[k].role,
                          store->state[k].form, own[t]);
    }
    free(own);
}

/* Describes the copy of entry E from its source type to its own. */
static struct cut_tensor cut_of(const struct shard *f, const struct entry *e)
{
    struct cut_tensor t = checkpoint_cut_tensor(f->s->c, e->tensor, e->dtype);

    t.name = e->name;
    t.lacks = e->lacks;
    t.ndim = e->ndim;
    t.shape = e->shape;
    if (e->block != BLOCK_FILE)
        t.from = DTYPE_F32;
    return t;
}

static struct cut_side file_side(struct shard *f)
{
    return (struct cut_side){ .nparts = 1, .cutter = &f->in_file };
}

static int part_bytes(struct shard *f, const struct entry *e, uint64_t *bytes,
                      bool *held, struct err *err)
{
    struct cut_tensor t = cut_of(f, e);
    struct cut_side side = file_side(f);

    if (cut_part_bytes(bytes, held, &side, 0, &t, t.to, err) < 0)
        return -1;
    if (f->s->c->which[e->tensor] < 0)
        *held = f->part == 0;
    return 0;
}

static int find_held(struct shard *f, struct err *err)
{
    for (size_t i = 0; i < f->n; i++) {
        struct entry *e = &f->entry[i];
        uint64_t bytes;

        if (part_bytes(f, e, &bytes, &e->held, err) < 0)
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

/* The shard of STAGE, of the first rank with its coordinates COORD. */
static int open_shard(struct shard *f, const int coord[MESH_NAXES], struct err *err)
{
    const struct saver *s = f->s;
    int at[MESH_NAXES];

    memcpy(at, coord, sizeof(at));
    at[MESH_PP] = f->stage->number;
    f->part =
        (at[MESH_PP] * s->mesh.size[MESH_EP] + at[MESH_EP]) * s->mesh.size[MESH_TP] +
        at[MESH_TP];
    if (cutter_open(&f->by_unit, s->c->model, &s->mesh, at, err) < 0 ||
        cutter_open(&f->in_file, s->c->model, &s->mesh, at, err) < 0)
        return -1;
    cutter_set_order(f->by_unit, SLICE_BY_UNIT);
    return 0;
}

static int open_shards(struct saver *s, const int coord[MESH_NAXES], struct err *err)
{
    struct known known = { 0 };
    int ret = 0;

    s->shard = xcalloc((size_t)s->t->nstages, sizeof(*s->shard));
    for (; s->nshards < s->t->nstages && ret == 0; s->nshards++) {
        struct shard *f = &s->shard[s->nshards];

        *f = (struct shard){ .s = s, .stage = &s->t->stage[s->nshards] };
        ret = open_shard(f, coord, err);
    }
    if (ret == 0)
        ret = checkpoint_open_files(s->c, -1, err);
    if (ret == 0)
        ret = find_trained(s, &known, err);
    for (int k = 0; k < s->nshards && ret == 0; k++) {
        list_entries(&s->shard[k], &known);
        ret = find_held(&s->shard[k], err);
    }
    free(known.trained);
    return ret;
}

int saver_open(struct saver **out, struct trainer *t, struct checkpoint *c,
               struct comm *world, struct err *err)
{
    struct saver *s = xcalloc(1, sizeof(*s));
    const struct parameters_owner *owner = &t->stage->parameters.owner;
    int coord[MESH_NAXES];

    *s = (struct saver){ .t = t,
                         .c = c,
                         .world = world,
                         .mesh = t->staged,
                         .out = { .dir = -1, .journal = -1 } };
    memcpy(coord, t->coord, sizeof(coord));
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
    s->serves = !s->writes && sharing_applies(&t->stage->parameters) &&
                t->copies->rank < owner->size;
    coord[MESH_DP] = coord[MESH_SP] = 0;
    if (open_shards(s, coord, err) < 0 ||
        (world->rank == 0 && read_all_small(s, err) < 0)) {
        saver_close(s);
        return -1;
    }
    s->mode = checkpoint_mode(c);
    *out = s;
    return 0;
}

/* Releases the state of the checkpoint in progress. */
static void forget(struct saver *s)
{
    for (int k = 0; k < s->nshards; k++) {
        struct shard *f = &s->shard[k];

        for (int i = 0; i < BLOCKS; i++) {
            free(f->copy[i]);
            f->copy[i] = NULL;
        }
        f->owns = f->done = false;
    }
    s->busy = false;
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
    for (int k = 0; k < s->nshards; k++) {
        if (s->shard[k].by_unit)
            cutter_free(s->shard[k].by_unit);
        if (s->shard[k].in_file)
            cutter_free(s->shard[k].in_file);
        free(s->shard[k].entry);
    }
    free(s->shard);
    for (size_t i = 0; i < s->nsmall; i++)
        smallfile_clear(&s->small[i]);
    free(s->small);
    pool_clear(&s->pool);
    free(s->path);
    free(s->last);
    free(s);
}

/* ---- a shard file ---- */

struct writing {
    struct shard *f;
    const char *path;
    const float *from; /* values of the weight in the copy; or: */
    int weight;        /* the weight on the device, of whose state */
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
    struct comm *c = w->f->s->world;
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
    if (atomic_load(&w->f->s->stop))
        return err_set(err, ERR_SYSTEM, "%s: another rank has failed", w->path);
    return w->piece ? add_to_piece(w, buf, n, at, err)
                    : fs_pwrite(w->fd, buf, n, at, w->path, err);
}

/* N numbers of weight I, and of those behind it that are slices of its tensor, from
 * element AT on. */
static int take_weights(const struct parameters *p, int i, uint64_t at, float *buf,
                        uint64_t n, struct err *err)
{
    for (uint64_t some; n; n -= some, buf += some, at += some) {
        for (; at >= p->row[i].n; i++)
            at -= p->row[i].n;
        some = p->row[i].n - at < n ? p->row[i].n - at : n;
        if (parameters_take(p, buf, i, at, some, err) < 0)
            return -1;
    }
    return 0;
}

/* Reads from the copy, or from the device. */
static int take_numbers(void *arg, int part, uint64_t offset, void *buf, size_t n,
                        struct err *err)
{
    const struct writing *w = arg;
    const struct parameters *p = &w->f->stage->parameters;

    (void)part;
    if (w->shared)
        return sharing_fetch(p, w->f->s->t->replicas.sharing, w->slot,
                             w->first + offset / sizeof(float), buf, n / sizeof(float),
                             err);
    if (!w->f->owns)
        return take_weights(p, w->weight, offset / sizeof(float), buf,
                            n / sizeof(float), err);
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
static int lay_out(struct shard *f, struct safetensors_header *h, const char *name,
                   struct err *err)
{
    struct cut_side side = file_side(f);
    uint64_t shape[TENSOR_MAX_DIMS], bytes;

    safetensors_header_begin(h, "{\"format\":\"pt\"}");
    for (int bits = 64; bits >= 4; bits--)
        for (size_t i = 0; i < f->n; i++) {
            struct entry *e = &f->entry[i];
            struct cut_tensor t = cut_of(f, e);
            bool held;

            if (dtype_bits(e->dtype) != bits || !e->held)
                continue;
            if (part_bytes(f, e, &bytes, &held, err) < 0)
                return -1;
            cut_part_shape(shape, &side, 0, &t);
            e->offset = h->end;
            safetensors_header_add(h, e->name, e->dtype, t.ndim, shape, bytes);
        }
    if (safetensors_header_finish(h, name, err) < 0)
        return -1;
    for (size_t i = 0; i < f->n; i++)
        f->entry[i].offset += h->text.len;
    return 0;
}

/* Finds the numbers of entry E: in the copy, or on devices. */
static void find_numbers(struct writing *w, const struct entry *e)
{
    const struct shard *f = w->f;
    const struct parameters *p = &f->stage->parameters;
    const struct parameter *row = &p->row[e->weight];
    const bool state = e->block >= BLOCK_SLOTS;

    w->shared = !f->owns && (state || parameters_gathers(p));
    w->slot = state ? (int)e->block - BLOCK_SLOTS : SHARING_WEIGHTS;
    w->first = state ? p->stored[w->slot][e->weight] : row->at;
    w->from = f->owns ? f->copy[e->block] + w->first : NULL;
    w->weight = e->weight;
}

static int write_entry(struct cut *cut, struct writing *w, struct entry *e,
                       struct err *err)
{
    struct cut_side to = file_side(w->f);
    struct cut_side from = { .nparts = 1,
                             .cutter = &w->f->by_unit,
                             .io = take_numbers,
                             .arg = w,
                             .replicas = true };
    struct cut_tensor t = cut_of(w->f, e);

    to.io = write_bytes;
    to.arg = w;
    w->offset = e->offset;
    if (e->block == BLOCK_FILE)
        return checkpoint_copy(w->f->s->c, cut, e->tensor, e->dtype, &to, NULL, &e->crc,
                               NULL, err);
    find_numbers(w, e);
    return cut_copy(cut, &t, &from, &to, NULL, NULL, &e->crc, NULL, err);
}

static int compare_offsets(const void *a, const void *b)
{
    const struct entry *const *x = a, *const *y = b;

    return (*x)->offset < (*y)->offset ? -1 : (*x)->offset > (*y)->offset;
}

/* Combines the file's CRC-32 from those of its header and tensors. */
static int sum_part(struct shard *f, uint32_t crc, struct err *err)
{
    struct entry **held = xmalloc((f->n + 1) * sizeof(*held));
    size_t n = 0;
    int ret = 0;

    for (size_t i = 0; i < f->n; i++)
        if (f->entry[i].held)
            held[n++] = &f->entry[i];
    qsort(held, n, sizeof(struct entry *), compare_offsets);
    for (size_t i = 0; i < n && ret == 0; i++) {
        uint64_t bytes;
        bool is;

        ret = part_bytes(f, held[i], &bytes, &is, err);
        if (ret == 0 && bytes)
            crc = hash_crc32_join(crc, held[i]->crc, bytes);
    }
    f->crc = crc;
    free(held);
    return ret;
}

static int open_part(struct writing *w, const char *name, struct err *err)
{
    struct saver *s = w->f->s;

    if (s->apart) {
        w->piece = xmalloc(PIECE);
        return 0;
    }
    w->fd = outdir_create(&s->out, name, err);
    return w->fd < 0 ? -1 : outdir_share(&s->out, w->fd, s->mode, w->path, err);
}

static int write_entries(struct writing *w, struct safetensors_header *h,
                         struct err *err)
{
    struct shard *f = w->f;
    struct cut *cut = cut_new();
    int ret = put(w, h->text.s, h->text.len, 0, err);

    for (size_t i = 0; i < f->n && ret == 0; i++)
        if (f->entry[i].held)
            ret = write_entry(cut, w, &f->entry[i], err);
    if (ret == 0)
        ret = sum_part(f, hash_crc32(0, h->text.s, h->text.len), err);
    cut_free(cut);
    return ret;
}

/* Sends the last piece and the status; or syncs the file. */
static int close_part(struct writing *w, int ret, struct err *err)
{
    if (w->f->s->apart) {
        if (ret == 0 && w->n)
            ret = send_piece(w, 0, err);
        w->n = 0;
        w->at = w->f->size;
        return w->over ? ret : send_piece(w, ret, err);
    }
    if (ret == 0 && (ftruncate(w->fd, (off_t)w->f->size) < 0 || fsync(w->fd) < 0))
        ret = err_errno(err, "%s", w->path);
    return ret;
}

static int write_part(struct shard *f, struct err *err)
{
    const struct saver *s = f->s;
    char *name = manifest_part_name_dup(s->mesh.size, f->part);
    char *path = fs_join_dup(s->apart ? s->path : s->out.partial, name);
    struct safetensors_header h = { 0 };
    struct writing w = { .f = f, .path = path, .fd = -1 };
    int ret = lay_out(f, &h, name, err);

    f->size = h.text.len + h.end;
    f->done = true;
    if (ret == 0)
        ret = open_part(&w, name, err);
    if (ret == 0)
        ret = write_entries(&w, &h, err);
    ret = close_part(&w, ret, err);
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

    for (int k = 0; k < s->nshards && s->ret == 0; k++)
        if (!s->shard[k].done)
            s->ret = write_part(&s->shard[k], &s->err);
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
static uint64_t numbers_of(const struct shard *f, int i)
{
    const struct parameters *p = &f->stage->parameters;

    return i < BLOCK_SLOTS ? p->trained
                           : p->stored[i - BLOCK_SLOTS][p->program->nweights];
}

/* TO = all trained weights. */
static int copy_weights(const struct parameters *p, float *to, struct err *err)
{
    for (int i = 0; i < p->program->nweights; i++)
        if (p->row[i].trained && p->row[i].n &&
            parameters_take(p, to + p->row[i].at, i, 0, p->row[i].n, err) < 0)
            return -1;
    return 0;
}

/* Copies the state, so that training can continue.  Without memory for a copy the state
 * itself is written, and training waits. */
static int take_copy(struct shard *f, struct err *err)
{
    const struct saver *s = f->s;
    struct comm *sharing = s->t->replicas.sharing;
    const struct parameters *p = &f->stage->parameters;
    const bool shares = sharing_applies(p);
    int blocks = BLOCK_SLOTS + p->slots, ret = 0;

    /* a rank that sends to rank 0 writes before it continues; but the replicas that
     * share its states do not wait for that */
    f->owns = s->writes && (!s->apart || shares);
    for (int i = BLOCK_WEIGHT; i < blocks && f->owns; i++) {
        f->copy[i] = mem_alloc((numbers_of(f, i) + 1) * sizeof(float), "a copy to save",
                               s->apart ? err : NULL);
        f->owns = f->copy[i] != NULL;
    }
    if (!f->owns && s->apart && shares)
        return -1;
    if (f->owns)
        ret = parameters_gathers(p)
                  ? sharing_fetch(p, sharing, SHARING_WEIGHTS, 0, f->copy[BLOCK_WEIGHT],
                                  (size_t)p->trained, err)
                  : copy_weights(p, f->copy[BLOCK_WEIGHT], err);
    for (int k = 0; k < p->slots && f->owns && ret == 0; k++)
        ret = sharing_fetch(p, sharing, k, 0, f->copy[BLOCK_SLOTS + k],
                            (size_t)numbers_of(f, BLOCK_SLOTS + k), err);
    return ret;
}

/* Takes the copy of a shard; or writes it, from the state itself. */
static int begin_shard(struct shard *f, struct err *err)
{
    struct saver *s = f->s;
    struct comm *sharing = s->t->replicas.sharing;
    const bool shares = sharing_applies(&f->stage->parameters);
    int ret;

    if (!s->writes)
        return s->serves ? sharing_serve(&f->stage->parameters, sharing, err) : 0;
    ret = take_copy(f, err);
    if (ret == 0 && !s->apart && !f->owns && s->ret == 0)
        s->ret = write_part(f, &s->err);
    if (shares) {
        struct err lost = { 0 };

        if (sharing_dismiss(sharing, ret < 0 ? &lost : err) < 0)
            ret = -1;
    }
    return ret;
}

/* Takes the copies and starts to write them, or writes. */
static int begin_parts(struct saver *s, struct err *err)
{
    int ret = 0;

    for (int k = 0; k < s->nshards && ret == 0; k++)
        ret = begin_shard(&s->shard[k], err);
    if (ret < 0 || !s->writes || s->apart)
        return ret;
    if (pthread_create(&s->thread, NULL, write_beside, s) == 0)
        s->started = true;
    else
        write_beside(s);
    return 0;
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
    const int parts = manifest_nparts(s->mesh.size);
    double *from = xcalloc((size_t)parts + 1, sizeof(*from));
    int ret;

    for (int k = 0; k < s->nshards && s->apart; k++)
        from[s->shard[k].part] = s->world->rank;
    ret = comm_run(s->world, comm_all_reduce_f64(from, (size_t)parts), err);
    for (int part = 0; part < parts && ret == 0; part++) {
        const int r = (int)from[part];

        if (!r)
            continue;
        if (s->world->rank == 0)
            ret = take_part(s, r, part, err);
        for (int k = 0; k < s->nshards && s->world->rank == r; k++)
            if (s->shard[k].part == part)
                ret = write_part(&s->shard[k], err);
        ret = saver_agree(s->world, ret, err);
    }
    free(from);
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
        ret = begin_parts(s, err);
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

/* What rank 0 is told of each shard, in this place of all: CRC-32 and held flag of N
 * entries, then this.  Numbers that a double has exactly: they are added up. */
enum { SUM_SIZE, SUM_CRC, SUM_WRITTEN, SUM };

static size_t sums_of(const struct saver *s)
{
    return 2 * s->shard->n + SUM;
}

static double *pack(const struct saver *s)
{
    const size_t each = sums_of(s);
    double *all =
        xcalloc((size_t)manifest_nparts(s->mesh.size) * each + 1, sizeof(*all));

    for (int k = 0; k < s->nshards && s->writes; k++) {
        const struct shard *f = &s->shard[k];
        double *out = all + (size_t)f->part * each;

        for (size_t i = 0; i < f->n; i++) {
            out[2 * i] = f->entry[i].crc;
            out[2 * i + 1] = f->entry[i].held;
        }
        out += 2 * f->n;
        out[SUM_SIZE] = (double)f->size;
        out[SUM_CRC] = f->crc;
        out[SUM_WRITTEN] = 1;
    }
    return all;
}

static void add_tensors(const struct saver *s, struct manifest *m, const double *all)
{
    const size_t nparts = (size_t)m->nparts, n = s->shard->n, each = sums_of(s);

    m->tensor = xcalloc(n + 1, sizeof(*m->tensor));
    for (size_t i = 0; i < n; i++) {
        const struct entry *e = &s->shard->entry[i];
        uint64_t *held = describe_held(m);
        uint32_t *crc = pool_take(&m->pool, nparts * sizeof(*crc), sizeof(*crc));

        memset(crc, 0, nparts * sizeof(*crc));
        for (size_t part = 0; part < nparts; part++) {
            const double *of = all + part * each;

            if (!(of[2 * n + SUM_WRITTEN] > 0) || !(of[2 * i + 1] > 0))
                continue;
            crc[part] = (uint32_t)of[2 * i];
            held[part / 64] |= UINT64_C(1) << part % 64;
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

static void add_files(const struct saver *s, struct manifest *m, const double *all)
{
    const size_t each = sums_of(s);

    m->nfiles = (size_t)m->nparts + s->nsmall;
    m->file = xcalloc(m->nfiles + 1, sizeof(*m->file));
    for (int part = 0; part < m->nparts; part++) {
        const double *sum = all + (size_t)part * each + 2 * s->shard->n;
        char *name;

        if (!(sum[SUM_WRITTEN] > 0))
            continue;
        name = manifest_part_name_dup(s->mesh.size, part);
        m->file[part] = (struct manifest_file){ pool_strdup(&m->pool, name),
                                                (uint64_t)sum[SUM_SIZE],
                                                (uint32_t)sum[SUM_CRC], part };
        free(name);
    }
    for (size_t i = 0; i < s->nsmall; i++)
        m->file[(size_t)m->nparts + i] =
            (struct manifest_file){ s->small[i].name, s->small[i].n, s->small[i].crc,
                                    -1 };
}

static int write_manifest(struct saver *s, const double *all, struct err *err)
{
    const struct checkpoint *c = s->c;
    const struct parameters *store = &s->t->stage->parameters;
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
        add_files(s, &m, all);
        add_tensors(s, &m, all);
        ret =
            manifest_list_states(&m, store->state, (size_t)store->slots, s->path, err);
    }
    if (ret == 0)
        ret = describe_write(&m, &s->out, MANIFEST_NAME, s->mode, err);
    manifest_clear(&m);
    return ret;
}

/* On rank 0: writes the remaining files and renames the directory. */
static int complete(struct saver *s, const double *all, struct err *err)
{
    for (size_t i = 0; i < s->nsmall; i++)
        if (outdir_write(&s->out, s->small[i].name, s->small[i].text, s->small[i].n,
                         s->small[i].mode, err) < 0)
            return -1;
    if (write_manifest(s, all, err) < 0)
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
    double *all;
    int ret;

    wait_for_thread(s);
    if (s->ret < 0)
        *err = s->err;
    ret = saver_agree(s->world, s->ret, err);
    all = pack(s);
    if (ret == 0)
        ret = comm_run(s->world,
                       comm_all_reduce_f64(all, (size_t)manifest_nparts(s->mesh.size) *
                                                    sums_of(s)),
                       err);
    if (ret == 0) {
        if (s->world->rank == 0)
            ret = complete(s, all, err);
        ret = saver_agree(s->world, ret, err);
    }
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
