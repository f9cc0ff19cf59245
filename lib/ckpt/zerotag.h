/* zerotag - where a checkpoint of DeepSpeed is: its tag's directory and the ranks'
 * files
 *
 * DIR/latest names the tag, DIR/TAG has mp_rank_MM_model_states.pt or, of each
 * data-parallel rank, [bf16_]zero_pp_rank_D_mp_rank_MM_{model,optim}_states.pt; with
 * layer_LL-model_states.pt beside them MM is the pipeline's stage.  Facts: DeepSpeed
 * 0.19.8. */
#ifndef LIB_CKPT_ZEROTAG_H
#define LIB_CKPT_ZEROTAG_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/err.h"

/* The files of one kind, one a data-parallel rank. */
struct zerotag_files {
    struct zerotag_file {
        char *name;
        int rank;
    } * v; /* by rank */
    size_t n, cap;
};

/* Sets *dir, which the caller frees, to the directory of PATH's newest tag, or to PATH
 * if it is one itself; NULL: neither.  *note becomes what is to be said of the choice,
 * a constant, or NULL. */
MUST_CHECK int zerotag_find(char **dir, const char **note, const char *path,
                            struct err *err);
/* Counts the model-parallel parts in the N names of DIR: *parts.  They are a pipeline's
 * stages if there are files of layers, *layers; ERR_INPUT when they are tensor-parallel
 * ranks, or when there are files of experts. */
MUST_CHECK int zerotag_count_parts(int *parts, bool *layers, const char *dir,
                                   char *const *names, size_t n, struct err *err);
/* Lists the files of part PART in the N names of DIR.  ERR_INPUT when a rank is missing
 * or there twice.  The caller clears both in any case. */
MUST_CHECK int zerotag_list(struct zerotag_files *models, struct zerotag_files *optims,
                            const char *dir, int part, char *const *names, size_t n,
                            struct err *err);
void zerotag_files_clear(struct zerotag_files *f);

#endif
