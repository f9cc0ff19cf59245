/* fourbit - matrices in bitsandbytes' 4 bits, read as the numbers that they stand for
 */
#include "lib/ckpt/fourbit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/json.h"
#include "lib/base/jsonlex.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/ckpt/form.h"

enum { MOST_STATE = 1 << 16, VALUES = 16, SCALES = 256, SOME = 1 << 15 };

static const char STATE[] = ".quant_state.bitsandbytes__";

/* How a matrix is stored. */
struct fourbit {
    const char *name;
    enum dtype dtype; /* of its numbers */
    uint64_t n;       /* numbers */
    uint64_t block;   /* of them have one scale */
    const struct tensor *codes, *scales;
    float value[VALUES];
    bool nested;          /* scales are codes of 8 bits: */
    uint64_t outer;       /* so many have one scale, */
    const float *largest; /* [blocks of blocks], */
    float map[SCALES], offset;
};

/* ---- opening ---- */

struct opening {
    struct source *s;
    struct tensor_index index;
    bool *part;  /* [s->n]: belongs to a matrix */
    bool *taken; /* [s->n]: is the codes of one */
};

/* The tensor NAME and END, or NULL. */
static const struct tensor *find(struct opening *o, const char *name, const char *end)
{
    char *whole = str_dupf("%s%s", name, end);
    long at = tensor_index_find(&o->index, whole);

    free(whole);
    if (at < 0)
        return NULL;
    o->part[at] = true;
    return &o->s->tensor[at];
}

/* Sets *t to the tensor NAME and END, which has N elements of type TYPE. */
static int need(struct opening *o, const struct tensor **t, const char *name,
                const char *end, enum dtype type, uint64_t n, struct err *err)
{
    *t = find(o, name, end);
    if (!*t)
        return err_set(err, ERR_INPUT, "%s: tensor %s: is in 4 bits, but has no %s",
                       o->s->path, name, end + 1);
    if ((*t)->dtype != type || (*t)->size != n * ((uint64_t)dtype_bits(type) / 8) ||
        (*t)->stride || (*t)->boxes)
        return err_set(err, ERR_INPUT, "%s: tensor %s: not %llu numbers of type %s",
                       o->s->path, (*t)->name, (unsigned long long)n, dtype_name(type));
    return 0;
}

/* Reads all of T to TO. */
static int read_all(struct opening *o, const struct tensor *t, void *to,
                    struct err *err)
{
    const char *path = o->s->input[t->input].path;
    int fd = fs_open_regular(path, err);
    int ret = fd < 0 ? -1 : fs_pread(fd, to, (size_t)t->size, t->offset, path, err);

    if (fd >= 0)
        close(fd);
    return ret;
}

static int read_floats(struct opening *o, float *to, const char *name, const char *end,
                       uint64_t n, struct err *err)
{
    const struct tensor *t;

    if (need(o, &t, name, end, DTYPE_F32, n, err) < 0 || read_all(o, t, to, err) < 0)
        return -1;
    for (uint64_t i = 0; i < n; i++)
        if (!isfinite(to[i]))
            return err_set(err, ERR_INPUT, "%s: tensor %s: number %llu is not finite",
                           o->s->path, t->name, (unsigned long long)i);
    return 0;
}

