/* trainerstate - the optimizer of a checkpoint of transformers' Trainer */
#include "lib/ckpt/trainerstate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/json.h"
#include "lib/base/mem.h"
#include "lib/ckpt/numberedstate.h"
#include "lib/ckpt/pickle.h"

const char *const trainerstate_files[] = { "optimizer.pt", "scheduler.pt",
                                           "trainer_state.json", NULL };

enum { MAX_JSON = 64 << 20, MOST_KEYS = 256 };

struct reader {
    struct source *s;
    const char *path; /* of the file that is read */
    struct pickle_values *v;
    int input;
    uint64_t looked; /* entries of the state */
};

static int wrong(const struct reader *r, const char *what, struct err *err)
{
    return err_set(err, ERR_INPUT, "%s: %s", r->path, what);
}

/* ---- optimizer.pt ---- */

/* The state of parameter NUMBER, which is sought from *AT on: they mostly follow one
 * another. */
static const struct pickled *find_state(struct reader *r, const struct pickled *state,
                                        int64_t number, size_t *at)
{
    size_t n = state->list.n / 2;

    for (size_t k = 0; k < n; k++, *at = *at + 1 < n ? *at + 1 : 0) {
        const struct pickled *key = state->list.v[2 * *at];

        if (++r->looked > 64 * (uint64_t)n + 4096)
            return NULL;
        if (pickled_is(key, PICKLED_NUMBER) && key->number == number)
            return state->list.v[2 * *at + 1];
    }
    return NULL;
}

/* Adds the parameter of group G with the state V. */
static int add_parameter(struct reader *r, size_t g, const struct pickled *v,
                         struct err *err)
{
    struct progress *p = &r->s->progress;
    struct progress_parameter *made = progress_add_parameter(p, g);
    double step;

    for (int k = 0; k < NUMBEREDSTATE_NROLES; k++) {
        const struct pickled *moment = pickled_get(v, numberedstate_roles[k]);

        if (!pickled_is(moment, PICKLED_TENSOR))
            return wrong(r, "a parameter without the moments of Adam", err);
        if (pickle_tensor(&made->moment[k], moment, &r->s->pool, r->path,
                          numberedstate_roles[k], err) < 0)
            return -1;
        made->moment[k].input = r->input;
    }
    if (pickle_number(r->v, pickled_get(v, "step"), &step))
        progress_see(p, step);
    return 0;
}

static int add_group(struct reader *r, const struct pickled *state,
                     const struct pickled *group, size_t g, size_t *at, struct err *err)
{
    const struct pickled *params;

    if (progress_add_group(&r->s->progress, group, r->path, err) < 0)
        return -1;
    params = pickled_get(group, "params");
    if (!pickled_is(params, PICKLED_LIST))
        return wrong(r, "a group without a list of parameters", err);
    for (size_t i = 0; i < params->list.n; i++) {
        const struct pickled *key = params->list.v[i], *v = NULL;

        if (pickled_is(key, PICKLED_NUMBER))
            v = find_state(r, state, key->number, at);
        if (!pickled_is(v, PICKLED_DICT) || v->list.n > 2 * MOST_KEYS)
            return wrong(r, "a parameter without a state", err);
        if (r->s->progress.nparameters >= state->list.n / 2)
            return wrong(r, "more parameters than states", err);
        if (add_parameter(r, g, v, err) < 0)
            return -1;
    }
    return 0;
}

static int add_optimizer(struct reader *r, struct err *err)
{
    const struct pickled *state = pickled_get(r->v->root, "state");
    const struct pickled *groups = pickled_get(r->v->root, "param_groups");
    size_t at = 0;

    if (!pickled_is(state, PICKLED_DICT) || !pickled_is(groups, PICKLED_LIST))
        return wrong(r, "no state of an optimizer of PyTorch", err);
    for (size_t g = 0; g < groups->list.n; g++)
        if (add_group(r, state, groups->list.v[g], g, &at, err) < 0)
            return -1;
    return 0;
}

/* ---- the other files ---- */

/* The rate of the next update, which the groups have as well, and the number of the
 * last: that of a schedule that is stepped with each update. */
static int add_scheduler(struct reader *r, struct err *err)
{
    const struct pickled *last = pickled_get(r->v->root, "last_epoch");

    if (!pickled_is(r->v->root, PICKLED_DICT))
        return wrong(r, "no state of a schedule", err);
    if (pickled_is(last, PICKLED_NUMBER) && last->number >= 0)
        r->s->progress.scheduled = (uint64_t)last->number;
    return 0;
}

static int read_values(struct reader *r, const char *dir, int file,
                       int (*add)(struct reader *r, struct err *err), struct err *err)
{
    char *path = fs_join_dup(dir, trainerstate_files[file]);
    struct pickle_values v = { 0 };
    bool found;
    int fd = -1, ret = fs_find(&found, path, err);

    if (ret < 0 || !found)
        goto out;
    ret = form_add_input(r->s, trainerstate_files[file], path, &r->input, &fd, err);
    if (ret < 0)
        goto out;
    r->path = r->s->input[r->input].path;
    r->v = &v;
    ret = pickle_values_read(&v, fd, r->path, err);
    close(fd);
    if (ret < 0)
        goto out;
    if (v.archive)
        form_add_archive(r->s, r->input, 0, v.size);
    ret = add(r, err);
    pickle_values_clear(&v);
out:
    free(path);
    return ret;
}

/* trainer_state.json: an entry of log_history has the rate with which the update of its
 * step was made. */
static int read_state(struct source *s, const char *dir, struct err *err)
{
    char *path = fs_join_dup(dir, trainerstate_files[TRAINERSTATE_STATE]), *text;
    struct progress *p = &s->progress;
    const struct json *log;
    struct json_doc doc;
    int input;
    size_t n;
    int ret = fs_read_optional(&text, &n, path, MAX_JSON, err);

    if (ret < 0 || !text)
        goto out;
    ret = form_add_input(s, trainerstate_files[TRAINERSTATE_STATE], path, &input, NULL,
                         err);
    if (ret == 0)
        ret = json_parse_config(&doc, path, text, n, err);
    if (ret < 0)
        goto out;
    if (!json_u64(json_get(doc.root, "global_step"), &p->steps))
        ret = json_error(&doc, doc.root, err, "no global_step");
    if (!json_u64(json_get(doc.root, "max_steps"), &p->all))
        p->all = 0;
    log = json_get(doc.root, "log_history");
    for (const struct json *j = log ? log->first : NULL; j; j = j->next) {
        uint64_t step;
        double rate;

        if (json_u64(json_get(j, "step"), &step) && step &&
            json_double(json_get(j, "learning_rate"), &rate))
            progress_add_rate(p, step, rate);
    }
    json_clear(&doc);
out:
    free(text);
    free(path);
    return ret;
}

int trainerstate_read(struct source *s, const char *dir, struct err *err)
{
    struct reader r = { .s = s };

    if (read_values(&r, dir, TRAINERSTATE_OPTIMIZER, add_optimizer, err) < 0)
        return -1;
    if (!s->progress.ngroups)
        return 0;
    s->progress.path = r.path;
    return read_values(&r, dir, TRAINERSTATE_SCHEDULER, add_scheduler, err) < 0
               ? -1
               : read_state(s, dir, err);
}
