/* mem-estimate - what its commands share */
#ifndef CMD_MEM_ESTIMATE_MEM_ESTIMATE_H
#define CMD_MEM_ESTIMATE_MEM_ESTIMATE_H

#include "cmd/mem-estimate/request.h"

int infer_main(const char *program, int argc, char **argv);
int train_main(const char *program, int argc, char **argv);
int plan_main(const char *program, int argc, char **argv);
int solve_main(const char *program, int argc, char **argv);
int calibrate_main(const char *program, int argc, char **argv);
int gpus_main(const char *program, int argc, char **argv);

/* What was found out about a request. */
struct report {
    const struct request *request;
    const struct memory_estimate *estimate; /* NULL: the layout is impossible */
    const char *obstacles;                  /* the reasons, a line each, when it is */
    const char *ways_out;    /* what would fit, a line each; NULL: not looked for */
    const char *explanation; /* lines; NULL: not asked for */
    bool fits;               /* true as well where no memory was named */
};

void report_json(const struct report *r);
void report_text(const struct report *r);
/* LINES to S as a JSON array of texts. */
/* Prints HEAD and ITEMS (with "; " between) in lines of 100 columns. */
void report_items(const char *head, const char *items);
void report_add_lines(struct str *s, const char *lines);
/* The formulas of the kind with the largest total, with their numbers, as lines; none
 * of an impossible layout.  The caller frees it. */
char *report_explanation_dup(const struct report *r);
/* Draw the kinds of ranks as stacked bars to PATH. */
MUST_CHECK int report_plot(const struct report *r, const char *path, struct err *err);

/* Lines that tell what would make R fit, the nearest first.  The caller frees it. */
char *ways_out_dup(const struct request *r);

#endif
