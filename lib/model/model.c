/* model - a family applied to one config.json: symbols, tensors, shards */
#include "lib/model/model.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/model/bind.h"
#include "lib/model/feed.h"
#include "lib/model/quant.h"
#include "lib/model/state.h"

/* Most units of a sharded symbol: a tensor can have as many shards. */
enum { MAX_DEALT = 1 << 22 };

/* ---- evaluation ---- */

struct eval {
    struct model_state *s;
    int layer;
    const char *self; /* the symbol being defined; its name then means the config key */
    bool training;    /* value of "training" */
    bool *by_layer;   /* set if the value depends on the layer */
};

static int lookup(void *arg, const char *name, size_t len, struct expr_value *out,
                  struct err *err);
static bool given(void *arg, const char *name, size_t len);

/* Evaluates symbol I; the value is cached unless it depends on the layer. */
static int eval_symbol(struct model_state *s, size_t i, int layer, bool *by_layer,
                       struct expr_value *out, struct err *err)
{
    struct symbol_def *d = &s->symbol[i];
    bool varies = false;
    struct eval e = {
        .s = s, .layer = layer, .self = d->entry->key, .by_layer = &varies
    };
    struct expr_env env = { .lookup = lookup, .given = given, .arg = &e };
    struct err cause;

    if (d->state == SYMBOL_BUSY)
        return family_error(d->entry->doc, d->entry->json, 0, err,
                            "'%s' is defined by itself", d->entry->key);
    if (d->state == SYMBOL_NEW) {
        if (!json_string(d->entry->json))
            return family_error(d->entry->doc, d->entry->json, 0, err,
                                "expected an expression");
        d->state = SYMBOL_BUSY;
        if (expr_eval(&d->value, d->entry->json->text, d->entry->json->n, &env,
                      &cause) < 0) {
            d->state = SYMBOL_NEW;
            return family_place(d->entry->doc, d->entry->json, 0, &cause, err);
        }
        d->state = varies ? SYMBOL_NEW : SYMBOL_DONE;
        *by_layer |= varies;
    }
    *out = d->value;
    return 0;
}

static int lookup(void *arg, const char *name, size_t len, struct expr_value *out,
                  struct err *err)
{
    const struct eval *e = arg;
    const struct family_table *t = &e->s->family->symbols;
    const cJSON *member;

    *out = (struct expr_value){ .kind = EXPR_NULL };
    if (len == 5 && !memcmp(name, "layer", 5)) {
        *e->by_layer = true;
        if (e->layer >= 0) {
            *out = (struct expr_value){ .kind = EXPR_NUMBER, .number = e->layer };
            return 0;
        }
    }
    if (len == 8 && !memcmp(name, "training", 8)) {
        *out = (struct expr_value){ .kind = EXPR_BOOL, .number = e->training };
        return 0;
    }
    if (!e->self || strlen(e->self) != len || memcmp(e->self, name, len))
        for (size_t i = 0; i < t->n; i++)
            if (strlen(t->v[i].key) == len && !memcmp(t->v[i].key, name, len))
                return eval_symbol(e->s, i, e->layer, e->by_layer, out, err);
    cJSON_ArrayForEach(
        member, e->s->config) if (member->string && strlen(member->string) == len &&
                                  !memcmp(member->string, name, len)) *out =
        expr_from_json(member);
    return 0;
}

static bool given(void *arg, const char *name, size_t len)
{
    const struct eval *e = arg;
    const cJSON *member;

    cJSON_ArrayForEach(
        member, e->s->config) if (member->string && strlen(member->string) == len &&
                                  !memcmp(member->string, name, len)) return true;
    return false;
}

static int evaluate(const struct model *m, const char *text, size_t n, int layer,
                    bool training, struct expr_value *out, struct err *err)
{
    bool by_layer = false;
    struct eval e = {
        .s = m->state, .layer = layer, .training = training, .by_layer = &by_layer
    };
    struct expr_env env = { .lookup = lookup, .given = given, .arg = &e };

    return expr_eval(out, text, n, &env, err);
}

