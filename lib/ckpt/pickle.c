/* pickle - the tensors of a file that torch.save wrote
 *
 * The machine below has a stack and a memo, as Python's pickle.py describes its opcodes
 * (protocols 0 to 5). Values live in a pool; containers are arrays. */
#include "lib/ckpt/pickle.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "lib/base/hash.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/ckpt/zip.h"

enum { MAX_DEPTH = 64, MAX_VISITS = 1 << 21, BUCKETS = 1 << 12 };

enum kind {
    MARK,
    LEAF, /* None, a float, bytes: anything that is neither built upon nor a tensor */
    NUMBER,
    TEXT,
    TUPLE,
    LIST,
    DICT, /* keys and values by turns */
    GLOBAL,
    STORAGE,
    TENSOR
};

enum global {
    ORDERED_DICT,
    REBUILD_TENSOR, /* _rebuild_tensor_v2 and its shorter ancestor */
    REBUILD_PARAMETER,
    STORAGE_TYPE
};

/* Bytes of the file that tensors look into. */
struct storage {
    const char *key;
    enum dtype dtype;
    uint64_t numel;
    uint64_t offset, bytes; /* in the file, once known */
    bool known;
    struct storage *next;
};

struct value {
    enum kind kind;
    union {
        int64_t number;
        struct {
            const char *s;
            size_t len;
        } text;
        struct {
            struct value **v;
            size_t n, cap;
        } list;
        struct {
            enum global global;
            enum dtype dtype; /* of a storage type */
        } global;
        struct {
            struct storage *s;
            uint64_t first; /* of a view, elements */
        } storage;
        struct {
            struct storage *s;
            uint64_t first; /* elements into the storage */
            int ndim;
            uint64_t *shape, *stride;
        } tensor;
    };
};

struct machine {
    const char *path;
    const unsigned char *begin, *p, *end;
    struct value **stack;
    size_t depth, stack_cap;
    struct value **memo;
    size_t memos, memo_cap;
    struct value **lists; /* whose arrays are freed at the end */
    size_t nlists, lists_cap;
    struct storage *storages[BUCKETS]; /* by the hash of their keys */
    const struct zip *zip;             /* NULL in the older form */
    const char *prefix;                /* of the archive's members: "archive/" */
    struct pool pool;
};

static int fail(const struct machine *m, struct err *err, const char *what)
{
    return err_set(err, ERR_INPUT, "%s: bad pickle at byte %zu: %s", m->path,
                   (size_t)(m->p - m->begin), what);
}

/* ---- values ---- */

static struct value *new_value(struct machine *m, enum kind kind)
{
    struct value *v = pool_take(&m->pool, sizeof(*v), 8);

    memset(v, 0, sizeof(*v));
    v->kind = kind;
    if (kind == TUPLE || kind == LIST || kind == DICT) {
        m->lists =
            xgrow(m->lists, &m->lists_cap, m->nlists + 1, sizeof(struct value *));
        m->lists[m->nlists++] = v;
    }
    return v;
}

static void append(struct value *list, struct value *item)
{
    list->list.v =
        xgrow(list->list.v, &list->list.cap, list->list.n + 1, sizeof(struct value *));
    list->list.v[list->list.n++] = item;
}

static void push(struct machine *m, struct value *v)
{
    m->stack = xgrow(m->stack, &m->stack_cap, m->depth + 1, sizeof(struct value *));
    m->stack[m->depth++] = v;
}

static struct value *push_new(struct machine *m, enum kind kind)
{
    struct value *v = new_value(m, kind);

    push(m, v);
    return v;
}

static void push_number(struct machine *m, int64_t n)
{
    push_new(m, NUMBER)->number = n;
}

static void push_text(struct machine *m, const void *s, size_t len)
{
    struct value *v = push_new(m, TEXT);

    v->text.s = pool_strndup(&m->pool, s, len);
    v->text.len = len;
}

