/* metadir - reads Meta's checkpoints of Llama */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/json.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/ckpt/foreignforms.h"
#include "lib/ckpt/pickle.h"

static const char PARAMS[] = "params.json";

enum { MOST_RANKS = 100, MAX_JSON = 1 << 20 };

static char *rank_name_dup(int rank)
{
    return str_dupf("consolidated.%02d.pth", rank);
}

static int probe(bool *found, const char *path, bool is_dir, struct err *err)
{
    char *first = rank_name_dup(0);
    int ret = 0;

    *found = false;
    if (is_dir)
        ret = fs_find_in(found, path, first, err);
    free(first);
    return ret;
}

/* Adds the tensors of rank RANK. */
static int read_rank(struct source *s, const char *path, int rank, size_t *cap,
                     struct err *err)
{
    char *name = rank_name_dup(rank), *file = fs_join_dup(path, name);
    struct pickle p;
    int fd = -1, input, ret = -1;

    if (form_add_input(s, name, file, &input, &fd, err) < 0 ||
        pickle_read(&p, fd, file, err) < 0)
        goto out;
    if (p.archive)
        form_add_archive(s, input, 0, p.size);
    s->raw = xgrow(s->raw, cap, s->nraw + p.n + 1, sizeof(*s->raw));
    ret = 0;
    for (size_t i = 0; i < p.n && ret == 0; i++) {
        struct tensor *t = &s->raw[s->nraw++];
        size_t bytes = ((size_t)p.tensor[i].ndim + 1) * sizeof(uint64_t);
        uint64_t *shape = pool_take(&s->pool, 2 * bytes, 8);

        *t = p.tensor[i];
        memcpy(shape, t->shape, (size_t)t->ndim * sizeof(*shape));
        t->shape = shape;
        if (t->stride) {
            memcpy(shape + t->ndim, t->stride, (size_t)t->ndim * sizeof(*shape));
            t->stride = shape + t->ndim;
        }
        t->file = rank;
        t->input = input;
        ret = form_keep_name(s, &t->name, p.tensor[i].name, p.size, file, err);
    }
    pickle_clear(&p);
out:
    if (fd >= 0)
        close(fd);
    free(name);
    free(file);
    return ret;
}

/* The rows, or with AXIS 1 the columns, of tensor NAME of rank 0; 0: it is missing. */
static uint64_t size_of(const struct source *s, const char *name, int axis)
{
    for (size_t i = 0; i < s->nraw; i++)
        if (!strcmp(s->raw[i].name, name) && s->raw[i].ndim > axis)
            return s->raw[i].shape[axis];
    return 0;
}

static double number(const cJSON *params, const char *key, double otherwise)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(params, key);

    return cJSON_IsNumber(v) ? v->valuedouble : otherwise;
}

/* Makes the config.json that PARAMS mean; what they leave open is taken from the
 * tensors: the width of the feed-forward, the rows of the vocabulary. */
static int make_config(struct source *s, const cJSON *params, const char *path,
                       int ranks, struct err *err)
{
    double heads = number(params, "n_heads", 0), eps = number(params, "norm_eps", 1e-5);
    double theta = number(params, "rope_theta", 10000);
    uint64_t ffn = size_of(s, "layers.0.feed_forward.w1.weight", 0) * (uint64_t)ranks;
    uint64_t vocab = size_of(s, "output.weight", 0) * (uint64_t)ranks;
    struct str text = { 0 };
    const char *type = s->nraw ? dtype_pytorch(s->raw[0].dtype) : NULL;

    if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(params, "use_scaled_rope")) ||
        number(params, "sliding_window", 0) > 0 || /* Mistral's, in the same form */
        cJSON_GetObjectItemCaseSensitive(params, "moe") || heads < 1 || !ffn || !vocab)
        return err_set(err, ERR_INPUT,
                       "%s: what model this is cannot be told; --config gives the "
                       "model's config.json",
                       path);
    str_addf(&text,
             "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\","
             "\"hidden_size\":%.0f,\"num_hidden_layers\":%.0f,"
             "\"num_attention_heads\":%.0f,\"num_key_value_heads\":%.0f,"
             "\"intermediate_size\":%llu,\"vocab_size\":%llu,\"hidden_act\":\"silu\","
             "\"tie_word_embeddings\":false,\"rms_norm_eps\":",
             number(params, "dim", 0), number(params, "n_layers", 0), heads,
             number(params, "n_kv_heads", heads), (unsigned long long)ffn,
             (unsigned long long)vocab);
    str_add_double(&text, eps);
    str_add(&text, ",\"rope_theta\":");
    str_add_double(&text, theta);
    if (type)
        str_addf(&text, ",\"torch_dtype\":\"%s\"", type);
    str_add(&text, "}\n");
    s->config = str_steal(&text);
    return 0;
}

static int read_params(struct source *s, const char *dir, int ranks, struct err *err)
{
    char *path = fs_join_dup(dir, PARAMS), *text = NULL;
    cJSON *params = NULL;
    size_t n;
    int ret = fs_read_optional(&text, &n, path, MAX_JSON, err);

    if (ret == 0 && text)
        ret = json_read_config(&params, path, text, n, err);
    if (ret == 0 && text) {
        ret = make_config(s, params, path, ranks, err);
        free(s->config_path);
        s->config_path = xstrdup(path);
    }
    cJSON_Delete(params);
    free(text);
    free(path);
    return ret;
}

static int open_directory(struct source *s, const char *path, struct err *err)
{
    size_t cap = 0;
    bool more = true;
    int ranks = 0;

    s->dialect = "meta";
    while (more && ranks < MOST_RANKS) {
        char *next = rank_name_dup(ranks + 1);
        int ret = read_rank(s, path, ranks++, &cap, err);

        if (ret == 0)
            ret = fs_find_in(&more, path, next, err);
        free(next);
        if (ret < 0)
            return -1;
    }
    if (!s->config && read_params(s, path, ranks, err) < 0)
        return -1;
    return form_present_shards(s, err);
}

const struct source_ops meta_ops = { .name = "Meta's checkpoint of Llama",
                                     .probe = probe,
                                     .open = open_directory };
