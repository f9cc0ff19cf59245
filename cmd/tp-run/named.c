/* named - the inputs of a text beside its ids, by the names that the model gives them
 */
#include "cmd/tp-run/named.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/ckpt/safetensors.h"

static const struct model_feed *feed_of(const struct session *s, int feed)
{
    return &model_feeds(s->checkpoint->model, NULL)[feed];
}

void named_clear(struct input *one)
{
    for (int i = 0; i < FEEDS_MOST; i++)
        free(one->named[i].v);
    memset(one->named, 0, sizeof(one->named));
}

void named_take(struct input *one, int feed, struct ids *ids)
{
    free(one->named[feed].v);
    one->named[feed] = (struct named){ ids->v, ids->n };
    *ids = (struct ids){ 0 };
}

/* ---- shapes ---- */

static const char *type_of(const struct model_feed *f)
{
    return f->dtype == DTYPE_F32 ? "f32" : "i32";
}

/* Appends the shape of F's rows: "[ROWS, 4] i32"; ROWS as text. */
static void add_shape(struct str *out, const struct model_feed *f, const char *rows)
{
    str_addf(out, "[%s", rows);
    if (f->axis.size != 1)
        str_addf(out, ", %llu", (unsigned long long)f->axis.size);
    str_addf(out, "] %s", type_of(f));
}

/* Refuses the input F, which is GOT; ROWS is what its rows must be, as text. */
static int wrong(const struct input *one, const struct model_feed *f, const char *from,
                 const char *got, const char *rows, struct err *err)
{
    struct str want = { 0 };

    add_shape(&want, f, rows);
    err_set(err, ERR_INPUT, "%s: %s%s'%s' is %s, the model takes %s", one->name, from,
            *from ? ": " : "", f->name, got, str_text(&want));
    str_clear(&want);
    return -1;
}

/* Does the text have a row of F for each token? */
static bool is_by_token(const struct session *s, const struct model_feed *f)
{
    return !strcmp(f->rows, s->rows.v[ROWS_TOKENS].name);
}

/* Makes room for ROWS rows of input FEED of ONE. */
static int make_room(struct input *one, const struct session *s, int feed,
                     uint64_t rows, struct err *err)
{
    const struct model_feed *f = feed_of(s, feed);
    uint64_t bytes;

    if (!f->given)
        return err_set(err, ERR_INPUT, "%s: family %s has no '%s'", one->name,
                       s->checkpoint->model->family, f->name);
    if (!s->reads[feed])
        return err_set(err, ERR_INPUT, "%s: this model does not read '%s'", one->name,
                       f->name);
    if (!rows)
        return err_set(err, ERR_INPUT, "%s: '%s' is empty", one->name, f->name);
    if (!mem_mul(&bytes, rows, f->axis.size * sizeof(int32_t)))
        return err_set(err, ERR_INPUT, "%s: '%s' is too large", one->name, f->name);
    free(one->named[feed].v);
    one->named[feed] = (struct named){ mem_alloc(bytes, f->name, err), (size_t)rows };
    return one->named[feed].v ? 0 : -1;
}

/* ---- numbers ---- */

static int not_finite(const struct input *one, const struct model_feed *f, size_t row,
                      double x, struct err *err)
{
    return err_set(err, ERR_INPUT,
                   "%s: '%s' has %g in row %zu, which is no finite number of f32",
                   one->name, f->name, x, row);
}

/* Puts X at column K of row ROW of input FEED. */
static int put_number(struct input *one, const struct session *s, int feed, size_t row,
                      uint64_t k, double x, struct err *err)
{
    const struct model_feed *f = feed_of(s, feed);
    size_t at = row * f->axis.size + k;

    if (f->dtype == DTYPE_F32 && !isfinite((float)x))
        return not_finite(one, f, row, x, err);
    if (f->dtype == DTYPE_F32) {
        ((float *)one->named[feed].v)[at] = (float)x;
        return 0;
    }
    if (x != floor(x) || !(x >= (f->below ? 0 : INT32_MIN) && x <= INT32_MAX))
        return err_set(err, ERR_INPUT, "%s: '%s' has %g, which is no %s", one->name,
                       f->name, x, f->below ? "whole number from 0" : "whole number");
    if (f->below && f->below[k] && !(x < (double)f->below[k]))
        return err_set(err, ERR_INPUT,
                       "%s: '%s' has %.0f, which is not below the model's %llu",
                       one->name, f->name, x, (unsigned long long)f->below[k]);
    ((int32_t *)one->named[feed].v)[at] = (int32_t)x;
    return 0;
}

