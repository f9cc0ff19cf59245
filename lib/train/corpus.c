/* corpus - the tokens of several files, concatenated, with document boundaries */
#include "lib/train/corpus.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

/* A file: token ids in memory, or a token file on disk. */
struct piece {
    const char *name; /* valid while it is opened */
    uint64_t first;   /* index in the corpus of its first token */
    uint64_t n;
    int32_t *id; /* [n]; NULL: read from FILE */
    size_t cap;
    struct tokenfile file;
    uint64_t *start; /* [documents]: first token of each, relative to the file; NULL:
                      * documents are separated by end ids */
    size_t documents, start_cap;
    size_t *given; /* [documents]: tokens of the prompt; NULL: no document has one */
    uint8_t
        *learn; /* [learn_cap]: of chats, 0 of tokens without loss; NULL: no chats */
    size_t learn_cap;
};

struct corpus {
    struct piece *piece;
    size_t npieces;
    uint64_t tokens, vocab;
    int32_t end_id;
};

/* ---- texts ---- */

static int too_much(const struct piece *p, struct err *err)
{
    return err_set(err, ERR_SYSTEM, "%s: no memory for its tokens", p->name);
}

/* As xgrow, but can fail: for arrays as large as the text. */
static bool grow(void *p, size_t *cap, size_t need, size_t size)
{
    size_t more = *cap ? *cap + *cap / 2 : 1024;
    void *q;

    if (need <= *cap)
        return true;
    more = more > need ? more : need;
    memcpy(&q, p, sizeof(q));
    q = more <= SIZE_MAX / size ? realloc(q, more * size) : NULL;
    if (!q)
        return false;
    memcpy(p, &q, sizeof(q));
    *cap = more;
    return true;
}

static int add_given(struct piece *p, size_t given, struct err *err)
{
    size_t *v = p->given;

    if (!given && !v)
        return 0;
    v = realloc(v, p->start_cap * sizeof(*v));
    if (!v)
        return too_much(p, err);
    if (!p->given)
        memset(v, 0, p->start_cap * sizeof(*v));
    p->given = v;
    v[p->documents] = given;
    return 0;
}

/* Notes which tokens of D, which begins at token P->n, have a loss. */
static int add_learn(struct piece *p, const struct texts_document *d, struct err *err)
{
    size_t had = p->learn ? p->learn_cap : 0;

    if (!d->learn && !p->learn)
        return 0;
    if (!grow(&p->learn, &p->learn_cap, (size_t)p->n + d->n, 1))
        return too_much(p, err);
    memset(p->learn + had, 1, p->learn_cap - had);
    if (d->learn)
        memcpy(p->learn + p->n, d->learn, d->n);
    return 0;
}

static int add_document(void *arg, const struct texts_document *d, struct err *err)
{
    struct piece *p = arg;

    if (!grow(&p->id, &p->cap, (size_t)p->n + d->n, sizeof(*p->id)) ||
        !grow(&p->start, &p->start_cap, p->documents + 1, sizeof(*p->start)))
        return too_much(p, err);
    if (add_given(p, d->given, err) < 0 || add_learn(p, d, err) < 0)
        return -1;
    memcpy(p->id + p->n, d->id, d->n * sizeof(*p->id));
    p->start[p->documents++] = p->n;
    p->n += d->n;
    return 0;
}

/* ---- token files ---- */

static int open_tokens(struct piece *p, const struct tokenfile_options *options,
                       struct err *err)
{
    if (tokenfile_open(&p->file, p->name, options, err) < 0)
        return -1;
    p->n = p->file.tokens;
    p->start = p->file.start;
    p->documents = p->file.documents;
    return 0;
}

/* ---- all files ---- */

int corpus_open(struct corpus **out, const char *const *file, size_t n,
                const struct texts_options *options, enum token_width width,
                struct err *err)
{
    const struct tokenfile_options tokens = { .vocab = options->vocab, .width = width };
    struct corpus *c = xcalloc(1, sizeof(*c));

    c->vocab = options->vocab;
    c->end_id = options->end_id;
    c->piece = xcalloc(n + 1, sizeof(*c->piece));
    for (size_t i = 0; i < n; i++) {
        struct piece *p = &c->piece[c->npieces++];

        *p = (struct piece){ .name = file[i], .first = c->tokens, .file.fd = -1 };
        if (tokenfile_is(file[i])
                ? open_tokens(p, &tokens, err) < 0
                : texts_read(file[i], options, add_document, p, err) < 0)
            goto fail;
        if (!p->n) {
            err_set(err, ERR_INPUT, "%s: no token", file[i]);
            goto fail;
        }
        c->tokens += p->n;
    }
    *out = c;
    return 0;
fail:
    corpus_close(c);
    return -1;
}

void corpus_close(struct corpus *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->npieces; i++) {
        struct piece *p = &c->piece[i];

        if (!p->file.name)
            free(p->start);
        tokenfile_close(&p->file);
        free(p->id);
        free(p->learn);
        free(p->given);
    }
    free(c->piece);
    free(c);
}

uint64_t corpus_tokens(const struct corpus *c)
{
    return c->tokens;
}

