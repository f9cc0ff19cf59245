/* runner - a rank that is ready to run: its program, weights and engine */
#include "lib/run/runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/run/adapternorm.h"
#include "lib/run/choice.h"

int runner_group_over(struct comm **out, struct comm *world, const struct mesh *mesh,
                      const int coord[MESH_NAXES], enum mesh_axis outer,
                      enum mesh_axis inner, struct err *err)
{
    const int many = outer == inner ? 1 : mesh->size[outer];
    int n = many * mesh->size[inner], at[MESH_NAXES], ret;
    int *member;

    if (n == 1) {
        *out = comm_self_open();
        return 0;
    }
    member = xcalloc((size_t)n, sizeof(*member));
    memcpy(at, coord, sizeof(at));
    for (int i = 0; i < n; i++) {
        if (outer != inner)
            at[outer] = i / mesh->size[inner];
        at[inner] = i % mesh->size[inner];
        member[i] = mesh_rank(mesh, at);
    }
    ret = world->ops->group(world, member, n, out, err);
    free(member);
    return ret;
}

int runner_group(struct comm **out, struct comm *world, const struct mesh *mesh,
                 const int coord[MESH_NAXES], enum mesh_axis axis, struct err *err)
{
    return runner_group_over(out, world, mesh, coord, axis, axis, err);
}

/* *NUMBER = the device of this rank: of those that are named, or that can be used, the
 * one of its index among the ranks of its machine. */
static int find_device(int *number, const struct backend *ops,
                       const struct runner_machine *machine, const struct comm *world,
                       struct err *err)
{
    int local = machine->local ? machine->local - 1 : world->rank;
    int count = ops->count ? ops->count() : 0, n = machine->ndevices;
    int *usable = NULL;

    *number = 0;
    if (!ops->count)
        return 0;
    if (machine->devices && local >= n && !machine->wires.shared)
        return err_set(err, ERR_USAGE,
                       "--devices names %d, and %d ranks of this machine need one each",
                       n, machine->ranks ? machine->ranks : world->size);
    if (!machine->devices) {
        usable = xcalloc((size_t)count + 1, sizeof(*usable));
        n = ops->usable(usable, machine->wires.shared ? count : local + 1);
    }
    if (n && (local < n || machine->wires.shared))
        *number = machine->devices ? machine->devices[local % n] : usable[local % n];
    else
        *number = -1;
    free(usable);
    if (*number < 0)
        return err_set(err, ERR_SYSTEM,
                       "--backend %s: %d devices can be used here, and this machine "
                       "has %d ranks or more: a rank needs one of its own",
                       ops->name, n, local + 1);
    if (*number >= count)
        return err_set(err, ERR_SYSTEM, "--devices %d: the last device here is %d",
                       *number, count - 1);
    return 0;
}

/* What a rank sees of devices. */
struct seen {
    char machine[64]; /* its boot's id */
    struct device_place place;
    int n;
};

static bool is_same_device(const struct seen *a, const struct seen *b)
{
    return a->n == 1 && b->n == 1 && !strcmp(a->machine, b->machine) &&
           !strcmp(a->place.bus, b->place.bus);
}

/* Another launcher may show each rank one device, its own (srun --gpus-per-task=1, pods
 * of Kubernetes): changes *M so that a rank takes it.  If it is the same for several
 * ranks (parts of a GPU, MPS) they share it. */
static int find_own_device(struct runner *r, struct runner_machine *m, struct err *err)
{
    struct seen mine = { 0 }, *all;
    char *boot = NULL;
    int ret;

    if (!m->local || m->devices || !r->ops->place || r->world->size == 1)
        return 0;
    mine.n = r->ops->count();
    if (mine.n == 1 && !r->ops->place(&mine.place, 0))
        mine.n = 0;
    if (fs_read_optional(&boot, NULL, "/proc/sys/kernel/random/boot_id",
                         sizeof(mine.machine) - 1, NULL) == 0 &&
        boot)
        snprintf(mine.machine, sizeof(mine.machine), "%s", boot);
    free(boot);
    all = xcalloc((size_t)r->world->size, sizeof(*all));
    ret = comm_run(r->world, comm_all_gather(&mine, all, sizeof(mine)), err);
    for (int i = 0; ret == 0 && i < r->world->size; i++)
        for (int k = 0; k < i; k++)
            r->shares |= is_same_device(&all[i], &all[k]);
    free(all);
    if (mine.n == 1)
        m->local = 1;
    m->wires.shared |= r->shares;
    return ret;
}

