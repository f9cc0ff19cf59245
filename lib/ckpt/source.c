/* source - a model's weights as another program left them */
#include "lib/ckpt/source.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/hash.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/ckpt/beside.h"
#include "lib/ckpt/dcpdir.h"
#include "lib/ckpt/foreignforms.h"
#include "lib/ckpt/form.h"
#include "lib/ckpt/rankfiles.h"
#include "lib/ckpt/safetensors.h"
#include "lib/ckpt/zerodir.h"

static const char CONFIG[] = "config.json";

enum { MAX_JSON = 256 << 20, CHUNK = 1 << 20 };

/* ---- forms ---- */

/* The first that finds itself opens a path; the last but one reports what a directory
 * of no form lacks. */
static const struct source_ops *const forms[] = {
    &hubdir_ops,    &megatron_ops, &meta_ops, &dcpdir_ops, &zerodir_ops, &hubshards_ops,
    &rankfiles_ops, &nanogpt_ops,  &llmc_ops, &gguf_ops,   &hubfile_ops
};

enum { NFORMS = sizeof(forms) / sizeof(*forms) };

/* *ops becomes NULL if no form finds itself in PATH. */
static int find_form(const struct source_ops **ops, const char *path, struct err *err)
{
    bool is_dir, found = false;

    *ops = NULL;
    if (fs_find_dir(&is_dir, path, err) < 0)
        return -1;
    for (size_t k = 0; k < NFORMS && !found; k++) {
        if (forms[k]->probe(&found, path, is_dir, err) < 0)
            return -1;
        if (found)
            *ops = forms[k];
    }
    return 0;
}

/* ---- opening ---- */

/* Reads DIR/config.json, if it is there. */
static int read_config(struct source *s, const char *dir, struct err *err)
{
    size_t n;

    free(s->home);
    free(s->config_path);
    s->home = xstrdup(dir);
    s->config_path = fs_join_dup(dir, CONFIG);
    return fs_read_optional(&s->config, &n, s->config_path, MAX_JSON, err);
}

/* Reads the config that the user gives, a file or its directory. */
static int read_given(struct source *s, const char *config, struct err *err)
{
    bool is_dir;
    size_t n;

    if (fs_find_dir(&is_dir, config, err) < 0)
        return -1;
    if (is_dir) {
        if (read_config(s, config, err) < 0)
            return -1;
        return s->config ? 0 : err_set(err, ERR_INPUT, "%s: missing", s->config_path);
    }
    s->config_path = xstrdup(config);
    return fs_read_regular(&s->config, &n, config, MAX_JSON, err);
}

/* Finds the config of PATH, and the directory of the files beside.  PATH may be an
 * inner directory of a checkpoint of the same form. */
static int find_config(struct source *s, const char *path, struct err *err)
{
    char *inner = fs_join_dup(path, "huggingface"), *outer = fs_join_dup(path, "..");
    bool found = false;
    int ret = read_config(s, path, err);

    if (ret == 0 && !s->config && s->ops != &hubdir_ops) {
        ret = read_config(s, inner, err);
        /* only then is the form of OUTER of interest, which may be a directory that
         * may be passed but not listed */
        if (ret == 0 && !s->config)
            ret = fs_find_in(&found, outer, CONFIG, err);
        if (ret == 0 && found)
            ret = s->ops->probe(&found, outer, true, err);
        if (ret == 0 && found)
            ret = read_config(s, outer, err);
        if (ret == 0 && !s->config)
            ret = read_config(s, path, err);
    }
    free(inner);
    free(outer);
    return ret;
}

/* What lies elsewhere and is not carried is no loss. */
static void forget_left(struct source *s)
{
    fs_list_free(s->left, s->nleft);
    s->left = NULL;
    s->nleft = 0;
}

int source_open(struct source *s, const char *path, const struct source_options *opt,
                struct err *err)
{
    static const struct source_options none = { 0 };
    struct source made = { 0 };
    int ret = 0;

