/* pickle - reads the tensors of a file that torch.save wrote */
#include "lib/ckpt/locate.h"
#include "lib/ckpt/pickle.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/ckpt/unpickle.h"
#include "lib/ckpt/zip.h"

enum { MAX_DEPTH = 64, MAX_VISITS = 1 << 21, NAMES_LEAST = 4 << 20 };

/* ---- tensors ---- */

/* Is the layout row-major?  An axis of size 1 may have any stride.  The number of
 * elements is known not to overflow, and no axis is empty. */
static bool is_contiguous(const struct pickled *v)
{
    uint64_t expected = 1;

    for (int k = v->tensor.ndim - 1; k >= 0; k--) {
        if (v->tensor.shape[k] != 1 && v->tensor.stride[k] != expected)
            return false;
        expected *= v->tensor.shape[k];
    }
    return true;
}

/* Sets *end to the index after the last element of the storage that the tensor uses. */
static bool reach(const struct pickled *v, uint64_t elements, uint64_t *end)
{
    uint64_t last = v->tensor.first, step;

    if (!elements) {
        *end = 0;
        return true;
    }
    for (int k = 0; k < v->tensor.ndim; k++)
        if (!mem_mul(&step, v->tensor.shape[k] - 1, v->tensor.stride[k]) ||
            !mem_add(&last, last, step))
            return false;
    return mem_add(end, last, 1);
}

struct finder {
    struct unpickle *m;
    struct pickle *p;
    size_t cap, visits;
    uint64_t named; /* bytes of names, as counted in a safetensors header */
    struct str name;
};

/* A name joins keys that a pickle may repeat without end, and is stored several times,
 * so names have a limit of their own within the reader's allowance. */
static int count_name(struct finder *f, const char *name, struct err *err)
{
    uint64_t read = unpickle_read(f->m);

    for (; *name; name++)
        f->named += (unsigned char)*name < ' ' || *name == '"' || *name == '\\' ? 6 : 1;
    return f->named > NAMES_LEAST + 2 * read + 128 * (uint64_t)(f->p->n + 1)
               ? mem_refuse(f->m->path, read, err)
               : 0;
}

int pickle_tensor(struct tensor *out, const struct pickled *v, struct pool *pool,
                  const char *path, const char *name, struct err *err)
{
    const struct pickled_storage *s = v->tensor.s;
    uint64_t width = (uint64_t)dtype_bits(v->tensor.dtype) / 8;
    uint64_t elements = 1, end, size;
    struct tensor t = { .dtype = v->tensor.dtype, .ndim = v->tensor.ndim };
    uint64_t *shape;

    for (int k = 0; k < t.ndim; k++)
        if (!mem_mul(&elements, elements, v->tensor.shape[k]))
            return err_set(err, ERR_INPUT, "%s: %s: its shape overflows", path, name);
    if (!s->known)
        return err_set(err, ERR_INPUT, "%s: %s: its storage '%s' is not in the file",
                       path, name, s->key);
    if (!mem_mul(&t.size, elements, width) || !reach(v, elements, &end) ||
        !mem_mul(&end, end, width) ||
        !mem_mul(&size, s->numel, (uint64_t)dtype_bits(s->dtype) / 8) || end > size ||
        size > s->bytes)
        return err_set(err, ERR_INPUT, "%s: %s: reaches beyond its storage", path,
                       name);
    shape = pool_take(pool, (size_t)t.ndim * sizeof(*shape), sizeof(*shape));
    memcpy(shape, v->tensor.shape, (size_t)t.ndim * sizeof(*shape));
    t.shape = shape;
    t.offset = s->offset + (elements ? v->tensor.first * width : 0);
    if (elements && !is_contiguous(v)) {
        uint64_t *stride =
            pool_take(pool, (size_t)t.ndim * sizeof(*stride), sizeof(*stride));

        memcpy(stride, v->tensor.stride, (size_t)t.ndim * sizeof(*stride));
        t.stride = stride;
    }
    *out = t;
    return 0;
}

static int add_tensor(struct finder *f, const struct pickled *v, struct err *err)
{
    const char *name = f->name.len ? f->name.s : "tensor";
    struct tensor t;

    if (count_name(f, name, err) < 0 ||
        pickle_tensor(&t, v, &f->p->pool, f->m->path, name, err) < 0)
        return -1;
    t.name = pool_strdup(&f->p->pool, name);
    f->p->tensor = xgrow(f->p->tensor, &f->cap, f->p->n + 1, sizeof(t));
    f->p->tensor[f->p->n++] = t;
    return 0;
}

