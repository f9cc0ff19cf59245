/* storage - where studies are kept
 *
 * A storage is a row of functions.  Whatever reads or changes a study happens between
 * begin and end: alone among all processes that write there. */
#ifndef LIB_SWEEP_STORAGE_STORAGE_H
#define LIB_SWEEP_STORAGE_STORAGE_H

#include "lib/sweep/storage/study.h"

struct storage;

struct storage_ops {
    const char *scheme; /* "sqlite" */
    /* Open WHERE; CREATE makes an empty storage where there is none, otherwise that is
     * ERR_INPUT.  A lock of SQLite's is waited for TIMEOUT_S; below 0: its own time.
     * WAITS as of struct storage. */
    int (*open)(struct storage **st, const char *where, bool create, double timeout_s,
                void (*waits)(const char *what), struct err *err);
    void (*close)(struct storage *st); /* an open change is given up */
    /* Keep other runs off STUDY until close, unless they SHARE it too; ERR_LOCKED when
     * one has it.  A file is held whole. */
    int (*hold)(struct storage *st, const char *study, bool share, struct err *err);
    int (*begin)(struct storage *st, bool change, struct err *err);
    int (*end)(struct storage *st, struct err *err); /* keep what was changed */
    void (*give_up)(struct storage *st);
    /* After a failure that is `passing`: make ready to begin that change again, with
     * what was held, and without what an earlier connection has left at the server.  A
     * failure may be passing in turn.  NULL: none is. */
    int (*recover)(struct storage *st, struct err *err);

    /* Names of all studies; free each and the array. */
    int (*list)(struct storage *st, char ***names, size_t *n, struct err *err);
    /* Load study NAME into *S, which is empty, or bring a loaded *S up to date; returns
     * 1, 0 when there is none, or -1 with *S empty. */
    int (*load)(struct storage *st, struct study *s, const char *name, struct err *err);
    int (*create)(struct storage *st, const char *name, const bool *maximize, size_t n,
                  struct err *err);
    /* S's trials may have moved afterwards: find them again. */
    int (*add_trial)(struct storage *st, const struct study *s, enum study_state state,
                     int64_t *id, int *number, struct err *err);
    int (*set_param)(struct storage *st, int64_t trial, const char *name, double value,
                     const struct dist *d, struct err *err);
    /* N values, or none; sets the time of start (running) or completion, to WHEN as
     * trials have it, or to now when it is NULL. */
    int (*set_state)(struct storage *st, int64_t trial, enum study_state state,
                     const double *values, size_t n, const char *when, struct err *err);
    int (*set_report)(struct storage *st, int64_t trial, int64_t step, double value,
                      struct err *err);
    /* Of the study when TRIAL is -1. */
    int (*set_attr)(struct storage *st, int64_t study, int64_t trial, bool system,
                    const char *key, const char *json, struct err *err);
};

struct storage {
    const struct storage_ops *ops;
    char *name;         /* for people: the file, or the URL without a password */
    const char *advice; /* what a person should know of it, or NULL */
    int held;           /* descriptor of storage_hold_file's file, or -1 */
    bool passing;       /* the last failure may pass: its connection is lost, or the
                           server gave the change up for the sake of another's */
    /* Unless NULL: called once, when the lock of another has been waited for a second
     * (a journal's: of another that does nothing); WHAT is its file or database. */
    void (*waits)(const char *what);
};

extern const struct storage_ops sqlite_storage, journal_storage, postgres_storage;

/* Open URL: "sqlite:///PATH[?timeout=SECONDS]", "journal:PATH", "postgresql://...", or
 * a path, which is SQLite's. */
MUST_CHECK int storage_open(struct storage **st, const char *url, bool create,
                            void (*waits)(const char *what), struct err *err);
/* Where a file's path begins in URL, *n bytes of it; all of a server's. */
size_t storage_path(size_t *n, const char *url);
/* Whether URL is a server, or a file that is there. */
MUST_CHECK int storage_find(bool *found, const char *url, struct err *err);
void storage_close(struct storage *st); /* NULL is fine */
/* URL for processes in another directory; owned. */
char *storage_absolute_dup(const char *url);
/* The function `hold` of a storage whose name is its file: locks a file beside it. */
MUST_CHECK int storage_hold_file(struct storage *st, const char *study, bool share,
                                 struct err *err);

#endif
