/* trainrank - the main function of a training rank */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/tp-run/train.h"
#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/ckpt/steps.h"
#include "lib/cpu/machine.h"
#include "lib/program/cost.h"
#include "lib/train/restore.h"
#include "lib/train/wholes.h"

enum { EVAL_BATCH = 8, SETTLED = 10 }; /* SETTLED: updates before spikes are detected */

struct work {
    struct train *t;
    struct comm *world;
    struct trainer trainer;
    struct saver *saver;
    struct train_log log; /* only rank 0 has open files */
    struct train_state state;
    struct sample *sample; /* [samples] */
    size_t samples;
    size_t count;   /* of the next step's; dummies fill up the batch */
    uint64_t *id;   /* [global], or NULL */
    size_t *source; /* [global], of a mixture */
    double begun;
    struct program *whole; /* on rank 0: a single-rank program, for counting FLOPs */
    double *flops;         /* [seq + 1]: FLOPs of a document by length; 0: not computed
                            * yet */
    uint64_t saved;        /* step of the last save; UINT64_MAX: none */
    struct train_times times; /* on rank 0, with --timeline */
    bool apart; /* a failure was not agreed on: the ranks do no more together */
};

/* ---- agreement after a step ---- */

struct word {
    int signal;  /* signal received; 0: none */
    int written; /* this rank has written its part of the checkpoint */
    int failed;  /* or has failed to */
    int late;    /* --stop-after has passed */
};

/* Combines the words of all ranks: the first signal, all written, any failed, any late.
 */
static int exchange(struct work *w, struct word *out, struct err *err)
{
    const struct train_options *o = &w->t->o;
    struct word mine = { w->t->session->launcher.stop->signal,
                         w->saver && saver_is_written(w->saver),
                         w->saver && saver_has_failed(w->saver),
                         o->stop_after > 0 &&
                             clock_seconds() - w->begun >= o->stop_after };
    struct word *all = xcalloc((size_t)w->world->size, sizeof(*all));
    int ret = comm_run(w->world, comm_all_gather(&mine, all, sizeof(mine)), err);

    *out = (struct word){ .written = 1 };
    for (int r = 0; r < w->world->size && ret == 0; r++) {
        out->signal = out->signal ? out->signal : all[r].signal;
        out->written &= all[r].written;
        out->failed |= all[r].failed;
        out->late |= all[r].late;
    }
    free(all);
    return ret;
}

/* ---- checkpoints ---- */

/* The last save is whole: hpo-sweep may have others begin with it. */
static int tell_checkpoint(const struct work *w, struct err *err)
{
    char *path = steps_path_dup(w->t->dir, w->saved);
    int ret = train_log_checkpoint(w->t, path, err);

    free(path);
    return ret;
}

static int finish_save(struct work *w, struct err *err)
{
    const struct train *t = w->t;
    int ret;

    if (!w->saver || !saver_is_busy(w->saver))
        return 0;
    if (w->log.progress && !saver_is_written(w->saver))
        train_show_doing(true, "saving", -1);
    ret = w->world->rank == 0 ? train_log_sync(&w->log, err) : 0;
    if (saver_agree(w->world, ret, err) < 0 || saver_finish(w->saver, err) < 0)
        return -1;
    ret = w->world->rank == 0 ? tell_checkpoint(w, err) : 0;
    if (ret == 0 && w->world->rank == 0 && (t->o.keep || t->o.keep_best))
        ret = train_dir_prune(t->dir, t->o.keep ? t->o.keep : 1,
                              t->o.keep_best ? w->state.best_step : 0, err);
    return saver_agree(w->world, ret, err);
}

static int begin_save(struct work *w, struct err *err)
{
    char *path, *training;
    int ret = finish_save(w, err);

    if (ret < 0 || w->saved == w->state.step)
        return ret;
    path = steps_path_dup(w->t->dir, w->state.step);
    training = train_state_dup(w->t, &w->state);
    ret = saver_begin(w->saver, path, training, err);
    w->saved = w->state.step;
    free(path);
    free(training);
    return ret;
}

/* Notes the evaluation of this step, if there was one, in the checkpoint that is being
 * written. */
