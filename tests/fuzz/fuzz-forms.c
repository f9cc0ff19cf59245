/* fuzz-forms - checkpoints that training frameworks leave: opened, read and verified
 *
 * An input is files one after another, each a line "NAME BYTES" and so many bytes; a
 * name may have directories; the last file may be cut short. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/output.h"
#include "lib/base/str.h"
#include "lib/reshard/audit.h"
#include "tests/fuzz/files.h"

static volatile int failures; /* as many as there are: any answer will do */

enum { MOST_FILES = 64, MOST_BYTES = 1 << 20, MOST_TENSORS = 256 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_file(const char *dir, const char *name, const char *bytes, size_t n)
{
    char *path = fs_join_dup(dir, name);

    for (char *slash = path + strlen(dir) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        failures += mkdir(path, 0777) < 0;
        *slash = '/';
    }
    failures += output_write(path, bytes, n, false, NULL) < 0;
    free(path);
}

static int drop(void *arg, int part, uint64_t offset, void *buf, size_t n,
                struct err *err)
{
    (void)arg, (void)part, (void)offset, (void)buf, (void)n, (void)err;
    return 0;
}

static void ignore(void *arg, const char *file, const char *tensor, const char *text)
{
    (void)arg, (void)file, (void)tensor, (void)text;
}

static void use(struct checkpoint *c)
{
    const struct cut_side nowhere = { .nparts = 1, .io = drop };
    struct audit a = { .threads = 1, .finding = ignore };
    struct cut *cut = cut_new();
    struct err err = { 0 };

    for (size_t i = 0; i < c->ntensors && i < MOST_TENSORS; i++)
        if (c->tensor[i].size <= MOST_BYTES)
            failures += checkpoint_copy(c, cut, i, c->tensor[i].dtype, &nowhere, NULL,
                                        NULL, NULL, &err) < 0;
    failures += audit_archives(&a, &c->source, &err) < 0;
    cut_free(cut);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct checkpoint_options tensors_only = { .no_model = true, .moments = true };
    const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    char *dir = str_dupf("%s/fuzz-forms.XXXXXX", base);
    struct err err = { 0 };
    struct checkpoint *c = NULL;

    if (!mkdtemp(dir)) {
        free(dir);
        return 0;
    }
    files_unpack(dir, (const char *)data, size, MOST_FILES, write_file);
    if (checkpoint_open(&c, dir, &tensors_only, &err) < 0) { /* none, or malformed */
        tensors_only.moments = false;
        failures += checkpoint_open(&c, dir, &tensors_only, &err) < 0;
    }
    if (c)
        use(c);
    checkpoint_close(c);
    failures += fs_remove_tree(dir, &err) < 0;
    free(dir);
    return 0;
}
