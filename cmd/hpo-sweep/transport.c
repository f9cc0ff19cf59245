/* transport - write studies to a file, and read them from one */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/hpo-sweep/hpo-sweep.h"
#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/output.h"
#include "lib/sweep/storage/transfer.h"

#define EXPORT_MAX (UINT64_C(1) << 34)

/* A file is a journal, as Optuna writes it. */
static char *journal_dup(const char *path)
{
    return str_dupf("journal:%s", path);
}

static int copy(const char *to_url, const char *from_url, const char *name,
                struct err *err)
{
    struct storage *from = NULL, *to = NULL;
    size_t count;
    int ret = -1;

    if (storage_open(&from, from_url, false, NULL, err) == 0 &&
        storage_open(&to, to_url, true, NULL, err) == 0)
        ret = transfer_studies(to, from, name, &count, err);
    storage_close(to);
    storage_close(from);
    return ret;
}

/* Studies of URL to FILE, or "-", by way of a journal in a directory of its own. */
static int export(const char *file, const char *url, const char *name, struct err *err)
{
    const char *tmp = getenv("TMPDIR");
    char *dir = output_scratch_dup(tmp && *tmp ? tmp : "/tmp", err);
    char *made = dir ? fs_join_dup(dir, "export") : NULL;
    char *to = made ? journal_dup(made) : NULL, *text = NULL;
    size_t len;
    int ret = -1;

    if (!dir)
        return -1;
    if (copy(to, url, name, err) == 0 &&
        fs_read_file(&text, &len, made, EXPORT_MAX, err) == 0)
        ret = output_write(file, text, len, false, err);
    unlink(made);
    rmdir(dir);
    free(text);
    free(to);
    free(made);
    free(dir);
    return ret;
}

/* What may stand beside a database while it is open. */
static void unlink_all(const char *path)
{
    static const char *const suffixes[] = { "", "-wal", "-shm", "-journal", ".lock" };

    for (size_t i = 0; i < sizeof(suffixes) / sizeof(*suffixes); i++) {
        char *name = str_dupf("%s%s", path, suffixes[i]);

        unlink(name);
        free(name);
    }
}

/* Studies of FILE to URL, where there may be no storage yet: then it is made under
 * another name, so that it appears whole. */
static int import(const char *url, const char *file, const char *name, struct err *err)
{
    size_t n, at = storage_path(&n, url);
    char *path = xstrndup(url + at, n), *from, *temporary, *to;
    bool found;
    int ret;

    if (storage_find(&found, url, err) < 0) {
        free(path);
        return -1;
    }
    from = journal_dup(file);
    if (found) {
        ret = copy(url, from, name, err);
        free(from);
        free(path);
        return ret;
    }
    temporary = str_dupf("%s.%ld.tmp", path, (long)getpid());
    to = str_dupf("%.*s%s", (int)at, url, temporary);
    ret = copy(to, from, name, err);
    /* not over what somebody else has made meanwhile; some file systems have no links
     */
    if (ret == 0 && link(temporary, path) < 0 &&
        (errno == EEXIST || rename(temporary, path) < 0))
        ret = err_errno(err, "%s", path);
    if (ret == 0)
        ret = output_sync_name(path, err);
    unlink_all(temporary);
    free(path);
    free(temporary);
    free(to);
    free(from);
    return ret;
}

static int run(const struct cmd *cmd, const struct where *w, const char *file,
               bool writes)
{
    const char *url = w->storage ? w->storage : getenv("HPO_STORAGE");
    const char *name = w->study || w->storage ? w->study : getenv("HPO_STUDY");
    struct err err = { 0 };
    int ret;

    if (!url)
        return cmd_usage(cmd, "which study? give --storage");
    if (writes) {
        ret = export(file, url, name, &err);
    } else {
        ret = import(url, file, name, &err);
    }
    return ret < 0 ? cmd_fail(cmd, &err) : cmd_finish(cmd, 0);
}

int export_main(const char *program, int argc, char **argv)
{
    struct where w = { 0 };
    const struct opt opts[] = { WHERE_OPTIONS(w), { .type = OPT_END } };
    const struct cmd cmd = { .name = "export",
                             .program = program,
                             .opts = opts,
                             .synopsis = "[OPTION]... FILE",
                             .min_args = 1,
                             .max_args = 1,
                             .summary = "Write studies to a file of JSON lines" };
    char **operand = cmd_parse(&cmd, argc, argv);

    return run(&cmd, &w, operand[0], true);
}

int import_main(const char *program, int argc, char **argv)
{
    struct where w = { 0 };
    const struct opt opts[] = { WHERE_OPTIONS(w), { .type = OPT_END } };
    const struct cmd cmd = { .name = "import",
                             .program = program,
                             .opts = opts,
                             .synopsis = "[OPTION]... FILE",
                             .min_args = 1,
                             .max_args = 1,
                             .summary = "Read studies from such a file, or from "
                                        "Optuna's journal" };
    char **operand = cmd_parse(&cmd, argc, argv);

    return run(&cmd, &w, operand[0], false);
}
