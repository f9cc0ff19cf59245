/* jsonplain - a fast in-place parser for simple machine-written JSON lines
 *
 * For files in which most lines are simple: ASCII, no escapes but \" \\ \/, little
 * nesting. It parses such a line several times faster than json_parse and never calls
 * malloc.  The caller passes any other line to json_parse, which also reports what is
 * wrong with malformed ones.  For a simple line both give the same tree, except that
 * this one has no positions. */
#ifndef LIB_BASE_JSONPLAIN_H
#define LIB_BASE_JSONPLAIN_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/json.h"

/* Parse the N bytes at TEXT into NODES[room]; the first node is the root.  TEXT has
 * room for one more byte, is modified, and must outlive the nodes, which point into it.
 * False when the text is not simple or needs more than ROOM nodes. */
bool jsonplain_parse(struct json *nodes, size_t room, char *text, size_t n);

#endif
