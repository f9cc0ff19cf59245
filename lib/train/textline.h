/* textline - a line of JSON lines, and the samples that are made of it
 *
 * Shared by texts, which reads lines of texts, labels and pairs, and rated, which reads
 * those with numbers of other programs. */
#ifndef LIB_TRAIN_TEXTLINE_H
#define LIB_TRAIN_TEXTLINE_H

#include "lib/train/squad.h"
#include "lib/train/texts.h"

struct line {
    const char *text;
    size_t len;
    uint32_t number, col; /* where it begins */
    struct tokens ids;
    struct tokens types; /* of all ids; or of none */
    size_t given;
    uint8_t *learn; /* [ids.n], or NULL */
    int32_t *label; /* [nlabels] */
    size_t nlabels, label_cap;
    double *value; /* [nvalues] */
    size_t nvalues, value_cap;
    struct tokens source;
    struct texts_part *part; /* [parts]: of a sample of several documents */
    size_t parts, part_cap;
    double reference[2];
    struct squad_text *quoted; /* of a question; or NULL */
    struct line *more;         /* [nmore]: further samples of the line */
    size_t nmore, more_cap;
};

/* Frees what LINE and its further samples have. */
void line_clear(struct line *line);
/* A further sample of LINE, valid until the next one. */
struct line *line_more(struct line *line);
void line_add_value(struct line *line, double x);
/* The next document of LINE begins here, with GIVEN tokens of a prompt. */
void line_add_part(struct line *line, size_t given);

/* Appends the ids of TEXT, which are in the vocabulary. */
MUST_CHECK int line_encode(const struct texts_options *o, const char *text, size_t len,
                           struct tokens *out, struct err *err);
/* Sets .ids and .given of *LINE, which is empty, to those of PROMPT and COMPLETION as
 * one text, because a token may span both; the prompt ends before the first token that
 * differs from its own. PROMPT has both afterwards. */
MUST_CHECK int line_encode_pair(const struct texts_options *o, struct str *prompt,
                                const char *completion, size_t len, struct line *line,
                                struct err *err);
/* Appends the end id, unless a post-processor has done so. */
void line_end(const struct texts_options *o, struct tokens *ids);

/* What is above 0 by more than rounding is no log-likelihood. */
#define LIKELIHOOD_SLACK 1e-3

/* rated - lines whose samples have numbers: makes them of TEXT, the object of LINE */
struct json;
MUST_CHECK int rated_read(const struct texts_options *o, const struct json *text,
                          struct line *line, struct err *err);

/* paired - of lines of two texts, or with types of tokens, ROOT being the object: sets
 * .types to "token_type_ids" of .ids, or makes a sample of "text" and "pair", or of
 * "question" and "context" with the places of "answers" as values */
MUST_CHECK int paired_types(const struct texts_options *o, const struct json *root,
                            struct line *line, struct err *err);
MUST_CHECK int paired_text(const struct texts_options *o, const struct json *root,
                           struct line *line, struct err *err);
MUST_CHECK int paired_question(const struct texts_options *o, const struct json *root,
                               struct line *line, struct err *err);

#endif
