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
};

/* Read generation_config.json of S's checkpoint, or the same keys of config.json where
 * there is none.  ERR_INPUT for a setting that changes the text and cannot be followed;
 * keys that are not known are warned of in one line. */
MUST_CHECK int asked_read(struct asked *a, const struct session *s, struct err *err);

#endif
