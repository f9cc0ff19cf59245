/* apikeys - who may ask: the API keys of a server */
#define _GNU_SOURCE
#include "lib/serve/apikeys.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/base64.h"
#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/sha256.h"
#include "lib/base/str.h"

struct digest {
    unsigned char byte[SHA256_BYTES];
};

struct list {
    struct digest *v; /* [n] */
    size_t n, cap;
};

struct apikeys {
    char *path, *given; /* or NULL */
    pthread_mutex_t lock;
    struct list list;
};

static struct digest digest_of(const char *key, size_t n)
{
    struct sha256 s;
    struct digest d;

    sha256_init(&s);
    sha256_add(&s, key, n);
    sha256_end(&s, d.byte);
    return d;
}

/* Adds the key TEXT[n], if it is one and not empty. */
static int add_key(struct list *to, const char *text, size_t n, const char *where,
                   struct err *err)
{
    while (n && strchr(" \t\r", text[n - 1]))
        n--;
    while (n && strchr(" \t", *text)) {
        text++;
        n--;
    }
    for (size_t i = 0; i < n; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return err_set(err, ERR_INPUT,
                           "%s: a key with another character than visible ASCII",
                           where);
    if (!n)
        return 0;
    to->v = xgrow(to->v, &to->cap, to->n + 1, sizeof(*to->v));
    to->v[to->n++] = digest_of(text, n);
    return 0;
}

/* Keys that END separates; those that begin with SKIPPED are none. */
static int add_keys(struct list *to, const char *text, char end, char skipped,
                    const char *where, struct err *err)
{
    for (const char *next; text; text = next) {
        const char *at = strchr(text, end);
        size_t n = at ? (size_t)(at - text) : strlen(text);

        next = at ? at + 1 : NULL;
        if (*text != skipped && add_key(to, text, n, where, err) < 0)
            return -1;
    }
    return 0;
}

static int read_keys(const struct apikeys *k, struct list *out, struct err *err)
{
    enum { MOST = 1 << 20 };
    char *text = NULL;
    int ret = 0;

    if (k->given)
        ret = add_keys(out, k->given, ',', ',', "SHARDUTILS_API_KEY", err);
    if (ret == 0 && k->path) {
        ret = fs_read_regular(&text, NULL, k->path, MOST, err);
        if (ret == 0)
            ret = add_keys(out, text, '\n', '#', k->path, err);
        if (text)
            explicit_bzero(text, strlen(text));
        free(text);
    }
    if (ret == 0 && !out->n)
        ret = err_set(err, ERR_INPUT, "%s: no key",
                      k->path ? k->path : "SHARDUTILS_API_KEY");
    return ret;
}

int apikeys_reload(struct apikeys *k, struct err *err)
{
    struct list list = { 0 }, old;

    if (read_keys(k, &list, err) < 0) {
        free(list.v);
        return -1;
    }
    pthread_mutex_lock(&k->lock);
    old = k->list;
    k->list = list;
    pthread_mutex_unlock(&k->lock);
    free(old.v);
    return 0;
}

int apikeys_open(struct apikeys **out, const char *path, const char *list,
                 struct err *err)
{
    struct apikeys *k = xcalloc(1, sizeof(*k));

    pthread_mutex_init(&k->lock, NULL);
    k->path = path ? xstrdup(path) : NULL;
    k->given = list ? xstrdup(list) : NULL;
    if (apikeys_reload(k, err) < 0) {
        apikeys_close(k);
        return -1;
    }
    *out = k;
    return 0;
}

void apikeys_close(struct apikeys *k)
{
    if (!k)
        return;
    pthread_mutex_destroy(&k->lock);
    free(k->path);
    free(k->given);
    free(k->list.v);
    free(k);
}

static bool is_key(struct apikeys *k, const char *text, size_t n)
{
    const struct digest d = digest_of(text, n);
    bool found = false;

    pthread_mutex_lock(&k->lock);
    for (size_t i = 0; i < k->list.n; i++)
        found |= hmac_equal(k->list.v[i].byte, d.byte);
    pthread_mutex_unlock(&k->lock);
    return found;
}

/* What follows SCHEME, whose case does not matter, in TEXT; or NULL. */
static const char *after(const char *text, const char *scheme)
{
    size_t n = strlen(scheme);

    if (strncasecmp(text, scheme, n) != 0 || text[n] != ' ')
        return NULL;
    return text + n + strspn(text + n, " ");
}

bool apikeys_allow(struct apikeys *k, const char *authorization)
{
    const char *bearer = authorization ? after(authorization, "Bearer") : NULL;
    const char *basic = authorization ? after(authorization, "Basic") : NULL;
    struct str pair = { 0 };
    const char *colon;
    bool allowed = false;

    if (bearer)
        return is_key(k, bearer, strlen(bearer));
    if (basic && base64_decode(basic, &pair)) {
        colon = memchr(str_text(&pair), ':', pair.len);
        if (colon)
            allowed = is_key(k, colon + 1, pair.len - (size_t)(colon + 1 - pair.s));
    }
    str_clear(&pair);
    return allowed;
}
