/* trainlog - reports of a training run: JSON lines, plain lines, progress, hpo-sweep's
 * files */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/tp-run/train.h"
#include "lib/base/clock.h"
#include "lib/base/fs.h"
#include "lib/base/output.h"
#include "lib/base/str.h"
#include "lib/estimate/costmodel.h"

/* A log without files. */
static void init(struct train_log *l, const struct train *t)
{
    bool terminal = isatty(STDOUT_FILENO);

    *l = (struct train_log){ .t = t,
                             .fd = { -1, -1 },
                             .begun = clock_seconds(),
                             .first = t->state.step,
                             .samples = t->state.samples,
                             .state = t->state,
                             .loss = (double)NAN,
                             .norm = (double)NAN,
                             .rate = (double)NAN,
                             .events = -1,
                             .eval_loss = t->state.eval_loss };
    l->progress =
        cmd_progress(t->session->opt.quiet) && (!t->session->opt.json || !terminal);
    l->lines =
        !t->session->opt.json && !t->session->opt.quiet && !(l->progress && terminal);
}

int train_log_open(struct train_log *l, const struct train *t, struct err *err)
{
    char *own = t->dir ? fs_join_dup(t->dir, "log.jsonl") : NULL;
    int ret = 0;

    init(l, t);
    if ((own && ((l->fd[0] = output_append(own, err)) < 0 ||
                 output_sync_name(own, err) < 0)) ||
        (t->log && (l->fd[1] = output_append(t->log, err)) < 0) ||
        train_export_open(l, err) < 0) {
        train_log_close(l);
        ret = -1;
    }
    free(own);
    return ret;
}

void train_log_close(struct train_log *l)
{
    if (l->shown)
        fputc('\n', stderr);
    for (int i = 0; i < 2; i++)
        if (l->fd[i] >= 0)
            close(l->fd[i]);
    l->shown = false;
    l->fd[0] = l->fd[1] = -1;
    train_export_close(l);
}

int train_log_sync(const struct train_log *l, struct err *err)
{
    return l->fd[0] >= 0 && fsync(l->fd[0]) < 0 && errno != EINVAL
               ? err_errno(err, "the run's log.jsonl")
               : 0;
}

/* Writes the JSON LINE to the log files, and to standard output with --json. */
static int put(struct train_log *l, struct str *line, struct err *err)
{
    str_add(line, "}\n");
    for (int i = 0; i < 2; i++)
        if (l->fd[i] >= 0 && fs_write(l->fd[i], line->s, line->len,
                                      i ? l->t->log : "the run's log.jsonl", err) < 0)
            return -1;
    if (!l->t->session->opt.json)
        return 0;
    if (fwrite(line->s, 1, line->len, stdout) != line->len || fflush(stdout) != 0)
        return err_errno(err, "standard output");
    return 0;
}

/* Prints a plain line, if these are enabled. */
static int say(struct train_log *l, const char *text, struct err *err)
{
    if (!l->lines)
        return 0;
    cmd_puts(text);
    return fflush(stdout) != 0 ? err_errno(err, "standard output") : 0;
}

static double epoch_of(const struct train_log *l)
{
    return (double)l->state.samples / (double)data_samples(l->t->data);
}

static void add_key(struct str *s, const char *key, double x)
{
    str_addf(s, ",\"%s\":", key);
    str_add_double(s, x);
}

int train_log_start(struct train_log *l, const char *backend, struct err *err)
{
    const struct session *s = l->t->session;
    uint64_t params = costmodel_params(s->checkpoint->model);
    struct str line = { 0 };
    int ret;

    str_addf(&line,
             "{\"type\":\"start\",\"step\":%" PRIu64 ",\"model\":", l->state.step);
    str_add_json(&line, l->t->files.model ? l->t->files.model : s->checkpoint->path);
    str_add(&line, ",\"family\":");
    str_add_json(&line, s->checkpoint->model->family);
    str_addf(&line, ",\"params\":%" PRIu64 ",\"mesh\":{", params);
    for (int a = 0; a < MESH_NAXES; a++)
        str_addf(&line, "%s\"%s\":%d", a ? "," : "", mesh_axis_names[a],
                 s->mesh.size[a]);
    str_addf(&line, "},\"backend\":\"%s\"", backend);
    if (s->choice.instead_of) {
        str_addf(&line,
                 ",\"instead_of\":\"%s\",\"reason\":", s->choice.instead_of->name);
        str_add_json(&line, s->choice.reason);
    }
    str_addf(&line, ",\"threads\":%d,\"command\":", s->machine.threads);
    str_add_json(&line, l->t->command);
    ret = put(l, &line, err);
    str_clear(&line);
    return ret;
}

