/* meshopt - the options that name a mesh, the same in every program */
#include "cmd/meshopt.h"

#include <string.h>

#include "lib/base/str.h"

int mesh_from_options(struct mesh *out, const struct mesh_options *m,
                      const struct mesh *base, struct err *err)
{
    int given[MESH_NAXES] = { [MESH_TP] = m->tp,
                              [MESH_SP] = m->sp,
                              [MESH_EP] = m->ep,
                              [MESH_DP] = m->dp,
                              [MESH_PP] = m->pp };
    int size[MESH_NAXES] = { 0 };

    if (m->spec && mesh_parse(size, m->spec, err) < 0)
        return err_prefix(err, "--mesh");
    for (int a = 0; a < MESH_NAXES; a++) {
        if (given[a] && size[a] && given[a] != size[a])
            return err_set(err, ERR_USAGE, "--%s %d contradicts --mesh",
                           mesh_axis_names[a], given[a]);
        if (given[a])
            size[a] = given[a];
    }
    if (mesh_set(out, size, base, err) < 0)
        return -1;
    if (m->pad_given)
        out->pad_vocab = (uint64_t)m->pad_vocab;
    if (m->keep_vocab && m->pad_given && m->pad_vocab)
        return err_set(err, ERR_USAGE, "--keep-vocab contradicts --pad-vocab");
    out->keep_vocab = m->keep_vocab;
    if (m->keep_vocab)
        out->pad_vocab = 0;
    return 0;
}

int mesh_parse_sp_mode(int *across, const char *mode, int sp, struct err *err)
{
    static const char both[] = "ulysses=";
    uint64_t n;

    if (!mode || !strcmp(mode, "ulysses"))
        *across = sp;
    else if (!strcmp(mode, "ring"))
        *across = 1;
    else if (strncmp(mode, both, strlen(both)) != 0 ||
             !str_u64(mode + strlen(both), &n) || n == 0)
        return err_set(err, ERR_USAGE,
                       "--sp-mode: expected ulysses, ring or ulysses=N, not '%s'",
                       mode);
    else if (n > (uint64_t)sp || (uint64_t)sp % n)
        return err_set(err, ERR_USAGE,
                       "--sp-mode %s: sp is %d, which is not a multiple", mode, sp);
    else
        *across = (int)n;
    if (mode && sp == 1)
        return err_set(err, ERR_USAGE,
                       "--sp-mode %s: no ranks share a sequence: give --sp as well",
                       mode);
    return 0;
}
