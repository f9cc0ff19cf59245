/* unit-data - samples from files of documents */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/output.h"
#include "lib/base/rng.h"
#include "lib/base/str.h"
#include "lib/text/oldfiles.h"
#include "lib/train/blend.h"
#include "lib/train/data.h"
#include "lib/train/texts.h"
#include "lib/train/tokenwriter.h"
#include "tests/tap.h"

static char dir[] = "/tmp/unit-data-XXXXXX";

/* A file NAME of TEXT; its path is valid until the next. */
static const char *put(const char *name, const void *text, size_t n)
{
    static char *path;
    struct err err;

    free(path);
    path = fs_join_dup(dir, name);
    if (output_write(path, text, n, false, &err) < 0)
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
    size_t source;
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
        uint64_t id = data_sample_id(d, i, &source);

        repeated += id >= n || seen[i / n * n + id]++;
        same += i >= n && id == data_sample_id(d, i - n, &source);
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
        { "a.jsonl", "{\"id\":[1]}\n",
          "a.jsonl:1: no 'text', 'ids', 'prompt' or 'messages'" },
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
/* A token spans prompt and completion: it is learnt, too. */
static void try_joined(struct tokenizer *t, struct data_options *o)
{
    const char *file = put_text("joined.jsonl", "{\"prompt\":\"First Cit\","
                                                "\"completion\":\"izen: speak.\"}\n");
    struct tokens prompt = { 0 }, whole = { 0 };
    size_t given = 0, i = 0;
    struct sample s;
    struct data *d;
    struct err err;

    o->file = &file;
    if (tokenizer_encode(t, "First Cit", 9, true, &prompt, &err) < 0 ||
        tokenizer_encode(t, "First Citizen: speak.", 21, true, &whole, &err) < 0)
        abort();
    while (given < prompt.n && prompt.id[given] == whole.id[given])
        given++;
    tap_ok(0 < given && given < prompt.n && prompt.n <= whole.n,
           "a prompt's last token is another one before its completion");
    if (tap_ok(data_open(&d, o, &err) == 0, "the two are opened")) {
        tap_ok(data_fill(d, 0, 1, &s, &err) == 0 && s.n == whole.n, "as one text");
        while (i < s.n && s.target[i] < 0)
            i++;
        tap_ok(i + 1 == given, "which is learnt from the first token that differs");
        data_close(d);
    }
    tokens_clear(&prompt);
    tokens_clear(&whole);
}

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
    try_joined(t, &o);
out:
    tokens_clear(&ids);
    tokenizer_free(t);
    free(path);
}

/* ---- token files ---- */

/* N numbers of BYTES bytes each, little-endian, appended to S. */
static void add_numbers(struct str *s, int bytes, const long long *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < bytes; k++)
            str_addc(s, (char)((unsigned long long)v[i] >> (8 * k) & 0xff));
}

static const long long ROW[] = { 5, 6, 0, 7, 8, 9, 0, 10 };

/* Megatron's index of documents of 3, 0, 4 and 1 tokens, the third of two sequences,
 * with ids of BYTES bytes; WRONG: the byte there is another. */
static void put_index(const char *name, int type, int bytes, size_t wrong)
{
    const long long head[] = { 4, 5 }, length[] = { 3, 2, 2, 1 };
    const long long start[] = { 0, 1, 1, 3, 4 };
    const long long at[] = { 0, 3 * bytes, 5 * bytes, 7 * bytes };
    struct str s = { 0 };

    str_addn(&s, "MMIDIDX\0\0\1\0\0\0\0\0\0", 17);
    str_addc(&s, (char)type);
    add_numbers(&s, 8, head, 2);
    add_numbers(&s, 4, length, 4);
    add_numbers(&s, 8, at, 4);
    add_numbers(&s, 8, start, 5);
    if (wrong < s.len)
        s.s[wrong] ^= 1;
    put(name, s.s, wrong >= s.len && wrong != SIZE_MAX ? s.len - 1 : s.len);
    str_clear(&s);
}

