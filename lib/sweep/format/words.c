/* words - a command whose words name parameters: {lr} is replaced, {{ is a brace */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/sweep/format/words.h"

/* The parameter named by the N bytes at NAME, or -1. */
static int find(const struct space *space, const char *name, size_t n)
{
    char *copy = xstrndup(name, n);
    int at = space_find(space, copy);

    free(copy);
    return at;
}

static int check_word(const char *word, const struct space *space, struct err *err)
{
    for (const char *p = word; *p; p++) {
        size_t n;

        if ((*p == '{' || *p == '}') && p[1] == *p) {
            p++;
            continue;
        }
        if (*p == '}')
            return err_set(err, ERR_USAGE, "'%s': a '}' alone; write '}}'", word);
        if (*p != '{')
            continue;
        n = strcspn(p + 1, "}");
        if (!p[1 + n])
            return err_set(err, ERR_USAGE, "'%s': a '{' alone; write '{{'", word);
        if (find(space, p + 1, n) < 0)
            return err_set(err, ERR_USAGE, "'%s': no parameter '%.*s'; '{{' is a brace",
                           word, (int)n, p + 1);
        p += n + 1;
    }
    return 0;
}

int words_check(char *const *command, const struct space *space, struct err *err)
{
    for (; *command; command++)
        if (check_word(*command, space, err) < 0)
            return -1;
    return 0;
}

/* Append the value of parameter I, which is empty when it is not in force. */
static void add_value(struct str *out, const struct space *space, const double *x,
                      int i)
{
    if (!isnan(x[i]))
        dist_write_word(out, &space->params[i].dist, x[i]);
}

/* The length of the name in the braces that open at P, 0 when it is none: a parameter,
 * or what looks like one. */
static size_t name_length(const char *p, const struct space *space)
{
    static const char within[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                 "0123456789_-.";
    size_t n = *p == '{' ? strcspn(p + 1, "{}") : 0;

    if (!n || p[1 + n] != '}')
        return 0;
    return strspn(p + 1, within) == n || find(space, p + 1, n) >= 0 ? n : 0;
}

static bool is_escaped(const char *p, const struct space *space)
{
    size_t n = *p == '{' ? name_length(p + 1, space) : 0;

    return n && p[n + 3] == '}';
}

int words_check_loosely(const char *word, const struct space *space, struct err *err)
{
    for (const char *p = strchr(word, '{'); p; p = strchr(p, '{')) {
        size_t n = name_length(p, space);

        if (is_escaped(p, space)) {
            p += 2;
            continue;
        }
        if (n && find(space, p + 1, n) < 0 && !(p > word && p[-1] == '$'))
            return err_set(err, ERR_INPUT, "no parameter '%.*s'", (int)n, p + 1);
        p += n + 1;
    }
    return 0;
}

size_t words_take_name(struct str *out, const char *p, const struct space *space,
                       const double *x)
{
    size_t n = name_length(p, space);

    if (is_escaped(p, space)) {
        n = name_length(p + 1, space);
        str_addn(out, p + 1, n + 2);
        return n + 4;
    }
    if (!n)
        return 0;
    add_value(out, space, x, find(space, p + 1, n));
    return n + 2;
}

static char *expand(const char *word, const struct space *space, const double *x)
{
    struct str out = { 0 };
    size_t n;

    str_add(&out, "");
    for (const char *p = word; *p; p++) {
        if (*p != '{' && *p != '}') {
            str_addc(&out, *p);
        } else if (p[1] == *p) {
            str_addc(&out, *p++);
        } else {
            n = strcspn(p + 1, "}");
            add_value(&out, space, x, find(space, p + 1, n));
            p += n + 1;
        }
    }
    return out.s ? str_steal(&out) : xstrdup("");
}

char **words_expand_new(char *const *command, const struct space *space,
                        const double *x)
{
    size_t n = 0;
    char **out;

    while (command[n])
        n++;
    out = xcalloc(n + 1, sizeof(*out));
    for (size_t i = 0; i < n; i++)
        out[i] = expand(command[i], space, x);
    return out;
}

void words_quote(struct str *out, char *const *words)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789_-+=./:,@%";

    for (char *const *w = words; *w; w++) {
        if (w > words)
            str_addc(out, ' ');
        if (**w && !(*w)[strspn(*w, plain)]) {
            str_add(out, *w);
            continue;
        }
        str_addc(out, '\'');
        for (const char *p = *w; *p; p++)
            if (*p == '\'')
                str_add(out, "'\\''");
            else
                str_addc(out, *p);
        str_addc(out, '\'');
    }
}

void words_free(char **words)
{
    for (char **w = words; w && *w; w++)
        free(*w);
    free(words);
}
