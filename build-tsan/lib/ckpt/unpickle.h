/* unpickle - runs a pickle that can build nothing but plain containers and tensors
 *
 * Python's pickle is a program for a machine with a stack and a memo; this is that
 * machine (protocols 0 to 5, as pickle.py describes the opcodes) with few globals
 * known to it: collections.OrderedDict, torch._utils._rebuild_tensor, its versions 2
 * and 3, and _rebuild_parameter, and the types of storages and elements.  Any other is
 * refused, naming it; none is ever called. Values live in a pool and die with
 * unpickle_clear. */
#ifndef LIB_CKPT_UNPICKLE_H
#define LIB_CKPT_UNPICKLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/dtype.h"
#include "lib/base/err.h"
#include "lib/base/pool.h"

enum { UNPICKLE_BUCKETS = 1 << 12 };

enum pickled_kind {
    PICKLED_MARK,
    PICKLED_LEAF, /* None, a float, bytes: anything that is neither built upon nor a
                     tensor */
    PICKLED_NUMBER,
    PICKLED_TEXT,
    PICKLED_TUPLE,
    PICKLED_LIST,
    PICKLED_DICT, /* keys and values by turns */
    PICKLED_GLOBAL,
    PICKLED_STORAGE,
    PICKLED_TENSOR
};

/* The only globals there are. */
enum pickled_global {
    PICKLED_ORDERED_DICT,
    PICKLED_REBUILD_TENSOR, /* _rebuild_tensor_v2 and its shorter ancestor */
    PICKLED_REBUILD_TYPED,  /* _rebuild_tensor_v3, which is told the type */
    PICKLED_REBUILD_PARAMETER,
    PICKLED_STORAGE_TYPE,
    PICKLED_ELEMENT_TYPE
};

/* Bytes of the file that tensors look into. */
struct pickled_storage {
    const char *key;
    enum dtype dtype;
    uint64_t numel;
    uint64_t offset, bytes; /* in the file, once known */
    bool known;
    struct pickled_storage *next;
};

struct pickled {
    enum pickled_kind kind;
    union {
        int64_t number;
        struct {
            const char *s;
            size_t len;
        } text;
        struct {
            struct pickled **v;
            size_t n, cap;
        } list;
        struct {
            enum pickled_global global;
            enum dtype dtype; /* of a storage type or an element type */
        } global;
        struct {
            struct pickled_storage *s;
            uint64_t first; /* of a view, elements */
        } storage;
        struct {
            struct pickled_storage *s;
            enum dtype dtype; /* the storage's, but where bytes are told another */
            uint64_t first;   /* elements into the storage */
            int ndim;
            uint64_t *shape, *stride;
        } tensor;
    };
};

struct unpickle {
    const char *path;
    const unsigned char *begin, *p, *end;
    const unsigned char *start; /* of the present pickle */
    struct pickled **stack;
    size_t depth, stack_cap;
    struct pickled **memo;
    size_t memos, memo_cap;
    struct pickled **lists; /* whose arrays are freed at the end */
    size_t nlists, lists_cap;
    struct pickled_storage *storages[UNPICKLE_BUCKETS]; /* by the hash of their keys */
    uint64_t grown;                                     /* bytes of the arrays above */
    uint64_t read;   /* bytes of the pickles before the present one */
    const char *why; /* what is wrong where an opcode fails, or NULL */
    struct pool pool;
};

/* Begin with the N bytes at TEXT; PATH is for messages.  Both are borrowed. */
void unpickle_init(struct unpickle *m, const char *path, const unsigned char *text,
                   uint64_t n);
void unpickle_clear(struct unpickle *m);

/* Run the pickle at m->p up to its STOP, after which m->p stands; its value to *out.
 * What is malformed or refused is ERR_INPUT. */
MUST_CHECK int unpickle_run(struct unpickle *m, struct pickled **out, struct err *err);

/* The bytes of pickles that have been read so far: what has been built of them takes no
 * more memory than mem_allowance of it, or the run fails. */
uint64_t unpickle_read(const struct unpickle *m);

/* ERR_INPUT that tells the present byte and WHAT is wrong there. */
int unpickle_fail(const struct unpickle *m, struct err *err, const char *what);

struct pickled_storage *unpickle_storage(struct unpickle *m,
                                         const char *key); /* or NULL */
/* Is V (which may be NULL) of that kind, that text? */
bool pickled_is(const struct pickled *v, enum pickled_kind kind);
bool pickled_text_is(const struct pickled *v, const char *s);

/* The next N bytes, or the next number of BYTES bytes; false when there are fewer. */
bool unpickle_take(struct unpickle *m, uint64_t n, const unsigned char **bytes);
bool unpickle_take_number(struct unpickle *m, int bytes, uint64_t *out);

#endif
