/* locate - what a MODEL operand means, and what one that is no model is */
#include "lib/ckpt/locate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/ckpt/steps.h"

enum { MOST_REF = 256, MOST_SHARDS = 100000 };

/* ---- kinds of files ---- */

static const struct {
    const char *bytes, *kind, *advice;
} kinds[] = {
    { "PK\003\004", "a zip file, as torch.save writes", "" },
    { "GGUF", "a GGUF file", "; a model in it is named by the file" },
    { "\x93NUMPY", "a NumPy file", "" },
    { "\x89HDF", "an HDF5 file", "" },
    { "version ", "a pointer of Git LFS (git lfs pull)", "" },
};

enum { NKINDS = sizeof(kinds) / sizeof(*kinds) };

const char *locate_kind(const unsigned char begin[8])
{
    int text = 0;

    for (size_t i = 0; i < NKINDS; i++)
        if (!memcmp(begin, kinds[i].bytes, strlen(kinds[i].bytes)))
            return kinds[i].kind;
    for (int i = 0; i < 8; i++)
        text += begin[i] &&
                ((begin[i] >= ' ' && begin[i] != 127) || strchr("\t\n\r", begin[i]));
    return text == 8 ? begin[0] == '{' || begin[0] == '[' ? "JSON" : "text" : NULL;
}

const char *locate_advice(const char *kind)
{
    for (size_t i = 0; i < NKINDS; i++)
        if (!strcmp(kinds[i].kind, kind))
            return kinds[i].advice;
    return !strcmp(kind, "JSON") ? "; a model with weights is named by its directory"
                                 : "";
}

int locate_check_config(const char *path, struct err *err)
{
    unsigned char begin[8];
    const char *kind = NULL;
    int fd = fs_open_regular(path, NULL);

    if (fd < 0)
        return 0; /* reading it tells why; a pipe may be a config */
    if (pread(fd, begin, sizeof(begin), 0) == (ssize_t)sizeof(begin))
        kind = locate_kind(begin);
    close(fd);
    if (!kind || !strcmp(kind, "JSON") || !strcmp(kind, "text"))
        return 0;
    return err_set(err, ERR_INPUT, "%s: is %s, not a config.json%s", path, kind,
                   locate_advice(kind));
}

/* ---- operands ---- */

/* *out is the snapshot that refs/main of the hub cache TOP names, or NULL. */
static int find_main_snapshot(char **out, const char *top, struct err *err)
{
    char *path = fs_join_dup(top, "refs/main"), *name = NULL, *found = NULL;
    bool is_dir = false;
    int ret = fs_read_optional(&name, NULL, path, MOST_REF, err);

    if (ret < 0 && err->kind == ERR_INPUT) { /* no such reference */
        *err = (struct err){ 0 };
        ret = 0;
    } else if (ret == 0 && name) {
        name[strcspn(name, "\r\n")] = '\0';
        if (fs_is_plain_name(name) && !strchr(name, '/')) {
            char *snapshots = fs_join_dup(top, "snapshots");

            found = fs_join_dup(snapshots, name);
            free(snapshots);
            ret = fs_find_dir(&is_dir, found, err);
        }
        free(name);
    }
    *out = is_dir ? found : NULL;
    if (!is_dir)
        free(found);
    free(path);
    return ret;
}

/* TOP has the directory SNAPSHOTS and no config.json. */
static int choose_snapshot(char **out, const char *top, const char *snapshots,
                           struct err *err)
{
    char **names;
    size_t n;
    int ret = 0;

    if (find_main_snapshot(out, top, err) < 0)
        return -1;
    if (*out)
        return 0;
    if (fs_list(&names, &n, snapshots, err) < 0)
        return -1;
    if (n == 1)
        *out = fs_join_dup(snapshots, names[0]);
    else if (!n)
        ret = err_set(err, ERR_INPUT, "%s: a hub cache without a snapshot", top);
    else
        ret = err_set(err, ERR_INPUT,
                      "%s: a hub cache whose refs/main names none of %zu snapshots; "
                      "give one, such as %s/%s",
                      top, n, snapshots, names[n - 1]);
    fs_list_free(names, n);
    return ret;
}

static int locate_directory(char **out, const char *path, struct err *err)
{
    char *snapshots = fs_join_dup(path, "snapshots");
    bool cache, config = false;
    int ret = fs_find_dir(&cache, snapshots, err);

    *out = NULL;
    if (ret == 0)
        ret = fs_find_in(&config, path, "config.json", err);
    if (ret == 0 && cache && !config)
        ret = choose_snapshot(out, path, snapshots, err);
    else if (ret == 0 && !config)
        ret = steps_newest(out, path, err);
    if (ret == 0 && !*out)
        *out = xstrdup(path);
    free(snapshots);
    return ret;
}

