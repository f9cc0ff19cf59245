/* chat - the chat template of a model: messages as text, and as tokens */
#include "lib/text/template/chat.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/text/template/chatfiles.h"
#include "lib/text/template/python.h"
#include "lib/text/template/template.h"
#include "lib/text/template/strings.h"
#include "lib/text/chars.h"

/* What apply_chat_template calls a message's reasoning; the first is its proper name.
 */
static const char *const reasoning_names[] = { "reasoning_content", "thinking",
                                               "reasoning" };
/* Marks the end of the last message where it is to be continued. */
static const char end_tag[] = "CONTINUE_FINAL_MESSAGE_TAG ";

enum { OWN_VARIABLES = 4 }; /* messages, tools, documents, add_generation_prompt */

/* ---- variables ---- */

/* Bytes of the strings and values of J, and the longest string. */
static uint64_t measure(const struct json *j, size_t *longest)
{
    uint64_t bytes = 16;
    size_t key = j->key ? strlen(j->key) : 0;
    size_t n = j->type == JSON_STRING ? j->n : 0;

    for (const struct json *e = j->first; e; e = e->next)
        bytes += measure(e, longest);
    if (key > *longest)
        *longest = key;
    if (n > *longest)
        *longest = n;
    return bytes + key + n;
}

static uint64_t measure_input(const struct chat_input *in, size_t *longest)
{
    uint64_t bytes = measure(in->messages, longest);

    if (in->tools)
        bytes += measure(in->tools, longest);
    if (in->documents)
        bytes += measure(in->documents, longest);
    for (size_t i = 0; i < in->n_arguments; i++)
        bytes += measure(in->argument[i].value, longest);
    return bytes;
}

static int set_named(struct scratch *s, struct dict *d, const char *name,
                     struct value value)
{
    struct value key;

    return value_text(s, &key, name, NULL, strlen(name)) < 0
               ? -1
               : dict_set(s, d, key, value);
}

/* A message without null members, and its reasoning under all names, as
 * apply_chat_template changes it. */
static int prepare_message(struct scratch *s, struct value *v)
{
    const struct value *reasoning = NULL;
    const struct dict *d = v->u.dict;
    struct value out;

    for (size_t i = 0; i < sizeof(reasoning_names) / sizeof(*reasoning_names); i++) {
        const struct value *found;

        if (dict_get(s, &found, d, reasoning_names[i]) < 0)
            return -1;
        if (!reasoning && found && found->type != VALUE_NONE)
            reasoning = found;
    }
    if (value_dict(s, &out, VALUE_DICT) < 0 ||
        (reasoning && set_named(s, out.u.dict, "thinking", *reasoning) < 0))
        return -1;
    for (size_t i = 0; i < d->n; i++)
        if (d->value[i].type != VALUE_NONE &&
            dict_set(s, out.u.dict, d->key[i], d->value[i]) < 0)
            return -1;
    if (reasoning && set_named(s, out.u.dict, reasoning_names[0], *reasoning) < 0)
        return -1;
    *v = out;
    return 0;
}

/* Puts the tag at the end of the text of the last message, or of its last part. */
static int add_end_tag(struct scratch *s, const char *name, struct value *messages,
                       struct value *text)
{
    struct dict *d = messages->u.list->v[messages->u.list->n - 1].u.dict;
    struct builder b = builder_start(s);
    const struct value *content;
    struct value tagged;

    if (dict_get(s, &content, d, "content") < 0)
        return -1;
    if (content && content->type == VALUE_LIST) {
        const struct list *parts = content->u.list;

        content = NULL;
        for (size_t i = parts->n; i-- > 0 && !content;) {
            d = parts->v[i].u.dict;
            if (parts->v[i].type == VALUE_DICT && dict_get(s, &content, d, "text") < 0)
                return -1;
        }
    }
    if (!content || content->type != VALUE_TEXT)
        return err_set(s->err, ERR_INPUT,
                       "%s: the last message has no text to continue", name);
    *text = *content;
    if (builder_add_text(&b, content->u.text) < 0 ||
        builder_add_word(&b, end_tag, 0) < 0 || builder_value(&b, &tagged) < 0)
        return -1;
    /* this dict was made for the rendering alone, so the value may change */
    *(struct value *)content = tagged;
    return 0;
}

