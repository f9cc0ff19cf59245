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

/* The study's id and its storage, as any run of this host calls it, a line each;
 * owned. */
static int find_owner(char **out, const struct loop *l, struct err *err)
{
    const char *name = l->s->st->name;
    char *path = NULL;

    if (!strstr(name, "://") && fs_resolve(&path, name, err) < 0)
        return -1;
    *out = str_dupf("%s\n%s\n", study_attr(&l->s->study.system, STUDY_ID_KEY),
                    path ? path : name);
    free(path);
    return 0;
}

/* Whether the storage that the text of a .study names is still there. */
static int find_storage(bool *there, const char *owner, struct err *err)
{
    const char *line = strchr(owner, '\n');
    char *path = xstrndup(line ? line + 1 : "", line ? strcspn(line + 1, "\n") : 0);
    int ret = 0;

    *there = strstr(path, "://");
    if (!*there && *path)
        ret = fs_find(there, path, err);
    free(path);
    return ret;
}

/* Does a directory owned by OWNER belong to OURS?  Yes if both name the same study,
 * unless one is a copy of the other and both still exist; or if OWNER is an earlier
 * study of the same storage. */
static int same_owner(bool *same, const char *owner, const char *ours, struct err *err)
{
    size_t n = strcspn(ours, "\n");
    bool same_study = !strncmp(owner, ours, n) && owner[n] == '\n', there = true;
    const char *theirs = strchr(owner, '\n'), *storage = ours + n;

    *same = theirs && !strcmp(theirs, storage);
    if (*same || !same_study)
        return 0;
    if (find_storage(&there, owner, err) < 0)
        return -1;
    *same = !there;
    return 0;
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

static int try_lock(bool *locked, const struct loop *l, int how, struct err *err)
{
    *locked = flock(l->base_held, how | LOCK_NB) == 0 || errno == EOPNOTSUPP ||
              errno == ENOSYS || errno == ENOLCK;
    return *locked || errno == EWOULDBLOCK ? 0 : err_errno(err, "%s", l->base);
}

/* Take the directory l->base: 1, 0 when it is another study's, -1 with *err set.  Where
 * directories cannot be locked, it is left to the user. */
static int take(struct loop *l, const char *ours, struct err *err)
{
    char *path = fs_join_dup(l->base, ".study"), *owner = NULL;
    bool alone, mine = true;
    int ret = -1;

    l->base_held = output_dir(l->base, OUTPUT_MAKE, err);
    if (l->base_held < 0) {
        goto out;
    }
    if (try_lock(&alone, l, LOCK_EX, err) < 0 ||
        fs_read_optional(&owner, NULL, path, OWNER_MAX, err) < 0 ||
        (owner && same_owner(&mine, owner, ours, err) < 0))
        goto out;
    if (!mine) {
        ret = 0;
        goto out;
    }
    if (alone && (!owner || strcmp(owner, ours)) &&
        output_write(path, ours, strlen(ours), false, err) < 0)
        goto out;
    if (l->o->share && try_lock(&alone, l, LOCK_SH, err) < 0)
        goto out;
    ret = alone ? 1 : err_set(err, ERR_LOCKED, "%s: another run holds it", l->base);
out:
    free(owner);
    free(path);
    return ret;
}

int directory_hold(struct loop *l, struct err *err)
{
    char *ours;
    int ret = 0;

    if (find_owner(&ours, l, err) < 0)
        return -1;

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
