/* expr - the expressions of family files: symbols, conditions, options
 *
 *   a ? b : c     a ?? b (b if a is null)     || && !
 *   == != < <= > >= in     + - * / %     a.key  a[i]     f(x)
 *
 * Values are numbers, 'words', true, false, null, and the lists and objects of a
 * config.json.  A key that the config lacks is null; arithmetic with null gives null;
 * null is false.  Functions: min max sqrt pow floor ceil log len; ends(word, 'end');
 * given('key'): true if the config has the key, even as null. */
#ifndef LIB_MODEL_EXPR_H
#define LIB_MODEL_EXPR_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

#include "lib/base/err.h"

enum expr_kind { EXPR_NULL, EXPR_BOOL, EXPR_NUMBER, EXPR_WORD, EXPR_JSON };

struct expr_value {
    enum expr_kind kind;
    double number;    /* EXPR_NUMBER, and EXPR_BOOL as 0 or 1 */
    const char *word; /* EXPR_WORD: borrowed, LEN bytes, not NUL-terminated */
    size_t len;
    const cJSON *json; /* EXPR_JSON: an array or object, borrowed */
};

/* Looks up identifiers.  lookup returns 0 with *out set (null for an unknown name), or
 * -1 with *err set; given is the function of the language. */
struct expr_env {
    int (*lookup)(void *arg, const char *name, size_t len, struct expr_value *out,
                  struct err *err);
    bool (*given)(void *arg, const char *name, size_t len);
    void *arg;
};

/* Evaluates the N bytes at TEXT.  An error is "column C: cause", counted in TEXT. */
MUST_CHECK int expr_eval(struct expr_value *out, const char *text, size_t n,
                         const struct expr_env *env, struct err *err);

/* Converts a JSON value; words and JSON are borrowed from it. */
struct expr_value expr_from_json(const cJSON *json);
bool expr_is_true(const struct expr_value *v);
bool expr_word_is(const struct expr_value *v, const char *word);

#endif
