/* dcpgroups - the groups of an optimizer's parameters in a checkpoint of
 * torch.distributed.checkpoint
 *
 * Each setting is an item of its own: param_groups.0.lr, with param_groups.0.params, a
 * list of names, or, flattened, param_groups.NAME.lr of each parameter.  Facts: PyTorch
 * 2.13, torch/distributed/checkpoint/state_dict.py. */
#ifndef LIB_CKPT_DCPGROUPS_H
#define LIB_CKPT_DCPGROUPS_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/pool.h"
#include "lib/ckpt/trainprogress.h"
#include "lib/ckpt/source.h"
#include "lib/ckpt/unpickle.h"

struct dcpgroups {
    struct dcpgroup *v; /* private, as all */
    struct dcpmember *member;
    size_t n, cap, nmembers, members_cap, last;
    struct pool pool;
};

/* Splits NAME, optimizer.param_groups.KEY.SETTING: *key [*len] and *setting are in it.
 * False when it is no such name. */
bool dcpgroups_split(const char *name, const char **key, size_t *len,
                     const char **setting);
/* Notes that SETTING of the group KEY [LEN] is VALUE. */
void dcpgroups_set(struct dcpgroups *d, const char *key, size_t len,
                   const char *setting, const struct pickled *value);
/* Adds the groups to S->progress, and says of the states of S whose they are. */
void dcpgroups_finish(struct dcpgroups *d, struct source *s);
void dcpgroups_clear(struct dcpgroups *d);

#endif
