/* normalizer - rewrites text before it is split: the normalizers of a tokenizer.json */
#include "lib/text/normalizer.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "lib/base/mem.h"
#include "lib/text/bytelevel.h"
#include "lib/text/chars.h"
#include "lib/text/charsmap.h"
#include "lib/text/setting.h"
#include "lib/text/pattern.h"

struct stage {
    /* R: where the text's bytes come from, or NULL */
    int (*run)(const struct stage *, const char *, size_t, struct str *,
               struct rewriting *r, struct err *);
    utf8proc_option_t form; /* Unicode normalization form */
    struct pattern *pattern;
    struct charsmap *map;
    char *text; /* the replacement, or the text to prepend */
    bool left, right;
    bool clean, chinese, accents, lowercase; /* BERT's */
};

struct normalizer {
    struct stage *stage;
    size_t n;
};

static void add_char(struct str *out, uint32_t cp)
{
    char utf8[4];

    str_addn(out, utf8, str_utf8_encode(cp, utf8));
}

/* ---- stages ---- */

/* A character of a normalization form, and what it does to the text (origins.h). */
struct part {
    utf8proc_int32_t cp;
    int class, change;
};

struct parts {
    struct part *v;
    size_t n, cap;
};

static void add_part(struct parts *p, utf8proc_int32_t cp, int change)
{
    int class = utf8proc_get_property(cp)->combining_class;
    size_t at = p->n;

    p->v = xgrow(p->v, &p->cap, p->n + 1, sizeof(*p->v));
    for (; class && at && p->v[at - 1].class > class; at--)
        p->v[at] = p->v[at - 1];
    p->v[at] = (struct part){ cp, class, change };
    p->n++;
}

/* The character that A and B compose; 0: there is none. */
static utf8proc_int32_t composed(utf8proc_int32_t a, utf8proc_int32_t b)
{
    utf8proc_int32_t pair[2] = { a, b };
    utf8proc_ssize_t n =
        utf8proc_normalize_utf32(pair, 2, UTF8PROC_STABLE | UTF8PROC_COMPOSE);

    return n == 1 ? pair[0] : 0;
}

/* Unicode Standard Annex 15: each character is joined to the last one of class 0,
 * unless one between them is of the same class or a higher one. */
static void compose(struct parts *p)
{
    size_t base = SIZE_MAX, n = 0;
    int before = -1; /* the class of the last one behind it; -1: there is none */

    for (size_t i = 0; i < p->n; i++) {
        struct part *now = &p->v[i];
        utf8proc_int32_t cp =
            base == SIZE_MAX || before >= now->class ? 0
                                                     : composed(p->v[base].cp, now->cp);

        if (cp) {
            p->v[base].cp = cp;
            p->v[base].change += now->change - 1;
            continue;
        }
        if (!now->class) {
            base = n;
            before = -1;
        } else
            before = now->class;
        p->v[n++] = *now;
    }
    p->n = n;
}

/* Tells R what add_form_of does. */
static void trace_form(const struct stage *s, const char *text, size_t len,
                       struct rewriting *r)
{
    struct parts p = { 0 };
    size_t used;

    for (size_t at = 0; at < len; at += used) {
        utf8proc_int32_t cp[32];
        int class = 0;
        utf8proc_ssize_t n = utf8proc_decompose_char(
            (utf8proc_int32_t)chars_at(text + at, len - at, &used), cp, 32,
            (s->form & ~(unsigned)UTF8PROC_COMPOSE) | UTF8PROC_DECOMPOSE, &class);

        for (utf8proc_ssize_t i = 0; i < n && i < 32; i++)
            add_part(&p, cp[i], i > 0);
    }
    if (s->form & UTF8PROC_COMPOSE)
        compose(&p);
    for (size_t i = 0; i < p.n; i++) {
        char utf8[4];

        rewriting_char(r, str_utf8_encode((uint32_t)p.v[i].cp, utf8), p.v[i].change);
    }
    free(p.v);
}

static int add_form_of(const struct stage *s, const char *text, size_t len,
                       struct str *out, struct rewriting *r, struct err *err)
{
    utf8proc_uint8_t *to;
    utf8proc_ssize_t n = utf8proc_map((const utf8proc_uint8_t *)text,
                                      (utf8proc_ssize_t)len, &to, s->form);

    if (n < 0)
        return err_set(err, ERR_SYSTEM, "the text cannot be normalized: %s",
                       utf8proc_errmsg(n));
    str_addn(out, to, (size_t)n);
    free(to);
    if (r)
        trace_form(s, text, len, r);
    return 0;
}

