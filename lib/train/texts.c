/* texts - tokenizes files of text or JSON lines, document by document
 *
 * Memory is bounded: a piece of the file is read, threads tokenize its lines, and their
 * results are passed on in order before the next piece. */
#include "lib/train/texts.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/jsonlex.h"
#include "lib/base/mem.h"
#include "lib/base/json.h"
#include "lib/train/textfile.h"
#include "lib/train/textline.h"

enum { PIECE = 1 << 20, MOST_THREADS = 256 };

struct batch {
    const struct texts_options *o;
    const char *name;
    struct line *line;
    size_t n, cap;
    atomic_size_t next; /* next line to be taken by a thread */
    pthread_mutex_t lock;
    size_t bad; /* first malformed line; SIZE_MAX: none */
    struct err why;
};

/* ---- lines ---- */

void line_clear(struct line *line)
{
    tokens_clear(&line->ids);
    tokens_clear(&line->types);
    tokens_clear(&line->source);
    free(line->learn);
    free(line->label);
    free(line->value);
    free(line->part);
    squad_text_free(line->quoted);
    for (size_t i = 0; i < line->nmore; i++)
        line_clear(&line->more[i]);
    free(line->more);
    *line = (struct line){ 0 };
}

struct line *line_more(struct line *line)
{
    line->more =
        xgrow(line->more, &line->more_cap, line->nmore + 1, sizeof(*line->more));
    line->more[line->nmore] = (struct line){ 0 };
    return &line->more[line->nmore++];
}

void line_add_value(struct line *line, double x)
{
    line->value =
        xgrow(line->value, &line->value_cap, line->nvalues + 1, sizeof(*line->value));
    line->value[line->nvalues++] = x;
}

void line_add_part(struct line *line, size_t given)
{
    line->part =
        xgrow(line->part, &line->part_cap, line->parts + 1, sizeof(*line->part));
    line->part[line->parts++] = (struct texts_part){ line->ids.n, given };
}

/* ---- ids ---- */

static int check_below(uint64_t vocab, uint64_t id, struct err *err)
{
    uint64_t limit = vocab ? vocab : INT32_MAX;

    return id < limit ? 0
                      : err_set(err, ERR_INPUT, "id %llu, and the vocabulary has %llu",
                                (unsigned long long)id, (unsigned long long)limit);
}

static int check_id(const struct texts_options *o, uint64_t id, struct err *err)
{
    return check_below(o->vocab, id, err);
}

static int encode_below(const struct texts_options *o, uint64_t vocab, const char *text,
                        size_t len, struct tokens *out, struct err *err)
{
    if (!o->tokenizer)
        return err_set(err, ERR_INPUT, "a text, and there is no tokenizer.json");
    if (tokenizer_encode(o->tokenizer, text, len, true, out, err) < 0)
        return -1;
    for (size_t i = 0; i < out->n; i++)
        if (check_below(vocab, out->id[i], err) < 0)
            return -1;
    return 0;
}

int line_encode(const struct texts_options *o, const char *text, size_t len,
                struct tokens *out, struct err *err)
{
    return encode_below(o, o->vocab, text, len, out, err);
}

void line_end(const struct texts_options *o, struct tokens *ids)
{
    if (o->end_id >= 0 && ids->n && ids->id[ids->n - 1] != (uint32_t)o->end_id)
        tokens_add(ids, (uint32_t)o->end_id);
}

int line_encode_pair(const struct texts_options *o, struct str *prompt,
                     const char *completion, size_t len, struct line *line,
                     struct err *err)
{
    struct tokens alone = { 0 };
    int ret = -1;

    if (line_encode(o, str_text(prompt), prompt->len, &alone, err) < 0)
        goto out;
    str_addn(prompt, completion, len);
    if (line_encode(o, str_text(prompt), prompt->len, &line->ids, err) < 0)
        goto out;
    while (line->given < alone.n && line->given < line->ids.n &&
           alone.id[line->given] == line->ids.id[line->given])
        line->given++;
    ret = 0;
out:
    tokens_clear(&alone);
    return ret;
}

/* ---- JSON lines ---- */

enum {
    FIELD_TEXT,
    FIELD_IDS,
    FIELD_PROMPT,
    FIELD_COMPLETION,
    FIELD_MESSAGES,
    FIELD_LABEL, /* these two where there are to be labels */
    FIELD_LABELS,
    FIELD_CHOSEN, /* and these of pairs */
    FIELD_REJECTED,
    FIELD_CHOSEN_LOGP,
    FIELD_REJECTED_LOGP,
    FIELD_SOURCE, /* and these of a text that is made of a source */
    FIELD_SOURCE_IDS,
    FIELD_TARGET,
    FIELD_TARGET_IDS,
    FIELD_START, /* and these of an answer in a text */
    FIELD_END,
    FIELD_TYPES, /* of these and those below the line is read again */
    FIELD_PAIR,
    FIELD_QUESTION,
    FIELD_CONTEXT,
    FIELD_ANSWERS,
    FIELDS
};
static const char *const field_names[] = { "text",
                                           "ids",
                                           "prompt",
                                           "completion",
                                           "messages",
                                           "label",
                                           "labels",
                                           "chosen",
                                           "rejected",
                                           "ref_chosen_logps",
                                           "ref_rejected_logps",
                                           "source",
                                           "source_ids",
                                           "target",
                                           "target_ids",
                                           "start_positions",
                                           "end_positions",
                                           "token_type_ids",
                                           "pair",
                                           "question",
                                           "context",
                                           "answers" };

