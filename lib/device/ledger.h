/* ledger - what a rank's memory is for, by name
 *
 * Bytes are those that are asked for, without what an allocator adds to align them. */
#ifndef LIB_DEVICE_LEDGER_H
#define LIB_DEVICE_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ledger_where {
    LEDGER_DEVICE, /* allocated by the backend; with host memory, all that is allocated
                    */
    LEDGER_HOST,   /* of the host, beside a device with memory of its own */
    LEDGER_FILE,   /* pages of mapped files */
    LEDGER_SHARED, /* pages that ranks share to communicate; parts overlap */
    LEDGER_WHERES
};

enum { LEDGER_PARTS = 32, LEDGER_NAME = 24 };

struct ledger {
    struct ledger_part {
        char name[LEDGER_NAME]; /* a key of --report-memory */
        enum ledger_where where;
        uint64_t bytes;
    } part[LEDGER_PARTS];
    int n;
    bool over; /* a sum has overflowed */
};

/* Adds BYTES to the part called NAME, of less than LEDGER_NAME bytes; 0 bytes add no
 * part.  A list has no pointers: ranks can exchange it. */
void ledger_add(struct ledger *list, const char *name, enum ledger_where where,
                uint64_t bytes);
/* Adds all parts of MORE. */
void ledger_add_all(struct ledger *list, const struct ledger *more);
uint64_t ledger_sum(const struct ledger *list, enum ledger_where where);
/* Bytes of the part called NAME, wherever it is. */
uint64_t ledger_of(const struct ledger *list, const char *name);

#endif
