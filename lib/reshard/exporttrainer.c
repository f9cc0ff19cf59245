/* exporttrainer - a checkpoint of transformers' Trainer, as resume_from_checkpoint
 * takes it
 *
 * Weights are in model.safetensors, those of a training as f32 masters, by the names
 * that modules have; optimizer.pt has the optimizer's state_dict(), by number: Trainer
 * makes two groups, of the parameters that decay and of the others, each in the order
 * of the modules; scheduler.pt and trainer_state.json say how far it is.  There is no
 * rng_state.pth, without which Trainer goes on with its seed.  Facts: transformers
 * 5.24, trainer.py; PyTorch 2.13, torch/optim/{optimizer,lr_scheduler}.py. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/hash.h"
#include "lib/base/mem.h"
#include "lib/ckpt/pickler.h"
#include "lib/ckpt/safetensors.h"
#include "lib/ckpt/trainerstate.h"
#include "lib/model/module-order.h"
#include "lib/reshard/exportforms.h"
#include "lib/reshard/exportgroups.h"

static const char WEIGHTS[] = "model.safetensors";

enum {
    GROUPS = 2,
    STORAGES = 3, /* of a parameter: its step and moments */
    USUAL = 500   /* Trainer's steps between two checkpoints, or evaluations */
};

struct trainer {
    struct model *modules; /* not bound: its tensors have the names of modules */
    char **name;           /* [nweights] as written */
    uint64_t *at;          /* [nweights] offset in the file */
    struct safetensors_header header;
    size_t *param;     /* [n] weights with moments, by the optimizer's numbers */
    size_t n, first_n; /* and how many of them the first group has */
    double decay[GROUPS];
    struct torchsave optimizer;
};

/* ---- names ---- */

/* Does a class of this name have a module around the model, as those with a head? */
static bool is_bare(const struct exporting *e)
{
    const struct json *classes = json_get(e->config.root, "architectures");
    const char *name = classes ? json_string(classes->first) : NULL;

    return name && str_ends(name, "Model") && !str_ends(name, "HeadModel") &&
           !str_ends(name, "HeadsModel");
}

static bool is_same(const struct model_tensor *a, const struct model_tensor *b)
{
    return !strcmp(a->key, b->key) && a->layer == b->layer && a->expert == b->expert;
}

/* Names of files may lack what is before those of modules ("transformer."), which
 * from_pretrained adds and Trainer does not. */
static int name_weights(struct trainer *x, const struct exporting *e, struct err *err)
{
    const struct checkpoint *c = e->ckpt;
    const struct model *m = c->model;
    const char *text = c->sharded ? c->manifest.config : c->source.config;
    size_t from = 0;

    x->name = xcalloc(c->nweights + 1, sizeof(*x->name));
    for (size_t i = 0; i < c->nweights; i++)
        x->name[i] = xstrdup(c->tensor[i].name);
    if (is_bare(e))
        return 0;
    if (model_open_flat(&x->modules, model_config_name(m), text, model_family_text(m),
                        err) < 0)
        return -1;
    for (size_t t = 0; t < m->ntensors; t++) {
        const struct model_tensor *own = &m->tensor[t];
        size_t f = from;

        while (f < x->modules->ntensors && !is_same(&x->modules->tensor[f], own))
            f++;
        if (f == x->modules->ntensors || own->source < 0)
            continue;
        free(x->name[own->source]);
        x->name[own->source] = xstrdup(x->modules->tensor[f].name);
        from = f + 1;
    }
    return 0;
}

/* ---- layout ---- */

/* The tensor that is written for weight I: its master, if it has one. */
static size_t written(const struct exporting *e, size_t i)
{
    long master = exporting_state(e, i, "master");

    return master < 0 ? i : (size_t)master;
}

static enum dtype type_of(const struct exporting *e, size_t i)
{
    return e->opt->dtype ? exporting_type(e, i) : e->ckpt->tensor[written(e, i)].dtype;
}