/* The top of the stack, taken off; NULL when there is none, or a mark. */
static struct value *pop(struct machine *m)
{
    if (!m->depth || m->stack[m->depth - 1]->kind == MARK)
        return NULL;
    return m->stack[--m->depth];
}

static struct value *top(const struct machine *m)
{
    return m->depth && m->stack[m->depth - 1]->kind != MARK ? m->stack[m->depth - 1]
                                                            : NULL;
}

/* The position just above the last mark; false when there is none. */
static bool find_mark(const struct machine *m, size_t *at)
{
    for (size_t i = m->depth; i-- > 0;)
        if (m->stack[i]->kind == MARK) {
            *at = i + 1;
            return true;
        }
    return false;
}

static bool is_container(const struct value *v, enum kind kind)
{
    return v && v->kind == kind;
}

static bool text_is(const struct value *v, const char *s)
{
    return v && v->kind == TEXT && v->text.len == strlen(s) &&
           !memcmp(v->text.s, s, v->text.len);
}

/* ---- reading operands ---- */

static bool take(struct machine *m, uint64_t n, const unsigned char **bytes)
{
    if (n > (uint64_t)(m->end - m->p))
        return false;
    *bytes = m->p;
    m->p += n;
    return true;
}

/* An unsigned number of BYTES bytes. */
static bool take_number(struct machine *m, int bytes, uint64_t *out)
{
    const unsigned char *p;

    if (!take(m, (uint64_t)bytes, &p))
        return false;
    *out = 0;
    for (int i = bytes - 1; i >= 0; i--)
        *out = *out << 8 | p[i];
    return true;
}

/* A line without its line feed. */
static bool take_line(struct machine *m, const char **line, size_t *len)
{
    const unsigned char *end = memchr(m->p, '\n', (size_t)(m->end - m->p));

    if (!end)
        return false;
    *line = (const char *)m->p;
    *len = (size_t)(end - m->p);
    m->p = end + 1;
    return true;
}

/* Text whose length has LENGTH_BYTES bytes. */
static bool push_counted(struct machine *m, int length_bytes, bool text)
{
    const unsigned char *p;
    uint64_t n;

    if (!take_number(m, length_bytes, &n) || !take(m, n, &p))
        return false;
    if (text)
        push_text(m, p, (size_t)n);
    else
        push_new(m, LEAF);
    return true;
}

/* A two's complement number of N bytes; longer than 8, it is a leaf. */
static bool push_long(struct machine *m, uint64_t n)
{
    const unsigned char *p;
    uint64_t v;

    if (!take(m, n, &p))
        return false;
    if (n > 8) {
        push_new(m, LEAF);
        return true;
    }
    v = n && p[n - 1] & 0x80 ? UINT64_MAX : 0;
    for (uint64_t i = n; i-- > 0;)
        v = v << 8 | p[i];
    push_number(m, (int64_t)v);
    return true;
}

/* ---- the memo ---- */

static bool memo_put(struct machine *m, uint64_t at)
{
    /* A memo grows by an opcode an entry: larger numbers are hostile. */
    if (at > (uint64_t)(m->p - m->begin) || !top(m))
        return false;
    m->memo = xgrow(m->memo, &m->memo_cap, (size_t)at + 1, sizeof(struct value *));
    while (m->memos <= at)
        m->memo[m->memos++] = NULL;
    m->memo[at] = top(m);
    return true;
}

static bool memo_get(struct machine *m, uint64_t at)
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
    { "ComplexFloatStorage", DTYPE_C64 },
};