static int read_messages(struct scratch *s, struct value *out, const struct json *j,
                         const unsigned char *ones)
{
    size_t i = 0;

    if (j->type != JSON_ARRAY || !j->n)
        return err_set(s->err, ERR_INPUT, "%s: the chat is no list of messages",
                       s->name);
    if (value_of_json(s, out, j, ones) < 0)
        return -1;
    for (const struct json *m = j->first; m; m = m->next, i++) {
        if (m->type != JSON_OBJECT)
            return err_set(s->err, ERR_INPUT, "%s: message %zu is no object", s->name,
                           i + 1);
        if (prepare_message(s, &out->u.list->v[i]) < 0)
            return -1;
    }
    return 0;
}

/* A list of objects, or none. */
static int read_objects(struct scratch *s, struct value *out, const char *what,
                        const struct json *j, const unsigned char *ones)
{
    *out = value_none();
    if (!j)
        return 0;
    if (j->type != JSON_ARRAY)
        return err_set(s->err, ERR_INPUT, "%s: %s are no list", s->name, what);
    for (const struct json *e = j->first; e; e = e->next)
        if (e->type != JSON_OBJECT)
            return err_set(s->err, ERR_INPUT, "%s: %s are no list of objects", s->name,
                           what);
    return value_of_json(s, out, j, ones);
}

/* All variables, in an array of *n. */
static struct template_variable *make_variables(const struct chatfiles *files,
                                                const struct chat_input *in,
                                                struct scratch *s,
                                                const unsigned char *ones, size_t *n)
{
    struct template_variable *v = scratch_zeroed(
        s, (OWN_VARIABLES + files->n_special + in->n_arguments) * sizeof(*v));

    if (!v || read_messages(s, &v[0].value, in->messages, ones) < 0 ||
        read_objects(s, &v[1].value, "tools", in->tools, ones) < 0 ||
        read_objects(s, &v[2].value, "documents", in->documents, ones) < 0)
        return NULL;
    v[0].name = "messages";
    v[1].name = "tools";
    v[2].name = "documents";
    v[3].name = "add_generation_prompt";
    v[3].value = value_bool(in->add_generation_prompt);
    *n = OWN_VARIABLES;
    for (size_t i = 0; i < files->n_special; i++) {
        const struct chatfiles_token *t = &files->special[i];

        v[*n].name = t->name;
        if (value_text(s, &v[(*n)++].value, t->text, NULL, strlen(t->text)) < 0)
            return NULL;
    }
    for (size_t i = 0; i < in->n_arguments; i++) {
        v[*n].name = in->argument[i].name;
        if (value_of_json(s, &v[(*n)++].value, in->argument[i].value, ones) < 0)
            return NULL;
    }
    return v;
}

/* ---- rendering ---- */

/* Cuts the text at the tag; FINAL is the last message's text, which must be in it. */
static int cut_at_tag(struct scratch *s, struct builder *b, const struct text *final)
{
    const struct text all = { .s = b->s, .mark = b->mark, .n = b->n };
    const struct text tag = { .s = end_tag,
                              .n = sizeof(end_tag) - 2 }; /* without blank */
    struct value stripped;
    size_t at, found, used;

    if (strings_strip(s, &stripped, final, NULL, STRINGS_BOTH) < 0 ||
        strings_find(s, &found, &all, stripped.u.text, 0) < 0 ||
        strings_find_last(s, &at, &all, &tag, all.n) < 0)
        return -1;
    if (at == SIZE_MAX || found == SIZE_MAX)
        return err_set(s->err, ERR_INPUT,
                       "%s: the template changes the end of the last message, so it "
                       "cannot be continued",
                       s->name);
    b->n = at;
    if (all.n > at + tag.n && all.s[at + tag.n] == ' ')
        return 0;
    while (b->n && python_is_space(chars_before(b->s, b->n, &used)))
        b->n -= used;
    return 0;
}

