/* unpickle - a safe unpickler: builds only plain containers, tensors and records
 *
 * A pickle is a program for a machine with a stack and a memo.  This machine implements
 * protocols 0 to 5 (opcodes as in pickle.py) with these globals only:
 * collections.OrderedDict, torch._utils._rebuild_tensor with its versions 2 and 3,
 * _rebuild_parameter, and the types of storages and elements.  Any other global is an
 * error that names it.  Nothing is ever called.  Values live in a pool until
 * unpickle_clear.
 *
 * With .records set, objects of the classes that training frameworks store beside
 * tensors (placements, meshes, settings) become records: the class's name, the
 * arguments and the state, as data.  Classes that are not in the list of records.c are
 * refused as before. */
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
    PICKLED_LEAF, /* bytes, a set: a value without contents of interest */
    PICKLED_NONE,
    PICKLED_NUMBER, /* an integer, True or False */
    PICKLED_REAL,
    PICKLED_TEXT,
    PICKLED_TUPLE,
    PICKLED_LIST,
    PICKLED_DICT, /* keys and values alternate */
    PICKLED_GLOBAL,
    PICKLED_STORAGE,
    PICKLED_TENSOR,
    PICKLED_RECORD
};

/* The only known globals. */
enum pickled_global {
    PICKLED_ORDERED_DICT,
    PICKLED_REBUILD_TENSOR, /* _rebuild_tensor and _rebuild_tensor_v2 */
    PICKLED_REBUILD_TYPED,  /* _rebuild_tensor_v3, which has the type as an argument */
    PICKLED_REBUILD_PARAMETER,
    PICKLED_STORAGE_TYPE,
    PICKLED_ELEMENT_TYPE,
    /* with .records only */
    PICKLED_CLASS,             /* becomes a record */
    PICKLED_REBUILD_FROM_TYPE, /* _rebuild_from_type_v2(function, class, args, state) */
    PICKLED_SAME,              /* torch.Size, tuple, list: of one container, that one */
    PICKLED_OPAQUE,            /* _codecs.encode, set, bytearray: a leaf */
    PICKLED_GETATTR            /* getattr(class, name): a class inside a class */
};

/* A storage: bytes of the file that tensors refer to. */
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
        double real;
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
            const char *name; /* of a class, with its module */
        } global;
        struct {
            const char *name;      /* of the class, with its module */
            struct pickled *args;  /* a tuple */
            struct pickled *state; /* NULL: none */
        } record;
        struct {
            struct pickled_storage *s;
            uint64_t first; /* of a view, in elements */
        } storage;
        struct {
            struct pickled_storage *s;
            enum dtype
                dtype;      /* the storage's, unless the tensor has a type of its own */
            uint64_t first; /* elements into the storage */
            int ndim;
            uint64_t *shape, *stride;
        } tensor;
    };
};

struct unpickle {
    const char *path;
    const unsigned char *begin, *p, *end;
    const unsigned char *start; /* of the current pickle */
    struct pickled **stack;
    size_t depth, stack_cap;
    struct pickled **memo;
    size_t memos, memo_cap;
    struct pickled **lists; /* containers with arrays to be freed at the end */
    size_t nlists, lists_cap;
    struct pickled_storage *storages[UNPICKLE_BUCKETS]; /* hash table by key */
    uint64_t grown;                                     /* bytes of the arrays above */
    uint64_t read;                                      /* bytes of earlier pickles */
    const char *why; /* cause of the last opcode's failure, or NULL */
    bool records;    /* set by the caller after unpickle_init */
    struct pool pool;
};

/* Begins with the N bytes at TEXT; PATH is for messages.  Both are borrowed. */
void unpickle_init(struct unpickle *m, const char *path, const unsigned char *text,
                   uint64_t n);
void unpickle_clear(struct unpickle *m);

/* Runs the pickle at m->p up to its STOP and advances m->p past it; *out is its value.
 * ERR_INPUT when it is malformed or refers to an unknown global. */
MUST_CHECK int unpickle_run(struct unpickle *m, struct pickled **out, struct err *err);

/* Bytes of pickles read so far.  Memory of the values is limited to mem_allowance of
 * it. */
uint64_t unpickle_read(const struct unpickle *m);

/* Sets ERR_INPUT with the current offset and WHAT; returns -1. */
int unpickle_fail(const struct unpickle *m, struct err *err, const char *what);

struct pickled_storage *unpickle_storage(struct unpickle *m,
                                         const char *key); /* or NULL */
/* Has V (which may be NULL) this kind, this text? */
bool pickled_is(const struct pickled *v, enum pickled_kind kind);
bool pickled_text_is(const struct pickled *v, const char *s);
/* The last value of KEY in the dictionary V, or in the state of the record V, which is
 * a dictionary or a pair of them; NULL: none.  Takes time in proportion to V's size. */
const struct pickled *pickled_get(const struct pickled *v, const char *key);
/* Is V a record of a class whose name, after its last full stop, is NAME? */
bool pickled_is_a(const struct pickled *v, const char *name);
/* The integer V, or that of an enumeration's member; false when it is neither. */
bool pickled_integer(const struct pickled *v, int64_t *out);

/* Take the next N bytes, or a number of BYTES bytes; false at the end of the input. */
bool unpickle_take(struct unpickle *m, uint64_t n, const unsigned char **bytes);
bool unpickle_take_number(struct unpickle *m, int bytes, uint64_t *out);

/* The class in torch of storages of T; NULL for types that have bytes alone
 * (UntypedStorage). */
const char *unpickle_storage_class(enum dtype t);

#endif
