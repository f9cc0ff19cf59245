/* csv - tables of actions as PyTorch's schedules have them */
#include "lib/pipe/csv.h"

#include <ctype.h>
#include <string.h>

enum { MAX_NUMBER = 1 << 20, MAX_ROWS = 1 << 16, MOST_DIGITS = 30 };

void csv_print(struct str *out, const struct action_table *t)
{
    for (int r = 0; r < t->ranks; r++) {
        for (size_t i = 0; i < t->row[r].n; i++) {
            const struct action *a = &t->row[r].v[i];
            bool pair = a->paired && i + 1 < t->row[r].n;

            str_add(out, i ? "," : "");
            str_add(out, pair ? "(" : "");
            action_print(out, a);
            if (!pair)
                continue;
            str_addc(out, ';');
            action_print(out, a + 1);
            str_add(out, ")OVERLAP_F_B");
            i++;
        }
        str_addc(out, '\n');
    }
}

struct reader {
    const char *name;
    int line;
    struct action_table *t;
    int rank;
    struct err *err;
};

static bool take_number(const char **p, const char *end, int *out)
{
    int v = 0;

    if (*p == end || !isdigit((unsigned char)**p))
        return false;
    for (; *p < end && isdigit((unsigned char)**p); (*p)++)
        if ((v = v * 10 + (**p - '0')) > MAX_NUMBER)
            return false;
    *out = v;
    return true;
}

static bool is_exchange(const char *word, size_t n)
{
    static const char *const words[] = { "SEND_F",  "RECV_F",  "SEND_B",     "RECV_B",
                                         "UNSHARD", "RESHARD", "REDUCE_GRAD" };

    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        if (strlen(words[i]) == n && !memcmp(words[i], word, n))
            return true;
    return false;
}

/* Marks the last two actions of the row as a pair, unless one waits for the other. */
static void pair_last(struct action_row *row, size_t had)
{
    struct action *a;

    if (row->n != had + 2)
        return; /* messages are left out */
    a = &row->v[had];
    a->paired = a[0].stage != a[1].stage || a[0].micro_batch != a[1].micro_batch;
}

static int bad_cell(const struct reader *r, const char *cell, size_t n)
{
    return err_set(r->err, ERR_INPUT, "%s:%d: '%.*s' is no action", r->name, r->line,
                   (int)(n < 40 ? n : 40), cell);
}

/* A time: digits and at most one point. */
static bool take_seconds(const char **p, const char *end, double *out)
{
    char text[MOST_DIGITS + 1];
    size_t n = 0;

    for (; *p < end && (isdigit((unsigned char)**p) || **p == '.'); (*p)++) {
        if (n == MOST_DIGITS)
            return false;
        text[n++] = **p;
    }
    text[n] = '\0';
    return str_double(text, out);
}

/* What stands behind an action that was measured: "@START+SECONDS". */
static bool take_times(const char **p, const char *end, struct action *a)
{
    if (*p == end || **p != '@')
        return true;
    (*p)++;
    if (!take_seconds(p, end, &a->start) || *p == end || **p != '+')
        return false;
    (*p)++;
    a->timed = take_seconds(p, end, &a->seconds);
    return a->timed;
}

/* One action of N bytes: STAGE WORD [MICRO_BATCH [TIMES]]. */
static int read_action(struct reader *r, const char *cell, size_t n)
{
    static const char letters[] = "FBIW";
    const char *p = cell, *end = cell + n, *word, *letter;
    struct action_row *row = &r->t->row[r->rank];
    struct action times = { .timed = false };
    int stage, m = 0;
    size_t len;

    if (!take_number(&p, end, &stage))
        return bad_cell(r, cell, n);
    for (word = p; p < end && (isupper((unsigned char)*p) || *p == '_');)
        p++;
    len = (size_t)(p - word);
    if (is_exchange(word, len))
        return (p == end || take_number(&p, end, &m)) && p == end
                   ? 0
                   : bad_cell(r, cell, n);
    letter = len == 1 ? strchr(letters, *word) : NULL;
    if (!letter || !take_number(&p, end, &m) || !take_times(&p, end, &times) ||
        p != end)
        return bad_cell(r, cell, n);
    if (stage >= r->t->stages)
        r->t->stages = stage + 1;
    if (m >= r->t->micro_batches)
        r->t->micro_batches = m + 1;
    action_add(r->t, r->rank, (enum action_kind)(letter - letters), stage, m);
    row->v[row->n - 1].timed = times.timed;
    row->v[row->n - 1].start = times.start;
    row->v[row->n - 1].seconds = times.seconds;
    return 0;
}

