/* vocabulary - the tokens of a tokenizer by their bytes, for grammars
 *
 * A token's bytes are what it adds to a text, which may be a part of a character.
 * Control tokens, which a text does not show, begin with VOCABULARY_MARK, a byte that
 * no text has; so only grammars that name them allow them. */
#ifndef LIB_TEXT_GRAMMAR_VOCABULARY_H
#define LIB_TEXT_GRAMMAR_VOCABULARY_H

#include "lib/text/tokenizer.h"

#define VOCABULARY_MARK '\xff'

struct vocabulary;

/* ERR_INPUT: the text of a token depends on the tokens after it.  T must outlive *out;
 * the bytes are found when they are first needed. */
MUST_CHECK int vocabulary_open(struct vocabulary **out, const struct tokenizer *t,
                               struct err *err);
void vocabulary_free(struct vocabulary *v);
/* Finds them now. */
void vocabulary_prepare(struct vocabulary *v);
/* Ids, and the words of 32 bits that a set of ids has. */
size_t vocabulary_size(const struct vocabulary *v);
size_t vocabulary_words(const struct vocabulary *v);
/* The bytes of token ID; FIRST: at the beginning of a text.  NULL: it has none. */
const char *vocabulary_bytes(struct vocabulary *v, uint32_t id, bool first,
                             size_t *len);
/* Has a token these bytes? */
bool vocabulary_has(struct vocabulary *v, const char *bytes);

/* ---- for grammar.c ---- */

/* The tokens as a tree, in the order of their bytes: a node's subtree ends before node
 * .end. */
struct vocabulary_node {
    uint32_t end;
    int32_t id; /* of the first token that ends here, or -1 */
    uint32_t depth;
    unsigned char byte;
};
struct vocabulary_tree {
    struct vocabulary_node *v; /* [n] */
    size_t n, cap, deepest;
};
/* All tokens. */
const struct vocabulary_tree *vocabulary_tree(const struct vocabulary *v);
/* Tokens of at most *longest characters, which a string of JSON has as they are; they
 * are the set PLAIN, and the others are a tree, too. */
const struct vocabulary_tree *vocabulary_rest(const struct vocabulary *v,
                                              const uint32_t **plain, size_t *longest);
/* The next token with the same bytes as ID, or -1. */
int32_t vocabulary_same(const struct vocabulary *v, int32_t id);
/* Does the first token of a text lose a space with which it begins? */
bool vocabulary_drops_space(const struct vocabulary *v);

#endif
