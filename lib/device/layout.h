/* layout - structures in device memory, shared by C and CUDA */
#ifndef LIB_DEVICE_LAYOUT_H
#define LIB_DEVICE_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/format.h"

/* A weight in device memory.  Codes are for products only, and always have a row for
 * each output: the matrix is transposed if the product is y = x W. */
struct matrix {
    const void *data;
    enum format format;
    uint64_t rows, cols;
    const void *scale; /* of codes */
    uint64_t per;      /* numbers of a row that share one, where FORMAT leaves it open;
                        * 0: all */
};

/* A run of queries of one sequence, the keys that they attend to, and where their own
 * keys are appended in the KV cache.  Keys have consecutive positions; in the cache
 * they lie in blocks. */
struct range {
    int32_t row, rows; /* of the queries in their buffer */
    int32_t start;     /* position of the first query */
    int32_t keys;
    int32_t first_key; /* position of the first key */
    int32_t key_row;   /* row of the first key in the buffer, or in the sequence's list
                        * of cache blocks */
    int32_t write_row; /* row of the cache where the new keys are written, counted the
                        * same way */
    int32_t block;     /* index into ranges.block of the sequence's first block; -1: the
                        * keys are in a buffer */
};

/* The ranges of a step; the arrays are in device memory. */
struct ranges {
    const struct range *v;
    size_t n;
    const int32_t *block;        /* block tables: indices of cache blocks */
    size_t block_rows;           /* rows of a block */
    size_t most_rows, most_keys; /* largest of any range */
};

/* What a step does with a sequence's state of an instruction (ROLE_STATE). */
struct state_use {
    int32_t row, rows;   /* the sequence's rows among those of the step */
    int32_t record;      /* where the state is, and where that after these rows goes */
    int32_t fresh;       /* 1: the sequence begins, with a state of zeros */
    int32_t save, saves; /* its range of states.save */
};

/* The state after row ROW of the step goes to RECORD, too. */
struct state_save {
    int32_t row, record;
};

/* The states of a step; the arrays are in device memory. */
struct states_view {
    float *memory; /* [records][numbers of a state] */
    const struct state_use *use;
    size_t n;
    const struct state_save *save; /* by row in each range */
};

/* Sampling parameters of a sequence's next token. */
struct draw {
    double temperature; /* 0: the likeliest token, the first of equals */
    double top_p;       /* 1: all */
    uint64_t top_k;     /* 0: all; those as likely as the last of them are among them */
    uint64_t seed, position;
};

#endif