int runner_device(struct device **out, const struct backend *ops,
                  const struct runner_machine *machine, const struct comm *world,
                  struct err *err)
{
    int number;

    return find_device(&number, ops, machine, world, err) < 0
               ? -1
               : ops->open(out, machine->threads, number, err);
}

/* Opens the device, and the communicators between devices. */
static int open_device(struct runner *r, const struct runner_machine *machine,
                       struct err *err)
{
    struct runner_machine seen = *machine;
    struct comm *const all[] = { r->groups.tensor, r->groups.expert, r->groups.pipe };

    if (find_own_device(r, &seen, err) < 0 ||
        runner_device(&r->device, r->ops, &seen, r->world, err) < 0 ||
        wires_open(&r->wires, r->ops, r->device, &seen.wires, r->world, all,
                   sizeof(all) / sizeof(*all), err) < 0)
        return -1;
    r->groups.wires = &r->wires;
    return 0;
}

/* Finds what the rank will allocate, and whether the device has it, before anything is
 * loaded. */
static int plan(struct runner *r, struct checkpoint *c,
                const struct runner_machine *machine,
                const struct engine_limits *limits, enum weights_form form,
                struct err *err)
{
    enum format *stored = xcalloc((size_t)r->program->nweights + 1, sizeof(*stored));
    struct ledger list = { 0 };
    uint64_t weights = 0;
    int ret =
        r->ops->fits ? weights_survey(stored, &weights, c, r->program, form, err) : 0;

    if (ret == 0)
        ret = engine_plan(&r->engine, r->program, r->ops, machine->threads, stored,
                          &r->groups, limits, err);
    free(stored);
    if (ret < 0 || !r->ops->fits)
        return ret;
    ledger_add(&list, "weights", LEDGER_DEVICE, weights);
    engine_memory(r->engine, &list);
    engine_room(r->engine, r->device, &list);
    return r->ops->fits(r->device, ledger_sum(&list, LEDGER_DEVICE),
                        "the weights, the cache and a step of a rank", err);
}

void runner_memory(const struct runner *r, struct ledger *list)
{
    weights_memory(&r->weights, list);
    engine_memory(r->engine, list);
    r->ops->taken(r->device, list, NULL);
}

/* After each step. */
static int settle(void *arg, struct err *err)
{
    struct runner *r = arg;

    if (weights_settle(&r->weights, err) < 0)
        return -1;
    weights_step(&r->weights);
    return 0;
}

