/* export - writes a checkpoint in the form of another framework */
#include "lib/reshard/export.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/ckpt/trainprogress.h"
#include "lib/model/decay.h"
#include "lib/reshard/exportforms.h"
#include "lib/reshard/pytorchgroups.h"
#include "lib/reshard/smallfile.h"

static const struct export_form *const forms[] = {
    &export_dcp_form,  &export_megatron_form, &export_zero_form,
    &export_gguf_form, &export_trainer_form,
};

const char *const export_names[] = { "dcp",  "megatron-dist", "deepspeed-universal",
                                     "gguf", "trainer",       NULL };

/* ---- small files ---- */

/* The type of weights, if it differs from what the config says; else NULL. */
static const enum dtype *new_type(const struct exporting *x)
{
    const struct checkpoint *c = x->ckpt;

    if (x->retype)
        return x->retype;
    if (x->opt->dtype || !c->sharded || !c->manifest.cast)
        return x->opt->dtype;
    for (size_t i = 0; i < c->nweights; i++)
        if (c->which[i] >= 0 && dtype_is_float(c->tensor[i].dtype) &&
            dtype_bits(c->tensor[i].dtype) >= 16)
            return &c->tensor[i].dtype;
    return NULL;
}

static int copy_small(struct exporting *x, struct err *err)
{
    const enum dtype *type = new_type(x);

    for (size_t i = 0; i < smallfile_count(x->ckpt); i++) {
        struct smallfile f;
        int ret;

        if (smallfile_read(&f, x->ckpt, i, err) < 0)
            return -1;
        if (type && !strcmp(f.name, "config.json"))
            smallfile_retype(&f, *type);
        ret = outdir_write(&x->out, f.name, f.text, f.n, f.mode, err);
        smallfile_clear(&f);
        if (ret < 0)
            return -1;
    }
    return 0;
}

static void own_small(struct exporting *x)
{
    for (size_t i = 0; i < smallfile_count(x->ckpt); i++)
        exporting_own(x, smallfile_name(x->ckpt, i));
}

/* ---- the training ---- */

/* Sets *to to the NAME of J, if it has one of at most MOST. */
static void read_count(uint64_t *to, const struct json *j, const char *name,
                       uint64_t most)
{
    uint64_t n;

    if (json_u64(json_get(j, name), &n) && n <= most)
        *to = n;
}

static void read_manifest(struct exporting_run *r, const struct checkpoint *c)
{
    struct json_doc doc;
    const struct json *o;

    if (!c->manifest.training || json_parse(&doc, "training", c->manifest.training,
                                            strlen(c->manifest.training), NULL) < 0)
        return;
    o = json_get(doc.root, "options");
    if (!json_u64(json_get(doc.root, "updates"), &r->step))
        r->step = 0;
    if (!json_u64(json_get(doc.root, "step"), &r->done))
        r->done = r->step;
    read_count(&r->overflows, doc.root, "overflows", r->done);
    read_count(&r->tokens, doc.root, "tokens", UINT64_MAX);
    read_count(&r->all, o, "steps", UINT64_MAX);
    read_count(&r->batch, o, "global_batch", UINT64_MAX);
    read_count(&r->save_every, o, "save_every", UINT64_MAX);
    read_count(&r->eval_every, o, "eval_every", UINT64_MAX);
    r->follows = json_get(doc.root, "schedule") != NULL;
    json_double(json_get(o, "lr"), &r->lr);
    r->first_lr = r->lr;
    json_double(json_get(doc.root, "rate"), &r->lr);
    json_double(json_get(o, "beta1"), &r->beta1);
    json_double(json_get(o, "beta2"), &r->beta2);
    json_double(json_get(o, "eps"), &r->eps);
    json_double(json_get(o, "weight_decay"), &r->decay);
    for (int k = 0; k < DECAY_KINDS; k++)
        if (json_string(json_get(o, "decays")) &&
            !strcmp(json_string(json_get(o, "decays")), decay_names[k]))
            r->decays = (enum decay_kind)k;
    json_clear(&doc);
}

