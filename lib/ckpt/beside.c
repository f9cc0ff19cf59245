/* beside - the files that lie beside a model's weights */
#include "lib/ckpt/beside.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/ckpt/form.h"
#include "lib/ckpt/hubdir.h"

/* Collects what is carried, and what is left. */
struct beside {
    struct source *s;
    const char *dir;
    uint64_t bytes; /* of the files that are carried */
    size_t small_cap, left_cap;
};

static void add_small(struct beside *b, const char *name)
{
    struct source *s = b->s;

    s->small = xgrow(s->small, &b->small_cap, s->nsmall + 1, sizeof(*s->small));
    s->small[s->nsmall++] = xstrdup(name);
}

static void add_left(struct beside *b, const char *name)
{
    struct source *s = b->s;

    s->left = xgrow(s->left, &b->left_cap, s->nleft + 1, sizeof(*s->left));
    s->left[s->nleft++] = xstrdup(name);
}

/* The weights that are read, or an index that has no meaning for the files that a merge
 * writes. */
static bool is_of_model(const struct source *s, const char *name)
{
    if (!strcmp(name, HUBDIR_PICKLE_INDEX))
        return true;
    for (size_t i = 0; i < s->ninputs; i++)
        if (!strcmp(s->input[i].name, name))
            return true;
    for (const char *const *own = s->ops->own; own && *own; own++)
        if (!strcmp(*own, name))
            return true;
    return false;
}

/* Weights in another form, or of another state of the model. */
static bool is_weights(const char *name)
{
    static const char *const SUFFIXES[] = {
        ".safetensors", ".bin",  ".pt",        ".pth",  ".ckpt",   ".h5",  ".msgpack",
        ".gguf",        ".onnx", ".onnx_data", ".ggml", ".tflite", ".pb",  ".pkl",
        ".npz",         ".ot",   ".mlmodel",   ".nemo", ".distcp", ".tar", ".zip",
        ".engine",      ".plan", ".keras",     ".mar",  ".joblib",
    };

    for (size_t i = 0; i < sizeof(SUFFIXES) / sizeof(*SUFFIXES); i++)
        if (str_ends(name, SUFFIXES[i]))
            return true;
    return false;
}

/* The weights of an adapter, which are carried with it. */
static bool is_adapter(const char *name)
{
    return !strcmp(name, "adapter_model.safetensors") ||
           !strcmp(name, "adapter_model.bin");
}

/* sentence-transformers keeps each module after the model in a directory such as
 * 2_Dense. */
static bool is_module(const char *name)
{
    size_t digits = strspn(name, "0123456789");

    return digits && name[digits] == '_';
}

/* Can NAME stand in a manifest?  A name of other bytes is not carried. */
static bool is_utf8(const char *name)
{
    size_t n = strlen(name), used;
    uint32_t cp;

    for (size_t at = 0; at < n; at += used) {
        used = str_utf8_decode(name + at, n - at, &cp);
        if (!used || cp < ' ' || cp == 0x7f)
            return false;
    }
    return true;
}

/* Decides about file NAME of the directory, which may be DIR/FILE. */
static int look_at_file(struct beside *b, const char *name, struct err *err)
{
    char *path = fs_join_dup(b->dir, name);
    bool adapter = is_adapter(name), own;
    struct stat st = { 0 };
    int ret = 0;

    own = adapter || !is_weights(name) ||
          (is_module(name) && strchr(name, '/') && str_ends(name, ".safetensors"));
    if (is_of_model(b->s, name))
        goto out;
    if (stat(path, &st) < 0) {
        if (errno != ENOENT && errno != ENOTDIR) { /* a link that leads nowhere */
            ret = err_errno(err, "%s", path);
            goto out;
        }
        st = (struct stat){ 0 };
    }
    if (own && is_utf8(name) && S_ISREG(st.st_mode) &&
        b->s->nsmall < SOURCE_MOST_SMALL &&
        (adapter || ((uint64_t)st.st_size <= SOURCE_MAX_SMALL &&
                     b->bytes + (uint64_t)st.st_size <= SOURCE_MAX_ALL))) {
        b->bytes += adapter ? 0 : (uint64_t)st.st_size;
        add_small(b, name);
    } else {
        add_left(b, name);
    }
out:
    free(path);
    return ret;
}

/* Does directory PATH hold a checkpoint of its own, or a part of one? */
static int find_another(bool *another, const char *path, struct err *err)
{
    bool manifest;

    if (fs_find_in(&manifest, path, "checkpoint.json", err) < 0 ||
        source_find_weights(another, path, err) < 0)
        return -1;
    *another |= manifest || str_ends(path, ".partial");
    return 0;
}

/* Decides about the files of directory NAME; what lies deeper is left.  A directory
 * that may not be read is left, too. */
static int look_at_directory(struct beside *b, const char *name, struct err *err)
{
    char *path = fs_join_dup(b->dir, name), *below = fs_join_dup(name, "");
    char **names = NULL;
    bool another = false;
    size_t n = 0;
    int ret = -1;

    if (access(path, R_OK | X_OK) < 0 && errno == EACCES)
        another = true;
    else if (!is_module(name) && find_another(&another, path, err) < 0)
        goto out;
    if (another)
        add_left(b, below);
    else if (fs_list(&names, &n, path, err) < 0)
        goto out;
    for (size_t i = 0; i < n; i++) {
        char *both = fs_join_dup(name, names[i]), *file = fs_join_dup(b->dir, both);
        struct stat st;

        ret = 0;
        if (names[i][0] != '.' && stat(file, &st) == 0 && S_ISDIR(st.st_mode))
            add_left(b, both);
        else if (names[i][0] != '.')
            ret = look_at_file(b, both, err);
        free(both);
        free(file);
        if (ret < 0)
            goto out;
    }
    ret = 0;
out:
    fs_list_free(names, n);
    free(below);
    free(path);
    return ret;
}

/* Hub caches link to files; a link to a directory is left. */
int beside_look(struct source *s, const char *dir, struct err *err)
{
    struct beside b = { .s = s, .dir = dir };
    char **names;
    size_t n;
    int ret = 0;

    if (fs_list(&names, &n, dir, err) < 0)
        return -1;
    for (size_t i = 0; i < n && ret == 0; i++) {
        char *path = fs_join_dup(dir, names[i]);
        struct stat st;

        if (names[i][0] == '.')
            ret = 0;
        else if (lstat(path, &st) < 0)
            ret = errno == ENOENT ? 0 : err_errno(err, "%s", path);
        else if (S_ISDIR(st.st_mode))
            ret = look_at_directory(&b, names[i], err);
        else
            ret = look_at_file(&b, names[i], err);
        free(path);
    }
    fs_list_free(names, n);
    return ret;
}