static int place_weights(struct trainer *x, struct exporting *e, struct err *err)
{
    static const enum dtype plain = DTYPE_F32;
    const struct checkpoint *c = e->ckpt;
    int ret;

    x->at = xcalloc(c->nweights + 1, sizeof(*x->at));
    safetensors_header_begin(&x->header, "{\"format\":\"pt\"}");
    for (size_t i = 0; i < c->nweights; i++) {
        const struct tensor *t = &c->tensor[i];
        uint64_t elements = 1, bytes;

        for (int k = 0; k < t->ndim; k++)
            elements *= t->shape[k]; /* no overflow: checked when they were read */
        if (!dtype_bytes(&bytes, type_of(e, i), elements))
            return err_set(err, ERR_NO, "%s: %s: is no whole number of bytes", c->path,
                           t->name);
        if (written(e, i) != i && !e->opt->dtype)
            e->retype = &plain;
        x->at[i] = x->header.end;
        safetensors_header_add(&x->header, x->name[i], type_of(e, i), t->ndim, t->shape,
                               bytes);
        e->total += bytes;
    }
    ret = safetensors_header_finish(&x->header, WEIGHTS, err);
    for (size_t i = 0; i < c->nweights; i++)
        x->at[i] += x->header.text.len;
    return ret;
}

/* Puts the weights with moments in order: those of the first group, and the others. */
static int number(struct trainer *x, const struct exporting *e, struct err *err)
{
    const struct model *m = e->ckpt->model;
    bool *usual;
    size_t *order, n;

    if (order_new(&order, &n, m, err) < 0)
        return err_prefix(err, "%s", e->ckpt->path);
    usual = decay_new(m, DECAY_USUAL);
    x->param = xcalloc(n + 1, sizeof(*x->param));
    for (int g = 0; g < GROUPS; g++) {
        for (size_t k = 0; k < n; k++) {
            size_t i = (size_t)m->tensor[order[k]].source;

            if (usual[order[k]] == !g && exporting_state(e, i, "exp_avg") >= 0)
                x->param[x->n++] = i;
        }
        x->first_n = g ? x->first_n : x->n;
    }
    free(usual);
    free(order);
    return 0;
}

/* Each group decays by one number. */
static int find_decay(struct trainer *x, const struct exporting *e, struct err *err)
{
    for (size_t k = 0; k < x->n; k++) {
        int g = k >= x->first_n;
        double decay = exporting_undecayed(e, x->param[k]) ? 0 : e->run.decay;

        if (k > (g ? x->first_n : 0) && decay != x->decay[g])
            return err_set(err, ERR_NO,
                           "%s: tensor %s: --decays %s is not as the two groups of "
                           "Trainer decay",
                           e->ckpt->path, e->ckpt->tensor[x->param[k]].name,
                           decay_names[e->run.decays]);
        x->decay[g] = decay;
    }
    return 0;
}

static uint64_t elements_of(const struct tensor *t)
{
    uint64_t n = 1;

    for (int k = 0; k < t->ndim; k++)
        n *= t->shape[k];
    return n;
}

static void place_optimizer(struct trainer *x, struct exporting *e)
{
    struct str *s = &x->optimizer.pickle;

    pickler_begin(s, 2);
    pickler_begin_dict(s);
    pickler_text(s, "state");
    pickler_begin_dict(s);
    for (size_t k = 0; k < x->n; k++) {
        const struct tensor *t = &e->ckpt->tensor[x->param[k]];
        uint64_t bytes = elements_of(t) * sizeof(float);

        pickler_count(s, k);
        pickler_begin_dict(s);
        pickler_text(s, "step");
        pickler_tensor(s, torchsave_add(&x->optimizer, sizeof(float)), DTYPE_F32, 0,
                       NULL);
        pickler_text(s, "exp_avg");
        pickler_tensor(s, torchsave_add(&x->optimizer, bytes), DTYPE_F32, t->ndim,
                       t->shape);
        pickler_text(s, "exp_avg_sq");
        pickler_tensor(s, torchsave_add(&x->optimizer, bytes), DTYPE_F32, t->ndim,
                       t->shape);
        pickler_end_dict(s);
        e->total += 2 * bytes;
    }
    pickler_end_dict(s);
    pickler_text(s, "param_groups");
    pickler_begin_list(s);
    for (int g = 0; g < GROUPS; g++) {
        exportgroups_begin(s, &e->run, x->decay[g]);
        pickler_begin_list(s);
        for (size_t k = g ? x->first_n : 0; k < (g ? x->n : x->first_n); k++)
            pickler_count(s, k);
        pickler_end_list(s);
        pickler_end_dict(s);
    }
    pickler_end_list(s);
    pickler_end_dict(s);
    pickler_end(s);
    torchsave_place(&x->optimizer, 0);
}

