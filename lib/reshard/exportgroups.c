/* exportgroups - groups of parameters, as PyTorch's AdamW stores their settings */
#include "lib/reshard/exportgroups.h"

#include "lib/ckpt/pickler.h"

void exportgroups_begin(struct str *s, const struct exporting_run *r, double decay)
{
    static const char *const off[] = { "amsgrad", "maximize", "capturable",
                                       "differentiable" };
    static const char *const unset[] = { "foreach", "fused" };
    const struct {
        const char *name;
        double value;
    } reals[] = { { "lr", r->lr },
                  { "initial_lr", r->first_lr },
                  { "eps", r->eps },
                  { "weight_decay", decay } };

    pickler_begin_dict(s);
    for (size_t i = 0; i < sizeof(reals) / sizeof(*reals); i++) {
        pickler_text(s, reals[i].name);
        pickler_real(s, reals[i].value);
    }
    pickler_text(s, "betas");
    str_addc(s, '(');
    pickler_real(s, r->beta1);
    pickler_real(s, r->beta2);
    str_addc(s, 't');
    for (size_t i = 0; i < sizeof(off) / sizeof(*off); i++) {
        pickler_text(s, off[i]);
        pickler_bool(s, false);
    }
    for (size_t i = 0; i < sizeof(unset) / sizeof(*unset); i++) {
        pickler_text(s, unset[i]);
        pickler_none(s);
    }
    pickler_text(s, "decoupled_weight_decay");
    pickler_bool(s, true);
    pickler_text(s, "params");
}
