/* numbers - the numbers of a range, as JSON writes them */
#include "lib/text/grammar/numbers.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/str.h"

enum { WHOLE = 18, FRACTION = 15, FEW = 6, MOST_DIGITS = 30, ROOM = 2 * MOST_DIGITS };

/* A number without its sign: its digits before and after the point, the first without
 * zeros at the beginning, the others without zeros at the end. */
struct decimal {
    bool given, negative, open;
    char whole[ROOM + 1], fraction[ROOM + 1];
};

/* Numbers of .whole digits before the point, from LO to HI, which have as many. */
struct span {
    struct terms *t;
    bool has_lo, has_hi, lo_open, hi_open;
    char lo[2 * ROOM + 1], hi[2 * ROOM + 1]; /* [len]: digits of both parts */
    size_t whole, all, len;                  /* ALL: digits that a number may have */
};

static uint32_t digits(struct terms *t, uint32_t min, uint32_t max)
{
    return terms_repeat(t, terms_range(t, '0', '9'), min, max);
}

static uint32_t one(struct terms *t, char c)
{
    return terms_range(t, (unsigned char)c, (unsigned char)c);
}

/* ---- without bounds ---- */

static uint32_t any_number(struct terms *t, bool integers)
{
    const uint32_t sign = terms_optional(t, one(t, '-'));
    const uint32_t whole =
        terms_alt(t, one(t, '0'),
                  terms_cat(t, terms_range(t, '1', '9'), digits(t, 0, WHOLE - 1)));
    uint32_t fraction, e, out = terms_cat(t, sign, whole);

    if (integers)
        return out;
    fraction = terms_cat(t, one(t, '.'), digits(t, 1, FRACTION));
    e = terms_cat(t, terms_alt(t, one(t, 'e'), one(t, 'E')),
                  terms_cat(t,
                            terms_optional(t, terms_alt(t, one(t, '+'), one(t, '-'))),
                            digits(t, 1, 2)));
    return terms_cat(t, out,
                     terms_cat(t, terms_optional(t, fraction), terms_optional(t, e)));
}

/* ---- a bound ---- */

static int read_decimal(struct decimal *out, const struct number_bound *b,
                        struct err *err)
{
    char all[ROOM + 1] = "";
    const char *p = b->text;
    size_t n = 0, trail;
    int64_t point = -1, exponent = 0;

    *out = (struct decimal){ .given = p != NULL, .open = b->open };
    if (!p)
        return 0;
    out->negative = *p == '-';
    for (p += out->negative; *p && *p != 'e' && *p != 'E'; p++) {
        if (*p == '.')
            point = (int64_t)n;
        else if (n < MOST_DIGITS)
            all[n++] = *p;
        else
            return err_set(err, ERR_INPUT, "%s: a bound has more than %d digits",
                           b->text, MOST_DIGITS);
    }
    if (*p && (!str_i64(p[1] == '+' ? p + 2 : p + 1, &exponent) || exponent > 1000 ||
               exponent < -1000))
        exponent = exponent < 0 ? -1000 : 1000;
    point = (point < 0 ? (int64_t)n : point) + exponent;
    if (strspn(all, "0") == n)
        point = (int64_t)n;
    if (point > MOST_DIGITS || point < -MOST_DIGITS / 2)
        return err_set(err, ERR_INPUT, "%s: a bound has more than %d digits", b->text,
                       MOST_DIGITS);
    for (int64_t i = 0; i < point; i++)
        out->whole[i] = i < (int64_t)n ? all[i] : '0';
    trail = 0;
    for (int64_t i = point; i < (int64_t)n; i++)
        out->fraction[trail++] = i < 0 ? '0' : all[i];
    while (trail && out->fraction[trail - 1] == '0')
        out->fraction[--trail] = '\0';
    n = strspn(out->whole, "0");
    memmove(out->whole, out->whole + n, strlen(out->whole + n) + 1);
    if (!*out->whole)
        strncat(out->whole, "0", 2);
    out->negative &= strcmp(out->whole, "0") != 0 || *out->fraction;
    return 0;
}

/* ---- digits between bounds ---- */

static bool is_zero(const char *digits_left)
{
    return digits_left[strspn(digits_left, "0")] == '\0';
}

