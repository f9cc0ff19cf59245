/* tokenprint - prints the tokens of texts, and the texts of tokens */
#ifndef CMD_TP_RUN_TOKENPRINT_H
#define CMD_TP_RUN_TOKENPRINT_H

#include <stdbool.h>

#include "lib/text/tokenizer.h"

/* Opens the tokenizer MODEL: a directory with tokenizer.json or one of the older files,
 * a tokenizer.json, tokenizer.model or tekken.json, or a GGUF file. */
MUST_CHECK int tokenprint_open(struct tokenizer **out, const char *model,
                               struct err *err);

struct tokenprint {
    const struct tokenizer *tokenizer;
    const char *text; /* a text, instead of the files; or NULL */
    bool json, count; /* print JSON; the number of tokens alone */
    bool bare;        /* without the tokens that the model puts around a text */
};

/* Prints the tokens of each file of the list FILE, whole; without any, those of
 * standard input. */
MUST_CHECK int tokenprint_files(const struct tokenprint *p, char **file,
                                struct err *err);

#endif
