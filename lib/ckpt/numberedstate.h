/* numberedstate - an optimizer's state as PyTorch stores it: by number
 *
 * optimizer.state_dict() is {state: {number: {exp_avg, ...}}, param_groups: [{params:
 * [number...]}...]}, where the parameters are numbered through the groups.  Whose a
 * number is, the names say that some groups have (param_names), or names in place of
 * numbers; otherwise shape and order: within a group parameters are numbered in the
 * model's order, so that one of a shape that no other group has can be told. */
#ifndef LIB_CKPT_NUMBEREDSTATE_H
#define LIB_CKPT_NUMBEREDSTATE_H

#include <stddef.h>

#include "lib/base/err.h"
#include "lib/ckpt/tensor.h"
#include "lib/ckpt/unpickle.h"

/* The states of a parameter. */
struct numberedstate {
    size_t param;                /* index of the parameter */
    const struct pickled *state; /* its dictionary */
    size_t group, at, of;        /* its group, its place there, of so many */
};

/* The moments of Adam, in the order in which they are listed. */
enum { NUMBEREDSTATE_NROLES = 2 };
extern const char *const numberedstate_roles[NUMBEREDSTATE_NROLES];

/* Sets *out, which the caller frees, and *n to the states of OPTIMIZER, each of one of
 * the N_PARAMS tensors at PARAM, the model's parameters in its order, without second
 * names of tied ones.  ERR_INPUT, which names PATH, when OPTIMIZER is none or when it
 * cannot be told whose a state is. */
MUST_CHECK int numberedstate_read(struct numberedstate **out, size_t *n,
                                  const struct pickled *optimizer,
                                  const struct tensor *param, size_t n_params,
                                  const char *path, struct err *err);

#endif
