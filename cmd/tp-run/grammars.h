/* grammars - the grammars of a session: those that were opened last, ready for the next
 * who asks for them */
#ifndef CMD_TP_RUN_GRAMMARS_H
#define CMD_TP_RUN_GRAMMARS_H

#include "lib/text/grammar/grammar.h"

struct grammars;

/* T must outlive the result. */
struct grammars *grammars_new(const struct tokenizer *t);
void grammars_free(struct grammars *s);
/* *OUT, which the caller drops, is what SPEC describes: "json", an object of any form;
 * "regex:" and an expression; or a JSON schema.  FRAME (or NULL) is as of
 * grammar_open_schema.  From any thread. */
MUST_CHECK int grammars_take(struct grammars *s, struct grammar **out, const char *spec,
                             const struct grammar_frame *frame, struct err *err);
/* The same, of what an option says: in place of a schema the name of a file that has
 * it. */
MUST_CHECK int grammars_take_option(struct grammars *s, struct grammar **out,
                                    const char *what, struct err *err);

#endif
