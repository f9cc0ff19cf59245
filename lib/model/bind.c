/* bind - tensor names: expands name patterns and matches a checkpoint's names to
 * them */
#include "lib/model/bind.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/model/quant.h"

enum { MAX_ALTERNATIVES = 64, MAX_TENSORS = 1 << 22 };

/* ---- patterns ---- */

/* The first "{...|...}" of PATTERN, or NULL. */
static const char *find_choice(const char *pattern, const char **close)
{
    for (const char *p = pattern; (p = strchr(p, '{')); p++) {
        *close = strchr(p, '}');
        if (*close && memchr(p, '|', (size_t)(*close - p)))
            return p;
    }
    return NULL;
}

static int expand(char ***name, size_t *n, const char *pattern)
{
    const char *close, *open = find_choice(pattern, &close);

    if (!open) {
        if (*n == MAX_ALTERNATIVES)
            return -1;
        *name = xrealloc(*name, sizeof(**name) * (*n + 1));
        (*name)[(*n)++] = xstrdup(pattern);
        return 0;
    }
    for (const char *p = open + 1; p <= close;) {
        size_t len = strcspn(p, "|}");
        char *one = str_dupf("%.*s%.*s%s", (int)(open - pattern), pattern, (int)len, p,
                             close + 1);
        int ret = expand(name, n, one);

        free(one);
        if (ret < 0)
            return -1;
        p += len + 1;
    }
    return 0;
}

static int add_capture(struct model *m, struct tensor_def *d, const char *name,
                       size_t len, struct err *err)
{
    const struct family_table *t = &m->state->family->captures;
    int slot = d->capture[0] < 0 ? 0 : 1;
    size_t i = 0;

    while (i < t->n && (strlen(t->v[i].key) != len || memcmp(t->v[i].key, name, len)))
        i++;
    if (i == t->n || !json_string(t->v[i].json))
        return family_error(d->entry->doc, d->entry->json->first,
                            (size_t)(name - d->pattern), err, "'%.*s' is no capture",
                            (int)len, name);
    if (d->capture[slot] >= 0)
        return family_error(d->entry->doc, d->entry->json->first,
                            (size_t)(name - d->pattern), err, "more than two captures");
    for (int k = 0; k < m->scope.n; k++)
        if (!strcmp(m->scope.sym[k].name, t->v[i].json->text))
            d->capture[slot] = k;
    if (d->capture[slot] < 0)
        return err_set(err, ERR_INPUT,
                       "%s: family %s needs '%s', a whole number from 1",
                       m->state->config_name, m->family, t->v[i].json->text);
    d->capture_name[slot] = t->v[i].key;
    for (int k = 0; k < m->state->nsections; k++)
        if (m->state->section[k].repeated &&
            !strcmp(m->state->section[k].name, t->v[i].key)) {
            if (slot != 0)
                return family_error(d->entry->doc, d->entry->json->first,
                                    (size_t)(name - d->pattern), err,
                                    "the layer must be the first capture");
            d->section = k;
        }
    return 0;
}

/* How many of the N bytes of words at LIST, with commas between, NAME has. */
static int count_words(const char *name, const char *list, size_t n)
{
    int found = 0;

    for (size_t at = 0; at < n;) {
        size_t len = 0;
        char *word;

        while (at + len < n && list[at + len] != ',')
            len++;
        word = xstrndup(list + at, len);
        found += len && strstr(name, word);
        free(word);
        at += len + 1;
    }
    return found;
}

/* Puts those of D's names first that have most of the family's words "modules": the
 * names that transformers' modules have in a model of this head. */
static void put_modules_first(const struct model *m, struct tensor_def *d)
{
    static const char symbol[] = "modules";
    struct expr_value v;

    if (d->nnames < 2 || !family_get(&m->state->family->symbols, symbol) ||
        model_eval(m, symbol, strlen(symbol), -1, &v, NULL) < 0 || v.kind != EXPR_WORD)
        return;
    for (size_t i = 1; i < d->nnames; i++) {
        char *name = d->name[i];
        size_t k = i;

        while (k > 0 && count_words(d->name[k - 1], v.word, v.len) <
                            count_words(name, v.word, v.len)) {
            d->name[k] = d->name[k - 1];
            k--;
        }
        d->name[k] = name;
    }
}

