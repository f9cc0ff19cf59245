/* template - a program that makes text of variables: a subset of Jinja */
#define _GNU_SOURCE /* memmem */
#include "lib/text/template/template.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/text/template/parser.h"
#include "lib/text/template/render.h"

struct template
{
    char *name;
    size_t bytes;
    struct scratch scratch;
    struct parsed parsed;
};

int template_parse(struct template **out, const char *name, const char *text, size_t n,
                   struct err *err)
{
    struct template *t;

    if (!str_is_utf8(text, n))
        return err_set(err, ERR_INPUT, "%s: the template is not UTF-8", name);
    t = xcalloc(1, sizeof(*t));
    t->name = xstrdup(name);
    t->bytes = n;
    scratch_init(&t->scratch, t->name, n, err);
    if (parser_run(&t->scratch, text, n, &t->parsed) < 0) {
        template_free(t);
        return -1;
    }
    t->scratch.err = NULL;
    *out = t;
    return 0;
}

void template_free(struct template *t)
{
    if (!t)
        return;
    scratch_clear(&t->scratch);
    free(t->name);
    free(t);
}

size_t template_bytes(const struct template *t)
{
    return t->bytes;
}

const char *template_name(const struct template *t)
{
    return t->name;
}

bool template_has_generation(const struct template *t)
{
    return t->parsed.has_generation;
}

bool template_contains(const struct template *t, const char *word)
{
    size_t n = strlen(word);

    for (const struct token *k = t->parsed.tokens.v; k->type != TOKEN_END; k++)
        if ((k->type == TOKEN_DATA || k->type == TOKEN_STRING) && k->n >= n &&
            memmem(k->s, k->n, word, n))
            return true;
    return false;
}

int template_run(const struct template *t, struct scratch *s,
                 const struct template_variable *v, size_t n, const struct tm *date,
                 struct builder *out)
{
    struct scope scope = { 0 };
    struct render r = {
        .s = s, .names = &t->parsed.names, .scope = &scope, .out = out, .date = *date
    };

    for (size_t i = 0; i < n; i++) {
        const char *name = names_find(r.names, v[i].name, strlen(v[i].name));

        if (name && render_set(&r, name, v[i].value) < 0)
            return -1;
    }
    return render_run(&r, t->parsed.body);
}
