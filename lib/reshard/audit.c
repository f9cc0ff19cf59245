/* audit - a consistency check of a checkpoint */
#include "lib/reshard/audit.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/hash.h"
#include "lib/base/mem.h"
#include "lib/ckpt/safetensors.h"
#include "lib/ckpt/zip.h"
#include "lib/reshard/rankconfig.h"

enum { CHUNK = 1 << 18, PAGE = 1 << 16 /* a multiple of any machine's page */ };

/* The findings of one file, kept until the findings of earlier files were reported. */
struct report {
    struct str lines; /* file NUL tensor NUL text NUL, repeated */
    uint64_t bytes;
    struct err unread; /* the first, as in struct audit */
};

static void note(struct report *r, const char *file, const char *tensor,
                 const char *text)
{
    str_addn(&r->lines, file, strlen(file) + 1);
    str_addn(&r->lines, tensor ? tensor : "", (tensor ? strlen(tensor) : 0) + 1);
    str_addn(&r->lines, text, strlen(text) + 1);
}

/* Strips the path of the file from the start of an error's text: the finding has the
 * file already. */
static void note_error(struct report *r, const char *file, const char *path,
                       const struct err *err)
{
    const char *text = err->text;

    if (str_starts(text, path) && text[strlen(path)] == ':')
        text += strlen(path) + 2;
    note(r, file, NULL, text);
    if (err->kind == ERR_SYSTEM && !r->unread.kind)
        r->unread = *err;
}

/* stat() of PATH has failed: FILE is absent, or could not be looked at. */
static void note_stat(struct report *r, const char *file, const char *path)
{
    struct err err = { 0 };

    if (errno == ENOENT || errno == ENOTDIR) {
        note(r, file, NULL, "missing");
        return;
    }
    err_errno(&err, "%s", path);
    note_error(r, file, path, &err);
}

static void tell(struct audit *a, struct report *r)
{
    const char *p = str_text(&r->lines), *end = p + r->lines.len;

    while (p < end) {
        const char *tensor = p + strlen(p) + 1, *text = tensor + strlen(tensor) + 1;

        a->finding(a->arg, p, *tensor ? tensor : NULL, text);
        a->findings++;
        p = text + strlen(text) + 1;
    }
    if (!a->unread.kind)
        a->unread = r->unread;
    a->bytes += r->bytes;
    a->files++;
    str_clear(&r->lines);
}

/* CRC-32 of N bytes of FD from OFFSET. */
static int range_crc(uint32_t *crc, int fd, uint64_t offset, uint64_t n, char *buf,
                     const char *path, struct err *err)
{
    uint32_t sum = 0;

    while (n) {
        size_t step = n < CHUNK ? (size_t)n : CHUNK;

        if (fs_pread(fd, buf, step, offset, path, err) < 0)
            return -1;
        sum = hash_crc32(sum, buf, step);
        offset += step;
        n -= step;
    }
    *crc = sum;
    return 0;
}

static int compare_offsets(const void *a, const void *b)
{
    const struct tensor *x = a, *y = b;

    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x->size < y->size ? -1 : x->size > y->size;
}

/* ---- a shard file ---- */

/* Compares the tensors of ST, in the order of their data, with the manifest; *crc
 * becomes the CRC-32 of the file. */
static int check_tensors(const struct checkpoint *c, int p, int fd, const char *path,
                         struct safetensors *st, const struct tensor_index *index,
                         struct report *r, uint32_t *crc, struct err *err)
{
    const struct manifest *m = &c->manifest;
    const char *file = m->file[p].name;
    char *buf = xmalloc(CHUNK), text[80];
    bool *found = xcalloc(m->ntensors, sizeof(*found));
    uint32_t sum;
    int ret = -1;