int bind_pattern(struct model *m, struct tensor_def *d, struct err *err)
{
    if (expand(&d->name, &d->nnames, d->pattern) < 0)
        return family_error(d->entry->doc, d->entry->json->first, 0, err,
                            "more than %d alternatives", MAX_ALTERNATIVES);
    put_modules_first(m, d);
    for (const char *p = d->name[0]; (p = strchr(p, '{')); p++) {
        const char *close = strchr(p, '}'), *in = strstr(d->pattern, "{");
        size_t len;

        if (!close)
            return family_error(d->entry->doc, d->entry->json->first,
                                (size_t)(in - d->pattern), err, "'{' is not closed");
        len = (size_t)(close - p - 1);
        while (in && (strncmp(in + 1, p + 1, len) || in[1 + len] != '}'))
            in = strchr(in + 1, '{');
        if (add_capture(m, d, in ? in + 1 : d->pattern, len, err) < 0)
            return -1;
    }
    return 0;
}

/* Matches NAME against PATTERN; a capture matches a number without leading zeros. */
static bool match_name(const char *pattern, const char *name, uint64_t value[2])
{
    int slot = 0;

    for (;;) {
        if (*pattern != '{') {
            if (*pattern != *name)
                return false;
            if (!*name)
                return true;
            pattern++;
            name++;
            continue;
        }
        if (!isdigit((unsigned char)*name) ||
            (*name == '0' && isdigit((unsigned char)name[1])))
            return false;
        value[slot] = 0;
        for (; isdigit((unsigned char)*name); name++)
            if ((value[slot] = value[slot] * 10 + (uint64_t)(*name - '0')) > UINT32_MAX)
                return false;
        slot++;
        pattern = strchr(pattern, '}') + 1;
    }
}

static char *make_name(const char *pattern, const uint64_t value[2])
{
    struct str out = { 0 };
    int slot = 0;

    for (const char *p = pattern; *p; p++) {
        if (*p != '{') {
            str_addc(&out, *p);
            continue;
        }
        str_addf(&out, "%llu", (unsigned long long)value[slot++]);
        p = strchr(p, '}');
    }
    return str_steal(&out);
}

static uint64_t capture_count(const struct model *m, const struct tensor_def *d,
                              int slot)
{
    return d->capture[slot] < 0 ? 1 : m->scope.sym[d->capture[slot]].value;
}

/* Index of D's tensor with these values of its captures, or -1. */
static long tensor_index(const struct model *m, const struct tensor_def *d,
                         const uint64_t value[2])
{
    for (int k = 0; k < 2; k++)
        if (value[k] >= capture_count(m, d, k))
            return -1;
    return d->start[value[0]] == SIZE_MAX ? -1 : (long)(d->start[value[0]] + value[1]);
}

long bind_index(const struct model *m, const struct tensor_def *d, int layer,
                int expert)
{
    uint64_t value[2] = { 0, 0 };

    for (int k = 0; k < 2; k++) {
        int of = k == 0 && d->section >= 0 ? layer : expert;

        if (d->capture[k] >= 0 && of < 0)
            return -3;
        if (d->capture[k] >= 0)
            value[k] = (uint64_t)of;
    }
    return tensor_index(m, d, value);
}

/* ---- the model's tensors ---- */

static void make_tensor(struct model *m, size_t def, const uint64_t value[2])
{
    struct tensor_def *d = &m->state->def[def];
    struct model_tensor *t = &m->tensor[m->ntensors++];

    *t = (struct model_tensor){ .key = d->entry->key,
                                .ndim = d->ndim,
                                .kind = (int)def,
                                .layer = d->section >= 0 ? (int)value[0] : -1,
                                .section = d->section,
                                .expert = -1,
                                .tied = -1,
                                .optional = d->optional || d->tied_def >= 0,
                                .drawn = d->drawn,
                                .frozen = d->frozen,
                                .buffer = d->buffer,
                                .of_experts = d->of_experts,
                                .source = -1 };
    for (int k = 0; k < 2; k++)
        if (d->capture[k] >= 0 && !(k == 0 && d->section >= 0))
            t->expert = (int)value[k];
    for (int k = 0; k < d->ndim; k++)
        t->axis[k] = &d->axis[k];
    t->name = make_name(d->name[0], value);
    if (d->tied_def >= 0)
        t->tied = (int)tensor_index(m, &m->state->def[d->tied_def], value);
}

