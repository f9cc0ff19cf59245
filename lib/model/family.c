/* family - family files: reading, inheritance, flattening */
#include "lib/model/family.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/model/expr.h"

enum { MAX_FILE = 1 << 20, MAX_PARENTS = 8 };

/* ---- the library ---- */

struct library_item {
    char *file, *name;
    char *owned; /* text read from a file, else NULL */
    const char *text;
    struct json_doc doc;
};

struct family_library {
    struct library_item *item; /* user's first, then the built-in ones */
    size_t n, cap;
    const char **name; /* sorted; each name once */
    size_t nnames;
    char **fault; /* errors of skipped files */
    size_t nfaults, faults_cap;
};

static int add_item(struct family_library *lib, const char *file, const char *text,
                    char *owned, struct err *err)
{
    struct library_item item = { .owned = owned, .text = text };
    const char *name;

    item.file = xstrdup(file);
    if (json_parse(&item.doc, item.file, text, strlen(text), err) < 0)
        goto fail;
    name = json_string(json_get(item.doc.root, "family"));
    if (!name || !*name) {
        json_error(&item.doc, item.doc.root, err, "no \"family\" name");
        json_clear(&item.doc);
        goto fail;
    }
    item.name = xstrdup(name);
    lib->item = xgrow(lib->item, &lib->cap, lib->n + 1, sizeof(*lib->item));
    lib->item[lib->n++] = item;
    /* the document borrows item.file, whose address does not change */
    return 0;
fail:
    free(item.file);
    free(owned);
    return -1;
}

/* A bad file is recorded and skipped; it does not stop the library from opening.  A
 * file that the system cannot read does: another family of its name would take its
 * place. */
static void add_fault(struct family_library *lib, const struct err *err)
{
    lib->fault =
        xgrow(lib->fault, &lib->faults_cap, lib->nfaults + 1, sizeof(*lib->fault));
    lib->fault[lib->nfaults++] = xstrdup(err->text);
}

static int add_file(struct family_library *lib, const char *file, struct err *err)
{
    struct err fault = { 0 };
    char *text;
    bool absent = access(file, F_OK) < 0 && (errno == ENOENT || errno == ENOTDIR);

    if (absent)
        err_errno(&fault, "%s", file);
    else if (fs_read_file(&text, NULL, file, MAX_FILE, &fault) == 0 &&
             add_item(lib, file, text, text, &fault) == 0)
        return 0;
    if (!absent && fault.kind == ERR_SYSTEM) {
        *err = fault;
        return -1;
    }
    add_fault(lib, &fault);
    return 0;
}

static int add_place(struct family_library *lib, const char *place, struct err *err)
{
    char **names;
    size_t n;
    bool is_dir;
    int ret = 0;

    if (fs_find_dir(&is_dir, place, err) < 0)
        return -1;
    if (!is_dir)
        return add_file(lib, place, err);
    if (fs_list(&names, &n, place, err) < 0)
        return -1;
    for (size_t i = 0; i < n && ret == 0; i++)
        if (str_ends(names[i], ".json")) {
            char *file = fs_join_dup(place, names[i]);

            ret = add_file(lib, file, err);
            free(file);
        }
    fs_list_free(names, n);
    return ret;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void sort_names(struct family_library *lib)
{
    size_t n = 0;

    lib->name = xcalloc(lib->n + 1, sizeof(*lib->name));
    for (size_t i = 0; i < lib->n; i++)
        lib->name[i] = lib->item[i].name;
    qsort(lib->name, lib->n, sizeof(*lib->name), compare_names);
    for (size_t i = 0; i < lib->n; i++)
        if (!n || strcmp(lib->name[n - 1], lib->name[i]))
            lib->name[n++] = lib->name[i];
    lib->nnames = n;
}

int family_library_open(struct family_library **out, const char *path, struct err *err)
{
    struct family_library *lib = xcalloc(1, sizeof(*lib));

    for (const char *p = path ? path : ""; *p;) {
        size_t n = strcspn(p, ":");
        char *place = xstrndup(p, n);
        int ret = n ? add_place(lib, place, err) : 0;

        free(place);
        if (ret < 0)
            goto fail;
        p += n + (p[n] == ':');
    }
    for (const struct family_builtin *b = family_builtins; b->name; b++)
        if (add_item(lib, b->name, b->text, NULL, err) < 0)
            goto fail;
    sort_names(lib);
    *out = lib;
    return 0;
fail:
    family_library_free(lib);
    return -1;
}

void family_library_free(struct family_library *lib)
{
    if (!lib)
        return;
    for (size_t i = 0; i < lib->n; i++) {
        json_clear(&lib->item[i].doc);
        free(lib->item[i].file);
        free(lib->item[i].name);
        free(lib->item[i].owned);
    }
    for (size_t i = 0; i < lib->nfaults; i++)
        free(lib->fault[i]);
    free(lib->fault);
    free(lib->item);
    free(lib->name);
    free(lib);
}

const char *family_library_fault(const struct family_library *lib, size_t i)
{
    return i < lib->nfaults ? lib->fault[i] : NULL;
}

size_t family_library_count(const struct family_library *lib)
{
    return lib->nnames;
}

const char *family_library_name(const struct family_library *lib, size_t i)
{
    return lib->name[i];
}

static const struct library_item *find_item(const struct family_library *lib,
                                            const char *name)
{
    for (size_t i = 0; lib && i < lib->n; i++)
        if (!strcmp(lib->item[i].name, name))
            return &lib->item[i];
    return NULL;
}

/* ---- one family ---- */

struct family_state {
    char *file[MAX_PARENTS], *text[MAX_PARENTS];
    struct json_doc doc[MAX_PARENTS];
    int ndocs;
};

int family_error(const struct json_doc *doc, const struct json *j, size_t offset,
                 struct err *err, const char *fmt, ...)
{
    char what[800];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    return err_set(err, ERR_INPUT, "%s:%u:%u: %s", doc->name, (unsigned)j->line,
                   (unsigned)(j->col + (j->type == JSON_STRING) + offset), what);
}

int family_place(const struct json_doc *doc, const struct json *j, size_t offset,
                 const struct err *cause, struct err *err)
{
    struct err e = *cause;

    if (e.column)
        return family_error(doc, j, offset + e.column - 1, err, "%s", e.text);
    if (err)
        *err = e;
    return -1;
}

const struct family_entry *family_get(const struct family_table *t, const char *key)
{
    for (size_t i = 0; i < t->n; i++)
        if (!strcmp(t->v[i].key, key))
            return &t->v[i];
    return NULL;
}

static void table_remove(struct family_table *t, const char *key)
{
    size_t n = 0;

    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->v[i].key, key))
            t->v[n++] = t->v[i];
    t->n = n;
}

