/* format-optuna - a sweep given as Optuna's distributions */
#include <stdlib.h>

#include "lib/base/mem.h"
#include "lib/sweep/format/formats.h"

/* A key that the distribution does not have would be passed over in silence. */
static int check_keys(const struct formats_reader *r, const struct json *j)
{
    static const char *const outer[] = { "name", "type",    "attributes", "low", "high",
                                         "step", "choices", "log",        "q",   NULL };
    static const char *const inner[] = { "low",     "high", "step", "log",
                                         "choices", "q",    NULL };
    const struct json *body = json_get(j, "attributes");

    if (formats_check_keys(r, j, j->key, outer) < 0)
        return -1;
    return body ? formats_check_keys(r, body, j->key, inner) : 0;
}

int formats_read_optuna(struct formats_reader *r, const struct json *root)
{
    for (const struct json *j = root->first; j; j = j->next) {
        struct space_param p = { .name = xstrdup(j->key) };

        if (check_keys(r, j) < 0 || dist_read(&p.dist, r->doc, j, r->err) < 0) {
            free(p.name);
            return -1;
        }
        if (formats_add(r, j, &p) < 0)
            return -1;
    }
    return 0;
}
