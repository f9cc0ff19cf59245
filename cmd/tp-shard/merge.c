/* merge - put rank files together to a Hugging Face directory */
#include "cmd/tp-shard/tp-shard.h"

int merge_main(const char *program, int argc, char **argv)
{
    const char *dtype = NULL;
    bool force = false, quiet = false;
    const struct opt opts[] = {
        { OPT_STRING, '\0', "dtype", &dtype, "TYPE",
          "store weights as f32, f16 or bf16", NULL, NULL },
        { OPT_FLAG, 'f', "force", &force, NULL, "replace an earlier output", NULL,
          NULL },
        { OPT_FLAG, 'q', "quiet", &quiet, NULL, "show no progress", NULL, NULL },
        { .type = OPT_END },
    };
    const struct cmd cmd = {
        .name = "merge",
        .program = program,
        .synopsis = "[OPTION]... CHECKPOINT OUTPUT",
        .summary =
            "Put the rank files of CHECKPOINT together to a Hugging Face directory",
        .opts = opts,
        .min_args = 2,
        .max_args = 2,
    };
    char **operand = cmd_parse(&cmd, argc, argv);
    struct convert_options opt = { .force = force };
    struct checkpoint *ckpt = NULL;
    struct err err = { 0 };
    enum dtype type;
    int status;

    if (dtype_from_option(&opt.dtype, &type, dtype, &err) < 0 ||
        open_checkpoint(&ckpt, operand[0], NULL, &err) < 0)
        return cmd_fail(&cmd, &err);
    status = run_convert(&cmd, ckpt, operand[1], &opt, quiet);
    checkpoint_close(ckpt);
    return status;
}
