/* safetensors - reads and writes headers of safetensors files */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/base/fs.h"
#include "lib/base/jsonlex.h"
#include "lib/base/mem.h"
#include "lib/ckpt/locate.h"
#include "lib/ckpt/safetensors.h"

static const char METADATA[] = "__metadata__";

void safetensors_put_length(unsigned char out[8], uint64_t n)
{
    for (int i = 0; i < 8; i++)
        out[i] = (unsigned char)(n >> 8 * i);
}

uint64_t safetensors_get_length(const unsigned char in[8])
{
    uint64_t n = 0;

    for (int i = 7; i >= 0; i--)
        n = n << 8 | in[i];
    return n;
}

/* ---- reading ---- */

static int expect(struct jsonlex *lex, enum jsonlex_token token, const char *what,
                  struct err *err)
{
    if (jsonlex_next(lex, err) < 0)
        return -1;
    if (lex->token != token)
        return jsonlex_error(lex, err, "expected %s", what);
    return 0;
}

/* Reads "__metadata__", an object of strings, or null, which some writers leave. */
static int read_metadata(struct safetensors *st, struct jsonlex *lex, struct err *err)
{
    size_t cap = 0;

    if (jsonlex_next(lex, err) < 0)
        return -1;
    if (lex->token == JSONLEX_NULL)
        return 0;
    if (lex->token != JSONLEX_OBJECT)
        return jsonlex_error(lex, err, "expected an object of strings");
    for (;;) {
        const char *key;

        if (jsonlex_next(lex, err) < 0)
            return -1;
        if (lex->token == JSONLEX_OBJECT_END)
            return 0;
        key = pool_strndup(&st->pool, lex->text.s, lex->text.len);
        if (expect(lex, JSONLEX_STRING, "a string", err) < 0)
            return -1;
        if (strlen(str_text(&lex->text)) != lex->text.len)
            continue;
        st->note = xgrow(st->note, &cap, st->nnotes + 1, sizeof(*st->note));
        st->note[st->nnotes++] = (struct safetensors_note){
            key, pool_strndup(&st->pool, str_text(&lex->text), lex->text.len)
        };
    }
}

/* Reads an array of at most MAX integers into V; *n is their number. */
static int read_numbers(struct jsonlex *lex, uint64_t *v, int max, int *n,
                        struct err *err)
{
    int count = 0;

    if (expect(lex, JSONLEX_ARRAY, "an array of whole numbers", err) < 0)
        return -1;
    for (;;) {
        if (jsonlex_next(lex, err) < 0)
            return -1;
        if (lex->token == JSONLEX_ARRAY_END)
            break;
        if (count == max)
            return jsonlex_error(lex, err, "more than %d numbers", max);
        if (lex->token != JSONLEX_NUMBER || !str_u64(lex->text.s, &v[count]))
            return jsonlex_error(lex, err, "expected a whole number below 2^64");
        count++;
    }
    *n = count;
    return 0;
}

enum { FIELD_DTYPE = 1, FIELD_SHAPE = 2, FIELD_OFFSETS = 4, FIELD_ALL = 7 };

/* Reads a field of a tensor's entry; the current token is its key. */
static int read_field(struct jsonlex *lex, struct tensor *t, uint64_t *shape,
                      uint64_t offsets[2], int *seen, struct err *err)
{
    int field = !strcmp(lex->text.s, "dtype")          ? FIELD_DTYPE
                : !strcmp(lex->text.s, "shape")        ? FIELD_SHAPE
                : !strcmp(lex->text.s, "data_offsets") ? FIELD_OFFSETS
                                                       : 0;
    int n = 0;

    if (*seen & field)
        return jsonlex_error(lex, err, "duplicate key \"%s\"", lex->text.s);
    *seen |= field;
    if (field == FIELD_DTYPE) {
        if (expect(lex, JSONLEX_STRING, "a dtype", err) < 0)
            return -1;
        if (!dtype_parse(&t->dtype, lex->text.s) ||
            strcmp(dtype_name(t->dtype), lex->text.s))
            return jsonlex_error(lex, err, "%s: unknown dtype '%s'", t->name,
                                 lex->text.s);
        return 0;
    }
    if (field == FIELD_SHAPE)
        return read_numbers(lex, shape, TENSOR_MAX_DIMS, &t->ndim, err);
    if (field == FIELD_OFFSETS) {
        if (read_numbers(lex, offsets, 2, &n, err) < 0)
            return -1;
        return n == 2 ? 0
                      : jsonlex_error(lex, err, "%s: expected two offsets", t->name);
    }
    return jsonlex_next(lex, err) < 0 ? -1 : jsonlex_skip(lex, err);
}

/* Reads a tensor's entry; the current token is its key.  Sets offset and size relative
 * to the data section. */
static int read_tensor(struct safetensors *st, struct jsonlex *lex, struct tensor *t,
                       struct err *err)
{
    uint64_t shape[TENSOR_MAX_DIMS], offsets[2] = { 0, 0 }, elements = 1, bytes;
    uint64_t *kept;
    int seen = 0;

