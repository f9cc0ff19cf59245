/* gguf - the header of a GGUF file: its metadata, and where its tensors lie
 *
 * Little-endian, versions 2 and 3 (ggml's docs/gguf.md): the magic "GGUF", counts,
 * pairs of a key and a value, descriptions of tensors, padding, data.  The first
 * dimension of a tensor is the fastest; here a shape has it last.  Values stay in the
 * file, which is mapped while the header is open. */
#ifndef LIB_CKPT_GGUF_H
#define LIB_CKPT_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/ggml.h"
#include "lib/base/err.h"
#include "lib/base/pool.h"
#include "lib/ckpt/tensor.h"

enum gguf_kind {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_TEXT,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_KINDS
};

/* A value: one of KIND, or (ARRAY) N of KIND. */
struct gguf_value {
    const char *key;
    enum gguf_kind kind;
    bool array;
    uint64_t n;
    const unsigned char *at;      /* its first byte in the file */
    const struct gguf_text *text; /* of texts: [n] */
};

struct gguf_text {
    const char *s; /* in the file: no NUL ends it */
    uint64_t n;
};

/* A tensor, and the row of its blocks; NULL: its type is plain.  Of blocks .dtype is
 * U8, and its shape has the bytes of a block as a further axis. */
struct gguf_tensor {
    struct tensor t;
    const struct ggml_row *blocks;
};

struct gguf {
    const char *path;         /* for messages; borrowed */
    struct gguf_value *value; /* sorted by key */
    size_t nvalues;
    struct gguf_tensor *tensor; /* in the file's order; names are unique */
    size_t n;
    uint64_t data;    /* offset of the first data byte */
    uint64_t head;    /* bytes of the header, which was read */
    struct pool pool; /* private, as the next */
    unsigned char *map;
    uint64_t size;
};

/* Opens the file FD, which may be closed then.  PATH must outlive *g.  ERR_INPUT, with
 * the byte, when it is no GGUF file, is damaged, or has a type that is not known.  On
 * failure *g needs no clearing. */
MUST_CHECK int gguf_open(struct gguf *g, int fd, const char *path, struct err *err);
void gguf_clear(struct gguf *g);

/* The value of the key PREFIX.NAME (of NAME, if PREFIX is NULL); NULL: there is none.
 */
const struct gguf_value *gguf_get(const struct gguf *g, const char *prefix,
                                  const char *name);
/* Element I of the numbers V; false: it is no number, or has no such element. */
bool gguf_number(const struct gguf_value *v, uint64_t i, double *out);
/* The only text of V (NULL allowed); NULL: it is none. */
const struct gguf_text *gguf_string(const struct gguf_value *v);
/* Is the text of V, which may be NULL, S? */
bool gguf_is(const struct gguf_value *v, const char *s);

#endif
