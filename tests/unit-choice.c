/* unit-choice - a backend is asked what it can run, and what it lacks is named before
 * it is asked for memory */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/cpu/cpu.h"
#include "lib/cpu/room.h"
#include "lib/run/choice.h"
#include "lib/run/runner.h"
#include "tests/tap.h"

static int allocations;

static void *allocate(struct device *d, uint64_t size, const char *what,
                      struct err *err)
{
    (void)d;
    allocations++;
    return mem_alloc(size, what, err);
}

static kernel *some_kernels[OP_COUNT];
static struct kernel_limits some_limits[OP_COUNT];

static int no_causal(const struct device_request *r, struct err *err)
{
    return r->inst->attention.causal ? err_set(err, ERR_NO, "no causal attention") : 0;
}

/* Opens the model with the tables above, which lack something: TEXT, or "" for
 * nothing. */
static void refuses(struct checkpoint *c, enum weights_form form, enum format kept,
                    const char *text, const char *what)
{
    const struct mesh one = { .size = { 1, 1, 1, 1, 1 }, .nranks = 1 };
    const struct program_options options = { .tail = TAIL_NLL };
    const struct engine_limits limits = { .tokens = 4, .context = 4 };
    struct backend some = backend_cpu;
    struct runner_machine machine = {
        .ops = &some, .threads = 1, .form = form, .kept = kept
    };
    struct comm *world = comm_self_open();
    struct err err = { .text = "" };
    struct runner r;
    int ret;

    some.kernel = some_kernels;
    some.limits = some_limits;
    some.alloc = allocate;
    allocations = 0;
    ret = runner_open(&r, c, &one, &machine, world, &options, &limits, &err);
    if (ret == 0)
        runner_close(&r);
    if (!tap_ok((ret < 0) == (text[0] != '\0') && !strcmp(err.text, text) &&
                    (ret == 0 || (err.kind == ERR_NO && !allocations)),
                "%s", what))
        printf("# %s\n", err.text);
    world->ops->close(world);
    memcpy(some_kernels, cpu_kernels, sizeof(some_kernels));
    memcpy(some_limits, cpu_limits, sizeof(some_limits));
}

/* Asks about a rank of two that share a sequence. */
static void refuses_shared(struct checkpoint *c, const char *text, const char *what)
{
    const int size[MESH_NAXES] = { [MESH_SP] = 2 }, coord[MESH_NAXES] = { 0 };
    const struct program_options options = { .tail = TAIL_NLL };
    struct backend some = backend_cpu;
    struct choice_need need = { .checkpoint = c };
    struct err err = { .text = "" };
    struct program *p;
    struct mesh two;
    int ret = -1;

    some.kernel = some_kernels;
    some.limits = some_limits;
    if (mesh_set(&two, size, NULL, &err) == 0 &&
        program_build(&p, c->model, &two, coord, &options, &err) == 0) {
        need.program = p;
        ret = choice_supports(&some, &need, NULL, &err);
        program_free(p);
    }
    if (!tap_ok(ret < 0 && !strcmp(err.text, text), "%s", what))
        printf("# %s\n", err.text);
    memcpy(some_kernels, cpu_kernels, sizeof(some_kernels));
}

/* Asks for a trainer of the model by a backend that lacks the operation LACKING of
 * arrays; -1: none.  TEXT: why it is refused; empty: it is not. */
static void refuses_training(struct checkpoint *c, int lacking, const char *text,
                             const char *what)
{
    const struct mesh one = { .size = { 1, 1, 1, 1, 1 }, .nranks = 1 };
    const int coord[MESH_NAXES] = { 0 };
    const struct program_options options = { .tail = TAIL_NLL, .reverse = true };
    struct backend some = backend_cpu;
    struct choice_need need = { .checkpoint = c,
                                .trains = true,
                                .update = ARRAY_ADAMW };
    array_kernel *arrays[ARRAY_COUNT];
    struct err err = { .text = "" };
    struct program *p;
    bool refused = false;

    memcpy(arrays, cpu_arrays, sizeof(arrays));
    if (lacking >= 0)
        arrays[lacking] = NULL;
    some.kernel = some_kernels;
    some.limits = some_limits;
    some.host_memory = false;
    some.array = arrays;
    if (program_build(&p, c->model, &one, coord, &options, &err) == 0) {
        need.program = p;
        refused = choice_supports(&some, &need, NULL, &err) < 0 && err.kind == ERR_NO;
        program_free(p);
    }
    if (!tap_ok(refused == (*text != '\0') && !strcmp(err.text, text), "%s", what))
        printf("# %s\n", err.text);
    memcpy(some_kernels, cpu_kernels, sizeof(some_kernels));
}

