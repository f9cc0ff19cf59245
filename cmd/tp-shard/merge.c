/* merge - merges rank files into a Hugging Face directory */
#include <stdlib.h>
#include <string.h>

#include "cmd/tp-shard/tp-shard.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/ckpt/locate.h"
#include "lib/reshard/export.h"
#include "lib/reshard/quantize.h"
#include "lib/run/adapter.h"
#include "lib/run/adaptermerge.h"
#include "lib/run/base.h"

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

/* What is added to the weights. */
struct merging {
    struct adaptermerge *merge;
    char *located, *base; /* the adapter that CHECKPOINT is, and its model; or NULL */
};

static void close_all(struct merging *m, struct checkpoint *c)
{
    if (c)
        adapter_close(c->adapter);
    checkpoint_close(c);
    adaptermerge_free(m->merge);
    free(m->located);
    free(m->base);
}

/* Where *PATH is an adapter alone, which *is becomes, *PATH becomes its model: BASE, or
 * the one that its config names. */
static int find_model(struct merging *m, bool *is, char **path,
                      const struct opt_list *adapters, const char *base,
                      struct err *err)
{
    if (checkpoint_find(*path, err) < 0 ||
        locate_model(&m->located, *path, true, err) < 0 ||
        base_is_adapter(is, m->located, err) < 0)
        return -1;
    if (!*is && base)
        return err_set(err, ERR_USAGE, "--base: %s is no adapter, but a model", *path);
    if (!*is)
        return 0;
    if (adapters->n)
        return err_set(err, ERR_USAGE, "--adapter: %s is an adapter itself", *path);
    if (base)
        m->base = xstrdup(base);
    else if (base_find(&m->base, m->located, err) < 0)
        return -1;
    *path = m->base;
    return 0;
}

static int open_adapter(struct checkpoint *c, const struct adapter_spec *spec,
                        struct err *err)
{
    if (spec->name)
        return err_set(err, ERR_USAGE, "--adapter: %s=: what is merged has no name",
                       spec->name);
    return adapter_open(c, spec, err) < 0 ? -1 : base_check(c, spec->dir, err);
}

/* Opens the adapter that CHECKPOINT is, or those of LIST. */
static int open_adapters(struct merging *m, struct convert_change *change,
                         struct checkpoint *c, const struct opt_list *list,
                         const enum dtype *dtype, struct err *err)
{
    struct adapter_spec spec = { .weight = 1, .merges = true };
    int ret = 0;

    const char *method = c->model ? model_quantized(c->model) : NULL;

    if (!c->model)
        return err_set(err, ERR_INPUT, "%s: a single file has no config.json", c->path);
    if (method && !model_code_bits(c->model) && !model_in_blocks(c->model))
        return err_set(err, ERR_NO,
                       "%s: weights quantized by %s (quantization_config): nothing is "
                       "added to them",
                       c->path, method);
    if ((model_code_bits(c->model) || model_in_blocks(c->model)) && !dtype)
        return err_set(err, ERR_USAGE,
                       "--adapter: the weights of %s are quantized: give the type of "
                       "the sum (--dtype)",
                       c->path);
    if (!list->n) {
        spec.dir = m->located;
        ret = open_adapter(c, &spec, err);
    }
    for (size_t i = 0; i < list->n && ret == 0; i++) {
        ret = adapter_spec_parse(&spec, list->v[i], err);
        spec.merges = true;
        if (ret == 0)
            ret = open_adapter(c, &spec, err);
        adapter_spec_clear(&spec);
    }
    if (ret == 0)
        m->merge = adaptermerge_new(change, c);
    return ret;
}

/* Types of weights: also those of blocks, which GGUF has. */
static const char *const types[] = { "f32", "f16", "bf16", "q8_0", NULL };

/* What is exported, and how; a converter has no argument of its own. */
static int export_form;
static bool export_weights_only;

