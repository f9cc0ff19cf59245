/* safetensors - reads and writes headers of safetensors files
 *
 * A file has the header's length (8 bytes, little-endian), the header (JSON, at most
 * 100 MB: name -> dtype, shape, data_offsets; "__metadata__" -> strings) and the data,
 * which the tensors cover without gaps or overlaps.  The same files are valid as for
 * the format's reference reader, except that tensors may have at most 64 dimensions. */
#ifndef LIB_CKPT_SAFETENSORS_H
#define LIB_CKPT_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/pool.h"
#include "lib/base/str.h"
#include "lib/ckpt/tensor.h"

enum { SAFETENSORS_MAX_HEADER = 100000000 };

/* An entry of "__metadata__". */
struct safetensors_note {
    const char *key, *value;
};

struct safetensors {
    struct tensor *tensor; /* in the header's order */
    size_t n;
    struct safetensors_note *note; /* the metadata, without strings that have a NUL */
    size_t nnotes;
    uint64_t data;    /* offset of the first data byte: 8 + the header's length */
    uint64_t size;    /* of the file */
    struct pool pool; /* private */
};

/* Reads the header of the open file FD; PATH is for messages.  *TEXT, unless TEXT is
 * NULL, becomes the header's text (data - 8 bytes and a NUL), which the caller frees.
 * A malformed file is ERR_INPUT.  On failure *st needs no clearing. */
MUST_CHECK int safetensors_read(struct safetensors *st, char **text, int fd,
                                const char *path, struct err *err);
/* The same from the header's N bytes at TEXT and the file's size. */
MUST_CHECK int safetensors_parse(struct safetensors *st, const char *path,
                                 const char *text, size_t n, uint64_t size,
                                 struct err *err);
/* The metadata alone, of the header's N bytes at TEXT; *st has no tensors. */
MUST_CHECK int safetensors_parse_notes(struct safetensors *st, const char *path,
                                       const char *text, size_t n, struct err *err);
void safetensors_clear(struct safetensors *st);

/* Builds a header: call begin, add for each tensor in the order of its data, then
 * finish. */
struct safetensors_header {
    struct str text; /* after finish: the 8 bytes of length and the header; a multiple
                      * of 8 bytes */
    uint64_t end;    /* data bytes so far */
};

/* METADATA is the JSON object for "__metadata__", or NULL. */
void safetensors_header_begin(struct safetensors_header *h, const char *metadata);
void safetensors_header_add(struct safetensors_header *h, const char *name,
                            enum dtype dtype, int ndim, const uint64_t *shape,
                            uint64_t size);
/* ERR_INPUT when the header is too long for the format. */
MUST_CHECK int safetensors_header_finish(struct safetensors_header *h, const char *path,
                                         struct err *err);
void safetensors_header_clear(struct safetensors_header *h);

/* Convert the header's length to its 8 bytes, and back. */
void safetensors_put_length(unsigned char out[8], uint64_t n);
uint64_t safetensors_get_length(const unsigned char in[8]);

#endif
