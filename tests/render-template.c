/* render-template - chats as a template renders them, for tests
 *
 * Usage: render-template [HOW] TEMPLATE|MODEL|- [CASES]
 * CASES is a file of JSON lines, or standard input: messages, add_generation_prompt,
 * tools, documents, kwargs, continue_final, raw (true: the messages are not prepared;
 * "template" may be given there).  For each, HOW prints
 *   (nothing)         {"text": ...} or {"error": ...}
 *   --plain           the length in bytes and the text, or "error"
 *   --marks           the text with [ ] around what is from a message, { } around what
 *                     was generated, or "error"
 *   --ids TOKENIZER   ids with blanks between, or "error"
 *   --learn TOKENIZER the same as a training takes them: "*" behind what is learned
 *   --last TOKENIZER  with the last answer alone */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/text/template/chat.h"
#include "lib/text/template/template.h"
#include "lib/train/chats.h"

enum { MOST = 1 << 28 };

static void fail(const struct err *err)
{
    fprintf(stderr, "render-template: %s\n", err->text);
    exit(err->kind);
}

static const struct tm date = {
    .tm_year = 126, .tm_mon = 0, .tm_mday = 2, .tm_wday = 5, .tm_yday = 1
};

/* Without what chat_render does to messages first. */
static int render_raw(const struct template *t, const struct json *c,
                      struct chat_text *out, struct err *err)
{
    static const char *const names[] = { "messages", "tools", "documents",
                                         "add_generation_prompt" };
    const struct json *own = json_get(c, "template");
    struct template *parsed = NULL;
    struct template_variable v[64];
    const struct json *kwargs = json_get(c, "kwargs");
    struct scratch s;
    struct builder b;
    size_t n = 0;
    int ret = 0;

    if (own) {
        if (template_parse(&parsed, "case", own->text, own->n, err) < 0)
            return -1;
        t = parsed;
    }
    scratch_init(&s, template_name(t), 1 << 16, err);
    b = builder_start(&s);
    for (size_t i = 0; i < 4 && ret == 0; i++) {
        const struct json *j = json_get(c, names[i]);

        v[n].name = names[i];
        v[n].value = value_none();
        ret = j ? value_of_json(&s, &v[n].value, j, NULL) : 0;
        n++;
    }
    for (const struct json *j = kwargs ? kwargs->first : NULL; j && ret == 0;
         j = j->next) {
        v[n].name = j->key;
        ret = value_of_json(&s, &v[n++].value, j, NULL);
    }
    if (ret == 0)
        ret = template_run(t, &s, v, n, &date, &b);
    if (ret == 0 && b.n)
        str_addn(&out->text, b.s, b.n);
    scratch_clear(&s);
    template_free(parsed);
    return ret;
}

static int render_case(const struct chat *chat, const struct template *t,
                       const struct json *c, struct chat_text *out, struct err *err)
{
    struct chat_argument arguments[64];
    const struct json *kwargs = json_get(c, "kwargs");
    struct chat_input in = { .messages = json_get(c, "messages"),
                             .tools = json_get(c, "tools"),
                             .documents = json_get(c, "documents"),
                             .argument = arguments,
                             .add_generation_prompt =
                                 json_is_true(json_get(c, "add_generation_prompt")),
                             .continue_final =
                                 json_is_true(json_get(c, "continue_final")),
                             .date = date };

    if (json_is_true(json_get(c, "raw")))
        return render_raw(t, c, out, err);
    for (const struct json *j = kwargs ? kwargs->first : NULL; j; j = j->next)
        arguments[in.n_arguments++] = (struct chat_argument){ j->key, j };
    return chat_render(chat, &in, out, err);
}

enum how { HOW_JSON, HOW_PLAIN, HOW_MARKS, HOW_IDS, HOW_LEARN, HOW_LAST };

static void print_json(const struct chat_text *text, const struct err *err,
                       struct str *out)
{
    str_add(out, err ? "{\"error\":" : "{\"text\":");
    if (err)
        str_add_json(out, err->text);
    else
        str_add_jsonn(out, str_text(&text->text), text->text.len);
    str_add(out, "}");
}

static void print_marks(const struct chat_text *text, struct str *out)
{
    static const char open[] = "\0[{", close[] = "\0]}";
    int before = 0;

    for (size_t i = 0; i <= text->text.len; i++) {
        int now = i < text->text.len ? text->mark[i] : 0;

        for (int bit = 1; bit < 3; bit++)
            if (before & bit & ~now)
                str_addc(out, close[bit]);
        for (int bit = 2; bit; bit--)
            if (now & bit & ~before)
                str_addc(out, open[bit]);
        if (i < text->text.len)
            str_addc(out, text->text.s[i]);
        before = now;
    }
}