/* Merges the members of OBJ into T: a new key is added, a known one replaced, null
 * deletes. */
static int table_merge(struct family_table *t, const struct json_doc *doc,
                       const struct json *obj, struct err *err)
{
    if (obj && obj->type == JSON_NULL) {
        t->n = 0;
        return 0;
    }
    if (obj && obj->type != JSON_OBJECT)
        return json_error(doc, obj, err, "expected an object");
    for (const struct json *j = obj ? obj->first : NULL; j; j = j->next) {
        struct family_entry *old = (struct family_entry *)family_get(t, j->key);
        struct family_entry e = { .key = j->key, .json = j, .doc = doc };

        if (j->type == JSON_NULL) {
            if (!old)
                return json_error(doc, j, err, "'%s' is deleted but was not there",
                                  j->key);
            table_remove(t, j->key);
        } else if (old) {
            *old = e;
        } else {
            t->v = xgrow(t->v, &t->cap, t->n + 1, sizeof(*t->v));
            t->v[t->n++] = e;
        }
    }
    return 0;
}

static int carry_merge(struct family_table *t, const struct json_doc *doc,
                       const struct json *list, struct err *err)
{
    if (list && list->type != JSON_ARRAY)
        return json_error(doc, list, err, "expected a list of names");
    for (const struct json *j = list ? list->first : NULL; j; j = j->next) {
        const struct json *name = j->type == JSON_OBJECT ? json_get(j, "name") : j;

        if (!json_string(name) ||
            (name != j && (!json_string(json_get(j, "is")) || j->n != 2)))
            return json_error(doc, j, err,
                              "expected a name, or an object of \"name\" and \"is\"");
        if (family_get(t, name->text))
            continue;
        t->v = xgrow(t->v, &t->cap, t->n + 1, sizeof(*t->v));
        t->v[t->n++] =
            (struct family_entry){ .key = name->text, .json = j, .doc = doc };
    }
    return 0;
}

/* TEXT with every A replaced by B, in memory of POOL; NULL if TEXT has no A. */
static char *replaced(struct pool *pool, const char *text, const char *a, const char *b)
{
    struct str out = { 0 };
    const char *at;
    char *copy;

    if (!strstr(text, a))
        return NULL;
    for (; (at = strstr(text, a)) != NULL; text = at + strlen(a)) {
        str_addn(&out, text, (size_t)(at - text));
        str_add(&out, b);
    }
    str_add(&out, text);
    copy = pool_strdup(pool, out.s);
    str_clear(&out);
    return copy;
}

