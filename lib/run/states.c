/* states - what sequences have of instructions with a state of fixed size */
#include "lib/run/states.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/run/replays.h"

int states_plan(struct states *s, const struct program *p, const struct backend *ops,
                size_t records, struct err *err)
{
    uint64_t all;

    *s = (struct states){ .program = p, .ops = ops, .records = records };
    for (int i = 0; i < p->ninsts; i++) {
        const struct op_info *op = &op_table[p->inst[i].op];
        struct states_slot one = { .inst = i };

        if (op->role != ROLE_STATE)
            continue;
        if (!mem_mul(&one.bytes, op->state(&p->inst[i]), sizeof(float)) ||
            !mem_mul(&all, one.bytes, records))
            return err_set(err, ERR_SYSTEM, "the size of the states overflows");
        s->v = xrealloc(s->v, sizeof(*s->v) * (size_t)(s->n + 1));
        s->v[s->n++] = one;
    }
    return 0;
}

uint64_t states_bytes(const struct states *s)
{
    uint64_t n = 0;

    for (int i = 0; i < s->n; i++)
        n += s->v[i].bytes * s->records;
    return n;
}

int states_open(struct states *s, struct device *device, struct err *err)
{
    s->device = device;
    for (int i = 0; i < s->n; i++) {
        if (!s->v[i].bytes)
            continue;
        s->v[i].memory =
            s->ops->alloc(device, s->v[i].bytes * s->records, "the states", err);
        if (!s->v[i].memory)
            return -1;
    }
    return 0;
}

void states_close(struct states *s)
{
    for (int i = 0; s->device && i < s->n; i++)
        s->ops->release(s->device, s->v[i].memory);
    free(s->v);
    *s = (struct states){ 0 };
}

int states_copy(struct states *s, size_t to, size_t from, struct err *err)
{
    for (int i = 0; i < s->n; i++) {
        const struct states_slot *v = &s->v[i];

        if (v->bytes && s->ops->copy(s->device, v->memory + to * v->bytes,
                                     v->memory + from * v->bytes, v->bytes, err) < 0)
            return -1;
    }
    return 0;
}

/* ---- a step ---- */

void states_begin(struct states *s, const struct states_segment *v, size_t n,
                  size_t room, struct upload *u)
{
    size_t saves = 0;

    if (!s->n)
        return;
    room = room > n ? room : n;
    for (size_t i = 0; i < n; i++)
        saves += v[i].nsaves;
    s->use_at = upload_add(u, NULL, room, sizeof(struct state_use));
    s->save_at = upload_add(u, NULL, saves, sizeof(struct state_save));
    s->view.n = room;
    saves = 0;
    for (size_t i = 0; i < n; i++) {
        struct state_use *use = (struct state_use *)upload_host(u, s->use_at) + i;
        struct state_save *save = (struct state_save *)upload_host(u, s->save_at);

        *use = (struct state_use){ .row = (int32_t)v[i].row,
                                   .rows = (int32_t)v[i].n,
                                   .record = (int32_t)v[i].sequence,
                                   .fresh = v[i].start == 0,
                                   .save = (int32_t)saves,
                                   .saves = (int32_t)v[i].nsaves };
        for (size_t k = 0; k < v[i].nsaves; k++) {
            assert((size_t)v[i].save[k].record < s->records);
            save[saves++] = (struct state_save){ (int32_t)v[i].row + v[i].save[k].row,
                                                 v[i].save[k].record };
        }
    }
}

void states_begin_most(const struct states *s, size_t n, struct upload *u)
{
    if (!s->n)
        return;
    upload_add(u, NULL, n, sizeof(struct state_use));
    upload_add(u, NULL, n * SAVES_MOST, sizeof(struct state_save));
}

void states_ready(struct states *s, const struct upload *u)
{
    s->view.use = upload_at(u, s->use_at);
    s->view.save = upload_at(u, s->save_at);
}

void states_shape(const struct states *s, struct shape *shape)
{
    if (s->n)
        shape_add(shape, &s->view, sizeof(s->view));
}

void states_aim(const struct states *s, struct call *call)
{
    int at = (int)(call->inst - s->program->inst), i = 0;

    while (s->v[i].inst != at)
        i++;
    call->state = s->view;
    call->state.memory = (float *)(void *)s->v[i].memory;
}