/* The fields of a line. */
struct fields {
    bool has[FIELDS];
    struct str text, completion; /* the text or the prompt, and the completion */
    struct str answer[2];        /* chosen and rejected, */
    struct tokens ids[3];        /* or their ids, and those of the prompt */
};

static int read_ids(struct jsonlex *lex, uint64_t vocab, struct tokens *ids,
                    struct err *err)
{
    struct err why = { 0 };
    uint64_t id;

    if (lex->token != JSONLEX_ARRAY)
        return jsonlex_error(lex, err, "'ids' is no list");
    while (jsonlex_next(lex, err) == 0) {
        if (lex->token == JSONLEX_ARRAY_END)
            return 0;
        if (lex->token != JSONLEX_NUMBER || !str_u64(str_text(&lex->text), &id))
            return jsonlex_error(lex, err, "'ids' holds what is no id");
        if (check_below(vocab, id, &why) < 0)
            return jsonlex_error(lex, err, "%s", why.text);
        tokens_add(ids, (uint32_t)id);
    }
    return -1;
}

/* Reads the label that LEX is at: a number, or the name of a class.  -1, null and -100,
 * which PyTorch ignores: none. */
static int read_label(struct jsonlex *lex, const struct texts_options *o,
                      struct line *line, struct err *err)
{
    const char *text = str_text(&lex->text);
    int64_t label = -1;
    uint64_t id;

    if (lex->token == JSONLEX_NUMBER && str_u64(text, &id))
        label = id < o->classes ? (int64_t)id : INT64_MAX;
    else if (lex->token == JSONLEX_STRING)
        for (label = 0; (size_t)label < o->classes; label++)
            if (o->class_name && !strcmp(o->class_name[label], text))
                break;
    if (lex->token == JSONLEX_STRING && label == (int64_t)o->classes)
        return jsonlex_error(lex, err, "'%s' is no class of the model", text);
    if (label > INT32_MAX)
        return jsonlex_error(lex, err, "label %s, and the model has %zu classes", text,
                             o->classes);
    if (lex->token != JSONLEX_STRING && lex->token != JSONLEX_NULL && label < 0 &&
        strcmp(text, "-1") != 0 && strcmp(text, "-100") != 0)
        return jsonlex_error(lex, err, "a label is a number or the name of a class");
    line->label =
        xgrow(line->label, &line->label_cap, line->nlabels + 1, sizeof(*line->label));
    line->label[line->nlabels++] = (int32_t)label;
    return 0;
}

/* Reads a number, or a list of them. */
static int read_values(struct jsonlex *lex, int field, struct line *line,
                       struct err *err)
{
    const bool list = lex->token == JSONLEX_ARRAY;
    double x;

    while (!list || jsonlex_next(lex, err) == 0) {
        if (list && lex->token == JSONLEX_ARRAY_END)
            return 0;
        if (lex->token != JSONLEX_NUMBER || !str_double(str_text(&lex->text), &x))
            return jsonlex_error(lex, err, "'%s' is no number", field_names[field]);
        line_add_value(line, x);
        if (!list)
            return 0;
    }
    return -1;
}

/* Reads the first or the last token of an answer; -1: it is not in the text. */
static int read_place(struct jsonlex *lex, int field, struct line *line,
                      struct err *err)
{
    const char *text = str_text(&lex->text);
    uint64_t at = 0;

    while (line->nvalues < 2)
        line_add_value(line, -1);
    if (lex->token != JSONLEX_NUMBER ||
        (strcmp(text, "-1") != 0 && !str_u64(text, &at)))
        return jsonlex_error(lex, err, "'%s' is no number of a token, from 0, nor -1",
                             field_names[field]);
    line->value[field == FIELD_END] = *text == '-' ? -1 : (double)at;
    return 0;
}

static int read_labels(struct jsonlex *lex, const struct texts_options *o,
                       struct line *line, struct err *err)
{
    if (lex->token != JSONLEX_ARRAY)
        return jsonlex_error(lex, err, "'labels' is no list");
    while (jsonlex_next(lex, err) == 0) {
        if (lex->token == JSONLEX_ARRAY_END)
            return 0;
        if (read_label(lex, o, line, err) < 0)
            return -1;
    }
    return -1;
}

/* Reads a text to S, or ids to IDS. */
static int read_either(struct jsonlex *lex, uint64_t vocab, int field, struct str *s,
                       struct tokens *ids, struct err *err)
{
    if (lex->token == JSONLEX_ARRAY)
        return read_ids(lex, vocab, ids, err);
    if (lex->token != JSONLEX_STRING)
        return jsonlex_error(lex, err, "'%s' is neither a text nor ids",
                             field_names[field]);
    str_addn(s, lex->text.s ? lex->text.s : "", lex->text.len);
    return 0;
}

