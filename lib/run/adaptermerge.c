/* adaptermerge - adds adapters to weights while they are copied */
#include "lib/run/adaptermerge.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/hash.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

struct adaptermerge {
    struct checkpoint *c;
    char *identity;
    char *name;          /* the weight whose matrices are here; NULL: none */
    long tensor;         /* of the model, if adapters change it; else -1 */
    uint64_t rows, cols; /* of it as it is stored, or of an expert's slice of it */
    struct term {
        double scale;
        uint64_t rank, expert; /* as in struct model_adapter */
        float *left, *right;   /* [rows][rank], [rank][cols]: their product is added */
        float *magnitude;      /* [outputs] of the sum; or NULL */
    } * term;                  /* [n]: of its adapters */
    size_t n;
    double *sum;    /* [2][cols] */
    double *factor; /* [outputs], of the sum; or NULL */
    bool turned;    /* outputs are columns */
};

/* TO[cols][rows] = FROM[rows][cols] */
static void transpose(float *to, const float *from, uint64_t rows, uint64_t cols)
{
    for (uint64_t i = 0; i < rows; i++)
        for (uint64_t k = 0; k < cols; k++)
            to[k * rows + i] = from[i * cols + k];
}

static void forget(struct adaptermerge *m)
{
    for (size_t i = 0; i < m->n; i++) {
        free(m->term[i].left);
        free(m->term[i].right);
        free(m->term[i].magnitude);
    }
    free(m->term);
    free(m->name);
    free(m->sum);
    free(m->factor);
    m->term = NULL;
    m->factor = NULL;
    m->n = 0;
    m->name = NULL;
    m->sum = NULL;
}

/* Reads the matrices of adapter I. */
static int read_matrices(struct adaptermerge *m, size_t i, struct err *err)
{
    const struct model_adapter *it = &m->c->model->adapter[i];
    const struct model_tensor *t = &m->c->model->tensor[it->tensor];
    const struct adapter *a = m->c->adapter;
    uint64_t rank = it->rank.size, n;
    struct term *term;
    float *turned;
    int ret = -1;

    m->term = xrealloc(m->term, (m->n + 1) * sizeof(*m->term));
    term = &m->term[m->n++];
    *term = (struct term){ .scale = it->scale, .rank = rank, .expert = it->expert };
    term->left = mem_alloc(m->rows * rank * sizeof(float), t->name, err);
    term->right =
        term->left ? mem_alloc(m->cols * rank * sizeof(float), t->name, err) : NULL;
    if (!term->right || adapter_magnitudes(a, i, &term->magnitude, err) < 0)
        return -1;
    m->turned = it->turned;
    if (!it->turned) /* [out][in] = B [out][rank] A [rank][in] */
        return adapter_read(a, i, ADAPTER_B, term->left, err) < 0 ||
                       adapter_read(a, i, ADAPTER_A, term->right, err) < 0
                   ? -1
                   : 0;
    n = m->rows > m->cols ? m->rows : m->cols;
    turned = mem_alloc(n * rank * sizeof(float), t->name, err);
    if (!turned)
        return -1;
    if (adapter_read(a, i, ADAPTER_A, turned, err) < 0)
        goto out;
    transpose(term->left, turned, rank, m->rows);
    if (adapter_read(a, i, ADAPTER_B, turned, err) < 0)
        goto out;
    transpose(term->right, turned, m->cols, rank);
    ret = 0;
out:
    free(turned);
    return ret;
}

static void put(enum dtype type, void *buf, uint64_t i, double x)
{
    float f = (float)x;
    uint16_t half = type == DTYPE_BF16 ? dtype_f32_to_bf16(f) : dtype_f32_to_f16(f);

    if (type == DTYPE_F32)
        memcpy((char *)buf + i * sizeof(f), &f, sizeof(f));
    else
        memcpy((char *)buf + i * sizeof(half), &half, sizeof(half));
}

