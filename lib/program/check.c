/* check - checks of a family file */
#include "lib/program/check.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/model/names.h"
#include "lib/model/partconfig.h"
#include "lib/program/program.h"

/* Symbols, tensors and rotary tables share one name space. */
static int check_names(const struct family *f, struct err *err)
{
    const struct family_table *tables[] = { &f->symbols, &f->tensors, &f->rope };

    for (int a = 0; a < 3; a++)
        for (int b = a + 1; b < 3; b++)
            for (size_t i = 0; i < tables[a]->n; i++) {
                const struct family_entry *e =
                    family_get(tables[b], tables[a]->v[i].key);

                if (e)
                    return family_error(e->doc, e->json, 0, err,
                                        "'%s' means two things", e->key);
            }
    return 0;
}

static void print_shape(struct str *out, const struct model_tensor *t,
                        const struct slice *slice)
{
    str_addc(out, '[');
    for (int k = 0; k < t->ndim; k++)
        str_addf(
            out, "%s%llu", k ? ", " : "",
            (unsigned long long)(slice ? slice->runs[k]->count : t->axis[k]->size));
    str_addc(out, ']');
}

/* Adds "wq  model.layers.0...  [heads*head_dim, hidden] = [64, 64]: [32, 64] [32,
 * 64]" */
static void report_tensor(struct str *out, const struct model *m, size_t i,
                          struct cutter *const part[2])
{
    const struct model_tensor *t = &m->tensor[i];
    struct slice slice;

    str_addf(out, "%-10s %s [", t->key, model_kind(m, t->kind).pattern);
    for (int k = 0; k < t->ndim; k++)
        str_addf(out, "%s%s", k ? ", " : "", t->axis[k]->text);
    str_add(out, "] = ");
    print_shape(out, t, NULL);
    str_addc(out, ':');
    for (int p = 0; p < 2; p++) {
        str_addc(out, ' ');
        cutter_slice(part[p], i, &slice);
        print_shape(out, t, &slice);
        if (!slice.cut) {
            str_add(out, " on both");
            break;
        }
    }
    str_addc(out, '\n');
}

static int report_tensors(struct str *out, const struct model *m,
                          const struct mesh *mesh, struct err *err)
{
    struct cutter *part[2] = { NULL, NULL };
    int ret = -1;

    for (int p = 0; p < 2; p++)
        if (cutter_open(&part[p], m, mesh, (int[MESH_NAXES]){ p }, err) < 0)
            goto out;
    for (size_t i = 0; i < model_kinds(m); i++)
        report_tensor(out, m, model_kind(m, (int)i).first, part);
    ret = 0;
out:
    cutter_free(part[0]);
    cutter_free(part[1]);
    return ret;
}

/* Builds the programs of all ranks: every line must have a type and a placement. */
static int check_programs(const struct model *m, const struct mesh *mesh,
                          struct err *err)
{
    static const struct program_options options[] = {
        { .tail = TAIL_NONE },
        { .tail = TAIL_NONE, .trace = true },
        { .tail = TAIL_NONE, .training = true },
    };

    for (int r = 0; r < mesh->nranks; r++)
        for (size_t i = 0; i < sizeof(options) / sizeof(*options); i++) {
            struct program *p;
            int coord[MESH_NAXES];

            mesh_coord(mesh, r, coord);
            if (program_build(&p, m, mesh, coord, &options[i], err) < 0)
                return -1;
            program_free(p);
        }
    return 0;
}

/* False for a family without lines: its checkpoints can be sharded, but not run. */
static bool is_run(const struct model *m)
{
    const struct family *f = model_family(m);

    for (size_t i = 0; i < f->nsections; i++)
        if (f->section[i].n)
            return true;
    return false;
}

static int check_read(const struct model *m, struct err *err)
{
    for (size_t i = 0; i < model_kinds(m); i++) {
        struct model_kind kind = model_kind(m, (int)i);

        if (!kind.read_by && !kind.tied)
            return family_error(kind.entry->doc, kind.entry->json, 0, err,
                                "no line reads '%s'", kind.entry->key);
    }
    return 0;
}

int model_check_lines(const struct model *m, struct err *err)
{
    struct mesh mesh;

    mesh_one(&mesh);
    return is_run(m) ? check_programs(m, &mesh, err) : 0;
}

/* A manifest stores the family, with all that it extends, as one text: opens that. */
static int check_flat(const struct model *m, const char *config, struct err *err)
{
    struct model *flat;

    if (model_open_flat(&flat, m->family, config, model_family_text(m), err) < 0)
        return -1;
    model_free(flat);
    return 0;
}

int family_check(struct str *report, struct family *f,
                 int (*also)(const struct model *m, struct err *err), struct err *err)
{
    struct str config = { 0 };
    struct model *m = NULL;
    struct mesh mesh;
    int ret = -1;

    if (check_names(f, err) < 0 || !f->example) {
        if (!f->example)
            err_set(err, ERR_INPUT, "family %s: no \"example\" to check it with",
                    f->name);
        family_free(f);
        return -1;
    }
    json_print(&config, f->example);
    if (model_open_family(&m, f->name, str_text(&config), f, err) < 0)
        goto out;
    if (partconfig_check(m, err) < 0 || names_check(m, err) < 0 || also(m, err) < 0 ||
        model_check_lines(m, err) < 0 || (is_run(m) && check_read(m, err) < 0))
        goto out;
    mesh_one(&mesh);
    mesh.size[MESH_TP] = mesh.nranks = 2;
    if ((is_run(m) && check_programs(m, &mesh, err) < 0) ||
        check_flat(m, str_text(&config), err) < 0 ||
        report_tensors(report, m, &mesh, err) < 0)
        goto out;
    ret = 0;
out:
    model_free(m);
    str_clear(&config);
    return ret;
}
