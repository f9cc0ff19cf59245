/* ggufwriter - the header of a GGUF file that is written
 *
 * Pairs are appended first, in any order, then tensors, whose data follow one another
 * in that order, each at a multiple of 32 bytes (gguf.h says how a file lies). */
#ifndef LIB_CKPT_GGUFWRITER_H
#define LIB_CKPT_GGUFWRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/str.h"
#include "lib/ckpt/gguf.h"

enum { GGUF_ALIGNMENT = 32, GGUF_MOST_NAME = 63, GGUF_MOST_AXES = 4 };
/* Numbers of types that are not in base/ggml.h. */
enum { GGUF_TYPE_F32 = 0, GGUF_TYPE_F16 = 1, GGUF_TYPE_BF16 = 30 };

struct ggufwriter {
    struct str pairs, infos; /* private */
    uint64_t npairs, ntensors;
    uint64_t end; /* of the data, from its first byte */
};

/* Each appends the key PREFIX.NAME (NAME, if PREFIX is NULL) with its value. */
void ggufwriter_u32(struct ggufwriter *w, const char *prefix, const char *name,
                    uint32_t value);
void ggufwriter_f32(struct ggufwriter *w, const char *prefix, const char *name,
                    float value);
void ggufwriter_bool(struct ggufwriter *w, const char *prefix, const char *name,
                     bool value);
void ggufwriter_text(struct ggufwriter *w, const char *prefix, const char *name,
                     const char *text, size_t n);
/* Begins a list of N values of KIND, which the next N of ggufwriter_item are. */
void ggufwriter_list(struct ggufwriter *w, const char *prefix, const char *name,
                     enum gguf_kind kind, uint64_t n);
void ggufwriter_item_text(struct ggufwriter *w, const char *text, size_t n);
void ggufwriter_item_i32(struct ggufwriter *w, int32_t value);
void ggufwriter_item_f32(struct ggufwriter *w, float value);

/* Appends the tensor NAME of TYPE, of BYTES, whose last axis is the fastest here.
 * Returns the offset of its data from the first byte of all. */
uint64_t ggufwriter_tensor(struct ggufwriter *w, const char *name, int ndim,
                           const uint64_t *shape, uint32_t type, uint64_t bytes);
/* Sets OUT to the header; the data begin at its end. */
void ggufwriter_header(struct str *out, const struct ggufwriter *w);
void ggufwriter_clear(struct ggufwriter *w);

#endif
