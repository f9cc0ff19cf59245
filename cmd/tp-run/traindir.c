/* traindir - the directory of a run: settings, log and checkpoints */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cmd/tp-run/train.h"
#include "lib/base/fs.h"
#include "lib/base/hash.h"
#include "lib/base/json.h"
#include "lib/base/mem.h"
#include "lib/base/output.h"
#include "lib/base/str.h"
#include "lib/run/adapter.h"

static const char RUN[] = "run.json", LOG[] = "log.jsonl", FORMAT[] = "shardutils-run";

enum { CHUNK = 1 << 20, MOST = 1 << 30, VERSION = 1 };

/* ---- the lock ---- */

/* Locks the open directory FD.  Retries for a moment, because ranks of a killed run may
 * still hold the lock. */
static int lock(int fd, const char *dir, struct err *err)
{
    const struct timespec pause = { .tv_nsec = 100000000 };
    int tries = 15;

    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno == EOPNOTSUPP || errno == ENOSYS || errno == ENOLCK)
            return 0; /* without file system support there is no lock */
        if (errno != EWOULDBLOCK && errno != EINTR)
            return err_errno(err, "%s", dir);
        if (tries-- <= 0)
            return err_set(err, ERR_LOCKED, "%s: another training is in it", dir);
        nanosleep(&pause, NULL);
    }
    return 0;
}

/* Is DIR still the directory that FD was opened as?  A start that fails removes the one
 * that it made. */
static int is_same(bool *same, int fd, const char *dir, struct err *err)
{
    struct stat opened, named;

    if (fstat(fd, &opened) < 0)
        return err_errno(err, "%s", dir);
    if (stat(dir, &named) < 0) {
        *same = false;
        return errno == ENOENT ? 0 : err_errno(err, "%s", dir);
    }
    *same = opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
    return 0;
}

int train_dir_lock(int *fd, const char *dir, struct err *err)
{
    bool same = false;

    while (!same) {
        int opened = output_dir(dir, OUTPUT_SYNC, err);

        if (opened < 0)
            return -1;
        if (lock(opened, dir, err) < 0 || is_same(&same, opened, dir, err) < 0) {
            close(opened);
            return -1;
        }
        if (same)
            *fd = opened;
        else
            close(opened);
    }
    return 0;
}

int train_dir_look(struct train_look *look, const char *dir, struct err *err)
{
    struct train_look seen = { 0 };
    char *path = fs_join_dup(dir, RUN), *text = NULL;
    size_t n = 0;
    int ret = fs_find_dir(&seen.is_dir, dir, err);

    if (ret == 0 && seen.is_dir)
        ret = fs_read_optional(&text, &n, path, MOST, err);
    if (ret == 0 && text) {
        seen.is_run = true;
        seen.crc = hash_crc32(0, text, n);
        ret = train_newest(&seen.newest, dir, err);
    }
    free(text);
    free(path);
    if (ret == 0)
        *look = seen;
    return ret;
}

void train_look_clear(struct train_look *look)
{
    free(look->newest);
    *look = (struct train_look){ 0 };
}

int train_dir_check(const struct train_look *before, const char *dir, struct err *err)
{
    struct train_look now;
    bool same;

    if (train_dir_look(&now, dir, err) < 0)
        return -1;
    same = now.is_run == before->is_run && now.crc == before->crc &&
           !strcmp(now.newest ? now.newest : "", before->newest ? before->newest : "");
    train_look_clear(&now);
    return same ? 0
                : err_set(err, ERR_LOCKED,
                          "%s: another training has changed it since this one began to "
                          "read it",
                          dir);
}

/* Does the log line LINE[len] tell of what the run has done in STATE?  An incomplete
 * one does not, nor does an evaluation that no checkpoint has noted: it is made again.
 */
static bool is_of(const struct train_state *state, const char *line, size_t len)
{
    const char *type;
    struct json_doc doc;
    uint64_t step;
    bool is;

    if (json_parse(&doc, LOG, line, len, NULL) < 0)
        return false;
    type = json_string(json_get(doc.root, "type"));
    is = json_u64(json_get(doc.root, "step"), &step) && step <= state->step &&
         (step < state->step || !isnan(state->eval_loss) || !type ||
          strcmp(type, "eval") != 0);
    json_clear(&doc);
    return is;
}

