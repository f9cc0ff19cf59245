/* said - what a model says in a chat, apart */
#define _GNU_SOURCE
#include "lib/serve/said.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

enum state {
    BEGIN,    /* thoughts, or the answer? */
    THOUGHTS, /* until </think> */
    FIRST,    /* an answer, or calls alone? */
    ANSWER,   /* and perhaps calls */
    CALL,     /* of Hermes' form: until </tool_call> */
    CALLS     /* until the end */
};

static const char THINK[] = "<think>", END_THINK[] = "</think>",
                  TOOL_CALL[] = "<tool_call>", END_CALL[] = "</tool_call>",
                  TOOL_CALLS[] = "[TOOL_CALLS]", ARGS[] = "[ARGS]",
                  PYTHON[] = "<|python_tag|>";

const char *const *said_marks(enum said_calls calls)
{
    static const char *const none[] = { NULL },
                             *const hermes[] = { TOOL_CALL, END_CALL, NULL },
                             *const llama[] = { PYTHON, NULL },
                             *const mistral[] = { TOOL_CALLS, ARGS, NULL };

    return calls == SAID_HERMES    ? hermes
           : calls == SAID_LLAMA   ? llama
           : calls == SAID_MISTRAL ? mistral
                                   : none;
}

void said_init(struct said *s, const struct said_form *form)
{
    *s = (struct said){ .form = *form };
    s->state = form->in_thoughts ? THOUGHTS : form->thoughts ? BEGIN : FIRST;
    s->trims = form->in_thoughts;
}

/* Keeps the first N new calls. */
static void forget_calls(struct said *s, size_t n)
{
    while (s->ncalls > n) {
        free(s->call[--s->ncalls].name);
        free(s->call[s->ncalls].arguments);
    }
}

static void forget(struct said *s)
{
    s->before += s->ncalls;
    forget_calls(s, 0);
    str_reset(&s->thought);
    str_reset(&s->answer);
}

void said_clear(struct said *s)
{
    forget(s);
    free(s->call);
    str_clear(&s->thought);
    str_clear(&s->answer);
    str_clear(&s->held);
    *s = (struct said){ 0 };
}

/* ---- bytes ---- */

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static size_t spaces(const char *p, size_t n)
{
    size_t i = 0;

    while (i < n && is_space(p[i]))
        i++;
    return i;
}

/* Does P[n] begin with MARK? */
static bool begins(const char *p, size_t n, const char *mark)
{
    return n >= strlen(mark) && !memcmp(p, mark, strlen(mark));
}

/* May P[n], and what follows, begin with MARK? */
static bool may_begin(const char *p, size_t n, const char *mark)
{
    return n < strlen(mark) && !memcmp(p, mark, n);
}

/* The last bytes of P[n] that may be the beginning of MARK. */
static size_t beginning(const char *p, size_t n, const char *mark)
{
    size_t k = strlen(mark) - 1 < n ? strlen(mark) - 1 : n;

    while (k && memcmp(p + n - k, mark, k) != 0)
        k--;
    return k;
}

/* Drops the first N bytes that are held. */
static void drop(struct said *s, size_t n)
{
    memmove(s->held.s, s->held.s + n, s->held.len - n);
    str_cut(&s->held, s->held.len - n);
}

/* Moves the first N held bytes to OUT. */
static void give(struct said *s, struct str *out, size_t n)
{
    const size_t skip = s->trims ? spaces(str_text(&s->held), n) : 0;

    if (n > skip) {
        str_addn(out, s->held.s + skip, n - skip);
        s->trims = false;
    }
    drop(s, n);
}

/* ---- calls ---- */

/* The bytes of the object or list with which P[n] begins; 0: it does not end. */
static size_t span_of(const char *p, size_t n)
{
    size_t depth = 0;
    bool quoted = false;

    for (size_t i = 0; i < n; i++) {
        if (quoted && p[i] == '\\')
            i++;
        else if (p[i] == '"')
            quoted = !quoted;
        else if (!quoted && (p[i] == '{' || p[i] == '['))
            depth++;
        else if (!quoted && (p[i] == '}' || p[i] == ']') && --depth == 0)
            return i + 1;
        if (!depth)
            return 0;
    }
    return 0;
}

static void add_call(struct said *s, const char *name, size_t n,
                     const struct json *arguments)
{
    struct str text = { 0 };

    if (s->form.one && s->before + s->ncalls > 0)
        return;
    if (arguments)
        json_print(&text, arguments);
    else
        str_add(&text, "{}");
    s->call = xgrow(s->call, &s->cap_calls, s->ncalls + 1, sizeof(*s->call));
    s->call[s->ncalls++] =
        (struct said_call){ xstrndup(name, n), xstrdup(str_text(&text)) };
    str_clear(&text);
}

