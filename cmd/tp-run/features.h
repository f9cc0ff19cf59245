/* features - sources that are given as numbers, such as the frames of a recording */
#ifndef CMD_TP_RUN_FEATURES_H
#define CMD_TP_RUN_FEATURES_H

#include <cjson/cJSON.h>

#include "cmd/tp-run/inputs.h"

/* Reads the source of ONE from VALUE: the path of a safetensors file with one tensor
 * [frames, features], or a list of frames, each a list of numbers. */
MUST_CHECK int features_add(struct input *one, const struct session *s,
                            const cJSON *value, struct err *err);

#endif