static void put_row(const char *name, int bytes, bool header)
{
    const long long magic[] = { bytes == 4 ? 20240801 : 20240520, bytes == 4 ? 7 : 1,
                                8 };
    const long long zero[253] = { 0 };
    struct str s = { 0 };

    if (header) {
        add_numbers(&s, 4, magic, 3);
        add_numbers(&s, 4, zero, 253);
    }
    add_numbers(&s, bytes, ROW, 8);
    put(name, s.s, s.len);
    str_clear(&s);
}

static void try_token_files(void)
{
    static const struct {
        int type, bytes;
    } types[] = { { 1, 1 }, { 2, 1 }, { 3, 2 }, { 4, 4 }, { 5, 8 }, { 8, 2 } };
    const char *file = put("plain.bin", "", 0);
    struct data_options o = { .file = &file,
                              .nfiles = 1,
                              .seq = 8,
                              .order = DATA_ORDER_SEQUENTIAL,
                              .end_id = 0,
                              .vocab = 11 };
    char *name = xstrdup(file), *index;
    size_t refused = 0;

    o.file = (const char *const *)&name;
    tap_ok(str_ends(sample_of(&o, 0), "plain.bin: no token"),
           "an empty .bin is refused");
    put_row("plain.bin", 2, false);
    tap_is(sample_of(&o, 0), "|5 6 0*|7 8 9 0*", "nanoGPT's end ids close a document");
    o.pack = DATA_PACK_NONE;
    tap_is(sample_of(&o, 1), "|7 8 9 >0", "and tell what is a sample");
    o.pack = DATA_PACK_DOCUMENTS;
    put_row("plain.bin", 2, true);
    tap_is(sample_of(&o, 0), "|5 6*|0 7 8 9*|0 >10", "llm.c's begin one");
    o.pack = DATA_PACK_NONE;
    tap_is(sample_of(&o, 1), "|0 7 8 >9", "or a sample");
    o.pack = DATA_PACK_DOCUMENTS;
    put_row("plain.bin", 4, true);
    tap_is(sample_of(&o, 0), "|5 6*|0 7 8 9*|0 >10", "also in 32 bits");
    o.vocab = 9;
    tap_ok(strstr(sample_of(&o, 0),
                  "plain.bin: token 5 is 9, and the vocabulary has 9") != NULL,
           "an id that the model has not is refused");
    o.vocab = 11;
    put("plain.bin", "abc", 3);
    tap_ok(strstr(sample_of(&o, 0), "3 bytes are not 1 ids of 2") != NULL,
           "so is half an id");
    free(name);

    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
        put_row("m.bin", types[i].bytes, false);
        put_index("m.idx", types[i].type, types[i].bytes, SIZE_MAX);
        name = fs_join_dup(dir, i % 2 ? "m.bin" : "m.idx");
        tap_ok(!strcmp(sample_of(&o, 0), "|5 6 0*|7 8 9 0*"),
               "Megatron's index tells the documents (type %d)", types[i].type);
        free(name);
    }
    name = fs_join_dup(dir, "m.idx");
    o.vocab = 0;
    o.seq = 7;
    for (size_t wrong = 0; wrong < 82; wrong++) {
        put_index("m.idx", 8, 2, wrong);
        refused += sample_of(&o, 0)[0] != '|';
    }
    put_index("m.idx", 8, 2, 122);
    tap_ok(refused == 82 &&
               strstr(sample_of(&o, 0), "m.idx: 121 bytes, and 4 sequences"),
           "an index is refused that does not fit, or is cut short");
    free(name);
    index = fs_join_dup(dir, "m.idx");
    unlink(index);
    free(index);
}

/* Numbers of an index that is not put_index's: of one document of two sequences, of 5
 * and 3 tokens of 2 bytes; MODES is there for images. */
struct numbers {
    long long head[2], length[2], at[2], start[3];
    size_t starts;
    const char *modes;
    size_t cut; /* bytes that are missing at the end */
    const char *why;
};

