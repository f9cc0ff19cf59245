/* trainexport - what other programs read of a training: Prometheus' and TensorBoard's
 * files
 *
 * They are a convenience: one that cannot be written is told once, and training goes
 * on. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cmd/tp-run/train.h"
#include "lib/base/clock.h"
#include "lib/base/fs.h"
#include "lib/base/output.h"
#include "lib/base/str.h"
#include "lib/train/events.h"

static const double OFTEN = 1; /* seconds between two files of metrics */

static void give_up(const struct train_log *l, bool *failed, const struct err *err)
{
    cmd_warn(l->t->session->cmd, "%s; training goes on without", err->text);
    *failed = true;
}

/* ---- Prometheus' text format ---- */

/* The label of all: the run's directory. */
static void add_label(struct str *s, const struct train *t)
{
    str_add(s, "{run=\"");
    for (const char *p = t->dir ? t->dir : ""; *p; p++)
        if (*p == '\n')
            str_add(s, "\\n");
        else
            str_addf(s, "%s%c", *p == '"' || *p == '\\' ? "\\" : "", *p);
    str_add(s, "\"} ");
}

static void add_metric(struct str *s, const struct train *t, const char *name,
                       const char *type, const char *help, double value)
{
    if (isnan(value))
        return;
    str_addf(s, "# HELP tp_run_train_%s %s\n# TYPE tp_run_train_%s %s\ntp_run_train_%s",
             name, help, name, type, name);
    add_label(s, t);
    if (isinf(value))
        str_add(s, value > 0 ? "+Inf" : "-Inf");
    else
        str_add_double(s, value);
    str_addc(s, '\n');
}

static void write_metrics(struct train_log *l)
{
    const struct train *t = l->t;
    const double worked = l->worked > 0 ? l->worked : (double)NAN;
    struct str s = { 0 };
    struct err err;

    add_metric(&s, t, "step", "gauge", "Steps done.", (double)l->state.step);
    add_metric(&s, t, "steps", "gauge", "Steps in all.", t->o.steps);
    add_metric(&s, t, "epoch", "gauge", "Epochs done.",
               (double)l->state.samples / (double)data_samples(t->data));
    add_metric(&s, t, "loss", "gauge", "Loss of the last step.", l->loss);
    add_metric(&s, t, "eval_loss", "gauge", "Loss of the last evaluation.",
               l->eval_loss);
    add_metric(&s, t, "grad_norm", "gauge",
               "Norm of the last step's gradients, before clipping.", l->norm);
    add_metric(&s, t, "learning_rate", "gauge", "Learning rate of the last step.",
               l->rate);
    add_metric(&s, t, "tokens_total", "counter", "Tokens trained on.",
               (double)l->state.tokens);
    add_metric(&s, t, "skipped_steps_total", "counter",
               "Steps of this process whose update was skipped.", (double)l->skipped);
    add_metric(&s, t, "tokens_per_second", "gauge",
               "Tokens a second, in steps of this process.",
               (double)l->tokens / worked);
    if (l->peak > 0)
        add_metric(&s, t, "peak_share", "gauge",
                   "Share of the ranks' throughput in products of matrices.",
                   l->flops / worked / l->peak);
    add_metric(&s, t, "memory_bytes", "gauge", "Bytes of the rank that has the most.",
               (double)l->memory);
    if (output_write(t->metrics, s.s, s.len, false, &err) < 0)
        give_up(l, &l->no_metrics, &err);
    str_clear(&s);
    l->measured = clock_seconds();
}

/* ---- TensorBoard's event file ---- */

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void put_events(struct train_log *l, const struct str *events)
{
    struct err err;

    if (fs_write(l->events, events->s, events->len, l->t->tensorboard, &err) < 0)
        give_up(l, &l->no_events, &err);
}

int train_export_open(struct train_log *l, struct err *err)
{
    const struct train *t = l->t;
    char host[256] = "", *name, *path;
    struct str events = { 0 };
    int fd;

    if (!t->tensorboard)
        return 0;
    fd = output_dir(t->tensorboard, OUTPUT_MAKE, err);
    if (fd < 0)
        return -1;
    close(fd);
    if (gethostname(host, sizeof(host) - 1) < 0)
        host[0] = '\0';
    for (char *p = host; *p; p++)
        *p = *p == '/' ? '_' : *p;
    name = str_dupf("events.out.tfevents.%lld.%s.%ld.0", (long long)now(), host,
                    (long)getpid());
    path = fs_join_dup(t->tensorboard, name);
    l->events = output_create(path, err);
    free(path);
    free(name);
    if (l->events < 0)
        return -1;
    events_begin(&events, now());
    if (t->state.step)
        events_restart(&events, now(), t->state.step + 1);
    put_events(l, &events);
    str_clear(&events);
    return 0;
}

void train_export_close(struct train_log *l)
{
    if (l->events >= 0)
        close(l->events);
    l->events = -1;
}

static void add_scalar(struct str *events, const struct train_log *l, const char *tag,
                       double value)
{
    if (!isnan(value))
        events_scalar(events, now(), l->state.step, tag, value);
}

/* ---- */

void train_export_step(struct train_log *l)
{
    struct str events = { 0 };

    if (l->events >= 0 && !l->no_events) {
        add_scalar(&events, l, "train/loss", l->loss);
        add_scalar(&events, l, "train/grad_norm", l->norm);
        add_scalar(&events, l, "train/learning_rate", l->rate);
        add_scalar(&events, l, "train/epoch",
                   (double)l->state.samples / (double)data_samples(l->t->data));
        put_events(l, &events);
    }
    if (l->t->metrics && !l->no_metrics && clock_seconds() - l->measured >= OFTEN)
        write_metrics(l);
    str_clear(&events);
}

void train_export_eval(struct train_log *l)
{
    struct str events = { 0 };

    if (l->events >= 0 && !l->no_events) {
        add_scalar(&events, l, "eval/loss", l->eval_loss);
        add_scalar(&events, l, "eval/accuracy", l->accuracy);
        add_scalar(&events, l, "eval/f1", l->f1);
        put_events(l, &events);
    }
    str_clear(&events);
    train_export_end(l);
}

void train_export_end(struct train_log *l)
{
    if (l->t->metrics && !l->no_metrics)
        write_metrics(l);
}
