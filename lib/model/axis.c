/* axis - one axis of a tensor or value, as a product of named sizes */
#include "lib/model/axis.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/scan.h"

/* ---- parsing: sum := term ('+' term)*; term := [name ':'] factor ('*' factor)*;
 * factor := number | symbol ['.outer(' number ')' | '.inner'] | '(' sum ')' ---- */

struct parser {
    struct scan in;
    const struct axis_scope *scope;
};

/* A sum being parsed: its leaves, laid out from offset 0, and its size. */
struct sum {
    struct leaf *leaf;
    size_t n, cap;
    uint64_t size;
};

static int parse_sum(struct parser *ps, struct sum *out);

static int find_symbol(const struct axis_scope *scope, const char *name, size_t len)
{
    for (int i = 0; i < scope->n; i++)
        if (strlen(scope->sym[i].name) == len &&
            !strncmp(scope->sym[i].name, name, len))
            return i;
    return -1;
}

/* Multiplies SUM by digit D: it becomes the last, fastest digit of every leaf. */
static int sum_append(struct parser *ps, const char *at, struct sum *sum,
                      struct digit d)
{
    if (!mem_mul(&sum->size, sum->size, d.size))
        return scan_fail(&ps->in, at, "the size overflows");
    for (size_t i = 0; i < sum->n; i++) {
        struct leaf *l = &sum->leaf[i];

        if (l->n == AXIS_MAX_DIGITS)
            return scan_fail(&ps->in, at, "too many factors");
        for (int k = 0; k < l->n; k++)
            l->digit[k].stride *= d.size;
        l->base *= d.size;
        l->size *= d.size;
        l->digit[l->n++] = d;
    }
    return 0;
}

static int append_symbol(struct parser *ps, const char *at, struct sum *sum, int sym,
                         uint64_t size, uint64_t div)
{
    const struct axis_symbol *s = &ps->scope->sym[sym];

    if (s->group >= 0) {
        if (div != 1 || size != s->value)
            return scan_fail(&ps->in, at,
                             "a symbol sharded in groups has no outer digit");
        if (append_symbol(ps, at, sum, s->group, ps->scope->sym[s->group].value, 1) < 0)
            return -1;
        return append_symbol(ps, at, sum, s->within, ps->scope->sym[s->within].value,
                             1);
    }
    return sum_append(
        ps, at, sum,
        (struct digit){ .sym = sym, .size = size, .stride = 1, .div = div });
}

static int parse_symbol(struct parser *ps, struct sum *sum)
{
    const char *at = ps->in.p;
    size_t len = scan_word(&ps->in, 0);
    int sym = find_symbol(ps->scope, at, len);
    uint64_t outer;
    char *end;

    if (sym < 0) {
        char what[96];

        snprintf(what, sizeof(what), "'%.*s' is no symbol with a whole value",
                 (int)(len < 48 ? len : 48), at);
        return scan_fail(&ps->in, at, what);
    }
    ps->in.p += len;
    if (*ps->in.p != '.')
        return append_symbol(ps, at, sum, sym, ps->scope->sym[sym].value, 1);
    if (!strncmp(ps->in.p, ".inner(", 7) || !strncmp(ps->in.p, ".outer(", 7)) {
        bool inner = ps->in.p[1] == 'i';
        uint64_t value = ps->scope->sym[sym].value;

        outer = strtoull(ps->in.p + 7, &end, 10);
        if (end == ps->in.p + 7 || *end != ')' || !outer || value % outer)
            return scan_fail(&ps->in, ps->in.p,
                             "expected .outer(N) or .inner(N) with a divisor N");
        ps->in.p = end + 1;
        return inner ? append_symbol(ps, at, sum, sym, value / outer, 1)
                     : append_symbol(ps, at, sum, sym, outer, value / outer);
    }
    return scan_fail(&ps->in, ps->in.p, "expected .outer(N) or .inner(N)");
}

