/* merge - merges rank files into a Hugging Face directory */
#include "cmd/tp-shard/tp-shard.h"
#include "lib/reshard/export.h"

int merge_main(const char *program, int argc, char **argv)
{
    static const char *const formats[] = { "dcp", NULL };
    static converter *const exports[] = { export_dcp };
    const char *dtype = NULL;
    struct write_options w = { 0 };
    bool given = false;
    int format = 0;
    const struct opt opts[] = {
        DTYPE_OPTION(dtype),
        { OPT_CHOICE, '\0', "export", &format, "FORMAT",
          "write what another engine loads: dcp", formats, &given },
        WRITE_OPTIONS(w),
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
    struct convert_options opt = { 0 };
    struct checkpoint *ckpt = NULL;
    struct err err = { 0 };
    enum dtype type;
    int status;

    if (dtype_from_option(&opt.dtype, &type, dtype, &err) < 0 ||
        open_checkpoint(&cmd, &ckpt, operand[0], NULL, &err) < 0)
        return cmd_fail(&cmd, &err);
    status = run_convert(&cmd, ckpt, operand[1], given ? exports[format] : convert,
                         &opt, &w);
    checkpoint_close(ckpt);
    return status;
}
