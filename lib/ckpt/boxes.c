/* boxes - a tensor whose elements lie in many ranges of many files */
#include "lib/ckpt/boxes.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/ckpt/tensor.h"

enum {
    PAGE = 1 << 16,  /* a multiple of any machine's page */
    SHORT_RUN = 512, /* bytes below which scattered runs are read through a mapping */
    MOST_COMPARED = 1 << 26
};

/* ---- making ---- */

/* A box with the flat indices of its first element and after its last. */
struct ranked {
    struct box box;
    uint64_t low, high;
};

static int compare_ranked(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;

    if (x->low != y->low)
        return x->low < y->low ? -1 : 1;
    return x->high < y->high ? -1 : x->high > y->high;
}

/* Sets *elements to the size of B, and low and high of R; false when it leaves SHAPE.
 * The number of elements of SHAPE is known not to overflow. */
static bool rank_box(struct ranked *r, uint64_t *elements, int ndim,
                     const uint64_t *shape, const struct box *b)
{
    *r = (struct ranked){ .box = *b };
    *elements = 1;
    for (int k = 0; k < ndim; k++) {
        if (b->start[k] > shape[k] || b->size[k] > shape[k] - b->start[k])
            return false;
        *elements *= b->size[k];
    }
    for (int k = 0; k < ndim && *elements; k++) {
        r->low = r->low * shape[k] + b->start[k];
        r->high = r->high * shape[k] + b->start[k] + b->size[k] - 1;
    }
    r->high += *elements > 0;
    return true;
}

static bool overlap(const struct box *a, const struct box *b, int ndim)
{
    for (int k = 0; k < ndim; k++)
        if (a->start[k] >= b->start[k] + b->size[k] ||
            b->start[k] >= a->start[k] + a->size[k])
            return false;
    return true;
}

/* Do two of the N sorted boxes overlap?  Boxes can only meet if their flat ranges do.
 * False with *tired set after too many comparisons. */
static bool find_overlap(const struct ranked *r, size_t n, int ndim, bool *tired)
{
    size_t compared = 0;

    for (size_t i = 0; i < n; i++)
        for (size_t j = i + 1; j < n && r[j].low < r[i].high; j++) {
            if (overlap(&r[i].box, &r[j].box, ndim))
                return true;
            if (++compared > MOST_COMPARED) {
                *tired = true;
                return false;
            }
        }
    return false;
}

int boxes_new(const struct boxes **out, struct pool *pool, int ndim,
              const uint64_t *shape, const struct box *box, size_t n, const char *path,
              const char *name, struct err *err)
{
    struct ranked *r = xmalloc((n + 1) * sizeof(*r));
    uint64_t whole = 1, sum = 0, elements, *highest;
    struct boxes *made;
    struct box *kept;
    bool tired = false;
    size_t used = 0;
    int ret = -1;

    for (int k = 0; k < ndim; k++)
        if (!mem_mul(&whole, whole, shape[k])) {
            err_set(err, ERR_INPUT, "%s: %s: its shape overflows", path, name);
            goto out;
        }
    for (size_t i = 0; i < n; i++) {
        if (!rank_box(&r[used], &elements, ndim, shape, &box[i]) ||
            !mem_add(&sum, sum, elements)) {
            err_set(err, ERR_INPUT, "%s: %s: a piece reaches beyond its shape", path,
                    name);
            goto out;
        }
        used += elements > 0;
    }
    if (used)
        qsort(r, used, sizeof(*r), compare_ranked);
    if (find_overlap(r, used, ndim, &tired) || tired) {
        err_set(err, ERR_INPUT, "%s: %s: %s", path, name,
                tired ? "too many pieces" : "two pieces overlap");
        goto out;
    }
    if (sum != whole) {
        err_set(err, ERR_INPUT,
                "%s: %s: its pieces have %" PRIu64 " of %" PRIu64 " elements", path,
                name, sum, whole);
        goto out;
    }
    made = pool_take(pool, sizeof(*made), 8);
    kept = pool_take(pool, (used + 1) * sizeof(*kept), 8);
    highest = pool_take(pool, (used + 1) * sizeof(*highest), 8);
    for (size_t i = 0; i < used; i++) {
        kept[i] = r[i].box;
        highest[i] = i && highest[i - 1] > r[i].high ? highest[i - 1] : r[i].high;
    }
    *made = (struct boxes){
        .ndim = ndim, .shape = shape, .box = kept, .n = used, .highest = highest
    };
    *out = made;
    ret = 0;
out:
    free(r);
    return ret;
}

/* Sets *out to the part of B in the box of NDIM axes at START of SIZE, whose index
 * there is counted from START; false if there is none. */
