/* stagecut - splits layers into pipeline stages by memory */
#include "lib/estimate/stagecut.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"

struct cut {
    const struct costmodel *a;
    struct memory_options o; /* its mesh.stages is count */
    int *count;
    int nlayers;
};

/* Bytes of stage S with N layers, given the layers of the stages before it. */
static uint64_t bytes_of(struct cut *c, int s, int n)
{
    struct rank_memory r;

    c->count[s] = n;
    return memory_of_stage(&r, c->a, &c->o, s) ? r.total : UINT64_MAX;
}

/* True if all stages have at most LIMIT bytes, when each takes as many layers as
 * possible. */
static bool fits(struct cut *c, uint64_t limit)
{
    int pp = c->o.mesh.size[MESH_PP], rest = c->nlayers;

    for (int s = 0; s < pp; s++) {
        int low = 1, high = rest - (pp - 1 - s);

        if (s == pp - 1)
            low = high;
        if (bytes_of(c, s, low) > limit)
            return false;
        while (low < high) { /* LOW fits */
            int n = low + (high - low + 1) / 2;

            if (bytes_of(c, s, n) <= limit)
                low = n;
            else
                high = n - 1;
        }
        c->count[s] = low;
        rest -= low;
    }
    return true;
}

int stagecut_memory(int *count, const struct costmodel *a,
                    const struct memory_options *o, struct err *err)
{
    struct cut c = {
        .a = a, .o = *o, .count = count, .nlayers = model_layers(a->model)
    };
    int pp = o->mesh.size[MESH_PP];
    uint64_t low = 0, high = UINT64_MAX - 1;

    if (pp > c.nlayers)
        return err_set(err, ERR_NO, "pp %d: the model has %d layers", pp, c.nlayers);
    if (o->fold != FOLD_NONE || o->chunks > 1)
        return err_set(err, ERR_NO,
                       "memory is balanced where a stage is one range of layers");
    memset(count, 0, sizeof(*count) * (size_t)pp);
    c.o.mesh.stages = count;
    while (low < high) { /* high fits; nothing below low does */
        uint64_t middle = low + (high - low) / 2;

        if (fits(&c, middle))
            high = middle;
        else
            low = middle + 1;
    }
    if (!fits(&c, high))
        return err_set(err, ERR_USAGE, "the bytes of this layout overflow");
    return 0;
}

int stagecut_parse(int *count, int pp, int nlayers, const char *text, struct err *err)
{
    long long sum = 0;
    int n = 0;

    for (const char *p = text;; p++) {
        size_t len = strcspn(p, ",");
        char *word = xstrndup(p, len);
        bool ok = n < pp && str_int(word, &count[n]) && count[n] > 0;

        free(word);
        if (!ok)
            return err_set(err, ERR_USAGE,
                           "--stages: '%s' is no list of the layers of %d stages", text,
                           pp);
        sum += count[n++];
        p += len;
        if (!*p)
            break;
    }
    if (n != pp || sum != nlayers)
        return err_set(err, ERR_USAGE,
                       "--stages: %d stages of %lld layers, not %d of %d", n, sum, pp,
                       nlayers);
    return 0;
}

void stagecut_training(struct memory_options *o, const struct model *m, int pp,
                       uint64_t *inflight)
{
    const struct weight_type *bf16 = weight_type_find("bf16");

    *o = (struct memory_options){
        .train = true,
        .micro_batch = 1,
        .micro_batches = (uint64_t)pp,
        .seq = model_context(m) ? model_context(m) : 2048,
        .weights = bf16,
        .other = bf16,
        .compute_bytes = 2,
        .kv_format = FORMAT_BF16,
        .kv_block = 1,
        .grad_bytes = 2,
        .optimizer = OPTIMIZER_ADAMW,
        .master = true,
        .flash = true,
        .inflight = inflight,
    };
    mesh_one(&o->mesh);
    o->mesh.size[MESH_PP] = o->mesh.nranks = pp;
    for (int s = 0; s < pp; s++)
        inflight[s] = (uint64_t)(pp - s) * 1000;
}
