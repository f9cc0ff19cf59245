/* stages - the options that divide layers into stages, and the resulting costs */
#ifndef CMD_PP_PARTITION_STAGES_H
#define CMD_PP_PARTITION_STAGES_H

#include "cmd/cmd.h"
#include "lib/reshard/summary.h"
#include "lib/pipe/calibration.h"

struct stage_options {
    int pp;
    const char *balance; /* layers, params, flops, memory, or a file: a list of costs or
                          * a calibration */
    int remainder;
    const char *stages, *layout; /* given by the user */
    bool empty;
};

extern const char *const remainder_names[], *const balance_words[];

/* Rows of an option table. */
#define STAGE_OPTION(type, name, value, arg, help, choices) \
    {                                                       \
        type, '\0', name, value, arg, help, choices, NULL   \
    }
#define STAGE_OPTIONS(o)                                                        \
    STAGE_OPTION(OPT_COUNT, "pp", &(o).pp, "N", "pipeline stages", NULL),       \
        STAGE_OPTION(OPT_STRING, "balance", &(o).balance, "WHAT",               \
                     "layers, params, flops, memory or a file", balance_words), \
        STAGE_OPTION(OPT_CHOICE, "remainder", &(o).remainder, "WHERE",          \
                     "who takes layers left over: first, middle, last",         \
                     remainder_names),                                          \
        STAGE_OPTION(OPT_STRING, "stages", &(o).stages, "N,N,...",              \
                     "layers of each stage", NULL),                             \
        STAGE_OPTION(OPT_STRING, "stage-layout", &(o).layout, "TEXT",           \
                     "the same in Megatron's notation: Et*3|tt|L", NULL),       \
        STAGE_OPTION(OPT_FLAG, "allow-empty", &(o).empty, NULL,                 \
                     "a stage may have no layer", NULL)

/* The costs of layers, in the unit to balance. */
struct stage_costs {
    uint64_t *layer; /* [nlayers] */
    int nlayers;
    uint64_t first, last; /* before all layers, and after them */
    double *exact;        /* [nlayers + 2]: as in the user's file; NULL: same as the
                           * integers */
};

/* The costs of M for --balance WHAT.  FLOPs are per token at the model's context;
 * memory is the bytes of training with one sequence of that length in flight. */
MUST_CHECK int stage_costs(struct stage_costs *out, const struct model *m,
                           const char *what, struct err *err);
void stage_costs_clear(struct stage_costs *c);

/* Chooses the number of layers of each of *PARTS stages into a new array *out (*PARTS
 * 0: from the options, CHUNKS for each of --pp).  COSTS are balanced; NULL: the
 * model's.  ERR_USAGE for invalid options, ERR_NO when the model cannot be divided
 * so. */
MUST_CHECK int stages_choose(int **out, int *parts, const struct stage_options *o,
                             int chunks, const struct model *m,
                             const struct stage_costs *costs, struct err *err);

/* Divides M into PP stages of COUNT[PP] layers and minimises the largest number of
 * bytes in training (stagecut.h).  With BYTES[PP], COUNT is an input and BYTES is
 * filled. */
MUST_CHECK int stages_by_memory(int *count, double *bytes, const struct model *m,
                                int pp, struct err *err);

/* For the model at PATH: sets *out to a new array of the forward FLOPs of each of RANKS
 * ranks, relative to their mean, *bytes to a new array of the bf16 activations in bytes
 * that each rank saves for one sequence of the model's context, and *layers to one of
 * the layers of each stage.  GIVEN is a list of them; if it is NULL, they are the
 * checkpoint's own if it has RANKS stages and CHUNKS is 1, otherwise even, as 'plan'
 * has them.  RANK_OF[RANKS * CHUNKS] is the rank of each chunk.  FAMILIES is
 * SHARDUTILS_FAMILY_PATH, or NULL. */
MUST_CHECK int stages_times(double **out, double **bytes, int **layers,
                            const char *path, const char *families, const char *given,
                            int ranks, int chunks, const int *rank_of, struct err *err);
/* The same from the measured seconds of a step in C; the stages balance these. */
MUST_CHECK int stages_calibrated(double **out, const struct calibration *c, int ranks,
                                 int chunks, const int *rank_of, struct err *err);

#endif
