/* charsmap - SentencePiece's precompiled character map: strings and their
 * replacements */
#include "lib/text/charsmap.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "lib/base/base64.h"
#include "lib/base/mem.h"
#include "lib/text/chars.h"

struct charsmap {
    char *blob; /* NUL-terminated */
    size_t units;
    const char *texts; /* in the blob */
    size_t ntexts;     /* bytes */
};

static uint32_t little(const char *p)
{
    const unsigned char *b = (const unsigned char *)p;

    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

int charsmap_open(struct charsmap **out, const char *where, const char *base64,
                  struct err *err)
{
    struct str blob = { 0 };
    struct charsmap *c;
    size_t trie;

    if (!base64_decode(base64, &blob) || blob.len < 4 ||
        (trie = little(blob.s)) > blob.len - 4 || trie % 4) {
        str_clear(&blob);
        return err_set(err, ERR_INPUT, "%s: a bad precompiled_charsmap", where);
    }
    c = xcalloc(1, sizeof(*c));
    c->ntexts = blob.len - 4 - trie;
    c->units = trie / 4;
    c->blob = str_steal(&blob);
    c->texts = c->blob + 4 + trie;
    if (!str_is_utf8(c->texts, c->ntexts)) {
        charsmap_free(c);
        return err_set(err, ERR_INPUT, "%s: precompiled_charsmap is not UTF-8", where);
    }
    *out = c;
    return 0;
}

void charsmap_free(struct charsmap *c)
{
    if (!c)
        return;
    free(c->blob);
    free(c);
}

/* Unit I of the trie: label, whether it has a leaf, and the offset to its children; or,
 * for a leaf, the value. */
static uint32_t unit_at(const struct charsmap *c, size_t i)
{
    return i < c->units ? little(c->blob + 4 + 4 * i) : 0;
}

static size_t offset_of(uint32_t unit)
{
    return (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6);
}

/* The replacement for the shortest key that is a prefix of TEXT; NULL when there is
 * none. */
static const char *rule(const struct charsmap *c, const char *text, size_t len)
{
    size_t at = offset_of(unit_at(c, 0));

    for (size_t i = 0; i < len && text[i]; i++) {
        uint32_t unit;

        at ^= (unsigned char)text[i];
        unit = unit_at(c, at);
        if ((unit & (1u << 31 | 0xff)) != (unsigned char)text[i])
            return NULL;
        at ^= offset_of(unit);
        if (unit >> 8 & 1) {
            size_t value = unit_at(c, at) & 0x7fffffff;

            return value < c->ntexts ? c->texts + value : NULL;
        }
    }
    return NULL;
}

/* Length in bytes of the grapheme cluster at TEXT. */
static size_t grapheme(const char *text, size_t len)
{
    utf8proc_int32_t state = 0;
    size_t used, at;
    uint32_t cp = chars_at(text, len, &used), next;

    for (at = used; at < len; at += used, cp = next) {
        next = chars_at(text + at, len - at, &used);
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)cp,
                                             (utf8proc_int32_t)next, &state))
            break;
    }
    return at;
}

/* As the `tokenizers` library does: replaces a short grapheme cluster as a whole if a
 * key is a prefix of it, and otherwise character by character. */
void charsmap_run(const struct charsmap *c, const char *text, size_t len,
                  struct str *out, struct rewriting *r)
{
    for (size_t at = 0, n, used; at < len; at += n) {
        const char *made;

        n = grapheme(text + at, len - at);
        made = n < 6 ? rule(c, text + at, n) : NULL;
        if (made) {
            str_add(out, made);
            rewriting_replace(r, text + at, n, made, strlen(made));
            continue;
        }
        for (size_t i = 0; i < n; i += used) {
            chars_at(text + at + i, n - i, &used);
            made = rule(c, text + at + i, used);
            if (made) {
                str_add(out, made);
                rewriting_replace(r, text + at + i, used, made, strlen(made));
            } else {
                str_addn(out, text + at + i, used);
                rewriting_replace(r, text + at + i, used, text + at + i, used);
            }
        }
    }
    rewriting_flush(r);
}
