/* find - which study is meant: a storage, a sweep file, or the only one that is there
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/hpo-sweep/hpo-sweep.h"
#include "lib/base/fs.h"
#include "lib/base/mem.h"

enum kind { KIND_OTHER, KIND_SQLITE, KIND_JOURNAL };

/* What PATH begins as; a directory or a special file is of another kind. */
static int find_kind(enum kind *kind, const char *path, struct err *err)
{
    static const char sqlite[] = "SQLite format 3", journal[] = "{\"op_code\":";
    char *head = NULL;
    size_t n = 0;

    *kind = KIND_OTHER;
    if (fs_read_part(&head, &n, path, 0, sizeof(sqlite) - 1, err) < 0) {
        if (err->kind != ERR_INPUT)
            return -1;
        *err = (struct err){ 0 };
        return 0;
    }
    if (n == sizeof(sqlite) - 1 && !memcmp(head, sqlite, n))
        *kind = KIND_SQLITE;
    else if (n >= sizeof(journal) - 1 && !memcmp(head, journal, sizeof(journal) - 1))
        *kind = KIND_JOURNAL;
    free(head);
    return 0;
}

/* The URL of the storage at PATH, owned; *url is NULL when it is none. */
static int find_url(char **url, const char *path, struct err *err)
{
    enum kind kind;

    if (find_kind(&kind, path, err) < 0)
        return -1;
    *url = kind == KIND_SQLITE    ? xstrdup(path)
           : kind == KIND_JOURNAL ? str_dupf("journal:%s", path)
                                  : NULL;
    return 0;
}

/* Whether the storage URL holds a study; one that is malformed holds none. */
static int find_study(bool *found, const char *url, struct err *err)
{
    struct storage *st;
    char **names = NULL;
    size_t n = 0;
    int ret = storage_open(&st, url, false, NULL, err);

    if (ret == 0) {
        ret = st->ops->begin(st, false, err);
        if (ret == 0) {
            ret = st->ops->list(st, &names, &n, err);
            st->ops->give_up(st);
        }
        storage_close(st);
    }
    *found = ret == 0 && n > 0;
    if (ret == 0)
        fs_list_free(names, n);
    if (ret == 0 || err->kind == ERR_SYSTEM)
        return ret;
    *err = (struct err){ 0 };
    return 0;
}

/* May this process read PATH?  A file that it may not read is no study of its own. */
static int find_readable(bool *found, const char *path, struct err *err)
{
    *found = access(path, R_OK) == 0;
    return *found || errno == EACCES || errno == ENOENT || errno == ENOTDIR
               ? 0
               : err_errno(err, "%s", path);
}

/* The URL of the storage at PATH, owned; *url is NULL when it holds no study. */
static int find_storage(char **url, const char *path, struct err *err)
{
    bool found = false;
    int ret = find_readable(&found, path, err);

    *url = NULL;
    if (ret == 0 && found)
        ret = find_url(url, path, err);
    if (ret == 0 && *url)
        ret = find_study(&found, *url, err);
    if (*url && (ret < 0 || !found)) {
        free(*url);
        *url = NULL;
    }
    return ret;
}

/* The only storage with a study in the working directory; owned. */
static int only_storage(char **out, struct err *err)
{
    struct str all = { 0 };
    char **names = NULL, *found = NULL;
    size_t n = 0, count = 0;
    int ret = 0;

    if (fs_list(&names, &n, ".", err) < 0)
        return -1;
    for (size_t i = 0; i < n && ret == 0; i++) {
        char *url;

        ret = find_storage(&url, names[i], err);
        if (ret < 0 || !url)
            continue;
        count++;
        if (all.len < 200)
            str_addf(&all, "%s%.100s", all.len ? ", " : "", names[i]);
        free(found);
        found = url;
    }
    fs_list_free(names, n);
    if (ret == 0 && count > 1)
        ret = err_set(err, ERR_USAGE, "which study? name one of %.300s", all.s);
    else if (ret == 0 && !count)
        ret = err_set(
            err, ERR_USAGE,
            "which study? there is none here: name its file, or its sweep file");
    if (ret == 0)
        *out = found;
    else
        free(found);
    str_clear(&all);
    return ret;
}

/* Open the study of the sweep file PATH. */
static int open_sweep(struct session *s, const struct where *w, const char *path,
                      struct err *err)
{
    const struct wish wish = { .where = *w };
    struct where there = { 0 };
    struct session sweep;
    bool found;
    int ret = -1;

    if (session_read_sweep(&sweep, path, &wish, err) < 0)
        return -1;
    if (storage_find(&found, sweep.url, err) < 0) {
        session_close(&sweep);
        return -1;
    }
    if (w->storage || found) {
        there = (struct where){ .storage = sweep.url, .study = sweep.name };
        ret = session_open(s, &there, false, err);
    } else {
        err_set(err, ERR_INPUT, "%s: the sweep has not begun: there is no %s", path,
                sweep.url);
    }
    session_close(&sweep);
    return ret;
}

int session_open_file(struct session *s, const struct where *w, const char *file,
                      struct err *err)
{
    struct where there = *w;
    char *url = NULL;
    int ret;

    *s = (struct session){ 0 };
    if (!file && (w->storage || getenv("HPO_STORAGE")))
        return session_open(s, w, false, err);
    if (file && !strstr(file, "://") && !str_starts(file, "journal:")) {
        if (find_url(&url, file, err) < 0)
            return -1;
        if (!url)
            return open_sweep(s, w, file, err);
    }
    if (file && w->storage) {
        free(url);
        return err_set(err, ERR_USAGE, "--storage and '%s' are two storages", file);
    }
    if (!file && only_storage(&url, err) < 0)
        return -1;
    there.storage = url ? url : file;
    ret = session_open(s, &there, false, err);
    free(url);
    return ret;
}
