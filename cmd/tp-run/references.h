/* references - lines of training data, to which a model's likelihoods are added */
#ifndef CMD_TP_RUN_REFERENCES_H
#define CMD_TP_RUN_REFERENCES_H

#include "cmd/tp-run/inputs.h"

/* Of which --loss the lines are: 0: of none. */
extern const char *const reference_kinds[];
enum reference_kind {
    REFERENCES_NONE,
    REFERENCES_DPO,
    REFERENCES_KTO,
    REFERENCES_POLICY,
    REFERENCES_DISTIL
};

struct references {
    int kind;           /* enum reference_kind */
    size_t top;         /* of a teacher: the likeliest tokens of each place */
    double temperature; /* by which its logits are divided */
    char **line;        /* [n]: as they were read, on the process that read them */
    size_t n, cap;
};

/* Adds an input for each text of the lines of FILE, whose .pair[0] is the first token
 * that counts; .choices of the first of a line is their number.  ERR_INPUT names file
 * and line. */
MUST_CHECK int references_read(struct references *r, struct inputs *in,
                               const struct session *s, const char *file,
                               struct err *err);
void references_clear(struct references *r);

/* Sets OUT[2 * R->top] to the likeliest ids of the COLS logits X, and their
 * log-probabilities. */
void references_find_top(const struct references *r, const float *x, size_t cols,
                         float *out);
/* Appends line LINE with what was found of its N texts at IN, as a line: of text K the
 * likelihoods of tokens NLL[K][its ids], or of each ROWS[K][2 * R->top]. */
void references_add(struct str *out, const struct references *r, size_t line,
                    const struct input *in, size_t n, float *const *nll,
                    float *const *rows);

#endif
