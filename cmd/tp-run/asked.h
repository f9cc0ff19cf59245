/* asked - the model's generation settings: generation_config.json */
#ifndef CMD_TP_RUN_ASKED_H
#define CMD_TP_RUN_ASKED_H

#include "cmd/tp-run/session.h"
#include "lib/run/beams.h"
#include "lib/text/stops.h"

/* Defaults of options that the user does not give. */
struct asked {
    uint64_t max_new;    /* maximum number of new tokens; 0: not in the file */
    uint64_t max_length; /* including the prompt; 0: not in the file */
    struct processors how;
    struct stops stops; /* stop_strings */
    int32_t start;      /* decoder_start_token_id; -1: not in the file */
    struct beams_how beams;
    size_t returns; /* num_return_sequences */
    bool normal;    /* renormalize_logits */
};

/* Reads generation_config.json of S's checkpoint, or the same keys of config.json if it
 * has none.  ERR_INPUT for an unsupported setting that changes the text, as beams are
 * unless SEARCHES; unknown keys are listed in one warning.  Call asked_clear also after
 * a failure. */
MUST_CHECK int asked_read(struct asked *a, const struct session *s, bool searches,
                          struct err *err);
void asked_clear(struct asked *a);

#endif
