/* unpickle - a safe unpickler: builds only plain containers, tensors and records */
#include "lib/ckpt/unpickle.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/hash.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/ckpt/records.h"
#include "lib/ckpt/tensor.h"

enum { MAX_METADATA = 64 };

int unpickle_fail(const struct unpickle *m, struct err *err, const char *what)
{
    return err_set(err, ERR_INPUT, "%s: bad pickle at byte %zu: %s", m->path,
                   (size_t)(m->p - m->begin), what);
}

/* ---- values ---- */

/* Grows P to N values and counts the memory. */
static struct pickled **grow(struct unpickle *m, struct pickled **p, size_t *cap,
                             size_t n)
{
    size_t before = *cap;

    p = xgrow(p, cap, n, sizeof(*p));
    m->grown += (*cap - before) * sizeof(*p);
    return p;
}

static struct pickled *new_value(struct unpickle *m, enum pickled_kind kind)
{
    struct pickled *v = pool_take(&m->pool, sizeof(*v), 8);

    memset(v, 0, sizeof(*v));
    v->kind = kind;
    if (kind == PICKLED_TUPLE || kind == PICKLED_LIST || kind == PICKLED_DICT) {
        m->lists = grow(m, m->lists, &m->lists_cap, m->nlists + 1);
        m->lists[m->nlists++] = v;
    }
    return v;
}

static void append(struct unpickle *m, struct pickled *list, struct pickled *item)
{
    list->list.v = grow(m, list->list.v, &list->list.cap, list->list.n + 1);
    list->list.v[list->list.n++] = item;
}

static void push(struct unpickle *m, struct pickled *v)
{
    m->stack = grow(m, m->stack, &m->stack_cap, m->depth + 1);
    m->stack[m->depth++] = v;
}

static struct pickled *push_new(struct unpickle *m, enum pickled_kind kind)
{
    struct pickled *v = new_value(m, kind);

    push(m, v);
    return v;
}

static void push_number(struct unpickle *m, int64_t n)
{
    push_new(m, PICKLED_NUMBER)->number = n;
}

static void push_text(struct unpickle *m, const void *s, size_t len)
{
    struct pickled *v = push_new(m, PICKLED_TEXT);

    v->text.s = pool_strndup(&m->pool, s, len);
    v->text.len = len;
}

/* Pops the top of the stack; NULL when it is empty or a mark. */
static struct pickled *pop(struct unpickle *m)
{
    if (!m->depth || m->stack[m->depth - 1]->kind == PICKLED_MARK)
        return NULL;
    return m->stack[--m->depth];
}

static struct pickled *top(const struct unpickle *m)
{
    return m->depth && m->stack[m->depth - 1]->kind != PICKLED_MARK
               ? m->stack[m->depth - 1]
               : NULL;
}

/* The position above the last mark; false when there is none. */
static bool find_mark(const struct unpickle *m, size_t *at)
{
    for (size_t i = m->depth; i-- > 0;)
        if (m->stack[i]->kind == PICKLED_MARK) {
            *at = i + 1;
            return true;
        }
    return false;
}

bool pickled_is(const struct pickled *v, enum pickled_kind kind)
{
    return v && v->kind == kind;
}

bool pickled_text_is(const struct pickled *v, const char *s)
{
    return v && v->kind == PICKLED_TEXT && v->text.len == strlen(s) &&
           !memcmp(v->text.s, s, v->text.len);
}

const struct pickled *pickled_get(const struct pickled *v, const char *key)
{
    const struct pickled *found = NULL, *in = v;

    if (pickled_is(v, PICKLED_RECORD))
        in = v->record.state;
    if (pickled_is(in, PICKLED_TUPLE)) { /* (attributes or None, slots) */
        for (size_t i = 0; i < in->list.n && i < 2; i++)
            if (in->list.v[i]->kind == PICKLED_DICT) {
                const struct pickled *here = pickled_get(in->list.v[i], key);

                found = here ? here : found;
            }
        return found;
    }
    for (size_t i = 0; pickled_is(in, PICKLED_DICT) && i + 1 < in->list.n; i += 2)
        if (pickled_text_is(in->list.v[i], key))
            found = in->list.v[i + 1];
    return found;
}