static int push_global(struct machine *m, const char *module, size_t module_len,
                       const char *name, size_t name_len, struct err *err)
{
    char *full = str_dupf("%.*s.%.*s", (int)(module_len < 200 ? module_len : 200),
                          module, (int)(name_len < 200 ? name_len : 200), name);
    struct value *v = push_new(m, GLOBAL);
    int ret = 0;

    if (!strcmp(full, "collections.OrderedDict")) {
        v->global.global = ORDERED_DICT;
    } else if (!strcmp(full, "torch._utils._rebuild_tensor_v2") ||
               !strcmp(full, "torch._utils._rebuild_tensor")) {
        v->global.global = REBUILD_TENSOR;
    } else if (!strcmp(full, "torch._utils._rebuild_parameter")) {
        v->global.global = REBUILD_PARAMETER;
    } else {
        size_t i = 0, n = sizeof(storage_types) / sizeof(*storage_types);

        while (i < n &&
               (!str_starts(full, "torch.") || strcmp(full + 6, storage_types[i].name)))
            i++;
        v->global.global = STORAGE_TYPE;
        if (i < n)
            v->global.dtype = storage_types[i].dtype;
        else
            ret = err_set(err, ERR_INPUT, "%s: refused: its pickle names %s", m->path,
                          full);
    }
    free(full);
    return ret;
}

/* Numbers of a tuple, none negative, to a fresh array. */
static bool take_sizes(struct machine *m, const struct value *v, uint64_t **out, int *n)
{
    uint64_t *sizes;

    if (!is_container(v, TUPLE) || v->list.n > TENSOR_MAX_DIMS)
        return false;
    sizes = pool_take(&m->pool, v->list.n * sizeof(*sizes), sizeof(*sizes));
    for (size_t i = 0; i < v->list.n; i++) {
        if (v->list.v[i]->kind != NUMBER || v->list.v[i]->number < 0)
            return false;
        sizes[i] = (uint64_t)v->list.v[i]->number;
    }
    *out = sizes;
    *n = (int)v->list.n;
    return true;
}

/* _rebuild_tensor_v2(storage, first, size, stride, ...) */
static bool rebuild_tensor(struct machine *m, const struct value *args,
                           struct value *out)
{
    struct value *const *a = args->list.v;
    int nstrides;

    if (args->list.n < 4 || a[0]->kind != STORAGE || a[1]->kind != NUMBER ||
        a[1]->number < 0)
        return false;
    out->kind = TENSOR;
    out->tensor.s = a[0]->storage.s;
    return mem_add(&out->tensor.first, (uint64_t)a[1]->number, a[0]->storage.first) &&
           take_sizes(m, a[2], &out->tensor.shape, &out->tensor.ndim) &&
           take_sizes(m, a[3], &out->tensor.stride, &nstrides) &&
           nstrides == out->tensor.ndim;
}

/* OrderedDict(), or of a list of pairs. */
static bool make_dict(struct machine *m, const struct value *args)
{
    struct value *dict = new_value(m, DICT);

    if (args->list.n > 1 || (args->list.n == 1 && args->list.v[0]->kind != LIST))
        return false;
    for (size_t i = 0; args->list.n && i < args->list.v[0]->list.n; i++) {
        const struct value *pair = args->list.v[0]->list.v[i];

        if ((pair->kind != LIST && pair->kind != TUPLE) || pair->list.n != 2)
            return false;
        append(dict, pair->list.v[0]);
        append(dict, pair->list.v[1]);
    }
    push(m, dict);
    return true;
}

static bool reduce(struct machine *m)
{
    struct value *args = pop(m), *f = pop(m);

    if (!is_container(args, TUPLE) || !f || f->kind != GLOBAL)
        return false;
    switch (f->global.global) {
    case ORDERED_DICT:
        return make_dict(m, args);
    case REBUILD_TENSOR:
        return rebuild_tensor(m, args, push_new(m, LEAF));
    case REBUILD_PARAMETER:
        if (!args->list.n || args->list.v[0]->kind != TENSOR)
            return false;
        push(m, args->list.v[0]);
        return true;
    case STORAGE_TYPE:
        break;
    }
    return false;
}

/* ---- storages ---- */

static struct storage **bucket(struct machine *m, const char *key)
{
    return &m->storages[hash_crc32(0, key, strlen(key)) % BUCKETS];
}

static struct storage *find_storage(struct machine *m, const char *key)
{
    struct storage *s = *bucket(m, key);