static void note_evaluation(struct work *w)
{
    char *training;

    if (w->saved != w->state.step || isnan(w->state.eval_loss))
        return;
    if (w->state.eval_loss < w->state.best) {
        w->state.best = w->state.eval_loss;
        w->state.best_step = w->state.step;
    }
    training = train_state_dup(w->t, &w->state);
    saver_note(w->saver, training);
    free(training);
}

/* ---- evaluation ---- */

static int fill_held(struct train *t, uint64_t first, size_t n, struct sample *out,
                     struct err *err)
{
    return t->eval ? data_fill(t->eval, first, n, out, err)
                   : data_fill_held(t->data, first, n, out, err);
}

static int evaluate_all(struct work *w, struct verdict *metrics, struct err *err)
{
    struct train *t = w->t;
    const struct schedule schedule = train_schedule(&t->o);
    /* a loss that depends on its batch has that of a step on any number of ranks */
    const size_t batch =
        loss_table[t->loss].distance ? (size_t)t->o.global : w->samples;
    double sum = 0, begun = clock_seconds();
    uint64_t counted = 0;
    int ret = 0;

    if (!t->held || !isnan(w->state.eval_loss))
        return 0;
    for (uint64_t i = 0; i < t->held; i += batch) {
        size_t n = t->held - i < batch ? (size_t)(t->held - i) : batch;

        if (w->log.progress)
            train_show_doing(true, "evaluating", (double)i / (double)t->held);
        if (saver_agree(w->world, fill_held(t, i, n, w->sample, err), err) < 0)
            return -1;
        if (trainer_evaluate(&w->trainer, w->sample, n, metrics, &sum, &counted, err) <
            0) {
            w->apart = true;
            return -1;
        }
    }
    if (!counted)
        return err_set(err, ERR_INPUT, "nothing to evaluate: no token counts");
    w->state.eval_loss = sum / (double)counted;
    schedule_see(&schedule, &w->state.rates, w->state.eval_loss);
    w->state.stale = w->state.eval_loss < w->state.lowest ? 0 : w->state.stale + 1;
    w->state.lowest = fmin(w->state.lowest, w->state.eval_loss);
    w->log.state = w->state;
    if (w->world->rank == 0)
        ret = train_log_eval(&w->log, w->state.eval_loss, metrics,
                             clock_seconds() - begun, err);
    return saver_agree(w->world, ret, err);
}

static int evaluate(struct work *w, struct err *err)
{
    struct data_options names = { 0 };
    struct verdict metrics;
    int ret;

    train_loss_classes(&names, w->t);
    verdict_open(&metrics, w->t->loss, names.classes, names.class_name);
    ret = evaluate_all(w, &metrics, err);
    verdict_clear(&metrics);
    train_loss_clear(&names);
    return ret;
}

/* Saves first: an evaluation that fails, or takes long, costs no step. */
static int save_and_evaluate(struct work *w, bool save, bool eval, struct err *err)
{
    struct err why;

    if (save && begin_save(w, err) < 0)
        return -1;
    if (eval && evaluate(w, &why) < 0) {
        if (w->apart || finish_save(w, err) == 0)
            *err = why;
        return -1;
    }
    if (save)
        note_evaluation(w);
    return 0;
}

/* ---- throughput ---- */

/* On rank 0: counts FLOPs for a single rank, so they do not depend on the layout. */
static int open_count(struct work *w, struct err *err)
{
    const struct program_options options = { .tail = TAIL_NLL,
                                             .reverse = true,
                                             .training = true };
    const struct mesh one = { .size = { 1, 1, 1, 1, 1 }, .nranks = 1 };
    const int coord[MESH_NAXES] = { 0 };

    if (w->world->rank > 0)
        return 0;
    w->flops = xcalloc((size_t)w->t->o.seq + 1, sizeof(*w->flops));
    return program_build(&w->whole, w->t->session->checkpoint->model, &one, coord,
                         &options, err);
}

/* Measures the throughput of all ranks while all compute. */
static int measure_peak(struct work *w, struct err *err)
{
    double peak = 0;
    int ret = machine_product(w->t->session->machine.threads, &peak, err);

    if (saver_agree(w->world, ret, err) < 0)
        return -1;
    ret = comm_run(w->world, comm_all_reduce_f64(&peak, 1), err);
    w->log.peak = peak;
    return ret;
}

static double count_document(struct work *w, size_t n)
{
    if (n && w->flops[n] <= 0) {
        struct cost_step s = cost_prompt((double)n);
        struct cost c = cost_program(w->whole, &s);

        w->flops[n] = c.products + c.attention;
    }
    return w->flops[n];
}

