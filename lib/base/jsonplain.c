/* jsonplain - a fast in-place parser for simple machine-written JSON lines */
#include <string.h>

#include "lib/base/jsonplain.h"

enum { DEPTH = 8 };

struct plain {
    struct json *nodes;
    size_t n, room;
    char *p, *end;
    char *number_end; /* end of a number that is not NUL-terminated yet, or NULL */
};

static bool read_value(struct plain *s, struct json *node, int depth);

static void skip_blanks(struct plain *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\r'))
        s->p++;
}

/* Terminates the last number; the byte after it has been read by now. */
static void end_number(struct plain *s)
{
    if (s->number_end)
        *s->number_end = '\0';
    s->number_end = NULL;
}

/* Returns the next byte that is not blank and steps past it; 0 at the end. */
static char take(struct plain *s)
{
    char c;

    skip_blanks(s);
    c = s->p < s->end ? *s->p++ : '\0';
    end_number(s);
    return c;
}

static bool is_plain(char c)
{
    unsigned char byte = (unsigned char)c;

    return byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\';
}

/* Unescapes in place the string that follows an opening quote. */
static bool read_string(struct plain *s, const char **text, uint32_t *n)
{
    char *from = s->p, *to, *p = from;

    while (p < s->end && is_plain(*p)) /* most strings contain no escape */
        p++;
    for (to = p;;) {
        while (p < s->end && is_plain(*p))
            *to++ = *p++;
        if (s->end - p < 2 || *p != '\\')
            break;
        if (p[1] != '"' && p[1] != '\\' && p[1] != '/')
            return false;
        *to++ = p[1];
        p += 2;
    }
    if (p == s->end || *p != '"')
        return false;
    *to = '\0';
    *text = from;
    *n = (uint32_t)(to - from);
    s->p = p + 1;
    return true;
}

static bool is_digit(const struct plain *s)
{
    return s->p < s->end && *s->p >= '0' && *s->p <= '9';
}

static bool skip_digits(struct plain *s)
{
    if (!is_digit(s))
        return false;
    while (is_digit(s))
        s->p++;
    return true;
}

/* Reads the number that begins with C, the byte just read. */
static bool read_number(struct plain *s, struct json *node, char c)
{
    char *from = s->p - 1;

    s->p = from + (c == '-');
    if (s->p < s->end && *s->p == '0')
        s->p++;
    else if (!skip_digits(s))
        return false;
    if (s->p < s->end && *s->p == '.') {
        s->p++;
        if (!skip_digits(s))
            return false;
    }
    if (s->p < s->end && (*s->p == 'e' || *s->p == 'E')) {
        s->p++;
        s->p += s->p < s->end && (*s->p == '+' || *s->p == '-');
        if (!skip_digits(s))
            return false;
    }
    node->type = JSON_NUMBER;
    node->text = from;
    node->n = (uint32_t)(s->p - from);
    s->number_end = s->p;
    return true;
}

static bool read_word(struct plain *s, struct json *node, enum json_type type,
                      const char *rest)
{
    size_t n = strlen(rest);

    if ((size_t)(s->end - s->p) < n || memcmp(s->p, rest, n) != 0)
        return false;
    s->p += n;
    node->type = type;
    return true;
}

static bool is_repeated(const struct json *object, const char *key)
{
    for (const struct json *m = object->first; m; m = m->next)
        if (m->key[0] == key[0] && !strcmp(m->key, key))
            return true;
    return false;
}

/* Reads the key of OBJECT's next member; C is its opening quote. */
static bool read_key(struct plain *s, const char **key, const struct json *object,
                     char c)
{
    uint32_t n;

    return c == '"' && read_string(s, key, &n) && !is_repeated(object, *key) &&
           take(s) == ':';
}

static bool read_members(struct plain *s, struct json *node, bool object, int depth)
{
    const char closer = object ? '}' : ']';
    struct json *last = NULL;
    char c = take(s);

    node->type = object ? JSON_OBJECT : JSON_ARRAY;
    if (c == closer)
        return true;
    for (;;) {
        struct json *member = s->nodes + s->n;
        const char *key = NULL;

        if (!c || s->n == s->room)
            return false;
        s->n++;
        if (!object)
            s->p--; /* the value's first byte */
        else if (!read_key(s, &key, node, c))
            return false;
        *member = (struct json){ .key = key };
        if (!read_value(s, member, depth + 1))
            return false;
        if (last)
            last->next = member;
        else
            node->first = member;
        last = member;
        node->n++;
        c = take(s);
        if (c == closer)
            return true;
        if (c != ',')
            return false;
        c = take(s);
    }
}

static bool read_value(struct plain *s, struct json *node, int depth)
{
    char c = take(s);

    switch (c) {
    case '"':
        node->type = JSON_STRING;
        return read_string(s, &node->text, &node->n);
    case '{':
    case '[':
        return depth < DEPTH && read_members(s, node, c == '{', depth);
    case 'n':
        return read_word(s, node, JSON_NULL, "ull");
    case 't':
        return read_word(s, node, JSON_TRUE, "rue");
    case 'f':
        return read_word(s, node, JSON_FALSE, "alse");
    case '\0':
        return false;
    default:
        return read_number(s, node, c);
    }
}

bool jsonplain_parse(struct json *nodes, size_t room, char *text, size_t n)
{
    struct plain s = {
        .nodes = nodes, .n = 1, .room = room, .p = text, .end = text + n
    };

    if (!room || n >= UINT32_MAX)
        return false;
    nodes[0] = (struct json){ .key = NULL };
    if (!read_value(&s, &nodes[0], 0))
        return false;
    skip_blanks(&s);
    end_number(&s);
    return s.p == s.end;
}