/* Reads a text of a pair, or its ids, or a likelihood. */
static int read_pair_field(struct jsonlex *lex, const struct texts_options *o,
                           int field, struct fields *f, struct line *line,
                           struct err *err)
{
    const int of = field == FIELD_PROMPT ? 2 : field == FIELD_CHOSEN ? 0 : 1;
    struct str *s = of == 2 ? &f->text : &f->answer[of];

    if (field == FIELD_CHOSEN_LOGP || field == FIELD_REJECTED_LOGP) {
        double *x = &line->reference[field == FIELD_REJECTED_LOGP];

        if (lex->token != JSONLEX_NUMBER || !str_double(str_text(&lex->text), x))
            return jsonlex_error(lex, err, "'%s' is no number", field_names[field]);
        if (!o->unscored && *x > LIKELIHOOD_SLACK)
            return jsonlex_error(lex, err,
                                 "'%s' is %g, and no log-likelihood is above 0",
                                 field_names[field], *x);
        *x = -*x;
        return 0;
    }
    return read_either(lex, o->vocab, field, s, &f->ids[of], err);
}

/* Reads a source or a target, or its ids. */
static int read_end(struct jsonlex *lex, const struct texts_options *o, int field,
                    struct fields *f, struct line *line, struct err *err)
{
    const bool source = field < FIELD_TARGET;

    return source
               ? read_either(lex, o->source_vocab, field, &f->text, &line->source, err)
               : read_either(lex, o->vocab, field, &f->answer[0], &line->ids, err);
}

static bool has_answers(enum texts_labels labels)
{
    return labels == TEXTS_PAIRS || labels == TEXTS_ANSWERS;
}

static int read_field(struct jsonlex *lex, const struct texts_options *o, int field,
                      struct fields *f, struct line *line, struct err *err)
{
    struct str *s = field == FIELD_COMPLETION ? &f->completion : &f->text;

    if (f->has[field])
        return jsonlex_error(lex, err, "'%s' is there twice", field_names[field]);
    f->has[field] = true;
    if (jsonlex_next(lex, err) < 0)
        return -1;
    if (field == FIELD_IDS)
        return read_ids(lex, o->vocab, &line->ids, err);
    if (field >= FIELD_TYPES)
        return jsonlex_skip(lex, err);
    if (o->labels == TEXTS_SPAN && field >= FIELD_START)
        return read_place(lex, field, line, err);
    if ((o->labels == TEXTS_VALUE && field == FIELD_LABEL) ||
        (o->labels == TEXTS_VALUES && field == FIELD_LABELS))
        return read_values(lex, field, line, err);
    if (field >= FIELD_SOURCE)
        return read_end(lex, o, field, f, line, err);
    if (field >= FIELD_CHOSEN || (has_answers(o->labels) && field == FIELD_PROMPT))
        return read_pair_field(lex, o, field, f, line, err);
    if (field == FIELD_LABEL)
        return read_label(lex, o, line, err);
    if (field == FIELD_LABELS)
        return read_labels(lex, o, line, err);
    if (field == FIELD_MESSAGES) /* the line is read again, with its tools */
        return jsonlex_skip(lex, err);
    if (lex->token != JSONLEX_STRING)
        return jsonlex_error(lex, err, "'%s' is no text", field_names[field]);
    str_addn(s, lex->text.s ? lex->text.s : "", lex->text.len);
    return 0;
}

/* Is FIELD read where lines have these labels?  Others are as fields without a name. */
static bool is_read(int field, enum texts_labels labels)
{
    if (labels == TEXTS_TARGETS)
        return field >= FIELD_SOURCE && field < FIELD_START;
    if (has_answers(labels))
        return field == FIELD_PROMPT || field == FIELD_CHOSEN ||
               field == FIELD_REJECTED ||
               (labels == TEXTS_PAIRS && field > FIELD_REJECTED &&
                field < FIELD_SOURCE);
    return field < FIELD_LABEL ||
           (field == FIELD_LABEL && (labels == TEXTS_LABEL || labels == TEXTS_VALUE)) ||
           (field == FIELD_LABELS &&
            (labels == TEXTS_LABELS || labels == TEXTS_VALUES)) ||
           (field >= FIELD_START && field <= FIELD_END && labels == TEXTS_SPAN) ||
           (field >= FIELD_QUESTION && labels == TEXTS_SPAN) ||
           (field == FIELD_TYPES && labels != TEXTS_NO_LABELS) ||
           (field == FIELD_PAIR &&
            (labels == TEXTS_LABEL || labels == TEXTS_VALUE || labels == TEXTS_VALUES));
}

