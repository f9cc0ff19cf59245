/* json - a strict JSON parser that records positions and rejects duplicate keys
 *
 * For formats whose errors must name line and column, or whose memory must stay
 * bounded: family files, manifests, safetensors headers.  Other files are read with
 * cJSON.  A document is a tree of nodes in one pool; every pointer is borrowed from the
 * document and is invalid after json_clear. */
#ifndef LIB_BASE_JSON_H
#define LIB_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/pool.h"
#include "lib/base/str.h"

enum json_type {
    JSON_NULL,
    JSON_FALSE,
    JSON_TRUE,
    JSON_NUMBER,
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT
};

struct json {
    enum json_type type;
    uint32_t line, col; /* of its first byte, from 1; col counts bytes */
    uint32_t n;         /* members or elements; bytes of a string */
    const char *key;    /* name inside an object, else NULL */
    const char *text;   /* string: unescaped, NUL-terminated; number: as written */
    const struct json *first; /* first member or element */
    const struct json *next;  /* next sibling */
};

struct json_doc {
    const char *name; /* borrowed: the file's name for messages */
    const struct json *root;
    struct pool pool; /* private */
    struct str token; /* private */
};

/* Parse the N bytes at TEXT (not necessarily NUL-terminated) into *doc.  NAME is
 * borrowed. Nesting deeper than 64, a duplicate key, a bad escape, ill-formed UTF-8,
 * NaN or trailing bytes are ERR_INPUT "NAME:LINE:COL: cause"; so is a tree larger than
 * mem_allowance permits. On failure *doc needs no json_clear. */
MUST_CHECK int json_parse(struct json_doc *doc, const char *name, const char *text,
                          size_t n, struct err *err);
/* The same of a TEXT whose first line is line number LINE of NAME, into a *doc that is
 * all zero or was parsed before: its old tree is released and its memory used again,
 * which makes short documents cheap.  On failure *doc has no root, and still needs
 * json_clear. */
MUST_CHECK int json_reparse(struct json_doc *doc, const char *name, uint32_t line,
                            const char *text, size_t n, struct err *err);
void json_clear(struct json_doc *doc);

/* As json_parse, for a file that Python's json may have written, as it would read it:
 * NaN, Infinity and -Infinity are numbers, for which json_double is false, the last of
 * equal keys counts, and a byte order mark is passed over. */
MUST_CHECK int json_parse_config(struct json_doc *doc, const char *name,
                                 const char *text, size_t n, struct err *err);
/* Reads TEXT like that into cJSON's form, with the errors of json_parse; *out is freed
 * with cJSON_Delete. */
struct cJSON;
MUST_CHECK int json_read_config(struct cJSON **out, const char *name, const char *text,
                                size_t n, struct err *err);

/* ERR_INPUT when cJSON's tree of the N bytes at TEXT could take more memory than
 * mem_allowance permits.  Call it before cJSON_Parse; the tree may then be allocated as
 * bookkeeping memory (mem.h). */
MUST_CHECK int json_check_cost(const char *name, const char *text, size_t n,
                               struct err *err);

/* The first member of OBJECT that repeats an earlier one's key, or NULL. */
const struct json *json_find_duplicate(const struct json *object);

/* Member KEY of OBJ; NULL when there is none, or OBJ is NULL or not an object. */
const struct json *json_get(const struct json *obj, const char *key);
const char *json_string(const struct json *j);      /* NULL unless a string */
bool json_u64(const struct json *j, uint64_t *out); /* an exact unsigned integer */
bool json_i64(const struct json *j, int64_t *out);
bool json_double(const struct json *j, double *out); /* any number */
bool json_is_true(const struct json *j);

/* Sets ERR_INPUT "NAME:LINE:COL: " and the formatted cause; without a position when J
 * is NULL.  Returns -1. */
int json_error(const struct json_doc *doc, const struct json *j, struct err *err,
               const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* Append J as compact JSON text (numbers as they were written). */
void json_print(struct str *out, const struct json *j);

#endif