/* Truncates the log after the lines of STATE. */
static int cut_log(const char *dir, const struct train_state *state, struct err *err)
{
    char *path = fs_join_dup(dir, LOG), *text = NULL;
    struct str kept = { 0 };
    size_t n = 0;
    int ret = fs_read_optional(&text, &n, path, MOST, err);

    if (ret == 0 && text) {
        for (char *line = text, *end;
             (end = memchr(line, '\n', (size_t)(text + n - line))); line = end + 1)
            if (is_of(state, line, (size_t)(end - line)))
                str_addn(&kept, line, (size_t)(end + 1 - line));
        ret = output_write(path, str_text(&kept), kept.len, true, err);
    }
    str_clear(&kept);
    free(text);
    free(path);
    return ret;
}

int train_dir_last_loss(double *loss, const char *dir, struct err *err)
{
    char *path = fs_join_dup(dir, LOG), *text = NULL;
    size_t n = 0;
    int ret = fs_read_optional(&text, &n, path, MOST, err);

    *loss = (double)NAN;
    if (ret == 0 && text)
        for (char *line = text, *end;
             (end = memchr(line, '\n', (size_t)(text + n - line))); line = end + 1) {
            struct json_doc doc;
            const char *type;

            if (json_parse(&doc, LOG, line, (size_t)(end - line), NULL) < 0)
                continue;
            type = json_string(json_get(doc.root, "type"));
            if (type && !strcmp(type, "step") &&
                !json_double(json_get(doc.root, "loss"), loss))
                *loss = (double)NAN;
            json_clear(&doc);
        }
    free(text);
    free(path);
    return ret;
}

/* Removes a run and all its checkpoints. */
static int remove_run(const char *dir, struct err *err)
{
    const char *const files[] = { RUN, LOG };
    int ret = train_steps_remove(dir, err);

    for (int i = 0; i < 2 && ret == 0; i++) {
        char *path = fs_join_dup(dir, files[i]);

        ret = fs_remove_tree(path, err);
        free(path);
    }
    return ret < 0 ? -1 : train_steps_clean(dir, err);
}

/* ---- a run's input files ---- */

/* Makes standard input a file that can be read again: unless it is one, a temporary
 * copy without a name takes its place. */
static int hold_input(struct err *err)
{
    static const char what[] = "standard input";
    FILE *copy = NULL;
    char *buf = NULL;
    struct stat st;
    int ret = -1;
    ssize_t n;

    if (fstat(STDIN_FILENO, &st) == 0 && S_ISREG(st.st_mode)) {
        ret = 0;
        goto out;
    }
    copy = tmpfile();
    if (!copy) {
        err_errno(err, "a copy of %s", what);
        goto out;
    }
    buf = xmalloc(CHUNK);
    while ((n = read(STDIN_FILENO, buf, CHUNK)) > 0)
        if (fs_write(fileno(copy), buf, (size_t)n, what, err) < 0)
            goto out;
    ret = n < 0 || dup2(fileno(copy), STDIN_FILENO) < 0 ? err_errno(err, what) : 0;
out:
    if (copy)
        fclose(copy);
    free(buf);
    if (ret == 0 && lseek(STDIN_FILENO, 0, SEEK_SET) < 0)
        ret = err_errno(err, what);
    return ret;
}

/* "-" is standard input, which is left at its beginning. */
static int sum_file(uint32_t *crc, uint64_t *size, const char *path, struct err *err)
{
    bool standard = !strcmp(path, "-");
    int fd = -1, ret = 0;
    char *buf = xmalloc(CHUNK);
    ssize_t n = 0;

    if (!standard)
        fd = fs_open_regular(path, err);
    else if (hold_input(err) == 0)
        fd = dup(STDIN_FILENO);
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
    if (standard && ret == 0 && lseek(fd, 0, SEEK_SET) < 0)
        ret = err_errno(err, "%s", path);
    if (fd >= 0)
        close(fd);
    free(buf);
    return ret;
}

