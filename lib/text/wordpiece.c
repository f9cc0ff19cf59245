/* wordpiece - greedy longest-prefix segmentation of a word (Devlin et al. 2018) */
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/text/chars.h"
#include "lib/text/setting.h"
#include "lib/text/subword.h"

struct wordpiece {
    const struct vocab *vocab;
    char *prefix; /* of a piece that is not at the start of a word */
    long unknown; /* or -1 */
    long most;    /* maximum characters of a word; longer words are unknown */
};

static void wordpiece_free(void *model)
{
    struct wordpiece *w = model;

    if (!w)
        return;
    free(w->prefix);
    free(w);
}

static int wordpiece_open(void **out, struct vocab **vocab, const char *path,
                          const cJSON *model, struct err *err)
{
    const cJSON *words = cJSON_GetObjectItemCaseSensitive(model, "vocab");
    const cJSON *most =
        cJSON_GetObjectItemCaseSensitive(model, "max_input_chars_per_word");
    const char *unknown = setting_string(model, "unk_token");
    const char *prefix = setting_string(model, "continuing_subword_prefix");
    struct wordpiece *w;

    if (!cJSON_IsObject(words))
        return err_set(err, ERR_INPUT, "%s: WordPiece needs vocab", path);
    if (vocab_open(vocab, path, words, err) < 0)
        return -1;
    w = xcalloc(1, sizeof(*w));
    w->vocab = *vocab;
    w->prefix = xstrdup(prefix ? prefix : "##");
    w->unknown = vocab_id(*vocab, unknown ? unknown : "[UNK]",
                          strlen(unknown ? unknown : "[UNK]"));
    if (!setting_id(most, &w->most))
        w->most = 100;
    *out = w;
    return 0;
}

/* The id of the longest piece at AT, and its *end; or -1. */
static long longest(const struct wordpiece *w, const char *word, size_t at, size_t len,
                    size_t *end)
{
    struct str piece = { 0 };
    size_t prefix = at ? strlen(w->prefix) : 0, most = vocab_longest(w->vocab), used;
    long id = -1;

    str_add(&piece, at ? w->prefix : "");
    str_addn(&piece, word + at, len - at < most ? len - at : most);
    for (size_t n = piece.len; n > prefix && id < 0; n -= used) {
        chars_before(piece.s, n, &used);
        id = vocab_id(w->vocab, piece.s, n);
        *end = at + n - prefix;
    }
    str_clear(&piece);
    return id;
}

static int wordpiece_encode(const void *model, const char *word, size_t len,
                            struct tokens *out, struct err *err)
{
    const struct wordpiece *w = model;
    size_t before = out->n, chars = 0, end;

    for (size_t i = 0; i < len; i++)
        chars += ((unsigned char)word[i] & 0xc0) != 0x80;
    for (size_t at = 0; at < len; at = end) {
        long id = chars > (size_t)w->most ? -1 : longest(w, word, at, len, &end);

        if (id < 0) {
            out->n = before;
            if (w->unknown < 0)
                return err_set(
                    err, ERR_INPUT,
                    "neither '%.*s' nor the unknown token is in the vocabulary",
                    len < 100 ? (int)len : 100, word);
            tokens_add_part(out, (uint32_t)w->unknown, 0, len);
            return 0;
        }
        tokens_add_part(out, (uint32_t)id, at, end);
    }
    return 0;
}

static long wordpiece_unknown(const void *model)
{
    return ((const struct wordpiece *)model)->unknown;
}

const struct subword_kind wordpiece_kind = { .type = "WordPiece",
                                             .open = wordpiece_open,
                                             .encode = wordpiece_encode,
                                             .unknown = wordpiece_unknown,
                                             .free = wordpiece_free };
