/* trainsteps - the checkpoints in the directory of a run */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/tp-run/train.h"
#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/reshard/audit.h"

static const char STEP[] = "step-";

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

int train_newest(char **path, const char *dir, struct err *err)
{
    struct found f;

    if (find_steps(&f, dir, err) < 0)
        return -1;
    *path = f.n ? train_step_dup(dir, f.step[f.n - 1]) : NULL;
    free(f.step);
    return 0;
}

/* ---- damage ---- */

static void keep_first(void *arg, const char *file, const char *tensor,
                       const char *text)
{
    char **why = arg;

    if (*why)
        return;
    *why = tensor ? str_dupf("%s: tensor %s: %s", file, tensor, text)
                  : str_dupf("%s: %s", file, text);
}

/* Reads all files of the checkpoint PATH; *why becomes its first fault, or NULL. */
static int find_fault(char **why, const char *path, int threads, struct err *err)
{
    static const struct checkpoint_options tensors_only = { .no_model = true };
    struct audit a = { .threads = threads, .finding = keep_first, .arg = why };
    struct checkpoint *c;
    int ret;

    *why = NULL;
    if (checkpoint_open(&c, path, &tensors_only, err) < 0) {
        if (err->kind != ERR_INPUT)
            return -1;
        *why = xstrdup(err->text);
        return 0;
    }
    ret = audit_checkpoint(&a, c, err);
    checkpoint_close(c);
    return ret;
}

int train_newest_whole(char **path, size_t *damaged, char **why, const char *dir,
                       int threads, struct err *err)
{
    struct found f;
    char *first = NULL, *fault = NULL, *at = NULL;
    size_t bad = 0;
    int ret = 0;

    if (find_steps(&f, dir, err) < 0)
        return -1;
    for (; bad < f.n && ret == 0; bad++) {
        free(at);
        at = train_step_dup(dir, f.step[f.n - 1 - bad]);
        ret = find_fault(&fault, at, threads, err);
        if (ret == 0 && !fault)
            break;
        if (first)
            free(fault);
        else if (fault)
            first = str_dupf("%s: %s", at, fault);
        fault = NULL;
    }
    if (ret == 0 && f.n && bad == f.n)
        ret = err_set(err, ERR_INPUT, "%s%s", first,
                      f.n > 1 ? "; and no other checkpoint is whole" : "");
    free(f.step);
    if (ret < 0) {
        free(first);
        free(at);
        return -1;
    }
    *path = at;
    *damaged = bad;
    *why = first;
    return 0;
}

/* ---- removal ---- */

/* Is NAME an unfinished checkpoint, being written or removed? */
static bool is_leftover(const char *name)
{
    return str_starts(name, STEP) &&
           (str_ends(name, ".partial") || str_ends(name, ".removed") ||
            strstr(name, ".old-"));
}

int train_steps_clean(const char *dir, struct err *err)
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
    return ret;
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

int train_steps_remove(const char *dir, struct err *err)
{
    struct found f;
    int ret = find_steps(&f, dir, err);

    for (size_t i = 0; i < f.n && ret == 0; i++)
        ret = remove_step(dir, f.step[i], err);
    free(f.step);
    return ret;
}

int train_steps_retire(const char *dir, uint64_t step, struct err *err)
{
    struct found f;
    int ret = find_steps(&f, dir, err);

    for (size_t i = 0; i < f.n && ret == 0; i++) {
        char *path = train_step_dup(dir, f.step[i]);
        char *aside = str_dupf("%s.damaged", path);

        if (f.step[i] > step) {
            ret = fs_remove_tree(aside, err);
            if (ret == 0 && rename(path, aside) < 0)
                ret = err_errno(err, "%s", path);
        }
        free(path);
        free(aside);
    }
    free(f.step);
    return ret;
}