/* Adds the tensors in V; f->name is the path so far. */
static int find_tensors(struct finder *f, const struct pickled *v, int depth,
                        struct err *err)
{
    size_t step = v->kind == PICKLED_DICT ? 2 : 1, len = f->name.len;

    /* copying a long name counts as one visit per 256 bytes */
    f->visits += 1 + len / 256;
    if (f->visits > MAX_VISITS || depth > MAX_DEPTH)
        return err_set(err, ERR_INPUT,
                       "%s: its containers are nested too deep or too often",
                       f->m->path);
    if (v->kind == PICKLED_TENSOR)
        return add_tensor(f, v, err);
    if (v->kind != PICKLED_DICT && v->kind != PICKLED_LIST && v->kind != PICKLED_TUPLE)
        return 0;
    for (size_t i = 0; i + step <= v->list.n; i += step) {
        const struct pickled *key = v->list.v[i], *item = v->list.v[i + step - 1];

        if (step == 2 && key->kind != PICKLED_TEXT && key->kind != PICKLED_NUMBER)
            continue;
        if (len)
            str_addc(&f->name, '.');
        if (step == 2 && key->kind == PICKLED_TEXT)
            str_addn(&f->name, key->text.s, strlen(key->text.s));
        else
            str_addf(&f->name, "%" PRId64, step == 2 ? key->number : (int64_t)i);
        if (find_tensors(f, item, depth + 1, err) < 0)
            return -1;
        f->name.len = len;
        f->name.s[len] = '\0'; /* something was added */
    }
    return 0;
}

/* The dictionary of weights inside a training checkpoint, or else ROOT. */
static const struct pickled *find_state(const struct pickled *root)
{
    static const char *const NAMES[] = { "state_dict", "model_state_dict", "model",
                                         "module" };

    for (size_t k = 0; root->kind == PICKLED_DICT && k < sizeof(NAMES) / sizeof(*NAMES);
         k++)
        for (size_t i = 0; i + 1 < root->list.n; i += 2) {
            const struct pickled *v = root->list.v[i + 1];

            if (!pickled_text_is(root->list.v[i], NAMES[k]) || v->kind != PICKLED_DICT)
                continue;
            for (size_t j = 1; j < v->list.n; j += 2)
                if (v->list.v[j]->kind == PICKLED_TENSOR)
                    return v;
            break; /* check only the first: hostile files may repeat a key */
        }
    return root;
}

static int collect_tensors(struct unpickle *m, const struct pickled *root,
                           struct pickle *p, struct err *err)
{
    struct finder f = { .m = m, .p = p };
    int ret = find_tensors(&f, find_state(root), 0, err);
    const struct tensor *twice;
    struct tensor_index index;

    str_clear(&f.name);
    if (ret < 0)
        return -1;
    twice = tensor_index_init(&index, p->tensor, p->n);
    tensor_index_clear(&index);
    return twice ? err_set(err, ERR_INPUT, "%s: duplicate tensor '%s'", m->path,
                           twice->name)
                 : 0;
}

/* ---- the two formats ---- */

/* Finds the archive's data.pkl; its directory is the prefix of all members. */
static const struct zip_member *find_program(const struct zip *z)
{
    for (size_t i = 0; i < z->n; i++) {
        const char *slash = strchr(z->member[i].name, '/');

        if (slash && !strcmp(slash, "/data.pkl"))
            return &z->member[i];
    }
    return NULL;
}

static int check_byte_order(const struct zip *z, const char *prefix,
                            const unsigned char *data, const char *path,
                            struct err *err)
{
    char *name = str_dupf("%sbyteorder", prefix);
    const struct zip_member *order = zip_find(z, name);

    free(name);
    if (order && (order->size != 6 || memcmp(data + order->offset, "little", 6)))
        return err_set(err, ERR_INPUT, "%s: written with another byte order", path);
    return 0;
}

/* The bytes of each storage are the member data/KEY. */
static int locate_members(struct unpickle *m, const struct zip *z, const char *prefix,
                          struct err *err)
{
    for (size_t i = 0; i < UNPICKLE_BUCKETS; i++)
        for (struct pickled_storage *s = m->storages[i]; s; s = s->next) {
            char *name = str_dupf("%sdata/%s", prefix, s->key);
            const struct zip_member *found = zip_find(z, name);

            free(name);
            if (!found || !found->stored)
                return err_set(err, ERR_INPUT, "%s: no stored member data/%s", m->path,
                               s->key);
            s->offset = found->offset;
            s->bytes = found->size;
            s->known = true;
        }
    return 0;
}