/* Takes a call as an object; false: it is none. */
static bool take_object(struct said *s, const struct json *j)
{
    const struct json *name = json_get(j, "name"), *of = json_get(j, "arguments");

    if (!of)
        of = json_get(j, "parameters");
    if (!json_string(name) || !name->n || strlen(name->text) != name->n ||
        (of && of->type != JSON_OBJECT))
        return false;
    add_call(s, name->text, name->n, of);
    return true;
}

/* Takes the object or list of objects with which P[n] begins, a call of NAME[nname]
 * unless that is NULL.  Returns its bytes; 0: it is none. */
static size_t take_json(struct said *s, const char *p, size_t n, const char *name,
                        size_t nname)
{
    const size_t all = span_of(p, n), before = s->ncalls;
    struct json_doc doc;
    struct err err = { 0 };
    bool good = true;

    if (!all || json_parse(&doc, "call", p, all, &err) < 0)
        return 0;
    if (name && doc.root->type == JSON_OBJECT)
        add_call(s, name, nname, doc.root);
    else if (name)
        good = false;
    else if (doc.root->type == JSON_ARRAY)
        for (const struct json *j = doc.root->first; j && good; j = j->next)
            good = take_object(s, j);
    else
        good = take_object(s, doc.root);
    json_clear(&doc);
    if (!good)
        forget_calls(s, before);
    return good ? all : 0;
}

/* One call of Mistral's newer form at P[n]: NAME[ARGS]{...}, or NAME{...}. */
static size_t take_named(struct said *s, const char *p, size_t n)
{
    const char *brace = memchr(p, '{', n);
    size_t before = brace ? (size_t)(brace - p) : 0, all, nname;

    if (!before)
        return 0;
    nname = before;
    while (nname && is_space(p[nname - 1]))
        nname--;
    if (nname > strlen(ARGS) && !memcmp(p + nname - strlen(ARGS), ARGS, strlen(ARGS)))
        nname -= strlen(ARGS);
    if (!nname || memchr(p, '\0', nname) || memchr(p, '[', nname))
        return 0;
    all = take_json(s, brace, n - before, p, nname);
    return all ? before + all : 0;
}

/* Takes all calls of P[n]; returns the bytes up to the end of the last one. */
static size_t take_calls(struct said *s, const char *p, size_t n)
{
    const bool mistral = s->form.calls == SAID_MISTRAL;
    const char *const mark = mistral ? TOOL_CALLS : PYTHON;
    size_t taken = 0, at = 0, all;

    for (;;) {
        at += spaces(p + at, n - at);
        if (begins(p + at, n - at, mark))
            at += strlen(mark);
        else if (!mistral && taken && at < n && p[at] == ';')
            at++;
        at += spaces(p + at, n - at);
        if (at == n)
            return taken;
        all = mistral && p[at] != '[' ? take_named(s, p + at, n - at)
                                      : take_json(s, p + at, n - at, NULL, 0);
        if (!all)
            return taken;
        taken = at += all;
    }
}

/* ---- reading ---- */

/* Each of these reads what is held, and returns whether there is more to do. */

static bool begin(struct said *s, bool end)
{
    const size_t space = spaces(str_text(&s->held), s->held.len);
    const char *p = str_text(&s->held) + space;
    const size_t n = s->held.len - space;

    if (!end && (!n || may_begin(p, n, THINK)))
        return false;
    s->state = begins(p, n, THINK) ? THOUGHTS : FIRST;
    if (s->state == THOUGHTS) {
        drop(s, space + strlen(THINK));
        s->trims = true;
    }
    return true;
}

static bool think(struct said *s, bool end)
{
    const char *p = str_text(&s->held);
    const char *found = memmem(p, s->held.len, END_THINK, strlen(END_THINK));

    if (!found) {
        give(s, &s->thought,
             s->held.len - (end ? 0 : beginning(p, s->held.len, END_THINK)));
        return false;
    }
    give(s, &s->thought, (size_t)(found - p));
    drop(s, strlen(END_THINK));
    s->trims = true;
    s->state = FIRST;
    return true;
}

/* Llama's calls are all that there is. */
static bool first(struct said *s, bool end)
{
    const size_t space = spaces(str_text(&s->held), s->held.len);
    const char *p = str_text(&s->held) + space;
    const size_t n = s->held.len - space;

    s->state = ANSWER;
    if (s->form.calls != SAID_LLAMA)
        return true;
    if (!end && (!n || may_begin(p, n, PYTHON))) {
        s->state = FIRST;
        return false;
    }
    if (n && (*p == '{' || begins(p, n, PYTHON)))
        s->state = CALLS;
    return true;
}

