/* subword - splits a piece into token ids: the models of a tokenizer.json */
#include "lib/text/subword.h"

#include <string.h>

#include "lib/text/setting.h"

static const struct subword_kind *const KINDS[] = { &bpe_kind, &wordpiece_kind,
                                                    &unigram_kind, &wordlevel_kind };

/* Older files do not name the type of their model; guesses it from its members. */
static const char *guess(const cJSON *model)
{
    if (cJSON_GetObjectItemCaseSensitive(model, "merges"))
        return "BPE";
    if (cJSON_GetObjectItemCaseSensitive(model, "max_input_chars_per_word"))
        return "WordPiece";
    if (cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(model, "vocab")))
        return "Unigram";
    return "?";
}

int subword_open(struct subword *out, const char *path, const cJSON *model,
                 struct err *err)
{
    const char *type = setting_type(model);

    if (!cJSON_IsObject(model))
        return err_set(err, ERR_INPUT, "%s: no model", path);
    if (!strcmp(type, "?"))
        type = guess(model);
    for (size_t i = 0; i < sizeof(KINDS) / sizeof(*KINDS); i++)
        if (!strcmp(KINDS[i]->type, type)) {
            out->kind = KINDS[i];
            return out->kind->open(&out->model, &out->vocab, path, model, err);
        }
    return err_set(err, ERR_INPUT, "%s: model of type '%s' is not known", path, type);
}

void subword_clear(struct subword *s)
{
    if (s->kind)
        s->kind->free(s->model);
    vocab_free(s->vocab);
    *s = (struct subword){ 0 };
}

long subword_unknown(const struct subword *s)
{
    return s->kind->unknown(s->model);
}

int subword_encode(const struct subword *s, const char *piece, size_t len,
                   struct tokens *out, struct err *err)
{
    return len ? s->kind->encode(s->model, piece, len, out, err) : 0;
}