/* What the JSON DOC of F's matrix says; *shape and *ndim become its axes. */
static int read_state(struct opening *o, struct fourbit *f, const struct json_doc *doc,
                      const uint64_t **shape, int *ndim, struct err *err)
{
    const struct json *root = doc->root, *axes = json_get(root, "shape");
    const char *type = json_string(json_get(root, "dtype"));
    double offset = 0;
    uint64_t *size;

    if (!type || !dtype_parse(&f->dtype, type) ||
        (f->dtype != DTYPE_F32 && f->dtype != DTYPE_F16 && f->dtype != DTYPE_BF16))
        return json_error(doc, json_get(root, "dtype"), err,
                          "dtype is none of float32, bfloat16 and float16");
    if (!json_u64(json_get(root, "blocksize"), &f->block) || f->block < 2 ||
        f->block % 2 || f->block > 1 << 16)
        return json_error(doc, root, err, "no blocksize that is even");
    if (!axes || axes->type != JSON_ARRAY || axes->n < 1 || axes->n > TENSOR_MAX_DIMS)
        return json_error(doc, root, err, "no shape");
    size = pool_take(&o->s->pool, axes->n * sizeof(*size), sizeof(*size));
    *shape = size;
    *ndim = (int)axes->n;
    f->n = 1;
    for (const struct json *j = axes->first; j; j = j->next, size++)
        if (!json_u64(j, size) || !*size || !mem_mul(&f->n, f->n, *size) ||
            f->n > UINT64_MAX / 8)
            return json_error(doc, j, err, "the shape is no list of sizes");
    f->nested = json_get(root, "nested_blocksize");
    if (f->nested &&
        (!json_u64(json_get(root, "nested_blocksize"), &f->outer) || !f->outer ||
         !json_double(json_get(root, "nested_offset"), &offset) || !isfinite(offset)))
        return json_error(doc, root, err, "nested scales without block and offset");
    f->offset = (float)offset;
    return 0;
}

static int parse_state(struct opening *o, struct fourbit *f, const struct tensor *state,
                       struct tensor *out, struct err *err)
{
    char *text, *where;
    struct json_doc doc;
    int ret = -1;

    if (state->size > MOST_STATE)
        return err_set(err, ERR_INPUT, "%s: tensor %s: more than %d bytes", o->s->path,
                       state->name, MOST_STATE);
    text = xmalloc((size_t)state->size + 1);
    where = str_dupf("%s: tensor %s", o->s->path, state->name);
    if (read_all(o, state, text, err) == 0 &&
        json_parse(&doc, where, text, (size_t)state->size, err) == 0) {
        ret = read_state(o, f, &doc, &out->shape, &out->ndim, err);
        json_clear(&doc);
    }
    free(where);
    free(text);
    return ret;
}

static int find_scales(struct opening *o, struct fourbit *f, struct err *err)
{
    uint64_t blocks = f->n / f->block + (f->n % f->block != 0), outer;
    const struct tensor *t;
    float *largest;

    if (need(o, &f->scales, f->name, ".absmax", f->nested ? DTYPE_U8 : DTYPE_F32,
             blocks, err) < 0)
        return -1;
    if (!f->nested)
        return 0;
    outer = blocks / f->outer + (blocks % f->outer != 0);
    if (read_floats(o, f->map, f->name, ".nested_quant_map", SCALES, err) < 0 ||
        need(o, &t, f->name, ".nested_absmax", DTYPE_F32, outer, err) < 0)
        return -1;
    largest =
        pool_take(&o->s->pool, (size_t)outer * sizeof(*largest), sizeof(*largest));
    f->largest = largest;
    return read_floats(o, largest, f->name, ".nested_absmax", outer, err);
}

static int make(const struct boxes *b, uint64_t first, uint64_t count, void *buf,
                boxes_fd *fd, void *arg, struct err *err);

/* Makes OUT, the tensor of the weight that the tensor STATE describes. */
static int open_matrix(struct opening *o, const struct tensor *state, size_t n,
                       struct tensor *out, struct err *err)
{
    struct pool *pool = &o->s->pool;
    struct fourbit *f = pool_take(pool, sizeof(*f), sizeof(f));
    struct boxes *boxes = pool_take(pool, sizeof(*boxes), sizeof(boxes));
    struct box *box = pool_take(pool, 2 * sizeof(*box), sizeof(box));
    struct tensor *kept = pool_take(pool, 2 * sizeof(*kept), sizeof(kept));
    const char *name = pool_strndup(pool, state->name, n);
    const struct tensor *codes = find(o, name, "");

