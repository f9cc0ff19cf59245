/* hubdir - a Hugging Face directory, or a single file of tensors */
#include "lib/ckpt/hubdir.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/jsonlex.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/ckpt/fourbit.h"
#include "lib/ckpt/locate.h"
#include "lib/ckpt/pickle.h"
#include "lib/ckpt/safetensors.h"
#include "lib/ckpt/trainerstate.h"

const char HUBDIR_PICKLE_INDEX[] = "pytorch_model.bin.index.json";

enum { MAX_JSON = 256 << 20 };

/* ---- the index ---- */

/* Callback for an entry of the weight_map; LEX's token is the file's name. */
typedef int entry_fn(void *arg, const char *tensor, struct jsonlex *lex,
                     struct err *err);

/* Walks the weight_map; the current token is its key. */
static int walk_weight_map(struct jsonlex *lex, entry_fn *entry, void *arg,
                           struct err *err)
{
    char *tensor = NULL;
    int ret = -1;

    if (jsonlex_next(lex, err) < 0)
        return -1;
    if (lex->token != JSONLEX_OBJECT)
        return jsonlex_error(lex, err, "weight_map is no object");
    for (;;) {
        if (jsonlex_next(lex, err) < 0)
            goto out;
        if (lex->token == JSONLEX_OBJECT_END)
            break;
        free(tensor);
        tensor = xstrdup(lex->text.s);
        if (jsonlex_next(lex, err) < 0)
            goto out;
        if (lex->token != JSONLEX_STRING || strlen(lex->text.s) != lex->text.len) {
            jsonlex_error(lex, err, "expected a file's name");
            goto out;
        }
        if (entry(arg, tensor, lex, err) < 0)
            goto out;
    }
    ret = 0;
out:
    free(tensor);
    return ret;
}

/* Calls ENTRY for each tensor of the index. */
static int walk_index(const char *path, const char *text, size_t n, entry_fn *entry,
                      void *arg, struct err *err)
{
    struct jsonlex lex;
    bool found = false;
    int ret = -1;

    jsonlex_init(&lex, path, text, n);
    if (jsonlex_next(&lex, err) < 0)
        goto out;
    if (lex.token != JSONLEX_OBJECT) {
        jsonlex_error(&lex, err, "expected an object");
        goto out;
    }
    while (jsonlex_next(&lex, err) == 0) {
        if (lex.token == JSONLEX_END) {
            ret = found ? 0 : err_set(err, ERR_INPUT, "%s: no weight_map", path);
            break;
        }
        if (lex.token == JSONLEX_OBJECT_END)
            continue;
        if (strcmp(lex.text.s, "weight_map")) {
            if (jsonlex_next(&lex, err) < 0 || jsonlex_skip(&lex, err) < 0)
                break;
            continue;
        }
        if (found) {
            jsonlex_error(&lex, err, "duplicate key \"weight_map\"");
            break;
        }
        found = true;
        if (walk_weight_map(&lex, entry, arg, err) < 0)
            break;
    }
out:
    jsonlex_clear(&lex);
    return ret;
}

struct name_list {
    const char *suffix; /* suffix that file names must have */
    char **v;
    size_t n, cap;
};

/* The file's name in an index entry, which may begin with "./". */
static const char *entry_file(const char *name)
{
    while (str_starts(name, "./"))
        name += 2;
    return name;
}

/* Collects file names; skips a name that equals the previous one, as most do. */
static int collect_file(void *arg, const char *tensor, struct jsonlex *lex,
                        struct err *err)
{
    struct name_list *list = arg;
    const char *name = entry_file(lex->text.s);

    (void)tensor;
    if (!fs_is_plain_name(name) || strchr(name, '/'))
        return jsonlex_error(lex, err, "'%s' is not a file of this directory", name);
    if (!str_ends(name, list->suffix))
        return jsonlex_error(lex, err, "'%s' is no *%s file", name, list->suffix);
    if (list->n && !strcmp(list->v[list->n - 1], name))
        return 0;
    list->v = xgrow(list->v, &list->cap, list->n + 1, sizeof(*list->v));
    list->v[list->n++] = xstrdup(name);
    return 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void drop_repeated(struct name_list *list)
{
    size_t kept = 0;

    qsort(list->v, list->n, sizeof(*list->v), compare_names);
    for (size_t i = 0; i < list->n; i++) {
        if (kept && !strcmp(list->v[kept - 1], list->v[i]))
            free(list->v[i]);
        else
            list->v[kept++] = list->v[i];
    }
    list->n = kept;
}

int hubdir_parse_index(char ***names, size_t *nnames, const char *path,
                       const char *text, size_t n, struct err *err)
{
    struct name_list list = { .suffix = str_ends(path, HUBDIR_PICKLE_INDEX)
                                            ? ".bin"
                                            : ".safetensors" };

    if (walk_index(path, text, n, collect_file, &list, err) < 0)
        goto fail;
    if (!list.n) {
        err_set(err, ERR_INPUT, "%s: its weight_map names no file", path);
        goto fail;
    }
    drop_repeated(&list);
    *names = list.v;
    *nnames = list.n;
    return 0;
fail:
    fs_list_free(list.v, list.n);
    return -1;
}

struct lookup {
    const struct source *source;
    const struct tensor_index *index;
};

static int check_entry(void *arg, const char *tensor, struct jsonlex *lex,
                       struct err *err)
{
    const struct lookup *l = arg;
    long at = tensor_index_find(l->index, tensor);