int model_eval(const struct model *m, const char *text, size_t n, int layer,
               struct expr_value *out, struct err *err)
{
    return evaluate(m, text, n, layer, false, out, err);
}

int model_when(const struct model *m, const struct json_doc *doc,
               const struct json *when, int layer, bool training, bool *out,
               struct err *err)
{
    struct expr_value v;
    struct err cause;

    *out = true;
    if (!when)
        return 0;
    if (evaluate(m, when->text, when->n, layer, training, &v, &cause) < 0)
        return family_place(doc, when, 0, &cause, err);
    *out = expr_is_true(&v);
    return 0;
}

bool model_number(const struct model *m, const char *symbol, double *out)
{
    struct expr_value v;

    if (model_eval(m, symbol, strlen(symbol), -1, &v, NULL) < 0 ||
        (v.kind != EXPR_NUMBER && v.kind != EXPR_BOOL))
        return false;
    *out = v.number;
    return true;
}

uint64_t model_context(const struct model *m)
{
    double n;

    return model_number(m, "context", &n) && n >= 1 && n < 0x1p53 ? (uint64_t)n : 0;
}

/* ---- scope and sharded symbols ---- */

static int find_symbol(const struct axis_scope *scope, const char *name)
{
    for (int i = 0; i < scope->n; i++)
        if (!strcmp(scope->sym[i].name, name))
            return i;
    return -1;
}

/* Fills the scope with symbols that can be sizes, and makes room for group digits. */
static int make_scope(struct model *m, struct err *err)
{
    struct model_state *s = m->state;
    const struct family_table *t = &s->family->symbols;
    size_t room = t->n + s->family->deal.n;

    s->scope = xcalloc(room + 1, sizeof(*s->scope));
    m->scope.sym = s->scope;
    for (size_t i = 0; i < t->n; i++) {
        struct expr_value v;
        bool by_layer = false;

        if (eval_symbol(s, i, -1, &by_layer, &v, err) < 0)
            return -1;
        if (by_layer)
            continue;
        if (v.kind != EXPR_NUMBER || v.number < 1 || v.number > 0x1p48 ||
            v.number != floor(v.number))
            continue;
        s->scope[m->scope.n++] = (struct axis_symbol){
            .name = t->v[i].key, .value = (uint64_t)v.number, .group = -1, .within = -1
        };
    }
    return 0;
}

/* True if KEY is a plain name that the config lacks. */
static bool is_missing(const struct model *m, const char *key)
{
    size_t n = strspn(key, "abcdefghijklmnopqrstuvwxyz_0123456789");

    return n && !key[n] && strcmp(key, "null") != 0 && strcmp(key, "true") != 0 &&
           strcmp(key, "false") != 0 &&
           !cJSON_GetObjectItemCaseSensitive(m->state->config, key);
}

/* True if SYMBOL counts a capture, or occurs in an axis of a tensor without "when". */
static bool is_axis(const struct model *m, const char *symbol)
{
    const struct family_table *t = &m->state->family->tensors;
    const struct family_table *captures = &m->state->family->captures;
    size_t len = strlen(symbol);

    for (size_t i = 0; i < captures->n; i++)
        if (json_string(captures->v[i].json) &&
            !strcmp(captures->v[i].json->text, symbol))
            return true;
    for (size_t i = 0; i < t->n; i++) {
        const struct json *j = t->v[i].json->first, *last = j;

        while (last && last->next)
            last = last->next;
        if (!j || (last->type == JSON_OBJECT && json_get(last, "when")))
            continue;
        for (j = j->next; j; j = j->next)
            for (const char *p = json_string(j); p && (p = strstr(p, symbol)); p += len)
                if ((p == j->text ||
                     !(isalnum((unsigned char)p[-1]) || p[-1] == '_')) &&
                    !(isalnum((unsigned char)p[len]) || p[len] == '_'))
                    return true;
    }
    return false;
}

/* Appends to *err the other keys that the tensors need and the config lacks, so that
 * the user sees all at once. */
static void add_other_keys(const struct model *m, const struct family_entry *told,
                           struct err *err)
{
    const struct family_table *t = &m->state->family->symbols;
    struct str all = { 0 };

