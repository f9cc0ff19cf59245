/* renamed - the tensors of another framework under the names of a family */
#include "lib/reshard/renamed.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/ggml.h"
#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/ckpt/boxes.h"
#include "lib/ckpt/form.h"
#include "lib/model/names.h"

/* Bytes of files that account for names: those of a model need none. */
#define MODEL_NAMES (UINT64_MAX / 64)

enum { MOST_BOXES = 1 << 20 }; /* of a tensor */

/* A stored tensor: its shards, or it alone. */
struct stored {
    const struct tensor *t; /* the first shard */
    size_t n;               /* shards */
    bool used;
};

struct renaming {
    struct source *s;
    const struct model *m;
    struct stored *stored; /* sorted by name */
    size_t n;
    struct tensor *made;
    size_t nmade, cap;
};

static int compare_tensors(const void *a, const void *b)
{
    const struct tensor *x = a, *y = b;
    int order = strcmp(x->name, y->name);

    return order ? order : (x->file > y->file) - (x->file < y->file);
}

static struct stored *find(const struct renaming *r, const char *name)
{
    size_t low = 0, high = r->n;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(name, r->stored[middle].t->name);

        if (!order)
            return &r->stored[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

/* ---- one tensor ---- */

/* The stored tensor as a whole: its shape without the axes of a stack, and along which
 * of its axes shards are joined; -1: they are copies. */
struct whole {
    uint64_t shape[TENSOR_MAX_DIMS];
    int ndim, axis;
};

static int wrong_shape(const struct renaming *r, const struct tensor *t,
                       const struct model_tensor *mt, const struct stored *st,
                       struct err *err)
{
    struct str got = { 0 };

    for (int k = 0; k < t->ndim; k++)
        str_addf(&got, "%s%" PRIu64, k ? ", " : "", t->shape[k]);
    err_set(err, ERR_INPUT, "%s: tensor %s, %zu of [%s], cannot hold %s of family %s",
            r->s->path, t->name, st->n, str_text(&got), mt->name, r->m->family);
    str_clear(&got);
    return -1;
}

/* The size along axis K of MT of what ST stores: of blocks, the bytes of its last. */
static uint64_t size_of(const struct model_tensor *mt, const struct tensor *t, int k)
{
    uint64_t size = mt->axis[k]->size;

    return t->blocks && k == mt->ndim - 1 ? size / t->blocks->numbers * t->blocks->bytes
                                          : size;
}

/* Rows of the stored tensor that V needs at least. */
static uint64_t rows_needed(const struct names_view *v, const struct model_tensor *mt)
{
    uint64_t last = v->first;

    if (!v->ndigits)
        return mt->axis[0]->size;
    for (int k = 0; k < v->ndigits; k++)
        last += (v->digit[k].count - 1) * v->digit[k].stride;
    return last + 1;
}

/* Finds how ST holds MT as V says. */
static int find_whole(struct whole *w, const struct renaming *r,
                      const struct stored *st, const struct names_view *v,
                      const struct model_tensor *mt, struct err *err)
{
    const struct tensor *t = st->t;
    uint64_t want[TENSOR_MAX_DIMS];

    w->ndim = t->ndim - v->nlead;
    w->axis = -1;
    if (w->ndim != mt->ndim || (v->nlead && st->n > 1))
        return wrong_shape(r, t, mt, st, err);
    for (int k = 0; k < v->nlead; k++)
        if (v->lead[k] >= t->shape[k])
            return wrong_shape(r, t, mt, st, err);
    for (int k = 0; k < w->ndim; k++) {
        w->shape[k] = t->shape[v->nlead + k];
        want[k] = size_of(mt, t, v->transposed ? w->ndim - 1 - k : k);
    }
    for (int k = 0; k < w->ndim; k++) {
        uint64_t need = k ? want[k] : v->ndigits ? rows_needed(v, mt) : want[0];
        bool fits =
            k || !(v->padded || v->ndigits) ? w->shape[k] == need : w->shape[k] >= need;

        if (fits)
            continue;
        if (w->axis >= 0 || st->n < 2 || w->shape[k] > UINT64_MAX / st->n)
            return wrong_shape(r, t, mt, st, err);
        w->axis = k;
        w->shape[k] *= st->n;
        if (w->shape[k] < need || (w->shape[k] > need && k))
            return wrong_shape(r, t, mt, st, err);
        if (w->shape[k] > need && !v->padded && !v->ndigits)
            return wrong_shape(r, t, mt, st, err);
    }
    return 0;
}

/* Digits of the rows: those of V, or one that is all rows. */
static int digits_of(struct names_digit *digit, const struct names_view *v,
                     uint64_t rows)
{
    if (!v->ndigits) {
        digit[0] = (struct names_digit){ rows, 1 };
        return 1;
    }
    memcpy(digit, v->digit, (size_t)v->ndigits * sizeof(*digit));
    return v->ndigits;
}

/* Which values of a digit have rows in a piece: those in [some, some_end), of which
 * those in [all, all_end) have all of theirs there. */
struct clip {
    uint64_t some, some_end, all, all_end;
};

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The number of values below the first whose row is at least BOUND, when value i has
 * row ROW + i * STRIDE. */
static uint64_t values_below(const struct names_digit *digit, uint64_t row,
                             uint64_t bound)
{
    uint64_t stride = digit->stride ? digit->stride : 1;

    return bound <= row ? 0 : least(digit->count, (bound - row + stride - 1) / stride);
}

/* Clips the first of NDIGITS digits, whose value 0 begins at ROW, to the rows [BEGIN,
 * END). */
static struct clip clip_rows(const struct names_digit *digit, int ndigits, uint64_t row,
                             uint64_t begin, uint64_t end)
{
    uint64_t span = 0;
    struct clip c;

    for (int k = 1; k < ndigits; k++)
        span += (digit[k].count - 1) * digit[k].stride;
    c.some = values_below(digit, row + span, begin);
    c.some_end = values_below(digit, row, end);
    c.all = values_below(digit, row, begin);
    c.all_end = end > span ? values_below(digit, row, end - span) : 0;
    if (c.all_end < c.all)
        c.all_end = c.all;
    return c;
}

/* A piece of the stored tensor: where it begins, without the axes of a stack, and its
 * steps in the file. */
struct piece {
    uint64_t start[TENSOR_MAX_DIMS], size[TENSOR_MAX_DIMS], stride[TENSOR_MAX_DIMS];
    uint64_t offset;
    int input;
};

/* Piece B of the tensor T, whose shape has NDIM axes; false: it has nothing of the
 * stack's member that V means. */
static bool piece_of(struct piece *p, const struct names_view *v, const struct box *b,
                     int ndim, size_t width)
{
    uint64_t packed = 1, stride[TENSOR_MAX_DIMS];

    for (int k = ndim - 1; k >= 0; k--) {
        stride[k] = b->stride ? b->stride[k] : packed;
        packed *= b->size[k];
    }
    *p = (struct piece){ .offset = b->offset, .input = b->input };
    for (int k = 0; k < v->nlead; k++) {
        if (v->lead[k] < b->start[k] || v->lead[k] - b->start[k] >= b->size[k])
            return false;
        p->offset += (v->lead[k] - b->start[k]) * stride[k] * width;
    }
    for (int k = v->nlead; k < ndim; k++) {
        p->start[k - v->nlead] = b->start[k];
        p->size[k - v->nlead] = b->size[k];
        p->stride[k - v->nlead] = stride[k];
    }
    return true;
}

/* Boxes of the new tensor. */
struct boxing {
    struct box *v;
    size_t n, cap;
    uint64_t *shape; /* digits of the rows, and the other axes */
    int ndim;
    struct names_digit digit[NAMES_MOST_DIGITS];
    int ndigits;
};

/* Adds N values of digit K of P's rows from LOW on, whose row 0 is ROW, with the values
 * FIXED of the digits before, and all of those behind. */
static void add_box(struct renaming *r, struct boxing *to, const struct names_view *v,
                    const struct piece *p, const struct whole *w, size_t width, int k,
                    const uint64_t *fixed, uint64_t row, uint64_t low, uint64_t n)
{
    uint64_t *at = pool_take(&r->s->pool, 3 * (size_t)to->ndim * sizeof(*at) + 8, 8);
    uint64_t *start = at, *size = at + to->ndim, *stride = at + 2 * to->ndim;
    int tail = to->ndigits;

    for (int i = 0; i < to->ndigits; i++) {
        start[i] = i < k ? fixed[i] : i == k ? low : 0;
        size[i] = i < k ? 1 : i == k ? n : to->digit[i].count;
        stride[i] = to->digit[i].stride * p->stride[0];
    }
    for (int i = 1; i < w->ndim; i++) {
        start[tail + i - 1] = p->start[i];
        size[tail + i - 1] = p->size[i];
        stride[tail + i - 1] = p->stride[i];
    }
    if (v->transposed) { /* two axes, without digits of its own */
        uint64_t swap[3] = { start[0], size[0], stride[0] };

        start[0] = start[1], size[0] = size[1], stride[0] = stride[1];
        start[1] = swap[0], size[1] = swap[1], stride[1] = swap[2];
    }
    to->v = xgrow(to->v, &to->cap, to->n + 1, sizeof(*to->v));
    to->v[to->n++] =
        (struct box){ .input = p->input,
                      .offset =
                          p->offset + (row + low * to->digit[k].stride - p->start[0]) *
                                          p->stride[0] * width,
                      .start = start,
                      .size = size,
                      .stride = stride };
}

/* Adds the part of P that V means, of the values FIXED of the digits before K, with
 * which row 0 is ROW.  Values of which P has some rows alone are gone through. */
static int add_boxes(struct renaming *r, struct boxing *to, const struct names_view *v,
                     const struct piece *p, const struct whole *w, size_t width, int k,
                     uint64_t *fixed, uint64_t row, const char *name, struct err *err)
{
    struct clip c = clip_rows(to->digit + k, to->ndigits - k, row, p->start[0],
                              p->start[0] + p->size[0]);

    if (c.all < c.all_end)
        add_box(r, to, v, p, w, width, k, fixed, row, c.all, c.all_end - c.all);
    for (uint64_t i = c.some; i < c.some_end && k + 1 < to->ndigits; i++) {
        if (i >= c.all && i < c.all_end)
            continue;
        if (to->n > MOST_BOXES)
            return err_set(err, ERR_INPUT, "%s: tensor %s is stored in too many pieces",
                           r->s->path, name);
        fixed[k] = i;
        if (add_boxes(r, to, v, p, w, width, k + 1, fixed,
                      row + i * to->digit[k].stride, name, err) < 0)
            return -1;
    }
    return 0;
}

/* Adds the pieces of shard SHARD of ST. */
static int add_shard(struct renaming *r, struct boxing *to, const struct stored *st,
                     size_t shard, const struct names_view *v, const struct whole *w,
                     struct err *err)
{
    const struct tensor *t = &st->t[shard];
    size_t width = (size_t)dtype_bits(t->dtype) / 8, n = t->boxes ? t->boxes->n : 1;
    uint64_t zero[TENSOR_MAX_DIMS] = { 0 }, fixed[NAMES_MOST_DIGITS];
    const struct box one = { t->input, t->offset, zero, t->shape, t->stride, NULL };

    for (size_t i = 0; i < n; i++) {
        const struct box *b = t->boxes ? &t->boxes->box[i] : &one;
        struct piece p;

        if (!piece_of(&p, v, b, t->ndim, width))
            continue;
        if (w->axis >= 0)
            p.start[w->axis] += shard * (w->shape[w->axis] / st->n);
        if (!w->ndim) { /* a number: give it a row */
            p.start[0] = 0;
            p.size[0] = p.stride[0] = 1;
        }
        if (add_boxes(r, to, v, &p, w, width, 0, fixed, v->first, t->name, err) < 0)
            return -1;
    }
    return 0;
}

/* Makes the only box of T: the numbers of the vector FROM less V->plus. */
static int subtract(struct renaming *r, struct tensor *t, const struct tensor *from,
                    const struct names_view *v, struct err *err)
{
    const char *path = source_place(r->s, from);
    uint64_t *zero = pool_take(&r->s->pool, sizeof(*zero), 8);
    struct box box = { .input = BOXES_ZEROS, .start = zero, .size = t->shape };
    float *x;
    int fd, ret;

    if (from->dtype != DTYPE_F32 || from->ndim != 1 || from->boxes || from->stride ||
        from->shape[0] != t->shape[0] || t->shape[0] > MOST_BOXES)
        return err_set(err, ERR_INPUT, "%s: tensor %s is no vector of f32", path,
                       from->name);
    fd = fs_open_regular(path, err);
    if (fd < 0)
        return -1;
    x = pool_take(&r->s->pool, (size_t)t->size + 1, 8);
    ret = fs_pread(fd, x, (size_t)t->size, from->offset, path, err);
    close(fd);
    if (ret < 0)
        return -1;
    for (uint64_t i = 0; i < t->shape[0]; i++)
        x[i] -= (float)v->plus;
    *zero = 0;
    box.made = x;
    return boxes_new(&t->boxes, &r->s->pool, 1, t->shape, &box, 1, r->s->path,
                     from->name, err);
}

/* Makes tensor MT of ST as V says. */
static int make(struct renaming *r, const struct model_tensor *mt, struct stored *st,
                const struct names_view *v, struct err *err)
{
    uint64_t *shape =
        pool_take(&r->s->pool, ((size_t)mt->ndim + 2) * sizeof(*shape), 8);
    struct tensor t = { .name = pool_strdup(&r->s->pool, mt->name),
                        .shape = shape,
                        .dtype = st->t->dtype,
                        .ndim = mt->ndim };
    const struct ggml_row *blocks = st->t->blocks;
    struct boxing to = { 0 };
    struct whole w;
    uint64_t elements = 1;
    int ret = -1;

    if (dtype_bits(t.dtype) < 8 || (st->t->boxes && st->t->boxes->ndim != st->t->ndim))
        return wrong_shape(r, st->t, mt, st, err);
    for (size_t i = 0; i < st->n; i++)
        if (st->t[i].boxes && st->t[i].boxes->make)
            return err_set(err, ERR_NO,
                           "%s: tensor %s: is in 4 bits, which is not read under "
                           "another framework's names",
                           r->s->path, st->t[i].name);
    for (size_t i = 1; i < st->n; i++)
        if (st->t[i].dtype != t.dtype || st->t[i].ndim != st->t->ndim ||
            memcmp(st->t[i].shape, st->t->shape,
                   (size_t)st->t->ndim * sizeof(*st->t->shape)) != 0)
            return err_set(err, ERR_INPUT,
                           "%s: tensor %s has another type or shape on rank %zu",
                           r->s->path, st->t->name, i);
    if (find_whole(&w, r, st, v, mt, err) < 0)
        return -1;
    if (blocks &&
        (mt->ndim != 2 || v->transposed || mt->axis[1]->size % blocks->numbers))
        return wrong_shape(r, st->t, mt, st, err);
    for (int k = 0; k < mt->ndim; k++) {
        shape[k] = size_of(mt, st->t, k);
        if (!mem_mul(&elements, elements, shape[k]))
            return wrong_shape(r, st->t, mt, st, err);
    }
    if (!dtype_bytes(&t.size, t.dtype, elements))
        return wrong_shape(r, st->t, mt, st, err);
    if (v->plus) {
        if (subtract(r, &t, st->t, v, err) < 0)
            return -1;
        r->made = xgrow(r->made, &r->cap, r->nmade + 1, sizeof(*r->made));
        r->made[r->nmade++] = t;
        return 0;
    }
    to.ndigits = digits_of(to.digit, v,
                           !mt->ndim       ? 1
                           : v->transposed ? mt->axis[1]->size
                                           : mt->axis[0]->size);
    to.ndim = to.ndigits + (mt->ndim ? mt->ndim - 1 : 0);
    to.shape = pool_take(&r->s->pool, (size_t)to.ndim * sizeof(*to.shape), 8);
    for (int k = 0; k < to.ndigits; k++)
        to.shape[k] = to.digit[k].count;
    for (int k = 1; k < mt->ndim; k++)
        to.shape[to.ndigits + k - 1] = shape[k];
    if (v->transposed) {
        to.shape[0] = mt->axis[0]->size;
        to.shape[1] = mt->axis[1]->size;
    }
    for (size_t i = 0; i < (w.axis < 0 ? 1 : st->n); i++)
        if (add_shard(r, &to, st, i, v, &w, err) < 0)
            goto out;
    if (boxes_new(&t.boxes, &r->s->pool, to.ndim, to.shape, to.v, to.n, r->s->path,
                  st->t->name, err) < 0)
        goto out;
    form_join_boxes(&t);
    if (blocks) {
        char *name = str_dupf("%s.%s", mt->name, blocks->name);

        t.name = pool_strdup(&r->s->pool, name);
        shape[t.ndim - 1] /= blocks->bytes;
        shape[t.ndim++] = blocks->bytes;
        t.stride = NULL;
        free(name);
    }
    r->made = xgrow(r->made, &r->cap, r->nmade + 1, sizeof(*r->made));
    r->made[r->nmade++] = t;
    ret = 0;
out:
    free(to.v);
    return ret;
}

/* ---- all tensors ---- */

/* Makes tensor T, if it is stored in one of the ways that the family knows. */
static int make_tensor(struct renaming *r, size_t t, struct err *err)
{
    for (size_t way = 0;; way++) {
        struct names_view v;
        struct stored *st;
        int ret = names_view(&v, r->m, r->s->dialect, t, way, 1, err);

        if (ret <= 0)
            return ret;
        st = find(r, v.stored);
        free(v.stored);
        if (!st)
            continue;
        st->used = true;
        /* only now is it known into how many shards it is cut */
        if (names_view(&v, r->m, r->s->dialect, t, way, st->n, err) < 0)
            return -1;
        ret = make(r, &r->m->tensor[t], st, &v, err);
        free(v.stored);
        return ret;
    }
}

static int check_used(const struct renaming *r, struct err *err)
{
    for (size_t i = 0; i < r->n; i++)
        if (!r->stored[i].used)
            return err_set(err, ERR_INPUT,
                           "%s: tensor %s: family %s does not know it in a checkpoint "
                           "of %s",
                           r->s->path, r->stored[i].t->name, r->m->family,
                           r->s->dialect);
    return 0;
}

/* Lists the stored tensors, without those that are of no use. */
static void list_stored(struct renaming *r, struct tensor *t, size_t n)
{
    r->stored = xcalloc(n + 1, sizeof(*r->stored));
    for (size_t i = 0, k; i < n; i = k) {
        for (k = i + 1; k < n && !strcmp(t[i].name, t[k].name);)
            k++;
        if (!names_ignores(r->m, r->s->dialect, t[i].name))
            r->stored[r->n++] = (struct stored){ .t = &t[i], .n = k - i };
    }
}

/* Joins the bytes of each block of T's rows to those of the rows. */
static void join_blocks(struct source *s, struct tensor *t)
{
    uint64_t *shape = pool_take(&s->pool, (size_t)t->ndim * sizeof(*shape), 8);

    memcpy(shape, t->shape, (size_t)t->ndim * sizeof(*shape));
    t->ndim--;
    shape[t->ndim - 1] *= shape[t->ndim];
    t->shape = shape;
}

/* Makes R's tensors of the N stored ones at T, which it orders and whose names it
 * shortens. */
static int rename_set(struct renaming *r, struct tensor *t, size_t n, struct err *err)
{
    struct source *s = r->s;
    int ret = 0;

    for (size_t i = 0; i < n; i++) /* what wraps the model */
        while (str_starts(t[i].name, "module.") || str_starts(t[i].name, "model."))
            t[i].name = strchr(t[i].name, '.') + 1;
    for (size_t i = 0; i < n; i++)
        if (t[i].blocks)
            join_blocks(s, &t[i]);
    if (n)
        qsort(t, n, sizeof(*t), compare_tensors);
    for (size_t i = 1; i < n && ret == 0; i++) /* such as module.NAME and NAME */
        if (!strcmp(t[i].name, t[i - 1].name) &&
            (!s->nraw || t[i].file == t[i - 1].file) &&
            !names_ignores(r->m, s->dialect, t[i].name))
            ret = err_set(err, ERR_INPUT,
                          "%s: tensor %s is stored twice, with a prefix and without",
                          s->path, t[i].name);
    list_stored(r, t, n);
    for (size_t i = 0; i < r->m->ntensors && ret == 0; i++)
        ret = make_tensor(r, i, err);
    if (ret == 0)
        ret = check_used(r, err);
    free(r->stored);
    r->stored = NULL;
    r->n = 0;
    return ret;
}

/* Renames the state in ROLE of N states at STATE. */
static int rename_state(struct source *s, const struct model *m, const char *role,
                        const struct tensor *state, const char *const *roles, size_t n,
                        struct err *err)
{
    struct renaming r = { .s = s, .m = m };
    struct tensor *t = xmalloc((n + 1) * sizeof(*t));
    size_t k = 0, end = strlen(role) + 1;
    int ret;

    for (size_t i = 0; i < n; i++)
        if (!strcmp(roles[i], role)) {
            t[k] = state[i];
            t[k++].name =
                pool_strndup(&s->pool, state[i].name, strlen(state[i].name) - end);
        }
    ret = rename_set(&r, t, k, err);
    for (size_t i = 0; i < r.nmade && ret == 0; i++)
        ret = form_add_state(s, &r.made[i], r.made[i].name, role, MODEL_NAMES, s->path,
                             err);
    free(r.made);
    free(t);
    return ret;
}

/* Renames the training state, a role after another. */
static int rename_states(struct source *s, const struct model *m, struct err *err)
{
    struct tensor *state = s->state;
    const char **roles = s->role;
    size_t n = s->nstates;
    int ret = 0;

    s->state = NULL;
    s->role = NULL;
    free(s->group);
    s->group = NULL;
    s->nstates = s->state_cap = s->role_cap = s->group_cap = 0;
    for (size_t i = 0; i < n && ret == 0; i++) {
        size_t first = 0;

        while (strcmp(roles[first], roles[i]) != 0)
            first++;
        if (first == i)
            ret = rename_state(s, m, roles[i], state, roles, n, err);
    }
    free(state);
    free(roles);
    return ret;
}

static int rename_all(struct source *s, const struct model *m, struct err *err)
{
    const struct tensor *raw = s->nraw ? s->raw : s->tensor;
    size_t n = s->nraw ? s->nraw : s->n;
    struct renaming r = { .s = s, .m = m };
    struct tensor *t = xmalloc((n + 1) * sizeof(*t));
    int ret;

    if (n)
        memcpy(t, raw, n * sizeof(*t));
    ret = rename_set(&r, t, n, err);
    if (ret == 0)
        ret = form_present(s, r.made, r.nmade, err);
    if (ret == 0)
        ret = rename_states(s, m, err);
    free(r.made);
    free(t);
    return ret;
}

/* ---- prefixes ---- */

static const char *const INNER[] = { "_orig_mod.", "_fsdp_wrapped_module.",
                                     "_checkpoint_wrapped_module.", NULL };
static const char *const OUTER[] = {
    "", "module.", "model.", "module.model.", "model.module.", NULL
};

/* NAME without the parts of INNER, and without OUTER in front; NULL if it lacks that.
 */
static char *strip(const char *name, const char *outer)
{
    struct str out = { 0 };

    while (*name) {
        int k = 0;

        while (INNER[k] && !str_starts(name, INNER[k]))
            k++;
        if (INNER[k])
            name += strlen(INNER[k]);
        else
            str_addc(&out, *name++);
    }
    if (str_starts(str_text(&out), outer)) {
        char *rest = xstrdup(str_text(&out) + strlen(outer));

        str_clear(&out);
        return rest;
    }
    str_clear(&out);
    return NULL;
}

static bool all_known(const struct source *s, const struct model *m, const char *outer,
                      bool as_is)
{
    for (size_t i = 0; i < s->n; i++) {
        char *name =
            as_is ? xstrdup(s->tensor[i].name) : strip(s->tensor[i].name, outer);
        bool known = name && model_knows(m, name);

        free(name);
        if (!known)
            return false;
    }
    return true;
}

static int strip_all(struct source *s, const char *outer, struct err *err)
{
    struct tensor *t = xmalloc((s->n + 1) * sizeof(*t));
    size_t n = s->n;
    int ret;

    for (size_t i = 0; i < n; i++) {
        char *name = strip(s->tensor[i].name, outer);

        t[i] = s->tensor[i];
        t[i].name = pool_strdup(&s->pool, name);
        free(name);
    }
    if (n && !s->stripped)
        s->stripped = pool_strndup(&s->pool, s->tensor[0].name,
                                   strlen(s->tensor[0].name) - strlen(t[0].name));
    ret = form_present(s, t, n, err);
    free(t);
    return ret;
}

int renamed_apply(struct source *s, const struct model *m, struct err *err)
{
    if (s->dialect && !s->nraw && s->n && all_known(s, m, "", true))
        return 0; /* a family's own names look like the dialect's */
    if (s->dialect && !names_has(m, s->dialect))
        return err_set(err, ERR_INPUT,
                       "%s: a checkpoint of %s, whose names of family %s are not known",
                       s->path, s->dialect, m->family);
    if (s->dialect)
        return rename_all(s, m, err);
    if (!s->n || s->nstates || all_known(s, m, "", true))
        return 0;
    for (size_t k = 0; OUTER[k]; k++)
        if (all_known(s, m, OUTER[k], false))
            return strip_all(s, OUTER[k], err);
    return 0;
}
