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
    bool keep;  /* the prefix belongs to the name */
    bool query; /* options may stand behind the path */
    const struct storage_ops *ops;
} schemes[] = {
    { "sqlite:///", false, true, &sqlite_storage },
    { "journal:", false, false, &journal_storage },
    { "postgresql://", true, false, &postgres_storage },
    { "postgres://", true, false, &postgres_storage },
    /* as SQLAlchemy names a driver */
    { "postgresql+psycopg2://", true, false, &postgres_storage },
    { "postgresql+psycopg://", true, false, &postgres_storage },
};

/* A URL, NULL for the scheme of a path.  A file's URL may have options behind its path,
 * as SQLAlchemy's. */
struct place {
    const struct scheme *scheme;
    size_t at, n;      /* where the path is in it; or all of it, of a server */
    const char *query; /* NULL: none */
};

static struct place place_of(const char *url)
{
    struct place p = { .n = strlen(url) };

    for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]) && !p.scheme; i++)
        if (str_starts(url, schemes[i].prefix))
            p.scheme = &schemes[i];
    if (!p.scheme || p.scheme->keep)
        return p;
    p.at = strlen(p.scheme->prefix);
    p.n -= p.at;
    if (!p.scheme->query || !strchr(url + p.at, '?'))
        return p;
    p.n = strcspn(url + p.at, "?");
    p.query = url + p.at + p.n + 1;
    return p;
}

char *storage_absolute_dup(const char *url)
{
    struct place p = place_of(url);
    bool whole = url[p.at] == '/' || (p.scheme && p.scheme->keep);
    char *here = whole ? NULL : getcwd(NULL, 0);
    char *out =
        here ? str_dupf("%.*s%s/%s", (int)p.at, url, here, url + p.at) : xstrdup(url);

    free(here);
    return out;
}

/* The options of SQLite in an URL of SQLAlchemy, which are those of Python's
 * sqlite3.connect.  Threads and statements are our own affair. */
static int read_query(double *timeout_s, const char *url, const char *query,
                      struct err *err)
{
    char *copy = xstrdup(query), *rest = copy, *word;
    int ret = 0;

    while (ret == 0 && (word = strsep(&rest, "&"))) {
        const char *value = word + strcspn(word, "=");
        size_t n = (size_t)(value - word);

        value += *value == '=';
        if (n == 7 && !strncmp(word, "timeout", n)) {
            if (!str_double(value, timeout_s) || *timeout_s < 0)
                ret = err_set(err, ERR_USAGE,
                              "%s: timeout '%s' is no number of seconds", url, value);
        } else if (!(n == 17 && !strncmp(word, "check_same_thread", n)) &&
                   !(n == 17 && !strncmp(word, "cached_statements", n))) {
            ret = err_set(err, ERR_USAGE,
                          "%s: '%.*s' is no option of this storage: it has timeout",
                          url, (int)n, word);
        }
    }
    free(copy);
    return ret;
}

int storage_open(struct storage **st, const char *url, bool create,
                 void (*waits)(const char *what), struct err *err)
{
    struct place p = place_of(url);
    const struct storage_ops *ops = p.scheme ? p.scheme->ops : &sqlite_storage;
    double timeout_s = -1;
    char *where;
    int ret;

    if (!p.scheme && strstr(url, "://"))
        return err_set(err, ERR_USAGE,
                       "no storage such as '%s': give a file, sqlite:///PATH, "
                       "journal:PATH or postgresql://USER@HOST/DATABASE",
                       url);
    if (!p.n)
        return err_set(err, ERR_USAGE, "the storage '%s' names no file", url);
    where = xstrndup(url + p.at, p.n);
    if (ops == &sqlite_storage && !strcmp(where, ":memory:"))
        ret = err_set(err, ERR_USAGE,
                      "the storage '%s' would end with this command: give a file", url);
    else if (p.query && read_query(&timeout_s, url, p.query, err) < 0)
        ret = -1;
    else
        ret = ops->open(st, where, create, timeout_s, waits, err);
    free(where);
    if (ret < 0)
        return -1;
    (*st)->held = -1;
    return 0;
}

size_t storage_path(size_t *n, const char *url)
{
    struct place p = place_of(url);

    *n = p.n;
    return p.at;
}

int storage_find(bool *found, const char *url, struct err *err)
{
    struct place p = place_of(url);
    char *path;
    int ret;

    *found = p.scheme && p.scheme->keep;
    if (*found)
        return 0;
    path = xstrndup(url + p.at, p.n);
    ret = fs_find(found, path, err);
    free(path);
    return ret;
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
