/* inspect - what is wrong with a directory that somebody downloaded or left behind */
#include "lib/reshard/inspect.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/fs.h"
#include "lib/base/jsonlex.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/ckpt/hubdir.h"
#include "lib/ckpt/locate.h"
#include "lib/model/keys.h"
#include "lib/reshard/surroundings.h"
#include "lib/reshard/checkpoint.h"
#include "lib/reshard/idrange.h"
#include "lib/reshard/bitscan.h"

enum {
    MAX_JSON = 256 << 20,
    CHUNK = 1 << 18, /* bytes read at a time: they stay in the cache of a core */
    ITEM = 64 * CHUNK
};

static const char CONFIG[] = "config.json", INDEX[] = "model.safetensors.index.json";

/* A look at one path. */
struct look {
    struct inspection *out;
    const struct inspect_options *opt;
    const char *path;
    char **weights; /* names of the weight files in PATH */
    size_t nweights;
    char *index; /* name of the index that names them, or NULL */
    bool sharded;
    bool unread; /* a weight file could not be: what it has is not called missing */
    struct tensor *tensor; /* of all files; .file indexes WEIGHTS */
    size_t n, cap;
    struct source_alias *alias;
    size_t naliases;
    struct pool pool;
};

static int take(struct look *l, enum inspection_level level, const char *file,
                const char *path, const struct err *cause, struct err *err)
{
    return inspection_take(l->out, level, file, path, cause, err);
}

/* ---- which files ---- */

static const struct {
    const char *file, *index, *stem, *suffix;
} forms[] = {
    { "model.safetensors", INDEX, "model", ".safetensors" },
    { "pytorch_model.bin", "pytorch_model.bin.index.json", "pytorch_model", ".bin" },
};

/* Takes the names in the index NAME, if it is there and good. */
static int take_index(struct look *l, const char *name, struct err *err)
{
    char *path = fs_join_dup(l->path, name), *text = NULL;
    struct err cause = { 0 };
    size_t n;
    int ret = 0;

    if (fs_read_optional(&text, &n, path, MAX_JSON, &cause) < 0 ||
        (text &&
         hubdir_parse_index(&l->weights, &l->nweights, path, text, n, &cause) < 0))
        ret = take(l, INSPECTION_ERROR, name, path, &cause, err);
    else if (text)
        l->index = xstrdup(name);
    free(text);
    free(path);
    return ret;
}

static void take_one(struct look *l, const char *name)
{
    l->weights = xmalloc(sizeof(*l->weights));
    l->weights[0] = xstrdup(name);
    l->nweights = 1;
}

/* Finds the weight files in the order in which source_open does. */
static int choose_weights(struct look *l, struct err *err)
{
    for (size_t k = 0; k < sizeof(forms) / sizeof(*forms) && !l->nweights; k++) {
        bool found, index;

        if (fs_find_in(&found, l->path, forms[k].file, err) < 0 ||
            fs_find_in(&index, l->path, forms[k].index, err) < 0)
            return -1;
        if (found && index)
            inspection_add(l->out, INSPECTION_WARNING, forms[k].index, NULL,
                           "an index beside %s, which is read", forms[k].file);
        if (found)
            take_one(l, forms[k].file);
        else if (index && take_index(l, forms[k].index, err) < 0)
            return -1;
    }
    for (size_t k = 0; k < sizeof(forms) / sizeof(*forms) && !l->nweights; k++)
        if (locate_shards(&l->weights, &l->nweights, l->path, forms[k].stem,
                          forms[k].suffix, err) < 0)
            return -1;
    return 0;
}

