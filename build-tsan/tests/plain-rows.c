/* plain-rows - do rank files, read plainly, hold the rows that a plan names?
 *
 *   plain-rows PLAN DIRECTORY ORIGINAL...
 *
 * PLAN is what `tp-shard plan --json` printed, DIRECTORY has the rank files, and
 * ORIGINAL... are the safetensors files of the original.  For each slice of the plan
 * the elements that its runs name are taken from the original, axis by axis in
 * ascending order, and compared with the bytes under the same name in the rank file;
 * rank files may have nothing else.  Prints the number of slices.  Status 0: all agree;
 * 1: not; 3: a file cannot be read. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/json.h"
#include "lib/base/mem.h"
#include "lib/ckpt/safetensors.h"

struct file {
    char *path;
    int fd;
    struct safetensors st;
    size_t seen; /* of a rank file: slices that the plan has of it */
};

struct files {
    struct file *v;
    size_t n, cap;
};

static int files_add(struct files *f, const char *path, struct err *err)
{
    struct file new = { .path = xstrdup(path) };

    f->v = xgrow(f->v, &f->cap, f->n + 1, sizeof(*f->v));
    new.fd = open(path, O_RDONLY | O_CLOEXEC);
    if (new.fd < 0)
        return err_set(err, ERR_SYSTEM, "%s: %s", path, strerror(errno));
    if (safetensors_read(&new.st, NULL, new.fd, path, err) < 0)
        return -1;
    f->v[f->n++] = new;
    return 0;
}

static const struct tensor *find(const struct file *f, const char *name)
{
    for (size_t i = 0; i < f->st.n; i++)
        if (!strcmp(f->st.tensor[i].name, name))
            return &f->st.tensor[i];
    return NULL;
}

static unsigned char *read_tensor(const struct file *f, const struct tensor *t,
                                  struct err *err)
{
    unsigned char *bytes = xmalloc((size_t)t->size + 1);

    if (fs_pread(f->fd, bytes, (size_t)t->size, t->offset, f->path, err) == 0)
        return bytes;
    free(bytes);
    return NULL;
}

/* The indices that the list of [start, count] names, of an axis of SIZE; they must
 * ascend. */
static int list_indices(uint64_t **out, uint64_t *n, const struct json *runs,
                        uint64_t size, struct err *err)
{
    uint64_t *v = xmalloc((size_t)(size + 1) * sizeof(*v)), next = 0, count = 0;

    for (const struct json *r = runs->first; r; r = r->next) {
        uint64_t start, len;

        if (r->n != 2 || !json_u64(r->first, &start) ||
            !json_u64(r->first->next, &len) || start < next || start + len > size) {
            free(v);
            return err_set(err, ERR_NO, "runs that do not ascend within %llu elements",
                           (unsigned long long)size);
        }
        for (uint64_t i = 0; i < len; i++)
            v[count++] = start + i;
        next = start + len;
    }
    *out = v;
    *n = count;
    return 0;
}

/* Is element I of PART, of WIDTH bytes, element AT of WHOLE?  Numbers of GPTQ's groups
 * are counted from the part's first: less by *BASE, which is set at the first. */
static bool same(const unsigned char *part, uint64_t i, const unsigned char *whole,
                 uint64_t at, uint64_t width, const char *name, int32_t *base)
{
    size_t n = strlen(name);
    int32_t a, b;

    if (n < 6 || strcmp(name + n - 6, ".g_idx") != 0)
        return !memcmp(part + i * width, whole + at * width, (size_t)width);
    memcpy(&a, part + i * width, sizeof(a));
    memcpy(&b, whole + at * width, sizeof(b));
    *base = i ? *base : b - a;
    return b - a == *base;
}

/* Compare PART's bytes with the elements of WHOLE that AXES (NULL: all) names. */
static int compare(const struct tensor *w, const unsigned char *whole,
                   const struct tensor *p, const unsigned char *part,
                   const struct json *axes, struct err *err)
{
    uint64_t *index[TENSOR_MAX_DIMS] = { 0 }, count[TENSOR_MAX_DIMS], total = 1;
    uint64_t width = (uint64_t)dtype_bits(w->dtype) / 8;
    const struct json *axis = axes ? axes->first : NULL;
    int32_t base = 0;
    int ret = -1;

    if (!axes || !w->ndim)
        return p->size == w->size && !memcmp(whole, part, (size_t)w->size)
                   ? 0
                   : err_set(err, ERR_NO, "is not the whole tensor");
    for (int k = 0; k < w->ndim; k++, axis = axis->next) {
        if (!axis || list_indices(&index[k], &count[k], axis, w->shape[k], err) < 0)
            goto out;
        if (p->shape[k] != count[k]) {
            err_set(err, ERR_NO, "axis %d has another size than the plan says", k);
            goto out;
        }
        total *= count[k];
    }
    for (uint64_t i = 0; i < total; i++) {
        uint64_t rest = i, at = 0, stride = 1;

        for (int k = w->ndim - 1; k >= 0; k--) {
            at += index[k][rest % count[k]] * stride;
            stride *= w->shape[k];
            rest /= count[k];
        }
        if (!same(part, i, whole, at, width, w->name, &base)) {
            err_set(err, ERR_NO, "element %llu is not the original's element %llu",
                    (unsigned long long)i, (unsigned long long)at);
            goto out;
        }
    }
    ret = 0;
out:
    for (int k = 0; k < w->ndim; k++)
        free(index[k]);
    return ret;
}