static int run_form(const struct stage *s, const char *text, size_t len,
                    struct str *out, struct rewriting *r, struct err *err)
{
    size_t done = 0, used;

    for (size_t at = 0; at < len; at += used) {
        if (!chars_has_later_form(chars_at(text + at, len - at, &used)))
            continue;
        if (add_form_of(s, text + done, at - done, out, r, err) < 0)
            return -1;
        str_addn(out, text + at, used);
        rewriting_copy(r, used);
        done = at + used;
    }
    return add_form_of(s, text + done, len - done, out, r, err);
}

static int run_lowercase(const struct stage *s, const char *text, size_t len,
                         struct str *out, struct rewriting *r, struct err *err)
{
    size_t used;

    (void)s;
    (void)err;
    for (size_t at = 0; at < len; at += used) {
        uint32_t cp = chars_at(text + at, len - at, &used);

        if (cp == 0x130) { /* the only character whose lower case is two characters */
            str_add(out, "i\xcc\x87");
            rewriting_char(r, 1, 0);
            rewriting_char(r, 2, 1);
        } else {
            size_t before = out->len;

            add_char(out, chars_lower(cp));
            rewriting_char(r, out->len - before, 0);
        }
    }
    return 0;
}

static int run_strip(const struct stage *s, const char *text, size_t len,
                     struct str *out, struct rewriting *r, struct err *err)
{
    size_t start = 0, used;

    (void)err;
    while (s->left && start < len &&
           chars_is_space(chars_at(text + start, len - start, &used)))
        start += used;
    while (s->right && len > start && chars_is_space(chars_before(text, len, &used)))
        len -= used;
    str_addn(out, text + start, len - start);
    rewriting_skip(r, start);
    rewriting_copy(r, len - start);
    return 0;
}

static int run_strip_accents(const struct stage *s, const char *text, size_t len,
                             struct str *out, struct rewriting *r, struct err *err)
{
    size_t used;

    (void)s;
    (void)err;
    for (size_t at = 0; at < len; at += used)
        if (!chars_is_mark(chars_at(text + at, len - at, &used))) {
            str_addn(out, text + at, used);
            rewriting_copy(r, used);
        } else
            rewriting_skip(r, used);
    return 0;
}

static int run_replace(const struct stage *s, const char *text, size_t len,
                       struct str *out, struct rewriting *r, struct err *err)
{
    struct finder f;
    size_t done = 0;

    if (r) { /* what takes the place of a match stands for its last character */
        finder_init(&f, s->pattern, text, len);
        for (; finder_next(&f, NULL) > 0; done = f.end) {
            rewriting_copy(r, f.start - done);
            rewriting_skip(r, f.end - f.start);
            rewriting_char(r, strlen(s->text), 1);
        }
        finder_clear(&f);
        rewriting_copy(r, len - done);
    }
    return pattern_replace(out, s->pattern, s->text, text, len, err);
}

static int run_prepend(const struct stage *s, const char *text, size_t len,
                       struct str *out, struct rewriting *r, struct err *err)
{
    (void)err;
    if (len) {
        str_add(out, s->text);
        if (r)
            origins_add(&r->to, origins_range(&r->from, 0, 1), strlen(s->text));
    }
    str_addn(out, text, len);
    rewriting_copy(r, len);
    return 0;
}

static int run_precompiled(const struct stage *s, const char *text, size_t len,
                           struct str *out, struct rewriting *r, struct err *err)
{
    (void)err;
    if (s->map) {
        charsmap_run(s->map, text, len, out, r);
        return 0;
    }
    str_addn(out, text, len);
    rewriting_copy(r, len);
    return 0;
}

static int run_byte_level(const struct stage *s, const char *text, size_t len,
                          struct str *out, struct rewriting *r, struct err *err)
{
    (void)s;
    (void)err;
    for (size_t i = 0; i < len; i++) {
        size_t before = out->len;

        bytelevel_encode(out, text + i, 1);
        if (r)
            origins_add(&r->to, origins_range(&r->from, i, i + 1), out->len - before);
    }
    return 0;
}

