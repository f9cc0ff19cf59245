/* canvas - pictures in SVG, PNG or PDF, through cairo; also as a part of an HTML page
 */
#include "lib/plot/canvas.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "lib/base/mem.h"
#include "lib/base/output.h"
#include "lib/base/str.h"

const struct colour canvas_ink = { 0.13, 0.13, 0.13 };
const struct colour canvas_faint = { 0.85, 0.85, 0.85 };
const struct colour canvas_paper = { 1, 1, 1 };

struct colour canvas_colour(int i)
{
    static const struct colour colours[] = {
        { 0.00, 0.45, 0.70 }, { 0.90, 0.62, 0.00 }, { 0.00, 0.62, 0.45 },
        { 0.80, 0.47, 0.65 }, { 0.34, 0.71, 0.91 }, { 0.84, 0.37, 0.00 },
        { 0.95, 0.90, 0.25 }, { 0.30, 0.30, 0.30 },
    };
    struct colour c = colours[i % 8];

    if (i / 8 % 2)
        c = (struct colour){ (c.r + 1) / 2, (c.g + 1) / 2, (c.b + 1) / 2 };
    return c;
}

struct colour canvas_shade(double t)
{
    static const struct colour pale = { 0.83, 0.88, 0.93 }, deep = { 0.02, 0.19, 0.42 };

    t = t > 0 ? t < 1 ? t : 1 : 0;
    return (struct colour){ pale.r + t * (deep.r - pale.r),
                            pale.g + t * (deep.g - pale.g),
                            pale.b + t * (deep.b - pale.b) };
}

enum format { FORMAT_SVG, FORMAT_PNG, FORMAT_PDF, FORMAT_NONE };

static enum format format_of(const char *path)
{
    static const char *const extensions[] = { ".svg", ".png", ".pdf" };
    enum format f = FORMAT_SVG;

    while (f < FORMAT_NONE && !str_ends(path, extensions[f]))
        f++;
    return f;
}

bool canvas_can_draw(const char *path)
{
    return format_of(path) != FORMAT_NONE;
}

#ifdef HAVE_CAIRO
#include <cairo/cairo.h>

/* The functions of cairo that are used here: X(name). */
#define FUNCTIONS(X)                     \
    X(cairo_create)                      \
    X(cairo_destroy)                     \
    X(cairo_status)                      \
    X(cairo_status_to_string)            \
    X(cairo_surface_destroy)             \
    X(cairo_surface_finish)              \
    X(cairo_surface_status)              \
    X(cairo_image_surface_create)        \
    X(cairo_surface_write_to_png_stream) \
    X(cairo_scale)                       \
    X(cairo_translate)                   \
    X(cairo_save)                        \
    X(cairo_restore)                     \
    X(cairo_set_source_surface)          \
    X(cairo_set_antialias)               \
    X(cairo_set_source_rgb)              \
    X(cairo_set_line_width)              \
    X(cairo_new_path)                    \
    X(cairo_move_to)                     \
    X(cairo_line_to)                     \
    X(cairo_arc)                         \
    X(cairo_rectangle)                   \
    X(cairo_fill)                        \
    X(cairo_stroke)                      \
    X(cairo_paint)                       \
    X(cairo_select_font_face)            \
    X(cairo_set_font_size)               \
    X(cairo_show_text)                   \
    X(cairo_text_extents)                \
    X(cairo_font_extents)

/* The two functions that create surfaces are declared in headers of their own, which
 * may be missing at build time. */
typedef cairo_surface_t *make_surface(cairo_write_func_t write, void *arg, double width,
                                      double height);

struct cairo {
    void *handle;
#define DECLARE(name) __typeof__(name) *name;
    FUNCTIONS(DECLARE)
#undef DECLARE
    make_surface *svg, *pdf;
};

struct canvas {
    char *path;
    enum format format;
    struct cairo lib;
    cairo_surface_t *surface;
    cairo_t *cr;
    struct str bytes;       /* of the finished picture */
    cairo_surface_t *crowd; /* the image that is drawn on, or NULL */
    cairo_t *under;         /* what it is for */
    double crowd_x, crowd_y;
};

