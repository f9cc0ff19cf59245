/* exportdcp - torch.distributed.checkpoint, as FSDP2 and torchtitan load it
 *
 * Weights have their own names, at the top.  An optimizer is below "optimizer", as
 * torch's get_optimizer_state_dict gives it: state.NAME.exp_avg, exp_avg_sq and step,
 * and param_groups, which are written twice: by number, those that decay and those that
 * do not, and, as with flatten_optimizer_state_dict, by name.  Weights that were
 * trained are then their f32 masters.  Facts: PyTorch 2.13,
 * torch/distributed/checkpoint/state_dict.py. */
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/ckpt/pickler.h"
#include "lib/reshard/exportforms.h"
#include "lib/reshard/exportitems.h"

static const char OPTIMIZER[] = "optimizer";

/* ---- groups of parameters ---- */

struct setting {
    const char *name;
    enum { RATE, FIRST, BETAS, EPS, DECAY, NO, YES, UNSET } what;
};

/* What AdamW has of a group. */
static const struct setting settings[] = {
    { "lr", RATE },
    { "betas", BETAS },
    { "eps", EPS },
    { "weight_decay", DECAY },
    { "amsgrad", NO },
    { "maximize", NO },
    { "foreach", UNSET },
    { "capturable", NO },
    { "differentiable", NO },
    { "fused", UNSET },
    { "decoupled_weight_decay", YES },
    { "initial_lr", FIRST },
};

enum { NSETTINGS = sizeof(settings) / sizeof(*settings) };

static void put_setting(struct str *s, const struct exporting_run *r,
                        const struct setting *k, bool undecayed)
{
    pickler_begin(s, 2);
    switch (k->what) {
    case RATE:
        pickler_real(s, r->lr);
        break;
    case FIRST:
        pickler_real(s, r->first_lr);
        break;
    case BETAS:
        str_addc(s, '(');
        pickler_real(s, r->beta1);
        pickler_real(s, r->beta2);
        str_addc(s, 't');
        break;
    case EPS:
        pickler_real(s, r->eps);
        break;
    case DECAY:
        pickler_real(s, undecayed ? 0 : r->decay);
        break;
    case UNSET:
        pickler_none(s);
        break;
    default:
        pickler_bool(s, k->what == YES);
    }
    pickler_end(s);
}

/* Adds the settings of a group of the key KEY, which follows param_groups. */
static void add_settings(struct exportitems *x, const struct exporting *e,
                         const char *key, bool undecayed, bool flat)
{
    for (int k = 0; k < NSETTINGS; k++) {
        struct str value = { 0 };
        char *joined = str_dupf("param_groups.%s.%s", key, settings[k].name);
        const char *const by_name[] = { OPTIMIZER, joined };
        const char *const by_number[] = { OPTIMIZER, "param_groups", key,
                                          settings[k].name };

        put_setting(&value, &e->run, &settings[k], undecayed);
        exportitems_object(x, flat ? by_name : by_number, flat ? 2 : 4, &value);
        free(joined);
    }
}

/* Adds group NUMBER: of the weights with moments those that do not decay, or the
 * others. */
static void add_group(struct exportitems *x, const struct exporting *e,
                      const char *number, bool undecayed)
{
    const char *const key[] = { OPTIMIZER, "param_groups", number, "params" };
    struct str names = { 0 };

    pickler_begin(&names, 2);
    pickler_begin_list(&names);
    for (size_t i = 0; i < e->ckpt->nweights; i++)
        if (exporting_state(e, i, "exp_avg") >= 0 &&
            exporting_undecayed(e, i) == undecayed)
            pickler_text(&names, e->ckpt->tensor[i].name);
    pickler_end_list(&names);
    pickler_end(&names);
    add_settings(x, e, number, undecayed, false);
    exportitems_object(x, key, 4, &names);
}

/* ---- tensors ---- */

static void add_moments(struct exportitems *x, const struct exporting *e, size_t i)
{
    static const char *const roles[] = { "exp_avg", "exp_avg_sq" };
    const struct tensor *t = &e->ckpt->tensor[i];

    for (int k = 0; k < 2; k++) {
        const char *const key[] = { OPTIMIZER, "state", t->name, roles[k] };
        long from = exporting_state(e, i, roles[k]);

        if (from >= 0)
            exportitems_copy(
                x, exportitems_tensor(x, key, 4, DTYPE_F32, t->ndim, t->shape),
                (size_t)from, NULL, NULL);
    }
    if (exporting_state(e, i, roles[0]) >= 0) {
        const char *const key[] = { OPTIMIZER, "state", t->name, "step" };

        exportitems_number(x, key, 4, (float)e->run.step);
        add_settings(x, e, t->name, exporting_undecayed(e, i), true);
    }
}

static int lay_out(struct exporting *e, struct err *err)
{
    const struct checkpoint *c = e->ckpt;
    struct exportitems *x = e->own = xcalloc(1, sizeof(*x));

    for (size_t i = 0; i < c->nweights; i++) {
        const struct tensor *t = &c->tensor[i];
        long master = exporting_state(e, i, "master");
        enum dtype type = master < 0 || e->opt->dtype ? exporting_type(e, i)
                                                      : c->tensor[master].dtype;

        exportitems_copy(x, exportitems_tensor(x, &t->name, 1, type, t->ndim, t->shape),
                         master < 0 ? i : (size_t)master, NULL, NULL);
    }
    for (size_t i = 0; e->states && i < c->nweights; i++)
        add_moments(x, e, i);
    if (e->states) {
        add_group(x, e, "#0", false);
        add_group(x, e, "#1", true);
    }
    return exportitems_place(x, e, err);
}

static void name_files(struct exporting *e)
{
    exporting_own(e, DCP_METADATA);
    exporting_own(e, DCP_ITEMS);
}

static int write_all(struct exporting *e, struct err *err)
{
    return exportitems_write(e->own, e, err);
}

static void clear(struct exporting *e)
{
    if (e->own)
        exportitems_clear(e->own);
    free(e->own);
}

const struct export_form export_dcp_form = { .name = "dcp",
                                             .states = true,
                                             .name_files = name_files,
                                             .lay_out = lay_out,
                                             .write = write_all,
                                             .clear = clear };