/* Refuses a file that belongs to a model but does not say which. */
static int check_name(const char *path, struct err *err)
{
    static const char *const names[][2] = {
        { "tokenizer.json", "a tokenizer" },
        { "tokenizer_config.json", "a tokenizer's settings" },
        { "special_tokens_map.json", "a tokenizer's settings" },
        { "added_tokens.json", "a tokenizer's settings" },
        { "vocab.json", "a tokenizer's vocabulary" },
        { "vocab.txt", "a tokenizer's vocabulary" },
        { "merges.txt", "a tokenizer's merges" },
        { "tokenizer.model", "a tokenizer" },
        { "spiece.model", "a tokenizer" },
        { "generation_config.json", "the settings of generation" },
    };

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (!strcmp(fs_basename(path), names[i][0])) {
            char *dir = fs_dirname_dup(path);

            err_set(err, ERR_INPUT, "%s: is %s, not a model; give its directory, %s",
                    path, names[i][1], dir);
            free(dir);
            return -1;
        }
    return 0;
}

int locate_model(char **out, const char *path, bool index, struct err *err)
{
    bool dir;

    if (fs_find_dir(&dir, path, err) < 0)
        return -1;
    if (dir)
        return locate_directory(out, path, err);
    if (check_name(path, err) < 0)
        return -1;
    *out = !strcmp(fs_basename(path), "checkpoint.json") ||
                   (index && str_ends(path, ".index.json"))
               ? fs_dirname_dup(path)
               : xstrdup(path);
    return 0;
}

/* ---- directories ---- */

/* If NAME is STEM-00001-of-00004.SUFFIX: its number, and *of the last; else 0. */
static int shard_number(const char *name, const char *stem, const char *suffix, int *of)
{
    size_t n = strlen(stem), len = strlen(name);
    char *canonical;
    int number = 0;

    if (strncmp(name, stem, n) != 0 || len > n + 40 ||
        sscanf(name + n, "-%5d-of-%5d", &number, of) != 2 || number < 1 ||
        number > *of || *of > MOST_SHARDS)
        return 0;
    canonical = str_dupf("%s-%05d-of-%05d%s", stem, number, *of, suffix);
    if (strcmp(name, canonical) != 0)
        number = 0;
    free(canonical);
    return number;
}

/* Counts the shards among the N names: *of is how many there should be, 0 if there are
 * none or of several numbers. */
static size_t count_shards(char **names, size_t n, const char *stem, const char *suffix,
                           int *of)
{
    size_t found = 0;
    bool mixed = false;

    *of = 0;
    for (size_t i = 0; i < n; i++) {
        int last;

        if (!shard_number(names[i], stem, suffix, &last))
            continue;
        mixed |= *of && last != *of;
        *of = last;
        found++;
    }
    if (mixed)
        *of = 0;
    return found;
}

int locate_shards(char ***names, size_t *n, const char *dir, const char *stem,
                  const char *suffix, struct err *err)
{
    char **all;
    size_t nall, found;
    int of;

    *names = NULL;
    *n = 0;
    if (fs_list(&all, &nall, dir, err) < 0)
        return -1;
    found = count_shards(all, nall, stem, suffix, &of);
    if (of && found == (size_t)of) {
        *names = xmalloc(found * sizeof(**names));
        for (size_t i = 0; i < nall; i++) /* sorted, as the numbers are */
            if (shard_number(all[i], stem, suffix, &of))
                (*names)[(*n)++] = xstrdup(all[i]);
    }
    fs_list_free(all, nall);
    return 0;
}

/* What NAME in DIR is, if that helps; or NULL. */
static char *describe_dup(const char *dir, const char *name)
{
    char *config, *path, *text = NULL;

    if (str_ends(name, ".gguf"))
        return str_dupf("; there is a model in %s/%s", dir, name);
    if (!strcmp(name, "adapter_config.json"))
        return str_dupf("; it is an adapter: give the model that it belongs to");
    path = fs_join_dup(dir, name);
    config = fs_join_dup(path, "config.json");
    if (!str_ends(name, ".partial") && access(config, F_OK) == 0) /* a hint, no more */
        text = str_dupf("; there is a model in %s", path);
    free(config);
    free(path);
    return text;
}

char *locate_hint_dup(const char *dir)
{
    static const char *const forms[][2] = { { "model", ".safetensors" },
                                            { "pytorch_model", ".bin" } };
    char **names, *text = NULL;
    struct err none;
    size_t n;

    if (fs_list(&names, &n, dir, &none) < 0)
        return xstrdup("");
    for (size_t k = 0; k < 2 && !text; k++) {
        int of;
        size_t found = count_shards(names, n, forms[k][0], forms[k][1], &of);

        if (found && of)
            text = str_dupf("; only %zu of the %d files %s-*-of-%05d%s are there",
                            found, of, forms[k][0], of, forms[k][1]);
        else if (found)
            text = str_dupf("; its files %s-*%s are of several sets", forms[k][0],
                            forms[k][1]);
    }
    for (size_t i = n; i-- > 0 && !text;) /* of a run's checkpoints, the newest */
        text = describe_dup(dir, names[i]);
    fs_list_free(names, n);
    return text ? text : xstrdup("");
}
