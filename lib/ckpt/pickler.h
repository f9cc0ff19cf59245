/* pickler - writes pickles of plain values and tensors
 *
 * The opcodes of protocol 2, which torch.load and Python's pickle read; memo opcodes
 * are left out, because a reader does not need them.  Each function appends one value,
 * or the part of one that its name says. */
#ifndef LIB_CKPT_PICKLER_H
#define LIB_CKPT_PICKLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/dtype.h"
#include "lib/base/json.h"
#include "lib/base/str.h"

void pickler_begin(struct str *s, int protocol);
void pickler_end(struct str *s);

void pickler_none(struct str *s);
void pickler_bool(struct str *s, bool x);
void pickler_count(struct str *s, uint64_t v); /* less than 2^63 */
void pickler_int(struct str *s, int64_t v);
void pickler_real(struct str *s, double x);
void pickler_text(struct str *s, const char *text);
/* A class or function of Python. */
void pickler_global(struct str *s, const char *module, const char *name);
/* V[n] as a tuple; with pickler_size as a torch.Size, of zeros when V is NULL. */
void pickler_tuple(struct str *s, const uint64_t *v, int n);
void pickler_size(struct str *s, const uint64_t *v, int n);
/* A dictionary: keys and values follow in turn. */
void pickler_begin_dict(struct str *s);
void pickler_end_dict(struct str *s);
/* A list: values follow. */
void pickler_begin_list(struct str *s);
void pickler_end_list(struct str *s);
/* An object of class NAME of MODULE; its state is the dictionary that follows. */
void pickler_begin_object(struct str *s, const char *module, const char *name);
void pickler_end_object(struct str *s);
/* J, which may be NULL (None), as Python's json reads it. */
void pickler_json(struct str *s, const struct json *j);
/* A row-major tensor in the storage number KEY of its archive (torchsave.h).  PyTorch
 * has the type. */
void pickler_tensor(struct str *s, size_t key, enum dtype dtype, int ndim,
                    const uint64_t *shape);

#endif
