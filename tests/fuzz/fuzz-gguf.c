/* fuzz-gguf - GGUF files: their header, the names that a family gives to their tensors,
 * the config that their metadata are, and their tokenizer */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/output.h"
#include "lib/reshard/checkpoint.h"
#include "lib/text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char directory[64] = "/tmp/fuzz-gguf.XXXXXX";

static void clean(void)
{
    if (fs_remove_tree(directory, NULL) < 0)
        abort();
}

static void make(void)
{
    if (access("/dev/shm", W_OK) == 0)
        snprintf(directory, sizeof(directory), "/dev/shm/fuzz-gguf.XXXXXX");
    if (!mkdtemp(directory))
        abort();
    atexit(clean);
}

/* What is made of a tokenizer must at least be a tokenizer.json, or named. */
static void look(const struct source *s)
{
    const char *text = source_made(s, "tokenizer.json");
    struct tokenizer *t;
    struct err err = { 0 };

    if (!text)
        return;
    if (tokenizer_parse(&t, "tokenizer.json", text, &err) == 0)
        tokenizer_free(t);
    else if (!err.kind)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool made;
    const struct checkpoint_options tensors_only = { .no_model = true };
    struct checkpoint *c = NULL;
    struct err err = { 0 };
    char *path;

    if (!made)
        make();
    made = true;
    path = fs_join_dup(directory, "model.gguf");
    if (output_write(path, (const char *)data, size, false, &err) < 0)
        abort();
    if (checkpoint_open(&c, path, NULL, &err) == 0 ||
        checkpoint_open(&c, path, &tensors_only, &err) == 0)
        look(&c->source);
    else if (!err.kind)
        abort();
    checkpoint_close(c);
    free(path);
    return 0;
}
