/* err - a failure's kind and the one line that tells it
 *
 * A function that can fail takes `struct err *err` last, returns 0, or -1 with
 * *err set.  The text is complete enough to print after "program: ": it names
 * the file, tensor or rank and the cause.  Control characters that came from
 * foreign bytes are escaped (str_add_printable), so the text is always one line. */
#ifndef LIB_BASE_ERR_H
#define LIB_BASE_ERR_H

/* The result of a function that can fail is looked at. */
#define MUST_CHECK __attribute__((warn_unused_result))

enum err_kind {
    ERR_NONE = 0,
    ERR_NO = 1,      /* an honest no: does not fit, differs */
    ERR_USAGE = 2,   /* the command line */
    ERR_INPUT = 3,   /* malformed, truncated or inconsistent input */
    ERR_SYSTEM = 4,  /* the machine: I/O, memory, device, dead peer */
    ERR_LOCKED = 75, /* another run holds the lock */
};

struct err {
    enum err_kind kind; /* also the program's exit status */
    unsigned column;    /* of the cause in a short text, from 1: err_set_at; else 0 */
    char text[1024];    /* one line, no line feed, no full stop */
};

/* Set *err (unless NULL) and return -1, so that `return err_set(...)` reads well. */
int err_set(struct err *err, enum err_kind kind, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The cause of an ERR_INPUT in a text of one line whose place in a file the caller
 * knows, and puts before it. */
int err_set_at(struct err *err, unsigned column, const char *cause);

/* As err_set with ERR_SYSTEM, ": " and strerror(errno) appended. */
int err_errno(struct err *err, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Put the formatted text and ": " before what *err says already.  Returns -1. */
int err_prefix(struct err *err, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
