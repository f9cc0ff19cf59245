/* jsonplain - the JSON that machines write line by line, read in place
 *
 * For files of which most lines are plain: ASCII, no escapes but \" \\ \/, nothing
 * deep. Such a line is read several times faster than by json_parse, and without a call
 * of malloc.  What is not plain is left to json_parse, which also says what is wrong
 * with a line that is none; what is plain is read the same by both, except for
 * positions. */
#ifndef LIB_BASE_JSONPLAIN_H
#define LIB_BASE_JSONPLAIN_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/json.h"

/* Read the N bytes at TEXT, which has room for one more and is changed, into
 * NODES[room], the first of which is the root.  The nodes point into TEXT, and have no
 * positions.  False when the text is not plain, or needs more nodes. */
bool jsonplain_parse(struct json *nodes, size_t room, char *text, size_t n);

#endif