bool pickled_is_a(const struct pickled *v, const char *name)
{
    const char *dot;

    if (!pickled_is(v, PICKLED_RECORD))
        return false;
    dot = strrchr(v->record.name, '.');
    return !strcmp(dot ? dot + 1 : v->record.name, name);
}

bool pickled_integer(const struct pickled *v, int64_t *out)
{
    if (pickled_is(v, PICKLED_RECORD) && v->record.args->list.n == 1)
        v = v->record.args->list.v[0];
    if (!pickled_is(v, PICKLED_NUMBER))
        return false;
    *out = v->number;
    return true;
}

/* ---- reading operands ---- */

bool unpickle_take(struct unpickle *m, uint64_t n, const unsigned char **bytes)
{
    if (n > (uint64_t)(m->end - m->p))
        return false;
    *bytes = m->p;
    m->p += n;
    return true;
}

/* Takes an unsigned little-endian number of BYTES bytes. */
bool unpickle_take_number(struct unpickle *m, int bytes, uint64_t *out)
{
    const unsigned char *p;

    if (!unpickle_take(m, (uint64_t)bytes, &p))
        return false;
    *out = 0;
    for (int i = bytes - 1; i >= 0; i--)
        *out = *out << 8 | p[i];
    return true;
}

/* Takes a line without its line feed. */
static bool take_line(struct unpickle *m, const char **line, size_t *len)
{
    const unsigned char *end = memchr(m->p, '\n', (size_t)(m->end - m->p));

    if (!end)
        return false;
    *line = (const char *)m->p;
    *len = (size_t)(end - m->p);
    m->p = end + 1;
    return true;
}

/* Pushes text preceded by its length in LENGTH_BYTES bytes. */
static bool push_counted(struct unpickle *m, int length_bytes, bool text)
{
    const unsigned char *p;
    uint64_t n;

    if (!unpickle_take_number(m, length_bytes, &n) || !unpickle_take(m, n, &p))
        return false;
    if (text)
        push_text(m, p, (size_t)n);
    else
        push_new(m, PICKLED_LEAF);
    return true;
}

/* Pushes a two's complement number of N bytes; one that takes more than 8 becomes a
 * leaf. */
static bool push_long(struct unpickle *m, uint64_t n)
{
    const unsigned char *p;
    uint64_t v;

    if (!unpickle_take(m, n, &p))
        return false;
    while (n > 8 && p[n - 1] == (p[n - 2] & 0x80 ? 0xff : 0)) /* only the sign again */
        n--;
    if (n > 8) {
        push_new(m, PICKLED_LEAF);
        return true;
    }
    v = n && p[n - 1] & 0x80 ? UINT64_MAX : 0;
    for (uint64_t i = n; i-- > 0;)
        v = v << 8 | p[i];
    push_number(m, (int64_t)v);
    return true;
}

/* ---- the memo ---- */

static bool memo_put(struct unpickle *m, uint64_t at)
{
    /* Each entry takes at least an opcode, so larger indices are hostile. */
    if (at > (uint64_t)(m->p - m->begin) || !top(m))
        return false;
    m->memo = grow(m, m->memo, &m->memo_cap, (size_t)at + 1);
    while (m->memos <= at)
        m->memo[m->memos++] = NULL;
    m->memo[at] = top(m);
    return true;
}

static bool memo_get(struct unpickle *m, uint64_t at)
{
    if (at >= m->memos || !m->memo[at])
        return false;
    push(m, m->memo[at]);
    return true;
}

/* ---- globals ---- */

static const struct {
    const char *name;
    enum dtype dtype;
} storage_types[] = {
    { "FloatStorage", DTYPE_F32 },        { "DoubleStorage", DTYPE_F64 },
    { "HalfStorage", DTYPE_F16 },         { "BFloat16Storage", DTYPE_BF16 },
    { "LongStorage", DTYPE_I64 },         { "IntStorage", DTYPE_I32 },
    { "ShortStorage", DTYPE_I16 },        { "CharStorage", DTYPE_I8 },
    { "ByteStorage", DTYPE_U8 },          { "BoolStorage", DTYPE_BOOL },
    { "ComplexFloatStorage", DTYPE_C64 }, { "storage.UntypedStorage", DTYPE_U8 },
};

