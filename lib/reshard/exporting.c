/* exporting - what the writers of other frameworks' forms have in common */
#include "lib/reshard/exporting.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/ggml.h"
#include "lib/base/hash.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/model/decay.h"
#include "lib/model/expr.h"

enum { BACK = 1 << 20, BLOCK = GGML_Q8_NUMBERS };

enum dtype exporting_type(const struct exporting *x, size_t i)
{
    const struct checkpoint *c = x->ckpt;
    enum dtype t = c->tensor[i].dtype;

    return x->opt->dtype && i < c->nweights && c->which[i] >= 0 && dtype_is_float(t) &&
                   dtype_bits(t) >= 16
               ? *x->opt->dtype
               : t;
}

static long find_state(const struct exporting *x, size_t i, const char *role)
{
    char *name = str_dupf("%s.%s", x->ckpt->tensor[i].name, role);
    long k = tensor_index_find(&x->index, name);

    free(name);
    return k >= (long)x->ckpt->nweights &&
                   !strcmp(checkpoint_role(x->ckpt, (size_t)k), role)
               ? k
               : -1;
}

long exporting_state(const struct exporting *x, size_t i, const char *role)
{
    long k = x->states ? find_state(x, i, role) : -1;

    return k < 0 && x->states && !strcmp(role, "master") ? find_state(x, i, "param")
                                                         : k;
}

double exporting_window(const struct exporting *x)
{
    static const char symbol[] = "window";
    const struct model *m = x->ckpt->model;
    double least = 0;

    for (int layer = 0; layer < model_layers(m); layer++) {
        struct expr_value v;
        struct err ignored;

        if (model_eval(m, symbol, strlen(symbol), layer, &v, &ignored) == 0 &&
            v.kind == EXPR_NUMBER && (!least || v.number < least))
            least = v.number;
    }
    return least;
}

bool exporting_undecayed(const struct exporting *x, size_t i)
{
    long t = x->ckpt->which[i];

    return x->decays && t >= 0 ? !x->decays[t] : decay_spares(x->ckpt->tensor[i].name);
}

void exporting_own(struct exporting *x, const char *name)
{
    x->ours = xgrow(x->ours, &x->cap, x->nours + 1, sizeof(*x->ours));
    x->ours[x->nours++] = xstrdup(name);
}

/* ---- copies ---- */

/* A tensor on its way. */
struct moving {
    struct exporting *x;
    const struct exporting_place *p;
    const char *name;     /* of the tensor */
    uint64_t width;       /* bytes of an element */
    uint64_t in;          /* elements of a row */
    uint64_t tensor_rows; /* of the model's tensor */
    float held[BLOCK];    /* of a block that is not complete */
    unsigned char *room;  /* bytes that are changed on their way */
    size_t cap;
};

/* The row of the stored tensor that row I of the model's is. */
static uint64_t stored_row(const struct exporting_place *p, uint64_t i)
{
    const struct names_view *v = p->view;
    uint64_t row = 0;

    if (!v || !v->ndigits)
        return p->lead * p->rows + i;
    row = v->first;
    for (int k = v->ndigits - 1; k >= 0; k--) {
        row += i % v->digit[k].count * v->digit[k].stride;
        i /= v->digit[k].count;
    }
    return p->lead * p->rows + row;
}

/* Bytes of N elements as they are stored. */
static uint64_t stored_bytes(const struct moving *m, uint64_t n)
{
    return m->p->blocks ? n / BLOCK * GGML_Q8_BYTES : n * m->width;
}

/* Writes the elements [first, first + n) of the tensor, in DATA as they are stored, in
 * as few pieces as their rows lie in. */
static int write_rows(struct moving *m, uint64_t first, uint64_t n,
                      const unsigned char *data, struct err *err)
{
    while (n) {
        uint64_t row = first / m->in, at = stored_row(m->p, row),
                 within = first % m->in;
        uint64_t count = m->in - within;

        while (count < n && stored_row(m->p, ++row) == at + (within + count) / m->in)
            count += m->in;
        count = count < n ? count : n;
        if (fs_pwrite(m->p->fd, data, (size_t)stored_bytes(m, count),
                      m->p->at + stored_bytes(m, at * m->in + within), m->p->path,
                      err) < 0)
            return -1;
        first += count;
        n -= count;
        data += stored_bytes(m, count);
    }
    return 0;
}

/* The same of a matrix that is stored transposed: column by column. */
static int write_columns(struct moving *m, uint64_t first, uint64_t n,
                         const unsigned char *data, struct err *err)
{
    unsigned char *column = xmalloc((size_t)(n / m->in + 2) * m->width);
    int ret = 0;

    for (uint64_t c = 0; c < m->in && ret == 0; c++) {
        /* the first element of column C at or after FIRST */
        uint64_t e = first - first % m->in + c, count = 0, row;

        e += e < first ? m->in : 0;
        row = e / m->in;
        for (; e < first + n; e += m->in)
            memcpy(column + count++ * m->width, data + (e - first) * m->width,
                   m->width);
        if (count)
            ret = fs_pwrite(m->p->fd, column, (size_t)(count * m->width),
                            m->p->at + (c * m->tensor_rows + row) * m->width,
                            m->p->path, err);
    }
    free(column);
    return ret;
}

