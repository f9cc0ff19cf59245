/* fuzz-study - studies in an SQLite file that someone has changed
 *
 * An input is SQL, run on a small study as Optuna has it; what that leaves is listed
 * and loaded.  Changed bytes of a database nearly always end in SQLite; changed SQL
 * reaches what reads the rows. */
#include "config.h"

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#ifndef HAVE_SQLITE3
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    (void)data, (void)size;
    return 0;
}
#else
#include <sqlite3.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/output.h"
#include "lib/base/str.h"
#include "tests/fuzz/smallstudy.h"

static volatile int failures; /* as many as there are: any answer will do */

/* Statements stay in this file, and end. */
static int allow(void *arg, int action, const char *a, const char *b, const char *c,
                 const char *d)
{
    (void)arg, (void)a, (void)b, (void)c, (void)d;
    return action == SQLITE_ATTACH || action == SQLITE_PRAGMA ? SQLITE_DENY : SQLITE_OK;
}

static int stop(void *arg)
{
    (void)arg;
    return 1;
}

enum { MOST_STEPS = 20000, MOST_LENGTH = 100000 };

static void change(const char *path, const char *sql)
{
    sqlite3 *db;

    if (sqlite3_open(path, &db) == SQLITE_OK) {
        sqlite3_limit(db, SQLITE_LIMIT_LENGTH, MOST_LENGTH);
        (void)sqlite3_exec(db, study, NULL, NULL, NULL);
        sqlite3_set_authorizer(db, allow, NULL);
        sqlite3_progress_handler(db, MOST_STEPS, stop, NULL);
        (void)sqlite3_exec(db, sql, NULL, NULL, NULL);
    }
    sqlite3_close(db);
}

/* The bytes of an empty storage, made once. */
static const char *empty_storage(const char *dir, size_t *n)
{
    static char *bytes;
    static size_t length;
    char *path = fs_join_dup(dir, "empty.db"), *url = str_dupf("sqlite:///%s", path);
    struct err err = { 0 };
    struct storage *st;

    if (!bytes && storage_open(&st, url, true, NULL, &err) == 0) {
        storage_close(st);
        if (fs_read_file(&bytes, &length, path, UINT32_MAX, &err) < 0)
            bytes = NULL;
    }
    free(path);
    free(url);
    *n = length;
    return bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    char *dir = str_dupf("%s/fuzz-study.XXXXXX", base);
    char *sql = xstrndup((const char *)data, size);

    if (mkdtemp(dir)) {
        char *path = fs_join_dup(dir, "s.db"), *url = str_dupf("sqlite:///%s", path);
        size_t n;
        const char *empty = empty_storage(dir, &n);

        if (empty && output_write(path, empty, n, false, NULL) == 0) {
            change(path, sql);
            load_all(url);
        }
        failures += fs_remove_tree(dir, NULL) < 0;
        free(path);
        free(url);
    }
    free(dir);
    free(sql);
    return 0;
}
#endif
