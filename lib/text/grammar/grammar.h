/* grammar - what a generated text may be, and which tokens may follow
 *
 * A grammar is a set of texts, as bytes: those that a JSON schema or a regular
 * expression describes.  The token after a beginning of such a text is one of a set
 * that is found by walking the tree of the vocabulary's bytes with the grammar's terms
 * (terms.h), and kept: a string, an object or a list leads back to sets that are known.
 * Every beginning that is allowed can be finished.
 *
 * A grammar is counted by those who hold it, from any thread; all else is for one
 * thread at a time. */
#ifndef LIB_TEXT_GRAMMAR_GRAMMAR_H
#define LIB_TEXT_GRAMMAR_GRAMMAR_H

#include "lib/base/json.h"
#include "lib/text/grammar/vocabulary.h"

struct grammar;

/* What stands around the text of a schema. */
struct grammar_frame {
    const char *before, *after; /* or NULL: nothing; before AFTER a line may end */
    const char *other; /* or NULL: a schema of what may be in place of the text, and
                        * around which alone BEFORE and AFTER stand */
    bool thinks;       /* the text begins in thoughts, which "</think>" ends, */
    bool may_think;    /* or may have some in <think> and </think> */
};

/* Texts of JSON that SCHEMA describes, of which DOC is the document; NULL: any object.
 * V must outlive *out.  ERR_INPUT names the keyword that is not supported. */
MUST_CHECK int grammar_open_schema(struct grammar **out, struct vocabulary *v,
                                   const struct json_doc *doc,
                                   const struct json *schema,
                                   const struct grammar_frame *frame, struct err *err);
/* Texts that the whole regular expression TEXT describes. */
MUST_CHECK int grammar_open_regex(struct grammar **out, struct vocabulary *v,
                                  const char *text, const struct grammar_frame *frame,
                                  struct err *err);
/* Names it: as it was opened. */
void grammar_name(struct grammar *g, const char *source);
const char *grammar_source(const struct grammar *g);
struct grammar *grammar_hold(struct grammar *g);
/* Gives it back; NULL is allowed. */
void grammar_drop(struct grammar *g);

/* Where a text is.  `struct grammar_cursor c = { 0 }` is at its beginning. */
struct grammar_cursor {
    int32_t *ids;   /* [n] */
    uint32_t *term; /* [n + 1]: what may follow before each, and in the end */
    size_t n, cap_ids, cap_term;
    size_t from; /* the first of the terms that are known; before it the first alone */
    uint64_t turn; /* of the grammar's memory */
};
void grammar_cursor_clear(struct grammar_cursor *c);

struct grammar_next {
    const uint32_t
        *allowed; /* [words]: a bit for each id; borrowed until the next call */
    size_t words;
    bool may_end; /* the text is whole as it is, */
    bool must;    /* and nothing may follow */
    bool fits;    /* the ids are a beginning of a text; else nothing is allowed */
};
/* Finds what may follow IDS[n].  The cursor is moved there; it is cheap if it was at
 * one of the last tokens. */
struct grammar_next grammar_follow(struct grammar *g, struct grammar_cursor *c,
                                   const int32_t *ids, size_t n);
/* How many of MORE[n] may follow IDS[n_ids], one after another. */
size_t grammar_take(struct grammar *g, struct grammar_cursor *c, const int32_t *ids,
                    size_t n_ids, const int32_t *more, size_t n);
/* Why nothing can be said about a text any more; NULL: all is well. */
const char *grammar_failed(const struct grammar *g);
/* Is the text TEXT[n] one of the grammar's? */
bool grammar_has(struct grammar *g, const char *text, size_t n);

#endif
