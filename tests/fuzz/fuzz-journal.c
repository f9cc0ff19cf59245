/* fuzz-journal - studies in Optuna's journal file */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/str.h"
#include "lib/sweep/storage/storage.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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
    free(url);
    if (fd >= 0)
        close(fd);
    return 0;
}
