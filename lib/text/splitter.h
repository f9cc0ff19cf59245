/* splitter - cut text into pieces: the pre-tokenizers of a tokenizer.json */
#ifndef LIB_TEXT_SPLITTER_H
#define LIB_TEXT_SPLITTER_H

#include <cjson/cJSON.h>

#include "lib/base/err.h"
#include "lib/base/str.h"

struct splitter;

/* A piece of a text. */
struct piece {
    size_t start, len;
};

struct pieces {
    struct piece *v;
    size_t n, cap;
};

/* From "pre_tokenizer"; null does not split.  PATH is for messages. */
int splitter_open(struct splitter **out, const char *path, const cJSON *j,
                  struct err *err);
void splitter_free(struct splitter *s);
/* True when pieces are to be mapped byte by byte (a ByteLevel stage). */
bool splitter_is_byte_level(const struct splitter *s);
/* Cut TEXT, which a stage may change (a space put before), into *out. */
int splitter_run(const struct splitter *s, struct str *text, struct pieces *out,
                 struct err *err);
void pieces_clear(struct pieces *p);

#endif
