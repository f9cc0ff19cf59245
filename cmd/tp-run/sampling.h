/* sampling - how the tokens of a text are chosen: options, and the model's settings */
#ifndef CMD_TP_RUN_SAMPLING_H
#define CMD_TP_RUN_SAMPLING_H

#include "cmd/tp-run/session.h"
#include "lib/device/device.h"

struct sampling {
    uint64_t max_tokens; /* number of new tokens */
    uint64_t max_length; /* including the prompt; 0: no limit */
    struct draw draw;
    int32_t first_new, last_new; /* as in struct asked */
    bool ignore;                 /* the settings of generation_config.json */
    struct {
        bool n, temperature, k, p;
    } given; /* as options: tokens, temperature, top-k, top-p */
};

#define SAMPLING_DEFAULTS(n)                                                       \
    {                                                                              \
        .max_tokens = (n), .draw = { .top_p = 1 }, .first_new = -1, .last_new = -1 \
    }
#define SAMPLING_OPTIONS(s, most)                                                      \
    { OPT_U64, '\0', "max-tokens", &(s).max_tokens, "N", most, NULL, &(s).given.n },   \
        { OPT_DOUBLE,    '\0',                                                         \
          "temperature", &(s).draw.temperature,                                        \
          "T",           "sample at this temperature (0: greedy)",                     \
          NULL,          &(s).given.temperature },                                     \
        { OPT_U64, '\0', "top-k", &(s).draw.top_k, "K", NULL, NULL, &(s).given.k },    \
        { OPT_DOUBLE, '\0', "top-p", &(s).draw.top_p, "P", NULL, NULL, &(s).given.p }, \
        { OPT_U64, '\0', "seed", &(s).draw.seed, "S", NULL, NULL, NULL },              \
    {                                                                                  \
        OPT_FLAG, '\0', "ignore-generation-config", &(s).ignore, NULL, NULL, NULL,     \
            NULL                                                                       \
    }

/* Why a text ends. */
enum finish {
    UNFINISHED,
    STOP,    /* a stop id */
    LENGTH,  /* the most tokens */
    CONTEXT, /* the model's context is full */
    REFUSED  /* its prompt is not usable */
};
extern const char *const finish_names[]; /* NULL for UNFINISHED and REFUSED */

/* ERR_USAGE for values of options that are out of range. */
MUST_CHECK int sampling_check(const struct sampling *s, struct err *err);
/* Fills what no option gives with the model's settings; collective.  Also sets the
 * start id of an encoder-decoder's session. */
MUST_CHECK int sampling_settle(struct sampling *s, struct session *session,
                               struct err *err);
/* Does a text of N tokens, NEW of them generated, end here, if no sequence has more
 * than CONTEXT tokens (0: no limit)?  This may be exceeded by one token: the last one
 * is predicted, but not read. */
enum finish sampling_end(const struct sampling *s, uint64_t context, size_t n,
                         uint64_t new);
/* The maximum number of tokens of a text whose prompt has N. */
size_t sampling_most(const struct sampling *s, uint64_t context, size_t n);
/* The token that takes the place of ID, the one after N tokens, NEW of them generated:
 * ID itself unless the model's settings force another one. */
int32_t sampling_forced(const struct sampling *s, uint64_t context, size_t n,
                        uint64_t new, int32_t id);
/* Does ID end a text? */
bool sampling_is_stop(const struct session *session, int32_t id);

#endif
