/* option - what a family says about a tensor that only training reads */
#include "lib/model/option.h"

#include "lib/base/json.h"
#include "lib/model/expr.h"
#include "lib/model/family.h"

/* Option KEY in the definition of a tensor, or NULL. */
static const struct json *find(const struct family_entry *e, const char *key)
{
    const struct json *last = e->json->first;

    while (last && last->next)
        last = last->next;
    return last && last->type == JSON_OBJECT ? json_get(last, key) : NULL;
}

int option_number(const struct model *m, const struct model_tensor *t, const char *key,
                  bool *is, double *out, struct err *err)
{
    const struct family_entry *e = model_kind(m, t->kind).entry;
    const struct json *j = find(e, key);
    struct expr_value v;
    struct err why;

    *is = false;
    if (!j)
        return 0;
    if (model_eval(m, j->text, j->n, t->layer, &v, &why) < 0)
        return family_error(e->doc, j, 0, err, "%s", why.text);
    if (v.kind == EXPR_NULL)
        return 0;
    if (v.kind != EXPR_NUMBER)
        return family_error(e->doc, j, 0, err, "'%s' is no number", j->text);
    *is = true;
    *out = v.number;
    return 0;
}

int option_padding(const struct model *m, const struct model_tensor *t, bool *is,
                   uint64_t *row, struct err *err)
{
    double rows = (double)t->axis[0]->size, number;

    if (option_number(m, t, "padding", is, &number, err) < 0)
        return -1;
    if (!*is)
        return 0;
    if (number < 0)
        number += rows;
    *is = number >= 0 && number < rows;
    if (*is)
        *row = (uint64_t)number;
    return 0;
}