    *t = (struct tensor){ .name = pool_strndup(&st->pool, lex->text.s, lex->text.len) };
    if (expect(lex, JSONLEX_OBJECT, "a tensor's entry", err) < 0)
        return -1;
    for (;;) {
        if (jsonlex_next(lex, err) < 0)
            return -1;
        if (lex->token == JSONLEX_OBJECT_END)
            break;
        if (read_field(lex, t, shape, offsets, &seen, err) < 0)
            return -1;
    }
    if (seen != FIELD_ALL)
        return jsonlex_error(lex, err, "%s: dtype, shape or data_offsets is missing",
                             t->name);
    for (int i = 0; i < t->ndim; i++)
        if (!mem_mul(&elements, elements, shape[i]))
            return jsonlex_error(lex, err, "%s: its shape overflows", t->name);
    if (!dtype_bytes(&bytes, t->dtype, elements))
        return jsonlex_error(lex, err, "%s: its size overflows or is no whole byte",
                             t->name);
    if (offsets[1] < offsets[0] || offsets[1] - offsets[0] != bytes)
        return jsonlex_error(lex, err,
                             "%s: its shape needs %" PRIu64
                             " bytes, its offsets are %" PRIu64 " and %" PRIu64,
                             t->name, bytes, offsets[0], offsets[1]);
    kept = pool_take(&st->pool, (size_t)t->ndim * sizeof(*kept), sizeof(*kept));
    memcpy(kept, shape, (size_t)t->ndim * sizeof(*kept));
    t->shape = kept;
    t->offset = offsets[0];
    t->size = bytes;
    return 0;
}

static int compare_places(const void *a, const void *b)
{
    const struct tensor *x = *(const struct tensor *const *)a;
    const struct tensor *y = *(const struct tensor *const *)b;

    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x->size < y->size ? -1 : x->size > y->size;
}

/* The data must be covered from its first byte to its last, each byte once. */
static int check_cover(const struct safetensors *st, const char *path, struct err *err)
{
    const struct tensor **sorted = xmalloc(st->n * sizeof(*sorted));
    uint64_t end = 0;
    int ret = -1;

    for (size_t i = 0; i < st->n; i++)
        sorted[i] = &st->tensor[i];
    if (st->n)
        qsort(sorted, st->n, sizeof(*sorted), compare_places);
    for (size_t i = 0; i < st->n; i++) {
        if (sorted[i]->offset != end) {
            err_set(err, ERR_INPUT,
                    "%s: %s: begins at data byte %" PRIu64 " where %" PRIu64
                    " is next (%s)",
                    path, sorted[i]->name, sorted[i]->offset, end,
                    sorted[i]->offset < end ? "an overlap" : "a hole");
            goto out;
        }
        end += sorted[i]->size;
    }
    if (end != st->size - st->data) {
        err_set(err, ERR_INPUT,
                "%s: %" PRIu64 " bytes of data where its header says %" PRIu64, path,
                st->size - st->data, end);
        goto out;
    }
    ret = 0;
out:
    free(sorted);
    return ret;
}

static int check_names(const struct safetensors *st, const char *path, struct err *err)
{
    struct tensor_index index;
    const struct tensor *twice = tensor_index_init(&index, st->tensor, st->n);

    tensor_index_clear(&index);
    if (twice)
        return err_set(err, ERR_INPUT, "%s: duplicate tensor '%s'", path, twice->name);
    return 0;
}

static int read_entries(struct safetensors *st, struct jsonlex *lex, struct err *err)
{
    bool metadata = false;
    size_t cap = 0;

    if (expect(lex, JSONLEX_OBJECT, "an object", err) < 0)
        return -1;
    for (;;) {
        if (jsonlex_next(lex, err) < 0)
            return -1;
        if (lex->token == JSONLEX_OBJECT_END)
            break;
        if (!strcmp(lex->text.s, METADATA)) {
            if (metadata)
                return jsonlex_error(lex, err, "duplicate key \"%s\"", METADATA);
            metadata = true;
            if (read_metadata(st, lex, err) < 0)
                return -1;
            continue;
        }
        st->tensor = xgrow(st->tensor, &cap, st->n + 1, sizeof(*st->tensor));
        if (read_tensor(st, lex, &st->tensor[st->n], err) < 0)
            return -1;
        st->n++;
    }
    return expect(lex, JSONLEX_END, "the end of the header", err);
}

int safetensors_parse(struct safetensors *st, const char *path, const char *text,
                      size_t n, uint64_t size, struct err *err)
{
    struct safetensors made = { .data = 8 + (uint64_t)n, .size = size };
    struct jsonlex lex;
    char *name = str_dupf("%s: header", path);
    int ret = -1;

    jsonlex_init(&lex, name, text, n);
    if (read_entries(&made, &lex, err) < 0 || check_names(&made, path, err) < 0 ||
        check_cover(&made, path, err) < 0)
        goto out;
    for (size_t i = 0; i < made.n; i++)
        made.tensor[i].offset += made.data;
    *st = made;
    ret = 0;
out:
    if (ret < 0)
        safetensors_clear(&made);
    jsonlex_clear(&lex);
    free(name);
    return ret;
}

