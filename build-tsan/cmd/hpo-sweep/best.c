/* best - print the best trial: for people, as JSON, for a shell, or by a template */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/hpo-sweep/hpo-sweep.h"
#include "lib/base/mem.h"
#include "lib/sweep/format/words.h"

/* NAME as a variable of sh: what is no letter or digit becomes '_'. */
static char *variable_dup(const char *name)
{
    char *out = str_dupf("%s%s", isdigit((unsigned char)*name) ? "_" : "", name);

    for (char *p = out; *p; p++)
        if (!isalnum((unsigned char)*p) || (unsigned char)*p >= 0x80)
            *p = '_';
    return out;
}

static int print_shell(const struct study *s, const struct study_trial *t,
                       struct err *err)
{
    char **names = xcalloc(t->nparams + 1, sizeof(*names));
    struct str out = { 0 };
    int ret = 0;

    for (size_t i = 0; i < t->nparams && ret == 0; i++) {
        struct str word = { 0 };
        char *words[2] = { 0 };

        names[i] = variable_dup(s->names[t->params[i].name]);
        for (size_t k = 0; k < i && ret == 0; k++)
            if (!strcmp(names[i], names[k]))
                ret = err_set(err, ERR_USAGE, "--shell: two parameters are both %s",
                              names[i]);
        str_addf(&out, "%s=", names[i]);
        dist_write_word(&word, t->params[i].dist, t->params[i].value);
        words[0] = str_steal(&word);
        words_quote(&out, words);
        str_addc(&out, '\n');
        free(words[0]);
    }
    if (ret == 0)
        fputs(str_text(&out), stdout);
    str_clear(&out);
    words_free(names);
    return ret;
}

/* Add a constant NAME of the text JSON to SPACE, unless a parameter is called so. */
static void add_constant(struct space *space, const char *name, char *json)
{
    struct space_param p = { .parent = -1 };

    if (space_find(space, name) >= 0) {
        free(json);
        return;
    }
    p.name = xstrdup(name);
    p.dist.kind = DIST_CATEGORICAL;
    dist_add_choice(&p.dist, json);
    space_add(space, &p);
}

/* TEMPLATE with {name} of parameters, {trial} and {value}. */
static int print_format(const struct study *s, const struct study_trial *t,
                        const char *template, struct err *err)
{
    char *words[] = { xstrdup(template), NULL }, **out;
    struct str value = { 0 };
    struct space space;
    double *x;
    int ret;

    study_space(&space, s);
    add_constant(&space, "trial", str_dupf("%d", t->number));
    study_add_value(&value, t->values[0]);
    add_constant(&space, "value", str_steal(&value));
    x = xcalloc(space.n, sizeof(*x));
    for (size_t i = 0; i < space.n; i++) {
        const struct study_param *p = study_find_param(s, t, space.params[i].name);

        x[i] = p ? p->value : NAN;
        if (i >= s->nnames)
            x[i] = 0; /* the constants */
    }
    ret = words_check(words, &space, NULL, err);
    if (ret == 0) {
        out = words_expand_new(words, &space, x, NULL);
        puts(out[0]);
        words_free(out);
    }
    free(words[0]);
    free(x);
    space_clear(&space);
    return ret;
}

/* What is wrong with the best trial of S, if anything; the status. */
static int judge(const struct cmd *cmd, const struct study *s,
                 const struct study_trial *best)
{
    size_t complete = 0;

    for (size_t i = 0; i < s->n; i++)
        complete += s->trials[i].state == STUDY_COMPLETE;
    if (best && !isfinite(best->values[0]))
        cmd_warn(cmd, "no trial of '%s' has a finite value", s->name);
    else if (!best && complete)
        cmd_warn(cmd, "all %zu complete trials of '%s' violate a constraint", complete,
                 s->name);
    else if (!best)
        cmd_warn(cmd, "no trial of '%s' is complete, of %zu", s->name, s->n);
    return best ? 0 : 1;
}

int best_main(const char *program, int argc, char **argv)
{
    struct where where = { 0 };
    const char *template = NULL;
    bool json = false, shell = false;
    const struct opt opts[] = {
        WHERE_OPTIONS(where),
        { OPT_FLAG, '\0', "shell", &shell, NULL, "print NAME=VALUE lines for sh", NULL,
          NULL },
        { OPT_STRING, '\0', "format", &template, "TEMPLATE",
          "print this with {name} replaced", NULL, NULL },
        { OPT_FLAG, '\0', "json", &json, NULL, "print one JSON object per line", NULL,
          NULL },
        { .type = OPT_END },
    };
    const struct cmd cmd = { .name = "best",
                             .program = program,
                             .opts = opts,
                             .synopsis = "[OPTION]... [FILE]",
                             .max_args = 1,
                             .summary = "Print the best trial" };
    char **operand = cmd_parse(&cmd, argc, argv);
    const struct study_trial *best;
    struct session s;
    struct err err = { 0 };
    int ret;

    if (json + shell + (template != NULL) > 1)
        return cmd_usage(&cmd, "--json, --shell and --format exclude one another");
    if (session_open_file(&s, &where, operand[0], &err) < 0)
        return cmd_fail(&cmd, &err);
    if (s.study.nobjectives > 1) {
        ret = err_set(&err, ERR_USAGE,
                      "'%s' has %zu objectives, and no best trial: see pareto",
                      s.study.name, s.study.nobjectives);
    } else {
        best = study_best(&s.study);
        ret = judge(&cmd, &s.study, best);
        if (best && shell)
            ret = print_shell(&s.study, best, &err);
        else if (best && template)
            ret = print_format(&s.study, best, template, &err);
        else if (best)
            print_trial(&s.study, best, json);
    }
    session_close(&s);
    return ret < 0 ? cmd_fail(&cmd, &err) : cmd_finish(&cmd, ret);
}
