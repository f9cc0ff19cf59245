/* vocab - words and their ids */
#ifndef LIB_TEXT_VOCAB_H
#define LIB_TEXT_VOCAB_H

#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"

struct vocab;

/* Room for N words with ids below SIZE. */
struct vocab *vocab_new(size_t n, size_t size);
/* From {"word": id, ...}; a word or an id that is there twice is refused. */
MUST_CHECK int vocab_open(struct vocab **out, const char *path, const cJSON *words,
                          struct err *err);
void vocab_free(struct vocab *v);
/* A word that is there already gets the new id. */
void vocab_add(struct vocab *v, const char *text, uint32_t id);

long vocab_id(const struct vocab *v, const char *text, size_t len); /* or -1 */
long vocab_byte(const struct vocab *v, unsigned char byte); /* the id of "<0xHH>" */
/* The word's text and bytes, or NULL. */
const char *vocab_text(const struct vocab *v, uint32_t id, size_t *len);
/* The word that was read as empty is a NUL, at which the JSON reader ends a text. */
void vocab_restore_nul(struct vocab *v);
size_t vocab_size(const struct vocab *v);    /* one more than the largest id */
size_t vocab_count(const struct vocab *v);   /* words */
size_t vocab_longest(const struct vocab *v); /* bytes of the longest word */

#endif
