/* sampling - how the tokens of a text are chosen and where it ends: options, the
 * model's settings, and those of a line */
#ifndef CMD_TP_RUN_SAMPLING_H
#define CMD_TP_RUN_SAMPLING_H

#include "cmd/tp-run/session.h"
#include "lib/run/beams.h"
#include "lib/text/stops.h"

struct sampling {
    uint64_t max_tokens; /* number of new tokens */
    uint64_t max_length; /* including the prompt; 0: no limit */
    uint64_t seed;
    struct processors how;
    int likely;          /* tokens that are told with each; -1: no log-probability */
    bool processed;      /* these are of what it is drawn from, not of the logits */
    bool ignore;         /* the settings of generation_config.json */
    bool ignore_eos;     /* the model's stop ids */
    struct ids ends;     /* other ids that end a text */
    const char *grammar; /* what an option says of it; or NULL */
    struct stops stops;
    struct ids stop; /* all ids that end a text; set by sampling_begin */
    bool searches;   /* beams, and several texts of one prompt, are possible */
    bool normal;     /* scores of beams are made log-probabilities again */
    int beams, returns, early;
    double length_penalty;
    struct {
        bool n, likely, beams, returns, early, length_penalty;
    } given; /* as options: tokens, logprobs, and the names of the members */
    struct { /* options that need the tokenizer or the vocabulary */
        struct opt_list bad_words, suppressed, biases, ends, stops;
    } lists;
};

#define SAMPLING_DEFAULTS(n)                                                    \
    {                                                                           \
        .max_tokens = (n), .how = PROCESSORS_NEUTRAL, .likely = -1, .beams = 1, \
        .returns = 1, .length_penalty = 1                                       \
    }
