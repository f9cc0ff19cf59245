/* canvas - pictures in SVG, PNG or PDF, through cairo; also as a part of an HTML page
 *
 * Cairo is loaded when the first canvas is opened, so programs that rarely draw start
 * quickly.  Coordinates are points (1/72 inch; two pixels in PNG) from the top left. */
#ifndef LIB_PLOT_CANVAS_H
#define LIB_PLOT_CANVAS_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/err.h"
#include "lib/base/str.h"

struct canvas;

struct colour {
    double r, g, b; /* 0 to 1 */
};

/* Eight colours that colour-blind readers can distinguish (Okabe and Ito 2008, "Color
 * Universal Design"), then the same eight, lighter, again and again.  I >= 0. */
struct colour canvas_colour(int i);
/* A shade from pale (T = 0) to deep (T = 1); deeper is better or later. */
struct colour canvas_shade(double t);
extern const struct colour canvas_ink, canvas_faint, canvas_paper;

enum align { ALIGN_LEFT, ALIGN_CENTRE, ALIGN_RIGHT };

/* True when PATH's extension is .svg, .png or .pdf. */
bool canvas_can_draw(const char *path);

/* Opens a white picture for PATH; the extension .svg, .png or .pdf selects the format.
 * ERR_USAGE for another extension; ERR_SYSTEM when cairo cannot be loaded. */
MUST_CHECK int canvas_open(struct canvas **out, const char *path, double width,
                           double height, struct err *err);
/* Opens a picture that becomes a part of an HTML page: see canvas_inline. */
MUST_CHECK int canvas_open_inline(struct canvas **out, double width, double height,
                                  struct err *err);
/* Appends the finished picture to OUT as an <svg> element and releases C, on failure
 * too.  The names of its parts begin with PREFIX, so that two pictures of one page do
 * not refer to each other's glyphs. */
MUST_CHECK int canvas_inline(struct canvas *c, const char *prefix, struct str *out,
                             struct err *err);
/* Writes the finished picture, which appears complete or not at all, and releases C, on
 * failure too. */
MUST_CHECK int canvas_close(struct canvas *c, struct err *err);
/* Releases C without writing anything. */
void canvas_discard(struct canvas *c);

void canvas_rectangle(struct canvas *c, double x, double y, double w, double h,
                      struct colour fill);
void canvas_line(struct canvas *c, double x0, double y0, double x1, double y1,
                 double width, struct colour colour);
void canvas_circle(struct canvas *c, double x, double y, double radius,
                   struct colour fill);
/* A circle's line alone, of WIDTH, on paper. */
void canvas_ring(struct canvas *c, double x, double y, double radius, double width,
                 struct colour colour);
/* What is drawn between these two, in this rectangle, becomes one image of two pixels a
 * point in SVG and PDF, where MARKS are so many that each by itself would take more. No
 * text is drawn there, and a crowd has no crowd. */
void canvas_crowd_begin(struct canvas *c, double x, double y, double w, double h,
                        size_t marks);
void canvas_crowd_end(struct canvas *c);
/* Text of SIZE points, centred vertically at Y. */
void canvas_text(struct canvas *c, double x, double y, double size, enum align align,
                 struct colour colour, const char *text);
double canvas_text_width(struct canvas *c, double size, const char *text);

#endif