static int render(const struct chatfiles *files, const struct template *t,
                  const struct chat_input *in, struct scratch *s, size_t longest,
                  struct builder *text)
{
    unsigned char *ones = scratch_take(s, longest);
    struct template_variable *v;
    struct value final = value_none();
    size_t n;

    if (!ones)
        return -1;
    memset(ones, CHAT_FROM_MESSAGE, longest);
    v = make_variables(files, in, s, ones, &n);
    if (!v ||
        (in->continue_final && add_end_tag(s, s->name, &v[0].value, &final) < 0) ||
        template_run(t, s, v, n, &in->date, text) < 0)
        return -1;
    return in->continue_final ? cut_at_tag(s, text, final.u.text) : 0;
}

int chat_render(const struct chat *c, const struct chat_input *in,
                struct chat_text *out, struct err *err)
{
    const struct chatfiles *files = (const struct chatfiles *)c;
    const struct template *t;
    struct scratch s;
    struct builder text;
    size_t longest = 0;
    uint64_t bytes = measure_input(in, &longest);
    int ret = -1;

    if (in->continue_final && in->add_generation_prompt)
        return err_set(err, ERR_INPUT,
                       "a chat is either continued or answered, not both");
    t = chatfiles_template(files, in->tools != NULL, err);
    if (!t)
        return -1;
    scratch_init(&s, template_name(t), bytes + template_bytes(t), err);
    text = builder_start(&s);
    if (render(files, t, in, &s, longest, &text) == 0) {
        chat_text_clear(out);
        if (text.n)
            str_addn(&out->text, text.s, text.n);
        out->mark = xcalloc(text.n + 1, 1);
        if (text.n && text.mark)
            memcpy(out->mark, text.mark, text.n);
        out->has_generation = template_has_generation(t);
        out->template = t;
        ret = 0;
    }
    scratch_clear(&s);
    return ret;
}

void chat_text_clear(struct chat_text *t)
{
    str_clear(&t->text);
    free(t->mark);
    *t = (struct chat_text){ 0 };
}

bool chat_text_span(const struct chat_text *t, enum chat_mark bit, size_t *start,
                    size_t *end)
{
    size_t at = *end;

    while (at < t->text.len && !(t->mark[at] & bit))
        at++;
    *start = *end = at;
    while (*end < t->text.len && t->mark[*end] & bit)
        (*end)++;
    return at < t->text.len;
}

/* ---- tokens ---- */

/* The tokens that a message's text may not become. */
struct control {
    struct tokenizer_added *v;
    size_t n;
    bool begins[256]; /* a token begins with this byte */
    uint32_t *id;     /* [nids]: theirs in order, without the unknown token's, */
    size_t nids;      /* which any text may become */
};

static bool is_space(const char *text)
{
    size_t n = strlen(text), used;

    for (size_t at = 0; at < n; at += used)
        if (!python_is_space(chars_at(text + at, n - at, &used)))
            return false;
    return n > 0;
}

static bool is_control(const struct chatfiles *files, const struct template *t,
                       const struct tokenizer_added *a)
{
    if (a->special)
        return true;
    if (!files->has_control)
        return t && template_contains(t, a->text) && !is_space(a->text);
    for (size_t i = 0; i < files->n_control; i++)
        if (!strcmp(files->control[i], a->text))
            return true;
    return false;
}