#define SAMPLING_NUMBER(s, WORD, name, arg, help)                                     \
    {                                                                                 \
        OPT_DOUBLE, '\0', name, &(s).how.v[PROCESSOR_##WORD].number, arg, help, NULL, \
            &(s).how.v[PROCESSOR_##WORD].given                                        \
    }
#define SAMPLING_LIST(member, name, arg)                       \
    {                                                          \
        OPT_LIST, '\0', name, &(member), arg, NULL, NULL, NULL \
    }
#define SAMPLING_OPTIONS(s, most)                                                    \
    { OPT_U64, '\0', "max-tokens", &(s).max_tokens, "N", most, NULL, &(s).given.n }, \
        SAMPLING_NUMBER(s, TEMPERATURE, "temperature", "T",                          \
                        "sample at this temperature (0: greedy)"),                   \
        SAMPLING_NUMBER(s, TOP_K, "top-k", "K", NULL),                               \
        SAMPLING_NUMBER(s, TOP_P, "top-p", "P", NULL),                               \
        SAMPLING_NUMBER(s, MIN_P, "min-p", "P", NULL),                               \
        SAMPLING_NUMBER(s, TYPICAL_P, "typical-p", "P", NULL),                       \
        SAMPLING_NUMBER(s, REPETITION, "repetition-penalty", "X", NULL),             \
        SAMPLING_NUMBER(s, PRESENCE, "presence-penalty", "X", NULL),                 \
        SAMPLING_NUMBER(s, FREQUENCY, "frequency-penalty", "X", NULL),               \
        SAMPLING_NUMBER(s, NO_REPEAT_NGRAM, "no-repeat-ngram", "N", NULL),           \
        SAMPLING_NUMBER(s, ENCODER_NO_REPEAT_NGRAM, "encoder-no-repeat-ngram", "N",  \
                        NULL),                                                       \
        SAMPLING_NUMBER(s, MIN_TOKENS, "min-tokens", "N", NULL),                     \
        SAMPLING_LIST((s).lists.bad_words, "bad-words", "TEXT"),                     \
        SAMPLING_LIST((s).lists.suppressed, "suppress-tokens", "LIST"),              \
        SAMPLING_LIST((s).lists.biases, "logit-bias", "ID:BIAS"),                    \
        { OPT_STRING, '\0', "grammar", &(s).grammar, "WHAT", NULL, NULL, NULL },     \
        SAMPLING_LIST((s).lists.stops, "stop", "TEXT"),                              \
        SAMPLING_LIST((s).lists.ends, "stop-ids", "LIST"),                           \
        { OPT_FLAG, '\0', "ignore-eos", &(s).ignore_eos, NULL, NULL, NULL, NULL },   \
        { OPT_U64, '\0', "seed", &(s).seed, "S", NULL, NULL, NULL },                 \
    {                                                                                \
        OPT_FLAG, '\0', "ignore-generation-config", &(s).ignore, NULL, NULL, NULL,   \
            NULL                                                                     \
    }
#define SAMPLING_LOGPROBS_OPTIONS(s)                                                 \
    { OPT_INT, '\0', "logprobs", &(s).likely, "N", NULL, NULL, &(s).given.likely },  \
    {                                                                                \
        OPT_FLAG, '\0', "processed-logprobs", &(s).processed, NULL, NULL, NULL, NULL \
    }
#define SAMPLING_BEAMS_OPTIONS(s)                                                \
    { OPT_COUNT, '\0', "beams", &(s).beams, "N", NULL, NULL, &(s).given.beams }, \
        { OPT_DOUBLE, '\0', "length-penalty",         &(s).length_penalty, "X",  \
          NULL,       NULL, &(s).given.length_penalty },                         \
        { OPT_CHOICE, '\0', "early-stopping",     &(s).early,                    \
          "WHEN",     NULL, sampling_early_names, &(s).given.early },            \
    {                                                                            \
        OPT_COUNT, '\0', "num-return", &(s).returns, "N", NULL, NULL,            \
            &(s).given.returns                                                   \
    }
/* Words for enum beams_early. */
extern const char *const sampling_early_names[];
enum { SAMPLING_BEAMS = 1000 }; /* most beams, and texts of a prompt */

/* Why a text ends. */
enum finish {
    UNFINISHED,
    STOP,    /* a stop id, or a stop text */
    LENGTH,  /* the most tokens */
    CONTEXT, /* the model's context is full */
    REFUSED  /* its prompt is not usable */
};
extern const char *const finish_names[]; /* NULL for UNFINISHED and REFUSED */

/* What has been generated of a text, up to the first of its stop texts. */
struct saying {
    struct str text;
    size_t searched; /* first bytes in which there is no stop */
    size_t held;     /* last bytes that may be the beginning of one */
    bool cut;        /* there was one */
};
/* Cuts TEXT before a stop of S, and returns whether there is one.  OVER: nothing
 * follows. */
bool sampling_cut(const struct sampling *s, struct saying *said, bool over);

/* ERR_USAGE for values of options that are out of range. */
MUST_CHECK int sampling_check(const struct sampling *s, struct err *err);
/* Fills what no option gives with the model's settings; collective.  Also sets the
 * start id of an encoder-decoder's session. */
MUST_CHECK int sampling_settle(struct sampling *s, struct session *session,
                               struct err *err);
/* OUT becomes a copy of S whose settings the JSON object LINE changes: the names of
 * processors.h, max_tokens, seed, stop, stop_ids, ignore_eos, logprobs, grammar.  WHERE
 * begins messages.  Call sampling_clear also after a failure. */
MUST_CHECK int sampling_read(struct sampling *out, const struct sampling *s,
                             const struct session *session, const char *line,
                             const char *where, struct err *err);
/* Forbids TEXT, as a text begins with it and after a space. */
MUST_CHECK int sampling_add_bad_word(struct processors *p, const struct session *s,
                                     const char *text, struct err *err);
/* The number of ids that a token may have. */
uint64_t sampling_vocab(const struct session *s);
/* Is it the name of a setting that sampling_read takes? */
bool sampling_is_setting(const char *name);
void sampling_copy(struct sampling *out, const struct sampling *s);
void sampling_clear(struct sampling *s);
/* Sets .stop: MODEL, which --ignore-eos leaves out, and other ids. */
void sampling_begin(struct sampling *s, const struct session *session,
                    const struct ids *model);
/* After that: ERR_USAGE, or ERR_INPUT of WHERE: a grammar, and nothing to end a text
 * with. */
MUST_CHECK int sampling_check_end(const struct sampling *s, const char *where,
                                  struct err *err);
/* After N tokens none was chosen, but NEXT, which is negative: sets *err if a grammar
 * is the reason, and returns whether it is. */
bool sampling_is_stuck(const struct sampling *s, int32_t next, size_t n,
                       struct err *err);
/* Does a text need its logits beside the next token (program_options.keeps_logits)? */
bool sampling_needs_logits(const struct sampling *s);
bool sampling_draws(const struct sampling *s);
/* Texts that are in generation for one prompt. */
size_t sampling_width(const struct sampling *s);
struct beams_how sampling_beams(const struct sampling *s);
/* Fills *c, which borrows from S, for a text whose prompt has N tokens. */
void sampling_choose(const struct sampling *s, struct choosing *c, size_t n);

/* Does a text of N tokens, NEW of them generated, end here, if no sequence has more
 * than CONTEXT tokens (0: no limit)?  This may be exceeded by one token: the last one
 * is predicted, but not read. */
enum finish sampling_end(const struct sampling *s, uint64_t context, size_t n,
                         uint64_t new);
/* The maximum number of tokens of a text whose prompt has N. */
size_t sampling_most(const struct sampling *s, uint64_t context, size_t n);
/* Does ID end a text? */
bool sampling_is_stop(const struct sampling *s, int32_t id);

#endif
