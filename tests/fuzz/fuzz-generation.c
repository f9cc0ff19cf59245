/* fuzz-generation - generation_config.json, and the same keys of config.json */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "cmd/tp-run/asked.h"
#include "lib/base/fs.h"
#include "lib/base/output.h"
#include "lib/base/str.h"
#include "lib/reshard/checkpoint.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(char *dir)
{
    static const struct cmd cmd = { .name = "generate", .program = "fuzz-generation" };
    struct checkpoint checkpoint = { .path = dir, .home = dir };
    struct session s = { .cmd = &cmd,
                         .checkpoint = &checkpoint,
                         .opt = { .quiet = true } };
    struct ids stop = { 0 };
    struct err err = { 0 };
    struct asked a;

    if (asked_read(&a, &s, true, &err) == 0 &&
        (processors_check(&a.how, "", NULL) < 0 || a.start < -1))
        abort();
    asked_clear(&a);
    err = (struct err){ 0 };
    if (session_stop_ids(&stop, dir, &err) < 0 && !err.kind)
        abort();
    ids_clear(&stop);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = { "generation_config.json", "config.json" };
    const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    char *dir = str_dupf("%s/fuzz-generation.XXXXXX", base);

    if (mkdtemp(dir)) {
        for (int i = 0; i < 2; i++) {
            char *path = fs_join_dup(dir, names[i]);

            if (output_write(path, data, size, false, NULL) == 0)
                use(dir);
            unlink(path);
            free(path);
        }
        rmdir(dir);
    }
    free(dir);
    return 0;
}
