/* nodes - a template as a tree */
#ifndef LIB_TEXT_TEMPLATE_NODES_H
#define LIB_TEXT_TEMPLATE_NODES_H

#include <stdbool.h>

#include "lib/text/template/scratch.h"
#include "lib/text/template/value.h"

enum node_type {
    /* statements; a list of them hangs on ->next */
    NODE_TEXT,      /* value */
    NODE_PRINT,     /* a: expression */
    NODE_IF,        /* a: test, b: body, c: else */
    NODE_FOR,       /* a: target, b: elements, c: body, d: else, e: condition or NULL */
    NODE_SET,       /* a: target, b: expression */
    NODE_SET_BLOCK, /* a: target, b: filters or NULL, c: body */
    NODE_MACRO,     /* name, a: parameters, c: body */
    NODE_CALL_BLOCK,   /* a: parameters, b: call, c: body */
    NODE_FILTER_BLOCK, /* b: filters, c: body */
    NODE_GENERATION,   /* c: body */
    NODE_WITH,         /* a: NODE_SETs, c: body */
    NODE_BREAK,
    NODE_CONTINUE,
    /* expressions */
    NODE_CONST,  /* value */
    NODE_NAME,   /* name; as a parameter, b: default or NULL */
    NODE_MEMBER, /* a.name: as a target, the attribute of a namespace */
    NODE_ITEM,   /* a[b] */
    NODE_SLICE,  /* a[b:c:d], each or NULL */
    NODE_CALL,   /* a: callee, b: arguments */
    NODE_FILTER, /* name, filter, a: input (NULL: the block's text), b: arguments */
    NODE_TEST,   /* name, test, a, b: arguments */
    NODE_NOT,    /* a, as the three below */
    NODE_MINUS,
    NODE_PLUS,
    NODE_AND, /* a, b */
    NODE_OR,
    NODE_BINARY,  /* a op b: one of + - * / % and OP_DIVIDE, OP_POWER */
    NODE_CONCAT,  /* b: list */
    NODE_COMPARE, /* a, b: list of NODE_OPERAND */
    NODE_OPERAND, /* op: enum comparison, a */
    NODE_COND,    /* a: test, b: then, c: else or NULL */
    NODE_LIST,    /* b: list; as a tuple it may be a target */
    NODE_TUPLE,
    NODE_DICT, /* b: list of NODE_PAIR */
    NODE_PAIR, /* a: b */
    /* arguments: an expression, or one of these with a */
    NODE_KEYWORD, /* name */
    NODE_STAR,
    NODE_STAR_STAR
};

enum { OP_DIVIDE = 256, OP_POWER };
enum comparison {
    COMPARE_EQUAL,
    COMPARE_UNEQUAL,
    COMPARE_LESS,
    COMPARE_LESS_EQUAL,
    COMPARE_GREATER,
    COMPARE_GREATER_EQUAL,
    COMPARE_IN,
    COMPARE_NOT_IN
};

struct node {
    enum node_type type;
    uint32_t line;
    int op;
    bool takes_rest, takes_keywords, takes_caller; /* of a macro: it has these names */
    const char *name;  /* interned: equal names have equal addresses */
    const void *found; /* struct filter or struct test; NULL: unknown */
    struct value value;
    struct node *a, *b, *c, *d, *e, *next;
};

/* Names that are compared by address. */
struct names {
    const char **v;
    size_t n, cap, slots;
    uint32_t *slot;
};

/* The address of the name S[n]; NULL beyond the scratch's bound. */
const char *names_intern(struct scratch *s, struct names *names, const char *name,
                         size_t n);
/* The same where it is known, else NULL. */
const char *names_find(const struct names *names, const char *name, size_t n);

#endif
