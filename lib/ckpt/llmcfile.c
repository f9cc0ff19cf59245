/* llmcfile - reads the checkpoints of llm.c */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/ckpt/foreignforms.h"

enum {
    MAGIC = 20240326,
    F32_VERSION = 3,
    BF16_VERSION = 5,
    HEADER_BYTES = 256 * 4,
    GPT2_END = 50256 /* id of <|endoftext|> */
};

/* Words of the header. */
enum {
    WORD_MAGIC,
    WORD_VERSION,
    POSITIONS,
    VOCAB,
    LAYERS,
    HEADS,
    WIDTH,
    PADDED,
    NWORDS
};

static const char *const words[] = {
    [POSITIONS] = "max_seq_len", [VOCAB] = "vocab_size", [LAYERS] = "num_layers",
    [HEADS] = "num_heads",       [WIDTH] = "channels",   [PADDED] = "padded_vocab_size",
};

/* The tensors, in their order.  An axis is a word of the header, or so many times the
 * width. */
enum { TIMES = 16 };
static const struct {
    const char *name;
    int axis[3]; /* 0: none */
} tensors[] = {
    { "wte", { PADDED, WIDTH } },
    { "wpe", { POSITIONS, WIDTH } },
    { "ln1w", { LAYERS, WIDTH } },
    { "ln1b", { LAYERS, WIDTH } },
    { "qkvw", { LAYERS, 3 * TIMES, WIDTH } },
    { "qkvb", { LAYERS, 3 * TIMES } },
    { "attprojw", { LAYERS, WIDTH, WIDTH } },
    { "attprojb", { LAYERS, WIDTH } },
    { "ln2w", { LAYERS, WIDTH } },
    { "ln2b", { LAYERS, WIDTH } },
    { "fcw", { LAYERS, 4 * TIMES, WIDTH } },
    { "fcb", { LAYERS, 4 * TIMES } },
    { "fcprojw", { LAYERS, WIDTH, 4 * TIMES } },
    { "fcprojb", { LAYERS, WIDTH } },
    { "lnfw", { WIDTH } },
    { "lnfb", { WIDTH } },
};

enum { NTENSORS = sizeof(tensors) / sizeof(*tensors) };

/* Reads the words of the header; false for a file that is shorter. */
static bool read_words(uint32_t word[NWORDS], int fd)
{
    unsigned char b[NWORDS * 4];

    if (pread(fd, b, sizeof(b), 0) != (ssize_t)sizeof(b))
        return false;
    for (int i = 0; i < NWORDS; i++)
        word[i] = (uint32_t)b[4 * i] | (uint32_t)b[4 * i + 1] << 8 |
                  (uint32_t)b[4 * i + 2] << 16 | (uint32_t)b[4 * i + 3] << 24;
    return true;
}

/* By its first bytes, since any name may end with .bin. */
static int probe(bool *found, const char *path, bool is_dir, struct err *err)
{
    uint32_t word[NWORDS];
    int fd = is_dir ? -1 : fs_open_regular(path, NULL);

    (void)err; /* who reads the file tells why it cannot be read */
    *found = fd >= 0 && read_words(word, fd) && word[WORD_MAGIC] == MAGIC;
    if (fd >= 0)
        close(fd);
    return 0;
}

static int check_words(const uint32_t word[NWORDS], const char *path, struct err *err)
{
    if (word[WORD_VERSION] != F32_VERSION && word[WORD_VERSION] != BF16_VERSION)
        return err_set(err, ERR_INPUT,
                       "%s: version %" PRIu32 " of llm.c's checkpoints is not read; %d "
                       "(f32) and %d (bf16) are",
                       path, word[WORD_VERSION], F32_VERSION, BF16_VERSION);
    for (int i = POSITIONS; i < NWORDS; i++)
        if (!word[i] || word[i] > INT32_MAX)
            return err_set(err, ERR_INPUT, "%s: %s is %" PRId32, path, words[i],
                           (int32_t)word[i]);
    if (word[VOCAB] > word[PADDED])
        return err_set(err, ERR_INPUT,
                       "%s: vocab_size is %" PRIu32 ", of %" PRIu32 " padded rows",
                       path, word[VOCAB], word[PADDED]);
    return 0;
}

