/* show - list the trials: a table with a header, sorted and filtered as asked */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cmd/hpo-sweep/hpo-sweep.h"
#include "cmd/table.h"
#include "lib/base/fs.h"
#include "lib/base/json.h"
#include "lib/base/mem.h"

struct wanted {
    struct opt_list states;
    const char *sort;
    int top, precision;
    bool tsv, json;
};

/* ---- which trials, in which order ---- */

/* What a trial is sorted by; trials without it come last. */
struct row {
    double key; /* NaN for none */
    int number;
};

static int compare_rows(const void *a, const void *b)
{
    const struct row *x = a, *y = b;

    if (isnan(x->key) != isnan(y->key))
        return isnan(x->key) ? 1 : -1;
    if (x->key < y->key || x->key > y->key)
        return x->key < y->key ? -1 : 1;
    return x->number - y->number;
}

/* Seconds since the epoch of a time as trials have it, NaN without one. */
static double seconds_of(const char *time)
{
    struct tm tm = { 0 };
    double seconds;

    if (!time || sscanf(time, "%4d-%2d-%2d %2d:%2d:%lf", &tm.tm_year, &tm.tm_mon,
                        &tm.tm_mday, &tm.tm_hour, &tm.tm_min, &seconds) != 6)
        return NAN;
    tm.tm_year -= 1900;
    tm.tm_mon--;
    return (double)timegm(&tm) + seconds;
}

/* The key of T; best values come first.  False when KEY is none. */
static bool sort_key(double *out, const struct study *s, const struct study_trial *t,
                     const char *key)
{
    const struct study_param *p;

    if (!strcmp(key, "trial"))
        *out = t->number;
    else if (!strcmp(key, "state"))
        *out = (double)t->state;
    else if (!strcmp(key, "start"))
        *out = seconds_of(t->start);
    else if (!strcmp(key, "duration"))
        *out = seconds_of(t->complete) - seconds_of(t->start);
    else if (!strcmp(key, "value"))
        *out = s->maximize[0] ? -t->values[0] : t->values[0];
    else {
        bool known = false;

        for (size_t i = 0; i < s->nnames; i++)
            known |= !strcmp(s->names[i], key);
        p = study_find_param(s, t, key);
        *out = p ? p->value : NAN;
        return known;
    }
    return true;
}

static bool has_state(const struct study_trial *t, const struct opt_list *states)
{
    static const char *const words[STUDY_NSTATES] = { "running", "complete", "pruned",
                                                      "failed", "waiting" };

    for (size_t i = 0; i < states->n; i++)
        if (!strcmp(states->v[i], words[t->state]))
            return true;
    return !states->n;
}

/* The rows that W asks for, in fresh memory. */
static int choose(struct row **rows, size_t *n, const struct study *s,
                  const struct wanted *w, struct err *err)
{
    const char *sort = w->sort ? w->sort : w->top ? "value" : "trial";
    bool back = *sort == '-';
    double ignored;

    *rows = xcalloc(s->n + 1, sizeof(**rows));
    *n = 0;
    for (size_t i = 0; i < s->n; i++) {
        struct row *r = &(*rows)[*n];

        if (!sort_key(&ignored, s, &s->trials[i], sort + back))
            return err_set(err, ERR_USAGE,
                           "--sort takes trial, state, value, start, duration or a "
                           "parameter, not '%s'",
                           sort + back);
        if (!has_state(&s->trials[i], &w->states))
            continue;
        sort_key(&r->key, s, &s->trials[i], sort + back);
        r->key = back ? -r->key : r->key;
        r->number = (int)i;
        ++*n;
    }
    qsort(*rows, *n, sizeof(**rows), compare_rows);
    if (w->top && *n > (size_t)w->top)
        *n = (size_t)w->top;
    return 0;
}

/* ---- the cells ---- */

/* TEXT in one line: what would end a line or a column is written as in C. */
static void add_plain(struct str *out, const char *text)
{
    for (; *text; text++)
        switch (*text) {
        case '\n':
            str_add(out, "\\n");
            break;
        case '\t':
            str_add(out, "\\t");
            break;
        default:
            if ((unsigned char)*text < 0x20 || *text == 0x7f)
                str_addf(out, "\\x%02x", (unsigned)(unsigned char)*text);
            else
                str_addc(out, *text);
        }
}