static int read_object(struct jsonlex *lex, const struct texts_options *o,
                       struct fields *f, struct line *line, struct err *err)
{
    if (jsonlex_next(lex, err) < 0)
        return -1;
    if (lex->token != JSONLEX_OBJECT)
        return jsonlex_error(lex, err,
                             "no object with 'text', 'ids', 'prompt' or 'messages'");
    while (jsonlex_next(lex, err) == 0) {
        int field = 0;

        if (lex->token == JSONLEX_OBJECT_END)
            return jsonlex_next(lex, err); /* nothing may follow the object */
        while (field < FIELDS && strcmp(str_text(&lex->text), field_names[field]) != 0)
            field++;
        if (field < FIELDS && is_read(field, o->labels)
                ? read_field(lex, o, field, f, line, err) < 0
                : jsonlex_next(lex, err) < 0 || jsonlex_skip(lex, err) < 0)
            return -1;
    }
    return -1;
}

/* A pair has all of its fields. */
static int check_pair(const struct texts_options *o, const struct fields *f,
                      struct err *err)
{
    static const int all[] = { FIELD_PROMPT, FIELD_CHOSEN, FIELD_REJECTED,
                               FIELD_CHOSEN_LOGP, FIELD_REJECTED_LOGP };
    const bool ids = f->ids[0].n;

    for (size_t i = 0;
         i <
         (o->labels == TEXTS_PAIRS && !o->unscored ? sizeof(all) / sizeof(*all) : 3);
         i++)
        if (!f->has[all[i]])
            return err_set(err, ERR_INPUT, "no '%s'", field_names[all[i]]);
    for (int k = 0; k < 2; k++)
        if (!f->ids[k].n && !f->answer[k].len)
            return err_set(err, ERR_INPUT, "an empty '%s'", field_names[all[1 + k]]);
    if ((f->ids[1].n > 0) != ids || (f->ids[2].n > 0) != ids)
        return err_set(err, ERR_INPUT,
                       "'prompt', 'chosen' and 'rejected' are all texts, or all ids");
    return 0;
}

/* Exactly one of: text; ids; prompt and completion; messages. */
static int check_fields(const struct fields *f, struct err *err)
{
    static const int own[] = { FIELD_TEXT, FIELD_PROMPT, FIELD_IDS, FIELD_MESSAGES };
    const bool *has = f->has;
    const char *first = NULL;

    for (size_t i = 0; i < sizeof(own) / sizeof(*own); i++) {
        if (!has[own[i]])
            continue;
        if (first)
            return err_set(err, ERR_INPUT, "'%s' and '%s' are both there", first,
                           field_names[own[i]]);
        first = field_names[own[i]];
    }
    if (!first)
        return err_set(err, ERR_INPUT, "no 'text', 'ids', 'prompt' or 'messages'");
    if (has[FIELD_PROMPT] != has[FIELD_COMPLETION])
        return err_set(err, ERR_INPUT, "'%s' without '%s'",
                       has[FIELD_PROMPT] ? "prompt" : "completion",
                       has[FIELD_PROMPT] ? "completion" : "prompt");
    return 0;
}

/* A line with labels has one, or as many as tokens, and is no answer to a prompt. */
static int check_labels(const struct texts_options *o, const struct fields *f,
                        const struct line *line, struct err *err)
{
    const int field = o->labels == TEXTS_LABEL || o->labels == TEXTS_VALUE ? FIELD_LABEL
                      : o->labels == TEXTS_SPAN                            ? FIELD_END
                                                : FIELD_LABELS;
    const bool numbers = o->labels == TEXTS_VALUE || o->labels == TEXTS_VALUES;

    if (o->labels == TEXTS_NO_LABELS)
        return 0;
    if (!f->has[field])
        return err_set(err, ERR_INPUT, "no '%s'", field_names[field]);
    if (o->labels == TEXTS_SPAN && !f->has[FIELD_START])
        return err_set(err, ERR_INPUT, "no '%s'", field_names[FIELD_START]);
    if (o->labels == TEXTS_SPAN && (line->value[0] < 0) != (line->value[1] < 0))
        return err_set(err, ERR_INPUT, "an answer of which one end is not in the text");
    if (o->labels == TEXTS_SPAN && line->value[1] < line->value[0])
        return err_set(err, ERR_INPUT, "an answer that ends before it begins");
    if (numbers && line->nvalues != o->classes)
        return err_set(err, ERR_INPUT, "%zu numbers in '%s', and the model has %zu",
                       line->nvalues, field_names[field], o->classes);
    for (size_t i = 0; o->labels == TEXTS_VALUES && i < line->nvalues; i++)
        if (!(line->value[i] >= 0 && line->value[i] <= 1))
            return err_set(err, ERR_INPUT, "'%s' has %g, and is from 0 to 1",
                           field_names[field], line->value[i]);
    if (numbers && (f->has[FIELD_IDS] || f->has[FIELD_TEXT]))
        return 0;
    if (!f->has[FIELD_IDS] && (field != FIELD_LABEL || !f->has[FIELD_TEXT]))
        return err_set(err, ERR_INPUT, "'%s' goes with %s", field_names[field],
                       field == FIELD_LABEL ? "'text' or 'ids'" : "'ids'");
    if (o->labels == TEXTS_LABELS && line->nlabels != line->ids.n)
        return err_set(err, ERR_INPUT, "%zu labels for %zu ids", line->nlabels,
                       line->ids.n);
    return 0;
}

