/* unit-data - samples from files of documents */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/train/data.h"
#include "tests/tap.h"

static char dir[] = "/tmp/unit-data-XXXXXX";

/* A file NAME of TEXT; its path is valid until the next. */
static const char *put(const char *name, const void *text, size_t n)
{
    static char *path;
    struct err err;

    free(path);
    path = fs_join_dup(dir, name);
    if (fs_write_file(path, text, n, false, &err) < 0)
        abort();
    return path;
}

static const char *put_text(const char *name, const char *text)
{
    return put(name, text, strlen(text));
}

/* A sample as text: ids, a bar before each document, targets where they differ from the
 * next id as a star. */
static char *show(const struct sample *s)
{
    struct str out = { 0 };
    size_t document = 0;

    for (size_t i = 0; i < s->n; i++) {
        if (document < s->documents && s->start[document] == i) {
            str_add(&out, "|");
            document++;
        }
        str_addf(&out, "%d", s->id[i]);
        str_add(&out, s->target[i] < 0                               ? "*"
                      : i + 1 < s->n && s->target[i] != s->id[i + 1] ? "?"
                                                                     : " ");
    }
    if (s->n && s->target[s->n - 1] >= 0)
        str_addf(&out, ">%d", s->target[s->n - 1]);
    return str_steal(&out);
}

/* Sample INDEX of the options, as text, or the error. */
static const char *sample_of(const struct data_options *o, uint64_t index)
{
    static char *text;
    struct err err = { 0 };
    struct sample s;
    struct data *d;

    free(text);
    text = NULL;
    if (data_open(&d, o, &err) < 0)
        return text = xstrdup(err.text);
    text = data_fill(d, index, 1, &s, &err) < 0 ? xstrdup(err.text) : show(&s);
    data_close(d);
    return text;
}

static void try_packing(void)
{
    const char *file = put_text("ids.jsonl", "{\"ids\":[1,2,3,4,5]}\n"
                                             "\n"
                                             "{\"ids\":[]}\n"
                                             "{\"meta\":{\"a\":[1]},\"ids\":[6,7]}\n"
                                             "{\"ids\":[8,9,10,11]}");
    struct data_options o = { .file = &file,
                              .nfiles = 1,
                              .seq = 4,
                              .order = DATA_ORDER_SEQUENTIAL,
                              .end_id = 0 };
    struct err err;
    struct data *d;

    tap_is(sample_of(&o, 0), "|1 2 3 4 >5", "a sample ends in the next one's token");
    tap_is(sample_of(&o, 1), "|5*|6 7*|8 >9",
           "documents are joined, and none predicts the next");
    tap_is(sample_of(&o, 2), "|9 10 >11", "the last sample is what is left");
    tap_is(sample_of(&o, 3), "|1 2 3 4 >5", "after an epoch comes the next");
    o.pack = DATA_PACK_NONE;
    tap_is(sample_of(&o, 0), "|1 2 3 4 >5", "a document is a sample");
    tap_is(sample_of(&o, 1), "|6 >7", "whatever its length");
    o.seq = 2;
    tap_is(sample_of(&o, 0), "|1 2 >3", "cut at the longest");
    if (data_open(&d, &o, &err) == 0) {
        tap_is_int((long long)data_samples(d), 3, "each document counts");
        tap_is_int((long long)data_tokens(d), 11, "and each token");
        data_close(d);
    }
    o.held = 0.5;
    if (data_open(&d, &o, &err) == 0) {
        struct sample s;

        tap_is_int((long long)data_samples(d), 2, "what is held out is not trained");
        tap_is_int((long long)data_held(d), 1, "but there");
        tap_ok(data_fill_held(d, 0, 1, &s, &err) == 0 && s.id[0] == 8,
               "at the end of the files");
        data_close(d);
    }
}

/* Each epoch has each sample once, in an order of its own. */
static void try_order(uint64_t n)
{
    struct str text = { 0 };
    size_t repeated = 0, same = 0, fixed = 0;
    unsigned char *seen = xcalloc((size_t)n, 3);
    struct data_options o = { .nfiles = 1, .seq = 1, .seed = 7, .end_id = -1 };
    const char *file;
    struct err err;
    struct data *d;

    str_add(&text, "{\"ids\":[0");
    for (uint64_t i = 1; i <= n; i++)
        str_addf(&text, ",%llu", (unsigned long long)i);
    str_add(&text, "]}\n");
    file = put("order.jsonl", text.s, text.len);
    o.file = &file;
    str_clear(&text);
    if (data_open(&d, &o, &err) < 0) {
        tap_ok(false, "%s", err.text);
        free(seen);
        return;
    }
    for (uint64_t i = 0; i < 3 * n; i++) {
        uint64_t id = data_sample_id(d, i);

        repeated += id >= n || seen[i / n * n + id]++;
        same += i >= n && id == data_sample_id(d, i - n);
        fixed += id == i % n;
    }
    tap_ok(data_samples(d) == n && !repeated, "%llu samples: each once an epoch",
           (unsigned long long)n);
    if (n > 50)
        tap_ok(same < 20 && fixed < 20, "%llu samples: another order in each epoch",
               (unsigned long long)n);
    data_close(d);
    free(seen);
}

