/* summary - model summary: the tensors of a model, from its config or its files */
#include "lib/reshard/summary.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/ckpt/hubdir.h"
#include "lib/ckpt/locate.h"

enum { CONFIG_MAX = 1 << 24, INDEX_MAX = 1 << 28 };

static int find_weights(bool *found, const char *dir, struct err *err)
{
    if (checkpoint_is_sharded(found, dir, err) < 0)
        return -1;
    return *found ? 0 : source_find_weights(found, dir, err);
}

static int open_config(struct summary *o, const char *path,
                       const struct checkpoint_options *opt, struct err *err)
{
    char *text;
    int ret;

    if (opt->config)
        return err_set(err, ERR_USAGE, "--config: %s has no weights, and is one itself",
                       path);
    if (locate_check_config(path, err) < 0 ||
        fs_read_file(&text, NULL, path, CONFIG_MAX, err) < 0)
        return -1;
    ret = model_open(&o->model, path, text, opt->family_file, opt->family_path, err);
    free(text);
    return ret;
}

static int open_weights(struct summary *o, const char *path,
                        const struct checkpoint_options *opt, struct err *err)
{
    if (checkpoint_open(&o->checkpoint, path, opt, err) < 0)
        return -1;
    o->model = o->checkpoint->model;
    if (!o->model)
        return err_set(err, ERR_INPUT, "%s: a single file has no config.json to go by",
                       path);
    return 0;
}

/* Are some files that the index at PATH names missing in DIR, or (ALL) are all?  Not if
 * it is no index, which whoever opens it reports. */
static int find_lacking(bool *lacks, bool all, const char *path, const char *dir,
                        struct err *err)
{
    char *text = NULL, **names;
    struct err none = { 0 };
    size_t n = 0;
    int ret = 0;

    *lacks = false;
    if (fs_read_regular(&text, &n, path, INDEX_MAX, &none) < 0) {
        if (none.kind == ERR_INPUT)
            return 0;
        *err = none;
        return -1;
    }
    if (hubdir_parse_index(&names, &n, path, text, n, &none) == 0) {
        *lacks = all && n;
        for (size_t i = 0; i < n && ret == 0 && *lacks == all; i++) {
            bool found = true;

            ret = fs_find_in(&found, dir, names[i], err);
            *lacks = !found;
        }
        fs_list_free(names, n);
    }
    free(text);
    return ret;
}

/* True if directory DIR has an index of weights, its config, and none of the files. */
static int is_index_alone(bool *alone, const char *dir, struct err *err)
{
    char *index = fs_join_dup(dir, "model.safetensors.index.json");
    char *config = fs_join_dup(dir, "config.json");
    bool one, other;
    int ret = -1;

    *alone = false;
    if (fs_find(&one, index, err) == 0 && fs_find(&other, config, err) == 0)
        ret = one && other ? find_lacking(alone, true, index, dir, err) : 0;
    free(index);
    free(config);
    return ret;
}

/* Opens the config of a directory without weights.  An index stands for its directory;
 * if some of its files are missing, only the config is opened. */
static int open_any(struct summary *o, const char *path,
                    const struct checkpoint_options *opt, struct err *err)
{
    bool dir, index, weights = false, lacks = false, found, alone = false;
    char *where, *config;
    int ret = 0;

    if (fs_find_dir(&dir, path, err) < 0 ||
        (dir && find_weights(&weights, path, err) < 0))
        return -1;
    if (dir && weights && is_index_alone(&alone, path, err) < 0)
        return -1;
    weights &= !alone;
    index = !dir && str_ends(path, ".index.json");
    if (!dir && !index && source_find_foreign(&weights, path, err) < 0)
        return -1;
    if (weights)
        return open_weights(o, path, opt, err);
    if (!dir && !index)
        return str_ends(path, ".safetensors") ? open_weights(o, path, opt, err)
                                              : open_config(o, path, opt, err);
    where = dir ? xstrdup(path) : fs_dirname_dup(path);
    config = fs_join_dup(where, "config.json");
    ret = fs_find(&found, config, err);
    if (ret == 0 && !found) {
        char *hint = locate_hint_dup(where);

        ret = err_set(err, ERR_INPUT, "%s: missing%s", config, hint);
        free(hint);
    }
    if (ret == 0 && index)
        ret = find_lacking(&lacks, false, path, where, err);
    if (ret == 0)
        ret = index && !lacks ? open_weights(o, where, opt, err)
                              : open_config(o, config, opt, err);
    free(config);
    free(where);
    return ret;
}

static bool stored_dtype(const struct checkpoint *c, enum dtype *out)
{
    uint64_t of[DTYPE_COUNT] = { 0 };
    int most = 0;

    for (size_t i = 0; c && i < c->nweights; i++) {
        uint64_t n = 1;

        for (int k = 0; k < c->tensor[i].ndim; k++)
            n *= c->tensor[i].shape[k];
        of[c->tensor[i].dtype] += n;
    }
    for (int t = 0; t < DTYPE_COUNT; t++)
        if (of[t] > of[most])
            most = t;
    if (!of[most])
        return false;
    *out = (enum dtype)most;
    return true;
}

int summary_open(struct summary *o, const char *path,
                 const struct checkpoint_options *opt, struct err *err)
{
    static const struct checkpoint_options none = { 0 };
    struct summary made = { .dtype = DTYPE_F32 };

    char *model;
    int ret;

    if (checkpoint_find(path, err) < 0 || locate_model(&model, path, false, err) < 0)
        return -1;
    ret = open_any(&made, model, opt ? opt : &none, err);
    free(model);
    if (ret < 0) {
        summary_close(&made);
        return -1;
    }
    made.dtype_known = model_config_dtype(made.model, &made.dtype) ||
                       stored_dtype(made.checkpoint, &made.dtype);
    *o = made;
    return 0;
}

void summary_close(struct summary *o)
{
    if (o->checkpoint)
        checkpoint_close(o->checkpoint);
    else
        model_free(o->model);
    o->model = NULL;
    o->checkpoint = NULL;
}

bool summary_has(const struct model *m, size_t i)
{
    const struct model_tensor *t = &m->tensor[i];
    struct model_kind kind = model_kind(m, t->kind);

    if (t->tied >= 0 || kind.companion_of >= 0)
        return false;
    if (kind.replaced)
        return true;
    return t->source >= 0 || !t->optional || !m->carry; /* without files, assume that
                                                         * all are present */
}