/* Appends the prompt and answer OF to the line, as a document. */
static int encode_answer(const struct texts_options *o, const struct fields *f, int of,
                         struct line *line, struct err *err)
{
    struct line one = { 0 };
    struct str prompt = { 0 };
    int ret = 0;

    if (f->ids[0].n) {
        for (size_t i = 0; i < f->ids[2].n; i++)
            tokens_add(&one.ids, f->ids[2].id[i]);
        for (size_t i = 0; i < f->ids[of].n; i++)
            tokens_add(&one.ids, f->ids[of].id[i]);
        one.given = f->ids[2].n;
    } else {
        str_addn(&prompt, str_text(&f->text), f->text.len);
        ret = line_encode_pair(o, &prompt, str_text(&f->answer[of]), f->answer[of].len,
                               &one, err);
        line_end(o, &one.ids);
    }
    if (ret == 0)
        line_add_part(line, one.given);
    for (size_t i = 0; i < one.ids.n && ret == 0; i++)
        tokens_add(&line->ids, one.ids.id[i]);
    tokens_clear(&one.ids);
    str_clear(&prompt);
    return ret;
}

static int encode_answers(const struct texts_options *o, const struct fields *f,
                          struct line *line, struct err *err)
{
    return check_pair(o, f, err) < 0 || encode_answer(o, f, 0, line, err) < 0
               ? -1
               : encode_answer(o, f, 1, line, err);
}

/* A source and a target, each a text or ids. */
static int encode_ends(const struct texts_options *o, const struct fields *f,
                       struct line *line, struct err *err)
{
    for (int end = 0; end < 2; end++) {
        const int text = end ? FIELD_TARGET : FIELD_SOURCE;
        const struct str *s = end ? &f->answer[0] : &f->text;
        struct tokens *ids = end ? &line->ids : &line->source;

        if (f->has[text] == f->has[text + 1])
            return err_set(err, ERR_INPUT,
                           f->has[text] ? "'%s' and '%s' are both there"
                                        : "neither '%s' nor '%s'",
                           field_names[text], field_names[text + 1]);
        if (!ids->n && s->len &&
            encode_below(o, end ? o->vocab : o->source_vocab, str_text(s), s->len, ids,
                         err) < 0)
            return -1;
        if (!ids->n)
            return err_set(err, ERR_INPUT, "an empty '%s'", field_names[text]);
    }
    return 0;
}

/* A source is not longer than the model takes. */
static int check_source(const struct texts_options *o, const struct line *line,
                        struct err *err)
{
    return o->source_most && line->source.n > o->source_most
               ? err_set(err, ERR_INPUT, "a source of %zu tokens; the model takes %zu",
                         line->source.n, o->source_most)
               : 0;
}

static int encode_chat(const struct batch *b, struct line *line, struct err *err)
{
    const struct chats_options chats = { .chat = b->o->chat,
                                         .tokenizer = b->o->tokenizer,
                                         .last_answer = b->o->last_answer };
    struct json_doc doc;
    int ret;

    if (!chats.chat || !chats.tokenizer)
        return err_set(err, ERR_INPUT, "'messages': %s",
                       b->o->no_chat     ? b->o->no_chat
                       : chats.tokenizer ? "the model has no chat template"
                                         : "there is no tokenizer.json");
    if (json_parse(&doc, b->name, line->text, line->len, err) < 0)
        return -1;
    ret = chats_encode(&chats, doc.root, &line->ids, &line->learn, err);
    json_clear(&doc);
    for (size_t i = 0; i < line->ids.n && ret == 0; i++)
        ret = check_id(b->o, line->ids.id[i], err);
    while (ret == 0 && line->given < line->ids.n && !line->learn[line->given])
        line->given++;
    return ret;
}

/* Reads the line again, by READ. */
static int read_again(const struct batch *b, struct line *line,
                      int (*read)(const struct texts_options *o,
                                  const struct json *root, struct line *line,
                                  struct err *err),
                      struct err *err)
{
    struct json_doc doc;
    int ret;

    if (json_parse(&doc, b->name, line->text, line->len, err) < 0)
        return -1;
    ret = read(b->o, doc.root, line, err);
    json_clear(&doc);
    return ret;
}

/* A text with its labels, or two. */
static int encode_labelled(const struct batch *b, const struct fields *f,
                           struct line *line, struct err *err)
{
    if (f->has[FIELD_TYPES] && !f->has[FIELD_IDS])
        return err_set(err, ERR_INPUT, "'%s' goes with 'ids'",
                       field_names[FIELD_TYPES]);
    if (f->has[FIELD_TYPES])
        return read_again(b, line, paired_types, err);
    if (f->has[FIELD_PAIR])
        return read_again(b, line, paired_text, err);
    return f->has[FIELD_TEXT]
               ? line_encode(b->o, str_text(&f->text), f->text.len, &line->ids, err)
               : 0;
}

/* Makes the ids of a line of fields F. */
static int encode_line(const struct batch *b, struct fields *f, struct line *line,
                       struct err *err)
{
    int ret;

