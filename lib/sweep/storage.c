/* storage - where studies are kept */
#include <string.h>

#include "lib/base/str.h"
#include "lib/sweep/storage.h"

static const char sqlite[] = "sqlite:///", journal[] = "journal:";

const char *storage_file(const char *url)
{
    return url + (str_starts(url, sqlite)    ? strlen(sqlite)
                  : str_starts(url, journal) ? strlen(journal)
                                             : 0);
}

int storage_open(struct storage **st, const char *url, bool create, struct err *err)
{
    if (str_starts(url, sqlite))
        return sqlite_storage.open(st, storage_file(url), create, err);
    if (str_starts(url, journal))
        return journal_storage.open(st, storage_file(url), create, err);
    if (strstr(url, "://"))
        return err_set(err, ERR_USAGE,
                       "no storage such as '%s': give a file, sqlite:///PATH or "
                       "journal:PATH",
                       url);
    return sqlite_storage.open(st, url, create, err);
}

void storage_close(struct storage *st)
{
    if (st)
        st->ops->close(st);
}
