/* pass - what is done to a program once its lines are built */
#include "lib/program/pass.h"

#include <string.h>

#include "lib/base/str.h"

/* clang-format off */
const struct pass pass_all[] = {
    { "adapters", pass_adapters },
    { "unused", pass_unused },
    { "boundary", pass_boundary },
    { "order", pass_order },
    { "weights", pass_weights },
    { "reverse", pass_reverse },
    { "sequence", pass_sequence },
    { "recompute", pass_recompute },
    { "split", pass_split },
    { "types", pass_types },
    { "fuse", pass_fuse },
    { "lifetimes", pass_lifetimes },
    { "chunks", pass_chunks },
    { .name = NULL },
};
/* clang-format on */

static int check_name(const char *name, struct err *err)
{
    struct str known = { 0 };

    for (const struct pass *p = pass_all; p->name; p++) {
        if (!strcmp(p->name, name)) {
            str_clear(&known);
            return 0;
        }
        str_addf(&known, "%s%s", known.len ? ", " : "", p->name);
    }
    err_set(err, ERR_USAGE, "--pass: no pass is called '%s'; there are %s", name,
            str_text(&known));
    str_clear(&known);
    return -1;
}

int pass_run(struct builder *b)
{
    const char *last = b->opt->pass;

    if (last && check_name(last, b->err) < 0)
        return -1;
    for (const struct pass *p = pass_all; p->name; p++) {
        if (p->run(b) < 0)
            return -1;
        if (last && !strcmp(p->name, last))
            break;
    }
    if (!b->p->nforward) /* stopped before the reverse, which sets it */
        b->p->nforward = b->p->ninsts;
    if (!b->p->nsplit) /* or before it is divided */
        b->p->nsplit = b->p->ninsts;
    return 0;
}
