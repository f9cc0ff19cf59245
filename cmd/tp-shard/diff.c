/* diff - compare two checkpoints tensor by tensor */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/tp-shard/tp-shard.h"
#include "lib/base/str.h"
#include "lib/reshard/compare.h"

/* How findings are printed, and their totals. */
struct report {
    bool json, all;
    size_t tensors, differing;
    const char *first; /* first tensor that differs */
    double max_abs, max_rel;
};

static void add_side(struct str *s, const struct tensor *t)
{
    str_addf(s, "%s [", dtype_name(t->dtype));
    for (int k = 0; k < t->ndim; k++)
        str_addf(s, "%s%llu", k ? ", " : "", (unsigned long long)t->shape[k]);
    str_addc(s, ']');
}

static void add_json_side(struct str *s, const char *key, const struct tensor *t)
{
    str_addf(s, ",\"%s\":", key);
    if (!t) {
        str_add(s, "null");
        return;
    }
    str_addf(s, "{\"dtype\":\"%s\",\"shape\":[", dtype_name(t->dtype));
    for (int k = 0; k < t->ndim; k++)
        str_addf(s, "%s%llu", k ? "," : "", (unsigned long long)t->shape[k]);
    str_add(s, "]}");
}

static void add_json(struct str *s, const struct compare_tensor *d)
{
    static const char *const words[] = { "same", "only in first", "only in second",
                                         "shape", "values" };

    str_add(s, "{\"type\":\"tensor\",\"name\":");
    str_add_json(s, d->name);
    str_addf(s, ",\"difference\":\"%s\"", words[d->kind]);
    add_json_side(s, "a", d->a);
    add_json_side(s, "b", d->b);
    if (d->kind == COMPARE_VALUES || d->kind == COMPARE_SAME) {
        str_addf(s,
                 ",\"elements\":%llu,\"max_abs\":", (unsigned long long)d->different);
        str_add_double(s, d->max_abs);
        str_add(s, ",\"max_rel\":");
        str_add_double(s, d->max_rel);
        str_add(s, ",\"first\":");
        if (d->different)
            str_addf(s, "%llu", (unsigned long long)d->first);
        else
            str_add(s, "null");
    }
    str_addc(s, '}');
}

static void add_text(struct str *s, const struct compare_tensor *d)
{
    str_addf(s, "%s: ", d->name);
    switch (d->kind) {
    case COMPARE_SAME:
        str_add(s, "same");
        return;
    case COMPARE_ONLY_A:
    case COMPARE_ONLY_B:
        str_addf(s, "only in the %s", d->kind == COMPARE_ONLY_A ? "first" : "second");
        return;
    default:
        break;
    }
    if (d->kind == COMPARE_SHAPE || d->a->dtype != d->b->dtype) {
        add_side(s, d->a);
        str_add(s, " against ");
        add_side(s, d->b);
    }
    if (d->kind == COMPARE_SHAPE)
        return;
    if (d->a->dtype != d->b->dtype)
        str_add(s, ", ");
    if (d->different)
        str_addf(
            s,
            "%llu elements differ from number %llu on, by at most %.3g (relative %.3g)",
            (unsigned long long)d->different, (unsigned long long)d->first, d->max_abs,
            d->max_rel);
    else
        str_add(s, "the same values");
}

static void tell(void *arg, const struct compare_tensor *d)
{
    struct report *r = arg;
    struct str s = { 0 };

    r->tensors++;
    if (d->max_abs > r->max_abs)
        r->max_abs = d->max_abs;
    if (d->max_rel > r->max_rel)
        r->max_rel = d->max_rel;
    if (d->kind != COMPARE_SAME && !r->differing++)
        r->first = d->name;
    if (d->kind == COMPARE_SAME && !r->all)
        return;
    if (r->json)
        add_json(&s, d);
    else
        add_text(&s, d);
    cmd_puts(s.s);
    str_clear(&s);
}

static void print_summary(const struct report *r)
{
    struct str s = { 0 };

    if (r->json) {
        str_addf(&s,
                 "{\"type\":\"summary\",\"tensors\":%zu,\"differing\":%zu,\"first\":",
                 r->tensors, r->differing);
        if (r->first)
            str_add_json(&s, r->first);
        else
            str_add(&s, "null");
        str_add(&s, ",\"max_abs\":");
        str_add_double(&s, r->max_abs);
        str_add(&s, ",\"max_rel\":");
        str_add_double(&s, r->max_rel);
        str_addc(&s, '}');
        puts(s.s);
    } else if (r->differing) {
        printf("%zu of %zu tensors differ\n", r->differing, r->tensors);
    } else {
        printf("%zu tensors, %s\n", r->tensors,
               r->max_abs > 0 ? "equal within the tolerance" : "identical");
    }
    str_clear(&s);
}

/* Opens PATH with its model if it has one: a sharded checkpoint needs it, a single file
 * has none. */
static int open_side(const struct cmd *cmd, struct checkpoint **out, const char *path,
                     bool moments, struct err *err)
{
    struct checkpoint_options tensors_only = { .no_model = true };
    bool sharded;

    if (checkpoint_is_sharded(&sharded, path, err) < 0)
        return -1;
    if (moments && source_find_foreign(&tensors_only.moments, path, err) < 0)
        return -1;
    /* a model gives tensors their names; without one they are compared as stored */
    if (!tensors_only.moments && open_checkpoint(cmd, out, path, NULL, err) == 0)
        return 0;
    return sharded ? -1 : checkpoint_open(out, path, &tensors_only, err);
}

int diff_main(const char *program, int argc, char **argv)
{
    struct report r = { 0 };
    double tolerance = 0;
    bool moments = false;
    const struct opt opts[] = {
        { OPT_DOUBLE, '\0', "tolerance", &tolerance, "X",
          "values within X times the larger are equal", NULL, NULL },
        MOMENTS_OPTION(moments),
        { OPT_FLAG, 'a', "all", &r.all, NULL, "tell the tensors that are the same too",
          NULL, NULL },
        { OPT_FLAG, '\0', "json", &r.json, NULL, "print JSON, one object a line", NULL,
          NULL },
        { .type = OPT_END },
    };
    const struct cmd cmd = {
        .name = "diff",
        .program = program,
        .synopsis = "[OPTION]... FIRST SECOND",
        .summary =
            "Compare two directories, checkpoints or files; status 1 tells they differ",
        .opts = opts,
        .min_args = 2,
        .max_args = 2,
    };
    char **operand = cmd_parse(&cmd, argc, argv);
    struct checkpoint *a = NULL, *b = NULL;
    struct err err = { 0 };
    int ret = -1;

    if (tolerance < 0)
        return cmd_usage(&cmd, "--tolerance: from 0");
    if (open_side(&cmd, &a, operand[0], moments, &err) == 0 &&
        open_side(&cmd, &b, operand[1], moments, &err) == 0)
        ret = compare_checkpoints(a, b, tolerance, tell, &r, &err);
    if (ret == 0)
        print_summary(&r);
    checkpoint_close(a);
    checkpoint_close(b);
    return ret < 0 ? cmd_fail(&cmd, &err)
                   : cmd_finish(&cmd, r.differing ? ERR_NO : EXIT_SUCCESS);
}
