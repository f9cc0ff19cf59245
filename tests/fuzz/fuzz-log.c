/* fuzz-log - the log of a run of train: plotted, and cut where the run is resumed
 *
 * The first byte is the step to resume after, the rest is log.jsonl. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/tp-run/commands.h"
#include "cmd/tp-run/train.h"
#include "lib/base/fs.h"
#include "lib/base/output.h"
#include "lib/base/str.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What LeakSanitizer leaves out: what the libraries that draw keep to the end. */
const char *__lsan_default_suppressions(void);

const char *__lsan_default_suppressions(void)
{
    return "leak:libfontconfig\nleak:libcairo\n";
}

static volatile int failures; /* as many as there are: any answer will do */

static void plot(char *dir)
{
    char *picture = fs_join_dup(dir, "log.svg");
    char *argv[] = { (char *)"plot", (char *)"-o", picture, dir, NULL };

    failures += plot_main("fuzz-log", 4, argv) != 0;
    free(picture);
}

/* Resumes after STEP; the log's lines are then some of TEXT's [n], and stay. */
static void resume(char *dir, const char *log, uint64_t step, const char *text,
                   size_t n)
{
    struct checkpoint checkpoint = { .path = dir, .home = dir, .sharded = true };
    struct session session = { .checkpoint = &checkpoint };
    struct train t = { .session = &session,
                       .dir = dir,
                       .files.model = (char *)"model",
                       .resumed = true,
                       .state.step = step };
    char *once, *twice;
    size_t len, again;

    if (train_dir_begin(&t, NULL) < 0 || fs_read_file(&once, &len, log, n, NULL) < 0)
        abort();
    for (size_t i = 0, from = 0; i < len;) {
        const char *end = memchr(once + i, '\n', len - i);
        size_t line;

        if (!end)
            abort();
        line = (size_t)(end + 1 - once) - i;
        while (from + line <= n && memcmp(text + from, once + i, line) != 0)
            from++;
        if (from + line > n)
            abort();
        from += line;
        i += line;
    }
    if (train_dir_begin(&t, NULL) < 0 ||
        fs_read_file(&twice, &again, log, n, NULL) < 0 || again != len ||
        memcmp(once, twice, len) != 0)
        abort();
    free(once);
    free(twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    char *dir = str_dupf("%s/fuzz-log.XXXXXX", base);
    static bool ready;

    if (!ready) {
#ifdef __GLIBC__ /* what is wrong is told; reports of sanitizers go elsewhere */
        stderr = fopen("/dev/null", "w");
#endif
        ready = true;
    }
    if (size && mkdtemp(dir)) {
        char *log = fs_join_dup(dir, "log.jsonl");
        char *manifest = fs_join_dup(dir, "checkpoint.json");

        if (output_write(manifest, "{}", 2, false, NULL) == 0 &&
            output_write(log, data + 1, size - 1, false, NULL) == 0) {
            plot(dir);
            resume(dir, log, data[0], (const char *)data + 1, size - 1);
            plot(dir);
        }
        free(log);
        free(manifest);
        if (fs_remove_tree(dir, NULL) < 0)
            abort();
    }
    free(dir);
    return 0;
}