/* The files that the manifest of a sharded checkpoint names. */
static int choose_parts(struct look *l, struct err *err)
{
    static const struct checkpoint_options tensors_only = { .no_model = true };
    struct checkpoint *c = NULL;
    struct err cause = { 0 };

    if (checkpoint_open(&c, l->path, &tensors_only, &cause) < 0)
        return take(l, INSPECTION_ERROR, MANIFEST_NAME, l->path, &cause, err);
    l->nweights = (size_t)c->manifest.nparts;
    l->weights = xcalloc(l->nweights, sizeof(*l->weights));
    for (size_t i = 0; i < l->nweights; i++)
        l->weights[i] = xstrdup(c->manifest.file[i].name);
    checkpoint_close(c);
    return 0;
}

/* ---- values: each byte is read once ---- */

struct pass {
    struct look *l;
    struct checkpoint *c;
    struct bitscan *values; /* [ntensors] */
    size_t tensor;          /* the next item: ITEM bytes of TENSOR from AT */
    uint64_t at;
    bool failed;
    struct err err; /* of the first that failed */
    pthread_mutex_t lock;
};

static uint64_t bytes_of(const struct tensor *t)
{
    uint64_t n = 1, bytes = 0;

    for (int k = 0; k < t->ndim; k++)
        n *= t->shape[k];
    return dtype_bytes(&bytes, t->dtype, n) ? bytes : 0;
}

static bool next_item(struct pass *p, size_t *tensor, uint64_t *at, uint64_t *n)
{
    bool found = false;

    pthread_mutex_lock(&p->lock);
    while (!p->failed && !found && p->tensor < p->c->ntensors) {
        const struct tensor *t = &p->c->tensor[p->tensor];
        uint64_t bytes = bitscan_known(t->dtype) ? bytes_of(t) : 0;

        found = p->at < bytes;
        *tensor = p->tensor;
        *at = p->at;
        *n = !found ? 0 : bytes - p->at < ITEM ? bytes - p->at : ITEM;
        p->at += *n;
        if (p->at >= bytes) {
            p->tensor++;
            p->at = 0;
        }
    }
    pthread_mutex_unlock(&p->lock);
    return found;
}

static void *look_at_items(void *arg)
{
    struct pass *p = arg;
    char *buf = xmalloc(CHUNK);
    uint64_t at, n;
    size_t i;

    while (next_item(p, &i, &at, &n)) {
        struct bitscan v = { 0 };
        struct err err = { 0 };
        int ret = 0;

        for (uint64_t done = 0; done < n && ret == 0; done += CHUNK) {
            size_t step = n - done < CHUNK ? (size_t)(n - done) : CHUNK;

            ret = checkpoint_read(p->c, i, at + done, buf, step, &err);
            if (ret == 0)
                bitscan_add(&v, p->c->tensor[i].dtype, buf, step);
        }
        pthread_mutex_lock(&p->lock);
        bitscan_join(&p->values[i], &v);
        p->l->out->bytes += ret == 0 ? n : 0;
        if (ret < 0 && !p->failed) {
            p->failed = true;
            p->err = err;
        }
        pthread_mutex_unlock(&p->lock);
    }
    free(buf);
    return NULL;
}

/* What the values of T say. */
static void judge(struct look *l, const char *file, const struct tensor *t,
                  const struct bitscan *v)
{
    enum inspection_level level = t->ndim > 1 ? INSPECTION_WARNING : INSPECTION_NOTE;

    if (v->nans)
        inspection_add(l->out, INSPECTION_ERROR, file, t->name,
                       "%" PRIu64 " of %" PRIu64 " numbers are NaN", v->nans, v->seen);
    if (v->infinities)
        inspection_add(l->out, INSPECTION_ERROR, file, t->name,
                       "%" PRIu64 " of %" PRIu64 " numbers are infinite", v->infinities,
                       v->seen);
    if (v->nans || v->infinities || v->seen < 2)
        return;
    if (!v->nonzero)
        inspection_add(l->out, level, file, t->name, "all zero");
    else if (!v->other)
        inspection_add(l->out, level, file, t->name, "every number is %g", v->sample);
}

