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
#include "lib/base/str.h"
#include "lib/sweep/storage/storage.h"

static volatile int failures; /* as many as there are: any answer will do */

static const char study[] =
    "INSERT INTO studies VALUES (1, 's');"
    "INSERT INTO study_directions VALUES (1, 'MINIMIZE', 1, 0), (2, 'MAXIMIZE', 1, 1);"
    "INSERT INTO study_user_attributes VALUES (1, 1, 'note', '\"x\"');"
    "INSERT INTO trials VALUES (1, 0, 1, 'COMPLETE', '2026-01-02 03:04:05.000006',"
    " '2026-01-02 03:04:06.000000'), (2, 1, 1, 'RUNNING', '2026-01-02 03:04:05', NULL),"
    " (3, 2, 1, 'PRUNED', NULL, NULL), (4, 3, 1, 'WAITING', NULL, NULL);"
    "INSERT INTO trial_params VALUES (1, 1, 'x', 0.5, '{\"name\": "
    "\"FloatDistribution\","
    " \"attributes\": {\"step\": null, \"low\": 0.0, \"high\": 1.0, \"log\": false}}'),"
    " (2, 1, 'n', 3, '{\"name\": \"IntDistribution\", \"attributes\": {\"log\": false,"
    " \"step\": 1, \"low\": 1, \"high\": 8}}'), (3, 2, 'c', 1, '{\"name\":"
    " \"CategoricalDistribution\", \"attributes\": {\"choices\": [\"a\", 2, null]}}');"
    "INSERT INTO trial_values VALUES (1, 1, 0, 1.5, 'FINITE'), (2, 1, 1, NULL,"
    " 'INF_POS');"
    "INSERT INTO trial_intermediate_values VALUES (1, 3, 1, 0.25, 'FINITE'),"
    " (2, 3, 2, NULL, 'NAN');"
    "INSERT INTO trial_system_attributes VALUES (1, 4, 'fixed_params', '{\"x\": "
    "0.1}');";

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

enum { MOST_STEPS = 20000, MOST_STUDIES = 4, MOST_LENGTH = 100000 };

static void load_all(const char *url)
{
    struct err err = { 0 };
    struct storage *st;
    char **names;
    size_t n;

    if (storage_open(&st, url, false, NULL, &err) < 0)
        return;
    if (st->ops->list(st, &names, &n, &err) == 0) {
        for (size_t i = 0; i < n && i < MOST_STUDIES; i++) {
            struct study s = { 0 };

            if (st->ops->load(st, &s, names[i], &err) > 0)
                study_clear(&s);
        }
        fs_list_free(names, n);
    }
    storage_close(st);
}

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

        if (empty && fs_write_file(path, empty, n, false, NULL) == 0) {
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
