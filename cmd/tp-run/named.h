/* named - the inputs of a text beside its ids, by the names that the model gives them
 */
#ifndef CMD_TP_RUN_NAMED_H
#define CMD_TP_RUN_NAMED_H

#include <cjson/cJSON.h>

#include "cmd/tp-run/inputs.h"
#include "lib/run/feeds.h"

/* Reads the members of ROOT, an object of JSON, that name inputs: a list of rows, each
 * a number or a list of numbers; or the path of a safetensors file with one tensor.  A
 * name that only other families have is ERR_INPUT. */
MUST_CHECK int named_add_json(struct input *one, const struct session *s,
                              const cJSON *root, struct err *err);
/* The same from all tensors of the safetensors file PATH, which may be named "ids" and
 * "source", too.  Every name must be that of an input. */
MUST_CHECK int named_add_tensors(struct input *one, const struct session *s,
                                 const char *path, struct err *err);
/* Takes the rows of input FEED from IDS, a number each, which becomes empty. */
void named_take(struct input *one, int feed, struct ids *ids);
/* Checks the inputs of ONE against its ids, and counts the rows of its source. */
MUST_CHECK int named_check(struct input *one, const struct session *s, struct err *err);
/* Sets the inputs of a text, and the rows of given spaces, as a segment of the tokens
 * from AT on has them. */
void named_give(const struct input *one, const struct session *s, size_t at,
                const void *input[FEEDS_MOST], size_t rows[ROWS_MOST]);
/* Broadcasts rank 0's inputs of ONE. */
MUST_CHECK int named_share(struct input *one, const struct session *s, struct err *err);
void named_clear(struct input *one);

#endif
