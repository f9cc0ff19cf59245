/* pass-types - which values are held in bf16 (--compute bf16)
 *
 * A value is bf16 if each instruction that reads it would round it to bf16 first, or
 * copies it to a value that is bf16, and if the kernels that make and read it take it
 * so.  Every other value stays f32: residual streams, statistics of norms, scores,
 * logits and losses have readers that do not round.  A number is rounded once, where it
 * is made instead of where it is read, so no result changes by a bit, on no mesh.
 *
 * Copies move bytes, so their results have the type of what they copy, or stay f32 with
 * it.  Which sources an operation rounds, and whether it copies, is in its row of the
 * table; only products by bf16 weights round.  It runs before fuse, whose operations
 * take what their parts take, and not on a program with a derivative. */
#include <stdlib.h>

#include "lib/base/mem.h"
#include "lib/program/pass.h"

static bool take(void *arg, const struct program *p, const struct inst *inst,
                 unsigned bf16)
{
    (void)arg;
    (void)p;
    (void)inst;
    (void)bf16;
    return true;
}

const struct program_types program_types_all = { .takes = take };

/* What is known of a value behind an instruction. */
struct readers {
    bool some; /* there are any, */
    bool wide; /* of which one needs f32 */
};

static bool asks(const struct builder *b, const struct inst *inst, unsigned bf16)
{
    const struct program_types *t = &b->opt->types;

    return !op_table[inst->op].on_device || t->takes(t->arg, b->p, inst, bf16);
}

/* May the result of INST be rounded as it is made?  Ranks that share a sequence merge
 * what they have of attention. */
static bool may_round(const struct builder *b, const struct inst *inst,
                      const struct readers *r)
{
    const struct value *v = &b->p->value[inst->dst];
    const bool merged =
        op_table[inst->op].role == ROLE_ATTENDS && b->p->mesh.size[MESH_SP] > 1;

    return r->some && !r->wide && v->dtype == DTYPE_F32 && !v->kept && !merged &&
           (op_table[inst->op].on_device || op_table[inst->op].copies);
}

/* Does INST, whose result has its type, read source K alike as f32 and as bf16? */
static bool reads_alike(const struct program *p, const struct inst *inst, int k)
{
    const struct op_info *op = &op_table[inst->op];

    return op->rounds >> k & 1 ||
           (op->copies && k == 0 && p->value[inst->dst].dtype == DTYPE_BF16);
}

int pass_types(struct builder *b)
{
    struct program *p = b->p;
    struct readers *of;

    if (!b->opt->rounded || b->opt->reverse || !b->opt->types.takes)
        return 0;
    of = xcalloc((size_t)p->nvalues + 1, sizeof(*of));
    for (int i = 0; i < p->noutputs; i++)
        of[p->output[i].value].wide = true;
    for (int i = 0; i < p->nexports; i++)
        of[p->export[i]].wide = true;
    /* all readers of a value come after its maker */
    for (int i = p->ninsts; i-- > 0;) {
        const struct inst *inst = &p->inst[i];

        if (may_round(b, inst, &of[inst->dst]) && asks(b, inst, BF16_RESULT))
            p->value[inst->dst].dtype = DTYPE_BF16;
        for (int k = 0; k < inst->nsrc; k++) {
            of[inst->src[k]].some = true;
            of[inst->src[k]].wide |=
                !reads_alike(p, inst, k) || !asks(b, inst, 1U << k);
        }
    }
    free(of);
    /* a copy of a value that others need in f32, and copies of that copy */
    for (int i = 0; i < p->ninsts; i++) {
        const struct inst *inst = &p->inst[i];

        if (op_table[inst->op].copies && p->value[inst->src[0]].dtype == DTYPE_F32 &&
            p->value[inst->dst].dtype == DTYPE_BF16)
            p->value[inst->dst].dtype = DTYPE_F32;
    }
    return 0;
}