static int check_slice(const struct json *slice, struct files *rank,
                       const struct files *original, struct err *err)
{
    const char *name = json_string(json_get(slice, "name"));
    const struct tensor *w = NULL, *p;
    unsigned char *whole = NULL, *part = NULL;
    uint64_t number;
    int ret = -1;
    size_t i = 0;

    if (!name || !json_u64(json_get(slice, "part"), &number) || number >= rank->n)
        return err_set(err, ERR_INPUT, "a slice without name or part");
    for (; i < original->n; i++)
        if ((w = find(&original->v[i], name)))
            break;
    p = find(&rank->v[number], name);
    if (!w || !p || w->ndim != p->ndim || w->dtype != p->dtype)
        return err_set(err, ERR_NO, "%s: %s: missing, or of another type",
                       rank->v[number].path, name);
    rank->v[number].seen++;
    whole = read_tensor(&original->v[i], w, err);
    part = whole ? read_tensor(&rank->v[number], p, err) : NULL;
    if (part)
        ret = compare(w, whole, p, part, json_get(slice, "axes"), err);
    if (ret < 0)
        err_prefix(err, "%s: %s", rank->v[number].path, name);
    free(whole);
    free(part);
    return ret;
}

/* Call EACH on every line of TEXT that is an object of TYPE. */
static int for_lines(const char *text, const char *type, struct files *rank,
                     const char *directory, const struct files *original, size_t *n,
                     struct err *err)
{
    for (const char *line = text, *end; *line; line = end + (*end == '\n')) {
        struct json_doc doc;
        const char *found;
        int ret = 0;

        end = line + strcspn(line, "\n");
        if (json_parse(&doc, "plan", line, (size_t)(end - line), err) < 0)
            return -1;
        found = json_string(json_get(doc.root, "type"));
        if (found && !strcmp(found, type)) {
            (*n)++;
            if (original) {
                ret = check_slice(doc.root, rank, original, err);
            } else {
                const char *file = json_string(json_get(doc.root, "file"));
                char *path = fs_join_dup(directory, file ? file : "");

                ret = files_add(rank, path, err);
                free(path);
            }
        }
        json_clear(&doc);
        if (ret < 0)
            return -1;
    }
    return 0;
}

static void files_clear(struct files *f)
{
    for (size_t i = 0; i < f->n; i++) {
        close(f->v[i].fd);
        safetensors_clear(&f->v[i].st);
        free(f->v[i].path);
    }
    free(f->v);
}

int main(int argc, char **argv)
{
    struct files rank = { 0 }, original = { 0 };
    struct err err = { 0 };
    size_t parts = 0, slices = 0;
    char *text = NULL;
    int ret = -1;

    if (argc < 4)
        return 2;
    if (fs_read_file(&text, NULL, argv[1], UINT32_MAX, &err) < 0 ||
        for_lines(text, "part", &rank, argv[2], NULL, &parts, &err) < 0)
        goto out;
    for (int i = 3; i < argc; i++)
        if (files_add(&original, argv[i], &err) < 0)
            goto out;
    if (for_lines(text, "slice", &rank, argv[2], &original, &slices, &err) < 0)
        goto out;
    for (size_t i = 0; i < rank.n; i++)
        if (rank.v[i].seen != rank.v[i].st.n) {
            err_set(&err, ERR_NO, "%s: has tensors that the plan does not name",
                    rank.v[i].path);
            goto out;
        }
    printf("%zu\n", slices);
    ret = slices ? 0 : err_set(&err, ERR_INPUT, "%s: no slice", argv[1]);
out:
    if (ret < 0)
        fprintf(stderr, "%s\n", err.text);
    files_clear(&rank);
    files_clear(&original);
    free(text);
    return ret < 0 ? (int)err.kind : 0;
}
