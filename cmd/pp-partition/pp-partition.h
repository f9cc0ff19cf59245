/* pp-partition - shared declarations of its commands */
#ifndef CMD_PP_PARTITION_PP_PARTITION_H
#define CMD_PP_PARTITION_PP_PARTITION_H

#include "cmd/cmd.h"

int plan_main(const char *program, int argc, char **argv);
int split_main(const char *program, int argc, char **argv);
int merge_main(const char *program, int argc, char **argv);
int schedule_main(const char *program, int argc, char **argv);

#endif