    for (size_t i = 0; i < t->n && err; i++) {
        const char *key = json_string(t->v[i].json);

        if (&t->v[i] != told && key && is_missing(m, key) && is_axis(m, t->v[i].key))
            str_addf(&all, "%s%s", all.len ? ", " : "; and ", key);
    }
    if (err && all.len)
        snprintf(err->text + strlen(err->text), sizeof(err->text) - strlen(err->text),
                 "%s", all.s);
    str_clear(&all);
}

/* If TEXT, the expression of a symbol without a value, ends with the quotient of two
 * symbols that do not divide, sets *err to that and returns true. */
static bool tell_quotient(const struct model *m, const char *text, struct err *err)
{
    const char *slash = strrchr(text, '/'), *from = slash;
    const struct axis_symbol *sym = m->scope.sym;
    char *over, *under;
    int a, b;

    while (from && from > text && (isalnum((unsigned char)from[-1]) || from[-1] == '_'))
        from--;
    if (!slash)
        return false;
    over = xstrndup(from, (size_t)(slash - from));
    under = xstrdup(slash + 1);
    a = find_symbol(&m->scope, over);
    b = find_symbol(&m->scope, under);
    free(over);
    free(under);
    if (a < 0 || b < 0 || sym[a].value % sym[b].value == 0)
        return false;
    err_set(err, ERR_INPUT, "%s: %s %llu is no multiple of %s %llu",
            m->state->config_name, sym[a].name, (unsigned long long)sym[a].value,
            sym[b].name, (unsigned long long)sym[b].value);
    return true;
}

/* Index in the scope of symbol NAME, which a shard rule or capture E needs.  If it has
 * no value, the error names the missing config key. */
static int need_symbol(const struct model *m, const char *name,
                       const struct family_entry *e, int *out, struct err *err)
{
    const struct family_entry *def = family_get(&m->state->family->symbols, name);

    *out = find_symbol(&m->scope, name);
    if (*out >= 0)
        return 0;
    if (!def)
        return family_error(e->doc, e->json, 0, err, "'%s' is no symbol", name);
    if (json_string(def->json) && tell_quotient(m, def->json->text, err))
        return -1;
    err_set(err, ERR_INPUT, "%s: family %s needs '%s' (%s), a whole number from 1",
            m->state->config_name, m->state->family->name, name,
            json_string(def->json) ? def->json->text : "null");
    add_other_keys(m, def, err);
    return -1;
}

static int deal_in_groups(struct model *m, struct deal_def *d, const char *groups,
                          const char *group, const struct family_entry *e,
                          struct err *err)
{
    struct axis_symbol *sym = m->state->scope;

    if (need_symbol(m, groups, e, &d->group, err) < 0)
        return -1;
    if (sym[d->sym].value % sym[d->group].value)
        return err_set(err, ERR_INPUT, "%s: %s %llu is no multiple of %s %llu",
                       m->state->config_name, e->key,
                       (unsigned long long)sym[d->sym].value, groups,
                       (unsigned long long)sym[d->group].value);
    d->within = m->scope.n++;
    sym[d->within] =
        (struct axis_symbol){ .name = group,
                              .value = sym[d->sym].value / sym[d->group].value,
                              .dealt = true,
                              .group = -1,
                              .within = -1 };
    sym[d->group].dealt = true;
    sym[d->sym].group = d->group;
    sym[d->sym].within = d->within;
    return 0;
}

