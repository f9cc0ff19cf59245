/* state - the internals of a model; private to lib/model */
#ifndef LIB_MODEL_STATE_H
#define LIB_MODEL_STATE_H

#include "lib/model/expr.h"
#include "lib/model/family.h"
#include "lib/model/model.h"

/* A definition of the family: all tensors of one name pattern. */
struct tensor_def {
    const struct family_entry *entry;
    const char *pattern;
    const struct json *when; /* the condition, a string; NULL: always */
    int ndim;
    struct axis axis[MODEL_MAX_DIMS];
    int tied_def; /* definition that it is tied to; -1: not tied */
    int file_def; /* "tied by file": tied to it if a file does not store it; or -1 */
    bool optional, frozen, buffer, of_experts;
    bool drawn;       /* optional, and there when training begins without weights */
    int companion_of; /* definition of the quantized weight that it belongs to, or -1 */
    int replaced_by;  /* definition stored in its place when quantized, or -1 */
    int next_replacer; /* of one that replaces: another that does, of other layers, or
                        * -1
                        */
    int near;          /* definition with whose readers it is stored, or -1 */
    const struct json
        *beside;              /* no line reads it: the tensor with which it is stored */
    const struct json *packs; /* "mxfp4" or "scales": the tensor whose packed values or
                                 scales it holds; or NULL */
    enum model_packed role;   /* of a companion */
    const struct ggml_row *blocks; /* of one whose numbers lie in ggml's blocks */
    const char *stack; /* pattern of the tensor that stacks it for all experts, in files
                          of torch.save; or NULL */
    char **name;       /* [nnames] the pattern's alternatives, expanded */
    size_t nnames;
    int capture[2]; /* symbols that count its captures, in order; -1: none */
    const char *capture_name[2];
    int section;         /* the section that its capture repeats, or -1 */
    size_t first, count; /* range of its tensors in model.tensor */
    size_t *start;       /* [values of the first capture]: first tensor with that value;
                            SIZE_MAX if "when" does not hold there */
    uint64_t read_by;    /* bit i: lines of section i name it */
};

/* A symbol's definition and its value. */
struct symbol_def {
    const struct family_entry *entry;
    struct expr_value value;
    enum { SYMBOL_NEW, SYMBOL_BUSY, SYMBOL_DONE } state;
};

/* A sharded symbol (an entry of "deal"). */
struct deal_def {
    int sym; /* index in the scope */
    enum mesh_axis over;
    int group, within; /* sharded in groups: indices of its digits; or -1 */
    uint64_t grain;
};

struct model_state {
    struct family *family;
    cJSON *config;
    char *config_name;
    char *config_text; /* the file of that name, for the places of errors; NULL: none */
    char *text;        /* flattened family */
    struct symbol_def *symbol;
    struct axis_symbol *scope;
    struct deal_def *deal;
    int ndeals;
    struct model_section *section;
    int nsections;
    int nlayers; /* in all repeated sections */
    struct tensor_def *def;
    size_t ndefs;
    struct model_feed *feed; /* feed.h */
    int nfeeds;
    char *untied; /* what model_untie did, in words; or NULL */
};

/* Where the config file has the key at PATH ("rope_scaling.type"), as "NAME:LINE:COL";
 * NAME if it does not, or the config is a part of another file.  The caller frees it.
 */
char *model_config_place_dup(const struct model *m, const char *path);

/* Sets which sections read each definition; call it when a tie changes. */
void model_find_readers(struct model *m);

#endif
