/* subword - splits a piece into token ids: the models of a tokenizer.json */
#ifndef LIB_TEXT_SUBWORD_H
#define LIB_TEXT_SUBWORD_H

#include <cjson/cJSON.h>

#include "lib/text/tokenizer.h"
#include "lib/text/vocab.h"

struct subword_kind {
    const char *type; /* "type" in the file */
    /* Reads "model".  *vocab belongs to the caller as soon as it is set. */
    int (*open)(void **out, struct vocab **vocab, const char *path, const cJSON *model,
                struct err *err);
    /* Appends the ids of a piece, which is not empty. */
    int (*encode)(const void *model, const char *piece, size_t len, struct tokens *out,
                  struct err *err);
    /* The id of what is not in the vocabulary; below 0: none. */
    long (*unknown)(const void *model);
    void (*free)(void *model);
};

extern const struct subword_kind bpe_kind, wordpiece_kind, unigram_kind, wordlevel_kind;

struct subword {
    const struct subword_kind *kind;
    struct vocab *vocab;
    void *model;
};

MUST_CHECK int subword_open(struct subword *out, const char *path, const cJSON *model,
                            struct err *err);
void subword_clear(struct subword *s);
/* Below 0: there is none. */
long subword_unknown(const struct subword *s);
MUST_CHECK int subword_encode(const struct subword *s, const char *piece, size_t len,
                              struct tokens *out, struct err *err);

#endif
