/* mem-estimate - predict the memory that each rank of a layout needs */
#include "cmd/mem-estimate/mem-estimate.h"

int main(int argc, char **argv)
{
    static const struct cmd_sub subs[] = {
        { "infer", "memory of running a model", infer_main },
        { "train", "memory of training a model", train_main },
        { "plan", "the best layouts of a cluster", plan_main },
        { "solve", "the largest batch or context that fits, or the fewest ranks",
          solve_main },
        { "calibrate", "a device from what tp-run bench has measured", calibrate_main },
        { "gpus", "list the devices that are known", gpus_main },
        { NULL, NULL, NULL },
    };
    static const struct cmd cmd = {
        .name = "mem-estimate",
        .synopsis = "COMMAND [OPTION]... [MODEL]",
        .summary = "Predict the memory that each rank of a layout needs",
        .subs = subs,
        .usual = "infer",
    };

    return cmd_dispatch(&cmd, argc, argv);
}