static bool meet(struct box *out, struct pool *pool, const struct box *b, int ndim,
                 const uint64_t *start, const uint64_t *size, size_t width)
{
    size_t bytes = ((size_t)ndim + 1) * sizeof(uint64_t);
    uint64_t *at = pool_take(pool, bytes, 8), *n = pool_take(pool, bytes, 8);
    uint64_t *stride = pool_take(pool, bytes, 8), packed = 1, skipped = 0;

    for (int k = ndim - 1; k >= 0; k--) {
        uint64_t low = b->start[k] > start[k] ? b->start[k] : start[k];
        uint64_t high = b->start[k] + b->size[k];

        high = high < start[k] + size[k] ? high : start[k] + size[k];
        if (low >= high)
            return false;
        stride[k] = b->stride ? b->stride[k] : packed;
        packed *= b->size[k];
        skipped += (low - b->start[k]) * stride[k];
        at[k] = low - start[k];
        n[k] = high - low;
    }
    *out = (struct box){ .input = b->input,
                         .offset = b->offset + skipped * width,
                         .start = at,
                         .size = n,
                         .stride = stride };
    return true;
}

int boxes_cut(const struct boxes **out, struct pool *pool, const struct boxes *b,
              size_t width, uint64_t first, uint64_t count, uint64_t row,
              const char *path, const char *name, struct err *err)
{
    uint64_t *start = pool_take(pool, ((size_t)b->ndim + 1) * sizeof(*start), 8);
    uint64_t *size = pool_take(pool, ((size_t)b->ndim + 1) * sizeof(*size), 8);
    struct box *box = xmalloc((b->n + 1) * sizeof(*box));
    uint64_t rest = first;
    size_t n = 0;
    int ret;

    if (b->make) {
        free(box);
        return err_set(err, ERR_NO,
                       "%s: tensor %s: a part of a matrix in 4 bits is not read", path,
                       name);
    }
    for (int k = b->ndim - 1; k >= 0; k--) {
        size[k] = 1;
        start[k] = rest;
        if (k > 0 && b->shape[k]) {
            start[k] = rest % b->shape[k];
            rest /= b->shape[k];
        }
    }
    if (b->ndim == 1) {
        size[0] = count;
    } else if (b->ndim > 1 && row && row == b->shape[b->ndim - 1]) {
        size[b->ndim - 1] = row;
        size[b->ndim - 2] = count / row;
    }
    for (size_t i = 0; i < b->n; i++)
        n += meet(&box[n], pool, &b->box[i], b->ndim, start, size, width);
    ret = boxes_new(out, pool, b->ndim, size, box, n, path, name, err);
    free(box);
    return ret;
}

/* ---- reading ---- */

/* A box as lines: runs of elements that are neighbours in the tensor and in the file.
 */
struct lines {
    const struct box *box;
    int outer;       /* axes that number the lines */
    uint64_t run, n; /* elements of a line, number of lines */
    uint64_t flat[TENSOR_MAX_DIMS], stride[TENSOR_MAX_DIMS]; /* steps along an axis */
};

static void make_lines(struct lines *l, const struct boxes *b, const struct box *box)
{
    uint64_t flat = 1, packed = 1;
    bool joined = true;

    l->box = box;
    for (int k = b->ndim - 1; k >= 0; k--) {
        l->flat[k] = flat;
        l->stride[k] = box->stride ? box->stride[k] : packed;
        flat *= b->shape[k];
        packed *= box->size[k];
    }
    l->outer = b->ndim;
    l->run = l->n = 1;
    for (int k = b->ndim - 1; k >= 0; k--) {
        joined = joined && ((l->flat[k] == l->run && l->stride[k] == l->run) ||
                            box->size[k] == 1);
        if (!joined) {
            l->n *= box->size[k];
            continue;
        }
        l->outer = k;
        l->run *= box->size[k];
    }
}

/* Sets where line I begins in the tensor and in the file, in elements. */
static void find_line(const struct lines *l, uint64_t i, uint64_t *flat, uint64_t *file)
{
    *flat = *file = 0;
    for (int k = l->outer - 1; k >= 0; k--) {
        uint64_t at = i % l->box->size[k];

        i /= l->box->size[k];
        *flat += at * l->flat[k];
        *file += at * l->stride[k];
    }
}

/* The flat index of the box's first element. */
static uint64_t first_element(const struct lines *l, int ndim)
{
    uint64_t first = 0;

    for (int k = 0; k < ndim; k++)
        first += l->box->start[k] * l->flat[k];
    return first;
}

