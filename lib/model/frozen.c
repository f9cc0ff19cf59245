/* frozen - which of a model's tensors training does not change */
#include "lib/model/frozen.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

/* Do the N bytes at NAME stand in FULL between full stops, or its ends? */
static bool is_part(const char *full, const char *name, size_t n)
{
    for (const char *p = full; *p; p += strcspn(p, "."), p += *p == '.')
        if (!strncmp(p, name, n) && (p[n] == '.' || p[n] == '\0'))
            return true;
    return false;
}

bool frozen_is_called(const struct model_tensor *t, const char *name, size_t n)
{
    return (strlen(t->key) == n && !memcmp(t->key, name, n)) ||
           is_part(t->name, name, n);
}

void frozen_release_buffers(struct model *m)
{
    for (size_t i = 0; i < m->ntensors; i++)
        m->tensor[i].frozen &= !m->tensor[i].buffer;
}

int frozen_names(struct model *m, const char *option, const char *list, bool is,
                 struct err *err)
{
    bool *named = xcalloc(m->ntensors + 1, sizeof(*named)), left = false;
    int ret = 0;

    for (const char *p = list; *p && ret == 0;) {
        size_t n = strcspn(p, ",");
        bool found = false;

        for (size_t i = 0; i < m->ntensors && n; i++) {
            const struct model_tensor *t = &m->tensor[i];

            if (frozen_is_called(t, p, n)) {
                named[i] = found = true;
                if (t->tied >= 0)
                    named[t->tied] = true;
            }
        }
        if (!found)
            ret = err_set(err, ERR_USAGE, "%s: %s has no tensor called '%.*s'", option,
                          m->family, (int)n, p);
        p += n + (p[n] == ',');
    }
    for (size_t i = 0; i < m->ntensors; i++) {
        m->tensor[i].frozen |= named[i] == is;
        left |= !m->tensor[i].frozen;
    }
    free(named);
    return ret == 0 && !left ? err_set(err, ERR_USAGE,
                                       "%s %s: nothing is left to train", option, list)
                             : ret;
}
