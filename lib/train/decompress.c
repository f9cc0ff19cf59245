/* decompress - the bytes of a file, decompressed if it begins as gzip or zstd do */
#include "config.h"

#include "lib/train/decompress.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#ifdef HAVE_ZSTD
#include <zstd.h>
#include <zstd_errors.h>
#endif

enum { CHUNK = 1 << 16, MAGIC = 4, GZIP_WINDOW = 15 + 16, ZSTD_WINDOW = 23 };

/* How a file is compressed. */
enum packing { PACKING_UNKNOWN, PACKING_NONE, PACKING_GZIP, PACKING_ZSTD };

struct decompress {
    int fd;
    const char *name;
    enum packing packing;
    bool ended;  /* FD has no more bytes */
    bool inside; /* a frame of zstd has begun and not ended */
    bool rest;   /* after a member of gzip come bytes that are none */
    uint64_t bytes;
    size_t at, have; /* the part of IN that is not used yet */
    z_stream z;
    void *zstd; /* ZSTD_DCtx */
    char in[CHUNK];
};

int decompress_open(struct decompress **d, int fd, const char *name, struct err *err)
{
    *d = calloc(1, sizeof(**d));
    if (!*d) {
        close(fd);
        return err_set(err, ERR_SYSTEM, "%s: out of memory", name);
    }
    (*d)->fd = fd;
    (*d)->name = name;
    return 0;
}

uint64_t decompress_bytes(const struct decompress *d)
{
    return d->bytes - (d->have - d->at);
}

/* Makes at least N bytes (at most MAGIC, or 1) ready, or all that are left. */
static int need(struct decompress *d, size_t n, struct err *err)
{
    if (d->have - d->at < n && d->at) {
        memmove(d->in, d->in + d->at, d->have - d->at);
        d->have -= d->at;
        d->at = 0;
    }
    while (d->have - d->at < n && !d->ended) {
        ssize_t got = read(d->fd, d->in + d->have, CHUNK - d->have);

        if (got < 0 && errno != EINTR)
            return err_errno(err, "%s", d->name);
        if (got >= 0) {
            d->have += (size_t)got;
            d->bytes += (uint64_t)got;
            d->ended = got == 0;
        }
    }
    return 0;
}

/* ---- gzip ---- */

static bool begins_gzip(const struct decompress *d)
{
    return d->have - d->at >= 2 && !memcmp(d->in + d->at, "\x1f\x8b", 2);
}

static int start_gzip(struct decompress *d, struct err *err)
{
    return inflateInit2(&d->z, GZIP_WINDOW) == Z_OK
               ? 0
               : err_set(err, ERR_SYSTEM, "%s: out of memory", d->name);
}

/* At the end of a member: another begins, or what follows is left out, as gzip does. */
static int next_member(struct decompress *d, struct err *err)
{
    if (need(d, 2, err) < 0)
        return -1;
    d->rest = !begins_gzip(d);
    if (!d->rest)
        inflateReset(&d->z);
    return 0;
}

static int read_gzip(struct decompress *d, char *out, size_t room, size_t *n,
                     struct err *err)
{
    int code = Z_OK;

    d->z.next_out = (Bytef *)out;
    d->z.avail_out = room < INT_MAX ? (uInt)room : INT_MAX;
    room = d->z.avail_out;
    while (!d->rest && d->z.avail_out == room) {
        if (need(d, 1, err) < 0)
            return -1;
        d->z.next_in = (Bytef *)d->in + d->at;
        d->z.avail_in = (uInt)(d->have - d->at);
        code = inflate(&d->z, Z_NO_FLUSH);
        d->at = d->have - d->z.avail_in;
        if (code == Z_BUF_ERROR && d->ended)
            return err_set(err, ERR_INPUT, "%s: truncated", d->name);
        if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)
            return err_set(err, code == Z_MEM_ERROR ? ERR_SYSTEM : ERR_INPUT,
                           "%s: not read as gzip: %s", d->name,
                           d->z.msg ? d->z.msg : zError(code));
        if (code == Z_STREAM_END && next_member(d, err) < 0)
            return -1;
    }
    *n = room - d->z.avail_out;
    return 0;
}

/* ---- zstd ---- */

