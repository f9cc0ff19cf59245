/* terminal - is it one, how wide is it, and does it show colours? */
#define _DEFAULT_SOURCE
#include "cmd/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "lib/base/str.h"

enum { USUAL = 80, NARROWEST = 20 };

int terminal_width(FILE *fp)
{
    const char *columns = getenv("COLUMNS");
    struct winsize size;
    int n = 0;

    if (!isatty(fileno(fp)))
        return 0;
    if (!columns || !str_int(columns, &n) || n <= 0)
        n = ioctl(fileno(fp), TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
    return n <= 0 ? USUAL : n < NARROWEST ? NARROWEST : n;
}

bool terminal_colours(FILE *fp)
{
    const char *none = getenv("NO_COLOR"), *term = getenv("TERM");

    return isatty(fileno(fp)) && !(none && *none) && term && *term &&
           strcmp(term, "dumb") != 0;
}

const char *terminal_paint(FILE *fp, enum paint paint)
{
    static const char *const codes[] = { [PAINT_NONE] = "",
                                         [PAINT_GOOD] = "\033[32m",
                                         [PAINT_BAD] = "\033[31m",
                                         [PAINT_ERROR] = "\033[1;31m" };

    return paint && terminal_colours(fp) ? codes[paint] : "";
}

const char *terminal_plain(FILE *fp, enum paint paint)
{
    return paint && terminal_colours(fp) ? "\033[0m" : "";
}
