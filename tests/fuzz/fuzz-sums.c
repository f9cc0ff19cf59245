/* fuzz-sums - lists that tp-shard sum wrote, held against a checkpoint */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/output.h"
#include "lib/base/str.h"
#include "lib/reshard/audit.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void ignore(void *arg, const char *file, const char *tensor, const char *text)
{
    (void)arg, (void)file, (void)tensor, (void)text;
}

static struct source source; /* of a file with two tensors, opened once */
static char directory[64] = "/tmp/fuzz-sums.XXXXXX";

static void clean(void)
{
    source_clear(&source);
    if (fs_remove_tree(directory, NULL) < 0)
        abort();
}

static void make(void)
{
    static const char header[] =
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"
        "\"b\":{\"dtype\":\"U8\",\"shape\":[2,1],\"data_offsets\":[3,5]}}";
    struct str file = { 0 };
    struct err err = { 0 };
    char *path;

    if (access("/dev/shm", W_OK) == 0)
        snprintf(directory, sizeof(directory), "/dev/shm/fuzz-sums.XXXXXX");
    if (!mkdtemp(directory))
        abort();
    path = fs_join_dup(directory, "fuzz.safetensors");
    str_addc(&file, (char)(sizeof(header) - 1));
    str_addn(&file, "\0\0\0\0\0\0\0", 7);
    str_add(&file, header);
    str_addn(&file, "abcde", 5);
    if (output_write(path, file.s, file.len, false, &err) < 0 ||
        source_open(&source, path, NULL, &err) < 0)
        abort();
    str_clear(&file);
    free(path);
    atexit(clean);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct audit a = { .threads = 1, .finding = ignore };
    char *lines = xstrndup((const char *)data, size);
    struct str sums = { 0 };
    struct err err = { 0 };

    if (!source.path) {
        make();
        /* its own list finds nothing */
        if (audit_sum(&sums, &source, &err) < 0 ||
            audit_compare(&a, &source, "own", sums.s, &err) < 0 || a.findings)
            abort();
        str_clear(&sums);
    }
    if (audit_compare(&a, &source, "fuzz", lines, &err) < 0 && !err.kind)
        abort();
    free(lines);
    return 0;
}
