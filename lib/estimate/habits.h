/* habits - memory that a framework uses beyond the closed forms
 *
 * The closed forms (memory.c) count what a training step must hold.  Each framework
 * holds more.  The numbers here follow from the frameworks' sources, named in habits.c;
 * one of them is fitted. */
#ifndef LIB_ESTIMATE_HABITS_H
#define LIB_ESTIMATE_HABITS_H

#include "lib/estimate/memory.h"

struct habits {
    /* ZeRO-3 in a pipeline: a stage's weights stay gathered, and its gradients stay
     * unsharded in f32 until the last micro-batch */
    bool keeps_stage;
    bool keeps_gathered; /* products save their inputs as gathered over tp */
    bool keeps_messages; /* a stage keeps what it sends, and has a buffer for each
                            message that it receives in a step */
    bool buffers;        /* gradients live in buffers from the start and are reduced in
                            place */
    bool refuses;        /* no ZeRO-2 or ZeRO-3 in a pipeline */
    uint64_t grad_bytes; /* default bytes per gradient; 0: as the weights */
    uint64_t grad_state; /* optimizer bytes per element for a copy of the gradient */
    uint64_t bucket;     /* elements per reduce or gather; 0: the closed form's */
    uint64_t live;   /* gathered weight elements that stay live; 0: the closed form's */
    double reserved; /* allocator overhead as a fraction of activations and messages;
                        0: the default */
    bool tables;     /* cosines and sines of all positions lie beside the weights */
    uint64_t of_logit; /* bytes that the loss adds per logit; 0: the closed form's */
};

/* The habits of O's framework.  torchtitan's if none is named and ZeRO-3 is used in a
 * pipeline: no known framework shards weights there between micro-batches. */
struct habits habits_of(const struct memory_options *o);
/* What a framework runs of the layouts that a plan could have. */
struct abilities {
    unsigned orders; /* set of 1 << order */
    unsigned zero;   /* set of 1 << stage */
    bool sequence;   /* sp */
    bool divides;    /* interleaved: stages divide the micro-batches */
};
extern const struct abilities abilities[FRAMEWORKS];
/* What O's framework has not of O's layout, of a model with EXPERTS, as what plans
 * without it: "--sp 1 plans pipelines"; NULL: it has all of it.  Orders and ZeRO stages
 * are in abilities. */
const char *framework_lacks(const struct memory_options *o, bool experts);

/* The framework that habits_of uses. */
enum framework habits_framework(const struct memory_options *o);

#endif
