/* trainsteps - the checkpoints in the directory of a run */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/tp-run/train.h"
#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/ckpt/steps.h"
#include "lib/reshard/audit.h"

int train_newest(char **path, const char *dir, struct err *err)
{
    struct steps f;

    if (steps_find(&f, dir, err) < 0)
        return -1;
    *path = f.n ? steps_path_dup(dir, f.v[f.n - 1]) : NULL;
    steps_clear(&f);
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

/* Reads all files of the checkpoint PATH; *why becomes its first fault, or NULL.  A
 * file that could not be looked at is no fault, but an error of the machine. */
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
    if (ret == 0 && a.unread.kind) {
        *err = a.unread;
        ret = -1;
    }
    return ret;
}

int train_newest_whole(char **path, size_t *damaged, char **why, const char *dir,
                       int threads, struct err *err)
{
    struct steps f;
    char *first = NULL, *fault = NULL, *at = NULL;
    size_t bad = 0;
    int ret = 0;

    if (steps_find(&f, dir, err) < 0)
        return -1;
    for (; bad < f.n && ret == 0; bad++) {
        free(at);
        at = steps_path_dup(dir, f.v[f.n - 1 - bad]);
        ret = find_fault(&fault, at, threads, err);
        if (ret == 0 && !fault)
            break;
        if (fault && !first)
            first = str_dupf("%s: %s", at, fault);
        free(fault);
        fault = NULL;
    }
    if (ret == 0 && f.n && bad == f.n)
        ret = err_set(err, ERR_INPUT, "%s%s", first,
                      f.n > 1 ? "; and no other checkpoint is whole" : "");
    steps_clear(&f);
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

int train_steps_clean(const char *dir, struct err *err)
{
    char **names;
    size_t n;
    int ret = 0;

    if (fs_list(&names, &n, dir, err) < 0)
        return -1;
    for (size_t i = 0; i < n && ret == 0; i++) {
        char *path = fs_join_dup(dir, names[i]);

        if (steps_is_leftover(names[i]))
            ret = fs_remove_tree(path, err);
        free(path);
    }
    fs_list_free(names, n);
    return ret;
}

/* Renames it first, so that a half-removed directory is no checkpoint. */
static int remove_step(const char *dir, uint64_t step, struct err *err)
{
    char *path = steps_path_dup(dir, step), *gone = str_dupf("%s.removed", path);
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
    struct steps f;
    int ret = 0;

    if (steps_find(&f, dir, err) < 0)
        return -1;
    for (size_t i = 0; i + (size_t)keep < f.n && ret == 0; i++)
        if (!best || f.v[i] != best)
            ret = remove_step(dir, f.v[i], err);
    steps_clear(&f);
    return ret;
}

int train_steps_remove(const char *dir, struct err *err)
{
    struct steps f;
    int ret = steps_find(&f, dir, err);

    for (size_t i = 0; i < f.n && ret == 0; i++)
        ret = remove_step(dir, f.v[i], err);
    steps_clear(&f);
    return ret;
}

int train_steps_retire(const char *dir, uint64_t step, struct err *err)
{
    struct steps f;
    int ret = steps_find_all(&f, dir, err);

    for (size_t i = 0; i < f.n && ret == 0; i++) {
        char *path = steps_path_dup(dir, f.v[i]);
        char *aside = str_dupf("%s.damaged", path);

        if (f.v[i] > step) {
            ret = fs_remove_tree(aside, err);
            if (ret == 0 && rename(path, aside) < 0)
                ret = err_errno(err, "%s", path);
        }
        free(path);
        free(aside);
    }
    steps_clear(&f);
    return ret;
}