    if (f->has[FIELD_QUESTION] || f->has[FIELD_CONTEXT])
        return f->has[FIELD_IDS] || f->has[FIELD_START] || f->has[FIELD_END]
                   ? err_set(err, ERR_INPUT,
                             "'ids' and places of tokens do not go with 'question' and "
                             "'context'")
                   : read_again(b, line, paired_question, err);
    ret = check_fields(f, err);
    if (ret == 0)
        ret = check_labels(b->o, f, line, err);
    if (ret == 0 && (f->has[FIELD_PROMPT] || f->has[FIELD_MESSAGES]) && b->o->strict)
        ret = err_set(err, ERR_INPUT,
                      "'%s': which tokens are learnt has no place in a token file",
                      f->has[FIELD_PROMPT] ? "prompt" : "messages");
    if (ret == 0 && f->has[FIELD_MESSAGES])
        ret = encode_chat(b, line, err);
    if (ret == 0)
        ret = encode_labelled(b, f, line, err);
    if (ret == 0 && f->has[FIELD_PROMPT])
        ret = line_encode_pair(b->o, &f->text, str_text(&f->completion),
                               f->completion.len, line, err);
    if (ret == 0 && !f->has[FIELD_IDS] && !f->has[FIELD_MESSAGES] &&
        b->o->labels == TEXTS_NO_LABELS)
        line_end(b->o, &line->ids);
    return ret;
}

/* Prefixes an error with the line number, unless the JSON reader has named it. */
static int read_rated(const struct batch *b, struct line *line, struct err *err)
{
    struct json_doc doc = { 0 };
    int ret = json_reparse(&doc, b->name, line->number, line->text, line->len, err);

    if (ret == 0 && rated_read(b->o, doc.root, line, err) < 0)
        ret = err_prefix(err, "%s:%u", b->name, line->number);
    json_clear(&doc);
    return ret;
}

/* As read_rated, of lines that are read while they are parsed. */
static int read_line(const struct batch *b, struct line *line, struct err *err)
{
    struct fields f = { 0 };
    struct jsonlex lex;
    int ret = -1;

    if (b->o->labels >= TEXTS_CHOICES)
        return read_rated(b, line, err);
    jsonlex_init_at(&lex, b->name, line->number, line->col, line->text, line->len);
    if (read_object(&lex, b->o, &f, line, err) == 0) {
        ret = has_answers(b->o->labels)       ? encode_answers(b->o, &f, line, err)
              : b->o->labels == TEXTS_TARGETS ? encode_ends(b->o, &f, line, err)
                                              : encode_line(b, &f, line, err);
        if (ret == 0)
            ret = check_source(b->o, line, err);
        if (ret < 0)
            err_prefix(err, "%s:%u", b->name, line->number);
    }
    str_clear(&f.text);
    str_clear(&f.completion);
    for (int i = 0; i < 3; i++)
        tokens_clear(&f.ids[i]);
    str_clear(&f.answer[0]);
    str_clear(&f.answer[1]);
    jsonlex_clear(&lex);
    return ret;
}

/* ---- threads ---- */

static void *read_lines(void *arg)
{
    struct batch *b = arg;
    struct err err;
    size_t i;

    while ((i = atomic_fetch_add(&b->next, 1)) < b->n) {
        if (read_line(b, &b->line[i], &err) == 0)
            continue;
        pthread_mutex_lock(&b->lock);
        if (i < b->bad) {
            b->bad = i;
            b->why = err;
        }
        pthread_mutex_unlock(&b->lock);
        break; /* lines before it are taken; those after it are not needed */
    }
    return NULL;
}

/* Runs fewer threads when the system refuses some. */
static void run_threads(struct batch *b)
{
    int most = b->o->threads < MOST_THREADS ? b->o->threads : MOST_THREADS, n = 0;
    pthread_t thread[MOST_THREADS];

    atomic_store(&b->next, 0);
    b->bad = SIZE_MAX;
    while (n < most - 1 && (size_t)n + 1 < b->n &&
           pthread_create(&thread[n], NULL, read_lines, b) == 0)
        n++;
    read_lines(b);
    while (n > 0)
        pthread_join(thread[--n], NULL);
}

static void clear_lines(struct batch *b)
{
    for (size_t i = 0; i < b->n; i++)
        line_clear(&b->line[i]);
    b->n = 0;
}

/* Splits TEXT[n] into lines, skipping empty ones; *number is the first line's
 * number. */
static void split_lines(struct batch *b, const char *text, size_t n, uint32_t *number)
{
    for (const char *p = text, *limit = text + n; p < limit; ++*number) {
        const char *end = memchr(p, '\n', (size_t)(limit - p));

        if (!end)
            end = limit;
        if (end > p && !(end == p + 1 && *p == '\r')) {
            b->line = xgrow(b->line, &b->cap, b->n + 1, sizeof(*b->line));
            b->line[b->n++] = (struct line){
                .text = p, .len = (size_t)(end - p), .number = *number, .col = 1
            };
        }
        p = end + 1;
    }
}