/* Replaces PART by TO in the names of T's tensors; sets *used if any had it. */
static void rename_in(struct family_table *t, struct pool *pool, const char *part,
                      const char *to, bool *used)
{
    for (size_t i = 0; i < t->n; i++) {
        const struct json *j = t->v[i].json;
        /* the parent's document was parsed for this family alone, so it may change */
        struct json *name =
            (struct json *)(j->type == JSON_ARRAY    ? j->first
                            : j->type == JSON_OBJECT ? json_get(j, "name")
                                                     : j);
        const char *text =
            json_string(name) ? replaced(pool, name->text, part, to) : NULL;

        if (!text)
            continue;
        name->text = text;
        name->n = (uint32_t)strlen(text);
        if (j->type != JSON_ARRAY)
            t->v[i].key = text;
        *used = true;
    }
}

/* "names": parts of the parents' tensor names and their replacements. */
static int names_replace(struct family *f, struct json_doc *doc, struct err *err)
{
    const struct json *names = json_get(doc->root, "names");

    if (names && names->type != JSON_OBJECT)
        return json_error(doc, names, err, "expected an object");
    for (const struct json *j = names ? names->first : NULL; j; j = j->next) {
        bool used = false;

        if (j->type == JSON_OBJECT || j->type == JSON_TRUE)
            continue;
        if (!json_string(j) || !*j->key)
            return json_error(doc, j, err, "expected a part of names");
        rename_in(&f->tensors, &doc->pool, j->key, j->text, &used);
        rename_in(&f->carry, &doc->pool, j->key, j->text, &used);
        if (!used)
            return json_error(doc, j, err, "no name of a tensor has '%s'", j->key);
    }
    return 0;
}

/* Appends a copy of J to the object OUT, whose last member is *LAST. */
static void add_member(struct json *out, struct json **last, struct pool *pool,
                       const struct json *j)
{
    struct json *copy = pool_take(pool, sizeof(*copy), sizeof(void *));

    *copy = *j;
    copy->next = NULL;
    if (*last)
        (*last)->next = copy;
    else
        out->first = copy;
    *last = copy;
    out->n++;
}

/* The members of BASE, of which those of OWN replace some, or drop them if they are
 * null, and the others of OWN. */
static const struct json *extend(struct pool *pool, const struct json *base,
                                 const struct json *own)
{
    struct json *out = pool_take(pool, sizeof(*out), sizeof(void *)), *last = NULL;

    *out = *own;
    out->first = NULL;
    out->n = 0;
    for (const struct json *j = base->first; j; j = j->next) {
        const struct json *instead = json_get(own, j->key);

        if (!instead || instead->type != JSON_NULL)
            add_member(out, &last, pool, instead ? instead : j);
    }
    for (const struct json *j = own->first; j; j = j->next)
        if (strcmp(j->key, "extends") != 0 && !json_get(base, j->key))
            add_member(out, &last, pool, j);
    return out;
}

/* "names": how other frameworks store the tensors of this very family: what holds for
 * one is not known of those that extend it, unless they say true, or have an object
 * with "extends": true. */
static int dialects_set(struct family *f, struct json_doc *doc, struct err *err)
{
    const struct json *names = json_get(doc->root, "names");
    struct family_table own = { 0 };

    for (const struct json *j = names ? names->first : NULL; j; j = j->next) {
        const struct family_entry *parents = family_get(&f->names, j->key);
        bool extends = j->type == JSON_OBJECT && json_is_true(json_get(j, "extends"));

        if (j->type != JSON_OBJECT && j->type != JSON_TRUE)
            continue;
        if ((j->type == JSON_TRUE || extends) && !parents) {
            free(own.v);
            return json_error(doc, j, err, "no family that it extends has '%s'",
                              j->key);
        }
        own.v = xgrow(own.v, &own.cap, own.n + 1, sizeof(*own.v));
        own.v[own.n++] =
            j->type == JSON_TRUE
                ? *parents
                : (struct family_entry){
                      j->key, extends ? extend(&doc->pool, parents->json, j) : j, doc
                  };
    }
    free(f->names.v);
    f->names = own;
    return 0;
}

/* ---- lines ---- */

static void line_clear(struct family_line *l)
{
    free(l->name);
    free(l->text);
}

/* Parses "name = text" from the string J; if NAME is given, "text" alone. */
static int line_parse(struct family_line *out, const struct json_doc *doc,
                      const struct json *j, const char *name, const struct json *when,
                      struct err *err)
{
    const char *text, *p;

    if (!json_string(j))
        return json_error(doc, j, err, "expected a line");
    text = p = j->text;
    if (!name) {
        while (isalnum((unsigned char)*p) || *p == '_')
            p++;
        if (p == text || strncmp(p, " = ", 3))
            return json_error(doc, j, err, "expected \"name = expression\"");
    }
    *out = (struct family_line){ .when = when, .json = j, .doc = doc };
    out->name = name ? xstrdup(name) : xstrndup(text, (size_t)(p - text));
    out->skip = name ? 0 : (int)(p + 3 - text);
    out->text = xstrdup(text + out->skip);
    return 0;
}

