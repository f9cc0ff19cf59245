/* err - the kind of a failure and its one-line message */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/err.h"
#include "lib/base/str.h"

enum { SIZE = sizeof(((struct err *)0)->text) };

/* Ends TEXT [SIZE] with "..." when snprintf, which returned LENGTH, truncated it. */
static void mark_cut(char *text, int length)
{
    if (length >= SIZE)
        memcpy(text + SIZE - 4, "...", 4);
}

/* Sets *err to HEAD and, unless NULL, ": " and TAIL.  Escapes control characters and
 * line feeds, because names from foreign files may contain any byte. */
static void put(struct err *err, enum err_kind kind, const char *head, const char *tail)
{
    char text[sizeof(err->text)], shown[STR_PRINTABLE];
    const char *from = text;
    size_t n = 0;

    mark_cut(text, snprintf(text, sizeof(text), "%s%s%s", head, tail ? ": " : "",
                            tail ? tail : ""));
    while (*from) {
        size_t len;

        from += str_printable(shown, from);
        len = strlen(shown);
        if (n + len >= sizeof(err->text))
            break;
        memcpy(err->text + n, shown, len);
        n += len;
    }
    err->text[n] = '\0';
    err->kind = kind;
    err->column = 0;
}

int err_set(struct err *err, enum err_kind kind, const char *fmt, ...)
{
    char head[sizeof(err->text)];
    va_list ap;

    if (!err)
        return -1;
    va_start(ap, fmt);
    mark_cut(head, vsnprintf(head, sizeof(head), fmt, ap));
    va_end(ap);
    put(err, kind, head, NULL);
    return -1;
}

int err_set_at(struct err *err, unsigned column, const char *cause)
{
    if (err) {
        put(err, ERR_INPUT, cause, NULL);
        err->column = column;
    }
    return -1;
}

int err_errno(struct err *err, const char *fmt, ...)
{
    int saved = errno;
    char head[sizeof(err->text)];
    va_list ap;

    if (!err)
        return -1;
    va_start(ap, fmt);
    mark_cut(head, vsnprintf(head, sizeof(head), fmt, ap));
    va_end(ap);
    put(err, ERR_SYSTEM, head, strerror(saved));
    return -1;
}

int err_prefix(struct err *err, const char *fmt, ...)
{
    char head[sizeof(err->text)];
    char tail[sizeof(err->text)];
    va_list ap;

    if (!err)
        return -1;
    va_start(ap, fmt);
    mark_cut(head, vsnprintf(head, sizeof(head), fmt, ap));
    va_end(ap);
    memcpy(tail, err->text, sizeof(tail));
    put(err, err->kind, head, tail);
    return -1;
}
