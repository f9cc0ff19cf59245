/* table - aligned columns on standard output, which fit a terminal's window
 *
 * In a pipe every column is there, at its full width.  On a terminal that is too narrow
 * columns give up spare width, long texts wrap, and then columns are left out, which a
 * last line names. */
#ifndef CMD_TABLE_H
#define CMD_TABLE_H

#include <stdbool.h>

#include "cmd/terminal.h"

struct column {
    const char *head; /* NULL in the first: the table has no header */
    int gap;          /* blanks before it */
    int width;        /* at least, where there is room */
    bool right;       /* numbers */
    int drop; /* 0: never left out; else the largest goes first; it has a head */
    bool wraps;
};

struct table;

/* COLUMN, [N], must outlive the table. */
struct table *table_new(const struct column *column, int n);
/* The next cell, row after row; what a terminal obeys is escaped. */
void table_add(struct table *t, const char *text);
void table_addf(struct table *t, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* The cell just added is a good or a bad answer. */
void table_paint(struct table *t, enum paint paint);
/* Print and free T. */
void table_print(struct table *t);
/* Free T, which may be NULL, without a word. */
void table_free(struct table *t);

#endif