/* Numbers D's tensors from FIRST on, layer by layer, without the layers in which its
 * "when" does not hold. */
static int number_tensors(struct model *m, struct tensor_def *d, size_t first,
                          struct err *err)
{
    uint64_t outer = capture_count(m, d, 0), inner = capture_count(m, d, 1);

    d->first = first;
    d->count = 0;
    d->start = xcalloc((size_t)outer + 1, sizeof(*d->start));
    for (uint64_t i = 0; i < outer; i++) {
        bool exists = true;

        if (d->section >= 0 &&
            model_when(m, d->entry->doc, d->when, (int)i, false, &exists, err) < 0)
            return -1;
        d->start[i] = exists ? first + d->count : SIZE_MAX;
        d->count += exists ? (size_t)inner : 0;
    }
    return 0;
}

static void make_tensors(struct model *m, size_t def)
{
    const struct tensor_def *d = &m->state->def[def];

    for (uint64_t i = 0; i < capture_count(m, d, 0); i++)
        for (uint64_t k = 0; k < capture_count(m, d, 1) && d->start[i] != SIZE_MAX; k++)
            make_tensor(m, def, (uint64_t[2]){ i, k });
}

int bind_tensors(struct model *m, struct err *err)
{
    struct model_state *s = m->state;
    uint64_t total = 0;

    for (size_t i = 0; i < s->ndefs; i++) {
        struct tensor_def *d = &s->def[i];

        if (capture_count(m, d, 0) > MAX_TENSORS ||
            capture_count(m, d, 1) > MAX_TENSORS)
            return err_set(err, ERR_INPUT, "%s: more than %d tensors", s->config_name,
                           MAX_TENSORS);
        if (number_tensors(m, d, (size_t)total, err) < 0)
            return -1;
        total += d->count;
        if (total > MAX_TENSORS)
            return err_set(err, ERR_INPUT, "%s: more than %d tensors", s->config_name,
                           MAX_TENSORS);
        if (d->tied_def >= 0 && s->def[d->tied_def].count != d->count)
            return family_error(d->entry->doc, d->entry->json, 0, err,
                                "tied to a tensor of other captures");
    }
    m->tensor = xcalloc((size_t)total + 1, sizeof(*m->tensor));
    for (size_t i = 0; i < s->ndefs; i++)
        make_tensors(m, i);
    return 0;
}

int bind_definition(struct model *m, size_t def, struct err *err)
{
    struct tensor_def *d = &m->state->def[def];

    if (number_tensors(m, d, m->ntensors, err) < 0)
        return -1;
    m->tensor = xrealloc(m->tensor, sizeof(*m->tensor) * (m->ntensors + d->count + 1));
    make_tensors(m, def);
    return 0;
}

void bind_clear(struct model *m)
{
    for (size_t i = 0; i < m->ntensors; i++)
        free((char *)m->tensor[i].name);
    for (size_t i = 0; i < m->state->ndefs; i++) {
        for (size_t k = 0; k < m->state->def[i].nnames; k++)
            free(m->state->def[i].name[k]);
        free(m->state->def[i].name);
        free(m->state->def[i].start);
    }
    free(m->tensor);
    free(m->carry);
}

/* ---- a checkpoint's names ---- */

long bind_match(const struct model *m, const char *name)
{
    for (size_t i = 0; i < m->state->ndefs; i++) {
        const struct tensor_def *d = &m->state->def[i];

        for (size_t k = 0; k < d->nnames; k++) {
            uint64_t value[2] = { 0, 0 };
            long t =
                match_name(d->name[k], name, value) ? tensor_index(m, d, value) : -1;

            if (t >= 0)
                return t;
        }
    }
    return -1;
}

long model_find(const struct model *m, const char *name)
{
    long t = bind_match(m, name);

    return t >= 0 && !strcmp(m->tensor[t].name, name) ? t : -1;
}

