/* fuzz-words - vocab.txt and what tokenizer_config.json says beside it
 *
 * An input is the vocabulary, the configuration and a text that is encoded, with a NUL
 * between. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/output.h"
#include "lib/base/str.h"
#include "lib/text/oldfiles.h"

static volatile int failures; /* as many as there are: any answer will do */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void put(const char *dir, const char *name, const char *bytes, size_t n)
{
    char *path = fs_join_dup(dir, name);

    failures += output_write(path, bytes, n, false, NULL) < 0;
    free(path);
}

static void use(const char *dir, const char *text, size_t n)
{
    struct tokens tokens = { 0 };
    struct tokenizer *t = NULL;
    struct str back = { 0 };
    struct err err = { 0 };

    if (oldfiles_open(&t, dir, NULL, &err) < 0 || !t)
        return;
    if (tokenizer_encode(t, text, n, true, &tokens, &err) == 0)
        tokenizer_decode(t, tokens.id, tokens.n, true, &back);
    str_clear(&back);
    tokens_clear(&tokens);
    tokenizer_free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    const char *words = (const char *)data, *config, *text, *end = words + size;
    char *dir = str_dupf("%s/fuzz-words.XXXXXX", base);

    config = memchr(words, 0, size);
    config = config ? config + 1 : end;
    text = memchr(config, 0, (size_t)(end - config));
    text = text ? text + 1 : end;
    if (mkdtemp(dir)) {
        put(dir, "vocab.txt", words,
            (size_t)((config < end ? config - 1 : end) - words));
        if (config < end)
            put(dir, "tokenizer_config.json", config,
                (size_t)((text < end ? text - 1 : end) - config));
        use(dir, text, (size_t)(end - text));
        failures += fs_remove_tree(dir, NULL) < 0;
    }
    free(dir);
    return 0;
}
