/* gguffile - reads models from GGUF files */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/ckpt/foreignforms.h"
#include "lib/ckpt/gguf.h"
#include "lib/ckpt/ggufconfig.h"
#include "lib/ckpt/gguftokens.h"

enum { MOST_FILES = 99999 };

/* Sets *file, which the caller frees, to the only GGUF file of DIR, or the first of the
 * only set of several; NULL: it has none, or more than one model, or other weights. */
static int find_only(char **file, const char *dir, struct err *err)
{
    static const char *const others[] = { ".safetensors", ".bin", ".pth", ".distcp" };
    char **names = NULL;
    size_t n = 0, models = 0;
    int ret = fs_list(&names, &n, dir, err);

    *file = NULL;
    for (size_t i = 0; i < n && ret == 0; i++) {
        for (size_t k = 0; k < sizeof(others) / sizeof(*others); k++)
            models += str_ends(names[i], others[k]) ? 2 : 0;
        if (!str_ends(names[i], ".gguf") ||
            (strstr(names[i], "-of-") && !strstr(names[i], "-00001-of-")))
            continue;
        models++;
        free(*file);
        *file = fs_join_dup(dir, names[i]);
    }
    fs_list_free(names, n);
    if (ret < 0 || models != 1) {
        free(*file);
        *file = NULL;
    }
    return ret;
}

/* By its first bytes, or by its name: what is cut short or a pointer has no others.  A
 * directory with one model, as tp-shard merge --export gguf makes it, is that. */
static int probe(bool *found, const char *path, bool is_dir, struct err *err)
{
    char magic[4];
    int fd = is_dir ? -1 : fs_open_regular(path, NULL);

    if (is_dir) {
        char *file;

        if (find_only(&file, path, NULL) < 0) /* who lists it tells why not */
            file = NULL;
        *found = file != NULL;
        free(file);
        return 0;
    }
    (void)err; /* who reads the file tells why it cannot be read */
    *found =
        fd >= 0 && (str_ends(path, ".gguf") ||
                    (pread(fd, magic, sizeof(magic), 0) == (ssize_t)sizeof(magic) &&
                     !memcmp(magic, "GGUF", sizeof(magic))));
    if (fd >= 0)
        close(fd);
    return 0;
}

/* ---- files ---- */

/* Of how many files is the one at PATH, by its name NAME-IIIII-of-NNNNN.gguf?  *stem is
 * NAME with its directory, which the caller frees; NULL: the file is alone. */
static int count_files(char **stem, const char *path)
{
    static const char form[] = "-00001-of-00001.gguf";
    size_t n = strlen(path), end = strlen(form);
    int number, of, used = 0;

    *stem = NULL;
    if (n <= end ||
        sscanf(path + n - end, "-%5d-of-%5d.gguf%n", &number, &of, &used) != 2 ||
        used != (int)end || of < 1 || of > MOST_FILES)
        return 1;
    *stem = xstrndup(path, n - end);
    return of;
}

/* Adds the tensors of G, which is file INPUT. */
static int add_tensors(struct source *s, const struct gguf *g, int input, size_t *cap,
                       struct err *err)
{
    for (size_t i = 0; i < g->n; i++) {
        const struct gguf_tensor *from = &g->tensor[i];
        uint64_t *shape =
            pool_take(&s->pool, (size_t)from->t.ndim * sizeof(*shape) + 8, 8);
        struct tensor t = from->t;

        for (int k = 0; k < t.ndim; k++)
            shape[k] = from->t.shape[k];
        t.shape = shape;
        t.input = input;
        t.blocks = from->blocks;
        if (form_keep_name(s, &t.name, from->t.name, g->head, g->path, err) < 0)
            return -1;
        s->raw = xgrow(s->raw, cap, s->nraw + 1, sizeof(*s->raw));
        s->raw[s->nraw++] = t;
    }
    return 0;
}

/* Checks that G is file NUMBER of N, from 0. */
static int check_place(const struct gguf *g, int number, int n, struct err *err)
{
    double at = 0, of = 1;

    gguf_number(gguf_get(g, "split", "no"), 0, &at);
    gguf_number(gguf_get(g, "split", "count"), 0, &of);
    if (at != number || of != n)
        return err_set(err, ERR_INPUT,
                       "%s: is file %.0f of %.0f by its metadata, and %d of %d by its "
                       "name",
                       g->path, at + 1, of, number + 1, n);
    return 0;
}

/* ---- the tokenizer ---- */

