/* source - a Hugging Face directory, or one safetensors file */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/jsonlex.h"
#include "lib/base/mem.h"
#include "lib/ckpt/safetensors.h"
#include "lib/ckpt/source.h"

static const char WEIGHTS[] = "model.safetensors";
static const char INDEX[] = "model.safetensors.index.json";
static const char CONFIG[] = "config.json";

enum { MAX_JSON = 256 << 20, MAX_SMALL = 256 << 20 };

/* ---- the index ---- */

/* What to do with an entry of the weight_map; the file's name is LEX's token. */
typedef int entry_fn(void *arg, const char *tensor, struct jsonlex *lex,
                     struct err *err);

/* The weight_map, its key at hand. */
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

/* Call ENTRY for each tensor of the index. */
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
    char **v;
    size_t n, cap;
};

/* An index names a few files many times: a name like the one before is not kept
 * again. */
static int collect_file(void *arg, const char *tensor, struct jsonlex *lex,
                        struct err *err)
{
    struct name_list *list = arg;
    const char *name = lex->text.s;

    (void)tensor;
    if (!fs_is_plain_name(name) || strchr(name, '/'))
        return jsonlex_error(lex, err, "'%s' is not a file of this directory", name);
    if (!str_ends(name, ".safetensors"))
        return jsonlex_error(lex, err, "'%s' is not a safetensors file", name);
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

int source_parse_index(char ***names, size_t *nnames, const char *path,
                       const char *text, size_t n, struct err *err)
{
    struct name_list list = { 0 };

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

    if (at < 0 || strcmp(l->source->file[l->source->tensor[at].file].name, lex->text.s))
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

/* Add the tensors of ST, which are those of file FILE, in the order of their data. */
static void add_tensors(struct source *s, struct safetensors *st, int file, size_t *cap)
{
    if (!st->n)
        return;
    qsort(st->tensor, st->n, sizeof(*st->tensor), compare_offsets);
    s->tensor = xgrow(s->tensor, cap, s->n + st->n, sizeof(*s->tensor));
    for (size_t i = 0; i < st->n; i++) {
        struct tensor *t = &s->tensor[s->n++];
        uint64_t *shape;

        *t = st->tensor[i];
        t->name = pool_strdup(&s->pool, t->name);
        shape = pool_take(&s->pool, (size_t)t->ndim * sizeof(*shape), sizeof(*shape));
        memcpy(shape, t->shape, (size_t)t->ndim * sizeof(*shape));
        t->shape = shape;
        t->file = file;
    }
}

/* Read the header of file I, whose name and path are set. */
static int read_weights(struct source *s, size_t i, size_t *cap, struct err *err)
{
    struct source_file *f = &s->file[i];
    struct safetensors st;
    struct stat status;
    int fd = open(f->path, O_RDONLY | O_CLOEXEC);
    int ret = -1;

    if (fd < 0)
        return errno == ENOENT ? err_set(err, ERR_INPUT, "%s: missing", f->path)
                               : err_errno(err, "%s", f->path);
    if (fstat(fd, &status) < 0) {
        err_errno(err, "%s", f->path);
        goto out;
    }
    if (safetensors_read(&st, NULL, fd, f->path, err) < 0)
        goto out;
    f->size = st.size;
    f->data = st.data;
    f->mtime_ns = (int64_t)status.st_mtim.tv_sec * 1000000000 + status.st_mtim.tv_nsec;
    add_tensors(s, &st, (int)i, cap);
    safetensors_clear(&st);
    ret = 0;
out:
    close(fd);
    return ret;
}

static int read_all_weights(struct source *s, struct err *err)
{
    size_t cap = 0;

    for (size_t i = 0; i < s->nfiles; i++)
        if (read_weights(s, i, &cap, err) < 0)
            return -1;
    return 0;
}

static void set_file(struct source *s, size_t i, const char *name, const char *path)
{
    s->file[i].name = pool_strdup(&s->pool, name);
    s->file[i].path = pool_strdup(&s->pool, path);
}

static void set_files(struct source *s, const char *dir, char **names, size_t n)
{
    s->file = xcalloc(n, sizeof(*s->file));
    s->nfiles = n;
    for (size_t i = 0; i < n; i++) {
        char *path = fs_join_dup(dir, names[i]);

        set_file(s, i, names[i], path);
        free(path);
    }
}

/* The weights of the directory: one file, or those of the index (*text, *n). */
static int find_weights(struct source *s, const char *dir, const char *index,
                        char **text, size_t *n, struct err *err)
{
    char *one[] = { (char *)WEIGHTS };
    char *path = fs_join_dup(dir, WEIGHTS);
    char **names = NULL;
    size_t nnames = 0;
    int ret = -1;

    *text = NULL;
    if (fs_exists(path)) {
        set_files(s, dir, one, 1);
    } else if (fs_exists(index)) {
        if (fs_read_file(text, n, index, MAX_JSON, err) < 0 ||
            source_parse_index(&names, &nnames, index, *text, *n, err) < 0)
            goto out;
        set_files(s, dir, names, nnames);
    } else {
        err_set(err, ERR_INPUT, "%s: no %s and no %s", dir, WEIGHTS, INDEX);
        goto out;
    }
    ret = 0;
out:
    fs_list_free(names, nnames);
    free(path);
    return ret;
}

/* Is NAME one of the small files that belong to a model? */
static bool is_small(const char *dir, const char *name)
{
    static const char *const SUFFIXES[] = { ".json", ".txt", ".model", ".jinja",
                                            ".tiktoken" };
    char *path = fs_join_dup(dir, name);
    struct stat st;
    bool found = false;

    for (size_t i = 0; i < sizeof(SUFFIXES) / sizeof(*SUFFIXES); i++)
        found |= name[0] != '.' && str_ends(name, SUFFIXES[i]);
    found =
        found && stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= MAX_SMALL;
    free(path);
    return found;
}

static int find_small(struct source *s, const char *dir, struct err *err)
{
    char **names;
    size_t n;

    if (fs_list(&names, &n, dir, err) < 0)
        return -1;
    s->small = xmalloc(n * sizeof(*s->small));
    for (size_t i = 0; i < n; i++) {
        if (is_small(dir, names[i]))
            s->small[s->nsmall++] = names[i];
        else
            free(names[i]);
    }
    free(names);
    return 0;
}

static int open_directory(struct source *s, const char *dir, struct err *err)
{
    char *index = fs_join_dup(dir, INDEX);
    struct tensor_index found = { 0 };
    struct lookup lookup = { s, &found };
    const struct tensor *twice;
    char *text = NULL;
    size_t n = 0, config_bytes;
    int ret = -1;

    s->config_path = fs_join_dup(dir, CONFIG);
    if (fs_exists(s->config_path) &&
        fs_read_file(&s->config, &config_bytes, s->config_path, MAX_JSON, err) < 0)
        goto out;
    if (find_weights(s, dir, index, &text, &n, err) < 0 || read_all_weights(s, err) < 0)
        goto out;
    twice = tensor_index_init(&found, s->tensor, s->n);
    if (twice) {
        err_set(err, ERR_INPUT, "%s: tensor '%s' is in two files", dir, twice->name);
        goto out;
    }
    if (text && walk_index(index, text, n, check_entry, &lookup, err) < 0)
        goto out;
    ret = find_small(s, dir, err);
out:
    tensor_index_clear(&found);
    free(index);
    free(text);
    return ret;
}

int source_open(struct source *s, const char *path, struct err *err)
{
    struct source made = { .path = xstrdup(path), .single = !fs_is_dir(path) };
    int ret = -1;

    if (made.single) {
        made.file = xcalloc(1, sizeof(*made.file));
        made.nfiles = 1;
        set_file(&made, 0, fs_basename(path), path);
        ret = read_all_weights(&made, err);
    } else {
        ret = open_directory(&made, path, err);
    }
    if (ret < 0)
        source_clear(&made);
    else
        *s = made;
    return ret;
}

void source_clear(struct source *s)
{
    free(s->path);
    free(s->config);
    free(s->config_path);
    free(s->file);
    free(s->tensor);
    fs_list_free(s->small, s->nsmall);
    pool_clear(&s->pool);
    *s = (struct source){ 0 };
}

int source_header(char **text, size_t *n, const struct source *s, size_t i,
                  struct err *err)
{
    const struct source_file *f = &s->file[i];
    int fd = open(f->path, O_RDONLY | O_CLOEXEC);
    size_t bytes = (size_t)(f->data - 8);
    char *header;
    int ret;

    if (fd < 0)
        return err_errno(err, "%s", f->path);
    header = xmalloc(bytes + 1);
    header[bytes] = '\0';
    ret = fs_pread(fd, header, bytes, 8, f->path, err);
    close(fd);
    if (ret < 0) {
        free(header);
        return -1;
    }
    *text = header;
    *n = bytes;
    return 0;
}