static double count_flops(struct work *w, const struct sample *s)
{
    double sum = 0;

    if (!s->documents)
        return count_document(w, s->n);
    for (size_t d = 0; d < s->documents; d++)
        sum += count_document(w, (d + 1 < s->documents ? s->start[d + 1] : s->n) -
                                     s->start[d]);
    return sum;
}

/* ---- a step ---- */

/* WHAT is so at this step. */
static int refuse(struct work *w, const char *what, struct err *err)
{
    struct err look = { 0 };
    char *last = NULL;

    if (finish_save(w, err) < 0)
        return -1;
    if (w->t->dir && train_newest(&last, w->t->dir, &look) < 0)
        last = NULL;
    err_set(err, ERR_NO, "step %llu: %s; %s%s", (unsigned long long)w->state.step, what,
            last        ? "the last good checkpoint is "
            : look.kind ? "no checkpoint can be looked for: "
                        : "there is no checkpoint",
            last ? last : look.text);
    free(last);
    return -1;
}

static int tell(struct work *w, const struct train_told *told, struct err *err)
{
    if (w->world->rank > 0)
        return 0;
    w->log.state = w->state;
    return train_log_step(&w->log, told, err);
}

/* Fills up a batch: nothing of it is learned. */
static const int32_t no_id = 0, no_target = -1;
static const struct sample dummy = {
    .id = &no_id, .target = &no_target, .n = 1, .source = &no_id, .nsource = 1
};

/* Reads the samples of the next step, the last of which in an epoch may have fewer, and
 * makes room for them.  Fails on all ranks if on any, none of which has begun the step.
 */
static int read_samples(struct work *w, struct err *err)
{
    size_t n = (size_t)w->t->o.global;
    int ret;

    w->count = w->t->o.drop_last ? n : data_batch(w->t->data, w->state.samples, n);
    ret = data_fill(w->t->data, w->state.samples, w->count, w->sample, err);
    for (size_t i = w->count; i < n; i++)
        w->sample[i] = dummy;
    if (ret == 0)
        ret = trainer_make_room(&w->trainer, w->sample, n, err);
    return saver_agree(w->world, ret, err);
}

static int step(struct work *w, struct err *err)
{
    const struct train_options *o = &w->t->o;
    uint64_t first = w->state.samples;
    double begun = clock_seconds();
    const struct schedule schedule = train_schedule(o);
    struct train_told told = {
        .rate = schedule_rate(&schedule, w->state.step - w->state.scaler.overflowed,
                              &w->state.rates),
        .samples = w->count,
        .id = w->id,
        .source = w->source
    };
    struct trainer_result *r = &told.result;

    for (size_t i = 0; i < w->count; i++) {
        told.tokens += w->sample[i].n;
        told.flops += w->whole ? count_flops(w, &w->sample[i]) : 0;
        if (w->id)
            w->id[i] = data_sample_id(w->t->data, first + i, &w->source[i]);
    }
    w->trainer.most_norm =
        o->spikes > 0 && w->state.updates >= SETTLED ? o->spikes * w->state.norm : 0;
    w->trainer.first = first;
    w->trainer.count = w->count;
    if (trainer_step(&w->trainer, w->sample, told.rate, r, err) < 0)
        return -1;
    w->state.step++;
    w->state.samples += w->count;
    w->state.eval_loss = (double)NAN;
    w->state.tokens += told.tokens;
    told.seconds = clock_seconds() - begun;
    if (w->t->timeline.n && w->world->rank == 0 && r->counted)
        train_times_see(&w->times, &w->trainer.timing.table, w->state.step,
                        told.seconds);
    w->state.scaler = w->trainer.scaler;
    if (r->overflows && w->state.scaler.scale < 1)
        return refuse(w, "gradients are no numbers of f16, with a loss scale of 1",
                      err);
    if (r->skipped && r->counted && !r->overflows && !(o->spikes > 0))
        return refuse(w,
                      isfinite(r->loss) ? "the gradients' norm is not a number"
                                        : "the loss is not a number",
                      err);
    if (!r->skipped) {
        w->state.norm =
            w->state.updates ? 0.9 * w->state.norm + 0.1 * r->norm : r->norm;
        w->state.updates++;
    }
    return tell(w, &told, err);
}

