/* chatfiles - the chat templates and special tokens of a model's directory */
#include "lib/text/template/chatfiles.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/fs.h"
#include "lib/base/json.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/text/template/template.h"

enum { MOST_TEMPLATE = 4 << 20, MOST_CONFIG = 1 << 28 };

/* Where transformers keeps named templates, and an older name. */
static const char *const directories[] = { "additional_chat_templates",
                                           "chat_templates" };

/* A template that was found but not read as a program. */
struct source {
    char *name, *path; /* "default"; for messages */
    char *text;
    size_t n;
};

struct sources {
    struct source *v;
    size_t n, cap;
};

/* NAME and PATH are copied, TEXT is taken over. */
static void add_source(struct sources *s, const char *name, size_t name_len,
                       const char *path, char *text, size_t n)
{
    s->v = xgrow(s->v, &s->cap, s->n + 1, sizeof(*s->v));
    s->v[s->n++] = (struct source){ xstrndup(name, name_len), xstrdup(path), text, n };
}

static const struct source *find_source(const struct sources *s, const char *name)
{
    for (size_t i = 0; i < s->n; i++)
        if (!strcmp(s->v[i].name, name))
            return &s->v[i];
    return NULL;
}

static void sources_clear(struct sources *s)
{
    for (size_t i = 0; i < s->n; i++) {
        free(s->v[i].name);
        free(s->v[i].path);
        free(s->v[i].text);
    }
    free(s->v);
}

/* ---- files ---- */

static int read_file(struct sources *s, const char *name, size_t name_len,
                     const char *path, struct err *err)
{
    char *text;
    size_t n;

    if (fs_read_optional(&text, &n, path, MOST_TEMPLATE, err) < 0)
        return -1;
    if (text)
        add_source(s, name, name_len, path, text, n);
    return 0;
}

static int read_directory(struct sources *s, const char *path, struct err *err)
{
    char **names;
    size_t n;
    bool found;
    int ret = 0;

    if (fs_find_dir(&found, path, err) < 0)
        return -1;
    if (!found)
        return 0;
    if (fs_list(&names, &n, path, err) < 0)
        return -1;
    for (size_t i = 0; i < n && ret == 0; i++) {
        char *file;

        if (!str_ends(names[i], ".jinja"))
            continue;
        file = fs_join_dup(path, names[i]);
        ret = read_file(s, names[i], strlen(names[i]) - strlen(".jinja"), file, err);
        free(file);
    }
    fs_list_free(names, n);
    return ret;
}

static int read_files(struct sources *s, const char *dir, struct err *err)
{
    char *path = fs_join_dup(dir, "chat_template.jinja");
    int ret = read_file(s, "default", strlen("default"), path, err);

    free(path);
    for (size_t i = 0; i < sizeof(directories) / sizeof(*directories) && ret == 0;
         i++) {
        path = fs_join_dup(dir, directories[i]);
        ret = read_directory(s, path, err);
        free(path);
    }
    return ret;
}

/* ---- tokenizer_config.json ---- */

/* The text of a token: a string, or the content of an object. */
static const char *token_text(const struct json *j)
{
    return json_string(j && j->type == JSON_OBJECT ? json_get(j, "content") : j);
}

static void add_token(struct chatfiles *f, const char *name, const struct json *j)
{
    const char *text = token_text(j);

    for (size_t i = 0; i < f->n_special; i++)
        if (!strcmp(f->special[i].name, name))
            return;
    if (!text)
        return;
    f->special = xrealloc(f->special, (f->n_special + 1) * sizeof(*f->special));
    f->special[f->n_special++] =
        (struct chatfiles_token){ xstrdup(name), xstrdup(text) };
}

/* Special tokens that have a name: members NAME_token, and the ones of
 * "extra_special_tokens". */
static void read_tokens(struct chatfiles *f, const struct json *root)
{
    const struct json *extra = json_get(root, "extra_special_tokens");

    for (const struct json *j = root->first; j; j = j->next)
        if (str_ends(j->key, "_token"))
            add_token(f, j->key, j);
    if (extra && extra->type == JSON_OBJECT)
        for (const struct json *j = extra->first; j; j = j->next)
            add_token(f, j->key, j);
}

static int read_control(struct chatfiles *f, const struct json_doc *doc,
                        struct err *err)
{
    const struct json *list = json_get(doc->root, "chat_control_tokens");

    if (!list || list->type == JSON_NULL)
        return 0;
    if (list->type != JSON_ARRAY)
        return json_error(doc, list, err, "chat_control_tokens is no list");
    f->has_control = true;
    f->control = xcalloc(list->n + 1, sizeof(*f->control));
    for (const struct json *j = list->first; j; j = j->next) {
        if (!json_string(j))
            return json_error(doc, j, err, "chat_control_tokens: not a string");
        f->control[f->n_control++] = xstrdup(j->text);
    }
    return 0;
}

static int add_json_source(struct sources *s, const struct json_doc *doc,
                           const char *name, const struct json *text, struct err *err)
{
    char *path;

    if (!json_string(text) || !name)
        return json_error(doc, text, err, "a chat_template is no text");
    path = str_dupf("%s: chat_template", doc->name);
    add_source(s, name, strlen(name), path, xstrndup(text->text, text->n), text->n);
    free(path);
    return 0;
}

/* The templates of the key "chat_template". */
static int read_config_templates(struct sources *s, const struct json_doc *doc,
                                 struct err *err)
{
    const struct json *j = json_get(doc->root, "chat_template");

