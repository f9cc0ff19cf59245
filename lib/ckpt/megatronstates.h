/* megatronstates - an optimizer's state in Megatron-LM's legacy form
 *
 * Beside the weights of a rank lies the state of its optimizer: PyTorch's, by number,
 * with the f32 masters of weights that are 16-bit in lists as long as its groups
 * (fp32_from_fp16_params), or, if that is distributed, flat vectors in
 * distrib_optim.pt.  A model with experts has two optimizers, the second of experts.
 * (Megatron-Core 0.16.1, optimizer/optimizer.py and distrib_optimizer.py.) */
#ifndef LIB_CKPT_MEGATRONSTATES_H
#define LIB_CKPT_MEGATRONSTATES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/ckpt/source.h"
#include "lib/ckpt/tensor.h"
#include "lib/ckpt/unpickle.h"

/* The sets of weights that have optimizers, and ranks, of their own. */
enum { MEGATRON_DENSE, MEGATRON_EXPERTS, MEGATRON_NSETS };

/* The weights of a set on a rank. */
struct megatron_weights {
    struct tensor *t; /* in the model's order */
    size_t n;
    bool here; /* they are read from this rank: their states, too */
};

/* Adds the states of the weights W[MEGATRON_NSETS] that the optimizer in ROOT, the
 * dictionary of the file PATH, or distrib_optim.pt beside it in the directory RANK of
 * DIR, has: moments and masters, as S asks for them.  INPUT is PATH's index; *read
 * counts bytes of pickles.  Without an optimizer nothing is added.  ERR_INPUT when
 * whose a state is cannot be told. */
MUST_CHECK int megatron_add_states(struct source *s, const char *dir, const char *rank,
                                   const struct pickled *root,
                                   const struct megatron_weights *w, int input,
                                   uint64_t *read, const char *path, struct err *err);

#endif
