/* pipechart - a picture of a pipeline's schedule: a row for each rank, time from left
 * to right; as simulated, and below it as measured */
#ifndef CMD_PIPECHART_H
#define CMD_PIPECHART_H

#include "lib/pipe/passtimes.h"

struct pipechart {
    const char *path, *command;
    const char *title;
    const char *text; /* what the program prints of it */
    const char *unit; /* of the times: "time, in forward passes of a stage" */
    const struct action_table *table;
    const struct pipe_times *times;
    const struct pipe_result *result;
    const struct passtimes *measured; /* the table was measured; or NULL */
};
/* Writes a picture, or a page (.html), to .path. */
MUST_CHECK int pipechart_write(const struct pipechart *t, struct err *err);

#endif
