/* verdict - how often what a model says is right: accuracy and F1 */
#include "lib/train/verdict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

/* The first counts; then, for each class, those of right and wrong mentions and of
 * places that it is in. */
enum { RIGHT, ALL, SHARED, SAID, THERE, TOTALS };
enum { TRUE_SAID, ALL_SAID, ALL_THERE, EACH };

/* Is NAME that of a part of an entity: O, or B, I, E or S and a type behind "-"? */
static bool names_entity(const char *name)
{
    return !strcmp(name, "O") || (*name && strchr("BIES", *name) && name[1] == '-');
}

void verdict_open(struct verdict *m, enum loss_kind loss, size_t classes,
                  const char *const *name)
{
    bool entities = classes > 1;

    for (size_t k = 0; k < classes; k++)
        entities &= name && names_entity(name[k]);
    *m = (struct verdict){ .kind = loss == LOSS_CLASS    ? VERDICT_CLASSES
                                   : loss == LOSS_LABELS ? VERDICT_SETS
                                   : loss == LOSS_CHOICE ? VERDICT_CHOICES
                                   : loss == LOSS_SPAN   ? VERDICT_SPANS
                                   : loss != LOSS_TAGS   ? VERDICT_NONE
                                   : entities            ? VERDICT_ENTITIES
                                                         : VERDICT_CLASSES,
                           .classes = classes,
                           .name = name,
                           .n = TOTALS + EACH * classes };
    m->count = xcalloc(m->n, sizeof(*m->count));
}

void verdict_clear(struct verdict *m)
{
    free(m->count);
    *m = (struct verdict){ 0 };
}

/* ---- counting ---- */

static void count_one(struct verdict *m, size_t k, bool is, bool says)
{
    double *each = m->count + TOTALS + EACH * k;

    each[TRUE_SAID] += is && says;
    each[ALL_SAID] += says;
    each[ALL_THERE] += is;
}

/* The part of an entity that NAME is, and its type. */
static char part_of(const char *name)
{
    return *name ? *name : 'O';
}

static const char *type_of(const char *name)
{
    return *name && name[1] == '-' ? name + 2 : "";
}

static bool same_type(const char *a, const char *b)
{
    return !strcmp(type_of(a), type_of(b));
}

/* Does an entity end between A and B, as in conlleval? */
static bool ends_between(const char *a, const char *b)
{
    const char x = part_of(a), y = part_of(b);

    return x == 'E' || x == 'S' || ((x == 'B' || x == 'I') && strchr("BSO", y)) ||
           (x != 'O' && !same_type(a, b));
}

/* Does one begin? */
static bool begins_between(const char *a, const char *b)
{
    const char x = part_of(a), y = part_of(b);

    return y == 'B' || y == 'S' || (strchr("ESO", x) && (y == 'E' || y == 'I')) ||
           (y != 'O' && !same_type(a, b));
}

/* Counts the entities of the N places of IS and SAYS.  One is shared if it begins and
 * ends in the same places in both, with the same type. */
static void count_entities(struct verdict *m, const int32_t *is, const int32_t *says,
                           size_t n)
{
    const int32_t *list[2] = { says, is };
    const char *before[2] = { "O", "O" };
    bool inside[2] = { false, false }; /* of one that began */
    size_t began[2] = { 0, 0 };

    for (size_t i = 0; i <= n; i++) {
        const char *now[2];
        bool ends[2];

        if (i < n && is[i] < 0)
            continue;
        for (int k = 0; k < 2; k++) {
            now[k] = i < n ? m->name[list[k][i]] : "O";
            ends[k] = inside[k] && ends_between(before[k], now[k]);
            m->count[k ? THERE : SAID] += ends[k];
        }
        m->count[SHARED] += ends[0] && ends[1] && began[0] == began[1] &&
                            same_type(before[0], before[1]);
        for (int k = 0; k < 2; k++) {
            if (ends[k])
                inside[k] = false;
            if (begins_between(before[k], now[k])) {
                inside[k] = true;
                began[k] = i;
            }
            before[k] = now[k];
        }
    }
}

void verdict_add(struct verdict *m, const int32_t *is, const int32_t *says, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (is[i] < 0)
            continue;
        m->count[ALL]++;
        m->count[RIGHT] += is[i] == says[i];
        for (size_t k = 0; k < m->classes && m->kind == VERDICT_CLASSES; k++)
            count_one(m, k, (size_t)is[i] == k, (size_t)says[i] == k);
    }
    if (m->kind == VERDICT_ENTITIES)
        count_entities(m, is, says, n);
}