int train_log_step(struct train_log *l, const struct train_told *s, struct err *err)
{
    struct str line = { 0 };
    char *plain;
    int ret;

    l->worked += s->seconds;
    l->tokens += s->tokens;
    l->flops += s->flops;
    l->loss = s->result.loss;
    l->norm = s->result.norm;
    l->rate = s->rate;
    l->skipped += s->result.skipped;
    if (s->result.counted) {
        l->loss_sum += s->result.loss;
        l->losses++;
    }
    str_addf(&line, "{\"type\":\"step\",\"step\":%" PRIu64, l->state.step);
    add_key(&line, "loss", s->result.loss);
    if (!isnan(s->result.balance))
        add_key(&line, "aux_loss", s->result.balance);
    if (!isnan(s->result.router_z))
        add_key(&line, "router_z_loss", s->result.router_z);
    add_key(&line, "grad_norm", s->result.norm);
    add_key(&line, "learning_rate", s->rate);
    add_key(&line, "epoch", epoch_of(l));
    str_addf(&line, ",\"tokens\":%" PRIu64, l->state.tokens);
    add_key(&line, "tokens_per_second",
            s->seconds > 0 ? (double)s->tokens / s->seconds : 0);
    str_addf(&line, ",\"memory\":%" PRIu64, l->memory);
    if (s->seconds > 0 && l->peak > 0) {
        add_key(&line, "flops_per_second", s->flops / s->seconds);
        add_key(&line, "peak_share", s->flops / s->seconds / l->peak);
    }
    if (l->t->o.compute == COMPUTE_F16)
        add_key(&line, "loss_scale", s->result.scale);
    if (s->result.skipped)
        str_add(&line, ",\"skipped\":true");
    for (size_t i = 0; s->id && i < s->samples; i++)
        str_addf(&line, "%s%" PRIu64, i ? "," : ",\"samples\":[", s->id[i]);
    if (s->id)
        str_addc(&line, ']');
    for (size_t i = 0; s->id && data_sources(l->t->data) && i < s->samples; i++) {
        str_add(&line, i ? "," : ",\"sources\":[");
        str_add_json(&line, l->t->files.data.v[s->source[i]].path);
    }
    if (s->id && data_sources(l->t->data))
        str_addc(&line, ']');
    ret = put(l, &line, err);
    str_clear(&line);
    plain = str_dupf("step %" PRIu64 "/%d  loss %.4f  norm %.4g  lr %.4g  %.4g "
                     "tokens/s%s",
                     l->state.step, l->t->o.steps, s->result.loss, s->result.norm,
                     s->rate, s->seconds > 0 ? (double)s->tokens / s->seconds : 0,
                     s->result.overflows ? "  skipped: overflow of f16"
                     : s->result.skipped ? "  skipped"
                                         : "");
    if (ret == 0 && (l->state.step % (uint64_t)l->t->log_every == 0 ||
                     l->state.step == (uint64_t)l->t->o.steps))
        ret = say(l, plain, err);
    free(plain);
    train_show_step(l, s->rate);
    train_export_step(l);
    return ret;
}

/* Reports an evaluation to hpo-sweep. */
static int report(const struct train_log *l, double loss, struct err *err)
{
    struct str line = { 0 };
    int fd, ret;

    if (!l->t->report)
        return 0;
    str_addf(&line, "%" PRIu64 " %.17g\n", l->state.step, loss);
    fd = output_append(l->t->report, err);
    ret = fd < 0 ? -1 : fs_write(fd, line.s, line.len, l->t->report, err);
    if (fd >= 0)
        close(fd);
    str_clear(&line);
    return ret;
}

/* Adds KEY where X is a number. */
static void add_some(struct str *line, const char *key, double x)
{
    if (!isnan(x))
        add_key(line, key, x);
}

/* The F1 of each class, by its name in config.json. */
static void add_classes(struct str *line, const struct verdict *m)
{
    const char *join = ",\"eval_f1_by_class\":{";

    for (size_t k = 0; k < m->classes; k++) {
        const double f1 = verdict_class_f1(m, k);

        if (isnan(f1))
            return;
        str_add(line, join);
        if (m->name[k][0])
            str_add_json(line, m->name[k]);
        else
            str_addf(line, "\"LABEL_%zu\"", k);
        str_addc(line, ':');
        str_add_double(line, f1);
        join = ",";
    }
    if (m->classes)
        str_addc(line, '}');
}

