/* cut - copies a tensor between two shardings, in bounded memory
 *
 * Let the tensor's axes be 0 .. n-1.  One of them is the row axis; the copy takes as
 * many of its rows as fit BLOCK bytes.  Axes before it are outer axes, taken one index
 * at a time; the axes after it make up a row.  What a part stores of a row is a list of
 * byte ranges, the same for all rows. */
#include "lib/reshard/cut.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/hash.h"
#include "lib/base/mem.h"

enum { BLOCK = 4 << 20 };

/* A byte range of a row (WHOLE: its offset in the tensor's row) and its offset in the
 * part's row (LOCAL). */
struct piece {
    uint64_t whole, local, count;
    bool owned;
};

/* The CRC of bytes that arrive in any order.  Contiguous bytes extend the current
 * stretch; a finished stretch is shifted to its place and added.  The CRC is linear, so
 * the order of the additions does not matter. */
struct sum {
    uint64_t size, next;
    uint32_t stretch, total;
};

/* One part of one side, for the current tensor. */
struct part {
    struct slice slice;
    uint64_t row_bytes; /* bytes of a row in this part */
    uint64_t rows;      /* size of the row axis in this part */
    uint64_t bytes;
    uint64_t pad_bytes;  /* of these, padding at the end */
    struct piece *piece; /* the ranges of a row */
    size_t npieces, cap;
    struct sum sum;
    uint64_t outer; /* local index of the current outer index tuple */
    bool outer_held, outer_owned;
    bool used;
};

struct side {
    const struct cut_side *api;
    struct part *part;
    int nparts;
    enum dtype dtype;
};

struct cut {
    struct side from, to;
    int ndim;
    uint64_t dim[MODEL_MAX_DIMS];
    int row_axis;
    uint64_t first, rows; /* of axis 0, to copy */
    uint64_t group;       /* see cut_tensor */
    const char *name;
    unsigned char *block, *cast,
        *stage; /* BLOCK bytes or one row; cast: converted, or NULL */
    uint64_t block_cap, cast_cap, stage_cap;
    struct runs whole[MODEL_MAX_DIMS]; /* one run per whole axis, for parts with all */
    struct run whole_run[MODEL_MAX_DIMS];
};

struct cut *cut_new(void)
{
    return xcalloc(1, sizeof(struct cut));
}

static void free_parts(struct side *s)
{
    for (int p = 0; p < s->nparts; p++)
        free(s->part[p].piece);
    free(s->part);
}

void cut_free(struct cut *c)
{
    if (!c)
        return;
    free_parts(&c->from);
    free_parts(&c->to);
    free(c->block);
    free(c->cast);
    free(c->stage);
    free(c);
}

/* ---- CRCs ---- */

static void sum_add(struct sum *s, uint64_t offset, const void *p, size_t n)
{
    if (offset != s->next) {
        s->total ^= hash_crc32_join(s->stretch, 0, s->size - s->next);
        s->stretch = 0;
    }
    s->stretch = hash_crc32(s->stretch, p, n);
    s->next = offset + n;
}

static uint32_t sum_end(const struct sum *s)
{
    return s->total ^ hash_crc32_join(s->stretch, 0, s->size - s->next);
}

/* ---- what a part stores ---- */

/* Leaves out axis K.  Parts with other shards along it store the same: the primary one
 * is whoever owns its first element. */
static void leave_out(struct slice *s, int k)
{
    const struct runs *r = s->runs[k];
    bool first = false;

    for (size_t i = 0; i < r->n; i++)
        first |= r->v[i].start == 0 && r->v[i].count && r->v[i].owned;
    s->primary &= first;
    s->ndim--;
    for (int i = k; i < s->ndim; i++)
        s->runs[i] = s->runs[i + 1];
    if (k == 0)
        s->pad = 0;
}

void cut_part_slice(struct slice *out, const struct cut_side *side, int p,
                    const struct cut_tensor *t)
{
    if (side->cutter && t->model >= 0)
        cutter_slice(side->cutter[p], (size_t)t->model, out);
    else
        *out = (struct slice){ .held = p == 0, .primary = true };
    if (t->lacks && out->ndim)
        leave_out(out, t->lacks - 1);
}

