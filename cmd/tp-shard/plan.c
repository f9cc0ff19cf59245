/* plan - prints the shards that each rank would store */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/picture.h"
#include "cmd/table.h"
#include "cmd/tp-shard/tp-shard.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

/* The shards of a mesh, and their totals. */
struct plan {
    struct checkpoint *ckpt;
    struct mesh mesh;
    const enum dtype *dtype; /* --dtype or NULL */
    int nparts;
    struct cutter **cutter;
    uint64_t *bytes; /* [nparts] */
    size_t *tensors; /* [nparts] */
};

static int open_parts(struct plan *p, struct err *err)
{
    int coord[MESH_NAXES];

    p->nparts = manifest_nparts(p->mesh.size);
    p->cutter = xcalloc((size_t)p->nparts, sizeof(struct cutter *));
    p->bytes = xcalloc((size_t)p->nparts, sizeof(*p->bytes));
    p->tensors = xcalloc((size_t)p->nparts, sizeof(*p->tensors));
    for (int i = 0; i < p->nparts; i++) {
        manifest_part_coord(p->mesh.size, i, coord);
        if (cutter_open(&p->cutter[i], p->ckpt->model, &p->mesh, coord, err) < 0)
            return -1;
    }
    return 0;
}

static void close_parts(struct plan *p)
{
    for (int i = 0; p->cutter && i < p->nparts; i++)
        cutter_free(p->cutter[i]);
    free(p->cutter);
    free(p->bytes);
    free(p->tensors);
}

static void add_shape(struct str *s, const uint64_t *shape, int ndim,
                      const char *separator)
{
    str_addc(s, '[');
    for (int k = 0; k < ndim; k++)
        str_addf(s, "%s%" PRIu64, k ? separator : "", shape[k]);
    str_addc(s, ']');
}

/* Adds the runs of each axis as [start, count] pairs, in storage order. */
static void add_runs(struct str *s, const struct slice *slice)
{
    str_add(s, ",\"axes\":[");
    for (int k = 0; k < slice->ndim; k++) {
        str_add(s, k ? ",[" : "[");
        for (size_t i = 0; i < slice->runs[k]->n; i++)
            str_addf(s, "%s[%" PRIu64 ",%" PRIu64 "]", i ? "," : "",
                     slice->runs[k]->v[i].start, slice->runs[k]->v[i].count);
        str_addc(s, ']');
    }
    str_addc(s, ']');
}

/* Prints part I's shard of tensor T (SHAPE, BYTES) as one JSON line. */
static void print_slice(const struct plan *p, const struct cut_side *side,
                        const struct cut_tensor *t, int i, const uint64_t *shape,
                        uint64_t bytes)
{
    int coord[MESH_NAXES];
    struct slice slice;
    struct str s = { 0 };

    manifest_part_coord(p->mesh.size, i, coord);
    str_add(&s, "{\"type\":\"slice\",\"name\":");
    str_add_json(&s, t->name);
    str_addf(
        &s, ",\"part\":%d,\"tp\":%d,\"ep\":%d,\"pp\":%d,\"dtype\":\"%s\",\"shape\":", i,
        coord[MESH_TP], coord[MESH_EP], coord[MESH_PP], dtype_name(t->to));
    add_shape(&s, shape, t->ndim, ",");
    str_addf(&s, ",\"bytes\":%" PRIu64, bytes);
    if (t->model >= 0) {
        cut_part_slice(&slice, side, i, t);
        str_addf(&s, ",\"primary\":%s", slice.primary ? "true" : "false");
        add_runs(&s, &slice);
    }
    str_addc(&s, '}');
    puts(s.s);
    str_clear(&s);
}

/* Plans tensor N: adds a row to OUT with all parts' shapes, in which consecutive equal
 * shapes are given once; without OUT prints a JSON line for each part. */
static int plan_tensor(struct plan *p, size_t n, struct table *out, struct err *err)
{
    enum dtype stored = p->ckpt->tensor[n].dtype;
    bool cast = p->dtype && p->ckpt->which[n] >= 0 && dtype_is_float(stored) &&
                dtype_bits(stored) >= 16;
    struct cut_tensor t = checkpoint_cut_tensor(p->ckpt, n, cast ? *p->dtype : stored);
    struct cut_side side = { .nparts = p->nparts, .cutter = p->cutter };
    struct str line = { 0 }, shape = { 0 }, last = { 0 }, now = { 0 };
    int repeated = 0, ret = -1;

    add_shape(&now, t.shape, t.ndim, ", ");
    str_add(&shape, now.s);
    for (int i = 0; i < p->nparts; i++) {
        uint64_t held_shape[TENSOR_MAX_DIMS], bytes;
        bool held;

        if (cut_part_bytes(&bytes, &held, &side, i, &t, t.to, err) < 0)
            goto out;
        str_reset(&now);
        if (held) {
            p->bytes[i] += bytes;
            p->tensors[i]++;
            cut_part_shape(held_shape, &side, i, &t);
            add_shape(&now, held_shape, t.ndim, ", ");
            if (!out)
                print_slice(p, &side, &t, i, held_shape, bytes);
        } else {
            str_addc(&now, '-');
        }
        if (!i || strcmp(str_text(&last), now.s)) {
            if (repeated > 1)
                str_addf(&line, " x%d", repeated);
            str_addf(&line, "%s%s", line.len ? " " : "", now.s);
            repeated = 0;
        }
        repeated++;
        str_reset(&last);
        str_add(&last, now.s);
    }
    if (repeated > 1)
        str_addf(&line, " x%d", repeated);
    if (out) {
        table_add(out, t.name);
        table_add(out, dtype_name(t.to));
        table_add(out, str_text(&shape));
        table_add(out, str_text(&line));
    }
    ret = 0;
out:
    str_clear(&line);
    str_clear(&shape);
    str_clear(&last);
    str_clear(&now);
    return ret;
}