/* May a number end before digit I?  LOW, HIGH: its digits so far are the bound's. */
static bool may_end(const struct span *s, size_t i, bool low, bool high)
{
    return i >= s->whole && (!low || (is_zero(s->lo + i) && !s->lo_open)) &&
           (!high || !is_zero(s->hi + i) || !s->hi_open);
}

static uint32_t rest(const struct span *s, size_t i, bool low, bool high);

/* What follows from digit I on, with a digit there. */
static uint32_t from_digit(const struct span *s, size_t i, bool low, bool high)
{
    const char zero = i == 0 && s->whole > 1 ? '1' : '0';
    char first = low && s->lo[i] > zero ? s->lo[i] : zero;
    char last = high ? s->hi[i] : '9';
    struct terms *t = s->t;
    uint32_t out = TERM_NONE;

    if (i == s->all || first > last)
        return TERM_NONE;
    if (low && high && first == last && s->lo[i] == first)
        return terms_cat(t, one(t, first), rest(s, i + 1, true, true));
    if (low && s->lo[i] == first) {
        out = terms_cat(t, one(t, first), rest(s, i + 1, true, high && first == last));
        first++;
    }
    if (high && first <= last) {
        out =
            terms_alt(t, out, terms_cat(t, one(t, last), rest(s, i + 1, false, true)));
        last--;
    }
    if (first <= last)
        out = terms_alt(
            t, out,
            terms_cat(t, terms_range(t, (unsigned char)first, (unsigned char)last),
                      rest(s, i + 1, false, false)));
    return out;
}

static uint32_t rest(const struct span *s, size_t i, bool low, bool high)
{
    uint32_t out = may_end(s, i, low, high) ? TERM_EMPTY : TERM_NONE;
    uint32_t more = from_digit(s, i, low, high);

    if (i == s->whole)
        more = terms_cat(s->t, one(s->t, '.'), more);
    return terms_alt(s->t, out, more);
}

static void put_bound(char *out, const struct decimal *d, size_t whole, size_t fraction)
{
    memcpy(out, d->whole, whole);
    memset(out + whole, '0', fraction);
    memcpy(out + whole, d->fraction, strlen(d->fraction));
    out[whole + fraction] = '\0';
}

/* Numbers from LO to HI, of which neither is negative; without HI there is no end. */
static uint32_t magnitudes(struct terms *t, bool integers, const struct decimal *lo,
                           const struct decimal *hi)
{
    const size_t from = strlen(lo->whole), n_lo = strlen(lo->fraction);
    const size_t n_hi = hi->given ? strlen(hi->fraction) : 0;
    size_t to = hi->given ? strlen(hi->whole) : from > WHOLE ? from : WHOLE;
    size_t room = n_lo > n_hi ? n_lo : n_hi, may;
    uint32_t out = TERM_NONE;

    room = room < FEW ? FEW : room;
    may = integers ? 0 : room < FRACTION ? room : FRACTION;
    for (size_t whole = from; whole <= to; whole++) {
        struct span s = { .t = t,
                          .has_lo = whole == from,
                          .has_hi = hi->given && whole == to,
                          .lo_open = lo->open,
                          .hi_open = hi->open,
                          .whole = whole,
                          .all = whole + may,
                          .len = whole + room };

        if (s.has_lo)
            put_bound(s.lo, lo, whole, room);
        if (s.has_hi)
            put_bound(s.hi, hi, whole, room);
        out = terms_alt(t, out, from_digit(&s, 0, s.has_lo, s.has_hi));
    }
    return out;
}

int numbers_between(struct terms *t, bool integers, const struct number_bound *least,
                    const struct number_bound *most, uint32_t *out, struct err *err)
{
    static const struct decimal zero = { .given = true, .whole = "0" },
                                above = { .given = true, .whole = "0", .open = true };
    struct decimal lo, hi;

    if (!least->text && !most->text) {
        *out = any_number(t, integers);
        return 0;
    }
    if (read_decimal(&lo, least, err) < 0 || read_decimal(&hi, most, err) < 0)
        return -1;
    *out = TERM_NONE;
    if (!hi.given || !hi.negative)
        *out = magnitudes(t, integers, lo.given && !lo.negative ? &lo : &zero, &hi);
    if (!lo.given || lo.negative)
        *out = terms_alt(
            t, *out,
            terms_cat(
                t, one(t, '-'),
                magnitudes(t, integers, hi.given && hi.negative ? &hi : &above, &lo)));
    return 0;
}
