/* pp-partition - divides a model into pipeline stages, and simulates their schedules */
#include "cmd/pp-partition/pp-partition.h"

int main(int argc, char **argv)
{
    static const struct cmd_sub subs[] = {
        { "plan", "tell what each stage would run and hold", plan_main },
        { "split", "cut a model or checkpoint into stages", split_main },
        { "merge", "put stages together", merge_main },
        { "schedule", "simulate the order in which stages work", schedule_main },
        { NULL, NULL, NULL },
    };
    static const struct cmd cmd = {
        .name = "pp-partition",
        .synopsis = "COMMAND [OPTION]... [OPERAND]...",
        .summary = "Cut models into pipeline stages, and simulate their schedules",
        .subs = subs,
        .usual = "plan",
    };

    return cmd_dispatch(&cmd, argc, argv);
}