static void print_parts(const struct plan *p, bool json)
{
    char size[32];

    for (int i = 0; i < p->nparts; i++) {
        char *name = manifest_part_name_dup(p->mesh.size, i);

        if (json)
            printf("{\"type\":\"part\",\"part\":%d,\"file\":\"%s\",\"tensors\":%zu,"
                   "\"bytes\":%" PRIu64 "}\n",
                   i, name, p->tensors[i], p->bytes[i]);
        else
            printf("%s: %zu tensors, %s\n", name, p->tensors[i],
                   str_human(size, p->bytes[i]));
        free(name);
    }
}

static const struct column columns[] = {
    { NULL, 0, 0, false, 0, true },
    { NULL, 2, 5, false, 0, false },
    { NULL, 1, 18, false, 0, true },
    { NULL, 1, 0, false, 0, true },
};

int plan_main(const char *program, int argc, char **argv)
{
    struct mesh_options m = { 0 };
    struct open_options from = { 0 };
    const char *dtype = NULL, *plot = NULL;
    bool json = false;
    const struct opt opts[] = {
        MESH_OPTIONS(m),
        PAD_OPTION(m),
        KEEP_OPTION(m),
        { OPT_STRING, '\0', "dtype", &dtype, "TYPE", "as if stored as f32, f16 or bf16",
          NULL, NULL },
        FAMILY_OPTION(from.family),
        CONFIG_OPTION(from.config),
        { OPT_STRING, '\0', "plot", &plot, "FILE",
          "draw who holds what: " PICTURE_NAMES, NULL, NULL },
        { OPT_FLAG, '\0', "json", &json, NULL, "print JSON, one object a line", NULL,
          NULL },
        { .type = OPT_END },
    };
    const struct cmd cmd = {
        .name = "plan",
        .program = program,
        .synopsis = "[OPTION]... CHECKPOINT",
        .summary = "Tell what each rank would hold of each tensor; nothing is written",
        .opts = opts,
        .min_args = 1,
        .max_args = 1,
    };
    const char *command = picture_command(program, argc, argv);
    char **operand = cmd_parse(&cmd, argc, argv);
    struct plan p = { 0 };
    struct err err = { 0 };
    enum dtype type;
    struct table *table = NULL;
    int ret = -1;

    if (plot && (ret = picture_check(&cmd, "--plot", plot)) != 0)
        return ret;
    ret = -1;
    if (dtype_from_option(&p.dtype, &type, dtype_words, dtype, &err) < 0 ||
        open_checkpoint(&cmd, &p.ckpt, operand[0], &from, &err) < 0)
        return cmd_fail(&cmd, &err);
    if (!p.ckpt->model) {
        err_set(&err, ERR_INPUT, "%s: a single file has no config.json to cut by",
                operand[0]);
        goto out;
    }
    if (mesh_from_options(&p.mesh, &m, p.ckpt->sharded ? &p.ckpt->mesh : NULL, &err) <
            0 ||
        open_parts(&p, &err) < 0)
        goto out;
    table = json ? NULL : table_new(columns, sizeof(columns) / sizeof(*columns));
    for (size_t i = 0; i < p.ckpt->ntensors; i++)
        if (plan_tensor(&p, i, table, &err) < 0)
            goto out;
    if (table)
        table_print(table);
    table = NULL;
    print_parts(&p, json);
    ret = plot ? plan_plot(&(struct plan_picture){ .path = plot,
                                                   .command = command,
                                                   .ckpt = p.ckpt,
                                                   .mesh = &p.mesh,
                                                   .cutter = p.cutter,
                                                   .bytes = p.bytes,
                                                   .tensors = p.tensors,
                                                   .nparts = p.nparts },
                           &err)
               : 0;
out:
    table_free(table);
    close_parts(&p);
    checkpoint_close(p.ckpt);
    return ret < 0 ? cmd_fail(&cmd, &err) : cmd_finish(&cmd, EXIT_SUCCESS);
}
