/* squad - exact match and F1 of an answer that is a part of a text */
#include "lib/train/squad.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/text/chars.h"

struct squad_text *squad_text_dup(const struct squad_text *t)
{
    struct squad_text *copy;

    if (!t)
        return NULL;
    copy = xmalloc(sizeof(*copy));
    *copy = *t;
    copy->context = xstrdup(t->context);
    copy->place = xcalloc(t->n + 1, sizeof(*copy->place));
    memcpy(copy->place, t->place, t->n * sizeof(*copy->place));
    copy->answer = xcalloc(t->answers + 1, sizeof(*copy->answer));
    for (size_t i = 0; i < t->answers; i++)
        copy->answer[i] = xstrdup(t->answer[i]);
    return copy;
}

void squad_text_free(struct squad_text *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->answers; i++)
        free(t->answer[i]);
    free(t->answer);
    free(t->place);
    free(t->context);
    free(t);
}

/* ---- words ---- */

/* A character that Python's \w matches, which has no marks. */
static bool is_letter(uint32_t cp)
{
    return chars_is_word(cp) && !chars_is_mark(cp);
}

/* As str.split of Python. */
static bool is_space(uint32_t cp)
{
    return chars_is_space(cp) || (cp >= 0x1c && cp <= 0x1f);
}

static bool is_article(const char *s, size_t n)
{
    return (n == 1 && *s == 'a') || (n == 2 && !memcmp(s, "an", 2)) ||
           (n == 3 && !memcmp(s, "the", 3));
}

/* Appends TEXT in lower case and without punctuation of ASCII. */
static void add_plain(struct str *out, const char *text, size_t len)
{
    for (size_t at = 0, used; at < len; at += used) {
        const uint32_t cp = chars_at(text + at, len - at, &used);
        char utf8[4];

        if (cp >= 0x80 || !strchr("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", (int)cp) || !cp)
            str_addn(out, utf8, str_utf8_encode(chars_lower(cp), utf8));
    }
}

/* Appends the words of TEXT, each with a space behind it, but articles. */
static void add_words(struct str *out, const char *text, size_t len)
{
    bool inside = false;

    for (size_t at = 0, used; at < len; at += used) {
        const uint32_t cp = chars_at(text + at, len - at, &used);
        size_t end = at + used, more;

        while (is_letter(cp) && end < len &&
               is_letter(chars_at(text + end, len - end, &more)))
            end += more;
        if (is_space(cp) || (is_letter(cp) && is_article(text + at, end - at))) {
            if (inside)
                str_addc(out, ' ');
            inside = false;
        } else {
            str_addn(out, text + at, end - at);
            inside = true;
        }
        used = end - at;
    }
    if (inside)
        str_addc(out, ' ');
}

/* normalize_answer of the evaluation of SQuAD, with a space behind each word. */
static void normalize(struct str *out, const char *text, size_t len)
{
    struct str plain = { 0 };

    add_plain(&plain, text, len);
    add_words(out, str_text(&plain), plain.len);
    str_clear(&plain);
}

/* The words of S, whose spaces become ends; the caller frees the list. */
static const char **words_of(struct str *s, size_t *n)
{
    const char **word = xcalloc(s->len + 1, sizeof(*word));
    const char *from = s->s;

    *n = 0;
    for (size_t i = 0; i < s->len; i++)
        if (s->s[i] == ' ') {
            s->s[i] = '\0';
            word[(*n)++] = from;
            from = s->s + i + 1;
        }
    return word;
}

/* F1 of N words of which M are right and COMMON both. */
static double f1_of(size_t common, size_t n, size_t m)
{
    return n + m ? 2 * (double)common / (double)(n + m) : 1;
}

static size_t common_words(const char **a, size_t n, const char **b, size_t m)
{
    size_t common = 0;

    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < m; k++)
            if (b[k] && !strcmp(a[i], b[k])) {
                b[k] = NULL;
                common++;
                break;
            }
    return common;
}

/* Raises *EXACT and *F1 to those of the normalized SAYS by IS. */
static void compare(double *exact, double *f1, const struct str *says,
                    const struct str *is)
{
    struct str a = { 0 }, b = { 0 };
    const char **one, **other;
    size_t n, m;

    str_addn(&a, str_text(says), says->len);
    str_addn(&b, str_text(is), is->len);
    if (!strcmp(str_text(says), str_text(is)))
        *exact = 1;
    one = words_of(&a, &n);
    other = words_of(&b, &m);
    *f1 = fmax(*f1, f1_of(common_words(one, n, other, m), n, m));
    free(one);
    free(other);
    str_clear(&a);
    str_clear(&b);
}

void squad_add(double *exact, double *f1, const char *says, size_t len,
               const char *const *answer, size_t answers)
{
    struct str said = { 0 }, is = { 0 };
    double right = 0, most = 0;
    size_t counted = 0;

    normalize(&said, says, len);
    for (size_t i = 0; i < answers; i++) {
        str_reset(&is);
        normalize(&is, answer[i], strlen(answer[i]));
        if (is.len) { /* others are none */
            compare(&right, &most, &said, &is);
            counted++;
        }
    }
    if (!counted)
        right = most = !said.len;
    *exact += right;
    *f1 += most;
    str_clear(&said);
    str_clear(&is);
}

void squad_add_ids(double *exact, double *f1, const int32_t *says, size_t n,
                   const int32_t *is, size_t m)
{
    bool *taken = xcalloc(m + 1, sizeof(*taken));
    size_t common = 0;

    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < m; k++)
            if (!taken[k] && says[i] == is[k]) {
                taken[k] = true;
                common++;
                break;
            }
    *exact += n == m && (!n || !memcmp(says, is, n * sizeof(*is)));
    *f1 += f1_of(common, n, m);
    free(taken);
}

bool squad_best(const float *x, size_t low, size_t high, bool may_none, size_t *first,
                size_t *last)
{
    double most = -INFINITY;

    for (size_t i = low; i < high; i++)
        for (size_t k = i; k < high && k < i + SQUAD_LONGEST; k++) {
            const double sum = (double)x[2 * i] + (double)x[2 * k + 1];

            if (sum > most) {
                most = sum;
                *first = i;
                *last = k;
            }
        }
    return most > -INFINITY && !(may_none && (double)x[0] + (double)x[1] > most);
}
