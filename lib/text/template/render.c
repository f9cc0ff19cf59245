/* render - runs a template: scopes, statements, macros */
#include "lib/text/template/render.h"

#include <string.h>

#include "lib/text/template/chat.h"
#include "lib/text/template/evaluate.h"
#include "lib/text/template/lookup.h"
#include "lib/text/template/methods.h"
#include "lib/text/template/printing.h"

/* How a body ended. */
enum end { END_ERROR = -1, END_DONE, END_BREAK, END_CONTINUE };

static enum end run_body(struct render *r, const struct node *n);

/* ---- variables ---- */

int render_set(struct render *r, const char *name, struct value value)
{
    struct variable *v = r->scope->first;

    while (v && v->name != name)
        v = v->next;
    if (!v) {
        v = r->free_variables;
        if (v)
            r->free_variables = v->next;
        else
            v = scratch_take(r->s, sizeof(*v));
        if (!v)
            return -1;
        *v = (struct variable){ .name = name, .next = r->scope->first };
        r->scope->first = v;
    }
    v->value = value;
    return 0;
}

static int assign(struct render *r, const struct node *target, const struct value *v);

static int assign_parts(struct render *r, const struct node *target,
                        const struct value *v)
{
    const struct list *l;
    size_t i = 0;

    if (value_elements(r->s, &l, v) < 0)
        return -1;
    for (const struct node *n = target->b; n; n = n->next, i++) {
        struct value part;

        if (i == l->n)
            return scratch_fail(r->s, "not enough values to unpack");
        part = list_at(l, i);
        if (assign(r, n, &part) < 0)
            return -1;
    }
    return i < l->n ? scratch_fail(r->s, "too many values to unpack") : 0;
}

static int assign(struct render *r, const struct node *target, const struct value *v)
{
    struct value of, name;

    if (target->type == NODE_NAME)
        return render_set(r, target->name, *v);
    if (target->type != NODE_MEMBER)
        return assign_parts(r, target, v);
    if (evaluate(r, &of, target->a) < 0)
        return -1;
    if (of.type != VALUE_NAMESPACE)
        return scratch_fail(r->s, "cannot assign attribute on non-namespace object");
    if (*target->name == '_')
        return scratch_fail(r->s, "a namespace cannot have '%.60s'", target->name);
    if (value_text(r->s, &name, target->name, NULL, strlen(target->name)) < 0)
        return -1;
    return dict_set(r->s, of.u.dict, name, *v);
}

/* ---- bodies with a scope or a text of their own ---- */

/* A scope within AROUND.  A macro that is defined in it may keep it. */
static struct scope *new_scope(struct render *r, struct scope *around)
{
    struct scope *scope = r->free_scopes;

    if (scope)
        r->free_scopes = scope->around;
    else
        scope = scratch_take(r->s, sizeof(*scope));
    if (scope)
        *scope = (struct scope){ .around = around };
    return scope;
}

/* Takes back a scope, and its variables, unless a macro was made since there were
 * MACROS of them. */
static void drop_scope(struct render *r, struct scope *scope, size_t macros)
{
    struct variable *last = scope->first;

    if (r->macros != macros)
        return;
    while (last && last->next)
        last = last->next;
    if (last) {
        last->next = r->free_variables;
        r->free_variables = scope->first;
    }
    scope->around = r->free_scopes;
    r->free_scopes = scope;
}

/* Runs BODY in a new scope. */
static enum end run_scoped(struct render *r, const struct node *body)
{
    struct scope *around = r->scope, *scope = new_scope(r, around);
    size_t macros = r->macros;
    enum end end;

    if (!scope)
        return END_ERROR;
    r->scope = scope;
    end = run_body(r, body);
    r->scope = around;
    drop_scope(r, scope, macros);
    return end;
}

/* The same, with its text in *out. */
static enum end run_to_text(struct render *r, struct value *out,
                            const struct node *body)
{
    struct builder text = builder_start(r->s), *around = r->out;
    enum end end;

    r->out = &text;
    end = run_scoped(r, body);
    r->out = around;
    if (end != END_ERROR && builder_value(&text, out) < 0)
        return END_ERROR;
    return end;
}

/* ---- macros ---- */

