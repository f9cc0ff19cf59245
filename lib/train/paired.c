/* paired - lines of two texts, such as a question and what it is asked of
 *
 * The tokenizer joins them as its post-processor says, which also tells the type of
 * each token. */
#include <stdlib.h>
#include <string.h>

#include "lib/base/json.h"
#include "lib/base/mem.h"
#include "lib/train/textline.h"

static int add_type(const struct texts_options *o, uint64_t type, struct line *line,
                    struct err *err)
{
    if (type >= o->types)
        return err_set(err, ERR_INPUT, "token type %llu, and the model has %u",
                       (unsigned long long)type, o->types);
    tokens_add(&line->types, (uint32_t)type);
    return 0;
}

int paired_types(const struct texts_options *o, const struct json *root,
                 struct line *line, struct err *err)
{
    const struct json *list = json_get(root, "token_type_ids");
    int ret = 0;

    if (!o->types)
        return err_set(err, ERR_INPUT, "'token_type_ids': the model has no types");
    if (list->type != JSON_ARRAY)
        return err_set(err, ERR_INPUT, "'token_type_ids' is no list");
    if (list->n != line->ids.n)
        return err_set(err, ERR_INPUT, "%u types in 'token_type_ids' for %zu ids",
                       list->n, line->ids.n);
    for (list = list->first; list && ret == 0; list = list->next) {
        uint64_t type;

        ret = json_u64(list, &type)
                  ? add_type(o, type, line, err)
                  : err_set(err, ERR_INPUT, "'token_type_ids' holds what is no type");
    }
    return ret;
}

/* Appends FIRST and SECOND, where the second one's tokens are in RANGE, and with PLACES
 * where each token is in its text. */
static int add_pair(const struct texts_options *o, const struct json *first,
                    const struct json *second, bool places, size_t range[2],
                    struct line *line, struct err *err)
{
    struct tokens types = { 0 };
    int ret;

    line->ids.traced = places;
    ret = !o->tokenizer
              ? err_set(err, ERR_INPUT, "a text, and there is no tokenizer.json")
              : tokenizer_encode_pair(o->tokenizer, first->text, first->n, second->text,
                                      second->n, &line->ids, &types, range, err);
    for (size_t i = 0; i < line->ids.n && ret == 0; i++)
        if (o->vocab && line->ids.id[i] >= o->vocab)
            ret = err_set(err, ERR_INPUT, "id %u, and the vocabulary has %llu",
                          line->ids.id[i], (unsigned long long)o->vocab);
    for (size_t i = 0; i < types.n && ret == 0 && o->types; i++)
        ret = add_type(o, types.id[i], line, err);
    tokens_clear(&types);
    return ret;
}

int paired_text(const struct texts_options *o, const struct json *root,
                struct line *line, struct err *err)
{
    const struct json *text = json_get(root, "text"), *pair = json_get(root, "pair");
    size_t range[2];

    if (!text || text->type != JSON_STRING || pair->type != JSON_STRING)
        return err_set(err, ERR_INPUT, "'pair' is a text beside a 'text'");
    return add_pair(o, text, pair, false, range, line, err);
}

/* ---- questions ---- */

/* The byte of TEXT at which its character AT is; SIZE_MAX: it has none. */
static size_t byte_of(const char *text, uint64_t at)
{
    size_t i = 0;

    for (; text[i]; i++)
        if (((unsigned char)text[i] & 0xc0) != 0x80 && !at--)
            return i;
    return at ? SIZE_MAX : i;
}

/* The tokens of the context in which the bytes [FROM, TO) begin and end, as values. */
static void add_places(const struct squad_text *t, size_t from, size_t to,
                       struct line *line)
{
    size_t first = t->low, last = t->high - 1;

    while (first + 1 < t->high && t->place[first + 1].start <= from)
        first++;
    while (last > t->low && t->place[last - 1].end >= to)
        last--;
    line_add_value(line, (double)first);
    line_add_value(line, (double)last);
}

/* Reads the answers to a question of T, the first of which is learned; of none the
 * first token. */
static int read_answers(const struct json *answers, struct squad_text *t,
                        struct line *line, struct err *err)
{
    const struct json *text = json_get(answers, "text"),
                      *start = json_get(answers, "answer_start");
    uint64_t at;
    size_t from;

    if (!text || !start || text->type != JSON_ARRAY || start->type != JSON_ARRAY ||
        text->n != start->n)
        return err_set(err, ERR_INPUT,
                       "'answers' has no lists 'text' and 'answer_start' of the same "
                       "length");
    t->answer = xcalloc(text->n + 1, sizeof(*t->answer));
    for (text = text->first, start = start->first; text;
         text = text->next, start = start->next) {
        if (text->type != JSON_STRING || !text->n || !json_u64(start, &at))
            return err_set(err, ERR_INPUT,
                           "an answer is a text and the number of the character of "
                           "'context' that it begins with, from 0");
        from = byte_of(t->context, at);
        if (from == SIZE_MAX || strncmp(t->context + from, text->text, text->n) != 0)
            return err_set(err, ERR_INPUT,
                           "the answer '%.40s' is not at character %llu of 'context'",
                           text->text, (unsigned long long)at);
        if (!t->answers)
            add_places(t, from, from + text->n, line);
        t->answer[t->answers++] = xstrdup(text->text);
    }
    if (!t->answers) {
        line_add_value(line, 0);
        line_add_value(line, 0);
    }
    return 0;
}

int paired_question(const struct texts_options *o, const struct json *root,
                    struct line *line, struct err *err)
{
    const char *const keys[] = { "question", "context", "answers" };
    const struct json *part[3];
    struct squad_text *t;
    size_t range[2] = { 0, 0 };

    for (int k = 0; k < 3; k++) {
        part[k] = json_get(root, keys[k]);
        if (!part[k])
            return err_set(err, ERR_INPUT, "no '%s'", keys[k]);
        if (part[k]->type != (k < 2 ? JSON_STRING : JSON_OBJECT))
            return err_set(err, ERR_INPUT, "'%s' is no %s", keys[k],
                           k < 2 ? "text" : "object");
    }
    if (strlen(part[1]->text) != part[1]->n)
        return err_set(err, ERR_INPUT, "'context' has a character 0");
    if (add_pair(o, part[0], part[1], true, range, line, err) < 0)
        return -1;
    if (range[1] <= range[0])
        return err_set(err, ERR_INPUT, "a 'context' without a token");
    t = line->quoted = xcalloc(1, sizeof(*t));
    t->context = xstrdup(part[1]->text);
    t->n = line->ids.n;
    t->place = xcalloc(t->n, sizeof(*t->place));
    memcpy(t->place, line->ids.from, t->n * sizeof(*t->place));
    t->low = range[0];
    t->high = range[1];
    return read_answers(part[2], t, line, err);
}