int safetensors_parse_notes(struct safetensors *st, const char *path, const char *text,
                            size_t n, struct err *err)
{
    struct safetensors made = { 0 };
    struct jsonlex lex;
    int ret = -1;

    jsonlex_init(&lex, path, text, n);
    if (expect(&lex, JSONLEX_OBJECT, "an object", err) < 0)
        goto out;
    for (;;) {
        bool notes;

        if (jsonlex_next(&lex, err) < 0)
            goto out;
        if (lex.token == JSONLEX_OBJECT_END)
            break;
        notes = !strcmp(lex.text.s, METADATA);
        if (notes ? read_metadata(&made, &lex, err) < 0
                  : jsonlex_next(&lex, err) < 0 || jsonlex_skip(&lex, err) < 0)
            goto out;
        if (notes)
            break;
    }
    *st = made;
    ret = 0;
out:
    if (ret < 0)
        safetensors_clear(&made);
    jsonlex_clear(&lex);
    return ret;
}

int safetensors_read(struct safetensors *st, char **text, int fd, const char *path,
                     struct err *err)
{
    unsigned char length[8];
    struct stat status;
    char *header;
    uint64_t n, size;
    int ret = -1;

    if (fstat(fd, &status) < 0)
        return err_errno(err, "%s", path);
    if (!S_ISREG(status.st_mode))
        return err_set(err, ERR_INPUT, "%s: not a regular file", path);
    size = (uint64_t)status.st_size;
    if (size < sizeof(length))
        return err_set(err, ERR_INPUT, "%s: too short for a safetensors file", path);
    if (fs_pread(fd, length, sizeof(length), 0, path, err) < 0)
        return -1;
    n = safetensors_get_length(length);
    if (n > SAFETENSORS_MAX_HEADER && locate_kind(length))
        return err_set(err, ERR_INPUT, "%s: is %s, not a safetensors file%s", path,
                       locate_kind(length), locate_advice(locate_kind(length)));
    if (n > SAFETENSORS_MAX_HEADER)
        return err_set(
            err, ERR_INPUT,
            "%s: a header of %" PRIu64 " bytes; safetensors allows 100000000", path, n);
    if (n > size - sizeof(length))
        return err_set(err, ERR_INPUT,
                       "%s: truncated: a header of %" PRIu64
                       " bytes in a file of %" PRIu64,
                       path, n, size);
    header = mem_alloc(n + 1, path, err);
    if (!header)
        return -1;
    header[n] = '\0';
    if (fs_pread(fd, header, (size_t)n, sizeof(length), path, err) < 0 ||
        safetensors_parse(st, path, header, (size_t)n, size, err) < 0)
        goto out;
    if (text) {
        *text = header;
        header = NULL;
    }
    ret = 0;
out:
    free(header);
    return ret;
}

void safetensors_clear(struct safetensors *st)
{
    free(st->tensor);
    free(st->note);
    pool_clear(&st->pool);
    *st = (struct safetensors){ 0 };
}

/* ---- making ---- */

void safetensors_header_begin(struct safetensors_header *h, const char *metadata)
{
    *h = (struct safetensors_header){ 0 };
    str_addn(&h->text, "\0\0\0\0\0\0\0\0{", 9);
    if (metadata)
        str_addf(&h->text, "\"%s\":%s", METADATA, metadata);
}

void safetensors_header_add(struct safetensors_header *h, const char *name,
                            enum dtype dtype, int ndim, const uint64_t *shape,
                            uint64_t size)
{
    if (h->text.len > 9)
        str_addc(&h->text, ',');
    str_add_json(&h->text, name);
    str_addf(&h->text, ":{\"dtype\":\"%s\",\"shape\":[", dtype_name(dtype));
    for (int i = 0; i < ndim; i++)
        str_addf(&h->text, "%s%" PRIu64, i ? "," : "", shape[i]);
    str_addf(&h->text, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", h->end,
             h->end + size);
    h->end += size;
}

int safetensors_header_finish(struct safetensors_header *h, const char *path,
                              struct err *err)
{
    unsigned char length[8];

    str_addc(&h->text, '}');
    while (h->text.len % 8)
        str_addc(&h->text, ' ');
    if (h->text.len - 8 > SAFETENSORS_MAX_HEADER)
        return err_set(err, ERR_INPUT,
                       "%s: its header would have %zu bytes; safetensors "
                       "allows 100000000",
                       path, h->text.len - 8);
    safetensors_put_length(length, h->text.len - 8);
    memcpy(h->text.s, length, sizeof(length));
    return 0;
}

void safetensors_header_clear(struct safetensors_header *h)
{
    str_clear(&h->text);
    h->end = 0;
}
