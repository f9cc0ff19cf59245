/* pattern - regular expressions as Oniguruma reads them, matched by PCRE2
 *
 * Where the two read the same text differently the pattern is rewritten; what cannot be
 * rewritten is refused by name. */
#ifndef LIB_TEXT_PATTERN_H
#define LIB_TEXT_PATTERN_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/str.h"

struct pattern;

/* From {"Regex": "..."} or {"String": "..."}.  WHERE begins the message. */
MUST_CHECK int pattern_open(struct pattern **out, const char *where, const cJSON *j,
                            struct err *err);
MUST_CHECK int pattern_compile(struct pattern **out, const char *where,
                               const char *regex, struct err *err);
/* A character of which IS says yes. */
struct pattern *pattern_new(bool (*is)(uint32_t));
void pattern_free(struct pattern *p);

/* Append Oniguruma's REGEX as PCRE2 writes it. */
MUST_CHECK int pattern_translate(struct str *out, const char *where, const char *regex,
                                 struct err *err);

/* True when the N bytes at NAME are the name of a script, which PCRE2 takes for all
 * characters that are used with it, unless it is told otherwise. */
bool pattern_is_script(const char *name, size_t n);

/* The matches in a text, one after another; an empty one is not given right behind
 * another match. */
struct finder {
    const struct pattern *pattern;
    const char *text;
    size_t len, start, end; /* the match */
    size_t at;              /* where to look next */
    bool any;               /* there was a match, which ended at `end` */
    void *data;             /* private */
};

void finder_init(struct finder *f, const struct pattern *p, const char *text,
                 size_t len);
/* 1: start and end are set; 0: no more; -1: the matching failed. */
MUST_CHECK int finder_next(struct finder *f, struct err *err);
void finder_clear(struct finder *f);

/* A Replace: what its object J looks for, and the text to put there (owned). */
MUST_CHECK int pattern_open_replace(struct pattern **p, char **by, const char *where,
                                    const cJSON *j, struct err *err);
/* Append the N bytes at TEXT with every match of P as BY.  After a match that failed,
 * -1, the rest is appended as it is. */
MUST_CHECK int pattern_replace(struct str *out, const struct pattern *p, const char *by,
                               const char *text, size_t n, struct err *err);

#endif
