/* expr - the expressions of family files: symbols, conditions, options */
#include "lib/model/expr.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/scan.h"

/* Parses and evaluates in one pass.  A branch that is not taken is parsed with .skip
 * above 0 and looks nothing up. */
struct reader {
    struct scan in;
    const struct expr_env *env;
    int skip;
};

static int parse_ternary(struct reader *r, struct expr_value *out);

static struct expr_value null_value(void)
{
    return (struct expr_value){ .kind = EXPR_NULL };
}

static struct expr_value number(double x)
{
    return (struct expr_value){ .kind = EXPR_NUMBER, .number = x };
}

static struct expr_value boolean(bool b)
{
    return (struct expr_value){ .kind = EXPR_BOOL, .number = b };
}

/* transformers writes infinity as { "__float__": "Infinity" }. */
static bool is_infinity(const cJSON *json, double *out)
{
    const char *word =
        cJSON_IsObject(json) && cJSON_GetArraySize(json) == 1
            ? cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "__float__"))
            : NULL;

    if (!word || (strcmp(word, "Infinity") != 0 && strcmp(word, "-Infinity") != 0))
        return false;
    *out = *word == '-' ? -INFINITY : INFINITY;
    return true;
}

struct expr_value expr_from_json(const cJSON *json)
{
    double infinity;

    if (is_infinity(json, &infinity))
        return number(infinity);
    if (cJSON_IsNumber(json))
        return number(json->valuedouble);
    if (cJSON_IsBool(json))
        return boolean(cJSON_IsTrue(json));
    if (cJSON_IsString(json))
        return (struct expr_value){ .kind = EXPR_WORD,
                                    .word = json->valuestring,
                                    .len = strlen(json->valuestring) };
    if (cJSON_IsArray(json) || cJSON_IsObject(json))
        return (struct expr_value){ .kind = EXPR_JSON, .json = json };
    return null_value();
}

bool expr_is_true(const struct expr_value *v)
{
    switch (v->kind) {
    case EXPR_NULL:
        return false;
    case EXPR_BOOL:
    case EXPR_NUMBER:
        return v->number != 0;
    case EXPR_WORD:
        return v->len > 0;
    case EXPR_JSON:
        return cJSON_GetArraySize(v->json) > 0;
    }
    return false;
}

bool expr_word_is(const struct expr_value *v, const char *word)
{
    return v->kind == EXPR_WORD && strlen(word) == v->len &&
           !memcmp(v->word, word, v->len);
}

static bool is_numeric(const struct expr_value *v)
{
    return v->kind == EXPR_NUMBER || v->kind == EXPR_BOOL;
}

static bool values_equal(const struct expr_value *a, const struct expr_value *b)
{
    if (is_numeric(a) && is_numeric(b))
        return a->number == b->number;
    if (a->kind != b->kind)
        return false;
    if (a->kind == EXPR_WORD)
        return a->len == b->len && !memcmp(a->word, b->word, a->len);
    if (a->kind == EXPR_JSON)
        return cJSON_Compare(a->json, b->json, 1);
    return true;
}

/* Consumes the operator OP if it is next and is not the start of a longer one. */
static bool take(struct reader *r, const char *op)
{
    const char *at = r->in.p;
    char next;

    if (!scan_take_text(&r->in, op))
        return false;
    next = scan_peek(&r->in, 0);
    if (op[1] || !((*op == '?' && next == '?') || (*op == '!' && next == '=') ||
                   (strchr("<>", *op) && next == '=')))
        return true;
    r->in.p = at;
    return false;
}

static bool take_word(struct reader *r, const char *word)
{
    scan_space(&r->in);
    return scan_word(&r->in, 0) == strlen(word) && scan_take_text(&r->in, word);
}

/* ---- functions ---- */

struct function {
    const char *name;
    int nargs;
    double (*one)(double);
    double (*two)(double, double);
};

static const struct function functions[] = {
    { "sqrt", 1, sqrt, NULL },  { "floor", 1, floor, NULL }, { "ceil", 1, ceil, NULL },
    { "log", 1, log, NULL },    { "pow", 2, NULL, pow },     { "min", 2, NULL, fmin },
    { "max", 2, NULL, fmax },   { "len", 1, NULL, NULL },    { "ends", 2, NULL, NULL },
    { "given", 1, NULL, NULL },
};

