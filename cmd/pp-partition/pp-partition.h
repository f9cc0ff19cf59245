/* pp-partition - shared declarations of its commands */
#ifndef CMD_PP_PARTITION_PP_PARTITION_H
#define CMD_PP_PARTITION_PP_PARTITION_H

#include "cmd/cmd.h"
#include "lib/pipe/simulate.h"

int plan_main(const char *program, int argc, char **argv);
int split_main(const char *program, int argc, char **argv);
int merge_main(const char *program, int argc, char **argv);
int schedule_main(const char *program, int argc, char **argv);

/* A simulated schedule to draw: a row for each rank, time from left to right. */
struct timeline {
    const char *path, *command;
    const char *title;
    const char *text; /* what the program prints of it */
    const char *unit; /* of the times: "time, in forward passes of a stage" */
    const struct action_table *table;
    const struct pipe_times *times;
    const struct pipe_result *result;
};
MUST_CHECK int timeline_plot(const struct timeline *t, struct err *err);

#endif
