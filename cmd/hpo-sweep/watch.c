/* watch - a study on the terminal: what runs, the best, failures, rate, time left */
#include <langinfo.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cmd/hpo-sweep/hpo-sweep.h"
#include "cmd/terminal.h"
#include "lib/base/mem.h"

enum { RUNNING_SHOWN = 8, FAILED_SHOWN = 3, RECENT = 50, MOST_WIDE = 200 };

struct watch {
    const struct study *s;
    const char *where; /* the storage, for people */
    int width, goal;   /* columns; trials to reach, 0 unknown */
    bool wide;         /* the terminal has UTF-8 */
    struct str page;
};

/* ---- a line of numbers ---- */

/* N values as bars, low ones low; what is not finite is a blank.  At most WIDTH of
 * them, each the mean of its neighbours. */
static void add_bars(struct watch *w, const double *v, size_t n, size_t width)
{
    static const char *const bars[] = { "\u2581", "\u2582", "\u2583", "\u2584",
                                        "\u2585", "\u2586", "\u2587", "\u2588" };
    static const char plain[] = "_.,-=+*#";
    double low = INFINITY, high = -INFINITY;
    size_t columns = n < width ? n : width;

    for (size_t i = 0; i < n; i++)
        if (isfinite(v[i])) {
            low = fmin(low, v[i]);
            high = fmax(high, v[i]);
        }
    for (size_t c = 0; c < columns; c++) {
        size_t first = c * n / columns, end = (c + 1) * n / columns, some = 0;
        double sum = 0;
        int level;

        for (size_t i = first; i < end; i++)
            if (isfinite(v[i])) {
                sum += v[i];
                some++;
            }
        level = high > low && some
                    ? (int)(7.999 * (sum / (double)some - low) / (high - low))
                    : 3;
        if (!some)
            str_addc(&w->page, ' ');
        else if (w->wide)
            str_add(&w->page, bars[level]);
        else
            str_addc(&w->page, plain[level]);
    }
}

/* ---- times ---- */

