/* html - a report on one page: headings, tables, commands and pictures
 *
 * A page needs nothing but itself: it has no script and loads no style sheet, font or
 * image.  Printed, it fits A4.  Every text is escaped. */
#ifndef LIB_PLOT_HTML_H
#define LIB_PLOT_HTML_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/str.h"
#include "lib/plot/canvas.h"

/* A picture that knows how to draw itself, as a file or inside a page. */
struct figure {
    const char *caption;  /* what it shows, one sentence; also for screen readers */
    double width, height; /* points */
    void (*draw)(struct canvas *c, const void *arg);
    void *arg;
    void (*release)(void *arg); /* by figure_clear; NULL: ARG is borrowed */
};

void figure_clear(struct figure *f);
/* Writes F to PATH, in the format of its extension (canvas_open). */
MUST_CHECK int figure_write(const struct figure *f, const char *path, struct err *err);

/* True when PATH's extension is .html. */
bool html_is_named(const char *path);

struct html {
    struct str title, body;
    const char *const *heads; /* of the open table */
    size_t nheads, cell;
    int figures;
    double refresh; /* seconds, or 0 */
};

/* Begins a page; release it with html_clear, or with html_write. */
void html_init(struct html *h, const char *title);
void html_clear(struct html *h);

/* A browser loads the page again every SECONDS. */
void html_refresh(struct html *h, double seconds);
void html_heading(struct html *h, const char *text);
void html_text(struct html *h, const char *text);
/* Lines as a terminal shows them: commands, or a program's plain output. */
void html_lines(struct html *h, const char *text);

/* A table: call html_cell for each cell, row by row, then html_table_end.  A head that
 * begins with '>' is that of a column of numbers.  HEADS is borrowed until the end. */
void html_table(struct html *h, const char *const *heads, size_t n);
void html_cell(struct html *h, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void html_table_end(struct html *h);

MUST_CHECK int html_figure(struct html *h, const struct figure *f, struct err *err);

/* Writes the page to PATH, complete or not at all, and releases it, on failure too. */
MUST_CHECK int html_write(struct html *h, const char *path, struct err *err);

#endif
