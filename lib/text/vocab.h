/* vocab - maps words to ids and back */
#ifndef LIB_TEXT_VOCAB_H
#define LIB_TEXT_VOCAB_H

#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"

struct vocab;

/* Allocates room for N words with ids below SIZE. */
struct vocab *vocab_new(size_t n, size_t size);
/* Reads {"word": id, ...}; a duplicate word or id is ERR_INPUT. */
MUST_CHECK int vocab_open(struct vocab **out, const char *path, const cJSON *words,
                          struct err *err);
void vocab_free(struct vocab *v);
/* Adds a word; an existing word gets the new id. */
void vocab_add(struct vocab *v, const char *text, uint32_t id);

long vocab_id(const struct vocab *v, const char *text, size_t len); /* or -1 */
long vocab_byte(const struct vocab *v, unsigned char byte); /* the id of "<0xHH>" */
/* The text of a word and its length, or NULL. */
const char *vocab_text(const struct vocab *v, uint32_t id, size_t *len);
/* Restores the word "\0", which the JSON reader, whose strings end at a NUL, reads as
 * "". */
void vocab_restore_nul(struct vocab *v);
size_t vocab_size(const struct vocab *v);    /* largest id + 1 */
size_t vocab_count(const struct vocab *v);   /* number of words */
size_t vocab_longest(const struct vocab *v); /* length of the longest word in bytes */

#endif
