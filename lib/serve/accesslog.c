/* accesslog - a file to which threads add lines */
#define _GNU_SOURCE
#include "lib/serve/accesslog.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/base/mem.h"
#include "lib/base/output.h"

struct accesslog {
    char *path;
    pthread_mutex_t lock;
    int fd;
    int failed; /* errno of the last line; 0: it was written */
    bool told;
};

int accesslog_open(struct accesslog **out, const char *path, struct err *err)
{
    int fd = output_append(path, err);
    struct accesslog *l;

    if (fd < 0)
        return -1;
    l = xcalloc(1, sizeof(*l));
    l->path = xstrdup(path);
    l->fd = fd;
    pthread_mutex_init(&l->lock, NULL);
    *out = l;
    return 0;
}

void accesslog_close(struct accesslog *l)
{
    if (!l)
        return;
    close(l->fd);
    pthread_mutex_destroy(&l->lock);
    free(l->path);
    free(l);
}

void accesslog_add(struct accesslog *l, const struct str *line)
{
    ssize_t n;

    pthread_mutex_lock(&l->lock);
    do
        n = write(l->fd, line->s, line->len);
    while (n < 0 && errno == EINTR);
    if (n == (ssize_t)line->len)
        l->failed = l->told = 0;
    else
        l->failed = n < 0 ? errno : ENOSPC;
    pthread_mutex_unlock(&l->lock);
}

int accesslog_reopen(struct accesslog *l, struct err *err)
{
    int fd = output_append(l->path, err), old;

    if (fd < 0)
        return -1;
    pthread_mutex_lock(&l->lock);
    old = l->fd;
    l->fd = fd;
    pthread_mutex_unlock(&l->lock);
    close(old);
    return 0;
}

bool accesslog_failed(struct accesslog *l, struct err *err)
{
    bool tell;

    pthread_mutex_lock(&l->lock);
    tell = l->failed && !l->told;
    l->told |= tell;
    errno = l->failed;
    if (tell)
        err_errno(err, "%s", l->path);
    pthread_mutex_unlock(&l->lock);
    return tell;
}
