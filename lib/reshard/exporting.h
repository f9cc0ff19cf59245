/* exporting - what the writers of other frameworks' forms have in common
 *
 * A form is a row of the table in export.c.  It lays its files out first, which refuses
 * what it cannot write, and then writes them into an output directory that appears
 * complete (outdir.h).  A tensor is copied in bounded memory to the places that its
 * rows have in the file. */
#ifndef LIB_RESHARD_EXPORTING_H
#define LIB_RESHARD_EXPORTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/json.h"
#include "lib/ckpt/outdir.h"
#include "lib/ckpt/tensor.h"
#include "lib/ckpt/torchsave.h"
#include "lib/model/decay.h"
#include "lib/model/names.h"
#include "lib/reshard/convert.h"

struct exporting;

struct export_form {
    const char *name;
    bool states; /* has the moments of Adam */
    bool plain;  /* has no weights in codes, with scales beside them */
    /* Names the files (exporting_own), those of any layout. */
    void (*name_files)(struct exporting *x);
    /* Lays the files out.  Fails, with what the form cannot represent. */
    int (*lay_out)(struct exporting *x, struct err *err);
    int (*write)(struct exporting *x, struct err *err);
    void (*clear)(struct exporting *x); /* frees x->own */
};

/* The progress of a training that the source has. */
struct exporting_run {
    uint64_t step; /* updates of weights */
    double lr, beta1, beta2, eps, decay;
    double first_lr;        /* of a schedule: its peak */
    enum decay_kind decays; /* to which weights decay applies */
    /* of a run of tp-run; 0: not known */
    uint64_t done, all;              /* steps, of so many */
    uint64_t overflows;              /* steps that its schedule leaves out */
    uint64_t tokens, batch;          /* seen; samples of a step */
    uint64_t save_every, eval_every; /* steps */
    bool follows;                    /* its schedule follows the losses */
};

struct exporting {
    const struct export_form *form;
    struct checkpoint *ckpt;
    const struct convert_options *opt;
    struct convert_result *result;
    struct outdir out;
    struct cut *cut;
    bool states;              /* moments of Adam are written, too */
    struct exporting_run run; /* with .states */
    bool *decays;         /* [model->ntensors] (model/decay.h); NULL without a model */
    uint64_t total, done; /* bytes of tensors */
    const enum dtype *retype; /* what config.json says of weights, or NULL */
    char **ours;              /* names of all files */
    size_t nours, cap;
    struct tensor_index index; /* of the checkpoint's tensors */
    struct json_doc config;    /* of the model; .root is NULL without one */
    void *own;                 /* the form's */
};

/* Where a tensor goes. */
struct exporting_place {
    int fd;
    const char *path;
    uint64_t at;                   /* of the stored tensor in the file */
    enum dtype dtype;              /* of its elements; F32 of .blocks */
    const struct names_view *view; /* NULL: it is stored as it is */
    uint64_t lead, rows;           /* of a stack: its index in it; rows of one member */
    bool blocks;                   /* in Q8_0 (base/ggml.h) */
};

/* The type in which tensor I is written, which --dtype may have changed. */
enum dtype exporting_type(const struct exporting *x, size_t i);
/* The tensor with state ROLE of weight I, or -1.  "master" is also what a source of
 * another framework calls "param". */
long exporting_state(const struct exporting *x, size_t i, const char *role);
/* The smallest window of a layer's attention, in tokens; 0: all see everything. */
double exporting_window(const struct exporting *x);
/* Is weight I excluded from weight decay, as biases and norms are, in lib/train, too?
 */
bool exporting_undecayed(const struct exporting *x, size_t i);

/* Adds the file NAME to those of the output. */
void exporting_own(struct exporting *x, const char *name);
/* Copies tensor I.  CRC, unless NULL, becomes the CRC-32 of the bytes of the tensor;
 * use exporting_checksum when the view scatters its rows. */
MUST_CHECK int exporting_copy(struct exporting *x, size_t i,
                              const struct exporting_place *p, uint32_t *crc,
                              struct err *err);
/* The CRC-32 of BYTES of the file, which are read back. */
MUST_CHECK int exporting_checksum(uint32_t *crc, int fd, const char *path, uint64_t at,
                                  uint64_t bytes, struct err *err);
/* Writes gap I of T (torchsave.h). */
MUST_CHECK int exporting_gap(const struct torchsave *t, size_t i, int fd,
                             const char *path, struct err *err);
/* Syncs and closes FD, which has its final mode then, when RET is 0.  Returns RET, or
 * -1. */
MUST_CHECK int exporting_close(struct exporting *x, const struct outdir *out, int fd,
                               const char *path, int ret, struct err *err);
/* Writes the archive T, which has no storages, as the file NAME. */
MUST_CHECK int exporting_object(struct exporting *x, const struct outdir *out,
                                const char *name, struct torchsave *t, struct err *err);

#endif
