/* gather - puts the parts of a partset together */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/hash.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/ckpt/manifest.h"
#include "lib/ckpt/safetensors.h"
#include "lib/reshard/describe.h"
#include "lib/reshard/partset.h"

enum { BLOCK = 1 << 20 };

struct gather {
    const char *path;
    struct partset_record *part; /* by their first file */
    char **dir;                  /* [n] of each */
    size_t n, cap, dir_cap;
    struct outdir out;
    struct manifest m; /* of a cut, as far as it is known */
    uint32_t *crc;     /* [ntensors * of] the CRCs of m's tensors */
    bool cut;
    bool copied; /* the parts are not those of the output's own directory of parts */
};

static void clear(struct gather *g)
{
    for (size_t i = 0; i < g->n; i++) {
        partset_clear(&g->part[i]);
        free(g->dir[i]);
    }
    free(g->part);
    free(g->dir);
    free(g->crc);
    manifest_clear(&g->m);
    outdir_close(&g->out);
}

/* ---- finding the parts ---- */

/* Adds the part in DIR, if there is one. */
static int add_part(struct gather *g, const char *dir, bool *found, struct err *err)
{
    struct partset_record r;
    size_t at;

    if (partset_read(&r, found, dir, err) < 0)
        return -1;
    if (!*found)
        return 0;
    g->part = xgrow(g->part, &g->cap, g->n + 1, sizeof(*g->part));
    g->dir = xgrow(g->dir, &g->dir_cap, g->n + 1, sizeof(*g->dir));
    for (at = g->n; at && g->part[at - 1].first > r.first; at--) {
        g->part[at] = g->part[at - 1];
        g->dir[at] = g->dir[at - 1];
    }
    g->part[at] = r;
    g->dir[at] = xstrdup(dir);
    g->n++;
    return 0;
}

/* Adds the parts that are directories in DIR. */
static int add_parts(struct gather *g, const char *dir, struct err *err)
{
    char **names;
    size_t n;
    int ret = 0;

    if (fs_list(&names, &n, dir, err) < 0)
        return -1;
    for (size_t i = 0; i < n && ret == 0; i++) {
        char *path = fs_join_dup(dir, names[i]);
        bool found;

        if (!str_ends(names[i], ".partial") && !strstr(names[i], ".old-"))
            ret = add_part(g, path, &found, err);
        free(path);
    }
    fs_list_free(names, n);
    return ret;
}

/* The first blank-separated word in which A and B differ, into BUF; "" at an end. */
static void differing_word(char *buf, size_t room, const char *a, const char *b)
{
    const char *start = a;

    for (const char *p = a, *q = b; *p && *p == *q; p++, q++)
        if (*p == ' ')
            start = p + 1;
    snprintf(buf, room, "%.*s", (int)strcspn(start, " "), start);
}

static int check_requests(const struct gather *g, struct err *err)
{
    for (size_t i = 1; i < g->n; i++) {
        const struct partset_record *a = &g->part[0], *b = &g->part[i];
        char of_a[80], of_b[80];

        if (strcmp(a->request, b->request) != 0) {
            differing_word(of_a, sizeof(of_a), a->request, b->request);
            differing_word(of_b, sizeof(of_b), b->request, a->request);
            return err_set(err, ERR_INPUT,
                           "%s: made with %s, but %s with %s; they are parts of "
                           "different outputs",
                           g->dir[i], *of_b ? of_b : "less", g->dir[0],
                           *of_a ? of_a : "less");
        }
        if (b->of != a->of || b->ntensors != a->ntensors || b->nshares != a->nshares)
            return err_set(err, ERR_INPUT, "%s and %s are parts of different outputs",
                           g->dir[0], g->dir[i]);
        if (b->first <= g->part[i - 1].last)
            return err_set(err, ERR_INPUT,
                           "%s and %s both have rank %d; remove one of them",
                           g->dir[i - 1], g->dir[i], b->first);
    }
    return 0;
}

