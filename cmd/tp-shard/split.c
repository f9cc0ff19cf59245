/* split - shards a Hugging Face directory into rank files */
#include "cmd/tp-shard/tp-shard.h"

int split_main(const char *program, int argc, char **argv)
{
    struct mesh_options m = { 0 };
    const char *dtype = NULL, *family = NULL;
    struct write_options w = { 0 };
    bool configs = false;
    const struct opt opts[] = {
        MESH_OPTIONS(m),
        PAD_OPTION(m),
        KEEP_OPTION(m),
        DTYPE_OPTION(dtype),
        RANK_CONFIGS_OPTION(configs),
        FAMILY_OPTION(family),
        WRITE_OPTIONS(w),
        { .type = OPT_END },
    };
    const struct cmd cmd = {
        .name = "split",
        .program = program,
        .synopsis = "[OPTION]... --tp=N MODEL OUTPUT",
        .summary = "Cut the Hugging Face directory MODEL into one file for each rank",
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
    bool sharded;
    int status;

    if (!mesh_is_given(&m))
        return cmd_usage(&cmd, "an axis is missing, such as --tp 2");
    if (output_is_number(&cmd, operand[1]))
        return ERR_USAGE;
    if (dtype_from_option(&opt.dtype, &type, dtype, &err) < 0 ||
        mesh_from_options(&mesh, &m, NULL, &err) < 0)
        return cmd_fail(&cmd, &err);
    if (checkpoint_is_sharded(&sharded, operand[0], &err) < 0)
        return cmd_fail(&cmd, &err);
    if (sharded)
        return cmd_usage(&cmd, "%s: is cut already; reshard cuts it anew", operand[0]);
    if (open_to_cut(&cmd, &ckpt, operand[0], family, &err) < 0)
        return cmd_fail(&cmd, &err);
    opt.mesh = &mesh;
    opt.rank_configs = configs;
    status = run_convert(&cmd, ckpt, operand[1], convert, &opt, &w);
    checkpoint_close(ckpt);
    return status;
}