static int list_tensors(struct source *s, const uint32_t word[NWORDS], const char *path,
                        struct err *err)
{
    const enum dtype dtype = word[WORD_VERSION] == F32_VERSION ? DTYPE_F32 : DTYPE_BF16;
    uint64_t at = HEADER_BYTES;

    s->raw = xcalloc(NTENSORS, sizeof(*s->raw));
    for (size_t i = 0; i < NTENSORS; i++) {
        struct tensor *t = &s->raw[s->nraw++];
        uint64_t *shape = pool_take(&s->pool, 3 * sizeof(*shape), 8), elements = 1;
        bool fits = true;

        *t = (struct tensor){
            .name = tensors[i].name, .dtype = dtype, .shape = shape, .offset = at
        };
        while (t->ndim < 3 && tensors[i].axis[t->ndim]) {
            int axis = tensors[i].axis[t->ndim];

            shape[t->ndim] =
                axis < TIMES ? word[axis] : (uint64_t)(axis / TIMES) * word[WIDTH];
            fits = fits && mem_mul(&elements, elements, shape[t->ndim++]);
        }
        if (!fits || !dtype_bytes(&t->size, dtype, elements) ||
            t->size > s->input[0].size - at)
            return err_set(err, ERR_INPUT,
                           "%s: %" PRIu64 " bytes, too few for %s of the header", path,
                           s->input[0].size, t->name);
        at += t->size;
    }
    return at == s->input[0].size
               ? 0
               : err_set(err, ERR_INPUT,
                         "%s: %" PRIu64 " bytes, but its header describes %" PRIu64,
                         path, s->input[0].size, at);
}

/* llm.c's GELU is GPT-2's, by tanh, and its head is the table. */
static void make_config(struct source *s, const uint32_t word[NWORDS], const char *path)
{
    const char *ids =
        word[VOCAB] <= GPT2_END ? ",\"bos_token_id\":null,\"eos_token_id\":null" : "";

    s->config = str_dupf(
        "{\"architectures\":[\"GPT2LMHeadModel\"],\"model_type\":\"gpt2\","
        "\"activation_function\":\"gelu_new\",\"layer_norm_epsilon\":1e-05,"
        "\"tie_word_embeddings\":true,\"n_layer\":%" PRIu32 ",\"n_head\":%" PRIu32
        ",\"n_embd\":%" PRIu32 ",\"n_positions\":%" PRIu32 ",\"vocab_size\":%" PRIu32
        "%s,\"torch_dtype\":\"%s\"}\n",
        word[LAYERS], word[HEADS], word[WIDTH], word[POSITIONS], word[VOCAB], ids,
        dtype_pytorch(s->raw[0].dtype));
    free(s->config_path);
    s->config_path = xstrdup(path);
}

static int open_file(struct source *s, const char *path, struct err *err)
{
    uint32_t word[NWORDS];
    int fd, input, ret = -1;

    s->dialect = "llmc";
    if (s->home && !strcmp(s->home, path)) { /* a file has nothing beside it */
        free(s->home);
        s->home = NULL;
    }
    if (form_add_input(s, fs_basename(path), path, &input, &fd, err) < 0)
        return -1;
    if (s->input[input].size < HEADER_BYTES || !read_words(word, fd))
        err_set(err, ERR_INPUT, "%s: %" PRIu64 " bytes, too few for llm.c's header",
                path, s->input[input].size);
    else if (check_words(word, path, err) == 0)
        ret = list_tensors(s, word, path, err);
    close(fd);
    if (ret < 0)
        return -1;
    if (!s->config)
        make_config(s, word, path);
    return form_present_shards(s, err);
}

const struct source_ops llmc_ops = { .name = "a checkpoint of llm.c",
                                     .probe = probe,
                                     .open = open_file };
