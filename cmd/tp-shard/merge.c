/* merge - merges rank files into a Hugging Face directory */
#include "cmd/tp-shard/tp-shard.h"
#include "lib/reshard/export.h"
#include "lib/reshard/quantize.h"

/* Merges CKPT, which tp-shard quantized, to plain weights. */
static int merge_codes(const struct cmd *cmd, struct checkpoint *ckpt,
                       const char *output, struct convert_options *opt,
                       const struct write_options *w)
{
    struct write_options quiet = { .force = w->force, .quiet = true };
    int bits = model_code_bits(ckpt->model);
    enum dtype type = opt->dtype ? *opt->dtype : quantize_type(ckpt);
    int status = run_convert(cmd, ckpt, output, dequantize, opt, &quiet);

    if (!status && !w->quiet && bits)
        cmd_warn(cmd, "%s: weights in int%d became %s; they are rounded", output, bits,
                 dtype_name(type));
    else if (!status && !w->quiet)
        cmd_warn(cmd, "%s: weights in blocks became %s", output, dtype_name(type));
    return status;
}

int merge_main(const char *program, int argc, char **argv)
{
    static const char *const formats[] = { "dcp", NULL };
    static converter *const exports[] = { export_dcp };
    const char *dtype = NULL, *ranks = NULL;
    struct open_options from = { 0 };
    struct write_options w = { 0 };
    bool given = false;
    int format = 0;
    const struct opt opts[] = {
        DTYPE_OPTION(dtype),
        FAMILY_OPTION(from.family),
        CONFIG_OPTION(from.config),
        MASTERS_OPTION(from.masters),
        { OPT_CHOICE, '\0', "export", &format, "FORMAT",
          "write what another engine loads: dcp", formats, &given },
        SOME_RANKS_OPTION(ranks),
        WRITE_OPTIONS(w),
        { .type = OPT_END },
    };
    const struct cmd cmd = {
        .name = "merge",
        .program = program,
        .synopsis = "[OPTION]... CHECKPOINT OUTPUT",
        .summary = "Put the files of CHECKPOINT together to a Hugging Face directory",
        .opts = opts,
        .min_args = 2,
        .max_args = 2,
    };
    char **operand = cmd_parse(&cmd, argc, argv);
    struct convert_options opt = { 0 };
    struct checkpoint *ckpt = NULL;
    struct err err = { 0 };
    enum dtype type;
    bool coded;
    int status;

    if (ranks_from_option(&opt, ranks, &err) < 0 ||
        dtype_from_option(&opt.dtype, &type, dtype_words, dtype, &err) < 0 ||
        open_checkpoint(&cmd, &ckpt, operand[0], &from, &err) < 0)
        return cmd_fail(&cmd, &err);
    coded = ckpt->model && (model_in_blocks(ckpt->model) ||
                            (ckpt->sharded && model_code_bits(ckpt->model)));
    if (opt.some && (given || coded))
        status = cmd_usage(&cmd, "--ranks: not with %s",
                           given                          ? "--export"
                           : model_in_blocks(ckpt->model) ? "weights in blocks"
                                                          : "weights in int8 and int4");
    else if (coded && !given)
        status = merge_codes(&cmd, ckpt, operand[1], &opt, &w);
    else
        status = run_convert(&cmd, ckpt, operand[1], given ? exports[format] : convert,
                             &opt, &w);
    checkpoint_close(ckpt);
    return status;
}
