/* model - a family applied to one config.json: symbols, tensors, shards
 *
 * All programs take their facts about a model from here.  model_open makes a model from
 * a family and a config; model_bind then matches it to the tensors of a checkpoint, if
 * there is one.  Afterwards a model is read-only and may be shared by threads. */
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

/* One logical tensor, such as "wq" of layer 3. */
struct model_tensor {
    const char *key;  /* the family's name: "wq" */
    const char *name; /* in the checkpoint: "model.layers.3.self_attn.q_proj.weight" */
    int ndim;
    const struct axis
        *axis[MODEL_MAX_DIMS]; /* outermost first; the sizes are the shape in files */
    int kind;                  /* index of its definition, for model_kind */
    int layer;                 /* layer in its repeated section, or -1 */
    int section;               /* index of its repeated section, or -1 */
    int expert;                /* index of its expert, or -1 */
    int tied;      /* index of the tensor that it is tied to, or -1; a tied tensor need
                      not be stored */
    bool optional; /* may be missing from the checkpoint, */
    bool drawn;    /* but is there when training begins without weights */
    bool frozen;   /* training does not change it */
    bool buffer;   /* frozen, and no parameter of the model but part of its state */
    bool of_experts; /* its first axis counts experts, of which this program holds all,
                        and others those of the rank */
    int source;      /* after model_bind: index of the input, or -1: not stored */
};

/* What an adapter has: its matrices A [rank][in] and B [out][rank], and with magnitudes
 * these and the inverse norms by which outputs are multiplied, [out] each. */
enum adapter_part { ADAPTER_A, ADAPTER_B, ADAPTER_MAGNITUDE, ADAPTER_NORM };

/* Low-rank adaptation of a weight (Hu et al. 2021, "LoRA"): SCALE * B A is added to it.
 * With magnitudes (Liu et al. 2024, "DoRA") each output of the sum is divided by its
 * norm over the inputs, and multiplied by its magnitude. */
struct model_adapter {
    size_t tensor;    /* the weight; not a tied one */
    uint64_t expert;  /* from 1: this expert's slice of it; 0: all of it */
    bool turned;      /* which is [in][out] */
    struct axis rank; /* sharded by no mesh */
    double scale;
    int chosen;  /* from 1: of texts that choose it by this number alone; 0: of all */
    size_t from; /* the first of those that were added together */
    bool magnitudes;
    bool trained;   /* training changes all parts but the norms */
    double dropout; /* and drops elements of what A reads at this rate */
};

struct model {
    const char *family;      /* name of the family: "llama" */
    struct axis_scope scope; /* symbols whose value is a whole number from 1 */
    struct model_tensor *tensor;
    size_t ntensors;
    int *carry; /* after model_bind: inputs that are copied along but not used */
    size_t ncarry;
    struct model_adapter *adapter; /* [nadapters]; of one weight there may be several */
    size_t nadapters;
    struct model_state *state; /* private */
};

/* Opens the model of CONFIG, the text of a config.json; NAME is its file name in
 * messages. The family is FAMILY_FILE (a file or a family's name) if not NULL; else the
 * one that matches CONFIG, among the built-in families and those on PATH (a
 * colon-separated list of directories and files, or NULL).  ERR_INPUT for an unknown
 * model_type or a missing
 * key. */
MUST_CHECK int model_open(struct model **out, const char *name, const char *config,
                          const char *family_file, const char *path, struct err *err);
/* The same with the flattened family of a manifest. */
MUST_CHECK int model_open_flat(struct model **out, const char *name, const char *config,
                               const char *family_text, struct err *err);
/* The same with family F, which it takes ownership of, also on failure. */
MUST_CHECK int model_open_family(struct model **out, const char *name,
                                 const char *config, struct family *f, struct err *err);
void model_free(struct model *m);

/* M's family. */
const struct family *model_family(const struct model *m);
/* M's config, and the name it has in messages. */
const struct cJSON *model_config(const struct model *m);
const char *model_config_name(const struct model *m);

/* M's flattened family as JSON text, for the manifest.  Borrowed. */
const char *model_family_text(const struct model *m);