const char *unpickle_storage_class(enum dtype t)
{
    for (size_t i = 0; i < sizeof(storage_types) / sizeof(*storage_types); i++)
        if (storage_types[i].dtype == t)
            return storage_types[i].name;
    return NULL;
}

/* Sets *out to the type of storages or elements called torch.NAME. */
static bool find_type(struct pickled *out, const char *name)
{
    for (size_t i = 0; i < sizeof(storage_types) / sizeof(*storage_types); i++)
        if (!strcmp(name, storage_types[i].name)) {
            out->global.global = PICKLED_STORAGE_TYPE;
            out->global.dtype = storage_types[i].dtype;
            return true;
        }
    for (int t = 0; t < DTYPE_COUNT; t++)
        if (dtype_pytorch((enum dtype)t) &&
            !strcmp(name, dtype_pytorch((enum dtype)t))) {
            out->global.global = PICKLED_ELEMENT_TYPE;
            out->global.dtype = (enum dtype)t;
            return true;
        }
    return false;
}

static int push_global(struct unpickle *m, const char *module, size_t module_len,
                       const char *name, size_t name_len, struct err *err)
{
    char *full = str_dupf("%.*s.%.*s", (int)(module_len < 200 ? module_len : 200),
                          module, (int)(name_len < 200 ? name_len : 200), name);
    struct pickled *v = push_new(m, PICKLED_GLOBAL);
    int ret = 0;

    if (!strcmp(full, "collections.OrderedDict")) {
        v->global.global = PICKLED_ORDERED_DICT;
    } else if (!strcmp(full, "torch._utils._rebuild_tensor_v2") ||
               !strcmp(full, "torch._utils._rebuild_tensor")) {
        v->global.global = PICKLED_REBUILD_TENSOR;
    } else if (!strcmp(full, "torch._utils._rebuild_tensor_v3")) {
        v->global.global = PICKLED_REBUILD_TYPED;
    } else if (!strcmp(full, "torch._utils._rebuild_parameter")) {
        v->global.global = PICKLED_REBUILD_PARAMETER;
    } else if (str_starts(full, "torch.") && find_type(v, full + strlen("torch."))) {
        ;
    } else if (m->records && records_know(full, &v->global.global)) {
        v->global.name = pool_strdup(&m->pool, full);
    } else {
        ret =
            err_set(err, ERR_INPUT, "%s: refused: its pickle names %s", m->path, full);
    }
    free(full);
    return ret;
}

/* Converts a tuple of nonnegative numbers to a new array. */
static bool take_sizes(struct unpickle *m, const struct pickled *v, uint64_t **out,
                       int *n)
{
    uint64_t *sizes;

    if (!pickled_is(v, PICKLED_TUPLE) || v->list.n > TENSOR_MAX_DIMS)
        return false;
    sizes = pool_take(&m->pool, v->list.n * sizeof(*sizes), sizeof(*sizes));
    for (size_t i = 0; i < v->list.n; i++) {
        if (v->list.v[i]->kind != PICKLED_NUMBER || v->list.v[i]->number < 0)
            return false;
        sizes[i] = (uint64_t)v->list.v[i]->number;
    }
    *out = sizes;
    *n = (int)v->list.n;
    return true;
}

/* Does the metadata request an operation that torch delays until the values are used,
 * such as torch.conj? */
static bool is_lazy(const struct pickled *metadata)
{
    size_t n = metadata->kind == PICKLED_DICT ? metadata->list.n : 0;

    /* PyTorch has two such keys; a long list, searched for each tensor, is hostile */
    if (n > MAX_METADATA)
        return true;
    for (size_t i = 0; i + 1 < n; i += 2)
        if (pickled_text_is(metadata->list.v[i], "neg") ||
            pickled_text_is(metadata->list.v[i], "conj"))
            return true;
    return false;
}

/* Implements _rebuild_tensor_v2(storage, first, size, stride, gradient, hooks[,
 * metadata]); when TYPED, _rebuild_tensor_v3(..., hooks, type[, metadata]). */