static void put_numbers(const struct numbers *k)
{
    struct str s = { 0 };

    str_addn(&s, "MMIDIDX\0\0\1\0\0\0\0\0\0\0\10", 18);
    add_numbers(&s, 8, k->head, 2);
    add_numbers(&s, 4, k->length, 2);
    add_numbers(&s, 8, k->at, 2);
    add_numbers(&s, 8, k->start, k->starts);
    str_addn(&s, k->modes ? k->modes : "", k->modes ? 2 : 0);
    put("n.idx", s.s, s.len - k->cut);
    str_clear(&s);
}

/* Sample 0 of the token file NAME of DIR is SEEN, or the error that "DIR/" begins. */
static void gives(const struct data_options *options, const char *name,
                  const char *seen)
{
    char *path = fs_join_dup(dir, name);
    struct data_options o = *options;
    const char *got;

    o.file = (const char *const *)&path;
    got = sample_of(&o, 0);
    if (str_starts(got, dir))
        got += strlen(dir) + 1;
    if (!tap_ok(!strcmp(got, seen), "%s", seen))
        printf("# %s\n", got);
    free(path);
}

static void try_numbers(void)
{
    static const struct numbers bad[] = {
        { { 2, 2 }, { 5, 3 }, { 0, 10 }, { 0, 2 }, 2, NULL, 0, "|5 6 0 7 8 9 0 >10" },
        { { 2, 2 }, { 5, 3 }, { 0, 10 }, { 0, 2 }, 2, "\0\1", 0, "|5 6 0 7 8 9 0 >10" },
        { { 2, 2 }, { 5, 3 }, { 0, 10 }, { 0, 2 }, 2, NULL, 41, "n.idx: truncated" },
        { { 2, 0 }, { 5, 3 }, { 0, 10 }, { 0, 2 }, 2, NULL, 0, "n.idx: truncated" },
        { { 99, 2 }, { 5, 3 }, { 0, 10 }, { 0, 2 }, 2, NULL, 0, "n.idx: truncated" },
        { { 2, 99 }, { 5, 3 }, { 0, 10 }, { 0, 2 }, 2, NULL, 0, "n.idx: truncated" },
        { { 2, 2 },
          { 5, 3 },
          { 0, 10 },
          { 1, 2 },
          2,
          NULL,
          0,
          "n.idx: document 0 begins at sequence 1 of 2" },
        { { 2, 2 },
          { 5, 3 },
          { 0, 10 },
          { 0, 3 },
          2,
          NULL,
          0,
          "n.idx: document 1 begins at sequence 3 of 2" },
        { { 2, 3 },
          { 5, 3 },
          { 0, 10 },
          { 0, 2, 1 },
          3,
          NULL,
          0,
          "n.idx: document 2 begins at sequence 1 of 2" },
        { { 2, 2 },
          { 5, 3 },
          { 0, 10 },
          { 0, 1 },
          2,
          NULL,
          0,
          "n.idx: the documents have 1 of 2 sequences" },
        { { 2, 2 },
          { 5, -3 },
          { 0, 10 },
          { 0, 2 },
          2,
          NULL,
          0,
          "n.idx: sequence 1 does not follow the one before it" },
        { { 2, 2 },
          { 5, 3 },
          { 0, 12 },
          { 0, 2 },
          2,
          NULL,
          0,
          "n.idx: sequence 1 does not follow the one before it" },
        { { 2, 2 }, { 5, 4 }, { 0, 10 }, { 0, 2 }, 2, NULL, 0, NULL },
    };
    struct data_options o = { .nfiles = 1, .seq = 8, .end_id = -1, .vocab = 11 };
    char *want = str_dupf("n.bin: 16 bytes, and %s/n.idx is one of 18", dir);

    put_row("n.bin", 2, false);
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        put_numbers(&bad[i]);
        gives(&o, "n.idx", bad[i].why ? bad[i].why : want);
    }
    free(want);
    gives(&o, "none.bin", "none.bin: missing");
    gives(&o, "plain.idx", "plain.idx: missing");
}

/* llm.c's header of a version that is not its own's, and a file that is cut short as it
 * is read. */
