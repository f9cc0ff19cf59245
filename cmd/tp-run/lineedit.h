/* lineedit - lines that a person types, or that come from a pipe
 *
 * On a terminal libedit edits them, if the program has it, and remembers them in a file
 * of this user alone; without it the terminal's own line discipline does.  Lines of a
 * pipe or file are read as they are, without a prompt. */
#ifndef CMD_TP_RUN_LINEEDIT_H
#define CMD_TP_RUN_LINEEDIT_H

#include <stdbool.h>

#include "lib/base/err.h"
#include "lib/base/str.h"

struct lineedit;

enum lineedit_event {
    LINEEDIT_LINE,      /* a line, without its line feed */
    LINEEDIT_INTERRUPT, /* ^C: what was typed is discarded */
    LINEEDIT_END        /* ^D, or the end of standard input */
};

/* Opens standard input.  HISTORY is the file of earlier lines, or NULL; its directories
 * are made.  A history that cannot be used is a warning in *note (or NULL), which the
 * caller frees, and the lines are read without it. */
void lineedit_open(struct lineedit **out, const char *history, char **note);
void lineedit_close(struct lineedit *l);
/* Do a terminal's two ends, standard input and output, talk to a person? */
bool lineedit_is_terminal(const struct lineedit *l);
/* Reads the next line, after PROMPT on a terminal.  LINE is emptied first.  Signals
 * that end the program do so once the terminal is as it was. */
MUST_CHECK int lineedit_read(struct lineedit *l, const char *prompt, struct str *line,
                             enum lineedit_event *event, struct err *err);

/* From now on SIGINT is only noted. */
void lineedit_catch_interrupts(void);
/* Was there a SIGINT since the last call, or since a line was read? */
bool lineedit_was_interrupted(void);

#endif
