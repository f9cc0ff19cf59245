/* html - a report on one page: headings, tables, commands and pictures */
#include "lib/plot/html.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/base/output.h"
#include "lib/base/mem.h"

/* A4 has 210 x 297 mm; pictures are scaled to the column, and not divided among pages.
 */
static const char STYLE[] =
    "@page { size: A4; margin: 15mm }\n"
    "body { font: 10pt/1.4 sans-serif; color: #222; background: #fff;"
    " max-width: 180mm; margin: 8mm auto; padding: 0 4mm }\n"
    "h1 { font-size: 15pt; margin: 0 0 2mm }\n"
    "h2 { font-size: 12pt; margin: 6mm 0 2mm; break-after: avoid }\n"
    "figure { margin: 4mm 0; break-inside: avoid }\n"
    "figcaption { color: #555; font-size: 9pt }\n"
    "svg { display: block; max-width: 100%; height: auto; max-height: 240mm }\n"
    "table { border-collapse: collapse; font-size: 8.5pt; max-width: 100% }\n"
    "th, td { text-align: left; padding: 0.6mm 2.5mm 0.6mm 0; vertical-align: top;"
    " overflow-wrap: anywhere }\n"
    "th { border-bottom: 0.3mm solid #222 }\n"
    "td { border-bottom: 0.1mm solid #ddd }\n"
    ".n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap "
    "}\n"
    "tr { break-inside: avoid }\n"
    "pre { background: #f4f4f4; padding: 2mm; font-size: 8.5pt; white-space: pre-wrap;"
    " overflow-wrap: anywhere }\n";

void figure_clear(struct figure *f)
{
    if (f->release)
        f->release(f->arg);
    *f = (struct figure){ 0 };
}

int figure_write(const struct figure *f, const char *path, struct err *err)
{
    struct canvas *c;

    if (canvas_open(&c, path, f->width, f->height, err) < 0)
        return -1;
    f->draw(c, f->arg);
    return canvas_close(c, err);
}

bool html_is_named(const char *path)
{
    return str_ends(path, ".html");
}

/* Appends TEXT with HTML's own characters escaped; what is not printable is escaped as
 * on a terminal, except the ends of lines. */
static void add_escaped(struct str *out, const char *text)
{
    while (*text) {
        char shown[STR_PRINTABLE];

        switch (*text) {
        case '&':
            str_add(out, "&amp;");
            text++;
            break;
        case '<':
            str_add(out, "&lt;");
            text++;
            break;
        case '>':
            str_add(out, "&gt;");
            text++;
            break;
        case '"':
            str_add(out, "&quot;");
            text++;
            break;
        case '\n':
            str_addc(out, *text++);
            break;
        default:
            text += str_printable(shown, text);
            str_add(out, shown);
        }
    }
}

static void add_element(struct html *h, const char *name, const char *text)
{
    str_addf(&h->body, "<%s>", name);
    add_escaped(&h->body, text);
    str_addf(&h->body, "</%s>\n", name);
}

void html_init(struct html *h, const char *title)
{
    *h = (struct html){ 0 };
    add_escaped(&h->title, title);
    add_element(h, "h1", title);
}

void html_clear(struct html *h)
{
    str_clear(&h->title);
    str_clear(&h->body);
}

void html_refresh(struct html *h, double seconds)
{
    h->refresh = seconds;
}

void html_heading(struct html *h, const char *text)
{
    add_element(h, "h2", text);
}

void html_text(struct html *h, const char *text)
{
    add_element(h, "p", text);
}

void html_lines(struct html *h, const char *text)
{
    add_element(h, "pre", text);
}

/* The class of column K: numbers stand at the right. */
static const char *class_of(const struct html *h, size_t k)
{
    return h->heads[k][0] == '>' ? " class=\"n\"" : "";
}

void html_table(struct html *h, const char *const *heads, size_t n)
{
    assert(n > 0);
    h->heads = heads;
    h->nheads = n;
    h->cell = 0;
    str_add(&h->body, "<table>\n<tr>");
    for (size_t k = 0; k < n; k++) {
        str_addf(&h->body, "<th%s>", class_of(h, k));
        add_escaped(&h->body, heads[k] + (heads[k][0] == '>'));
        str_add(&h->body, "</th>");
    }
    str_add(&h->body, "</tr>\n");
}

void html_cell(struct html *h, const char *fmt, ...)
{
    size_t column = h->cell % h->nheads;
    va_list ap;
    char *text;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    text = xmalloc((size_t)n + 1);
    va_start(ap, fmt);
    vsnprintf(text, (size_t)n + 1, fmt, ap);
    va_end(ap);
    if (column == 0)
        str_add(&h->body, "<tr>");
    str_addf(&h->body, "<td%s>", class_of(h, column));
    add_escaped(&h->body, text);
    str_add(&h->body, "</td>");
    if (column + 1 == h->nheads)
        str_add(&h->body, "</tr>\n");
    h->cell++;
    free(text);
}

void html_table_end(struct html *h)
{
    assert(h->cell % h->nheads == 0);
    str_add(&h->body, "</table>\n");
}

int html_figure(struct html *h, const struct figure *f, struct err *err)
{
    struct canvas *c;
    char prefix[24];
    int ret;

    if (canvas_open_inline(&c, f->width, f->height, err) < 0)
        return -1;
    f->draw(c, f->arg);
    snprintf(prefix, sizeof(prefix), "f%d-", h->figures++);
    str_add(&h->body, "<figure role=\"img\" aria-label=\"");
    add_escaped(&h->body, f->caption);
    str_add(&h->body, "\">\n");
    ret = canvas_inline(c, prefix, &h->body, err);
    str_add(&h->body, "<figcaption>");
    add_escaped(&h->body, f->caption);
    str_add(&h->body, "</figcaption>\n</figure>\n");
    return ret;
}

int html_write(struct html *h, const char *path, struct err *err)
{
    struct str page = { 0 };
    int ret;

    str_addf(&page,
             "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
             "<meta name=\"viewport\" content=\"width=device-width\">\n");
    if (h->refresh > 0)
        str_addf(&page, "<meta http-equiv=\"refresh\" content=\"%.0f\">\n", h->refresh);
    str_addf(&page, "<title>%s</title>\n<style>\n%s</style>\n</head>\n<body>\n",
             str_text(&h->title), STYLE);
    str_addn(&page, str_text(&h->body), h->body.len);
    str_add(&page, "</body>\n</html>\n");
    ret = output_write(path, page.s, page.len, false, err);
    str_clear(&page);
    html_clear(h);
    return ret;
}