/* Size of axis K in the part, with padding. */
static uint64_t stored_size(const struct slice *s, const struct cut_tensor *t, int k)
{
    return s->cut ? s->runs[k]->count + (k ? 0 : s->pad) : t->shape[k];
}

int cut_part_bytes(uint64_t *bytes, bool *held, const struct cut_side *side, int p,
                   const struct cut_tensor *t, enum dtype dtype, struct err *err)
{
    uint64_t elements = 1;
    struct slice s;

    cut_part_slice(&s, side, p, t);
    *held = s.held;
    *bytes = 0;
    if (!s.held)
        return 0;
    for (int k = 0; k < t->ndim; k++)
        if (!mem_mul(&elements, elements, stored_size(&s, t, k)))
            return err_set(err, ERR_INPUT, "%s: its shape overflows", t->name);
    if (!dtype_bytes(bytes, dtype, elements))
        return err_set(err, ERR_INPUT,
                       "%s: a part of it is not a whole number of bytes in %s", t->name,
                       dtype_name(dtype));
    return 0;
}

void cut_part_shape(uint64_t *shape, const struct cut_side *side, int p,
                    const struct cut_tensor *t)
{
    struct slice s;

    cut_part_slice(&s, side, p, t);
    for (int k = 0; k < t->ndim; k++)
        shape[k] = stored_size(&s, t, k);
}

/* Bytes of N elements of a row; cut_part_bytes checked that they are whole bytes. */
static uint64_t row_bytes(enum dtype t, uint64_t n)
{
    return n * (uint64_t)dtype_bits(t) / 8;
}

/* Appends a range to PART's row, or extends the last range when they are adjacent. */
static void add_piece(struct part *p, uint64_t whole, uint64_t count, bool owned)
{
    struct piece *last = p->npieces ? &p->piece[p->npieces - 1] : NULL;

    if (last && last->whole + last->count == whole && last->owned == owned) {
        last->count += count;
    } else {
        p->piece = xgrow(p->piece, &p->cap, p->npieces + 1, sizeof(*p->piece));
        p->piece[p->npieces++] = (struct piece){ whole, p->row_bytes, count, owned };
    }
    p->row_bytes += count;
}

/* Appends the ranges of a row from axis K inwards; BASE is the offset in elements that
 * the axes before K give. */
static int add_pieces(const struct cut *c, struct part *p, enum dtype dtype, int k,
                      uint64_t base, bool owned, struct err *err)
{
    const struct runs *r;

    if (k >= c->ndim) { /* a row of one element */
        if (dtype_bits(dtype) % 8)
            return err_set(err, ERR_INPUT, "%s cannot be cut by single elements",
                           dtype_name(dtype));
        add_piece(p, row_bytes(dtype, base), row_bytes(dtype, 1), owned);
        return 0;
    }
    r = p->slice.runs[k];
    for (size_t i = 0; i < r->n; i++) {
        bool all = owned && r->v[i].owned;

        if (k + 1 < c->ndim) {
            for (uint64_t e = 0; e < r->v[i].count; e++)
                if (add_pieces(c, p, dtype, k + 1,
                               (base + r->v[i].start + e) * c->dim[k + 1], all,
                               err) < 0)
                    return -1;
            continue;
        }
        if ((base + r->v[i].start) * (uint64_t)dtype_bits(dtype) % 8 ||
            r->v[i].count * (uint64_t)dtype_bits(dtype) % 8)
            return err_set(err, ERR_INPUT, "%s cannot be cut inside a byte",
                           dtype_name(dtype));
        add_piece(p, row_bytes(dtype, base + r->v[i].start),
                  row_bytes(dtype, r->v[i].count), all);
    }
    return 0;
}

static bool owns_some(const struct cut *c, const struct slice *s)
{
    if (!s->primary)
        return false;
    for (int k = 0; k < c->ndim; k++) {
        bool some = !s->runs[k]->n;

        for (size_t i = 0; i < s->runs[k]->n && !some; i++)
            some = s->runs[k]->v[i].owned;
        if (!some)
            return false;
    }
    return true;
}

