/* processors - what is done to the logits of a text's next token before it is chosen
 *
 * One table, in the order of transformers' generate(): a row has the name that
 * generation_config.json, a line of JSON and a request give it, what it takes, and what
 * it does.  Rank 0, which knows the texts, turns the rows that change single logits
 * into edits, which travel with the step (plan.h); the last stage applies them
 * (pick.h).  What depends on the whole distribution (temperature, top_k, ...) are
 * numbers of struct pick.  Repetition counts the prompt and the output, presence and
 * frequency the output alone. */
#ifndef LIB_RUN_PROCESSORS_H
#define LIB_RUN_PROCESSORS_H

#include "lib/base/err.h"
#include "lib/run/pick.h"
#include "lib/text/grammar/grammar.h"

struct cJSON;
struct str;

/* WORD, name, option of tp-run (NULL: none), what it takes, least and most (of a
 * number, or of the numbers in a list), neutral.  Those from TEMPERATURE on count only
 * where a token is drawn. */
#define PROCESSORS(X)                                                               \
    X(SEQUENCE_BIAS, "sequence_bias", NULL, BIASES, -1e9, 1e9, 0)                   \
    X(LOGIT_BIAS, "logit_bias", "logit-bias", BIASES, -1e9, 1e9, 0)                 \
    X(ENCODER_REPETITION, "encoder_repetition_penalty", NULL, NUMBER, 1e-6, 1e6, 1) \
    X(REPETITION, "repetition_penalty", "repetition-penalty", NUMBER, 1e-6, 1e6, 1) \
    X(PRESENCE, "presence_penalty", "presence-penalty", NUMBER, -1e6, 1e6, 0)       \
    X(FREQUENCY, "frequency_penalty", "frequency-penalty", NUMBER, -1e6, 1e6, 0)    \
    X(NO_REPEAT_NGRAM, "no_repeat_ngram_size", "no-repeat-ngram", WHOLE, 0, 1e6, 0) \
    X(ENCODER_NO_REPEAT_NGRAM, "encoder_no_repeat_ngram_size",                      \
      "encoder-no-repeat-ngram", WHOLE, 0, 1e6, 0)                                  \
    X(BAD_WORDS, "bad_words_ids", "bad-words", SEQUENCES, 0, 0, 0)                  \
    X(MIN_LENGTH, "min_length", NULL, WHOLE, 0, 1e9, 0)                             \
    X(MIN_TOKENS, "min_new_tokens", "min-tokens", WHOLE, 0, 1e9, 0)                 \
    X(FORCED_FIRST, "forced_bos_token_id", NULL, IDS, 0, 0, 0)                      \
    X(FORCED_LAST, "forced_eos_token_id", NULL, IDS, 0, 0, 0)                       \
    X(DECAY, "exponential_decay_length_penalty", NULL, PAIR, 0, 1e6, 0)             \
    X(SUPPRESS, "suppress_tokens", "suppress-tokens", IDS, 0, 0, 0)                 \
    X(BEGIN_SUPPRESS, "begin_suppress_tokens", NULL, IDS, 0, 0, 0)                  \
    X(GRAMMAR, "grammar", "grammar", OPENED, 0, 0, 0)                               \
    X(TEMPERATURE, "temperature", "temperature", NUMBER, 0, 1e9, 0)                 \
    X(TOP_H, "top_h", NULL, NUMBER, 0, 1, 0)                                        \
    X(TOP_K, "top_k", "top-k", WHOLE, 0, 1e9, 0)                                    \
    X(TOP_P, "top_p", "top-p", FRACTION, 0, 1, 1)                                   \
    X(MIN_P, "min_p", "min-p", NUMBER, 0, 1, 0)                                     \
    X(TYPICAL_P, "typical_p", "typical-p", FRACTION, 0, 1, 1)                       \
    X(EPSILON_CUTOFF, "epsilon_cutoff", NULL, NUMBER, 0, 1, 0)                      \
    X(ETA_CUTOFF, "eta_cutoff", NULL, NUMBER, 0, 1, 0)

#define PROCESSOR_WORD(WORD, name, option, kind, least, most, neutral) PROCESSOR_##WORD,
enum processor { PROCESSORS(PROCESSOR_WORD) PROCESSORS_N };
#undef PROCESSOR_WORD

/* Sequences of ids one after another, each with a number. */
struct id_lists {
    int32_t *id;  /* [end[n - 1]] */
    size_t *end;  /* [n]: where each ends */
    double *bias; /* [n] */
    size_t n, cap_id, cap_end, cap_bias;
};