/* Is CP in the CJK blocks that BERT's tokenizer separates? */
static bool is_chinese(uint32_t cp)
{
    return (cp >= 0x3400 && cp <= 0x4dbf) || (cp >= 0x4e00 && cp <= 0x9fff) ||
           (cp >= 0xf900 && cp <= 0xfaff) || (cp >= 0x20000 && cp <= 0x2a6df) ||
           (cp >= 0x2a700 && cp <= 0x2b81f) || (cp >= 0x2b920 && cp <= 0x2ceaf) ||
           (cp >= 0x2f800 && cp <= 0x2fa1f);
}

/* BERT's text cleaning of a character; 0: removed. */
static uint32_t cleaned(uint32_t cp)
{
    if (cp == '\t' || cp == '\n' || cp == '\r')
        return ' ';
    if (!cp || cp == 0xfffd || chars_is_other(cp))
        return 0;
    return chars_is_space(cp) ? ' ' : cp;
}

/* Devlin et al. 2018: cleans white space and control characters, puts spaces around
 * Chinese characters, strips accents, converts to lower case. */
static int run_bert(const struct stage *s, const char *text, size_t len,
                    struct str *out, struct rewriting *r, struct err *err)
{
    static const struct stage nfd = { .form = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE };
    struct str now = { 0 }, bare = { 0 };
    size_t used;
    int ret = 0;

    for (size_t at = 0; at < len; at += used) {
        uint32_t cp = chars_at(text + at, len - at, &used);
        bool apart = s->chinese && is_chinese(cp);
        size_t before = now.len;

        if (s->clean && !(cp = cleaned(cp))) {
            rewriting_skip(r, used);
            continue;
        }
        str_add(&now, apart ? " " : "");
        add_char(&now, cp);
        str_add(&now, apart ? " " : "");
        rewriting_char(r, now.len - before, 0); /* the spaces stand for it, too */
    }
    if (s->accents) {
        struct str parts = { 0 };

        rewriting_begin(r, str_text(&now), now.len);
        ret = run_form(&nfd, str_text(&now), now.len, &parts, r, err);
        rewriting_begin(r, str_text(&parts), parts.len);
        for (size_t at = 0; at < parts.len; at += used) {
            bool drop =
                chars_is_nonspacing(chars_at(parts.s + at, parts.len - at, &used));

            (drop ? rewriting_skip : rewriting_copy)(r, used);
            if (!drop)
                str_addn(&bare, parts.s + at, used);
        }
        str_clear(&now);
        now = bare;
        str_clear(&parts);
    }
    if (ret == 0 && s->lowercase) {
        rewriting_begin(r, str_text(&now), now.len);
        ret = run_lowercase(s, str_text(&now), now.len, out, r, err);
    } else
        str_addn(out, str_text(&now), now.len);
    str_clear(&now);
    return ret;
}

/* ---- opening ---- */

static struct stage *add_stage(struct normalizer *n)
{
    n->stage = xrealloc(n->stage, sizeof(*n->stage) * (n->n + 1));
    n->stage[n->n] = (struct stage){ 0 };
    return &n->stage[n->n++];
}

static int read_form(struct stage *s, const char *where, const cJSON *j,
                     struct err *err)
{
    const char *type = setting_type(j); /* NF[K]C or NF[K]D */

    (void)where;
    (void)err;
    s->form = UTF8PROC_STABLE |
              (strchr(type, 'C') ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
              (strchr(type, 'K') ? UTF8PROC_COMPAT : 0);
    return 0;
}

static int read_strip(struct stage *s, const char *where, const cJSON *j,
                      struct err *err)
{

    (void)where;
    (void)err;
    s->left = setting_flag(j, "strip_left", true);
    s->right = setting_flag(j, "strip_right", true);
    return 0;
}

static int read_replace(struct stage *s, const char *where, const cJSON *j,
                        struct err *err)
{
    return pattern_open_replace(&s->pattern, &s->text, where, j, err);
}

static int read_prepend(struct stage *s, const char *where, const cJSON *j,
                        struct err *err)
{
    const char *text = setting_string(j, "prepend");

    if (!text)
        return err_set(err, ERR_INPUT, "%s: a Prepend without text", where);
    s->text = xstrdup(text);
    return 0;
}

static int read_precompiled(struct stage *s, const char *where, const cJSON *j,
                            struct err *err)
{
    const char *text = setting_string(j, "precompiled_charsmap");

    if (!text || !*text)
        return 0; /* no rules */
    return charsmap_open(&s->map, where, text, err);
}

static int read_bert(struct stage *s, const char *where, const cJSON *j,
                     struct err *err)
{