static int inspect_values(struct look *l, const char *file, struct checkpoint *c,
                          struct err *err)
{
    struct pass p = { .l = l,
                      .c = c,
                      .values = xcalloc(c->ntensors + 1, sizeof(*p.values)) };
    int threads = l->opt->threads, started = 0;
    pthread_t *thread = xcalloc((size_t)threads, sizeof(*thread));
    int ret = 0;

    pthread_mutex_init(&p.lock, NULL);
    while (started < threads - 1 &&
           pthread_create(&thread[started], NULL, look_at_items, &p) == 0)
        started++;
    look_at_items(&p);
    for (int i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
    pthread_mutex_destroy(&p.lock);
    if (p.failed)
        ret = take(l, INSPECTION_ERROR, file, l->path, &p.err, err);
    for (size_t i = 0; i < c->ntensors && ret == 0; i++)
        judge(l,
              c->sharded || !c->source.nfiles ? file
                                              : c->source.file[c->tensor[i].file].name,
              &c->tensor[i], &p.values[i]);
    free(thread);
    free(p.values);
    return ret;
}

/* ---- weight files ---- */

static void add_tensors(struct look *l, size_t file, const struct checkpoint *c)
{
    l->tensor = xgrow(l->tensor, &l->cap, l->n + c->ntensors + 1, sizeof(*l->tensor));
    for (size_t i = 0; i < c->ntensors; i++) {
        const struct tensor *t = &c->tensor[i];
        size_t bytes = ((size_t)t->ndim + 1) * sizeof(*t->shape);
        uint64_t *shape = pool_take(&l->pool, bytes, sizeof(*shape));

        if (t->ndim)
            memcpy(shape, t->shape, (size_t)t->ndim * sizeof(*shape));
        l->tensor[l->n++] = (struct tensor){ .name = pool_strdup(&l->pool, t->name),
                                             .shape = shape,
                                             .dtype = t->dtype,
                                             .ndim = t->ndim,
                                             .file = (int)file };
    }
    l->out->tensors += c->ntensors;
}

static void add_aliases(struct look *l, const struct source *s)
{
    l->alias = xrealloc(l->alias, (l->naliases + s->naliases + 1) * sizeof(*l->alias));
    for (size_t i = 0; i < s->naliases; i++)
        l->alias[l->naliases++] =
            (struct source_alias){ pool_strdup(&l->pool, s->alias[i].name),
                                   pool_strdup(&l->pool, s->alias[i].stored) };
}

/* Looks at PATH, a weight file, or a directory that is one set of weights. */
static int inspect_weights(struct look *l, size_t file, const char *name,
                           const char *path, struct err *err)
{
    static const struct checkpoint_options tensors_only = { .no_model = true };
    struct checkpoint *c = NULL;
    struct err cause = { 0 };
    int ret = 0;

    if (checkpoint_open(&c, path, &tensors_only, &cause) < 0 ||
        checkpoint_open_files(c, -1, &cause) < 0) {
        l->unread = true;
        checkpoint_close(c);
        return take(l, INSPECTION_ERROR, name, path, &cause, err);
    }
    l->out->files += c->source.ninputs;
    add_tensors(l, file, c);
    add_aliases(l, &c->source);
    if (!l->opt->headers)
        ret = inspect_values(l, name, c, err);
    checkpoint_close(c);
    return ret;
}

/* Tensors that two files have. */
static void find_repeated(struct look *l, const struct tensor_index *index)
{
    for (size_t i = 0; i + 1 < index->n && !l->sharded; i++) {
        const struct tensor *a = &l->tensor[index->order[i]],
                            *b = &l->tensor[index->order[i + 1]];

        if (!strcmp(a->name, b->name))
            inspection_add(l->out, INSPECTION_ERROR, l->weights[b->file], b->name,
                           "is also in %s", l->weights[a->file]);
    }
}

/* ---- the index against the files ---- */

/* One entry of the index: TENSOR is in the file NAME. */
static void inspect_entry(struct look *l, const struct tensor_index *index, bool *named,
                          const char *tensor, const char *name)
{
    long at = tensor_index_find(index, tensor);

    while (str_starts(name, "./"))
        name += 2;
    if (at < 0 && !l->unread)
        inspection_add(l->out, INSPECTION_ERROR, l->index, tensor,
                       "is not in %s, nor in another file", name);
    else if (at >= 0 && strcmp(l->weights[l->tensor[at].file], name) != 0)
        inspection_add(l->out, INSPECTION_ERROR, l->index, tensor,
                       "is in %s, not in %s", l->weights[l->tensor[at].file], name);
    if (at >= 0)
        named[at] = true;
}

/* Reads the entries of the weight_map, whose object has begun. */
static int read_entries(struct look *l, struct jsonlex *lex,
                        const struct tensor_index *index, bool *named, struct err *err)
{
    struct str tensor = { 0 };
    int ret = -1;

    while (jsonlex_next(lex, err) == 0) {
        if (lex->token == JSONLEX_OBJECT_END) {
            ret = 0;
            break;
        }
        if (lex->token == JSONLEX_KEY) {
            str_reset(&tensor);
            str_add(&tensor, lex->text.s);
        } else if (lex->token == JSONLEX_STRING) {
            inspect_entry(l, index, named, str_text(&tensor), lex->text.s);
        }
    }
    str_clear(&tensor);
    return ret;
}

static int inspect_index(struct look *l, const struct tensor_index *index,
                         struct err *err)
{
    char *path = fs_join_dup(l->path, l->index), *text = NULL;
    bool *named = xcalloc(l->n + 1, sizeof(*named));
    struct err cause = { 0 };
    struct jsonlex lex;
    size_t n;
    int ret = fs_read_regular(&text, &n, path, MAX_JSON, err);