/* M's sum of the N elements of row ROW from column COL on, which M->sum becomes, to be
 * added to the weight. */
static void sum_row(struct adaptermerge *m, uint64_t row, uint64_t col, uint64_t n)
{
    double *all = m->sum, *sum = m->sum + m->cols;

    for (uint64_t k = 0; k < n; k++)
        all[k] = 0;
    for (const struct term *t = m->term; t < m->term + m->n; t++) {
        if (t->expert && row / m->rows != t->expert - 1)
            continue;
        for (uint64_t k = 0; k < n; k++)
            sum[k] = 0;
        for (uint64_t j = 0; j < t->rank; j++) {
            double x = (double)t->left[(t->expert ? row % m->rows : row) * t->rank + j];
            const float *right = t->right + j * m->cols + col;

            for (uint64_t k = 0; k < n; k++)
                sum[k] += x * (double)right[k];
        }
        for (uint64_t k = 0; k < n; k++)
            all[k] += t->scale * sum[k];
    }
}

/* Adds to the N elements of row ROW from column COL on, which lie at BUF. */
static void add_row(struct adaptermerge *m, uint64_t row, uint64_t col, uint64_t n,
                    enum dtype type, void *buf)
{
    sum_row(m, row, col, n);
    for (uint64_t k = 0; k < n; k++)
        put(type, buf, k,
            (dtype_get(type, buf, k) + m->sum[k]) *
                (m->factor ? m->factor[m->turned ? col + k : row] : 1));
}

/* Finds what the sum with the weight NAME, tensor T, is multiplied by.  SAVED: an
 * adapter has another one in its place. */
static int find_factors(struct adaptermerge *m, size_t t, bool saved, const char *name,
                        struct err *err)
{
    size_t i = (size_t)m->c->model->tensor[t].source;
    const struct tensor *from = &m->c->tensor[i];
    size_t unit = (size_t)dtype_bits(from->dtype) / 8;
    uint64_t outputs = m->turned ? m->cols : m->rows;
    void *row;
    int ret = 0;

    if (m->n > 1 || saved)
        return err_set(
            err, ERR_NO,
            "tensor %s: DoRA (use_dora) is merged with no other change of it", name);
    if (m->c->sharded || from->blocks ||
        (from->dtype != DTYPE_F32 && from->dtype != DTYPE_BF16 &&
         from->dtype != DTYPE_F16))
        return err_set(err, ERR_NO,
                       "tensor %s: DoRA needs the norms of a weight that is neither "
                       "sharded nor quantized: merge it first",
                       name);
    m->factor = mem_alloc(outputs * sizeof(double), name, err);
    row = m->factor ? mem_alloc(m->cols * unit + 1, name, err) : NULL;
    if (!row)
        return -1;
    for (uint64_t k = 0; k < outputs; k++)
        m->factor[k] = 0;
    for (uint64_t r = 0; r < m->rows && ret == 0; r++) {
        ret = checkpoint_read(m->c, i, r * m->cols * unit, row, m->cols * unit, err);
        sum_row(m, r, 0, m->cols);
        for (uint64_t k = 0; k < m->cols && ret == 0; k++) {
            double x = dtype_get(from->dtype, row, k) + m->sum[k];

            m->factor[m->turned ? k : r] += x * x;
        }
    }
    for (uint64_t k = 0; k < outputs && ret == 0; k++) {
        if (!(m->factor[k] > 0) || !isfinite(m->factor[k]))
            ret = err_set(err, ERR_INPUT,
                          "tensor %s: output %" PRIu64 " has a norm of %g, by which "
                          "DoRA cannot divide",
                          name, k, sqrt(m->factor[k]));
        m->factor[k] = (double)m->term->magnitude[k] / sqrt(m->factor[k]);
    }
    free(row);
    return ret;
}