    while (s && strcmp(s->key, key))
        s = s->next;
    return s;
}

/* Find the storage's bytes in the archive. */
static bool locate(struct machine *m, struct storage *s)
{
    char *name = str_dupf("%sdata/%s", m->prefix, s->key);
    const struct zip_member *z = zip_find(m->zip, name);

    free(name);
    if (!z || !z->stored)
        return false;
    s->offset = z->offset;
    s->bytes = z->size;
    s->known = true;
    return true;
}

/* ("storage", type, key, location, numel[, view]): the persistent id of a storage; a
 * view is (key, first, numel) or None. */
static bool load_storage(struct machine *m)
{
    struct value *id = pop(m), *const * a, *out;
    struct storage *s;

    if (!is_container(id, TUPLE) || id->list.n < 5)
        return false;
    a = id->list.v;
    if (!text_is(a[0], "storage") || a[1]->kind != GLOBAL ||
        a[1]->global.global != STORAGE_TYPE || a[2]->kind != TEXT ||
        a[4]->kind != NUMBER || a[4]->number < 0)
        return false;
    s = find_storage(m, a[2]->text.s);
    if (!s) {
        struct storage **b = bucket(m, a[2]->text.s);

        s = pool_take(&m->pool, sizeof(*s), 8);
        *s = (struct storage){ .key = a[2]->text.s,
                               .dtype = a[1]->global.dtype,
                               .numel = (uint64_t)a[4]->number,
                               .next = *b };
        *b = s;
        if (m->zip && !locate(m, s))
            return false;
    }
    out = push_new(m, STORAGE);
    out->storage.s = s;
    if (id->list.n > 5 && a[5]->kind == TUPLE) {
        if (a[5]->list.n != 3 || a[5]->list.v[1]->kind != NUMBER ||
            a[5]->list.v[1]->number < 0)
            return false;
        out->storage.first = (uint64_t)a[5]->list.v[1]->number;
    }
    return s->dtype == a[1]->global.dtype;
}

/* ---- opcodes ---- */

/* Collect what is above the last mark in a fresh container. */
static bool collect(struct machine *m, enum kind kind)
{
    struct value *v = new_value(m, kind);
    size_t at;

    if (!find_mark(m, &at) || (kind == DICT && (m->depth - at) % 2))
        return false;
    for (size_t i = at; i < m->depth; i++)
        append(v, m->stack[i]);
    m->depth = at - 1;
    push(m, v);
    return true;
}

static bool collect_last(struct machine *m, size_t n)
{
    struct value *v = new_value(m, TUPLE);

    if (m->depth < n)
        return false;
    for (size_t i = m->depth - n; i < m->depth; i++) {
        if (m->stack[i]->kind == MARK)
            return false;
        append(v, m->stack[i]);
    }
    m->depth -= n;
    push(m, v);
    return true;
}

/* Add what is above the last mark to the container below it. */
static bool extend(struct machine *m, enum kind kind)
{
    struct value *v;
    size_t at;

    if (!find_mark(m, &at) || at < 2)
        return false;
    v = m->stack[at - 2];
    if (kind == LEAF ? v->kind != LEAF : v->kind != kind)
        return false;
    if (kind == DICT && (m->depth - at) % 2)
        return false;
    for (size_t i = at; kind != LEAF && i < m->depth; i++)
        append(v, m->stack[i]);
    m->depth = at - 1;
    return true;
}

static bool set_item(struct machine *m)
{
    struct value *value = pop(m), *key = pop(m), *dict = top(m);

    if (!value || !key || !is_container(dict, DICT))
        return false;
    append(dict, key);
    append(dict, value);
    return true;
}

static bool append_item(struct machine *m)
{
    struct value *item = pop(m), *list = top(m);

    if (!item || !is_container(list, LIST))
        return false;
    append(list, item);
    return true;
}

