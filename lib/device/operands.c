/* operands - the types of a kernel's operands, for programs without kernels, too */
#include "lib/base/format.h"
#include "lib/device/device.h"
#include "lib/program/op.h"
#include "lib/program/program.h"

int backend_takes_bf16(const unsigned *bf16, const struct device_request *r,
                       struct err *err)
{
    const enum op op = r->inst->op;

    if (r->bf16 & ~(bf16 ? bf16[op] : 0))
        return err_set(err, ERR_NO, "no kernel for %s with %s of bf16",
                       op_table[op].name, r->bf16 & BF16_RESULT ? "a result" : "rows");
    if (r->bf16 & op_table[op].rounds && r->weight != FORMAT_BF16)
        return err_set(err, ERR_NO,
                       "no kernel for %s with rows of bf16 and weights of %s",
                       op_table[op].name, format_name(r->weight));
    return 0;
}
