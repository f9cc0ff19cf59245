/* steps - the checkpoints in the directory of a run of tp-run train */
#include "lib/ckpt/steps.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/ckpt/manifest.h"

static const char STEP[] = "step-", RUN[] = "run.json";

char *steps_path_dup(const char *dir, uint64_t step)
{
    return str_dupf("%s%s%s%06" PRIu64, dir, str_ends(dir, "/") ? "" : "/", STEP, step);
}

/* Is NAME the name of a checkpoint, as steps_path_dup makes it?  Sets *step. */
static bool is_step(const char *name, uint64_t *step)
{
    char *exact;
    bool is;

    if (!str_starts(name, STEP) || !str_u64(name + strlen(STEP), step))
        return false;
    exact = str_dupf("%s%06" PRIu64, STEP, *step);
    is = !strcmp(name, exact);
    free(exact);
    return is;
}

bool steps_is_leftover(const char *name)
{
    return str_starts(name, STEP) &&
           (str_ends(name, ".partial") || str_ends(name, ".removed") ||
            strstr(name, ".old-"));
}

static int compare_steps(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

/* WHOLE: those that have a manifest. */
static int find(struct steps *s, const char *dir, bool whole, struct err *err)
{
    char **names;
    size_t n;
    int ret = 0;

    *s = (struct steps){ 0 };
    if (fs_list(&names, &n, dir, err) < 0)
        return -1;
    s->v = xcalloc(n + 1, sizeof(*s->v));
    for (size_t i = 0; i < n && ret == 0; i++) {
        char *path = fs_join_dup(dir, names[i]);
        bool is = is_step(names[i], &s->v[s->n]);

        if (is && whole)
            ret = fs_find_in(&is, path, MANIFEST_NAME, err);
        s->n += is;
        free(path);
    }
    fs_list_free(names, n);
    if (ret < 0) {
        steps_clear(s);
        return -1;
    }
    qsort(s->v, s->n, sizeof(*s->v), compare_steps);
    return 0;
}

int steps_find(struct steps *s, const char *dir, struct err *err)
{
    return find(s, dir, true, err);
}

int steps_find_all(struct steps *s, const char *dir, struct err *err)
{
    return find(s, dir, false, err);
}

void steps_clear(struct steps *s)
{
    free(s->v);
    *s = (struct steps){ 0 };
}

int steps_newest(char **newest, const char *path, struct err *err)
{
    struct steps s;
    bool run;

    *newest = NULL;
    if (fs_find_in(&run, path, RUN, err) < 0)
        return -1;
    if (!run)
        return 0;
    if (steps_find(&s, path, err) < 0)
        return -1;
    if (s.n)
        *newest = steps_path_dup(path, s.v[s.n - 1]);
    steps_clear(&s);
    return *newest ? 0
                   : err_set(err, ERR_INPUT, "%s: the run has no checkpoint yet", path);
}

void steps_name_older(struct err *err, const char *dir)
{
    enum { SHOWN = 3 };
    struct str names = { 0 };
    struct steps s;
    struct err none;

    if (steps_find(&s, dir, &none) < 0)
        return;
    for (size_t i = 1; i < s.n && i <= SHOWN; i++) {
        char *path = steps_path_dup(dir, s.v[s.n - 1 - i]);

        str_addf(&names, "%s%s", i > 1 ? ", " : "", path);
        free(path);
    }
    if (names.len)
        err_set(err, err->kind, "%s; older checkpoints: %s%s", err->text, names.s,
                s.n > SHOWN + 1 ? ", ..." : "");
    str_clear(&names);
    steps_clear(&s);
}