/* Reads a line of a list (NAME NULL) or an override of line NAME: a string, or an
 * object with "line", "when", "needs" and "lacks". */
static int line_read(struct family_line *out, const struct json_doc *doc,
                     const struct json *j, const char *name, struct err *err)
{
    const struct json *when, *needs, *lacks;

    if (j->type != JSON_OBJECT)
        return line_parse(out, doc, j, name, NULL, err);
    for (const struct json *m = j->first; m; m = m->next)
        if (strcmp(m->key, "line") && strcmp(m->key, "when") &&
            strcmp(m->key, "needs") && strcmp(m->key, "lacks") &&
            (!name || strcmp(m->key, "after")))
            return json_error(doc, m, err, "unknown key '%s' of a line", m->key);
    when = json_get(j, "when");
    if (when && !json_string(when))
        return json_error(doc, when, err, "expected a condition");
    needs = json_get(j, "needs");
    if (needs && !json_string(needs))
        return json_error(doc, needs, err, "expected the name of a tensor");
    lacks = json_get(j, "lacks");
    if (lacks && !json_string(lacks))
        return json_error(doc, lacks, err, "expected the name of a tensor");
    if (!json_get(j, "line"))
        return json_error(doc, j, err, "no \"line\"");
    if (line_parse(out, doc, json_get(j, "line"), name, when, err) < 0)
        return -1;
    out->needs = json_string(needs);
    out->lacks = json_string(lacks);
    return 0;
}

static long find_line(const struct family_section *s, const char *name)
{
    for (size_t i = 0; i < s->n; i++)
        if (!strcmp(s->line[i].name, name))
            return (long)i;
    return -1;
}

static void insert_line(struct family_section *s, size_t at, struct family_line l)
{
    s->line = xgrow(s->line, &s->cap, s->n + 1, sizeof(*s->line));
    memmove(s->line + at + 1, s->line + at, sizeof(*s->line) * (s->n - at));
    s->line[at] = l;
    s->n++;
}

static void delete_lines(struct family_section *s, const char *name)
{
    size_t n = 0;

    for (size_t i = 0; i < s->n; i++) {
        if (strcmp(s->line[i].name, name))
            s->line[n++] = s->line[i];
        else
            line_clear(&s->line[i]);
    }
    s->n = n;
}

/* Replaces the lines called J->key by those of the list J, which differ by their
 * "when". AT is the position of the first of them. */
static int override_choice(struct family_section *s, const struct json_doc *doc,
                           const struct json *j, size_t at, struct err *err)
{
    if (!j->first)
        return json_error(doc, j, err, "expected lines");
    delete_lines(s, j->key);
    for (const struct json *m = j->first; m; m = m->next) {
        struct family_line l;

        if (json_get(m, "after"))
            return json_error(doc, m, err, "a line of a choice has no 'after'");
        if (line_read(&l, doc, m, j->key, err) < 0)
            return -1;
        insert_line(s, at++, l);
    }
    return 0;
}

/* An override "name": a line; a list of lines that differ by their "when"; null, which
 * deletes; or { "line": ..., "after": ... }, which adds a line. */
static int override_line(struct family_section *s, const struct json_doc *doc,
                         const struct json *j, struct err *err)
{
    const struct json *after = json_get(j, "after");
    long at = find_line(s, after && json_string(after) ? after->text : j->key);
    struct family_line l;

    if (at < 0)
        return json_error(doc, after ? after : j, err, "section '%s' has no line '%s'",
                          s->name, after && json_string(after) ? after->text : j->key);
    if (j->type == JSON_NULL) {
        delete_lines(s, j->key);
        return 0;
    }
    if (j->type == JSON_ARRAY)
        return override_choice(s, doc, j, (size_t)at, err);
    if (line_read(&l, doc, j, j->key, err) < 0)
        return -1;
    if (after) {
        while ((size_t)at + 1 < s->n && !strcmp(s->line[at + 1].name, s->line[at].name))
            at++; /* after the last of several lines of this name */
        insert_line(s, (size_t)at + 1, l);
        return 0;
    }
    delete_lines(s, j->key);
    insert_line(s, (size_t)at, l);
    return 0;
}

static struct family_section *find_section(struct family *f, const char *name)
{
    for (size_t i = 0; i < f->nsections; i++)
        if (!strcmp(f->section[i].name, name))
            return &f->section[i];
    return NULL;
}

