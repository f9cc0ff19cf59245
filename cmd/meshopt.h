/* meshopt - the options that name a mesh, the same in every program */
#ifndef CMD_MESHOPT_H
#define CMD_MESHOPT_H

#include "cmd/cmd.h"
#include "lib/model/mesh.h"

/* The mesh options; sizes that are 0 were not given. */
struct mesh_options {
    int tp, sp, ep, dp, pp;
    const char *spec; /* --mesh */
    int pad_vocab;
    bool pad_given, keep_vocab;
};

/* Rows of an option table: those that cut weights. */
#define MESH_OPTIONS(m)                                                               \
    { OPT_COUNT, '\0', "tp", &(m).tp, "N", "tensor-parallel ranks", NULL, NULL },     \
        { OPT_COUNT, '\0', "ep", &(m).ep, "N", "expert-parallel ranks", NULL, NULL }, \
        { OPT_COUNT, '\0', "pp", &(m).pp, "N", "pipeline stages", NULL, NULL },       \
    {                                                                                 \
        OPT_STRING, '\0', "mesh", &(m).spec, "SPEC", "the mesh at once: tp=8,pp=2",   \
            NULL, NULL                                                                \
    }

#define PAD_OPTION(m)                                                             \
    {                                                                             \
        OPT_INT, '\0', "pad-vocab", &(m).pad_vocab, "N",                          \
            "equal rows of the vocabulary, a multiple of N", NULL, &(m).pad_given \
    }

#define KEEP_OPTION(m)                                          \
    {                                                           \
        OPT_FLAG, '\0', "keep-vocab", &(m).keep_vocab, NULL,    \
            "give every rank all of the vocabulary", NULL, NULL \
    }

/* And those that do not. */
#define MESH_COPY_OPTIONS(m)                                                           \
    { OPT_COUNT, '\0', "dp", &(m).dp, "N", "data-parallel replicas", NULL, NULL },     \
    {                                                                                  \
        OPT_COUNT, '\0', "sp", &(m).sp, "N", "ranks that share a sequence", NULL, NULL \
    }

/* Was any axis named? */
static inline bool mesh_is_given(const struct mesh_options *m)
{
    return m->tp || m->sp || m->ep || m->dp || m->pp || m->spec;
}

/* The mesh asked for: an axis not named has the size it has in BASE.  ERR_USAGE when
 * the options contradict one another. */
MUST_CHECK int mesh_from_options(struct mesh *out, const struct mesh_options *m,
                                 const struct mesh *base, struct err *err);

/* *ACROSS = the ranks among which --sp-mode MODE divides heads, of SP that share a
 * sequence: all of them (ulysses, and NULL), one (ring), or N (ulysses=N), of whose
 * groups a ring is made.  ERR_USAGE where there is a mode, and SP is 1. */
MUST_CHECK int mesh_parse_sp_mode(int *across, const char *mode, int sp,
                                  struct err *err);

#endif
