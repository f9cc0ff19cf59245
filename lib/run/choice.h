/* choice - the backend of a run: the first that can run all of its programs
 *
 * Backends are asked what they can run (backend_supports) before a weight is loaded,
 * instruction by instruction, with the formats in which weights and cached rows will be
 * held.  The answer of the whole run is that of the least able rank. */
#ifndef LIB_RUN_CHOICE_H
#define LIB_RUN_CHOICE_H

#include "lib/comm/comm.h"
#include "lib/device/device.h"
#include "lib/reshard/checkpoint.h"
#include "lib/run/held.h"

/* A program of this rank, and how it will be run. */
struct choice_need {
    const struct program *program;
    const struct checkpoint *checkpoint; /* that its weights come from */
    enum weights_form form;
    enum format kept;     /* type of the KV cache */
    bool trains;          /* weights are f32, or rounded (roundable.h), and operations
                           * on arrays update them: */
    enum array_op update; /* the optimizer's */
};

/* Can B run NEED?  Returns 0, or -1 with *err: ERR_NO and the reason, or why it could
 * not be found out.  *FORM, unless it is NULL: the form of the weights, which is
 * NEED's, or that of the checkpoint's own codes where they are asked for as stored and
 * B has kernels for them. */
MUST_CHECK int choice_supports(const struct backend *b, const struct choice_need *need,
                               enum weights_form *form, struct err *err);

/* What the program that is being built may have: fused operations and operands in bf16
 * that BACKEND has kernels for.  NEED's program is not read.  The caller frees .held.
 */
struct choice_builder {
    const struct backend *backend;
    struct choice_need need;
    struct held *held; /* of the weights, found when it is first asked */
    bool fails;        /* they could not be found: there is none of either */
};
/* ARG is a struct choice_builder; see struct program_fuse and struct program_types. */
bool choice_fuses(void *arg, const struct program *p, const struct inst *inst);
bool choice_takes(void *arg, const struct program *p, const struct inst *inst,
                  unsigned bf16);

/* What the backend may be. */
enum { CHOICE_BACKENDS = 4 }; /* of a build, at most */
struct choice_asked {
    const struct backend
        *of[CHOICE_BACKENDS]; /* the user's, or all that this machine */
    int n;                    /* can use, in order of preference */
    bool named;               /* the user's */
    bool devices;             /* its devices are chosen (--devices) */
    bool collectives;         /* its ranks do without the host (--comm nccl) */
};

/* Sets ASKED->of: NAME's (NULL: all).  Forks to look at devices: call it before MPI or
 * CUDA is used.  ERR_USAGE: there is no such backend; ERR_SYSTEM: it cannot be used. */
MUST_CHECK int choice_candidates(struct choice_asked *asked, const char *name,
                                 struct err *err);

enum { CHOICE_REASON = 192 };
struct choice {
    const struct backend *ops;
    const struct backend *instead_of; /* the usable backend that comes before it, and */
    char reason[CHOICE_REASON];       /* why it was not taken; NULL: there is none */
};

/* Chooses the first backend that ASKED permits and that runs all N NEEDS of every rank
 * of WORLD (NULL: this process decides for all).  Collective: every rank gets the same.
 * ERR_NO: there is none. */
MUST_CHECK int choice_make(struct choice *out, const struct choice_asked *asked,
                           const struct choice_need *needs, size_t n,
                           struct comm *world, struct err *err);

#endif