/* Index of the alternative of D's stack that NAME matches, or -1. */
static int match_stack(const struct tensor_def *d, const char *name, uint64_t value[2])
{
    char **alternative = NULL;
    size_t n = 0;
    int found = -1;

    expand(&alternative, &n, d->stack);
    for (size_t i = 0; i < n; i++) {
        if (found < 0 && match_name(alternative[i], name, value))
            found = (int)i;
        free(alternative[i]);
    }
    free(alternative);
    return found;
}

struct model_piece *model_unstack(const struct model *m, const char *name, int ndim,
                                  const uint64_t *shape, size_t *n)
{
    struct model_piece *piece = NULL;
    uint64_t first = 0;
    bool fits = ndim == 3;
    size_t cap = 0;

    *n = 0;
    for (size_t i = 0; i < m->state->ndefs; i++) {
        const struct tensor_def *d = &m->state->def[i];
        uint64_t value[2] = { 0, 0 };
        int which = d->stack ? match_stack(d, name, value) : -1;

        if (which < 0 || tensor_index(m, d, value) < 0)
            continue;
        fits = fits && d->ndim == 2 && shape[2] == d->axis[1].size &&
               shape[0] == capture_count(m, d, 1);
        for (uint64_t e = 0; fits && e < shape[0]; e++) {
            value[1] = e;
            piece = xgrow(piece, &cap, *n + 1, sizeof(*piece));
            piece[(*n)++] = (struct model_piece){
                .name = make_name(
                    d->name[(size_t)which < d->nnames ? (size_t)which : 0], value),
                .expert = e,
                .first = first,
                .rows = d->axis[0].size
            };
        }
        first += d->axis[0].size;
    }
    if (*n && fits && first == shape[1])
        return piece;
    for (size_t i = 0; i < *n; i++)
        free(piece[i].name);
    free(piece);
    *n = 0;
    return NULL;
}

/* Matches NAME against GLOB, in which '*' matches any characters. */
static bool match_glob(const char *glob, const char *name)
{
    const char *star = NULL, *back = NULL;

    while (*name) {
        if (*glob == '*') {
            star = ++glob;
            back = name;
        } else if (*glob == *name) {
            glob++;
            name++;
        } else if (star) {
            glob = star;
            name = ++back;
        } else {
            return false;
        }
    }
    while (*glob == '*')
        glob++;
    return !*glob;
}

/* GLOB with "{symbol}" replaced by the symbol's value. */
static char *fill_numbers(const struct model *m, const char *glob)
{
    struct str out = { 0 };

    for (const char *p = glob; *p; p++) {
        size_t n = *p == '{' ? strcspn(p + 1, "}") : 0;
        char *symbol = xstrndup(p + 1, n);
        double value;

        if (n && p[1 + n] && model_number(m, symbol, &value)) {
            str_addf(&out, "%.0f", value);
            p += n + 1;
        } else {
            str_addc(&out, *p);
        }
        free(symbol);
    }
    return str_steal(&out);
}

/* The entry of the family's carry list that matches NAME, or NULL. */
static const struct family_entry *carried_as(const struct model *m, const char *name)
{
    const struct family_table *t = &m->state->family->carry;
    const struct family_entry *found = NULL;

    for (size_t i = 0; i < t->n && !found; i++) {
        char **glob = NULL;
        size_t n = 0;

        expand(&glob, &n, t->v[i].key);
        for (size_t k = 0; k < n; k++) {
            char *filled = fill_numbers(m, glob[k]);

            if (match_glob(filled, name))
                found = &t->v[i];
            free(filled);
            free(glob[k]);
        }
        free(glob);
    }
    return found;
}

/* A rotary family computes its frequencies from the config; older files also store
 * them. */
static bool is_frequencies(const struct model *m, const char *name)
{
    static const char stored[] = "rotary_emb.inv_freq";
    size_t n = strlen(name), tail = strlen(stored);

    return m->state->family->rope.n && str_ends(name, stored) &&
           (n == tail || name[n - tail - 1] == '.');
}