    if (codes && o->taken[codes - o->s->tensor])
        return err_set(err, ERR_INPUT, "%s: tensor %s: is described twice", o->s->path,
                       name);
    if (codes)
        o->taken[codes - o->s->tensor] = true;
    *f = (struct fourbit){ .name = name };
    if (!codes)
        return err_set(err, ERR_INPUT, "%s: tensor %s: describes no tensor", o->s->path,
                       state->name);
    if (parse_state(o, f, state, out, err) < 0 ||
        read_floats(o, f->value, name, ".quant_map", VALUES, err) < 0 ||
        find_scales(o, f, err) < 0)
        return -1;
    if (codes->size != (f->n + 1) / 2 || codes->stride || codes->boxes)
        return err_set(err, ERR_INPUT, "%s: tensor %s: %llu bytes for %llu numbers",
                       o->s->path, name, (unsigned long long)codes->size,
                       (unsigned long long)f->n);
    kept[0] = *codes;
    kept[1] = *f->scales;
    f->codes = &kept[0];
    f->scales = &kept[1];
    for (int k = 0; k < 2; k++)
        box[k] = (struct box){ .input = kept[k].input, .offset = kept[k].offset };
    *boxes = (struct boxes){ .ndim = out->ndim,
                             .shape = out->shape,
                             .box = box,
                             .n = 2,
                             .make = make,
                             .of = f };
    if (!o->s->fours || f->nested)
        o->s->fours = f->nested ? 2 : 1;
    out->name = name;
    out->dtype = f->dtype;
    out->file = codes->file;
    out->input = codes->input;
    out->size = f->n * ((uint64_t)dtype_bits(f->dtype) / 8);
    out->boxes = boxes;
    return 0;
}

/* ---- reading ---- */

/* Reads bytes [FIRST, FIRST + N) of T. */
static int read_part(const struct tensor *t, uint64_t first, uint64_t n, void *to,
                     boxes_fd *fd, void *arg, struct err *err)
{
    const char *name;
    int at = fd(arg, t->input, &name, err);

    return at < 0 ? -1 : fs_pread(at, to, (size_t)n, t->offset + first, name, err);
}

/* SCALE[n] = those of the blocks from FIRST on. */
static int read_scales(const struct fourbit *f, uint64_t first, uint64_t n,
                       float *scale, boxes_fd *fd, void *arg, struct err *err)
{
    uint8_t code[SOME];

    if (!f->nested) {
        if (read_part(f->scales, first * sizeof(*scale), n * sizeof(*scale), scale, fd,
                      arg, err) < 0)
            return -1;
    } else if (read_part(f->scales, first, n, code, fd, arg, err) < 0) {
        return -1;
    }
    for (uint64_t i = 0; i < n; i++) {
        if (f->nested)
            scale[i] = f->map[code[i]] * f->largest[(first + i) / f->outer] + f->offset;
        if (!isfinite(scale[i]))
            return err_set(err, ERR_INPUT, "tensor %s: scale %llu is not finite",
                           f->scales->name, (unsigned long long)(first + i));
    }
    return 0;
}

static void put(enum dtype type, void *buf, uint64_t i, float x)
{
    if (type == DTYPE_F32)
        ((float *)buf)[i] = x;
    else
        ((uint16_t *)buf)[i] =
            type == DTYPE_BF16 ? dtype_f32_to_bf16(x) : dtype_f32_to_f16(x);
}

/* As boxes_read, of B, whose .of is a struct fourbit. */
static int make(const struct boxes *b, uint64_t first, uint64_t count, void *buf,
                boxes_fd *fd, void *arg, struct err *err)
{
    const struct fourbit *f = b->of;
    uint8_t byte[SOME / 2 + 1];
    float scale[SOME / 2 + 2];
    uint64_t i = 0;

    while (i < count) {
        uint64_t at = first + i, n = count - i < SOME ? count - i : SOME;
        uint64_t from = at / 2, block = at / f->block;

        if (read_part(f->codes, from, (at + n - 1) / 2 - from + 1, byte, fd, arg, err) <
                0 ||
            read_scales(f, block, (at + n - 1) / f->block - block + 1, scale, fd, arg,
                        err) < 0)
            return -1;
        for (uint64_t k = 0; k < n; k++) {
            uint8_t two = byte[(at + k) / 2 - from];
            float x = f->value[(at + k) % 2 ? two & 15 : two >> 4];

            put(f->dtype, buf, i + k, x * scale[(at + k) / f->block - block]);
        }
        i += n;
    }
    return 0;
}

