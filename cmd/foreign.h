/* foreign - what other programs call options and commands, and what answers here
 *
 * A name is accepted where it means the same as an option of ours; the others get a
 * line that says what to do instead.  One table for all programs: shardutils(7) prints
 * it, and a test compares. */
#ifndef CMD_FOREIGN_H
#define CMD_FOREIGN_H

#include <stdbool.h>
#include <stddef.h>

struct cmd;

struct foreign {
    const char *name;     /* as others write it, without the hyphens before it */
    const char *program;  /* the program that it is for; NULL: every one */
    const char *commands; /* of that program, a blank between two; NULL: all */
    const char *option;   /* of ours, the same in meaning; NULL: there is a .hint */
    const char *fixed;    /* theirs is a flag, and this is the value of ours; or NULL */
    const char *const *values; /* pairs: theirs and ours, others as given; or NULL */
    const char *hint;          /* instead of .option: what to do */
};

extern const struct foreign foreign_table[];
extern const size_t foreign_count;

/* Is the option or word NAME, of LEN bytes, called OURS?  An underscore is a hyphen. */
bool foreign_same(const char *ours, const char *name, size_t len);
/* Does OURS begin so? */
bool foreign_same_start(const char *ours, const char *name, size_t len);
/* The row of NAME that counts for CMD: one whose option CMD has, else one with a hint;
 * or NULL. */
const struct foreign *foreign_find(const struct cmd *cmd, const char *name, size_t len);
/* Does row F count for CMD? */
bool foreign_counts(const struct foreign *f, const struct cmd *cmd);
/* What our option gets for VALUE, borrowed from the table or VALUE. */
const char *foreign_value(const struct foreign *f, const char *value);
/* The command of CMD that others call NAME, or NULL. */
const char *foreign_command(const struct cmd *cmd, const char *name);

#endif
