/* show - list the tensors of a checkpoint or file */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/table.h"
#include "cmd/tp-shard/tp-shard.h"
#include "lib/base/str.h"
#include "lib/estimate/costmodel.h"

/* Totals of the listed tensors. */
struct totals {
    uint64_t params, bytes; /* params: of the model, or else elements of weights */
    uint64_t buffers;       /* values of the model's state that are no parameters */
    size_t tensors, of[DTYPE_COUNT];
};

static uint64_t elements(const struct tensor *t)
{
    uint64_t n = 1;

    for (int k = 0; k < t->ndim; k++)
        n *= t->shape[k];
    return n;
}

static void add(struct totals *sum, const struct checkpoint *c, size_t i)
{
    const struct tensor *t = &c->tensor[i];
    uint64_t bytes = 0;

    dtype_bytes(&bytes, t->dtype, elements(t));
    sum->bytes += bytes;
    sum->tensors++;
    sum->of[t->dtype]++;
    if (!c->model && i < c->nweights)
        sum->params += elements(t);
}

static void add_shape(struct str *s, const struct tensor *t, const char *separator)
{
    str_addc(s, '[');
    for (int k = 0; k < t->ndim; k++)
        str_addf(s, "%s%" PRIu64, k ? separator : "", t->shape[k]);
    str_addc(s, ']');
}

static void print_json(const struct checkpoint *c, size_t i)
{
    const struct tensor *t = &c->tensor[i];
    struct str s = { 0 };
    uint64_t bytes = 0;

    dtype_bytes(&bytes, t->dtype, elements(t));
    str_add(&s, "{\"type\":\"tensor\",\"name\":");
    str_add_json(&s, t->name);
    str_addf(&s, ",\"dtype\":\"%s\",\"shape\":", dtype_name(t->dtype));
    add_shape(&s, t, ",");
    str_addf(&s, ",\"bytes\":%" PRIu64, bytes);
    if (!c->sharded && t->boxes) {
        str_addf(&s, ",\"pieces\":%zu", t->boxes->n);
    } else if (!c->sharded) {
        str_add(&s, ",\"file\":");
        str_add_json(&s, source_file_of(&c->source, t));
    }
    if (c->sharded || c->nweights < c->ntensors) {
        str_add(&s, ",\"role\":");
        str_add_json(&s, checkpoint_role(c, i));
    }
    if (c->model)
        str_addf(&s, ",\"carried\":%s", c->which[i] < 0 ? "true" : "false");
    str_addc(&s, '}');
    puts(s.s);
    str_clear(&s);
}

static void add_row(struct table *out, const struct checkpoint *c, size_t i)
{
    const struct tensor *t = &c->tensor[i];
    struct str shape = { 0 };
    uint64_t bytes = 0;
    char size[32];

    dtype_bytes(&bytes, t->dtype, elements(t));
    add_shape(&shape, t, ", ");
    table_add(out, t->name);
    table_add(out, dtype_name(t->dtype));
    table_add(out, shape.s);
    table_add(out, str_human(size, bytes));
    table_add(out, c->model && c->which[i] < 0 ? "carried" : "");
    str_clear(&shape);
}

static void print_summary(const struct checkpoint *c, const struct totals *sum,
                          bool json)
{
    bool first = true;
    char size[32];
    struct str family = { 0 };

    if (json) {
        if (c->model)
            str_add_json(&family, c->model->family);
        printf("{\"type\":\"summary\",\"family\":%s",
               c->model ? str_text(&family) : "null");
        str_clear(&family);
        printf(",\"params\":%" PRIu64 ",\"buffers\":%" PRIu64
               ",\"tensors\":%zu,\"bytes\":%" PRIu64 ",\"dtypes\":{",
               sum->params, sum->buffers, sum->tensors, sum->bytes);
        for (int t = 0; t < DTYPE_COUNT; t++)
            if (sum->of[t]) {
                printf("%s\"%s\":%zu", first ? "" : ",", dtype_name((enum dtype)t),
                       sum->of[t]);
                first = false;
            }
        puts("}}");
        return;
    }
    printf("%s%s%zu tensors, %" PRIu64 " parameters", c->model ? c->model->family : "",
           c->model ? ": " : "", sum->tensors, sum->params);
    if (sum->buffers)
        printf(" and %" PRIu64 " values of buffers", sum->buffers);
    printf(", %s", str_human(size, sum->bytes));
    for (int a = 0; c->sharded && a < MESH_NAXES; a++)
        if (c->mesh.size[a] > 1 || a == MESH_TP)
            printf("%s%s %d", a == MESH_TP ? ", " : " ", mesh_axis_names[a],
                   c->mesh.size[a]);
    putchar('\n');
}

/* Opens PATH with its model if the family is known; otherwise only its tensors. */
static int open_any(const struct cmd *cmd, struct checkpoint **out, const char *path,
                    const struct open_options *o, struct err *err)
{
    const struct checkpoint_options tensors_only = { .no_model = true,
                                                     .moments = o->moments,
                                                     .masters = o->masters };

    if (open_checkpoint(cmd, out, path, o, err) == 0)
        return 0;
    if (o->family || o->config || checkpoint_open(out, path, &tensors_only, err) < 0)
        return -1;
    warn_source(cmd, *out);
    return 0;
}

static const struct column columns[] = {
    { NULL, 0, 0, false, 0, true },  { NULL, 2, 7, false, 0, false },
    { NULL, 1, 22, false, 0, true }, { NULL, 1, 12, true, 0, false },
    { NULL, 2, 0, false, 0, false },
};

int show_main(const char *program, int argc, char **argv)
{
    struct open_options from = { 0 };
    bool json = false;
    const struct opt opts[] = {
        FAMILY_OPTION(from.family),
        CONFIG_OPTION(from.config),
        MOMENTS_OPTION(from.moments),
        MASTERS_OPTION(from.masters),
        { OPT_FLAG, '\0', "json", &json, NULL, "print JSON, one object a line", NULL,
          NULL },
        { .type = OPT_END },
    };
    const struct cmd cmd = {
        .name = "show",
        .program = program,
        .synopsis = "[OPTION]... CHECKPOINT",
        .summary =
            "List the tensors of a directory, a checkpoint or a safetensors file",
        .opts = opts,
        .min_args = 1,
        .max_args = 1,
    };
    char **operand = cmd_parse(&cmd, argc, argv);
    struct checkpoint *c = NULL;
    struct totals sum = { 0 };
    struct err err = { 0 };
    struct table *table = NULL;

    if (open_any(&cmd, &c, operand[0], &from, &err) < 0)
        return cmd_fail(&cmd, &err);
    if (!json)
        table = table_new(columns, sizeof(columns) / sizeof(*columns));
    for (size_t i = 0; i < c->ntensors; i++) {
        if (json)
            print_json(c, i);
        else
            add_row(table, c, i);
        add(&sum, c, i);
    }
    if (table)
        table_print(table);
    if (c->model) { /* packed numbers are fewer or more elements than values */
        sum.params = costmodel_params(c->model);
        sum.buffers = costmodel_buffers(c->model);
    }
    print_summary(c, &sum, json);
    checkpoint_close(c);
    return cmd_finish(&cmd, EXIT_SUCCESS);
}
