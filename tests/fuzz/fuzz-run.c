/* fuzz-run - run.json, the settings and files that a run of train was begun with */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/tp-run/train.h"
#include "lib/base/fs.h"
#include "lib/base/output.h"
#include "lib/base/str.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const words[] = { "documents", "chunks", NULL };

/* Reads DIR's run.json; what it says is written, and read again, unchanged. */
static void use(char *dir)
{
    struct checkpoint checkpoint = { .path = dir, .home = dir, .sharded = true };
    struct session session = { .checkpoint = &checkpoint };
    int steps = 0, micro = 1, pack = 0;
    uint64_t seq = 0;
    double lr = 0;
    struct setting set[] = {
        { .kind = SETTING_INT, .option = "steps", .value = &steps },
        { .kind = SETTING_COUNT, .option = "micro-batch", .value = &micro },
        { .kind = SETTING_U64, .option = "seq", .value = &seq, .fixed = 1 },
        { .kind = SETTING_DOUBLE, .option = "lr", .value = &lr, .fixed = 1 },
        { .kind = SETTING_CHOICE,
          .option = "pack",
          .value = &pack,
          .choices = words,
          .fixed = 1 },
    };
    struct train t = { .session = &session,
                       .resumed = true, /* the model is not read again */
                       .dir = dir,
                       .setting = set,
                       .nsettings = sizeof(set) / sizeof(*set) };
    struct str one = { 0 }, two = { 0 };
    struct err err = { 0 };

    if (train_dir_read(&t, &err) == 0) {
        size_t n = t.files.data.n;

        if (steps < 0 || micro < 1 || pack < 0 || pack > 1 || !t.files.model)
            abort();
        train_settings_print(&one, &t);
        if (train_dir_begin(&t, &err) < 0)
            abort();
        train_files_clear(&t.files);
        if (train_dir_read(&t, &err) < 0 || t.files.data.n != n)
            abort();
        train_settings_print(&two, &t);
        if (strcmp(one.s, two.s) != 0)
            abort();
        /* another value of what is given is told */
        set[2].given = true;
        seq++;
        train_files_clear(&t.files);
        if (train_dir_read(&t, &err) == 0 || err.kind != ERR_USAGE)
            abort();
    } else if (!err.kind) {
        abort();
    }
    train_files_clear(&t.files);
    str_clear(&one);
    str_clear(&two);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    char *dir = str_dupf("%s/fuzz-run.XXXXXX", base);

    if (mkdtemp(dir)) {
        char *run = fs_join_dup(dir, "run.json");
        char *manifest = fs_join_dup(dir, "checkpoint.json");

        if (output_write(manifest, "{}", 2, false, NULL) == 0 &&
            output_write(run, data, size, false, NULL) == 0)
            use(dir);
        free(run);
        free(manifest);
        if (fs_remove_tree(dir, NULL) < 0)
            abort();
    }
    free(dir);
    return 0;
}
