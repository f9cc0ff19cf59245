/* model - a family bound to one config.json: symbols, tensors, cuts
 *
 * What every program knows about a model comes from here.  A model is made from a
 * family and a config (model_open), then, where there are weights, bound to the tensors
 * that a checkpoint really has (model_bind).  It is read-only afterwards and may be
 * shared. */
#ifndef LIB_MODEL_MODEL_H
#define LIB_MODEL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/dtype.h"
#include "lib/base/err.h"
#include "lib/base/str.h"
#include "lib/model/axis.h"
#include "lib/model/mesh.h"

struct cJSON;
struct expr_value;   /* expr.h */
struct family;       /* family.h: the flattened file */
struct family_entry; /* family.h */
struct json;         /* json.h */
struct json_doc;

enum { MODEL_MAX_DIMS = 8 };

/* One logical tensor: "wq" of layer 3. */
struct model_tensor {
    const char *key;  /* the family's word: "wq" */
    const char *name; /* in the checkpoint: "model.layers.3.self_attn.q_proj.weight" */
    int ndim;
    const struct axis
        *axis[MODEL_MAX_DIMS]; /* outermost first; sizes are the file's shape */
    int kind;                  /* of its definition, for model_kind */
    int layer;                 /* value of the repeated section's capture, or -1 */
    int section;               /* repeated section that its capture names, or -1 */
    int expert;                /* value of the expert capture, or -1 */
    int tied;      /* index of the tensor it is tied to, or -1; a tied tensor need
                      not be stored */
    bool optional; /* may be missing from the checkpoint */
    int source;    /* after model_bind: index of the input, -1 when not stored */
};

struct model {
    const char *family;      /* name: "llama" */
    struct axis_scope scope; /* symbols with whole numbers for values */
    struct model_tensor *tensor;
    size_t ntensors;
    int *carry; /* after model_bind: inputs that are kept but not used */
    size_t ncarry;
    struct model_state *state; /* private */
};

/* Find the family for CONFIG (the text of a config.json; NAME is its file name for
 * messages) among the built-in families and those found on PATH (a colon-separated list
 * of directories and files, or NULL), or take FAMILY_FILE when not NULL, and bind it.
 * Errors: an unknown model_type (ERR_INPUT, names the nearest), a missing key (names
 * key and family). */
MUST_CHECK int model_open(struct model **out, const char *name, const char *config,
                          const char *family_file, const char *path, struct err *err);
/* The same from a manifest's flattened family text. */
MUST_CHECK int model_open_flat(struct model **out, const char *name, const char *config,
                               const char *family_text, struct err *err);
/* The same of family F, which it takes ownership of, also on failure. */
MUST_CHECK int model_open_family(struct model **out, const char *name,
                                 const char *config, struct family *f, struct err *err);
void model_free(struct model *m);

/* The family that M is of; its file as one JSON text is model_family_text. */
const struct family *model_family(const struct model *m);
/* The config that M is made of, and the name it is called by in messages. */
const struct cJSON *model_config(const struct model *m);
const char *model_config_name(const struct model *m);

/* The flattened family as JSON text, for the manifest.  Borrowed. */
const char *model_family_text(const struct model *m);

/* What a checkpoint holds. */
struct model_input {
    const char *name;
    enum dtype dtype;
    int ndim;
    const uint64_t *shape;
};

/* Match the N inputs to tensors: sets .name and .source of each tensor and the carry
 * list.  A tensor that no rule matches, a missing one, or a wrong shape is ERR_INPUT
 * and names it. */
MUST_CHECK int model_bind(struct model *m, const struct model_input *in, size_t n,
                          struct err *err);

/* The tensor called NAME (as bound), or -1. */
long model_find(const struct model *m, const char *name);

/* Evaluate TEXT of the family (N bytes) with symbols, then config keys; LAYER is the
 * value of "layer" when at least 0.  On failure *err has "column C: cause" only. */
MUST_CHECK int model_eval(const struct model *m, const char *text, size_t n, int layer,
                          struct expr_value *out, struct err *err);

/* True when WHEN (NULL: always) holds; "training" in it is TRAINING.  J and DOC say
 * where it stands. */
MUST_CHECK int model_when(const struct model *m, const char *when,
                          const struct json_doc *doc, const struct json *j, int layer,
                          bool training, bool *out, struct err *err);

/* The tensor KEY of layer LAYER (-1 outside repeated sections) and EXPERT (-1 where
 * none is meant), tied ones resolved to what they are tied to; -1 when the model has no
 * such tensor (or it is bound and an optional one is not stored), -2 when the family
 * has no such key, -3 when it is one of many. */
long model_tensor_at(const struct model *m, const char *key, size_t len, int layer,
                     int expert);

/* A number from the config through the family's SYMBOL; false when there is none. */
bool model_number(const struct model *m, const char *symbol, double *out);
/* Largest number of tokens the model is made for (symbol "context"), 0 when
 * unbounded. */
uint64_t model_context(const struct model *m);

/* Refuse a mesh that this model cannot be cut to, with the reason (ERR_NO; "tp 9: llama
 * has 8 heads"). */
MUST_CHECK int model_check_mesh(const struct model *m, const struct mesh *mesh,
                                struct err *err);

/* The pipeline stage that runs layer LAYER of the repeated section SECTION, or the
 * section itself (LAYER -1).  What comes before all layers is on the first stage, what
 * comes after them on the last, what lies between two stacks with the layer before it.
 */
int model_stage(const struct model *m, const struct mesh *mesh, int section, int layer);
/* The part of the model that a line of SECTION and LAYER belongs to, as a pipeline is
 * cut: 0 before all layers, 1 to N the layers of all stacks, N + 1 after them; a
 * section between stacks belongs to the layer before it, SECTION -1 to what comes last.
 */
