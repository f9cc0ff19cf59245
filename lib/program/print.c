/* print - a program as people read it: one line an instruction */
#include "lib/program/program.h"

static const char *const rows_names[ROWS_KINDS] = { "tokens", "outputs", "1", "source",
                                                    "expert rows" };
static const char *const place_names[] = { "whole", "sharded", "partial" };

static void print_border(struct str *out, const char *what, const int *v, int n)
{
    for (int i = 0; i < n; i++)
        str_addf(out, "%s%%%d%s", i ? " " : what, v[i], i == n - 1 ? "\n" : "");
}

void program_print(struct str *out, const struct program *p)
{
    print_border(out, "receive ", p->import, p->nimports);
    for (int i = 0; i < p->ninsts; i++) {
        const struct inst *inst = &p->inst[i];
        const struct value *v = &p->value[inst->dst];

        str_addf(out, "%%%d = %s", inst->dst, op_table[inst->op].name);
        for (int k = 0; k < inst->nsrc; k++)
            str_addf(out, " %%%d", inst->src[k]);
        if (inst->weight >= 0)
            str_addf(out, " %s", p->model->tensor[p->weight[inst->weight].tensor].name);
        str_addf(out, " [%s, %llu of %llu, %s]%s%s\n", rows_names[v->rows],
                 (unsigned long long)v->cols, (unsigned long long)v->whole_cols,
                 place_names[v->place], v->name ? "  # " : "",
                 v->name ? p->line[inst->line] : "");
    }
    print_border(out, "send ", p->export, p->nexports);
}
