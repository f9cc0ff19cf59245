/* grep - the last number that a regular expression finds */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "lib/sweep/job/grep.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"

/* What one match may take: nested repetitions go on for ever on some texts. */
enum { MAX_STEPS = 1000000, MAX_KIB = 65536 };

struct grep {
    pcre2_code *code;
    pcre2_match_data *found;
    pcre2_match_context *limits;
    uint32_t ngroups;
};

int grep_open(struct grep **out, const char *regex, struct err *err)
{
    int error;
    PCRE2_SIZE at;
    pcre2_code *code =
        pcre2_compile((PCRE2_SPTR)regex, PCRE2_ZERO_TERMINATED, 0, &error, &at, NULL);
    struct grep *g;

    if (!code) {
        PCRE2_UCHAR why[128] = "";

        pcre2_get_error_message(error, why, sizeof(why));
        return err_set(err, error == PCRE2_ERROR_HEAP_FAILED ? ERR_SYSTEM : ERR_USAGE,
                       "'%s', byte %zu: %s", regex, (size_t)at, (const char *)why);
    }
    g = xcalloc(1, sizeof(*g));
    g->code = code;
    g->found = xcheck(pcre2_match_data_create(2, NULL));
    g->limits = xcheck(pcre2_match_context_create(NULL));
    pcre2_set_match_limit(g->limits, MAX_STEPS);
    pcre2_set_heap_limit(g->limits, MAX_KIB);
    pcre2_pattern_info(code, PCRE2_INFO_CAPTURECOUNT, &g->ngroups);
    *out = g;
    return 0;
}

void grep_free(struct grep *g)
{
    if (!g)
        return;
    pcre2_match_context_free(g->limits);
    pcre2_match_data_free(g->found);
    pcre2_code_free(g->code);
    free(g);
}

/* 1: the LEN bytes of LINE have a number, the last one is in *value; 0: they have none;
 * -1: a match took too much. */
static int search_line(double *value, const struct grep *g, const char *line,
                       size_t len)
{
    const PCRE2_SIZE *range = pcre2_get_ovector_pointer(g->found);
    size_t group = g->ngroups ? 2 : 0; /* where its range begins */
    int found = 0;

    for (size_t at = 0; at <= len;) {
        int n = pcre2_match(g->code, (PCRE2_SPTR)line, len, at, 0, g->found, g->limits);

        if (n == PCRE2_ERROR_NOMATCH)
            break;
        if (n < 0)
            return -1;
        if (range[group] != PCRE2_UNSET && range[group] <= range[group + 1]) {
            size_t size = range[group + 1] - range[group];
            char *word = xstrndup(line + range[group], size);

            found |= str_double(word, value);
            free(word);
        }
        at = range[1] > at ? range[1] : at + 1; /* past what an empty match is before */
    }
    return found;
}

bool grep_last(double *value, const struct grep *g, const char *text)
{
    size_t end = strlen(text);
    int found = 0;

    while (end > 0 && !found) {
        size_t start = end;

        while (start > 0 && text[start - 1] != '\n')
            start--;
        found = search_line(value, g, text + start, end - start);
        end = start ? start - 1 : 0;
    }
    return found > 0;
}
