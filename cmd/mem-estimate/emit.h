/* emit - a plan as a script of this toolkit's commands */
#ifndef CMD_MEM_ESTIMATE_EMIT_H
#define CMD_MEM_ESTIMATE_EMIT_H

#include "cmd/mem-estimate/request.h"
#include "lib/estimate/planner.h"

enum emit_format { EMIT_SH, EMIT_MAKE, EMIT_SLURM };
extern const char *const emit_names[];

/* Appends P, found with O for R, to OUT as a script.  If the toolkit cannot
 * run it, the script is marked as an estimate and ends with status 1.  ERR_USAGE if a
 * script cannot contain the model's name, or tp-run cannot train this way. */
MUST_CHECK int emit_plan(struct str *out, const struct planned *p,
                         const struct planner_options *o, const struct request *r,
                         enum emit_format format, struct err *err);

#endif
