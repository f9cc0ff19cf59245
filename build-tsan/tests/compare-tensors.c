/* compare-tensors - how far the f32 tensors of two safetensors files lie apart
 *
 *   compare-tensors WANT GOT TOLERANCE NAME[=NAME]...
 *
 * For each NAME (in WANT, and in GOT where it is called otherwise) prints the largest
 * absolute difference relative to the largest absolute value in WANT.  Axes of size 1
 * do not count in the shapes.  Status 0: all within TOLERANCE; 1: not; 3: a tensor is
 * missing, not f32, or of another shape. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/ckpt/safetensors.h"

struct file {
    const char *path;
    int fd;
    struct safetensors st;
};

static int file_open(struct file *f, const char *path, struct err *err)
{
    f->path = path;
    f->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (f->fd < 0)
        return err_set(err, ERR_SYSTEM, "%s: %s", path, strerror(errno));
    return safetensors_read(&f->st, NULL, f->fd, path, err);
}

static const struct tensor *find(const struct file *f, const char *name)
{
    for (size_t i = 0; i < f->st.n; i++)
        if (!strcmp(f->st.tensor[i].name, name))
            return &f->st.tensor[i];
    return NULL;
}

/* The values of F's tensor NAME; the caller frees them. */
static float *values(const struct tensor **out, const struct file *f, const char *name,
                     struct err *err)
{
    const struct tensor *t = find(f, name);
    float *v;

    if (!t || t->dtype != DTYPE_F32) {
        err_set(err, ERR_INPUT, "%s: no f32 tensor '%s'", f->path, name);
        return NULL;
    }
    v = malloc(t->size + 1);
    if (!v || pread(f->fd, v, t->size, (off_t)t->offset) != (ssize_t)t->size) {
        err_set(err, ERR_SYSTEM, "%s: tensor '%s' cannot be read", f->path, name);
        free(v);
        return NULL;
    }
    *out = t;
    return v;
}

static bool same_shape(const struct tensor *a, const struct tensor *b)
{
    int i = 0, k = 0;

    for (;;) {
        while (i < a->ndim && a->shape[i] == 1)
            i++;
        while (k < b->ndim && b->shape[k] == 1)
            k++;
        if (i == a->ndim || k == b->ndim)
            return i == a->ndim && k == b->ndim;
        if (a->shape[i++] != b->shape[k++])
            return false;
    }
}

/* max |got - want| / max |want|; NaN in GOT is infinitely far. */
static double distance(const float *want, const float *got, size_t n)
{
    double far = 0, size = 0;

    for (size_t i = 0; i < n; i++) {
        far = isnan(got[i]) ? INFINITY : fmax(far, fabs((double)got[i] - want[i]));
        size = fmax(size, fabs((double)want[i]));
    }
    return far == 0 ? 0 : far / size;
}

static int compare(const struct file *want, const struct file *got, const char *spec,
                   double tolerance, bool *within, struct err *err)
{
    const struct tensor *a, *b;
    char *name = strdup(spec), *other = name ? strchr(name, '=') : NULL;
    float *x = NULL, *y = NULL;
    double far;
    int ret = -1;

    if (!name)
        return err_set(err, ERR_SYSTEM, "out of memory");
    if (other)
        *other++ = '\0';
    x = values(&a, want, name, err);
    y = x ? values(&b, got, other ? other : name, err) : NULL;
    if (!y)
        goto out;
    if (!same_shape(a, b)) {
        err_set(err, ERR_INPUT, "tensor '%s' has not the same shape in both", spec);
        goto out;
    }
    far = distance(x, y, a->size / sizeof(float));
    printf("%s %.2g%s\n", spec, far, far <= tolerance ? "" : " too far");
    *within &= far <= tolerance;
    ret = 0;
out:
    free(x);
    free(y);
    free(name);
    return ret;
}

int main(int argc, char **argv)
{
    struct file file[2] = { { .fd = -1 }, { .fd = -1 } };
    struct err err = { 0 };
    bool within = true;
    double tolerance;
    int ret = 3;

    if (argc < 5) {
        fputs("usage: compare-tensors WANT GOT TOLERANCE NAME[=NAME]...\n", stderr);
        return 2;
    }
    tolerance = strtod(argv[3], NULL);
    for (int i = 0; i < 2; i++)
        if (file_open(&file[i], argv[1 + i], &err) < 0)
            goto out;
    for (int i = 4; i < argc; i++)
        if (compare(&file[0], &file[1], argv[i], tolerance, &within, &err) < 0)
            goto out;
    ret = within ? 0 : 1;
out:
    if (err.kind)
        fprintf(stderr, "compare-tensors: %s\n", err.text);
    for (int i = 0; i < 2; i++) {
        safetensors_clear(&file[i].st);
        if (file[i].fd >= 0)
            close(file[i].fd);
    }
    return ret;
}
