/* program - prints the compiled program of a rank: instructions, placements, costs */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/conversion.h"
#include "cmd/meshopt.h"
#include "cmd/tp-run/commands.h"
#include "cmd/tp-run/session.h"
#include "lib/program/print.h"
#include "lib/reshard/summary.h"

enum { MOST_TOKENS = 512 };

struct request {
    struct mesh_options mesh;
    const char *family, *config, *pass, *recompute;
    uint64_t tokens;
    int rank, compute; /* enum session_compute */
    bool rank_given, json, train, deterministic, sequence;
};

/* Builds the program that scores a text or, for a model without logits, computes its
 * outputs; or the training program. */
static int build(struct program **out, const struct model *m, const struct mesh *mesh,
                 const int coord[MESH_NAXES], const struct request *r, struct err *err)
{
    struct program_options reverse = { .tail = TAIL_NLL,
                                       .reverse = true,
                                       .training = true,
                                       .deterministic = r->deterministic,
                                       .sequence = r->sequence,
                                       .pass = r->pass,
                                       .dropout = -1 };
    struct program_options opt = { .tail = TAIL_NLL,
                                   .wanted = true,
                                   .rounded = r->compute == COMPUTE_BF16,
                                   .types = program_types_all,
                                   .deterministic = r->deterministic,
                                   .pass = r->pass };
    struct err first = { 0 };

    if (r->recompute && recompute_parse(&reverse.recompute, r->recompute, err) < 0)
        return -1;
    if (r->pass && !strcmp(r->pass, "fuse"))
        opt.fuse = program_fuse_all;
    if (r->train)
        return program_build(out, m, mesh, coord, &reverse, err);
    if (program_build(out, m, mesh, coord, &opt, &first) == 0)
        return 0;
    opt.tail = TAIL_NONE;
    opt.wanted = false;
    return program_build(out, m, mesh, coord, &opt, err);
}

static int print_rank(const struct request *r, const struct summary *o,
                      const struct mesh *mesh, int rank, struct err *err)
{
    uint64_t tokens = r->tokens ? r->tokens : model_context(o->model);
    int coord[MESH_NAXES];
    struct cost_step step;
    struct program *p;
    struct str out = { 0 };

    if (!r->tokens && (!tokens || tokens > MOST_TOKENS))
        tokens = MOST_TOKENS;
    step = cost_token((double)tokens);
    step.weight_bytes = (double)dtype_bits(o->dtype) / 8;
    mesh_coord(mesh, rank, coord);
    if (build(&p, o->model, mesh, coord, r, err) < 0)
        return -1;
    if (r->json) {
        print_program_json(&out, p, &step, rank);
    } else {
        str_addf(&out, "rank %d of %d, per token of %llu:\n", rank, mesh->nranks,
                 (unsigned long long)tokens);
        print_program(&out, p, &step);
    }
    fputs(str_text(&out), stdout);
    str_clear(&out);
    program_free(p);
    return 0;
}

/* Prints rank 0 of each stage, or the requested rank. */
static int print_ranks(const struct request *r, const struct summary *o,
                       const struct mesh *mesh, struct err *err)
{
    if (r->rank_given && (r->rank < 0 || r->rank >= mesh->nranks))
        return err_set(err, ERR_USAGE, "--rank %d: there are %d ranks", r->rank,
                       mesh->nranks);
    if (r->rank_given)
        return print_rank(r, o, mesh, r->rank, err);
    for (int s = 0; s < mesh->size[MESH_PP]; s++) {
        const int coord[MESH_NAXES] = { [MESH_PP] = s };

        if (print_rank(r, o, mesh, mesh_rank(mesh, coord), err) < 0)
            return -1;
    }
    return 0;
}

int program_main(const char *program, int argc, char **argv)
{
    struct request r = { 0 };
    const struct opt opts[] = {
        MESH_OPTIONS(r.mesh),
        { OPT_COUNT, '\0', "sp", &r.mesh.sp, "N", "ranks that share a sequence", NULL,
          NULL },
        { OPT_INT, '\0', "rank", &r.rank, "N",
          "of this rank (default: the first of each stage)", NULL, &r.rank_given },
        { OPT_U64, '\0', "tokens", &r.tokens, "N",
          "of a sequence that is counted (default: 512)", NULL, NULL },
        { OPT_FLAG, '\0', "train", &r.train, NULL, "with its derivative by all weights",
          NULL, NULL },
        { OPT_STRING, '\0', "recompute", &r.recompute, "WHAT",
          "with --train: compute activations again", NULL, NULL },
        { OPT_FLAG, '\0', "sequence-parallel", &r.sequence, NULL,
          "with --train: tokens over tp between its products", NULL, NULL },
        { OPT_FLAG, '\0', "deterministic", &r.deterministic, NULL,
          "with the same bits on 1, 2, 4 and 8 ranks", NULL, NULL },
        { OPT_CHOICE, '\0', "compute", &r.compute, "TYPE",
          "as TYPE is computed with: f32, bf16", session_compute_names, NULL },
        { OPT_STRING, '\0', "pass", &r.pass, "NAME",
          "as the compiler's pass NAME leaves it", NULL, NULL },
        { OPT_STRING, '\0', "family", &r.family, "FILE",
          "take the model family from FILE", NULL, NULL },
        { OPT_STRING, '\0', "config", &r.config, "FILE",
          "the model's config.json, or its directory", NULL, NULL },
        { OPT_FLAG, '\0', "json", &r.json, NULL, "print JSON, one object a line", NULL,
          NULL },
        { .type = OPT_END },
    };
    const struct cmd cmd = { .name = "program",
                             .program = program,
                             .own_page = true,
                             .synopsis = "[OPTION]... MODEL",
                             .summary =
                                 "Print the instructions that a model is compiled to",
                             .opts = opts,
                             .min_args = 1,
                             .max_args = 1 };
    char **operand = cmd_parse(&cmd, argc, argv);
    struct checkpoint_options options = { .family_file = r.family,
                                          .config = r.config,
                                          .family_path = family_path(&cmd) };
    struct summary summary = { 0 };
    struct err err = { 0 };
    struct mesh mesh;
    int ret = -1;

    if (summary_open(&summary, operand[0], &options, &err) < 0)
        return cmd_fail(&cmd, &err);
    warn_untied(&cmd, summary.model);
    if (mesh_from_options(&mesh, &r.mesh,
                          summary.checkpoint ? &summary.checkpoint->mesh : NULL,
                          &err) == 0)
        ret = print_ranks(&r, &summary, &mesh, &err);
    summary_close(&summary);
    return ret < 0 ? cmd_fail(&cmd, &err) : cmd_finish(&cmd, EXIT_SUCCESS);
}