static bool push_line_number(struct machine *m)
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
        push_new(m, LEAF);
        return true;
    }
    memcpy(digits, line, n);
    digits[n] = '\0';
    if (!str_i64(digits, &value))
        return false;
    push_number(m, value);
    return true;
}

static int load_global(struct machine *m, bool from_stack, struct err *err)
{
    const char *module, *name;
    size_t module_len, name_len;

    if (from_stack) {
        const struct value *n = pop(m), *q = pop(m);

        if (!n || !q || n->kind != TEXT || q->kind != TEXT)
            return fail(m, err, "a global without a name");
        return push_global(m, q->text.s, q->text.len, n->text.s, n->text.len, err);
    }
    if (!take_line(m, &module, &module_len) || !take_line(m, &name, &name_len))
        return fail(m, err, "a global without a name");
    return push_global(m, module, module_len, name, name_len, err);
}

/* Opcodes that push a number or a text, or take one; *known says whether OP is one of
 * them. */
static bool run_operand(struct machine *m, int op, bool *known)
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
        if (!take_number(m, 4, &n))
            return false;
        push_number(m, (int32_t)(uint32_t)n);
        return true;
    case 'K': /* BININT1 */
    case 'M': /* BININT2 */
        if (!take_number(m, op == 'K' ? 1 : 2, &n))
            return false;
        push_number(m, (int64_t)n);
        return true;
    case 0x8a: /* LONG1 */
    case 0x8b: /* LONG4 */
        return take_number(m, op == 0x8a ? 1 : 4, &n) && push_long(m, n);
    case 'I': /* INT */
    case 'L': /* LONG */
        return push_line_number(m);
    case 'F': /* FLOAT */
        if (!take_line(m, &line, &len))
            return false;
        push_new(m, LEAF);
        return true;
    case 'G': /* BINFLOAT */
        if (!take(m, 8, &p))
            return false;
        push_new(m, LEAF);
        return true;
    case 'h': /* BINGET */
    case 'j': /* LONG_BINGET */
        return take_number(m, op == 'h' ? 1 : 4, &n) && memo_get(m, n);
    case 'q': /* BINPUT */
    case 'r': /* LONG_BINPUT */
        return take_number(m, op == 'q' ? 1 : 4, &n) && memo_put(m, n);
    case 'g': /* GET */
    case 'p': /* PUT */
        if (!push_line_number(m) || top(m)->kind != NUMBER)
            return false;
        n = (uint64_t)pop(m)->number;
        return op == 'g' ? memo_get(m, n) : memo_put(m, n);
    default:
        *known = false;
        return false;
    }
}

/* Opcodes that work on the stack alone. */
static bool run_stack(struct machine *m, int op, bool *known)
{
    const unsigned char *p;
    struct value *v;
    size_t at;

    *known = true;
    switch (op) {
    case 0x80: /* PROTO */
        return take(m, 1, &p) && *p <= 5;
    case 0x95: /* FRAME */
        return take(m, 8, &p);
    case '(': /* MARK */
        push_new(m, MARK);
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
    case 'N':  /* NONE */
    case 0x8f: /* EMPTY_SET */
        push_new(m, LEAF);
        return true;
    case ')': /* EMPTY_TUPLE */
        push_new(m, TUPLE);
        return true;
    case ']': /* EMPTY_LIST */
        push_new(m, LIST);
        return true;
    case '}': /* EMPTY_DICT */
        push_new(m, DICT);
        return true;
    case 't': /* TUPLE */
        return collect(m, TUPLE);
    case 'l': /* LIST */
        return collect(m, LIST);
    case 'd': /* DICT */
        return collect(m, DICT);
    case 0x85: /* TUPLE1 .. TUPLE3 */
    case 0x86:
    case 0x87:
        return collect_last(m, (size_t)(op - 0x84));
    case 'a': /* APPEND */
        return append_item(m);
    case 'e': /* APPENDS */
        return extend(m, LIST);
    case 's': /* SETITEM */
        return set_item(m);
    case 'u': /* SETITEMS */
        return extend(m, DICT);
    case 0x90: /* ADDITEMS, to a set */
        return extend(m, LEAF);
    case 0x91: /* FROZENSET */
        return collect(m, TUPLE);
    case 0x94: /* MEMOIZE */
        return memo_put(m, m->memos);
    case 'R': /* REDUCE */
        return reduce(m);
    case 'b': /* BUILD: attributes of a dictionary, which are none of our business */
        return pop(m) && is_container(top(m), DICT);
    case 'Q': /* BINPERSID */
        return load_storage(m);
    default:
        *known = false;
        return false;
    }
}

