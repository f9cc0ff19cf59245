/* emit - a plan as a script of this toolkit's commands, or for another framework */
#ifndef CMD_MEM_ESTIMATE_EMIT_H
#define CMD_MEM_ESTIMATE_EMIT_H

#include "cmd/mem-estimate/request.h"
#include "lib/estimate/planner.h"

enum emit_format {
    EMIT_SH,
    EMIT_MAKE,
    EMIT_SLURM,
    EMIT_MEGATRON,
    EMIT_DEEPSPEED,
    EMIT_TORCHTITAN,
    EMIT_VLLM
};
extern const char *const emit_names[];

/* The framework that FORMAT is of; FRAMEWORK_NONE: this toolkit. */
enum framework emit_framework(enum emit_format format);
/* Appends P, found with O for R, to OUT as a script, or as what its framework reads.
 * If this toolkit cannot run it, its script is marked as an estimate and ends with
 * status 1.  ERR_USAGE if a script cannot contain the model's name, tp-run cannot
 * train this way, or the framework cannot be told it (emitframework.h). */
MUST_CHECK int emit_plan(struct str *out, const struct planned *p,
                         const struct planner_options *o, const struct request *r,
                         enum emit_format format, struct err *err);

#endif
