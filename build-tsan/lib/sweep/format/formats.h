/* formats - the readers of the formats of a sweep file, for sweepfile.c alone */
#ifndef LIB_SWEEP_FORMAT_FORMATS_H
#define LIB_SWEEP_FORMAT_FORMATS_H

#include "lib/base/json.h"
#include "lib/sweep/format/sweepfile.h"

/* What is being read. */
struct formats_reader {
    struct sweepfile *file;
    const struct json_doc *doc;
    struct err *err;
};

int formats_read_wandb(struct formats_reader *r, const struct json *root);
int formats_read_sigopt(struct formats_reader *r, const struct json *root);
int formats_read_optuna(struct formats_reader *r, const struct json *root);
int formats_read_ray(struct formats_reader *r, const struct json *root);

/* ERR_INPUT at J: "NAME: cause", the parameter's name first. */
int formats_error(const struct formats_reader *r, const struct json *j,
                  const char *name, const char *cause);

/* Settle the distribution of *P, check its name and add it to the space, which takes
 * ownership of its parts (they are released on failure). */
int formats_add(struct formats_reader *r, const struct json *j, struct space_param *p);

/* ERR_INPUT at J unless it is an object, and at its first member that is not one of
 * KNOWN (up to NULL) and has a value; NAME is what it belongs to, "" for the whole
 * file. */
int formats_check_keys(const struct formats_reader *r, const struct json *j,
                       const char *name, const char *const *known);

/* A number out of J's member KEY, or an error that names both. */
int formats_number(double *out, const struct formats_reader *r, const struct json *j,
                   const char *name, const char *key);

/* Fill D with the scalars of LIST as choices. */
int formats_choices(struct dist *d, const struct formats_reader *r,
                    const struct json *list, const char *name);

/* Let parameter I depend on the one named PARENT having the value of the JSON text
 * VALUE, a choice or a number; call once per value. */
int formats_condition(struct formats_reader *r, const struct json *j, size_t i,
                      const char *parent, const char *value);

/* Let parameter I depend on PARENT's comparing to NUMBER by OP: one of "<", "<=", ">",
 * ">=" and "!=". */
int formats_compare(struct formats_reader *r, const struct json *j, size_t i,
                    const char *parent, const char *op, const char *value);

/* Choices of step Q between LOW and HIGH, rounded to multiples of Q as W&B and Ray do;
 * integers when Q is one. */
void formats_quantize(struct space_param *p, double q);
/* A normal prior: the distribution ends five standard deviations from the mean. */
void formats_normal(struct space_param *p, double mu, double sigma, bool logarithm,
                    double q);

#endif