/* A frame, or a skippable one, which has 16 magic numbers. */
static bool begins_zstd(const struct decompress *d)
{
    const char *in = d->in + d->at;

    return d->have - d->at >= MAGIC &&
           (!memcmp(in, "\x28\xb5\x2f\xfd", MAGIC) ||
            ((in[0] & 0xf0) == 0x50 && !memcmp(in + 1, "\x2a\x4d\x18", MAGIC - 1)));
}

#ifdef HAVE_ZSTD

static int start_zstd(struct decompress *d, struct err *err)
{
    d->zstd = ZSTD_createDCtx();
    if (!d->zstd)
        return err_set(err, ERR_SYSTEM, "%s: out of memory", d->name);
    ZSTD_DCtx_setParameter(d->zstd, ZSTD_d_windowLogMax, ZSTD_WINDOW);
    return 0;
}

static int fail_zstd(const struct decompress *d, size_t code, struct err *err)
{
    switch (ZSTD_getErrorCode(code)) {
    case ZSTD_error_memory_allocation:
        return err_set(err, ERR_SYSTEM, "%s: out of memory", d->name);
    case ZSTD_error_frameParameter_windowTooLarge:
        return err_set(err, ERR_INPUT,
                       "%s: its zstd window is larger than 8 MiB; decompress it first "
                       "(zstd -d --long=31)",
                       d->name);
    default:
        return err_set(err, ERR_INPUT, "%s: not read as zstd: %s", d->name,
                       ZSTD_getErrorName(code));
    }
}

static int read_zstd(struct decompress *d, char *out, size_t room, size_t *n,
                     struct err *err)
{
    ZSTD_outBuffer to = { .dst = out, .size = room };

    while (!to.pos) {
        ZSTD_inBuffer from = { .src = d->in };
        size_t code;

        if (need(d, 1, err) < 0)
            return -1;
        if (d->at == d->have && !d->inside)
            break;
        from.pos = d->at;
        from.size = d->have;
        code = ZSTD_decompressStream(d->zstd, &to, &from);
        d->at = from.pos;
        if (ZSTD_isError(code))
            return fail_zstd(d, code, err);
        d->inside = code != 0;
        if (d->inside && !to.pos && d->at == d->have && d->ended)
            return err_set(err, ERR_INPUT, "%s: truncated", d->name);
    }
    *n = to.pos;
    return 0;
}

static void end_zstd(struct decompress *d)
{
    ZSTD_freeDCtx(d->zstd);
}

#else

static int start_zstd(struct decompress *d, struct err *err)
{
    return err_set(err, ERR_INPUT,
                   "%s: compressed by zstd, which this build does not read; decompress "
                   "it first (zstd -d)",
                   d->name);
}

static int read_zstd(struct decompress *d, char *out, size_t room, size_t *n,
                     struct err *err)
{
    (void)out;
    (void)room;
    *n = 0;
    return start_zstd(d, err);
}

static void end_zstd(struct decompress *d)
{
    (void)d;
}

#endif

/* ---- any ---- */

static int read_plain(struct decompress *d, char *out, size_t room, size_t *n,
                      struct err *err)
{
    if (need(d, 1, err) < 0)
        return -1;
    *n = d->have - d->at < room ? d->have - d->at : room;
    memcpy(out, d->in + d->at, *n);
    d->at += *n;
    return 0;
}

static int start(struct decompress *d, struct err *err)
{
    if (need(d, MAGIC, err) < 0)
        return -1;
    d->packing = begins_gzip(d)   ? PACKING_GZIP
                 : begins_zstd(d) ? PACKING_ZSTD
                                  : PACKING_NONE;
    return d->packing == PACKING_GZIP   ? start_gzip(d, err)
           : d->packing == PACKING_ZSTD ? start_zstd(d, err)
                                        : 0;
}

int decompress_read(struct decompress *d, char *out, size_t room, size_t *n,
                    struct err *err)
{
    if (d->packing == PACKING_UNKNOWN && start(d, err) < 0)
        return -1;
    return d->packing == PACKING_GZIP   ? read_gzip(d, out, room, n, err)
           : d->packing == PACKING_ZSTD ? read_zstd(d, out, room, n, err)
                                        : read_plain(d, out, room, n, err);
}

void decompress_close(struct decompress *d)
{
    if (!d)
        return;
    inflateEnd(&d->z); /* zeros: nothing to end */
    end_zstd(d);
    close(d->fd);
    free(d);
}
