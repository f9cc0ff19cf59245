/* tokenwriter - writes Megatron's indexed dataset, PREFIX.bin and PREFIX.idx */
#include "lib/train/tokenwriter.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/output.h"
#include "lib/base/str.h"
#include "lib/train/tokenfile.h"

enum { BUFFER = 1 << 16, NAMED_16_BITS = 65500 };

struct tokenwriter {
    char *bin, *index;
    struct output *out; /* of the tokens */
    bool wide;          /* 32 bits */
    uint32_t *length;   /* [documents]: tokens */
    size_t documents, cap;
    uint64_t tokens;
    size_t have;
    unsigned char buffer[BUFFER];
};

static unsigned width(const struct tokenwriter *w)
{
    return w->wide ? 4 : 2;
}

int tokenwriter_open(struct tokenwriter **out, const char *prefix, uint64_t vocab,
                     struct err *err)
{
    struct tokenwriter *w = xcalloc(1, sizeof(*w));

    w->bin = str_dupf("%s.bin", prefix);
    w->index = str_dupf("%s.idx", prefix);
    w->wide = vocab >= NAMED_16_BITS;
    if (output_open(&w->out, w->bin, err) < 0) {
        tokenwriter_close(w);
        return -1;
    }
    *out = w;
    return 0;
}

void tokenwriter_close(struct tokenwriter *w)
{
    if (!w)
        return;
    output_discard(w->out);
    free(w->bin);
    free(w->index);
    free(w->length);
    free(w);
}

static int flush(struct tokenwriter *w, struct err *err)
{
    size_t n = w->have;

    w->have = 0;
    return fs_write(output_fd(w->out), w->buffer, n, w->bin, err);
}

int tokenwriter_add(struct tokenwriter *w, const int32_t *id, size_t n, struct err *err)
{
    if (n > INT32_MAX)
        return err_set(err, ERR_INPUT, "%s: a document of %zu tokens has no place",
                       w->index, n);
    for (size_t i = 0; i < n; i++) {
        if (w->have == BUFFER && flush(w, err) < 0)
            return -1;
        for (unsigned k = 0; k < width(w); k++)
            w->buffer[w->have++] = (unsigned char)((uint32_t)id[i] >> (8 * k));
    }
    w->length = xgrow(w->length, &w->cap, w->documents + 1, sizeof(*w->length));
    w->length[w->documents++] = (uint32_t)n;
    w->tokens += n;
    return 0;
}

/* ---- the index: see tokenfile.c ---- */

static void put(struct str *s, uint64_t x, int bytes)
{
    while (bytes-- > 0) {
        str_addc(s, (char)(x & 0xff));
        x >>= 8;
    }
}

static int write_index(const struct tokenwriter *w, struct err *err)
{
    struct str s = { 0 };
    uint64_t at = 0;
    int ret;

    str_addn(&s, "MMIDIDX\0", 9);
    put(&s, 1, 8);
    put(&s, w->wide ? TOKEN_I32 : TOKEN_U16, 1);
    put(&s, w->documents, 8);
    put(&s, w->documents + 1, 8);
    for (size_t i = 0; i < w->documents; i++)
        put(&s, w->length[i], 4);
    for (size_t i = 0; i < w->documents; i++) {
        put(&s, at, 8);
        at += (uint64_t)w->length[i] * width(w);
    }
    for (size_t i = 0; i <= w->documents; i++)
        put(&s, i, 8);
    ret = output_write(w->index, s.s, s.len, false, err);
    str_clear(&s);
    return ret;
}

/* Writes the index first: readers reject an index without its tokens, but would take
 * tokens without an index for another format. */
int tokenwriter_finish(struct tokenwriter *w, struct err *err)
{
    struct output *out = w->out;

    if (flush(w, err) < 0 || write_index(w, err) < 0)
        return -1;
    w->out = NULL;
    return output_close(out, false, err);
}

uint64_t tokenwriter_tokens(const struct tokenwriter *w)
{
    return w->tokens;
}

uint64_t tokenwriter_documents(const struct tokenwriter *w)
{
    return w->documents;
}

uint64_t tokenwriter_bytes(const struct tokenwriter *w)
{
    return w->tokens * width(w);
}
