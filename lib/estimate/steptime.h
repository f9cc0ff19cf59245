/* steptime - the time of one step of a layout
 *
 * Products run at the rate of large products, attention at its own; in addition every
 * operation moves its operands through memory (work.h).  Collectives cost their bytes
 * in a ring and a latency per hop.  Pipeline schedules are simulated.  The times are
 * meant for ranking layouts. */
#ifndef LIB_ESTIMATE_STEPTIME_H
#define LIB_ESTIMATE_STEPTIME_H

#include "lib/estimate/bubble.h"
#include "lib/estimate/work.h"

/* Rates that a machine reaches, per second, and latencies in seconds. */
struct machine {
    double peak;      /* FLOP/s of the data sheet, for utilisation */
    double product;   /* FLOP/s of large products */
    double head;      /* FLOP/s of products outside layers: the head of a language model
                         keeps 16 bits where layers have fewer */
    double attention; /* FLOP/s of attention in the forward pass */
    double start_keys, edge_keys; /* keys whose time a kernel of attention loses for
                                     each row, and for each edge of a mask */
    double grouped; /* share of PRODUCT that products with experts reach */
    double memory;  /* bytes/s read or written */
    double light;   /* bytes of memory traffic per byte of an activation that operations
                       pass on; below 1 if caches hold some */
    bool hides; /* products of a decoded token are in the time of its reads, as where
                   both were measured together */
    double instruction; /* overhead of an instruction in seconds */
    double link,
        net; /* bytes/s to a device of the same node, of another; one direction */
    double link_latency, net_latency;           /* of a message */
    double ring_link_latency, ring_net_latency; /* of a hop of a large collective */
    double backward; /* time of a backward pass, relative to that of its operations at
                        these rates; */
    double reverse;  /* the same of the operations of tp-run's program; 0: not known */
    int per_node;    /* devices per node */
    double host;     /* bytes/s between a device and its node's host, one direction */
    double host_memory; /* bytes/s of a host's memory, read or written */
};

/* Seconds of a backward pass, from those of the forward pass: of attention, and of
 * everything else; and from those of its own operations, at the rates of the forward
 * pass.  And the number of times that an update moves the optimizer
 * states. */
double step_back(double plain, double attention);
double step_reverse(double plain, double attention);
extern const double step_update_passes;

/* The pipeline schedule, the part of a layout that memory_options lacks. */
struct pipe_order {
    enum order order;
    int chunks;
};

/* One step; seconds is the sum of the others. */
struct step_time {
    double seconds;
    double compute;    /* busiest rank: products and memory traffic */
    double tensor;     /* busiest rank: collectives over tp */
    double all_to_all; /* busiest rank: all-to-alls and rings over sp and ep */
    double pipeline;   /* bubble, and messages between stages */
    double data;       /* collectives over replicas, and the update */
    double host;  /* of offloading: transfers, and the update in the host's memory */
    double flops; /* model FLOPs of all devices: nothing counted twice */
};

/* Predicts the time of O under ORDER.  STATES is the bytes of the largest rank's
 * optimizer states, wherever they are.  With BUBBLES NULL the pipeline is not simulated
 * and *out is a lower bound.  False if ORDER does not exist for these numbers. */
bool step_time(struct step_time *out, const struct profile *p, const struct machine *m,
               const struct memory_options *o, const struct pipe_order *order,
               uint64_t states, struct bubbles *bubbles);

/* Of a request, in seconds: until its first token, and between tokens. */
struct request_times {
    double first, next;
};

/* Predicts how O serves requests of TOKENS of prompt and OUTPUT further tokens, as many
 * at once as it has sequences: continuous batching (Yu et al. 2022), where an ended
 * request is followed by another, and a step has up to O's prefill tokens of one prompt
 * beside one token of every other sequence (chunked prefill, Agrawal et al. 2024).  P
 * is of O's seq, the mean number of keys while tokens are generated; PROMPT, of a
 * training step over TOKENS, has the mean row of a prompt.  *out is the time in which
 * every request gets one token, the prompts' share included. */
void step_requests(struct step_time *out, struct request_times *times,
                   const struct profile *p, const struct profile *prompt,
                   const struct machine *m, const struct memory_options *o,
                   uint64_t tokens, uint64_t output);

#endif
