/* fuzz-measure - values out of what a trial wrote, by key, by regular expression, by
 * line
 *
 * The first line of the input is the request, the rest what the trial wrote. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/output.h"
#include "lib/sweep/job/measure.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char directory[] = "/tmp/fuzz-measure.XXXXXX";

static void clean(void)
{
    char *path = fs_join_dup(directory, "stdout");

    unlink(path);
    free(path);
    rmdir(directory);
}

static void use(const char *ask, const char *text, size_t len)
{
    char *path = fs_join_dup(directory, "stdout");
    const char *const one[] = { ask };
    const struct measure requests[] = {
        { 0 },
        { .hf = true },
        { .keys = one, .nkeys = 1 },
        { .file = "stdout", .keys = one, .nkeys = 1 },
        { .regexes = one, .nregexes = 1 },
    };
    const char *feed = memchr(text, '\n', len);
    char *first = xstrndup(text, feed ? (size_t)(feed - text) : len), *constraints;
    struct err err = { 0 };
    struct str why = { 0 };
    double values[2];
    int64_t step;
    bool ok;

    if (output_write(path, text, len, false, &err) == 0)
        for (size_t i = 0; i < sizeof(requests) / sizeof(*requests); i++)
            if (measure_check(&requests[i], 1, &err) == 0 &&
                measure_read(&ok, values, 1, &requests[i], directory, &why, &err) < 0)
                abort();
    if (measure_read(&ok, values, 2, &requests[0], directory, &why, &err) < 0 ||
        measure_constraints(&ok, &constraints, &requests[3], directory, &why, &err) < 0)
        abort();
    if (ok)
        free(constraints);
    for (size_t i = 0; i < 3; i += 2)
        measure_report(&step, values, &requests[i], first);
    str_clear(&why);
    free(first);
    free(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool ready;
    const char *line = size ? memchr(data, '\n', size) : NULL;
    size_t n = line ? (size_t)(line - (const char *)data) : 0;
    char *ask;

    if (!ready) {
        if (!mkdtemp(directory))
            return 0;
        atexit(clean);
        ready = true;
    }
    if (!line || n > 64)
        return 0;
    ask = xstrndup((const char *)data, n);
    use(ask, line + 1, size - n - 1);
    free(ask);
    return 0;
}
