/* deal - which units of a sharded symbol each rank holds
 *
 * A family names the symbols to shard and the mesh axis of each ("deal"): heads, ffn
 * and vocab over tp, experts over ep.  Each rank gets consecutive units; the first
 * ranks get one more if they do not divide evenly.  Query heads that share a KV head
 * form a group and stay together; with more ranks than groups, the ranks of a group
 * divide its query heads and each holds a replica of its KV head, the first rank the
 * primary one.  So a rank always has a range of groups times a range within each
 * group. */
#ifndef LIB_MODEL_DEAL_H
#define LIB_MODEL_DEAL_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"

/* The units of a rank.  OWNED is false on the replicas of units that several ranks
 * hold. */
struct share {
    uint64_t start, count;
    bool owned;
    uint64_t pad; /* units of padding that the rank stores after its own */
};

/* The units of rank PART when PARTS ranks share N units.  A shard begins and ends on a
 * multiple of GRAIN, except at N.  The last ranks may get none. */
struct share deal_units(uint64_t n, uint64_t grain, int parts, int part);

/* The same with shards of equal size, a multiple of GRAIN; the units beyond N are
 * padding (as Megatron pads the vocabulary). */
struct share deal_padded(uint64_t n, uint64_t grain, int parts, int part);

/* The units of rank PART when PARTS ranks share GROUPS groups of PER_GROUP units; PARTS
 * <= GROUPS * PER_GROUP.  *group is the range of groups, *within the range inside each
 * of them.  If several ranks share a group, group->owned is true on the first of them
 * only; within->owned always is. */
void deal_groups(uint64_t groups, uint64_t per_group, int parts, int part,
                 struct share *group, struct share *within);

#endif