    if (range_crc(crc, fd, 0, st->data, buf, path, err) < 0)
        goto out;
    if (st->n)
        qsort(st->tensor, st->n, sizeof(*st->tensor), compare_offsets);
    for (size_t i = 0; i < st->n; i++) {
        const struct tensor *t = &st->tensor[i];
        long at = tensor_index_find(index, t->name);

        if (range_crc(&sum, fd, t->offset, t->size, buf, path, err) < 0)
            goto out;
        *crc = hash_crc32_join(*crc, sum, t->size);
        if (at < 0 || !manifest_holds(&m->tensor[at], p)) {
            note(r, file, t->name, "does not belong to this file");
            continue;
        }
        found[at] = true;
        if (sum == m->tensor[at].crc[p])
            continue;
        snprintf(text, sizeof(text),
                 "damaged: CRC-32 %08" PRIx32 ", should be %08" PRIx32, sum,
                 m->tensor[at].crc[p]);
        note(r, file, t->name, text);
    }
    for (size_t i = 0; i < m->ntensors; i++)
        if (manifest_holds(&m->tensor[i], p) && !found[i])
            note(r, file, m->tensor[i].name, "missing");
    ret = 0;
out:
    free(buf);
    free(found);
    return ret;
}

static void check_part(const struct checkpoint *c, int p,
                       const struct tensor_index *index, struct report *r)
{
    const struct manifest_file *f = &c->manifest.file[p];
    char *path = fs_join_dup(c->path, f->name), text[80];
    struct safetensors st;
    struct err err = { 0 };
    uint32_t crc;
    int fd = fs_open_regular(path, &err);

    if (fd < 0) {
        note_error(r, f->name, path, &err);
        goto out;
    }
    if (safetensors_read(&st, NULL, fd, path, &err) < 0) {
        note_error(r, f->name, path, &err);
        goto out;
    }
    r->bytes = st.size;
    if (st.size != f->size) {
        snprintf(text, sizeof(text), "%" PRIu64 " bytes, should be %" PRIu64, st.size,
                 f->size);
        note(r, f->name, NULL, text);
    }
    if (check_tensors(c, p, fd, path, &st, index, r, &crc, &err) < 0) {
        note_error(r, f->name, path, &err);
    } else if (crc != f->crc && !r->lines.len) {
        snprintf(text, sizeof(text),
                 "its header is damaged: CRC-32 %08" PRIx32 ", should be %08" PRIx32,
                 crc, f->crc);
        note(r, f->name, NULL, text);
    }
    safetensors_clear(&st);
out:
    if (fd >= 0)
        close(fd);
    free(path);
}

/* ---- other files ---- */

/* Checks size and CRC-32 of DIR/NAME. */
static void check_file(const char *dir, const char *name, uint64_t size, uint32_t crc,
                       struct report *r)
{
    char *path = fs_join_dup(dir, name), *buf = xmalloc(CHUNK), text[80];
    struct err err = { 0 };
    int fd = fs_open_regular(path, &err);
    uint64_t found_size;
    uint32_t found;

    if (fd < 0) {
        note_error(r, name, path, &err);
    } else if (fs_size(&found_size, path, &err) < 0) {
        note_error(r, name, path, &err);
    } else if (found_size != size) {
        snprintf(text, sizeof(text), "%" PRIu64 " bytes, should be %" PRIu64,
                 found_size, size);
        note(r, name, NULL, text);
    } else if (range_crc(&found, fd, 0, size, buf, path, &err) < 0) {
        note_error(r, name, path, &err);
    } else if (found != crc) {
        snprintf(text, sizeof(text),
                 "damaged: CRC-32 %08" PRIx32 ", should be %08" PRIx32, found, crc);
        note(r, name, NULL, text);
    }
    r->bytes = size;
    if (fd >= 0)
        close(fd);
    free(buf);
    free(path);
}

/* Checks the directory in which shard P can be opened as a model of its own:
 * config.json, and the weights, a link to the shard file. */
