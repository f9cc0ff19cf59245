/* adaptermerge - adds an adapter to weights while they are copied */
#include "lib/run/adaptermerge.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/hash.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

struct adaptermerge {
    const struct adapter *a;
    const struct checkpoint *c;
    char *identity;
    char *name;                /* the weight whose matrices are here; NULL: none */
    long at;                   /* its adapter; -1: it has none */
    uint64_t rows, cols, rank; /* of the weight as it is stored */
    float *left, *right;       /* [rows][rank], [rank][cols]: their product is added */
    double *sum;               /* [cols] */
};

/* The adapter of the weight NAME, or -1. */
static long find(const struct adaptermerge *m, const char *name)
{
    const struct model *model = m->c->model;
    long t = model_find(model, name);

    for (size_t i = 0; t >= 0 && i < model->nadapters; i++)
        if (model->adapter[i].tensor == (size_t)t)
            return (long)i;
    return -1;
}

/* TO[cols][rows] = FROM[rows][cols] */
static void transpose(float *to, const float *from, uint64_t rows, uint64_t cols)
{
    for (uint64_t i = 0; i < rows; i++)
        for (uint64_t k = 0; k < cols; k++)
            to[k * rows + i] = from[i * cols + k];
}

static void forget(struct adaptermerge *m)
{
    free(m->name);
    free(m->left);
    free(m->right);
    free(m->sum);
    m->name = NULL;
    m->left = m->right = NULL;
    m->sum = NULL;
}

/* Reads the matrices of adapter I. */
static int read_matrices(struct adaptermerge *m, size_t i, struct err *err)
{
    const struct model_adapter *it = &m->c->model->adapter[i];
    const struct model_tensor *t = &m->c->model->tensor[it->tensor];
    uint64_t rank = it->rank.size, n;
    float *turned;

    m->rows = t->axis[0]->size;
    m->cols = t->axis[1]->size;
    m->rank = rank;
    m->left = mem_alloc(m->rows * rank * sizeof(float), t->name, err);
    m->right = m->left ? mem_alloc(m->cols * rank * sizeof(float), t->name, err) : NULL;
    m->sum = m->right ? mem_alloc(m->cols * sizeof(double), t->name, err) : NULL;
    if (!m->sum)
        return -1;
    if (!it->turned) /* [out][in] = B [out][rank] A [rank][in] */
        return adapter_read(m->a, i, true, m->left, err) < 0 ||
                       adapter_read(m->a, i, false, m->right, err) < 0
                   ? -1
                   : 0;
    n = m->rows > m->cols ? m->rows : m->cols;
    turned = mem_alloc(n * rank * sizeof(float), t->name, err);
    if (!turned)
        return -1;
    if (adapter_read(m->a, i, false, turned, err) < 0) {
        free(turned);
        return -1;
    }
    transpose(m->left, turned, rank, m->rows);
    if (adapter_read(m->a, i, true, turned, err) < 0) {
        free(turned);
        return -1;
    }
    transpose(m->right, turned, m->cols, rank);
    free(turned);
    return 0;
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

/* Adds to the N elements of row ROW from column COL on, which lie at BUF. */
static void add_row(struct adaptermerge *m, uint64_t row, uint64_t col, uint64_t n,
                    enum dtype type, void *buf)
{
    double scale = m->c->model->adapter[m->at].scale;
    double *sum = m->sum;

    for (uint64_t k = 0; k < n; k++)
        sum[k] = 0;
    for (uint64_t j = 0; j < m->rank; j++) {
        double x = (double)m->left[row * m->rank + j];
        const float *right = m->right + j * m->cols + col;

        for (uint64_t k = 0; k < n; k++)
            sum[k] += x * (double)right[k];
    }
    for (uint64_t k = 0; k < n; k++)
        put(type, buf, k, dtype_get(type, buf, k) + scale * sum[k]);
}

static int add(void *arg, const char *name, enum dtype type, uint64_t offset, void *buf,
               size_t n, struct err *err)
{
    struct adaptermerge *m = arg;
    uint64_t unit = (uint64_t)dtype_bits(type) / 8, at, left;
    char *to = buf;

    if (!m->name || strcmp(m->name, name) != 0) {
        forget(m);
        m->at = find(m, name);
        if (m->at >= 0 && read_matrices(m, (size_t)m->at, err) < 0)
            return -1;
        m->name = xstrdup(name);
    }
    if (m->at < 0)
        return 0;
    if (type != DTYPE_F32 && type != DTYPE_BF16 && type != DTYPE_F16)
        return err_set(err, ERR_NO,
                       "tensor %s is of type %s, to which nothing can be added: give "
                       "--dtype",
                       name, dtype_name(type));
    at = offset / unit;
    left = n / unit;
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
                                      const struct adapter *a,
                                      const struct checkpoint *c)
{
    struct adaptermerge *m = xcalloc(1, sizeof(*m));
    uint64_t size;
    const char *file = adapter_file(a, &size);

    *m = (struct adaptermerge){ .a = a, .c = c };
    m->identity = str_dupf(
        "adapter=%08lx:%llu:%s",
        (unsigned long)hash_crc32(0, adapter_config(a), strlen(adapter_config(a))),
        (unsigned long long)size, file);
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
