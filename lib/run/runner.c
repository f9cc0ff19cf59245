/* runner - one rank ready to run: its program, weights and engine */
#include "lib/run/runner.h"

int runner_open(struct runner *r, struct checkpoint *c, const struct mesh *mesh,
                struct comm *comm, const struct program_options *options,
                const struct engine_limits *limits, struct err *err)
{
    struct engine_limits own = *limits;
    int coord[MESH_NAXES];

    *r = (struct runner){ 0 };
    mesh_coord(mesh, comm->rank, coord);
    if (program_build(&r->program, c->model, mesh, coord, options, err) < 0)
        goto fail;
    if (r->program->dynamic_rope)
        own.tokens = own.context;
    r->chunk = own.tokens;
    if (weights_open(&r->weights, c, r->program, err) < 0 ||
        engine_open(&r->engine, r->program, r->weights.matrix, comm, &own, err) < 0)
        goto fail;
    return 0;
fail:
    runner_close(r);
    return -1;
}

void runner_close(struct runner *r)
{
    engine_free(r->engine);
    weights_close(&r->weights);
    program_free(r->program);
    *r = (struct runner){ 0 };
}

int runner_feed(struct runner *r, const int32_t *ids, const int32_t *targets, size_t n,
                size_t start,
                void (*see)(void *arg, struct engine *e, size_t first, size_t count),
                void *arg, struct err *err)
{
    for (size_t at = 0; at < n; at += r->chunk) {
        size_t count = n - at < r->chunk ? n - at : r->chunk;
        int32_t last = (int32_t)count - 1;
        struct step s = { .ids = ids + at,
                          .targets = targets ? targets + at : NULL,
                          .n = count,
                          .start = start + at,
                          .wanted = &last,
                          .nwanted = at + count == n };

        if (engine_step(r->engine, &s, err) < 0)
            return -1;
        if (see)
            see(arg, r->engine, at, count);
    }
    return 0;
}