/* Lists what is missing; returns whether something is. */
static bool find_missing(struct partset_result *out, const struct gather *g)
{
    struct str s = { 0 };
    int next = 0;

    out->of = g->n ? g->part[0].of : 0;
    for (size_t i = 0; i <= g->n; i++) {
        int first = i < g->n ? g->part[i].first : out->of;

        if (first == next + 1)
            str_addf(&s, "%s%d", s.len ? ", " : "", next);
        else if (first > next)
            str_addf(&s, "%s%d-%d", s.len ? ", " : "", next, first - 1);
        if (i < g->n) {
            out->files += g->part[i].last - g->part[i].first + 1;
            next = g->part[i].last + 1;
        }
    }
    snprintf(out->missing, sizeof(out->missing), "%s", str_text(&s));
    str_clear(&s);
    return !g->n || out->files < out->of;
}

/* ---- the manifest ---- */

/* Takes what part I made from its manifest. */
static int take_manifest(struct gather *g, size_t i, struct err *err)
{
    const struct partset_record *r = &g->part[i];
    char *path = fs_join_dup(g->dir[i], PARTSET_MANIFEST);
    struct manifest m;
    int ret = -1;

    if (manifest_read(&m, path, err) < 0)
        goto out;
    if (m.nparts != r->of || m.ntensors != r->ntensors ||
        (i && (m.nfiles != g->m.nfiles || m.nsources != g->m.nsources))) {
        err_set(err, ERR_INPUT, "%s: is not the manifest of its part", path);
        manifest_clear(&m);
        goto out;
    }
    if (!i)
        g->crc = xcalloc(m.ntensors * (size_t)m.nparts + 1, sizeof(*g->crc));
    for (size_t t = 0; t < m.ntensors; t++)
        for (int p = r->first; p <= r->last; p++)
            g->crc[t * (size_t)m.nparts + (size_t)p] = m.tensor[t].crc[p];
    if (!i) {
        char *family = str_dupf("%s\n", m.family); /* as model_family_text has it */

        g->m = m;
        g->m.family = pool_strdup(&g->m.pool, family);
        free(family);
        ret = 0;
        goto out;
    }
    for (int p = r->first; p <= r->last; p++) {
        g->m.file[p].size = m.file[p].size;
        g->m.file[p].crc = m.file[p].crc;
    }
    ret = 0;
    for (size_t f = (size_t)m.nparts; f < m.nfiles && ret == 0; f++)
        if (m.file[f].crc != g->m.file[f].crc || m.file[f].size != g->m.file[f].size ||
            strcmp(m.file[f].name, g->m.file[f].name) != 0)
            ret = err_set(err, ERR_INPUT,
                          "%s/%s differs from that of %s; they are parts of different "
                          "runs",
                          g->dir[i], m.file[f].name, g->dir[0]);
    manifest_clear(&m);
out:
    free(path);
    return ret;
}

/* The CRC-32s of the files of an unsharded source, of the tensors' CRC-32s WHOLE. */
static int sum_sources(struct gather *g, const uint32_t *whole, struct err *err)
{
    size_t t = 0;

    for (size_t f = 0; f < g->m.nsources; f++) {
        struct manifest_source *s = &g->m.source[f];
        struct tensor_index index = { 0 };
        unsigned char length[8];
        struct safetensors st;
        int ret = 0;

        if (safetensors_parse(&st, s->name, s->header, s->header_len, s->size, err) < 0)
            return -1;
        tensor_index_init(&index, st.tensor, st.n);
        safetensors_put_length(length, s->header_len);
        s->crc =
            hash_crc32(hash_crc32(0, length, sizeof(length)), s->header, s->header_len);
        for (size_t i = 0; i < st.n && ret == 0; i++, t++) {
            long at =
                t < g->m.ntensors ? tensor_index_find(&index, g->m.tensor[t].name) : -1;

            if (at < 0)
                ret = err_set(err, ERR_INPUT, "%s: its header does not name tensor %zu",
                              s->name, t);
            else
                s->crc = hash_crc32_join(s->crc, whole[t], st.tensor[at].size);
        }
        tensor_index_clear(&index);
        safetensors_clear(&st);
        if (ret < 0)
            return -1;
    }
    return 0;
}

