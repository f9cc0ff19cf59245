/* steptime - how long a step of a layout would take
 *
 * Products go at the rate that large ones reach, attention at its own, and besides them
 * what each operation reads and writes goes through memory (work.h).  Collectives cost
 * their bytes in a ring and a latency for each hop.  A pipeline's order is simulated.
 * The times are for ranking: a model of a machine, not the machine. */
#ifndef LIB_ESTIMATE_STEPTIME_H
#define LIB_ESTIMATE_STEPTIME_H

#include "lib/estimate/bubble.h"
#include "lib/estimate/work.h"

/* What a machine does a second, as it is reached; seconds of latency. */
struct machine {
    double peak;      /* operations of its data sheet, for utilisation */
    double product;   /* operations of large products */
    double attention; /* operations with keys and values, going forward */
    double memory;    /* bytes read or written */
    double light;     /* bytes that pass so for each of a value that operations hand to
                         one another: less than 1 where caches hold them */
    double instruction; /* seconds that each takes besides */
    double link, net; /* bytes to a device of the same node, and of another; one way */
    double link_latency, net_latency; /* of one message */
    double backward; /* time of a backward pass, as a multiple of what its operations
                        take at these rates */
    double hidden;   /* share of an exchange of weights or gradients that disappears
                        behind products, as far as there are any */
    int per_node;    /* devices */
};

/* Seconds of a backward pass at a machine's own rates, from those of the forward pass:
 * of attention, and of everything else; and how often optimizer states are moved in an
 * update. */
double step_back(double plain, double attention);
extern const double step_update_passes;

/* A layout but for what stands in memory_options: the pipeline's order. */
struct pipe_order {
    enum order order;
    int chunks;
};

/* A step: seconds is the sum of the parts. */
struct step {
    double seconds;
    double compute;  /* of the busiest rank: products, and memory that goes with them */
    double tensor;   /* its sums over tp */
    double exchange; /* its exchanges of tokens over sp and ep */
    double pipeline; /* idle time, and messages between stages */
    double data;     /* gradients and weights over replicas, and their update */
    double flops;    /* of all devices: the model's, nothing counted twice */
};

/* Time O in ORDER.  STATES are the bytes of optimizer states of the largest rank.
 * Without BUBBLES the pipeline is not simulated and *out is a bound from below.  False
 * when ORDER cannot be made of these numbers. */
bool step_time(struct step *out, const struct profile *p, const struct machine *m,
               const struct memory_options *o, const struct pipe_order *order,
               uint64_t states, struct bubbles *bubbles);

#endif