static int print_ids(const struct chat *chat, const struct tokenizer *tokenizer,
                     const struct chat_text *text, struct str *out)
{
    struct tokens ids = { 0 };
    struct err err = { 0 };
    int ret = chat_encode(chat, tokenizer, text, &ids, &err);

    for (size_t i = 0; i < ids.n; i++)
        str_addf(out, "%s%u", i ? " " : "", (unsigned)ids.id[i]);
    tokens_clear(&ids);
    return ret;
}

/* A chat as a training reads it. */
static void print_learned(const struct chat *chat, const struct tokenizer *tokenizer,
                          bool last, const struct json *c)
{
    const struct chats_options o = { .chat = chat,
                                     .tokenizer = tokenizer,
                                     .last_answer = last };
    struct tokens ids = { 0 };
    struct err err = { 0 };
    uint8_t *learn;

    if (chats_encode(&o, c, &ids, &learn, &err) < 0) {
        puts("error");
    } else {
        for (size_t i = 0; i < ids.n; i++)
            printf("%s%u%s", i ? " " : "", (unsigned)ids.id[i], learn[i] ? "*" : "");
        putchar('\n');
        free(learn);
    }
    tokens_clear(&ids);
}

static void run_case(const struct chat *chat, const struct template *t,
                     const struct tokenizer *tokenizer, enum how how,
                     const struct json *c)
{
    struct chat_text text = { 0 };
    struct str out = { 0 };
    struct err err = { 0 };
    int ret = render_case(chat, t, c, &text, &err);

    if (how == HOW_JSON) {
        print_json(&text, ret < 0 ? &err : NULL, &out);
    } else if (ret == 0 && how == HOW_PLAIN) {
        str_addf(&out, "%zu\n", text.text.len);
        str_addn(&out, str_text(&text.text), text.text.len);
    } else if (ret == 0 && how == HOW_MARKS) {
        print_marks(&text, &out);
    } else if (ret == 0) {
        ret = print_ids(chat, tokenizer, &text, &out);
    }
    if (ret < 0 && how != HOW_JSON) {
        str_reset(&out);
        str_add(&out, "error");
    }
    fwrite(str_text(&out), 1, out.len, stdout);
    putchar('\n');
    str_clear(&out);
    chat_text_clear(&text);
}

int main(int argc, char **argv)
{
    struct tokenizer *tokenizer = NULL;
    struct template *t = NULL;
    struct chat *chat = NULL;
    struct err err = { 0 };
    char *text, *line, *source;
    enum how how = HOW_JSON;
    bool is_dir = false;
    size_t n;

    if (argc > 1 && !strcmp(argv[1], "--plain"))
        how = HOW_PLAIN;
    else if (argc > 1 && !strcmp(argv[1], "--marks"))
        how = HOW_MARKS;
    else if (argc > 2 && !strcmp(argv[1], "--ids"))
        how = HOW_IDS;
    else if (argc > 2 && !strcmp(argv[1], "--learn"))
        how = HOW_LEARN;
    else if (argc > 2 && !strcmp(argv[1], "--last"))
        how = HOW_LAST;
    if (how >= HOW_IDS && tokenizer_open(&tokenizer, argv[2], &err) < 0)
        fail(&err);
    argc -= (how != HOW_JSON) + (how >= HOW_IDS);
    argv += (how != HOW_JSON) + (how >= HOW_IDS);
    if (argc < 2)
        return 2;
    if (strcmp(argv[1], "-")) {
        if (fs_find_dir(&is_dir, argv[1], &err) < 0 ||
            chat_open(&chat, is_dir ? argv[1] : "/nowhere", NULL,
                      is_dir ? NULL : argv[1], &err) < 0)
            fail(&err);
        if (!chat) {
            puts("no template");
            return 0;
        }
        if (!is_dir) {
            if (fs_read_regular(&source, &n, argv[1], MOST, &err) < 0 ||
                template_parse(&t, argv[1], source, n, &err) < 0)
                fail(&err);
            free(source);
        }
    }
    if (fs_read_file(&text, &n, argc > 2 ? argv[2] : "-", MOST, &err) < 0)
        fail(&err);
    for (line = text; line && *line;) {
        char *end = strchr(line, '\n');
        size_t len = end ? (size_t)(end - line) : strlen(line);
        struct json_doc doc;

        if (json_parse_config(&doc, "case", line, len, &err) < 0)
            fail(&err);
        if (how >= HOW_LEARN)
            print_learned(chat, tokenizer, how == HOW_LAST, doc.root);
        else
            run_case(chat, t, tokenizer, how, doc.root);
        json_clear(&doc);
        line = end ? end + 1 : NULL;
    }
    free(text);
    template_free(t);
    chat_free(chat);
    tokenizer_free(tokenizer);
    return 0;
}