static cairo_status_t collect(void *arg, const unsigned char *bytes, unsigned int n)
{
    str_addn(arg, bytes, n);
    return CAIRO_STATUS_SUCCESS;
}

static int load(struct cairo *lib, struct err *err)
{
    lib->handle = dlopen("libcairo.so.2", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!lib->handle)
        return err_set(err, ERR_SYSTEM, "cairo cannot be loaded: %s", dlerror());
#define LOAD(name)                                    \
    *(void **)&lib->name = dlsym(lib->handle, #name); \
    if (!lib->name)                                   \
        return err_set(err, ERR_SYSTEM, "cairo has no %s", #name);
    FUNCTIONS(LOAD)
#undef LOAD
    *(void **)&lib->svg = dlsym(lib->handle, "cairo_svg_surface_create_for_stream");
    *(void **)&lib->pdf = dlsym(lib->handle, "cairo_pdf_surface_create_for_stream");
    return 0;
}

static void release(struct canvas *c)
{
    if (c->crowd)
        canvas_crowd_end(c);
    if (c->cr)
        c->lib.cairo_destroy(c->cr);
    if (c->surface)
        c->lib.cairo_surface_destroy(c->surface);
    if (c->lib.handle)
        dlclose(c->lib.handle);
    str_clear(&c->bytes);
    free(c->path);
    free(c);
}

static cairo_surface_t *open_surface(struct canvas *c, double width, double height)
{
    if (c->format == FORMAT_PNG)
        return c->lib.cairo_image_surface_create(
            CAIRO_FORMAT_RGB24, (int)ceil(2 * width), (int)ceil(2 * height));
    if (c->format == FORMAT_SVG)
        return c->lib.svg ? c->lib.svg(collect, &c->bytes, width, height) : NULL;
    return c->lib.pdf ? c->lib.pdf(collect, &c->bytes, width, height) : NULL;
}

static int open_canvas(struct canvas **out, const char *path, enum format format,
                       double width, double height, struct err *err)
{
    struct canvas *c = xcalloc(1, sizeof(*c));

    c->path = xstrdup(path);
    c->format = format;
    if (load(&c->lib, err) < 0)
        goto fail;
    c->surface = open_surface(c, width, height);
    if (!c->surface ||
        c->lib.cairo_surface_status(c->surface) != CAIRO_STATUS_SUCCESS) {
        err_set(err, ERR_SYSTEM, "%s: cairo cannot make this picture", path);
        goto fail;
    }
    c->cr = c->lib.cairo_create(c->surface);
    if (c->format == FORMAT_PNG)
        c->lib.cairo_scale(c->cr, 2, 2);
    c->lib.cairo_set_source_rgb(c->cr, 1, 1, 1);
    c->lib.cairo_paint(c->cr);
    c->lib.cairo_select_font_face(c->cr, "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                                  CAIRO_FONT_WEIGHT_NORMAL);
    *out = c;
    return 0;
fail:
    release(c);
    return -1;
}

int canvas_open(struct canvas **out, const char *path, double width, double height,
                struct err *err)
{
    if (!canvas_can_draw(path))
        return err_set(err, ERR_USAGE,
                       "%s: a picture's name ends in .svg, .png or .pdf", path);
    return open_canvas(out, path, format_of(path), width, height, err);
}

int canvas_open_inline(struct canvas **out, double width, double height,
                       struct err *err)
{
    return open_canvas(out, "a picture of the page", FORMAT_SVG, width, height, err);
}

/* Completes C->bytes. */
static int finish(struct canvas *c, struct err *err)
{
    cairo_status_t status = c->lib.cairo_status(c->cr);

    c->lib.cairo_destroy(c->cr);
    c->cr = NULL;
    if (status == CAIRO_STATUS_SUCCESS && c->format == FORMAT_PNG)
        status =
            c->lib.cairo_surface_write_to_png_stream(c->surface, collect, &c->bytes);
    c->lib.cairo_surface_finish(c->surface);
    if (status == CAIRO_STATUS_SUCCESS)
        status = c->lib.cairo_surface_status(c->surface);
    return status == CAIRO_STATUS_SUCCESS
               ? 0
               : err_set(err, ERR_SYSTEM, "%s: %s", c->path,
                         c->lib.cairo_status_to_string(status));
}

int canvas_close(struct canvas *c, struct err *err)
{
    int ret = finish(c, err);

    if (ret == 0)
        ret = output_write(c->path, str_text(&c->bytes), c->bytes.len, false, err);
    release(c);
    return ret;
}

/* Appends SVG, and PREFIX before each name of a part: where it is given (id="NAME"),
 * and where it is used (href="#NAME", url(#NAME)). */
static void add_prefixed(struct str *out, const char *svg, const char *prefix)
{
    static const char *const before[] = { " id=\"", "href=\"#", "url(#" };

    while (*svg) {
        size_t n = 1;
        bool name = false;

        for (size_t i = 0; i < sizeof(before) / sizeof(*before) && !name; i++) {
            name = str_starts(svg, before[i]);
            n = name ? strlen(before[i]) : 1;
        }
        str_addn(out, svg, n);
        if (name)
            str_add(out, prefix);
        svg += n;
    }
}

int canvas_inline(struct canvas *c, const char *prefix, struct str *out,
                  struct err *err)
{
    int ret = finish(c, err);
    const char *svg = ret == 0 ? strstr(str_text(&c->bytes), "<svg") : NULL;

    /* what comes before is the declaration of a document of its own */
    if (svg)
        add_prefixed(out, svg, prefix);
    else if (ret == 0)
        ret = err_set(err, ERR_SYSTEM, "%s: cairo made no SVG", c->path);
    release(c);
    return ret;
}

void canvas_discard(struct canvas *c)
{
    release(c);
}

static void set_colour(struct canvas *c, struct colour colour)
{
    c->lib.cairo_set_source_rgb(c->cr, colour.r, colour.g, colour.b);
}

void canvas_rectangle(struct canvas *c, double x, double y, double w, double h,
                      struct colour fill)
{
    set_colour(c, fill);
    c->lib.cairo_rectangle(c->cr, x, y, w, h);
    c->lib.cairo_fill(c->cr);
}

void canvas_line(struct canvas *c, double x0, double y0, double x1, double y1,
                 double width, struct colour colour)
{
    set_colour(c, colour);
    c->lib.cairo_set_line_width(c->cr, width);
    c->lib.cairo_move_to(c->cr, x0, y0);
    c->lib.cairo_line_to(c->cr, x1, y1);
    c->lib.cairo_stroke(c->cr);
}

void canvas_circle(struct canvas *c, double x, double y, double radius,
                   struct colour fill)
{
    set_colour(c, fill);
    /* or a line would lead to the circle from where the last text ended */
    c->lib.cairo_new_path(c->cr);
    c->lib.cairo_arc(c->cr, x, y, radius, 0, 2 * 3.14159265358979323846);
    c->lib.cairo_fill(c->cr);
}

void canvas_ring(struct canvas *c, double x, double y, double radius, double width,
                 struct colour colour)
{
    canvas_circle(c, x, y, radius, canvas_paper);
    set_colour(c, colour);
    c->lib.cairo_set_line_width(c->cr, width);
    c->lib.cairo_new_path(c->cr);
    c->lib.cairo_arc(c->cr, x, y, radius, 0, 2 * 3.14159265358979323846);
    c->lib.cairo_stroke(c->cr);
}

/* Marks from which on an image is smaller, and soon much so: a circle is some 250 bytes
 * of SVG; and from which on shades of their edges would double it. */
enum { CROWD = 1000, THRONG = 30000 };

void canvas_crowd_begin(struct canvas *c, double x, double y, double w, double h,
                        size_t marks)
{
    if (marks < CROWD || c->format == FORMAT_PNG)
        return;
    c->crowd = c->lib.cairo_image_surface_create(
        CAIRO_FORMAT_ARGB32, (int)ceil(2 * w) + 1, (int)ceil(2 * h) + 1);
    c->crowd_x = floor(x);
    c->crowd_y = floor(y);
    c->under = c->cr;
    c->cr = c->lib.cairo_create(c->crowd); /* a failure is told when it is painted */
    if (marks >= THRONG)
        c->lib.cairo_set_antialias(c->cr, CAIRO_ANTIALIAS_NONE);
    c->lib.cairo_scale(c->cr, 2, 2);
    c->lib.cairo_translate(c->cr, -c->crowd_x, -c->crowd_y);
}

void canvas_crowd_end(struct canvas *c)
{
    if (!c->crowd)
        return;
    c->lib.cairo_destroy(c->cr);
    c->cr = c->under;
    c->lib.cairo_save(c->cr);
    c->lib.cairo_translate(c->cr, c->crowd_x, c->crowd_y);
    c->lib.cairo_scale(c->cr, 0.5, 0.5);
    c->lib.cairo_set_source_surface(c->cr, c->crowd, 0, 0);
    c->lib.cairo_paint(c->cr);
    c->lib.cairo_restore(c->cr);
    c->lib.cairo_surface_destroy(c->crowd);
    c->crowd = NULL;
}

/* TEXT as cairo takes it: UTF-8 without control characters. */
static const char *printable(struct str *s, const char *text)
{
    str_add_printable(s, text);
    return str_text(s);
}

double canvas_text_width(struct canvas *c, double size, const char *text)
{
    struct str s = { 0 };
    cairo_text_extents_t e;

    c->lib.cairo_set_font_size(c->cr, size);
    c->lib.cairo_text_extents(c->cr, printable(&s, text), &e);
    str_clear(&s);
    return e.x_advance;
}

void canvas_text(struct canvas *c, double x, double y, double size, enum align align,
                 struct colour colour, const char *text)
{
    double width = canvas_text_width(c, size, text);
    struct str s = { 0 };
    cairo_font_extents_t e;

    c->lib.cairo_font_extents(c->cr, &e);
    if (align == ALIGN_CENTRE)
        x -= width / 2;
    else if (align == ALIGN_RIGHT)
        x -= width;
    set_colour(c, colour);
    c->lib.cairo_move_to(c->cr, x, y + (e.ascent - e.descent) / 2);
    c->lib.cairo_show_text(c->cr, printable(&s, text));
    str_clear(&s);
}

#else

/* A build without cairo refuses to open a picture; the rest is never reached. */
int canvas_open(struct canvas **out, const char *path, double width, double height,
                struct err *err)
{
    (void)out;
    (void)width;
    (void)height;
    return err_set(err, ERR_SYSTEM, "%s: this build has no cairo to draw with", path);
}

int canvas_open_inline(struct canvas **out, double width, double height,
                       struct err *err)
{
    return canvas_open(out, "a picture of the page", width, height, err);
}

int canvas_inline(struct canvas *c, const char *prefix, struct str *out,
                  struct err *err)
{
    (void)prefix;
    (void)out;
    return canvas_close(c, err);
}

int canvas_close(struct canvas *c, struct err *err)
{
    (void)c;
    return err_set(err, ERR_SYSTEM, "this build has no cairo to draw with");
}

void canvas_discard(struct canvas *c)
{
    (void)c;
}

void canvas_rectangle(struct canvas *c, double x, double y, double w, double h,
                      struct colour fill)
{
    (void)c, (void)x, (void)y, (void)w, (void)h, (void)fill;
}

void canvas_line(struct canvas *c, double x0, double y0, double x1, double y1,
                 double width, struct colour colour)
{
    (void)c, (void)x0, (void)y0, (void)x1, (void)y1, (void)width, (void)colour;
}

void canvas_circle(struct canvas *c, double x, double y, double radius,
                   struct colour fill)
{
    (void)c, (void)x, (void)y, (void)radius, (void)fill;
}

void canvas_ring(struct canvas *c, double x, double y, double radius, double width,
                 struct colour colour)
{
    (void)c, (void)x, (void)y, (void)radius, (void)width, (void)colour;
}

void canvas_crowd_begin(struct canvas *c, double x, double y, double w, double h,
                        size_t marks)
{
    (void)c, (void)x, (void)y, (void)w, (void)h, (void)marks;
}

void canvas_crowd_end(struct canvas *c)
{
    (void)c;
}

void canvas_text(struct canvas *c, double x, double y, double size, enum align align,
                 struct colour colour, const char *text)
{
    (void)c, (void)x, (void)y, (void)size, (void)align, (void)colour, (void)text;
}

double canvas_text_width(struct canvas *c, double size, const char *text)
{
    (void)c, (void)size, (void)text;
    return 0;
}

#endif
