/* format - how numbers lie in memory: a plain type, or codes with scales
 *
 * One table has a row for each form in which the weights of a program, its values and
 * cached keys and values are held.  struct matrix, struct buffer and the cache carry a
 * format; kernels read it, and a backend says which ones each kernel takes.
 *
 * Plain formats are row-major.  Weights as codes lie in groups of CODES_ROWS rows, side
 * by side (base/codes.h), with scales in memory of their own; a cached row begins with
 * its scales.  The format says how many numbers of a row one scale is for: the whole
 * row, a block of it, or a head of a cached row. */
#ifndef LIB_BASE_FORMAT_H
#define LIB_BASE_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/dtype.h"

enum format {
    FORMAT_F32, /* where nothing else is said */
    FORMAT_BF16,
    FORMAT_F16,
    FORMAT_F64, /* of values only: statistics, indices */
    FORMAT_I32,
    FORMAT_INT8, /* weights: bytes, a scale for each row */
    FORMAT_INT4, /* weights: 4 bits, a scale for each block */
    FORMAT_E4M3, /* weights: FP8 of either kind, scales for PER numbers each */
    FORMAT_E5M2,
    FORMAT_MXFP4,      /* weights: FP4, a power of two for each block */
    FORMAT_CACHE_INT8, /* cached rows: bytes, a scale for each head */
    FORMAT_CACHE_FP8,  /* the same of FP8 (E4M3) */
    FORMAT_CACHE_INT4, /* cached rows: 4 bits, a scale for up to 32 numbers of a head */
    FORMAT_COUNT
};

enum format_axis {
    FORMAT_PLAIN,  /* a type; no scales */
    FORMAT_GROUPS, /* a matrix of codes, in groups of rows */
    FORMAT_CACHED  /* a row of codes behind its scales */
};

enum format_scale {
    SCALE_NONE,
    SCALE_OF_ROW,   /* a row has one */
    SCALE_OF_BLOCK, /* a block has one, NUMBERS of a row */
    SCALE_OF_SOME,  /* PER numbers of a row have one */
};

/* Codes in memory: a matrix, or (SCALE NULL) one cached row.  PER numbers of a row
 * share a scale; 0: as the format says. */
struct format_codes {
    void *data, *scale;
    uint64_t rows, cols, per;
};

struct format_row {
    const char *name; /* in messages, options and measurements */
    enum format_axis axis;
    enum dtype type; /* of a plain number, or of a code */
    size_t numbers;  /* of a row that lie together: a block, or a word of four bytes */
    size_t bytes;    /* of their codes */
    bool whole;      /* a row has no part of a block; else the last one is filled up */
    uint8_t zero;    /* a byte of zeros */
    enum format_scale scale;
    size_t scale_bytes; /* of one */
    /* X[N] = the numbers of row ROW from column FIRST on. */
    void (*widen)(float *x, const struct format_codes *c, uint64_t row, uint64_t first,
                  uint64_t n);
    /* Row ROW = CODE[cols], a byte for each number, with its scales: of blocks a byte
     * each, else f32.  False: one of the codes is no number.  NULL: no checkpoint has
     * such codes. */
    bool (*put)(const struct format_codes *c, uint64_t row, const uint8_t *code,
                const void *scale);
    /* Row ROW = the codes of the finite numbers X.  SCALE_OF_ROW: LARGEST is the
     * largest absolute value of the whole row.  DECODED: they were codes of this format
     * before.  NULL: such codes come from checkpoints only. */
    void (*encode)(const struct format_codes *c, uint64_t row, const float *x,
                   float largest, bool decoded);
};
extern const struct format_row format_table[FORMAT_COUNT];

static inline const char *format_name(enum format f)
{
    return format_table[f].name;
}

/* The type of the numbers of a plain format, or of codes. */
static inline enum dtype format_dtype(enum format f)
{
    return format_table[f].type;
}

/* Bits of a number, without scales. */
static inline int format_bits(enum format f)
{
    return (int)(format_table[f].bytes * 8 / format_table[f].numbers);
}

/* Are weights of F codes? */
static inline bool format_is_coded(enum format f)
{
    return format_table[f].axis == FORMAT_GROUPS;
}

/* *F = the plain format of type T; false if there is none. */
bool format_of(enum format *f, enum dtype t);
/* Bytes of a matrix of ROWS x COLS, and of its scales; false on overflow. */
bool format_bytes(uint64_t *bytes, enum format f, uint64_t rows, uint64_t cols);
bool format_scale_bytes(uint64_t *bytes, enum format f, uint64_t rows, uint64_t cols,
                        uint64_t per);
/* Bytes of a cached row of COLS numbers; rows begin at multiples of 4 bytes. */
uint64_t format_row_bytes(enum format f, uint64_t cols, uint64_t per);
/* Numbers of a cached row that share a scale, where heads have WIDTH. */
uint64_t format_cached_per(enum format f, uint64_t width);
/* Fills the memory of C with the codes of zeros, and scales of 0. */
void format_clear(enum format f, const struct format_codes *c);

#endif
