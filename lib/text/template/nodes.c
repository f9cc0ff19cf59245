/* nodes - the names in a template's tree, found by a hash */
#include "lib/text/template/nodes.h"

#include <string.h>

static uint32_t *name_slot(const struct names *names, const char *name, size_t n)
{
    uint64_t h = 14695981039346656037u;

    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)name[i]) * 1099511628211u;
    for (h ^= h >> 32;; h++) {
        uint32_t *slot = &names->slot[h & (names->slots - 1)];

        if (!*slot ||
            (strlen(names->v[*slot - 1]) == n && !memcmp(names->v[*slot - 1], name, n)))
            return slot;
    }
}

const char *names_find(const struct names *names, const char *name, size_t n)
{
    uint32_t *slot = names->slots ? name_slot(names, name, n) : NULL;

    return slot && *slot ? names->v[*slot - 1] : NULL;
}

static int grow_names(struct scratch *s, struct names *names)
{
    size_t cap = names->cap ? 2 * names->cap : 64;
    const char **v = scratch_take(s, cap * sizeof(*v));

    names->slot = scratch_zeroed(s, 2 * cap * sizeof(*names->slot));
    if (!v || !names->slot)
        return -1;
    if (names->n)
        memcpy(v, names->v, names->n * sizeof(*v));
    names->v = v;
    names->cap = cap;
    names->slots = 2 * cap;
    for (size_t i = 0; i < names->n; i++)
        *name_slot(names, v[i], strlen(v[i])) = (uint32_t)(i + 1);
    return 0;
}

const char *names_intern(struct scratch *s, struct names *names, const char *name,
                         size_t n)
{
    const char *found = names_find(names, name, n);
    char *copy;

    if (found)
        return found;
    if (names->n == names->cap && grow_names(s, names) < 0)
        return NULL;
    copy = scratch_take(s, n + 1);
    if (!copy)
        return NULL;
    memcpy(copy, name, n);
    copy[n] = '\0';
    names->v[names->n++] = copy;
    *name_slot(names, copy, n) = (uint32_t)names->n;
    return copy;
}