static int lay_out(struct exporting *e, struct err *err)
{
    const struct checkpoint *c = e->ckpt;
    struct trainer *x = e->own = xcalloc(1, sizeof(*x));

    if (!c->model)
        return err_set(err, ERR_INPUT, "%s: a single file has no config.json", c->path);
    if (!e->states)
        return err_set(err, ERR_NO,
                       "%s: no moments of Adam are exported, without which Trainer "
                       "resumes nothing; merge alone writes weights that it loads",
                       c->path);
    if (e->run.follows)
        return err_set(err, ERR_NO,
                       "%s: its schedule follows the losses, of which Trainer's "
                       "scheduler.pt has others",
                       c->path);
    if (name_weights(x, e, err) < 0 || number(x, e, err) < 0 ||
        find_decay(x, e, err) < 0 || place_weights(x, e, err) < 0)
        return -1;
    place_optimizer(x, e);
    return 0;
}

/* A directory of weights alone has model.safetensors, too: another form's export does
 * not take its place. */
static void name_files(struct exporting *e)
{
    if (e->form != &export_trainer_form)
        return;
    exporting_own(e, WEIGHTS);
    for (size_t i = 0; trainerstate_files[i]; i++)
        exporting_own(e, trainerstate_files[i]);
}

/* ---- writing ---- */

static int write_weights(struct exporting *e, struct err *err)
{
    struct trainer *x = e->own;
    char *path = fs_join_dup(e->out.partial, WEIGHTS);
    int fd = outdir_create(&e->out, WEIGHTS, err), ret = -1;

    if (fd >= 0)
        ret = fs_pwrite(fd, x->header.text.s, x->header.text.len, 0, path, err);
    for (size_t i = 0; i < e->ckpt->nweights && ret == 0; i++) {
        const struct exporting_place p = {
            .fd = fd, .path = path, .at = x->at[i], .dtype = type_of(e, i)
        };

        ret = exporting_copy(e, written(e, i), &p, NULL, err);
    }
    ret = exporting_close(e, &e->out, fd, path, ret, err);
    free(path);
    return ret;
}

/* Writes storage S of the optimizer, and what is before it. */
static int write_storage(struct exporting *e, size_t s, int fd, const char *path,
                         struct err *err)
{
    static const char *const role[STORAGES] = { [1] = "exp_avg", [2] = "exp_avg_sq" };
    struct trainer *x = e->own;
    struct torchsave_storage *to = &x->optimizer.storage[s];
    const struct exporting_place p = {
        .fd = fd, .path = path, .at = to->at, .dtype = DTYPE_F32
    };
    float step = (float)e->run.step;
    int ret;

    if (s % STORAGES) {
        long from = exporting_state(e, x->param[s / STORAGES], role[s % STORAGES]);

        ret = exporting_copy(e, (size_t)from, &p, &to->crc, err);
    } else {
        ret = fs_pwrite(fd, &step, sizeof(step), to->at, path, err);
        to->crc = hash_crc32(0, &step, sizeof(step));
    }
    return ret < 0 ? -1 : exporting_gap(&x->optimizer, s, fd, path, err);
}

