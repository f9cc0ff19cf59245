/* megatronstates - an optimizer's state in Megatron-LM's legacy form */
#include "lib/ckpt/megatronstates.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/ckpt/form.h"
#include "lib/ckpt/numberedstate.h"
#include "lib/ckpt/pickle.h"

static const char DISTRIBUTED[] = "distrib_optim.pt";

struct reader {
    struct source *s;
    const struct tensor *w; /* the weights of the set */
    size_t n;
    int input; /* of the file */
    const char *path;
    uint64_t *read;
};

/* Adds the state V of WEIGHT in ROLE, a tensor of its own. */
static int add_tensor(struct reader *r, const struct tensor *weight, const char *role,
                      const struct pickled *v, struct err *err)
{
    struct tensor t;

    if (!pickled_is(v, PICKLED_TENSOR))
        return 0;
    if (pickle_tensor(&t, v, &r->s->pool, r->path, weight->name, err) < 0)
        return -1;
    t.input = r->input;
    t.file = weight->file;
    return form_add_state(r->s, &t, weight->name, role, *r->read, r->path, err);
}

/* ---- by number ---- */

/* The master of STATE in LISTS, one list a group; NULL: it has none.  A group has
 * masters of all its parameters or of none: those that are f32 are their own. */
static const struct pickled *find_master(const struct pickled *lists,
                                         const struct numberedstate *state)
{
    const struct pickled *group =
        pickled_is(lists, PICKLED_LIST) && state->group < lists->list.n
            ? lists->list.v[state->group]
            : NULL;

    return pickled_is(group, PICKLED_LIST) && group->list.n == state->of
               ? group->list.v[state->at]
               : NULL;
}

/* Adds the states in OPTIMIZER, PyTorch's, and the masters in LISTS. */
static int add_numbered(struct reader *r, const struct pickled *optimizer,
                        const struct pickled *lists, struct err *err)
{
    struct numberedstate *state;
    size_t n;
    int ret = 0;

    if (numberedstate_read(&state, &n, optimizer, r->w, r->n, r->path, err) < 0)
        return -1;
    for (size_t i = 0; i < n && ret == 0; i++) {
        const struct tensor *weight = &r->w[state[i].param];

        for (int k = 0; r->s->moments && k < NUMBEREDSTATE_NROLES && ret == 0; k++)
            ret = add_tensor(r, weight, numberedstate_roles[k],
                             pickled_get(state[i].state, numberedstate_roles[k]), err);
        if (r->s->masters && ret == 0)
            ret =
                add_tensor(r, weight, FORM_MASTER, find_master(lists, &state[i]), err);
    }
    free(state);
    return ret;
}

/* ---- flat vectors ---- */

/* Is the tensor NAME a buffer, which no optimizer has? */
static bool is_buffer(const char *name)
{
    return str_ends(name, ".expert_bias");
}

/* Adds the states of the weights in the flat vector V: the weights in reverse order,
 * each from a multiple of 64 elements on (Megatron Core's param_and_grad_buffer.py, of
 * one bucket). */
static int add_flat(struct reader *r, const char *role, const struct pickled *v,
                    struct err *err)
{
    struct tensor t;
    uint64_t at = 0;

    if (!pickled_is(v, PICKLED_TENSOR))
        return err_set(err, ERR_INPUT, "%s: no vector %s", r->path, role);
    if (pickle_tensor(&t, v, &r->s->pool, r->path, role, err) < 0)
        return -1;
    if (t.ndim != 1 || t.stride)
        return err_set(err, ERR_INPUT, "%s: %s is no flat vector", r->path, role);
    for (size_t i = r->n; i-- > 0;) {
        uint64_t elements = 1, start = (at + 63) / 64 * 64;
        struct tensor part = r->w[i];

        if (is_buffer(part.name))
            continue;
        for (int k = 0; k < part.ndim; k++) /* of a tensor that was read */
            elements *= part.shape[k];
        if (start > t.shape[0] || elements > t.shape[0] - start) {
            at = 0;
            break;
        }
        part.dtype = t.dtype;
        part.stride = NULL;
        part.input = r->input;
        part.offset = t.offset + start * ((uint64_t)dtype_bits(t.dtype) / 8);
        part.size = elements * ((uint64_t)dtype_bits(t.dtype) / 8);
        if (form_add_state(r->s, &part, r->w[i].name, role, *r->read, r->path, err) < 0)
            return -1;
        at = start + elements;
    }
    return at == t.shape[0]
               ? 0
               : err_set(err, ERR_INPUT,
                         "%s: %s has %" PRIu64 " elements, which are not those of the "
                         "weights in one bucket; moments in several are not read",
                         r->path, role, t.shape[0]);
}