/* Sets the parameters of the macro M in the present scope.  *used counts arguments. */
static int set_parameters(struct render *r, const struct macro *m,
                          const struct arguments *a, size_t *used, bool *taken)
{
    size_t i = 0;

    for (const struct node *p = m->node->a; p; p = p->next, i++) {
        struct value v;
        bool given = i < a->n;

        if (given)
            v = a->v[i];
        for (size_t k = 0; k < a->n_keywords; k++) {
            if (strcmp(a->keyword[k].name, p->name))
                continue;
            if (given)
                return scratch_fail(r->s, "two arguments for '%.60s'", p->name);
            given = taken[k] = true;
            v = a->keyword[k].value;
        }
        if (!given && (p->b ? evaluate(r, &v, p->b)
                            : value_missing(r->s, &v,
                                            "parameter '%.60s' was not "
                                            "provided",
                                            p->name)) < 0)
            return -1;
        if (render_set(r, p->name, v) < 0)
            return -1;
    }
    *used = i < a->n ? i : a->n;
    return 0;
}

static int set_text_named(struct render *r, const char *name, const struct value *v)
{
    const char *known = names_find(r->names, name, strlen(name));

    return known ? render_set(r, known, *v) : 0;
}

/* The arguments behind the parameters are varargs, kwargs and caller. */
static int set_rest(struct render *r, const struct macro *m, const struct arguments *a,
                    size_t used, const bool *taken)
{
    const struct node *n = m->node;
    struct value rest, keywords, caller = value_undefined("no caller defined");

    if (value_list(r->s, &rest, VALUE_TUPLE, a->n - used) < 0 ||
        value_dict(r->s, &keywords, VALUE_DICT) < 0)
        return -1;
    for (size_t i = used; i < a->n; i++)
        rest.u.list->v[i - used] = a->v[i];
    for (size_t k = 0; k < a->n_keywords; k++) {
        struct value name;

        if (taken[k])
            continue;
        if (n->takes_caller && !strcmp(a->keyword[k].name, "caller")) {
            caller = a->keyword[k].value;
            continue;
        }
        if (!n->takes_keywords)
            return scratch_fail(r->s,
                                "the macro '%.60s' takes no keyword argument "
                                "'%.60s'",
                                n->name ? n->name : "caller", a->keyword[k].name);
        if (value_text(r->s, &name, a->keyword[k].name, NULL,
                       strlen(a->keyword[k].name)) < 0 ||
            dict_set(r->s, keywords.u.dict, name, a->keyword[k].value) < 0)
            return -1;
    }
    if (used < a->n && !n->takes_rest)
        return scratch_fail(r->s, "the macro '%.60s' takes not more than %zu arguments",
                            n->name ? n->name : "caller", used);
    return (n->takes_rest && set_text_named(r, "varargs", &rest) < 0) ||
                   (n->takes_keywords && set_text_named(r, "kwargs", &keywords) < 0) ||
                   (n->takes_caller && set_text_named(r, "caller", &caller) < 0)
               ? -1
               : 0;
}

static int run_macro(struct render *r, struct value *out, const struct macro *m,
                     const struct arguments *a)
{
    struct scope *around = r->scope, *scope = new_scope(r, m->scope);
    bool *taken = scratch_zeroed(r->s, a->n_keywords + 1);
    size_t used = 0, macros = r->macros;
    int ret = -1;

    if (!scope || !taken || scratch_enter(r->s) < 0)
        return -1;
    r->scope = scope;
    if (set_parameters(r, m, a, &used, taken) == 0 &&
        set_rest(r, m, a, used, taken) == 0 &&
        run_to_text(r, out, m->node->c) != END_ERROR)
        ret = 0;
    r->scope = around;
    drop_scope(r, scope, macros);
    scratch_leave(r->s);
    return ret;
}

static int make_macro(struct render *r, struct value *out, const struct node *n)
{
    struct macro *m = scratch_take(r->s, sizeof(*m));

    if (!m)
        return -1;
    *m = (struct macro){ n, r->scope };
    r->macros++;
    *out = (struct value){ VALUE_MACRO, { .macro = m } };
    return 0;
}

/* ---- calls ---- */