/* `struct processors p = PROCESSORS_NEUTRAL` does nothing to logits.  The caller may
 * set .number and .given of rows that take a number, and checks them then. */
struct processors {
    struct processor_setting {
        double number;
        struct id_lists list;
        struct grammar *grammar; /* of GRAMMAR, which holds it; NULL: none */
        bool given;              /* by an option, a line or a request */
    } v[PROCESSORS_N];
};

#define PROCESSOR_NEUTRAL(WORD, name, option, kind, least, most, neutral) \
    [PROCESSOR_##WORD] = { .number = neutral },
#define PROCESSORS_NEUTRAL                     \
    {                                          \
        .v = { PROCESSORS(PROCESSOR_NEUTRAL) } \
    }

void processors_clear(struct processors *p);
/* Makes OUT, which is initialised or holds an earlier copy, the same as P. */
void processors_copy(struct processors *out, const struct processors *p);
/* The same of one row. */
void processors_take(struct processors *out, const struct processors *p,
                     enum processor row);
/* The row that has NAME, or -1; GRAMMAR has none, since the caller opens it. */
int processors_find(const char *name);
/* Appends ',"NAME":VALUE' for each row that is not neutral. */
void processors_print(struct str *out, const struct processors *p);
/* Does it count only where a token is drawn? */
bool processors_is_drawn(enum processor row);
/* Does the row leave every logit as it is? */
bool processors_is_neutral(const struct processors *p, enum processor row);
/* Sets ROW from VALUE, which null leaves alone.  WHERE begins the message; VOCAB is the
 * number of ids.  ERR_INPUT: it is not what the row takes. */
MUST_CHECK int processors_read(struct processors *p, enum processor row,
                               const struct cJSON *value, uint64_t vocab,
                               const char *where, struct err *err);
/* Adds a sequence of N ids to the list of ROW, with BIAS. */
void processors_add(struct processors *p, enum processor row, const int32_t *id,
                    size_t n, double bias);
/* Replaces the grammar of P by G, which it holds from now on. */
void processors_set_grammar(struct processors *p, struct grammar *g);
/* Refuses a number that is out of range.  WHERE: of a line (ERR_INPUT); NULL: options
 * (ERR_USAGE). */
MUST_CHECK int processors_check(const struct processors *p, const char *where,
                                struct err *err);
/* Refuses what is given about drawing where nothing is drawn, and no temperature is
 * given. */
MUST_CHECK int processors_check_drawn(const struct processors *p, const char *where,
                                      struct err *err);
/* Does a text need its logits where they are edited: more than what a backend's own
 * sampler takes (temperature, top_k, top_p), or a forced token? */
bool processors_edit(const struct processors *p);

/* How a text's tokens are chosen.  What it points to must outlive the text. */
struct choosing {
    const struct processors *processors;
    size_t prompt;         /* tokens that are not generated */
    const int32_t *source; /* of an encoder; else NULL: the prompt counts as it */
    size_t nsource;
    const int32_t *stop; /* ids that end the text, for rows about its length */
    size_t nstop;
    size_t most; /* tokens of the text at its longest: that of FORCED_LAST */
    int likely;  /* how many of the likeliest tokens are told; -1: no logprob at all */
    enum pick_of of;
    bool normal;   /* as in struct pick, for PICK_SCORES */
    int32_t draws; /* tokens that are drawn after the prompt; 0: one */
};

/* Edits of one token, and the memory of finding them. */
struct edits {
    struct pick_edits made; /* what was found last, of this memory: */
    struct edit *v;
    size_t n, cap;
    uint32_t *allowed;
    size_t cap_allowed;
    uint32_t *at; /* [nat]: of an id, its place in v + 1; 0: none */
    size_t nat;
};
void edits_clear(struct edits *e);
/* Replaces E by the edits for the token after IDS[n], and sets *pick but for its
 * draw's seed and position.  CURSOR is the text's, for its grammar. */
void processors_apply(const struct choosing *c, const int32_t *ids, size_t n,
                      struct grammar_cursor *cursor, struct edits *e,
                      struct pick *pick);
/* How many of the drafted tokens DRAFT[ndrafted] may follow IDS[n]. */
size_t processors_take_drafted(const struct choosing *c, const int32_t *ids, size_t n,
                               struct grammar_cursor *cursor, const int32_t *draft,
                               size_t ndrafted);

#endif
