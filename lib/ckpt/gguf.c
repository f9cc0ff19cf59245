/* gguf - the header of a GGUF file: its metadata, and where its tensors lie */
#include "lib/ckpt/gguf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/ckpt/locate.h"

enum {
    LEAST_PAIR = 13,   /* bytes of the smallest pair, */
    LEAST_TENSOR = 24, /* and of the smallest description */
    MOST_DIMS = 4,
    MOST_NAME = 63,
    ALIGNMENT = 32 /* where nothing else is said */
};

static const unsigned char widths[GGUF_KINDS] = {
    [GGUF_U8] = 1,   [GGUF_I8] = 1,  [GGUF_U16] = 2, [GGUF_I16] = 2,
    [GGUF_U32] = 4,  [GGUF_I32] = 4, [GGUF_F32] = 4, [GGUF_BOOL] = 1,
    [GGUF_TEXT] = 8, [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8,
};

/* Types that are no blocks. */
static const struct {
    uint32_t type;
    enum dtype dtype;
} plain[] = {
    { 0, DTYPE_F32 },  { 1, DTYPE_F16 },  { 24, DTYPE_I8 },  { 25, DTYPE_I16 },
    { 26, DTYPE_I32 }, { 27, DTYPE_I64 }, { 28, DTYPE_F64 }, { 30, DTYPE_BF16 },
};

struct reader {
    struct gguf *g;
    uint64_t at; /* in the file */
};

static int wrong(const struct reader *r, const char *what, struct err *err)
{
    return err_set(err, ERR_INPUT, "%s: byte %" PRIu64 ": %s", r->g->path, r->at, what);
}

static uint64_t little(const unsigned char *p, int bytes)
{
    uint64_t v = 0;

    for (int i = 0; i < bytes; i++)
        v |= (uint64_t)p[i] << 8 * i;
    return v;
}

static uint64_t left(const struct reader *r)
{
    return r->g->size - r->at;
}

static bool take(struct reader *r, int bytes, uint64_t *out)
{
    if (left(r) < (uint64_t)bytes)
        return false;
    *out = little(r->g->map + r->at, bytes);
    r->at += (uint64_t)bytes;
    return true;
}

static bool take_text(struct reader *r, struct gguf_text *out)
{
    uint64_t n;

    if (!take(r, 8, &n) || n > left(r))
        return false;
    *out = (struct gguf_text){ (const char *)r->g->map + r->at, n };
    r->at += n;
    return true;
}

/* ---- metadata ---- */

static int take_texts(struct reader *r, struct gguf_value *v, struct err *err)
{
    struct gguf_text *text, skipped;
    uint64_t begin = r->at;

    for (uint64_t i = 0; i < v->n; i++) /* before memory is taken for so many */
        if (!take_text(r, &skipped))
            return wrong(r, "a text that is longer than the file", err);
    r->at = begin;
    text = pool_take(&r->g->pool, (size_t)v->n * sizeof(*text) + 1, 8);
    for (uint64_t i = 0; i < v->n; i++)
        if (!take_text(r, &text[i]))
            return wrong(r, "a text that changed", err);
    v->text = text;
    return 0;
}

static int take_value(struct reader *r, struct gguf_value *v, struct err *err)
{
    uint64_t kind, n = 1;

    if (!take(r, 4, &kind))
        return wrong(r, "the file ends in its metadata", err);
    v->array = kind == GGUF_ARRAY;
    if (v->array && (!take(r, 4, &kind) || !take(r, 8, &n)))
        return wrong(r, "the file ends in its metadata", err);
    if (kind >= GGUF_KINDS || kind == GGUF_ARRAY)
        return wrong(r, "a value of an unknown kind", err);
    v->kind = (enum gguf_kind)kind;
    v->n = n;
    v->at = r->g->map + r->at;
    if (v->kind == GGUF_TEXT)
        return take_texts(r, v, err);
    if (n > left(r) / widths[kind])
        return wrong(r, "a value that is longer than the file", err);
    r->at += n * widths[kind];
    return 0;
}

static int compare_values(const void *a, const void *b)
{
    return strcmp(((const struct gguf_value *)a)->key,
                  ((const struct gguf_value *)b)->key);
}

static int read_values(struct reader *r, uint64_t n, struct err *err)
{
    struct gguf *g = r->g;
    size_t cap = 0;

    if (n > left(r) / LEAST_PAIR)
        return wrong(r, "more metadata than the file has bytes for", err);
    for (; g->nvalues < n; g->nvalues++) {
        struct gguf_value *v;
        struct gguf_text key;

        g->value = xgrow(g->value, &cap, g->nvalues + 1, sizeof(*g->value));
        v = &g->value[g->nvalues];
        *v = (struct gguf_value){ .key = NULL };

        if (!take_text(r, &key) || !key.n || memchr(key.s, '\0', (size_t)key.n))
            return wrong(r, "a key that is none", err);
        v->key = pool_strndup(&g->pool, key.s, (size_t)key.n);
        if (take_value(r, v, err) < 0)
            return -1;
    }
    if (n)
        qsort(g->value, (size_t)n, sizeof(*g->value), compare_values);
    for (size_t i = 1; i < n; i++)
        if (!strcmp(g->value[i].key, g->value[i - 1].key))
            return err_set(err, ERR_INPUT, "%s: key %s is there twice", g->path,
                           g->value[i].key);
    return 0;
}

const struct gguf_value *gguf_get(const struct gguf *g, const char *prefix,
                                  const char *name)
{
    char *key = prefix ? str_dupf("%s.%s", prefix, name) : xstrdup(name);
    const struct gguf_value sought = { .key = key };
    const struct gguf_value *found =
        g->nvalues
            ? bsearch(&sought, g->value, g->nvalues, sizeof(sought), compare_values)
            : NULL;

    free(key);
    return found;
}

bool gguf_number(const struct gguf_value *v, uint64_t i, double *out)
{
    const unsigned char *p;
    uint64_t u;
    float f;

    if (!v || v->kind == GGUF_TEXT || i >= v->n)
        return false;
    p = v->at + i * widths[v->kind];
    u = little(p, widths[v->kind]);
    switch (v->kind) {
    case GGUF_F32:
        memcpy(&f, &(uint32_t){ (uint32_t)u }, sizeof(f));
        *out = (double)f;
        break;
    case GGUF_F64:
        memcpy(out, &u, sizeof(*out));
        break;
    case GGUF_I8:
        *out = (int8_t)u;
        break;
    case GGUF_I16:
        *out = (int16_t)u;
        break;
    case GGUF_I32:
        *out = (int32_t)u;
        break;
    case GGUF_I64:
        *out = (double)(int64_t)u;
        break;
    default:
        *out = (double)u;
    }
    return true;
}

const struct gguf_text *gguf_string(const struct gguf_value *v)
{
    return v && v->kind == GGUF_TEXT && !v->array ? v->text : NULL;
}

bool gguf_is(const struct gguf_value *v, const char *s)
{
    const struct gguf_text *t = gguf_string(v);

    return t && t->n == strlen(s) && !memcmp(t->s, s, (size_t)t->n);
}

/* ---- tensors ---- */

/* The type NUMBER of T. */
static bool find_type(struct gguf_tensor *t, uint64_t number)
{
    for (size_t i = 0; i < sizeof(plain) / sizeof(*plain); i++)
        if (plain[i].type == number) {
            t->t.dtype = plain[i].dtype;
            return true;
        }
    t->t.dtype = DTYPE_U8;
    t->blocks = ggml_find((uint32_t)number);
    return t->blocks != NULL;
}

/* Sets the shape of T, whose first dimension here is its last, and its bytes. */
static int set_shape(struct reader *r, struct gguf_tensor *t, const uint64_t *dim,
                     int n, struct err *err)
{
    uint64_t *shape = pool_take(&r->g->pool, (MOST_DIMS + 1) * sizeof(*shape), 8);
    uint64_t elements = 1;

    for (int k = 0; k < n; k++)
        shape[k] = dim[n - 1 - k];
    t->t.ndim = n;
    t->t.shape = shape;
    if (t->blocks) {
        if (!n || shape[n - 1] % t->blocks->numbers)
            return err_set(err, ERR_INPUT,
                           "%s: tensor %s: its rows are no whole blocks of %" PRIu32,
                           r->g->path, t->t.name, t->blocks->numbers);
        shape[n - 1] /= t->blocks->numbers;
        shape[t->t.ndim++] = t->blocks->bytes;
    }
    for (int k = 0; k < t->t.ndim; k++)
        if (shape[k] > INT64_MAX || !mem_mul(&elements, elements, shape[k]))
            return err_set(err, ERR_INPUT, "%s: tensor %s: its shape overflows",
                           r->g->path, t->t.name);
    if (!dtype_bytes(&t->t.size, t->t.dtype, elements))
        return err_set(err, ERR_INPUT, "%s: tensor %s: its size overflows", r->g->path,
                       t->t.name);
    return 0;
}

static int read_tensor(struct reader *r, struct gguf_tensor *t, struct err *err)
{
    uint64_t dims, dim[MOST_DIMS], type;
    struct gguf_text name;

    if (!take_text(r, &name) || !name.n || name.n > MOST_NAME ||
        memchr(name.s, '\0', (size_t)name.n))
        return wrong(r, "a tensor's name that is none", err);
    t->t.name = pool_strndup(&r->g->pool, name.s, (size_t)name.n);
    if (!take(r, 4, &dims) || dims > MOST_DIMS)
        return wrong(r, "a tensor of more than four dimensions", err);
    for (uint64_t k = 0; k < dims; k++)
        if (!take(r, 8, &dim[k]))
            return wrong(r, "the file ends in its tensors", err);
    if (!take(r, 4, &type) || !take(r, 8, &t->t.offset))
        return wrong(r, "the file ends in its tensors", err);
    if (!find_type(t, type))
        return err_set(err, ERR_INPUT, "%s: tensor %s: type %" PRIu64 " is not read",
                       r->g->path, t->t.name, type);
    return set_shape(r, t, dim, (int)dims, err);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int check_names(const struct gguf *g, struct err *err)
{
    const char **name = xmalloc((g->n + 1) * sizeof(*name));
    int ret = 0;

    for (size_t i = 0; i < g->n; i++)
        name[i] = g->tensor[i].t.name;
    if (g->n)
        qsort(name, g->n, sizeof(*name), compare_names);
    for (size_t i = 1; i < g->n && ret == 0; i++)
        if (!strcmp(name[i], name[i - 1]))
            ret = err_set(err, ERR_INPUT, "%s: tensor %s is there twice", g->path,
                          name[i]);
    free(name);
    return ret;
}

/* Adds where the data begin to the offsets, and checks that each tensor is there. */
static int place(struct reader *r, struct err *err)
{
    struct gguf *g = r->g;
    const struct gguf_value *v = gguf_get(g, NULL, "general.alignment");
    double alignment = ALIGNMENT;
    uint64_t unit;

    if (v && (v->kind != GGUF_U32 || v->array || !gguf_number(v, 0, &alignment)))
        alignment = 0;
    unit = (uint64_t)alignment;
    if (!unit || (unit & (unit - 1)))
        return err_set(err, ERR_INPUT, "%s: general.alignment is no power of two",
                       g->path);
    g->head = r->at;
    g->data = (r->at + unit - 1) / unit * unit;
    for (size_t i = 0; i < g->n; i++) {
        struct tensor *t = &g->tensor[i].t;

        if (t->offset % unit || g->data > g->size || t->offset > g->size - g->data ||
            t->size > g->size - g->data - t->offset)
            return err_set(err, ERR_INPUT,
                           "%s: %" PRIu64 " bytes; %s is to lie at %" PRIu64
                           " of its data, %" PRIu64 " bytes",
                           g->path, g->size, t->name, t->offset, t->size);
        t->offset += g->data;
    }
    return 0;
}

/* What G is, which does not begin as a GGUF file does. */
static int wrong_kind(const struct gguf *g, struct err *err)
{
    const char *kind = g->size >= 8 ? locate_kind(g->map) : NULL;

    if (g->size < sizeof("GGUF"))
        return err_set(err, ERR_INPUT, "%s: too short for a GGUF file", g->path);
    if (kind)
        return err_set(err, ERR_INPUT, "%s: is %s, not a GGUF file%s", g->path, kind,
                       locate_advice(kind));
    return err_set(err, ERR_INPUT, "%s: not a GGUF file", g->path);
}

static int read_all(struct reader *r, struct err *err)
{
    struct gguf *g = r->g;
    uint64_t magic, version = 0, n, pairs;
    size_t cap = 0;

    if (!take(r, 4, &magic) || magic != UINT32_C(0x46554747))
        return wrong_kind(g, err);
    if (!take(r, 4, &version) || (version != 2 && version != 3))
        return err_set(err, ERR_INPUT, "%s: GGUF of %s, which is not read; 2 and 3 are",
                       g->path,
                       version & 0xffff ? "another version" : "another byte order");
    if (!take(r, 8, &n) || !take(r, 8, &pairs))
        return wrong(r, "the file ends in its header", err);
    if (read_values(r, pairs, err) < 0)
        return -1;
    if (n > left(r) / LEAST_TENSOR)
        return wrong(r, "more tensors than the file has bytes for", err);
    for (; g->n < n; g->n++) {
        g->tensor = xgrow(g->tensor, &cap, g->n + 1, sizeof(*g->tensor));
        g->tensor[g->n] = (struct gguf_tensor){ .blocks = NULL };
        if (read_tensor(r, &g->tensor[g->n], err) < 0)
            return -1;
    }
    return check_names(g, err) < 0 ? -1 : place(r, err);
}

int gguf_open(struct gguf *g, int fd, const char *path, struct err *err)
{
    struct gguf made = { .path = path };
    struct reader r = { .g = &made };
    struct stat status;

    if (fstat(fd, &status) < 0)
        return err_errno(err, "%s", path);
    made.size = (uint64_t)status.st_size;
    if (!made.size)
        return err_set(err, ERR_INPUT, "%s: empty", path);
    made.map = mmap(NULL, (size_t)made.size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (made.map == MAP_FAILED)
        return err_errno(err, "%s", path);
    if (read_all(&r, err) < 0) {
        gguf_clear(&made);
        return -1;
    }
    *g = made;
    return 0;
}

void gguf_clear(struct gguf *g)
{
    free(g->value);
    free(g->tensor);
    pool_clear(&g->pool);
    if (g->map)
        munmap(g->map, (size_t)g->size);
    *g = (struct gguf){ 0 };
}