static void add_file(struct train_list *list, struct train_file file)
{
    list->v = xrealloc(list->v, (list->n + 1) * sizeof(*list->v));
    list->v[list->n++] = file;
}

int train_files_add(struct train_list *list, const char *path, struct err *err)
{
    struct train_file f = { 0 };

    if (strcmp(path, "-") != 0 && fs_resolve(&f.path, path, err) < 0)
        return -1;
    if (!f.path)
        f.path = xstrdup(path);
    if (sum_file(&f.crc, &f.size, path, err) < 0) {
        free(f.path);
        return -1;
    }
    add_file(list, f);
    return 0;
}

int train_files_compare(const struct train_list *list, const struct opt_list *given,
                        const char *option, struct err *err)
{
    int ret = 0;

    if (given && given->n && given->n != list->n)
        return err_set(err, ERR_USAGE, "--%s: %zu files; the run was begun with %zu",
                       option, given->n, list->n);
    for (size_t i = 0; i < list->n && ret == 0; i++) {
        const struct train_file *f = &list->v[i];
        const char *path = given && given->n ? given->v[i] : f->path;
        struct train_file now;

        ret = sum_file(&now.crc, &now.size, path, err);
        if (ret == 0 && (now.size != f->size || now.crc != f->crc))
            ret = err_set(err, ERR_USAGE,
                          "%s: %" PRIu64 " bytes with the CRC-32 %08" PRIx32
                          "; the run was begun with %" PRIu64 " bytes with %08" PRIx32,
                          path, now.size, now.crc, f->size, f->crc);
    }
    return ret;
}

void train_list_clear(struct train_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        free(list->v[i].path);
    free(list->v);
    *list = (struct train_list){ 0 };
}

void train_files_clear(struct train_files *f)
{
    train_list_clear(&f->data);
    train_list_clear(&f->eval);
    train_list_clear(&f->weights);
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
    case SETTING_MAYBE:
    case SETTING_SPIKES:
        str_add_double(out, *(const double *)s->value);
        break;
    case SETTING_CHOICE:
        str_add_json(out, s->choices[*(const int *)s->value]);
        break;
    case SETTING_TEXT:
        str_add_json(
            out, *(const char *const *)s->value ? *(const char *const *)s->value : "");
        break;
    case SETTING_FLAG:
        str_addf(out, "%d", *(const bool *)s->value);
        break;
    }
}

void train_settings_note(struct setting *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct str usual = { 0 };

        if (s[i].fixed == SETTING_ADDED || s[i].fixed == SETTING_LATER)
            add_value(&usual, &s[i]);
        else if (s[i].fixed == SETTING_TURNED)
            str_add(&usual, "1");
        if (s[i].fixed >= SETTING_ADDED)
            s[i].usual = str_steal(&usual);
    }
}

void train_settings_clear(struct setting *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(s[i].usual);
        free(s[i].text);
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
    bool config = (s->kind == SETTING_DROPOUT || s->kind == SETTING_MAYBE) && x == -1 &&
                  !s->given;

    if (s->kind == SETTING_SPIKES && x != 0)
        return x > 1 && x < HUGE_VAL ? NULL : "must be above 1";
    if ((s->kind == SETTING_SHARE || s->kind == SETTING_DROPOUT) && !config)
        return x >= 0 && x < 1 ? NULL : SHARE;
    return config || (x >= 0 && x < HUGE_VAL) ? NULL : "must be at least 0";
}

/* Sets S to the value J; false when J has another type. */
static bool read_value(struct setting *s, const struct json *j)
{
    const char *word = json_string(j);
    int least = s->kind == SETTING_COUNT, usual;
    int64_t i;

    switch (s->kind) {
    case SETTING_INT:
    case SETTING_COUNT:
        if (s->usual && str_int(s->usual, &usual) && usual < least)
            least = usual; /* what is not given */
        if (!json_i64(j, &i) || i < least || i > INT32_MAX)
            return false;
        *(int *)s->value = (int)i;
        return true;
    case SETTING_U64:
        return json_u64(j, s->value);
    case SETTING_DOUBLE:
    case SETTING_SHARE:
    case SETTING_DROPOUT:
    case SETTING_MAYBE:
    case SETTING_SPIKES:
        return json_double(j, s->value);
    case SETTING_CHOICE:
        for (int k = 0; word && s->choices[k]; k++)
            if (!strcmp(word, s->choices[k])) {
                *(int *)s->value = k;
                return true;
            }
        return false;
    case SETTING_TEXT:
        if (!word)
            return false;
        free(s->text);
        s->text = xstrdup(word);
        *(const char **)s->value = *word ? s->text : NULL;
        return true;
    case SETTING_FLAG:
        if (!json_i64(j, &i) || i < 0 || i > 1)
            return false;
        *(bool *)s->value = i;
        return true;
    }
    return false;
}