static int compare_ids(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

static void find_control(struct control *c, const struct chatfiles *files,
                         const struct template *t, const struct tokenizer *tokenizer)
{
    struct tokenizer_added a;
    size_t cap = 0;

    for (size_t i = 0; tokenizer_added(tokenizer, i, &a); i++) {
        if (!is_control(files, t, &a))
            continue;
        c->v = xgrow(c->v, &cap, c->n + 1, sizeof(*c->v));
        c->v[c->n++] = a;
        c->begins[(unsigned char)*a.text] = true;
    }
    c->id = xcalloc(c->n + 1, sizeof(*c->id));
    for (size_t i = 0; i < c->n; i++)
        if (!c->v[i].unknown)
            c->id[c->nids++] = c->v[i].id;
    qsort(c->id, c->nids, sizeof(*c->id), compare_ids);
}

/* Counts the control tokens among IDS from FIRST on; *id is one of them. */
static size_t count_control(const struct control *c, const struct tokens *ids,
                            size_t first, uint32_t *id)
{
    size_t n = 0;

    for (size_t i = first; i < ids->n; i++)
        if (bsearch(&ids->id[i], c->id, c->nids, sizeof(*c->id), compare_ids)) {
            *id = ids->id[i];
            n++;
        }
    return n;
}

/* The longest control token at AT, or NULL. */
static const struct tokenizer_added *control_at(const struct control *c,
                                                const struct str *text, size_t at)
{
    const struct tokenizer_added *best = NULL;

    if (!c->begins[(unsigned char)text->s[at]])
        return NULL;
    for (size_t i = 0; i < c->n; i++) {
        const struct tokenizer_added *a = &c->v[i];

        if (a->len <= text->len - at && (!best || a->len > best->len) &&
            !memcmp(text->s + at, a->text, a->len))
            best = a;
    }
    return best;
}

/* How a part of the text is encoded. */
struct part_encoder {
    const struct tokenizer *tokenizer;
    struct tokens newline; /* the ids of "\n" */
    struct str s;
};

static int encode(const struct tokenizer *t, const char *text, size_t n, bool plain,
                  struct tokens *out, struct err *err)
{
    return plain ? tokenizer_encode_plain(t, text, n, out, err)
                 : tokenizer_encode(t, text, n, false, out, err);
}

/* Encodes the N bytes at TEXT, which do not begin the chat: behind a newline whose ids
 * are then dropped, so that nothing is added at their start.  If its ids do not lead,
 * they are encoded alone. */
static int encode_later(struct part_encoder *e, const char *text, size_t n, bool plain,
                        struct tokens *out, struct err *err)
{
    size_t before = out->n, lead = e->newline.n;

    str_reset(&e->s);
    str_addc(&e->s, '\n');
    str_addn(&e->s, text, n);
    if (encode(e->tokenizer, e->s.s, e->s.len, plain, out, err) < 0)
        return -1;
    if (out->n - before < lead ||
        (lead && memcmp(out->id + before, e->newline.id, lead * sizeof(*out->id)))) {
        out->n = before;
        return encode(e->tokenizer, text, n, plain, out, err);
    }
    if (lead)
        memmove(out->id + before, out->id + before + lead,
                (out->n - before - lead) * sizeof(*out->id));
    out->n -= lead;
    return 0;
}

/* A control token from a message, as plain text. */
static int encode_control(struct part_encoder *e, const struct tokenizer_added *a,
                          struct tokens *out, struct err *err)
{
    size_t before = out->n;

    if (encode_later(e, a->text, a->len, true, out, err) < 0)
        return -1;
    for (size_t i = before; i < out->n; i++)
        if (out->id[i] == a->id)
            return err_set(err, ERR_INPUT,
                           "a message contains '%s', which the tokenizer makes a "
                           "control token of even as plain text",
                           a->text);
    return 0;
}

/* Is the token at AT written by a message, wholly or at one of its ends?  What lies
 * between two characters of the template was put there by the template. */
static bool from_message(const struct chat_text *text, size_t at, size_t len)
{
    return ((text->mark[at] | text->mark[at + len - 1]) & CHAT_FROM_MESSAGE) != 0;
}

/* The name of token ID, for messages. */
static const char *name_of(const struct control *c, uint32_t id)
{
    for (size_t i = 0; i < c->n; i++)
        if (c->v[i].id == id)
            return c->v[i].text;
    return "";
}

/* Refuses a control token that the tokenizer makes of a message's text in [START, END),
 * which has none: its normalizer may change letters (NFKC, lower case), as of
 * "<|IM_END|>". */
static int refuse_made(const struct control *c, const struct tokenizer *t,
                       const struct chat_text *text, size_t start, size_t end,
                       struct err *err)
{
    struct tokens ids = { 0 };
    size_t first, last = start;
    uint32_t id;
    int ret = 0;

    while (ret == 0 && last < end &&
           chat_text_span(text, CHAT_FROM_MESSAGE, &first, &last) && first < end) {
        last = last < end ? last : end;
        ids.n = 0;
        ret = encode(t, str_text(&text->text) + first, last - first, false, &ids, err);
        if (ret == 0 && count_control(c, &ids, 0, &id))
            ret = err_set(err, ERR_INPUT,
                          "a message contains what the tokenizer's normalizer makes "
                          "the control token '%s' of",
                          name_of(c, id));
    }
    tokens_clear(&ids);
    return ret;
}

/* Encodes [START, END) of the text, in which the template writes WRITTEN control
 * tokens. */
static int encode_part(const struct control *c, struct part_encoder *e,
                       const struct chat_text *text, size_t start, size_t end,
                       size_t written, struct tokens *out, struct err *err)
{
    const char *s = str_text(&text->text) + start;
    size_t before = out->n;
    uint32_t id;

    if (start == end)
        return 0;
    if ((start ? encode_later(e, s, end - start, false, out, err)
               : encode(e->tokenizer, s, end, false, out, err)) < 0)
        return -1;
    return count_control(c, out, before, &id) <= written
               ? 0
               : refuse_made(c, e->tokenizer, text, start, end, err);
}

static int encode_parts(const struct control *c, struct part_encoder *e,
                        const struct chat_text *text, struct tokens *out,
                        struct err *err)
{
    size_t start = 0, at = 0, written = 0, n = text->text.len;

    while (at < n) {
        const struct tokenizer_added *a = control_at(c, &text->text, at);

        if (!a || !from_message(text, at, a->len)) {
            at += a ? a->len : 1;
            written += a && !a->unknown;
            continue;
        }
        if (encode_part(c, e, text, start, at, written, out, err) < 0 ||
            encode_control(e, a, out, err) < 0)
            return -1;
        at += a->len;
        start = at;
        written = 0;
    }
    return encode_part(c, e, text, start, n, written, out, err);
}

int chat_encode(const struct chat *c, const struct tokenizer *t,
                const struct chat_text *text, struct tokens *out, struct err *err)
{
    struct part_encoder e = { .tokenizer = t };
    struct control control = { 0 };
    size_t before = out->n;
    int ret = encode(t, "\n", 1, false, &e.newline, err);

    if (ret == 0) {
        find_control(&control, (const struct chatfiles *)c, text->template, t);
        ret = encode_parts(&control, &e, text, out, err);
    }
    if (ret < 0)
        out->n = before;
    tokens_clear(&e.newline);
    str_clear(&e.s);
    free(control.v);
    free(control.id);
    return ret;
}

/* ---- opening ---- */

int chat_open(struct chat **out, const char *dir, const char *config,
              const char *choice, struct err *err)
{
    struct chatfiles *files;
    int ret = chatfiles_open(&files, dir, config, choice, err);

    if (ret == 0)
        *out = (struct chat *)files;
    return ret;
}

bool chat_contains(const struct chat *c, bool tools, const char *word)
{
    struct err unused = { 0 };
    const struct template *t =
        chatfiles_template((const struct chatfiles *)c, tools, &unused);

    return t && template_contains(t, word);
}

void chat_free(struct chat *c)
{
    chatfiles_free((struct chatfiles *)c);
}