    if (ret == 0) {
        jsonlex_init(&lex, path, text, n);
        while (jsonlex_next(&lex, &cause) == 0 && lex.token != JSONLEX_END)
            if (lex.token == JSONLEX_KEY && lex.depth == 1 &&
                !strcmp(lex.text.s, "weight_map") &&
                (jsonlex_next(&lex, &cause) < 0 ||
                 read_entries(l, &lex, index, named, &cause) < 0))
                break;
        jsonlex_clear(&lex);
        for (size_t i = 0; i < l->n; i++)
            if (!named[i])
                inspection_add(l->out, INSPECTION_WARNING,
                               l->weights[l->tensor[i].file], l->tensor[i].name,
                               "is not named in %s", l->index);
    }
    free(text);
    free(named);
    free(path);
    return ret;
}

/* ---- the model ---- */

struct faults {
    struct look *l;
    const struct tensor_index *index;
};

static void add_fault(void *arg, const char *name, const char *text)
{
    const struct faults *f = arg;
    long at = tensor_index_find(f->index, name);

    if (at < 0 && f->l->unread)
        return;
    inspection_add(f->l->out, INSPECTION_ERROR,
                   at >= 0 ? f->l->weights[f->l->tensor[at].file] : CONFIG, name, "%s",
                   text);
}

/* Names and shapes against the family and the config. */
static int inspect_names(struct look *l, struct model *m,
                         const struct tensor_index *index, struct err *err)
{
    struct model_input *in = xcalloc(l->n + 1, sizeof(*in));
    struct model_alias *alias = xcalloc(l->naliases + 1, sizeof(*alias));
    struct faults f = { l, index };
    struct err cause = { 0 };
    int ret = 0;

    for (size_t i = 0; i < l->n; i++)
        in[i] = (struct model_input){ l->tensor[i].name, l->tensor[i].dtype,
                                      l->tensor[i].ndim, l->tensor[i].shape };
    for (size_t i = 0; i < l->naliases; i++)
        alias[i] = (struct model_alias){ l->alias[i].name, l->alias[i].stored };
    if (model_bind_report(m, in, l->n, alias, l->naliases, add_fault, &f, &cause) < 0)
        ret = take(l, INSPECTION_ERROR, CONFIG, l->path, &cause, err);
    free(in);
    free(alias);
    return ret;
}

/* Keys of the config that the family cannot honour, or does not know. */
static int inspect_keys(struct look *l, const struct model *m, struct err *err)
{
    struct str ignored = { 0 };
    struct err cause = { 0 };
    int ret = 0;

    if (keys_check(m, KEYS_NUMBERS, &ignored, &cause) < 0)
        ret = take(l, INSPECTION_NOTE, CONFIG, model_config_name(m), &cause, err);
    else if (ignored.len)
        inspection_add(l->out, INSPECTION_NOTE, CONFIG, NULL,
                       "not known to family %s: %s", m->family, str_text(&ignored));
    str_clear(&ignored);
    return ret;
}

/* The type of most elements against the config's. */
static void inspect_type(struct look *l, const struct model *m)
{
    uint64_t of[DTYPE_COUNT] = { 0 };
    enum dtype config, most = DTYPE_F32;

    for (size_t i = 0; i < l->n; i++)
        of[l->tensor[i].dtype] += bytes_of(&l->tensor[i]);
    for (int t = 0; t < DTYPE_COUNT; t++)
        if (of[t] > of[most])
            most = (enum dtype)t;
    if (l->n && model_config_dtype(m, &config) && config != most &&
        !model_quantized(m) && dtype_is_float(most))
        inspection_add(l->out, INSPECTION_NOTE, CONFIG, NULL,
                       "names the type %s, but most weights are stored as %s",
                       dtype_name(config), dtype_name(most));
}

/* Tied tensors that differ, and whatever else keeps the whole from being opened. */
static int inspect_whole(struct look *l, struct err *err)
{
    const struct checkpoint_options opt = { .family_file = l->opt->family_file,
                                            .family_path = l->opt->family_path };
    struct checkpoint *c = NULL;
    struct err cause = { 0 };

    if (l->out->found[INSPECTION_ERROR])
        return 0;
    if (checkpoint_open(&c, l->path, &opt, &cause) < 0 ||
        checkpoint_open_files(c, -1, &cause) < 0) {
        checkpoint_close(c);
        return take(l, INSPECTION_ERROR, l->sharded ? MANIFEST_NAME : CONFIG, l->path,
                    &cause, err);
    }
    if (c->model && model_untied(c->model))
        inspection_add(l->out, INSPECTION_ERROR, CONFIG, NULL, "ties tensors, but %s",
                       model_untied(c->model));
    checkpoint_close(c);
    return 0;
}

static bool names_code(const char *config)
{
    return strstr(config, "\"auto_map\"") != NULL;
}

/* What config.json says, against the tensors and the tokenizer. */
static int inspect_config(struct look *l, const struct tensor_index *index,
                          struct err *err)
{
    char *path = fs_join_dup(l->path, CONFIG), *text = NULL;
    struct model *m = NULL;
    struct err cause = { 0 };
    double rows;
    size_t n;
    int ret = 0;