static void take(double *to, double value)
{
    if (!isnan(value))
        *to = value;
}

/* The same of another trainer's checkpoint. */
static int read_progress(struct exporting_run *r, const struct checkpoint *c,
                         struct err *err)
{
    const struct progress *p = &c->source.progress;

    if (pytorchgroups_check(c, err) < 0)
        return -1;
    if (p->uneven)
        return err_set(err, ERR_NO,
                       "%s: some parameters have had more updates than others",
                       c->path);
    if (!(p->updates >= 0 && p->updates < 0x1p53) || p->updates != floor(p->updates))
        return err_set(err, ERR_INPUT,
                       "%s: does not say how many updates it has had; --weights-only "
                       "exports without the optimizer",
                       c->path);
    r->step = (uint64_t)p->updates;
    r->done = p->steps == UINT64_MAX ? r->step : p->steps;
    if (p->scheduled < r->done)
        r->overflows = r->done - p->scheduled;
    r->all = p->all;
    take(&r->lr, p->group->rate);
    r->first_lr = r->lr;
    take(&r->first_lr, p->group->first_rate);
    take(&r->beta1, p->group->beta1);
    take(&r->beta2, p->group->beta2);
    take(&r->eps, p->group->eps);
    if (!pytorchgroups_decay(&r->decays, &r->decay, c))
        return err_set(err, ERR_NO,
                       "%s: weights decay by different numbers, or others than two "
                       "groups can say",
                       c->path);
    if (isnan(r->decay))
        r->decay = 0;
    return 0;
}

/* Without moments there is nothing to say. */
static int read_run(struct exporting *x, struct err *err)
{
    const struct checkpoint *c = x->ckpt;

    x->run = (struct exporting_run){
        .lr = 1e-3, .first_lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8
    };
    if (c->sharded)
        read_manifest(&x->run, c);
    else if (x->form->states && c->model && c->source.progress.ngroups &&
             c->ntensors > c->nweights)
        return read_progress(&x->run, c, err);
    return 0;
}

/* Is tensor I of C, a state, an optimizer's, and no copy of a weight? */
static bool is_slot(const struct checkpoint *c, size_t i)
{
    const char *role = checkpoint_role(c, i);

    for (size_t k = 0; c->sharded && k < c->manifest.nstates; k++)
        if (!strcmp(c->manifest.state[k].role, role))
            return c->manifest.state[k].kind == MANIFEST_SLOT;
    return strcmp(role, "master") != 0 && strcmp(role, "param") != 0;
}

/* What the optimizer keeps must be what Adam keeps of a weight: both moments, with its
 * axes. */
static int check_moments(struct exporting *x, struct err *err)
{
    static const char *const roles[] = { "exp_avg", "exp_avg_sq" };
    const struct checkpoint *c = x->ckpt;

    for (size_t i = c->nweights; i < c->ntensors; i++) {
        const char *role = checkpoint_role(c, i);

        if (!is_slot(c, i))
            continue;
        if ((strcmp(role, roles[0]) != 0 && strcmp(role, roles[1]) != 0) ||
            (c->sharded && manifest_form_of(&c->manifest, role) != MANIFEST_LIKE))
            return err_set(err, ERR_NO,
                           "%s: tensor %s: state of an optimizer that is not Adam; "
                           "--weights-only exports without it",
                           c->path, c->tensor[i].name);
        x->states = true;
    }
    for (size_t i = 0; x->states && i < c->nweights; i++) {
        int alone = (exporting_state(x, i, roles[0]) >= 0) -
                    (exporting_state(x, i, roles[1]) >= 0);

        if (alone)
            return err_set(err, ERR_NO,
                           "%s: tensor %s: has %s without %s, as Adam's states are "
                           "not; --weights-only exports without it",
                           c->path, c->tensor[i].name, roles[alone < 0],
                           roles[alone > 0]);
    }
    return 0;
}