/* Run the pickle at m->p up to its STOP; its value to *out. */
static int run(struct machine *m, struct value **out, struct err *err)
{
    m->depth = m->memos = 0;
    while (m->p < m->end) {
        int op = *m->p++;
        bool known, good;

        if (op == '.') { /* STOP */
            *out = pop(m);
            return *out ? 0 : fail(m, err, "nothing on its stack at the end");
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
        if (!good)
            return fail(m, err, "an opcode that does not fit its stack or operand");
    }
    return fail(m, err, "it ends too early");
}

/* ---- tensors ---- */

/* Is the layout row-major?  Axes of one element may have any stride. */
static bool is_contiguous(const struct value *v)
{
    uint64_t expected = 1;

    for (int k = v->tensor.ndim - 1; k >= 0; k--) {
        if (v->tensor.shape[k] != 1 && v->tensor.stride[k] != expected)
            return false;
        if (!mem_mul(&expected, expected, v->tensor.shape[k]))
            return false;
    }
    return true;
}

/* One past the last element of the storage that the tensor touches. */
static bool reach(const struct value *v, uint64_t elements, uint64_t *end)
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
    struct machine *m;
    struct pickle *p;
    size_t cap, visits;
    struct str name;
};

static int add_tensor(struct finder *f, const struct value *v, struct err *err)
{
    const struct storage *s = v->tensor.s;
    uint64_t elements = 1, end, needed, width = (uint64_t)dtype_bits(s->dtype) / 8;
    const char *name = f->name.len ? f->name.s : "tensor";
    struct tensor t = { .dtype = s->dtype, .ndim = v->tensor.ndim };
    uint64_t *shape;

    for (int k = 0; k < t.ndim; k++)
        if (!mem_mul(&elements, elements, v->tensor.shape[k]))
            return err_set(err, ERR_INPUT, "%s: %s: its shape overflows", f->m->path,
                           name);
    if (!mem_mul(&t.size, elements, width) || !reach(v, elements, &end) ||
        end > s->numel || !mem_mul(&needed, s->numel, width) || !s->known ||
        needed > s->bytes)
        return err_set(err, ERR_INPUT, "%s: %s: reaches beyond its storage", f->m->path,
                       name);
    t.name = pool_strdup(&f->p->pool, name);
    shape = pool_take(&f->p->pool, (size_t)t.ndim * sizeof(*shape), sizeof(*shape));
    memcpy(shape, v->tensor.shape, (size_t)t.ndim * sizeof(*shape));
    t.shape = shape;
    t.offset = s->offset + (elements ? v->tensor.first * width : 0);
    if (elements && !is_contiguous(v)) {
        uint64_t *stride =
            pool_take(&f->p->pool, (size_t)t.ndim * sizeof(*stride), sizeof(*stride));

        memcpy(stride, v->tensor.stride, (size_t)t.ndim * sizeof(*stride));
        t.stride = stride;
    }
    f->p->tensor = xgrow(f->p->tensor, &f->cap, f->p->n + 1, sizeof(t));
    f->p->tensor[f->p->n++] = t;
    return 0;
}

/* Add the tensors in V, whose name so far is f->name. */
static int find_tensors(struct finder *f, const struct value *v, int depth,
                        struct err *err)
{
    size_t step = v->kind == DICT ? 2 : 1, len = f->name.len;

