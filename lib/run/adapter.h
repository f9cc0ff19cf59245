/* adapter - low-rank adapters of a model, as PEFT writes them
 *
 * A directory has adapter_config.json (adapterconfig.h) and adapter_model.safetensors.
 * The matrices stay in the file until a rank loads its shards of them.  A new adapter
 * has no files: A is drawn and B is 0, so that it changes nothing before it is trained.
 */
#ifndef LIB_RUN_ADAPTER_H
#define LIB_RUN_ADAPTER_H

#include "lib/base/err.h"
#include "lib/program/program.h"
#include "lib/reshard/checkpoint.h"
#include "lib/run/adapterconfig.h"
#include "lib/run/adapterstack.h"

struct adapter;

/* "[NAME=]DIR[@WEIGHT]" */
struct adapter_spec {
    char *dir;
    char *name; /* of texts that choose it; adapters of one name are summed.  NULL: it
                 * acts on all texts */
    double weight; /* factor of what it adds */
    bool merges;   /* it is merged: it may have experts, embeddings and magnitudes */
};
/* Reads TEXT, which is a directory itself if there is one of that name.  ERR_USAGE. */
MUST_CHECK int adapter_spec_parse(struct adapter_spec *out, const char *text,
                                  struct err *err);
void adapter_spec_clear(struct adapter_spec *s);

/* Reads SPEC's directory, adds its adapters to C's model (model_adapt), and itself to
 * those of C->adapter.  Call it before a program is built.  ERR_INPUT names file and
 * cause; ERR_NO: a setting, or an adapter of something else than a plain product.
 * Close C->adapter, the first one, after C's last use. */
MUST_CHECK int adapter_open(struct checkpoint *c, const struct adapter_spec *spec,
                            struct err *err);
/* Puts the tensors that C's adapters have in place of the model's there
 * (modules_to_save).  ERR_NO: C has more rows than its files, or its own are no plain
 * numbers. */
MUST_CHECK int adapter_replace(struct checkpoint *c, struct err *err);
/* What stands in place of tensor T of the model: sets *found, and reads its elements
 * [FIRST, FIRST + N) to TO, as f32. */
MUST_CHECK int adapter_read_saved(const struct adapter *a, bool *found, size_t t,
                                  uint64_t first, float *to, size_t n, struct err *err);
/* The magnitudes of adapter I's outputs (DoRA), [out], or NULL: it has none.  The
 * caller frees *OUT. */
MUST_CHECK int adapter_magnitudes(const struct adapter *a, size_t i, float **out,
                                  struct err *err);
double adapter_weight(const struct adapter *a);
/* The one that was opened after A, or NULL. */
const struct adapter *adapter_next(const struct adapter *a);
/* The number by which a text chooses the adapters called NAME, of A and those after it;
 * 0: there are none.  The name of number I; NULL: there are fewer. */
int adapter_find(const struct adapter *a, const char *name);
const char *adapter_name(const struct adapter *a, int i);
/* A's own number; 0: it acts on all texts. */
int adapter_chosen(const struct adapter *a);
/* A new adapter W, which is trained; BASE is the model's path for its
 * config.  ERR_USAGE: names that the model has not. */
MUST_CHECK int adapter_make(struct checkpoint *c, const struct adapter_wish *w,
                            const char *base, struct err *err);
/* The same for predictions: adds W's adapters to M, without numbers, and freezes what
 * is not trained. */
MUST_CHECK int adapter_foretell(struct model *m, const struct adapter_wish *w,
                                struct err *err);
/* A, and those after it. */
void adapter_close(struct adapter *a);
/* Marks A's matrices in M as trained, with the dropout that its config says.  ERR_NO:
 * experts share some. */
MUST_CHECK int adapter_train(const struct adapter *a, struct model *m, struct err *err);
/* Freezes all tensors of M but those that A has in their place. */
void adapter_freeze(const struct adapter *a, struct model *m);
/* The state of a training, as JSON, that its directory's manifest has; or NULL. */
const char *adapter_training(const struct adapter *a);
/* The directory that it was read from; NULL of a new one.  Borrowed. */
const char *adapter_dir(const struct adapter *a);
/* PEFT's name of PART of adapter I of M, with a number where experts share a matrix.
 * The caller frees it. */
char *adapter_tensor_dup(const struct model *m, size_t i, enum adapter_part part);
/* What tells it apart from another: its config's text, and the file of its matrices,
 * NULL of a new one.  Borrowed. */
const char *adapter_config(const struct adapter *a);
const char *adapter_file(const struct adapter *a, uint64_t *size);

/* Of A or of those after it: */

/* The name of the matrix of experts that has PART, A or B, of adapter I of M, and *of,
 * where it lies there; NULL: it has one of its own.  The caller frees it. */
char *adapter_shared_dup(const struct adapter *a, const struct model *m, size_t i,
                         enum adapter_part part, struct adapter_stack *of);
/* The stored type of weight W, which has .adapter. */
enum dtype adapter_dtype(const struct adapter *a, const struct weight *w);
/* The same of tensor T, which an adapter has in place of the model's. */
char *adapter_saved_dup(const struct model *m, size_t t);
/* Is tensor T of M, which no file freezes, of one of the modules that LIST names, or
 * NULL, or of the head of a classifier? */
bool adapter_saves(const struct model *m, size_t t, const char *list);
/* Has A itself tensors in place of the model's? */
bool adapter_saves_any(const struct adapter *a);
/* Has a file PART of adapter I, or is it new? */
bool adapter_stores(const struct adapter *a, size_t i, enum adapter_part part);
/* Reads the whole A or B of adapter I, as f32 to TO [rows][cols]. */
MUST_CHECK int adapter_read(const struct adapter *a, size_t i, enum adapter_part part,
                            float *to, struct err *err);
/* Reads the shard of W, a weight of P, in that type to TO [rows][cols]; norms, and new
 * magnitudes, become 1 (adapternorm.h).  ERR_INPUT: a
 * number is NaN or infinite. */
MUST_CHECK int adapter_load(const struct adapter *a, const struct program *p,
                            const struct weight *w, void *to, struct err *err);

#endif