static void check_rank_config(const struct checkpoint *c, int p, struct report *r)
{
    const struct manifest *m = &c->manifest;
    char *dir = manifest_config_dir_dup(m->mesh, p);
    char *config = str_dupf("%s/config.json", dir);
    char *weights = str_dupf("%s/%s", dir, RANKCONFIG_WEIGHTS);
    char *path = fs_join_dup(c->path, config), *link = fs_join_dup(c->path, weights);
    char *rank = fs_join_dup(c->path, m->file[p].name);
    struct stat of_link, of_rank;
    struct err err = { 0 };
    uint64_t size;
    bool found;

    if (fs_find(&found, path, &err) < 0)
        note_error(r, config, path, &err);
    else if (!found)
        note(r, config, NULL, "missing");
    else if (fs_size(&size, path, &err) < 0)
        note_error(r, config, path, &err);
    else
        check_file(c->path, config, size, m->rank_config[p], r);
    if (stat(link, &of_link) < 0)
        note_stat(r, weights, link);
    else if (stat(rank, &of_rank) < 0)
        note_stat(r, weights, rank);
    else if (of_link.st_ino != of_rank.st_ino || of_link.st_dev != of_rank.st_dev)
        note(r, weights, NULL, "is not the rank file");
    free(dir);
    free(config);
    free(weights);
    free(path);
    free(link);
    free(rank);
}

static void check_rank_configs(struct audit *a, const struct checkpoint *c)
{
    for (int p = 0; c->manifest.rank_config && p < c->manifest.nparts; p++) {
        struct report r = { 0 };

        if (a->part && !a->part[p])
            continue;
        check_rank_config(c, p, &r);
        tell(a, &r);
    }
}