    if (at < 0 || strcmp(l->source->input[l->source->tensor[at].input].name,
                         entry_file(lex->text.s)))
        return jsonlex_error(lex, err, "tensor '%s' is not in '%s'", tensor,
                             lex->text.s);
    return 0;
}

/* ---- files ---- */

static int compare_offsets(const void *a, const void *b)
{
    const struct tensor *x = a, *y = b;

    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    if (x->size != y->size)
        return x->size < y->size ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* The last N tensors are in input I. */
static void set_input(struct source *s, size_t n, size_t i)
{
    for (size_t k = s->n - n; k < s->n; k++)
        s->tensor[k].input = (int)i;
}

static int read_safetensors(struct source *s, size_t i, int fd, size_t *cap,
                            struct err *err)
{
    struct source_file *f = &s->file[i];
    struct safetensors st;

    if (safetensors_read(&st, NULL, fd, s->input[i].path, err) < 0)
        return -1;
    f->whole = st.size;
    f->data = st.data;
    if (st.n)
        qsort(st.tensor, st.n, sizeof(*st.tensor), compare_offsets);
    form_add_tensors(s, st.tensor, st.n, i, cap);
    set_input(s, st.n, i);
    source_add_aliases(&s->alias, &s->naliases, &s->pool, &st);
    safetensors_clear(&st);
    return 0;
}

/* Converts "pytorch_model-00001-of-00002.bin" to "model-00001-of-00002.safetensors". */
static const char *safetensors_name(struct source *s, const char *name)
{
    const char *dot = strrchr(name, '.');
    char *made;
    const char *kept;

    if (str_starts(name, "pytorch_"))
        name += strlen("pytorch_");
    made = str_dupf("%.*s.safetensors",
                    dot > name ? (int)(dot - name) : (int)strlen(name), name);
    kept = pool_strdup(&s->pool, made);
    free(made);
    return kept;
}

static int read_pickle(struct source *s, size_t i, int fd, size_t *cap, struct err *err)
{
    struct source_file *f = &s->file[i];
    struct pickle p;
    int ret;

    if (pickle_read(&p, fd, s->input[i].path, err) < 0)
        return -1;
    ret = form_present_file(s, i, p.tensor, p.n, cap, err);
    set_input(s, p.n, i);
    f->origin = f->name;
    f->name = safetensors_name(s, f->name);
    pickle_clear(&p);
    return ret;
}

/* Decides by the name or the first bytes: a zip archive, or the opcode PROTO. */
static int find_pickled(bool *pickled, int fd, const char *path, uint64_t size,
                        struct err *err)
{
    unsigned char head[2] = { 0, 0 };

    *pickled =
        str_ends(path, ".bin") || str_ends(path, ".pt") || str_ends(path, ".pth");
    if (*pickled || str_ends(path, ".safetensors") || size < sizeof(head))
        return 0;
    if (fs_pread(fd, head, sizeof(head), 0, path, err) < 0)
        return -1;
    *pickled =
        !memcmp(head, "PK", 2) || (head[0] == 0x80 && head[1] >= 2 && head[1] <= 5);
    return 0;
}

/* Adds the file NAME at PATH and its tensors. */
static int read_weights(struct source *s, const char *name, const char *path,
                        size_t *cap, struct err *err)
{
    bool pickled;
    int i, fd, ret = -1;

    if (form_add_input(s, name, path, &i, &fd, err) < 0)
        return -1;
    s->file[i].name = s->input[i].name;
    if (find_pickled(&pickled, fd, path, s->input[i].size, err) == 0)
        ret = pickled ? read_pickle(s, (size_t)i, fd, cap, err)
                      : read_safetensors(s, (size_t)i, fd, cap, err);
    close(fd);
    return ret;
}

/* The names of the files to read, with a copy of each. */
static void choose(struct name_list *list, char **names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        list->v = xgrow(list->v, &list->cap, list->n + 1, sizeof(*list->v));
        list->v[list->n++] = xstrdup(names[i]);
    }
}

static int read_all_weights(struct source *s, const char *dir,
                            const struct name_list *list, struct err *err)
{
    size_t cap = 0;

    s->file = xcalloc(list->n, sizeof(*s->file));
    s->nfiles = list->n;
    for (size_t i = 0; i < list->n; i++) {
        char *path = fs_join_dup(dir, list->v[i]);
        int ret = read_weights(s, list->v[i], path, &cap, err);

        free(path);
        if (ret < 0)
            return -1;
    }
    return 0;
}

static const struct {
    const char *stem, *suffix, *file, *index;
} forms[] = {
    { "model", ".safetensors", "model.safetensors", "model.safetensors.index.json" },
    { "pytorch_model", ".bin", "pytorch_model.bin", HUBDIR_PICKLE_INDEX },
};

enum { NFORMS = sizeof(forms) / sizeof(*forms) };

/* *shadowed becomes INDEX if that file names another than ONE, or cannot be read. */
static int find_shadowed(char **shadowed, const char *index, const char *one,
                         struct err *err)
{
    char *text, **names = NULL;
    struct err ignored;
    size_t n, nnames = 0;
    bool other;