static bool rebuild_tensor(struct unpickle *m, const struct pickled *args, bool typed,
                           struct pickled *out)
{
    struct pickled *const *a = args->list.v;
    int nstrides;

    if (args->list.n < (typed ? 7 : 4) || a[0]->kind != PICKLED_STORAGE ||
        a[1]->kind != PICKLED_NUMBER || a[1]->number < 0)
        return false;
    if (typed && (a[6]->kind != PICKLED_GLOBAL ||
                  a[6]->global.global != PICKLED_ELEMENT_TYPE || a[0]->storage.first))
        return false;
    if (args->list.n > (typed ? 7 : 6) && is_lazy(a[typed ? 7 : 6])) {
        m->why = "a tensor that is negated or conjugated when it is read, or has "
                 "unknown attributes";
        return false;
    }
    out->kind = PICKLED_TENSOR;
    out->tensor.s = a[0]->storage.s;
    out->tensor.dtype = typed ? a[6]->global.dtype : a[0]->storage.s->dtype;
    return mem_add(&out->tensor.first, (uint64_t)a[1]->number, a[0]->storage.first) &&
           take_sizes(m, a[2], &out->tensor.shape, &out->tensor.ndim) &&
           take_sizes(m, a[3], &out->tensor.stride, &nstrides) &&
           nstrides == out->tensor.ndim;
}

/* Implements OrderedDict(), without an argument or with a list of pairs. */
static bool make_dict(struct unpickle *m, const struct pickled *args)
{
    struct pickled *dict = new_value(m, PICKLED_DICT);

    if (args->list.n > 1 ||
        (args->list.n == 1 && args->list.v[0]->kind != PICKLED_LIST))
        return false;
    for (size_t i = 0; args->list.n && i < args->list.v[0]->list.n; i++) {
        const struct pickled *pair = args->list.v[0]->list.v[i];

        if ((pair->kind != PICKLED_LIST && pair->kind != PICKLED_TUPLE) ||
            pair->list.n != 2)
            return false;
        append(m, dict, pair->list.v[0]);
        append(m, dict, pair->list.v[1]);
    }
    push(m, dict);
    return true;
}

static void push_record(struct unpickle *m, const char *name, struct pickled *args,
                        struct pickled *state)
{
    struct pickled *v = push_new(m, PICKLED_RECORD);

    v->record.name = name;
    v->record.args = args;
    v->record.state = state;
}

/* Implements _rebuild_from_type_v2(function, class, args, state): what the function
 * makes of the arguments; the state of a record is kept. */
static bool rebuild_from_type(struct unpickle *m, const struct pickled *args)
{
    struct pickled *const *a = args->list.v;

    if (args->list.n != 4 || a[0]->kind != PICKLED_GLOBAL ||
        a[2]->kind != PICKLED_TUPLE)
        return false;
    if (a[0]->global.global == PICKLED_CLASS) {
        push_record(m, a[0]->global.name, a[2], a[3]);
        return true;
    }
    if (a[0]->global.global == PICKLED_REBUILD_PARAMETER && a[2]->list.n &&
        a[2]->list.v[0]->kind == PICKLED_TENSOR) {
        push(m, a[2]->list.v[0]);
        return true;
    }
    return (a[0]->global.global == PICKLED_REBUILD_TENSOR ||
            a[0]->global.global == PICKLED_REBUILD_TYPED) &&
           rebuild_tensor(m, a[2], a[0]->global.global == PICKLED_REBUILD_TYPED,
                          push_new(m, PICKLED_LEAF));
}

/* Implements torch.Size(sequence), tuple, list and dict. */
static bool make_same(struct unpickle *m, const struct pickled *args)
{
    struct pickled *of = args->list.n ? args->list.v[0] : NULL, *made;

    if (!of) {
        push_new(m, PICKLED_TUPLE);
        return true;
    }
    if (args->list.n != 1 || (of->kind != PICKLED_TUPLE && of->kind != PICKLED_LIST))
        return false;
    made = push_new(m, PICKLED_TUPLE);
    for (size_t i = 0; i < of->list.n; i++)
        append(m, made, of->list.v[i]);
    return true;
}

