/* make-model - write a model of random weights: make-model DIR DTYPE CONFIG, or DIR
 * DTYPE HIDDEN LAYERS FFN HEADS KV_HEADS VOCAB of a Llama
 *
 * DTYPE is F32 or BF16, CONFIG the text of a config.json.  For measuring: the weights
 * are small numbers without meaning. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/output.h"
#include "lib/base/rng.h"
#include "lib/base/str.h"
#include "lib/ckpt/safetensors.h"
#include "lib/model/model.h"

enum { BLOCK = 1 << 20 };

static int write_model(const char *dir, const struct model *m, enum dtype dtype,
                       struct err *err)
{
    struct safetensors_header h = { 0 };
    char *path = fs_join_dup(dir, "model.safetensors");
    char *block = xmalloc(BLOCK);
    struct rng r;
    int fd, ret = -1;

    safetensors_header_begin(&h, NULL);
    for (size_t i = 0; i < m->ntensors; i++) {
        uint64_t shape[MODEL_MAX_DIMS], n = 1;

        if (m->tensor[i].tied >= 0)
            continue;
        for (int k = 0; k < m->tensor[i].ndim; k++)
            n *= shape[k] = m->tensor[i].axis[k]->size;
        safetensors_header_add(&h, m->tensor[i].name, dtype, m->tensor[i].ndim, shape,
                               n * (uint64_t)dtype_bits(dtype) / 8);
    }
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0 || safetensors_header_finish(&h, path, err) < 0)
        goto out;
    rng_init(&r, 1, 1);
    for (int i = 0; i < BLOCK / 4; i++) {
        float x = (float)(rng_uniform(&r) - 0.5) * 0.02f;
        uint16_t b = dtype_f32_to_bf16(x);

        if (dtype == DTYPE_F32)
            memcpy(block + i * 4, &x, 4);
        else
            memcpy((char *)memcpy(block + i * 4, &b, 2) + 2, &b, 2);
    }
    if (fs_write(fd, h.text.s, h.text.len, path, err) < 0)
        goto out;
    for (uint64_t left = h.end; left;) {
        size_t n = left < BLOCK ? (size_t)left : BLOCK;

        if (fs_write(fd, block, n, path, err) < 0)
            goto out;
        left -= n;
    }
    ret = 0;
out:
    if (fd >= 0)
        close(fd);
    safetensors_header_clear(&h);
    free(path);
    free(block);
    return ret;
}

/* The config of a Llama of these sizes. */
static char *llama(char **size)
{
    return str_dupf(
        "{\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"],"
        "\"hidden_size\":%s,\"num_hidden_layers\":%s,\"intermediate_size\":%s,"
        "\"num_attention_heads\":%s,\"num_key_value_heads\":%s,\"vocab_size\":%s,"
        "\"max_position_embeddings\":4096}\n",
        size[0], size[1], size[2], size[3], size[4], size[5]);
}

int main(int argc, char **argv)
{
    struct err err = { 0 };
    struct model *m;
    enum dtype dtype;
    char *config, *path;

    if ((argc != 4 && argc != 9) || !dtype_parse(&dtype, argv[2]))
        return 2;
    config = argc == 4 ? xstrdup(argv[3]) : llama(argv + 3);
    path = fs_join_dup(argv[1], "config.json");
    if (output_dir(argv[1], OUTPUT_MAKE, &err) < 0 ||
        output_write(path, config, strlen(config), false, &err) < 0 ||
        model_open(&m, path, config, NULL, NULL, &err) < 0 ||
        write_model(argv[1], m, dtype, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        return 4;
    }
    model_free(m);
    free(config);
    free(path);
    return 0;
}