/* A given setting must equal the stored one unless it may change, as all may where the
 * run is FORKED; a setting that is not given takes the stored value. */
static int take_setting(struct setting *s, const struct json_doc *doc,
                        const struct json *all, bool forked, struct err *err)
{
    char *key = key_dup(s);
    const struct json *j = json_get(all, key);
    struct str here = { 0 }, there = { 0 };
    int ret = 0;

    free(key);
    if (s->given && (!s->fixed || s->fixed == SETTING_LATER || forked))
        return 0;
    if (!j && s->fixed == SETTING_TURNED && !s->given)
        *(bool *)s->value = true;
    if (!j && s->fixed < SETTING_ADDED)
        return json_error(doc, all, err, "no option %s", s->option);
    add_value(&here, s);
    if (j && (!read_value(s, j) || train_setting_fault(s)))
        ret = json_error(doc, j, err, "a bad value of %s", s->option);
    if (j)
        add_value(&there, s);
    else
        str_add(&there, s->usual);
    if (ret == 0 && s->given && strcmp(here.s, there.s) != 0)
        ret = err_set(err, ERR_USAGE,
                      "--%s %s: the run in %s was begun with %s, and goes on with it",
                      s->option, here.s, doc->name, there.s);
    str_clear(&here);
    str_clear(&there);
    return ret;
}

/* ---- run.json ---- */

static void add_files(struct str *out, const char *key, const struct train_list *list)
{
    str_addf(out, ",\n\"%s\":[", key);
    for (size_t i = 0; i < list->n; i++) {
        const struct train_file *f = &list->v[i];

        str_add(out, i ? ",\n{\"path\":" : "\n{\"path\":");
        str_add_json(out, f->path);
        str_addf(out, ",\"size\":%" PRIu64 ",\"crc32\":\"%08" PRIx32 "\"", f->size,
                 f->crc);
        if (f->vocab)
            str_addf(out, ",\"vocab\":%" PRIu64, f->vocab);
        if (f->weight > 0)
            str_addf(out, ",\"weight\":%.17g", f->weight);
        str_addc(out, '}');
    }
    str_addc(out, ']');
}

/* Adds the model's file NAME (NULL: the model is a single file) by that name, which may
 * be a link to a store of files. */
static int add_weights(struct train_list *list, const char *model, const char *name,
                       struct err *err)
{
    struct train_file f = { .path = name ? fs_join_dup(model, name) : xstrdup(model) };

    if (sum_file(&f.crc, &f.size, f.path, err) < 0) {
        free(f.path);
        return -1;
    }
    add_file(list, f);
    return 0;
}

int train_files_note(struct train *t, struct err *err)
{
    const struct checkpoint *c = t->session->checkpoint;
    struct train_list *list = &t->files.weights;
    const struct session *s = t->session;
    const char *model = t->files.model, *file = NULL;
    char *base = NULL, *config = NULL;
    uint64_t size;
    int ret = 0;

    if (c->adapter)
        file = adapter_file(c->adapter, &size);
    if (file && add_weights(list, file, NULL, err) < 0)
        return -1;
    if (s->located) { /* the model is that of an adapter */
        if (fs_resolve(&base, c->path, err) < 0)
            return -1;
        model = base ? base : c->path;
    }
    if (c->sharded) /* its manifest has the checksums of all files */
        ret = add_weights(list, model, MANIFEST_NAME, err);
    else if (c->source.config) {
        /* a run may be resumed from another directory */
        ret = fs_resolve(&config, c->source.config_path, err);
        if (ret == 0)
            ret = add_weights(list, config ? config : c->source.config_path, NULL, err);
    }
    for (size_t i = 0; ret == 0 && !c->sharded && i < c->source.ninputs - c->replaced;
         i++)
        ret = add_weights(list, model,
                          c->source.single ? NULL : c->source.input[i].name, err);
    free(config);
    free(base);
    return ret;
}