/* Name I of those of tensor T. */
static char *known_dup(const struct model *m, size_t t, size_t i)
{
    const struct model_tensor *it = &m->tensor[t];
    uint64_t value[2] = { (uint64_t)(it->layer < 0 ? it->expert : it->layer),
                          (uint64_t)it->expert };

    return make_name(m->state->def[it->kind].name[i], value);
}

char *model_module_dup(const struct model *m, size_t t)
{
    char *name = known_dup(m, t, 0), *dot = strrchr(name, '.');

    if (dot)
        *dot = '\0';
    return name;
}

char *model_parameter_dup(const struct model *m, size_t t)
{
    const struct tensor_def *d = &m->state->def[m->tensor[t].kind];
    size_t i = 0;

    while (i < d->nnames && str_ends(d->name[i], ".weight"))
        i++;
    return known_dup(m, t, i < d->nnames ? i : 0);
}

long model_match(const struct model *m, const char *name)
{
    return bind_match(m, name);
}

bool model_knows(const struct model *m, const char *name)
{
    return bind_match(m, name) >= 0 || carried_as(m, name) || is_frequencies(m, name);
}

int model_carried(const struct model *m, const char *name, double *value,
                  struct err *err)
{
    const struct family_entry *e = carried_as(m, name);
    const struct json *is = e ? json_get(e->json, "is") : NULL;
    struct expr_value v;
    struct err cause = { 0 };

    if (!is)
        return 0;
    if (model_eval(m, is->text, is->n, -1, &v, &cause) < 0)
        return family_place(e->doc, is, 0, &cause, err);
    if (v.kind != EXPR_NUMBER)
        return family_error(e->doc, is, 0, err, "expected a number");
    *value = v.number;
    return 1;
}

static void print_shape(struct str *out, int ndim, const uint64_t *shape)
{
    str_addc(out, '[');
    for (int k = 0; k < ndim; k++)
        str_addf(out, "%s%llu", k ? ", " : "", (unsigned long long)shape[k]);
    str_addc(out, ']');
}

static int check_shape(const struct model *m, const struct model_tensor *t,
                       const struct model_input *in, struct err *err)
{
    struct str got = { 0 }, want = { 0 };
    bool same = t->ndim == in->ndim;

    for (int k = 0; same && k < t->ndim; k++)
        same = t->axis[k]->size == in->shape[k];
    if (same)
        return 0;
    if (m->state->def[t->kind].companion_of >= 0 && model_quantized(m)) {
        quant_describe(&got, m);
        err_set(err, ERR_INPUT, "tensor %s: is not as weights quantized by %s have it",
                in->name, str_text(&got));
        str_clear(&got);
        return -1;
    }
    print_shape(&got, in->ndim, in->shape);
    for (int k = 0; k < t->ndim; k++)
        str_addf(&want, "%s%s = %llu", k ? ", " : "", t->axis[k]->text,
                 (unsigned long long)t->axis[k]->size);
    err_set(err, ERR_INPUT, "tensor %s: shape %s, but family %s expects [%s]", in->name,
            str_text(&got), m->family, str_text(&want));
    str_clear(&got);
    str_clear(&want);
    return -1;
}

/* Index of the tensor that IN is, or of the companion of a quantized weight; -1: a
 * carried tensor or an unknown one; -2 with *err set. */
static long match_input(struct model *m, const struct model_input *in, struct err *err)
{
    long t = bind_match(m, in->name);
    int more = t < 0 ? quant_extend(m, in, err) : 0;

    if (more < 0)
        return -2;
    return more ? bind_match(m, in->name) : t;
}

/* Is T in the checkpoint, or the packed tensor that replaces it?  A companion need not
 * be stored if its weight is stored plainly. */
static bool is_stored(const struct model *m, size_t t)
{
    const struct tensor_def *d = &m->state->def[m->tensor[t].kind];

    if (m->tensor[t].source >= 0)
        return true;
    if (d->packs && d->companion_of >= 0)
        return m->tensor[m->state->def[d->companion_of].first + (t - d->first)]
                   .source >= 0;
    for (int k = d->replaced_by; k >= 0; k = m->state->def[k].next_replacer)
        if (m->tensor[m->state->def[k].first + (t - d->first)].source >= 0)
            return true;
    return false;
}