/* Prepares SIDE for the tensor.  Selects the parts to use: those that store some of it
 * and, when READING, are the primary replica of some of it. */
static int prepare(struct cut *c, struct side *s, const struct cut_side *api,
                   const struct cut_tensor *t, enum dtype dtype, bool flat,
                   bool reading, struct err *err)
{
    if (s->nparts < api->nparts) {
        s->part = xrealloc(s->part, (size_t)api->nparts * sizeof(*s->part));
        memset(s->part + s->nparts, 0,
               (size_t)(api->nparts - s->nparts) * sizeof(*s->part));
        s->nparts = api->nparts;
    }
    s->api = api;
    s->dtype = dtype;
    for (int i = 0; i < api->nparts; i++) {
        struct part *p = &s->part[i];
        struct piece *piece = p->piece;
        size_t cap = p->cap;

        *p = (struct part){ .piece = piece, .cap = cap };
        cut_part_slice(&p->slice, api, i, t);
        if (flat || !p->slice.cut)
            for (int k = 0; k < c->ndim; k++)
                p->slice.runs[k] = &c->whole[k];
        p->used =
            p->slice.held && (!reading || api->replicas || owns_some(c, &p->slice));
        if (!p->used)
            continue;
        if (cut_part_bytes(&p->bytes, &p->used, api, i, t, dtype, err) < 0)
            return -1;
        p->sum.size = p->bytes;
        if (!p->bytes)
            continue;
        if (p->slice.pad)
            p->pad_bytes =
                p->bytes / (p->slice.runs[0]->count + p->slice.pad) * p->slice.pad;
        p->rows = p->slice.runs[c->row_axis]->count;
        if (flat) /* one axis, of bytes */
            add_piece(p, 0, 1, true);
        else if (add_pieces(c, p, dtype, c->row_axis + 1, 0, true, err) < 0)
            return err_prefix(err, "%s", t->name);
        for (size_t k = 0; api->replicas && k < p->npieces; k++)
            p->piece[k].owned = true;
    }
    return 0;
}

/* ---- geometry ---- */

static void set_whole_runs(struct cut *c)
{
    for (int k = 0; k < c->ndim; k++) {
        c->whole_run[k] = (struct run){ 0, c->dim[k], true };
        c->whole[k] = (struct runs){ &c->whole_run[k], c->dim[k] ? 1 : 0, c->dim[k] };
    }
}

static bool any_cut(const struct cut_side *side, const struct cut_tensor *t)
{
    struct slice s;

    if (!side->cutter || t->model < 0)
        return false;
    for (int p = 0; p < side->nparts; p++) {
        cut_part_slice(&s, side, p, t);
        if (s.held && s.cut)
            return true;
    }
    return false;
}

/* Bytes of a row of the whole tensor. */
static uint64_t whole_row(const struct cut *c, enum dtype dtype, bool flat)
{
    uint64_t n = 1;

    for (int k = c->row_axis + 1; k < c->ndim; k++)
        n *= c->dim[k];
    return flat ? 1 : row_bytes(dtype, n);
}

/* The first axis with rows that fit a block, in the wider of the two types. */
static int choose_row_axis(const struct cut *c, const struct cut_tensor *t)
{
    int bits = dtype_bits(t->from) > dtype_bits(t->to) ? dtype_bits(t->from)
                                                       : dtype_bits(t->to);
    uint64_t inner = 1;
    int axis = c->ndim - 1;

    while (axis > 0 && inner * c->dim[axis] * (uint64_t)bits / 8 <= BLOCK)
        inner *= c->dim[axis--];
    return axis;
}

static int reserve(unsigned char **buf, uint64_t *cap, uint64_t need, struct err *err)
{
    if (need <= *cap)
        return 0;
    free(*buf);
    *cap = 0;
    *buf = mem_alloc(need, "copy buffer", err);
    if (!*buf)
        return -1;
    *cap = need;
    return 0;
}

/* ---- moving a block ---- */