static int section_merge(struct family *f, const struct json_doc *doc,
                         const struct json *j, struct err *err)
{
    struct family_section *s = find_section(f, j->key);

    if (j->type == JSON_OBJECT) {
        if (!s)
            return json_error(doc, j, err, "there is no section '%s' to override",
                              j->key);
        for (const struct json *m = j->first; m; m = m->next)
            if (override_line(s, doc, m, err) < 0)
                return -1;
        return 0;
    }
    if (j->type != JSON_ARRAY)
        return json_error(doc, j, err,
                          "expected a list of lines, or an object that overrides");
    if (!s) {
        f->section = xrealloc(f->section, sizeof(*f->section) * (f->nsections + 1));
        s = &f->section[f->nsections++];
        *s = (struct family_section){ .name = j->key };
    }
    for (size_t i = 0; i < s->n; i++)
        line_clear(&s->line[i]);
    s->n = 0;
    for (const struct json *m = j->first; m; m = m->next) {
        struct family_line l;

        if (line_read(&l, doc, m, NULL, err) < 0)
            return -1;
        insert_line(s, s->n, l);
    }
    return 0;
}

/* ---- inheritance ---- */

static int check_keys(const struct json_doc *doc, struct err *err)
{
    static const char *const known[] = { "family",      "summary", "example",
                                         "extends",     "match",   "symbols",
                                         "captures",    "deal",    "rope",
                                         "tensors",     "carry",   "forward",
                                         "part_config", "config",  "parallelformers",
                                         "names",       "torch",   "inputs",
                                         "within",      "order",   NULL };

    if (doc->root->type != JSON_OBJECT)
        return json_error(doc, doc->root, err, "expected an object");
    for (const struct json *j = doc->root->first; j; j = j->next) {
        int i = 0;

        while (known[i] && strcmp(known[i], j->key))
            i++;
        if (!known[i])
            return json_error(doc, j, err, "unknown key '%s'", j->key);
    }
    return 0;
}

/* "order": the keys of tensors as optimizers number them; null: it is not known. */
static int order_set(struct family *f, struct json_doc *doc, struct err *err)
{
    const struct json *order = json_get(doc->root, "order");

    if (!order)
        return 0;
    f->order = order->type == JSON_NULL ? NULL : order;
    if (f->order && order->type != JSON_ARRAY)
        return json_error(doc, order, err, "expected a list of keys of tensors");
    for (const struct json *j = f->order ? order->first : NULL; j; j = j->next)
        if (!json_string(j))
            return json_error(doc, j, err, "expected a key of tensors");
    return 0;
}

static int fold(struct family *f, struct json_doc *doc, struct err *err)
{
    static const struct {
        const char *key;
        size_t at;
    } tables[] = {
        { "symbols", offsetof(struct family, symbols) },
        { "captures", offsetof(struct family, captures) },
        { "deal", offsetof(struct family, deal) },
        { "rope", offsetof(struct family, rope) },
        { "tensors", offsetof(struct family, tensors) },
        { "part_config", offsetof(struct family, part_config) },
        { "config", offsetof(struct family, config) },
        { "torch", offsetof(struct family, torch) },
        { "inputs", offsetof(struct family, inputs) },
    };
    const struct json *forward = json_get(doc->root, "forward");

    if (check_keys(doc, err) < 0 || names_replace(f, doc, err) < 0 ||
        dialects_set(f, doc, err) < 0)
        return -1;
    for (size_t i = 0; i < sizeof(tables) / sizeof(*tables); i++)
        if (table_merge((struct family_table *)((char *)f + tables[i].at), doc,
                        json_get(doc->root, tables[i].key), err) < 0)
            return -1;
    if (carry_merge(&f->carry, doc, json_get(doc->root, "carry"), err) < 0)
        return -1;
    if (forward && forward->type != JSON_OBJECT)
        return json_error(doc, forward, err, "expected an object of sections");
    for (const struct json *j = forward ? forward->first : NULL; j; j = j->next)
        if (section_merge(f, doc, j, err) < 0)
            return -1;
    f->name = json_string(json_get(doc->root, "family"));
    f->types = json_get(json_get(doc->root, "match"), "model_type");
    f->policies = json_get(doc->root, "parallelformers");
    if (json_string(json_get(doc->root, "summary")))
        f->summary = json_string(json_get(doc->root, "summary"));
    if (json_get(doc->root, "example"))
        f->example = json_get(doc->root, "example");
    if (json_get(doc->root, "within"))
        f->within = json_get(doc->root, "within");
    if (f->within &&
        (f->within->type != JSON_OBJECT || !json_string(json_get(f->within, "key"))))
        return json_error(doc, f->within, err, "expected an object with a \"key\"");
    if (f->example && f->example->type != JSON_OBJECT)
        return json_error(doc, f->example, err, "\"example\" is a configuration");
    return order_set(f, doc, err);
}