int main(void)
{
    char *path = str_dupf("%s/tests/data/models/llama-gqa", getenv("top_srcdir"));
    struct checkpoint_options options = { 0 };
    struct err err = { .text = "" };
    struct checkpoint *c;
    bool as_said = true;

    memcpy(some_kernels, cpu_kernels, sizeof(some_kernels));
    memcpy(some_limits, cpu_limits, sizeof(some_limits));
    if (checkpoint_open(&c, path, &options, &err) < 0) {
        tap_ok(false, "%s", err.text);
        free(path);
        return tap_done();
    }
    some_kernels[OP_ROPE_BACK] = NULL;
    refuses(c, WEIGHTS_INT8, FORMAT_BF16, "",
            "a kernel that only training needs may be lacking");
    some_kernels[OP_ROPE] = NULL;
    refuses(c, WEIGHTS_STORED, 0, "no kernel for rope",
            "a row that is lacking is named before memory is asked for");
    some_limits[OP_LINEAR].weight = 0;
    refuses(c, WEIGHTS_STORED, FORMAT_CACHE_INT8, "",
            "what is stored needs no products of codes");
    some_limits[OP_LINEAR].weight =
        1 << FORMAT_F32 | 1 << FORMAT_BF16 | 1 << FORMAT_INT4;
    refuses(c, WEIGHTS_INT8, 0, "no kernel for linear with weights of int8",
            "a format of weights is named");
    some_limits[OP_EMBEDDING].weight = 1 << FORMAT_F16;
    refuses(c, WEIGHTS_INT8, 0, "no kernel for embedding with weights of f32",
            "so is that of weights that are no codes");
    some_limits[OP_KEEP].cache = 0;
    refuses(c, WEIGHTS_STORED, FORMAT_BF16, "no kernel for keep with a cache of bf16",
            "and that of the cache");
    some_limits[OP_ATTENTION].cache = 1 << FORMAT_F32 | 1 << FORMAT_CACHE_INT8;
    refuses(c, WEIGHTS_STORED, FORMAT_BF16,
            "no kernel for attention with a cache of bf16",
            "where it is written and where it is read");
    some_limits[OP_ATTENTION].fits = no_causal;
    refuses(c, WEIGHTS_STORED, 0, "no causal attention", "a kernel may refuse more");
    some_kernels[OP_MERGE] = NULL;
    refuses(c, WEIGHTS_STORED, 0, "", "a rank that has its texts alone merges nothing");
    some_kernels[OP_MERGE] = NULL;
    refuses_shared(c, "no kernel for merge", "and one that shares them does");
    some_kernels[OP_ROPE_BACK] = NULL;
    refuses_training(c, -1, "no kernel for rope_back, which training needs",
                     "the derivative is asked about, too");
    refuses_training(c, ARRAY_SQUARES, "no kernel for squares of arrays",
                     "and so are the sums of gradients");
    refuses_training(c, ARRAY_ADAMW, "no kernel for adamw of arrays",
                     "and the optimizer's update");
    refuses_training(c, ARRAY_SGD, "", "an update of another optimizer may be lacking");
    for (int op = 0; op < OP_COUNT; op++)
        as_said &= !op_table[op].parts || cpu_fuses[op] == (cpu_kernels[op] != NULL);
    tap_ok(as_said, "the CPU fuses what predictions say");
    checkpoint_close(c);
    free(path);
    return tap_done();
}
