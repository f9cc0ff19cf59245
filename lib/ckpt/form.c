/* form - what the forms of checkpoints have in common */
#include "lib/ckpt/form.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/ckpt/safetensors.h"

enum { NAMES_LEAST = 4 << 20, POOL_LEAST = 64 << 20 };

int form_add_input(struct source *s, const char *name, const char *path, int *input,
                   int *fd, struct err *err)
{
    int opened = fs_open_regular(path, err);
    struct source_input *in;
    struct stat status;

    if (opened < 0)
        return -1;
    if (fstat(opened, &status) < 0) {
        err_errno(err, "%s", path);
        close(opened);
        return -1;
    }
    s->input = xgrow(s->input, &s->input_cap, s->ninputs + 1, sizeof(*s->input));
    *input = (int)s->ninputs;
    in = &s->input[s->ninputs++];
    *in = (struct source_input){
        .name = pool_strdup(&s->pool, name),
        .path = pool_strdup(&s->pool, path),
        .size = (uint64_t)status.st_size,
        .mtime_ns =
            (int64_t)status.st_mtim.tv_sec * 1000000000 + status.st_mtim.tv_nsec,
        .ctime_ns =
            (int64_t)status.st_ctim.tv_sec * 1000000000 + status.st_ctim.tv_nsec,
        .inode = (uint64_t)status.st_ino,
    };
    if (fd)
        *fd = opened;
    else
        close(opened);
    return 0;
}

int form_keep_name(struct source *s, const char **out, const char *name, uint64_t read,
                   const char *path, struct err *err)
{
    s->named += 6 * strlen(name); /* as it may be in a header */
    if (s->named > NAMES_LEAST + 8 * read || s->pool.taken > POOL_LEAST + 32 * read)
        return mem_refuse(path, read, err);
    *out = pool_strdup(&s->pool, name);
    return 0;
}

void form_add_archive(struct source *s, int input, uint64_t offset, uint64_t size)
{
    s->archive =
        xgrow(s->archive, &s->archive_cap, s->narchives + 1, sizeof(*s->archive));
    s->archive[s->narchives++] = (struct source_archive){ input, offset, size };
}

int form_add_state(struct source *s, const struct tensor *t, const char *weight,
                   const char *role, uint64_t read, const char *path, struct err *err)
{
    char *name = str_dupf("%s.%s", weight, role);
    struct tensor *made;
    int ret;

    s->state = xgrow(s->state, &s->state_cap, s->nstates + 1, sizeof(*s->state));
    s->role = xgrow(s->role, &s->role_cap, s->nstates + 1, sizeof(*s->role));
    s->group = xgrow(s->group, &s->group_cap, s->nstates + 1, sizeof(*s->group));
    s->group[s->nstates] = -1;
    made = &s->state[s->nstates];
    *made = *t;
    s->role[s->nstates] = role;
    ret = form_keep_name(s, &made->name, name, read, path, err);
    s->nstates += ret == 0;
    free(name);
    return ret;
}

/* Orders tensors by name, and those of one name by the rank that has them. */
static int compare_places(const struct tensor *a, const struct tensor *b)
{
    int order = strcmp(a->name, b->name);

    return order ? order : (a->file > b->file) - (a->file < b->file);
}

static int compare_tensors(const void *a, const void *b)
{
    return compare_places(*(struct tensor *const *)a, *(struct tensor *const *)b);
}

/* Puts MASTER, of the weight of its name, in that one's place. */
static int use_master(struct source *s, struct tensor **sorted, size_t n,
                      const struct tensor *master, struct err *err)
{
    struct tensor **found =
        n ? bsearch(&master, sorted, n, sizeof(*sorted), compare_tensors) : NULL;
    struct tensor *t = found ? *found : NULL;
    const char *name = t ? t->name : NULL;
    int file = t ? t->file : 0;

    if (!t)
        return err_set(err, ERR_INPUT, "%s: a master of %s, which is no weight",
                       s->path, master->name);
    if (t->ndim != master->ndim ||
        memcmp(t->shape, master->shape, (size_t)t->ndim * sizeof(*t->shape)) != 0)
        return err_set(err, ERR_INPUT, "%s: the master of %s has another shape",
                       s->path, master->name);
    *t = *master;
    t->name = name;
    t->file = file;
    return 0;
}

int form_use_masters(struct source *s, struct tensor *t, size_t n, struct err *err)
{
    struct tensor **sorted = xmalloc((n + 1) * sizeof(*sorted));
    size_t kept = 0;
    int ret = 0;

    for (size_t i = 0; i < n; i++)
        sorted[i] = &t[i];
    if (n)
        qsort(sorted, n, sizeof(*sorted), compare_tensors);
    for (size_t i = 0; i < s->nstates && ret == 0; i++) {
        struct tensor master = s->state[i];

        if (strcmp(s->role[i], FORM_MASTER) != 0) {
            s->state[kept] = s->state[i];
            s->group[kept] = s->group[i];
            s->role[kept++] = s->role[i];
            continue;
        }
        master.name = pool_strndup(&s->pool, master.name,
                                   strlen(master.name) - strlen("." FORM_MASTER));
        ret = use_master(s, sorted, n, &master, err);
        s->mastered = true;
    }
    if (ret == 0)
        s->nstates = kept;
    free(sorted);
    return ret;
}