/* Seconds since the epoch of a trial's time; NaN without one. */
static double seconds_of(const char *time)
{
    struct tm tm = { 0 };
    double seconds;

    if (!time || sscanf(time, "%d-%d-%d %d:%d:%lf", &tm.tm_year, &tm.tm_mon,
                        &tm.tm_mday, &tm.tm_hour, &tm.tm_min, &seconds) != 6)
        return NAN;
    tm.tm_year -= 1900;
    tm.tm_mon--;
    return (double)timegm(&tm) + seconds;
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void add_duration(struct str *out, double seconds)
{
    if (seconds < 100)
        str_addf(out, "%.0f s", seconds);
    else if (seconds < 100 * 60.0)
        str_addf(out, "%.0f min", seconds / 60);
    else
        str_addf(out, "%.1f h", seconds / 3600);
}

/* ---- the page ---- */

/* What ends a line, which is cut at the terminal's width. */
static void end_line(struct watch *w, size_t begun)
{
    size_t at = begun, columns = 0;

    while (at < w->page.len && columns < (size_t)w->width) {
        at++;
        while (at < w->page.len && ((unsigned char)w->page.s[at] & 0xc0) == 0x80)
            at++;
        columns++;
    }
    if (at < w->page.len) {
        w->page.len = at;
        w->page.s[at] = '\0';
    }
    str_addc(&w->page, '\n');
}

static void add_params(struct watch *w, const struct study_trial *t)
{
    for (size_t k = 0; k < t->nparams; k++) {
        const struct study_param *p = &t->params[k];
        struct str word = { 0 };

        if (p->dist->kind == DIST_FLOAT)
            str_addf(&word, "%g", p->value);
        else
            dist_write_word(&word, p->dist, p->value);
        str_addc(&w->page, ' ');
        str_add_printable(&w->page, w->s->names[p->name]);
        str_addc(&w->page, '=');
        str_add_printable(&w->page, str_text(&word));
        str_clear(&word);
    }
}

static void add_head(struct watch *w, const struct study_counts *c)
{
    char time[STUDY_TIME_SIZE];
    size_t begun = w->page.len;

    study_now(time, true);
    str_addf(&w->page, "%.8s  study ", time + 11);
    str_add_printable(&w->page, w->s->name);
    str_add(&w->page, " of ");
    str_add_printable(&w->page, w->where);
    end_line(w, begun);
    begun = w->page.len;
    str_addf(&w->page, "%zu complete, %zu pruned, %zu failed, %zu running, %zu waiting",
             c->complete, c->pruned, c->failed, c->running, c->waiting);
    end_line(w, begun);
}

static void add_best(struct watch *w)
{
    const struct study_trial *best = w->s->nobjectives == 1 ? study_best(w->s) : NULL;
    size_t begun = w->page.len;

    if (!best)
        return;
    str_addf(&w->page, "best %g (trial %d):", best->values[0], best->number);
    add_params(w, best);
    end_line(w, begun);
}

static int by_time(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

/* How many trials end in a minute, by the last that did, and the time to the goal. */
static void add_rate(struct watch *w, const struct study_counts *c)
{
    double *ends = xcalloc(w->s->n + 1, sizeof(*ends)), rate;
    size_t n = 0, begun = w->page.len, first, done = c->complete + c->pruned;

    for (size_t i = 0; i < w->s->n; i++) {
        double end = study_finished(&w->s->trials[i])
                         ? seconds_of(w->s->trials[i].complete)
                         : NAN;

        if (!isnan(end))
            ends[n++] = end;
    }
    qsort(ends, n, sizeof(*ends), by_time);
    first = n > RECENT ? n - RECENT : 0;
    rate =
        n - first > 1 ? (double)(n - 1 - first) / fmax(now() - ends[first], 1e-3) : 0;
    if (rate > 0 && c->running) {
        str_addf(&w->page, "%.3g trials a minute", 60 * rate);
        if (w->goal && (size_t)w->goal > done) {
            str_add(&w->page, ", ");
            add_duration(&w->page, (double)((size_t)w->goal - done) / rate);
            str_addf(&w->page, " to %d", w->goal);
        }
        end_line(w, begun);
    }
    free(ends);
}

static void add_values(struct watch *w)
{
    double *v = xcalloc(w->s->n + 1, sizeof(*v));
    size_t n = 0, begun = w->page.len;

    for (size_t i = 0; i < w->s->n; i++)
        if (w->s->trials[i].state == STUDY_COMPLETE)
            v[n++] = w->s->trials[i].values[0];
    if (n > 1) {
        str_add(&w->page, "values ");
        add_bars(w, v, n, (size_t)w->width - 7);
        end_line(w, begun);
    }
    free(v);
}

static void add_running(struct watch *w)
{
    int shown = 0;

    for (size_t i = 0; i < w->s->n; i++) {
        const struct study_trial *t = &w->s->trials[i];
        double start = seconds_of(t->start);
        size_t begun = w->page.len;

        if (t->state != STUDY_RUNNING || shown++ >= RUNNING_SHOWN)
            continue;
        str_addf(&w->page, "%s%d", shown == 1 ? "\nrunning\n  " : "  ", t->number);
        begun += shown == 1 ? strlen("\nrunning\n") : 0;
        if (!isnan(start)) {
            str_add(&w->page, ", ");
            add_duration(&w->page, fmax(0, now() - start));
        }
        if (t->nreports) {
            str_addf(&w->page, ", %g at %lld ", t->reports[t->nreports - 1],
                     (long long)t->steps[t->nreports - 1]);
            add_bars(w, t->reports, t->nreports, 16);
        }
        str_addc(&w->page, ':');
        add_params(w, t);
        end_line(w, begun);
    }
    if (shown > RUNNING_SHOWN)
        str_addf(&w->page, "  and %d more\n", shown - RUNNING_SHOWN);
}

static void add_failed(struct watch *w)
{
    int shown = 0;

    for (size_t i = w->s->n; i-- > 0 && shown < FAILED_SHOWN;) {
        const struct study_trial *t = &w->s->trials[i];
        char *reason = t->state == STUDY_FAIL ? session_reason_dup(t) : NULL;
        size_t begun = w->page.len;

        if (!reason)
            continue;
        str_addf(&w->page, "%s%d: ", shown++ ? "  " : "\nfailed last\n  ", t->number);
        begun += shown == 1 ? strlen("\nfailed last\n") : 0;
        str_add_printable(&w->page, reason);
        end_line(w, begun);
        free(reason);
    }
}

static void make_page(struct watch *w, struct study *s)
{
    struct study_counts counts;

    study_count(&counts, s);
    w->s = s;
    str_reset(&w->page);
    add_head(w, &counts);
    add_best(w);
    add_rate(w, &counts);
    add_values(w);
    add_running(w);
    add_failed(w);
}

/* Put the page over the last one, without a moment of nothing. */
static void show_page(const struct watch *w, bool again)
{
    fputs(again ? "\033[H" : "\033[H\033[2J", stdout);
    for (const char *p = w->page.s, *feed; *p; p = feed + 1) {
        feed = strchr(p, '\n');
        printf("%.*s\033[K\n", (int)(feed - p), p);
    }
    fputs("\033[J", stdout);
    fflush(stdout);
}

static int watch(struct session *s, struct watch *w, double seconds, struct err *err)
{
    const struct timespec nap = { .tv_sec = (time_t)seconds,
                                  .tv_nsec = (long)((seconds - floor(seconds)) * 1e9) };

    for (bool again = false;; again = true) {
        int width = terminal_width(stdout);

        w->width = width ? width < MOST_WIDE ? width : MOST_WIDE : 80;
        make_page(w, &s->study);
        if (width)
            show_page(w, again);
        if (!width)
            fputs(w->page.s, stdout);
        if (!width || !session_is_busy(&s->study))
            return 0;
        nanosleep(&nap, NULL);
        if (session_look_again(s, err) < 0)
            return -1;
    }
}

int watch_main(const char *program, int argc, char **argv)
{
    struct where where = { 0 };
    struct watch w = { 0 };
    const char *every = "2";
    double seconds;
    const struct opt opts[] = {
        WHERE_OPTIONS(where),
        { OPT_INT, '\0', "trials", &w.goal, "N", "finished trials to reach", NULL,
          NULL },
        { OPT_STRING, '\0', "every", &every, "TIME", "how often to look", NULL, NULL },
        { .type = OPT_END },
    };
    const struct cmd cmd = { .name = "watch",
                             .program = program,
                             .opts = opts,
                             .synopsis = "[OPTION]... [FILE]",
                             .max_args = 1,
                             .summary = "Show on the terminal what happens, until no "
                                        "trial runs" };
    char **operand = cmd_parse(&cmd, argc, argv);
    struct session s;
    struct err err = { 0 };
    int ret;

    if (!str_duration(every, &seconds) || seconds < 0.1)
        return cmd_usage(&cmd, "'%s' is no time of at least 0.1 seconds", every);
    if (session_open_file(&s, &where, operand[0], &err) < 0)
        return cmd_fail(&cmd, &err);
    w.wide = setlocale(LC_CTYPE, "") && !strcmp(nl_langinfo(CODESET), "UTF-8");
    w.where = s.st->name;
    ret = watch(&s, &w, seconds, &err);
    str_clear(&w.page);
    session_close(&s);
    return ret < 0 ? cmd_fail(&cmd, &err) : cmd_finish(&cmd, 0);
}
