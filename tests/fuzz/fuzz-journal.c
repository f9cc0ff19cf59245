/* fuzz-journal - studies in Optuna's journal file, and what is whole of a damaged one
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/str.h"
#include "lib/sweep/storage/replay.h"
#include "lib/sweep/storage/salvage.h"
#include "lib/sweep/storage/storage.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void hear(void *arg, int line, const char *what)
{
    (void)arg;
    if (line < 1 || !*what)
        abort();
}

/* What is saved can be read. */
static void save(const char *text, size_t n)
{
    struct replay r = { .path = "saved" };
    struct str lines = { 0 };
    struct salvaged count;
    struct err err = { 0 };
    size_t used;

    if (salvage_journal(&lines, &count, "fuzz", text, n, hear, NULL, &err) == 0 &&
        replay_lines(&r, str_text(&lines), lines.len, &used, &err) < 0)
        abort();
    replay_clear(&r);
    str_clear(&lines);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fd = memfd_create("journal", MFD_CLOEXEC);
    char *url = str_dupf("journal:/proc/self/fd/%d", fd), **names;
    struct err err = { 0 };
    struct storage *st;
    size_t n;

    if (fd >= 0 && fs_write(fd, data, size, "fuzz", &err) == 0 &&
        storage_open(&st, url, false, NULL, &err) == 0) {
        if (st->ops->list(st, &names, &n, &err) == 0) {
            for (size_t i = 0; i < n && i < 4; i++) {
                struct study s = { 0 };

                if (st->ops->load(st, &s, names[i], &err) > 0)
                    study_clear(&s);
            }
            fs_list_free(names, n);
        }
        storage_close(st);
    }
    save((const char *)data, size);
    free(url);
    if (fd >= 0)
        close(fd);
    return 0;
}
