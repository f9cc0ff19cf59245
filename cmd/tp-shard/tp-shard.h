/* tp-shard - shared declarations of its commands */
#ifndef CMD_TP_SHARD_TP_SHARD_H
#define CMD_TP_SHARD_TP_SHARD_H

#include <stdbool.h>

#include "cmd/cmd.h"
#include "cmd/conversion.h"
#include "cmd/meshopt.h"
#include "lib/reshard/checkpoint.h"
#include "lib/reshard/convert.h"
#include "lib/model/mesh.h"

int split_main(const char *program, int argc, char **argv);
int merge_main(const char *program, int argc, char **argv);
int reshard_main(const char *program, int argc, char **argv);
int audit_main(const char *program, int argc, char **argv);
int verify_main(const char *program, int argc, char **argv);
int show_main(const char *program, int argc, char **argv);
int plan_main(const char *program, int argc, char **argv);
int gather_main(const char *program, int argc, char **argv);
int diff_main(const char *program, int argc, char **argv);
int sum_main(const char *program, int argc, char **argv);
int families_main(const char *program, int argc, char **argv);

/* What a plan stores where, and the file to draw it to. */
struct plan_picture {
    const char *path, *command;
    const struct checkpoint *ckpt;
    const struct mesh *mesh;
    struct cutter **cutter; /* [nparts], as the next two */
    const uint64_t *bytes;
    const size_t *tensors;
    int nparts;
};
MUST_CHECK int plan_plot(const struct plan_picture *p, struct err *err);

extern const char *const dtype_words[];
#define DTYPE_OPTION(dtype)                                        \
    {                                                              \
        OPT_STRING, '\0', "dtype", &(dtype), "TYPE",               \
            "store weights as f32, f16 or bf16", dtype_words, NULL \
    }

#define RANK_CONFIGS_OPTION(given)                                           \
    {                                                                        \
        OPT_FLAG, '\0', "rank-configs", &(given), NULL,                      \
            "make each part a directory that transformers opens", NULL, NULL \
    }

#define SOME_RANKS_OPTION(ranks)                                         \
    {                                                                    \
        OPT_STRING, '\0', "ranks", &(ranks), "A-B",                      \
            "make these files alone, as one of several jobs", NULL, NULL \
    }

/* Sets opt->some, .first and .last from TEXT, "A-B" or "A"; NULL: nothing. */
MUST_CHECK int ranks_from_option(struct convert_options *opt, const char *text,
                                 struct err *err);

/* Is OUTPUT a bare number, and so probably a number of ranks?  If so, prints a usage
 * error. */
bool output_is_number(const struct cmd *cmd, const char *output);

/* Parses --dtype: one of WORDS, or Hugging Face's name of f32, f16 or bf16.  *out is
 * VALUE, or NULL when TEXT is NULL or a word for codes, such as int8. */
MUST_CHECK int dtype_from_option(const enum dtype **out, enum dtype *value,
                                 const char *const *words, const char *text,
                                 struct err *err);

#endif