void verdict_add_set(struct verdict *m, const double *is, const float *logit)
{
    bool right = true;

    for (size_t k = 0; k < m->classes; k++) {
        const bool there = is[k] > 0.5, says = logit[k] > 0;

        right &= there == says;
        count_one(m, k, there, says);
        m->count[SHARED] += there && says;
        m->count[SAID] += says;
        m->count[THERE] += there;
    }
    m->count[ALL]++;
    m->count[RIGHT] += right;
}

/* The bytes of a text where tokens FIRST to LAST are, without parts of characters. */
static void add_says(double *exact, double *f1, const struct squad_text *t,
                     size_t first, size_t last)
{
    size_t from = t->place[first].start, to = t->place[last].end;

    while (from && ((unsigned char)t->context[from] & 0xc0) == 0x80)
        from--;
    while (((unsigned char)t->context[to] & 0xc0) == 0x80)
        to++;
    squad_add(exact, f1, t->context + from, to > from ? to - from : 0,
              (const char *const *)t->answer, t->answers);
}

void verdict_add_span(struct verdict *m, const struct squad_text *t, const double *is,
                      const int32_t *id, size_t n, const float *x)
{
    double *exact = &m->count[RIGHT], *f1 = &m->count[SHARED];
    size_t first = 0, last = 0;
    const bool says =
        squad_best(x, t ? t->low : 0, t ? t->high : n, t && t->may_none, &first, &last);

    if (!t && !(is[0] >= 0 && is[1] < (double)n))
        return;
    m->count[ALL]++;
    if (!t)
        squad_add_ids(exact, f1, id + first, says ? last - first + 1 : 0,
                      id + (size_t)is[0], (size_t)is[1] - (size_t)is[0] + 1);
    else if (says)
        add_says(exact, f1, t, first, last);
    else
        squad_add(exact, f1, "", 0, (const char *const *)t->answer, t->answers);
}

/* ---- results ---- */

/* A share of nothing is 0, as scikit-learn and seqeval have it. */
static double share(double part, double of)
{
    return of > 0 ? part / of : 0;
}

double verdict_accuracy(const struct verdict *m)
{
    return m->kind == VERDICT_NONE || m->kind == VERDICT_SPANS || !(m->count[ALL] > 0)
               ? (double)NAN
               : m->count[RIGHT] / m->count[ALL];
}

double verdict_exact(const struct verdict *m)
{
    return m->kind == VERDICT_SPANS && m->count[ALL] > 0
               ? m->count[RIGHT] / m->count[ALL]
               : (double)NAN;
}

double verdict_class_f1(const struct verdict *m, size_t k)
{
    const double *each = m->count + TOTALS + EACH * k;

    return (m->kind != VERDICT_CLASSES && m->kind != VERDICT_SETS) ||
                   !(m->count[ALL] > 0)
               ? (double)NAN
               : share(2 * each[TRUE_SAID], each[ALL_SAID] + each[ALL_THERE]);
}

double verdict_precision(const struct verdict *m)
{
    return m->kind == VERDICT_ENTITIES && m->count[ALL] > 0
               ? share(m->count[SHARED], m->count[SAID])
               : (double)NAN;
}

double verdict_recall(const struct verdict *m)
{
    return m->kind == VERDICT_ENTITIES && m->count[ALL] > 0
               ? share(m->count[SHARED], m->count[THERE])
               : (double)NAN;
}

double verdict_f1(const struct verdict *m)
{
    double sum = 0;
    size_t n = 0;

    if (m->kind == VERDICT_NONE || m->kind == VERDICT_CHOICES || !(m->count[ALL] > 0))
        return (double)NAN;
    if (m->kind == VERDICT_SPANS)
        return m->count[SHARED] / m->count[ALL];
    if (m->kind != VERDICT_CLASSES)
        return share(2 * m->count[SHARED], m->count[SAID] + m->count[THERE]);
    if (m->classes == 2)
        return verdict_class_f1(m, 1);
    for (size_t k = 0; k < m->classes; k++) {
        const double *each = m->count + TOTALS + EACH * k;

        if (each[ALL_SAID] + each[ALL_THERE] > 0) { /* else it does not occur */
            sum += verdict_class_f1(m, k);
            n++;
        }
    }
    return share(sum, (double)n);
}
