/* inspection - what was found wrong with a model's files */
#include "lib/reshard/inspection.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/hash.h"
#include "lib/base/str.h"

const char *const inspection_words[] = { "error", "warning", "note" };

/* A finding under the hash of what it says and of its kind of tensor. */
struct inspection_place {
    struct inspection_finding *finding;
    uint32_t hash;
    struct inspection_place *next;
};

void inspection_clear(struct inspection *o)
{
    pool_clear(&o->pool);
    *o = (struct inspection){ 0 };
}

/* The next character of the name at *S, in which every number is one '#'. */
static char next_of_kind(const char **s)
{
    size_t digits = strspn(*s, "0123456789");

    if (digits) {
        *s += digits;
        return '#';
    }
    return **s ? *(*s)++ : '\0';
}

static bool same_kind(const char *a, const char *b)
{
    char x, y;

    do {
        x = next_of_kind(&a);
        y = next_of_kind(&b);
    } while (x == y && x);
    return x == y;
}

static uint32_t hash_of(enum inspection_level level, const char *tensor,
                        const char *text)
{
    uint32_t hash = hash_crc32((uint32_t)level, text, strlen(text));
    char c;

    while ((c = next_of_kind(&tensor)) != '\0')
        hash = hash_crc32(hash, &c, 1);
    return hash;
}

/* Counts a finding that says TEXT of a tensor as TENSOR is; false: none yet. */
static bool count_another(struct inspection *o, enum inspection_level level,
                          const char *tensor, const char *text, uint32_t hash)
{
    struct inspection_place *p = o->bucket[hash % (1 << 10)];

    while (p &&
           (p->hash != hash || p->finding->level != level || !p->finding->tensor ||
            strcmp(p->finding->text, text) || !same_kind(p->finding->tensor, tensor)))
        p = p->next;
    if (p)
        p->finding->others++;
    return p != NULL;
}

void inspection_add(struct inspection *o, enum inspection_level level, const char *file,
                    const char *tensor, const char *fmt, ...)
{
    uint32_t hash = 0;
    char text[1024];
    struct inspection_finding *f;
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    o->found[level]++;
    if (tensor)
        hash = hash_of(level, tensor, text);
    if (tensor && count_another(o, level, tensor, text, hash))
        return;
    f = pool_take(&o->pool, sizeof(*f), sizeof(void *));
    *f = (struct inspection_finding){ .level = level,
                                      .file = pool_strdup(&o->pool, file),
                                      .tensor =
                                          tensor ? pool_strdup(&o->pool, tensor) : NULL,
                                      .text = pool_strdup(&o->pool, text) };
    if (o->last[level])
        o->last[level]->next = f;
    else
        o->first[level] = f;
    o->last[level] = f;
    if (tensor) {
        struct inspection_place *p = pool_take(&o->pool, sizeof(*p), sizeof(void *));

        *p = (struct inspection_place){ f, hash, o->bucket[hash % (1 << 10)] };
        o->bucket[hash % (1 << 10)] = p;
    }
}

int inspection_take(struct inspection *o, enum inspection_level level, const char *file,
                    const char *path, const struct err *e, struct err *err)
{
    const char *text = e->text;

    if (e->kind != ERR_INPUT && e->kind != ERR_NO) {
        *err = *e;
        return -1;
    }
    if (str_starts(text, path) && text[strlen(path)] == ':')
        text += strlen(path) + 1 + strspn(text + strlen(path) + 1, " ");
    inspection_add(o, level, file, NULL, "%s", text);
    return 0;
}
