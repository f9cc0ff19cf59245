/* reshard - shards a checkpoint for another mesh */
#include "cmd/tp-shard/tp-shard.h"

/* Would resharding CKPT for its own mesh change its files? */
static bool is_out_of_date(const struct checkpoint *ckpt)
{
    return ckpt->sharded &&
           (ckpt->manifest.version == MANIFEST_BY_UNIT || ckpt->mesh.keep_vocab);
}

int reshard_main(const char *program, int argc, char **argv)
{
    struct mesh_options m = { 0 };
    const char *dtype = NULL, *ranks = NULL;
    struct write_options w = { 0 };
    bool configs = false;
    const struct opt opts[] = {
        MESH_OPTIONS(m),
        PAD_OPTION(m),
        KEEP_OPTION(m),
        DTYPE_OPTION(dtype),
        RANK_CONFIGS_OPTION(configs),
        SOME_RANKS_OPTION(ranks),
        WRITE_OPTIONS(w),
        { .type = OPT_END },
    };
    const struct cmd cmd = {
        .name = "reshard",
        .program = program,
        .synopsis = "[OPTION]... CHECKPOINT OUTPUT",
        .summary =
            "Cut CHECKPOINT for another mesh; axes that are not named stay as they are",
        .opts = opts,
        .min_args = 2,
        .max_args = 2,
    };
    char **operand = cmd_parse(&cmd, argc, argv);
    struct convert_options opt = { 0 };
    struct checkpoint *ckpt = NULL;
    struct err err = { 0 };
    enum dtype type;
    struct mesh mesh;
    int status;

    if (output_is_number(&cmd, operand[1]))
        return ERR_USAGE;
    if (ranks_from_option(&opt, ranks, &err) < 0 ||
        dtype_from_option(&opt.dtype, &type, dtype_words, dtype, &err) < 0 ||
        open_checkpoint(&cmd, &ckpt, operand[0], NULL, &err) < 0)
        return cmd_fail(&cmd, &err);
    if (opt.some && configs)
        status = cmd_usage(&cmd, "--ranks: not with --rank-configs");
    else if (!mesh_is_given(&m) && !m.pad_given && !m.keep_vocab && !dtype &&
             !configs && !is_out_of_date(ckpt)) {
        status = cmd_usage(&cmd, "an axis is missing, such as --tp 2");
    } else if (mesh_from_options(&mesh, &m, &ckpt->mesh, &err) < 0) {
        status = cmd_fail(&cmd, &err);
    } else {
        opt.mesh = &mesh;
        opt.rank_configs = configs;
        status = run_convert(&cmd, ckpt, operand[1], convert, &opt, &w);
    }
    checkpoint_close(ckpt);
    return status;
}
