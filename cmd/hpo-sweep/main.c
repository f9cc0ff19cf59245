/* hpo-sweep - many runs of any command, over a search space */
#include "cmd/hpo-sweep/hpo-sweep.h"

int main(int argc, char **argv)
{
    static const struct cmd_sub subs[] = {
        { "run", "run a command for one trial after another", run_main },
        { "ask", "start a trial and print its parameters", ask_main },
        { "tell", "finish a trial with its values", tell_main },
        { "report", "note a value on the way", report_main },
        { "should-prune", "say whether a trial is worth finishing", should_prune_main },
        { "enqueue", "have parameters tried next", enqueue_main },
        { "show", "list the trials", trials_main },
        { "best", "print the best trial", best_main },
        { "pareto", "print the trials that no other dominates", pareto_main },
        { "importance", "say how much each parameter matters", importance_main },
        { "watch", "show on the terminal what happens", watch_main },
        { "plot", "draw a study", plot_main },
        { "export", "write studies to a file", export_main },
        { "import", "read studies from a file", import_main },
        { "repair", "save what is whole of a damaged journal", repair_main },
        { "slurm", "write the script of a Slurm array", slurm_main },
        { NULL, NULL, NULL },
    };
    static const struct cmd cmd = {
        .name = "hpo-sweep",
        .synopsis = "COMMAND [OPTION]... [OPERAND]...",
        .summary = "Run a command many times over a search space",
        .subs = subs,
        .usual = "run",
    };

    return cmd_dispatch(&cmd, argc, argv);
}
