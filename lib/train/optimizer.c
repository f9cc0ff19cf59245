/* optimizer - AdamW (Loshchilov and Hutter 2019), numerically as torch.optim.AdamW */
#include "lib/train/optimizer.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

/* Forbids fused multiply-add except for explicit fmaf. */
#if defined(__GNUC__) && !defined(__clang__)
#define AS_WRITTEN __attribute__((optimize("fp-contract=off")))
#else
#define AS_WRITTEN
#endif

/* PyTorch computes scalars in double and rounds them to f32 once; on a CPU its lerp and
 * addcmul are fused multiply-adds. */
AS_WRITTEN void adamw_update(const struct adamw *a, double rate, uint64_t t,
                             float factor, float *p, const float *g, float *m, float *v,
                             size_t n)
{
    float keep = (float)(1 - rate * a->decay), b2 = (float)a->beta2;
    float one_b1 = (float)(1 - a->beta1), one_b2 = (float)(1 - a->beta2);
    float root = (float)sqrt(1 - pow(a->beta2, (double)t)), eps = (float)a->eps;
    float by = (float)(-(rate / (1 - pow(a->beta1, (double)t))));

    for (size_t i = 0; i < n; i++) {
        float own = g[i] * factor, w = p[i] * keep;

        m[i] = fmaf(own - m[i], one_b1, m[i]);
        v[i] = fmaf(one_b2 * own, own, v[i] * b2);
        p[i] = w + by * m[i] / (sqrtf(v[i]) / root + eps);
    }
}

/* ---- weight decay ---- */

static bool has_word(const char *name, const char *word)
{
    size_t n = strlen(word);

    for (const char *at = name; (at = strstr(at, word)); at++)
        if (at[n] == '\0' || at[n] == '.')
            if (*word == '_' || at == name || at[-1] == '.')
                return true;
    return false;
}

/* The name patterns of transformers' Trainer.get_decay_parameter_names. */
static bool is_spared(const char *name)
{
    char *low = xstrdup(name);
    bool spared;

    for (char *c = low; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    spared = strstr(low, "bias") || strstr(low, "layernorm") ||
             strstr(low, "rmsnorm") || has_word(low, "norm") || has_word(low, "_norm");
    free(low);
    return spared;
}

/* Excludes norm weights too, whatever their names are, and frozen ones. */
static void choose(struct optimizer *o, const struct program *p)
{
    for (int i = 0; i < p->nweights; i++) {
        const struct model_tensor *t = &p->model->tensor[p->weight[i].tensor];

        o->decays[i] = !t->frozen && !is_spared(t->name);
    }
    for (int i = 0; i < p->nforward; i++) {
        const struct inst *inst = &p->inst[i];

        if (inst->op != OP_LAYERNORM && inst->op != OP_LAYER_APPLY)
            continue;
        if (inst->weight >= 0)
            o->decays[inst->weight] = false;
        if (inst->weight2 >= 0)
            o->decays[inst->weight2] = false;
    }
}

int optimizer_open(struct optimizer *o, const struct parameters *p, struct err *err)
{
    size_t n = p->at[p->program->nweights];

    o->t = 0;
    o->decays = xcalloc((size_t)p->program->nweights + 1, sizeof(*o->decays));
    o->m = mem_alloc((n + 1) * sizeof(*o->m), "the optimizer", err);
    o->v = mem_alloc((n + 1) * sizeof(*o->v), "the optimizer", err);
    if (!o->m || !o->v) {
        optimizer_close(o);
        return -1;
    }
    memset(o->m, 0, n * sizeof(*o->m));
    memset(o->v, 0, n * sizeof(*o->v));
    choose(o, p->program);
    return 0;
}

void optimizer_close(struct optimizer *o)
{
    free(o->m);
    free(o->v);
    free(o->decays);
    o->m = o->v = NULL;
    o->decays = NULL;
}

/* ---- updates ---- */

struct counting {
    const float *g;
    struct squares *squares;
};

static void count_run(void *arg, size_t here, size_t whole, size_t n, bool owned)
{
    const struct counting *c = arg;

    (void)whole;
    if (owned)
        squares_add(c->squares, c->g + here, n);
}

void optimizer_squares(struct parameters *p, double word[SQUARES_WORDS])
{
    struct squares squares = { 0 };

    for (int i = 0; i < p->program->nweights; i++) {
        struct counting c = { p->gradient + p->at[i], &squares };

        parameters_runs(p, i, count_run, &c);
    }
    squares_words(&squares, word);
}

/* As torch.nn.utils.clip_grad_norm_, which also multiplies when the factor is 1. */
void optimizer_step(struct optimizer *o, struct parameters *p, double rate, double norm)
{
    double factor = o->clip > 0 ? o->clip / (norm + 1e-6) : 1;

    o->t++;
    for (int i = 0; i < p->program->nweights; i++) {
        struct adamw a = o->adamw;
        size_t at = p->at[i], n = p->at[i + 1] - at;

        a.decay = o->decays[i] ? a.decay : 0;
        adamw_update(&a, rate, o->t, factor < 1 ? (float)factor : 1, p->weight + at,
                     p->gradient + at, o->m + at, o->v + at, n);
    }
}
