/* chatfile - a file of chats: JSON lines, or one JSON document */
#include "cmd/tp-run/chatfile.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/fs.h"
#include "lib/base/str.h"

static const uint64_t MOST_BYTES = UINT64_C(1) << 32;

struct reading {
    const char *name; /* of the file */
    int (*each)(void *arg, const struct chatfile_chat *chat, struct err *err);
    void *arg;
    size_t n; /* chats so far */
};

static int give(struct reading *r, size_t line, const struct json_doc *doc,
                const struct json *chat, const struct err *why, struct err *err)
{
    char *name = str_dupf("%s:%zu", r->name, line);
    struct chatfile_chat c = { .name = name, .line = line, .doc = doc, .chat = chat };
    int ret;

    if (why)
        c.err = *why;
    r->n++;
    ret = r->each(r->arg, &c, err);
    free(name);
    return ret;
}

/* Is J an array of chats?  One of messages has objects with a role. */
static bool has_chats(const struct json *j)
{
    return j->type == JSON_ARRAY && j->first && !json_get(j->first, "role");
}

/* The value of DOC: a chat on line LINE, or an array of chats. */
static int give_value(struct reading *r, size_t line, const struct json_doc *doc,
                      struct err *err)
{
    size_t n = 0;

    if (!has_chats(doc->root))
        return give(r, line, doc, doc->root, NULL, err);
    for (const struct json *one = doc->root->first; one; one = one->next)
        if (give(r, ++n, doc, one, NULL, err) < 0)
            return -1;
    return 0;
}

/* The next line of TEXT[len] from *at on that is not blank, and its length.  NULL:
 * there is none. */
static const char *next_line(const char *text, size_t len, size_t *at, size_t *number,
                             size_t *n)
{
    while (*at < len) {
        const char *line = text + *at, *end = memchr(line, '\n', len - *at);

        *n = end ? (size_t)(end - line) : len - *at;
        *at += *n + (end != NULL);
        ++*number;
        for (size_t i = 0; i < *n; i++)
            if (!strchr(" \t\r", line[i]) || !line[i])
                return line;
    }
    return NULL;
}

static int give_lines(struct reading *r, const char *text, size_t len, struct err *err)
{
    struct json_doc doc = { 0 };
    size_t at = 0, number = 0, n;
    const char *line;
    int ret = 0;

    while (ret == 0 && (line = next_line(text, len, &at, &number, &n))) {
        struct err why = { 0 };

        if (json_reparse(&doc, r->name, (uint32_t)number, line, n, &why) == 0)
            ret = give_value(r, number, &doc, err);
        else
            ret = give(r, number, &doc, NULL, &why, err);
    }
    json_clear(&doc);
    return ret;
}

static int give_all(struct reading *r, const char *text, size_t len, struct err *err)
{
    struct err unused;
    struct json_doc doc;
    size_t at = 0, number = 0, n;
    const char *line = next_line(text, len, &at, &number, &n);
    int ret;

    if (!line)
        return err_set(err, ERR_INPUT, "%s: no chat", r->name);
    /* many lines, the first of which may be the one that is wrong; or one document */
    if (json_parse(&doc, r->name, line, n, &unused) == 0)
        json_clear(&doc);
    else if (json_parse(&doc, r->name, text, len, &unused) == 0) {
        ret = give_value(r, 1, &doc, err);
        json_clear(&doc);
        return ret;
    }
    return give_lines(r, text, len, err);
}

int chatfile_read(const char *path,
                  int (*each)(void *arg, const struct chatfile_chat *chat,
                              struct err *err),
                  void *arg, struct err *err)
{
    struct reading r = { .name = strcmp(path, "-") ? path : "standard input",
                         .each = each,
                         .arg = arg };
    size_t len, mark;
    char *text;
    int ret;

    if (fs_read_file(&text, &len, path, MOST_BYTES, err) < 0)
        return -1;
    mark = str_mark(text, len);
    ret = give_all(&r, text + mark, len - mark, err);
    free(text);
    if (ret == 0 && r.n == 0)
        return err_set(err, ERR_INPUT, "%s: no chat", r.name);
    return ret;
}