static bool ends_with(const struct expr_value *word, const struct expr_value *end)
{
    return word->kind == EXPR_WORD && end->kind == EXPR_WORD && word->len >= end->len &&
           !memcmp(word->word + word->len - end->len, end->word, end->len);
}

static int call(struct reader *r, const char *at, size_t len, struct expr_value *out)
{
    struct expr_value arg[2];
    const struct function *f = NULL;
    int n = 0;

    for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++)
        if (strlen(functions[i].name) == len && !memcmp(functions[i].name, at, len))
            f = &functions[i];
    if (!f)
        return scan_fail(&r->in, at,
                         "no function of that name (min max sqrt pow floor ceil log "
                         "len ends given)");
    do {
        if (n == 2)
            return scan_fail(&r->in, r->in.p, "too many arguments");
        if (parse_ternary(r, &arg[n++]) < 0)
            return -1;
    } while (take(r, ","));
    if (!take(r, ")"))
        return scan_fail(&r->in, r->in.p, "expected ')'");
    if (n != f->nargs)
        return scan_fail(&r->in, at, "wrong number of arguments");
    *out = null_value();
    if (r->skip)
        return 0;
    if (!f->one && !f->two) {
        if (n == 2)
            *out = boolean(ends_with(&arg[0], &arg[1]));
        else if (!strcmp(f->name, "given"))
            *out = boolean(arg[0].kind == EXPR_WORD &&
                           r->env->given(r->env->arg, arg[0].word, arg[0].len));
        else if (arg[0].kind == EXPR_JSON)
            *out = number(cJSON_GetArraySize(arg[0].json));
        else if (arg[0].kind == EXPR_WORD)
            *out = number((double)arg[0].len);
        return 0;
    }
    if (!is_numeric(&arg[0]) || (n == 2 && !is_numeric(&arg[1])))
        return 0;
    *out =
        number(f->one ? f->one(arg[0].number) : f->two(arg[0].number, arg[1].number));
    return 0;
}

/* ---- precedence, highest first ---- */

static int parse_literal(struct reader *r, struct expr_value *out)
{
    char digits[64];
    size_t n = 0;
    char *end;

    while (r->in.p + n < r->in.end && n + 1 < sizeof(digits) &&
           (isdigit((unsigned char)r->in.p[n]) || r->in.p[n] == '.' ||
            tolower(r->in.p[n]) == 'e' ||
            (n && strchr("+-", r->in.p[n]) && tolower(r->in.p[n - 1]) == 'e'))) {
        digits[n] = r->in.p[n];
        n++;
    }
    digits[n] = '\0';
    *out = number(strtod(digits, &end));
    if (end != digits + n)
        return scan_fail(&r->in, r->in.p, "not a number");
    r->in.p += n;
    return 0;
}

static int parse_primary(struct reader *r, struct expr_value *out)
{
    const char *at;
    size_t len;

    scan_space(&r->in);
    at = r->in.p;
    if (at == r->in.end)
        return scan_fail(&r->in, at, "an operand is missing");
    if (isdigit((unsigned char)*at) || *at == '.')
        return parse_literal(r, out);
    if (*at == '\'') {
        const char *close = memchr(at + 1, '\'', (size_t)(r->in.end - at - 1));

        if (!close)
            return scan_fail(&r->in, at, "the word has no closing quote");
        *out = (struct expr_value){ .kind = EXPR_WORD,
                                    .word = at + 1,
                                    .len = (size_t)(close - at - 1) };
        r->in.p = close + 1;
        return 0;
    }
    if (take(r, "(")) {
        if (parse_ternary(r, out) < 0)
            return -1;
        return take(r, ")") ? 0 : scan_fail(&r->in, r->in.p, "expected ')'");
    }
    len = scan_word(&r->in, 0);
    if (!len)
        return scan_fail(&r->in, at, "expected a number, a name, a 'word' or '('");
    r->in.p += len;
    if (take(r, "("))
        return call(r, at, len, out);
    *out = null_value();
    if (len == 4 && !memcmp(at, "true", 4))
        *out = boolean(true);
    else if (len == 5 && !memcmp(at, "false", 5))
        *out = boolean(false);
    else if (!(len == 4 && !memcmp(at, "null", 4)) && !r->skip)
        return r->env->lookup(r->env->arg, at, len, out, r->in.err);
    return 0;
}

