/* split - divides a model or checkpoint into pipeline stages */
#include <stdlib.h>

#include "cmd/conversion.h"
#include "cmd/pp-partition/pp-partition.h"
#include "cmd/pp-partition/stages.h"

int split_main(const char *program, int argc, char **argv)
{
    struct stage_options o = { 0 };
    struct open_options from = { 0 };
    struct write_options w = { 0 };
    const struct opt opts[] = {
        STAGE_OPTIONS(o), FAMILY_OPTION(from.family), CONFIG_OPTION(from.config),
        WRITE_OPTIONS(w), { .type = OPT_END },
    };
    const struct cmd cmd = {
        .name = "split",
        .program = program,
        .synopsis = "[OPTION]... --pp=N MODEL OUTPUT",
        .summary = "Cut a Hugging Face directory or a checkpoint into pipeline stages",
        .opts = opts,
        .min_args = 2,
        .max_args = 2,
    };
    char **operand = cmd_parse(&cmd, argc, argv);
    int size[MESH_NAXES] = { 0 }, *stages = NULL, status;
    struct convert_options opt = { 0 };
    struct checkpoint *ckpt = NULL;
    struct err err = { 0 };
    struct mesh mesh;

    if (open_to_cut(&cmd, &ckpt, operand[0], &from, &err) < 0)
        return cmd_fail(&cmd, &err);
    if (!ckpt->model) {
        err_set(&err, ERR_INPUT, "%s: a single file has no config.json to cut by",
                operand[0]);
        status = cmd_fail(&cmd, &err);
    } else if (stages_choose(&stages, &size[MESH_PP], &o, 1, ckpt->model, NULL, &err) <
                   0 ||
               mesh_set(&mesh, size, &ckpt->mesh, &err) < 0) {
        status = cmd_fail(&cmd, &err);
    } else {
        mesh.stages = stages;
        mesh.keep_vocab = ckpt->mesh.keep_vocab;
        opt.mesh = &mesh;
        status = run_convert(&cmd, ckpt, operand[1], convert, &opt, &w);
    }
    free(stages);
    checkpoint_close(ckpt);
    return status;
}
