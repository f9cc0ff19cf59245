/* pass-reverse - appends the derivative of a program to it
 *
 * Reverse-mode differentiation (Linnainmaa 1970).  From the last instruction to the
 * first, the rule of the operation turns the gradient of its result into terms of the
 * gradients of its sources and its weight.
 *
 * The gradient of a replicated or a partial value is replicated, the gradient of a
 * sharded value is sharded.  A gradient has two sums until it is complete: terms from
 * readers with a sharded result are partial; they are added first and all-reduced once.
 * The other terms are replicated.  If several ranks hold a column of a sharded value
 * (replicated KV heads), each has the gradient through its own readers only.
 *
 * The loss is the sum of "nll" over the rows with a target, times a factor of the step
 * (step_view.factor), and with program_options.balance, that output's two numbers,
 * times theirs.  What they sum over the layers crosses stages like any value, and its
 * gradient has the sums of all stages.  At a pipeline stage boundary, gradients of the
 * exported values are received from the next stage, in the order of the exports.  The
 * weights are numbered already.
 *
 * With TAIL_LOGITS the loss is a function of the logits that the caller computes, with
 * its gradient (program.given). */
#ifndef LIB_PROGRAM_PASS_REVERSE_H
#define LIB_PROGRAM_PASS_REVERSE_H

#include "lib/program/program.h"

/* ERR_NO if the model of P cannot be trained: its routing has another form in
 * training. */
MUST_CHECK int reverse_check_model(const struct program *p, struct err *err);
#endif