/* Replaces *out by its member named by the word at the reader's position. */
static int parse_member(struct reader *r, struct expr_value *out)
{
    size_t len = scan_word(&r->in, 0);
    const cJSON *member = NULL;

    if (!len)
        return scan_fail(&r->in, r->in.p, "expected a key after '.'");
    if (out->kind != EXPR_NULL &&
        !(out->kind == EXPR_JSON && cJSON_IsObject(out->json)))
        return scan_fail(&r->in, r->in.p, "only an object has keys");
    if (out->kind == EXPR_JSON)
        cJSON_ArrayForEach(
            member, out->json) if (member->string && strlen(member->string) == len &&
                                   !memcmp(member->string, r->in.p, len)) break;
    r->in.p += len;
    *out = member ? expr_from_json(member) : null_value();
    return 0;
}

static int parse_postfix(struct reader *r, struct expr_value *out)
{
    if (parse_primary(r, out) < 0)
        return -1;
    for (;;) {
        struct expr_value index;

        if (r->in.p < r->in.end && *r->in.p == '.') {
            r->in.p++;
            if (parse_member(r, out) < 0)
                return -1;
        } else if (r->in.p < r->in.end && *r->in.p == '[') {
            r->in.p++;
            if (parse_ternary(r, &index) < 0)
                return -1;
            if (!take(r, "]"))
                return scan_fail(&r->in, r->in.p, "expected ']'");
            if (out->kind == EXPR_JSON && cJSON_IsArray(out->json) &&
                is_numeric(&index) && index.number >= 0 &&
                index.number < cJSON_GetArraySize(out->json))
                *out = expr_from_json(cJSON_GetArrayItem(out->json, (int)index.number));
            else if (out->kind == EXPR_WORD && is_numeric(&index) &&
                     index.number >= 0 && index.number < (double)out->len)
                *out = (struct expr_value){ .kind = EXPR_WORD,
                                            .word = out->word + (size_t)index.number,
                                            .len = 1 };
            else
                *out = null_value();
        } else {
            return 0;
        }
    }
}

static int parse_unary(struct reader *r, struct expr_value *out)
{
    int ret;

    if (scan_enter(&r->in, 64) < 0)
        return -1;
    if (take(r, "!")) {
        ret = parse_unary(r, out);
        if (ret == 0)
            *out = boolean(!expr_is_true(out));
    } else if (take(r, "-")) {
        ret = parse_unary(r, out);
        if (ret == 0)
            *out = is_numeric(out) ? number(-out->number) : null_value();
    } else {
        ret = parse_postfix(r, out);
    }
    r->in.depth--;
    return ret;
}

static struct expr_value arithmetic(char op, const struct expr_value *a,
                                    const struct expr_value *b)
{
    if (!is_numeric(a) || !is_numeric(b))
        return null_value();
    switch (op) {
    case '+':
        return number(a->number + b->number);
    case '-':
        return number(a->number - b->number);
    case '*':
        return number(a->number * b->number);
    case '/':
        return b->number == 0 ? null_value() : number(a->number / b->number);
    default:
        return b->number == 0 ? null_value() : number(fmod(a->number, b->number));
    }
}

static int parse_product(struct reader *r, struct expr_value *out)
{
    if (parse_unary(r, out) < 0)
        return -1;
    for (;;) {
        char op = take(r, "*") ? '*' : take(r, "/") ? '/' : take(r, "%") ? '%' : '\0';
        struct expr_value right;

        if (!op)
            return 0;
        if (parse_unary(r, &right) < 0)
            return -1;
        *out = arithmetic(op, out, &right);
    }
}