/* Multiplies SUM, one leaf, by the sum INNER, which varies faster. */
static int sum_cross(struct parser *ps, const char *at, struct sum *sum,
                     const struct sum *inner)
{
    struct sum out = { 0 };
    int ret = -1;

    if (!mem_mul(&out.size, sum->size, inner->size)) {
        scan_fail(&ps->in, at, "the size overflows");
        goto out;
    }
    if (sum->n != 1) {
        scan_fail(&ps->in, at, "one product holds two sums");
        goto out;
    }
    for (size_t i = 0; i < inner->n; i++) {
        const struct leaf *head = &sum->leaf[0], *tail = &inner->leaf[i];
        struct leaf *l;

        out.leaf = xgrow(out.leaf, &out.cap, out.n + 1, sizeof(*out.leaf));
        l = &out.leaf[out.n++];
        *l = *tail;
        if (head->n + tail->n > AXIS_MAX_DIGITS) {
            scan_fail(&ps->in, at, "too many factors");
            goto out;
        }
        for (int k = 0; k < head->n; k++) {
            l->digit[k] = head->digit[k];
            l->digit[k].stride *= inner->size;
        }
        memcpy(l->digit + head->n, tail->digit, sizeof(*l->digit) * (size_t)tail->n);
        l->n = head->n + tail->n;
        l->size = head->size * tail->size;
    }
    free(sum->leaf);
    *sum = out;
    out = (struct sum){ 0 };
    ret = 0;
out:
    free(out.leaf);
    return ret;
}

static int parse_factor(struct parser *ps, struct sum *term)
{
    const char *at;

    scan_space(&ps->in);
    at = ps->in.p;
    if (isdigit((unsigned char)*at)) {
        char *end;
        uint64_t n = strtoull(at, &end, 10);

        ps->in.p = end;
        if (!n || n > UINT64_C(1) << 48)
            return scan_fail(&ps->in, at, "a factor must be at least 1");
        /* 1 adds no digit: "q:1" is a segment of one element per outer index */
        return n == 1 ? 0
                      : sum_append(ps, at, term,
                                   (struct digit){
                                       .sym = -1, .size = n, .stride = 1, .div = 1 });
    }
    if (scan_word(&ps->in, 0))
        return parse_symbol(ps, term);
    if (scan_take(&ps->in, '(')) {
        struct sum inner = { 0 };
        int ret = parse_sum(ps, &inner);

        if (ret == 0 && !scan_take(&ps->in, ')'))
            ret = scan_fail(&ps->in, ps->in.p, "expected ')'");
        if (ret == 0)
            ret = sum_cross(ps, at, term, &inner);
        free(inner.leaf);
        return ret;
    }
    return scan_fail(&ps->in, at, "expected a number, a symbol or '('");
}

static int parse_term(struct parser *ps, struct sum *out)
{
    struct sum term = {
        .leaf = xcalloc(1, sizeof(*term.leaf)), .n = 1, .cap = 1, .size = 1
    };
    const char *at;
    size_t len;
    char segment[sizeof(term.leaf->segment)] = "";
    int ret = -1;

    scan_space(&ps->in);
    at = ps->in.p;
    term.leaf[0].size = 1;
    len = scan_word(&ps->in, 0);
    if (len && at[len] == ':') {
        if (len >= sizeof(segment)) {
            scan_fail(&ps->in, at, "the segment's name is too long");
            goto out;
        }
        memcpy(segment, at, len);
        ps->in.p += len + 1;
    }
    do {
        if (parse_factor(ps, &term) < 0)
            goto out;
    } while (scan_take(&ps->in, '*'));
    for (size_t i = 0; i < term.n; i++) {
        struct leaf *l = &term.leaf[i];

        if (*segment && *l->segment) {
            scan_fail(&ps->in, at, "a segment inside a segment");
            goto out;
        }
        if (*segment)
            memcpy(l->segment, segment, sizeof(segment));
        if (!mem_add(&l->base, l->base, out->size)) {
            scan_fail(&ps->in, at, "the size overflows");
            goto out;
        }
        if (out->n == AXIS_MAX_LEAVES) {
            scan_fail(&ps->in, at, "too many segments");
            goto out;
        }
        out->leaf = xgrow(out->leaf, &out->cap, out->n + 1, sizeof(*out->leaf));
        out->leaf[out->n++] = *l;
    }
    if (!mem_add(&out->size, out->size, term.size)) {
        scan_fail(&ps->in, at, "the size overflows");
        goto out;
    }
    ret = 0;
out:
    free(term.leaf);
    return ret;
}

static int parse_sum(struct parser *ps, struct sum *out)
{
    if (scan_enter(&ps->in, 8) < 0)
        return -1;
    do {
        if (parse_term(ps, out) < 0)
            return -1;
    } while (scan_take(&ps->in, '+'));
    ps->in.depth--;
    return 0;
}

int axis_parse(struct axis *out, const char *text, const struct axis_scope *scope,
               struct err *err)
{
    struct parser ps = { scan_start(text, strlen(text), err), scope };
    struct sum sum = { 0 };

