/* asked - how a model asks to be generated from: generation_config.json */
#ifndef CMD_TP_RUN_ASKED_H
#define CMD_TP_RUN_ASKED_H

#include "cmd/tp-run/session.h"
#include "lib/device/device.h"

/* Defaults for options that are not given. */
struct asked {
    uint64_t max_new;    /* new tokens; 0: the file does not say */
    uint64_t max_length; /* tokens with the prompt's; 0: the file does not say */
    struct draw sampling;
    int32_t start;     /* id that a text begins with, where a source is read; -1: the
                          file does not say */
    int32_t first_new; /* forced_bos_token_id: the second token of a text; -1: any */
    int32_t last_new;  /* forced_eos_token_id: that of a text that comes to the most
                          tokens; -1: any */
};

/* Read generation_config.json of S's checkpoint, or the same keys of config.json where
 * there is none.  ERR_INPUT for a setting that changes the text and cannot be followed;
 * keys that are not known are warned of in one line. */
MUST_CHECK int asked_read(struct asked *a, const struct session *s, struct err *err);

#endif
