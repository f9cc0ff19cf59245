/* state - what the files of lib/model share of a bound model; private to them */
#ifndef LIB_MODEL_STATE_H
#define LIB_MODEL_STATE_H

#include "lib/model/expr.h"
#include "lib/model/family.h"
#include "lib/model/model.h"

/* A tensor of the family: all tensors of one name pattern. */
struct tensor_def {
    const struct family_entry *entry;
    const char *pattern;
    const char *when; /* NULL: always */
    const struct json *when_json;
    int ndim;
    struct axis axis[MODEL_MAX_DIMS];
    int tied_def; /* -1: not tied */
    int file_def; /* what it is tied to in a file that does not store it, or -1 */
    bool optional;
    int companion_of; /* definition whose quantised weight it belongs to, or -1 */
    int replaced_by;  /* definition of what stands for it when quantised, or -1 */
    const struct json *beside; /* a tensor whose stage it shares, as no line reads it */
    const struct json *packs; /* the family's word for what this is of another's values:
                                 "mxfp4" or "scales", whose text names it; or NULL */
    enum model_packed role;   /* of a companion */
    const char *stack; /* pattern of the tensor that has this one and those of the same
                          stack for all experts, in files of torch.save; or NULL */
    char **name;       /* patterns with the alternatives written out */
    size_t nnames;
    int capture[2]; /* symbols of its captures in order of appearance, -1 */
    const char *capture_name[2];
    int section;         /* that its capture repeats, or -1 */
    size_t first, count; /* its tensors in model.tensor */
    size_t *start;       /* [values of the first capture]: the first with that value, or
                            SIZE_MAX where its "when" does not hold */
    uint64_t read_by;    /* bit per section whose lines name it */
};

/* One symbol's definition, evaluated once. */
struct symbol_def {
    const struct family_entry *entry;
    struct expr_value value;
    enum { SYMBOL_NEW, SYMBOL_BUSY, SYMBOL_DONE } state;
};

/* How a symbol is dealt. */
struct deal_def {
    int sym; /* in the scope; the whole symbol ("heads") */
    enum mesh_axis over;
    int group, within; /* in the scope, or -1 */
    uint64_t grain;
};

struct model_state {
    struct family *family;
    cJSON *config;
    char *config_name;
    char *text; /* flattened family */
    struct symbol_def *symbol;
    struct axis_symbol *scope;
    struct deal_def *deal;
    int ndeals;
    struct model_section *section;
    int nsections;
    int nlayers; /* of all repeated sections */
    struct tensor_def *def;
    size_t ndefs;
};

#endif
