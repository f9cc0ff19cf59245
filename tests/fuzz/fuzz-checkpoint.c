/* fuzz-checkpoint - a checkpoint's directory: opened, audited, copied and loaded
 *
 * An input is files one after another, each a line "NAME BYTES" and so many bytes; the
 * last one may be cut short.  The manifest gets the checksum that its text has. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/output.h"
#include "lib/reshard/audit.h"
#include "tests/fuzz/files.h"
#include "tests/fuzz/seal.h"

static volatile int failures; /* as many as there are: any answer will do */

enum { MOST_FILES = 32, MOST_BYTES = 1 << 20, MOST_TENSORS = 256 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_file(const char *dir, const char *name, const char *bytes, size_t n)
{
    char *path;
    struct str sealed = { 0 };

    if (strchr(name, '/'))
        return;
    path = fs_join_dup(dir, name);
    if (!strcmp(name, MANIFEST_NAME)) {
        seal(&sealed, bytes, n);
        bytes = sealed.s;
        n = sealed.len;
    }
    failures += output_write(path, bytes, n, false, NULL) < 0;
    str_clear(&sealed);
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

static bool is_small(const struct tensor *t)
{
    uint64_t n = 8;

    for (int k = 0; k < t->ndim; k++)
        if (!mem_mul(&n, n, t->shape[k]))
            return false;
    return n <= MOST_BYTES;
}

/* Read every tensor whole, unchecked, so that a wrong CRC-32 does not end it. */
static void copy_all(struct checkpoint *c)
{
    const struct cut_side to = { .nparts = 1, .io = drop };
    struct cut *cut = cut_new();
    struct err err = { 0 };

    for (size_t i = 0; i < c->ntensors && i < MOST_TENSORS; i++)
        if (is_small(&c->tensor[i]))
            failures += checkpoint_copy_rows(c, cut, i, 0, 0, &to, &err) < 0;
    cut_free(cut);
}

/* Load the part at COORD of MESH. */
static void load_all(struct checkpoint *c, const struct mesh *mesh,
                     const int coord[MESH_NAXES])
{
    struct err err = { 0 };
    struct loader *l;

    if (loader_open(&l, c, mesh, coord, &err) < 0)
        return;
    for (size_t t = 0; t < c->model->ntensors && t < MOST_TENSORS; t++) {
        uint64_t bytes;

        if (c->model->tensor[t].source >= 0 &&
            is_small(&c->tensor[c->model->tensor[t].source]) &&
            loader_bytes(l, t, &bytes, &err) == 0 && bytes <= MOST_BYTES) {
            void *buf = xmalloc((size_t)bytes + 1);

            failures += loader_read(l, t, buf, &err) < 0;
            free(buf);
        }
    }
    loader_close(l);
}

static void open_all(const char *dir)
{
    static const struct checkpoint_options tensors_only = { .no_model = true };
    struct audit a = { .threads = 1, .finding = ignore };
    int coord[MESH_NAXES] = { 0 };
    struct err err = { 0 };
    struct checkpoint *c;
    struct mesh one;

    if (checkpoint_open(&c, dir, &tensors_only, &err) == 0) {
        if (c->sharded)
            failures += audit_checkpoint(&a, c, &err) < 0;
        checkpoint_close(c);
    }
    if (checkpoint_open(&c, dir, NULL, &err) < 0)
        return;
    if (c->model && (!c->sharded || c->manifest.nparts <= MOST_FILES)) {
        mesh_one(&one);
        copy_all(c);
        load_all(c, &one, coord);
        load_all(c, &c->mesh, coord);
    }
    checkpoint_close(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    char *dir = str_dupf("%s/fuzz-checkpoint.XXXXXX", base);

    if (mkdtemp(dir)) {
        files_unpack(dir, (const char *)data, size, MOST_FILES, write_file);
        open_all(dir);
        failures += fs_remove_tree(dir, NULL) < 0;
    }
    free(dir);
    return 0;
}
