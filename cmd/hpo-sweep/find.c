/* find - which study is meant: a storage, a sweep file, or the only one that is there
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/hpo-sweep/hpo-sweep.h"
#include "lib/base/fs.h"
#include "lib/base/mem.h"

enum kind { KIND_OTHER, KIND_SQLITE, KIND_JOURNAL };

/* What PATH begins as. */
static enum kind kind_of(const char *path)
{
    static const char sqlite[] = "SQLite format 3", journal[] = "{\"op_code\":";
    char head[sizeof(sqlite)] = "";
    FILE *fp = fs_is_dir(path) ? NULL : fopen(path, "rb");
    size_t n = fp ? fread(head, 1, sizeof(head) - 1, fp) : 0;

    if (fp)
        fclose(fp);
    if (n == sizeof(sqlite) - 1 && !memcmp(head, sqlite, n))
        return KIND_SQLITE;
    return n >= sizeof(journal) - 1 && !memcmp(head, journal, sizeof(journal) - 1)
               ? KIND_JOURNAL
               : KIND_OTHER;
}

/* The URL of the storage at PATH, NULL when it is none; owned. */
static char *url_dup(const char *path)
{
    switch (kind_of(path)) {
    case KIND_SQLITE:
        return xstrdup(path);
    case KIND_JOURNAL:
        return str_dupf("journal:%s", path);
    default:
        return NULL;
    }
}

/* Whether the storage URL holds a study. */
static bool holds_study(const char *url)
{
    struct storage *st;
    char **names = NULL;
    size_t n = 0;

    if (storage_open(&st, url, false, NULL, NULL) < 0)
        return false;
    if (st->ops->begin(st, false, NULL) == 0) {
        if (st->ops->list(st, &names, &n, NULL) < 0)
            n = 0;
        st->ops->give_up(st);
    }
    fs_list_free(names, n);
    storage_close(st);
    return n > 0;
}

/* The only storage with a study in the working directory; owned. */
static int only_storage(char **out, struct err *err)
{
    struct str all = { 0 };
    char **names = NULL, *found = NULL;
    size_t n = 0, count = 0;

    if (fs_list(&names, &n, ".", err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        char *url = url_dup(names[i]);

        if (!url || !holds_study(url)) {
            free(url);
            continue;
        }
        count++;
        if (all.len < 200)
            str_addf(&all, "%s%.100s", all.len ? ", " : "", names[i]);
        free(found);
        found = url;
    }
    fs_list_free(names, n);
    if (count == 1)
        *out = found;
    else if (count)
        err_set(err, ERR_USAGE, "which study? name one of %.300s", all.s);
    else
        err_set(err, ERR_USAGE,
                "which study? there is none here: name its file, or its sweep file");
    if (count != 1)
        free(found);
    str_clear(&all);
    return count == 1 ? 0 : -1;
}

/* Open the study of the sweep file PATH. */
static int open_sweep(struct session *s, const struct where *w, const char *path,
                      struct err *err)
{
    const struct wish wish = { .where = *w };
    struct where there = { 0 };
    struct session sweep;
    int ret = -1;

    if (session_read_sweep(&sweep, path, &wish, err) < 0)
        return -1;
    if (w->storage || storage_exists(sweep.url)) {
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
    if (file && !strstr(file, "://") && !str_starts(file, "journal:") &&
        !(url = url_dup(file)))
        return open_sweep(s, w, file, err);
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