static int check_box(const struct input *one, const struct session *s, int feed,
                     size_t row, struct err *err)
{
    const int32_t *x = (const int32_t *)one->named[feed].v + row * 4;

    return !feed_of(s, feed)->boxes || (x[2] >= x[0] && x[3] >= x[1])
               ? 0
               : err_set(err, ERR_INPUT, "%s: a box ends before it begins", one->name);
}

/* ---- JSON ---- */

static int read_row(struct input *one, const struct session *s, int feed, size_t row,
                    const cJSON *value, struct err *err)
{
    const struct model_feed *f = feed_of(s, feed);
    const cJSON *number = cJSON_IsArray(value) ? value->child : value;
    bool single = !cJSON_IsArray(value);
    uint64_t n = 0;

    while (number && n < f->axis.size && cJSON_IsNumber(number)) {
        if (put_number(one, s, feed, row, n++, number->valuedouble, err) < 0)
            return -1;
        number = single ? NULL : number->next;
    }
    if (number && !cJSON_IsNumber(number))
        return err_set(err, ERR_INPUT, "%s: '%s' has an element that is no number",
                       one->name, f->name);
    if (number || n != f->axis.size) {
        char got[48];

        if (single)
            snprintf(got, sizeof(got), "[%zu]", one->named[feed].n);
        else
            snprintf(got, sizeof(got), "[%zu, %d]", one->named[feed].n,
                     cJSON_GetArraySize(value));
        return wrong(one, f, "", got, f->rows, err);
    }
    return check_box(one, s, feed, row, err);
}

/* ---- safetensors ---- */

static void add_tensor_shape(struct str *out, const struct tensor *t)
{
    str_addc(out, '[');
    for (int i = 0; i < t->ndim; i++)
        str_addf(out, "%s%llu", i ? ", " : "", (unsigned long long)t->shape[i]);
    str_addf(out, "] %s", dtype_name(t->dtype));
}

/* The rows of T as COLS columns: [rows, cols], [rows] of one column, or the same in one
 * batch; false: it has another shape. */
static bool rows_of_tensor(const struct tensor *t, uint64_t cols, uint64_t *rows)
{
    const uint64_t *shape = t->shape;
    int ndim = t->ndim;

    if (ndim == (cols == 1 ? 2 : 3) && shape[0] == 1) {
        shape++;
        ndim--;
    }
    *rows = ndim ? shape[0] : 0;
    return cols == 1 ? ndim == 1 || (ndim == 2 && shape[1] == 1)
                     : ndim == 2 && shape[1] == cols;
}

/* Is T's type that of F's numbers?  Integers of any width are whole numbers. */
static bool has_type(const struct tensor *t, enum dtype want)
{
    if (dtype_is_float(t->dtype))
        return want == DTYPE_F32 && dtype_bits(t->dtype) >= 16;
    return want == DTYPE_I32 &&
           (t->dtype == DTYPE_I8 || t->dtype == DTYPE_U8 || t->dtype == DTYPE_I16 ||
            t->dtype == DTYPE_U16 || t->dtype == DTYPE_I32 || t->dtype == DTYPE_U32 ||
            t->dtype == DTYPE_I64 || t->dtype == DTYPE_U64 || t->dtype == DTYPE_BOOL);
}

/* The bytes of T in the open file FD; NULL on failure. */
static char *tensor_bytes(int fd, const char *path, const struct tensor *t,
                          struct err *err)
{
    char *bytes = mem_alloc(t->size + 1, t->name, err);

    if (bytes && fs_pread(fd, bytes, t->size, t->offset, path, err) == 0)
        return bytes;
    free(bytes);
    return NULL;
}

/* Reads T as the ids OUT, of the tokens or of the source. */
static int read_ids(struct input *one, const struct session *s, struct ids *out, int fd,
                    const char *path, const struct tensor *t, struct err *err)
{
    struct str got = { 0 };
    char *bytes, word[24];
    uint64_t rows;
    int ret = 0;

    if (!rows_of_tensor(t, 1, &rows) || !has_type(t, DTYPE_I32)) {
        add_tensor_shape(&got, t);
        err_set(err, ERR_INPUT, "%s: '%s' is %s, the model takes [%s] i32", one->name,
                t->name, str_text(&got), t->name);
        str_clear(&got);
        return -1;
    }
    bytes = tensor_bytes(fd, path, t, err);
    if (!bytes)
        return -1;
    for (uint64_t i = 0; i < rows && ret == 0; i++) {
        snprintf(word, sizeof(word), "%.0f", dtype_get(t->dtype, bytes, i));
        ret = session_parse_ids(s, out, word, one->name, err);
    }
    free(bytes);
    return ret;
}

/* Reads the BYTES of T, ROWS rows of f32, as input FEED. */
static int read_floats(struct input *one, const struct model_feed *f, int feed,
                       const struct tensor *t, const char *bytes, uint64_t rows,
                       struct err *err)
{
    float *x = one->named[feed].v;