static int read_deal(struct model *m, const struct family_entry *e, struct err *err)
{
    struct model_state *s = m->state;
    struct deal_def *d = &s->deal[s->ndeals];
    const char *over = json_string(json_get(e->json, "over"));
    const struct json *groups = json_get(e->json, "groups"),
                      *group = json_get(e->json, "group"),
                      *grain = json_get(e->json, "grain");
    int axis = 0;

    *d = (struct deal_def){ .group = -1, .within = -1, .grain = 1 };
    if (e->json->type != JSON_OBJECT)
        return family_error(e->doc, e->json, 0, err, "a deal must be an object");
    for (const struct json *j = e->json->first; j; j = j->next)
        if (strcmp(j->key, "over") && strcmp(j->key, "groups") &&
            strcmp(j->key, "group") && strcmp(j->key, "grain"))
            return family_error(e->doc, j, 0, err, "unknown key '%s' of a deal",
                                j->key);
    while (mesh_axis_names[axis] && (!over || strcmp(mesh_axis_names[axis], over)))
        axis++;
    if (!mesh_axis_names[axis])
        return family_error(e->doc, e->json, 0, err,
                            "\"over\" must name tp, sp, ep, dp or pp");
    d->over = (enum mesh_axis)axis;
    if (grain && !json_u64(grain, &d->grain))
        return family_error(e->doc, grain, 0, err, "expected a number");
    if (need_symbol(m, e->key, e, &d->sym, err) < 0)
        return -1;
    if (s->scope[d->sym].value > MAX_DEALT)
        return err_set(err, ERR_INPUT,
                       "%s: '%s' is %llu, more than can be sharded (%d)",
                       s->config_name, e->key,
                       (unsigned long long)s->scope[d->sym].value, MAX_DEALT);
    s->scope[d->sym].dealt = true;
    s->ndeals++;
    if (!groups)
        return 0;
    if (!json_string(groups))
        return family_error(e->doc, groups, 0, err, "expected a symbol's name");
    if (group && (!json_string(group) || find_symbol(&m->scope, group->text) >= 0))
        return family_error(e->doc, group, 0, err, "expected a name of its own");
    return deal_in_groups(m, d, groups->text, group ? group->text : "group", e, err);
}

static int make_deals(struct model *m, struct err *err)
{
    const struct family_table *t = &m->state->family->deal;

    m->state->deal = xcalloc(t->n + 1, sizeof(*m->state->deal));
    for (size_t i = 0; i < t->n; i++)
        if (read_deal(m, &t->v[i], err) < 0)
            return -1;
    return 0;
}

static int make_sections(struct model *m, struct err *err)
{
    struct model_state *s = m->state;
    const struct family *f = s->family;

    if (f->nsections > 64)
        return err_set(err, ERR_INPUT, "family %s: more than 64 sections", m->family);
    s->section = xcalloc(f->nsections + 1, sizeof(*s->section));
    s->nsections = (int)f->nsections;
    for (int i = 0; i < s->nsections; i++) {
        struct model_section *sec = &s->section[i];
        const struct family_entry *e = family_get(&f->captures, f->section[i].name);
        int sym;

        *sec = (struct model_section){ .name = f->section[i].name,
                                       .count = 1,
                                       .depth = s->nlayers };
        if (!e)
            continue;
        if (!json_string(e->json))
            return family_error(e->doc, e->json, 0, err, "expected a symbol's name");
        if (need_symbol(m, e->json->text, e, &sym, err) < 0)
            return -1;
        if (m->scope.sym[sym].value > 1 << 20)
            return err_set(err, ERR_INPUT, "%s: %llu layers", s->config_name,
                           (unsigned long long)m->scope.sym[sym].value);
        sec->repeated = true;
        sec->count = (int)m->scope.sym[sym].value;
        s->nlayers += sec->count;
    }
    return 0;
}

/* ---- tensors ---- */

/* Bit i is set if a line of section i names KEY. */
static uint64_t readers(const struct family *f, const char *key)
{
    uint64_t sections = 0;
    size_t len = strlen(key);

    for (size_t i = 0; i < f->nsections; i++)
        for (size_t k = 0; k < f->section[i].n; k++)
            for (const char *p = f->section[i].line[k].text; *p;) {
                size_t n = 0;

                while (isalnum((unsigned char)p[n]) || p[n] == '_')
                    n++;
                if (n == len && !memcmp(p, key, n))
                    sections |= UINT64_C(1) << i;
                p += n ? n : 1;
            }
    return sections;
}

