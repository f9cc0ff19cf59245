/* quant - the companions of quantised weights: scales, zeros, packed values
 *
 * A quantised checkpoint stores, beside a weight or in its place, tensors whose axes
 * are the weight's divided by a block.  What config.json's quantization_config says is
 * enough to describe them, for any family; they are then cut with their weights, on
 * whole blocks, or the cut is refused. */
#ifndef LIB_MODEL_QUANT_H
#define LIB_MODEL_QUANT_H

#include <cjson/cJSON.h>

#include "lib/model/model.h"
#include "lib/model/state.h"

/* KEY of M's quantization_config, or (KEY NULL) that itself; NULL when there is none.
 */
const cJSON *quant_setting(const struct model *m, const char *key);
/* The same of the weights: KEY, or where they are set by groups GROUPED of the first
 * group's weights. */
const cJSON *quant_weight_setting(const struct model *m, const char *key,
                                  const char *grouped);
/* What it says the method is; "unnamed".  The first files of bitsandbytes do not name
 * it. */
const char *quant_method(const struct model *m);

/* When IN is a companion of a weight of M, add the tensors it is one of (one for each
 * layer and expert) and return 1; 0 when it is none; -1 with *err set when its kind
 * cannot be cut. */
MUST_CHECK int quant_extend(struct model *m, const struct model_input *in,
                            struct err *err);

/* ERR_INPUT when M's N tensors are quantised in a way that none of them can be cut:
 * bitsandbytes in 4 bits. */
MUST_CHECK int quant_check(const struct model *m, const struct model_input *in,
                           size_t n, struct err *err);

/* Rows to a group when tensor T of M says of each row which group it is in (GPTQ's
 * g_idx), the groups being in the order of the rows; else 0. */
uint64_t quant_index_group(const struct model *m, size_t t);

/* Refuse a quantization_config (ERR_INPUT) whose weights are stored in no form known
 * here: another method, or one of its other layouts.  KNOWN: the family itself
 * describes how its method stores them. */
MUST_CHECK int quant_check_config(const struct model *m, bool known, struct err *err);

/* Refuse the cut of a part whose share of symbol i is SHARE[i] when it falls inside a
 * block (ERR_NO, naming the tensor). */
MUST_CHECK int quant_check_cut(const struct model *m, const struct share *share,
                               struct err *err);

/* Refuse (ERR_INPUT) settings that change values in a way that is not known here; what
 * is not known at all is added to IGNORED. */
MUST_CHECK int quant_check_settings(const struct model *m, struct str *ignored,
                                    struct err *err);

/* Room that the definitions need for companions: as many again for each. */
enum { QUANT_MAX_COMPANIONS = 6 };

#endif
