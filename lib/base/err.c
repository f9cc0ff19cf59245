/* err - a failure's kind and the one line that tells it */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/err.h"

/* Make TEXT printable as one line: foreign names may hold anything. */
static void make_printable(char *text)
{
    for (unsigned char *p = (unsigned char *)text; *p; p++)
        if (*p < 0x20 || *p == 0x7f)
            *p = '?';
}

/* *err becomes HEAD and, unless NULL, ": " and TAIL. */
static void put(struct err *err, enum err_kind kind, const char *head, const char *tail)
{
    char text[sizeof(err->text)];

    snprintf(text, sizeof(text), "%s%s%s", head, tail ? ": " : "", tail ? tail : "");
    make_printable(text);
    memcpy(err->text, text, sizeof(text));
    err->kind = kind;
}

int err_set(struct err *err, enum err_kind kind, const char *fmt, ...)
{
    char head[sizeof(err->text)];
    va_list ap;

    if (!err)
        return -1;
    va_start(ap, fmt);
    vsnprintf(head, sizeof(head), fmt, ap);
    va_end(ap);
    put(err, kind, head, NULL);
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
    vsnprintf(head, sizeof(head), fmt, ap);
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
    vsnprintf(head, sizeof(head), fmt, ap);
    va_end(ap);
    memcpy(tail, err->text, sizeof(tail));
    put(err, err->kind, head, tail);
    return -1;
}