    opt = opt ? opt : &none;
    progress_init(&made.progress);
    made.moments = opt->moments || opt->any_moments;
    made.masters = opt->masters;
    if (find_form(&made.ops, path, err) < 0)
        return -1;
    if (!made.ops)
        made.ops = &hubdir_ops;
    made.path = xstrdup(path);
    made.given = opt->config != NULL;
    if (opt->config)
        ret = read_given(&made, opt->config, err);
    else if (made.ops != &hubfile_ops)
        ret = find_config(&made, path, err);
    if (ret == 0)
        ret = made.ops->open(&made, path, err);
    if (ret == 0 && opt->moments && !made.nstates && !made.progress.nparameters)
        ret = err_set(err, ERR_INPUT, "%s: no moments of an optimizer", path);
    if (ret == 0 && opt->masters && !made.mastered)
        ret = err_set(err, ERR_INPUT, "%s: no masters of an optimizer", path);
    if (ret == 0 && made.home)
        ret = beside_look(&made, made.home, err);
    if (made.home && strcmp(made.home, path) != 0)
        forget_left(&made);
    if (ret < 0) {
        source_clear(&made);
        return -1;
    }
    *s = made;
    return 0;
}

int source_find_foreign(bool *found, const char *path, struct err *err)
{
    const struct source_ops *ops;

    if (find_form(&ops, path, err) < 0)
        return -1;
    *found = ops && ops != &hubfile_ops && ops != &hubdir_ops;
    return 0;
}

int source_find_weights(bool *found, const char *dir, struct err *err)
{
    const struct source_ops *ops;

    if (find_form(&ops, dir, err) < 0)
        return -1;
    *found = ops && ops != &hubfile_ops;
    return 0;
}

int source_open_bare(struct source *s, const char *path, struct err *err)
{
    struct source made = { .ops = &hubdir_ops, .path = xstrdup(path) };

    if (read_config(&made, path, err) < 0 || beside_look(&made, path, err) < 0) {
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
    free(s->unmade);
    free(s->untokenized);
    for (size_t i = 0; i < s->nmade; i++)
        free(s->made[i].text);
    free(s->home);
    free(s->input);
    free(s->file);
    free(s->tensor);
    free(s->raw);
    free(s->alias);
    free(s->archive);
    free(s->state);
    free(s->role);
    free(s->group);
    progress_clear(&s->progress);
    fs_list_free(s->small, s->nsmall);
    fs_list_free(s->left, s->nleft);
    free(s->shadowed);
    pool_clear(&s->pool);
    *s = (struct source){ 0 };
    progress_init(&s->progress);
}

void source_add_aliases(struct source_alias **alias, size_t *n, struct pool *pool,
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
    source_add_aliases(alias, nalias, pool, &st);
    safetensors_clear(&st);
    return 0;
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
        ret = form_present_file(s, i, one, k, &cap, err);
    }
    free(one);
    return ret;
}

/* ---- reading ---- */

int source_read(const struct tensor *t, uint64_t offset, void *buf, size_t n,
                boxes_fd *fd, void *arg, struct err *err)
{
    uint64_t width = (uint64_t)dtype_bits(t->dtype) / 8, begin[TENSOR_MAX_DIMS] = { 0 };
    const struct box whole = { t->input, t->offset, begin, t->shape, t->stride, NULL };
    const struct boxes one = { .ndim = t->ndim,
                               .shape = t->shape,
                               .box = &whole,
                               .n = 1,
                               .highest = (uint64_t[]){ UINT64_MAX } };
    const char *name;
    int at;

    if (t->boxes || t->stride)
        return boxes_read(t->boxes ? t->boxes : &one, (size_t)width, offset / width,
                          n / width, buf, fd, arg, err);
    at = fd(arg, t->input, &name, err);
    return at < 0 ? -1 : fs_pread(at, buf, n, t->offset + offset, name, err);
}

bool source_is_safetensors(const struct source *s)
{
    return !s->nfiles || !s->file[0].header;
}

const char *source_file_of(const struct source *s, const struct tensor *t)
{
    const struct source_file *f = &s->file[t->file];

    return f->origin || !f->header || !s->ninputs ? f->name : s->input[t->input].name;
}

const char *source_made(const struct source *s, const char *name)
{
    for (size_t i = 0; i < s->nmade; i++)
        if (!strcmp(s->made[i].name, name))
            return s->made[i].text;
    return NULL;
}

const char *source_place(const struct source *s, const struct tensor *t)
{
    return t->boxes || !s->ninputs ? s->path : s->input[t->input].path;
}

/* ---- files ---- */

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
    fd = fs_open_regular(s->input[i].path, err);
    if (fd < 0)
        return -1;
    header = xmalloc(bytes + 1);
    header[bytes] = '\0';
    ret = fs_pread(fd, header, bytes, 8, s->input[i].path, err);
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
    const struct source_input *f = &s->input[i];
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
