/* storage - where studies are kept */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "lib/base/str.h"
#include "lib/sweep/storage.h"

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

int storage_open(struct storage **st, const char *url, bool create, struct err *err)
{
    const struct storage_ops *ops = NULL;
    const char *where = url;

    for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]) && !ops; i++)
        if (str_starts(url, schemes[i].prefix)) {
            ops = schemes[i].ops;
            where += schemes[i].keep ? 0 : strlen(schemes[i].prefix);
        }
    if (!ops && strstr(url, "://"))
        return err_set(err, ERR_USAGE,
                       "no storage such as '%s': give a file, sqlite:///PATH, "
                       "journal:PATH or postgresql://USER@HOST/DATABASE",
                       url);
    if ((ops ? ops : &sqlite_storage)->open(st, where, create, err) < 0)
        return -1;
    (*st)->held = -1;
    return 0;
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
    st->held = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (st->held < 0)
        ret = err_errno(err, "%s", path);
    else if (flock(st->held, (share ? LOCK_SH : LOCK_EX) | LOCK_NB) < 0)
        ret = errno == EWOULDBLOCK
                  ? err_set(err, ERR_LOCKED, "%s: another run holds it", path)
                  : err_errno(err, "%s", path);
    free(path);
    return ret;
}