static bool continues(enum texts_labels labels)
{
    return has_answers(labels) || labels == TEXTS_JUDGED || labels == TEXTS_DRAWN ||
           labels == TEXTS_TAUGHT;
}

/* Passes on the samples of line FROM: those of L and of its further ones. */
static int give_samples(const struct batch *b, const struct line *from,
                        const struct line *l,
                        int (*see)(void *arg, const struct texts_document *document,
                                   struct err *err),
                        void *arg, struct err *err)
{
    const struct texts_document d = { .line = from->text,
                                      .length = from->len,
                                      .number = from->number,
                                      .id = (const int32_t *)l->ids.id,
                                      .n = l->ids.n,
                                      .types = (const int32_t *)l->types.id,
                                      .given = l->given,
                                      .learn = l->learn,
                                      .label = l->label,
                                      .nlabels = l->nlabels,
                                      .value = l->value,
                                      .nvalues = l->nvalues,
                                      .source = (const int32_t *)l->source.id,
                                      .nsource = l->source.n,
                                      .quoted = l->quoted,
                                      .part = l->part,
                                      .parts = l->parts,
                                      .continues = continues(b->o->labels),
                                      .reference = { l->reference[0],
                                                     l->reference[1] } };
    int ret = d.n ? see(arg, &d, err) : 0;

    for (size_t i = 0; i < l->nmore && ret == 0; i++)
        ret = give_samples(b, from, &l->more[i], see, arg, err);
    return ret;
}

static int give_line(const struct batch *b, size_t i,
                     int (*see)(void *arg, const struct texts_document *document,
                                struct err *err),
                     void *arg, struct err *err)
{
    if (i == b->bad) {
        *err = b->why;
        return -1;
    }
    return give_samples(b, &b->line[i], &b->line[i], see, arg, err);
}

/* Tokenizes the lines of B and passes their documents on. */
static int give_lines(struct batch *b,
                      int (*see)(void *arg, const struct texts_document *document,
                                 struct err *err),
                      void *arg, struct err *err)
{
    int ret = 0;

    run_threads(b);
    for (size_t i = 0; i < b->n && ret == 0; i++)
        ret = give_line(b, i, see, arg, err);
    clear_lines(b);
    return ret;
}

int texts_read_line(const struct texts_options *options, const char *name,
                    uint32_t number, const char *text, size_t length,
                    int (*see)(void *arg, const struct texts_document *document,
                               struct err *err),
                    void *arg, struct err *err)
{
    struct line one = { .text = text, .len = length, .number = number, .col = 1 };
    struct batch b = { .o = options,
                       .name = name,
                       .line = &one,
                       .n = 1,
                       .lock = PTHREAD_MUTEX_INITIALIZER };

    return give_lines(&b, see, arg, err);
}

/* TEXT[n] is the beginning of the file. */
static int
read_json(struct textfile *t, const char *text, size_t n, const struct texts_options *o,
          int (*see)(void *arg, const struct texts_document *document, struct err *err),
          void *arg, struct err *err)
{
    struct batch b = { .o = o, .name = t->name, .lock = PTHREAD_MUTEX_INITIALIZER };
    uint32_t number = 1;
    int ret = 0;

    while (ret == 0 && n) {
        split_lines(&b, text, n, &number);
        ret = give_lines(&b, see, arg, err);
        if (ret == 0)
            ret = textfile_next(t, PIECE, &text, &n, err);
    }
    free(b.line);
    return ret;
}

/* Adds the objects of the array that LEX reads to B, about PIECE bytes of them, or none
 * at its end. */
static int take_elements(struct jsonlex *lex, struct batch *b, const char *text,
                         struct err *err)
{
    for (size_t bytes = 0; bytes < PIECE;) {
        struct line one = { 0 };
        size_t from;

        if (lex->token == JSONLEX_END)
            return 0;
        if (jsonlex_next(lex, err) < 0)
            return -1;
        if (lex->token == JSONLEX_ARRAY_END)
            return jsonlex_next(lex, err); /* nothing may follow the array */
        if (lex->token != JSONLEX_OBJECT)
            return jsonlex_error(
                lex, err, "no object with 'text', 'ids', 'prompt' or 'messages'");
        from = lex->start;
        one =
            (struct line){ .text = text + from, .number = lex->line, .col = lex->col };
        if (jsonlex_skip(lex, err) < 0)
            return -1;
        one.len = lex->end - from;
        bytes += one.len;
        b->line = xgrow(b->line, &b->cap, b->n + 1, sizeof(*b->line));
        b->line[b->n++] = one;
    }
    return 0;
}

/* TEXT[n] is the whole file, an array of objects. */
static int read_array(const struct textfile *t, const char *text, size_t n,
                      const struct texts_options *o,
                      int (*see)(void *arg, const struct texts_document *document,
                                 struct err *err),
                      void *arg, struct err *err)
{
    struct batch b = { .o = o, .name = t->name, .lock = PTHREAD_MUTEX_INITIALIZER };
    struct jsonlex lex;
    int ret;

    jsonlex_init(&lex, t->name, text, n);
    ret = jsonlex_next(&lex, err);
    while (ret == 0) {
        ret = take_elements(&lex, &b, text, err);
        if (ret < 0 || !b.n)
            break;
        ret = give_lines(&b, see, arg, err);
    }
    clear_lines(&b);
    jsonlex_clear(&lex);
    free(b.line);
    return ret;
}

