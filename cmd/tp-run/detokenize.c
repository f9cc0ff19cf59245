/* detokenize - prints the text of token ids */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/cmd.h"
#include "cmd/tp-run/commands.h"
#include "cmd/tp-run/tokenprint.h"
#include "lib/base/fs.h"
#include "lib/base/mem.h"

enum { MOST_IDS = 1 << 28 };

/* Appends the ids of TEXT: whole numbers with blanks, commas or brackets between them.
 * WHERE is for messages. */
static int read_ids(struct tokens *out, const struct tokenizer *t, const char *where,
                    const char *text, struct err *err)
{
    static const char between[] = " \t\r\n,[]";
    uint64_t most = tokenizer_size(t);

    while (*(text += strspn(text, between))) {
        size_t n = strcspn(text, between);
        char *word = xstrndup(text, n);
        uint64_t id;
        bool fits = str_u64(word, &id) && id < most;

        if (!fits) {
            struct str shown = { 0 };

            str_add_printable(&shown, word);
            err_set(err, ERR_INPUT, "%s: '%.40s' is no id from 0 to %llu", where,
                    shown.s, (unsigned long long)most - 1);
            str_clear(&shown);
        }
        free(word);
        if (!fits)
            return -1;
        tokens_add(out, (uint32_t)id);
        text += n;
    }
    return 0;
}

static int read_all(struct tokens *out, const struct tokenizer *t, char **operand,
                    struct err *err)
{
    char *text;
    int ret = 0;

    for (char **o = operand; *o && ret == 0; o++)
        ret = read_ids(out, t, "ids", *o, err);
    if (operand[0] || ret < 0)
        return ret;
    if (fs_read_file(&text, NULL, "-", MOST_IDS, err) < 0)
        return -1;
    ret = read_ids(out, t, "-", text, err);
    free(text);
    return ret;
}

static void print_json(const struct tokens *ids, const struct str *text)
{
    struct str out = { 0 };

    str_addf(&out, "{\"type\":\"text\",\"count\":%zu,\"text\":", ids->n);
    str_add_jsonn(&out, str_text(text), text->len);
    str_add(&out, "}");
    puts(out.s);
    str_clear(&out);
}

int detokenize_main(const char *program, int argc, char **argv)
{
    const char *model = NULL;
    bool json = false, skip = false;
    const struct opt opts[] = {
        { OPT_STRING, '\0', "tokenizer", &model, "MODEL",
          "the model, or tokenizer.json, that makes text", NULL, NULL },
        { OPT_FLAG, '\0', "skip-special", &skip, NULL, "leave out special tokens", NULL,
          NULL },
        { OPT_FLAG, '\0', "json", &json, NULL, "print JSON", NULL, NULL },
        { .type = OPT_END },
    };
    const struct cmd cmd = { .name = "detokenize",
                             .program = program,
                             .own_page = true,
                             .synopsis = "--tokenizer MODEL [OPTION]... [ID]...",
                             .summary = "Print the text of token ids",
                             .opts = opts,
                             .min_args = 0,
                             .max_args = -1 };
    char **operand = cmd_parse(&cmd, argc, argv);
    struct tokenizer *t = NULL;
    struct tokens ids = { 0 };
    struct str text = { 0 };
    struct err err = { 0 };
    int ret;

    if (!model)
        return cmd_usage(&cmd, "--tokenizer MODEL says whose ids they are");
    ret = tokenprint_open(&t, model, &err);
    if (ret == 0)
        ret = read_all(&ids, t, operand, &err);
    if (ret == 0) {
        tokenizer_decode(t, ids.id, ids.n, skip, &text);
        if (json)
            print_json(&ids, &text);
        else
            fwrite(str_text(&text), 1, text.len, stdout);
    }
    tokenizer_free(t);
    tokens_clear(&ids);
    str_clear(&text);
    return ret < 0 ? cmd_fail(&cmd, &err) : cmd_finish(&cmd, EXIT_SUCCESS);
}