/* Implements getattr(class, "Name"). */
static bool get_attribute(struct unpickle *m, const struct pickled *args)
{
    const struct pickled *of = args->list.n == 2 ? args->list.v[0] : NULL;
    struct pickled *made;
    char *name;

    if (!pickled_is(of, PICKLED_GLOBAL) || of->global.global != PICKLED_CLASS ||
        args->list.v[1]->kind != PICKLED_TEXT || args->list.v[1]->text.len > 200)
        return false;
    name = str_dupf("%.400s.%.200s", of->global.name, args->list.v[1]->text.s);
    made = push_new(m, PICKLED_GLOBAL);
    made->global.global = PICKLED_CLASS;
    made->global.name = pool_strdup(&m->pool, name);
    free(name);
    return true;
}

/* NEWOBJ and NEWOBJ_EX: an object of a class, without a call of its constructor. */
static bool new_object(struct unpickle *m, bool keywords)
{
    struct pickled *kwargs = keywords ? pop(m) : NULL, *args = pop(m), *f = pop(m);

    if (!m->records || !pickled_is(args, PICKLED_TUPLE) ||
        !pickled_is(f, PICKLED_GLOBAL) || f->global.global != PICKLED_CLASS ||
        (keywords && !pickled_is(kwargs, PICKLED_DICT)))
        return false;
    push_record(m, f->global.name, args, kwargs);
    return true;
}

/* BUILD: the state of a record; attributes of a dictionary or a tensor, ignored. */
static bool build(struct unpickle *m)
{
    struct pickled *state = pop(m), *of = top(m);

    if (!state || !of)
        return false;
    if (of->kind == PICKLED_RECORD) {
        of->record.state = state;
        return true;
    }
    return of->kind == PICKLED_DICT || (m->records && of->kind == PICKLED_TENSOR);
}

static bool reduce(struct unpickle *m)
{
    struct pickled *args = pop(m), *f = pop(m);

    if (!pickled_is(args, PICKLED_TUPLE) || !f || f->kind != PICKLED_GLOBAL)
        return false;
    switch (f->global.global) {
    case PICKLED_ORDERED_DICT:
        return make_dict(m, args);
    case PICKLED_REBUILD_TENSOR:
    case PICKLED_REBUILD_TYPED:
        return rebuild_tensor(m, args, f->global.global == PICKLED_REBUILD_TYPED,
                              push_new(m, PICKLED_LEAF));
    case PICKLED_REBUILD_PARAMETER:
        if (!args->list.n || args->list.v[0]->kind != PICKLED_TENSOR)
            return false;
        push(m, args->list.v[0]);
        return true;
    case PICKLED_CLASS:
        push_record(m, f->global.name, args, NULL);
        return true;
    case PICKLED_REBUILD_FROM_TYPE:
        return rebuild_from_type(m, args);
    case PICKLED_SAME:
        return make_same(m, args);
    case PICKLED_OPAQUE:
        push_new(m, PICKLED_LEAF);
        return true;
    case PICKLED_GETATTR:
        return get_attribute(m, args);
    case PICKLED_STORAGE_TYPE:
    case PICKLED_ELEMENT_TYPE:
        break;
    }
    return false;
}

/* ---- storages ---- */

static struct pickled_storage **bucket(struct unpickle *m, const char *key)
{
    return &m->storages[hash_crc32(0, key, strlen(key)) % UNPICKLE_BUCKETS];
}

struct pickled_storage *unpickle_storage(struct unpickle *m, const char *key)
{
    struct pickled_storage *s = *bucket(m, key);

    while (s && strcmp(s->key, key))
        s = s->next;
    return s;
}

/* Implements the persistent id of a storage: ("storage", type, key, location, numel[,
 * view]); view is (key, first, numel) or None. */
