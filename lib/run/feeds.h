/* feeds - the inputs of a step in device memory: what its texts bring by name, and the
 * rows that they have
 *
 * The rows of every space are counted for each segment, and each input that the program
 * reads is copied, or filled in, by one loop over program.input. */
#ifndef LIB_RUN_FEEDS_H
#define LIB_RUN_FEEDS_H

#include <stddef.h>
#include <stdint.h>

#include "lib/device/device.h"
#include "lib/program/program.h"
#include "lib/run/sequence.h"
#include "lib/run/states.h"
#include "lib/run/upload.h"

/* The part of a step that belongs to one sequence. */
struct segment {
    /* By program.input, [rows of its space here][columns]; NULL: what the model has
     * otherwise, and of source ids zeros.  The ids of the tokens are always there. */
    const void *input[FEEDS_MOST];
    size_t n;    /* tokens */
    int adapter; /* from 1: the adapter that the text chooses; 0: none */
    /* Rows of the other given spaces, in the first step of a sequence; else 0.
     * [ROWS_TOKENS]: how many tokens have rows of the inputs beside ids; 0: all. */
    size_t rows[ROWS_MOST];
    const int32_t *targets; /* [n]: labels (next tokens) for "nll", the last one also of
                             * outputs with a row a text; or NULL */
    size_t start;           /* position of the first token; 0 begins a new sequence */
    uint64_t token;  /* index of the first token in the training run, for dropout */
    size_t length;   /* known length of the sequence, for rotary angles that
                      * depend on it; 0: it ends with this segment */
    size_t sequence; /* index of its KV cache and its states, below limits.sequences */
    const struct segment_save *save; /* [nsaves]: snapshots of its states, by row */
    size_t nsaves;
    const int32_t *wanted; /* [nwanted]: rows of this segment that reach the outputs,
                            * for a program built with .wanted */
    size_t nwanted;
    const struct draw
        *draw; /* [nwanted]: sampling parameters, for TAIL_SAMPLE; or NULL */
};

/* Sets the inputs and rows of S, whose tokens are [DONE, DONE + S->n) of a text.  INPUT
 * and ROWS are those of the whole text, as in a segment of all its tokens; inputs that
 * have no row a token are there in its first step alone. */
void segment_cut(struct segment *s, const struct program *p,
                 const void *const input[FEEDS_MOST], const size_t rows[ROWS_MOST],
                 size_t done);
/* Gives S a source of N rows: IDS, or where the program reads another input, zeros. */
void segment_source(struct segment *s, const struct program *p, const int32_t *ids,
                    size_t n);
/* The rows of S in every space but those of experts. */
void segment_count(const struct segment *s, const struct program *p,
                   size_t rows[ROWS_MOST]);

/* Offsets in the upload buffer. */
struct feeds_offsets {
    size_t rows[ROWS_MOST], first[ROWS_MOST], input[FEEDS_MOST];
    size_t target[ROWS_ONE + 1];
    size_t token[ROWS_SOURCE + 1];
    size_t length, output, draw, factor, seed, weight;
};

struct feeds {
    const struct program *p;
    struct upload *upload;
    struct sequence *tokens, *source; /* how ranks share them */
    float factor[STEP_FACTORS];
    uint64_t seed;           /* of dropout */
    size_t rows[ROWS_MOST];  /* of this rank in this step; none of experts */
    size_t room[ROWS_MOST];  /* the rows that it is launched for */
    struct step_view view;   /* valid after feeds_ready */
    struct feeds_offsets at; /* private */
};

/* Where a segment's rows begin, and how many they are, over all ranks. */
struct feeds_part {
    size_t first[ROWS_MOST], rows[ROWS_MOST];
};

/* Finds the bytes of a step of SEGMENTS with at most MOST rows. */
void feeds_plan(struct feeds *f, const uint64_t most[ROWS_MOST], size_t segments);
/* Counts the rows of the segments S[N] into PART[N], and into f->rows, and puts all
 * inputs into the upload buffer, which has begun.  MOST: those of the largest step, if
 * this one is launched for a number of segments that other steps are launched for, too;
 * or NULL. */
void feeds_begin(struct feeds *f, const struct segment *s, size_t n,
                 const uint64_t *most, struct feeds_part *part);
/* Sets f->view, after upload_send. */
void feeds_ready(struct feeds *f);

#endif