/* Decides whether tensors "tied by file" are tied: a stored one is a tensor of its own,
 * a missing one is tied. */
static int tie_by_file(struct model *m, struct tensor_def *d, struct err *err)
{
    struct tensor_def *to;
    bool stored = false;

    if (d->file_def < 0)
        return 0;
    to = &m->state->def[d->file_def];
    if (to->count != d->count)
        return family_error(d->entry->doc, d->entry->json, 0, err,
                            "tied to a tensor of other captures");
    for (size_t i = 0; i < d->count; i++)
        stored |= is_stored(m, d->first + i);
    d->tied_def = stored ? -1 : d->file_def;
    for (size_t i = 0; i < d->count; i++) {
        m->tensor[d->first + i].tied = stored ? -1 : (int)(to->first + i);
        m->tensor[d->first + i].optional = d->optional || !stored;
    }
    return 0;
}

/* No tensor of M is called NAME.  If one would be with more layers or experts than the
 * config has, the error says so. */
static int unmatched(const struct model *m, const char *name, struct err *err)
{
    for (size_t i = 0; i < m->state->ndefs; i++) {
        const struct tensor_def *d = &m->state->def[i];
        uint64_t value[2] = { 0, 0 };
        size_t k = 0;

        while (k < d->nnames && !match_name(d->name[k], name, value))
            k++;
        for (int slot = 0; slot < 2 && k < d->nnames; slot++)
            if (d->capture[slot] >= 0 && value[slot] >= capture_count(m, d, slot)) {
                const char *symbol = m->scope.sym[d->capture[slot]].name;
                const struct family_entry *e =
                    family_get(&m->state->family->symbols, symbol);

                return err_set(err, ERR_INPUT,
                               "tensor %s: its %s is %llu, but the config has %llu %s "
                               "(%s)",
                               name, d->capture_name[slot],
                               (unsigned long long)value[slot],
                               (unsigned long long)capture_count(m, d, slot), symbol,
                               e && json_string(e->json) ? e->json->text : symbol);
            }
    }
    return err_set(err, ERR_INPUT, "tensor %s: no rule of family %s matches it", name,
                   m->family);
}

/* ---- ties ---- */

size_t model_root(const struct model *m, size_t t)
{
    while (m->tensor[t].tied >= 0)
        t = (size_t)m->tensor[t].tied;
    return t;
}

static bool is_any_stored(const struct model *m, const struct tensor_def *d)
{
    bool stored = false;

    for (size_t i = 0; i < d->count; i++)
        stored |= is_stored(m, d->first + i);
    return stored;
}

static bool same_axes(const struct tensor_def *a, const struct tensor_def *b)
{
    bool same = a->ndim == b->ndim && a->count == b->count;

    for (int k = 0; same && k < a->ndim; k++)
        same = !strcmp(a->axis[k].text, b->axis[k].text);
    return same;
}

/* A file may store tied tensors under the name of any of them.  If D is stored, and not
 * what it is tied to, that becomes the stored one. */
static void store_once(struct model *m, const struct tensor_def *d)
{
    const struct tensor_def *to = d->tied_def < 0 ? NULL : &m->state->def[d->tied_def];

    if (!to || is_any_stored(m, to) || !same_axes(d, to))
        return;
    for (size_t i = 0; i < d->count; i++) {
        struct model_tensor *t = &m->tensor[d->first + i],
                            *in = &m->tensor[to->first + i];

        if (t->source < 0)
            continue;
        free((char *)in->name);
        in->name = xstrdup(t->name);
        in->source = t->source;
        t->source = -1;
    }
}

static int compare_aliases(const void *a, const void *b)
{
    const struct model_alias *x = a, *y = b;
    int order = strcmp(x->name, y->name);

    return order ? order : strcmp(x->stored, y->stored);
}

struct aliases {
    struct model_alias *v; /* sorted */
    size_t n;
};

