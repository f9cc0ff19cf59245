/* stated - the tensors that the files of a config would hold
 *
 * transformers leaves the head as it is, and what the config names; compressed-tensors
 * quantizes every "Linear" that it does not ignore, GPTQ the head if "lm_head" is
 * true. */
#include "lib/model/stated.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/model/quant.h"
#include "lib/model/state.h"

struct maker {
    struct stated *out;
    const struct model *m;
    struct str names;
    size_t *name, cap_name, cap_in, cap_sizes; /* offsets in names */
};

static bool has_family_form(const struct model *m)
{
    for (size_t i = 0; i < m->state->ndefs; i++)
        if (m->state->def[i].packs && m->state->def[i].count)
            return true;
    return false;
}

bool stated_applies(const struct model *m)
{
    const cJSON *groups = quant_setting(m, "config_groups");
    struct quant_part part[QUANT_MAX_COMPANIONS];
    struct str ignored = { 0 };
    struct err none = { 0 };
    bool replaced, known;

    if (!cJSON_IsObject(quant_setting(m, NULL)))
        return false;
    if (has_family_form(m))
        return true;
    if (groups && (!groups->child || groups->child->next))
        return false;
    known = quant_check_config(m, false, &none) == 0 &&
            quant_check_settings(m, &ignored, &none) == 0;
    str_clear(&ignored);
    for (size_t t = 0; t < m->ntensors && known; t++)
        if (m->tensor[t].ndim == 2 && quant_parts(m, t, part, &replaced))
            return true;
    return false;
}

static void add(struct maker *k, const char *name, size_t len, const char *suffix,
                enum dtype dtype, int ndim, const uint64_t *shape)
{
    struct stated *s = k->out;

    s->in = xgrow(s->in, &k->cap_in, s->n + 1, sizeof(*s->in));
    s->sizes =
        xgrow(s->sizes, &k->cap_sizes, (s->n + 1) * MODEL_MAX_DIMS, sizeof(*s->sizes));
    k->name = xgrow(k->name, &k->cap_name, s->n + 1, sizeof(*k->name));
    k->name[s->n] = k->names.len;
    str_addf(&k->names, "%.*s%s", (int)len, name, suffix);
    str_addc(&k->names, '\0');
    for (int i = 0; i < ndim; i++)
        s->sizes[s->n * MODEL_MAX_DIMS + (size_t)i] = shape[i];
    s->in[s->n++] = (struct model_input){ .dtype = dtype, .ndim = ndim };
}

/* True if M's method quantizes weight T. */
static bool is_quantized(const struct model *m, size_t t, const bool *linear)
{
    const struct model_tensor *it = &m->tensor[t];
    bool head = it->section < 0;

    return linear[t] && it->ndim == 2 && str_ends(it->name, ".weight") &&
           (!head || quant_setting(m, "config_groups") ||
            cJSON_IsTrue(quant_setting(m, "lm_head"))) &&
           !quant_excludes(m, it->name, NULL);
}

static void add_tensor(struct maker *k, size_t t, bool quantized, enum dtype plain)
{
    const struct model_tensor *it = &k->m->tensor[t];
    struct quant_part part[QUANT_MAX_COMPANIONS];
    uint64_t shape[MODEL_MAX_DIMS];
    size_t stem = strlen(it->name);
    bool replaced = false;
    int n = quantized ? quant_parts(k->m, t, part, &replaced) : 0;
    enum dtype own = k->m->state->def[it->kind].packs ? DTYPE_U8
                     : n                              ? quant_values(k->m)
                                                      : plain;

    for (int i = 0; i < it->ndim; i++)
        shape[i] = it->axis[i]->size;
    if (!replaced)
        add(k, it->name, stem, "", own, it->ndim, shape);
    stem -= n ? strlen("weight") : 0;
    for (int i = 0; i < n; i++)
        add(k, it->name, stem, part[i].suffix, part[i].plain ? plain : part[i].dtype,
            part[i].ndim, part[i].shape);
}

void stated_make(struct stated *out, const struct model *m, const bool *linear,
                 enum dtype plain)
{
    struct maker k = { .out = out, .m = m };
    bool family = has_family_form(m);

    *out = (struct stated){ 0 };
    for (size_t t = 0; t < m->ntensors; t++) {
        const struct tensor_def *d = &m->state->def[m->tensor[t].kind];

        if (m->tensor[t].tied < 0 && d->replaced_by < 0)
            add_tensor(&k, t, !family && is_quantized(m, t, linear), plain);
    }
    out->names = str_steal(&k.names);
    for (size_t i = 0; i < out->n; i++) {
        out->in[i].name = out->names + k.name[i];
        out->in[i].shape = out->sizes + i * MODEL_MAX_DIMS;
    }
    free(k.name);
}

void stated_clear(struct stated *s)
{
    free(s->in);
    free(s->names);
    free(s->sizes);
}