    if (fs_read_optional(&text, &n, index, MAX_JSON, err) < 0)
        return -1;
    other = text && hubdir_parse_index(&names, &nnames, index, text, n, &ignored) < 0;
    for (size_t i = 0; i < nnames; i++)
        other |= strcmp(names[i], one) != 0;
    if (other)
        *shadowed = xstrdup(index);
    fs_list_free(names, nnames);
    free(text);
    return 0;
}

/* Finds the weights of the directory: a file; those in an index, then *index is the
 * index's path and *text its contents; or all shards that their names tell. */
static int find_weights(struct source *s, const char *dir, struct name_list *list,
                        char **index, char **text, size_t *n, struct err *err)
{
    char **names, *hint;
    size_t nnames;

    for (size_t k = 0; k < NFORMS; k++) {
        char *one[] = { (char *)forms[k].file };
        bool found;

        if (fs_find_in(&found, dir, one[0], err) < 0)
            return -1;
        free(*index);
        *index = fs_join_dup(dir, forms[k].index);
        if (found) {
            choose(list, one, 1);
            return find_shadowed(&s->shadowed, *index, one[0], err);
        }
        if (fs_read_optional(text, n, *index, MAX_JSON, err) < 0)
            return -1;
        if (*text) {
            if (hubdir_parse_index(&names, &nnames, *index, *text, *n, err) < 0)
                return -1;
            choose(list, names, nnames);
            fs_list_free(names, nnames);
            return 0;
        }
    }
    for (size_t k = 0; k < NFORMS; k++) {
        if (locate_shards(&names, &nnames, dir, forms[k].stem, forms[k].suffix, err) <
            0)
            return -1;
        if (nnames) {
            choose(list, names, nnames);
            fs_list_free(names, nnames);
            return 0;
        }
    }
    hint = locate_hint_dup(dir);
    err_set(err, ERR_INPUT,
            "%s: no model.safetensors, no pytorch_model.bin, and no index of either%s",
            dir, hint);
    free(hint);
    return -1;
}

/* ---- opening ---- */

static int open_directory(struct source *s, const char *dir, struct err *err)
{
    char *index = NULL;
    struct name_list list = { 0 };
    struct tensor_index found = { 0 };
    struct lookup lookup = { s, &found };
    const struct tensor *twice;
    char *text = NULL;
    size_t n = 0;
    int ret = -1;

    if (find_weights(s, dir, &list, &index, &text, &n, err) < 0 ||
        read_all_weights(s, dir, &list, err) < 0)
        goto out;
    twice = tensor_index_init(&found, s->tensor, s->n);
    if (twice) {
        err_set(err, ERR_INPUT, "%s: tensor '%s' is in two files", dir, twice->name);
        goto out;
    }
    if (text && walk_index(index, text, n, check_entry, &lookup, err) < 0)
        goto out;
    ret = fourbit_present(s, err);
    if (ret == 0 && s->moments)
        ret = trainerstate_read(s, dir, err);
out:
    fs_list_free(list.v, list.n);
    tensor_index_clear(&found);
    free(index);
    free(text);
    return ret;
}

static int probe_directory(bool *found, const char *path, bool is_dir, struct err *err)
{
    *found = false;
    for (size_t k = 0; is_dir && k < NFORMS && !*found; k++) {
        char **shards;
        size_t n;

        if (fs_find_in(found, path, forms[k].file, err) < 0 ||
            (!*found && fs_find_in(found, path, forms[k].index, err) < 0))
            return -1;
        if (*found)
            return 0;
        if (locate_shards(&shards, &n, path, forms[k].stem, forms[k].suffix, err) < 0)
            return -1;
        *found = n > 0;
        fs_list_free(shards, n);
    }
    return 0;
}

const struct source_ops hubdir_ops = { .name = "a Hugging Face directory",
                                       .probe = probe_directory,
                                       .open = open_directory };

static int probe_file(bool *found, const char *path, bool is_dir, struct err *err)
{
    (void)path;
    (void)err;
    *found = !is_dir;
    return 0;
}

static int open_file(struct source *s, const char *path, struct err *err)
{
    size_t cap = 0;

    if (str_ends(path, ".distcp"))
        return err_set(err, ERR_INPUT,
                       "%s: one file of a checkpoint of torch.distributed.checkpoint; "
                       "give its directory",
                       path);
    s->single = true;
    s->file = xcalloc(1, sizeof(*s->file));
    s->nfiles = 1;
    return read_weights(s, fs_basename(path), path, &cap, err) < 0
               ? -1
               : fourbit_present(s, err);
}

const struct source_ops hubfile_ops = { .name = "a file of tensors",
                                        .probe = probe_file,
                                        .open = open_file };
