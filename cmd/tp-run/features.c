/* features - sources that are given as numbers, such as the frames of a recording */
#include "cmd/tp-run/features.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/ckpt/safetensors.h"

/* Makes room for FRAMES frames, and for as many zeros as the encoder has rows. */
static int make_room(struct input *one, const struct session *s, uint64_t frames,
                     struct err *err)
{
    uint64_t rows = program_source_rows(frames);
    double most;

    if (!s->features)
        return err_set(err, ERR_INPUT, "%s: family %s reads no features", one->name,
                       s->checkpoint->model->family);
    if (!frames)
        return err_set(err, ERR_INPUT, "%s: no features", one->name);
    if (model_number(s->checkpoint->model, "source_context", &most) &&
        (double)rows > most)
        return err_set(err, ERR_INPUT,
                       "%s: %llu frames make %llu rows, more than the model's %.0f",
                       one->name, (unsigned long long)frames, (unsigned long long)rows,
                       most);
    one->features =
        mem_alloc(frames * s->features * sizeof(*one->features), "features", err);
    if (!one->features)
        return -1;
    one->nframes = (size_t)frames;
    while (one->source.n < rows)
        ids_add(&one->source, 0);
    return 0;
}

/* Reads tensor T of the open file FD: [frames][features], or the same in one batch. */
static int read_tensor(struct input *one, const struct session *s, int fd,
                       const char *path, const struct tensor *t, struct err *err)
{
    const uint64_t *shape = t->shape + (t->ndim == 3);
    char *bytes;
    int ret = -1;

    if ((t->ndim != 2 && !(t->ndim == 3 && t->shape[0] == 1)) ||
        shape[1] != s->features || !dtype_is_float(t->dtype) ||
        dtype_bits(t->dtype) < 16)
        return err_set(err, ERR_INPUT,
                       "%s: %s: '%s' is not [frames, %llu] of floating-point numbers",
                       one->name, path, t->name, (unsigned long long)s->features);
    if (make_room(one, s, shape[0], err) < 0)
        return -1;
    bytes = mem_alloc(t->size, "features", err);
    if (bytes && fs_pread(fd, bytes, t->size, t->offset, path, err) == 0 &&
        dtype_to_f32(t->dtype, bytes, one->features, shape[0] * shape[1]))
        ret = 0;
    free(bytes);
    return ret;
}

static int read_file(struct input *one, const struct session *s, const char *path,
                     struct err *err)
{
    struct safetensors st;
    int fd, ret;

    if (!s->features) /* before the file is touched */
        return make_room(one, s, 0, err);
    fd = fs_open_regular(path, err);
    if (fd < 0)
        return -1;
    if (safetensors_read(&st, NULL, fd, path, err) < 0) {
        close(fd);
        return -1;
    }
    ret = st.n == 1 ? read_tensor(one, s, fd, path, &st.tensor[0], err)
                    : err_set(err, ERR_INPUT, "%s: %s: %zu tensors, one is needed",
                              one->name, path, st.n);
    safetensors_clear(&st);
    close(fd);
    return ret;
}

static int read_frame(struct input *one, const struct session *s, const cJSON *frame,
                      float *to, struct err *err)
{
    const cJSON *number;
    uint64_t n = 0;

    cJSON_ArrayForEach(number, frame)
    {
        if (!cJSON_IsNumber(number) || n == s->features)
            break;
        to[n++] = (float)number->valuedouble;
    }
    if (number || n != s->features)
        return err_set(err, ERR_INPUT, "%s: 'features' must have %llu numbers a frame",
                       one->name, (unsigned long long)s->features);
    return 0;
}

int features_add(struct input *one, const struct session *s, const cJSON *value,
                 struct err *err)
{
    const cJSON *frame;
    size_t at = 0;

    if (cJSON_IsString(value))
        return read_file(one, s, value->valuestring, err);
    if (!cJSON_IsArray(value))
        return err_set(err, ERR_INPUT,
                       "%s: 'features' is neither a file nor a list of frames",
                       one->name);
    if (make_room(one, s, (uint64_t)cJSON_GetArraySize(value), err) < 0)
        return -1;
    cJSON_ArrayForEach(frame, value)
    {
        if (read_frame(one, s, frame, one->features + at * s->features, err) < 0)
            return -1;
        at++;
    }
    return 0;
}