static int item_matches(const struct library_item *item, const cJSON *config,
                        const char *type, struct err *err);

/* The family of the model of CONFIG that lies within the one that ROOT describes, in
 * place of ROOT's "extends".  1; 0: there is no such model; or -1 with *err set. */
static int find_inner(const struct library_item **out, const struct family_library *lib,
                      const struct json *root, const cJSON *config, struct err *err)
{
    const char *key = json_string(json_get(json_get(root, "within"), "key"));
    const cJSON *inner = key ? cJSON_GetObjectItemCaseSensitive(config, key) : NULL;
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(inner, "model_type");

    if (!cJSON_IsString(type))
        return 0;
    for (size_t i = 0; i < lib->n; i++) {
        int yes = item_matches(&lib->item[i], inner, type->valuestring, err);

        if (yes)
            *out = &lib->item[i];
        if (yes)
            return yes;
    }
    return err_set(err, ERR_INPUT,
                   "no family matches model_type '%s' of its %s; one is described in "
                   "a file for --family, see shardutils-family(5)",
                   type->valuestring, key);
}

/* Loads TEXT, after the families that it extends, and merges each into F.  CONFIG is
 * that of the model, or NULL. */
static int load_chain(struct family *f, const struct family_library *lib,
                      const char *file, const char *text, const cJSON *config,
                      struct err *err)
{
    struct family_state *s = f->state;
    int me = s->ndocs;
    const struct json *extends;
    const struct library_item *parent;
    int inner;

    if (me == MAX_PARENTS)
        return err_set(err, ERR_INPUT,
                       "%s: extends itself, or more than %d families deep", file,
                       MAX_PARENTS);
    s->file[me] = xstrdup(file);
    s->text[me] = xstrdup(text);
    if (json_parse(&s->doc[me], s->file[me], s->text[me], strlen(text), err) < 0) {
        free(s->file[me]);
        free(s->text[me]);
        return -1;
    }
    s->ndocs++;
    extends = json_get(s->doc[me].root, "extends");
    if (extends) {
        parent = json_string(extends) ? find_item(lib, extends->text) : NULL;
        if (!parent)
            return json_error(&s->doc[me], extends, err,
                              "extends a family that is not known");
        inner = config ? find_inner(&parent, lib, s->doc[me].root, config, err) : 0;
        if (inner < 0 || load_chain(f, lib, parent->file, parent->text, NULL, err) < 0)
            return -1;
    }
    if (!json_string(json_get(s->doc[me].root, "family")))
        return json_error(&s->doc[me], s->doc[me].root, err, "no \"family\" name");
    return fold(f, &s->doc[me], err);
}

static int parse_for(struct family **out, const struct family_library *lib,
                     const char *file, const char *text, const cJSON *config,
                     struct err *err)
{
    struct family *f = xcalloc(1, sizeof(*f));

    f->summary = "";
    f->state = xcalloc(1, sizeof(*f->state));
    if (load_chain(f, lib, file, text, config, err) < 0) {
        family_free(f);
        return -1;
    }
    *out = f;
    return 0;
}

int family_parse(struct family **out, const struct family_library *lib,
                 const char *file, const char *text, struct err *err)
{
    return parse_for(out, lib, file, text, NULL, err);
}

int family_read(struct family **out, const struct family_library *lib, const char *file,
                struct err *err)
{
    char *text;
    bool found;
    int ret;

    if (fs_find(&found, file, err) < 0)
        return -1;
    if (!found)
        return err_set(err, ERR_INPUT, "%s: no such family file", file);
    if (fs_read_file(&text, NULL, file, MAX_FILE, err) < 0)
        return -1;
    ret = family_parse(out, lib, file, text, err);
    free(text);
    if (ret == 0)
        (*out)->own = true;
    return ret;
}

void family_free(struct family *f)
{
    struct family_table *tables[] = { &f->symbols,     &f->captures, &f->deal,
                                      &f->rope,        &f->tensors,  &f->carry,
                                      &f->part_config, &f->config,   &f->torch,
                                      &f->names,       &f->inputs };

    if (!f)
        return;
    for (size_t i = 0; i < sizeof(tables) / sizeof(*tables); i++)
        free(tables[i]->v);
    for (size_t i = 0; i < f->nsections; i++) {
        for (size_t k = 0; k < f->section[i].n; k++)
            line_clear(&f->section[i].line[k]);
        free(f->section[i].line);
    }
    free(f->section);
    for (int i = 0; i < f->state->ndocs; i++) {
        json_clear(&f->state->doc[i]);
        free(f->state->file[i]);
        free(f->state->text[i]);
    }
    free(f->state);
    free(f);
}