static void try_changed(void)
{
    const long long magic[] = { 20240520, 20240801 }, version[] = { 2, 1 };
    struct data_options o = {
        .nfiles = 1, .seq = 8, .end_id = 0, .order = DATA_ORDER_SEQUENTIAL
    };
    char *file;
    struct err err = { 0 };
    struct sample sample;
    struct data *d;

    for (int i = 0; i < 2; i++) {
        struct str s = { 0 };
        char *want = str_dupf("plain.bin: version %lld of llm.c's files is not known",
                              version[i]);

        add_numbers(&s, 4, &magic[i], 1);
        add_numbers(&s, 4, &version[i], 1);
        while (s.len < 1024 + 8)
            str_addc(&s, '\0');
        put("plain.bin", s.s, s.len);
        gives(&o, "plain.bin", want);
        str_clear(&s);
        free(want);
    }
    put_row("plain.bin", 2, true);
    file = fs_join_dup(dir, "plain.bin");
    o.file = (const char *const *)&file;
    if (tap_ok(data_open(&d, &o, &err) == 0, "a token file is opened")) {
        char *want = str_dupf("%s: truncated at byte 1030", file);

        if (truncate(file, 1030) < 0)
            abort();
        tap_ok(data_fill(d, 0, 1, &sample, &err) < 0 && err.kind == ERR_INPUT &&
                   !strcmp(err.text, want),
               "that it is cut short meanwhile is told");
        free(want);
        data_close(d);
    }
    free(file);
}

/* What is written is read. */
static void try_writer(uint64_t vocab)
{
    const int32_t one[] = { 1, (int32_t)vocab - 1, 0 }, two[] = { 3, 4, 0 };
    char *prefix = fs_join_dup(dir, "w"), *index = fs_join_dup(dir, "w.idx");
    struct data_options o = { .file = (const char *const *)&index,
                              .nfiles = 1,
                              .seq = 8,
                              .order = DATA_ORDER_SEQUENTIAL,
                              .end_id = 0,
                              .vocab = vocab };
    struct tokenwriter *w;
    struct err err;
    char *want = str_dupf("|1 %d 0*|3 4 >0", one[1]);

    if (tap_ok(tokenwriter_open(&w, prefix, vocab, &err) == 0, "%llu ids: written",
               (unsigned long long)vocab)) {
        tap_ok(tokenwriter_add(w, one, 3, &err) == 0 &&
                   tokenwriter_add(w, two, 3, &err) == 0 &&
                   tokenwriter_finish(w, &err) == 0 && tokenwriter_tokens(w) == 6 &&
                   tokenwriter_documents(w) == 2 &&
                   tokenwriter_bytes(w) == (vocab < 65500 ? 12 : 24),
               "in 2 or 4 bytes");
        tokenwriter_close(w);
        tap_is(sample_of(&o, 0), want, "and read");
    }
    free(want);
    free(index);
    free(prefix);
}

static int add_to(void *arg, const struct texts_document *d, struct err *err)
{
    return tokenwriter_add(arg, d->id, d->n, err);
}

/* A corpus of text and what was made of it have the same samples, also one behind the
 * other. */
static void try_same(const char *bard)
{
    char *path = fs_join_dup(bard, "tokenizer.json");
    char *text = fs_join_dup(bard, "heldout.txt"), *prefix = fs_join_dup(dir, "same");
    char *bin = fs_join_dup(dir, "same.bin");
    const char *both[2] = { text, bin };
    struct data_options o = { .file = both, .nfiles = 2, .seq = 64, .end_id = 0 };
    struct texts_options texts = { .end_id = 0 };
    struct tokenwriter *w = NULL;
    struct sample a, b;
    size_t differ = 0;
    struct tokenizer *t;
    struct data *one, *two;
    struct err err;

    if (!tap_ok(tokenizer_open(&t, path, &err) == 0 &&
                    tokenwriter_open(&w, prefix, tokenizer_size(t), &err) == 0,
                "a text is made into tokens"))
        abort();
    o.tokenizer = texts.tokenizer = t;
    if (texts_read(text, &texts, add_to, w, &err) < 0 ||
        tokenwriter_finish(w, &err) < 0)
        abort();
    tokenwriter_close(w);
    o.nfiles = 1;
    if (data_open(&one, &o, &err) < 0)
        abort();
    o.file++;
    if (data_open(&two, &o, &err) < 0)
        abort();
    for (uint64_t i = 0; i < 2 * data_samples(one); i++) {
        if (data_fill(one, i, 1, &a, &err) < 0 || data_fill(two, i, 1, &b, &err) < 0)
            abort();
        differ += a.n != b.n || memcmp(a.id, b.id, a.n * sizeof(*a.id)) ||
                  memcmp(a.target, b.target, a.n * sizeof(*a.id));
    }
    tap_ok(data_samples(one) == data_samples(two) && !differ,
           "which have the text's samples in the same order");
    data_close(one);
    data_close(two);
    o.file--;
    o.nfiles = 2;
    if (data_open(&one, &o, &err) < 0)
        abort();
    tap_ok(data_tokens(one) == 2 * 5084 && data_samples(one) == 159,
           "files of several kinds are one row");
    data_close(one);
    tokenizer_free(t);
    free(bin);
    free(prefix);
    free(text);
    free(path);
}