void model_find_readers(struct model *m)
{
    struct model_state *s = m->state;

    for (size_t i = 0; i < s->ndefs; i++)
        s->def[i].read_by = readers(s->family, s->def[i].entry->key);
    for (size_t i = 0; i < s->ndefs; i++) {
        struct tensor_def *d = &s->def[i];
        int to = d->tied_def >= 0 ? d->tied_def : d->file_def;

        if (to >= 0)
            s->def[to].read_by |= d->read_by;
        if (d->near >= 0)
            d->read_by = s->def[d->near].read_by;
    }
}

/* Reads the options object at the end of a tensor's list. */
static int read_options(struct tensor_def *d, const struct json *o,
                        const char **tied_to, const struct json **tied_when,
                        bool *by_file, struct err *err)
{
    const struct json_doc *doc = d->entry->doc;

    for (const struct json *j = o->first; j; j = j->next) {
        if (!strcmp(j->key, "when") && json_string(j)) {
            d->when = j;
        } else if (!strcmp(j->key, "optional")) {
            d->drawn = json_string(j) && !strcmp(j->text, "drawn");
            d->optional = d->drawn || json_is_true(j);
        } else if (!strcmp(j->key, "frozen")) {
            d->frozen |= json_is_true(j);
        } else if (!strcmp(j->key, "of_experts")) {
            d->of_experts = json_is_true(j);
        } else if (!strcmp(j->key, "buffer")) {
            d->buffer = json_is_true(j);
            d->frozen |= d->buffer;
        } else if (!strcmp(j->key, "tied") && json_string(j)) {
            *tied_to = j->text;
        } else if (!strcmp(j->key, "tied") && j->type == JSON_ARRAY &&
                   (j->n == 2 || j->n == 3) && json_string(j->first) &&
                   json_string(j->first->next)) {
            const char *third = json_string(j->first->next->next);

            *tied_to = j->first->text;
            *tied_when = j->first->next;
            *by_file = third && !strcmp(third, "file");
            if (j->n == 3 && !*by_file)
                return family_error(doc, j->first->next->next, 0, err,
                                    "expected \"file\"");
        } else if (!strcmp(j->key, "beside") && json_string(j)) {
            d->beside = j;
        } else if (!strcmp(j->key, "stack") && json_string(j)) {
            d->stack = j->text;
        } else if ((!strcmp(j->key, "mxfp4") || !strcmp(j->key, "scales")) &&
                   json_string(j)) {
            d->packs = j;
        } else if ((strcmp(j->key, "init") && strcmp(j->key, "padding")) ||
                   !json_string(j)) { /* option.c reads these two */
            return family_error(doc, j, 0, err, "bad option '%s' of a tensor", j->key);
        }
    }
    return 0;
}

static struct tensor_def *find_def(struct model_state *s, const char *key, size_t len)
{
    for (size_t i = 0; i < s->ndefs; i++)
        if (strlen(s->def[i].entry->key) == len &&
            !memcmp(s->def[i].entry->key, key, len))
            return &s->def[i];
    return NULL;
}

/* Fails if TEXT names a symbol of the family that has no value: the config lacks its
 * key. */
static int missing_symbol(const struct model *m, const struct family_entry *e,
                          const char *text, struct err *err)
{
    for (size_t i = 0; i < m->state->family->symbols.n; i++) {
        const char *key = m->state->family->symbols.v[i].key;
        const char *at = strstr(text, key);
        int sym;

        if (at && !isalnum((unsigned char)at[strlen(key)]) && at[strlen(key)] != '_' &&
            (at == text || (!isalnum((unsigned char)at[-1]) && at[-1] != '_')) &&
            need_symbol(m, key, e, &sym, err) < 0)
            return -1;
    }
    return 0;
}

/* Sets *out if D's "when" holds in some layer. */
static int exists_anywhere(const struct model *m, const struct tensor_def *d, bool *out,
                           struct err *err)
{
    *out = false;
    for (int layer = -1; layer < m->state->nlayers && !*out; layer++)
        if (model_when(m, d->entry->doc, d->when, layer, false, out, err) < 0)
            return -1;
    return 0;
}