int model_part(const struct model *m, int section, int layer);
int model_layers(const struct model *m); /* N */

/* A section of the forward pass. */
struct model_section {
    const char *name;
    bool repeated;
    int count; /* layers; 1 when not repeated */
    int depth; /* layers of the repeated sections before it */
};

/* M's sections, *N of them; N may be NULL. */
const struct model_section *model_sections(const struct model *m, int *n);

/* A definition of tensors: all of one name pattern. */
struct model_kind {
    const struct family_entry *entry;
    const char *pattern;
    size_t first;      /* of its tensors, which follow each other */
    uint64_t read_by;  /* bit per section whose lines name it */
    bool tied;         /* to those of another */
    bool replaced;     /* another stands for it where the weights are quantised */
    long companion_of; /* first tensor of the quantised weight it belongs to, or -1 */
};

size_t model_kinds(const struct model *m);
struct model_kind model_kind(const struct model *m, int kind);

/* One of the tensors that a stack has for each expert. */
struct model_piece {
    char *name;                   /* fresh */
    uint64_t expert, first, rows; /* rows of the expert's that are its own */
};

/* The tensors that NAME, of SHAPE, has one after the other for each expert: *n, by
 * expert, of which the names and the array are the caller's to free.  NULL: it is no
 * such stack. */
struct model_piece *model_unstack(const struct model *m, const char *name, int ndim,
                                  const uint64_t *shape, size_t *n);

/* What a companion holds of a quantised weight. */
enum model_packed {
    PACKED_VALUES, /* its elements; the weight itself where none is stored for it */
    PACKED_SCALES, /* what they are multiplied by */
    PACKED_ZEROS,  /* what is subtracted from them first */
    PACKED_GROUPS, /* the group of each of its columns */
    PACKED_FORMAT, /* a number that must be 0: the order of its rows */
    PACKED_NROLES,
    PACKED_OTHER = PACKED_NROLES /* nothing of its values: scales of activations */
};

/* The forms that unpack.h has; see quant.c for where they are from. */
enum model_form { FORM_SCALED, FORM_GPTQ, FORM_AWQ, FORM_WORDS, FORM_MXFP4 };

/* How the files have a weight that is quantised. */
struct model_packing {
    enum model_form form;
    long part[PACKED_NROLES]; /* tensors of the model, by role; -1: there is none */
    int bits;                 /* of a value in a word of 32 */
    bool zero_less_one;       /* zeros are stored less one */
    double scale;             /* of all of them */
};

/* The method that M's config says its weights are quantised by; NULL: it says none. */
const char *model_quantised(const struct model *m);
/* Is tensor T of the bound M stored quantised, so that its values are to be unpacked?
 */
bool model_packing(const struct model *m, size_t t, struct model_packing *out);
/* The type in which what P is of is multiplied, of whose scales the type is SCALES:
 * bf16 for MXFP4, which it has exactly; else what the config names, or SCALES where it
 * names none, among f32, f16 and bf16: what the methods' own tools round to. */
enum dtype model_unpacked(const struct model *m, const struct model_packing *p,
                          enum dtype scales);
/* The type of weights that M's config names; false, and *out untouched: none. */
bool model_config_dtype(const struct model *m, enum dtype *out);
/* Is T quantised but without tensors that its values need, or stored twice, or against
 * what the config says of it?  ERR_INPUT; 0 otherwise. */
MUST_CHECK int model_check_packing(const struct model *m, size_t t,
                                   const struct model_packing *p, struct err *err);

/* The mesh axis over which symbol SYM of M's scope is dealt, or -1. */
int model_dealt_over(const struct model *m, int sym);

/* Each symbol's share for the part at COORD: an array of m->scope.n.  The caller frees
 * it. */
struct share *model_shares(const struct model *m, const struct mesh *mesh,
                           const int coord[MESH_NAXES]);

/* The order of a part's elements along each axis. */
enum slice_order {
    SLICE_ORIGINAL,     /* that of the original: rank files */
    SLICE_CUTS_BY_UNIT, /* where the mesh cuts the tensor, segment by segment and in
                          each unit by unit: rank files of version 1 */
    SLICE_BY_UNIT       /* so in every tensor: programs in memory */
};

/* What the part at COORD of MESH stores of a tensor.  The part's elements are the
 * product of the axes' runs, row-major in that order, and its stored shape is each
 * axis' count, that of the first with its padding. */
struct slice {
    bool held; /* false: nothing of it is stored there (another pipeline stage, expert)
                */
    bool primary; /* no other part differing only along mesh axes that do not cut it
                     comes before: replicas are not primary.  An element is owned when
                     the slice is primary and all its runs are owned */
    bool cut;     /* some axis is cut by this mesh */
    int ndim;
    const struct runs *runs[MODEL_MAX_DIMS]; /* borrowed from the cutter */
    uint64_t pad; /* rows of zeros that follow along the first axis */
};

/* A cutter answers for one mesh and one part; it caches runs per axis, so that a model
 * of 100,000 tensors needs little. */
struct cutter;
MUST_CHECK int cutter_open(struct cutter **out, const struct model *m,
                           const struct mesh *mesh, const int coord[MESH_NAXES],
                           struct err *err);
void cutter_free(struct cutter *c);
/* Choose the order before the first slice is asked for; it is ORIGINAL until then. */
void cutter_set_order(struct cutter *c, enum slice_order order);
void cutter_slice(struct cutter *c, size_t tensor, struct slice *out);

#endif
