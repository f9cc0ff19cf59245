/* foretold - the types of weights that a config.json alone tells of
 *
 * What is quantized are the modules that are linear: the matrices that only products
 * read, by rows, or by heads as in latent attention.  A router is none; transformers
 * and those who quantize keep it. */
#include "lib/estimate/foretold.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/model/stated.h"
#include "lib/program/program.h"

/* The product whose result INST chooses experts by; NULL: it does not. */
static const struct inst *router_of(const struct program *p, const int *made,
                                    const struct inst *inst)
{
    if (inst->op != OP_ROUTE)
        return NULL;
    while (inst && inst->op != OP_LINEAR)
        inst =
            inst->nsrc && made[inst->src[0]] ? &p->inst[made[inst->src[0]] - 1] : NULL;
    return inst;
}

/* Notes how INST, which makes no weight's numbers its own but by a product, reads. */
static void note(bool *linear, bool *other, const struct program *p,
                 const struct inst *inst)
{
    bool product = op_table[inst->op].traffic == TRAFFIC_PRODUCT;
    int n = 1;

    if (inst->weight2 >= 0)
        other[p->weight[inst->weight2].tensor] = true;
    if (inst->weight >= 0 && p->weight[inst->weight].experts)
        n = (int)p->weight[inst->weight].experts;
    for (int i = inst->weight; i >= 0 && i < inst->weight + n; i++) {
        other[p->weight[i].tensor] |= !product;
        linear[p->weight[i].tensor] |=
            inst->op == OP_LINEAR || inst->op == OP_HEAD_LINEAR;
    }
}

static void find_linear(bool *linear, bool *other, const struct program *p)
{
    int *made = xcalloc((size_t)p->nvalues + 1, sizeof(*made)); /* by instruction - 1 */

    for (int i = 0; i < p->ninsts; i++) {
        const struct inst *router = router_of(p, made, &p->inst[i]);

        made[p->inst[i].dst] = i + 1;
        note(linear, other, p, &p->inst[i]);
        if (router && router->weight >= 0)
            other[p->weight[router->weight].tensor] = true;
    }
    free(made);
}

/* *OUT = for each tensor of M, whether it is a module's matrix; the caller's. */
static int linear_new(bool **out, const struct model *m, struct err *err)
{
    const struct program_options options = { 0 };
    const int coord[MESH_NAXES] = { 0 };
    struct program *p;
    struct mesh one;
    bool *other;

    mesh_one(&one);
    if (program_build(&p, m, &one, coord, &options, err) < 0)
        return -1;
    *out = xcalloc(m->ntensors + 1, sizeof(**out));
    other = xcalloc(m->ntensors + 1, sizeof(*other));
    find_linear(*out, other, p);
    for (size_t t = 0; t < m->ntensors; t++)
        if (m->tensor[t].tied >= 0)
            other[m->tensor[t].tied] = other[t] = true;
    for (size_t t = 0; t < m->ntensors; t++)
        (*out)[t] &= !other[t];
    free(other);
    program_free(p);
    return 0;
}

int foretold_types(enum dtype **types, struct model *m, enum dtype plain,
                   struct err *err)
{
    struct stated s = { 0 };
    bool *linear;
    int ret = -1;

    *types = NULL;
    if (!stated_applies(m))
        return 0;
    if (linear_new(&linear, m, err) < 0)
        return -1;
    stated_make(&s, m, linear, plain);
    if (model_bind(m, s.in, s.n, NULL, 0, err) < 0)
        goto out;
    *types = xcalloc(s.n + 1, sizeof(**types));
    for (size_t i = 0; i < s.n; i++)
        (*types)[i] = s.in[i].dtype;
    ret = 0;
out:
    stated_clear(&s);
    free(linear);
    return ret;
}
