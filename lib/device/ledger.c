/* ledger - what a rank's memory is for, by name */
#include "lib/device/ledger.h"

#include <assert.h>
#include <string.h>

#include "lib/base/mem.h"

void ledger_add(struct ledger *list, const char *name, enum ledger_where where,
                uint64_t bytes)
{
    struct ledger_part *p = list->part;

    if (!bytes)
        return;
    while (p < list->part + list->n &&
           (p->where != where || strcmp(p->name, name) != 0))
        p++;
    if (p == list->part + list->n) {
        assert(list->n < LEDGER_PARTS);
        assert(strlen(name) < sizeof(p->name));
        *p = (struct ledger_part){ .where = where };
        memcpy(p->name, name, strlen(name));
        list->n++;
    }
    if (!mem_add(&p->bytes, p->bytes, bytes))
        list->over = true;
}

void ledger_add_all(struct ledger *list, const struct ledger *more)
{
    for (int i = 0; i < more->n; i++)
        ledger_add(list, more->part[i].name, more->part[i].where, more->part[i].bytes);
    list->over |= more->over;
}

uint64_t ledger_sum(const struct ledger *list, enum ledger_where where)
{
    uint64_t sum = 0;

    for (int i = 0; i < list->n; i++)
        if (list->part[i].where == where && !mem_add(&sum, sum, list->part[i].bytes))
            return UINT64_MAX;
    return sum;
}

uint64_t ledger_of(const struct ledger *list, const char *name)
{
    uint64_t sum = 0;

    for (int i = 0; i < list->n; i++)
        if (!strcmp(list->part[i].name, name))
            sum += list->part[i].bytes;
    return sum;
}
