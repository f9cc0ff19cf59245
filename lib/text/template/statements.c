/* statements - the parser's part that reads text, prints and tags with their bodies */
#include <string.h>

#include "lib/base/str.h"
#include "lib/text/template/parsing.h"

/* What {% set %}, {% for %} and {% with %} assign to. */
static struct node *read_target_part(struct parser *p)
{
    struct node *n = parser_make(p, NODE_NAME);

    if (!n)
        return NULL;
    if (parser_take_sign(p, "(")) {
        n = expression_read_tuple(p, read_target_part, NULL, false);
        return n && parser_need_sign(p, ")") == 0 ? n : NULL;
    }
    n->name = parser_need_name(p);
    if (!n->name)
        return NULL;
    if (parser_take_sign(p, ".")) {
        n = parser_make_of(p, NODE_MEMBER, n, n);
        if (!n)
            return NULL;
        n->name = parser_need_name(p);
    }
    return n->name ? n : NULL;
}

static struct node *read_target(struct parser *p, const char *end)
{
    return expression_read_tuple(p, read_target_part, end, false);
}

/* The end of a tag, a body, and the name of the tag after it, one of ENDS: returned. */
static const char *read_block(struct parser *p, struct node **body,
                              const char *const *ends)
{
    (void)parser_take_sign(p, ":");
    if (p->t->type != TOKEN_BLOCK_END) {
        parser_fail_here(p, "'%}'");
        return NULL;
    }
    parser_advance(p);
    if (statements_read(p, body, ends) < 0)
        return NULL;
    if (p->t->type == TOKEN_END) {
        parser_fail_here(p, ends[0]);
        return NULL;
    }
    parser_advance(p);
    return parser_need_name(p);
}

/* The same for a body that runs by itself, as a macro's does. */
static int read_own_body(struct parser *p, struct node **body, const char *end)
{
    const char *const ends[] = { end, NULL };
    int loops = p->loops;
    const char *found;

    p->loops = 0;
    found = read_block(p, body, ends);
    p->loops = loops;
    return found ? 0 : -1;
}

static int read_if(struct parser *p, struct node *n)
{
    static const char *const ends[] = { "endif", "elif", "else", NULL };
    const char *end;

    n->type = NODE_IF;
    n->a = expression_read_tuple(p, expression_read_or, NULL, false);
    end = n->a ? read_block(p, &n->b, ends) : NULL;
    if (!end || !strcmp(end, "endif"))
        return end ? 0 : -1;
    if (!strcmp(end, "else"))
        return read_block(p, &n->c, (const char *const[]){ "endif", NULL }) ? 0 : -1;
    n->c = parser_make(p, NODE_IF);
    if (!n->c || scratch_enter(p->s) < 0 || read_if(p, n->c) < 0)
        return -1;
    scratch_leave(p->s);
    return 0;
}

static int read_for(struct parser *p, struct node *n)
{
    static const char *const ends[] = { "endfor", "else", NULL };
    const char *end;

    n->type = NODE_FOR;
    n->a = read_target(p, "in");
    if (!n->a)
        return -1;
    if (!parser_take_name(p, "in"))
        return parser_fail_here(p, "'in'");
    n->b = expression_read_tuple(p, expression_read_or, "recursive", false);
    if (!n->b)
        return -1;
    if (parser_take_name(p, "if")) {
        n->e = expression_read(p);
        if (!n->e)
            return -1;
    }
    if (parser_is_name(p, "recursive"))
        return scratch_fail(p->s, "'recursive' is not supported");
    p->loops++;
    end = read_block(p, &n->c, ends);
    p->loops--;
    if (!end || !strcmp(end, "endfor"))
        return end ? 0 : -1;
    return read_block(p, &n->d, (const char *const[]){ "endfor", NULL }) ? 0 : -1;
}

static int read_set(struct parser *p, struct node *n)
{
    n->a = read_target(p, NULL);
    if (!n->a)
        return -1;
    if (parser_take_sign(p, "=")) {
        n->type = NODE_SET;
        n->b = expression_read_any(p);
        return n->b ? 0 : -1;
    }
    n->type = NODE_SET_BLOCK;
    while (parser_take_sign(p, "|")) {
        n->b = expression_read_filter(p, n->b);
        if (!n->b)
            return -1;
    }
    return read_block(p, &n->c, (const char *const[]){ "endset", NULL }) ? 0 : -1;
}

/* Parameters in parentheses. */
static int read_parameters(struct parser *p, struct node **out)
{
    bool defaults = false;

    if (parser_need_sign(p, "(") < 0)
        return -1;
    for (struct node **last = out; !parser_is_sign(p, ")"); last = &(*last)->next) {
        struct node *n;

        if (*out && parser_need_sign(p, ",") < 0)
            return -1;
        n = parser_make(p, NODE_NAME);
        if (n)
            n->name = parser_need_name(p);
        if (!n || !n->name)
            return -1;
        if (parser_take_sign(p, "=")) {
            n->b = expression_read(p);
            if (!n->b)
                return -1;
            defaults = true;
        } else if (defaults) {
            return parser_fail_here(p, "a default");
        }
        *last = n;
    }
    parser_advance(p);
    return 0;
}

static int read_macro(struct parser *p, struct node *n)
{
    struct node *around = p->macro;
    int ret;

    n->type = NODE_MACRO;
    n->name = parser_need_name(p);
    if (!n->name || read_parameters(p, &n->a) < 0)
        return -1;
    p->macro = n;
    ret = read_own_body(p, &n->c, "endmacro");
    p->macro = around;
    return ret;
}

