/* directory - where a run keeps its trials: STUDY.trials, of one study alone
 *
 * A file .study in it says whose it is: the study's id, and its storage.  Runs of a
 * study of the same name in another storage take STUDY@STORAGE.trials instead, so that
 * none of them writes over what another has left. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "cmd/hpo-sweep/run.h"
#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/output.h"

enum { OWNER_MAX = 8192 };

/* The storage as any run of this host calls it; owned. */
static char *storage_dup(const struct storage *st)
{
    char *path = strstr(st->name, "://") ? NULL : realpath(st->name, NULL);

    return path ? path : xstrdup(st->name);
}

/* The study's id and its storage, a line each; owned. */
static char *owner_dup(const struct loop *l)
{
    char *storage = storage_dup(l->s->st);
    char *out =
        str_dupf("%s\n%s\n", study_attr(&l->s->study.system, STUDY_ID_KEY), storage);

    free(storage);
    return out;
}

/* Whether the storage that the text of a .study names is still there. */
static bool has_storage(const char *owner)
{
    const char *line = strchr(owner, '\n');
    char *path = xstrndup(line ? line + 1 : "", line ? strcspn(line + 1, "\n") : 0);
    bool there = strstr(path, "://") || (*path && fs_exists(path));

    free(path);
    return there;
}

/* Does a directory owned by OWNER belong to OURS?  Yes if both name the same study,
 * unless one is a copy of the other and both still exist; or if OWNER is an earlier
 * study of the same storage. */
static bool same_owner(const char *owner, const char *ours)
{
    size_t n = strcspn(ours, "\n");
    bool same_study = !strncmp(owner, ours, n) && owner[n] == '\n';
    const char *theirs = strchr(owner, '\n'), *storage = ours + n;

    return (theirs && !strcmp(theirs, storage)) || (same_study && !has_storage(owner));
}

/* A character of a file's name. */
static void add_plain(struct str *out, char c)
{
    str_addc(out,
             c == '/' || c == '?' || c == '&' || (unsigned char)c <= ' ' ? '_' : c);
}

/* The directory's path, OTHER than the plain one if that is another's; owned. */
static char *path_dup(const struct loop *l, bool other)
{
    char *here = getcwd(NULL, 0);
    struct str out = { 0 };

    str_addf(&out, "%s/%s", here ? here : ".", l->s->name);
    if (other) {
        str_addc(&out, '@');
        for (const char *p = fs_basename(l->s->st->name); *p; p++)
            add_plain(&out, *p);
    }
    str_add(&out, ".trials");
    free(here);
    return str_steal(&out);
}

static bool try_lock(const struct loop *l, int how)
{
    return flock(l->base_held, how | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

/* Take the directory l->base: 1, 0 when it is another study's, -1 with *err set.  Where
 * directories cannot be locked, it is left to the user. */
static int take(struct loop *l, const char *ours, struct err *err)
{
    char *path = fs_join_dup(l->base, ".study"), *owner = NULL;
    bool alone, mine;
    int ret = 1;

    l->base_held = output_dir(l->base, OUTPUT_MAKE, err);
    if (l->base_held < 0) {
        free(path);
        return -1;
    }
    alone = try_lock(l, LOCK_EX);
    mine = fs_read_file(&owner, NULL, path, OWNER_MAX, NULL) < 0 ||
           same_owner(owner, ours);
    if (!mine)
        ret = 0;
    else if (alone && (!owner || strcmp(owner, ours)))
        ret = output_write(path, ours, strlen(ours), false, err) < 0 ? -1 : 1;
    if (ret == 1 && !(l->o->share ? try_lock(l, LOCK_SH) : alone))
        ret = err_set(err, ERR_LOCKED, "%s: another run holds it", l->base);
    free(owner);
    free(path);
    return ret;
}

int directory_hold(struct loop *l, struct err *err)
{
    char *ours = owner_dup(l);
    int ret = 0;

    for (int other = 0; other < 2 && ret == 0; other++) {
        free(l->base);
        l->base = path_dup(l, other);
        if (l->base_held >= 0)
            close(l->base_held);
        l->base_held = -1;
        ret = take(l, ours, err);
    }
    free(ours);
    if (ret == 0)
        return err_set(err, ERR_INPUT, "%s holds the trials of another study", l->base);
    return ret < 0 ? -1 : 0;
}