/* Reads the matrices of all adapters of the weight NAME. */
static int read_all(struct adaptermerge *m, const char *name, struct err *err)
{
    const struct model *model = m->c->model;
    long t = model_find(model, name);
    const struct axis *const *axis;
    bool saved = false;

    forget(m);
    m->tensor = -1;
    if (t >= 0 &&
        adapter_read_saved(m->c->adapter, &saved, (size_t)t, 0, NULL, 0, err) < 0)
        return -1;
    for (size_t i = 0; t >= 0 && i < model->nadapters; i++) {
        if (model->adapter[i].tensor != (size_t)t)
            continue;
        axis = model->tensor[t].axis + (model->adapter[i].expert > 0);
        m->rows = axis[0]->size;
        m->cols = axis[1]->size;
        if (read_matrices(m, i, err) < 0)
            return -1;
    }
    m->tensor = saved || m->n ? t : -1;
    m->sum = m->n ? mem_alloc(2 * m->cols * sizeof(double), name, err) : NULL;
    if (m->n && !m->sum)
        return -1;
    for (size_t i = 0; i < m->n && !m->factor; i++)
        if (m->term[i].magnitude && find_factors(m, (size_t)t, saved, name, err) < 0)
            return -1;
    m->name = xstrdup(name);
    return 0;
}

/* What an adapter has in place of tensor T, from element AT on. */
static int put_saved(struct adaptermerge *m, bool *found, size_t t, enum dtype type,
                     uint64_t at, void *buf, size_t n, struct err *err)
{
    enum { SOME = 4096 };
    float x[SOME];

    *found = false;
    for (size_t done = 0, some; done < n; done += some) {
        some = n - done < SOME ? n - done : SOME;
        if (adapter_read_saved(m->c->adapter, found, t, at + done, x, some, err) < 0)
            return -1;
        if (!*found)
            return 0;
        for (size_t i = 0; i < some; i++)
            put(type, buf, done + i, (double)x[i]);
    }
    return 0;
}

static int add(void *arg, const char *name, enum dtype type, uint64_t offset, void *buf,
               size_t n, struct err *err)
{
    struct adaptermerge *m = arg;
    uint64_t unit = (uint64_t)dtype_bits(type) / 8, at, left;
    char *to = buf;
    bool found;

    if ((!m->name || strcmp(m->name, name) != 0) && read_all(m, name, err) < 0)
        return -1;
    if (m->tensor < 0)
        return 0;
    if (type != DTYPE_F32 && type != DTYPE_BF16 && type != DTYPE_F16)
        return err_set(err, ERR_NO,
                       "tensor %s is of type %s, to which nothing can be added: give "
                       "--dtype",
                       name, dtype_name(type));
    at = offset / unit;
    left = n / unit;
    if (put_saved(m, &found, (size_t)m->tensor, type, at, buf, (size_t)left, err) < 0)
        return -1;
    if (!m->n)
        return 0;
    while (left) {
        uint64_t col = at % m->cols, some = m->cols - col < left ? m->cols - col : left;

        add_row(m, at / m->cols, col, some, type, to);
        to += some * unit;
        at += some;
        left -= some;
    }
    return 0;
}

struct adaptermerge *adaptermerge_new(struct convert_change *change,
                                      struct checkpoint *c)
{
    struct adaptermerge *m = xcalloc(1, sizeof(*m));
    struct str text = { 0 };

    for (const struct adapter *a = c->adapter; a; a = adapter_next(a)) {
        const char *config = adapter_config(a);
        uint64_t size;
        const char *file = adapter_file(a, &size);

        str_addf(&text, "%sadapter=%08lx:%" PRIu64 ":%.17g:%s", text.len ? " " : "",
                 (unsigned long)hash_crc32(0, config, strlen(config)), size,
                 adapter_weight(a), file);
    }
    m->c = c;
    m->identity = str_steal(&text);
    *change = (struct convert_change){ .add = add, .identity = m->identity, .arg = m };
    return m;
}

void adaptermerge_free(struct adaptermerge *m)
{
    if (!m)
        return;
    forget(m);
    free(m->identity);
    free(m);
}
