/* packable - the weights that only products read */
#include "lib/program/packable.h"

#include <stdlib.h>

#include "lib/base/mem.h"
#include "lib/program/program.h"

/* Notes that INST reads the tensor of weight I in the way HOW. */
static void note(enum packable *of, bool *other, const struct program *p, int i,
                 enum packable how)
{
    size_t t = p->weight[i].tensor;

    if (p->weight[i].adapter)
        return; /* a matrix beside the tensor */
    other[t] |= how == PACKABLE_NOT || (of[t] != PACKABLE_NOT && of[t] != how);
    of[t] = how;
}

static void note_all(enum packable *of, bool *other, const struct program *p)
{
    for (int k = 0; k < p->ninsts; k++) {
        const struct inst *inst = &p->inst[k];
        enum packable how = inst->op == OP_LINEAR   ? PACKABLE_ROWS
                            : inst->op == OP_MATMUL ? PACKABLE_COLS
                                                    : PACKABLE_NOT;
        int n = 1;

        if (inst->weight >= 0 && p->weight[inst->weight].experts)
            n = (int)p->weight[inst->weight].experts;
        for (int i = inst->weight; i >= 0 && i < inst->weight + n; i++)
            note(of, other, p, i, how);
        if (inst->weight2 >= 0)
            note(of, other, p, inst->weight2, PACKABLE_NOT);
    }
}

enum packable *packable_new(const struct model *m, struct err *err)
{
    const struct mesh one = { .size = { 1, 1, 1, 1, 1 }, .nranks = 1 };
    const int coord[MESH_NAXES] = { 0 };
    const struct program_options options = { 0 };
    struct program *p;
    enum packable *of;
    bool *other;

    if (program_build(&p, m, &one, coord, &options, err) < 0)
        return NULL;
    of = xcalloc(m->ntensors + 1, sizeof(*of));
    other = xcalloc(m->ntensors + 1, sizeof(*other));
    note_all(of, other, p);
    for (size_t t = 0; t < m->ntensors; t++)
        if (m->tensor[t].tied >= 0)
            other[m->tensor[t].tied] = other[t] = true;
    for (size_t t = 0; t < m->ntensors; t++)
        if (other[t])
            of[t] = PACKABLE_NOT;
    free(other);
    program_free(p);
    return of;
}
