/* mesh - the grid of ranks: pipeline x data x expert x sequence x tensor */
#include "lib/model/mesh.h"

#include <string.h>

#include "lib/base/str.h"

const char *const mesh_axis_names[MESH_NAXES + 1] = {
    "tp", "sp", "ep", "dp", "pp", NULL
};

void mesh_one(struct mesh *m)
{
    for (int a = 0; a < MESH_NAXES; a++)
        m->size[a] = 1;
    m->nranks = 1;
    m->stages = NULL;
    m->pad_vocab = 0;
    m->keep_vocab = false;
}

int mesh_set(struct mesh *m, const int size[MESH_NAXES], const struct mesh *base,
             struct err *err)
{
    struct mesh out;
    int64_t nranks = 1;

    for (int a = 0; a < MESH_NAXES; a++) {
        out.size[a] = size[a] ? size[a] : base ? base->size[a] : 1;
        if (out.size[a] < 1 || out.size[a] > 1 << 20)
            return err_set(err, ERR_USAGE, "%s %d: not between 1 and %d",
                           mesh_axis_names[a], out.size[a], 1 << 20);
        nranks *= out.size[a];
        if (nranks > 1 << 30)
            return err_set(err, ERR_USAGE, "the mesh has more than %d ranks", 1 << 30);
    }
    out.nranks = (int)nranks;
    out.stages = base && base->size[MESH_PP] == out.size[MESH_PP] ? base->stages : NULL;
    out.pad_vocab = base ? base->pad_vocab : 0;
    out.keep_vocab = false;
    *m = out;
    return 0;
}

void mesh_stage(const struct mesh *m, int nlayers, int stage, int *first, int *count)
{
    int each = nlayers / m->size[MESH_PP], more = nlayers % m->size[MESH_PP];

    if (!m->stages) {
        *first = each * stage + (stage < more ? stage : more);
        *count = each + (stage < more);
        return;
    }
    *first = 0;
    for (int s = 0; s < stage; s++)
        *first += m->stages[s];
    *count = m->stages[stage];
}

static int find_axis(const char *name, size_t len)
{
    for (int a = 0; a < MESH_NAXES; a++)
        if (strlen(mesh_axis_names[a]) == len &&
            !strncmp(mesh_axis_names[a], name, len))
            return a;
    return -1;
}

int mesh_parse(int size[MESH_NAXES], const char *spec, struct err *err)
{
    int out[MESH_NAXES];
    bool seen[MESH_NAXES] = { false };

    memcpy(out, size, sizeof(out));
    for (const char *p = spec; *p;) {
        size_t len = strcspn(p, ",");
        size_t name = strcspn(p, "=,");
        int axis = find_axis(p, name);
        char number[16];

        if (axis < 0)
            return err_set(err, ERR_USAGE,
                           "mesh '%s': '%.*s' is no axis (tp sp ep dp pp)", spec,
                           (int)name, p);
        if (seen[axis])
            return err_set(err, ERR_USAGE, "mesh '%s': %s is given twice", spec,
                           mesh_axis_names[axis]);
        if (name == len || len - name - 1 >= sizeof(number) || len == name + 1)
            return err_set(err, ERR_USAGE, "mesh '%s': expected %s=N", spec,
                           mesh_axis_names[axis]);
        memcpy(number, p + name + 1, len - name - 1);
        number[len - name - 1] = '\0';
        if (!str_int(number, &out[axis]) || out[axis] < 1)
            return err_set(err, ERR_USAGE, "mesh '%s': '%s' is not a size", spec,
                           number);
        seen[axis] = true;
        p += len + (p[len] == ',');
    }
    memcpy(size, out, sizeof(out));
    return 0;
}

void mesh_coord(const struct mesh *m, int rank, int coord[MESH_NAXES])
{
    for (int a = 0; a < MESH_NAXES; a++) {
        coord[a] = rank % m->size[a];
        rank /= m->size[a];
    }
}

int mesh_rank(const struct mesh *m, const int coord[MESH_NAXES])
{
    int rank = 0;

    for (int a = MESH_NAXES - 1; a >= 0; a--)
        rank = rank * m->size[a] + coord[a];
    return rank;
}
