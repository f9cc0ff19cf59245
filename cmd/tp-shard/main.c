/* tp-shard - shards a transformer's checkpoint over ranks, and merges it again */
#include <sys/resource.h>

#include "cmd/tp-shard/tp-shard.h"

/* All shard files of a mesh are open at the same time, so raise the limit as far as the
 * system permits. */
static void allow_many_files(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

int main(int argc, char **argv)
{
    static const struct cmd_sub subs[] = {
        { "split", "cut a Hugging Face directory into rank files", split_main },
        { "merge", "put rank files together to a Hugging Face directory", merge_main },
        { "reshard", "cut a checkpoint for another mesh", reshard_main },
        { "gather", "put together what several jobs made", gather_main },
        { "audit", "tell what is wrong with a model's files", audit_main },
        { "verify", "look for damage in a checkpoint", verify_main },
        { "sum", "write checksums of a directory or file, for verify", sum_main },
        { "diff", "compare two checkpoints tensor by tensor", diff_main },
        { "show", "list the tensors of a checkpoint or file", show_main },
        { "plan", "tell what each rank would hold", plan_main },
        { "families", "list and print model families", families_main },
        { NULL, NULL, NULL },
    };
    static const struct cmd cmd = {
        .name = "tp-shard",
        .synopsis = "COMMAND [OPTION]... [OPERAND]...",
        .summary =
            "Shard a transformer's checkpoint over several ranks, and merge it again",
        .subs = subs,
        .usual = "show",
    };

    allow_many_files();
    return cmd_dispatch(&cmd, argc, argv);
}