/* ---- presenting ---- */

/* The bytes of TEXT without the member KEY of its object, or a copy. */
static char *without_dup(const char *text, const char *key)
{
    struct str out = { 0 };
    struct jsonlex lex;
    size_t n = strlen(text), from = n, to = n;

    jsonlex_init(&lex, "config.json", text, n);
    while (jsonlex_next(&lex, NULL) == 0 && lex.token != JSONLEX_END) {
        if (lex.token != JSONLEX_KEY || lex.depth != 1 || strcmp(lex.text.s, key) != 0)
            continue;
        from = lex.start;
        if (jsonlex_next(&lex, NULL) == 0 && jsonlex_skip(&lex, NULL) == 0)
            to = lex.end;
        break;
    }
    jsonlex_clear(&lex);
    if (to < n) { /* with the comma after it, or before it */
        size_t next = to + strspn(text + to, " \t\r\n");

        while (from && strchr(" \t\r\n", text[from - 1]))
            from--;
        if (text[next] == ',')
            to = next + 1;
        else if (from && text[from - 1] == ',')
            from--;
    }
    str_addn(&out, text, from);
    str_addn(&out, text + to, n - to);
    return str_steal(&out);
}

/* Presents what O has opened, the matrices among it at MADE[s->n], .name NULL of
 * others. */
static int present(struct opening *o, const struct tensor *made, struct err *err)
{
    struct source *s = o->s;
    struct tensor *of = xmalloc((s->n + 1) * sizeof(*of)), *old = s->tensor;
    size_t all = s->n, cap = 0;
    int ret = 0;

    s->tensor = NULL;
    s->n = 0;
    for (size_t i = 0; i < s->nfiles && ret == 0; i++) {
        size_t n = 0;

        for (size_t k = 0; k < all; k++) {
            const struct tensor *t = made[k].name ? &made[k] : &old[k];

            if (t->file == (int)i && (made[k].name || !o->part[k]))
                of[n++] = *t;
        }
        ret = form_present_file(s, i, of, n, &cap, err);
    }
    free(of);
    free(old);
    return ret;
}

int fourbit_present(struct source *s, struct err *err)
{
    struct opening o = { .s = s };
    struct tensor *made = NULL;
    bool found = false;
    int ret = 0;

    for (size_t i = 0; i < s->n && !found; i++)
        found = strstr(s->tensor[i].name, STATE);
    if (!found)
        return 0;
    if (tensor_index_init(&o.index, s->tensor, s->n)) {
        tensor_index_clear(&o.index);
        return 0; /* who reads the directory tells which is there twice */
    }
    o.part = xcalloc(s->n + 1, sizeof(*o.part));
    o.taken = xcalloc(s->n + 1, sizeof(*o.taken));
    made = xcalloc(s->n + 1, sizeof(*made));
    for (size_t i = 0; i < s->n && ret == 0; i++) {
        const char *at = strstr(s->tensor[i].name, STATE);

        if (!at)
            continue;
        o.part[i] = true;
        ret = open_matrix(&o, &s->tensor[i], (size_t)(at - s->tensor[i].name), &made[i],
                          err);
    }
    if (ret == 0)
        ret = present(&o, made, err);
    if (ret == 0 && s->config) {
        char *text = without_dup(s->config, "quantization_config");

        free(s->config);
        s->config = text;
        s->reconfigured = true;
    }
    tensor_index_clear(&o.index);
    free(o.part);
    free(o.taken);
    free(made);
    return ret;
}
