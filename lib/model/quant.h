/* quant - the companions of quantized weights: scales, zero points, packed values
 *
 * A quantized checkpoint stores further tensors beside a weight or in its place; their
 * axes are the weight's axes divided by a block.  The quantization_config of
 * config.json describes them for any family.  They are sharded with their weights, on
 * whole blocks; other shards are refused. */
#ifndef LIB_MODEL_QUANT_H
#define LIB_MODEL_QUANT_H

#include <cjson/cJSON.h>

#include "lib/model/model.h"
#include "lib/model/state.h"

/* The value of KEY in M's quantization_config, or (KEY NULL) that object; NULL without
 * one. */
const cJSON *quant_setting(const struct model *m, const char *key);
/* The setting for weights: KEY, or GROUPED in the weights of the first config group. */
const cJSON *quant_weight_setting(const struct model *m, const char *key,
                                  const char *grouped);
/* The method; "unnamed" if there is none.  Early bitsandbytes files do not name it. */
const char *quant_method(const struct model *m);

/* Most companions per definition. */
enum { QUANT_MAX_COMPANIONS = 13 }; /* one for each of ggml's blocks */

/* A tensor that files would hold with a quantized weight: its name ends with SUFFIX in
 * the place of "weight". */
struct quant_part {
    const char *suffix;
    enum dtype dtype;
    bool plain; /* of the type of weights that are not quantized, not of DTYPE */
    int ndim;
    uint64_t shape[3];
};
/* The parts that M's config tells of weight T, a matrix: their number, 0 if T cannot be
 * quantized so.  *REPLACED: they stand in its place; otherwise it is there, of type
 * quant_values. */
int quant_parts(const struct model *m, size_t t,
                struct quant_part out[QUANT_MAX_COMPANIONS], bool *replaced);
enum dtype quant_values(const struct model *m);

/* Appends M's method and its settings that say how weights are stored. */
void quant_describe(struct str *out, const struct model *m);

/* Are the weights FP4, two in a byte, as compressed-tensors has them? */
bool quant_fours(const struct model *m);

/* Is the module of the weight called NAME among those that the config excludes? Then
 * *KEY, unless NULL, is the setting that names it. */
bool quant_excludes(const struct model *m, const char *name, const char **key);

/* If IN is a companion of a weight of M, adds its definition and tensors (one for each
 * layer and expert) and returns 1; returns 0 if it is not; -1 with *err set if its
 * layout is unknown. */
MUST_CHECK int quant_extend(struct model *m, const struct model_input *in,
                            struct err *err);

/* ERR_INPUT if the N inputs are quantized in a way that cannot be sharded: bitsandbytes
 * in 4 bits. */
MUST_CHECK int quant_check(const struct model *m, const struct model_input *in,
                           size_t n, struct err *err);

/* Rows per group if tensor T holds the group of each row (GPTQ's g_idx), with the
 * groups in the order of the rows; else 0. */
uint64_t quant_index_group(const struct model *m, size_t t);

/* ERR_INPUT if quantization_config has an unknown method or layout.  KNOWN: the family
 * itself describes how the weights are stored. */
MUST_CHECK int quant_check_config(const struct model *m, bool known, struct err *err);

/* ERR_NO, naming the tensor, if a rank with the units SHARE[i] of symbol i would hold a
 * part of a block. */
MUST_CHECK int quant_check_cut(const struct model *m, const struct share *share,
                               struct err *err);

/* Refuses (ERR_INPUT) settings that change values in an unknown way; adds the names of
 * unknown settings to IGNORED. */
MUST_CHECK int quant_check_settings(const struct model *m, struct str *ignored,
                                    struct err *err);

#endif
