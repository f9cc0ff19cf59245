/* storage - where studies are kept */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/output.h"
#include "lib/base/str.h"
#include "lib/sweep/storage/storage.h"

/* What a URL begins with; what is left names the storage to its functions. */
static const struct scheme {
    const char *prefix;
    bool keep; /* the prefix belongs to the name */
    const struct storage_ops *ops;
} schemes[] = {
    { "sqlite:///", false, &sqlite_storage },
    { "journal:", false, &journal_storage },
    { "postgresql://", true, &postgres_storage },
    { "postgres://", true, &postgres_storage },
    /* as SQLAlchemy names a driver */
    { "postgresql+psycopg2://", true, &postgres_storage },
    { "postgresql+psycopg://", true, &postgres_storage },
};

/* The scheme of URL, NULL for a path; *where is what its functions are given. */
static const struct scheme *find_scheme(const char *url, const char **where)
{
    *where = url;
    for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++)
        if (str_starts(url, schemes[i].prefix)) {
            if (!schemes[i].keep)
                *where += strlen(schemes[i].prefix);
            return &schemes[i];
        }
    return NULL;
}

char *storage_absolute_dup(const char *url)
{
    const char *where;
    const struct scheme *scheme = find_scheme(url, &where);
    char *here = *where == '/' || (scheme && scheme->keep) ? NULL : getcwd(NULL, 0);
    char *out = here ? str_dupf("%.*s%s/%s", (int)(where - url), url, here, where)
                     : xstrdup(url);

    free(here);
    return out;
}

int storage_open(struct storage **st, const char *url, bool create,
                 void (*waits)(const char *what), struct err *err)
{
    const char *where;
    const struct scheme *scheme = find_scheme(url, &where);
    const struct storage_ops *ops = scheme ? scheme->ops : NULL;

    if (!ops && strstr(url, "://"))
        return err_set(err, ERR_USAGE,
                       "no storage such as '%s': give a file, sqlite:///PATH, "
                       "journal:PATH or postgresql://USER@HOST/DATABASE",
                       url);
    if (!*where)
        return err_set(err, ERR_USAGE, "the storage '%s' names no file", url);
    if ((ops ? ops : &sqlite_storage)->open(st, where, create, waits, err) < 0)
        return -1;
    (*st)->held = -1;
    return 0;
}

const char *storage_path(const char *url)
{
    const char *where;

    find_scheme(url, &where);
    return where;
}

int storage_find(bool *found, const char *url, struct err *err)
{
    const char *where;
    const struct scheme *scheme = find_scheme(url, &where);

    *found = scheme && scheme->keep;
    return *found ? 0 : fs_find(found, where, err);
}

void storage_close(struct storage *st)
{
    if (!st)
        return;
    if (st->held >= 0)
        close(st->held);
    st->ops->close(st);
}

int storage_hold_file(struct storage *st, const char *study, bool share,
                      struct err *err)
{
    char *path = str_dupf("%s.lck", st->name);
    int ret = 0;

    (void)study;
    st->held = output_reopen(path, O_RDWR | O_CREAT, err);
    if (st->held < 0)
        ret = -1;
    else if (flock(st->held, (share ? LOCK_SH : LOCK_EX) | LOCK_NB) < 0)
        ret = errno == EWOULDBLOCK
                  ? err_set(err, ERR_LOCKED, "%s: another run holds it", path)
                  : err_errno(err, "%s", path);
    free(path);
    return ret;
}