/* ---- a run ---- */

bool train_is_done(const struct train *t, const struct train_state *state)
{
    return state->step >= (uint64_t)t->o.steps ||
           (t->o.early_stop && state->stale >= (uint64_t)t->o.early_stop);
}

static bool is_due(uint64_t step, int every)
{
    return every > 0 && step % (uint64_t)every == 0;
}

/* Saves what a step would have gone on from that has failed before it began; fails as
 * it did. */
static int save_last(struct work *w, struct err *err)
{
    struct err why = *err;

    if (w->saver && w->state.step > w->t->state.step && begin_save(w, err) < 0)
        return -1;
    if (finish_save(w, err) == 0)
        *err = why;
    return -1;
}

static int run_steps(struct work *w, struct err *err)
{
    const struct train_options *o = &w->t->o;
    struct launcher_stop *stop = w->t->session->launcher.stop;
    struct word word = { 0 };
    bool done;

    if (w->state.step && is_due(w->state.step, o->eval_every) && evaluate(w, err) < 0)
        return -1; /* it was saved, but not evaluated before the run ended */
    while (!train_is_done(w->t, &w->state)) {
        bool save;

        if (read_samples(w, err) < 0)
            return save_last(w, err);
        if (step(w, err) < 0 || exchange(w, &word, err) < 0)
            return -1;
        if (word.failed)
            saver_stop(w->saver);
        if ((word.written || word.failed) && finish_save(w, err) < 0)
            return -1;
        if (word.signal || word.late)
            break;
        save = w->saver && is_due(w->state.step, o->save_every);
        if (save_and_evaluate(
                w, save, is_due(w->state.step, o->eval_every) || (save && o->keep_best),
                err) < 0)
            return -1;
    }
    done = train_is_done(w->t, &w->state);
    if (word.signal && !done && w->world->rank == 0)
        stop->obeyed = word.signal;
    if (save_and_evaluate(w, w->saver != NULL, done, err) < 0)
        return -1;
    return finish_save(w, err);
}

/* Bytes of this rank's weights, gradients, optimizer state and activations, but for
 * what is offloaded. */
static double count_bytes(const struct trainer *t)
{
    static const char *const parts[] = {
        "weights",        "gathered_weights", "gradients", "optimizer",
        "gradient_sums",  "activations",      "exchange",  "kv_cache",
        "optimizer_room", "expert_rows",      "loss"
    };
    struct ledger list = { 0 };
    uint64_t bytes = 0;

    trainer_memory(t, &list);
    for (int k = 0; k < list.n; k++)
        for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
            if (list.part[k].where != LEDGER_HOST &&
                !strcmp(list.part[k].name, parts[i]))
                bytes += list.part[k].bytes;
    return (double)bytes;
}

static void say_divided(const struct work *w)
{
    const int n = trainer_divided(&w->trainer);

    if (n && w->world->rank == 0 && !w->t->session->opt.quiet)
        cmd_warn(
            w->t->session->cmd,
            "ranks have parts of blocks of 8 bits of %d matrices, which they round "
            "apart: other numbers than on one rank",
            n);
}