static int read_call_block(struct parser *p, struct node *n)
{
    n->type = NODE_CALL_BLOCK;
    if (parser_is_sign(p, "(") && read_parameters(p, &n->a) < 0)
        return -1;
    n->b = expression_read(p);
    if (!n->b)
        return -1;
    if (n->b->type != NODE_CALL)
        return scratch_fail(p->s, "expected a call after 'call'");
    return read_own_body(p, &n->c, "endcall");
}

static int read_filter_block(struct parser *p, struct node *n)
{
    n->type = NODE_FILTER_BLOCK;
    do {
        n->b = expression_read_filter(p, n->b);
        if (!n->b)
            return -1;
    } while (parser_take_sign(p, "|"));
    return read_block(p, &n->c, (const char *const[]){ "endfilter", NULL }) ? 0 : -1;
}

static int read_generation(struct parser *p, struct node *n)
{
    n->type = NODE_GENERATION;
    p->out->has_generation = true;
    return read_own_body(p, &n->c, "endgeneration");
}

static int read_with(struct parser *p, struct node *n)
{
    n->type = NODE_WITH;
    for (struct node **last = &n->a; p->t->type != TOKEN_BLOCK_END;
         last = &(*last)->next) {
        struct node *target;

        if (n->a && parser_need_sign(p, ",") < 0)
            return -1;
        target = read_target_part(p);
        if (!target || parser_need_sign(p, "=") < 0)
            return -1;
        *last = parser_make_of(p, NODE_SET, target, expression_read(p));
        if (!*last)
            return -1;
    }
    return read_block(p, &n->c, (const char *const[]){ "endwith", NULL }) ? 0 : -1;
}

static int read_leave(struct parser *p, struct node *n)
{
    if (!p->loops)
        return scratch_fail(p->s, "break or continue outside a loop");
    (void)n;
    return 0;
}

static int read_break(struct parser *p, struct node *n)
{
    n->type = NODE_BREAK;
    return read_leave(p, n);
}

static int read_continue(struct parser *p, struct node *n)
{
    n->type = NODE_CONTINUE;
    return read_leave(p, n);
}

static const struct statement {
    const char *name;
    int (*read)(struct parser *p, struct node *n);
} statements[] = {
    { "if", read_if },
    { "for", read_for },
    { "set", read_set },
    { "macro", read_macro },
    { "call", read_call_block },
    { "filter", read_filter_block },
    { "generation", read_generation },
    { "with", read_with },
    { "break", read_break },
    { "continue", read_continue },
};

static const struct statement *find_statement(const char *name)
{
    for (size_t i = 0; i < sizeof(statements) / sizeof(*statements); i++)
        if (!strcmp(name, statements[i].name))
            return &statements[i];
    return NULL;
}

/* The tag after "{%", and all that belongs to it. */
static struct node *read_statement(struct parser *p)
{
    struct node *n = parser_make(p, NODE_TEXT);
    const struct token *t = p->t;
    const struct statement *found;
    bool is_condition;
    int ret;

    if (t->type != TOKEN_NAME) {
        parser_fail_here(p, "the name of a tag");
        return NULL;
    }
    found = find_statement(t->s);
    if (!found) {
        scratch_fail(p->s, "the tag {%% %.60s %%} is not supported%s", t->s,
                     str_starts(t->s, "end") || !strcmp(t->s, "else") ||
                             !strcmp(t->s, "elif")
                         ? " here"
                         : "");
        return NULL;
    }
    is_condition = found->read == read_if;
    parser_advance(p);
    if (!n || scratch_enter(p->s) < 0)
        return NULL;
    p->conditions += is_condition;
    ret = found->read(p, n);
    p->conditions -= is_condition;
    scratch_leave(p->s);
    if (ret < 0)
        return NULL;
    if (p->t->type != TOKEN_BLOCK_END) {
        parser_fail_here(p, "'%}'");
        return NULL;
    }
    parser_advance(p);
    return n;
}

static struct node *read_print(struct parser *p)
{
    struct node *n = parser_make(p, NODE_PRINT);

    parser_advance(p);
    if (!n)
        return NULL;
    n->a = expression_read_any(p);
    if (!n->a)
        return NULL;
    if (p->t->type != TOKEN_PRINT_END) {
        parser_fail_here(p, "'}}'");
        return NULL;
    }
    parser_advance(p);
    return n;
}

static struct node *read_text(struct parser *p)
{
    struct node *n = parser_make(p, NODE_TEXT);

    if (!n || value_text(p->s, &n->value, p->t->s, NULL, p->t->n) < 0)
        return NULL;
    parser_advance(p);
    return n;
}

static bool ends_body(const struct parser *p, const char *const *ends)
{
    for (; *ends; ends++)
        if (p->t[1].type == TOKEN_NAME && !strcmp(p->t[1].s, *ends))
            return true;
    return false;
}

int statements_read(struct parser *p, struct node **out, const char *const *ends)
{
    for (struct node **last = out; p->t->type != TOKEN_END; last = &(*last)->next) {
        switch (p->t->type) {
        case TOKEN_DATA:
            *last = read_text(p);
            break;
        case TOKEN_PRINT:
            *last = read_print(p);
            break;
        default:
            if (ends_body(p, ends))
                return 0;
            parser_advance(p);
            *last = read_statement(p);
            break;
        }
        if (!*last)
            return -1;
    }
    return 0;
}
