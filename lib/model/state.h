/* state - what model.c, bind.c and program.c share of a bound model */
#ifndef LIB_MODEL_STATE_H
#define LIB_MODEL_STATE_H

#include "lib/model/expr.h"
#include "lib/model/family.h"
#include "lib/model/model.h"

/* A repeated section: its capture and how often it is run. */
struct model_section {
    const char *name;
    bool repeated;
    int count; /* layers; 1 when not repeated */
    int depth; /* layers of the repeated sections before it */
};

/* A tensor of the family: all tensors of one name pattern. */
struct tensor_def {
    const struct family_entry *entry;
    const char *pattern;
    const char *when; /* NULL: always */
    const struct json *when_json;
    int ndim;
    struct axis axis[MODEL_MAX_DIMS];
    int tied_def; /* -1: not tied */
    bool optional;
    int companion_of; /* definition whose quantised weight it belongs to, or -1 */
    int replaced_by;  /* definition of what stands for it when quantised, or -1 */
    char **name;      /* patterns with the alternatives written out */
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

/* Evaluate TEXT of the family (N bytes) with symbols, then config keys; LAYER is the
 * value of "layer" when at least 0.  On failure *err has "column C: cause" only. */
int model_eval(const struct model *m, const char *text, size_t n, int layer,
               struct expr_value *out, struct err *err);

/* True when WHEN (NULL: always) holds.  J and DOC say where it stands. */
int model_when(const struct model *m, const char *when, const struct json_doc *doc,
               const struct json *j, int layer, bool *out, struct err *err);

/* The tensor KEY of layer LAYER (-1 outside repeated sections) and EXPERT (-1 where
 * none is meant), tied ones resolved to what they are tied to; -1 when the model has no
 * such tensor, -2 when the family has no such key, -3 when it is one of many. */
long model_tensor_at(const struct model *m, const char *key, size_t len, int layer,
                     int expert);

#endif