int render_bind(struct render *r, const char *what, const struct parameters *p,
                const struct arguments *a, const struct value *arg[MOST_PARAMETERS])
{
    const char *name = p->names;
    size_t used = 0;
    int n = 0;

    memset(arg, 0, MOST_PARAMETERS * sizeof(*arg));
    for (; *name; n++) {
        size_t len = strcspn(name, " ");

        if ((size_t)n < a->n)
            arg[n] = &a->v[n];
        for (size_t k = 0; k < a->n_keywords; k++) {
            if (strlen(a->keyword[k].name) != len ||
                memcmp(a->keyword[k].name, name, len))
                continue;
            if (arg[n])
                return scratch_fail(r->s, "%s: two arguments for '%.*s'", what,
                                    (int)len, name);
            arg[n] = &a->keyword[k].value;
            used++;
        }
        if (!arg[n] && n < p->required)
            return scratch_fail(r->s, "%s: the argument '%.*s' is missing", what,
                                (int)len, name);
        name += len + (name[len] == ' ');
    }
    if (a->n > (size_t)n || used < a->n_keywords)
        return scratch_fail(r->s,
                            "%s: there are too many arguments, or one has a name "
                            "that is not supported",
                            what);
    return 0;
}

int render_call(struct render *r, struct value *out, const struct value *callee,
                const struct arguments *a)
{
    const struct value *arg[MOST_PARAMETERS];
    const struct function *f;

    switch (callee->type) {
    case VALUE_MACRO:
        return run_macro(r, out, callee->u.macro, a);
    case VALUE_METHOD:
        return method_run(r, out, callee->u.method, a);
    case VALUE_FUNCTION:
        f = callee->u.function;
        if (f->run_any)
            return f->run_any(r, out, a);
        if (render_bind(r, f->name, &f->parameters, a, arg) < 0)
            return -1;
        return f->run(r, out, arg);
    case VALUE_UNDEFINED:
        return scratch_fail(r->s, "%s", callee->u.cause);
    default:
        return scratch_fail(r->s, "'%s' object is not callable",
                            value_type_name(callee));
    }
}

/* ---- statements ---- */

static enum end run_print(struct render *r, const struct node *n)
{
    struct value v;

    return evaluate(r, &v, n->a) < 0 || printing_str(r->out, &v) < 0 ? END_ERROR
                                                                     : END_DONE;
}

static enum end run_if(struct render *r, const struct node *n)
{
    struct value test;

    if (evaluate(r, &test, n->a) < 0)
        return END_ERROR;
    return run_body(r, value_is_true(&test) ? n->b : n->c);
}

/* The elements for which the loop's condition is true. */
static int keep_some(struct render *r, const struct list **elements,
                     const struct node *n)
{
    struct scope scope = { .around = r->scope };
    struct value kept;
    size_t count = 0;

    if (value_list(r->s, &kept, VALUE_LIST, (*elements)->n) < 0)
        return -1;
    for (size_t i = 0; i < (*elements)->n; i++) {
        struct value v = list_at(*elements, i), test;
        int ret;

        scope.first = NULL;
        r->scope = &scope;
        ret = assign(r, n->a, &v) < 0 || evaluate(r, &test, n->e) < 0 ? -1 : 0;
        r->scope = scope.around;
        if (ret < 0)
            return -1;
        if (value_is_true(&test))
            kept.u.list->v[count++] = v;
    }
    kept.u.list->n = count;
    *elements = kept.u.list;
    return 0;
}

/* One round, in a scope of its own. */
static enum end run_round(struct render *r, const struct node *n,
                          const struct value *loop, const char *loop_name)
{
    struct scope *around = r->scope, *scope = new_scope(r, around);
    struct value v = list_at(loop->u.loop->list, loop->u.loop->at);
    size_t macros = r->macros;
    enum end end = END_ERROR;

    if (!scope || scratch_step(r->s, 0) < 0)
        return END_ERROR;
    r->scope = scope;
    if ((!loop_name || render_set(r, loop_name, *loop) == 0) &&
        assign(r, n->a, &v) == 0)
        end = run_body(r, n->c);
    r->scope = around;
    drop_scope(r, scope, macros);
    return end;
}

static enum end run_for(struct render *r, const struct node *n)
{
    const char *loop_name = names_find(r->names, "loop", 4);
    struct loop *loop = scratch_zeroed(r->s, sizeof(*loop));
    bool completed = false;
    struct value v;

    if (!loop || evaluate(r, &v, n->b) < 0)
        return END_ERROR;
    r->s->line = n->line;
    if (value_elements(r->s, &loop->list, &v) < 0 ||
        (n->e && keep_some(r, &loop->list, n) < 0))
        return END_ERROR;
    v = (struct value){ VALUE_LOOP, { .loop = loop } };
    for (; loop->at < loop->list->n; loop->at++) {
        enum end end = run_round(r, n, &v, loop_name);

        if (end == END_ERROR)
            return end;
        if (end == END_BREAK)
            break;
        completed |= end == END_DONE;
    }
    /* as in jinja2, where a round that is left by break or continue does not count */
    return completed ? END_DONE : run_scoped(r, n->d);
}