/* Adds the states in V, {buffer: {types: {exp_avg, ...}}}, of one optimizer. */
static int add_buffers(struct reader *r, const struct pickled *v, struct err *err)
{
    const struct pickled *of = NULL;

    for (size_t i = 0; pickled_is(v, PICKLED_DICT) && i + 1 < v->list.n; i += 2) {
        const struct pickled *buffer = v->list.v[i + 1];

        if (!pickled_is(buffer, PICKLED_DICT))
            continue;
        if (of || buffer->list.n != 2 || !pickled_is(buffer->list.v[1], PICKLED_DICT))
            return err_set(err, ERR_INPUT,
                           "%s: an optimizer of several buffers, which are not read",
                           r->path);
        of = buffer->list.v[1];
    }
    for (int k = 0; r->s->moments && k < NUMBEREDSTATE_NROLES; k++)
        if (add_flat(r, numberedstate_roles[k], pickled_get(of, numberedstate_roles[k]),
                     err) < 0)
            return -1;
    return r->s->masters ? add_flat(r, FORM_MASTER, pickled_get(of, "param"), err) : 0;
}

/* ---- optimizers ---- */

/* Are the weights of OPTIMIZER experts'?  Its groups say so. */
static int set_of(const struct pickled *optimizer)
{
    const struct pickled *groups = pickled_is(optimizer, PICKLED_DICT)
                                       ? pickled_get(optimizer, "param_groups")
                                       : NULL;
    const struct pickled *first =
        pickled_is(groups, PICKLED_LIST) && groups->list.n ? groups->list.v[0] : NULL;
    const struct pickled *experts = pickled_is(first, PICKLED_DICT)
                                        ? pickled_get(first, "is_expert_parallel")
                                        : NULL;

    return pickled_is(experts, PICKLED_NUMBER) && experts->number ? MEGATRON_EXPERTS
                                                                  : MEGATRON_DENSE;
}

/* Member I of V, which is a list of optimizers or stands for the only one. */
static const struct pickled *member(const struct pickled *v, size_t i)
{
    return !pickled_is(v, PICKLED_LIST) ? v : i < v->list.n ? v->list.v[i] : NULL;
}

/* Reads distrib_optim.pt of RANK, unless V is read already; found: there is one. */
static int open_vectors(bool *found, struct pickle_values *v, struct reader *r,
                        const char *dir, const char *rank, struct err *err)
{
    char *name = fs_join_dup(rank, DISTRIBUTED), *path = fs_join_dup(dir, name);
    int fd = -1, ret = fs_find_in(found, dir, name, err);

    if (ret == 0 && *found) {
        ret = form_add_input(r->s, name, path, &r->input, &fd, err);
        r->path = ret == 0 ? r->s->input[r->input].path : NULL; /* lives as long as S */
        if (ret == 0)
            ret = pickle_values_read(v, fd, r->path, err);
        if (ret == 0) {
            if (v->archive)
                form_add_archive(r->s, r->input, 0, v->size);
            *r->read += unpickle_read(&v->m);
        }
    }
    if (fd >= 0)
        close(fd);
    free(name);
    free(path);
    return ret;
}

int megatron_add_states(struct source *s, const char *dir, const char *rank,
                        const struct pickled *root, const struct megatron_weights *w,
                        int input, uint64_t *read, const char *path, struct err *err)
{
    const struct pickled *all = pickled_get(root, "optimizer");
    size_t n = pickled_is(all, PICKLED_LIST) ? all->list.n : 1;
    struct reader vectors = { .s = s, .read = read };
    struct pickle_values v = { 0 };
    bool met[MEGATRON_NSETS] = { false }, found = false;
    int ret = 0;

    if (!all || all->kind == PICKLED_NONE)
        return 0;
    for (size_t i = 0; i < n && ret == 0; i++) {
        const struct pickled *of = member(all, i), *inner, *lists;
        struct reader r = { s, NULL, 0, input, path, read };
        int set;

        if (!pickled_is(of, PICKLED_DICT))
            continue;
        inner = pickled_get(of, "optimizer");
        lists = pickled_get(of, "fp32_from_fp16_params");
        inner = pickled_is(inner, PICKLED_DICT) ? inner : of;
        set = set_of(inner);
        if (met[set])
            ret = err_set(err, ERR_INPUT,
                          "%s: several optimizers of one set of weights, which are not "
                          "read",
                          path);
        met[set] = true;
        if (ret < 0 || !w[set].here)
            continue;
        r.w = vectors.w = w[set].t;
        r.n = vectors.n = w[set].n;
        if (pickled_is(pickled_get(inner, "state"), PICKLED_DICT)) {
            ret = add_numbered(&r, inner, lists, err);
            continue;
        }
        if (!v.root)
            ret = open_vectors(&found, &v, &vectors, dir, rank, err);
        if (ret == 0 && found && member(v.root, i)->kind != PICKLED_NONE)
            ret = add_buffers(&vectors, member(v.root, i), err);
    }
    pickle_values_clear(&v);
    return ret;
}