/* ---- text ---- */

/* Line number of the first byte that is not UTF-8, or 0. */
static size_t bad_line(const char *text, size_t n)
{
    size_t line = 1, used;
    uint32_t cp;

    for (size_t at = 0; at < n; at += used) {
        used = str_utf8_decode(text + at, n - at, &cp);
        if (!used)
            return line;
        line += text[at] == '\n';
    }
    return 0;
}

/* Reads TEXT[n] as one document, or as several when it contains end ids. */
static int read_text(const struct textfile *t, const char *text, size_t n,
                     const struct texts_options *o,
                     int (*see)(void *arg, const struct texts_document *document,
                                struct err *err),
                     void *arg, struct err *err)
{
    struct tokens ids = { 0 };
    size_t bad, from = 0;
    int ret;

    bad = bad_line(text, n);
    if (bad)
        return err_set(err, ERR_INPUT, "%s:%zu: not UTF-8", t->name, bad);
    ret = line_encode(o, n ? text : "", n, &ids, err);
    if (ret < 0)
        err_prefix(err, "%s", t->name);
    line_end(o, &ids);
    for (size_t i = 0; i < ids.n && ret == 0; i++)
        if (i + 1 == ids.n || (int64_t)ids.id[i] == o->end_id) {
            const struct texts_document d = { .id = (const int32_t *)ids.id + from,
                                              .n = i + 1 - from };

            ret = see(arg, &d, err);
            from = i + 1;
        }
    tokens_clear(&ids);
    return ret;
}

static bool ends_in(const char *path, const char *const *end, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (str_ends(path, end[i]))
            return true;
    return false;
}

/* Does TEXT[n] begin like an array of objects? */
static bool begins_with_array(const char *text, size_t n, bool any)
{
    size_t at = 0;

    while (at < n && text[at] && strchr(" \t\r\n", text[at]))
        at++;
    if (at == n || text[at++] != '[')
        return false;
    while (at < n && text[at] && strchr(" \t\r\n", text[at]))
        at++;
    return any || (at < n && text[at] == '{');
}

/* How a file is read. */
enum form { FORM_TEXT, FORM_LINES, FORM_ARRAY };

/* TEXT[n] is the beginning of file PATH. */
static int find_form(enum form *form, const char *path, const char *text, size_t n,
                     const struct texts_options *o, struct err *err)
{
    static const char *const lines[] = { ".jsonl",     ".ndjson",    ".jsonl.gz",
                                         ".ndjson.gz", ".jsonl.zst", ".ndjson.zst" };
    static const char *const whole[] = { ".json", ".json.gz", ".json.zst" };
    bool json = ends_in(path, whole, sizeof(whole) / sizeof(*whole));

    *form = FORM_TEXT;
    if (o->format == TEXTS_TEXT)
        return 0;
    if (begins_with_array(text, n, json) && (o->format == TEXTS_JSON || json))
        *form = FORM_ARRAY;
    else if (o->format == TEXTS_JSON || json ||
             ends_in(path, lines, sizeof(lines) / sizeof(*lines)) ||
             jsonlex_begins_object(text, n))
        *form = FORM_LINES;
    else if (begins_with_array(text, n, false))
        return err_set(err, ERR_USAGE,
                       "%s: begins like an array of JSON objects; --input-format json "
                       "reads its elements, --input-format text reads text",
                       path);
    return 0;
}

int texts_read(const char *path, const struct texts_options *options,
               int (*see)(void *arg, const struct texts_document *document,
                          struct err *err),
               void *arg, struct err *err)
{
    enum form form = FORM_TEXT;
    struct textfile t;
    const char *text;
    size_t n;
    int ret;

    if (textfile_open(&t, path, err) < 0)
        return -1;
    ret = textfile_next(&t, PIECE, &text, &n, err);
    if (ret == 0)
        ret = find_form(&form, t.name, text, n, options, err);
    if (ret == 0 && form == FORM_TEXT && options->labels != TEXTS_NO_LABELS)
        ret =
            err_set(err, ERR_INPUT, "%s: a text, and %s come from JSON lines", t.name,
                    has_answers(options->labels)      ? "pairs"
                    : options->labels >= TEXTS_JUDGED ? "what a loss needs beside texts"
                    : options->labels == TEXTS_TARGETS ? "sources and targets"
                                                       : "labels");
    if (ret == 0 && form != FORM_LINES)
        ret = textfile_rest(&t, &text, &n, err);
    if (ret == 0)
        ret = form == FORM_LINES   ? read_json(&t, text, n, options, see, arg, err)
              : form == FORM_ARRAY ? read_array(&t, text, n, options, see, arg, err)
                                   : read_text(&t, text, n, options, see, arg, err);
    textfile_close(&t);
    return ret;
}