static void add_number(struct str *out, double x, int precision)
{
    str_addf(out, "%.*g", precision, x);
}

/* What a trial that waits is to have for the parameter NAME, if that was said. */
static void add_fixed(struct str *out, const struct study_trial *t, const char *name)
{
    const char *text = study_attr(&t->system, "fixed_params");
    const struct json *j;
    struct json_doc doc;

    if (!text || t->state != STUDY_WAITING ||
        json_parse(&doc, "fixed_params", text, strlen(text), NULL) < 0)
        return;
    j = json_get(doc.root, name);
    if (j && json_string(j)) {
        add_plain(out, j->text);
    } else if (j) {
        struct str raw = { 0 };

        json_print(&raw, j);
        add_plain(out, str_text(&raw));
        str_clear(&raw);
    }
    json_clear(&doc);
}

static void add_param(struct str *out, const struct study *s,
                      const struct study_trial *t, const char *name, int precision)
{
    const struct study_param *p = study_find_param(s, t, name);
    struct str word = { 0 };

    if (!p) {
        add_fixed(out, t, name);
    } else if (p->dist->kind == DIST_FLOAT) {
        add_number(out, p->value, precision);
    } else {
        dist_write_word(&word, p->dist, p->value);
        add_plain(out, str_text(&word));
        str_clear(&word);
    }
}

struct grid {
    char **cells; /* [nrows][ncols], the first row being the header; owned */
    size_t nrows, ncols;
};

static char **cell(const struct grid *g, size_t row, size_t col)
{
    return &g->cells[row * g->ncols + col];
}

static void put(struct grid *g, size_t row, size_t col, struct str *text)
{
    *cell(g, row, col) = text->s ? str_steal(text) : xstrdup("");
}

/* The header: trial, state, the objectives, the parameters, why. */
static void fill_header(struct grid *g, const struct study *s)
{
    struct str text = { 0 };
    size_t col = 0;

    str_add(&text, "trial");
    put(g, 0, col++, &text);
    str_add(&text, "state");
    put(g, 0, col++, &text);
    for (size_t k = 0; k < s->nobjectives; k++) {
        char *name = study_objective_dup(s, k);

        add_plain(&text, name);
        free(name);
        put(g, 0, col++, &text);
    }
    for (size_t k = 0; k < s->nnames; k++) {
        add_plain(&text, s->names[k]);
        put(g, 0, col++, &text);
    }
    str_add(&text, "reason");
    put(g, 0, col, &text);
}

static void fill_row(struct grid *g, size_t row, const struct study *s,
                     const struct study_trial *t, int precision)
{
    char *reason = session_reason_dup(t);
    struct str text = { 0 };
    size_t col = 0;

    str_addf(&text, "%d", t->number);
    put(g, row, col++, &text);
    str_add(&text, study_state_name(t->state));
    put(g, row, col++, &text);
    for (size_t k = 0; k < s->nobjectives; k++) {
        if (!isnan(t->values[k]))
            add_number(&text, t->values[k], precision);
        put(g, row, col++, &text);
    }
    for (size_t k = 0; k < s->nnames; k++) {
        add_param(&text, s, t, s->names[k], precision);
        put(g, row, col++, &text);
    }
    if (reason)
        add_plain(&text, reason);
    put(g, row, col, &text);
    free(reason);
}

/* ---- the table ---- */

static void print_tsv(const struct grid *g)
{
    for (size_t r = 0; r < g->nrows; r++)
        for (size_t c = 0; c < g->ncols; c++)
            printf("%s%c", *cell(g, r, c), c + 1 < g->ncols ? '\t' : '\n');
}

/* Numbers of trials and values stand at the right of their columns; "-" is nothing.  In
 * a narrow window the last parameters go. */
static void print_aligned(const struct grid *g, size_t nright)
{
    struct column *column = xcalloc(g->ncols, sizeof(*column));
    struct table *t;
    size_t last;

    for (size_t c = 0; c < g->ncols; c++)
        column[c] =
            (struct column){ .head = *cell(g, 0, c),
                             .gap = 2,
                             .right = c == 0 || (c > 1 && c < nright),
                             .drop = c < nright || c + 1 == g->ncols ? 0 : (int)c,
                             .wraps = c + 1 == g->ncols };
    t = table_new(column, (int)g->ncols);
    for (size_t r = 1; r < g->nrows; r++) {
        for (last = g->ncols - 1; last > 0 && !**cell(g, r, last);)
            last--; /* nothing at the end of a line */
        for (size_t c = 0; c < g->ncols; c++)
            table_add(t, **cell(g, r, c) || c > last ? *cell(g, r, c) : "-");
    }
    table_print(t);
    free(column);
}

