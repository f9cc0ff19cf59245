/* traindir - the directory of a run: settings, log and checkpoints */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "cmd/tp-run/train.h"
#include "lib/base/fs.h"
#include "lib/base/hash.h"
#include "lib/base/json.h"
#include "lib/base/mem.h"
#include "lib/base/output.h"
#include "lib/base/str.h"

static const char RUN[] = "run.json", LOG[] = "log.jsonl", STEP[] = "step-",
                  FORMAT[] = "shardutils-run";

enum { CHUNK = 1 << 20, MOST = 1 << 30, VERSION = 1 };

bool train_dir_is_run(const char *dir)
{
    char *path = fs_join_dup(dir, RUN);
    bool is = fs_exists(path);

    free(path);
    return is;
}

/* Retries for a moment, because ranks of a killed run may still hold the lock. */
int train_dir_lock(int *fd, const char *dir, struct err *err)
{
    const struct timespec pause = { .tv_nsec = 100000000 };
    int tries = 15;

    *fd = output_dir(dir, OUTPUT_SYNC, err);
    if (*fd < 0)
        return -1;
    while (flock(*fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK && tries-- > 0)
        nanosleep(&pause, NULL);
    if (tries < 0)
        return err_set(err, ERR_LOCKED, "%s: another training is in it", dir);
    return 0; /* without file system support there is no lock */
}

/* ---- checkpoints ---- */

char *train_step_dup(const char *dir, uint64_t step)
{
    return str_dupf("%s%s%s%06" PRIu64, dir, str_ends(dir, "/") ? "" : "/", STEP, step);
}

/* Is NAME a checkpoint's name?  Sets *step. */
static bool is_step(const char *name, uint64_t *step)
{
    return str_starts(name, STEP) && str_u64(name + strlen(STEP), step);
}

struct found {
    uint64_t *step;
    size_t n;
};

static int compare_steps(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

/* Lists the steps of the complete checkpoints in DIR, ascending. */
static int find_steps(struct found *f, const char *dir, struct err *err)
{
    char **names;
    size_t n;
    int ret = 0;

    *f = (struct found){ 0 };
    if (fs_list(&names, &n, dir, err) < 0)
        return -1;
    f->step = xcalloc(n + 1, sizeof(*f->step));
    for (size_t i = 0; i < n && ret == 0; i++) {
        char *path = fs_join_dup(dir, names[i]);
        bool whole = false;

        if (is_step(names[i], &f->step[f->n]))
            ret = checkpoint_is_sharded(&whole, path, err);
        f->n += whole;
        free(path);
    }
    fs_list_free(names, n);
    if (ret < 0) {
        free(f->step);
        *f = (struct found){ 0 };
        return -1;
    }
    qsort(f->step, f->n, sizeof(*f->step), compare_steps);
    return 0;
}

char *train_newest_dup(const char *dir)
{
    struct found f;
    char *path = NULL;

    if (find_steps(&f, dir, NULL) < 0)
        return NULL;
    if (f.n)
        path = train_step_dup(dir, f.step[f.n - 1]);
    free(f.step);
    return path;
}

/* Is NAME an unfinished checkpoint, being written or removed? */
static bool is_leftover(const char *name)
{
    return str_starts(name, STEP) &&
           (str_ends(name, ".partial") || str_ends(name, ".removed") ||
            strstr(name, ".old-"));
}

/* The step of the log line LINE[len]; UINT64_MAX if it is incomplete. */
static uint64_t step_of(const char *line, size_t len)
{
    struct json_doc doc;
    uint64_t step = UINT64_MAX;

    if (json_parse(&doc, LOG, line, len, NULL) < 0)
        return step;
    if (!json_u64(json_get(doc.root, "step"), &step))
        step = UINT64_MAX;
    json_clear(&doc);
    return step;
}

/* Truncates the log after the lines of STEP. */
static int cut_log(const char *dir, uint64_t step, struct err *err)
{
    char *path = fs_join_dup(dir, LOG), *text = NULL;
    struct str kept = { 0 };
    int ret = 0;

    if (fs_exists(path)) {
        size_t n = 0;

        ret = fs_read_regular(&text, &n, path, MOST, err);
        for (char *line = text, *end;
             ret == 0 && (end = memchr(line, '\n', (size_t)(text + n - line)));
             line = end + 1)
            if (step_of(line, (size_t)(end - line)) <= step)
                str_addn(&kept, line, (size_t)(end + 1 - line));
        if (ret == 0)
            ret = output_write(path, str_text(&kept), kept.len, false, err);
    }
    str_clear(&kept);
    free(text);
    free(path);
    return ret;
}

/* Removes what an interrupted run left unfinished, and log lines after STEP. */
static int clean(const char *dir, uint64_t step, struct err *err)
{
    char **names;
    size_t n;
    int ret = 0;

    if (fs_list(&names, &n, dir, err) < 0)
        return -1;
    for (size_t i = 0; i < n && ret == 0; i++) {
        char *path = fs_join_dup(dir, names[i]);

        if (is_leftover(names[i]))
            ret = fs_remove_tree(path, err);
        free(path);
    }
    fs_list_free(names, n);
    return ret < 0 ? -1 : cut_log(dir, step, err);
}

/* Renames it first, so that a half-removed directory is no checkpoint. */
static int remove_step(const char *dir, uint64_t step, struct err *err)
{
    char *path = train_step_dup(dir, step), *gone = str_dupf("%s.removed", path);
    int ret = fs_remove_tree(gone, err);

    if (ret == 0 && rename(path, gone) < 0)
        ret = err_errno(err, "%s", path);
    if (ret == 0)
        ret = fs_remove_tree(gone, err);
    free(path);
    free(gone);
    return ret;
}

int train_dir_prune(const char *dir, int keep, uint64_t best, struct err *err)
{
    struct found f;
    int ret = 0;

    if (find_steps(&f, dir, err) < 0)
        return -1;
    for (size_t i = 0; i + (size_t)keep < f.n && ret == 0; i++)
        if (!best || f.step[i] != best)
            ret = remove_step(dir, f.step[i], err);
    free(f.step);
    return ret;
}

/* Removes a run and all its checkpoints. */
static int remove_run(const char *dir, struct err *err)
{
    const char *const files[] = { RUN, LOG };
    struct found f;
    int ret = find_steps(&f, dir, err);

    for (size_t i = 0; i < f.n && ret == 0; i++)
        ret = remove_step(dir, f.step[i], err);
    free(f.step);
    for (int i = 0; i < 2 && ret == 0; i++) {
        char *path = fs_join_dup(dir, files[i]);

        ret = fs_remove_tree(path, err);
        free(path);
    }
    return ret < 0 ? -1 : clean(dir, 0, err);
}

/* ---- a run's input files ---- */

static int sum_file(uint32_t *crc, uint64_t *size, const char *path, struct err *err)
{
    int fd = fs_open_regular(path, err), ret = 0;
    char *buf = xmalloc(CHUNK);
    ssize_t n = 0;

    *crc = 0;
    *size = 0;
    while (fd >= 0 && (n = read(fd, buf, CHUNK)) > 0) {
        *crc = hash_crc32(*crc, buf, (size_t)n);
        *size += (uint64_t)n;
    }
    if (fd < 0)
        ret = -1;
    else if (n < 0)
        ret = err_errno(err, "%s", path);
    if (fd >= 0)
        close(fd);
    free(buf);
    return ret;
}

int train_files_add(struct train_file **v, size_t *n, const char *path, struct err *err)
{
    char *full = realpath(path, NULL);
    struct train_file f = { .path = full ? full : xstrdup(path) };

    if (sum_file(&f.crc, &f.size, path, err) < 0) {
        free(f.path);
        return -1;
    }
    *v = xrealloc(*v, (*n + 1) * sizeof(**v));
    (*v)[(*n)++] = f;
    return 0;
}

void train_files_clear(struct train_files *f)
{
    for (size_t i = 0; i < f->ndata; i++)
        free(f->data[i].path);
    for (size_t i = 0; i < f->neval; i++)
        free(f->eval[i].path);
    free(f->data);
    free(f->eval);
    free(f->model);
    *f = (struct train_files){ 0 };
}

/* ---- settings ---- */

static char *key_dup(const struct setting *s)
{
    char *key = xstrdup(s->option);

    for (char *c = key; *c; c++)
        *c = *c == '-' ? '_' : *c;
    return key;
}

static void add_value(struct str *out, const struct setting *s)
{
    switch (s->kind) {
    case SETTING_INT:
    case SETTING_COUNT:
        str_addf(out, "%d", *(const int *)s->value);
        break;
    case SETTING_U64:
        str_addf(out, "%" PRIu64, *(const uint64_t *)s->value);
        break;
    case SETTING_DOUBLE:
    case SETTING_SHARE:
    case SETTING_DROPOUT:
    case SETTING_SPIKES:
        str_add_double(out, *(const double *)s->value);
        break;
    case SETTING_CHOICE:
        str_add_json(out, s->choices[*(const int *)s->value]);
        break;
    }
}

void train_settings_print(struct str *out, const struct train *t)
{
    str_addc(out, '{');
    for (size_t i = 0; i < t->nsettings; i++) {
        char *key = key_dup(&t->setting[i]);

        str_addf(out, "%s\"%s\":", i ? "," : "", key);
        add_value(out, &t->setting[i]);
        free(key);
    }
    str_addc(out, '}');
}

const char *train_setting_fault(const struct setting *s)
{
    static const char SHARE[] = "must be at least 0 and less than 1";
    double x = s->kind >= SETTING_DOUBLE && s->kind <= SETTING_SPIKES
                   ? *(const double *)s->value
                   : 0;
    bool config = s->kind == SETTING_DROPOUT && x == -1 && !s->given;

    if (s->kind == SETTING_SPIKES && x != 0)
        return x > 1 && x < HUGE_VAL ? NULL : "must be above 1";
    if ((s->kind == SETTING_SHARE || s->kind == SETTING_DROPOUT) && !config)
        return x >= 0 && x < 1 ? NULL : SHARE;
    return config || (x >= 0 && x < HUGE_VAL) ? NULL : "must be at least 0";
}

/* Sets S to the value J; false when J has another type. */
static bool read_value(const struct setting *s, const struct json *j)
{
    const char *word = json_string(j);
    int64_t i;

    switch (s->kind) {
    case SETTING_INT:
    case SETTING_COUNT:
        if (!json_i64(j, &i) || i < (s->kind == SETTING_COUNT) || i > INT32_MAX)
            return false;
        *(int *)s->value = (int)i;
        return true;
    case SETTING_U64:
        return json_u64(j, s->value);
    case SETTING_DOUBLE:
    case SETTING_SHARE:
    case SETTING_DROPOUT:
    case SETTING_SPIKES:
        return json_double(j, s->value);
    case SETTING_CHOICE:
        for (int k = 0; word && s->choices[k]; k++)
            if (!strcmp(word, s->choices[k])) {
                *(int *)s->value = k;
                return true;
            }
    }
    return false;
}

/* A given setting must equal the stored one unless it may change; a setting that is not
 * given takes the stored value. */
static int take_setting(struct setting *s, const struct json_doc *doc,
                        const struct json *all, struct err *err)
{
    char *key = key_dup(s);
    const struct json *j = json_get(all, key);
    struct str here = { 0 }, there = { 0 };
    int ret = 0;

    free(key);
    if (s->given && !s->fixed)
        return 0;
    if (!j)
        return json_error(doc, all, err, "no option %s", s->option);
    add_value(&here, s);
    if (!read_value(s, j) || train_setting_fault(s))
        ret = json_error(doc, j, err, "a bad value of %s", s->option);
    add_value(&there, s);
    if (ret == 0 && s->given && strcmp(here.s, there.s) != 0)
        ret = err_set(err, ERR_USAGE,
                      "--%s %s: the run in %s was begun with %s, and goes on with it",
                      s->option, here.s, doc->name, there.s);
    str_clear(&here);
    str_clear(&there);
    return ret;
}

/* ---- run.json ---- */

static void add_files(struct str *out, const char *key, const struct train_file *f,
                      size_t n)
{
    str_addf(out, ",\n\"%s\":[", key);
    for (size_t i = 0; i < n; i++) {
        str_add(out, i ? ",\n{\"path\":" : "\n{\"path\":");
        str_add_json(out, f[i].path);
        str_addf(out, ",\"size\":%" PRIu64 ",\"crc32\":\"%08" PRIx32 "\"}", f[i].size,
                 f[i].crc);
    }
    str_addc(out, ']');
}

/* Adds the model's files; of a sharded checkpoint only the manifest, which has their
 * checksums. */
static int add_model(struct str *out, const struct train *t, const char *model,
                     struct err *err)
{
    const struct checkpoint *c = t->session->checkpoint;
    struct train_file *v = NULL;
    size_t n = 0;
    int ret = 0;

    str_add(out, ",\n\"model\":");
    str_add_json(out, model);
    for (size_t i = 0; ret == 0 && i < (c->sharded ? 1 : c->source.nfiles); i++) {
        char *path = c->sharded
                         ? fs_join_dup(c->path, MANIFEST_NAME)
                         : xstrdup(c->source.file[i].path ? c->source.file[i].path
                                                          : c->source.config_path);

        ret = train_files_add(&v, &n, path, err);
        free(path);
    }
    if (ret == 0)
        add_files(out, "model_files", v, n);
    for (size_t i = 0; i < n; i++)
        free(v[i].path);
    free(v);
    return ret;
}

static int write_run(const struct train *t, struct err *err)
{
    const struct train_files *f = &t->files;
    char *path = fs_join_dup(t->dir, RUN);
    struct str out = { 0 };
    int ret;

    str_addf(&out, "{\"format\":\"%s\",\"version\":%d", FORMAT, VERSION);
    ret = add_model(&out, t, f->model, err);
    add_files(&out, "data", f->data, f->ndata);
    add_files(&out, "eval_data", f->eval, f->neval);
    str_add(&out, ",\n\"options\":");
    train_settings_print(&out, t);
    str_add(&out, "}\n");
    if (ret == 0)
        ret = output_write(path, out.s, out.len, true, err);
    str_clear(&out);
    free(path);
    return ret;
}

int train_dir_begin(const struct train *t, struct err *err)
{
    if (t->replaces && train_dir_is_run(t->dir) && remove_run(t->dir, err) < 0)
        return -1;
    return write_run(t, err) < 0 ? -1 : clean(t->dir, t->state.step, err);
}

static int read_files(struct train_file **v, size_t *n, const struct json_doc *doc,
                      const char *key, struct err *err)
{
    const struct json *all = json_get(doc->root, key);

    for (const struct json *j = all ? all->first : NULL; j; j = j->next) {
        const char *path = json_string(json_get(j, "path"));
        const char *crc = json_string(json_get(j, "crc32"));
        struct train_file f = { 0 };

        if (!path || !crc || !json_u64(json_get(j, "size"), &f.size))
            return json_error(doc, j, err, "expected a file");
        f.path = xstrdup(path);
        f.crc = (uint32_t)strtoul(crc, NULL, 16);
        *v = xrealloc(*v, (*n + 1) * sizeof(**v));
        (*v)[(*n)++] = f;
    }
    return 0;
}

static int check_format(const struct json_doc *doc, struct err *err)
{
    const struct json *format = json_get(doc->root, "format");
    const struct json *version = json_get(doc->root, "version");
    const char *name = json_string(format);
    uint64_t n;

    if (!name || strcmp(name, FORMAT) != 0)
        return json_error(doc, format ? format : doc->root, err, "not %s", FORMAT);
    if (!json_u64(version, &n) || n != VERSION)
        return json_error(doc, version ? version : doc->root, err,
                          "of a version other than %d", VERSION);
    return 0;
}

int train_dir_read(struct train *t, struct err *err)
{
    struct train_files *f = &t->files;
    char *path = fs_join_dup(t->dir, RUN), *text = NULL;
    struct json_doc doc;
    const char *model;
    size_t n;
    int ret = -1;

    if (fs_read_regular(&text, &n, path, MOST, err) < 0 ||
        json_parse(&doc, path, text, n, err) < 0)
        goto out;
    if (check_format(&doc, err) < 0)
        goto clear;
    model = json_string(json_get(doc.root, "model"));
    if (!model) {
        json_error(&doc, doc.root, err, "no model");
        goto clear;
    }
    f->model = xstrdup(model);
    for (size_t i = 0; i < t->nsettings; i++)
        if (take_setting(&t->setting[i], &doc, json_get(doc.root, "options"), err) < 0)
            goto clear;
    if (read_files(&f->data, &f->ndata, &doc, "data", err) < 0 ||
        read_files(&f->eval, &f->neval, &doc, "eval_data", err) < 0)
        goto clear;
    ret = 0;
clear:
    json_clear(&doc);
out:
    free(text);
    free(path);
    return ret;
}

/* ---- training state in a manifest ---- */

char *train_state_dup(const struct train *t, const struct train_state *s,
                      double eval_loss)
{
    struct str out = { 0 };

    str_addf(&out,
             "{\"step\":%" PRIu64 ",\"updates\":%" PRIu64 ",\"samples\":%" PRIu64
             ",\"tokens\":%" PRIu64,
             s->step, s->updates, s->step * (uint64_t)t->o.global, s->tokens);
    str_add(&out, ",\"norm\":");
    str_add_double(&out, s->norm);
    if (s->best_step) {
        str_addf(&out, ",\"best_step\":%" PRIu64 ",\"best\":", s->best_step);
        str_add_double(&out, s->best);
    }
    if (!isnan(eval_loss)) {
        str_add(&out, ",\"eval_loss\":");
        str_add_double(&out, eval_loss);
    }
    str_add(&out, ",\"options\":");
    train_settings_print(&out, t);
    str_addc(&out, '}');
    return str_steal(&out);
}

int train_state_read(struct train *t, const struct checkpoint *c, struct err *err)
{
    const char *text = c->manifest.training;
    struct train_state s = { .best = (double)INFINITY };
    struct json_doc doc;
    int ret = 0;

    if (!text)
        return err_set(err, ERR_INPUT, "%s: has no state of a training", c->path);
    if (json_parse(&doc, c->path, text, strlen(text), err) < 0)
        return -1;
    if (!json_u64(json_get(doc.root, "step"), &s.step) ||
        !json_u64(json_get(doc.root, "updates"), &s.updates) ||
        !json_u64(json_get(doc.root, "tokens"), &s.tokens) ||
        !json_double(json_get(doc.root, "norm"), &s.norm))
        ret = json_error(&doc, NULL, err, "its training is not as expected");
    if (json_u64(json_get(doc.root, "best_step"), &s.best_step) &&
        !json_double(json_get(doc.root, "best"), &s.best))
        ret = json_error(&doc, NULL, err, "its training is not as expected");
    json_clear(&doc);
    if (ret == 0)
        t->state = s;
    return ret;
}