static uint64_t *keep_numbers(struct source *s, const uint64_t *numbers, int n)
{
    uint64_t *kept = pool_take(&s->pool, (size_t)n * sizeof(*kept), sizeof(*kept));

    memcpy(kept, numbers, (size_t)n * sizeof(*kept));
    return kept;
}

void form_add_tensors(struct source *s, const struct tensor *t, size_t n, size_t file,
                      size_t *cap)
{
    s->tensor = xgrow(s->tensor, cap, s->n + n, sizeof(*s->tensor));
    for (size_t i = 0; i < n; i++) {
        struct tensor *copy = &s->tensor[s->n++];

        *copy = t[i];
        copy->name = pool_strdup(&s->pool, t[i].name);
        copy->shape = keep_numbers(s, t[i].shape, t[i].ndim);
        if (t[i].stride)
            copy->stride = keep_numbers(s, t[i].stride, t[i].ndim);
        copy->file = (int)file;
    }
}

int form_present_file(struct source *s, size_t i, const struct tensor *t, size_t n,
                      size_t *cap, struct err *err)
{
    struct tensor *ordered = xmalloc((n + 1) * sizeof(*ordered));
    struct source_file *f = &s->file[i];
    struct safetensors_header h;
    size_t k = 0;
    int ret;

    safetensors_header_begin(&h, "{\"format\":\"pt\"}");
    for (int bits = 64; bits >= 8; bits /= 2) /* widest elements first, for alignment */
        for (size_t j = 0; j < n; j++)
            if (dtype_bits(t[j].dtype) == bits) {
                ordered[k++] = t[j];
                safetensors_header_add(&h, t[j].name, t[j].dtype, t[j].ndim, t[j].shape,
                                       t[j].size);
            }
    form_add_tensors(s, ordered, k, i, cap);
    ret = safetensors_header_finish(&h, f->name, err);
    f->data = h.text.len;
    f->whole = f->data + h.end;
    f->header = pool_strndup(&s->pool, h.text.s + 8, h.text.len - 8);
    safetensors_header_clear(&h);
    free(ordered);
    return ret;
}

void form_join_boxes(struct tensor *t)
{
    const struct boxes *b = t->boxes;

    if (!b || b->n > 1 || (b->n && b->box->input == BOXES_ZEROS))
        return;
    if (b->n && b->box->stride) {
        if (b->ndim != t->ndim ||
            memcmp(b->shape, t->shape, (size_t)t->ndim * sizeof(*t->shape)) != 0)
            return;
        t->stride = b->box->stride;
    }
    if (b->n) {
        t->input = b->box->input;
        t->offset = b->box->offset;
    }
    t->boxes = NULL;
}

/* The number of tensors from T on, of N, that fit in one file; at least 1. */
static size_t fit(const struct tensor *t, size_t n)
{
    uint64_t bytes = 0;
    size_t k = 0;

    while (k < n && (!k || (t[k].size <= FORM_FILE_BYTES &&
                            bytes <= FORM_FILE_BYTES - t[k].size)))
        bytes += t[k++].size;
    return k;
}

int form_present(struct source *s, const struct tensor *t, size_t n, struct err *err)
{
    const struct tensor *twice;
    struct tensor_index index;
    size_t nfiles = 0, cap = 0, first = 0;
    int ret = 0;

    twice = tensor_index_init(&index, t, n);
    tensor_index_clear(&index);
    if (twice)
        return err_set(err, ERR_INPUT, "%s: duplicate tensor '%s'", s->path,
                       twice->name);
    for (size_t at = 0; at < n; at += fit(t + at, n - at))
        nfiles++;
    nfiles += !nfiles;
    free(s->file);
    free(s->tensor);
    s->tensor = NULL;
    s->n = 0;
    s->nfiles = nfiles;
    s->file = xcalloc(nfiles, sizeof(*s->file));
    for (size_t i = 0; i < nfiles && ret == 0; i++) {
        size_t k = fit(t + first, n - first);
        char *name = nfiles > 1
                         ? str_dupf("model-%05zu-of-%05zu.safetensors", i + 1, nfiles)
                         : xstrdup("model.safetensors");

        s->file[i].name = pool_strdup(&s->pool, name);
        ret = form_present_file(s, i, t + first, k, &cap, err);
        first += k;
        free(name);
    }
    return ret;
}

int form_present_shards(struct source *s, struct err *err)
{
    struct tensor *t = xmalloc((s->nraw + 1) * sizeof(*t));
    int most = 0, ret;

    for (size_t i = 0; i < s->nraw; i++)
        most = s->raw[i].file > most ? s->raw[i].file : most;
    for (size_t i = 0; i < s->nraw; i++) {
        char *name = str_dupf("rank-%d.%s", s->raw[i].file, s->raw[i].name);

        t[i] = s->raw[i];
        if (most)
            t[i].name = pool_strdup(&s->pool, name);
        free(name);
    }
    ret = form_present(s, t, s->nraw, err);
    free(t);
    return ret;
}
