/* err - the kind of a failure and its one-line message
 *
 * A function that can fail takes `struct err *err` as its last argument and returns 0,
 * or -1 with *err set.  The text can be printed after "program: " as it is: it names
 * the file, tensor or rank, and the cause.  Control characters from foreign bytes are
 * escaped (str_add_printable), so the text is always one line. */
#ifndef LIB_BASE_ERR_H
#define LIB_BASE_ERR_H

/* The compiler warns when a caller ignores the result. */
#define MUST_CHECK __attribute__((warn_unused_result))

enum err_kind {
    ERR_NONE = 0,
    ERR_NO = 1,      /* the answer is no: does not fit, differs */
    ERR_USAGE = 2,   /* the command line */
    ERR_INPUT = 3,   /* malformed, truncated or inconsistent input */
    ERR_SYSTEM = 4,  /* I/O, memory, device, or a peer that is gone */
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

/* Prepends the formatted text and ": " to the message in *err.  Returns -1. */
int err_prefix(struct err *err, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