/* The alias of D's tensor with these captures, under any of its names; NULL: none. */
static const struct model_alias *
find_alias(const struct aliases *a, const struct tensor_def *d, const uint64_t value[2])
{
    const struct model_alias *found = NULL;

    for (size_t k = 0; k < d->nnames && !found; k++) {
        char *name = make_name(d->name[k], value);
        size_t low = 0, high = a->n;

        while (low < high) {
            size_t mid = low + (high - low) / 2;

            if (strcmp(a->v[mid].name, name) < 0)
                low = mid + 1;
            else
                high = mid;
        }
        if (low < a->n && !strcmp(a->v[low].name, name))
            found = &a->v[low];
        free(name);
    }
    return found;
}

/* Sets *to to the tensor that A says is stored. */
static int follow_alias(const struct model *m, const struct aliases *all,
                        const struct model_alias *a, size_t *to, struct err *err)
{
    long t = bind_match(m, a->stored);

    if (a + 1 < all->v + all->n && !strcmp(a[1].name, a->name) &&
        strcmp(a[1].stored, a->stored))
        return err_set(err, ERR_INPUT,
                       "tensor %s: the metadata says that it is stored as %s, and as "
                       "%s",
                       a->name, a->stored, a[1].stored);
    *to = t < 0 ? 0 : model_root(m, (size_t)t);
    if (t < 0 || m->tensor[*to].source < 0 || strcmp(m->tensor[*to].name, a->stored))
        return err_set(err, ERR_INPUT,
                       "tensor %s: the metadata says that it is stored as %s, which is "
                       "missing",
                       a->name, a->stored);
    return 0;
}

/* Does alias A of D's I-th tensor agree with the family?  D is tied already, or A gives
 * all its tensors the place of another definition's, *TO. */
static int check_alias(const struct model *m, const struct tensor_def *d, size_t i,
                       const struct aliases *all, const struct model_alias *a,
                       const struct tensor_def **to, struct err *err)
{
    size_t t = 0;

    if (follow_alias(m, all, a, &t, err) < 0)
        return -1;
    *to = &m->state->def[m->tensor[t].kind];
    if (d->tied_def >= 0 ? t == model_root(m, d->first + i)
                         : same_axes(d, *to) && t - (*to)->first == i)
        return 0;
    return err_set(err, ERR_INPUT,
                   "tensor %s: the metadata says that it is stored as %s, which in "
                   "family %s is another tensor",
                   a->name, a->stored, m->family);
}

/* Ties the tensors of D, if none is stored, to those that aliases name. */
static int tie_by_alias(struct model *m, struct tensor_def *d, const struct aliases *a,
                        struct err *err)
{
    const struct tensor_def *to = NULL;
    uint64_t value[2] = { 0, 0 };
    size_t found = 0;

    if (!a->n || d->companion_of >= 0 || is_any_stored(m, d))
        return 0;
    for (; value[0] < capture_count(m, d, 0); value[0]++)
        for (value[1] = 0; value[1] < capture_count(m, d, 1); value[1]++) {
            long t = tensor_index(m, d, value);
            const struct model_alias *alias = t < 0 ? NULL : find_alias(a, d, value);

            if (t >= 0 && !alias)
                return 0; /* if the model needs it, it is missing */
            if (alias &&
                check_alias(m, d, (size_t)t - d->first, a, alias, &to, err) < 0)
                return -1;
            found += alias != NULL;
        }
    if (!found || d->tied_def >= 0)
        return 0;
    d->tied_def = (int)(to - m->state->def);
    for (size_t i = 0; i < d->count; i++) {
        m->tensor[d->first + i].tied = (int)(to->first + i);
        m->tensor[d->first + i].optional = true;
    }
    model_find_readers(m);
    return 0;
}

/* Decides which tensors are tied, and which one of them is stored. */
static int settle_ties(struct model *m, const struct model_alias *alias,
                       size_t naliases, struct err *err)
{
    struct aliases a = { xcalloc(naliases + 1, sizeof(*a.v)), naliases };
    int ret = 0;

    if (naliases) {
        memcpy(a.v, alias, naliases * sizeof(*a.v));
        qsort(a.v, a.n, sizeof(*a.v), compare_aliases);
    }
    for (size_t i = 0; i < m->state->ndefs; i++)
        store_once(m, &m->state->def[i]);
    for (size_t i = 0; i < m->state->ndefs && ret == 0; i++)
        ret = tie_by_file(m, &m->state->def[i], err);
    for (size_t i = 0; i < m->state->ndefs && ret == 0; i++)
        ret = tie_by_alias(m, &m->state->def[i], &a, err);
    free(a.v);
    return ret;
}

