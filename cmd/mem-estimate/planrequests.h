/* planrequests - plan's options about requests, and what it prints of them */
#ifndef CMD_MEM_ESTIMATE_PLANREQUESTS_H
#define CMD_MEM_ESTIMATE_PLANREQUESTS_H

#include "cmd/mem-estimate/request.h"
#include "cmd/table.h"
#include "lib/base/str.h"
#include "lib/estimate/planner.h"

struct serving_options {
    int prompt, output, requests; /* 0: not given */
    const char *first, *next;     /* wanted times, "500ms" */
};
/* Rows of the option table. */
#define SERVING_OPTIONS(s)                                                           \
    REQUEST_ROW(OPT_COUNT, "prompt-tokens", &(s).prompt, "N", NULL, NULL, NULL),     \
        REQUEST_ROW(OPT_COUNT, "output-tokens", &(s).output, "N", NULL, NULL, NULL), \
        REQUEST_ROW(OPT_COUNT, "requests", &(s).requests, "N", NULL, NULL, NULL),    \
        REQUEST_ROW(OPT_STRING, "ttft", &(s).first, "TIME", NULL, NULL, NULL),       \
        REQUEST_ROW(OPT_STRING, "itl", &(s).next, "TIME", NULL, NULL, NULL)

/* Sets P's requests from S, and O's sequence and batch, if prompts are given; else
 * their number alone.  ERR_USAGE for times that are none, and for options that lack
 * others. */
MUST_CHECK int serving_set(struct planner_options *p, struct request_options *o,
                           const struct serving_options *s, bool train,
                           struct err *err);

/* The columns of a table of layouts behind its axes; the cells of P of GPUS devices. */
extern const struct column serving_columns[];
enum { SERVING_COLUMNS = 7 };
void serving_add_row(struct table *t, const struct planned *p,
                     const struct planner_options *o);
/* Prints of the fastest what the table does not. */
void serving_print(const struct planned *p, const struct planner_options *o);
/* Appends P's keys, behind others, to a JSON object. */
void serving_add_json(struct str *out, const struct planned *p,
                      const struct planner_options *o);

#endif