static bool load_storage(struct unpickle *m)
{
    struct pickled *id = pop(m), *const * a, *out;
    struct pickled_storage *s;

    if (!pickled_is(id, PICKLED_TUPLE) || id->list.n < 5)
        return false;
    a = id->list.v;
    if (!pickled_text_is(a[0], "storage") || a[1]->kind != PICKLED_GLOBAL ||
        a[1]->global.global != PICKLED_STORAGE_TYPE || a[2]->kind != PICKLED_TEXT ||
        a[4]->kind != PICKLED_NUMBER || a[4]->number < 0)
        return false;
    s = unpickle_storage(m, a[2]->text.s);
    if (!s) {
        struct pickled_storage **b = bucket(m, a[2]->text.s);

        s = pool_take(&m->pool, sizeof(*s), 8);
        *s = (struct pickled_storage){ .key = a[2]->text.s,
                                       .dtype = a[1]->global.dtype,
                                       .numel = (uint64_t)a[4]->number,
                                       .next = *b };
        *b = s;
    }
    out = push_new(m, PICKLED_STORAGE);
    out->storage.s = s;
    if (id->list.n > 5 && a[5]->kind == PICKLED_TUPLE) {
        if (a[5]->list.n != 3 || a[5]->list.v[1]->kind != PICKLED_NUMBER ||
            a[5]->list.v[1]->number < 0)
            return false;
        out->storage.first = (uint64_t)a[5]->list.v[1]->number;
    }
    return s->dtype == a[1]->global.dtype;
}

/* ---- opcodes ---- */

/* Pops all values above the last mark into a new container. */
static bool collect(struct unpickle *m, enum pickled_kind kind)
{
    struct pickled *v = new_value(m, kind);
    size_t at;

    if (!find_mark(m, &at) || (kind == PICKLED_DICT && (m->depth - at) % 2))
        return false;
    for (size_t i = at; i < m->depth; i++)
        append(m, v, m->stack[i]);
    m->depth = at - 1;
    push(m, v);
    return true;
}

static bool collect_last(struct unpickle *m, size_t n)
{
    struct pickled *v = new_value(m, PICKLED_TUPLE);

    if (m->depth < n)
        return false;
    for (size_t i = m->depth - n; i < m->depth; i++) {
        if (m->stack[i]->kind == PICKLED_MARK)
            return false;
        append(m, v, m->stack[i]);
    }
    m->depth -= n;
    push(m, v);
    return true;
}

/* Pops all values above the last mark and adds them to the container below it. */
static bool extend(struct unpickle *m, enum pickled_kind kind)
{
    struct pickled *v;
    size_t at;

    if (!find_mark(m, &at) || at < 2)
        return false;
    v = m->stack[at - 2];
    if (kind == PICKLED_LEAF ? v->kind != PICKLED_LEAF : v->kind != kind)
        return false;
    if (kind == PICKLED_DICT && (m->depth - at) % 2)
        return false;
    for (size_t i = at; kind != PICKLED_LEAF && i < m->depth; i++)
        append(m, v, m->stack[i]);
    m->depth = at - 1;
    return true;
}

static bool set_item(struct unpickle *m)
{
    struct pickled *value = pop(m), *key = pop(m), *dict = top(m);

    if (!value || !key || !pickled_is(dict, PICKLED_DICT))
        return false;
    append(m, dict, key);
    append(m, dict, value);
    return true;
}

static bool append_item(struct unpickle *m)
{
    struct pickled *item = pop(m), *list = top(m);

    if (!item || !pickled_is(list, PICKLED_LIST))
        return false;
    append(m, list, item);
    return true;
}

static bool push_line_number(struct unpickle *m)
{
    const char *line;
    char digits[32];
    int64_t value;
    size_t n;

    if (!take_line(m, &line, &n))
        return false;
    if (n && line[n - 1] == 'L')
        n--;
    if (n >= sizeof(digits)) {
        push_new(m, PICKLED_LEAF);
        return true;
    }
    memcpy(digits, line, n);
    digits[n] = '\0';
    if (!str_i64(digits, &value))
        return false;
    push_number(m, value);
    return true;
}