    if (!j || j->type == JSON_NULL)
        return 0;
    if (j->type != JSON_ARRAY)
        return add_json_source(s, doc, "default", j, err);
    for (const struct json *e = j->first; e; e = e->next) {
        const char *name = json_string(json_get(e, "name"));
        const struct json *text = json_get(e, "template");

        if (!name || !text)
            return json_error(doc, e, err, "a chat_template has no name or template");
        if (add_json_source(s, doc, name, text, err) < 0)
            return -1;
    }
    return 0;
}

/* FILE in DIR, or the text MADE for it, as JSON; *text is NULL if it is absent. */
static int read_json(struct json_doc *doc, char **path, char **text, const char *dir,
                     const char *file, const char *made, struct err *err)
{
    size_t n = made ? strlen(made) : 0;

    *path = fs_join_dup(dir, file);
    if (made)
        *text = xstrdup(made);
    else if (fs_read_optional(text, &n, *path, MOST_CONFIG, err) < 0)
        return -1;
    if (!*text)
        return 0;
    if (json_parse_config(doc, *path, *text, n, err) < 0)
        return -1;
    if (doc->root->type == JSON_OBJECT)
        return 0;
    json_error(doc, doc->root, err, "expected an object");
    json_clear(doc);
    return -1;
}

static int read_config(struct chatfiles *f, struct sources *s, const char *dir,
                       const char *made, struct err *err)
{
    static const char *const files[] = { "tokenizer_config.json",
                                         "special_tokens_map.json" };
    int ret = 0;

    for (size_t i = 0; i < sizeof(files) / sizeof(*files) && ret == 0; i++) {
        struct json_doc doc;
        char *path, *text = NULL;

        ret = read_json(&doc, &path, &text, dir, files[i], i ? NULL : made, err);
        if (ret == 0 && text) {
            read_tokens(f, doc.root);
            if (!i)
                ret = read_control(f, &doc, err);
            if (!i && ret == 0 && !s->n)
                ret = read_config_templates(s, &doc, err);
            json_clear(&doc);
        }
        free(text);
        free(path);
    }
    return ret;
}

/* ---- choosing ---- */

static int parse(struct template **out, const struct source *s, struct err *err)
{
    return template_parse(out, s->path, s->text, s->n, err);
}

static char *join_names(const struct sources *s)
{
    struct str names = { 0 };
    char *all;

    for (size_t i = 0; i < s->n; i++)
        str_addf(&names, "%s%s", i ? ", " : "", s->v[i].name);
    all = xstrdup(str_text(&names));
    str_clear(&names);
    return all;
}

static int parse_file(struct chatfiles *f, const char *path, struct err *err)
{
    char *text;
    size_t n;
    int ret;

    if (fs_read_optional(&text, &n, path, MOST_TEMPLATE, err) < 0)
        return -1;
    if (!text && *f->names)
        return err_set(err, ERR_INPUT,
                       "'%s' is neither a file nor one of the model's chat templates: "
                       "%s",
                       path, f->names);
    if (!text)
        return err_set(err, ERR_INPUT,
                       "'%s' is no file, and the model has no chat template", path);
    ret = template_parse(&f->usual, path, text, n, err);
    free(text);
    return ret;
}

static int choose(struct chatfiles *f, const struct sources *s, const char *choice,
                  struct err *err)
{
    const struct source *usual = find_source(s, choice ? choice : "default");
    const struct source *tools = choice ? NULL : find_source(s, "tool_use");

    f->names = join_names(s);
    if (choice && !usual)
        return parse_file(f, choice, err);
    if (!usual && !tools)
        return err_set(err, ERR_INPUT,
                       "%s: no chat template is named default; choose one of: %s",
                       s->v->path, f->names);
    if (usual && parse(&f->usual, usual, err) < 0)
        return -1;
    return tools ? parse(&f->with_tools, tools, err) : 0;
}

int chatfiles_open(struct chatfiles **out, const char *dir, const char *config,
                   const char *choice, struct err *err)
{
    struct chatfiles *f = xcalloc(1, sizeof(*f));
    struct sources s = { 0 };
    int ret = -1;

    if (read_files(&s, dir, err) == 0 && read_config(f, &s, dir, config, err) == 0)
        ret = s.n || choice ? choose(f, &s, choice, err) : 0;
    if (ret == 0 && (f->usual || f->with_tools)) {
        *out = f;
    } else {
        chatfiles_free(f);
        *out = ret == 0 ? NULL : *out;
    }
    sources_clear(&s);
    return ret;
}

void chatfiles_free(struct chatfiles *f)
{
    if (!f)
        return;
    template_free(f->usual);
    template_free(f->with_tools);
    for (size_t i = 0; i < f->n_special; i++) {
        free(f->special[i].name);
        free(f->special[i].text);
    }
    for (size_t i = 0; i < f->n_control; i++)
        free(f->control[i]);
    free(f->special);
    free(f->control);
    free(f->names);
    free(f);
}

const struct template *chatfiles_template(const struct chatfiles *f, bool tools,
                                          struct err *err)
{
    if (tools && f->with_tools)
        return f->with_tools;
    if (!f->usual)
        err_set(err, ERR_INPUT,
                "%s: this template is for chats with tools; choose one of: %s",
                template_name(f->with_tools), f->names);
    return f->usual;
}
