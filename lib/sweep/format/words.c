/* words - a command whose words name parameters */
#include <ctype.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/sweep/format/words.h"

/* What stands at some place of a word. */
struct piece {
    enum { TEXT, LITERAL, NAME } kind;
    size_t used;      /* bytes of the word */
    const char *text; /* [n]: the name, or what a LITERAL stands for */
    size_t n;
};

/* The parameter named by the N bytes at NAME, or -1. */
static int find(const struct space *space, const char *name, size_t n)
{
    char *copy = xstrndup(name, n);
    int at = space_find(space, copy);

    free(copy);
    return at;
}

/* Whether the N bytes at NAME are a parameter's, or look as if they were one's. */
static bool is_name(const char *name, size_t n, const struct space *space)
{
    static const char within[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                 "0123456789_-.";

    if (!n)
        return false;
    if ((isalpha((unsigned char)*name) || *name == '_') && strspn(name, within) >= n)
        return true;
    return find(space, name, n) >= 0;
}

/* The length of the name in the braces that open at P, 0 when it is none. */
static size_t name_length(const char *p, const struct space *space)
{
    size_t n = *p == '{' ? strcspn(p + 1, "{}") : 0;

    return n && p[1 + n] == '}' && is_name(p + 1, n, space) ? n : 0;
}

/* Whether WORD has "{{" that does not follow a '$'. */
static bool has_doubled(const char *word)
{
    for (const char *p = word; (p = strstr(p, "{{")); p += strspn(p, "{"))
        if (p == word || p[-1] != '$')
            return true;
    return false;
}

static struct piece next_in_braces(const char *p, bool doubled,
                                   const struct space *space)
{
    size_t n;

    if (p[0] == '$' && p[1] == '{')
        return (struct piece){ TEXT, 1 + strspn(p + 1, "{"), NULL, 0 };
    if (doubled && (*p == '{' || *p == '}') && p[1] == *p)
        return (struct piece){ LITERAL, 2, p, 1 };
    n = name_length(p, space);
    if (n)
        return (struct piece){ NAME, n + 2, p + 1, n };
    return (struct piece){ TEXT, 1, NULL, 0 };
}

static struct piece next_in_marks(const char *p, const char *mark,
                                  const struct space *space)
{
    size_t len = strlen(mark);
    const char *end = str_starts(p, mark) ? strstr(p + len, mark) : NULL;
    size_t n;

    if (!end)
        return (struct piece){ TEXT, 1, NULL, 0 };
    n = (size_t)(end - p) - len;
    if (!n)
        return (struct piece){ LITERAL, 2 * len, p, len };
    if (is_name(p + len, n, space))
        return (struct piece){ NAME, n + 2 * len, p + len, n };
    return (struct piece){ TEXT, len, NULL, 0 };
}

static struct piece next_piece(const char *p, bool doubled, const char *mark,
                               const struct space *space)
{
    return mark ? next_in_marks(p, mark, space) : next_in_braces(p, doubled, space);
}

/* The parameter whose name is nearest to NAME; *near says whether it is a likely one.
 */
static const char *nearest(const struct space *space, const char *name, bool *near)
{
    size_t least = SIZE_MAX;
    const char *best = "";

    for (size_t i = 0; i < space->n; i++) {
        size_t distance = str_distance(name, space->params[i].name);

        if (distance < least) {
            least = distance;
            best = space->params[i].name;
        }
    }
    *near = least <= (strlen(name) + 2) / 3;
    return best;
}

/* The end of a message about the N bytes at NAME. */
static char *cause_dup(const struct space *space, const char *name, size_t n)
{
    char *copy = xstrndup(name, n), *out;
    bool near;
    const char *best = nearest(space, copy, &near);

    out = str_dupf(near ? "no parameter '%s'; did you mean '%s'?"
                        : "no parameter '%s'; the nearest is '%s'",
                   copy, best);
    free(copy);
    return out;
}

static int check_word(const char *word, const struct space *space, const char *mark,
                      struct err *err)
{
    bool doubled = has_doubled(word);
    struct piece piece;
    char *cause;

    for (const char *p = word; *p; p += piece.used) {
        piece = next_piece(p, doubled, mark, space);
        if (piece.kind != NAME || find(space, piece.text, piece.n) >= 0)
            continue;
        cause = cause_dup(space, piece.text, piece.n);
        err_set(err, ERR_USAGE, "'%s': %s%s", word, cause,
                mark || str_ends(cause, "?") ? "" : "; '{{' is a brace");
        free(cause);
        return -1;
    }
    return 0;
}

int words_check(char *const *command, const struct space *space, const char *mark,
                struct err *err)
{
    for (; *command; command++)
        if (check_word(*command, space, mark, err) < 0)
            return -1;
    return 0;
}

bool words_name_some(char *const *command, const struct space *space, const char *mark)
{
    for (; *command; command++) {
        bool doubled = has_doubled(*command);
        struct piece piece;

        for (const char *p = *command; *p; p += piece.used) {
            piece = next_piece(p, doubled, mark, space);
            if (piece.kind == NAME && find(space, piece.text, piece.n) >= 0)
                return true;
        }
    }
    return false;
}

int words_find_name(const char *word, const struct space *space)
{
    struct piece piece;

    for (const char *p = word; *p; p += piece.used) {
        piece = next_in_braces(p, false, space);
        if (piece.kind == NAME && find(space, piece.text, piece.n) >= 0)
            return find(space, piece.text, piece.n);
    }
    return -1;
}

/* Append the value of parameter I, which is empty when it is not in force. */
static void add_value(struct str *out, const struct space *space, const double *x,
                      int i)
{
    if (!isnan(x[i]))
        dist_write_word(out, &space->params[i].dist, x[i]);
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
        char *cause;

        if (is_escaped(p, space)) {
            p += 2;
            continue;
        }
        if (n && find(space, p + 1, n) < 0 && !(p > word && p[-1] == '$')) {
            cause = cause_dup(space, p + 1, n);
            err_set(err, ERR_INPUT, "%s", cause);
            free(cause);
            return -1;
        }
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

static char *expand(const char *word, const struct space *space, const double *x,
                    const char *mark)
{
    bool doubled = has_doubled(word);
    struct str out = { 0 };
    struct piece piece;

    for (const char *p = word; *p; p += piece.used) {
        piece = next_piece(p, doubled, mark, space);
        if (piece.kind == NAME)
            add_value(&out, space, x, find(space, piece.text, piece.n));
        else if (piece.kind == LITERAL)
            str_addn(&out, piece.text, piece.n);
        else
            str_addn(&out, p, piece.used);
    }
    return out.s ? str_steal(&out) : xstrdup("");
}

char **words_expand_new(char *const *command, const struct space *space,
                        const double *x, const char *mark)
{
    size_t n = 0;
    char **out;

    while (command[n])
        n++;
    out = xcalloc(n + 1, sizeof(*out));
    for (size_t i = 0; i < n; i++)
        out[i] = expand(command[i], space, x, mark);
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