static int write_optimizer(struct exporting *e, struct err *err)
{
    const char *name = trainerstate_files[TRAINERSTATE_OPTIMIZER];
    struct trainer *x = e->own;
    char *path = fs_join_dup(e->out.partial, name);
    int fd = outdir_create(&e->out, name, err), ret = fd < 0 ? -1 : 0;

    for (size_t s = 0; s < x->optimizer.n && ret == 0; s++)
        ret = write_storage(e, s, fd, path, err);
    if (ret == 0)
        ret = exporting_gap(&x->optimizer, x->optimizer.n, fd, path, err);
    ret = exporting_close(e, &e->out, fd, path, ret, err);
    free(path);
    return ret;
}

static void put_reals(struct str *s, const char *name, double value)
{
    pickler_text(s, name);
    pickler_begin_list(s);
    for (int g = 0; g < GROUPS; g++)
        pickler_real(s, value);
    pickler_end_list(s);
}

/* Writes the state of a LambdaLR, as all schedules of Trainer are that follow the step
 * alone; the functions are Trainer's own. */
static int write_schedule(struct exporting *e, struct err *err)
{
    const uint64_t at = e->run.done - e->run.overflows;
    struct torchsave t = { 0 };
    struct str *s = &t.pickle;
    int ret;

    pickler_begin(s, 2);
    pickler_begin_dict(s);
    put_reals(s, "base_lrs", e->run.first_lr);
    pickler_text(s, "last_epoch");
    pickler_count(s, at);
    pickler_text(s, "_step_count");
    pickler_count(s, at + 1);
    pickler_text(s, "_is_initial");
    pickler_bool(s, false);
    pickler_text(s, "_get_lr_called_within_step");
    pickler_bool(s, false);
    put_reals(s, "_last_lr", e->run.lr);
    pickler_text(s, "lr_lambdas");
    pickler_begin_list(s);
    for (int g = 0; g < GROUPS; g++)
        pickler_none(s);
    pickler_end_list(s);
    pickler_end_dict(s);
    pickler_end(s);
    ret = exporting_object(e, &e->out, trainerstate_files[TRAINERSTATE_SCHEDULER], &t,
                           err);
    torchsave_clear(&t);
    return ret;
}

/* Trainer goes on to log, save and evaluate as often as is said here; what is not has
 * its defaults, or its arguments. */
static int write_state(struct exporting *e, struct err *err)
{
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = { { "global_step", e->run.done },
                    { "max_steps", e->run.all },
                    { "logging_steps", 1 },
                    { "save_steps", e->run.save_every ? e->run.save_every : USUAL },
                    { "eval_steps", e->run.eval_every ? e->run.eval_every : USUAL },
                    { "train_batch_size", e->run.batch },
                    { "num_input_tokens_seen", e->run.tokens } };
    struct str s = { 0 };
    int ret;

    str_add(&s, "{\n");
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
        str_addf(&s, "  \"%s\": %" PRIu64 ",\n", numbers[i].name, numbers[i].value);
    str_add(&s, "  \"log_history\": []\n}\n");
    ret = outdir_write(&e->out, trainerstate_files[TRAINERSTATE_STATE], s.s, s.len,
                       checkpoint_mode(e->ckpt), err);
    str_clear(&s);
    return ret;
}

static int write_all(struct exporting *e, struct err *err)
{
    return write_weights(e, err) < 0 || write_optimizer(e, err) < 0 ||
                   write_schedule(e, err) < 0
               ? -1
               : write_state(e, err);
}

static void clear(struct exporting *e)
{
    struct trainer *x = e->own;

    if (!x)
        return;
    for (size_t i = 0; x->name && i < e->ckpt->nweights; i++)
        free(x->name[i]);
    free(x->name);
    free(x->at);
    free(x->param);
    model_free(x->modules);
    safetensors_header_clear(&x->header);
    torchsave_clear(&x->optimizer);
    free(x);
}

const struct export_form export_trainer_form = { .name = "trainer",
                                                 .states = true,
                                                 .plain = true,
                                                 .name_files = name_files,
                                                 .lay_out = lay_out,
                                                 .write = write_all,
                                                 .clear = clear };
