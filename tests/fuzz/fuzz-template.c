/* fuzz-template - a chat template up to a NUL, then the chat that it renders: messages
 * and what a case of tests/render-template has.  The text and marks must be whole, the
 * same each time, and well-formed; ids of a small tokenizer are made of them. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/text/template/chat.h"
#include "lib/text/template/chatfiles.h"
#include "lib/text/template/template.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char plain_tokenizer[] =
    "{\"added_tokens\":[{\"id\":4,\"content\":\"<|a|>\",\"special\":true},"
    "{\"id\":5,\"content\":\"<b>\",\"special\":false}],\"model\":{\"type\":\"BPE\","
    "\"unk_token\":\"?\",\"vocab\":{\"?\":0,\"<\":1,\"|\":2,\"a\":3},\"merges\":[]}}";

static const struct tm date = { .tm_year = 126, .tm_mday = 2, .tm_wday = 5 };

/* No control token may be made of characters from messages alone. */
static void encode(const struct chat *chat, const struct chat_text *text)
{
    struct tokenizer *t;
    struct tokens ids = { 0 };
    struct err err = { 0 };
    size_t special = 0, own = 0;

    if (tokenizer_parse(&t, "fuzz", plain_tokenizer, &err) < 0)
        abort();
    if (chat_encode(chat, t, text, &ids, &err) == 0) {
        for (size_t i = 0; i < ids.n; i++)
            special += ids.id[i] == 4;
        for (size_t i = 0; i + 5 <= text->text.len; i++)
            own += !memcmp(text->text.s + i, "<|a|>", 5) &&
                   !((text->mark[i] | text->mark[i + 4]) & CHAT_FROM_MESSAGE);
        if (special > own)
            abort();
    }
    tokens_clear(&ids);
    tokenizer_free(t);
}

static void render(const struct chat *chat, const struct json *c)
{
    const struct json *kwargs = json_get(c, "kwargs");
    struct chat_argument arguments[8];
    struct chat_input in = { .messages = json_get(c, "messages"),
                             .tools = json_get(c, "tools"),
                             .documents = json_get(c, "documents"),
                             .argument = arguments,
                             .add_generation_prompt =
                                 json_is_true(json_get(c, "add_generation_prompt")),
                             .continue_final =
                                 json_is_true(json_get(c, "continue_final")),
                             .date = date };
    struct chat_text text[2] = { { .mark = NULL }, { .mark = NULL } };
    struct err err = { 0 };

    for (const struct json *j = kwargs ? kwargs->first : NULL;
         j && j->key && in.n_arguments < 8; j = j->next)
        arguments[in.n_arguments++] = (struct chat_argument){ j->key, j };
    if (in.messages && chat_render(chat, &in, &text[0], &err) == 0) {
        if (chat_render(chat, &in, &text[1], &err) < 0 ||
            text[0].text.len != text[1].text.len ||
            memcmp(text[0].mark, text[1].mark, text[0].text.len) ||
            !str_is_utf8(str_text(&text[0].text), text[0].text.len))
            abort();
        encode(chat, &text[0]);
    }
    chat_text_clear(&text[0]);
    chat_text_clear(&text[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = memchr(data, 0, size);
    size_t n = end ? (size_t)(end - data) : size, skip = end ? n + 1 : n;
    char *source = xstrndup((const char *)data, n);
    struct chatfiles *files = xcalloc(1, sizeof(*files));
    struct json_doc doc;
    struct err err = { 0 };

    files->names = xstrdup("");
    if (template_parse(&files->usual, "fuzz", source, n, &err) == 0 &&
        json_parse_config(&doc, "chat", (const char *)data + skip, size - skip, &err) ==
            0) {
        if (doc.root->type == JSON_OBJECT)
            render((const struct chat *)files, doc.root);
        json_clear(&doc);
    }
    chatfiles_free(files);
    free(source);
    return 0;
}