/* A tensor of a checkpoint. */
struct model_input {
    const char *name;
    enum dtype dtype;
    int ndim;
    const uint64_t *shape;
};

/* What a checkpoint says of a tensor that it does not store: that it is STORED. */
struct model_alias {
    const char *name, *stored;
};

/* Matches the N inputs to M's tensors; sets .name and .source of each tensor, and the
 * carry list.  Of tied tensors any may be the stored one: that to which the others are
 * tied then has its name and .source.  A tensor that is neither stored nor tied, but
 * that one of the NALIASES aliases names, becomes tied to the stored one.  An alias of
 * a stored tensor, or of none of the model, says nothing.  ERR_INPUT names a tensor
 * that no pattern matches, that is missing, that has a wrong shape, or whose alias is
 * false. */
MUST_CHECK int model_bind(struct model *m, const struct model_input *in, size_t n,
                          const struct model_alias *alias, size_t naliases,
                          struct err *err);

/* Says what is wrong with tensor NAME. */
typedef void model_fault(void *arg, const char *name, const char *text);
/* The same, but tells FAULT of every tensor that is unknown, missing, stored twice or
 * of a wrong shape, and goes on.  M is then good for its symbols and names alone. */
MUST_CHECK int model_bind_report(struct model *m, const struct model_input *in,
                                 size_t n, const struct model_alias *alias,
                                 size_t naliases, model_fault *fault, void *arg,
                                 struct err *err);

/* The tensor that has the values of T: T itself unless it is tied. */
size_t model_root(const struct model *m, size_t t);
/* The stored tensor T of the bound M is tied to a stored one that differs: T, and all
 * of its kind, become tensors of their own. */
void model_untie(struct model *m, size_t t);
/* What model_untie did, in words, for a warning; NULL: nothing.  Borrowed. */
const char *model_untied(const struct model *m);

/* Index of the tensor called NAME, as bound, or -1. */
long model_find(const struct model *m, const char *name);

/* Index of the tensor that has NAME among the names that the family knows, or -1. */
long model_match(const struct model *m, const char *name);
/* The module of transformers that has tensor T, whatever prefix the files' names have:
 * "model.layers.3.self_attn.q_proj".  The caller frees it. */
char *model_module_dup(const struct model *m, size_t t);
/* The parameter of transformers that tensor T is: of its names the first that no module
 * of its own has, whose weight it would be.  The caller frees it. */
char *model_parameter_dup(const struct model *m, size_t t);
/* Appends an adapter of the two-dimensional tensor T, not trained.  Programs that are
 * built from then on have it (lib/program/pass-adapters.c).  Valid until the next call.
 */
struct model_adapter *model_adapt(struct model *m, size_t t, bool turned, uint64_t rank,
                                  double scale);
/* Removes all adapters; programs that have some no longer know them. */
void model_unadapt(struct model *m);
/* The axes of adapter I's PART, from *axis[0] on; returns their number. */
int model_adapter_axes(const struct model *m, size_t i, enum adapter_part part,
                       const struct axis *axis[2]);

/* Is NAME that of a tensor, or of one that is carried?  Before or after model_bind. */
bool model_knows(const struct model *m, const char *name);

/* The number that all elements of the carried tensor NAME must have for the model to
 * run: 1 and *value, 0 if it may have any, -1 with *err set. */
MUST_CHECK int model_carried(const struct model *m, const char *name, double *value,
                             struct err *err);

/* Evaluates the N bytes of TEXT.  Names are symbols, then config keys; "layer" is LAYER
 * if that is at least 0.  On failure err->column counts within TEXT: see family_place.
 */
MUST_CHECK int model_eval(const struct model *m, const char *text, size_t n, int layer,
                          struct expr_value *out, struct err *err);

/* Sets *out to the condition WHEN, a string of DOC (NULL: true); "training" in it has
 * the value TRAINING. */
MUST_CHECK int model_when(const struct model *m, const struct json_doc *doc,
                          const struct json *when, int layer, bool training, bool *out,
                          struct err *err);