static enum end run_set_block(struct render *r, const struct node *n)
{
    struct value text, v;
    enum end end = run_to_text(r, &text, n->c);

    if (end != END_DONE)
        return end;
    v = text;
    if ((n->b && evaluate_filters(r, &v, n->b, &text) < 0) || assign(r, n->a, &v) < 0)
        return END_ERROR;
    return END_DONE;
}

static enum end run_filter_block(struct render *r, const struct node *n)
{
    struct value text, v;
    enum end end = run_to_text(r, &text, n->c);

    if (end != END_DONE)
        return end;
    return evaluate_filters(r, &v, n->b, &text) < 0 || printing_str(r->out, &v) < 0
               ? END_ERROR
               : END_DONE;
}

static enum end run_call_block(struct render *r, const struct node *n)
{
    const struct node *call = n->b;
    struct arguments a;
    struct keyword *keyword;
    struct value callee, text;

    if (evaluate(r, &callee, call->a) < 0 || evaluate_arguments(r, &a, call->b) < 0)
        return END_ERROR;
    keyword = scratch_take(r->s, (a.n_keywords + 1) * sizeof(*keyword));
    if (!keyword)
        return END_ERROR;
    if (a.n_keywords)
        memcpy(keyword, a.keyword, a.n_keywords * sizeof(*keyword));
    keyword[a.n_keywords].name = "caller";
    if (make_macro(r, &keyword[a.n_keywords++].value, n) < 0)
        return END_ERROR;
    a.keyword = keyword;
    r->s->line = n->line;
    return render_call(r, &text, &callee, &a) < 0 || printing_str(r->out, &text) < 0
               ? END_ERROR
               : END_DONE;
}

static enum end run_generation(struct render *r, const struct node *n)
{
    size_t start = r->out->n;
    enum end end = run_scoped(r, n->c);

    return end == END_DONE && builder_mark(r->out, start, CHAT_GENERATED) < 0
               ? END_ERROR
               : end;
}

static enum end run_with(struct render *r, const struct node *n)
{
    struct scope *around = r->scope, *scope = new_scope(r, around);
    enum end end = scope ? END_DONE : END_ERROR;

    for (const struct node *set = n->a; set && end == END_DONE; set = set->next) {
        struct value v;

        if (evaluate(r, &v, set->b) < 0)
            return END_ERROR;
        r->scope = scope;
        end = assign(r, set->a, &v) < 0 ? END_ERROR : END_DONE;
        r->scope = around;
    }
    if (end != END_DONE)
        return end;
    r->scope = scope;
    end = run_body(r, n->c);
    r->scope = around;
    return end;
}

static enum end run_statement(struct render *r, const struct node *n)
{
    struct value v;

    switch (n->type) {
    case NODE_TEXT:
        return builder_add_text(r->out, n->value.u.text) < 0 ? END_ERROR : END_DONE;
    case NODE_PRINT:
        return run_print(r, n);
    case NODE_IF:
        return run_if(r, n);
    case NODE_FOR:
        return run_for(r, n);
    case NODE_SET:
        return evaluate(r, &v, n->b) < 0 || assign(r, n->a, &v) < 0 ? END_ERROR
                                                                    : END_DONE;
    case NODE_SET_BLOCK:
        return run_set_block(r, n);
    case NODE_MACRO:
        return make_macro(r, &v, n) < 0 || render_set(r, n->name, v) < 0 ? END_ERROR
                                                                         : END_DONE;
    case NODE_CALL_BLOCK:
        return run_call_block(r, n);
    case NODE_FILTER_BLOCK:
        return run_filter_block(r, n);
    case NODE_GENERATION:
        return run_generation(r, n);
    case NODE_WITH:
        return run_with(r, n);
    case NODE_BREAK:
        return END_BREAK;
    default:
        return END_CONTINUE;
    }
}

static enum end run_body(struct render *r, const struct node *n)
{
    enum end end = END_DONE;

    if (scratch_enter(r->s) < 0)
        return END_ERROR;
    for (; n && end == END_DONE; n = n->next) {
        r->s->line = n->line;
        end = scratch_step(r->s, 0) < 0 ? END_ERROR : run_statement(r, n);
    }
    scratch_leave(r->s);
    return end;
}

int render_run(struct render *r, const struct node *body)
{
    return run_body(r, body) == END_ERROR ? -1 : 0;
}