    (void)dtype_to_f32(t->dtype, bytes, x, rows * f->axis.size);
    for (uint64_t i = 0; i < rows * f->axis.size; i++)
        if (!isfinite(x[i]))
            return not_finite(one, f, (size_t)(i / f->axis.size), (double)x[i], err);
    return 0;
}

/* Reads T as input FEED; FROM names the file it is in beside ONE, or is empty. */
static int read_tensor(struct input *one, const struct session *s, int feed, int fd,
                       const char *path, const char *from, const struct tensor *t,
                       struct err *err)
{
    const struct model_feed *f = feed_of(s, feed);
    struct str got = { 0 };
    uint64_t rows, n = 0;
    char *bytes;
    int ret = 0;

    if (!rows_of_tensor(t, f->axis.size, &rows) || !has_type(t, f->dtype)) {
        add_tensor_shape(&got, t);
        ret = wrong(one, f, from, str_text(&got), f->rows, err);
        str_clear(&got);
        return ret;
    }
    if (make_room(one, s, feed, rows, err) < 0)
        return -1;
    bytes = tensor_bytes(fd, path, t, err);
    if (!bytes)
        return -1;
    if (f->dtype == DTYPE_F32)
        ret = read_floats(one, f, feed, t, bytes, rows, err);
    for (uint64_t i = 0; i < rows && ret == 0 && f->dtype == DTYPE_I32; i++) {
        for (uint64_t k = 0; k < f->axis.size && ret == 0; k++)
            ret = put_number(one, s, feed, i, k, dtype_get(t->dtype, bytes, n++), err);
        if (ret == 0)
            ret = check_box(one, s, feed, i, err);
    }
    free(bytes);
    return ret;
}

static int open_tensors(struct safetensors *st, const char *path, struct err *err)
{
    int fd = fs_open_regular(path, err);

    if (fd < 0)
        return -1;
    if (safetensors_read(st, NULL, fd, path, err) == 0)
        return fd;
    close(fd);
    return -1;
}

/* The only tensor of the file PATH. */
static int read_file(struct input *one, const struct session *s, int feed,
                     const char *path, struct err *err)
{
    struct safetensors st;
    int fd = open_tensors(&st, path, err), ret;

    if (fd < 0)
        return -1;
    ret = st.n == 1 ? read_tensor(one, s, feed, fd, path, path, &st.tensor[0], err)
                    : err_set(err, ERR_INPUT, "%s: %s: %zu tensors, one is needed",
                              one->name, path, st.n);
    safetensors_clear(&st);
    close(fd);
    return ret;
}

int named_add_tensors(struct input *one, const struct session *s, const char *path,
                      struct err *err)
{
    struct safetensors st;
    int fd = open_tensors(&st, path, err), ret = 0;

    if (fd < 0)
        return -1;
    for (size_t i = 0; i < st.n && ret == 0; i++) {
        const struct tensor *t = &st.tensor[i];
        int feed = model_feed_find(s->checkpoint->model, t->name, strlen(t->name));

        if (feed == FEED_IDS || (feed == FEED_SOURCE && s->reads[FEED_SOURCE]))
            ret = read_ids(one, s, feed == FEED_IDS ? &one->ids : &one->source, fd,
                           path, t, err);
        else if (feed < 0 || !feed_of(s, feed)->given)
            ret = err_set(err, ERR_INPUT, "%s: family %s has no '%s'", one->name,
                          s->checkpoint->model->family, t->name);
        else
            ret = read_tensor(one, s, feed, fd, path, "", t, err);
    }
    safetensors_clear(&st);
    close(fd);
    return ret;
}

/* ---- the members of an object ---- */

static int add_value(struct input *one, const struct session *s, int feed,
                     const cJSON *value, struct err *err)
{
    const struct model_feed *f = feed_of(s, feed);
    const cJSON *row;
    size_t at = 0;

    if (cJSON_IsString(value) && f->given && s->reads[feed])
        return read_file(one, s, feed, value->valuestring, err);
    if (f->given && !cJSON_IsArray(value))
        return err_set(err, ERR_INPUT, "%s: '%s' is neither a file nor a list of %s",
                       one->name, f->name, f->rows);
    if (make_room(one, s, feed, (uint64_t)cJSON_GetArraySize(value), err) < 0)
        return -1;
    cJSON_ArrayForEach(row, value)
    {
        if (read_row(one, s, feed, at++, row, err) < 0)
            return -1;
    }
    return 0;
}

int named_add_json(struct input *one, const struct session *s, const cJSON *root,
                   struct err *err)
{
    const struct model *m = s->checkpoint->model;
    const cJSON *value;

