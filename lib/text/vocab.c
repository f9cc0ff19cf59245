/* vocab - maps words to ids and back */
#include "lib/text/vocab.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/pool.h"
#include "lib/base/str.h"
#include "lib/text/setting.h"

/* A hash table with open addressing; its size is a power of two, at least half of it
 * free. */
struct word {
    const char *text; /* NULL: empty */
    uint32_t len, id;
};

struct vocab {
    struct word *word;
    size_t words;              /* size of the table */
    const struct word **by_id; /* [size]; NULL: unused id */
    size_t size, n, longest;
    struct pool pool; /* the words' text */
};

static uint64_t hash_bytes(const char *p, size_t n)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325); /* FNV-1a */

    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)p[i]) * UINT64_C(0x100000001b3);
    return h ^ h >> 29;
}

static struct word *find(const struct vocab *v, const char *text, size_t len)
{
    size_t at = hash_bytes(text, len) & (v->words - 1);

    while (v->word[at].text &&
           (v->word[at].len != len || memcmp(v->word[at].text, text, len)))
        at = (at + 1) & (v->words - 1);
    return &v->word[at];
}

struct vocab *vocab_new(size_t n, size_t size)
{
    struct vocab *v = xcalloc(1, sizeof(*v));

    for (v->words = 16; v->words < 2 * n + 2;)
        v->words *= 2;
    v->word = xcalloc(v->words, sizeof(*v->word));
    v->by_id = xcalloc(size + 1, sizeof(*v->by_id));
    v->size = size;
    return v;
}

void vocab_free(struct vocab *v)
{
    if (!v)
        return;
    free(v->word);
    free(v->by_id);
    pool_clear(&v->pool);
    free(v);
}

static void add(struct vocab *v, const char *text, size_t len, uint32_t id)
{
    struct word *w = find(v, text, len);

    if (!w->text)
        *w = (struct word){ pool_strndup(&v->pool, text, len), (uint32_t)len, 0 };
    w->id = id;
    v->n += !v->by_id[id];
    v->by_id[id] = w;
    if (len > v->longest)
        v->longest = len;
}

void vocab_add(struct vocab *v, const char *text, uint32_t id)
{
    add(v, text, strlen(text), id);
}

void vocab_restore_nul(struct vocab *v)
{
    long id = vocab_id(v, "", 0);

    if (id >= 0)
        add(v, "", 1, (uint32_t)id);
}

int vocab_open(struct vocab **out, const char *path, const cJSON *words,
               struct err *err)
{
    struct vocab *v;
    const cJSON *j;
    size_t n = 0, size = 0;
    long id;

    cJSON_ArrayForEach(j, words)
    {
        if (!setting_id(j, &id))
            return err_set(err, ERR_INPUT, "%s: vocab: '%s' has no valid id", path,
                           j->string);
        n++;
        if ((size_t)id >= size)
            size = (size_t)id + 1;
    }
    v = vocab_new(n, size);
    cJSON_ArrayForEach(j, words)
    {
        if (v->by_id[j->valueint] || vocab_id(v, j->string, strlen(j->string)) >= 0) {
            vocab_free(v);
            return err_set(err, ERR_INPUT, "%s: vocab: '%s' or its id is given twice",
                           path, j->string);
        }
        vocab_add(v, j->string, (uint32_t)j->valueint);
    }
    *out = v;
    return 0;
}

long vocab_id(const struct vocab *v, const char *text, size_t len)
{
    const struct word *w = find(v, text, len);

    return w->text ? (long)w->id : -1;
}

long vocab_byte(const struct vocab *v, unsigned char byte)
{
    static const char digits[] = "0123456789ABCDEF";
    char name[] = { '<', '0', 'x', digits[byte >> 4], digits[byte & 15], '>' };

    return vocab_id(v, name, sizeof(name));
}

const char *vocab_text(const struct vocab *v, uint32_t id, size_t *len)
{
    const struct word *w = id < v->size ? v->by_id[id] : NULL;

    *len = w ? w->len : 0;
    return w ? w->text : NULL;
}

size_t vocab_size(const struct vocab *v)
{
    return v->size;
}

size_t vocab_count(const struct vocab *v)
{
    return v->n;
}

size_t vocab_longest(const struct vocab *v)
{
    return v->longest;
}