/* Weights in codes have scales beside them, which have no place in a plain form. */
static int check_plain(const struct exporting *x, struct err *err)
{
    const struct model *m = x->ckpt->model;
    struct model_packing p;

    for (size_t t = 0; m && x->form->plain && t < m->ntensors; t++)
        if (model_packing(m, t, &p))
            return err_set(err, ERR_NO,
                           "%s: tensor %s: quantized by %s, which %s cannot represent",
                           x->ckpt->path, m->tensor[t].name,
                           p.blocks                     ? "gguf"
                           : p.form == FORM_MXFP4       ? "mxfp4"
                           : model_quantized(m) != NULL ? model_quantized(m)
                                                        : "the family's form",
                           x->form->name);
    return 0;
}

static int read_config(struct exporting *x, struct err *err)
{
    const struct checkpoint *c = x->ckpt;
    const char *text = c->sharded ? c->manifest.config : c->source.config;

    return json_parse_config(&x->config, model_config_name(c->model), text,
                             strlen(text), err);
}

/* Says what of the training's state is not written without being asked for. */
static void note_left(struct exporting *x, bool weights_only)
{
    const struct checkpoint *c = x->ckpt;

    for (size_t s = 0; c->sharded && !c->averaged && s < c->manifest.nstates; s++) {
        if (c->manifest.state[s].kind == MANIFEST_AVERAGE)
            x->result->averages = true;
        else if (x->form->states && !x->states && !weights_only)
            x->result->masters |= !strcmp(c->manifest.state[s].role, "master");
    }
}

int export_checkpoint(struct checkpoint *ckpt, const char *path, int form,
                      bool weights_only, const struct convert_options *opt,
                      struct convert_result *result, struct err *err)
{
    struct exporting x = { .form = forms[form],
                           .ckpt = ckpt,
                           .opt = opt,
                           .result = result,
                           .out = { .dir = -1, .journal = -1 } };
    char *identity = str_dupf("export %s", x.form->name);
    int ret = -1;

    *result = (struct convert_result){ 0 };
    x.cut = cut_new();
    tensor_index_init(&x.index, ckpt->tensor, ckpt->ntensors);
    if (ckpt->model && read_config(&x, err) < 0)
        goto out;
    if (read_run(&x, err) < 0)
        goto out;
    x.decays = ckpt->model ? decay_new(ckpt->model, x.run.decays) : NULL;
    own_small(&x);
    for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++)
        forms[i]->name_files(&x); /* an earlier export in another form is ours, too */
    /* an average is of no state of the optimizer, and the masters are not its */
    if (check_plain(&x, err) < 0 || (x.form->states && !weights_only &&
                                     !ckpt->averaged && check_moments(&x, err) < 0))
        goto out;
    if (checkpoint_open_files(ckpt, -1, err) < 0 ||
        checkpoint_spares(ckpt, path, err) < 0 || x.form->lay_out(&x, err) < 0)
        goto out;
    if (opt->dry) {
        ret = outdir_check(path, opt->force, (const char *const *)x.ours, x.nours, err);
    } else {
        if (outdir_open(&x.out, path, identity, "", opt->force,
                        (const char *const *)x.ours, x.nours, err) < 0 ||
            x.form->write(&x, err) < 0 || copy_small(&x, err) < 0 ||
            checkpoint_unchanged(ckpt, err) < 0 || outdir_finish(&x.out, err) < 0)
            goto out;
        ret = 0;
    }
    result->bytes = x.total;
    note_left(&x, weights_only);
out:
    outdir_close(&x.out);
    x.form->clear(&x);
    cut_free(x.cut);
    free(x.decays);
    tensor_index_clear(&x.index);
    if (x.config.root)
        json_clear(&x.config);
    for (size_t i = 0; i < x.nours; i++)
        free(x.ours[i]);
    free(x.ours);
    free(identity);
    return ret;
}
