/* partset - a checkpoint that several jobs make, each some of its files */
#include "lib/reshard/partset.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/fs.h"
#include "lib/base/hash.h"
#include "lib/base/json.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

const char PARTSET_MANIFEST[] = "manifest.json", PARTSET_RECORD[] = "part";

static const char FORMAT[] = "shardutils-part 1";
static const uint64_t MAX_RECORD = UINT64_C(1) << 30;

enum { MOST_FILES = 1 << 20 };

char *partset_part_dup(const char *path, int first, int last)
{
    size_t len = strlen(path);

    while (len > 1 && path[len - 1] == '/')
        len--;
    return str_dupf("%.*s.parts/%d-%d", (int)len, path, first, last);
}

int partset_prepare(const char *path, struct err *err)
{
    char *part = partset_part_dup(path, 0, 0), *dir = fs_dirname_dup(part);
    int ret = outdir_prepare(dir, err);

    free(part);
    free(dir);
    return ret;
}

/* ---- writing ---- */

int partset_write(const struct outdir *o, const struct partset_record *r,
                  struct err *err)
{
    struct str s = { 0 };
    int ret;

    str_addf(&s, "%s\nrequest %s\nfiles %d %d %d\n", FORMAT, r->request, r->first,
             r->last, r->of);
    for (size_t i = 0; i < r->nfiles; i++) {
        str_addf(&s, "%s %08" PRIx32 " %" PRIu64 " ",
                 r->file[i].small ? "small" : "file", r->file[i].crc, r->file[i].size);
        str_add_json(&s, r->file[i].name);
        str_addc(&s, '\n');
    }
    for (size_t i = 0; i < r->ntensors; i++) {
        str_add(&s, "read");
        for (size_t k = 0; k < r->nshares; k++)
            str_addf(&s, " %08" PRIx32, r->share[i * r->nshares + k]);
        str_addc(&s, '\n');
    }
    str_addf(&s, "crc32 %08" PRIx32 "\n", hash_crc32(0, s.s, s.len));
    ret = outdir_write(o, PARTSET_RECORD, s.s, s.len, 0600, err);
    str_clear(&s);
    return ret;
}

/* ---- reading ---- */

/* Takes WORD and a blank off the line at *s. */
static bool take_word(const char **s, const char *word)
{
    size_t n = strlen(word);

    if (strncmp(*s, word, n) != 0 || (*s)[n] != ' ')
        return false;
    *s += n + 1;
    return true;
}

static bool take_crc(const char **s, uint32_t *out)
{
    char *end;

    if (strspn(*s, "0123456789abcdef") != 8)
        return false;
    *out = (uint32_t)strtoul(*s, &end, 16);
    *s = end;
    return true;
}

static bool take_number(const char **s, uint64_t *out)
{
    size_t digits = strspn(*s, "0123456789");
    char *text = xstrndup(*s, digits);
    bool good = str_u64(text, out);

    free(text);
    *s += digits;
    return good;
}

/* "CRC SIZE NAME" */
static bool take_file(struct partset_record *r, const char *s, bool small, size_t *cap)
{
    struct partset_file f = { .small = small };
    struct json_doc doc;
    bool good;

    if (r->nfiles >= MOST_FILES || !take_crc(&s, &f.crc) || *s++ != ' ' ||
        !take_number(&s, &f.size) || *s++ != ' ' ||
        json_parse(&doc, PARTSET_RECORD, s, strlen(s), NULL) < 0)
        return false;
    good = json_string(doc.root) && strlen(doc.root->text) == doc.root->n &&
           fs_is_plain_name(doc.root->text) && (small || !strchr(doc.root->text, '/'));
    if (good) {
        f.name = pool_strdup(&r->pool, doc.root->text);
        r->file = xgrow(r->file, cap, r->nfiles + 1, sizeof(*r->file));
        r->file[r->nfiles++] = f;
    }
    json_clear(&doc);
    return good;
}

/* " SHARE..." */
static bool take_shares(struct partset_record *r, const char *s, size_t *cap)
{
    size_t n = 0;
    uint32_t crc;

    while (*s) {
        if (*s++ != ' ' || !take_crc(&s, &crc))
            return false;
        r->share =
            xgrow(r->share, cap, r->ntensors * r->nshares + n + 1, sizeof(*r->share));
        r->share[r->ntensors * r->nshares + n++] = crc;
    }
    if (!n || (r->ntensors && n != r->nshares))
        return false;
    r->nshares = n;
    r->ntensors++;
    return true;
}

