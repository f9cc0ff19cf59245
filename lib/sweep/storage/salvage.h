/* salvage - what is whole of a damaged journal
 *
 * Operations name studies and trials by the order in which they were made, so a line
 * that made one may not just be left out: those after it would be taken for others.  A
 * bad line stands for a trial where it begins as such a line does, or where later lines
 * name one that nothing else has made.  That trial is made again, empty; what later
 * lines say of it is its own. */
#ifndef LIB_SWEEP_STORAGE_SALVAGE_H
#define LIB_SWEEP_STORAGE_SALVAGE_H

#include <stddef.h>

#include "lib/base/err.h"
#include "lib/base/str.h"

struct salvaged {
    size_t kept, dropped, made; /* lines, and parts of lines; trials made again */
};

/* Append to OUT the lines of TEXT (N bytes, read from PATH) that make studies, in their
 * order; TELL hears of each that is left out, by the line of the file.  Of a bad line
 * with the beginning of another in it the rest is looked at.  ERR_INPUT when nothing is
 * whole, the line that made a study is lost, or more than 64 lines are whole and
 * contradict others. */
MUST_CHECK int salvage_journal(struct str *out, struct salvaged *count,
                               const char *path, const char *text, size_t n,
                               void (*tell)(void *arg, int line, const char *what),
                               void *arg, struct err *err);

#endif
