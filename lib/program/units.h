/* units - weights of a program that are shared out, gathered and summed together
 *
 * Replicas can share the trained weights of a program, their gradients and the state of
 * an optimizer (ZeRO, Rajbhandari et al. 2020).  What is dealt to them at a time is a
 * unit: the trained weights, one after another, that one layer reads.  A tensor that
 * several parts of the model may read, as one that layers share, or to which another
 * one is tied, is a unit of its own, so that all stages that have it deal it alike.
 * Weights whose gradient is summed over the tensor group, too, are units apart from
 * others: that sum is made once a step, since ranks of the group do not end a unit
 * between the same collectives.  So are those whose gradient only some of the ranks
 * make that share a sequence. */
#ifndef LIB_PROGRAM_UNITS_H
#define LIB_PROGRAM_UNITS_H

#include "lib/program/program.h"

struct weight_unit {
    int first, end; /* weights [first, end); those that are trained are in it */
    uint64_t at, n; /* trained elements in the units before it, and in it */
    bool apart;     /* its weights are .summed or made .by_some */
};

struct units { /* {0} is empty */
    struct weight_unit *v;
    int n;
    int *of; /* [nweights]: the unit of each weight; -1: it is not trained */
};

/* TRAINS[i]: weight I is trained. */
void units_find(struct units *u, const struct program *p, const bool *trains);
void units_clear(struct units *u);

/* A time during which memory holds numbers of a unit. */
struct unit_stay {
    int unit;
    int fetch;      /* it has its memory from before this instruction, */
    int begin, end; /* and instructions [begin, end) need it */
    uint64_t at;    /* f32 numbers before it in the room of all stays */
};

struct unit_stays { /* {0} is empty */
    struct unit_stay *v;
    int n;         /* in the order of .begin */
    uint64_t room; /* f32 numbers */
};

/* How the numbers of units lie while their weights are gathered. */
struct unit_images { /* {0} is empty */
    uint64_t *at;    /* [nweights]: bytes of its unit before a weight */
    uint64_t *bytes; /* [units.n]: of a unit, a multiple of 4 */
    bool *narrow;    /* [nweights]: it has 2 bytes a number, else 4 */
};

/* Of the units U of P; NARROW: matrices that products read (roundable.h) have 2 bytes a
 * number. */
void unit_images_find(struct unit_images *m, const struct units *u,
                      const struct program *p, bool narrow);
void unit_images_clear(struct unit_images *m);

/* When a program P that has the weights of U reads those of each unit: in the forward
 * pass, and in the reverse, if it has one.  Its memory, of the size in M, is there
 * while the unit before is read, so that it can be gathered meanwhile.  P may be
 * another program than that of M, with the same weights. */
void units_reads(struct unit_stays *s, const struct units *u, const struct program *p,
                 const struct unit_images *m);
/* When the reverse of P makes the gradients of each unit that is not .apart. */
void units_makes(struct unit_stays *s, const struct units *u, const struct program *p);
void unit_stays_clear(struct unit_stays *s);

#endif
