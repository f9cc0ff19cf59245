/* corpus - the tokens of some files as one row, with the documents' beginnings */
#include "lib/train/corpus.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

/* A file. */
struct piece {
    const char *name; /* while it is opened */
    uint64_t first;   /* of the corpus's tokens */
    size_t n, cap;
    int32_t *id;   /* [n] */
    size_t *start; /* [documents]: first token of each, from 0 in the piece */
    size_t documents, start_cap;
    size_t *given; /* [documents]: tokens of its prompt; NULL: none has one */
};

struct corpus {
    struct piece *piece;
    size_t npieces;
    uint64_t tokens;
};

/* ---- texts ---- */

static int too_much(const struct piece *p, struct err *err)
{
    return err_set(err, ERR_SYSTEM, "%s: no memory for its tokens", p->name);
}

/* As xgrow, for what is the size of the text. */
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

static int add_document(void *arg, const struct texts_document *d, struct err *err)
{
    struct piece *p = arg;

    if (!grow(&p->id, &p->cap, p->n + d->n, sizeof(*p->id)) ||
        !grow(&p->start, &p->start_cap, p->documents + 1, sizeof(*p->start)))
        return too_much(p, err);
    if (add_given(p, d->given, err) < 0)
        return -1;
    memcpy(p->id + p->n, d->id, d->n * sizeof(*p->id));
    p->start[p->documents++] = p->n;
    p->n += d->n;
    return 0;
}

/* ---- all files ---- */

int corpus_open(struct corpus **out, const char *const *file, size_t n,
                const struct texts_options *options, struct err *err)
{
    struct corpus *c = xcalloc(1, sizeof(*c));

    c->piece = xcalloc(n + 1, sizeof(*c->piece));
    for (size_t i = 0; i < n; i++) {
        struct piece *p = &c->piece[c->npieces++];

        *p = (struct piece){ .name = file[i], .first = c->tokens };
        if (texts_read(file[i], options, add_document, p, err) < 0)
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
        free(c->piece[i].id);
        free(c->piece[i].start);
        free(c->piece[i].given);
    }
    free(c->piece);
    free(c);
}

uint64_t corpus_tokens(const struct corpus *c)
{
    return c->tokens;
}

/* The document of P that has token AT, or would. */
static size_t find_document(const struct piece *p, size_t at)
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

/* N tokens of P from AT. */
static void read_piece(const struct piece *p, size_t at, size_t n, int32_t *id,
                       uint8_t *flag)
{
    memcpy(id, p->id + at, n * sizeof(*id));
    memset(flag, 0, n);
    for (size_t d = find_document(p, at); d < p->documents && p->start[d] < at + n;
         d++) {
        size_t given = p->given ? p->start[d] + p->given[d] : 0;

        if (p->start[d] >= at)
            flag[p->start[d] - at] |= CORPUS_BEGINS;
        for (size_t i = p->start[d] > at ? p->start[d] : at; i < given && i < at + n;
             i++)
            flag[i - at] |= CORPUS_GIVEN;
    }
}

int corpus_read(struct corpus *c, uint64_t first, size_t n, int32_t *id, uint8_t *flag,
                struct err *err)
{
    (void)err;
    for (size_t i = 0; i < c->npieces && n; i++) {
        const struct piece *p = &c->piece[i];
        size_t at, part;

        if (first >= p->first + p->n)
            continue;
        at = (size_t)(first - p->first);
        part = n < p->n - at ? n : p->n - at;
        read_piece(p, at, part, id, flag);
        first += part;
        id += part;
        flag += part;
        n -= part;
    }
    return 0;
}

int corpus_documents(struct corpus *c,
                     int (*see)(void *arg, uint64_t first, uint64_t n, uint64_t given,
                                struct err *err),
                     void *arg, struct err *err)
{
    for (size_t i = 0; i < c->npieces; i++) {
        const struct piece *p = &c->piece[i];

        for (size_t d = 0; d < p->documents; d++) {
            size_t end = d + 1 < p->documents ? p->start[d + 1] : p->n;

            if (see(arg, p->first + p->start[d], end - p->start[d],
                    p->given ? p->given[d] : 0, err) < 0)
                return -1;
        }
    }
    return 0;
}