void model_untie(struct model *m, size_t t)
{
    struct tensor_def *d = &m->state->def[m->tensor[t].kind];
    struct str text = { 0 };

    str_addf(&text, "%s%s%s and %s are both stored, and differ",
             m->state->untied ? m->state->untied : "", m->state->untied ? "; " : "",
             m->tensor[t].name, m->tensor[model_root(m, t)].name);
    free(m->state->untied);
    m->state->untied = str_steal(&text);
    d->tied_def = -1;
    for (size_t i = 0; i < d->count; i++) {
        m->tensor[d->first + i].tied = -1;
        m->tensor[d->first + i].optional = d->optional;
    }
    model_find_readers(m);
}

const char *model_untied(const struct model *m)
{
    return m->state->untied;
}

/* Who is told of each fault, or nobody: then the first one ends the binding. */
struct told {
    model_fault *fault;
    void *arg;
};

/* Tells of the fault *ERR of tensor NAME, and returns 0; or returns -1. */
static int tell(const struct told *to, const char *name, struct err *err)
{
    const char *text = err->text;
    size_t n = strlen(name);

    if (!to->fault || err->kind != ERR_INPUT)
        return -1;
    if (str_starts(text, "tensor ") && !strncmp(text + 7, name, n))
        text += 7 + n + strspn(text + 7 + n, ": ");
    to->fault(to->arg, name, text);
    *err = (struct err){ 0 };
    return 0;
}

/* Binds input I of IN to the tensor that it is. */
static int bind_input(struct model *m, const struct model_input *in, size_t i,
                      const struct told *to, struct err *err)
{
    long t = match_input(m, &in[i], err);

    if (t == -2)
        return tell(to, in[i].name, err);
    if (t < 0 && (carried_as(m, in[i].name) || is_frequencies(m, in[i].name))) {
        m->carry[m->ncarry++] = (int)i;
        return 0;
    }
    if (t < 0) {
        unmatched(m, in[i].name, err);
        return tell(to, in[i].name, err);
    }
    if (m->tensor[t].source >= 0) {
        err_set(err, ERR_INPUT, "tensor %s: stored again as %s",
                in[m->tensor[t].source].name, in[i].name);
        return tell(to, in[i].name, err);
    }
    if (check_shape(m, &m->tensor[t], &in[i], err) < 0 && tell(to, in[i].name, err) < 0)
        return -1;
    m->tensor[t].source = (int)i;
    free((char *)m->tensor[t].name);
    m->tensor[t].name = xstrdup(in[i].name);
    return 0;
}

static int bind_all(struct model *m, const struct model_input *in, size_t n,
                    const struct model_alias *alias, size_t naliases,
                    const struct told *to, struct err *err)
{
    m->carry = xcalloc(n + 1, sizeof(*m->carry));
    m->ncarry = 0;
    if (quant_check(m, in, n, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        if (bind_input(m, in, i, to, err) < 0)
            return -1;
    if (settle_ties(m, alias, naliases, err) < 0)
        return -1;
    for (size_t t = 0; t < m->ntensors; t++)
        if ((!m->tensor[t].optional || m->state->def[m->tensor[t].kind].packs) &&
            !is_stored(m, t)) {
            err_set(err, ERR_INPUT, "tensor %s is missing, which family %s needs",
                    m->tensor[t].name, m->family);
            if (tell(to, m->tensor[t].name, err) < 0)
                return -1;
        }
    return 0;
}

int model_bind(struct model *m, const struct model_input *in, size_t n,
               const struct model_alias *alias, size_t naliases, struct err *err)
{
    static const struct told nobody = { NULL, NULL };

    return bind_all(m, in, n, alias, naliases, &nobody, err);
}

int model_bind_report(struct model *m, const struct model_input *in, size_t n,
                      const struct model_alias *alias, size_t naliases,
                      model_fault *fault, void *arg, struct err *err)
{
    const struct told to = { fault, arg };

    return bind_all(m, in, n, alias, naliases, &to, err);
}
