/* megatrondir - reads checkpoints of Megatron-LM */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/ckpt/dcpdir.h"
#include "lib/ckpt/foreignforms.h"
#include "lib/ckpt/megatronargs.h"
#include "lib/ckpt/megatronranks.h"
#include "lib/ckpt/pickle.h"

#define LATEST   "latest_checkpointed_iteration.txt"
#define METADATA "metadata.json"
#define COMMON   "common.pt"

enum { MOST_WORD = 64 };

/* ---- where ---- */

/* The directory that PATH means: itself, or that of the iteration which its file
 * names. *dir is to be freed; NULL: PATH has no such file. */
static int follow(char **dir, const char *path, struct err *err)
{
    char *latest = fs_join_dup(path, LATEST), *text, *name = NULL;
    uint64_t iteration;
    bool found = false;
    size_t n;
    int ret = fs_read_optional(&text, &n, latest, MOST_WORD, err);

    *dir = NULL;
    if (ret == 0 && text) {
        text[strcspn(text, " \t\r\n")] = '\0';
        if (!strcmp(text, "release"))
            name = xstrdup(text);
        else if (str_u64(text, &iteration))
            name = str_dupf("iter_%07" PRIu64, iteration);
        else
            ret = err_set(err, ERR_INPUT, "%s: '%s' is no iteration", latest, text);
        if (name)
            *dir = fs_join_dup(path, name);
        if (*dir)
            ret = fs_find_dir(&found, *dir, err);
        if (*dir && ret == 0 && !found)
            ret = err_set(err, ERR_INPUT, "%s: missing, but %s names it", *dir, LATEST);
    }
    if (ret < 0) {
        free(*dir);
        *dir = NULL;
    }
    free(name);
    free(text);
    free(latest);
    return ret;
}

static int find_torch_dist(bool *found, const char *dir, struct err *err)
{
    bool metadata;

    if (fs_find_in(&metadata, dir, ".metadata", err) < 0 ||
        fs_find_in(found, dir, METADATA, err) < 0)
        return -1;
    *found = *found && metadata;
    return 0;
}

static int probe(bool *found, const char *path, bool is_dir, struct err *err)
{
    *found = false;
    if (!is_dir)
        return 0;
    if (fs_find_in(found, path, LATEST, err) < 0)
        return -1;
    if (!*found && find_torch_dist(found, path, err) < 0)
        return -1;
    return *found ? 0 : megatron_has_ranks(found, path, err);
}

/* ---- torch_dist ---- */

/* Makes a config of what torch_dist stores beside the tensors, if it is there. */
static int read_common(struct source *s, const char *dir, struct err *err)
{
    char *path = fs_join_dup(dir, COMMON);
    struct pickle_values v;
    struct err cause = { 0 };
    bool found;
    int fd = -1, input, ret = fs_find_in(&found, dir, COMMON, err);

    if (ret < 0 || !found)
        goto out;
    ret = form_add_input(s, COMMON, path, &input, &fd, err);
    if (ret < 0)
        goto out;
    ret = pickle_values_read(&v, fd, path, &cause);
    if (ret == 0) {
        megatron_config(s, pickled_get(v.root, "args"), 1, path);
        pickle_values_clear(&v);
    } else if (cause.kind == ERR_INPUT) { /* weights do not depend on it */
        s->unmade = xstrdup(cause.text);
        ret = 0;
    } else {
        *err = cause;
    }
out:
    if (fd >= 0)
        close(fd);
    free(path);
    return ret;
}

static int read_torch_dist(struct source *s, const char *dir, struct err *err)
{
    if (dcpdir_ops.open(s, dir, err) < 0)
        return -1;
    return s->config ? 0 : read_common(s, dir, err);
}

static int open_directory(struct source *s, const char *path, struct err *err)
{
    bool torch_dist = false;
    char *dir;
    int ret = -1;

    if (follow(&dir, path, err) < 0)
        return -1;
    if (!dir)
        dir = xstrdup(path);
    s->dialect = "megatron";
    if (find_torch_dist(&torch_dist, dir, err) == 0)
        ret = torch_dist ? read_torch_dist(s, dir, err)
                         : megatron_read_ranks(s, dir, err);
    free(dir);
    return ret;
}

static const char *const own[] = { LATEST, METADATA, COMMON, NULL };

const struct source_ops megatron_ops = { .name = "a checkpoint of Megatron-LM",
                                         .own = own,
                                         .probe = probe,
                                         .open = open_directory };