static int parse_archive(struct unpickle *m, struct pickled **root, const char *path,
                         const unsigned char *data, uint64_t size, struct err *err)
{
    const struct zip_member *program;
    bool records = m->records;
    char *prefix = NULL;
    struct zip z;
    int ret = -1;

    if (zip_read(&z, path, data, size, err) < 0)
        return -1;
    program = find_program(&z);
    if (!program || !program->stored) {
        err_set(err, ERR_INPUT, "%s: a zip archive without a stored data.pkl", path);
        goto out;
    }
    prefix = xstrndup(program->name, strlen(program->name) - strlen("data.pkl"));
    unpickle_init(m, path, data + program->offset, program->size);
    m->records = records;
    if (check_byte_order(&z, prefix, data, path, err) < 0 ||
        unpickle_run(m, root, err) < 0)
        goto out;
    ret = locate_members(m, &z, prefix, err);
out:
    free(prefix);
    zip_clear(&z);
    return ret;
}

/* The storages' data follow the pickle with their keys: for each storage the number of
 * elements (8 bytes) and the elements. */
static int locate_storages(struct unpickle *m, const unsigned char *data,
                           const struct pickled *keys, struct err *err)
{
    for (size_t i = 0; i < keys->list.n; i++) {
        struct pickled_storage *s = keys->list.v[i]->kind == PICKLED_TEXT
                                        ? unpickle_storage(m, keys->list.v[i]->text.s)
                                        : NULL;
        const unsigned char *bytes;
        uint64_t numel, size;

        if (!s)
            return unpickle_fail(m, err, "a storage that nothing uses");
        if (!unpickle_take_number(m, 8, &numel) ||
            !mem_mul(&size, numel, (uint64_t)dtype_bits(s->dtype) / 8) ||
            !unpickle_take(m, size, &bytes))
            return unpickle_fail(m, err, "a storage is cut short");
        s->offset = (uint64_t)(bytes - data);
        s->bytes = size;
        s->known = true;
    }
    return 0;
}

static int refuse_stream(const char *path, const unsigned char *data, uint64_t size,
                         struct err *err)
{
    const char *kind = size >= 8 && memcmp(data, "PK", 2) ? locate_kind(data) : NULL;

    if (!kind)
        return err_set(err, ERR_INPUT, "%s: not a file of torch.save", path);
    return err_set(err, ERR_INPUT, "%s: is %s, not a file of torch.save%s", path, kind,
                   locate_advice(kind));
}

/* The stream consists of five pickles (magic number, protocol version, description of
 * the machine, the object, the storages' keys), then the storages. */
static int parse_stream(struct unpickle *m, struct pickled **root,
                        const unsigned char *data, uint64_t size, struct err *err)
{
    static const unsigned char MAGIC[] =
        "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
    struct pickled *version, *system, *keys;

    if (size < 2 + sizeof(MAGIC) - 1 || data[0] != 0x80 ||
        memcmp(data + 2, MAGIC, sizeof(MAGIC) - 1))
        return refuse_stream(m->path, data, size, err);
    m->p += 2 + sizeof(MAGIC) - 1;
    if (unpickle_run(m, &version, err) < 0)
        return -1;
    if (version->kind != PICKLED_NUMBER || version->number != 1001)
        return unpickle_fail(m, err, "an unknown version of torch.save");
    if (unpickle_run(m, &system, err) < 0 || unpickle_run(m, root, err) < 0 ||
        unpickle_run(m, &keys, err) < 0)
        return -1;
    for (size_t i = 0; pickled_is(system, PICKLED_DICT) && i + 1 < system->list.n;
         i += 2)
        if (pickled_text_is(system->list.v[i], "little_endian") &&
            system->list.v[i + 1]->kind == PICKLED_NUMBER &&
            !system->list.v[i + 1]->number)
            return err_set(err, ERR_INPUT, "%s: written with another byte order",
                           m->path);
    if (!pickled_is(keys, PICKLED_LIST))
        return unpickle_fail(m, err, "no list of storages");
    return locate_storages(m, data, keys, err);
}

static bool is_archive(const unsigned char *data, uint64_t size)
{
    return size >= 4 && !memcmp(data, "PK\3\4", 4);
}

