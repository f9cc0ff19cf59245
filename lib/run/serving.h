/* serving - the sizes of an engine for texts that come one by one
 *
 * They follow from the model, the layout and what a user asks for, so that an engine is
 * ready before the first text is known. */
#ifndef LIB_RUN_SERVING_H
#define LIB_RUN_SERVING_H

#include "lib/model/mesh.h"
#include "lib/run/engine.h"

enum {
    SERVING_CHUNK = 512,    /* prompt tokens of a step, a rank that shares its tokens */
    SERVING_ROOM = 32,      /* default size of the cache, in texts of maximum length */
    SERVING_EACH = 8192,    /* of each of which, if their number is not known, so many
                             * tokens count */
    SERVING_REQUESTS = 256, /* most texts in generation */
    SERVING_SNAPSHOTS = 64, /* most snapshots of states, two a text */
    SERVING_DRAFTED = 64, /* drafted tokens of a step: each has a row of logits, too */
    SERVING_TOLD = 64     /* tokens of prompts in a step whose log-probabilities are
                           * told: each has a row of logits */
};

struct serving {
    size_t context;      /* most tokens of a text, with those that it gains */
    size_t source;       /* most rows of its encoder's input; 0: there is none */
    size_t requests;     /* texts in generation at a time; 0: as the cache permits */
    size_t cache_tokens; /* capacity of a rank's cache; 0: see SERVING_ROOM */
    size_t texts;        /* that will come, over all replicas; 0: any number */
    size_t drafts;       /* most drafted tokens of a text in a step */
    size_t told;         /* such as SERVING_TOLD; 0: no prompt is told */
};

/* Records for snapshots of states, of a model that has states. */
size_t serving_snapshots(size_t sequences);
/* The limits of a rank of MESH; rows of a program's own spaces are the caller's to
 * set. */
struct engine_limits serving_limits(const struct serving *s, const struct mesh *mesh);

#endif
