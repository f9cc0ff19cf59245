/* backend - the CPU's table of operations */
#include "lib/cpu/cpu.h"

#ifdef _OPENMP
#include <omp.h>
#endif

static bool probe(void)
{
    return true;
}

static void set_threads(int n)
{
#ifdef _OPENMP
    omp_set_num_threads(n);
#else
    (void)n;
#endif
}

int cpu_threads(void)
{
#ifdef _OPENMP
    return omp_get_max_threads();
#else
    return 1;
#endif
}

int cpu_thread(void)
{
#ifdef _OPENMP
    return omp_get_thread_num();
#else
    return 0;
#endif
}

const struct backend backend_cpu = {
    .name = "cpu",
    .probe = probe,
    .set_threads = set_threads,
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