/* ---- SentencePiece models ---- */

/* Pieces <unk> (2), [CLS], [SEP] and ctl (3: control), "a" (1), each a message of text,
 * score and type; then the trainer's Unigram (1), with its unknown piece. */
static const unsigned char pieces[] = "\x0a\x0e\x0a\x05<unk>\x15\0\0\0\0\x18\2"
                                      "\x0a\x0e\x0a\x05[CLS]\x15\0\0\0\0\x18\3"
                                      "\x0a\x0e\x0a\x05[SEP]\x15\0\0\0\0\x18\3"
                                      "\x0a\x0c\x0a\x03"
                                      "ctl\x15\0\0\0\0\x18\3"
                                      "\x0a\x0a\x0a\x01"
                                      "a\x15\0\0\x80\xbf\x18\1"
                                      "\x12\x05\x18\1\xc0\x02\0";

/* Whether the tokenizer.json that is made of them has WORD. */
static bool made_with(const char *config, const char *word)
{
    cJSON *c = config ? cJSON_Parse(config) : NULL;
    struct str json = { 0 };
    struct err err = { 0 };
    bool has = oldfiles_sentencepiece(&json, "m", pieces, sizeof(pieces) - 1, "albert",
                                      c, &err) == 0 &&
               strstr(json.s, word);

    if (err.kind)
        printf("# %s\n", err.text);
    str_clear(&json);
    cJSON_Delete(c);
    return has;
}

static void try_pieces(void)
{
    static const char lower[] = "{\"type\":\"Lowercase\"}";

    tap_ok(made_with(NULL, lower), "ALBERT's letters are made lower");
    tap_ok(!made_with("{\"do_lower_case\":false}", lower),
           "unless its configuration says that they are not");
    tap_ok(made_with(NULL, "\"content\":\"ctl\""), "a control piece is a token");
    tap_ok(!made_with(NULL, "\"content\":\"a\""), "that no other is");
}

/* The score of piece "a" is SCORE, a float's bytes, its text TEXT and the id of the
 * unknown piece UNK; RULES is the normalizer's message.  Gives the tokenizer.json of
 * ALBERT, or the error. */
static const char *made_of(const char *text, const char *score, char unk,
                           const char *rules, const char *config)
{
    static struct str json;
    static struct err err;
    struct str model = { 0 };
    cJSON *c = cJSON_Parse(config);
    size_t n = strlen(text), before = sizeof(pieces) - 1 - 7 - 12;
    int ret;

    str_addn(&model, (const char *)pieces, before);
    str_addf(&model, "\x0a%c\x0a%c%s\x15", (char)(n + 9), (char)n, text);
    str_addn(&model, score, 4);
    str_addn(&model, (const char *)pieces + before + 10, 8);
    str_addc(&model, unk);
    str_addf(&model, "%s", rules);
    str_clear(&json);
    err = (struct err){ 0 };
    ret = oldfiles_sentencepiece(&json, "m", model.s, model.len, "albert", c, &err);
    str_clear(&model);
    cJSON_Delete(c);
    return ret < 0 ? err.text : str_text(&json);
}

