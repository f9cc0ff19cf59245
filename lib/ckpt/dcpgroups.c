/* dcpgroups - the groups of an optimizer's parameters in a checkpoint of
 * torch.distributed.checkpoint */
#include "lib/ckpt/dcpgroups.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

struct dcpgroup {
    const char *key;
    struct progress_group settings;
    bool lists; /* its parameters are in a list */
};

struct dcpmember {
    const char *weight;
    size_t group;
};

bool dcpgroups_split(const char *name, const char **key, size_t *len,
                     const char **setting)
{
    static const char of[] = ".param_groups.";
    const char *at = strstr(name, of), *dot = strrchr(name, '.');

    if (!at || dot < at + sizeof(of) - 1)
        return false;
    *key = at + sizeof(of) - 1;
    *len = (size_t)(dot - *key);
    *setting = dot + 1;
    return *len > 0;
}

/* The settings of one follow one another, mostly. */
static struct dcpgroup *find(struct dcpgroups *d, const char *key, size_t len)
{
    for (size_t k = 0; k < d->n; k++, d->last = d->last + 1 < d->n ? d->last + 1 : 0) {
        struct dcpgroup *g = &d->v[d->last];

        if (!strncmp(g->key, key, len) && !g->key[len])
            return g;
    }
    d->v = xgrow(d->v, &d->cap, d->n + 1, sizeof(*d->v));
    d->last = d->n;
    d->v[d->n] = (struct dcpgroup){ .key = pool_strndup(&d->pool, key, len) };
    progress_begin_group(&d->v[d->n].settings);
    return &d->v[d->n++];
}

static void add_member(struct dcpgroups *d, const char *weight, size_t group)
{
    d->member = xgrow(d->member, &d->members_cap, d->nmembers + 1, sizeof(*d->member));
    d->member[d->nmembers++] = (struct dcpmember){ weight, group };
}

void dcpgroups_set(struct dcpgroups *d, const char *key, size_t len,
                   const char *setting, const struct pickled *value)
{
    struct dcpgroup *g = find(d, key, len);

    if (strcmp(setting, "params") != 0) {
        progress_set(&g->settings, setting, value);
        return;
    }
    g->lists = true;
    for (size_t i = 0; pickled_is(value, PICKLED_LIST) && i < value->list.n; i++)
        if (pickled_is(value->list.v[i], PICKLED_TEXT))
            add_member(d, pool_strdup(&d->pool, value->list.v[i]->text.s),
                       (size_t)(g - d->v));
}

static int compare(const void *a, const void *b)
{
    const struct dcpmember *x = a, *y = b;

    return strcmp(x->weight, y->weight);
}

void dcpgroups_finish(struct dcpgroups *d, struct source *s)
{
    struct progress *p = &s->progress;
    size_t *number = xmalloc((d->n + 1) * sizeof(*number));

    for (size_t i = 0; i < d->n; i++) {
        number[i] = progress_find_group(p, &d->v[i].settings);
        if (!d->v[i].lists)
            add_member(d, d->v[i].key, i);
    }
    if (d->nmembers)
        qsort(d->member, d->nmembers, sizeof(*d->member), compare);
    for (size_t i = 0; i < s->nstates && d->nmembers; i++) {
        char *weight = xstrndup(s->state[i].name,
                                strlen(s->state[i].name) - strlen(s->role[i]) - 1);
        const struct dcpmember sought = { weight, 0 };
        const struct dcpmember *found =
            bsearch(&sought, d->member, d->nmembers, sizeof(sought), compare);

        if (found)
            s->group[i] = (int)number[found->group];
        free(weight);
    }
    free(number);
}

void dcpgroups_clear(struct dcpgroups *d)
{
    free(d->v);
    free(d->member);
    pool_clear(&d->pool);
    *d = (struct dcpgroups){ 0 };
}