static int parse_sum(struct reader *r, struct expr_value *out)
{
    if (parse_product(r, out) < 0)
        return -1;
    for (;;) {
        char op = take(r, "+") ? '+' : take(r, "-") ? '-' : '\0';
        struct expr_value right;

        if (!op)
            return 0;
        if (parse_product(r, &right) < 0)
            return -1;
        *out = arithmetic(op, out, &right);
    }
}

static bool is_in(const struct expr_value *v, const struct expr_value *list)
{
    const cJSON *item;

    if (list->kind == EXPR_JSON)
        cJSON_ArrayForEach(item, list->json)
        {
            struct expr_value e = expr_from_json(item);

            if (values_equal(v, &e))
                return true;
        }
    return false;
}

static int parse_comparison(struct reader *r, struct expr_value *out)
{
    static const char *const ops[] = { "==", "!=", "<=", ">=", "<", ">", NULL };
    struct expr_value left, right;
    int op = 0;

    if (parse_sum(r, out) < 0)
        return -1;
    if (take_word(r, "in")) {
        if (parse_sum(r, &right) < 0)
            return -1;
        *out = boolean(is_in(out, &right));
        return 0;
    }
    while (ops[op] && !take(r, ops[op]))
        op++;
    if (!ops[op])
        return 0;
    left = *out;
    if (parse_sum(r, &right) < 0)
        return -1;
    if (op < 2) {
        *out = boolean(values_equal(&left, &right) == (op == 0));
        return 0;
    }
    if (!is_numeric(&left) || !is_numeric(&right)) {
        *out = null_value();
        return 0;
    }
    *out = boolean(op == 2   ? left.number <= right.number
                   : op == 3 ? left.number >= right.number
                   : op == 4 ? left.number < right.number
                             : left.number > right.number);
    return 0;
}

static int parse_and(struct reader *r, struct expr_value *out)
{
    if (parse_comparison(r, out) < 0)
        return -1;
    while (take(r, "&&")) {
        bool left = expr_is_true(out);
        struct expr_value right;

        r->skip += !left;
        if (parse_comparison(r, &right) < 0)
            return -1;
        r->skip -= !left;
        *out = boolean(left && expr_is_true(&right));
    }
    return 0;
}

static int parse_or(struct reader *r, struct expr_value *out)
{
    if (parse_and(r, out) < 0)
        return -1;
    while (take(r, "||")) {
        bool left = expr_is_true(out);
        struct expr_value right;

        r->skip += left;
        if (parse_and(r, &right) < 0)
            return -1;
        r->skip -= left;
        *out = boolean(left || expr_is_true(&right));
    }
    return 0;
}

static int parse_default(struct reader *r, struct expr_value *out)
{
    if (parse_or(r, out) < 0)
        return -1;
    while (take(r, "??")) {
        bool have = out->kind != EXPR_NULL;
        struct expr_value right;

        r->skip += have;
        if (parse_or(r, &right) < 0)
            return -1;
        r->skip -= have;
        if (!have)
            *out = right;
    }
    return 0;
}

static int parse_ternary(struct reader *r, struct expr_value *out)
{
    struct expr_value yes, no;
    bool condition;

    if (scan_enter(&r->in, 64) < 0)
        return -1;
    if (parse_default(r, out) < 0)
        return -1;
    if (take(r, "?")) {
        condition = expr_is_true(out);
        r->skip += !condition;
        if (parse_ternary(r, &yes) < 0)
            return -1;
        r->skip -= !condition;
        if (!take(r, ":"))
            return scan_fail(&r->in, r->in.p, "expected ':'");
        r->skip += condition;
        if (parse_ternary(r, &no) < 0)
            return -1;
        r->skip -= condition;
        *out = condition ? yes : no;
    }
    r->in.depth--;
    return 0;
}

int expr_eval(struct expr_value *out, const char *text, size_t n,
              const struct expr_env *env, struct err *err)
{
    struct reader r = { .in = scan_start(text, n, err), .env = env };
    struct expr_value v;

    if (parse_ternary(&r, &v) < 0)
        return -1;
    if (scan_end(&r.in, "expected an operator or the end") < 0)
        return -1;
    *out = v;
    return 0;
}
