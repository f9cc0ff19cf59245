/* sweepfile - the file that defines a sweep, in any of four formats
 *
 * Told apart by content: a W&B sweep (YAML or JSON with "parameters"), SigOpt's list of
 * parameters, Optuna's distributions (an object of {"name", "attributes"}), and a short
 * form like Ray's (`lr: loguniform(1e-6, 1e-4)`).  Errors name file, line and key. */
#ifndef LIB_SWEEP_FORMAT_SWEEPFILE_H
#define LIB_SWEEP_FORMAT_SWEEPFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/sweep/space/space.h"

struct sweepfile_metric {
    char *name;
    bool maximize;
    double target; /* enough is reached, NaN for never */
};

/* What the file leaves out is NULL or 0. */
struct sweepfile {
    struct space space;
    char *name;
    char *sampler;                    /* a specification for sampler_parse */
    char *pruner;                     /* a specification for pruner_parse */
    struct sweepfile_metric *metrics; /* [nmetrics] */
    size_t nmetrics;
    uint64_t run_cap; /* finished trials */
    char *program;    /* W&B's */
    char **command;   /* [ncommand]: W&B's words, macros unexpanded; known good */
    size_t ncommand;
};

/* Parse TEXT[n], PATH for the messages. */
MUST_CHECK int sweepfile_parse(struct sweepfile *f, const char *path, const char *text,
                               size_t n, struct err *err);
/* The same of the file at PATH ("-" is standard input). */
MUST_CHECK int sweepfile_read(struct sweepfile *f, const char *path, struct err *err);
void sweepfile_clear(struct sweepfile *f);

/* Append the point X as a JSON object, parameters in the space's order. */
void sweepfile_write_params(struct str *out, const struct space *s, const double *x);

/* True when the file gives a command of its own (a program suffices). */
bool sweepfile_has_command(const struct sweepfile *f);

/* The words of the file's command at the point X, NULL-terminated, in fresh memory
 * (free each and the array).  W&B's macros: ${env}, ${interpreter}, ${program},
 * ${args}, ${args_no_hyphens}, ${args_no_boolean_flags}, ${args_json},
 * ${args_json_file} (JSON_PATH, where the caller has written the parameters) and
 * ${envvar:NAME} (through LOOKUP).  NULL with *err set when such a variable is
 * unset. */
char **sweepfile_command_new(const struct sweepfile *f, const double *x,
                             const char *json_path, char *(*lookup)(const char *name),
                             struct err *err);

#endif
