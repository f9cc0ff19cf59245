/* megatronranks - Megatron-LM's legacy form: a file a rank
 *
 * mp_rank_TT[_PPP][_EEE]/model_optim_rng.pt is of tensor rank TT, pipeline stage PPP
 * (if there are several) and expert rank EEE (likewise).  A file has the weights of its
 * tensor rank and stage, and the experts of its expert rank, which are cut over expert
 * tensor ranks: as many as tensor ranks, unless the run's arguments say fewer.  Weights
 * of which several files have copies are those of the first.  Layers are numbered from
 * 0 in each stage, experts from 0 on each expert rank.
 *
 * Names and sizes: Megatron-LM, megatron/training/checkpointing.py,
 * get_checkpoint_name; order of ranks: megatron/core/parallel_state.py, tp-cp-ep-dp-pp.
 */
#ifndef LIB_CKPT_MEGATRONRANKS_H
#define LIB_CKPT_MEGATRONRANKS_H

#include <stdbool.h>

#include "lib/base/err.h"
#include "lib/ckpt/source.h"

/* Has DIR directories of ranks? */
MUST_CHECK int megatron_has_ranks(bool *found, const char *dir, struct err *err);

/* Reads the ranks of DIR into S: weights, and moments if S asks for them.  ERR_INPUT
 * when a rank is missing, or when something would be read wrongly. */
MUST_CHECK int megatron_read_ranks(struct source *s, const char *dir, struct err *err);

#endif
