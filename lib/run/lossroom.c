/* lossroom - memory of the host for a loss that is made of what a program puts out */
#include "lib/run/lossroom.h"

uint64_t lossroom_numbers(const struct program *p, enum lossroom how, uint64_t tokens,
                          uint64_t segments, int size, int rank, uint64_t own)
{
    const struct program_output *o = &p->output[0];
    const struct value *v = &p->value[o->value];
    const bool texts = v->rows == ROWS_ONE, shared = size > 1 && !texts;
    const uint64_t rows = texts ? segments : shared && rank ? 0 : tokens;
    uint64_t cols = how == LOSSROOM_TOKEN ? 1 : v->whole_cols;

    if (how == LOSSROOM_NONE || o->stage != p->coord[MESH_PP])
        return 0;
    return rows * cols + (how == LOSSROOM_TEXT && rows ? 2 * segments * cols : 0) +
           (shared ? own * cols : 0);
}
