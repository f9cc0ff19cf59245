/* pooled - vectors of whole texts while they are asked for */
#include "cmd/tp-run/pooled.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/run/cache.h"

enum { STEP = 512, MOST = 32 /* tokens and texts of a step */ };

/* ---- what a model is for ---- */

static bool holds(const struct model *m, const char *symbol)
{
    double yes;

    return model_number(m, symbol, &yes) && yes != 0;
}

static bool classifies(const struct model *m)
{
    return holds(m, "classify") || holds(m, "scored");
}

static bool generates(const struct model *m)
{
    double lm;

    return !model_number(m, "lm", &lm) || lm != 0;
}

/* sentence-transformers' file says so, where the model alone does not. */
static int has_modules(bool *found, const struct session *s, struct err *err)
{
    char *path = fs_join_dup(s->checkpoint->home, "modules.json");
    int ret = fs_find(found, path, err);

    free(path);
    return ret;
}

int pooled_find_task(enum pooled_task *task, enum pooled_task wanted,
                     const struct session *s, struct err *err)
{
    const struct model *m = s->checkpoint->model;
    bool embeds;

    if (has_modules(&embeds, s, err) < 0)
        return -1;
    *task = wanted;
    if (wanted == TASK_AUTO)
        *task = classifies(m)             ? TASK_RERANK
                : generates(m) && !embeds ? TASK_GENERATE
                                          : TASK_EMBED;
    if (*task == TASK_RERANK && !classifies(m))
        return err_set(err, ERR_INPUT, "%s: this model has no head that scores texts",
                       model_config_name(m));
    return 0;
}

/* ---- opening ---- */

static const char *output_name(const struct pooled *p)
{
    return p->task == TASK_RERANK           ? "logits"
           : p->pooling.kind == POOL_POOLER ? "pooler_output"
                                            : "last_hidden_state";
}

int pooled_init(struct pooled *p, const struct session *s, enum pooled_task task,
                struct err *err)
{
    *p = (struct pooled){ .session = s, .task = task };
    if (task == TASK_EMBED)
        return pooling_read(&p->pooling, s->checkpoint->home, err);
    p->pooling.kind = holds(s->checkpoint->model, "at_last") ? POOL_LAST : POOL_CLS;
    return 0;
}

void pooled_clear(struct pooled *p)
{
    free(p->vector);
    free(p->own);
    *p = (struct pooled){ 0 };
}

struct program_options pooled_options(const struct pooled *p)
{
    return (struct program_options){ .only = output_name(p),
                                     .deterministic = p->session->opt.same_bits,
                                     .rounded =
                                         p->session->opt.compute == COMPUTE_BF16 };
}

struct engine_limits pooled_limits(const struct pooled *p, size_t context)
{
    struct engine_limits l = { .segments = 1,
                               .sequences = 1,
                               .tokens = context > STEP ? context : STEP,
                               .context = context };

    if (p->session->mesh.size[MESH_SP] == 1) {
        l.segments = l.sequences = MOST;
        l.cache = cache_blocks(l.tokens, MOST, 0) * CACHE_BLOCK;
    }
    l.wanted = l.segments;
    return l;
}

int pooled_begin(struct pooled *p, struct runner *r, struct err *err)
{
    const struct value *v = &r->program->value[r->program->output[0].value];

    p->runner = r;
    p->vector = xcalloc(v->whole_cols, sizeof(*p->vector));
    if (p->task == TASK_RERANK && v->whole_cols != 1)
        return err_set(err, ERR_INPUT,
                       "rerank needs a model with one label, and this one has %zu",
                       (size_t)v->whole_cols);
    return 0;
}

/* ---- steps ---- */

static size_t cols_of(const struct pooled *p)
{
    const struct program *program = p->runner->program;

    return program->value[program->output[0].value].whole_cols;
}

/* On the rank with the rows of a text: sends rank 0 its vector. */
int pooled_see(void *arg, const struct scheduler_part *part, struct err *err)
{
    struct pooled *p = arg;
    struct runner *r = p->runner;
    const struct program_output *out = &r->program->output[0];
    const size_t cols = cols_of(p);
    const float *x;
    size_t rows;

    if (out->stage != r->stage)
        return 0;
    if (engine_output(part->engine, 0, &x, &rows, err) < 0)
        return -1;
    x = scheduler_rows(part, r->program->value[out->value].rows, x, cols, &rows);
    pooling_apply(&p->pooling, x, rows, cols, p->vector);
    if (r->world->rank == 0) {
        p->own = xgrow(p->own, &p->cap_own, (p->nown + 1) * cols, sizeof(*p->own));
        memcpy(p->own + p->nown++ * cols, p->vector, cols * sizeof(*p->own));
        return 0;
    }
    return runner_send(r, r->stage, p->vector, cols * sizeof(*p->vector), err);
}

int pooled_collect(void *arg, const struct scheduler_part *part, struct err *err)
{
    struct pooled *p = arg;
    const int stage = p->runner->program->output[0].stage;
    const size_t cols = cols_of(p), bytes = cols * sizeof(*p->vector);

    if (part->replica == 0 && stage == 0) {
        memcpy(p->vector, p->own, bytes);
        memmove(p->own, p->own + cols, --p->nown * bytes);
    } else if (runner_receive(p->runner, part->replica, stage, p->vector, bytes, err) <
               0) {
        return -1;
    }
    jobs_vector(p->jobs, part->tag, p->vector, cols);
    return 0;
}