static void add_made(struct source *s, const char *name, struct str *text)
{
    s->made[s->nmade++] = (struct source_text){ name, str_steal(text) };
}

/* Adds the token of the key NAME of G as the setting KEY. */
static void add_token(struct str *out, const struct gguf *g, const char *key,
                      const char *name)
{
    const struct gguf_value *tokens = gguf_get(g, NULL, "tokenizer.ggml.tokens");
    double id;

    if (!gguf_number(gguf_get(g, "tokenizer.ggml", name), 0, &id) || !(id >= 0) ||
        id >= (double)tokens->n)
        return;
    str_addf(out, ",\"%s\":", key);
    str_add_jsonn(out, tokens->text[(uint64_t)id].s,
                  (size_t)tokens->text[(uint64_t)id].n);
}

/* Makes the tokenizer's files of the metadata of G. */
static int make_tokenizer(struct source *s, const struct gguf *g, struct err *err)
{
    const struct gguf_text *chat =
        gguf_string(gguf_get(g, NULL, "tokenizer.chat_template"));
    struct str text = { 0 };
    struct err cause = { 0 };
    int ret = gguf_tokenizer(&text, g, &cause);

    if (ret > 0) {
        add_made(s, "tokenizer.json", &text);
        str_add(&text, "{\"tokenizer_class\":\"PreTrainedTokenizerFast\"");
        add_token(&text, g, "bos_token", "bos_token_id");
        add_token(&text, g, "eos_token", "eos_token_id");
        add_token(&text, g, "unk_token", "unknown_token_id");
        add_token(&text, g, "pad_token", "padding_token_id");
        if (chat && str_is_utf8(chat->s, (size_t)chat->n)) {
            str_add(&text, ",\"chat_template\":");
            str_add_jsonn(&text, chat->s, (size_t)chat->n);
        }
        str_add(&text, "}\n");
        add_made(s, "tokenizer_config.json", &text);
    }
    str_clear(&text);
    if (ret < 0 && cause.kind == ERR_INPUT) { /* weights do not depend on it */
        s->untokenized = xstrdup(cause.text);
        return 0;
    }
    if (ret < 0)
        *err = cause;
    return ret < 0 ? -1 : 0;
}

static int read_file(struct source *s, const char *path, int number, int n, size_t *cap,
                     struct err *err)
{
    struct gguf g;
    bool tokenizer = false;
    int fd, input, ret;

    if (form_add_input(s, fs_basename(path), path, &input, &fd, err) < 0)
        return -1;
    ret = gguf_open(&g, fd, s->input[input].path, err);
    close(fd);
    if (ret < 0)
        return -1;
    ret = check_place(&g, number, n, err);
    if (ret == 0)
        ret = add_tensors(s, &g, input, cap, err);
    for (size_t i = 0; ret == 0 && !number && s->config && i < g.n && !s->given; i++)
        if (g.tensor[i].blocks) { /* what lies beside them does not know of blocks */
            free(s->config);
            s->config = NULL;
        }
    if (ret == 0 && !number && !s->config)
        gguf_config(s, &g);
    if (ret == 0 && !number && s->home)
        ret = fs_find_in(&tokenizer, s->home, "tokenizer.json", err);
    if (ret == 0 && !number && !tokenizer)
        ret = make_tokenizer(s, &g, err);
    gguf_clear(&g);
    return ret;
}

static int open_file(struct source *s, const char *path, struct err *err)
{
    char *stem;
    char *only = NULL;
    size_t cap = 0;
    bool is_dir = false;
    int n, ret = fs_find_dir(&is_dir, path, err);

    if (ret == 0 && is_dir)
        ret = find_only(&only, path, err);
    if (ret < 0)
        return -1;
    path = only ? only : path;
    n = count_files(&stem, path);
    s->dialect = "gguf";
    if (s->home && !strcmp(s->home, path)) { /* a file has nothing beside it */
        free(s->home);
        s->home = NULL;
    }
    for (int i = 0; i < n && ret == 0; i++) {
        char *name =
            stem ? str_dupf("%s-%05d-of-%05d.gguf", stem, i + 1, n) : xstrdup(path);

        ret = read_file(s, name, i, n, &cap, err);
        free(name);
    }
    free(stem);
    free(only);
    return ret < 0 ? -1 : form_present_shards(s, err);
}

const struct source_ops gguf_ops = { .name = "a GGUF file",
                                     .probe = probe,
                                     .open = open_file };
