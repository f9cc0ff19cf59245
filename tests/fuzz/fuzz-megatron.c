/* fuzz-megatron - legacy checkpoints of Megatron-LM, Meta's, nanoGPT's, llm.c's: a
 * rank's file, the names that a family gives to its tensors, and the config that its
 * arguments are */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/output.h"
#include "lib/base/str.h"
#include "lib/reshard/checkpoint.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char config[] =
    "{\"model_type\":\"llama\",\"hidden_size\":4,\"num_hidden_layers\":1,"
    "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"intermediate_size\":6,"
    "\"vocab_size\":5}";

static char directory[64] = "/tmp/fuzz-megatron.XXXXXX";

static void clean(void)
{
    if (fs_remove_tree(directory, NULL) < 0)
        abort();
}

/* Checkpoints, each of one rank; those in args and nanogpt have no config. */
static void make(void)
{
    static const char *const below[] = { "legacy", "legacy/mp_rank_00",
                                         "args",   "args/mp_rank_00",
                                         "meta",   "nanogpt",
                                         "llmc" };

    if (access("/dev/shm", W_OK) == 0)
        snprintf(directory, sizeof(directory), "/dev/shm/fuzz-megatron.XXXXXX");
    if (!mkdtemp(directory))
        abort();
    atexit(clean);
    for (size_t i = 0; i < sizeof(below) / sizeof(*below); i++) {
        char *path = fs_join_dup(directory, below[i]);
        char *file = fs_join_dup(path, "config.json");
        struct err err = { 0 };

        if (mkdir(path, 0700) < 0 ||
            (strcmp(below[i], "args") != 0 && strcmp(below[i], "nanogpt") != 0 &&
             strcmp(below[i], "llmc") != 0 &&
             output_write(file, config, sizeof(config) - 1, false, &err) < 0))
            abort();
        free(file);
        free(path);
    }
}

static void look(const char *below, const char *file, const uint8_t *data, size_t size)
{
    char *dir = fs_join_dup(directory, below), *path = fs_join_dup(dir, file);
    const char *opened = strcmp(below, "llmc") != 0 ? dir : path;
    struct checkpoint_options options = { .moments = true };
    struct checkpoint *c = NULL;
    struct err err = { 0 };

    if (output_write(path, (const char *)data, size, false, &err) < 0)
        abort();
    if (checkpoint_open(&c, opened, &options, &err) < 0 &&
        checkpoint_open(&c, opened, NULL, &err) < 0 && !err.kind)
        abort();
    checkpoint_close(c);
    free(path);
    free(dir);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool made;

    if (!made)
        make();
    made = true;
    if (!size)
        return 0;
    if (data[0] & 1)
        look("meta", "consolidated.00.pth", data + 1, size - 1);
    else if (data[0] & 2)
        look("args", "mp_rank_00/model_optim_rng.pt", data + 1, size - 1);
    else if (data[0] & 4)
        look("nanogpt", "ckpt.pt", data + 1, size - 1);
    else if (data[0] & 8)
        look("llmc", "model.bin", data + 1, size - 1);
    else
        look("legacy", "mp_rank_00/model_optim_rng.pt", data + 1, size - 1);
    return 0;
}
