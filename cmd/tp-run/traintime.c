/* traintime - what the passes of a step took: files of --timeline */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/picture.h"
#include "cmd/pipechart.h"
#include "cmd/tp-run/train.h"
#include "lib/base/mem.h"
#include "lib/base/output.h"
#include "lib/pipe/csv.h"

/* Does PATH end in SUFFIX? */
static bool ends(const char *path, const char *suffix)
{
    size_t n = strlen(path), m = strlen(suffix);

    return n > m && !strcmp(path + n - m, suffix);
}

int train_times_check(const struct opt_list *paths, struct err *err)
{
    for (size_t i = 0; i < paths->n; i++)
        if (!ends(paths->v[i], ".csv") && !ends(paths->v[i], ".json") &&
            !canvas_can_draw(paths->v[i]) && !html_is_named(paths->v[i]))
            return err_set(err, ERR_USAGE,
                           "--timeline: '%s' does not end in .csv, .json, %s",
                           paths->v[i], PICTURE_NAMES);
    return 0;
}

void train_times_see(struct train_times *b, const struct action_table *t, uint64_t step,
                     double seconds)
{
    struct passtimes now;

    passtimes_open(&now, t);
    if (b->steps++ > 1 && now.makespan >= b->measured.makespan) {
        passtimes_clear(&now);
        return;
    }
    train_times_clear(b);
    b->measured = now;
    action_table_copy(&b->table, t);
    b->step = step;
    b->seconds = seconds;
}

void train_times_clear(struct train_times *b)
{
    action_table_clear(&b->table);
    passtimes_clear(&b->measured);
}

/* "llama: step 3, 2 stages, 8 micro-batches, 12.3 % idle"; the caller frees it. */
static char *title_dup(const struct train *t, const struct train_times *b,
                       const struct pipe_result *r)
{
    char *model = picture_name_dup(t->files.model ? t->files.model
                                                  : t->session->checkpoint->path);
    const double idle = b->measured.makespan - r->ideal;
    char *title = str_dupf(
        "%s: step %llu, %d stages, %d micro-batches, %.1f %% idle", model,
        (unsigned long long)b->step, b->table.ranks, b->table.micro_batches,
        b->measured.makespan > 0 && idle > 0 ? 100 * idle / b->measured.makespan : 0);

    free(model);
    return title;
}

static int draw(const char *path, const struct train *t, const struct train_times *b,
                const char *text, const struct pipe_times *times,
                const struct pipe_result *r, struct err *err)
{
    char *title = title_dup(t, b, r);
    int ret = pipechart_write(&(struct pipechart){ .path = path,
                                                   .command = t->command,
                                                   .title = title,
                                                   .text = text,
                                                   .unit = "seconds",
                                                   .table = &b->table,
                                                   .times = times,
                                                   .result = r,
                                                   .measured = &b->measured },
                              err);

    free(title);
    return ret;
}

static int write_one(const char *path, const struct train *t,
                     const struct train_times *b, const char *text,
                     const struct pipe_times *times, const struct pipe_result *r,
                     struct err *err)
{
    struct str out = { 0 };
    int ret;

    if (ends(path, ".csv"))
        csv_print(&out, &b->table);
    else if (ends(path, ".json"))
        passtimes_add_trace(&out, &b->table);
    else
        return draw(path, t, b, text, times, r, err);
    ret = output_write(path, out.s, out.len, false, err);
    str_clear(&out);
    return ret;
}

/* What B takes in a simulation; the caller clears *R, which needs B. */
static int simulate(struct pipe_result *r, struct pipe_times *times,
                    const struct train_times *b, struct err *err)
{
    return passtimes_simulate(r, times, &b->measured, &b->table, err);
}

/* The line that says what was measured; the caller frees it. */
static char *line_dup(const struct train_times *b, const struct pipe_result *r)
{
    return str_dupf("timeline of step %llu: %.4g s measured, %.4g s simulated with the "
                    "mean time of each pass (%.4g)",
                    (unsigned long long)b->step, b->measured.makespan, r->makespan,
                    r->makespan > 0 ? b->measured.makespan / r->makespan : 1);
}

int train_times_log(struct train_log *l, const struct train_times *b, struct err *err)
{
    struct pipe_times times;
    struct pipe_result r;
    char *text;
    int ret;

    if (!b->steps)
        return 0;
    if (simulate(&r, &times, b, err) < 0)
        return -1;
    text = line_dup(b, &r);
    ret = train_log_timeline(l, b, r.makespan, text, err);
    free(text);
    pipe_result_clear(&r);
    return ret;
}

int train_times_write(const struct train *t, const struct train_times *b,
                      struct err *err)
{
    struct pipe_times times;
    struct pipe_result r;
    char *text;
    int ret = 0;

    if (!t->timeline.n)
        return 0;
    if (!b->steps) {
        cmd_warn(t->session->cmd, "--timeline: no step was measured");
        return 0;
    }
    if (simulate(&r, &times, b, err) < 0)
        return -1;
    text = line_dup(b, &r);
    for (size_t i = 0; i < t->timeline.n && ret == 0; i++)
        ret = write_one(t->timeline.v[i], t, b, text, &times, &r, err);
    free(text);
    pipe_result_clear(&r);
    return ret;
}
