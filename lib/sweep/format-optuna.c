/* format-optuna - a sweep given as Optuna's distributions */
#include <stdlib.h>

#include "lib/base/mem.h"
#include "lib/sweep/formats.h"

int formats_read_optuna(struct formats_reader *r, const struct json *root)
{
    for (const struct json *j = root->first; j; j = j->next) {
        struct space_param p = { .name = xstrdup(j->key) };

        if (dist_read(&p.dist, r->doc, j, r->err) < 0) {
            free(p.name);
            return -1;
        }
        if (formats_add(r, j, &p) < 0)
            return -1;
    }
    return 0;
}