/* Finds the outer index tuple INDEX in part P. */
static void locate_outer(const struct cut *c, struct part *p, const uint64_t *index)
{
    p->outer = 0;
    p->outer_held = p->outer_owned = true;
    for (int k = 0; k < c->row_axis; k++) {
        const struct runs *r = p->slice.runs[k];
        uint64_t local = 0;
        size_t i = 0;

        while (i < r->n &&
               (index[k] < r->v[i].start || index[k] - r->v[i].start >= r->v[i].count))
            local += r->v[i++].count;
        if (i == r->n) {
            p->outer_held = false;
            return;
        }
        p->outer = p->outer * r->count + local + index[k] - r->v[i].start;
        p->outer_owned &= r->v[i].owned;
    }
}

/* Copies ROWS rows between BLOCK (rows of WHOLE bytes) and LOCAL, the part's bytes. */
static void move_rows(const struct part *p, unsigned char *block, uint64_t whole,
                      unsigned char *local, uint64_t rows, bool reading, bool owned)
{
    for (uint64_t r = 0; r < rows; r++)
        for (size_t i = 0; i < p->npieces; i++) {
            const struct piece *e = &p->piece[i];
            unsigned char *a = block + r * whole + e->whole;
            unsigned char *b = local + r * p->row_bytes + e->local;

            if (!reading)
                memcpy(b, a, (size_t)e->count);
            else if (owned && e->owned)
                memcpy(a, b, (size_t)e->count);
        }
}

/* Translates COUNT group indices at X between the tensor's numbering and the part's
 * (READING: from the part's).  They are the rows from WHOLE on of the tensor, from
 * LOCAL on of the part.  Fails when rows are not in the order of their groups
 * (act-order), because then a shard cannot renumber them. */
static int renumber(const struct cut *c, const struct part *p, unsigned char *x,
                    uint64_t whole, uint64_t local, uint64_t count, bool reading,
                    struct err *err)
{
    if (p->rows == c->dim[0])
        return 0;
    for (uint64_t i = 0; i < count; i++, x += sizeof(int32_t)) {
        int64_t in_whole = (int64_t)((whole + i) / c->group);
        int64_t in_part = (int64_t)((local + i) / c->group);
        int32_t value;

        memcpy(&value, x, sizeof(value));
        if (value != (reading ? in_part : in_whole))
            return err_set(err, ERR_INPUT,
                           "%s: rows that are not in the order of their groups "
                           "(row %llu in group %ld) cannot be cut",
                           c->name, (unsigned long long)(whole + i), (long)value);
        value = (int32_t)(reading ? in_whole : in_part);
        memcpy(x, &value, sizeof(value));
    }
    return 0;
}

/* Moves the rows [r0, r0 + n) of the current outer index between BLOCK and part I of
 * S. */
static int move_part(struct cut *c, struct side *s, int i, unsigned char *block,
                     uint64_t whole, uint64_t r0, uint64_t n, bool reading, bool counts,
                     struct err *err)
{
    struct part *p = &s->part[i];
    const struct runs *r = p->slice.runs[c->row_axis];
    bool direct = p->npieces == 1 && p->row_bytes == whole && !c->group;
    uint64_t local = 0;

    for (size_t k = 0; k < r->n; local += r->v[k++].count) {
        uint64_t from = r->v[k].start > r0 ? r->v[k].start : r0;
        uint64_t to = r->v[k].start + r->v[k].count;
        bool owned = s->api->replicas || (p->outer_owned && r->v[k].owned);
        unsigned char *bytes, *rows;
        uint64_t offset, size, count;

        to = to < r0 + n ? to : r0 + n;
        if (from >= to)
            continue;
        count = to - from;
        rows = block + (from - r0) * whole;
        offset = (p->outer * p->rows + local + from - r->v[k].start) * p->row_bytes;
        size = count * p->row_bytes;
        bytes = direct && (!reading || owned) ? rows : c->stage;
        if (!reading && bytes == c->stage)
            move_rows(p, rows, whole, bytes, count, false, true);
        if (!reading && c->group &&
            renumber(c, p, bytes, from, local + from - r->v[k].start, count, false,
                     err) < 0)
            return -1;
        if (s->api->io(s->api->arg, i, offset, bytes, (size_t)size, err) < 0)
            return -1;
        if (counts)
            sum_add(&p->sum, offset, bytes, (size_t)size);
        if (reading && c->group &&
            renumber(c, p, bytes, from, local + from - r->v[k].start, count, true,
                     err) < 0)
            return -1;
        if (reading && bytes == c->stage)
            move_rows(p, rows, whole, bytes, count, true, owned);
    }
    return 0;
}

