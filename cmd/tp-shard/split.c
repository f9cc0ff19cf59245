/* split - shards a Hugging Face directory into rank files */
#include <stdlib.h>
#include <string.h>

#include "cmd/tp-shard/tp-shard.h"
#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/program/packable.h"
#include "lib/reshard/quantize.h"

/* The axis with the outputs of each of M's tensors, for quantize; NULL on failure. */
static int *outputs_new(const struct model *m, struct err *err)
{
    enum packable *how = packable_new(m, err);
    int *axis = how ? xcalloc(m->ntensors + 1, sizeof(*axis)) : NULL;

    for (size_t t = 0; how && t < m->ntensors; t++)
        axis[t] = how[t] == PACKABLE_ROWS ? 0 : how[t] == PACKABLE_COLS ? 1 : -1;
    free(how);
    return axis;
}

/* Splits CKPT in BITS by way of a directory of the whole model, which is removed
 * unless another's is in its place. */
static int split_codes(const struct cmd *cmd, struct checkpoint *ckpt,
                       const char *output, const char *family, int bits,
                       struct convert_options *opt, const struct write_options *w)
{
    size_t n = strlen(output);
    char *whole;
    struct convert_options own = { .codes = bits, .force = true };
    struct convert_result result;
    const struct open_options again = { .family = family };
    struct checkpoint *c = NULL;
    struct err err = { 0 }, ignored;
    int *axis = NULL, status;
    bool made;

    while (n > 1 && output[n - 1] == '/')
        n--;
    whole = str_dupf("%.*s.quantized.partial", (int)n, output);
    own.outputs = axis = outputs_new(ckpt->model, &err);
    made = axis && quantize(ckpt, whole, &own, &result, &err) == 0;
    if (!made || open_to_cut(cmd, &c, whole, &again, &err) < 0)
        status = cmd_fail(cmd, &err);
    else
        status = run_convert(cmd, c, output, convert, opt, w);
    checkpoint_close(c);
    if (made)
        (void)!fs_remove_tree(whole, &ignored);
    free(axis);
    free(whole);
    return status;
}

static const char *const split_words[] = { "f32", "f16", "bf16", "int8", "int4", NULL };

int split_main(const char *program, int argc, char **argv)
{
    struct mesh_options m = { 0 };
    const char *dtype = NULL, *ranks = NULL;
    struct open_options from = { 0 };
    struct write_options w = { 0 };
    bool configs = false;
    const struct opt opts[] = {
        MESH_OPTIONS(m),
        PAD_OPTION(m),
        KEEP_OPTION(m),
        { OPT_STRING, '\0', "dtype", &dtype, "TYPE",
          "store weights as f32, f16, bf16, int8 or int4", split_words, NULL },
        RANK_CONFIGS_OPTION(configs),
        FAMILY_OPTION(from.family),
        CONFIG_OPTION(from.config),
        MOMENTS_OPTION(from.moments),
        MASTERS_OPTION(from.masters),
        SOME_RANKS_OPTION(ranks),
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
    int status, bits = 0;

    if (!mesh_is_given(&m))
        return cmd_usage(&cmd, "an axis is missing, such as --tp 2");
    if (output_is_number(&cmd, operand[1]))
        return ERR_USAGE;
    if (ranks_from_option(&opt, ranks, &err) < 0 ||
        dtype_from_option(&opt.dtype, &type, split_words, dtype, &err) < 0 ||
        mesh_from_options(&mesh, &m, NULL, &err) < 0)
        return cmd_fail(&cmd, &err);
    if (w.dry && dtype && !opt.dtype)
        return cmd_usage(&cmd, "-n: not with --dtype %s", dtype);
    if (opt.some && (configs || (dtype && !opt.dtype)))
        return cmd_usage(&cmd, "--ranks: not with %s",
                         configs ? "--rank-configs" : "--dtype int8 and int4");
    if (checkpoint_is_sharded(&sharded, operand[0], &err) < 0)
        return cmd_fail(&cmd, &err);
    if (sharded)
        return cmd_usage(&cmd, "%s: is cut already; reshard cuts it anew", operand[0]);
    if (open_to_cut(&cmd, &ckpt, operand[0], &from, &err) < 0)
        return cmd_fail(&cmd, &err);
    if (dtype && !opt.dtype)
        bits = !strcmp(dtype, "int8") ? 8 : 4;
    opt.mesh = &mesh;
    opt.rank_configs = configs;
    status = bits ? split_codes(&cmd, ckpt, operand[1], from.family, bits, &opt, &w)
                  : run_convert(&cmd, ckpt, operand[1], convert, &opt, &w);
    checkpoint_close(ckpt);
    return status;
}
