/* deal - which units of a sharded symbol each rank holds */
#include "lib/model/deal.h"

/* N units over PARTS ranks; the first N % PARTS ranks get one more. */
static struct share even(uint64_t n, int parts, int part)
{
    uint64_t each = n / (uint64_t)parts, more = n % (uint64_t)parts, p = (uint64_t)part;

    return (struct share){ .start = each * p + (p < more ? p : more),
                           .count = each + (p < more),
                           .owned = true };
}

struct share deal_units(uint64_t n, uint64_t grain, int parts, int part)
{
    struct share s = even((n + grain - 1) / grain, parts, part);
    uint64_t start = s.start * grain, end = (s.start + s.count) * grain;

    if (start > n)
        start = n;
    if (end > n)
        end = n;
    return (struct share){ .start = start, .count = end - start, .owned = true };
}

struct share deal_padded(uint64_t n, uint64_t grain, int parts, int part)
{
    uint64_t each = (n + (uint64_t)parts - 1) / (uint64_t)parts, start, end;

    each = (each + grain - 1) / grain * grain;
    start = each * (uint64_t)part < n ? each * (uint64_t)part : n;
    end = start + each < n ? start + each : n;
    return (struct share){
        .start = start, .count = end - start, .owned = true, .pad = each - (end - start)
    };
}

void deal_groups(uint64_t groups, uint64_t per_group, int parts, int part,
                 struct share *group, struct share *within)
{
    *within = (struct share){ .start = 0, .count = per_group, .owned = true };
    if ((uint64_t)parts <= groups) {
        *group = even(groups, parts, part);
        return;
    }
    /* more ranks than groups: divide the ranks among the groups, then the units of a
     * group among its ranks */
    for (uint64_t g = 0; g < groups; g++) {
        struct share members = even((uint64_t)parts, (int)groups, (int)g);

        if ((uint64_t)part >= members.start + members.count)
            continue;
        *group = (struct share){ .start = g,
                                 .count = 1,
                                 .owned = (uint64_t)part == members.start };
        *within = even(per_group, (int)members.count, part - (int)members.start);
        return;
    }
}