int runner_open(struct runner *r, struct checkpoint *c, const struct mesh *mesh,
                const struct runner_machine *machine, struct comm *world,
                const struct program_options *options,
                const struct engine_limits *limits, struct err *err)
{
    struct engine_limits own = *limits;
    struct program_options own_options = *options;
    enum weights_form form;
    struct choice_need need = { .checkpoint = c,
                                .form = machine->form,
                                .kept = machine->kept };
    struct choice_builder asked = { .need = need };
    int coord[MESH_NAXES];

    own.kept = machine->kept;
    mesh_coord(mesh, world->rank, coord);
    *r = (struct runner){ .world = world,
                          .stage = coord[MESH_PP],
                          .nstages = mesh->size[MESH_PP],
                          .replica =
                              coord[MESH_DP] * mesh->size[MESH_EP] + coord[MESH_EP],
                          .nreplicas = mesh->size[MESH_DP] * mesh->size[MESH_EP],
                          .groups.across =
                              machine->across ? machine->across : mesh->size[MESH_SP] };
    r->ops = machine->ops ? machine->ops : backend_find(NULL, err);
    if (!r->ops)
        return -1;
    asked.backend = r->ops;
    own_options.types = (struct program_types){ .takes = choice_takes, .arg = &asked };
    if (!machine->unfused)
        own_options.fuse =
            (struct program_fuse){ .takes = choice_fuses, .arg = &asked };
    if (runner_group(&r->groups.tensor, world, mesh, coord, MESH_TP, err) < 0 ||
        runner_group(&r->groups.sequence, world, mesh, coord, MESH_SP, err) < 0 ||
        runner_group(&r->groups.expert, world, mesh, coord, MESH_EP, err) < 0 ||
        runner_group(&r->groups.pipe, world, mesh, coord, MESH_PP, err) < 0 ||
        program_build(&r->program, c->model, mesh, coord, &own_options, err) < 0)
        goto fail;
    free(asked.held);
    asked.held = NULL;
    r->chunk = limits->tokens;
    need.program = r->program;
    if (choice_supports(r->ops, &need, &form, err) < 0 ||
        open_device(r, machine, err) < 0 || plan(r, c, machine, &own, form, err) < 0 ||
        weights_open(&r->weights, c, r->program, r->ops, r->device, form,
                     r->groups.tensor, machine->threads, err) < 0 ||
        adapternorm_make(&(struct adapternorm){ .program = r->program,
                                                .ops = r->ops,
                                                .device = r->device,
                                                .matrix = r->weights.matrix,
                                                .tensor = r->groups.tensor,
                                                .threads = machine->threads },
                         err) < 0 ||
        engine_start(r->engine, r->device, r->weights.matrix, err) < 0)
        goto fail;
    /* what one rank finds wrong in its first step the others may have told by then */
    if (world->size > 1 && weights_settle(&r->weights, err) < 0)
        goto fail;
    weights_plan(&r->weights, r->program, machine->steps,
                 machine->ranks ? machine->ranks : world->size);
    engine_settle(r->engine, settle, r);
    return 0;
fail:
    free(asked.held);
    runner_close(r);
    return -1;
}

int runner_finish(struct runner *r, int ret, struct err *err)
{
    return ret < 0 || weights_settle(&r->weights, err) < 0
               ? -1
               : wires_finish(&r->wires, err);
}

void runner_close(struct runner *r)
{
    wires_close(&r->wires);
    engine_free(r->engine);
    weights_close(&r->weights);
    if (r->device)
        r->ops->close(r->device);
    program_free(r->program);
    for (size_t i = 0; i < 4; i++) {
        struct comm *c = i == 0   ? r->groups.pipe
                         : i == 1 ? r->groups.expert
                         : i == 2 ? r->groups.sequence
                                  : r->groups.tensor;

        if (c)
            c->ops->close(c);
    }
    *r = (struct runner){ 0 };
}

/* ---- outputs ---- */

bool runner_keeps_step(const struct runner *r)
{
    return r->groups.expert->size > 1;
}

bool runner_is_last(const struct runner *r)
{
    return r->stage == r->nstages - 1;
}

/* The world rank that sends the outputs of STAGE of REPLICA, and hears the driver. */
static int speaker(const struct runner *r, int replica, int stage)
{
    int ep = r->program->mesh.size[MESH_EP];
    int coord[MESH_NAXES] = {
        [MESH_EP] = replica % ep, [MESH_DP] = replica / ep, [MESH_PP] = stage
    };

    return mesh_rank(&r->program->mesh, coord);
}

int runner_send(struct runner *r, int stage, const void *buf, size_t bytes,
                struct err *err)
{
    int from = speaker(r, r->replica, stage);

    if (from == 0 || from != r->world->rank)
        return 0;
    return r->world->ops->send(r->world, buf, bytes, 0, err);
}

int runner_receive(struct runner *r, int replica, int stage, void *buf, size_t bytes,
                   struct err *err)
{
    int from = speaker(r, replica, stage);

    if (from == 0 || r->world->rank != 0)
        return 0;
    return r->world->ops->receive(r->world, buf, bytes, from, err);
}

int runner_send_down(struct runner *r, int replica, int stage, const void *buf,
                     size_t bytes, struct err *err)
{
    int to = speaker(r, replica, stage);

    if (to == 0 || r->world->rank != 0)
        return 0;
    return r->world->ops->send(r->world, buf, bytes, to, err);
}