static void try_odd_pieces(void)
{
    static const char one[] = "\0\0\x80\xbf";
    struct str json = { 0 };
    struct err err = { 0 };

    tap_ok(strstr(made_of("a", one, 0, "", "{}"), "[\"a\",-1]") != NULL,
           "a piece has its score");
    tap_ok(strstr(made_of("1,", one, 0, "", "{}"), "[\"1,\",-101]") != NULL,
           "but a number with a comma is not for ALBERT");
    tap_ok(strstr(made_of("a,", one, 0, "", "{}"), "[\"a,\",-1]") != NULL,
           "as a letter with one is");
    tap_is(made_of("a", "\0\0\x80\xff", 0, "", "{}"), "m: no SentencePiece model",
           "a score that is infinite is refused");
    tap_is(made_of("a", "\0\0\xc0\x7f", 0, "", "{}"), "m: no SentencePiece model",
           "so is one that is no number");
    tap_is(made_of("a", one, 99, "", "{}"),
           "m: no piece '[CLS]' or '[SEP]', or no unknown one",
           "so is an unknown piece that is not there");
    tap_ok(strstr(made_of("a", one, 0, "\x1a\3\x12\1M", "{}"), "charsmap\":\"TQ==\"}"),
           "rules of a byte are written in base 64");
    tap_ok(strstr(made_of("a", one, 0, "\x1a\4\x12\2Ma", "{}"), "charsmap\":\"TWE=\"}"),
           "as two");
    tap_ok(
        strstr(made_of("a", one, 0, "\x1a\5\x12\3Man", "{}"), "charsmap\":\"TWFu\"}"),
        "and three");
    tap_ok(strstr(made_of("a", one, 0, "", "{}"), "StripAccents") &&
               !strstr(made_of("a", one, 0, "", "{\"keep_accents\":true}"),
                       "StripAccents"),
           "accents stay where the configuration says so");
    tap_ok(oldfiles_sentencepiece(&json, "m", pieces, sizeof(pieces) - 1, NULL, NULL,
                                  &err) < 0 &&
               err.kind == ERR_INPUT,
           "pieces of no model are refused");
    tap_is(err.text,
           "m: pieces of a model of type '?' are read only from tokenizer.json",
           "for what they are");
}

/* Each source has its share of any first samples, to less than one of them. */
static void try_blend(void)
{
    struct rng rng;
    double worst = 0;
    bool walks = true;

    rng_init(&rng, 7, 0);
    for (int t = 0; t < 60; t++) {
        size_t n = 1 + (size_t)(rng_u64(&rng) % 9);
        double weight[BLEND_MOST], all = 0;
        uint64_t had[BLEND_MOST] = { 0 }, counts[BLEND_MOST], number;
        struct blend b, other;

        for (size_t s = 0; s < n; s++) {
            weight[s] =
                (double)(1 + rng_u64(&rng) % 100) / (t % 3 && s == 1 ? 1000 : 1);
            all += weight[s];
        }
        blend_init(&b, weight, n);
        other = b;
        for (uint64_t i = 0; i < 1000; i++) {
            size_t s = blend_source(&b, i, &number);

            walks &= number == had[s]++;
            for (size_t k = 0; k < n; k++)
                worst = fmax(worst,
                             fabs((double)had[k] - weight[k] / all * (double)(i + 1)));
            if (i % 333)
                continue;
            walks &= blend_source(&other, i, &number) == s && number + 1 == had[s];
            blend_counts(&other, i + 1, counts);
            walks &= !memcmp(counts, had, n * sizeof(*had));
            walks &= blend_source(&other, 0, &number) < n && number == 0;
        }
    }
    tap_ok(worst > 0.5 && worst < 1, "shares are exact to less than a sample: %.3f",
           worst);
    tap_ok(walks, "any place is found, in any order");
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
    try_blend();
    try_errors();
    try_texts(bard);
    try_same(bard);
    try_token_files();
    try_numbers();
    try_changed();
    try_writer(65499);
    try_writer(65500);
    try_pieces();
    try_odd_pieces();
    if (fs_remove_tree(dir, &err) < 0)
        tap_ok(false, "%s", err.text);
    free(bard);
    return tap_done();
}
