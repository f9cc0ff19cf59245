/* safetensors - reading and making the headers of safetensors files
 *
 * A file is the header's length (8 bytes, little-endian), the header (JSON, at most 100
 * MB: name -> dtype, shape, data_offsets; "__metadata__" -> strings) and the data,
 * which the tensors cover without holes or overlaps.  Taken and refused is what the
 * format's reference reader takes and refuses; only tensors of more than 64 dimensions
 * are refused besides. */
#ifndef LIB_CKPT_SAFETENSORS_H
#define LIB_CKPT_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/pool.h"
#include "lib/base/str.h"
#include "lib/ckpt/tensor.h"

enum { SAFETENSORS_MAX_HEADER = 100000000 };

struct safetensors {
    struct tensor *tensor; /* in the header's order */
    size_t n;
    uint64_t data;    /* offset of the first data byte: 8 + the header's length */
    uint64_t size;    /* of the file */
    struct pool pool; /* private */
};

/* Read the header of the open file FD; PATH is for messages.  When TEXT is not NULL the
 * header as it stands in the file becomes the caller's there (data - 8 bytes, and a
 * NUL). Malformed files are ERR_INPUT.  On failure *st needs no clearing. */
MUST_CHECK int safetensors_read(struct safetensors *st, char **text, int fd,
                                const char *path, struct err *err);
/* The same from the header's N bytes at TEXT and the file's size. */
MUST_CHECK int safetensors_parse(struct safetensors *st, const char *path,
                                 const char *text, size_t n, uint64_t size,
                                 struct err *err);
void safetensors_clear(struct safetensors *st);

/* A header in the making: `{ 0 }`, then add tensors in the order of their data, then
 * finish. */
struct safetensors_header {
    struct str
        text; /* after finish: the length's 8 bytes and the header, a multiple of 8 */
    uint64_t end; /* data bytes so far */
};

/* METADATA is a JSON object's text for "__metadata__", or NULL. */
void safetensors_header_begin(struct safetensors_header *h, const char *metadata);
void safetensors_header_add(struct safetensors_header *h, const char *name,
                            enum dtype dtype, int ndim, const uint64_t *shape,
                            uint64_t size);
/* ERR_INPUT when it has become too long for the format. */
MUST_CHECK int safetensors_header_finish(struct safetensors_header *h, const char *path,
                                         struct err *err);
void safetensors_header_clear(struct safetensors_header *h);

/* The length's 8 bytes, and back. */
void safetensors_put_length(unsigned char out[8], uint64_t n);
uint64_t safetensors_get_length(const unsigned char in[8]);

#endif