    cJSON_ArrayForEach(value, root)
    {
        int feed = model_feed_find(m, value->string, strlen(value->string));

        if (cJSON_IsNull(value) ||
            (feed >= 0 && feed < FEED_OWN && feed != FEED_TOKEN_TYPES))
            continue;
        if (feed < 0 && feeds_any_has(value->string))
            return err_set(err, ERR_INPUT, "%s: family %s has no '%s'", one->name,
                           m->family, value->string);
        if (feed >= 0 && add_value(one, s, feed, value, err) < 0)
            return -1;
    }
    return 0;
}

/* ---- use ---- */

/* Rows of given spaces that ONE has: those of its inputs. */
static void rows_given(const struct input *one, const struct session *s,
                       size_t rows[ROWS_MOST])
{
    int n;
    const struct model_feed *f = model_feeds(s->checkpoint->model, &n);

    memset(rows, 0, ROWS_MOST * sizeof(*rows));
    rows[ROWS_TOKENS] = one->ids.n;
    rows[ROWS_SOURCE] = one->source.n;
    for (int i = 0; i < n; i++)
        if (one->named[i].v && !is_by_token(s, &f[i]))
            rows[rows_find(&s->rows, f[i].rows, strlen(f[i].rows))] = one->named[i].n;
}

int named_check(struct input *one, const struct session *s, struct err *err)
{
    const struct model *m = s->checkpoint->model;
    size_t rows[ROWS_MOST];
    int n;
    const struct model_feed *f = model_feeds(m, &n);

    for (int i = 0; i < n; i++) {
        char got[48], want[32];

        if (f[i].needed && s->reads[i] && !one->named[i].v)
            return err_set(err, ERR_INPUT,
                           "%s: family %s reads %s: give --input lines such as "
                           "{\"%s\":\"FILE.safetensors\"}, or --input-tensors",
                           one->name, m->family, f[i].name, f[i].name);
        if (!one->named[i].v || !is_by_token(s, &f[i]) || one->named[i].n == one->ids.n)
            continue;
        snprintf(want, sizeof(want), "%zu", one->ids.n);
        if (f[i].axis.size == 1)
            snprintf(got, sizeof(got), "[%zu]", one->named[i].n);
        else
            snprintf(got, sizeof(got), "[%zu, %llu]", one->named[i].n,
                     (unsigned long long)f[i].axis.size);
        return wrong(one, &f[i], "", got, want, err);
    }
    rows_given(one, s, rows);
    for (int i = 0; i < n; i++) {
        int k = rows_find(&s->rows, f[i].rows, strlen(f[i].rows));

        if (one->named[i].v && one->named[i].n != rows[k] && !is_by_token(s, &f[i]))
            return err_set(err, ERR_INPUT, "%s: '%s' has %zu %s, another input %zu",
                           one->name, f[i].name, one->named[i].n, f[i].rows, rows[k]);
    }
    rows_count(&s->rows, rows);
    memcpy(one->rows, rows, sizeof(one->rows));
    return 0;
}

void named_give(const struct input *one, const struct session *s, size_t at,
                const void *input[FEEDS_MOST], size_t rows[ROWS_MOST])
{
    int n;
    const struct model_feed *f = model_feeds(s->checkpoint->model, &n);

    rows_given(one, s, rows);
    rows[ROWS_TOKENS] = 0;
    for (int i = 0; i < n; i++) {
        const struct named *in = &one->named[i];

        input[i] = in->v;
        if (!in->v || !is_by_token(s, &f[i]))
            continue;
        input[i] = at < in->n ? (const int32_t *)in->v + at * f[i].axis.size : NULL;
        rows[ROWS_TOKENS] = at < in->n ? in->n - at : 0;
    }
    input[FEED_SOURCE] = one->source.v;
}

int named_share(struct input *one, const struct session *s, struct err *err)
{
    struct comm *c = s->launcher.world;
    int n;
    const struct model_feed *f = model_feeds(s->checkpoint->model, &n);

    if (comm_run(c, comm_broadcast(one->rows, sizeof(one->rows), 0), err) < 0)
        return -1;
    for (int i = 0; i < n; i++) {
        uint64_t rows = one->named[i].v ? one->named[i].n : 0;
        uint64_t bytes = 0;

        if (comm_run(c, comm_broadcast(&rows, sizeof(rows), 0), err) < 0)
            return -1;
        if (!rows)
            continue;
        bytes = rows * f[i].axis.size * sizeof(int32_t);
        if (!launcher_is_front(&s->launcher)) {
            one->named[i].v = mem_alloc(bytes, f[i].name, err);
            if (!one->named[i].v)
                return -1;
            one->named[i].n = (size_t)rows;
        }
        if (comm_run(c, comm_broadcast(one->named[i].v, bytes, 0), err) < 0)
            return -1;
    }
    return 0;
}
