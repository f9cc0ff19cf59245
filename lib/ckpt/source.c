/* source - reads a Hugging Face directory, or a single file of tensors */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/hash.h"
#include "lib/base/jsonlex.h"
#include "lib/base/mem.h"
#include "lib/ckpt/locate.h"
#include "lib/ckpt/pickle.h"
#include "lib/ckpt/safetensors.h"
#include "lib/ckpt/source.h"

static const char PICKLE_INDEX[] = "pytorch_model.bin.index.json";
static const char CONFIG[] = "config.json";

enum { MAX_JSON = 256 << 20, CHUNK = 1 << 20 };

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

int source_parse_index(char ***names, size_t *nnames, const char *path,
                       const char *text, size_t n, struct err *err)
{
    struct name_list list = { .suffix = str_ends(path, PICKLE_INDEX) ? ".bin"
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

    if (at < 0 || strcmp(fs_basename(l->source->file[l->source->tensor[at].file].path),
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

static uint64_t *keep_numbers(struct source *s, const uint64_t *numbers, int n)
{
    uint64_t *kept = pool_take(&s->pool, (size_t)n * sizeof(*kept), sizeof(*kept));

    memcpy(kept, numbers, (size_t)n * sizeof(*kept));
    return kept;
}

/* Adds copies of the N tensors at T, which are in file FILE. */
static void add_tensors(struct source *s, const struct tensor *t, size_t n, size_t file,
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

static void add_aliases(struct source_alias **alias, size_t *n, struct pool *pool,
                        const struct safetensors *st)
{
    if (st->nnotes)
        *alias = xrealloc(*alias, (*n + st->nnotes) * sizeof(**alias));
    for (size_t i = 0; i < st->nnotes; i++)
        (*alias)[(*n)++] =
            (struct source_alias){ pool_strdup(pool, st->note[i].key),
                                   pool_strdup(pool, st->note[i].value) };
}

int source_header_aliases(struct source_alias **alias, size_t *nalias,
                          struct pool *pool, const char *path, const char *text,
                          size_t n, struct err *err)
{
    struct safetensors st;

    if (safetensors_parse_notes(&st, path, text, n, err) < 0)
        return -1;
    add_aliases(alias, nalias, pool, &st);
    safetensors_clear(&st);
    return 0;
}

static int read_safetensors(struct source *s, size_t i, int fd, size_t *cap,
                            struct err *err)
{
    struct source_file *f = &s->file[i];
    struct safetensors st;

    if (safetensors_read(&st, NULL, fd, f->path, err) < 0)
        return -1;
    f->size = f->whole = st.size;
    f->data = st.data;
    if (st.n)
        qsort(st.tensor, st.n, sizeof(*st.tensor), compare_offsets);
    add_tensors(s, st.tensor, st.n, i, cap);
    add_aliases(&s->alias, &s->naliases, &s->pool, &st);
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

/* Adds the N tensors at T of file I: chooses their order and makes the header of the
 * safetensors form. */
static int add_pickled(struct source *s, size_t i, const struct tensor *t, size_t n,
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
    add_tensors(s, ordered, k, i, cap);
    ret = safetensors_header_finish(&h, f->path, err);
    f->data = h.text.len;
    f->whole = f->data + h.end;
    f->header = pool_strndup(&s->pool, h.text.s + 8, h.text.len - 8);
    safetensors_header_clear(&h);
    free(ordered);
    return ret;
}

static int read_pickle(struct source *s, size_t i, int fd, size_t *cap, struct err *err)
{
    struct source_file *f = &s->file[i];
    struct pickle p;
    int ret;

    if (pickle_read(&p, fd, f->path, err) < 0)
        return -1;
    ret = add_pickled(s, i, p.tensor, p.n, cap, err);
    f->origin = f->name;
    f->name = safetensors_name(s, f->name);
    f->size = p.size;
    pickle_clear(&p);
    return ret;
}

int source_set_pickled(struct source *s, const struct tensor *t, size_t n,
                       struct err *err)
{
    struct tensor *one = xmalloc((n + 1) * sizeof(*one));
    size_t cap = 0;
    int ret = 0;

    free(s->tensor);
    s->tensor = NULL;
    s->n = 0;
    for (size_t i = 0; i < s->nfiles && ret == 0; i++) {
        size_t k = 0;

        for (size_t j = 0; j < n; j++)
            if (t[j].file == (int)i)
                one[k++] = t[j];
        ret = add_pickled(s, i, one, k, &cap, err);
    }
    free(one);
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

/* Reads the tensors of file I; its name and path are set. */
static int read_weights(struct source *s, size_t i, size_t *cap, struct err *err)
{
    struct source_file *f = &s->file[i];
    struct stat status;
    int fd = fs_open_regular(f->path, err);
    bool pickled;
    int ret = -1;

    if (fd < 0)
        return -1;
    if (fstat(fd, &status) < 0) {
        err_errno(err, "%s", f->path);
        goto out;
    }
    f->mtime_ns = (int64_t)status.st_mtim.tv_sec * 1000000000 + status.st_mtim.tv_nsec;
    f->ctime_ns = (int64_t)status.st_ctim.tv_sec * 1000000000 + status.st_ctim.tv_nsec;
    f->inode = (uint64_t)status.st_ino;
    if (find_pickled(&pickled, fd, f->path, (uint64_t)status.st_size, err) == 0)
        ret = pickled ? read_pickle(s, i, fd, cap, err)
                      : read_safetensors(s, i, fd, cap, err);
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

static const struct {
    const char *stem, *suffix, *file, *index;
} forms[] = {
    { "model", ".safetensors", "model.safetensors", "model.safetensors.index.json" },
    { "pytorch_model", ".bin", "pytorch_model.bin", PICKLE_INDEX },
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
    other = text && source_parse_index(&names, &nnames, index, text, n, &ignored) < 0;
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
static int find_weights(struct source *s, const char *dir, char **index, char **text,
                        size_t *n, struct err *err)
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
            set_files(s, dir, one, 1);
            return find_shadowed(&s->shadowed, *index, one[0], err);
        }
        if (fs_read_optional(text, n, *index, MAX_JSON, err) < 0)
            return -1;
        if (*text) {
            if (source_parse_index(&names, &nnames, *index, *text, *n, err) < 0)
                return -1;
            set_files(s, dir, names, nnames);
            fs_list_free(names, nnames);
            return 0;
        }
    }
    for (size_t k = 0; k < NFORMS; k++) {
        if (locate_shards(&names, &nnames, dir, forms[k].stem, forms[k].suffix, err) <
            0)
            return -1;
        if (nnames) {
            set_files(s, dir, names, nnames);
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

/* ---- the files beside the weights ---- */

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
    if (!strcmp(name, PICKLE_INDEX))
        return true;
    for (size_t i = 0; i < s->nfiles; i++)
        if (s->file[i].path && !strcmp(fs_basename(s->file[i].path), name))
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
static int look_beside(struct source *s, const char *dir, struct err *err)
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

static int open_directory(struct source *s, const char *dir, struct err *err)
{
    char *index = NULL;
    struct tensor_index found = { 0 };
    struct lookup lookup = { s, &found };
    const struct tensor *twice;
    char *text = NULL;
    size_t n = 0, config_bytes;
    int ret = -1;

    s->config_path = fs_join_dup(dir, CONFIG);
    if (fs_read_optional(&s->config, &config_bytes, s->config_path, MAX_JSON, err) < 0)
        goto out;
    if (find_weights(s, dir, &index, &text, &n, err) < 0 ||
        read_all_weights(s, err) < 0)
        goto out;
    twice = tensor_index_init(&found, s->tensor, s->n);
    if (twice) {
        err_set(err, ERR_INPUT, "%s: tensor '%s' is in two files", dir, twice->name);
        goto out;
    }
    if (text && walk_index(index, text, n, check_entry, &lookup, err) < 0)
        goto out;
    ret = look_beside(s, dir, err);
out:
    tensor_index_clear(&found);
    free(index);
    free(text);
    return ret;
}

int source_open(struct source *s, const char *path, struct err *err)
{
    struct source made = { 0 };
    bool is_dir;
    int ret;

    if (fs_find_dir(&is_dir, path, err) < 0)
        return -1;
    made.path = xstrdup(path);
    made.single = !is_dir;
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

int source_find_weights(bool *found, const char *dir, struct err *err)
{
    *found = false;
    for (size_t k = 0; k < NFORMS && !*found; k++) {
        char **shards;
        size_t n;

        if (fs_find_in(found, dir, forms[k].file, err) < 0 ||
            (!*found && fs_find_in(found, dir, forms[k].index, err) < 0))
            return -1;
        if (*found)
            return 0;
        if (locate_shards(&shards, &n, dir, forms[k].stem, forms[k].suffix, err) < 0)
            return -1;
        *found = n > 0;
        fs_list_free(shards, n);
    }
    return 0;
}

int source_open_bare(struct source *s, const char *path, struct err *err)
{
    struct source made = { .path = xstrdup(path) };
    size_t n;

    made.config_path = fs_join_dup(path, CONFIG);
    if (fs_read_optional(&made.config, &n, made.config_path, MAX_JSON, err) < 0 ||
        look_beside(&made, path, err) < 0) {
        source_clear(&made);
        return -1;
    }
    made.file = xcalloc(1, sizeof(*made.file));
    *s = made;
    return 0;
}

int source_promise(struct source *s, const struct tensor *t, size_t n, struct err *err)
{
    static const char name[] = "model.safetensors";
    struct safetensors_header h;
    int ret = -1;

    safetensors_header_begin(&h, "{\"format\":\"pt\"}");
    for (size_t i = 0; i < n; i++)
        safetensors_header_add(&h, t[i].name, t[i].dtype, t[i].ndim, t[i].shape,
                               t[i].size);
    if (safetensors_header_finish(&h, name, err) == 0) {
        s->file[0] =
            (struct source_file){ .name = name,
                                  .size = h.text.len + h.end,
                                  .whole = h.text.len + h.end,
                                  .data = h.text.len,
                                  .header = pool_strndup(&s->pool, h.text.s + 8,
                                                         h.text.len - 8) };
        s->nfiles = 1;
        s->tensor = xcalloc(n + 1, sizeof(*s->tensor));
        for (size_t i = 0; i < n; i++)
            s->tensor[i] = t[i];
        s->n = n;
        ret = 0;
    }
    safetensors_header_clear(&h);
    return ret;
}

void source_clear(struct source *s)
{
    free(s->path);
    free(s->config);
    free(s->config_path);
    free(s->file);
    free(s->tensor);
    free(s->alias);
    fs_list_free(s->small, s->nsmall);
    fs_list_free(s->left, s->nleft);
    free(s->shadowed);
    pool_clear(&s->pool);
    *s = (struct source){ 0 };
}

int source_header(char **text, size_t *n, const struct source *s, size_t i,
                  struct err *err)
{
    const struct source_file *f = &s->file[i];
    size_t bytes = (size_t)(f->data - 8);
    char *header;
    int fd, ret;

    if (f->header) {
        *text = xstrndup(f->header, bytes);
        *n = bytes;
        return 0;
    }
    fd = fs_open_regular(f->path, err);
    if (fd < 0)
        return -1;
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

int source_crc32(uint32_t *crc, const struct source *s, size_t i, struct err *err)
{
    const struct source_file *f = &s->file[i];
    int fd = fs_open_regular(f->path, err), ret = 0;
    char *buf;

    if (fd < 0)
        return -1;
    buf = xmalloc(CHUNK);
    *crc = 0;
    for (uint64_t at = 0; at < f->size && ret == 0; at += CHUNK) {
        size_t n = f->size - at < CHUNK ? (size_t)(f->size - at) : CHUNK;

        ret = fs_pread(fd, buf, n, at, f->path, err);
        *crc = hash_crc32(*crc, buf, n);
    }
    free(buf);
    close(fd);
    return ret;
}

char *source_index_dup(const struct source *s)
{
    struct str text = { 0 };
    uint64_t total = 0;

    if (s->nfiles < 2 || !s->file[0].header)
        return NULL;
    for (size_t i = 0; i < s->n; i++)
        total += s->tensor[i].size;
    str_addf(
        &text,
        "{\n  \"metadata\": {\n    \"total_size\": %llu\n  },\n  \"weight_map\": {",
        (unsigned long long)total);
    for (size_t i = 0; i < s->n; i++) {
        str_add(&text, i ? ",\n    " : "\n    ");
        str_add_json(&text, s->tensor[i].name);
        str_add(&text, ": ");
        str_add_json(&text, s->file[s->tensor[i].file].name);
    }
    str_add(&text, "\n  }\n}\n");
    return str_steal(&text);
}
