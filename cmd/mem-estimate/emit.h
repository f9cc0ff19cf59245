/* emit - a plan as commands of this toolkit */
#ifndef CMD_MEM_ESTIMATE_EMIT_H
#define CMD_MEM_ESTIMATE_EMIT_H

#include "cmd/mem-estimate/request.h"
#include "lib/estimate/planner.h"

enum emit_format { EMIT_SH, EMIT_MAKE, EMIT_SLURM };
extern const char *const emit_names[];

/* Print P, found with O for R, to standard output.  What the toolkit cannot run is
 * marked as an estimate and, when it is run, ends with status 1.  ERR_USAGE when a
 * script cannot name the model, or tp-run cannot train so. */
MUST_CHECK int emit_plan(const struct planned *p, const struct planner_options *o,
                         const struct request *r, enum emit_format format,
                         struct err *err);

#endif
