/* pattern - regular expressions in Oniguruma's syntax, matched by PCRE2
 *
 * Patterns are rewritten where the two differ; what cannot be rewritten is an error
 * that names it. */
#ifndef LIB_TEXT_PATTERN_H
#define LIB_TEXT_PATTERN_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/str.h"

struct pattern;

/* Compiles {"Regex": "..."} or {"String": "..."}.  WHERE is the prefix of error
 * messages. */
MUST_CHECK int pattern_open(struct pattern **out, const char *where, const cJSON *j,
                            struct err *err);
MUST_CHECK int pattern_compile(struct pattern **out, const char *where,
                               const char *regex, struct err *err);
/* A pattern that matches one character for which IS returns true. */
struct pattern *pattern_new(bool (*is)(uint32_t));
/* A pattern that matches runs of characters of one KIND from 1 on; characters of kind
 * CHARS_JOINS belong to the run before them.  Those of kind 0, and such before the
 * first run, are in no match. */
struct pattern *pattern_new_runs(int (*kind)(uint32_t));
void pattern_free(struct pattern *p);

/* Appends the PCRE2 translation of Oniguruma's REGEX. */
MUST_CHECK int pattern_translate(struct str *out, const char *where, const char *regex,
                                 struct err *err);

/* True when the N bytes at NAME name a script.  PCRE2 by default extends a script to
 * all characters used with it. */
bool pattern_is_script(const char *name, size_t n);

/* Iterates over the matches in a text.  An empty match directly after another match is
 * skipped. */
struct finder {
    const struct pattern *pattern;
    const char *text;
    size_t len, start, end; /* the match */
    size_t at;              /* where to search next */
    bool any;               /* there was a match, which ended at `end` */
    void *data;             /* private */
    char *copy;             /* private */
};

void finder_init(struct finder *f, const struct pattern *p, const char *text,
                 size_t len);
/* 1: start and end are set; 0: no more matches; -1: the matching failed. */
MUST_CHECK int finder_next(struct finder *f, struct err *err);
void finder_clear(struct finder *f);

/* Reads a Replace object J: the pattern, and the replacement text, which the caller
 * frees. */
MUST_CHECK int pattern_open_replace(struct pattern **p, char **by, const char *where,
                                    const cJSON *j, struct err *err);
/* Appends the N bytes at TEXT with each match of P replaced by BY.  If matching fails,
 * appends the rest unchanged and returns -1. */
MUST_CHECK int pattern_replace(struct str *out, const struct pattern *p, const char *by,
                               const char *text, size_t n, struct err *err);

#endif
