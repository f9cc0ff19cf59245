/* deal - which units of a symbol each rank is dealt
 *
 * A family says which of its symbols are dealt over which mesh axis: heads, ffn and
 * vocab over tp, experts over ep.  Units go out in order, the first ranks taking the
 * remainder. Heads that come in groups (one KV head each) are dealt by whole groups;
 * when there are more ranks than groups, a group's query heads are dealt over the ranks
 * that share it and its KV head is held by all of them, the first being the owner.  So
 * the share of a rank is always a range of groups times a range within each group. */
#ifndef LIB_MODEL_DEAL_H
#define LIB_MODEL_DEAL_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"

/* A range of units, and whether this rank is their owner (the one that counts when
 * several ranks hold the same units). */
struct share {
    uint64_t start, count;
    bool owned;
    uint64_t pad; /* units of padding that the rank stores after its own */
};

/* Deal N units of GRAIN (a unit range begins and ends on a multiple of GRAIN, but for
 * the end) over PARTS; PART's share.  There may be none for the last parts. */
struct share deal_units(uint64_t n, uint64_t grain, int parts, int part);

/* Deal N units so that every part stores equally many, a multiple of GRAIN: what is
 * beyond the last unit is padding (Megatron's vocabulary). */
struct share deal_padded(uint64_t n, uint64_t grain, int parts, int part);

/* Deal GROUPS groups of PER_GROUP units each over PARTS <= GROUPS * PER_GROUP:
 * *group is the range of groups, *within the range inside each of them.  When several
 * ranks share one group, group->owned is true for the first of them only; within->owned
 * always. */
void deal_groups(uint64_t groups, uint64_t per_group, int parts, int part,
                 struct share *group, struct share *within);

#endif