/* D holds the packed values, or their scales, of another tensor. */
static int read_packing(struct model_state *s, struct tensor_def *d, struct err *err)
{
    struct tensor_def *of = find_def(s, d->packs->text, strlen(d->packs->text));

    if (!of)
        return family_error(d->entry->doc, d->packs, 0, err,
                            "'%s' is no tensor above this one", d->packs->text);
    d->companion_of = d->near = (int)(of - s->def);
    d->optional = true; /* absent if the values are stored plainly: see is_stored */
    d->role = strcmp(d->packs->key, "mxfp4") ? PACKED_SCALES : PACKED_VALUES;
    if (d->role == PACKED_VALUES)
        of->replaced_by = (int)s->ndefs;
    return 0;
}

/* No line reads D; it is stored on the stages of another tensor. */
static int read_beside(struct model_state *s, struct tensor_def *d, struct err *err)
{
    const struct tensor_def *of = find_def(s, d->beside->text, strlen(d->beside->text));

    if (!of)
        return family_error(d->entry->doc, d->beside, 0, err,
                            "'%s' is no tensor above this one", d->beside->text);
    d->near = (int)(of - s->def);
    return 0;
}

static int read_tensor(struct model *m, const struct family_entry *e, struct err *err)
{
    struct model_state *s = m->state;
    struct tensor_def *d = &s->def[s->ndefs];
    const struct json *j = e->json->first, *tied_when = NULL;
    const char *tied_to = NULL;
    struct err cause;
    bool exists, tied, by_file = false;

    *d = (struct tensor_def){ .entry = e,
                              .tied_def = -1,
                              .file_def = -1,
                              .companion_of = -1,
                              .replaced_by = -1,
                              .next_replacer = -1,
                              .near = -1,
                              .section = -1,
                              .capture = { -1, -1 } };
    if (e->json->type != JSON_ARRAY || !json_string(j))
        return family_error(e->doc, e->json, 0, err, "expected [name, axis, ...]");
    d->pattern = j->text;
    for (const struct json *last = j; last; last = last->next)
        if (last->type == JSON_OBJECT && !last->next &&
            read_options(d, last, &tied_to, &tied_when, &by_file, err) < 0)
            return -1;
    if (exists_anywhere(m, d, &exists, err) < 0)
        return -1;
    if (!exists)
        return 0;
    if (model_when(m, e->doc, tied_when, -1, false, &tied, err) < 0)
        return -1;
    if (tied_to && (tied || by_file)) {
        struct tensor_def *to = find_def(s, tied_to, strlen(tied_to));

        if (!to)
            return family_error(e->doc, e->json, 0, err,
                                "tied to '%s', which is not above it", tied_to);
        d->tied_def = tied ? (int)(to - s->def) : -1;
        d->file_def = by_file ? (int)(to - s->def) : -1;
    }
    if ((d->packs && read_packing(s, d, err) < 0) ||
        (d->beside && read_beside(s, d, err) < 0))
        return -1;
    s->ndefs++;
    for (j = j->next; j && j->type != JSON_OBJECT; j = j->next) {
        if (!json_string(j) || d->ndim == MODEL_MAX_DIMS)
            return family_error(e->doc, j, 0, err, "expected at most %d axes",
                                MODEL_MAX_DIMS);
        if (axis_parse(&d->axis[d->ndim], j->text, &m->scope, &cause) < 0)
            return missing_symbol(m, e, j->text, err) < 0
                       ? -1
                       : family_place(e->doc, j, 0, &cause, err);
        d->ndim++;
    }
    return bind_pattern(m, d, err);
}

static int make_tensors(struct model *m, struct err *err)
{
    struct model_state *s = m->state;
    const struct family_table *t = &s->family->tensors;

    s->def = xcalloc((t->n + 1) * (1 + QUANT_MAX_COMPANIONS), sizeof(*s->def));
    for (size_t i = 0; i < t->n; i++)
        if (read_tensor(m, &t->v[i], err) < 0)
            return -1;
    model_find_readers(m);
    return bind_tensors(m, err);
}

/* ---- opening ---- */