    (void)where;
    (void)err;
    s->clean = setting_flag(j, "clean_text", true);
    s->chinese = setting_flag(j, "handle_chinese_chars", true);
    s->lowercase = setting_flag(j, "lowercase", true);
    s->accents = setting_flag(j, "strip_accents", s->lowercase);
    return 0;
}

static int add_json(struct normalizer *n, const char *where, const cJSON *j, int depth,
                    struct err *err)
{
    static const struct {
        const char *type;
        int (*run)(const struct stage *, const char *, size_t, struct str *,
                   struct rewriting *, struct err *);
        int (*read)(struct stage *, const char *, const cJSON *, struct err *);
    } stages[] = {
        { "NFC", run_form, read_form },
        { "NFD", run_form, read_form },
        { "NFKC", run_form, read_form },
        { "NFKD", run_form, read_form },
        { "Lowercase", run_lowercase, NULL },
        { "Strip", run_strip, read_strip },
        { "StripAccents", run_strip_accents, NULL },
        { "Replace", run_replace, read_replace },
        { "Prepend", run_prepend, read_prepend },
        { "BertNormalizer", run_bert, read_bert },
        { "Precompiled", run_precompiled, read_precompiled },
        { "ByteLevel", run_byte_level, NULL },
    };
    const char *type = setting_type(j);
    const cJSON *one;

    if (!strcmp(type, "Sequence") && depth < 8) {
        cJSON_ArrayForEach(one, cJSON_GetObjectItemCaseSensitive(j, "normalizers"))
        {
            if (add_json(n, where, one, depth + 1, err) < 0)
                return -1;
        }
        return 0;
    }
    for (size_t i = 0; i < sizeof(stages) / sizeof(*stages); i++)
        if (!strcmp(stages[i].type, type)) {
            struct stage *s = add_stage(n);

            s->run = stages[i].run;
            return stages[i].read ? stages[i].read(s, where, j, err) : 0;
        }
    return err_set(err, ERR_INPUT, "%s of type '%s' is not known", where, type);
}

int normalizer_open(struct normalizer **out, const char *path, const cJSON *j,
                    struct err *err)
{
    struct normalizer *n = xcalloc(1, sizeof(*n));
    char *where = str_dupf("%s: normalizer", path);
    int ret = setting_absent(j) ? 0 : add_json(n, where, j, 0, err);

    free(where);
    if (ret < 0)
        normalizer_free(n);
    else
        *out = n;
    return ret;
}

void normalizer_free(struct normalizer *n)
{
    if (!n)
        return;
    for (size_t i = 0; i < n->n; i++) {
        pattern_free(n->stage[i].pattern);
        charsmap_free(n->stage[i].map);
        free(n->stage[i].text);
    }
    free(n->stage);
    free(n);
}

/* True when the stage removes the first character of the text. */
static bool takes_first(const struct stage *s, const char *text, size_t len)
{
    size_t used;
    uint32_t cp = len ? chars_at(text, len, &used) : 0;
    bool taken;
    struct finder f;

    if (!len)
        return false;
    if (s->run == run_strip)
        return s->left && chars_is_space(cp);
    if (s->run == run_strip_accents)
        return chars_is_mark(cp);
    if (s->run == run_bert)
        return (s->clean && !cleaned(cp)) || (s->accents && chars_is_nonspacing(cp));
    if (s->run != run_replace || *s->text)
        return false;
    finder_init(&f, s->pattern, text, len);
    taken = finder_next(&f, NULL) > 0 && f.start == 0 && f.end > 0;
    finder_clear(&f);
    return taken;
}

int normalizer_run(const struct normalizer *n, const char *text, size_t len,
                   struct str *out, bool *kept, struct origins *origins,
                   struct err *err)
{
    struct rewriting r = { 0 }, *traced = origins ? &r : NULL;
    struct str now = { 0 };
    int ret = 0;

    *kept = true;
    str_addn(&now, text, len);
    if (origins)
        r.to = *origins;
    for (size_t i = 0; i < n->n && ret == 0; i++) {
        const struct stage *s = &n->stage[i];
        struct str next = { 0 };

        *kept &= !takes_first(s, str_text(&now), now.len);
        rewriting_begin(traced, str_text(&now), now.len);
        ret = s->run(s, str_text(&now), now.len, &next, traced, err);
        str_clear(&now);
        now = next;
    }
    if (ret == 0)
        str_addn(out, str_text(&now), now.len);
    str_clear(&now);
    if (origins)
        *origins = r.to;
    origins_clear(&r.from);
    return ret;
}
