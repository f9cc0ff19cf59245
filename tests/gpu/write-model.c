/* write-model - a Llama, a Mixtral or a gpt-oss of any shape, of random numbers, to
 * measure with
 *
 *   write-model DIR LAYERS HIDDEN FFN HEADS KV_HEADS VOCAB [WORD]...
 *
 * DIR must exist.  Words: f16 (bf16 otherwise), bias (of q, k, v and o), head=COLUMNS
 * (HIDDEN / HEADS otherwise), experts=N and top=N (2 otherwise), oss: experts as in
 * gpt-oss.  Prints the bytes of weights that a new token reads, but for those of
 * experts and of the embedding, of which it reads a row; and the bytes of all experts.
 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
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
    uint64_t head, experts, top; /* experts 0: none */
    bool half, bias, oss;
};

struct header {
    struct str text;
    const char *type;
    uint64_t bytes, experts; /* of these, those of experts */
};

/* A tensor [ROWS][COLS], [ROWS] if COLS is 0, or [N][ROWS][COLS] if N is not 0. */
static uint64_t add(struct header *h, const char *name, uint64_t n, uint64_t rows,
                    uint64_t cols)
{
    uint64_t bytes = (n ? n : 1) * rows * (cols ? cols : 1) * 2;

    str_addf(&h->text, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[",
             h->text.len > 1 ? "," : "", name, h->type);
    if (n)
        str_addf(&h->text, "%" PRIu64 ",", n);
    str_addf(&h->text, "%" PRIu64, rows);
    if (cols)
        str_addf(&h->text, ",%" PRIu64, cols);
    str_addf(&h->text, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", h->bytes,
             h->bytes + bytes);
    h->bytes += bytes;
    return bytes;
}

/* The tensor WHAT of LAYER; returns its bytes. */
static uint64_t add_in(struct header *h, uint64_t layer, const char *what, uint64_t n,
                       uint64_t rows, uint64_t cols)
{
    char *name = str_dupf("model.layers.%" PRIu64 ".%s", layer, what);
    uint64_t bytes = add(h, name, n, rows, cols);

    free(name);
    return bytes;
}

static void add_attention(struct header *h, const struct shape *s, uint64_t layer)
{
    uint64_t kv = s->head * s->kv, q = s->head * s->heads;
    const struct {
        const char *name;
        uint64_t rows, cols;
    } part[] = { { "q_proj", q, s->hidden },
                 { "k_proj", kv, s->hidden },
                 { "v_proj", kv, s->hidden },
                 { "o_proj", s->hidden, q } };

    for (int i = 0; i < 4; i++)
        for (int bias = 0; bias <= (s->bias || s->oss); bias++) {
            char *name =
                str_dupf("self_attn.%s.%s", part[i].name, bias ? "bias" : "weight");

            add_in(h, layer, name, 0, part[i].rows, bias ? 0 : part[i].cols);
            free(name);
        }
    if (s->oss)
        add_in(h, layer, "self_attn.sinks", 0, s->heads, 0);
}

static void add_experts(struct header *h, const struct shape *s, uint64_t layer)
{
    static const char *const names[] = { "w1", "w2", "w3" };

    if (s->oss) {
        add_in(h, layer, "mlp.router.weight", 0, s->experts, s->hidden);
        add_in(h, layer, "mlp.router.bias", 0, s->experts, 0);
        h->experts +=
            add_in(h, layer, "mlp.experts.gate_up_proj", s->experts, s->hidden,
                   2 * s->ffn) +
            add_in(h, layer, "mlp.experts.gate_up_proj_bias", 0, s->experts,
                   2 * s->ffn) +
            add_in(h, layer, "mlp.experts.down_proj", s->experts, s->ffn, s->hidden);
        add_in(h, layer, "mlp.experts.down_proj_bias", 0, s->experts, s->hidden);
        return;
    }
    add_in(h, layer, "block_sparse_moe.gate.weight", 0, s->experts, s->hidden);
    for (uint64_t e = 0; e < s->experts; e++)
        for (int i = 0; i < 3; i++) {
            char *name =
                str_dupf("block_sparse_moe.experts.%" PRIu64 ".%s.weight", e, names[i]);

            h->experts += add_in(h, layer, name, 0, i == 1 ? s->hidden : s->ffn,
                                 i == 1 ? s->ffn : s->hidden);
            free(name);
        }
}

static void add_layer(struct header *h, const struct shape *s, uint64_t layer)
{
    add_in(h, layer, "input_layernorm.weight", 0, s->hidden, 0);
    add_attention(h, s, layer);
    add_in(h, layer, "post_attention_layernorm.weight", 0, s->hidden, 0);
    if (s->experts) {
        add_experts(h, s, layer);
        return;
    }
    add_in(h, layer, "mlp.gate_proj.weight", 0, s->ffn, s->hidden);
    add_in(h, layer, "mlp.up_proj.weight", 0, s->ffn, s->hidden);
    add_in(h, layer, "mlp.down_proj.weight", 0, s->hidden, s->ffn);
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
            "{\"model_type\":\"%s\",\"hidden_size\":%" PRIu64
            ",\"intermediate_size\":%" PRIu64 ",\"num_hidden_layers\":%" PRIu64
            ",\"num_attention_heads\":%" PRIu64 ",\"num_key_value_heads\":%" PRIu64
            ",\"head_dim\":%" PRIu64 ",\"vocab_size\":%" PRIu64
            ",\"max_position_embeddings\":131072,\"rms_norm_eps\":1e-05,"
            "\"hidden_act\":\"silu\",\"bos_token_id\":1,\"tie_word_embeddings\":false",
            s->oss       ? "gpt_oss"
            : s->experts ? "mixtral"
                         : "llama",
            s->hidden, s->ffn, s->layers, s->heads, s->kv, s->head, s->vocab);
    if (s->experts)
        fprintf(f,
                ",\"num_local_experts\":%" PRIu64 ",\"num_experts_per_tok\":%" PRIu64,
                s->experts, s->top);
    if (!s->oss)
        fprintf(f, ",\"rope_theta\":500000.0,\"attention_bias\":%s",
                s->bias ? "true" : "false");
    fputs("}\n", f);
    finish(f);
}