static int open_with(struct model **out, struct family *f, cJSON *config,
                     const char *name, struct err *err)
{
    struct model *m = xcalloc(1, sizeof(*m));
    struct str text = { 0 };

    m->state = xcalloc(1, sizeof(*m->state));
    m->state->family = f;
    family_config(f, config);
    m->state->config = config;
    m->state->config_name = xstrdup(name);
    m->state->symbol = xcalloc(f->symbols.n + 1, sizeof(*m->state->symbol));
    for (size_t i = 0; i < f->symbols.n; i++)
        m->state->symbol[i].entry = &f->symbols.v[i];
    m->family = f->name;
    family_print(&text, f);
    m->state->text = str_steal(&text);
    if (make_scope(m, err) < 0 || make_deals(m, err) < 0 || make_sections(m, err) < 0 ||
        make_tensors(m, err) < 0 || feeds_make(m, err) < 0) {
        model_free(m);
        return -1;
    }
    *out = m;
    return 0;
}

static cJSON *parse_config(const char *name, const char *text, struct err *err)
{
    cJSON *config;

    if (json_read_config(&config, name, text, strlen(text), err) < 0)
        return NULL;
    if (!cJSON_IsObject(config)) {
        cJSON_Delete(config);
        config = NULL;
        err_set(err, ERR_INPUT, "%s: expected an object", name);
    }
    return config;
}

int model_open(struct model **out, const char *name, const char *config,
               const char *family_file, const char *path, struct err *err)
{
    struct family_library *lib = NULL;
    struct family *f = NULL;
    cJSON *json = parse_config(name, config, err);
    bool found = false;
    int ret = -1;

    if (!json)
        return -1;
    if (family_library_open(&lib, path, err) < 0 ||
        (family_file && fs_find(&found, family_file, err) < 0))
        goto out;
    if ((!family_file ? family_match(&f, lib, json, name, err)
         : !found && !strchr(family_file, '/') && !str_ends(family_file, ".json")
             ? family_find(&f, lib, family_file, err)
             : family_read(&f, lib, family_file, err)) < 0)
        goto out;
    ret = open_with(out, f, json, name, err);
    json = NULL;
    if (ret == 0)
        (*out)->state->config_text = xstrdup(config);
out:
    family_library_free(lib);
    cJSON_Delete(json);
    return ret;
}

int model_open_flat(struct model **out, const char *name, const char *config,
                    const char *family_text, struct err *err)
{
    struct family *f;
    cJSON *json = parse_config(name, config, err);

    if (!json)
        return -1;
    if (family_parse(&f, NULL, name, family_text, err) < 0) {
        cJSON_Delete(json);
        return -1;
    }
    return open_with(out, f, json, name, err);
}

int model_open_family(struct model **out, const char *name, const char *config,
                      struct family *f, struct err *err)
{
    cJSON *json = parse_config(name, config, err);

    if (!json) {
        family_free(f);
        return -1;
    }
    return open_with(out, f, json, name, err);
}

void model_free(struct model *m)
{
    struct model_state *s = m ? m->state : NULL;

    if (!m)
        return;
    bind_clear(m);
    feeds_clear(m);
    model_unadapt(m);
    for (size_t i = 0; i < s->ndefs; i++)
        for (int k = 0; k < s->def[i].ndim; k++)
            axis_clear(&s->def[i].axis[k]);
    family_free(s->family);
    cJSON_Delete(s->config);
    free(s->config_name);
    free(s->config_text);
    free(s->text);
    free(s->symbol);
    free(s->scope);
    free(s->deal);
    free(s->section);
    free(s->def);
    free(s->untied);
    free(s);
    free(m);
}

struct model_adapter *model_adapt(struct model *m, size_t t, bool turned, uint64_t rank,
                                  double scale)
{
    struct leaf leaf = {
        .size = rank,
        .n = 1,
        .digit[0] = { .sym = -1, .size = rank, .stride = 1, .div = 1 },
    };
    const struct axis axis = {
        .text = (char *)"rank", .leaf = &leaf, .n = 1, .size = rank, .block = 1
    };
    struct model_adapter *a;

    m->adapter = xrealloc(m->adapter, (m->nadapters + 1) * sizeof(*m->adapter));
    a = &m->adapter[m->nadapters++];
    *a = (struct model_adapter){ .tensor = t, .turned = turned, .scale = scale };
    axis_copy(&a->rank, &axis);
    return a;
}

