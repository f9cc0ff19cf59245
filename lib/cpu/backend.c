/* backend - the CPU's table of operations */
#include "lib/cpu/cpu.h"

static bool probe(void)
{
    return true;
}

const struct backend backend_cpu = {
    .name = "cpu",
    .probe = probe,
    .open = cpu_open,
    .close = cpu_close,
    .embedding = cpu_embedding,
    .linear = cpu_linear,
    .matmul = cpu_matmul,
    .add = cpu_add,
    .mul = cpu_mul,
    .scale = cpu_scale,
    .softcap = cpu_softcap,
    .activation = cpu_activation,
    .add_vector = cpu_add_vector,
    .group_sum = cpu_group_sum,
    .group_scale = cpu_group_scale,
    .rope = cpu_rope,
    .attention = cpu_attention,
};
