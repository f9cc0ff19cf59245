/* convert - splits, merges or reshards a checkpoint in one pass
 *
 * Memory is bounded: a few MiB of buffers, and a few hundred bytes per tensor and
 * shard.  The output appears complete or not at all; the same call continues an
 * interrupted one. */
#ifndef LIB_RESHARD_CONVERT_H
#define LIB_RESHARD_CONVERT_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/dtype.h"
#include "lib/base/err.h"
#include "lib/reshard/checkpoint.h"

/* Changes weights on their way: ADD gets the N bytes at OFFSET of the weight NAME, of
 * TYPE, row-major, before they are written. */
struct convert_change {
    int (*add)(void *arg, const char *name, enum dtype type, uint64_t offset, void *buf,
               size_t n, struct err *err);
    const char *identity; /* tells this change from another */
    void *arg;
};

struct convert_options {
    const struct mesh *mesh; /* the target; NULL: merge to Hugging Face's format */
    const enum dtype *dtype; /* new type of real floating weights, or NULL */
    int codes;               /* quantize: bits of a number, 8 or 4 */
    const int *outputs; /* quantize: for each of the model's tensors, the axis with the
                         * outputs; -1: stays as it is */
    const struct convert_change *change; /* of a merge; NULL: none */
    bool exports;                        /* the converter is an export's */
    bool dry;                            /* check and count everything, write nothing */
    bool force;                          /* replace an existing output of ours */
    bool rank_configs; /* also write a directory per shard (rankconfig.h) */
    bool some;         /* make only the files FIRST to LAST, rank files or those of the
                        * merge, as a part (partset.h), not with rank_configs.  Whoever
                        * makes the last ones puts the output together */
    int first, last;
    void (*progress)(void *arg, uint64_t done, uint64_t total); /* bytes; may be NULL */
    void *arg;
};

struct convert_result {
    uint64_t bytes;     /* of weights written */
    uint64_t overflows; /* finite values that became infinite under dtype */
    uint64_t continued; /* bytes already written by an interrupted run */
    bool there;         /* what is asked for had been made before */
    bool waits;         /* files are missing that other jobs make */
    char missing[64];   /* their numbers, such as "4-7" */
    int of;             /* number of all */
    /* what the checkpoint of a training has and an export leaves out: */
    bool averages; /* moving averages of weights */
    bool masters;  /* f32 masters, of an optimizer without moments */
};

/* Writes CKPT to the directory PATH.  ERR_LOCKED when another run is writing it. */
MUST_CHECK int convert(struct checkpoint *ckpt, const char *path,
                       const struct convert_options *opt, struct convert_result *result,
                       struct err *err);

#endif
