/* fuzz-input - the lines that generate, classify, embed and score are given
 *
 * The first byte says what the model is (of words, of classes with token types, with a
 * source; with boxes, with types of cells, with inputs of every type), whether
 * it has a tokenizer, and the format; the rest is the file. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/tp-run/inputs.h"
#include "lib/base/fs.h"
#include "lib/base/str.h"
#include "lib/reshard/checkpoint.h"

static volatile int failures; /* as many as there are: any answer will do */

enum { PLAIN = 3, KINDS = 6, VOCAB = 8 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const configs[KINDS] = {
    "{\"model_type\":\"llama\",\"hidden_size\":16,\"num_hidden_layers\":1,"
    "\"num_attention_heads\":4,\"intermediate_size\":24,\"vocab_size\":8}",
    "{\"model_type\":\"bert\",\"hidden_size\":16,\"num_hidden_layers\":1,"
    "\"num_attention_heads\":4,\"intermediate_size\":24,\"vocab_size\":8,"
    "\"max_position_embeddings\":16,\"type_vocab_size\":2,\"pad_token_id\":0,"
    "\"architectures\":[\"BertForMaskedLM\"]}",
    "{\"model_type\":\"t5\",\"d_model\":16,\"d_kv\":4,\"d_ff\":24,\"num_layers\":1,"
    "\"num_decoder_layers\":1,\"num_heads\":4,\"vocab_size\":8,"
    "\"decoder_start_token_id\":0}",
    "{\"model_type\":\"layoutlm\",\"hidden_size\":16,\"num_hidden_layers\":1,"
    "\"num_attention_heads\":4,\"intermediate_size\":24,\"vocab_size\":8,"
    "\"max_2d_position_embeddings\":9,\"max_position_embeddings\":16,"
    "\"type_vocab_size\":2,\"pad_token_id\":0,"
    "\"architectures\":[\"LayoutLMForMaskedLM\"]}",
    "{\"model_type\":\"tapas\",\"hidden_size\":16,\"num_hidden_layers\":1,"
    "\"num_attention_heads\":4,\"intermediate_size\":24,\"vocab_size\":8,"
    "\"max_position_embeddings\":16,\"type_vocab_sizes\":[3,4,5,2,6,7,10],"
    "\"pad_token_id\":0,\"architectures\":[\"TapasForMaskedLM\"]}",
    "{\"model_type\":\"own\",\"hidden_size\":16,\"num_hidden_layers\":1,"
    "\"num_attention_heads\":4,\"intermediate_size\":24,\"vocab_size\":8,"
    "\"max_position_embeddings\":16,\"type_vocab_size\":2,\"pad_token_id\":0,"
    "\"architectures\":[\"BertForMaskedLM\"]}",
};

static const char OWN[] = "{\"family\":\"own\",\"extends\":\"bert\","
                          "\"match\":{\"model_type\":[\"own\"]},"
                          "\"inputs\":{\"far\":[\"tokens\",\"2\",\"f32\"],"
                          "\"near\":[\"tokens\",\"1\",\"i32\"],"
                          "\"patches\":[\"patches\",\"3\",\"f32\"],"
                          "\"places\":[\"patches\",\"1\",\"i32\",{\"below\":\"7\"}]}}";

static const char TOKENIZER[] =
    "{\"added_tokens\":[{\"id\":3,\"content\":\"<e>\",\"special\":true}],"
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["
    "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":["
    "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},"
    "{\"SpecialToken\":{\"id\":\"<e>\",\"type_id\":0}},"
    "{\"Sequence\":{\"id\":\"B\",\"type_id\":1}}],"
    "\"special_tokens\":{\"<e>\":{\"id\":\"<e>\",\"ids\":[3],\"tokens\":[\"<e>\"]}}},"
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"<e>\":3,"
    "\"aab\":4},\"merges\":[\"a b\",\"a ab\"]}}";

static struct checkpoint checkpoints[KINDS];
static struct row_spaces rows[KINDS];
static struct tokenizer *tokenizer;

static int open_own(struct model **out, const char *config, struct err *err)
{
    char path[] = "/tmp/fuzz-input-own.XXXXXX";
    int fd = mkstemp(path), ret = -1;

    if (fd >= 0 && fs_write(fd, OWN, sizeof(OWN) - 1, path, err) == 0)
        ret = model_open(out, "model", config, path, NULL, err);
    if (fd >= 0)
        close(fd);
    unlink(path);
    return ret;
}

static void open_models(void)
{
    const struct model_feed *feed;
    int n;
    struct err err = { 0 };

    for (int i = 0; i < KINDS; i++) {
        const char *config = configs[i];
        struct model **m = &checkpoints[i].model;

        checkpoints[i].path = (char *)"model";
        checkpoints[i].home = "model";
        if (i == KINDS - 1 ? open_own(m, config, &err) < 0
                           : model_open(m, "model", config, NULL, NULL, &err) < 0) {
            fprintf(stderr, "%s\n", err.text);
            abort();
        }
        rows_init(&rows[i]);
        feed = model_feeds(*m, &n);
        for (int k = 0; k < n; k++)
            if (rows_give(&rows[i], feed[k].rows, strlen(feed[k].rows)) < 0)
                abort();
    }
    if (tokenizer_parse(&tokenizer, "fuzz", TOKENIZER, &err) < 0)
        abort();
}

/* Are the numbers of input FEED of ONE, if it is there, such as the model takes? */
static bool is_taken(const struct input *one, const struct model_feed *f, int feed)
{
    const int32_t *x = one->named[feed].v;

    for (size_t i = 0; x && f->below && i < one->named[feed].n * f->axis.size; i++)
        if (x[i] < 0 || (uint64_t)x[i] >= f->below[i % f->axis.size])
            return false;
    return f->given || !x;
}

/* What the commands rely on. */
static void check(const struct inputs *in, const struct session *s, size_t lines,
                  bool used)
{
    int n;
    const struct model_feed *f = model_feeds(s->checkpoint->model, &n);

    size_t bad = 0;

    for (size_t i = 0; i < in->n; i++) {
        const struct input *one = &in->v[i];

        bad += one->bad;
        if (!one->name || (one->bad && (one->ids.n || one->source.n)) ||
            one->line > lines || one->pair[0] > one->pair[1] ||
            (!used && (one->pair[1] > one->ids.n || one->choices > in->n - i)))
            abort();
        for (int k = 0; k < n; k++)
            if ((one->bad && one->named[k].v) || !is_taken(one, &f[k], k) ||
                (used && one->named[k].v && !s->source &&
                 !strcmp(f[k].rows, "tokens") && one->named[k].n != one->ids.n))
                abort();
        for (size_t k = 0; k < one->ids.n; k++)
            if (one->ids.v[k] < 0 || one->ids.v[k] >= VOCAB)
                abort();
    }
    if (bad != in->nbad)
        abort();
}

static void use(const char *path, struct session *s, int format, size_t lines)
{
    struct inputs in = { .format = format };
    struct err err = { 0 };

    if (inputs_add_lines(&in, s, path, &err) == 0) {
        check(&in, s, lines, false);
        for (int how = INPUT_PROMPT; how <= INPUT_GIVEN; how++) {
            err = (struct err){ 0 };
            if (inputs_use(&in, s, (enum input_use)how, &err) < 0)
                failures++;
            else
                check(&in, s, lines, true);
        }
        failures += inputs_status(&in, 0);
    }
    inputs_clear(&in);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct cmd cmd = { .name = "score", .program = "fuzz-input" };
    char path[64] = "/tmp/fuzz-input.XXXXXX";
    struct session s = { .cmd = &cmd };
    size_t lines = 1;
    int fd, how, kind;

    if (!tokenizer) {
        open_models();
#ifdef __GLIBC__ /* each bad line is told; reports of sanitizers go elsewhere */
        stderr = fopen("/dev/null", "w");
#endif
    }
    if (!size)
        return 0;
    if (access("/dev/shm", W_OK) == 0)
        snprintf(path, sizeof(path), "/dev/shm/fuzz-input.XXXXXX");
    how = data[0] & 31;
    kind = how < 3 * PLAIN ? how % PLAIN : PLAIN + (how - 3 * PLAIN) % (KINDS - PLAIN);
    s.checkpoint = &checkpoints[kind];
    s.rows = rows[kind];
    memset(s.reads, true, sizeof(s.reads));
    s.source = kind == 2;
    s.context = 16;
    s.tokenizer = data[0] & 32 ? NULL : tokenizer;
    for (size_t i = 1; i < size; i++)
        lines += data[i] == '\n';
    fd = mkstemp(path);
    if (fd < 0)
        return 0;
    if (fs_write(fd, data + 1, size - 1, path, NULL) == 0)
        use(path, &s, how < 3 * PLAIN ? how / PLAIN : INPUT_AUTO, lines);
    close(fd);
    unlink(path);
    return 0;
}