/* Converts N elements; counts finite values that became infinite. */
static void convert(enum dtype to, void *out, enum dtype from, const void *in,
                    uint64_t n, uint64_t *overflows)
{
    uint16_t *half = out;
    float *single = out;

    for (uint64_t i = 0; i < n; i++) {
        double exact = dtype_get(from, in, i);
        float x = (float)exact;
        float back = x;

        if (to == DTYPE_F16) {
            half[i] = dtype_f32_to_f16(x);
            back = dtype_f16_to_f32(half[i]);
        } else if (to == DTYPE_BF16) {
            half[i] = dtype_f32_to_bf16(x);
            back = dtype_bf16_to_f32(half[i]);
        } else {
            single[i] = x;
        }
        if (isinf(back) && !isinf(exact))
            (*overflows)++;
    }
}

static bool is_wanted(const struct side *to, int i)
{
    return !to->api->wanted || to->api->wanted[i];
}

/* Shortens the *N rows from R0 on of the current outer index to those that the same
 * parts of the target store.  Returns whether to read them; *COUNTS: they count for
 * this copy. */
static bool find_stretch(const struct cut *c, uint64_t r0, uint64_t *n, bool *counts)
{
    uint64_t end = r0 + *n;
    bool any = false;
    int first = -1;

    for (int i = 0; i < c->to.api->nparts; i++) {
        const struct part *p = &c->to.part[i];
        const struct runs *r = p->slice.runs[c->row_axis];

        for (size_t k = 0; p->used && p->outer_held && k < r->n; k++) {
            uint64_t start = r->v[k].start, stop = start + r->v[k].count;

            if (start > r0) {
                end = start < end ? start : end;
            } else if (stop > r0) {
                end = stop < end ? stop : end;
                first = first < 0 ? i : first;
                any |= is_wanted(&c->to, i);
            }
        }
    }
    *n = end - r0;
    *counts = is_wanted(&c->to, first < 0 ? 0 : first);
    return any || *counts;
}

static int copy_blocks(struct cut *c, bool flat, uint64_t *overflows, struct err *err)
{
    bool cast = c->from.dtype != c->to.dtype;
    uint64_t in_row = whole_row(c, c->from.dtype, flat);
    uint64_t out_row = whole_row(c, c->to.dtype, flat);
    uint64_t wide = in_row > out_row ? in_row : out_row;
    uint64_t step = BLOCK / wide ? BLOCK / wide : 1;
    uint64_t low[MODEL_MAX_DIMS] = { c->first }, high[MODEL_MAX_DIMS];
    uint64_t index[MODEL_MAX_DIMS] = { c->first };
    int k;

    memcpy(high, c->dim, sizeof(high));
    high[0] = c->first + c->rows;
    if (step > high[c->row_axis] - low[c->row_axis])
        step = high[c->row_axis] - low[c->row_axis];
    if (reserve(&c->block, &c->block_cap, step * in_row, err) < 0 ||
        reserve(&c->stage, &c->stage_cap, step * wide, err) < 0 ||
        (cast && reserve(&c->cast, &c->cast_cap, step * out_row, err) < 0))
        return -1;
    if (cast) /* elements that no part of the source holds are converted, too, and are
               * no overflows */
        memset(c->block, 0, (size_t)(step * in_row));
    do {
        for (int i = 0; i < c->from.api->nparts; i++)
            locate_outer(c, &c->from.part[i], index);
        for (int i = 0; i < c->to.api->nparts; i++)
            locate_outer(c, &c->to.part[i], index);
        for (uint64_t r0 = low[c->row_axis], n; r0 < high[c->row_axis]; r0 += n) {
            bool counts = true;

            n = high[c->row_axis] - r0 < step ? high[c->row_axis] - r0 : step;
            if (c->to.api->wanted && !find_stretch(c, r0, &n, &counts))
                continue;
            for (int i = 0; i < c->from.api->nparts; i++)
                if (c->from.part[i].used && c->from.part[i].outer_held &&
                    move_part(c, &c->from, i, c->block, in_row, r0, n, true, counts,
                              err) < 0)
                    return -1;
            if (cast)
                convert(c->to.dtype, c->cast, c->from.dtype, c->block,
                        n * in_row * 8 / (uint64_t)dtype_bits(c->from.dtype),
                        overflows);
            for (int i = 0; i < c->to.api->nparts; i++)
                if (c->to.part[i].used && c->to.part[i].outer_held &&
                    is_wanted(&c->to, i) &&
                    move_part(c, &c->to, i, cast ? c->cast : c->block, out_row, r0, n,
                              false, true, err) < 0)
                    return -1;
        }
        for (k = c->row_axis - 1; k >= 0; k--) {
            if (++index[k] < high[k])
                break;
            index[k] = low[k];
        }
    } while (k >= 0);
    return 0;
}