/* Reports shard files that the manifest does not list. */
static int find_foreign(struct audit *a, const struct checkpoint *c, struct err *err)
{
    char **names;
    size_t n;

    if (fs_list(&names, &n, c->path, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        bool listed =
            !str_starts(names[i], "rank-") || !str_ends(names[i], ".safetensors");

        for (size_t f = 0; f < c->manifest.nfiles && !listed; f++)
            listed = !strcmp(names[i], c->manifest.file[f].name);
        if (!listed) {
            a->finding(a->arg, names[i], NULL, "not listed in the manifest");
            a->findings++;
        }
    }
    fs_list_free(names, n);
    return 0;
}

/* ---- threads ---- */

struct work {
    const struct checkpoint *c;
    const struct audit *a;
    const struct tensor_index *index;
    struct report *report; /* [nfiles] */
    size_t next;
    pthread_mutex_t lock;
};

static bool wanted(const struct work *w, size_t f)
{
    int p = w->c->manifest.file[f].part;

    return !w->a->part || (p >= 0 && w->a->part[p]);
}

static void *work_on_files(void *arg)
{
    struct work *w = arg;

    for (;;) {
        const struct manifest_file *f;
        size_t i;

        pthread_mutex_lock(&w->lock);
        i = w->next++;
        pthread_mutex_unlock(&w->lock);
        if (i >= w->c->manifest.nfiles)
            return NULL;
        f = &w->c->manifest.file[i];
        if (!wanted(w, i))
            continue;
        if (f->part >= 0)
            check_part(w->c, f->part, w->index, &w->report[i]);
        else
            check_file(w->c->path, f->name, f->size, f->crc, &w->report[i]);
    }
}

int audit_checkpoint(struct audit *a, struct checkpoint *c, struct err *err)
{
    struct tensor_index index = { 0 };
    struct work w = { .c = c,
                      .a = a,
                      .index = &index,
                      .report = xcalloc(c->manifest.nfiles, sizeof(*w.report)) };
    pthread_t *thread = xcalloc((size_t)a->threads, sizeof(*thread));
    int started = 0;

    tensor_index_init(&index, c->tensor, c->ntensors);
    pthread_mutex_init(&w.lock, NULL);
    while (started < a->threads - 1 &&
           pthread_create(&thread[started], NULL, work_on_files, &w) == 0)
        started++;
    work_on_files(&w);
    for (int i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
    pthread_mutex_destroy(&w.lock);
    for (size_t i = 0; i < c->manifest.nfiles; i++)
        if (wanted(&w, i))
            tell(a, &w.report[i]);
    free(w.report);
    free(thread);
    tensor_index_clear(&index);
    check_rank_configs(a, c);
    return a->part ? 0 : find_foreign(a, c, err);
}

int audit_against(struct audit *a, const struct checkpoint *c, const char *dir,
                  struct err *err)
{
    bool is_dir;

    if (fs_find_dir(&is_dir, dir, err) < 0)
        return -1;
    if (!is_dir)
        return err_set(err, ERR_INPUT, "%s: not a directory", dir);
    if (c->manifest.training)
        return err_set(err, ERR_INPUT, "%s: has been trained: it has no original",
                       c->path);
    for (size_t i = 0; i < c->manifest.nsources; i++) {
        const struct manifest_source *s = &c->manifest.source[i];
        struct report r = { 0 };

        if (s->origin)
            check_file(dir, s->origin, s->origin_size, s->origin_crc, &r);
        else
            check_file(dir, s->name, s->size, s->crc, &r);
        tell(a, &r);
    }
    return 0;
}

/* ---- archives of torch.save ---- */

/* Checks the members of the archive at AT, which is in the open file FD. */
static int check_archive(struct audit *a, const struct source *s,
                         const struct source_archive *at, int fd, char *buf,
                         struct err *err)
{
    const struct source_input *in = &s->input[at->input];
    uint64_t start = at->offset - at->offset % PAGE, skipped = at->offset - start;
    size_t mapped = (size_t)(skipped + at->size);
    unsigned char *map = mmap(NULL, mapped, PROT_READ, MAP_PRIVATE, fd, (off_t)start);
    struct zip z;
    int ret = 0;

    if (map == MAP_FAILED)
        return err_errno(err, "%s", in->path);
    if (zip_read(&z, in->path, map + skipped, at->size, err) < 0) {
        munmap(map, mapped);
        return -1;
    }
    for (size_t i = 0; i < z.n && ret == 0; i++) {
        const struct zip_member *m = &z.member[i];
        uint32_t crc;
        char text[160];

        if (!m->stored)
            continue;
        ret = range_crc(&crc, fd, at->offset + m->offset, m->size, buf, in->path, err);
        if (ret < 0 || crc == m->crc)
            continue;
        snprintf(text, sizeof(text),
                 "member %.60s at byte %" PRIu64 ": its CRC-32 is %08" PRIx32
                 ", the archive's %08" PRIx32,
                 m->name, at->offset + m->offset, crc, m->crc);
        a->finding(a->arg, in->name, NULL, text);
        a->findings++;
    }
    zip_clear(&z);
    munmap(map, mapped);
    return ret;
}

int audit_archives(struct audit *a, const struct source *s, struct err *err)
{
    char *buf = xmalloc(CHUNK);
    int fd = -1, open = -1, ret = 0;

    for (size_t i = 0; i < s->narchives && ret == 0; i++) {
        int input = s->archive[i].input;

        if (input != open) {
            if (fd >= 0)
                close(fd);
            fd = fs_open_regular(s->input[input].path, err);
            open = input;
        }
        ret = fd < 0 ? -1 : check_archive(a, s, &s->archive[i], fd, buf, err);
    }
    if (fd >= 0)
        close(fd);
    a->files += s->ninputs;
    for (size_t i = 0; i < s->ninputs; i++)
        a->bytes += s->input[i].size;
    free(buf);
    return ret;
}

/* ---- lists of checksums ---- */

/* Appends the lines of input F of S to OUT: the file's and its tensors'. */
static int sum_file(struct str *out, const struct source *s, size_t f, char *buf,
                    struct err *err)
{
    const struct source_input *file = &s->input[f];
    bool whole = s->file[0].header; /* as one range, in which tensors are not told */
    int fd = fs_open_regular(file->path, err);
    struct str lines = { 0 };
    uint32_t crc, sum;
    int ret = -1;

    if (fd < 0)
        return -1;
    if (range_crc(&crc, fd, 0, whole ? file->size : s->file[f].data, buf, file->path,
                  err) < 0)
        goto out;
    for (size_t i = 0; i < s->n && !whole; i++) {
        const struct tensor *t = &s->tensor[i];

        if (t->file != (int)f)
            continue;
        if (range_crc(&sum, fd, t->offset, t->size, buf, file->path, err) < 0)
            goto out;
        crc = hash_crc32_join(crc, sum, t->size);
        str_addf(&lines, "%08" PRIx32 "\t%" PRIu64 "\t%s\t", sum, t->size, file->name);
        str_add_json(&lines, t->name);
        str_addc(&lines, '\n');
    }
    str_addf(out, "%08" PRIx32 "\t%" PRIu64 "\t%s\n%s", crc, file->size, file->name,
             str_text(&lines));
    ret = 0;
out:
    str_clear(&lines);
    close(fd);
    return ret;
}

int audit_sum(struct str *out, const struct source *s, struct err *err)
{
    char *buf = xmalloc(CHUNK);
    int ret = 0;

    for (size_t f = 0; f < s->ninputs && ret == 0; f++)
        ret = sum_file(out, s, f, buf, err);
    free(buf);
    return ret;
}

/* The part of a line after CRC and size: "FILE" or "FILE\t\"TENSOR\"". */
static const char *line_name(const char *line)
{
    const char *tab = strchr(line, '\t');

    tab = tab ? strchr(tab + 1, '\t') : NULL;
    return tab ? tab + 1 : NULL;
}

static void report_line(struct audit *a, char *name, const char *text)
{
    char *tab = strchr(name, '\t');

    if (tab)
        *tab = '\0';
    a->finding(a->arg, name, tab ? tab + 1 : NULL, text);
    a->findings++;
}

static int compare_lines(const void *a, const void *b)
{
    return strcmp(line_name(*(char *const *)a), line_name(*(char *const *)b));
}

/* Splits TEXT into lines, sorted by name; a line that audit_sum cannot have written is
 * ERR_INPUT. */
static int sort_lines(char ***lines, size_t *n, char *text, const char *name,
                      struct err *err)
{
    char **list = NULL;
    size_t count = 0, cap = 0;

    for (char *line = text, *end; *line; line = end + 1) {
        end = line + strcspn(line, "\n");
        list = xgrow(list, &cap, count + 1, sizeof(*list));
        list[count++] = line;
        if (!*end || strspn(line, "0123456789abcdef") != 8 ||
            (*end = '\0', !line_name(line))) {
            free(list);
            return err_set(err, ERR_INPUT, "%s:%zu: not a line of checksums", name,
                           count);
        }
    }
    if (count)
        qsort(list, count, sizeof(*list), compare_lines);
    *lines = list;
    *n = count;
    return 0;
}

int audit_compare(struct audit *a, const struct source *s, const char *name,
                  const char *lines, struct err *err)
{
    struct str now = { 0 };
    char *then_text = xstrdup(lines);
    char **old = NULL, **new = NULL;
    size_t nold = 0, nnew = 0, i = 0, k = 0;
    int ret = -1;

    if (audit_sum(&now, s, err) < 0)
        goto out;
    str_addn(&now, "", 0);
    if (sort_lines(&old, &nold, then_text, name, err) < 0 ||
        sort_lines(&new, &nnew, now.s, s->path, err) < 0)
        goto out;
    while (i < nold || k < nnew) {
        int order = i == nold ? 1 : k == nnew ? -1 : compare_lines(&old[i], &new[k]);

        if (order < 0) {
            report_line(a, (char *)line_name(old[i++]), "missing");
        } else if (order > 0) {
            report_line(a, (char *)line_name(new[k++]), "not in the list");
        } else {
            if (strcmp(old[i], new[k]))
                report_line(a, (char *)line_name(new[k]), "differs from the list");
            i++;
            k++;
        }
    }
    a->files += s->ninputs;
    for (size_t f = 0; f < s->ninputs; f++)
        a->bytes += s->input[f].size;
    ret = 0;
out:
    str_clear(&now);
    free(then_text);
    free(old);
    free(new);
    return ret;
}