/* Runs the pickle of a file of either format. */
static int parse(struct unpickle *m, struct pickled **root, const unsigned char *data,
                 uint64_t size, struct err *err)
{
    return is_archive(data, size) ? parse_archive(m, root, m->path, data, size, err)
                                  : parse_stream(m, root, data, size, err);
}

int pickle_parse(struct pickle *p, const char *path, const unsigned char *data,
                 uint64_t size, struct err *err)
{
    struct pickle made = { .size = size, .archive = is_archive(data, size) };
    struct pickled *root;
    struct unpickle m;
    int ret;

    unpickle_init(&m, path, data, size);
    ret = parse(&m, &root, data, size, err);
    if (ret == 0)
        ret = collect_tensors(&m, root, &made, err);
    unpickle_clear(&m);
    if (ret < 0)
        pickle_clear(&made);
    else
        *p = made;
    return ret;
}

/* Maps the open file FD. */
static int map_file(unsigned char **data, uint64_t *size, int fd, const char *path,
                    struct err *err)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return err_errno(err, "%s", path);
    if (!S_ISREG(st.st_mode) || st.st_size == 0)
        return err_set(err, ERR_INPUT, "%s: empty, or not a regular file", path);
    *data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    *size = (uint64_t)st.st_size;
    return *data == MAP_FAILED ? err_errno(err, "%s", path) : 0;
}

int pickle_read(struct pickle *p, int fd, const char *path, struct err *err)
{
    unsigned char *data;
    uint64_t size = 0;
    int ret;

    if (map_file(&data, &size, fd, path, err) < 0)
        return -1;
    ret = pickle_parse(p, path, data, size, err);
    munmap(data, (size_t)size);
    return ret;
}

void pickle_clear(struct pickle *p)
{
    free(p->tensor);
    pool_clear(&p->pool);
    *p = (struct pickle){ 0 };
}

int pickle_values_read(struct pickle_values *v, int fd, const char *path,
                       struct err *err)
{
    struct pickle_values made = { 0 };
    struct pickled *root;

    if (map_file(&made.data, &made.size, fd, path, err) < 0)
        return -1;
    unpickle_init(&made.m, path, made.data, made.size);
    made.m.records = true;
    made.archive = is_archive(made.data, made.size);
    if (parse(&made.m, &root, made.data, made.size, err) < 0) {
        pickle_values_clear(&made);
        return -1;
    }
    made.root = root;
    *v = made;
    return 0;
}

int pickle_values_parse(struct pickle_values *v, const char *path,
                        const unsigned char *data, uint64_t size, struct err *err)
{
    struct pickle_values made = { .data = (unsigned char *)data,
                                  .size = size,
                                  .lent = true,
                                  .archive = is_archive(data, size) };
    struct pickled *root;

    unpickle_init(&made.m, path, data, size);
    made.m.records = true;
    if (parse(&made.m, &root, data, size, err) < 0) {
        pickle_values_clear(&made);
        return -1;
    }
    made.root = root;
    *v = made;
    return 0;
}

bool pickle_number(const struct pickle_values *v, const struct pickled *x, double *out)
{
    const struct pickled_storage *s;
    uint64_t at, width;
    float f;
    int64_t i;

    if (pickled_is(x, PICKLED_NUMBER) || pickled_is(x, PICKLED_REAL)) {
        *out = x->kind == PICKLED_REAL ? x->real : (double)x->number;
        return true;
    }
    if (!pickled_is(x, PICKLED_TENSOR))
        return false;
    for (int k = 0; k < x->tensor.ndim; k++)
        if (x->tensor.shape[k] != 1)
            return false;
    s = x->tensor.s;
    width = (uint64_t)dtype_bits(x->tensor.dtype) / 8;
    if (!s->known || !mem_mul(&at, x->tensor.first, width) || at > s->bytes ||
        s->bytes - at < width || s->offset > v->size || s->bytes > v->size - s->offset)
        return false;
    at += s->offset;
    switch (x->tensor.dtype) {
    case DTYPE_F32:
        memcpy(&f, v->data + at, sizeof(f));
        *out = (double)f;
        return true;
    case DTYPE_F64:
        memcpy(out, v->data + at, sizeof(*out));
        return true;
    case DTYPE_I64:
        memcpy(&i, v->data + at, sizeof(i));
        *out = (double)i;
        return true;
    default:
        return false;
    }
}

void pickle_values_clear(struct pickle_values *v)
{
    if (v->data && !v->lent)
        munmap(v->data, (size_t)v->size);
    unpickle_clear(&v->m);
    *v = (struct pickle_values){ 0 };
}