static int load_global(struct unpickle *m, bool from_stack, struct err *err)
{
    const char *module, *name;
    size_t module_len, name_len;

    if (from_stack) {
        const struct pickled *n = pop(m), *q = pop(m);

        if (!n || !q || n->kind != PICKLED_TEXT || q->kind != PICKLED_TEXT)
            return unpickle_fail(m, err, "a global without a name");
        return push_global(m, q->text.s, q->text.len, n->text.s, n->text.len, err);
    }
    if (!take_line(m, &module, &module_len) || !take_line(m, &name, &name_len))
        return unpickle_fail(m, err, "a global without a name");
    return push_global(m, module, module_len, name, name_len, err);
}

/* Opcodes that push or take a number or a text; *known: OP is one of them. */
static bool run_operand(struct unpickle *m, int op, bool *known)
{
    const unsigned char *p;
    const char *line;
    uint64_t n;
    size_t len;

    *known = true;
    switch (op) {
    case 'X': /* BINUNICODE */
    case 'T': /* BINSTRING */
        return push_counted(m, 4, true);
    case 0x8c: /* SHORT_BINUNICODE */
    case 'U':  /* SHORT_BINSTRING */
        return push_counted(m, 1, true);
    case 0x8d: /* BINUNICODE8 */
        return push_counted(m, 8, true);
    case 'V': /* UNICODE */
        if (!take_line(m, &line, &len))
            return false;
        push_text(m, line, len);
        return true;
    case 'S': /* STRING: in quotes */
        if (!take_line(m, &line, &len) || len < 2)
            return false;
        push_text(m, line + 1, len - 2);
        return true;
    case 'B': /* BINBYTES */
        return push_counted(m, 4, false);
    case 'C': /* SHORT_BINBYTES */
        return push_counted(m, 1, false);
    case 0x8e: /* BINBYTES8 */
    case 0x96: /* BYTEARRAY8 */
        return push_counted(m, 8, false);
    case 'J': /* BININT */
        if (!unpickle_take_number(m, 4, &n))
            return false;
        push_number(m, (int32_t)(uint32_t)n);
        return true;
    case 'K': /* BININT1 */
    case 'M': /* BININT2 */
        if (!unpickle_take_number(m, op == 'K' ? 1 : 2, &n))
            return false;
        push_number(m, (int64_t)n);
        return true;
    case 0x8a: /* LONG1 */
    case 0x8b: /* LONG4 */
        return unpickle_take_number(m, op == 0x8a ? 1 : 4, &n) && push_long(m, n);
    case 'I': /* INT */
    case 'L': /* LONG */
        return push_line_number(m);
    case 'F': /* FLOAT */
        if (!take_line(m, &line, &len))
            return false;
        push_new(m, PICKLED_LEAF);
        return true;
    case 'G': /* BINFLOAT: big-endian */
        if (!unpickle_take(m, 8, &p))
            return false;
        n = 0;
        for (int i = 0; i < 8; i++)
            n = n << 8 | p[i];
        memcpy(&push_new(m, PICKLED_REAL)->real, &n, sizeof(n));
        return true;
    case 'h': /* BINGET */
    case 'j': /* LONG_BINGET */
        return unpickle_take_number(m, op == 'h' ? 1 : 4, &n) && memo_get(m, n);
    case 'q': /* BINPUT */
    case 'r': /* LONG_BINPUT */
        return unpickle_take_number(m, op == 'q' ? 1 : 4, &n) && memo_put(m, n);
    case 'g': /* GET */
    case 'p': /* PUT */
        if (!push_line_number(m) || top(m)->kind != PICKLED_NUMBER)
            return false;
        n = (uint64_t)pop(m)->number;
        return op == 'g' ? memo_get(m, n) : memo_put(m, n);
    default:
        *known = false;
        return false;
    }
}

