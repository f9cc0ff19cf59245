/* tokens - prints the tokens of texts, or writes their ids as Megatron's indexed
 * dataset */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>

#include "cmd/tp-run/commands.h"
#include "cmd/tp-run/inputs.h"
#include "cmd/tp-run/session.h"
#include "cmd/tp-run/tokenprint.h"
#include "lib/base/fs.h"
#include "lib/train/texts.h"
#include "lib/train/tokenfile.h"
#include "lib/train/tokenwriter.h"

struct request {
    const char *model, *end, *prefix;
    int threads, format; /* enum texts_format */
    bool json, quiet;
    struct tokenprint print; /* without PREFIX */
};

struct tokens_run {
    const struct request *r;
    struct tokenizer *tokenizer;
    struct texts_options texts;
    struct tokenwriter *writer;
};

/* Opens the tokenizer, and finds the end id in the files beside it. */
static int open_model(struct tokens_run *t, const char *model, struct err *err)
{
    struct ids stop = { 0 };
    char *dir;
    bool is_dir;
    int ret = -1;

    if (fs_find_dir(&is_dir, model, err) < 0)
        return -1;
    dir = is_dir ? NULL : fs_dirname_dup(model);
    if (tokenprint_open(&t->tokenizer, model, err) == 0 &&
        session_stop_ids(&stop, dir ? dir : model, err) == 0) {
        t->texts.end_id = stop.n ? stop.v[0] : -1;
        t->texts.tokenizer = t->tokenizer;
        t->texts.vocab = tokenizer_size(t->tokenizer);
        ret = 0;
    }
    ids_clear(&stop);
    free(dir);
    return ret;
}

static int set_end(struct tokens_run *t, const char *end, struct err *err)
{
    uint64_t id, most = t->texts.vocab ? t->texts.vocab - 1 : INT32_MAX;

    if (!strcmp(end, "none")) {
        t->texts.end_id = -1;
        return 0;
    }
    if (!str_u64(end, &id) || id > most)
        return err_set(err, ERR_USAGE,
                       "--end-id: '%s' is neither none nor an id to %llu", end,
                       (unsigned long long)most);
    t->texts.end_id = (int32_t)id;
    return 0;
}

static int add_document(void *arg, const struct texts_document *d, struct err *err)
{
    struct tokens_run *t = arg;
    uint64_t n;

    if (tokenwriter_add(t->writer, d->id, d->n, err) < 0)
        return -1;
    n = tokenwriter_documents(t->writer);
    if (n % 4096 == 0 && cmd_progress(t->r->quiet))
        fprintf(stderr, "\r%" PRIu64 " documents, %" PRIu64 " tokens", n,
                tokenwriter_tokens(t->writer));
    return 0;
}

static int write_tokens(struct tokens_run *t, char **file, struct err *err)
{
    char *const standard[] = { (char[]){ "-" }, NULL };
    char *const *f = file[0] ? file : standard;

    for (; *f; f++) {
        if (tokenfile_is(*f))
            return err_set(err, ERR_INPUT, "%s: a file of token ids, not of text", *f);
        if (texts_read(*f, &t->texts, add_document, t, err) < 0)
            return -1;
    }
    if (!tokenwriter_documents(t->writer))
        return err_set(err, ERR_INPUT, "%s: no document", file[0] ? file[0] : "-");
    return tokenwriter_finish(t->writer, err);
}

static void print_result(const struct tokens_run *t)
{
    const char *form =
        t->r->json ? "{\"type\":\"tokens\",\"file\":%s,\"documents\":%" PRIu64
                     ",\"tokens\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"end_id\":%s}\n"
                   : "%s: %" PRIu64 " documents, %" PRIu64 " tokens, %" PRIu64
                     " bytes, end id %s\n";
    struct str name = { 0 }, end = { 0 };

    if (t->r->json)
        str_add_json(&name, t->r->prefix);
    else
        str_add_printable(&name, t->r->prefix);
    if (t->texts.end_id >= 0)
        str_addf(&end, "%d", t->texts.end_id);
    else
        str_add(&end, t->r->json ? "null" : "none");
    printf(form, name.s, tokenwriter_documents(t->writer),
           tokenwriter_tokens(t->writer), tokenwriter_bytes(t->writer), end.s);
    str_clear(&name);
    str_clear(&end);
}