    if (parse_sum(&ps, &sum) < 0 ||
        scan_end(&ps.in, "expected '*', '+' or the end") < 0) {
        free(sum.leaf);
        return -1;
    }
    for (size_t i = 0; i < sum.n; i++)
        for (size_t k = 0; sum.n > 1 && k < i; k++)
            if (!strcmp(sum.leaf[i].segment, sum.leaf[k].segment)) {
                free(sum.leaf);
                return scan_fail(&ps.in, text, "the segments need different names");
            }
    *out = (struct axis){ .text = xstrdup(text),
                          .size = sum.size,
                          .block = 1,
                          .n = (int)sum.n,
                          .leaf = sum.leaf };
    return 0;
}

/* ---- queries ---- */

static const struct leaf *find_leaf(const struct axis *a, const char *segment)
{
    for (int i = 0; i < a->n; i++)
        if (!strcmp(a->leaf[i].segment, segment))
            return &a->leaf[i];
    return NULL;
}

/* Joins neighbouring digits of one symbol that continue each other, outer(4) and
 * inner(4): only a segment's name between them kept them apart. */
static void join_digits(struct leaf *l)
{
    int n = 0;

    for (int k = 0; k < l->n; k++) {
        struct digit *last = n ? &l->digit[n - 1] : NULL, *d = &l->digit[k];

        if (last && d->sym >= 0 && last->sym == d->sym && last->div == d->div * d->size)
            *last = (struct digit){ .sym = d->sym,
                                    .size = last->size * d->size,
                                    .stride = d->stride,
                                    .div = d->div };
        else
            l->digit[n++] = *d;
    }
    l->n = n;
}

bool axis_segment(struct axis *out, const struct axis *a, const char *segment)
{
    const struct leaf *from = find_leaf(a, segment);
    struct leaf *l;
    uint64_t stride = 1;

    if (!from || !*segment)
        return false;
    l = xmalloc(sizeof(*l));
    *l = *from;
    *l->segment = '\0';
    l->base = 0;
    for (int k = l->n - 1; k >= 0; k--) {
        l->digit[k].stride = stride;
        stride *= l->digit[k].size;
    }
    join_digits(l);
    *out = (struct axis){
        .text = xstrdup(segment), .size = l->size, .block = 1, .n = 1, .leaf = l
    };
    return true;
}

void axis_divide(struct axis *out, const struct axis *a, uint64_t block)
{
    axis_copy(out, a);
    if (block <= 1)
        return;
    free(out->text);
    out->text = str_dupf("(%s)/%llu", a->text, (unsigned long long)block);
    out->block = a->block * block;
    out->size = (a->size + block - 1) / block;
}

void axis_copy(struct axis *out, const struct axis *a)
{
    *out = *a;
    out->text = xstrdup(a->text);
    out->leaf = xmalloc(sizeof(*a->leaf) * (size_t)a->n);
    memcpy(out->leaf, a->leaf, sizeof(*a->leaf) * (size_t)a->n);
}

bool axis_append(struct axis *out, const struct axis *a, const struct digit *d,
                 const char *text)
{
    uint64_t stride = 1;
    struct leaf *l;

    if (a->n != 1 || a->leaf[0].n == AXIS_MAX_DIGITS)
        return false;
    axis_copy(out, a);
    free(out->text);
    out->text = str_dupf("%s*%s", a->text, text);
    l = &out->leaf[0];
    l->digit[l->n++] = *d;
    for (int i = l->n - 1; i >= 0; i--) {
        l->digit[i].stride = stride;
        stride *= l->digit[i].size;
    }
    l->size = out->size = stride;
    return true;
}

void axis_clear(struct axis *a)
{
    free(a->text);
    free(a->leaf);
    *a = (struct axis){ 0 };
}

static bool leaf_equal(const struct leaf *a, const struct leaf *b)
{
    if (strcmp(a->segment, b->segment) || a->n != b->n)
        return false;
    for (int k = 0; k < a->n; k++)
        if (a->digit[k].sym != b->digit[k].sym || a->digit[k].size != b->digit[k].size)
            return false;
    return true;
}

bool axis_equal(const struct axis *a, const struct axis *b)
{
    if (a->n != b->n || a->block != b->block)
        return false;
    for (int i = 0; i < a->n; i++)
        if (!leaf_equal(&a->leaf[i], &b->leaf[i]))
            return false;
    return true;
}

