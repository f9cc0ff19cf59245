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
    .mul_rows = cpu_mul_rows,
    .softmax = cpu_softmax,
    .route = cpu_route,
    .take_rows = cpu_take_rows,
    .add_rows = cpu_add_rows,
    .concat = cpu_concat,
    .head_product = cpu_head_product,
    .softcap = cpu_softcap,
    .clip = cpu_clip,
    .activation = cpu_activation,
    .add_vector = cpu_add_vector,
    .group_sum = cpu_group_sum,
    .group_scale = cpu_group_scale,
    .rope = cpu_rope,
    .attention = cpu_attention,
};
