/* canvas - pictures in SVG, PNG or PDF, through cairo
 *
 * Cairo is loaded when a canvas is first opened, so that programs which draw now and
 * then start quickly.  Coordinates are points (1/72 inch; pixels in PNG are two to a
 * point) from the top left. */
#ifndef LIB_PLOT_CANVAS_H
#define LIB_PLOT_CANVAS_H

#include <stdbool.h>

#include "lib/base/err.h"

struct canvas;

struct colour {
    double r, g, b; /* 0 to 1 */
};

/* Eight colours that stay apart for colour-blind eyes (Okabe and Ito 2008, "Color
 * Universal Design"), then the same again, lighter.  I may be any number from 0. */
struct colour canvas_colour(int i);
/* Shades from pale, at 0, to deep, at 1, for what is better or later. */
struct colour canvas_shade(double t);
extern const struct colour canvas_ink, canvas_faint, canvas_paper;

enum align { ALIGN_LEFT, ALIGN_CENTRE, ALIGN_RIGHT };

/* True when PATH's extension is one that can be drawn: for refusing it before any work
 * is done. */
bool canvas_can_draw(const char *path);

/* A picture for PATH, by its extension .svg, .png or .pdf, white to begin with.
 * ERR_USAGE for another extension; ERR_SYSTEM when cairo cannot be loaded. */
MUST_CHECK int canvas_open(struct canvas **out, const char *path, double width,
                           double height, struct err *err);
/* Finish and write the picture, which appears whole or not at all; releases C in any
 * case. */
MUST_CHECK int canvas_close(struct canvas *c, struct err *err);
/* Release C, and write nothing. */
void canvas_discard(struct canvas *c);

void canvas_rectangle(struct canvas *c, double x, double y, double w, double h,
                      struct colour fill);
void canvas_line(struct canvas *c, double x0, double y0, double x1, double y1,
                 double width, struct colour colour);
void canvas_circle(struct canvas *c, double x, double y, double radius,
                   struct colour fill);
/* Text of SIZE points whose middle height is Y. */
void canvas_text(struct canvas *c, double x, double y, double size, enum align align,
                 struct colour colour, const char *text);
double canvas_text_width(struct canvas *c, double size, const char *text);

#endif
