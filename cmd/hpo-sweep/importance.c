/* importance - say how much each parameter matters */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/hpo-sweep/hpo-sweep.h"
#include "lib/base/mem.h"
#include "lib/sweep/sampler/fanova.h"
#include "lib/sweep/sampler/pedanova.h"

enum { FEW = 20 }; /* with fewer trials importances are mostly noise */

static int compare_importance(const void *a, const void *b)
{
    const struct importance *x = a, *y = b;

    if (x->importance != y->importance)
        return x->importance > y->importance ? -1 : 1;
    return strcmp(x->name, y->name);
}

static bool all_finite(const struct past *t, size_t nobjectives)
{
    for (size_t k = 0; k < nobjectives; k++)
        if (!isfinite(t->loss[k]))
            return false;
    return true;
}

/* Count what the importances rest on. */
static void count(struct importances *all, const struct history *h)
{
    const struct past *first = NULL;

    for (size_t i = 0; i < h->n; i++) {
        const struct past *t = &h->trials[i];

        if (t->state != PAST_COMPLETE)
            continue;
        if (!all_finite(t, h->nobjectives)) {
            all->infinite++;
            continue;
        }
        all->trials++;
        first = first ? first : t;
        for (size_t k = 0; k < h->nobjectives; k++)
            all->distinct |= t->loss[k] != first->loss[k];
        for (size_t k = 0; k < all->n; k++)
            all->v[k].trials += !isnan(t->x[k]);
    }
}

void importances_init(struct importances *all, const struct study *s,
                      enum importance_method method)
{
    struct history h;
    double *out;

    *all = (struct importances){ 0 };
    study_space(&all->space, s);
    study_history(&h, s, &all->space, NULL, -1);
    all->n = all->space.n;
    all->v = xcalloc(all->n + 1, sizeof(*all->v));
    count(all, &h);
    out = xcalloc(all->n + 1, sizeof(*out));
    if (method == IMPORTANCE_FANOVA)
        fanova_importance(out, &h, &all->space);
    else
        pedanova_importance(out, &h, &all->space, -1, true);
    for (size_t i = 0; i < all->n; i++) {
        all->v[i].name = all->space.params[i].name;
        all->v[i].importance = out[i];
    }
    qsort(all->v, all->n, sizeof(*all->v), compare_importance);
    history_clear(&h);
    free(out);
}

void importances_clear(struct importances *all)
{
    space_clear(&all->space);
    free(all->v);
}

static void print(const struct importances *all, const struct importance *one,
                  bool json)
{
    struct str line = { 0 };

    if (json) {
        str_add(&line, "{\"type\": \"importance\", \"name\": ");
        str_add_json(&line, one->name);
        str_add(&line, ", \"importance\": ");
        str_add_double(&line, one->importance);
        str_addf(&line, ", \"trials\": %zu}", one->trials);
    } else {
        str_addf(&line, "%.4f  %s", one->importance, one->name);
        if (one->trials < all->trials)
            str_addf(&line, "  (in %zu of %zu trials)", one->trials, all->trials);
    }
    puts(line.s);
    str_clear(&line);
}

/* Warn in one line if the importances rest on few trials or not on all. */
static void warn(const struct cmd *cmd, const struct importances *all)
{
    const char *s = all->infinite == 1 ? "" : "s";

    if (all->trials < FEW && all->infinite)
        cmd_warn(
            cmd,
            "importances rest on %zu trials, without %zu whose value is not finite",
            all->trials, all->infinite);
    else if (all->trials < FEW)
        cmd_warn(cmd, "importances rest on %zu trials", all->trials);
    else if (all->infinite)
        cmd_warn(cmd, "importances leave out %zu trial%s whose value is not finite",
                 all->infinite, s);
}

static int list(const struct cmd *cmd, const struct importances *all, bool json)
{
    if (!all->distinct) {
        cmd_warn(cmd,
                 "importances need two complete trials with different finite values");
        return 1;
    }
    warn(cmd, all);
    for (size_t i = 0; i < all->n; i++)
        print(all, &all->v[i], json);
    return 0;
}

int importance_main(const char *program, int argc, char **argv)
{
    static const char *const methods[] = { "ped-anova", "fanova", NULL };
    struct where w = { 0 };
    bool json = false;
    int method = IMPORTANCE_PED_ANOVA, status;
    const struct opt opts[] = {
        WHERE_OPTIONS(w),
        { OPT_CHOICE, '\0', "method", &method, "NAME", "ped-anova or fanova", methods,
          NULL },
        { OPT_FLAG, '\0', "json", &json, NULL, "print one JSON object per line", NULL,
          NULL },
        { .type = OPT_END },
    };
    const struct cmd cmd = { .name = "importance",
                             .program = program,
                             .opts = opts,
                             .synopsis = "[OPTION]... [FILE]",
                             .max_args = 1,
                             .summary = "Say how much each parameter matters" };
    char **operand = cmd_parse(&cmd, argc, argv);
    struct importances all;
    struct session s;
    struct err err = { 0 };

    if (session_open_file(&s, &w, operand[0], &err) < 0)
        return cmd_fail(&cmd, &err);
    if (method == IMPORTANCE_FANOVA && s.study.nobjectives > 1) {
        err_set(&err, ERR_USAGE, "fanova serves one objective, '%s' has %zu",
                s.study.name, s.study.nobjectives);
        session_close(&s);
        return cmd_fail(&cmd, &err);
    }
    importances_init(&all, &s.study, (enum importance_method)method);
    status = list(&cmd, &all, json);
    importances_clear(&all);
    session_close(&s);
    return cmd_finish(&cmd, status);
}