/* ---- finding ---- */

static const char *nearest(const char *word, const char *const *known, size_t n)
{
    const char *best = NULL;
    size_t distance = 0;

    for (size_t i = 0; i < n; i++) {
        size_t d = str_distance(word, known[i]);

        if (!best || d < distance) {
            best = known[i];
            distance = d;
        }
    }
    return best;
}

/* CONFIG: the model's, called NAME; or NULL. */
static int parse_item(struct family **out, const struct family_library *lib,
                      const struct library_item *item, const cJSON *config,
                      const char *name, struct err *err)
{
    const struct library_item *inner;
    int ret = 0;

    if (config)
        ret = find_inner(&inner, lib, item->doc.root, config, err);
    if (ret < 0) {
        err_prefix(err, "%s", name);
        return -1;
    }
    if (parse_for(out, lib, item->file, item->text, config, err) < 0)
        return -1;
    (*out)->own = item->owned != NULL;
    return 0;
}

int family_find(struct family **out, const struct family_library *lib, const char *name,
                struct err *err)
{
    const struct library_item *item = find_item(lib, name);

    if (!item)
        return err_set(err, ERR_INPUT, "no family is called '%s'; the nearest is '%s'",
                       name, nearest(name, lib->name, lib->nnames));
    return parse_item(out, lib, item, NULL, NULL, err);
}

static int config_lookup(void *arg, const char *name, size_t len,
                         struct expr_value *out, struct err *err)
{
    const cJSON *member;

    (void)err;
    *out = (struct expr_value){ .kind = EXPR_NULL };
    cJSON_ArrayForEach(
        member, (const cJSON *)arg) if (member->string &&
                                        strlen(member->string) == len &&
                                        !memcmp(member->string, name, len)) *out =
        expr_from_json(member);
    return 0;
}

static bool config_given(void *arg, const char *name, size_t len)
{
    const cJSON *member;

    cJSON_ArrayForEach(
        member, (const cJSON *)arg) if (member->string &&
                                        strlen(member->string) == len &&
                                        !memcmp(member->string, name, len)) return true;
    return false;
}

/* Does ITEM's "match" accept CONFIG?  1, 0, or -1 with *err set. */
static int item_matches(const struct library_item *item, const cJSON *config,
                        const char *type, struct err *err)
{
    const struct json *match = json_get(item->doc.root, "match");
    const struct json *types = json_get(match, "model_type"),
                      *when = json_get(match, "when");
    struct expr_env env = { .lookup = config_lookup,
                            .given = config_given,
                            .arg = (void *)config };
    struct expr_value v;
    struct err e;
    bool found = false;

    for (const struct json *j = types ? types->first : NULL; j; j = j->next)
        found |= json_string(j) && !strcmp(j->text, type);
    if (!found || !when)
        return found;
    if (!json_string(when))
        return json_error(&item->doc, when, err, "expected a condition");
    if (expr_eval(&v, when->text, when->n, &env, &e) < 0)
        return family_place(&item->doc, when, 0, &e, err);
    return expr_is_true(&v);
}

int family_match(struct family **out, const struct family_library *lib,
                 const cJSON *config, const char *config_name, struct err *err)
{
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(config, "model_type");
    const cJSON *text;

    if (!cJSON_IsString(type))
        return err_set(err, ERR_INPUT,
                       "%s: no \"model_type\"; choose a family with --family",
                       config_name);
    for (size_t i = 0; i < lib->n; i++) {
        int yes = item_matches(&lib->item[i], config, type->valuestring, err);

        if (yes < 0)
            return -1;
        if (yes)
            return parse_item(out, lib, &lib->item[i], config, config_name, err);
    }
    text = cJSON_GetObjectItemCaseSensitive(
        cJSON_GetObjectItemCaseSensitive(config, "text_config"), "model_type");
    if (cJSON_IsString(text))
        return err_set(err, ERR_INPUT,
                       "%s: no family matches model_type '%s', a model with more than "
                       "its text_config of type '%s'; a text model alone can be read",
                       config_name, type->valuestring, text->valuestring);
    return err_set(err, ERR_INPUT,
                   "%s: no family matches model_type '%s'; one is described in a file "
                   "for --family, see shardutils-family(5)",
                   config_name, type->valuestring);
}