/* A cell: nothing, an action, or "(0F3;7B1)OVERLAP_F_B". */
static int read_cell(struct reader *r, const char *cell, size_t n)
{
    struct action_row *row = &r->t->row[r->rank];
    const char *close, *semicolon;
    size_t had = row->n;

    while (n && (isspace((unsigned char)*cell) || *cell == '"')) {
        cell++;
        n--;
    }
    while (n && (isspace((unsigned char)cell[n - 1]) || cell[n - 1] == '"'))
        n--;
    if (!n)
        return 0;
    if (*cell != '(')
        return read_action(r, cell, n);
    close = memchr(cell, ')', n);
    semicolon = memchr(cell, ';', n);
    if (!close || !semicolon || semicolon > close ||
        (size_t)(cell + n - close) != strlen(")OVERLAP_F_B") ||
        memcmp(close, ")OVERLAP_F_B", strlen(")OVERLAP_F_B")) != 0)
        return bad_cell(r, cell, n);
    if (read_action(r, cell + 1, (size_t)(semicolon - cell - 1)) < 0)
        return -1;
    if (read_action(r, semicolon + 1, (size_t)(close - semicolon - 1)) < 0)
        return -1;
    pair_last(row, had);
    return 0;
}

static int read_row(struct reader *r, const char *row, size_t n)
{
    const char *end = row + n;

    for (const char *p = row; p <= end;) {
        const char *comma = memchr(p, ',', (size_t)(end - p));
        const char *stop = comma ? comma : end;

        if (read_cell(r, p, (size_t)(stop - p)) < 0)
            return -1;
        p = stop + 1;
    }
    return 0;
}

static int count_rows(const char *text, size_t n)
{
    int rows = 0;

    for (size_t i = 0; i < n; i++)
        rows += text[i] == '\n' || i + 1 == n;
    return rows;
}

/* A stage belongs to the rank in whose row it occurs first. */
static void place_stages(struct action_table *t, int *rank_of)
{
    for (int r = t->ranks - 1; r >= 0; r--)
        for (size_t i = 0; i < t->row[r].n; i++)
            rank_of[t->row[r].v[i].stage] = r;
}

/* Copies of the model in T: two, if the first half of the micro-batches goes through
 * the first half of the stages alone, and the second through the others. */
static int find_chains(const struct action_table *t)
{
    int half = t->stages / 2, first = t->micro_batches / 2;

    if (t->stages % 2 || t->micro_batches % 2)
        return 1;
    for (int r = 0; r < t->ranks; r++)
        for (size_t i = 0; i < t->row[r].n; i++)
            if ((t->row[r].v[i].stage < half) != (t->row[r].v[i].micro_batch < first))
                return 1;
    return 2;
}

/* The first action without a time is a fault where another has one. */
static int check_times(const struct action_table *t, const char *name, struct err *err)
{
    struct str cell = { 0 };
    const struct action *none = NULL;
    int line = 0;
    bool some = false;

    for (int r = 0; r < t->ranks; r++)
        for (size_t i = 0; i < t->row[r].n; i++) {
            some |= t->row[r].v[i].timed;
            if (t->row[r].v[i].timed || none)
                continue;
            none = &t->row[r].v[i];
            line = r + 1;
        }
    if (!some || !none)
        return 0;
    action_print(&cell, none);
    err_set(err, ERR_INPUT, "%s:%d: %s has no time, and others have", name, line,
            cell.s);
    str_clear(&cell);
    return -1;
}

int csv_parse(struct action_table *t, const char *name, const char *text, size_t n,
              struct err *err)
{
    struct action_table made, placed;
    struct reader r = { .name = name, .t = &made, .err = err };
    const char *p = text, *end = text + n;
    int rows = count_rows(text, n);

    if (rows < 1 || rows > MAX_ROWS)
        return err_set(err, ERR_INPUT, "%s: %s", name,
                       rows ? "too many rows" : "empty");
    action_table_init(&made, rows, 0, 0);
    for (r.line = 1; p < end; r.line++, r.rank++) {
        const char *feed = memchr(p, '\n', (size_t)(end - p));
        const char *stop = feed ? feed : end;

        if (read_row(&r, p, (size_t)(stop - p)) < 0) {
            action_table_clear(&made);
            return -1;
        }
        p = stop + 1;
    }
    if (check_times(&made, name, err) < 0) {
        action_table_clear(&made);
        return -1;
    }
    if (!made.micro_batches ||
        (int64_t)made.stages * made.micro_batches > (int64_t)MAX_NUMBER * 64) {
        err_set(err, ERR_INPUT, "%s: %s", name,
                made.micro_batches ? "too many stages and micro-batches" : "no action");
        action_table_clear(&made);
        return -1;
    }
    action_table_init(&placed, made.ranks, made.stages, made.micro_batches);
    for (int i = 0; i < made.ranks; i++) {
        placed.row[i] = made.row[i];
        made.row[i] = (struct action_row){ 0 };
    }
    place_stages(&placed, placed.rank_of);
    placed.chains = find_chains(&placed);
    action_table_clear(&made);
    *t = placed;
    return 0;
}