    if (++f->visits > MAX_VISITS || depth > MAX_DEPTH)
        return err_set(err, ERR_INPUT,
                       "%s: its containers are nested too deep or too often",
                       f->m->path);
    if (v->kind == TENSOR)
        return add_tensor(f, v, err);
    if (v->kind != DICT && v->kind != LIST && v->kind != TUPLE)
        return 0;
    for (size_t i = 0; i + step <= v->list.n; i += step) {
        const struct value *key = v->list.v[i], *item = v->list.v[i + step - 1];

        if (step == 2 && key->kind != TEXT && key->kind != NUMBER)
            continue;
        if (len)
            str_addc(&f->name, '.');
        if (step == 2 && key->kind == TEXT)
            str_addn(&f->name, key->text.s, strlen(key->text.s));
        else
            str_addf(&f->name, "%" PRId64, step == 2 ? key->number : (int64_t)i);
        if (find_tensors(f, item, depth + 1, err) < 0)
            return -1;
        f->name.len = len;
        if (f->name.s)
            f->name.s[len] = '\0';
    }
    return 0;
}

/* The dictionary of weights inside a training checkpoint, or ROOT itself. */
static const struct value *find_state(const struct value *root)
{
    static const char *const NAMES[] = { "state_dict", "model_state_dict", "model",
                                         "module" };

    for (size_t k = 0; root->kind == DICT && k < sizeof(NAMES) / sizeof(*NAMES); k++)
        for (size_t i = 0; i + 1 < root->list.n; i += 2) {
            const struct value *v = root->list.v[i + 1];

            if (!text_is(root->list.v[i], NAMES[k]) || v->kind != DICT)
                continue;
            for (size_t j = 1; j < v->list.n; j += 2)
                if (v->list.v[j]->kind == TENSOR)
                    return v;
        }
    return root;
}

static int collect_tensors(struct machine *m, const struct value *root,
                           struct pickle *p, struct err *err)
{
    struct finder f = { .m = m, .p = p };
    int ret = find_tensors(&f, find_state(root), 0, err);

    str_clear(&f.name);
    return ret;
}

/* ---- the two forms ---- */

/* The archive's data.pkl, whose folder is the prefix of all members. */
static const struct zip_member *find_program(const struct zip *z)
{
    for (size_t i = 0; i < z->n; i++) {
        const char *slash = strchr(z->member[i].name, '/');

        if (slash && !strcmp(slash, "/data.pkl"))
            return &z->member[i];
    }
    return NULL;
}

static int check_byte_order(const struct machine *m, const unsigned char *data,
                            struct err *err)
{
    char *name = str_dupf("%sbyteorder", m->prefix);
    const struct zip_member *z = zip_find(m->zip, name);

    free(name);
    if (z && (z->size != 6 || memcmp(data + z->offset, "little", 6)))
        return err_set(err, ERR_INPUT, "%s: written with another byte order", m->path);
    return 0;
}

static int parse_archive(struct machine *m, struct pickle *p, const unsigned char *data,
                         uint64_t size, struct err *err)
{
    const struct zip_member *program;
    struct value *root;
    char *prefix = NULL;
    struct zip z;
    int ret = -1;

    if (zip_read(&z, m->path, data, size, err) < 0)
        return -1;
    m->zip = &z;
    program = find_program(&z);
    if (!program || !program->stored) {
        err_set(err, ERR_INPUT, "%s: a zip archive without a stored data.pkl", m->path);
        goto out;
    }
    prefix = xstrndup(program->name, strlen(program->name) - strlen("data.pkl"));
    m->prefix = prefix;
    m->begin = m->p = data + program->offset;
    m->end = m->begin + program->size;
    if (check_byte_order(m, data, err) < 0 || run(m, &root, err) < 0)
        goto out;
    ret = collect_tensors(m, root, p, err);
out:
    m->zip = NULL;
    free(prefix);
    zip_clear(&z);
    return ret;
}

