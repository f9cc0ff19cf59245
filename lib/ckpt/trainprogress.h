/* trainprogress - how far the training is that a checkpoint of another trainer is of
 *
 * A source that was asked for the state of an optimizer (source.h) has this beside the
 * moments, as far as its files say it. */
#ifndef LIB_CKPT_TRAINPROGRESS_H
#define LIB_CKPT_TRAINPROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/ckpt/tensor.h"

struct pickled;

/* A group of parameters, as PyTorch has it in param_groups. */
struct progress_group {
    double rate;         /* of the next update */
    double first_rate;   /* initial_lr, on which a schedule builds; NaN: no schedule */
    double beta1, beta2; /* NaN: not said, as are the next two */
    double eps, decay;
    bool within;     /* decay is within the gradient, as of torch.optim.Adam */
    const char *odd; /* a setting with which it is no AdamW, a constant; or NULL */
};

/* A parameter that the files have by its number alone, and the moments of it. */
enum { PROGRESS_MOMENTS = 2 };
struct progress_parameter {
    size_t group;
    struct tensor moment[PROGRESS_MOMENTS]; /* those that are there have .shape */
};

/* The rate of an update, from 1, that a log has. */
struct progress_rate {
    uint64_t update;
    double rate;
};

struct progress {
    double updates;     /* of weights, which each moment has seen; NaN: not known */
    bool uneven;        /* some have seen more than others */
    uint64_t steps;     /* done; UINT64_MAX: not known */
    uint64_t all;       /* the run was to have; 0: not known */
    uint64_t scheduled; /* steps of its schedule; UINT64_MAX: not known */
    struct progress_group *group;
    size_t ngroups;
    struct progress_parameter *parameter; /* through the groups */
    size_t nparameters;
    const char *path; /* the file of these, for messages */
    struct progress_rate *logged;
    size_t nlogged;
    size_t caps[3]; /* private */
};

void progress_init(struct progress *p);
void progress_clear(struct progress *p);
/* Are A and B equal, or both unknown (NaN)? */
bool progress_alike(double a, double b);
/* Appends the group that the dictionary GROUP describes.  ERR_INPUT, which names PATH,
 * when it is none. */
MUST_CHECK int progress_add_group(struct progress *p, const struct pickled *group,
                                  const char *path, struct err *err);
/* The same for a group of SETTINGS, unless there is one that is alike; returns its
 * number.  A time in proportion to the number of groups. */
size_t progress_find_group(struct progress *p, const struct progress_group *settings);
/* A group of which nothing is known yet; and a setting of it. */
void progress_begin_group(struct progress_group *g);
void progress_set(struct progress_group *g, const char *setting,
                  const struct pickled *value);
/* Appends a parameter of group GROUP, without moments; valid until the next call. */
struct progress_parameter *progress_add_parameter(struct progress *p, size_t group);
void progress_add_rate(struct progress *p, uint64_t update, double rate);
/* Takes note that some moments have seen UPDATES. */
void progress_see(struct progress *p, double updates);

#endif