static int write_run(const struct train *t, struct err *err)
{
    const struct train_files *f = &t->files;
    char *path = fs_join_dup(t->dir, RUN);
    struct str out = { 0 };
    int ret;

    str_addf(&out, "{\"format\":\"%s\",\"version\":%d,\n\"model\":", FORMAT, VERSION);
    str_add_json(&out, f->model);
    add_files(&out, "model_files", &f->weights);
    add_files(&out, "data", &f->data);
    add_files(&out, "eval_data", &f->eval);
    if (t->forked)
        str_add(&out, ",\n\"forked\":true");
    if (t->foreign)
        str_add(&out, ",\n\"resumed_from\":true");
    str_add(&out, ",\n\"options\":");
    train_settings_print(&out, t);
    str_add(&out, "}\n");
    ret = output_write(path, out.s, out.len, true, err);
    str_clear(&out);
    free(path);
    return ret;
}

int train_dir_begin(struct train *t, struct err *err)
{
    bool is_run = false;

    if (!t->resumed && !t->files.weights.n && train_files_note(t, err) < 0)
        return -1;
    if (t->replaces && fs_find_in(&is_run, t->dir, RUN, err) < 0)
        return -1;
    if (is_run && remove_run(t->dir, err) < 0)
        return -1;
    if (write_run(t, err) < 0 || train_steps_clean(t->dir, err) < 0 ||
        train_steps_retire(t->dir, t->state.step, err) < 0)
        return -1;
    return cut_log(t->dir, &t->state, err);
}

static int read_files(struct train_list *list, const struct json_doc *doc,
                      const char *key, struct err *err)
{
    const struct json *all = json_get(doc->root, key);

    for (const struct json *j = all ? all->first : NULL; j; j = j->next) {
        const char *path = json_string(json_get(j, "path"));
        const char *crc = json_string(json_get(j, "crc32"));
        struct train_file f = { 0 };

        if (!path || !crc || !json_u64(json_get(j, "size"), &f.size))
            return json_error(doc, j, err, "expected a file");
        if (!json_u64(json_get(j, "vocab"), &f.vocab))
            f.vocab = 0;
        if (!json_double(json_get(j, "weight"), &f.weight) || !(f.weight > 0))
            f.weight = 0;
        f.path = xstrdup(path);
        f.crc = (uint32_t)strtoul(crc, NULL, 16);
        add_file(list, f);
    }
    return 0;
}

/* Removes files in the run's own directory from the list of the model's: a resumed run
 * once listed the checkpoint that it went on from. */
