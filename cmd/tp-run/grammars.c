/* grammars - the grammars of a session */
#include "cmd/tp-run/grammars.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"

/* So many are kept, and a schema has at most so many bytes. */
enum { KEPT = 16, MOST_BYTES = 1 << 20 };

struct grammars {
    pthread_mutex_t lock;
    const struct tokenizer *tokenizer;
    struct vocabulary *vocabulary;
    struct one {
        char *key; /* the spec, and what stands around it */
        struct grammar *grammar;
        uint64_t used;
    } v[KEPT];
    uint64_t clock;
};

struct grammars *grammars_new(const struct tokenizer *t)
{
    struct grammars *s = xcalloc(1, sizeof(*s));

    pthread_mutex_init(&s->lock, NULL);
    s->tokenizer = t;
    return s;
}

static void clear(struct one *one)
{
    free(one->key);
    grammar_drop(one->grammar);
    *one = (struct one){ 0 };
}

void grammars_free(struct grammars *s)
{
    if (!s)
        return;
    for (int i = 0; i < KEPT; i++)
        clear(&s->v[i]);
    vocabulary_free(s->vocabulary);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static int open_spec(struct grammar **out, struct vocabulary *v, const char *spec,
                     const struct grammar_frame *frame, struct err *err)
{
    static const char regex[] = "regex:";
    struct json_doc doc;
    int ret;

    if (!strcmp(spec, "json"))
        return grammar_open_schema(out, v, NULL, NULL, frame, err);
    if (str_starts(spec, regex))
        return grammar_open_regex(out, v, spec + strlen(regex), frame, err);
    if (json_parse(&doc, "schema", spec, strlen(spec), err) < 0)
        return -1;
    ret = grammar_open_schema(out, v, &doc, doc.root, frame, err);
    json_clear(&doc);
    return ret;
}

static void add_frame(struct str *key, const struct grammar_frame *frame)
{
    if (frame)
        str_addf(key, "%s\n%s\n%s\n%d %d\n", frame->before ? frame->before : "",
                 frame->after ? frame->after : "", frame->other ? frame->other : "",
                 frame->thinks, frame->may_think);
}

static bool has(const struct one *one, const char *key)
{
    return one->key && !strcmp(one->key, key) && !grammar_failed(one->grammar);
}

/* With the lock held: the one that has KEY, or else where another may be put. */
static struct one *find(struct grammars *s, const char *key)
{
    struct one *oldest = &s->v[0];

    for (int i = 0; i < KEPT; i++) {
        struct one *one = &s->v[i];

        if (has(one, key))
            return one;
        if (one->used < oldest->used)
            oldest = one;
    }
    return oldest;
}

/* A known grammar, or NULL, with the vocabulary for another. */
static int look_up(struct grammars *s, struct grammar **out, const char *key,
                   struct err *err)
{
    struct one *one;
    int ret = 0;

    *out = NULL;
    pthread_mutex_lock(&s->lock);
    one = find(s, key);
    if (has(one, key)) {
        one->used = ++s->clock;
        *out = grammar_hold(one->grammar);
    } else if (!s->vocabulary)
        ret = vocabulary_open(&s->vocabulary, s->tokenizer, err);
    if (ret == 0)
        vocabulary_prepare(s->vocabulary);
    pthread_mutex_unlock(&s->lock);
    return ret;
}

static void keep(struct grammars *s, struct grammar *g, const char *key)
{
    struct one *one;

    pthread_mutex_lock(&s->lock);
    one = find(s, key);
    clear(one);
    *one = (struct one){ xstrdup(key), grammar_hold(g), ++s->clock };
    pthread_mutex_unlock(&s->lock);
}

int grammars_take(struct grammars *s, struct grammar **out, const char *spec,
                  const struct grammar_frame *frame, struct err *err)
{
    struct str key = { 0 };
    int ret;

    if (!s)
        return err_set(err, ERR_INPUT, "a grammar needs the model's tokenizer");
    if (strlen(spec) > MOST_BYTES)
        return err_set(err, ERR_INPUT, "a grammar has at most %d bytes", MOST_BYTES);
    add_frame(&key, frame);
    str_add(&key, spec);
    ret = look_up(s, out, str_text(&key), err);
    if (ret == 0 && !*out) { /* others need not wait for it */
        ret = open_spec(out, s->vocabulary, spec, frame, err);
        if (ret == 0) {
            grammar_name(*out, spec);
            keep(s, *out, str_text(&key));
        }
    }
    str_clear(&key);
    return ret;
}

int grammars_take_option(struct grammars *s, struct grammar **out, const char *what,
                         struct err *err)
{
    char *text = NULL;
    int ret;

    if (!strcmp(what, "json") || str_starts(what, "regex:"))
        return grammars_take(s, out, what, NULL, err) < 0 ? err_prefix(err, "--grammar")
                                                          : 0;
    if (fs_read_file(&text, NULL, what, MOST_BYTES, err) < 0)
        return -1;
    ret = grammars_take(s, out, text, NULL, err) < 0 ? err_prefix(err, "%s", what) : 0;
    free(text);
    return ret;
}