/* The first line that ends after the flat index AT; .n when there is none. */
static uint64_t line_after(const struct lines *l, uint64_t first, uint64_t at)
{
    uint64_t low = 0, high = l->n, flat, file;

    while (low < high) {
        uint64_t middle = low + (high - low) / 2;

        find_line(l, middle, &flat, &file);
        if (first + flat + l->run > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* What one call reads of one box. */
struct reading {
    struct lines lines;
    uint64_t first, begin, end; /* of the box; flat range that is read */
    uint64_t line, last;        /* lines [line, last) meet the range */
    size_t width;
    unsigned char *buf; /* of .begin */
    int fd;
    const char *name;
};

/* The part of line I in the range: its place in the buffer, in the file, its length. */
static uint64_t clip(const struct reading *r, uint64_t i, uint64_t *at, uint64_t *file)
{
    uint64_t flat, begin, end;

    find_line(&r->lines, i, &flat, file);
    flat += r->first;
    begin = flat > r->begin ? flat : r->begin;
    end = flat + r->lines.run < r->end ? flat + r->lines.run : r->end;
    *at = begin - r->begin;
    *file += begin - flat;
    return end - begin;
}

/* Copies all lines from BYTES, which begins at element BASE of the box in the file. */
static void scatter(const struct reading *r, const unsigned char *bytes, uint64_t base)
{
    uint64_t at, file;

    for (uint64_t i = r->line; i < r->last; i++) {
        uint64_t n = clip(r, i, &at, &file);

        memcpy(r->buf + at * r->width, bytes + (file - base) * r->width,
               (size_t)n * r->width);
    }
}

static int read_span(const struct reading *r, uint64_t base, uint64_t span,
                     struct err *err)
{
    size_t bytes = (size_t)span * r->width;
    unsigned char *room = mem_alloc(bytes, "piece of a tensor", err);
    int ret;

    if (!room)
        return -1;
    ret = fs_pread(r->fd, room, bytes, r->lines.box->offset + base * r->width, r->name,
                   err);
    if (ret == 0)
        scatter(r, room, base);
    free(room);
    return ret;
}

static int read_mapped(const struct reading *r, uint64_t base, uint64_t span,
                       struct err *err)
{
    uint64_t offset = r->lines.box->offset + base * r->width;
    uint64_t start = offset - offset % PAGE;
    size_t bytes = (size_t)(offset - start + span * r->width);
    unsigned char *map = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, r->fd, (off_t)start);

    if (map == MAP_FAILED)
        return err_errno(err, "%s", r->name);
    scatter(r, map + (offset - start), base);
    munmap(map, bytes);
    return 0;
}

static int read_lines(const struct reading *r, struct err *err)
{
    uint64_t at, file;

    for (uint64_t i = r->line; i < r->last; i++) {
        uint64_t n = clip(r, i, &at, &file);

        if (fs_pread(r->fd, r->buf + at * r->width, (size_t)n * r->width,
                     r->lines.box->offset + file * r->width, r->name, err) < 0)
            return -1;
    }
    return 0;
}

/* Reads in the way that suits how far apart the lines lie. */
static int read_box(const struct reading *r, struct err *err)
{
    uint64_t at, file, low = UINT64_MAX, high = 0, used = 0;

    for (uint64_t i = r->line; i < r->last; i++) {
        uint64_t n = clip(r, i, &at, &file);

        low = file < low ? file : low;
        high = file + n > high ? file + n : high;
        used += n;
    }
    if (r->last - r->line == 1)
        return read_lines(r, err);
    if (high - low <= 2 * used)
        return read_span(r, low, high - low, err);
    return r->lines.run * r->width < SHORT_RUN ? read_mapped(r, low, high - low, err)
                                               : read_lines(r, err);
}

/* The first box whose flat range, or an earlier one's, ends after FIRST. */
static size_t find_first(const struct boxes *b, uint64_t first)
{
    size_t low = 0, high = b->n;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (b->highest[middle] > first)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

int boxes_read(const struct boxes *b, size_t width, uint64_t first, uint64_t count,
               void *buf, boxes_fd *fd, void *arg, struct err *err)
{
    struct reading r = {
        .begin = first, .end = first + count, .width = width, .buf = buf
    };

    if (b->make)
        return b->make(b, first, count, buf, fd, arg, err);
    if (b->n == 1 && b->box->input == BOXES_ZEROS) {
        if (b->box->made)
            memcpy(buf, (const char *)b->box->made + first * width,
                   (size_t)count * width);
        else
            memset(buf, 0, (size_t)count * width);
        return 0;
    }
    for (size_t i = find_first(b, first); i < b->n && count; i++) {
        make_lines(&r.lines, b, &b->box[i]);
        r.first = first_element(&r.lines, b->ndim);
        if (r.first >= r.end)
            break;
        r.line = line_after(&r.lines, r.first, r.begin);
        r.last = line_after(&r.lines, r.first, r.end - 1);
        if (r.last < r.lines.n) { /* its line may begin in the range */
            uint64_t flat, file;

            find_line(&r.lines, r.last, &flat, &file);
            r.last += r.first + flat < r.end;
        }
        if (r.line >= r.last)
            continue;
        r.fd = fd(arg, b->box[i].input, &r.name, err);
        if (r.fd < 0 || read_box(&r, err) < 0)
            return -1;
    }
    return 0;
}