static int drop_own(struct train_list *list, const char *dir, struct err *err)
{
    char *full;
    size_t n = 0, len;

    if (fs_resolve(&full, dir, err) < 0)
        return -1;
    len = full ? strlen(full) : 0;
    for (size_t i = 0; i < list->n; i++)
        if (full && !strncmp(list->v[i].path, full, len) && list->v[i].path[len] == '/')
            free(list->v[i].path);
        else
            list->v[n++] = list->v[i];
    list->n = n;
    free(full);
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

/* The option KEY of the run DOC, a number from 1; 0: it has none. */
static int count_before(const struct json_doc *doc, const char *key)
{
    int64_t n;

    return json_i64(json_get(json_get(doc->root, "options"), key), &n) && n > 0 &&
                   n <= INT32_MAX
               ? (int)n
               : 0;
}

/* The optimizer of the run DOC; one that does not say has the first. */
static int optimizer_before(const struct json_doc *doc)
{
    const char *name =
        json_string(json_get(json_get(doc->root, "options"), "optimizer"));

    for (int i = 0; i < OPTIMIZER_KINDS && name; i++)
        if (!strcmp(name, optimizer_names[i]))
            return i;
    return 0;
}

static int read_run(struct train *t, const char *dir, bool forked, struct err *err)
{
    struct train_files *f = &t->files;
    char *path = fs_join_dup(dir, RUN), *text = NULL;
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
        if (take_setting(&t->setting[i], &doc, json_get(doc.root, "options"), forked,
                         err) < 0)
            goto clear;
    t->steps_before = count_before(&doc, "steps");
    t->micro_before = count_before(&doc, "micro_batch");
    t->optimizer_before = optimizer_before(&doc);
    t->relative_before = count_before(&doc, "relative_step");
    if (read_files(&f->data, &doc, "data", err) < 0 ||
        read_files(&f->eval, &doc, "eval_data", err) < 0 ||
        read_files(&f->weights, &doc, "model_files", err) < 0 ||
        drop_own(&f->weights, dir, err) < 0)
        goto clear;
    t->forked = json_is_true(json_get(doc.root, "forked"));
    t->foreign = !forked && json_is_true(json_get(doc.root, "resumed_from"));
    ret = 0;
clear:
    json_clear(&doc);
out:
    free(text);
    free(path);
    return ret;
}

int train_dir_read(struct train *t, struct err *err)
{
    return read_run(t, t->dir, false, err);
}

int train_dir_fork(struct train *t, const char *dir, struct err *err)
{
    struct train_files *f = &t->files;

    if (read_run(t, dir, true, err) < 0)
        return -1;
    t->forked = true;
    free(f->model);
    f->model = NULL;
    train_list_clear(&f->weights);
    return 0;
}

/* ---- training state in a manifest ---- */

/* What a schedule that follows losses has come to. */
static void add_rates(struct str *out, const struct schedule_state *r)
{
    str_add(out, ",\"schedule\":{\"rate\":");
    str_add_double(out, r->rate);
    str_add(out, ",\"best\":");
    str_add_double(out, r->best);
    str_addf(out,
             ",\"bad\":%" PRIu64 ",\"good\":%" PRIu64 ",\"wait\":%" PRIu64
             ",\"resets\":%" PRIu64 "}",
             r->bad, r->good, r->wait, r->resets);
}

/* There is no best before the first loss. */
static bool read_rates(struct schedule_state *r, const struct json *j)
{
    if (!json_double(json_get(j, "best"), &r->best))
        r->best = (double)INFINITY;
    return json_double(json_get(j, "rate"), &r->rate) &&
           json_u64(json_get(j, "bad"), &r->bad) &&
           json_u64(json_get(j, "good"), &r->good) &&
           json_u64(json_get(j, "wait"), &r->wait) &&
           json_u64(json_get(j, "resets"), &r->resets);
}

struct schedule train_schedule(const struct train_options *o)
{
    return (struct schedule){ .kind = (enum schedule_kind)o->schedule,
                              .base = o->lr,
                              .warmup = (uint64_t)o->warmup,
                              .steps = (uint64_t)o->steps,
                              .o = o->rates };
}

char *train_state_dup(const struct train *t, const struct train_state *s)
{
    struct str out = { 0 };
    const struct schedule schedule = train_schedule(&t->o);

    str_addf(&out,
             "{\"step\":%" PRIu64 ",\"updates\":%" PRIu64 ",\"samples\":%" PRIu64
             ",\"tokens\":%" PRIu64,
             s->step, s->updates, s->samples, s->tokens);
    str_add(&out, ",\"rate\":"); /* of the next step */
    str_add_double(&out,
                   schedule_rate(&schedule, s->step - s->scaler.overflowed, &s->rates));
    str_add(&out, ",\"norm\":");
    str_add_double(&out, s->norm);
    if (s->best_step) {
        str_addf(&out, ",\"best_step\":%" PRIu64 ",\"best\":", s->best_step);
        str_add_double(&out, s->best);
    }
    if (!isnan(s->eval_loss)) {
        str_add(&out, ",\"eval_loss\":");
        str_add_double(&out, s->eval_loss);
    }
    if (t->o.early_stop) {
        str_add(&out, ",\"lowest\":");
        str_add_double(&out, s->lowest);
        str_addf(&out, ",\"stale\":%" PRIu64, s->stale);
    }
    if (t->o.compute == COMPUTE_F16) {
        str_add(&out, ",\"loss_scale\":");
        str_add_double(&out, s->scaler.scale);
        str_addf(&out, ",\"loss_scale_updates\":%" PRIu64 ",\"overflows\":%" PRIu64,
                 s->scaler.good, s->scaler.overflowed);
    } else if (s->scaler.overflowed) { /* before a fork; its schedule leaves them out */
        str_addf(&out, ",\"overflows\":%" PRIu64, s->scaler.overflowed);
    }
    if (schedule_follows((enum schedule_kind)t->o.schedule))
        add_rates(&out, &s->rates);
    if (data_sources(t->data)) {
        char *cursors = train_mix_cursors_dup(t->data, s->samples);

        str_addf(&out, ",\"sources\":%s", cursors);
        free(cursors);
    }
    str_add(&out, ",\"options\":");
    train_settings_print(&out, t);
    str_addc(&out, '}');
    return str_steal(&out);
}

static char *json_dup(const struct json *j)
{
    struct str text = { 0 };

    json_print(&text, j);
    return str_steal(&text);
}

/* A scale is a power of two.  A run of another --compute has none; one that is FORKED
 * from it with f16 begins with the first. */
static bool read_scaler(struct scaler *s, const struct json *root, bool scales,
                        bool forked)
{
    const struct json *scale = json_get(root, "loss_scale");
    const struct json *overflows = json_get(root, "overflows");
    int exponent;

    if (overflows &&
        (!json_u64(overflows, &s->overflowed) || s->overflowed > UINT64_MAX / 2))
        return false;
    if (!scales || (!scale && forked))
        return true;
    return overflows && json_double(scale, &s->scale) && s->scale > 0 &&
           isfinite(s->scale) && frexp(s->scale, &exponent) == 0.5 &&
           json_u64(json_get(root, "loss_scale_updates"), &s->good) &&
           s->good < SCALER_INTERVAL;
}

int train_state_read(struct train *t, const char *text, const char *path,
                     struct err *err)
{
    struct train_state s = { .best = (double)INFINITY, .eval_loss = (double)NAN };
    const struct json *rates, *sources;
    struct json_doc doc;
    int ret = 0;

    if (!text)
        return err_set(err, ERR_INPUT, "%s: has no state of a training", path);
    if (json_parse(&doc, path, text, strlen(text), err) < 0)
        return -1;
    if (!json_u64(json_get(doc.root, "step"), &s.step) ||
        !json_u64(json_get(doc.root, "updates"), &s.updates) ||
        !json_u64(json_get(doc.root, "tokens"), &s.tokens) ||
        !json_double(json_get(doc.root, "norm"), &s.norm))
        ret = json_error(&doc, NULL, err, "its training is not as expected");
    if (json_u64(json_get(doc.root, "best_step"), &s.best_step) &&
        !json_double(json_get(doc.root, "best"), &s.best))
        ret = json_error(&doc, NULL, err, "its training is not as expected");
    if (!json_double(json_get(doc.root, "lowest"), &s.lowest))
        s.lowest = (double)INFINITY;
    if (!json_u64(json_get(doc.root, "stale"), &s.stale))
        s.stale = 0;
    if (!json_u64(json_get(doc.root, "samples"), &s.samples))
        s.samples = s.step * (uint64_t)t->o.global;
    s.rates = t->state.rates;
    s.scaler = t->state.scaler;
    if (!read_scaler(&s.scaler, doc.root, t->o.compute == COMPUTE_F16, t->forked))
        ret = json_error(&doc, NULL, err, "its loss scale is not as expected");
    sources = json_get(doc.root, "sources");
    free(t->cursors);
    t->cursors = sources ? json_dup(sources) : NULL;
    rates = json_get(doc.root, "schedule");
    if (rates && schedule_follows((enum schedule_kind)t->o.schedule) &&
        !read_rates(&s.rates, rates))
        ret = json_error(&doc, rates, err, "its schedule is not as expected");
    if (!json_double(json_get(doc.root, "eval_loss"), &s.eval_loss))
        s.eval_loss = (double)NAN;
    json_clear(&doc);
    if (ret == 0)
        t->state = s;
    return ret;
}