int corpus_check(struct corpus *c, void (*see)(void *arg, uint64_t done, uint64_t all),
                 void *arg, struct err *err)
{
    enum { PART = 1 << 24 };
    uint64_t all = 0, done = 0;

    for (size_t i = 0; i < c->npieces; i++)
        all += c->piece[i].id ? 0 : c->piece[i].n;
    for (size_t i = 0; i < c->npieces; i++) {
        const struct piece *p = &c->piece[i];

        for (uint64_t at = 0, n; !p->id && at < p->n; at += n, done += n) {
            n = p->n - at < PART ? p->n - at : PART;
            if (see)
                see(arg, done, all);
            if (tokenfile_check(&p->file, at, n, c->vocab, err) < 0)
                return -1;
        }
    }
    return 0;
}

/* The last document of P that begins at AT or before. */
static size_t find_document(const struct piece *p, uint64_t at)
{
    size_t low = 0, high = p->documents;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;

        if (p->start[middle] <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Sets the flags of N tokens of P from AT, using the list of documents. */
static void flag_indexed(const struct piece *p, uint64_t at, size_t n, uint8_t *flag)
{
    for (size_t d = find_document(p, at); d < p->documents && p->start[d] < at + n;
         d++) {
        uint64_t given = p->given ? p->start[d] + p->given[d] : 0;

        if (p->start[d] >= at)
            flag[p->start[d] - at] |= CORPUS_BEGINS;
        for (uint64_t i = p->start[d] > at ? p->start[d] : at; i < given && i < at + n;
             i++)
            flag[i - at] |= CORPUS_GIVEN;
    }
    for (size_t i = 0; p->learn && i < n; i++)
        if (!p->learn[at + i])
            flag[i] |= CORPUS_GIVEN;
}

/* The same, using the end ids among the N tokens. */
static void flag_told(const struct corpus *c, const struct piece *p, uint64_t at,
                      size_t n, const int32_t *id, uint8_t *flag)
{
    bool begun = p->file.kind == DOCUMENTS_BEGUN;

    if (at == 0)
        flag[0] |= CORPUS_BEGINS;
    for (size_t i = begun ? 0 : 1; i < n; i++)
        if (id[begun ? i : i - 1] == c->end_id)
            flag[i] |= CORPUS_BEGINS;
}

static int read_piece(const struct corpus *c, const struct piece *p, uint64_t at,
                      size_t n, int32_t *id, uint8_t *flag, struct err *err)
{
    if (p->id)
        memcpy(id, p->id + at, n * sizeof(*id));
    else if (tokenfile_read(&p->file, at, n, c->vocab, id, err) < 0)
        return -1;
    memset(flag, 0, n);
    if (p->start)
        flag_indexed(p, at, n, flag);
    else
        flag_told(c, p, at, n, id, flag);
    return 0;
}

int corpus_read(struct corpus *c, uint64_t first, size_t n, int32_t *id, uint8_t *flag,
                struct err *err)
{
    for (size_t i = 0; i < c->npieces && n; i++) {
        const struct piece *p = &c->piece[i];
        uint64_t at;
        size_t part;

        if (first >= p->first + p->n)
            continue;
        at = first - p->first;
        part = n < p->n - at ? n : (size_t)(p->n - at);
        if (read_piece(c, p, at, part, id, flag, err) < 0)
            return -1;
        first += part;
        id += part;
        flag += part;
        n -= part;
    }
    return 0;
}

/* ---- all documents ---- */

struct visit {
    int (*see)(void *arg, uint64_t first, uint64_t n, uint64_t given, struct err *err);
    void *arg;
};

static int see_indexed(const struct piece *p, const struct visit *v, struct err *err)
{
    for (size_t d = 0; d < p->documents; d++) {
        uint64_t end = d + 1 < p->documents ? p->start[d + 1] : p->n;

        if (v->see(v->arg, p->first + p->start[d], end - p->start[d],
                   p->given ? p->given[d] : 0, err) < 0)
            return -1;
    }
    return 0;
}

/* Reads, and thereby checks, all tokens. */
static int see_told(const struct corpus *c, const struct piece *p,
                    const struct visit *v, struct err *err)
{
    enum { CHUNK = 8192 };
    bool begun = p->file.kind == DOCUMENTS_BEGUN;
    int32_t id[CHUNK];
    uint64_t first = 0;

    for (uint64_t at = 0; at < p->n; at += CHUNK) {
        size_t n = p->n - at < CHUNK ? (size_t)(p->n - at) : CHUNK;

        if (tokenfile_read(&p->file, at, n, c->vocab, id, err) < 0)
            return -1;
        for (size_t i = 0; i < n; i++) {
            uint64_t next = at + i + (begun ? 0 : 1);

            if (id[i] != c->end_id || next == first || next == p->n)
                continue;
            if (v->see(v->arg, p->first + first, next - first, 0, err) < 0)
                return -1;
            first = next;
        }
    }
    return v->see(v->arg, p->first + first, p->n - first, 0, err);
}

int corpus_documents(struct corpus *c,
                     int (*see)(void *arg, uint64_t first, uint64_t n, uint64_t given,
                                struct err *err),
                     void *arg, struct err *err)
{
    const struct visit v = { see, arg };

    for (size_t i = 0; i < c->npieces; i++) {
        const struct piece *p = &c->piece[i];

        if (p->start ? see_indexed(p, &v, err) < 0 : see_told(c, p, &v, err) < 0)
            return -1;
    }
    return 0;
}