int train_log_eval(struct train_log *l, double loss, const struct verdict *metrics,
                   double seconds, struct err *err)
{
    const double exact = verdict_exact(metrics);
    struct str line = { 0 }, says = { 0 };
    int ret;

    l->eval_loss = loss;
    l->accuracy = verdict_accuracy(metrics);
    l->f1 = verdict_f1(metrics);
    str_addf(&says, "step %" PRIu64 "/%d  eval_loss %.4f", l->state.step, l->t->o.steps,
             loss);
    if (!isnan(l->accuracy))
        str_addf(&says, "  accuracy %.4f", l->accuracy);
    if (!isnan(exact))
        str_addf(&says, "  exact match %.4f", exact);
    if (!isnan(l->f1))
        str_addf(&says, "  f1 %.4f", l->f1);
    str_addf(&line, "{\"type\":\"eval\",\"step\":%" PRIu64, l->state.step);
    add_key(&line, "eval_loss", loss);
    add_some(&line, "eval_accuracy", l->accuracy);
    add_some(&line, "eval_exact_match", exact);
    add_some(&line, "eval_f1", l->f1);
    add_some(&line, "eval_precision", verdict_precision(metrics));
    add_some(&line, "eval_recall", verdict_recall(metrics));
    add_classes(&line, metrics);
    add_key(&line, "eval_runtime", seconds);
    add_key(&line, "epoch", epoch_of(l));
    ret = put(l, &line, err);
    if (ret == 0)
        ret = report(l, loss, err);
    if (ret == 0)
        ret = say(l, str_text(&says), err);
    train_export_eval(l);
    str_clear(&line);
    str_clear(&says);
    return ret;
}

int train_log_timeline(struct train_log *l, const struct train_times *b,
                       double simulated, const char *text, struct err *err)
{
    struct str line = { 0 };
    int ret;

    str_addf(&line, "{\"type\":\"timeline\",\"step\":%" PRIu64, b->step);
    add_key(&line, "measured", b->measured.makespan);
    add_key(&line, "simulated", simulated);
    add_key(&line, "step_runtime", b->seconds);
    str_add(&line, ",\"passes\":");
    passtimes_add_json(&line, &b->measured, &b->table);
    ret = put(l, &line, err);
    if (ret == 0)
        ret = say(l, text, err);
    str_clear(&line);
    return ret;
}

int train_log_checkpoint(const struct train *t, const char *path, struct err *err)
{
    char *full, *line;
    int ret;

    if (!t->trace || fs_resolve(&full, path, err) < 0)
        return t->trace ? -1 : 0;
    line = str_dupf("%s\n", full ? full : path);
    ret = output_write(t->trace, line, strlen(line), false, err);
    free(line);
    free(full);
    return ret;
}

int train_log_end(struct train_log *l, const char *checkpoint, struct err *err)
{
    double took = clock_seconds() - l->begun;
    double steps = (double)(l->state.step - l->first);
    double loss = isnan(l->eval_loss) ? l->loss : l->eval_loss;
    bool finished = train_is_done(l->t, &l->state);
    bool early = finished && l->state.step < (uint64_t)l->t->o.steps;
    struct str line = { 0 };
    int ret;

    str_addf(&line, "{\"type\":\"train\",\"step\":%" PRIu64 ",\"finished\":%s",
             l->state.step, finished ? "true" : "false");
    add_key(&line, "train_runtime", took);
    add_key(&line, "train_samples_per_second",
            steps > 0 ? (double)(l->state.samples - l->samples) / took : 0);
    add_key(&line, "train_steps_per_second", steps > 0 ? steps / took : 0);
    if (early)
        str_add(&line, ",\"early\":true");
    if (l->losses)
        add_key(&line, "train_loss", l->loss_sum / (double)l->losses);
    if (steps > 0)
        train_export_end(l);
    if (!isnan(l->eval_loss))
        add_key(&line, "eval_loss", l->eval_loss);
    add_key(&line, "epoch", epoch_of(l));
    str_add(&line, ",\"checkpoint\":");
    if (checkpoint)
        str_add_json(&line, checkpoint);
    else
        str_add(&line, "null");
    ret = put(l, &line, err);
    str_reset(&line);
    str_addf(&line, "%s after step %" PRIu64 " of %d",
             finished ? "finished" : "stopped", l->state.step, l->t->o.steps);
    if (early)
        str_addf(&line, ", without gain in %" PRIu64 " evaluations", l->state.stale);
    if (checkpoint)
        str_addf(&line, ": %s", checkpoint);
    if (ret == 0)
        ret = say(l, line.s, err);
    if (ret == 0 && l->progress && !l->lines) {
        if (l->shown) {
            l->drawn = 0;
            train_show_step(l, l->rate);
            fputc('\n', stderr);
        } else {
            train_show_none(true);
        }
        l->shown = false;
        cmd_warn(l->t->session->cmd, "%s", line.s);
    }
    if (ret == 0 && l->t->result && finished && !isnan(loss)) {
        str_reset(&line);
        str_add_double(&line, loss);
        str_addc(&line, '\n');
        ret = output_write(l->t->result, line.s, line.len, false, err);
    }
    if (ret == 0 && checkpoint)
        ret = train_log_checkpoint(l->t, checkpoint, err);
    str_clear(&line);
    return ret;
}

int train_log_finished(const struct train *t, const char *checkpoint, struct err *err)
{
    struct train_log l;

    init(&l, t);
    return isnan(l.eval_loss) && train_dir_last_loss(&l.loss, t->dir, err) < 0
               ? -1
               : train_log_end(&l, checkpoint, err);
}