/* Opcodes that use only the stack. */
static bool run_stack(struct unpickle *m, int op, bool *known)
{
    const unsigned char *p;
    struct pickled *v;
    size_t at;

    *known = true;
    switch (op) {
    case 0x80: /* PROTO */
        return unpickle_take(m, 1, &p) && *p <= 5;
    case 0x95: /* FRAME */
        return unpickle_take(m, 8, &p);
    case '(': /* MARK */
        push_new(m, PICKLED_MARK);
        return true;
    case '0': /* POP */
        if (!m->depth)
            return false;
        m->depth--;
        return true;
    case '1': /* POP_MARK */
        if (!find_mark(m, &at))
            return false;
        m->depth = at - 1;
        return true;
    case '2': /* DUP */
        v = top(m);
        if (v)
            push(m, v);
        return v != NULL;
    case 0x88: /* NEWTRUE */
    case 0x89: /* NEWFALSE */
        push_number(m, op == 0x88);
        return true;
    case 'N': /* NONE */
        push_new(m, PICKLED_NONE);
        return true;
    case 0x8f: /* EMPTY_SET */
        push_new(m, PICKLED_LEAF);
        return true;
    case ')': /* EMPTY_TUPLE */
        push_new(m, PICKLED_TUPLE);
        return true;
    case ']': /* EMPTY_LIST */
        push_new(m, PICKLED_LIST);
        return true;
    case '}': /* EMPTY_DICT */
        push_new(m, PICKLED_DICT);
        return true;
    case 't': /* TUPLE */
        return collect(m, PICKLED_TUPLE);
    case 'l': /* LIST */
        return collect(m, PICKLED_LIST);
    case 'd': /* DICT */
        return collect(m, PICKLED_DICT);
    case 0x85: /* TUPLE1 .. TUPLE3 */
    case 0x86:
    case 0x87:
        return collect_last(m, (size_t)(op - 0x84));
    case 'a': /* APPEND */
        return append_item(m);
    case 'e': /* APPENDS */
        return extend(m, PICKLED_LIST);
    case 's': /* SETITEM */
        return set_item(m);
    case 'u': /* SETITEMS */
        return extend(m, PICKLED_DICT);
    case 0x90: /* ADDITEMS, to a set */
        return extend(m, PICKLED_LEAF);
    case 0x91: /* FROZENSET */
        return collect(m, PICKLED_TUPLE);
    case 0x94: /* MEMOIZE */
        return memo_put(m, m->memos);
    case 'R': /* REDUCE */
        return reduce(m);
    case 'b': /* BUILD */
        return build(m);
    case 0x81: /* NEWOBJ, NEWOBJ_EX */
    case 0x92:
        *known = m->records;
        return m->records && new_object(m, op == 0x92);
    case 'Q': /* BINPERSID */
        return load_storage(m);
    default:
        *known = false;
        return false;
    }
}

uint64_t unpickle_read(const struct unpickle *m)
{
    return m->read + (m->start ? (uint64_t)(m->p - m->start) : 0);
}

/* Runs the pickle at m->p up to its STOP; *out is its value. */
int unpickle_run(struct unpickle *m, struct pickled **out, struct err *err)
{
    m->depth = m->memos = 0;
    m->start = m->p;
    while (m->p < m->end) {
        int op = *m->p++;
        bool known, good;

        if (op == '.') { /* STOP */
            m->read = unpickle_read(m);
            m->start = NULL;
            *out = pop(m);
            return *out ? 0 : unpickle_fail(m, err, "nothing on its stack at the end");
        }
        if (op == 'c' || op == 0x93) { /* GLOBAL, STACK_GLOBAL */
            if (load_global(m, op == 0x93, err) < 0)
                return -1;
            continue;
        }
        good = run_operand(m, op, &known);
        if (!known)
            good = run_stack(m, op, &known);
        if (!known)
            return err_set(err, ERR_INPUT,
                           "%s: refused: its pickle has the opcode 0x%02x", m->path,
                           (unsigned)op);
        if (m->pool.taken + m->grown > mem_allowance(unpickle_read(m)))
            return mem_refuse(m->path, unpickle_read(m), err);
        if (!good)
            return unpickle_fail(
                m, err,
                m->why ? m->why : "an opcode that does not fit its stack or operand");
    }
    return unpickle_fail(m, err, "it ends too early");
}

void unpickle_init(struct unpickle *m, const char *path, const unsigned char *text,
                   uint64_t n)
{
    *m = (struct unpickle){ .path = path, .begin = text, .p = text, .end = text + n };
}

void unpickle_clear(struct unpickle *m)
{
    for (size_t i = 0; i < m->nlists; i++)
        free(m->lists[i]->list.v);
    free(m->lists);
    free(m->stack);
    free(m->memo);
    pool_clear(&m->pool);
}
