/* recompute - what a training step computes again instead of saving it */
#include "lib/program/recompute.h"

#include <stdio.h>
#include <string.h>

#include "lib/base/str.h"

const char *const recompute_names[] = { "none", "attention", "full", "products", NULL };

int recompute_parse(struct recompute_plan *out, const char *text, struct err *err)
{
    struct recompute_plan plan = { 0 };

    if (!strcmp(text, "selective"))
        text = recompute_names[RECOMPUTE_ATTENTION];
    while (recompute_names[plan.kind] && strcmp(recompute_names[plan.kind], text) != 0)
        plan.kind++;
    if (!recompute_names[plan.kind]) {
        if (!str_int(text, &plan.layers) || plan.layers < 0)
            return err_set(err, ERR_USAGE,
                           "--recompute: expected none, attention, full, products or a "
                           "number of layers, not '%s'",
                           text);
        plan.kind = plan.layers ? RECOMPUTE_FULL : RECOMPUTE_NONE;
    }
    *out = plan;
    return 0;
}

const char *recompute_text(const struct recompute_plan *plan,
                           char buffer[RECOMPUTE_TEXT])
{
    if (!plan->layers)
        return recompute_names[plan->kind];
    snprintf(buffer, RECOMPUTE_TEXT, "%d", plan->layers);
    return buffer;
}
