/* stages - the options that say how layers are cut into stages, and what follows */
#ifndef CMD_PP_PARTITION_STAGES_H
#define CMD_PP_PARTITION_STAGES_H

#include "cmd/cmd.h"
#include "lib/reshard/outline.h"
#include "lib/pipe/calibration.h"

struct stage_options {
    int pp;
    const char *balance; /* layers, params, flops, memory or a file: costs by line, or a
                            calibration */
    int remainder;
    const char *stages, *layout; /* given outright */
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

/* What layers cost, in the unit that is balanced. */
struct stage_costs {
    uint64_t *layer; /* [nlayers] */
    int nlayers;
    uint64_t first, last; /* before all layers, and after them */
    double *exact;        /* [nlayers + 2]: as a file has them; NULL: as above */
};

/* The costs of M for --balance WHAT; FLOPs are of a token at the model's context,
 * memory is the bytes that training needs with one sequence of that length in
 * flight. */
MUST_CHECK int stage_costs(struct stage_costs *out, const struct model *m,
                           const char *what, struct err *err);
void stage_costs_clear(struct stage_costs *c);

/* Choose the number of layers of each of *PARTS stages (0: by the options, CHUNKS for
 * each of --pp) to a fresh *out.  COSTS: the costs to balance, NULL: of the model.
 * ERR_USAGE for wrong options, ERR_NO when the model cannot be cut in this way. */
MUST_CHECK int stages_choose(int **out, int *parts, const struct stage_options *o,
                             int chunks, const struct model *m,
                             const struct stage_costs *costs, struct err *err);

/* Cut M into PP stages of COUNT[PP] layers so that the largest number of bytes in
 * training (stagecut.h) is minimal; with BYTES[PP], COUNT is given and BYTES filled. */
MUST_CHECK int stages_by_memory(int *count, double *bytes, const struct model *m,
                                int pp, struct err *err);

/* For the model at PATH: to a fresh *out the FLOPs of each of RANKS stages' forward
 * pass, in units of their mean; to a fresh *bytes the bf16 activations, in bytes, that
 * a stage saves for one sequence of the model's context.  The stages are the
 * checkpoint's own if it has RANKS stages and CHUNKS is 1, else they balance FLOPs.
 * RANK_OF[RANKS * CHUNKS]: the rank of each chunk; FAMILIES: SHARDUTILS_FAMILY_PATH, or
 * NULL. */
MUST_CHECK int stages_times(double **out, double **bytes, const char *path,
                            const char *families, int ranks, int chunks,
                            const int *rank_of, struct err *err);
/* The same in the seconds that C has for a step of its tokens, cut so that these are
 * balanced. */
MUST_CHECK int stages_calibrated(double **out, const struct calibration *c, int ranks,
                                 int chunks, const int *rank_of, struct err *err);

#endif
