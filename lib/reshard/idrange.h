/* idrange - token ids that a model's files name, against the rows of its vocabulary */
#ifndef LIB_RESHARD_IDRANGE_H
#define LIB_RESHARD_IDRANGE_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/reshard/inspection.h"

/* Adds to OUT each file of DIR that names a token id for which an embedding of ROWS
 * rows has none: tokenizer.json, vocab.json, added_tokens.json, tokenizer_config.json,
 * config.json and generation_config.json.  A file that cannot be read as what it should
 * be is a finding, too. */
MUST_CHECK int idrange_inspect(struct inspection *out, const char *dir, uint64_t rows,
                               struct err *err);

/* What of a file's numbers is a token id. */
enum idrange_form {
    IDRANGE_TOKENIZER, /* model.vocab {token: id} or [[token, score]...],
                        * added_tokens[].id */
    IDRANGE_VOCAB,     /* {token: id} */
    IDRANGE_ADDED,     /* added_tokens_decoder {"id": ...} */
    IDRANGE_SETTINGS   /* KEY_token_id: a number or a list, also in text_config */
};
/* Adds to OUT what is wrong with the ids in the N bytes at TEXT of the file NAME.
 * ERR_INPUT, "PATH:LINE:COL: cause", when it is no JSON. */
MUST_CHECK int idrange_read(struct inspection *out, const char *name, const char *path,
                            const char *text, size_t n, enum idrange_form form,
                            uint64_t rows, struct err *err);

#endif