/* The same random block again and again. */
static void write_weights(const char *dir, const struct header *h, bool half)
{
    FILE *f = create(dir, "model.safetensors");
    uint64_t len = h->text.len;
    uint16_t *block = xmalloc(BLOCK);
    struct rng r;

    rng_init(&r, 1, 1);
    for (size_t i = 0; i < BLOCK / sizeof(*block); i++) {
        float x = (float)(0.02 * rng_normal(&r));

        block[i] = half ? dtype_f32_to_f16(x) : dtype_f32_to_bf16(x);
    }
    for (int i = 0; i < 8; i++)
        fputc((int)(len >> 8 * i & 255), f);
    fwrite(h->text.s, 1, len, f);
    for (uint64_t at = 0; at < h->bytes; at += BLOCK)
        fwrite(block, 1, h->bytes - at < BLOCK ? (size_t)(h->bytes - at) : BLOCK, f);
    finish(f);
    free(block);
}

/* Reads WORD into *s. */
static bool read_word(struct shape *s, const char *word)
{
    const struct {
        const char *name;
        uint64_t *to;
    } number[] = { { "head=", &s->head },
                   { "experts=", &s->experts },
                   { "top=", &s->top } };

    s->half |= !strcmp(word, "f16");
    s->bias |= !strcmp(word, "bias");
    s->oss |= !strcmp(word, "oss");
    for (int i = 0; i < 3; i++)
        if (!strncmp(word, number[i].name, strlen(number[i].name)))
            return str_u64(word + strlen(number[i].name), number[i].to) &&
                   *number[i].to;
    return !strcmp(word, "f16") || !strcmp(word, "bias") || !strcmp(word, "oss");
}

static int usage(void)
{
    fputs("write-model: DIR LAYERS HIDDEN FFN HEADS KV_HEADS VOCAB [f16] [bias] [oss] "
          "[head=N] [experts=N] [top=N]\n",
          stderr);
    return 2;
}

int main(int argc, char **argv)
{
    uint64_t n[6];
    struct header h = { 0 };
    struct shape s;

    for (int i = 0; i < 6; i++)
        if (argc < 8 || !str_u64(argv[2 + i], &n[i]) || !n[i])
            return usage();
    s = (struct shape){ n[0],        n[1], n[2], n[3],  n[4],  n[5],
                        n[1] / n[3], 0,    2,    false, false, false };
    for (int i = 8; i < argc; i++)
        if (!read_word(&s, argv[i]))
            return usage();
    h.type = s.half ? "F16" : "BF16";
    write_config(argv[1], &s);
    str_addc(&h.text, '{');
    add(&h, "model.embed_tokens.weight", 0, s.vocab, s.hidden);
    for (uint64_t i = 0; i < s.layers; i++)
        add_layer(&h, &s, i);
    add(&h, "model.norm.weight", 0, s.hidden, 0);
    add(&h, "lm_head.weight", 0, s.vocab, s.hidden);
    str_addc(&h.text, '}');
    while (h.text.len % 8)
        str_addc(&h.text, ' ');
    write_weights(argv[1], &h, s.half);
    printf("%" PRIu64 " %" PRIu64 "\n", h.bytes - h.experts - s.vocab * s.hidden * 2,
           h.experts);
    str_clear(&h.text);
    return 0;
}