static void print_table(const struct study *s, const struct row *rows, size_t n,
                        const struct wanted *w)
{
    struct grid g = { .nrows = n + 1, .ncols = 3 + s->nobjectives + s->nnames };
    bool reasons = w->tsv;

    g.cells = xcalloc(g.nrows, g.ncols * sizeof(*g.cells));
    fill_header(&g, s);
    for (size_t i = 0; i < n; i++) {
        fill_row(&g, i + 1, s, &s->trials[rows[i].number], w->precision);
        reasons |= **cell(&g, i + 1, g.ncols - 1) != '\0';
    }
    if (!reasons) /* the column is named where it is used */
        **cell(&g, 0, g.ncols - 1) = '\0';
    if (w->tsv)
        print_tsv(&g);
    else
        print_aligned(&g, 2 + s->nobjectives);
    fs_list_free(g.cells, g.nrows * g.ncols);
}

static const char *const state_words[] = { "running", "complete", "pruned",
                                           "failed",  "waiting",  NULL };

static int check_states(const struct opt_list *states, struct err *err)
{
    for (size_t i = 0; i < states->n; i++) {
        bool found = false;

        for (size_t k = 0; state_words[k]; k++)
            found |= !strcmp(states->v[i], state_words[k]);
        if (!found)
            return err_set(err, ERR_USAGE,
                           "--state: '%s' is none of running, complete, pruned, "
                           "failed, waiting",
                           states->v[i]);
    }
    return 0;
}

static int list(const struct study *s, const struct wanted *w, struct err *err)
{
    struct row *rows;
    size_t n;
    int ret = choose(&rows, &n, s, w, err);

    for (size_t i = 0; ret == 0 && w->json && i < n; i++)
        print_trial(s, &s->trials[rows[i].number], true);
    if (ret == 0 && !w->json)
        print_table(s, rows, n, w);
    free(rows);
    return ret;
}

int trials_main(const char *program, int argc, char **argv)
{
    enum { DIGITS = 6, MOST_DIGITS = 17 };
    struct where where = { 0 };
    struct wanted w = { .precision = DIGITS };
    const struct opt opts[] = {
        WHERE_OPTIONS(where),
        { OPT_LIST, '\0', "state", &w.states, "STATE",
          "only those: complete, pruned, failed, ...", state_words, NULL },
        { OPT_STRING, '\0', "sort", &w.sort, "KEY",
          "by value, duration, start, a parameter; -KEY", NULL, NULL },
        { OPT_COUNT, '\0', "top", &w.top, "N", "the first N only, of the best", NULL,
          NULL },
        { OPT_COUNT, '\0', "precision", &w.precision, "N", "digits of a number", NULL,
          NULL },
        { OPT_FLAG, '\0', "tsv", &w.tsv, NULL, "columns between tabs", NULL, NULL },
        { OPT_FLAG, '\0', "json", &w.json, NULL, "print one JSON object per line", NULL,
          NULL },
        { .type = OPT_END },
    };
    const struct cmd cmd = { .name = "show",
                             .program = program,
                             .opts = opts,
                             .synopsis = "[OPTION]... [FILE]",
                             .max_args = 1,
                             .summary = "List the trials" };
    char **operand = cmd_parse(&cmd, argc, argv);
    struct session s = { 0 };
    struct err err = { 0 };
    int ret = -1;

    if (w.tsv && w.json)
        return cmd_usage(&cmd, "--tsv and --json exclude one another");
    if (w.precision > MOST_DIGITS)
        w.precision = MOST_DIGITS; /* all that a number has */
    if (check_states(&w.states, &err) == 0 &&
        session_open_file(&s, &where, operand[0], &err) == 0)
        ret = list(&s.study, &w, &err);
    session_close(&s);
    return ret < 0 ? cmd_fail(&cmd, &err) : cmd_finish(&cmd, 0);
}