/* Index of the tensor KEY in layer LAYER (-1: not of a layer) and of EXPERT (-1: not of
 * an expert); for a tied tensor the tensor that it is tied to.  -1 if this model lacks
 * it, or it is optional and not stored; -2 if the family has no such key; -3 if KEY
 * needs a layer or expert that is not given. */
long model_tensor_at(const struct model *m, const char *key, size_t len, int layer,
                     int expert);

/* The number that SYMBOL has for the config; false if it has none. */
bool model_number(const struct model *m, const char *symbol, double *out);
/* Most tokens that the model can read (symbol "context"); 0: no limit. */
uint64_t model_context(const struct model *m);

/* ERR_NO, with the reason, if the model cannot be sharded over MESH ("tp 9: the model
 * has 8 heads"). */
MUST_CHECK int model_check_mesh(const struct model *m, const struct mesh *mesh,
                                struct err *err);

/* The pipeline stage of layer LAYER of the repeated section SECTION, or of a section
 * that is not repeated (LAYER -1).  A section before all layers is on the first stage,
 * one after all layers on the last; one between two stacks is with the layer before
 * it. */
int model_stage(const struct model *m, const struct mesh *mesh, int section, int layer);
/* Position of SECTION and LAYER for the partition of a pipeline: 0 before all layers, 1
 * to N the layers of all stacks, N + 1 after them.  A section between stacks has the
 * position of the layer before it; SECTION -1 has N + 1. */
int model_part(const struct model *m, int section, int layer);
int model_layers(const struct model *m); /* N */

/* A section of the forward pass. */
struct model_section {
    const char *name;
    bool repeated;
    int count; /* layers; 1 if not repeated */
    int depth; /* layers in the repeated sections before it */
};

/* M's sections; *N is their number, N may be NULL. */
const struct model_section *model_sections(const struct model *m, int *n);

/* A definition of the family: the tensors of one name pattern. */
struct model_kind {
    const struct family_entry *entry;
    const char *pattern;
    size_t first;      /* index of its first tensor; the others follow it */
    uint64_t read_by;  /* bit i: lines of section i name it */
    bool beside;       /* stored with another one; no line reads it */
    bool tied;         /* its tensors are tied to those of another definition */
    bool replaced;     /* quantized: another tensor is stored in its place */
    long companion_of; /* first tensor of the quantized weight that it belongs to, or
                        * -1 */
};

/* True if T belongs to one expert: its second capture is sharded over ep.  Captures of
 * repeat() are not. */
bool model_is_expert(const struct model *m, const struct model_tensor *t);
size_t model_kinds(const struct model *m);
struct model_kind model_kind(const struct model *m, int kind);

/* A tensor of one expert inside a tensor that stacks all experts. */
struct model_piece {
    char *name;                   /* allocated */
    uint64_t expert, first, rows; /* its rows of the expert's part of the stack */
};

/* The tensors that the stack NAME of shape SHAPE holds, *n of them, by expert.  The
 * caller frees the names and the array.  NULL if NAME is not a stack of the family. */
struct model_piece *model_unstack(const struct model *m, const char *name, int ndim,
                                  const uint64_t *shape, size_t *n);

/* What a companion of a quantized weight holds. */
enum model_packed {
    PACKED_VALUES, /* its quantized values; without one the weight holds them */
    PACKED_SCALES,
    PACKED_ZEROS,  /* zero points */
    PACKED_GROUPS, /* the group of each input column (g_idx) */
    PACKED_WHOLE,  /* a further scale, of all, by which others are divided */
    PACKED_FORMAT, /* bitsandbytes' weight_format: only 0, row-major, is known */
    PACKED_NROLES,
    PACKED_OTHER = PACKED_NROLES /* nothing of the values: scales of activations */
};

/* The packings that unpack.h reads; see packing.c for their sources. */
enum model_form {
    FORM_SCALED,
    FORM_GPTQ,
    FORM_AWQ,
    FORM_WORDS,
    FORM_FOURS,
    FORM_INT4,
    FORM_MXFP4,
    FORM_BLOCKS
};