static int export(struct checkpoint *ckpt, const char *path,
                  const struct convert_options *opt, struct convert_result *result,
                  struct err *err)
{
    return export_checkpoint(ckpt, path, export_form, export_weights_only, opt, result,
                             err);
}

int merge_main(const char *program, int argc, char **argv)
{
    const char *dtype = NULL, *ranks = NULL;
    const char *base = NULL;
    struct opt_list adapters = { 0 };
    bool adapter = false;
    struct open_options from = { 0 };
    struct write_options w = { 0 };
    bool given = false, weights_only = false;
    int format = 0;
    const struct opt opts[] = {
        DTYPE_OPTION(dtype),
        FAMILY_OPTION(from.family),
        CONFIG_OPTION(from.config),
        MASTERS_OPTION(from.masters),
        AVERAGE_OPTION(from.average),
        { OPT_LIST, '\0', "adapter", &adapters, "DIR",
          "add this adapter to the weights", NULL, NULL },
        { OPT_STRING, '\0', "base", &base, "MODEL", NULL, NULL, NULL },
        { OPT_CHOICE, '\0', "export", &format, "FORMAT",
          "write what another framework loads", export_names, &given },
        { OPT_FLAG, '\0', "weights-only", &weights_only, NULL,
          "export no state of an optimizer", NULL, NULL },
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
    struct convert_change change;
    struct merging m = { 0 };
    struct checkpoint *ckpt = NULL;
    struct err err = { 0 };
    enum dtype type;
    bool coded;
    int status;

    from.any_moments = given && !weights_only;
    if (ranks_from_option(&opt, ranks, &err) < 0 ||
        dtype_from_option(&opt.dtype, &type, types, dtype, &err) < 0 ||
        find_model(&m, &adapter, &operand[0], &adapters, base, &err) < 0 ||
        open_checkpoint(&cmd, &ckpt, operand[0], &from, &err) < 0 ||
        ((adapter || adapters.n) &&
         open_adapters(&m, &change, ckpt, &adapters, opt.dtype, &err) < 0)) {
        close_all(&m, ckpt);
        return cmd_fail(&cmd, &err);
    }
    adapter |= adapters.n > 0;
    if (given) {
        export_form = format;
        export_weights_only = weights_only;
        opt.exports = true;
    }
    opt.codes = dtype && !opt.dtype ? 8 : 0;
    opt.change = adapter ? &change : NULL;
    coded = ckpt->model && (model_in_blocks(ckpt->model) ||
                            (ckpt->sharded && model_code_bits(ckpt->model)));
    if (weights_only && !given)
        status = cmd_usage(&cmd, "--weights-only: with --export");
    else if (opt.codes && (!given || strcmp(export_names[format], "gguf") != 0))
        status = cmd_usage(&cmd, "--dtype %s: with --export gguf", dtype);
    else if (given && str_ends(operand[1], ".gguf"))
        status = cmd_usage(&cmd,
                           "%s: the output is a directory; the file in it is "
                           "model.gguf",
                           operand[1]);
    else if (adapter && !adapters.n && (given || opt.some))
        status = cmd_usage(&cmd, "%s: %s is an adapter: merge it first",
                           given ? "--export" : "--ranks", m.located);
    else if (adapter && (given || opt.some))
        status =
            cmd_usage(&cmd, "--adapter: not with %s", given ? "--export" : "--ranks");
    else if (opt.some && (given || coded))
        status = cmd_usage(&cmd, "--ranks: not with %s",
                           given                          ? "--export"
                           : model_in_blocks(ckpt->model) ? "weights in blocks"
                                                          : "weights in int8 and int4");
    else if (coded && !given)
        status = merge_codes(&cmd, ckpt, operand[1], &opt, &w);
    else
        status =
            run_convert(&cmd, ckpt, operand[1], given ? export : convert, &opt, &w);
    close_all(&m, ckpt);
    return status;
}
