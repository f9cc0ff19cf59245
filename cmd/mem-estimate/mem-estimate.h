/* mem-estimate - declarations shared by its commands */
#ifndef CMD_MEM_ESTIMATE_MEM_ESTIMATE_H
#define CMD_MEM_ESTIMATE_MEM_ESTIMATE_H

#include "cmd/mem-estimate/request.h"
#include "lib/estimate/planner.h"
#include "lib/plot/html.h"

int infer_main(const char *program, int argc, char **argv);
int train_main(const char *program, int argc, char **argv);
int plan_main(const char *program, int argc, char **argv);
int solve_main(const char *program, int argc, char **argv);
int calibrate_main(const char *program, int argc, char **argv);
int gpus_main(const char *program, int argc, char **argv);

/* The result of a request. */
struct report {
    const struct request *request;
    const struct memory_estimate *estimate; /* NULL: the layout is impossible */
    const char *obstacles;                  /* why the layout is impossible, by line */
    const char *ways_out;    /* what would fit, a line each; NULL: not searched */
    const char *explanation; /* lines of --explain; NULL: not asked for */
    bool fits;               /* also true if no memory was named */
    bool tight;              /* it fits, but leaves less than the margin */
    uint64_t requests; /* most sequences of a step that fit; 0: not searched, or none */
};

void report_json(const struct report *r);
void report_text(const struct report *r);
/* Prints HEAD and ITEMS (with "; " between) in lines of 100 columns. */
void report_items(const char *head, const char *items);
/* Appends LINES to S as a JSON array of strings. */
void report_add_lines(struct str *s, const char *lines);
/* The formulas for the kind with the largest total, with numbers, one a line; empty for
 * an impossible layout.  The caller frees it. */
char *report_explanation_dup(const struct report *r);
/* Appends the name of a kind of rank: "tp0 pp1 x4". */
void report_add_rank(struct str *s, const struct request *q,
                     const struct rank_memory *k);
/* Adds R to a page: the table of ranks, what would fit, what is assumed. */
void report_page(struct html *page, const struct report *r);

/* "llama-3-8b (llama, 8.03 G parameters)"; the caller frees it. */
char *report_model_dup(const struct request *q);
/* Draws the memory of each kind of rank as stacked bars to PATH: a picture, or a page
 * with the tables and COMMAND. */
MUST_CHECK int report_plot(const struct report *r, const char *path,
                           const char *command, struct err *err);

/* A whole training, of the first plan. */
struct whole_run {
    const char *text; /* --train-tokens, or NULL */
    double tokens;
    double price, watts; /* of a device, for an hour; 0: not given */
};

/* A plan and where to draw it. */
struct plan_picture {
    const char *path, *command, *device;
    const struct planner_options *options;
    const struct planner_result *result;
    const char *others; /* "tp 4 +20.4 %; ...": the best with another choice */
    const struct request *request;
    const struct whole_run *run;
    const char *ways; /* what would fit, if nothing does; or NULL */
};
/* Draws the time of the layouts as stacked bars; nothing if none fits, unless it is a
 * page, which has the reasons. */
MUST_CHECK int plan_plot(const struct plan_picture *pic, struct err *err);

/* The most sequences of its length, in one micro-batch, with which R fits. */
uint64_t requests_most(const struct request *r);

/* What would make R fit, one way a line, the smallest change first.  The caller frees
 * it. */
char *ways_out_dup(const struct request *r);

#endif