void model_unadapt(struct model *m)
{
    for (size_t i = 0; i < m->nadapters; i++)
        axis_clear(&m->adapter[i].rank);
    free(m->adapter);
    m->adapter = NULL;
    m->nadapters = 0;
}

int model_adapter_axes(const struct model *m, size_t i, enum adapter_part part,
                       const struct axis *axis[2])
{
    const struct model_adapter *a = &m->adapter[i];
    const struct model_tensor *t = &m->tensor[a->tensor];

    const struct axis *const *own = t->axis + (a->expert > 0);

    axis[0] = part == ADAPTER_A ? &a->rank : own[a->turned];
    axis[1] = part == ADAPTER_A ? own[!a->turned] : &a->rank;
    return part <= ADAPTER_B ? 2 : 1;
}

const char *model_family_text(const struct model *m)
{
    return m->state->text;
}

long model_tensor_at(const struct model *m, const char *key, size_t len, int layer,
                     int expert)
{
    struct model_state *s = m->state;
    struct tensor_def *d = find_def(s, key, len);
    long i;

    if (!d) {
        for (size_t k = 0; k < s->family->tensors.n; k++)
            if (strlen(s->family->tensors.v[k].key) == len &&
                !memcmp(s->family->tensors.v[k].key, key, len))
                return -1; /* defined, but its "when" is false */
        return -2;
    }
    while (d->tied_def >= 0)
        d = &s->def[d->tied_def];
    i = bind_index(m, d, layer, expert);
    return i >= 0 && d->optional && m->carry && m->tensor[i].source < 0 ? -1 : i;
}

/* ---- accessors ---- */

const struct family *model_family(const struct model *m)
{
    return m->state->family;
}

const struct cJSON *model_config(const struct model *m)
{
    return m->state->config;
}

const char *model_config_name(const struct model *m)
{
    return m->state->config_name;
}

char *model_config_place_dup(const struct model *m, const char *path)
{
    const struct model_state *s = m->state;
    const struct json *j = NULL;
    struct json_doc doc = { 0 };
    char *place, *top = xstrndup(path, strcspn(path, "."));

    if (s->config_text && json_parse_config(&doc, s->config_name, s->config_text,
                                            strlen(s->config_text), NULL) == 0)
        j = doc.root;
    if (j && !json_get(j, top))
        j = json_get(j, json_string(json_get(s->family->within, "key"))
                            ? json_get(s->family->within, "key")->text
                            : top);
    free(top);
    while (j && *path) {
        size_t n = strcspn(path, ".");
        char *key = xstrndup(path, n);

        j = json_get(j, key);
        path += n + (path[n] == '.');
        free(key);
    }
    place = j ? str_dupf("%s:%u:%u", s->config_name, j->line, j->col)
              : xstrdup(s->config_name);
    json_clear(&doc);
    return place;
}

const struct model_section *model_sections(const struct model *m, int *n)
{
    if (n)
        *n = m->state->nsections;
    return m->state->section;
}

bool model_is_expert(const struct model *m, const struct model_tensor *t)
{
    const int *capture = m->state->def[t->kind].capture;
    int sym = capture[1] >= 0 ? capture[1] : capture[0];

    return t->expert >= 0 && sym >= 0 && model_dealt_over(m, sym) == MESH_EP;
}

size_t model_kinds(const struct model *m)
{
    return m->state->ndefs;
}

struct model_kind model_kind(const struct model *m, int kind)
{
    const struct tensor_def *d = &m->state->def[kind];

    return (struct model_kind){
        .entry = d->entry,
        .pattern = d->pattern,
        .first = d->first,
        .read_by = d->read_by,
        .beside = d->beside != NULL,
        .tied = d->tied_def >= 0,
        .replaced = d->replaced_by >= 0,
        .companion_of =
            d->companion_of < 0 ? -1 : (long)m->state->def[d->companion_of].first,
    };
}
