/* merge - merges pipeline stages */
#include "cmd/conversion.h"
#include "cmd/pp-partition/pp-partition.h"

int merge_main(const char *program, int argc, char **argv)
{
    struct write_options w = { 0 };
    const struct opt opts[] = {
        WRITE_OPTIONS(w),
        { .type = OPT_END },
    };
    const struct cmd cmd = {
        .name = "merge",
        .program = program,
        .synopsis = "[OPTION]... CHECKPOINT OUTPUT",
        .summary = "Put the stages of CHECKPOINT together; other axes stay cut",
        .opts = opts,
        .min_args = 2,
        .max_args = 2,
    };
    char **operand = cmd_parse(&cmd, argc, argv);
    int size[MESH_NAXES] = { [MESH_PP] = 1 }, status;
    struct convert_options opt = { 0 };
    struct checkpoint *ckpt = NULL;
    struct err err = { 0 };
    struct mesh mesh;

    if (open_checkpoint(&cmd, &ckpt, operand[0], NULL, &err) < 0)
        return cmd_fail(&cmd, &err);
    if (mesh_set(&mesh, size, &ckpt->mesh, &err) < 0) {
        status = cmd_fail(&cmd, &err);
    } else {
        mesh.keep_vocab = ckpt->mesh.keep_vocab;
        if (mesh.size[MESH_TP] > 1 || mesh.size[MESH_EP] > 1) /* otherwise restore the
                                                               * original */
            opt.mesh = &mesh;
        status = run_convert(&cmd, ckpt, operand[1], convert, &opt, &w);
    }
    checkpoint_close(ckpt);
    return status;
}