static int open_work(struct work *w, struct err *err)
{
    struct train *t = w->t;
    const bool shows = w->world->rank == 0 && cmd_progress(t->session->opt.quiet);
    const struct session *s = t->session;
    const struct train_options *o = &t->o;
    const size_t turn = (size_t)(EVAL_BATCH * o->micro) *
                        (size_t)(s->mesh.size[MESH_DP] * s->mesh.size[MESH_EP]);
    const struct trainer_options options = {
        .length = (size_t)o->seq,
        .source = train_source_most(t),
        .documents = train_documents_most(t),
        .micro_batch = o->micro,
        .global = o->global,
        .table = t->table,
        .timed = t->timeline.n > 0,
        .deterministic = o->deterministic,
        .sequence = o->sequence,
        .recompute = o->recompute,
        .frozen = (enum weights_form)o->frozen,
        .compute = o->compute == COMPUTE_BF16  ? FORMAT_BF16
                   : o->compute == COMPUTE_F16 ? FORMAT_F16
                                               : FORMAT_F32,
        .no_master = o->master > 0,
        .zero = o->zero,
        .hsdp = o->hsdp,
        .offload = o->offload > 0,
        .dropout = o->dropout,
        .seed = o->seed,
        .terms = o->terms,
        .decays = (enum decay_kind)o->decays,
        .loss = t->loss,
        .numbers = train_loss_numbers(t),
        .optimizer = { .kind = (enum optimizer_kind)o->optimizer,
                       .momentum = o->momentum,
                       .beta1 = o->beta1,
                       .beta2 = o->beta2,
                       .eps = o->eps,
                       .decay = o->decay,
                       .others =
                           o->adamw_lr < 0 || o->lr <= 0 ? 1 : o->adamw_lr / o->lr,
                       .adjust = o->adjust_lr,
                       .relative = o->relative,
                       .warms = o->warms,
                       .scaled = o->scaled,
                       .threshold = o->clip_threshold,
                       .power = -o->decay_rate,
                       .clip = o->clip },
    };
    double *bytes;
    int ret = 0;

    w->samples = (size_t)o->global;
    if (w->samples < turn)
        w->samples = turn;
    w->sample = xcalloc(w->samples, sizeof(*w->sample));
    if (o->log_samples)
        w->id = xcalloc((size_t)o->global, sizeof(*w->id));
    w->source = xcalloc((size_t)o->global, sizeof(*w->source));
    train_show_doing(shows, "loading", -1);
    if (trainer_open(&w->trainer, s->checkpoint, &s->mesh, &s->machine, w->world,
                     &options, err) < 0 ||
        restore_state(&w->trainer, s->checkpoint, t->resumed || t->forked || t->foreign,
                      err) < 0)
        return -1;
    w->trainer.optimizer.t = w->state.updates;
    say_divided(w);
    if (o->compute == COMPUTE_F16)
        w->trainer.scaler = w->state.scaler;
    else
        w->trainer.scaler.overflowed = w->state.scaler.overflowed;
    if (t->dir && o->save_every &&
        saver_open(&w->saver, &w->trainer, s->checkpoint, w->world, err) < 0)
        return -1;
    if (w->world->rank == 0 && t->dir)
        ret = train_dir_begin(t, err);
    if (w->world->rank == 0 && ret == 0)
        ret = train_log_open(&w->log, t, err);
    if (w->world->rank == 0 && ret == 0)
        ret = train_log_start(&w->log, w->trainer.ops->name, err);
    if (saver_agree(w->world, ret, err) < 0 || open_count(w, err) < 0 ||
        measure_peak(w, err) < 0)
        return -1;
    bytes = xcalloc((size_t)w->world->size, sizeof(*bytes));
    bytes[w->world->rank] = count_bytes(&w->trainer);
    ret = comm_run(w->world, comm_all_reduce_f64(bytes, (size_t)w->world->size), err);
    for (int i = 0; i < w->world->size; i++)
        if (bytes[i] > (double)w->log.memory)
            w->log.memory = (uint64_t)bytes[i];
    free(bytes);
    return ret;
}

int train_rank(void *arg, struct comm *world, struct err *err)
{
    struct train *t = arg;
    struct work w = { .t = t,
                      .world = world,
                      .state = t->state,
                      .log.fd = { -1, -1 },
                      .log.events = -1,
                      .begun = clock_seconds(),
                      .saved = t->resumed ? t->state.step : UINT64_MAX };
    char *newest = NULL;
    struct ledger held = { 0 };
    int ret = open_work(&w, err);

    if (ret == 0)
        ret = run_steps(&w, err);
    if (ret == 0) { /* nothing that was allocated is released before the end */
        trainer_memory(&w.trainer, &held);
        ret = session_report_list(t->session, &held, world, err);
    }
    if (ret == 0 && world->rank == 0) {
        w.log.state = w.state;
        ret = t->dir ? train_newest(&newest, t->dir, err) : 0;
        if (ret == 0)
            ret = train_times_log(&w.log, &w.times, err);
        if (ret == 0)
            ret = train_log_end(&w.log, newest, err);
        if (ret == 0)
            ret = train_times_write(t, &w.times, err);
    }
    free(newest);
    train_times_clear(&w.times);
    train_log_close(&w.log);
    saver_close(w.saver);
    if (w.trainer.ops)
        trainer_close(&w.trainer);
    program_free(w.whole);
    free(w.flops);
    free(w.sample);
    free(w.id);
    free(w.source);
    return ret;
}