/* How the checkpoint stores a quantized weight. */
struct ggml_row;
struct model_packing {
    enum model_form form;
    long part[PACKED_NROLES];      /* tensors of the model, by role; -1: none */
    int bits;                      /* per value in a word of 32 bits */
    bool zero_less_one;            /* zero points are stored minus 1 */
    double scale;                  /* a further factor of all values */
    const struct ggml_row *blocks; /* of FORM_BLOCKS */
};

/* The method in M's quantization_config; NULL without one. */
const char *model_quantized(const struct model *m);
/* The bits of its codes, 8 or 4, if tp-shard quantized it; else 0. */
int model_code_bits(const struct model *m);
/* 1: bitsandbytes has its matrices in blocks of 4 bits, 2: and the scales of these in
 * 8; else 0. */
int model_in_nf4(const struct model *m);
/* Are its matrices in ggml's blocks, as GGUF has them? */
bool model_in_blocks(const struct model *m);
/* True if the checkpoint stores tensor T of the bound M quantized; then sets *out. */
bool model_packing(const struct model *m, size_t t, struct model_packing *out);
/* The type to which a weight packed as P, with scales of type SCALES, is unpacked: bf16
 * for MXFP4, which is exact; otherwise the config's type, or SCALES without one,
 * limited to f32, f16 and bf16. */
enum dtype model_unpacked(const struct model *m, const struct model_packing *p,
                          enum dtype scales);
/* The weight type that M's config names; false, with *out unchanged, when it names
 * none. */
bool model_config_dtype(const struct model *m, enum dtype *out);
/* Checks that T, packed as P, has all tensors that its values need, is not stored
 * twice, and is not among the modules that the config excludes.  ERR_INPUT if not. */
MUST_CHECK int model_check_packing(const struct model *m, size_t t,
                                   const struct model_packing *p, struct err *err);

/* The mesh axis over which symbol SYM of M's scope is sharded, or -1. */
int model_dealt_over(const struct model *m, int sym);

/* The units of each symbol on the rank at COORD: an array of m->scope.n, which the
 * caller frees. */
struct share *model_shares(const struct model *m, const struct mesh *mesh,
                           const int coord[MESH_NAXES]);

/* The order of a shard's elements along each axis. */
enum slice_order {
    SLICE_ORIGINAL,     /* as in the original tensor: shard files */
    SLICE_CUTS_BY_UNIT, /* in sharded tensors segment by segment and, in each, unit by
                           unit: shard files of format version 1 */
    SLICE_BY_UNIT       /* the same in every tensor: programs in memory */
};

/* The shard of a tensor on the rank at COORD of MESH.  Its elements are the product of
 * the axes' runs, row-major in that order.  Its stored shape is the count of each axis,
 * plus the padding in the first. */
struct slice {
    bool held;    /* false: another pipeline stage or another expert's rank stores it */
    bool primary; /* the primary replica: no rank before it, which differs only along
                     mesh axes that do not shard the tensor, has the same shard.  An
                     element is owned if the slice is primary and its runs are owned */
    bool cut;     /* some axis is sharded on this mesh */
    int ndim;
    const struct runs *runs[MODEL_MAX_DIMS]; /* borrowed from the cutter */
    uint64_t pad; /* rows of zeros after the others, along the first axis */
};

/* A cutter computes the slices of one rank of a mesh.  It caches the runs of each
 * definition, so 100,000 tensors cost little memory. */
struct cutter;
MUST_CHECK int cutter_open(struct cutter **out, const struct model *m,
                           const struct mesh *mesh, const int coord[MESH_NAXES],
                           struct err *err);
void cutter_free(struct cutter *c);
/* Sets the order; call it before the first cutter_slice.  The default is
 * SLICE_ORIGINAL. */
void cutter_set_order(struct cutter *c, enum slice_order order);
void cutter_slice(struct cutter *c, size_t tensor, struct slice *out);
/* Appends to *err, which tells that MESH divides a block of BLOCK along AXIS of TENSOR,
 * at which smaller tp every rank has whole blocks. */
void cutter_tell_whole(const struct model *m, const struct mesh *mesh, size_t tensor,
                       int axis, uint64_t block, struct err *err);

#endif
