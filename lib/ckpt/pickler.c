/* pickler - writes pickles of plain values and tensors */
#include "lib/ckpt/pickler.h"

#include <stdio.h>
#include <string.h>

#include "lib/ckpt/unpickle.h"

static void put(struct str *s, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        str_addc(s, (char)(v >> 8 * i & 0xff));
}

void pickler_begin(struct str *s, int protocol)
{
    str_addc(s, (char)0x80);
    str_addc(s, (char)protocol);
}

void pickler_end(struct str *s)
{
    str_addc(s, '.');
}

void pickler_none(struct str *s)
{
    str_addc(s, 'N');
}

void pickler_bool(struct str *s, bool x)
{
    str_addc(s, (char)(x ? 0x88 : 0x89));
}

void pickler_count(struct str *s, uint64_t v)
{
    pickler_int(s, (int64_t)v);
}

void pickler_int(struct str *s, int64_t v)
{
    if (v >= 0 && v < 0x100) {
        str_addc(s, 'K');
        put(s, (uint64_t)v, 1);
    } else if (v >= INT32_MIN && v <= INT32_MAX) {
        str_addc(s, 'J');
        put(s, (uint64_t)v, 4);
    } else { /* nine bytes, of which the last is the sign */
        str_addc(s, (char)0x8a);
        put(s, 9, 1);
        put(s, (uint64_t)v, 8);
        put(s, v < 0 ? 0xff : 0, 1);
    }
}

void pickler_real(struct str *s, double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof(bits));
    str_addc(s, 'G');
    for (int i = 7; i >= 0; i--) /* big-endian */
        str_addc(s, (char)(bits >> 8 * i & 0xff));
}

static void put_textn(struct str *s, const char *text, size_t n)
{
    str_addc(s, 'X');
    put(s, n, 4);
    str_addn(s, text, n);
}

void pickler_text(struct str *s, const char *text)
{
    put_textn(s, text, strlen(text));
}

void pickler_global(struct str *s, const char *module, const char *name)
{
    str_addf(s, "c%s\n%s\n", module, name);
}

void pickler_tuple(struct str *s, const uint64_t *v, int n)
{
    str_addc(s, '(');
    for (int i = 0; i < n; i++)
        pickler_count(s, v ? v[i] : 0);
    str_addc(s, 't');
}

void pickler_size(struct str *s, const uint64_t *v, int n)
{
    pickler_global(s, "torch", "Size");
    pickler_tuple(s, v, n);
    str_add(s, "\x85R");
}

void pickler_begin_dict(struct str *s)
{
    str_add(s, "}(");
}

void pickler_end_dict(struct str *s)
{
    str_addc(s, 'u');
}

void pickler_begin_list(struct str *s)
{
    str_add(s, "](");
}

void pickler_end_list(struct str *s)
{
    str_addc(s, 'e');
}

void pickler_begin_object(struct str *s, const char *module, const char *name)
{
    pickler_global(s, module, name);
    str_add(s, ")\x81}(");
}

void pickler_end_object(struct str *s)
{
    str_add(s, "ub");
}

void pickler_json(struct str *s, const struct json *j)
{
    int64_t whole;
    double real;

    if (!j || j->type == JSON_NULL) {
        pickler_none(s);
    } else if (j->type == JSON_TRUE || j->type == JSON_FALSE) {
        pickler_bool(s, j->type == JSON_TRUE);
    } else if (j->type == JSON_NUMBER) {
        if (json_i64(j, &whole))
            pickler_int(s, whole);
        else
            pickler_real(s, json_double(j, &real) ? real : 0);
    } else if (j->type == JSON_STRING) {
        put_textn(s, j->text, j->n);
    } else {
        bool object = j->type == JSON_OBJECT;

        str_add(s, object ? "}(" : "](");
        for (const struct json *e = j->first; e; e = e->next) {
            if (object)
                pickler_text(s, e->key);
            pickler_json(s, e);
        }
        str_addc(s, object ? 'u' : 'e');
    }
}

/* torch._utils._rebuild_tensor_v2(storage, 0, shape, strides, False, OrderedDict()), or
 * _rebuild_tensor_v3, which has the type as an additional argument. */
void pickler_tensor(struct str *s, size_t key, enum dtype dtype, int ndim,
                    const uint64_t *shape)
{
    const char *storage = unpickle_storage_class(dtype);
    uint64_t stride[64], count = 1;
    char name[24];

    snprintf(name, sizeof(name), "%zu", key);
    for (int k = ndim - 1; k >= 0; k--) {
        stride[k] = count;
        count *= shape[k];
    }
    pickler_global(s, "torch._utils",
                   storage ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
    str_add(s, "((");
    pickler_text(s, "storage");
    pickler_global(s, storage ? "torch" : "torch.storage",
                   storage ? storage : "UntypedStorage");
    pickler_text(s, name);
    pickler_text(s, "cpu");
    pickler_count(s, storage ? count : count * (uint64_t)dtype_bits(dtype) / 8);
    str_add(s, "tQ");
    pickler_int(s, 0);
    pickler_tuple(s, shape, ndim);
    pickler_tuple(s, stride, ndim);
    pickler_bool(s, false);
    pickler_global(s, "collections", "OrderedDict");
    str_add(s, ")R");
    if (!storage)
        pickler_global(s, "torch", dtype_pytorch(dtype));
    str_add(s, "tR");
}