static void try_errors(void)
{
    static const struct {
        const char *name, *text, *why;
    } bad[] = {
        { "a.jsonl", "{\"ids\":[1,2]}\n\n{\"ids\":[1,70]}\n",
          "a.jsonl:3:11: id 70, and the vocabulary has 64" },
        { "a.jsonl", "{\"ids\":[1,2]}\n{\"ids\":[1,2]\n", "a.jsonl:2:13: " },
        { "a.jsonl", "{\"ids\":[1,-2]}\n", "a.jsonl:1:11: 'ids' holds what is no id" },
        { "a.jsonl", "{\"id\":[1]}\n", "a.jsonl:1: no 'text', 'ids' or 'prompt'" },
        { "a.jsonl", "\n[1]\n", "a.jsonl:2:1: no object with" },
        { "a.jsonl", "{\"text\":\"x\"}\n",
          "a.jsonl:1: a text, and there is no tokenizer.json" },
        { "a.jsonl", "{\"text\":\"x\",\"ids\":[]}\n",
          "a.jsonl:1: 'text' and 'ids' are both there" },
        { "a.jsonl", "{\"prompt\":\"x\"}\n",
          "a.jsonl:1: 'prompt' without 'completion'" },
        { "a.jsonl", "{\"ids\":[1]}\n", "a.jsonl: no sample of two tokens" },
        { "a.txt", "x\ny\xff\n", "a.txt:2: not UTF-8" },
        { "a.jsonl.gz", "\x1f\x8b\x08\0\0\0\0\0\0\3\xab", "a.jsonl.gz: " },
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        size_t n = strlen(bad[i].name) > 7 ? 11 : strlen(bad[i].text);
        const char *file = put(bad[i].name, bad[i].text, n);
        struct data_options o = {
            .file = &file, .nfiles = 1, .seq = 4, .end_id = 0, .vocab = 64
        };
        const char *why = sample_of(&o, 0);

        if (!tap_ok(str_starts(why, dir) &&
                        str_starts(why + strlen(dir) + 1, bad[i].why),
                    "refused: %s", bad[i].why))
            printf("# %s\n", why);
    }
}

/* The model's own tokenizer: text, and prompts with completions. */
static void try_texts(const char *bard)
{
    char *path = fs_join_dup(bard, "tokenizer.json");
    const char *file = put_text("a.txt", "First Citizen:\nSpeak.\n");
    struct data_options o = {
        .nfiles = 1, .seq = 16, .order = DATA_ORDER_SEQUENTIAL, .end_id = 0
    };
    struct tokens ids = { 0 };
    struct tokenizer *t;
    struct sample s;
    struct data *d;
    struct err err;

    o.file = &file;
    if (!tap_ok(tokenizer_open(&t, path, &err) == 0, "bard has a tokenizer"))
        goto out;
    o.tokenizer = t;
    if (tokenizer_encode(t, "First Citizen:\nSpeak.\n", 22, true, &ids, &err) < 0)
        abort();
    if (tap_ok(data_open(&d, &o, &err) == 0, "a text is opened")) {
        tap_ok(data_fill(d, 0, 1, &s, &err) == 0 && s.n == ids.n &&
                   !memcmp(s.id, ids.id, s.n * sizeof(*s.id)) && s.target[s.n - 1] == 0,
               "it has the tokenizer's ids, and the end id behind them");
        data_close(d);
    }
    file = put_text("a.jsonl", "{\"prompt\":\"First Citizen:\\n\","
                               "\"completion\":\"Speak.\\n\"}\n");
    if (tap_ok(data_open(&d, &o, &err) == 0,
               "a prompt with its completion is opened")) {
        size_t i = 0;

        tap_ok(data_fill(d, 0, 1, &s, &err) == 0 && s.n == ids.n &&
                   !memcmp(s.id, ids.id, s.n * sizeof(*s.id)),
               "they are one text");
        while (i < s.n && s.target[i] < 0)
            i++;
        tokens_clear(&ids);
        if (tokenizer_encode(t, "First Citizen:\n", 15, true, &ids, &err) < 0)
            abort();
        tap_ok(i > 0 && i + 1 == ids.n && s.target[s.n - 1] == 0,
               "of which the completion alone is learnt");
        data_close(d);
    }
out:
    tokens_clear(&ids);
    tokenizer_free(t);
    free(path);
}

int main(void)
{
    char *bard = str_dupf("%s/examples/bard", getenv("top_srcdir"));
    static const uint64_t sizes[] = { 1, 2, 3, 4, 5, 17, 256, 1000 };
    struct err err;

    if (!mkdtemp(dir))
        return 1;
    try_packing();
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
        try_order(sizes[i]);
    try_errors();
    try_texts(bard);
    if (fs_remove_tree(dir, &err) < 0)
        tap_ok(false, "%s", err.text);
    free(bard);
    return tap_done();
}
