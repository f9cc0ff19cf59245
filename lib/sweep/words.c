/* words - a command whose words name parameters: {lr} is replaced, {{ is a brace */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/sweep/words.h"

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
            return err_set(err, ERR_USAGE, "'%s': no parameter '%.*s'", word, (int)n,
                           p + 1);
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

static char *expand(const char *word, const struct space *space, const double *x)
{
    struct str out = { 0 };
    size_t n;
    int at;

    str_add(&out, "");
    for (const char *p = word; *p; p++) {
        if (*p != '{' && *p != '}') {
            str_addc(&out, *p);
        } else if (p[1] == *p) {
            str_addc(&out, *p++);
        } else {
            n = strcspn(p + 1, "}");
            at = find(space, p + 1, n);
            if (!isnan(x[at]))
                dist_write_word(&out, &space->params[at].dist, x[at]);
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