static bool answer(struct said *s, bool end)
{
    const char *mark = s->form.calls == SAID_HERMES    ? TOOL_CALL
                       : s->form.calls == SAID_MISTRAL ? TOOL_CALLS
                                                       : NULL;
    const char *p = str_text(&s->held);
    const char *found = mark ? memmem(p, s->held.len, mark, strlen(mark)) : NULL;

    if (!found) {
        give(s, &s->answer,
             s->held.len - (mark && !end ? beginning(p, s->held.len, mark) : 0));
        return false;
    }
    give(s, &s->answer, (size_t)(found - p));
    s->state = s->form.calls == SAID_HERMES ? CALL : CALLS;
    return true;
}

static bool call(struct said *s, bool end)
{
    const size_t before = strlen(TOOL_CALL);
    const char *p = str_text(&s->held) + before;
    const size_t n = s->held.len - before, space = spaces(p, n);
    const char *found = memmem(p, n, END_CALL, strlen(END_CALL));
    const size_t all = found ? (size_t)(found - p) : n;
    size_t taken;

    if (!found && !end)
        return false;
    taken = all > space ? take_json(s, p + space, all - space, NULL, 0) : 0;
    s->state = ANSWER;
    if (taken) {
        drop(s, before + all + (found ? strlen(END_CALL) : 0));
        s->trims = true;
    } else {
        s->trims = false;
        give(s, &s->answer, before + all + (found ? strlen(END_CALL) : 0));
    }
    return s->held.len > 0;
}

static bool calls(struct said *s, bool end)
{
    size_t taken;

    if (!end)
        return false;
    taken = take_calls(s, str_text(&s->held), s->held.len);
    s->trims = taken > 0;
    if (taken)
        drop(s, taken);
    give(s, &s->answer, s->held.len);
    return false;
}

void said_read(struct said *s, const char *text, size_t n, bool end)
{
    static bool (*const read[])(struct said *, bool) = {
        [BEGIN] = begin,   [THOUGHTS] = think, [FIRST] = first,
        [ANSWER] = answer, [CALL] = call,      [CALLS] = calls
    };

    forget(s);
    str_addn(&s->held, text, n);
    while (s->held.len && read[s->state](s, end))
        ;
}

/* ---- calls that have to be made ---- */

/* Appends J, whose references within itself lead to where it stands now: WHERE. */
static void add_moved(struct str *out, const struct json *j, const char *where)
{
    const bool object = j->type == JSON_OBJECT;

    if (j->key && !strcmp(j->key, "$ref") && json_string(j) && *j->text == '#') {
        struct str ref = { 0 };

        str_addf(&ref, "#%s%s", where, j->text + 1);
        str_add_jsonn(out, ref.s, ref.len);
        str_clear(&ref);
    } else if (!object && j->type != JSON_ARRAY) {
        json_print(out, j);
    } else {
        str_addc(out, object ? '{' : '[');
        for (const struct json *m = j->first; m; m = m->next) {
            if (object) {
                str_add_json(out, m->key);
                str_addc(out, ':');
            }
            add_moved(out, m, where);
            str_add(out, m->next ? "," : "");
        }
        str_addc(out, object ? '}' : ']');
    }
}

/* A call of the function F as an object, which stands at WHERE. */
static void add_tool(struct str *out, const struct json *f, const char *arguments,
                     const char *where)
{
    const struct json *parameters = json_get(f, "parameters");
    char *at = str_dupf("%s/properties/%s", where, arguments);

    str_add(out, "{\"type\":\"object\",\"properties\":{\"name\":{\"const\":");
    json_print(out, json_get(f, "name"));
    str_addf(out, "},\"%s\":", arguments);
    if (parameters && parameters->first)
        add_moved(out, parameters, at);
    else
        str_add(out, "{\"type\":\"object\"}");
    str_addf(out, "},\"required\":[\"name\",\"%s\"],\"additionalProperties\":false}",
             arguments);
    free(at);
}

void said_forced(enum said_calls calls, const struct json *tools, const char *name,
                 struct str *schema, const char **before, const char **after)
{
    const bool listed = calls == SAID_MISTRAL;
    const char *arguments = calls == SAID_LLAMA ? "parameters" : "arguments";
    size_t n = 0;

    *before = calls == SAID_HERMES ? TOOL_CALL : listed ? TOOL_CALLS : NULL;
    *after = calls == SAID_HERMES ? END_CALL : NULL;
    str_add(schema, listed
                        ? "{\"type\":\"array\",\"minItems\":1,\"maxItems\":1,\"items\":"
                          "{\"anyOf\":["
                        : "{\"anyOf\":[");
    for (const struct json *t = tools->first; t; t = t->next) {
        const struct json *f = json_get(t, "function");
        char *where = str_dupf("%s/anyOf/%zu", listed ? "/items" : "", n);

        if (!name || !strcmp(json_string(json_get(f, "name")), name)) {
            str_add(schema, n++ ? "," : "");
            add_tool(schema, f, arguments, where);
        }
        free(where);
    }
    str_add(schema, listed ? "]}}" : "]}");
}