    if (fs_read_optional(&text, &n, path, 1 << 24, &cause) < 0) {
        ret = take(l, INSPECTION_ERROR, CONFIG, path, &cause, err);
    } else if (!text) {
        if (l->n && !strcmp(l->weights[0], l->path)) /* another form, which may tell */
            ret = inspect_whole(l, err);
        else if (l->n)
            inspection_add(l->out, INSPECTION_ERROR, CONFIG, NULL, "missing");
    } else if (model_open(&m, path, text, l->opt->family_file, l->opt->family_path,
                          &cause) < 0) {
        ret = take(l, INSPECTION_WARNING, CONFIG, path, &cause, err);
        inspection_add(l->out, INSPECTION_NOTE, CONFIG, NULL,
                       "names, shapes and ids are not compared");
    } else {
        if (names_code(text))
            inspection_add(l->out, INSPECTION_WARNING, CONFIG, NULL,
                           "auto_map names code, which loaders that trust it run");
        ret = inspect_keys(l, m, err);
        if (ret == 0 && l->n && !l->sharded)
            ret = inspect_names(l, m, index, err);
        if (ret == 0)
            inspect_type(l, m);
        if (ret == 0 && model_number(m, "vocab", &rows) && rows >= 1)
            ret = idrange_inspect(l->out, l->path, (uint64_t)rows, err);
        if (ret == 0 && l->n)
            ret = inspect_whole(l, err);
    }
    model_free(m);
    free(text);
    free(path);
    return ret;
}

/* ---- the whole ---- */

/* Sets *names, which the caller frees, and *n to the files of a form of another
 * framework that are read, those of moments too; none, if the directory has none that
 * can be opened. */
static int list_foreign(struct look *l, char ***names, size_t *n, struct err *err)
{
    struct source_options opt = { .moments = true };
    size_t dir = strlen(l->path);
    struct err cause = { 0 };
    struct source s;
    bool foreign;

    *names = NULL;
    *n = 0;
    if (source_find_foreign(&foreign, l->path, err) < 0)
        return -1;
    if (!foreign)
        return 0;
    if (source_open(&s, l->path, &opt, &cause) < 0) {
        opt.moments = false;
        if (source_open(&s, l->path, &opt, &cause) < 0)
            return 0; /* which inspect_weights reports */
    }
    *names = xmalloc((s.ninputs + 1) * sizeof(**names));
    for (size_t i = 0; i < s.ninputs; i++)
        if (!strncmp(s.input[i].path, l->path, dir) && s.input[i].path[dir] == '/')
            (*names)[(*n)++] = xstrdup(s.input[i].path + dir + 1);
    source_clear(&s);
    return 0;
}

static int inspect_directory(struct look *l, struct err *err)
{
    struct tensor_index index = { 0 };
    char **foreign = NULL;
    size_t own, nforeign = 0;
    int ret = -1;

    if (checkpoint_is_sharded(&l->sharded, l->path, err) < 0 ||
        (l->sharded ? choose_parts(l, err) : choose_weights(l, err)) < 0)
        goto out;
    own = l->nweights;
    if (!own && list_foreign(l, &foreign, &nforeign, err) < 0)
        goto out;
    if (surroundings_inspect(l->out, l->path, own ? l->weights : foreign,
                             own ? own : nforeign, own > 0, err) < 0)
        goto out;
    if (!own) /* a form of another framework, or none */
        take_one(l, l->path);
    for (size_t i = 0; i < l->nweights; i++) {
        char *path = own ? fs_join_dup(l->path, l->weights[i]) : xstrdup(l->path);

        ret = inspect_weights(l, i, l->weights[i], path, err);
        free(path);
        if (ret < 0)
            goto out;
    }
    ret = -1;
    tensor_index_init(&index, l->tensor, l->n);
    find_repeated(l, &index);
    if (l->index && inspect_index(l, &index, err) < 0)
        goto out;
    ret = inspect_config(l, &index, err);
out:
    tensor_index_clear(&index);
    fs_list_free(foreign, nforeign);
    return ret;
}

int inspect(struct inspection *out, const char *path, const struct inspect_options *opt,
            struct err *err)
{
    struct look l = { .out = out, .opt = opt };
    char *found = NULL;
    bool is_dir;
    int ret = -1;

    if (checkpoint_find(path, err) < 0 || locate_model(&found, path, true, err) < 0 ||
        fs_find_dir(&is_dir, found, err) < 0)
        goto out;
    l.path = found;
    if (is_dir)
        ret = inspect_directory(&l, err);
    else
        ret = inspect_weights(&l, 0, fs_basename(found), found, err);
out:
    fs_list_free(l.weights, l.nweights);
    free(l.index);
    free(l.tensor);
    free(l.alias);
    pool_clear(&l.pool);
    free(found);
    return ret;
}