void family_config(const struct family *f, cJSON *config)
{
    static const char *const outer[] = { "model_type", "architectures",
                                         "tie_word_embeddings" };
    const char *key = json_string(json_get(f->within, "key"));
    const cJSON *inner = key ? cJSON_GetObjectItemCaseSensitive(config, key) : NULL;
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(inner, "model_type"), *j;
    const struct json *defaults =
        cJSON_IsString(type)
            ? json_get(json_get(f->within, "defaults"), type->valuestring)
            : NULL;

    if (!cJSON_IsObject(inner))
        return;
    cJSON_ArrayForEach(j, inner)
    {
        bool has = cJSON_GetObjectItemCaseSensitive(config, j->string) != NULL;

        if (!strcmp(j->string, key))
            continue;
        for (size_t i = 0; has && i < sizeof(outer) / sizeof(*outer); i++)
            if (!strcmp(outer[i], j->string))
                goto next;
        if (has)
            cJSON_DeleteItemFromObjectCaseSensitive(config, j->string);
        cJSON_AddItemToObject(config, j->string, cJSON_Duplicate(j, true));
    next:;
    }
    for (const struct json *d = defaults ? defaults->first : NULL; d; d = d->next) {
        double x;

        if (!cJSON_GetObjectItemCaseSensitive(inner, d->key) && json_double(d, &x)) {
            cJSON_DeleteItemFromObjectCaseSensitive(config, d->key);
            cJSON_AddNumberToObject(config, d->key, x);
        }
    }
}

/* ---- flattened text ---- */

static void print_table(struct str *out, const char *key, const struct family_table *t)
{
    str_addf(out, ",\n  \"%s\": {", key);
    for (size_t i = 0; i < t->n; i++) {
        str_addf(out, "%s\n    ", i ? "," : "");
        str_add_json(out, t->v[i].key);
        str_add(out, ": ");
        json_print(out, t->v[i].json);
    }
    str_add(out, t->n ? "\n  }" : "}");
}

static void print_line(struct str *out, const struct family_line *l)
{
    char *text = str_dupf("%s = %s", l->name, l->text);
    bool plain = !l->when && !l->needs && !l->lacks;

    if (!plain)
        str_add(out, "{ \"line\": ");
    str_add_json(out, text);
    if (l->when) {
        str_add(out, ", \"when\": ");
        str_add_json(out, l->when->text);
    }
    if (l->needs) {
        str_add(out, ", \"needs\": ");
        str_add_json(out, l->needs);
    }
    if (l->lacks) {
        str_add(out, ", \"lacks\": ");
        str_add_json(out, l->lacks);
    }
    if (!plain)
        str_add(out, " }");
    free(text);
}

void family_print(struct str *out, const struct family *f)
{
    const struct json *match = json_get(f->state->doc[0].root, "match");

    str_add(out, "{\n  \"family\": ");
    str_add_json(out, f->name);
    str_add(out, ",\n  \"summary\": ");
    str_add_json(out, f->summary);
    if (match) {
        str_add(out, ",\n  \"match\": ");
        json_print(out, match);
    }
    if (f->example) {
        str_add(out, ",\n  \"example\": ");
        json_print(out, f->example);
    }
    print_table(out, "symbols", &f->symbols);
    print_table(out, "captures", &f->captures);
    print_table(out, "deal", &f->deal);
    print_table(out, "rope", &f->rope);
    print_table(out, "tensors", &f->tensors);
    if (f->within) {
        str_add(out, ",\n  \"within\": ");
        json_print(out, f->within);
    }
    if (f->order) {
        str_add(out, ",\n  \"order\": ");
        json_print(out, f->order);
    }
    if (f->inputs.n)
        print_table(out, "inputs", &f->inputs);
    if (f->part_config.n)
        print_table(out, "part_config", &f->part_config);
    if (f->config.n)
        print_table(out, "config", &f->config);
    if (f->torch.n)
        print_table(out, "torch", &f->torch);
    if (f->names.n)
        print_table(out, "names", &f->names);
    str_add(out, ",\n  \"carry\": [");
    for (size_t i = 0; i < f->carry.n; i++) {
        const struct json *j = f->carry.v[i].json;
        bool checked = j->type == JSON_OBJECT;

        str_add(out, i ? ", " : "");
        str_add(out, checked ? "{ \"name\": " : "");
        str_add_json(out, f->carry.v[i].key);
        if (checked) {
            str_add(out, ", \"is\": ");
            str_add_json(out, json_get(j, "is")->text);
            str_add(out, " }");
        }
    }
    str_add(out, "],\n  \"forward\": {");
    for (size_t i = 0; i < f->nsections; i++) {
        str_add(out, i ? ",\n    " : "\n    ");
        str_add_json(out, f->section[i].name);
        str_add(out, ": [");
        for (size_t k = 0; k < f->section[i].n; k++) {
            str_add(out, k ? ",\n      " : "\n      ");
            print_line(out, &f->section[i].line[k]);
        }
        str_add(out, "\n    ]");
    }
    str_add(out, "\n  }\n}\n");
}
