/* pooling - how the vectors of a model's tokens become one vector of a text
 *
 * sentence-transformers (sbert.net) saves it beside the model: modules.json lists the
 * steps, of which each has its config.json in a directory of its own. */
#ifndef CMD_TP_RUN_POOLING_H
#define CMD_TP_RUN_POOLING_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/err.h"

enum pool_kind { POOL_MEAN, POOL_CLS, POOL_LAST, POOL_POOLER };

struct pooling {
    int kind; /* enum pool_kind */
    bool normalize;
};

/* What the model in DIR asks for: the mean without scaling where it does not say.
 * ERR_INPUT names the file, and a step that is none of these. */
MUST_CHECK int pooling_read(struct pooling *p, const char *dir, struct err *err);

/* OUT[cols] becomes the vector of a text whose tokens have X[rows][cols]: of
 * POOL_POOLER the first row. */
void pooling_apply(const struct pooling *p, const float *x, size_t rows, size_t cols,
                   float *out);

/* The two files' parts of it, of N bytes at TEXT; NAME is for messages.  *WHERE becomes
 * the directory with the config of the pooling, which the caller frees, or NULL: there
 * is no such step. */
MUST_CHECK int pooling_parse_modules(struct pooling *p, char **where, const char *name,
                                     const char *text, size_t n, struct err *err);
MUST_CHECK int pooling_parse_config(struct pooling *p, const char *name,
                                    const char *text, size_t n, struct err *err);

#endif