/* Reads or writes the padding at the end of the parts of S. */
static int move_padding(struct cut *c, struct side *s, bool reading, struct err *err)
{
    for (int i = 0; i < s->api->nparts; i++) {
        struct part *p = &s->part[i];

        if (!is_wanted(&c->to, reading ? 0 : i))
            continue;
        for (uint64_t left = p->used ? p->pad_bytes : 0; left;) {
            uint64_t n = left < BLOCK ? left : BLOCK;

            if (reserve(&c->stage, &c->stage_cap, n, err) < 0)
                return -1;
            if (!reading)
                memset(c->stage, 0, (size_t)n);
            if (s->api->io(s->api->arg, i, p->bytes - left, c->stage, (size_t)n, err) <
                0)
                return -1;
            sum_add(&p->sum, p->bytes - left, c->stage, (size_t)n);
            left -= n;
        }
    }
    return 0;
}

int cut_copy(struct cut *c, const struct cut_tensor *t, const struct cut_side *from,
             const struct cut_side *to, uint32_t *from_crc, bool *read,
             uint32_t *to_crc, uint64_t *overflows, struct err *err)
{
    bool flat = t->from == t->to && !t->rows && !any_cut(from, t) && !any_cut(to, t);
    uint64_t elements = 1, bytes, none = 0;

    for (int k = 0; k < t->ndim; k++)
        if (!mem_mul(&elements, elements, t->shape[k]))
            return err_set(err, ERR_INPUT, "%s: its shape overflows", t->name);
    if (!dtype_bytes(&bytes, t->from, elements))
        return err_set(err, ERR_INPUT, "%s: its size overflows", t->name);
    if (flat) {
        c->ndim = 1;
        c->dim[0] = bytes;
    } else if (t->ndim == 0 || t->model < 0) {
        c->ndim = 1;
        c->dim[0] = elements;
    } else {
        c->ndim = t->ndim;
        memcpy(c->dim, t->shape, (size_t)t->ndim * sizeof(*t->shape));
    }
    c->group = !flat && t->ndim == 1 && t->from == DTYPE_I32 ? t->group : 0;
    c->name = t->name;
    c->first = t->first;
    c->rows = t->rows ? t->rows : c->dim[0];
    set_whole_runs(c);
    c->row_axis = flat ? 0 : choose_row_axis(c, t);
    if (prepare(c, &c->from, from, t, t->from, flat, true, err) < 0 ||
        prepare(c, &c->to, to, t, t->to, flat, false, err) < 0)
        return -1;
    if (elements && copy_blocks(c, flat, overflows ? overflows : &none, err) < 0)
        return -1;
    if (!t->rows && (move_padding(c, &c->from, true, err) < 0 ||
                     move_padding(c, &c->to, false, err) < 0))
        return -1;
    for (int i = 0; i < from->nparts; i++) {
        if (from_crc)
            from_crc[i] = sum_end(&c->from.part[i].sum);
        if (read)
            read[i] = c->from.part[i].used;
    }
    for (int i = 0; to_crc && i < to->nparts; i++)
        to_crc[i] = sum_end(&c->to.part[i].sum);
    return 0;
}
