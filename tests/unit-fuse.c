/* unit-fuse - fused operations mean what their parts mean
 *
 * A backend that has all of them, each of which runs its parts by the CPU's kernels, in
 * memory of its own where a value has none: every model, on every axis, gives to the
 * bit what the CPU gives when it fuses nothing.  And with its own kernels the CPU does.
 */
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/cpu/cpu.h"
#include "tests/device-models.h"

static size_t fused, parts;

/* Values without memory, by number. */
static int find(const int *v, int n, int value)
{
    int i = 0;

    while (i < n && v[i] != value)
        i++;
    return i;
}

static int run_parts(struct device *d, const struct call *c, struct err *err)
{
    int inside[INST_PARTS], n = 0, ret = 0;
    void *memory[INST_PARTS];

    fused++;
    for (int i = 0; i < c->nparts && ret == 0; i++) {
        struct call one = c->part[i];
        int v = one.inst->dst, at;

        for (int k = 0; k < one.inst->nsrc; k++) {
            at = find(inside, n, one.inst->src[k]);
            if (at < n)
                one.x[k].data = memory[at];
        }
        if (c->program->value[v].inside) {
            if (one.y.data)
                return err_set(err, ERR_INPUT, "a value inside has memory");
            inside[n] = v;
            one.y.data = memory[n++] =
                xmalloc(one.y.most * one.y.cols * sizeof(float) + 1);
        }
        parts++;
        ret = cpu_kernels[one.inst->op](d, &one, err);
    }
    while (n)
        free(memory[--n]);
    return ret;
}

static kernel *all_kernels[OP_COUNT];
static struct kernel_limits limits[OP_COUNT];
static struct backend backend;

static void begin(void)
{
    fused = parts = 0;
}

/* Some models have nothing to fuse. */
static bool has_run(void)
{
    return parts >= 2 * fused;
}

static void forget_nothing(struct device_models *d)
{
    backend = backend_cpu;
    backend.name = "parts";
    backend.kernel = all_kernels;
    backend.limits = limits;
    memcpy(limits, cpu_limits, sizeof(limits));
    for (int op = 0; op < OP_COUNT; op++) {
        all_kernels[op] = op_table[op].parts ? run_parts : cpu_kernels[op];
        if (op_table[op].parts)
            limits[op] = (struct kernel_limits){ .weight = ~0U, .cache = ~0U };
    }
    d->ops = &backend;
}

int main(void)
{
    static const char *const some[] = { "deepseek-v2", "gemma3",  "gpt-oss-odd", "gptj",
                                        "llama-gqa",   "mixtral", "qwen2-moe",   NULL };
    struct device_models models = { .begin = begin,
                                    .has_run = has_run,
                                    .coded = true,
                                    .unfused = true,
                                    .claim = "fused operations are their parts",
                                    .some = some };

    forget_nothing(&models);
    return device_models(&models);
}
