/* try-grammar - texts that a grammar makes, and whether it has others
 *
 *     try-grammar make TOKENIZER SEED COUNT LENGTH
 *
 * Each line of standard input is {"schema": ...} or {"regex": ...}.  Makes COUNT texts
 * of it by random tokens of its masks, at most LENGTH of them, and prints each as a
 * line of JSON; "whole": it has ended by itself.
 *
 *     try-grammar has TOKENIZER
 *
 * A line has a "text" beside: is it one of the grammar's?
 *
 *     try-grammar masks TOKENIZER
 *
 * A line has "ids", of tokens: the ids that may follow, and whether the text may end.
 *
 *     try-grammar time TOKENIZER SEED COUNT LENGTH
 *
 * As make, but prints the seconds of processor time that a token's mask takes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/base/mem.h"
#include "lib/base/rng.h"
#include "lib/text/grammar/grammar.h"

static struct vocabulary *vocabulary;

static void print_error(const struct err *err)
{
    struct str out = { 0 };

    str_add(&out, "{\"error\":");
    str_add_json(&out, err->text);
    str_add(&out, "}\n");
    fputs(str_text(&out), stdout);
    str_clear(&out);
}

static int open_line(struct grammar **g, const struct json_doc *doc, struct err *err)
{
    const char *regex = json_string(json_get(doc->root, "regex"));

    return regex ? grammar_open_regex(g, vocabulary, regex, NULL, err)
                 : grammar_open_schema(g, vocabulary, doc,
                                       json_get(doc->root, "schema"), NULL, err);
}

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* One of the allowed tokens; -1: none. */
static int32_t draw(const struct grammar_next *next, struct rng *rng)
{
    size_t n = 0, at;

    for (size_t i = 0; i < next->words; i++)
        n += (size_t)__builtin_popcount(next->allowed[i]);
    if (!n)
        return -1;
    at = (size_t)(rng_uniform(rng) * (double)n);
    for (size_t i = 0; i < next->words * 32; i++)
        if (next->allowed[i / 32] >> i % 32 & 1 && at-- == 0)
            return (int32_t)i;
    return -1;
}

static bool make_one(struct grammar *g, struct rng *rng, size_t most, bool timed)
{
    struct grammar_cursor c = { 0 };
    int32_t *ids = xcalloc(most + 1, sizeof(*ids));
    struct str text = { 0 };
    double spent = 0, worst = 0;
    bool whole = false;
    size_t n = 0;

    while (n < most && !whole) {
        const double before = seconds();
        const struct grammar_next next = grammar_follow(g, &c, ids, n);
        const double one = seconds() - before;
        size_t len;
        const char *bytes;

        spent += one;
        worst = one > worst ? one : worst;
        whole = next.must || (next.may_end && rng_uniform(rng) < 0.3);
        if (whole)
            break;
        ids[n] = draw(&next, rng);
        if (ids[n] < 0) {
            printf("{\"stuck\":true}\n");
            break;
        }
        bytes = vocabulary_bytes(vocabulary, (uint32_t)ids[n], !n, &len);
        str_addn(&text, bytes, len);
        n++;
    }
    if (timed)
        printf("{\"tokens\":%zu,\"mean\":%.3g,\"worst\":%.3g}\n", n,
               spent / (double)(n + 1), worst);
    else {
        struct str out = { 0 };

        str_add(&out, "{\"text\":");
        str_add_jsonn(&out, str_text(&text), text.len);
        str_addf(&out, ",\"whole\":%s}\n", whole ? "true" : "false");
        fputs(str_text(&out), stdout);
        str_clear(&out);
    }
    str_clear(&text);
    free(ids);
    grammar_cursor_clear(&c);
    return whole;
}

static void print_mask(struct grammar *g, const struct json *list)
{
    struct grammar_cursor c = { 0 };
    int32_t *ids = xcalloc(list ? list->n + 1 : 1, sizeof(*ids));
    struct grammar_next next;
    size_t n = 0;
    bool first = true;

    for (const struct json *j = list ? list->first : NULL; j; j = j->next) {
        uint64_t id = 0;

        if (json_u64(j, &id))
            ids[n++] = (int32_t)id;
    }
    next = grammar_follow(g, &c, ids, n);
    printf("{\"may_end\":%s,\"allowed\":[", next.may_end ? "true" : "false");
    for (size_t i = 0; i < next.words * 32; i++)
        if (next.allowed[i / 32] >> i % 32 & 1) {
            printf(first ? "%zu" : ",%zu", i);
            first = false;
        }
    printf("]}\n");
    free(ids);
    grammar_cursor_clear(&c);
}

int main(int argc, char **argv)
{
    struct err err = { 0 };
    struct tokenizer *t;
    struct rng rng;
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;

    if (argc < 3 || tokenizer_open(&t, argv[2], &err) < 0 ||
        vocabulary_open(&vocabulary, t, &err) < 0) {
        fprintf(stderr, "try-grammar: %s\n", err.text);
        return 2;
    }
    rng_init(&rng, argc > 3 ? strtoull(argv[3], NULL, 10) : 0, 0);
    vocabulary_prepare(vocabulary);
    while ((n = getline(&line, &cap, stdin)) > 0) {
        struct json_doc doc;
        struct grammar *g;

        if (json_parse(&doc, "schema", line, (size_t)n, &err) < 0) {
            print_error(&err);
            continue;
        }
        if (open_line(&g, &doc, &err) < 0)
            print_error(&err);
        else {
            const struct json *text = json_get(doc.root, "text");

            if (!strcmp(argv[1], "has"))
                printf("{\"has\":%s}\n",
                       grammar_has(g, json_string(text), text->n) ? "true" : "false");
            else if (!strcmp(argv[1], "masks"))
                print_mask(g, json_get(doc.root, "ids"));
            for (long i = 0; argc > 5 && i < strtol(argv[4], NULL, 10); i++)
                make_one(g, &rng, strtoull(argv[5], NULL, 10), *argv[1] == 't');
            if (grammar_failed(g))
                printf("{\"failed\":\"%s\"}\n", grammar_failed(g));
            grammar_drop(g);
        }
        json_clear(&doc);
        fflush(stdout);
    }
    free(line);
    vocabulary_free(vocabulary);
    tokenizer_free(t);
    return 0;
}