static int run(const struct request *r, char **file, struct err *err)
{
    struct tokens_run t = { .r = r,
                            .texts = { .end_id = -1,
                                       .strict = true,
                                       .threads = r->threads,
                                       .format = r->format } };
    int ret = -1;

    if ((r->model && open_model(&t, r->model, err) < 0) ||
        (r->end && set_end(&t, r->end, err) < 0) ||
        tokenwriter_open(&t.writer, r->prefix,
                         t.texts.vocab ? t.texts.vocab : UINT64_MAX, err) < 0)
        goto out;
    ret = write_tokens(&t, file, err);
    if (cmd_progress(r->quiet))
        fputs("\r\033[K", stderr);
    if (ret == 0)
        print_result(&t);
out:
    tokenwriter_close(t.writer);
    tokenizer_free(t.tokenizer);
    return ret;
}

/* Without -o. */
static int print(struct request *r, char **file, struct err *err)
{
    struct tokenizer *t = NULL;
    int ret = tokenprint_open(&t, r->model, err);

    r->print.tokenizer = t;
    r->print.json = r->json;
    if (ret == 0)
        ret = tokenprint_files(&r->print, file, err);
    tokenizer_free(t);
    return ret;
}

int tokens_main(const char *program, int argc, char **argv)
{
    struct request r = { .threads = session_cores() };
    const struct opt opts[] = {
        { OPT_STRING, 'o', "output", &r.prefix, "PREFIX",
          "write PREFIX.bin and PREFIX.idx", NULL, NULL },
        { OPT_STRING, '\0', "tokenizer", &r.model, "MODEL",
          "the model, or tokenizer.json, that makes tokens", NULL, NULL },
        { OPT_STRING, 'p', "prompt", &r.print.text, "TEXT",
          "print the tokens of this text", NULL, NULL },
        { OPT_FLAG, '\0', "count", &r.print.count, NULL,
          "print only how many there are", NULL, NULL },
        { OPT_FLAG, '\0', "no-special", &r.print.bare, NULL,
          "print none that the model puts around a text", NULL, NULL },
        { OPT_CHOICE, '\0', "input-format", &r.format, "FORMAT",
          "the texts' format: auto, text, json", input_format_names, NULL },
        { OPT_STRING, '\0', "end-id", &r.end, "ID", "id that ends a document, or none",
          NULL, NULL },
        { OPT_COUNT, '\0', "threads", &r.threads, "N",
          "threads that make tokens (default: all cores)", NULL, NULL },
        { OPT_FLAG, '\0', "json", &r.json, NULL, "print JSON", NULL, NULL },
        { OPT_FLAG, 'q', "quiet", &r.quiet, NULL, "no progress", NULL, NULL },
        { .type = OPT_END },
    };
    const struct cmd cmd = {
        .name = "tokens",
        .program = program,
        .own_page = true,
        .synopsis = "[OPTION]... [FILE]...",
        .summary = "Print the tokens of texts, or write them for training",
        .opts = opts,
        .min_args = 0,
        .max_args = -1
    };
    char **file = cmd_parse(&cmd, argc, argv);
    struct err err = { 0 };

    if (!r.prefix && !r.model)
        return cmd_usage(&cmd, "--tokenizer MODEL makes tokens, which are printed, or "
                               "written to -o PREFIX");
    if (r.prefix && (r.print.text || r.print.count || r.print.bare))
        return cmd_usage(&cmd, "--prompt, --count and --no-special are for what is "
                               "printed, without -o");
    if (!r.prefix && (r.end || r.format))
        return cmd_usage(&cmd, "--end-id and --input-format are for what is written, "
                               "with -o PREFIX");
    if (r.print.text && file[0])
        return cmd_usage(&cmd, "--prompt and files exclude one another");
    if ((r.prefix ? run(&r, file, &err) : print(&r, file, &err)) < 0)
        return cmd_fail(&cmd, &err);
    return cmd_finish(&cmd, EXIT_SUCCESS);
}
