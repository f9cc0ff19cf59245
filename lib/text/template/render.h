/* render - runs a template: scopes, statements, expressions */
#ifndef LIB_TEXT_TEMPLATE_RENDER_H
#define LIB_TEXT_TEMPLATE_RENDER_H

#include <time.h>

#include "lib/text/template/builder.h"
#include "lib/text/template/nodes.h"

struct variable {
    const char *name; /* interned */
    struct value value;
    struct variable *next;
};

/* The variables of a loop's round, a macro's call or the template. */
struct scope {
    struct scope *around;
    struct variable *first;
};

struct loop {
    const struct list *list;
    size_t at;
    struct value changed; /* the argument of the last loop.changed */
    bool has_changed;
};

struct macro {
    const struct node *node; /* its name, parameters and body */
    struct scope *scope;     /* where it was defined */
};

struct render {
    struct scratch *s;
    const struct names *names;
    struct scope *scope;
    struct builder *out;
    struct tm date;
    /* private: scopes and variables to be used again */
    struct scope *free_scopes;
    struct variable *free_variables;
    size_t macros; /* made so far: a macro keeps the scope around it */
};

/* Arguments of a call. */
struct keyword {
    const char *name;
    struct value value;
};
struct arguments {
    const struct value *v;
    size_t n;
    const struct keyword *keyword;
    size_t n_keywords;
};

/* What a filter, test, method or function takes: names, as in "first second", of which
 * the first REQUIRED must be given. */
struct parameters {
    const char *names;
    int required;
};
enum { MOST_PARAMETERS = 6 };

/* Sets ARG[i] to the argument for the i-th parameter, NULL if it is not given.  WHAT
 * names the callee in errors. */
MUST_CHECK int render_bind(struct render *r, const char *what,
                           const struct parameters *p, const struct arguments *a,
                           const struct value *arg[MOST_PARAMETERS]);

struct function {
    const char *name;
    struct parameters parameters;
    /* one of the two */
    int (*run)(struct render *r, struct value *out, const struct value *const *arg);
    int (*run_any)(struct render *r, struct value *out, const struct arguments *a);
};
/* The global function NAME, or NULL. */
const struct function *function_find(const char *name);

MUST_CHECK int render_call(struct render *r, struct value *out,
                           const struct value *callee, const struct arguments *a);
/* Set a variable of the innermost scope. */
MUST_CHECK int render_set(struct render *r, const char *name, struct value value);
/* Run a template's statements; the text goes to r->out. */
MUST_CHECK int render_run(struct render *r, const struct node *body);

#endif