static unsigned char *room_for(struct moving *m, size_t bytes)
{
    if (bytes > m->cap) {
        free(m->room);
        m->room = xmalloc(bytes);
        m->cap = bytes;
    }
    return m->room;
}

/* Quantizes N elements of f32 at V, number FIRST of the tensor on; a block that is not
 * complete is held, and written with the next elements. */
static int write_blocks(struct moving *m, uint64_t first, const float *v, uint64_t n,
                        struct err *err)
{
    uint64_t before = first % BLOCK, all = before + n, blocks = all / BLOCK;
    unsigned char *out = room_for(m, (size_t)(blocks * GGML_Q8_BYTES + 1)), *end = out;

    for (uint64_t b = 0; b < blocks; b++, end += GGML_Q8_BYTES) {
        float block[BLOCK];

        if (!b && before) {
            memcpy(m->held + before, v, (size_t)(BLOCK - before) * sizeof(*v));
            memcpy(block, m->held, sizeof(block));
        } else {
            memcpy(block, v + b * BLOCK - before, sizeof(block));
        }
        if (!ggml_q8(end, block))
            return err_set(err, ERR_NO,
                           "%s: tensor %s: a number is not finite, or too large, "
                           "which Q8_0 cannot represent",
                           m->x->ckpt->path, m->name);
    }
    if (blocks)
        memcpy(m->held, v + blocks * BLOCK - before,
               (size_t)(all % BLOCK) * sizeof(*v));
    else
        memcpy(m->held + before, v, (size_t)n * sizeof(*v));
    return blocks ? write_rows(m, first - before, blocks * BLOCK, out, err) : 0;
}

static int move(void *arg, int part, uint64_t offset, void *buf, size_t n,
                struct err *err)
{
    struct moving *m = arg;
    const struct names_view *v = m->p->view;
    uint64_t first = offset / m->width, count = n / m->width;
    const unsigned char *data = buf;
    int ret;

    (void)part;
    if (v && v->plus) { /* of f32 */
        float *sum = (float *)(void *)room_for(m, n);

        memcpy(sum, buf, n);
        for (uint64_t i = 0; i < count; i++)
            sum[i] += (float)v->plus;
        data = m->room;
    }
    ret = m->p->blocks         ? write_blocks(m, first, buf, count, err)
          : v && v->transposed ? write_columns(m, first, count, data, err)
                               : write_rows(m, first, count, data, err);
    m->x->done += n;
    if (m->x->opt->progress)
        m->x->opt->progress(m->x->opt->arg, m->x->done, m->x->total);
    return ret;
}

int exporting_copy(struct exporting *x, size_t i, const struct exporting_place *p,
                   uint32_t *crc, struct err *err)
{
    const struct tensor *t = &x->ckpt->tensor[i];
    struct moving m = {
        .x = x, .p = p, .name = t->name, .width = (uint64_t)dtype_bits(p->dtype) / 8
    };
    const struct cut_side to = { .nparts = 1, .io = move, .arg = &m };
    int ret;

    m.in = 1;
    for (int k = 1; k < t->ndim; k++)
        m.in *= t->shape[k];
    m.tensor_rows = t->ndim ? t->shape[0] : 1;
    if (m.width < 1) { /* numbers of less than a byte: bytes, as they lie */
        m.width = 1;
        m.in = 1;
    }
    m.in = m.in ? m.in : 1;
    ret = checkpoint_copy(x->ckpt, x->cut, i, p->dtype, &to, NULL, crc,
                          &x->result->overflows, err);
    free(m.room);
    return ret;
}

int exporting_checksum(uint32_t *crc, int fd, const char *path, uint64_t at,
                       uint64_t bytes, struct err *err)
{
    char *buf = xmalloc(BACK);
    int ret = 0;

    *crc = 0;
    for (uint64_t done = 0; done < bytes && ret == 0;) {
        size_t n = bytes - done < BACK ? (size_t)(bytes - done) : BACK;

        ret = fs_pread(fd, buf, n, at + done, path, err);
        if (ret == 0)
            *crc = hash_crc32(*crc, buf, n);
        done += n;
    }
    free(buf);
    return ret;
}

/* ---- files ---- */

int exporting_gap(const struct torchsave *t, size_t i, int fd, const char *path,
                  struct err *err)
{
    struct str s = { 0 };
    uint64_t at;
    int ret;

    torchsave_gap(&s, &at, t, i);
    ret = fs_pwrite(fd, s.s, s.len, at, path, err);
    str_clear(&s);
    return ret;
}

int exporting_close(struct exporting *x, const struct outdir *out, int fd,
                    const char *path, int ret, struct err *err)
{
    if (ret == 0)
        ret = outdir_share(out, fd, checkpoint_mode(x->ckpt), path, err);
    if (ret == 0 && fsync(fd) < 0)
        ret = err_errno(err, "%s", path);
    if (fd >= 0)
        close(fd);
    return ret;
}

int exporting_object(struct exporting *x, const struct outdir *out, const char *name,
                     struct torchsave *t, struct err *err)
{
    char *path = fs_join_dup(out->partial, name);
    int fd = outdir_create(out, name, err), ret = fd < 0 ? -1 : 0;

    torchsave_place(t, 0);
    if (ret == 0)
        ret = exporting_gap(t, 0, fd, path, err);
    ret = exporting_close(x, out, fd, path, ret, err);
    free(path);
    return ret;
}
