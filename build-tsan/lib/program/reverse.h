/* reverse - the derivative of a program, as instructions that follow it
 *
 * Reverse-mode differentiation (Linnainmaa 1970): from the last instruction to the
 * first, what an operation's reverse makes of the gradient of its result is added to
 * those of its sources and its weight.
 *
 * The gradient of a whole or a partial value is whole, that of a cut one is cut.  While
 * it is being added up there are two sums: terms of readers whose result is cut are
 * partial, and are added first and reduced once; the others are whole.  Of a cut
 * value's columns that several ranks hold, each has the gradient through its own
 * readers.
 *
 * The loss is the sum of "nll" over the rows with a target, times step_view.scale.  At
 * a border the next stage's gradients of what is exported are imported, in that order.
 */
#ifndef LIB_PROGRAM_REVERSE_H
#define LIB_PROGRAM_REVERSE_H

#include "lib/program/build.h"

/* May the program be reversed on this mesh?  ERR_NO when not. */
MUST_CHECK int reverse_check(const struct mesh *mesh, struct err *err);
/* Append the reverse to the program of B, whose weights are numbered. */
int reverse_program(struct builder *b);

#endif