/* Joins the shares of what all parts read.  From a sharded source they must be 0. */
static int join_shares(struct gather *g, struct err *err)
{
    const struct partset_record *r = g->part;
    size_t words = r->ntensors * r->nshares;
    uint32_t *all = xcalloc(words + 1, sizeof(*all));
    bool sharded = str_starts(r->request, "cut sharded ");
    int ret = 0;

    for (size_t i = 0; i < g->n; i++)
        for (size_t k = 0; k < words; k++)
            all[k] ^= g->part[i].share[k];
    for (size_t k = 0; k < words && sharded && ret == 0; k++)
        if (all[k])
            ret = err_set(err, ERR_INPUT,
                          "%s: tensor %s of file %zu of the source was damaged, or "
                          "changed between the parts",
                          g->path, g->m.tensor[k / r->nshares].name, k % r->nshares);
    if (ret == 0 && !sharded)
        ret = sum_sources(g, all, err);
    free(all);
    return ret;
}

static int make_manifest(struct gather *g, struct err *err)
{
    for (size_t i = 0; i < g->n; i++)
        if (take_manifest(g, i, err) < 0)
            return -1;
    for (size_t t = 0; t < g->m.ntensors; t++)
        g->m.tensor[t].crc = g->crc + t * (size_t)g->m.nparts;
    return join_shares(g, err);
}

/* ---- files ---- */

/* Links the open file FD, NAME in the directory DIR, into the output.  *LINKED stays
 * false where the file system, or who may write to the file, does not allow it. */
static int link_file(struct gather *g, int fd, const char *path, const char *name,
                     bool *linked, struct err *err)
{
    struct stat opened, made;
    char *to;
    int ret = -1;

    *linked = false;
    if (fstat(fd, &opened) < 0)
        return err_errno(err, "%s", path);
    if (opened.st_uid != geteuid() || (opened.st_mode & (S_IWGRP | S_IWOTH)))
        return 0;
    to = fs_join_dup(g->out.partial, name);
    if (fs_remove_tree_at(g->out.dir, name, to, err) < 0)
        goto out;
    ret = 0;
    if (linkat(AT_FDCWD, path, g->out.dir, name, 0) < 0) {
        if (errno != EXDEV && errno != EPERM && errno != EMLINK && errno != EOPNOTSUPP)
            ret = err_errno(err, "%s", to);
        goto out;
    }
    if (fstatat(g->out.dir, name, &made, AT_SYMLINK_NOFOLLOW) < 0)
        ret = err_errno(err, "%s", to);
    else if (made.st_ino != opened.st_ino || made.st_dev != opened.st_dev)
        ret = err_set(err, ERR_SYSTEM, "%s: was replaced while it was read", path);
    *linked = ret == 0;
out:
    free(to);
    return ret;
}

/* Copies the open file FD, of F's size, and checks its CRC-32. */
static int copy_file(struct gather *g, int fd, const char *path,
                     const struct partset_file *f, mode_t mode, struct err *err)
{
    char *to = fs_join_dup(g->out.partial, f->name), *buf = xmalloc(BLOCK);
    int made = outdir_create(&g->out, f->name, err), ret = made < 0 ? -1 : 0;
    uint32_t crc = 0;

    for (uint64_t at = 0; at < f->size && ret == 0; at += BLOCK) {
        size_t n = f->size - at < BLOCK ? (size_t)(f->size - at) : BLOCK;

        if (fs_pread(fd, buf, n, at, path, err) < 0 ||
            fs_pwrite(made, buf, n, at, to, err) < 0)
            ret = -1;
        crc = hash_crc32(crc, buf, n);
    }
    if (ret == 0 && crc != f->crc)
        ret = err_set(err, ERR_INPUT,
                      "%s: damaged: CRC-32 %08" PRIx32 ", should be %08" PRIx32, path,
                      crc, f->crc);
    if (ret == 0)
        ret = outdir_share(&g->out, made, mode, to, err);
    if (ret == 0 && fsync(made) < 0)
        ret = err_errno(err, "%s", to);
    if (made >= 0)
        close(made);
    free(buf);
    free(to);
    return ret;
}

