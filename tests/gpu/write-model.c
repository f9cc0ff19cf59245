/* write-model - a Llama of any shape, of random numbers in bf16, to measure with
 *
 *   write-model DIR LAYERS HIDDEN FFN HEADS KV_HEADS VOCAB
 *
 * DIR must exist.  Prints the bytes of weights that a new token reads: all but those of
 * the embedding, of which it reads a row. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/dtype.h"
#include "lib/base/mem.h"
#include "lib/base/rng.h"
#include "lib/base/str.h"

enum { BLOCK = 1 << 22 };

struct shape {
    uint64_t layers, hidden, ffn, heads, kv, vocab;
};

struct header {
    struct str text;
    uint64_t bytes;
};

static void add(struct header *h, const char *name, uint64_t rows, uint64_t cols)
{
    uint64_t end = h->bytes + rows * (cols ? cols : 1) * 2;

    str_addf(&h->text, "%s\"%s\":{\"dtype\":\"BF16\",\"shape\":[%" PRIu64,
             h->text.len > 1 ? "," : "", name, rows);
    if (cols)
        str_addf(&h->text, ",%" PRIu64, cols);
    str_addf(&h->text, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", h->bytes, end);
    h->bytes = end;
}

static void add_layer(struct header *h, const struct shape *s, uint64_t layer)
{
    uint64_t kv = s->hidden / s->heads * s->kv;
    const struct {
        const char *name;
        uint64_t rows, cols;
    } tensor[] = {
        { "input_layernorm", s->hidden, 0 },
        { "self_attn.q_proj", s->hidden, s->hidden },
        { "self_attn.k_proj", kv, s->hidden },
        { "self_attn.v_proj", kv, s->hidden },
        { "self_attn.o_proj", s->hidden, s->hidden },
        { "post_attention_layernorm", s->hidden, 0 },
        { "mlp.gate_proj", s->ffn, s->hidden },
        { "mlp.up_proj", s->ffn, s->hidden },
        { "mlp.down_proj", s->hidden, s->ffn },
    };

    for (size_t i = 0; i < sizeof(tensor) / sizeof(*tensor); i++) {
        char *name =
            str_dupf("model.layers.%" PRIu64 ".%s.weight", layer, tensor[i].name);

        add(h, name, tensor[i].rows, tensor[i].cols);
        free(name);
    }
}

static FILE *create(const char *dir, const char *name)
{
    char *path = str_dupf("%s/%s", dir, name);
    FILE *f = fopen(path, "wb");

    if (!f) {
        fprintf(stderr, "write-model: %s: %s\n", path, strerror(errno));
        exit(4);
    }
    free(path);
    return f;
}

static void finish(FILE *f)
{
    bool bad = ferror(f);

    if (fclose(f) == 0 && !bad)
        return;
    perror("write-model");
    exit(4);
}

static void write_config(const char *dir, const struct shape *s)
{
    FILE *f = create(dir, "config.json");

    fprintf(f,
            "{\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"],"
            "\"hidden_size\":%" PRIu64 ",\"intermediate_size\":%" PRIu64
            ",\"num_hidden_layers\":%" PRIu64 ",\"num_attention_heads\":%" PRIu64
            ",\"num_key_value_heads\":%" PRIu64 ",\"vocab_size\":%" PRIu64
            ",\"max_position_embeddings\":8192,\"rms_norm_eps\":1e-05,"
            "\"rope_theta\":500000.0,\"hidden_act\":\"silu\",\"bos_token_id\":1,"
            "\"tie_word_embeddings\":false}\n",
            s->hidden, s->ffn, s->layers, s->heads, s->kv, s->vocab);
    finish(f);
}

/* The same random block again and again. */
static void write_weights(const char *dir, const struct header *h)
{
    FILE *f = create(dir, "model.safetensors");
    uint64_t len = h->text.len;
    uint16_t *block = xmalloc(BLOCK);
    struct rng r;

    rng_init(&r, 1, 1);
    for (size_t i = 0; i < BLOCK / sizeof(*block); i++)
        block[i] = dtype_f32_to_bf16((float)(0.02 * rng_normal(&r)));
    for (int i = 0; i < 8; i++)
        fputc((int)(len >> 8 * i & 255), f);
    fwrite(h->text.s, 1, len, f);
    for (uint64_t at = 0; at < h->bytes; at += BLOCK)
        fwrite(block, 1, h->bytes - at < BLOCK ? (size_t)(h->bytes - at) : BLOCK, f);
    finish(f);
    free(block);
}

int main(int argc, char **argv)
{
    uint64_t n[6];
    struct header h = { 0 };
    struct shape s;

    for (int i = 0; i < 6; i++)
        if (argc != 8 || !str_u64(argv[2 + i], &n[i]) || !n[i]) {
            fputs("write-model: DIR LAYERS HIDDEN FFN HEADS KV_HEADS VOCAB\n", stderr);
            return 2;
        }
    s = (struct shape){ n[0], n[1], n[2], n[3], n[4], n[5] };
    write_config(argv[1], &s);
    str_addc(&h.text, '{');
    add(&h, "model.embed_tokens.weight", s.vocab, s.hidden);
    for (uint64_t i = 0; i < s.layers; i++)
        add_layer(&h, &s, i);
    add(&h, "model.norm.weight", s.hidden, 0);
    add(&h, "lm_head.weight", s.vocab, s.hidden);
    str_addc(&h.text, '}');
    while (h.text.len % 8)
        str_addc(&h.text, ' ');
    write_weights(argv[1], &h);
    printf("%" PRIu64 "\n", h.bytes - s.vocab * s.hidden * 2);
    str_clear(&h.text);
    return 0;
}
