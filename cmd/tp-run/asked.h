/* asked - the model's generation settings: generation_config.json */
#ifndef CMD_TP_RUN_ASKED_H
#define CMD_TP_RUN_ASKED_H

#include "cmd/tp-run/session.h"
#include "lib/device/device.h"

/* Defaults of options that the user does not give. */
struct asked {
    uint64_t max_new;    /* maximum number of new tokens; 0: not in the file */
    uint64_t max_length; /* including the prompt; 0: not in the file */
    struct draw sampling;
    int32_t start;     /* decoder_start_token_id; -1: not in the file */
    int32_t first_new; /* forced_bos_token_id: the second token of a text; -1: none */
    int32_t last_new;  /* forced_eos_token_id: the last token of a text of maximum
                        * length; -1: none */
};

/* Reads generation_config.json of S's checkpoint, or the same keys of config.json if it
 * has none.  ERR_INPUT for an unsupported setting that changes the text; unknown keys
 * are listed in one warning. */
MUST_CHECK int asked_read(struct asked *a, const struct session *s, struct err *err);

#endif
