/* table - aligned columns on standard output, which fit a terminal's window */
#include "cmd/table.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"

/* Columns that a column keeps when it wraps: before others are left out, and after. */
enum { EASY = 24, NARROW = 12 };

struct cell {
    char *text;
    enum paint paint;
};

struct table {
    const struct column *column;
    int ncolumns;
    struct cell *cell; /* [ncells], row after row; the header is the first */
    size_t ncells, cap;
    int *width;    /* [ncolumns] */
    bool *dropped; /* [ncolumns] */
};

/* The characters of LEN bytes of UTF-8. */
static int characters(const char *text, size_t len)
{
    int n = 0;

    for (size_t i = 0; i < len; i++)
        n += (text[i] & 0xc0) != 0x80;
    return n;
}

struct table *table_new(const struct column *column, int n)
{
    struct table *t = xcalloc(1, sizeof(*t));

    *t = (struct table){ .column = column,
                         .ncolumns = n,
                         .width = xcalloc((size_t)n, sizeof(*t->width)),
                         .dropped = xcalloc((size_t)n, sizeof(*t->dropped)) };
    for (int c = 0; c < n && column[0].head; c++)
        table_add(t, column[c].head);
    return t;
}

void table_add(struct table *t, const char *text)
{
    struct str shown = { 0 };

    str_add_printable(&shown, text);
    t->cell = xgrow(t->cell, &t->cap, t->ncells + 1, sizeof(*t->cell));
    t->cell[t->ncells++] =
        (struct cell){ .text = shown.s ? str_steal(&shown) : xstrdup("") };
    str_clear(&shown);
}

void table_addf(struct table *t, const char *fmt, ...)
{
    char text[256];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    table_add(t, text);
}

void table_paint(struct table *t, enum paint paint)
{
    t->cell[t->ncells - 1].paint = paint;
}

/* ---- widths ---- */

/* Of column C what its cells need, or with SPARE what it has where there is room. */
static int width_of(const struct table *t, int c, bool spare)
{
    int n = spare ? t->column[c].width : 0;

    for (size_t i = (size_t)c; i < t->ncells; i += (size_t)t->ncolumns) {
        int need = characters(t->cell[i].text, strlen(t->cell[i].text));

        n = need > n ? need : n;
    }
    return n;
}

static bool is_empty(const struct table *t, int c)
{
    for (size_t i = (size_t)c; i < t->ncells; i += (size_t)t->ncolumns)
        if (t->cell[i].text[0])
            return false;
    return true;
}

/* The columns of a line; a last column without a text has none. */
static int total(const struct table *t)
{
    int n = 0, first = -1;

    for (int c = 0; c < t->ncolumns; c++) {
        if (t->dropped[c] || is_empty(t, c))
            continue;
        n += t->width[c] + (first < 0 ? 0 : t->column[c].gap);
        first = first < 0 ? c : first;
    }
    return n;
}

/* The column with the largest drop that is still there, or -1. */
static int next_to_drop(const struct table *t)
{
    int best = -1;

    for (int c = 0; c < t->ncolumns; c++)
        if (t->column[c].drop && !t->dropped[c] && !is_empty(t, c) &&
            (best < 0 || t->column[c].drop > t->column[best].drop))
            best = c;
    return best;
}

/* The widest column that may wrap, and has more than LEAST columns; or -1. */
static int next_to_wrap(const struct table *t, int least)
{
    int best = -1;

    for (int c = 0; c < t->ncolumns; c++)
        if (t->column[c].wraps && !t->dropped[c] && t->width[c] > least &&
            (best < 0 || t->width[c] > t->width[best]))
            best = c;
    return best;
}

/* Chooses widths for a window of WINDOW columns; 0: for a pipe. */
static void fit(struct table *t, int window)
{
    int c;

    for (c = 0; c < t->ncolumns; c++)
        t->width[c] = width_of(t, c, true);
    if (!window || total(t) <= window)
        return;
    for (c = 0; c < t->ncolumns; c++)
        t->width[c] = width_of(t, c, false);
    while (total(t) > window && (c = next_to_wrap(t, EASY)) >= 0)
        t->width[c]--;
    while (total(t) > window && (c = next_to_drop(t)) >= 0)
        t->dropped[c] = true;
    while (total(t) > window && (c = next_to_wrap(t, NARROW)) >= 0)
        t->width[c]--;
}

/* ---- lines ---- */

/* The bytes of TEXT that a line of WIDTH columns takes: all, or up to a blank, or else
 * to a place in its second half where a name may break. */
static size_t piece(const char *text, int width)
{
    size_t n = 0, blank = 0, other = 0;

    for (int columns = 0; text[n]; columns++) {
        if (columns == width)
            return text[n] == ' ' ? n + 1 : blank ? blank : 2 * other > n ? other : n;
        do
            n++;
        while ((text[n] & 0xc0) == 0x80);
        if (text[n - 1] == ' ')
            blank = n;
        else if (strchr("./,_-", text[n - 1]))
            other = n;
    }
    return n;
}

/* Prints the next piece of CELL in column C, whose rest begins at *REST. */
static void print_piece(const struct table *t, int c, const struct cell *cell,
                        const char **rest, int *blanks)
{
    size_t n = piece(*rest, t->width[c]), shown = n;
    int pad;

    while (shown && (*rest)[shown - 1] == ' ')
        shown--;
    pad = t->width[c] - characters(*rest, shown);
    pad = pad > 0 ? pad : 0;
    *blanks += t->column[c].right ? pad : 0;
    if (shown) {
        printf("%*s%s%.*s%s", *blanks, "", terminal_paint(stdout, cell->paint),
               (int)shown, *rest, terminal_plain(stdout, cell->paint));
        *blanks = 0;
    }
    *blanks += t->column[c].right ? 0 : pad;
    *rest += n;
}

static void print_row(const struct table *t, const struct cell *row)
{
    const char **rest = xcalloc((size_t)t->ncolumns, sizeof(*rest));
    bool more = true;

    for (int c = 0; c < t->ncolumns; c++)
        rest[c] = row[c].text;
    while (more) {
        int blanks = 0; /* that a text must follow */
        bool first = true;

        more = false;
        for (int c = 0; c < t->ncolumns; c++) {
            if (t->dropped[c])
                continue;
            blanks += first ? 0 : t->column[c].gap;
            first = false;
            print_piece(t, c, &row[c], &rest[c], &blanks);
            more |= *rest[c] != '\0';
        }
        putchar('\n');
    }
    free(rest);
}

static void print_dropped(const struct table *t)
{
    static const char has[] = "; a pipe has them";
    int window = terminal_width(stdout), at = 0;

    for (int c = 0; c < t->ncolumns; c++) {
        int n = t->dropped[c] ? (int)strlen(t->column[c].head) + 2 : 0;

        if (n && at + n > window) {
            fputs(",\n", stdout);
            at = 0;
        }
        if (n)
            at += printf("%s%s", at ? ", " : "left out: ", t->column[c].head);
    }
    if (at)
        printf("%s%s\n", at + (int)sizeof(has) > window ? "\n" : "",
               at + (int)sizeof(has) > window ? has + 2 : has);
}

void table_print(struct table *t)
{
    fit(t, terminal_width(stdout));
    for (size_t i = 0; i + (size_t)t->ncolumns <= t->ncells; i += (size_t)t->ncolumns)
        print_row(t, &t->cell[i]);
    print_dropped(t);
    table_free(t);
}

void table_free(struct table *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->ncells; i++)
        free(t->cell[i].text);
    free(t->cell);
    free(t->width);
    free(t->dropped);
    free(t);
}