/* Compares the open file FD with what the part recorded of F. */
static int check_file(int fd, const char *path, const struct partset_file *f,
                      struct err *err)
{
    char *buf = xmalloc(BLOCK);
    uint32_t crc = 0;
    int ret = 0;

    for (uint64_t at = 0; at < f->size && ret == 0; at += BLOCK) {
        size_t n = f->size - at < BLOCK ? (size_t)(f->size - at) : BLOCK;

        ret = fs_pread(fd, buf, n, at, path, err);
        crc = hash_crc32(crc, buf, n);
    }
    free(buf);
    return ret < 0 ? -1
           : crc == f->crc
               ? 0
               : err_set(err, ERR_INPUT,
                         "%s: damaged: CRC-32 %08" PRIx32 ", should be %08" PRIx32,
                         path, crc, f->crc);
}

/* Puts the weight file F of the part in DIR into the output.  What came from another
 * machine is read; of what was made here each byte was counted when it was written. */
static int place_file(struct gather *g, const char *dir, const struct partset_file *f,
                      struct err *err)
{
    char *path = fs_join_dup(dir, f->name);
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), ret = -1;
    struct stat st;
    bool linked;

    if (fd < 0 && (errno == ENOENT || errno == ELOOP))
        err_set(err, ERR_INPUT, "%s: missing", path);
    else if (fd < 0 || fstat(fd, &st) < 0)
        err_errno(err, "%s", path);
    else if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != f->size)
        err_set(err, ERR_INPUT, "%s: %" PRIu64 " bytes, should be %" PRIu64, path,
                (uint64_t)st.st_size, f->size);
    else if (link_file(g, fd, path, f->name, &linked, err) == 0)
        ret = !linked     ? copy_file(g, fd, path, f, st.st_mode, err)
              : g->copied ? check_file(fd, path, f, err)
                          : 0;
    if (fd >= 0)
        close(fd);
    free(path);
    return ret;
}

static int place_small(struct gather *g, const char *dir, const struct partset_file *f,
                       struct err *err)
{
    char *path = fs_join_dup(dir, f->name), *text;
    struct stat st;
    size_t n;
    int ret = fs_read_regular(&text, &n, path, UINT32_MAX, err);

    if (ret == 0 && (n != f->size || hash_crc32(0, text, n) != f->crc))
        ret =
            err_set(err, ERR_INPUT, "%s: is not the file that the part recorded", path);
    if (ret == 0 && stat(path, &st) < 0)
        ret = err_errno(err, "%s", path);
    if (ret == 0)
        ret = outdir_write(&g->out, f->name, text, n, st.st_mode, err);
    free(text);
    free(path);
    return ret;
}

static int place_files(struct gather *g, struct partset_result *out, struct err *err)
{
    for (size_t i = 0; i < g->n; i++)
        for (size_t k = 0; k < g->part[i].nfiles; k++) {
            const struct partset_file *f = &g->part[i].file[k];

            if (f->small ? i == 0 && place_small(g, g->dir[i], f, err) < 0
                         : place_file(g, g->dir[i], f, err) < 0)
                return -1;
            out->bytes += f->small ? 0 : f->size;
        }
    return 0;
}

/* The permission bits that the weight files of the first part have. */
static mode_t mode_of(const struct gather *g)
{
    char *path = fs_join_dup(g->dir[0], g->part[0].file[0].name);
    struct stat st;
    mode_t mode = stat(path, &st) == 0 ? st.st_mode : 0600;

    free(path);
    return mode;
}