/* The storages' bytes follow the pickle of their keys: for each the number of elements
 * (8 bytes) and the elements. */
static int locate_storages(struct machine *m, const unsigned char *data,
                           const struct value *keys, struct err *err)
{
    for (size_t i = 0; i < keys->list.n; i++) {
        struct storage *s = keys->list.v[i]->kind == TEXT
                                ? find_storage(m, keys->list.v[i]->text.s)
                                : NULL;
        const unsigned char *bytes;
        uint64_t numel, size;

        if (!s)
            return fail(m, err, "a storage that nothing uses");
        if (!take_number(m, 8, &numel) ||
            !mem_mul(&size, numel, (uint64_t)dtype_bits(s->dtype) / 8) ||
            !take(m, size, &bytes))
            return fail(m, err, "a storage is cut short");
        s->offset = (uint64_t)(bytes - data);
        s->bytes = size;
        s->known = true;
    }
    return 0;
}

/* Magic number, protocol version, a description of the machine, the object, the
 * storages' keys: five pickles; then the storages. */
static int parse_stream(struct machine *m, struct pickle *p, const unsigned char *data,
                        uint64_t size, struct err *err)
{
    static const unsigned char MAGIC[] =
        "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
    struct value *version, *system, *root, *keys;

    m->begin = m->p = data;
    m->end = data + size;
    if (size < 2 + sizeof(MAGIC) - 1 || data[0] != 0x80 ||
        memcmp(data + 2, MAGIC, sizeof(MAGIC) - 1))
        return err_set(err, ERR_INPUT, "%s: not a file of torch.save", m->path);
    m->p += 2 + sizeof(MAGIC) - 1;
    if (run(m, &version, err) < 0)
        return -1;
    if (version->kind != NUMBER || version->number != 1001)
        return fail(m, err, "an unknown version of torch.save");
    if (run(m, &system, err) < 0 || run(m, &root, err) < 0 || run(m, &keys, err) < 0)
        return -1;
    for (size_t i = 0; is_container(system, DICT) && i + 1 < system->list.n; i += 2)
        if (text_is(system->list.v[i], "little_endian") &&
            system->list.v[i + 1]->kind == NUMBER && !system->list.v[i + 1]->number)
            return err_set(err, ERR_INPUT, "%s: written with another byte order",
                           m->path);
    if (!is_container(keys, LIST))
        return fail(m, err, "no list of storages");
    if (locate_storages(m, data, keys, err) < 0)
        return -1;
    return collect_tensors(m, root, p, err);
}

int pickle_parse(struct pickle *p, const char *path, const unsigned char *data,
                 uint64_t size, struct err *err)
{
    struct machine m = { .path = path };
    struct pickle made = { .size = size };
    bool archive = size >= 4 && !memcmp(data, "PK\3\4", 4);
    int ret = archive ? parse_archive(&m, &made, data, size, err)
                      : parse_stream(&m, &made, data, size, err);

    for (size_t i = 0; i < m.nlists; i++)
        free(m.lists[i]->list.v);
    free(m.lists);
    free(m.stack);
    free(m.memo);
    pool_clear(&m.pool);
    if (ret < 0)
        pickle_clear(&made);
    else
        *p = made;
    return ret;
}

int pickle_read(struct pickle *p, int fd, const char *path, struct err *err)
{
    struct stat st;
    void *data;
    int ret;

    if (fstat(fd, &st) < 0)
        return err_errno(err, "%s", path);
    if (!S_ISREG(st.st_mode) || st.st_size == 0)
        return err_set(err, ERR_INPUT, "%s: empty, or not a regular file", path);
    data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED)
        return err_errno(err, "%s", path);
    ret = pickle_parse(p, path, data, (uint64_t)st.st_size, err);
    munmap(data, (size_t)st.st_size);
    return ret;
}

void pickle_clear(struct pickle *p)
{
    free(p->tensor);
    pool_clear(&p->pool);
    *p = (struct pickle){ 0 };
}
