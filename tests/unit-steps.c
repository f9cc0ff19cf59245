/* unit-steps - steps that a device has recorded serve texts that come and go
 *
 * The device is the CPU; it records the calls of kernels as they are, and calls them
 * again.  So whatever differs between two steps must be in device memory. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "tests/repeats.h"
#include "tests/tap.h"

enum { CALLS = 4096 };

struct recording {
    struct call call[CALLS];
    size_t n;
};

static struct recording *made; /* while a step is recorded */

static int call_kernel(struct device *d, const struct call *c, struct err *err)
{
    if (!made)
        return backend_cpu.kernel[c->inst->op](d, c, err);
    assert(made->n < CALLS && !c->nparts);
    made->call[made->n++] = *c;
    return 0;
}

static int record(struct device *d, struct err *err)
{
    (void)d;
    (void)err;
    made = xcalloc(1, sizeof(*made));
    return 1;
}

static int recorded(struct device *d, struct recording **out, struct err *err)
{
    (void)d;
    (void)err;
    *out = made;
    made = NULL;
    return 0;
}

static int replay(struct device *d, const struct recording *r, struct err *err)
{
    for (size_t i = 0; i < r->n; i++)
        if (backend_cpu.kernel[r->call[i].inst->op](d, &r->call[i], err) < 0)
            return -1;
    return 0;
}

static bool is_current(const struct device *d, const struct recording *r)
{
    (void)d;
    (void)r;
    return true;
}

static void forget(struct device *d, struct recording *r)
{
    (void)d;
    free(r);
}

int main(void)
{
    static const char *const models[] = { "qwen3", "mistral-window", "lfm2",
                                          "mixtral" };
    static kernel *table[OP_COUNT];
    static struct backend recorder;
    const struct repeats how = {
        .ops = &recorder, .texts = 64, .new = 99, .places = 16, .least = 0.95
    };

    recorder = backend_cpu;
    for (int op = 0; op < OP_COUNT; op++)
        table[op] = backend_cpu.kernel[op] ? call_kernel : NULL;
    recorder.kernel = table;
    recorder.record = record;
    recorder.recorded = recorded;
    recorder.replay = replay;
    recorder.is_current = is_current;
    recorder.forget = forget;
    for (size_t i = 0; i < sizeof(models) / sizeof(*models); i++) {
        struct err err = { .text = "" };

        if (!tap_ok(repeats_run(&how, models[i], &err) == 0,
                    "%s: %.0f of 100 steps are replayed while %zu texts come and go",
                    models[i], how.least * 100, how.texts))
            printf("# %s\n", err.text);
    }
    return tap_done();
}