int axis_dealt(const struct axis *a, const struct axis_scope *scope)
{
    for (int i = 0; i < a->n; i++)
        for (int k = 0; k < a->leaf[i].n; k++) {
            int sym = a->leaf[i].digit[k].sym;

            if (sym >= 0 && scope->sym[sym].dealt)
                return sym;
        }
    return -1;
}

void axis_print(struct str *out, const struct axis *a, const struct axis_scope *scope)
{
    for (int i = 0; i < a->n; i++) {
        const struct leaf *l = &a->leaf[i];

        str_add(out, i ? " + " : "");
        if (*l->segment)
            str_addf(out, "%s:", l->segment);
        if (!l->n)
            str_add(out, "1");
        for (int k = 0; k < l->n; k++) {
            const struct digit *d = &l->digit[k];

            if (d->sym >= 0)
                str_addf(out, "%s%s", k ? "*" : "", scope->sym[d->sym].name);
            else
                str_addf(out, "%s%llu", k ? "*" : "", (unsigned long long)d->size);
        }
    }
}

/* ---- runs ---- */

/* One level of the loop nest that visits a leaf unit by unit: first a loop for each
 * sharded symbol over the units of this rank, then one for each other digit. */
struct loop {
    int sym;               /* sharded symbol; -1: the loop is over DIGIT */
    uint64_t start, count; /* units, or values of the digit */
    bool owned;
    const struct leaf *leaf;
    const struct digit *digit; /* if sym is -1 */
};

/* Has L, besides the group symbol SYM, a digit for the units within a group?  Then no
 * element lies on two ranks, whichever rank owns the group. */
static bool has_within(const struct leaf *l, const struct axis_scope *scope, int sym)
{
    for (int i = 0; i < scope->n; i++)
        for (int k = 0; k < l->n && scope->sym[i].group == sym; k++)
            if (l->digit[k].sym == scope->sym[i].within)
                return true;
    return false;
}

static int make_loops(struct loop *loop, const struct leaf *l,
                      const struct axis_scope *scope, const struct share *share)
{
    int n = 0;

    for (int k = 0; k < l->n; k++) {
        int sym = l->digit[k].sym;
        bool seen = false;

        if (sym < 0 || !scope->sym[sym].dealt)
            continue;
        for (int i = 0; i < n; i++)
            seen |= loop[i].sym == sym;
        if (!seen)
            loop[n++] =
                (struct loop){ .sym = sym,
                               .start = share[sym].start,
                               .count = share[sym].count,
                               .owned = share[sym].owned || has_within(l, scope, sym),
                               .leaf = l };
    }
    for (int k = 0; k < l->n; k++) {
        int sym = l->digit[k].sym;

        if (sym < 0 || !scope->sym[sym].dealt)
            loop[n++] = (struct loop){ .sym = -1,
                                       .count = l->digit[k].size,
                                       .owned = true,
                                       .leaf = l,
                                       .digit = &l->digit[k] };
    }
    return n;
}

/* Offset in the axis of the loop's iteration I. */
static uint64_t loop_offset(const struct loop *loop, uint64_t i)
{
    uint64_t unit = loop->start + i, offset = 0;

    if (loop->sym < 0)
        return i * loop->digit->stride;
    for (int k = 0; k < loop->leaf->n; k++) {
        const struct digit *d = &loop->leaf->digit[k];

        if (d->sym == loop->sym)
            offset += unit / d->div % d->size * d->stride;
    }
    return offset;
}

static void add_run(struct runs *out, size_t *cap, uint64_t start, uint64_t count,
                    bool owned)
{
    struct run *last = out->n ? &out->v[out->n - 1] : NULL;

    out->count += count;
    if (last && last->start + last->count == start && last->owned == owned) {
        last->count += count;
        return;
    }
    out->v = xgrow(out->v, cap, out->n + 1, sizeof(*out->v));
    out->v[out->n++] = (struct run){ start, count, owned };
}

/* True if the iterations are consecutive blocks of BLOCK elements. */
static bool is_dense(const struct loop *loop, uint64_t block)
{
    int digits = 0;

    if (loop->sym < 0)
        return loop->digit->stride == block;
    for (int k = 0; k < loop->leaf->n; k++)
        if (loop->leaf->digit[k].sym == loop->sym) {
            if (loop->leaf->digit[k].stride != block)
                return false;
            digits++;
        }
    return digits == 1;
}

static void emit_loops(struct runs *out, size_t *cap, const struct loop *loop, int n,
                       uint64_t base, uint64_t block, bool owned)
{
    if (n == 0) {
        add_run(out, cap, base, block, owned);
        return;
    }
    for (uint64_t i = 0; i < loop->count; i++)
        emit_loops(out, cap, loop + 1, n - 1, base + loop_offset(loop, i), block,
                   owned);
}