/* ---- the whole ---- */

static int put_together(struct gather *g, struct partset_result *out, bool force,
                        struct err *err)
{
    const struct partset_record *first = &g->part[0];
    const char **names = NULL;
    size_t n = 0, cap = 0;
    int ret = -1;

    g->cut = str_starts(first->request, "cut ");
    if (g->cut && make_manifest(g, err) < 0)
        return -1;
    for (size_t i = 0; i < g->n; i++)
        for (size_t k = 0; k < g->part[i].nfiles; k++) {
            names = xgrow(names, &cap, n + 1, sizeof(*names));
            names[n++] = g->part[i].file[k].name;
        }
    if (outdir_open(&g->out, g->path, first->request, "gather", force, names, n, err) <
            0 ||
        place_files(g, out, err) < 0 ||
        (g->cut &&
         describe_write(&g->m, &g->out, MANIFEST_NAME, mode_of(g), err) < 0) ||
        outdir_finish(&g->out, err) < 0)
        goto out;
    out->done = true;
    ret = 0;
out:
    free(names);
    return ret;
}

static int gather(struct gather *g, struct partset_result *out, bool force,
                  struct err *err)
{
    if (check_requests(g, err) < 0)
        return -1;
    return find_missing(out, g) ? 0 : put_together(g, out, force, err);
}

/* Locks the directory of parts, so that of two jobs that end at the same time one puts
 * the output together; *fd is -1 if it is gone: another job did. */
static int lock_parts(int *fd, const char *dir, struct err *err)
{
    struct stat opened, named;

    *fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (*fd < 0)
        return errno == ENOENT ? 0 : err_errno(err, "%s", dir);
    while (flock(*fd, LOCK_EX) < 0)
        if (errno != EINTR) {
            err_errno(err, "%s", dir);
            close(*fd);
            return -1;
        }
    if (fstat(*fd, &opened) == 0 && lstat(dir, &named) == 0 &&
        opened.st_ino == named.st_ino && opened.st_dev == named.st_dev)
        return 0;
    close(*fd);
    *fd = -1;
    return 0;
}

static int gather_own(struct gather *g, struct partset_result *out, bool force,
                      struct err *err)
{
    char *part = partset_part_dup(g->path, 0, 0), *dir = fs_dirname_dup(part);
    bool found;
    int fd = -1, ret = -1;

    if (lock_parts(&fd, dir, err) < 0)
        goto out;
    if (fd < 0) {
        ret = fs_find(&found, g->path, err);
        out->done = ret == 0 && found;
        if (ret == 0 && !found)
            ret = err_set(err, ERR_INPUT, "%s: no parts of it are there", g->path);
        goto out;
    }
    if (add_parts(g, dir, err) < 0 || gather(g, out, force, err) < 0)
        goto out;
    ret = out->done ? fs_remove_tree(dir, err) : 0;
out:
    if (fd >= 0)
        close(fd);
    free(part);
    free(dir);
    return ret;
}

int partset_gather(struct partset_result *out, const char *path, char *const *dirs,
                   size_t n, bool force, struct err *err)
{
    struct gather g = { .path = path,
                        .out = { .dir = -1, .journal = -1 },
                        .copied = n > 0 };
    int ret = 0;

    *out = (struct partset_result){ 0 };
    for (size_t i = 0; i < n && ret == 0; i++) {
        size_t before = g.n;
        bool found = false;

        ret = add_part(&g, dirs[i], &found, err);
        if (ret == 0 && !found)
            ret = add_parts(&g, dirs[i], err);
        if (ret == 0 && g.n == before)
            ret = err_set(err, ERR_INPUT, "%s: neither a part nor a directory of parts",
                          dirs[i]);
    }
    if (ret == 0)
        ret = n ? gather(&g, out, force, err) : gather_own(&g, out, force, err);
    clear(&g);
    return ret;
}
