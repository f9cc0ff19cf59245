/* storage - where studies are kept */
#include <string.h>

#include "lib/base/str.h"
#include "lib/sweep/storage.h"

int storage_open(struct storage **st, const char *url, bool create, struct err *err)
{
    static const char *const sqlite = "sqlite:///", *const journal = "journal:";

    if (str_starts(url, sqlite))
        return sqlite_storage.open(st, url + strlen(sqlite), create, err);
    if (str_starts(url, journal))
        return journal_storage.open(st, url + strlen(journal), create, err);
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