static void element_runs(struct runs *out, const struct axis *a,
                         const struct axis_scope *scope, const struct share *share)
{
    size_t cap = 0;

    *out = (struct runs){ 0 };
    for (int i = 0; i < a->n; i++) {
        const struct leaf *l = &a->leaf[i];
        struct loop loop[AXIS_MAX_DIGITS];
        int n = make_loops(loop, l, scope, share);
        uint64_t base = l->base, block = 1;
        bool owned = true, empty = false;

        for (int k = 0; k < n; k++) {
            owned &= loop[k].owned;
            empty |= !loop[k].count;
        }
        if (empty)
            continue;
        /* merge the innermost loops over consecutive elements into one block */
        while (n > 0 && is_dense(&loop[n - 1], block)) {
            base += loop_offset(&loop[n - 1], 0);
            block *= loop[n - 1].count;
            n--;
        }
        emit_loops(out, &cap, loop, n, base, block, owned);
    }
}

static int by_start(const void *a, const void *b)
{
    uint64_t x = ((const struct run *)a)->start, y = ((const struct run *)b)->start;

    return (x > y) - (x < y);
}

/* The runs of elements in the order of the axis; a run may cross segments. */
static void ordered_elements(struct runs *out, const struct axis *a,
                             const struct axis_scope *scope, const struct share *share)
{
    struct runs r;
    size_t cap = 0;

    element_runs(&r, a, scope, share);
    if (r.n)
        qsort(r.v, r.n, sizeof(*r.v), by_start);
    *out = (struct runs){ 0 };
    for (size_t i = 0; i < r.n; i++)
        add_run(out, &cap, r.v[i].start, r.v[i].count, r.v[i].owned);
    runs_clear(&r);
}

/* Elements of the leaves; more than a->size if the axis is divided into blocks. */
static uint64_t elements(const struct axis *a)
{
    uint64_t n = 0;

    for (int i = 0; i < a->n; i++)
        n += a->leaf[i].size;
    return n;
}

void axis_runs(struct runs *out, const struct axis *a, const struct axis_scope *scope,
               const struct share *share)
{
    if (a->block == 1)
        element_runs(out, a, scope, share);
    else
        axis_ordered_runs(out, a, scope, share);
}

void axis_ordered_runs(struct runs *out, const struct axis *a,
                       const struct axis_scope *scope, const struct share *share)
{
    struct runs fine;
    size_t cap = 0;

    if (a->block == 1) {
        ordered_elements(out, a, scope, share);
        return;
    }
    ordered_elements(&fine, a, scope, share);
    *out = (struct runs){ 0 };
    for (size_t i = 0; i < fine.n; i++) {
        uint64_t first = fine.v[i].start / a->block;
        uint64_t end = (fine.v[i].start + fine.v[i].count + a->block - 1) / a->block;

        add_run(out, &cap, first, end - first, fine.v[i].owned);
    }
    runs_clear(&fine);
}

bool axis_is_aligned(const struct axis *a, const struct axis_scope *scope,
                     const struct share *share)
{
    struct runs fine;
    uint64_t n = elements(a);
    bool aligned = true;

    if (a->block == 1)
        return true;
    ordered_elements(&fine, a, scope, share);
    for (size_t i = 0; i < fine.n; i++) {
        uint64_t end = fine.v[i].start + fine.v[i].count;

        aligned &= fine.v[i].start % a->block == 0 && (end % a->block == 0 || end == n);
    }
    runs_clear(&fine);
    return aligned;
}

uint64_t axis_count(const struct axis *a, const char *segment,
                    const struct axis_scope *scope, const struct share *share)
{
    uint64_t total = 0;

    if (a->block > 1) {
        struct runs r;

        axis_runs(&r, a, scope, share);
        total = r.count;
        runs_clear(&r);
        return total;
    }

    for (int i = 0; i < a->n; i++) {
        struct loop loop[AXIS_MAX_DIGITS];
        uint64_t count = 1;
        int n;

        if (segment && strcmp(a->leaf[i].segment, segment))
            continue;
        n = make_loops(loop, &a->leaf[i], scope, share);
        for (int k = 0; k < n; k++)
            count *= loop[k].count;
        total += count;
    }
    return total;
}

void runs_clear(struct runs *r)
{
    free(r->v);
    *r = (struct runs){ 0 };
}
