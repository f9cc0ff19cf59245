/* pp-partition - shared declarations of its commands */
#ifndef CMD_PP_PARTITION_PP_PARTITION_H
#define CMD_PP_PARTITION_PP_PARTITION_H

#include "cmd/cmd.h"
#include "lib/pipe/simulate.h"

int plan_main(const char *program, int argc, char **argv);
int split_main(const char *program, int argc, char **argv);
int merge_main(const char *program, int argc, char **argv);
int schedule_main(const char *program, int argc, char **argv);

/* Draws the simulated schedule T to PATH: a row for each rank, time from left to
 * right. */
MUST_CHECK int timeline_plot(const char *path, const struct action_table *t,
                             const struct pipe_times *times,
                             const struct pipe_result *result, const char *title,
                             struct err *err);

#endif
