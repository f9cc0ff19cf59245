/* terminal - is it one, how wide is it, and does it show colours? */
#ifndef CMD_TERMINAL_H
#define CMD_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

/* The columns of the terminal that FP writes to: COLUMNS, or what the terminal says, or
 * 80.  0: FP is no terminal. */
int terminal_width(FILE *fp);

/* What a word says about the user's question. */
enum paint { PAINT_NONE, PAINT_GOOD, PAINT_BAD, PAINT_ERROR };

/* Colours go to a terminal, unless NO_COLOR is set or TERM is dumb. */
bool terminal_colours(FILE *fp);
/* What to write before a word and after it; "" where there are no colours. */
const char *terminal_paint(FILE *fp, enum paint paint);
const char *terminal_plain(FILE *fp, enum paint paint);

#endif
