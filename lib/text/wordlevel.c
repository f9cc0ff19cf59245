/* wordlevel - a token for each word of the vocabulary */
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/text/setting.h"
#include "lib/text/subword.h"

struct wordlevel {
    const struct vocab *vocab;
    long unknown; /* or -1 */
};

static int wordlevel_open(void **out, struct vocab **vocab, const char *path,
                          const cJSON *model, struct err *err)
{
    const cJSON *words = cJSON_GetObjectItemCaseSensitive(model, "vocab");
    const char *unknown = setting_string(model, "unk_token");
    struct wordlevel *w;

    if (!cJSON_IsObject(words))
        return err_set(err, ERR_INPUT, "%s: WordLevel needs vocab", path);
    if (vocab_open(vocab, path, words, err) < 0)
        return -1;
    unknown = unknown ? unknown : "<unk>";
    w = xcalloc(1, sizeof(*w));
    w->vocab = *vocab;
    w->unknown = vocab_id(*vocab, unknown, strlen(unknown));
    *out = w;
    return 0;
}

static int wordlevel_encode(const void *model, const char *word, size_t len,
                            struct tokens *out, struct err *err)
{
    const struct wordlevel *w = model;
    long id = vocab_id(w->vocab, word, len);

    id = id < 0 ? w->unknown : id;
    if (id < 0)
        return err_set(err, ERR_INPUT,
                       "neither '%.*s' nor the unknown token is in the vocabulary",
                       len < 100 ? (int)len : 100, word);
    tokens_add_part(out, (uint32_t)id, 0, len);
    return 0;
}

static long wordlevel_unknown(const void *model)
{
    return ((const struct wordlevel *)model)->unknown;
}

const struct subword_kind wordlevel_kind = { .type = "WordLevel",
                                             .open = wordlevel_open,
                                             .encode = wordlevel_encode,
                                             .unknown = wordlevel_unknown,
                                             .free = free };
