/* emitframework - a plan as the options of another framework
 *
 * What a framework is told: degrees of all axes, the pipeline's schedule, batch, tokens
 * of a sequence, what is sharded, recomputed and offloaded.  The model, the data and
 * the optimizer's numbers are the user's: arguments of the script. */
#ifndef CMD_MEM_ESTIMATE_EMITFRAMEWORK_H
#define CMD_MEM_ESTIMATE_EMITFRAMEWORK_H

#include "cmd/mem-estimate/request.h"
#include "lib/base/str.h"
#include "lib/estimate/planner.h"

/* Appends P, found with O for R, to OUT in the form of O's framework: a script, or
 * DeepSpeed's JSON.  COMMENT: lines about the plan that a script begins with.
 * ERR_USAGE if the framework cannot be told this plan, naming the option that plans
 * without what it lacks. */
MUST_CHECK int launch_plan(struct str *out, const struct planned *p,
                           const struct planner_options *o, const struct request *r,
                           const char *comment, struct err *err);

/* R's dropout rate as its config has it: of attention's weights, or the largest of the
 * others. */
double launch_dropout(const struct request *r, bool attention);

#endif
