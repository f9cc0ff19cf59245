/* pp-partition - pipeline stages and their schedules */
#include "cmd/pp-partition/pp-partition.h"

int main(int argc, char **argv)
{
    static const struct cmd_sub subs[] = {
        { "schedule", "simulate the order in which stages work", schedule_main },
        { NULL, NULL, NULL },
    };
    static const struct cmd cmd = {
        .name = "pp-partition",
        .synopsis = "COMMAND [OPTION]... [OPERAND]...",
        .summary = "Simulate the schedules of a model that is cut into pipeline stages",
        .subs = subs,
    };

    return cmd_dispatch(&cmd, argc, argv);
}
