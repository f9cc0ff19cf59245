/* wandb-command - the command of a W&B sweep, its macros filled in */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/sweep/format/sweepfile.h"
#include "lib/sweep/format/words.h"

/* What W&B runs when the file names a program alone. */
static const char *const standard[] = { "${env}", "${interpreter}", "${program}",
                                        "${args}" };

struct words {
    char **v;
    size_t n, cap;
};

struct expansion {
    const struct sweepfile *file;
    const double *x;
    const char *json_path;
    char *(*lookup)(const char *name);
    struct words out;
    struct err *err;
};

static void add(struct words *w, char *word)
{
    w->v = xgrow(w->v, &w->cap, w->n + 2, sizeof(*w->v));
    w->v[w->n++] = word;
    w->v[w->n] = NULL;
}

/* Append the value of D at X as W&B does: Python's words for what is no text. */
static void add_value(struct str *out, const struct dist *d, double x)
{
    static const char *const words[][2] = { { "true", "True" },
                                            { "false", "False" },
                                            { "null", "None" } };

    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        if (d->kind == DIST_CATEGORICAL &&
            !strcmp(d->choices[(size_t)x], words[i][0])) {
            str_add(out, words[i][1]);
            return;
        }
    dist_write_word(out, d, x);
}

/* One word per parameter: PREFIX name=value.  SWITCHES: a true value is the bare
 * name, a false one nothing. */
static void add_args(struct expansion *e, const char *prefix, bool switches)
{
    const struct space *s = &e->file->space;

    for (size_t i = 0; i < s->n; i++) {
        const struct dist *d = &s->params[i].dist;
        struct str word = { 0 };
        const char *choice;

        if (isnan(e->x[i]))
            continue;
        choice = d->kind == DIST_CATEGORICAL ? d->choices[(size_t)e->x[i]] : "";
        if (switches && !strcmp(choice, "false"))
            continue;
        str_addf(&word, "%s%s", prefix, s->params[i].name);
        if (!switches || strcmp(choice, "true")) {
            str_addc(&word, '=');
            add_value(&word, d, e->x[i]);
        }
        add(&e->out, str_steal(&word));
    }
}

/* Macros that stand for one piece of text. */
static int add_text(struct expansion *e, struct str *out, const char *macro, size_t n)
{
    char *name = xstrndup(macro, n);
    const char *value = NULL;
    int ret = 0;

    if (!strcmp(name, "env")) {
        value = "/usr/bin/env";
    } else if (!strcmp(name, "interpreter")) {
        value = "python";
    } else if (!strcmp(name, "program")) {
        value = e->file->program;
    } else if (!strcmp(name, "args_json_file")) {
        value = e->json_path;
    } else if (!strcmp(name, "args_json")) {
        sweepfile_write_params(out, &e->file->space, e->x);
        value = "";
    } else {
        value = e->lookup(name + strlen("envvar:"));
        if (!value)
            ret = err_set(e->err, ERR_INPUT,
                          "the command needs the variable %s, which is "
                          "not set",
                          name + strlen("envvar:"));
    }
    if (value)
        str_add(out, value);
    free(name);
    return ret;
}

static int add_word(struct expansion *e, const char *word)
{
    struct str out = { 0 };

    if (!strcmp(word, "${args}")) {
        add_args(e, "--", false);
        return 0;
    }
    if (!strcmp(word, "${args_no_hyphens}")) {
        add_args(e, "", false);
        return 0;
    }
    if (!strcmp(word, "${args_no_boolean_flags}")) {
        add_args(e, "--", true);
        return 0;
    }
    while (*word) {
        size_t n;

        if (str_starts(word, "${")) {
            n = strcspn(word, "}");
            if (add_text(e, &out, word + 2, n - 2) < 0) {
                str_clear(&out);
                return -1;
            }
            word += n + 1;
        } else if ((n = words_take_name(&out, word, &e->file->space, e->x))) {
            word += n;
        } else {
            str_addc(&out, *word++);
        }
    }
    add(&e->out, str_steal(&out));
    return 0;
}

bool sweepfile_has_command(const struct sweepfile *f)
{
    return f->ncommand || f->program;
}

char **sweepfile_command_new(const struct sweepfile *f, const double *x,
                             const char *json_path, char *(*lookup)(const char *name),
                             struct err *err)
{
    struct expansion e = { f, x, json_path, lookup, { 0 }, err };
    size_t n = f->ncommand ? f->ncommand : sizeof(standard) / sizeof(*standard);

    for (size_t i = 0; i < n; i++)
        if (add_word(&e, f->ncommand ? f->command[i] : standard[i]) < 0)
            goto fail;
    return e.out.v;
fail:
    for (size_t i = 0; i < e.out.n; i++)
        free(e.out.v[i]);
    free(e.out.v);
    return NULL;
}