static bool take_range(struct partset_record *r, const char *s)
{
    uint64_t first, last, of;

    if (!take_number(&s, &first) || *s++ != ' ' || !take_number(&s, &last) ||
        *s++ != ' ' || !take_number(&s, &of) || *s || first > last || last >= of ||
        of > MOST_FILES)
        return false;
    r->first = (int)first;
    r->last = (int)last;
    r->of = (int)of;
    return true;
}

struct caps {
    size_t files, shares;
};

static bool take_line(struct partset_record *r, size_t number, const char *s,
                      struct caps *cap)
{
    if (number == 0)
        return !strcmp(s, FORMAT);
    if (number == 1) {
        if (!take_word(&s, "request"))
            return false;
        r->request = pool_strdup(&r->pool, s);
        return str_starts(s, "cut ") || str_starts(s, "merge ");
    }
    if (number == 2)
        return take_word(&s, "files") && take_range(r, s);
    if (take_word(&s, "file"))
        return !r->ntensors && take_file(r, s, false, &cap->files);
    if (take_word(&s, "small"))
        return !r->ntensors && take_file(r, s, true, &cap->files);
    return str_starts(s, "read ") && take_shares(r, s + 4, &cap->shares);
}

/* The weight files come first, as many as the range says. */
static bool is_whole(const struct partset_record *r)
{
    size_t made = 0;

    while (made < r->nfiles && !r->file[made].small)
        made++;
    for (size_t i = made; i < r->nfiles; i++)
        if (!r->file[i].small)
            return false;
    return r->request && made == (size_t)(r->last - r->first) + 1 &&
           (r->ntensors > 0) == str_starts(r->request, "cut ");
}

int partset_parse(struct partset_record *r, const char *path, const char *text,
                  size_t n, struct err *err)
{
    enum { TAIL = sizeof("crc32 00000000\n") - 1 };
    struct partset_record made = { 0 };
    struct caps cap = { 0, 0 };
    const char *tail = n >= TAIL ? text + n - TAIL : "";
    size_t number = 0;
    uint32_t crc;

    if (memchr(text, '\0', n) || !take_word(&tail, "crc32") || !take_crc(&tail, &crc) ||
        strcmp(tail, "\n") != 0 || crc != hash_crc32(0, text, n - TAIL))
        return err_set(err, ERR_INPUT, "%s: damaged, or not the record of a part",
                       path);
    for (const char *line = text, *end; line < text + n - TAIL; line = end + 1) {
        char *copy;
        bool good;

        end = strchr(line, '\n');
        copy = xstrndup(line, (size_t)(end - line));
        good = take_line(&made, number++, copy, &cap);
        free(copy);
        if (!good) {
            partset_clear(&made);
            return err_set(err, ERR_INPUT, "%s:%zu: not a line of a part's record",
                           path, number);
        }
    }
    if (number < 3 || !is_whole(&made)) {
        partset_clear(&made);
        return err_set(err, ERR_INPUT, "%s: incomplete", path);
    }
    *r = made;
    return 0;
}

void partset_clear(struct partset_record *r)
{
    free(r->file);
    free(r->share);
    pool_clear(&r->pool);
    *r = (struct partset_record){ 0 };
}

int partset_read(struct partset_record *r, bool *found, const char *dir,
                 struct err *err)
{
    char *path = fs_join_dup(dir, PARTSET_RECORD), *text;
    size_t n;
    int ret = fs_read_optional(&text, &n, path, MAX_RECORD, err);

    *found = ret == 0 && text;
    if (*found)
        ret = partset_parse(r, path, text, n, err);
    free(text);
    free(path);
    return ret;
}

int partset_is_made(bool *made, const char *part, const char *request, struct err *err)
{
    struct partset_record r;
    bool found;

    *made = false;
    if (partset_read(&r, &found, part, err) < 0)
        return -1;
    if (found) {
        *made = !strcmp(r.request, request);
        partset_clear(&r);
    }
    return 0;
}
