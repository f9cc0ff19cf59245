/* checkpoint - a model and its weights on disk, whole or sharded */
#include "lib/reshard/checkpoint.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/hash.h"
#include "lib/base/mem.h"
#include "lib/ckpt/form.h"
#include "lib/ckpt/locate.h"
#include "lib/ckpt/steps.h"
#include "lib/ckpt/safetensors.h"
#include "lib/reshard/grow.h"
#include "lib/model/quant.h"
#include "lib/reshard/numbered.h"
#include "lib/reshard/renamed.h"

static const uint64_t NOT_THERE = UINT64_MAX;

enum { MOST_OPEN = 256 }; /* files of a source, which may have many thousands */

/* The open files and the position of each tensor in them. */
struct checkpoint_files {
    int nparts; /* 1 unless sharded */
    int nfiles;
    int *fd;          /* [nfiles], -1 until opened, and again to spare descriptors */
    int nopen, hand;  /* open files; where to look for one to close */
    mode_t mode;      /* bits common to all files opened so far */
    uint64_t *offset; /* [ntensors * nparts] in the shard file; sharded only */
    struct cutter **cutter; /* [nparts]; sharded only */
    struct cut_side side;
    uint32_t *crc; /* [nparts] temporary, for one copy */
    bool *read;
    bool *spared;  /* [ntensors * nparts]: the shard stores a replica that the copy did
                    * not read; NULL until a tensor is copied */
    size_t tensor; /* the tensor that is being copied */
    struct mapped {
        unsigned char *data; /* NULL: not mapped */
        size_t size;
        bool tried;
    } * map; /* [nfiles] */
    struct standin {
        size_t tensor; /* of a sharded checkpoint, whose place it takes */
        enum dtype dtype;
        uint64_t offset;
        int fd;
        bool shared; /* the one of the tensor before */
        char *path;
    } * standin; /* [nstandins] */
    size_t nstandins;
};

int checkpoint_is_sharded(bool *sharded, const char *path, struct err *err)
{
    char *manifest = fs_join_dup(path, MANIFEST_NAME);
    int ret = fs_find(sharded, manifest, err);

    free(manifest);
    return ret;
}

/* ---- opening ---- */

static int untie(struct checkpoint *c, struct err *err); /* reads, so below */

/* What the metadata of the source's files says: *n entries, which the caller frees;
 * their strings are in POOL or the source. */
static int find_aliases(const struct checkpoint *c, struct model_alias **out, size_t *n,
                        struct pool *pool, struct err *err)
{
    struct source_alias *of_headers = NULL;
    const struct source_alias *alias = c->source.alias;
    size_t found = c->source.naliases;
    int ret = 0;

    for (size_t f = 0; f < c->manifest.nsources && c->sharded && ret == 0; f++) {
        const struct manifest_source *s = &c->manifest.source[f];

        ret = source_header_aliases(&of_headers, &found, pool, s->name, s->header,
                                    s->header_len, err);
        alias = of_headers;
    }
    *out = xmalloc((found + 1) * sizeof(**out));
    for (size_t i = 0; i < found; i++)
        (*out)[i] = (struct model_alias){ alias[i].name, alias[i].stored };
    *n = found;
    free(of_headers);
    return ret;
}

/* Binds the model to the tensors. */
static int bind(struct checkpoint *c, struct err *err)
{
    struct model_input *in = xcalloc(c->nweights + 1, sizeof(*in));
    struct model_alias *alias = NULL;
    struct pool pool = { 0 };
    size_t n;
    int ret;

    for (size_t i = 0; i < c->nweights; i++)
        in[i] = (struct model_input){ c->tensor[i].name, c->tensor[i].dtype,
                                      c->tensor[i].ndim, c->tensor[i].shape };
    ret = find_aliases(c, &alias, &n, &pool, err);
    if (ret == 0)
        ret = model_bind(c->model, in, c->nweights, alias, n, err);
    free(in);
    free(alias);
    pool_clear(&pool);
    return ret;
}

/* Fills which[]. */
static void find_which(struct checkpoint *c)
{
    for (size_t t = 0; t < c->model->ntensors; t++)
        if (c->model->tensor[t].source >= 0)
            c->which[c->model->tensor[t].source] = (long)t;
}

const char *checkpoint_role(const struct checkpoint *c, size_t i)
{
    if (c->sharded)
        return c->manifest.tensor[i].role;
    return i < c->nweights ? "weight" : c->source.role[i - c->nweights];
}

/* Is tensor I the state of WEIGHT in ROLE? */
static bool is_state_of(const struct checkpoint *c, size_t i, const char *weight,
                        const char *role)
{
    const char *name = c->tensor[i].name;
    size_t n = strlen(weight);

    return !strcmp(checkpoint_role(c, i), role) && !strncmp(name, weight, n) &&
           name[n] == '.' && !strcmp(name + n + 1, role);
}

long checkpoint_state(const struct checkpoint *c, size_t i, const char *role)
{
    for (size_t k = c->nweights; k < c->ntensors; k++)
        if (is_state_of(c, k, c->tensor[i].name, role))
            return (long)k;
    return -1;
}

static enum manifest_form form_of(const struct checkpoint *c, size_t i)
{
    return !c->sharded || i < c->nweights
               ? MANIFEST_LIKE
               : manifest_form_of(&c->manifest, checkpoint_role(c, i));
}

int checkpoint_lacks(const struct checkpoint *c, size_t i)
{
    const int ndim = c->tensor[i].ndim + 1; /* of the weight, if it lacks one */

    return manifest_lacks(form_of(c, i), ndim) + 1;
}

/* Has state I the axes of WEIGHT that its form says? */
static bool is_shaped(const struct checkpoint *c, size_t i, const struct tensor *weight)
{
    const struct tensor *t = &c->tensor[i];
    const int lacks = manifest_lacks(form_of(c, i), weight->ndim);
    int k = 0;

    if (form_of(c, i) != MANIFEST_LIKE && lacks < 0)
        return false;
    for (int d = 0; d < weight->ndim; d++)
        if (d != lacks && (k >= t->ndim || t->shape[k++] != weight->shape[d]))
            return false;
    return k == t->ndim;
}

/* Checks that each training state tensor has the shape that its weight and its form
 * give it; it is sharded like the weight. */
static int bind_state(struct checkpoint *c, struct err *err)
{
    struct tensor_index index = { 0 };
    int ret = 0;

    tensor_index_init(&index, c->tensor, c->nweights);
    for (size_t i = c->nweights; i < c->ntensors && ret == 0; i++) {
        const struct tensor *t = &c->tensor[i];
        size_t name = strlen(t->name), role = strlen(checkpoint_role(c, i)) + 1;
        char *weight = xstrndup(t->name, name > role ? name - role : 0);
        long w = tensor_index_find(&index, weight);

        if (w < 0 || c->which[w] < 0 ||
            !is_state_of(c, i, weight, checkpoint_role(c, i)) ||
            !is_shaped(c, i, &c->tensor[w]))
            ret = err_set(err, ERR_INPUT, "%s: is the %s of no weight", t->name,
                          checkpoint_role(c, i));
        else
            c->which[i] = c->which[w];
        free(weight);
    }
    tensor_index_clear(&index);
    return ret;
}

/* Counts the weights and checks that they precede the training state. */
static int count_weights(struct checkpoint *c, const char *path, struct err *err)
{
    const struct manifest *m = &c->manifest;

    while (c->nweights < m->ntensors && !strcmp(m->tensor[c->nweights].role, "weight"))
        c->nweights++;
    for (size_t i = c->nweights; i < m->ntensors; i++)
        if (!strcmp(m->tensor[i].role, "weight"))
            return err_set(err, ERR_INPUT, "%s: weight %s comes after a %s", path,
                           m->tensor[i].name, m->tensor[c->nweights].role);
    return 0;
}

/* Exchanges weight I, where it lies and what is known of that, with its state K: the
 * names that others see stay where they are, those in the files follow. */
static void exchange(struct checkpoint *c, size_t i, size_t k)
{
    struct manifest_tensor *m = c->manifest.tensor, one = m[i];
    enum dtype dtype = c->tensor[i].dtype;
    const char *role = m[k].role;

    m[i] = m[k];
    m[i].role = one.role;
    m[k] = one;
    m[k].role = role;
    c->tensor[i].dtype = c->tensor[k].dtype;
    c->tensor[k].dtype = dtype;
}

/* Puts the moving averages in the places of their weights; those that were not trained
 * have none. */
static int take_averages(struct checkpoint *c, struct err *err)
{
    const struct manifest *m = &c->manifest;
    size_t found = 0;

    for (size_t s = 0; c->sharded && s < m->nstates; s++)
        for (size_t i = 0; m->state[s].kind == MANIFEST_AVERAGE && i < c->nweights;
             i++) {
            long k = checkpoint_state(c, i, m->state[s].role);

            if (k < 0)
                continue;
            exchange(c, i, (size_t)k);
            found++;
        }
    c->averaged = true;
    return found ? 0
                 : err_set(err, ERR_USAGE, "--average: %s has no averages of weights",
                           c->path);
}

static int open_sharded(struct checkpoint *c, const struct checkpoint_options *opt,
                        struct err *err)
{
    char *path = fs_join_dup(c->path, MANIFEST_NAME);
    struct manifest *m = &c->manifest;
    int ret = -1;

    if (manifest_read(m, path, err) < 0)
        goto out;
    if (m->nbase && !opt->no_model) {
        err_set(err, ERR_INPUT,
                "%s: holds no weights of the model: it needs its base, %s (%" PRIu64
                " bytes with the CRC-32 %08" PRIx32
                "); give the base, and this directory with --adapter",
                path, m->base[0].name, m->base[0].size, m->base[0].crc);
        goto out;
    }
    for (int a = 0; a < MESH_NAXES; a++)
        c->mesh.size[a] = m->mesh[a];
    c->mesh.stages = m->stages;
    c->mesh.pad_vocab = m->pad_vocab;
    if (mesh_set(&c->mesh, m->mesh, &c->mesh, err) < 0) {
        err_prefix(err, "%s", path);
        err->kind = ERR_INPUT;
        goto out;
    }
    c->mesh.keep_vocab = m->keep_vocab;
    if (count_weights(c, path, err) < 0)
        goto out;
    c->ntensors = m->ntensors;
    c->tensor = xcalloc(m->ntensors, sizeof(*c->tensor));
    for (size_t i = 0; i < m->ntensors; i++)
        c->tensor[i] = (struct tensor){ .name = m->tensor[i].name,
                                        .shape = m->tensor[i].shape,
                                        .dtype = m->tensor[i].dtype,
                                        .ndim = m->tensor[i].ndim };
    ret =
        opt->no_model ? 0 : model_open_flat(&c->model, path, m->config, m->family, err);
out:
    free(path);
    return ret;
}

/* Lists all tensors of the model without files, in the type that its config names, or
 * f32. */
static int promise(struct checkpoint *c, struct err *err)
{
    const struct model *m = c->model;
    struct tensor *t = xcalloc(m->ntensors + 1, sizeof(*t));
    enum dtype dtype = DTYPE_F32;
    uint64_t offset = 0;
    size_t n = 0;
    int ret = 0;

    model_config_dtype(m, &dtype);
    for (size_t i = 0; i < m->ntensors && ret == 0; i++) {
        const struct model_tensor *mt = &m->tensor[i];
        struct model_kind kind = model_kind(m, mt->kind);
        uint64_t *shape, elements = 1;

        if (mt->tied >= 0 || (mt->optional && !mt->drawn) || kind.companion_of >= 0)
            continue;
        shape = pool_take(&c->source.pool, ((size_t)mt->ndim + 1) * sizeof(*shape),
                          sizeof(*shape));
        for (int k = 0; k < mt->ndim && ret == 0; k++) {
            shape[k] = mt->axis[k]->size;
            if (!mem_mul(&elements, elements, shape[k]))
                ret = err_set(err, ERR_INPUT, "%s: tensor %s is too large", c->path,
                              mt->name);
        }
        t[n] = (struct tensor){ .name = pool_strdup(&c->source.pool, mt->name),
                                .shape = shape,
                                .dtype = dtype,
                                .ndim = mt->ndim,
                                .offset = offset };
        if (ret == 0 && (!dtype_bytes(&t[n].size, dtype, elements) ||
                         !mem_add(&offset, offset, t[n].size)))
            ret = err_set(err, ERR_INPUT, "%s: tensor %s is too large", c->path,
                          mt->name);
        n++;
    }
    if (ret == 0)
        ret = source_promise(&c->source, t, n, err);
    free(t);
    return ret;
}

/* Appends to T the description of piece P of STACK. */
static int add_piece(struct checkpoint *c, struct tensor *t, const struct tensor *stack,
                     const struct model_piece *p, struct err *err)
{
    uint64_t width = (uint64_t)dtype_bits(stack->dtype) / 8;
    uint64_t *shape = pool_take(&c->source.pool, 4 * sizeof(*shape), sizeof(*shape));
    const uint64_t *stride = stack->stride;
    uint64_t row = stride ? stride[1] : stack->shape[2];
    uint64_t expert = stride ? stride[0] : stack->shape[1] * stack->shape[2];

    *t = *stack;
    shape[0] = p->rows;
    shape[1] = stack->shape[2];
    t->name = pool_strdup(&c->source.pool, p->name);
    t->shape = shape;
    t->ndim = 2;
    t->offset += (p->expert * expert + p->first * row) * width;
    t->size = p->rows * shape[1] * width;
    if (stride) {
        shape[2] = stride[1];
        shape[3] = stride[2];
        t->stride = shape + 2;
    }
    return stack->boxes ? boxes_cut(&t->boxes, &c->source.pool, stack->boxes,
                                    (size_t)width, p->expert * expert + p->first * row,
                                    p->rows * shape[1], shape[1], c->path, t->name, err)
                        : 0;
}

/* Since transformers 5 a model's state dict stacks the experts of a layer in one
 * tensor, but its safetensors files do not.  For other forms, list each expert
 * as a tensor of its own, as in safetensors. */
static int unstack(struct checkpoint *c, struct err *err)
{
    struct tensor *t = NULL;
    size_t n = 0, cap = 0;
    bool any = false;
    int ret = 0;

    if (source_is_safetensors(&c->source))
        return 0;
    for (size_t i = 0; i < c->source.n && ret == 0; i++) {
        const struct tensor *from = &c->source.tensor[i];
        size_t pieces = 0;
        struct model_piece *p =
            model_unstack(c->model, from->name, from->ndim, from->shape, &pieces);

        any |= p != NULL;
        t = xgrow(t, &cap, n + pieces + 1, sizeof(*t));
        if (!p)
            t[n++] = *from;
        for (size_t k = 0; k < pieces; k++) {
            if (ret == 0)
                ret = add_piece(c, &t[n++], from, &p[k], err);
            free(p[k].name);
        }
        free(p);
    }
    if (ret == 0 && any)
        ret = source_set_pickled(&c->source, t, n, err);
    free(t);
    return ret;
}

/* Lists the weights of the source, and the states of them. */
static void list_tensors(struct checkpoint *c)
{
    const struct source *s = &c->source;

    free(c->tensor);
    free(c->which);
    c->ntensors = s->n + s->nstates;
    c->tensor = xcalloc(c->ntensors, sizeof(*c->tensor));
    if (s->n)
        memcpy(c->tensor, s->tensor, s->n * sizeof(*c->tensor));
    if (s->nstates)
        memcpy(c->tensor + s->n, s->state, s->nstates * sizeof(*c->tensor));
    c->which = xmalloc((c->ntensors + 1) * sizeof(*c->which));
    for (size_t i = 0; i < c->ntensors; i++)
        c->which[i] = -1;
}

static int open_source(struct checkpoint *c, const struct checkpoint_options *opt,
                       struct err *err)
{
    const struct source_options options = { .config = opt->config,
                                            .moments = opt->moments,
                                            .any_moments = opt->any_moments,
                                            .masters = opt->masters };
    bool bare = false, weights = false;

    if (opt->draw && fs_find_dir(&bare, c->path, err) < 0)
        return -1;
    if (bare && source_find_weights(&weights, c->path, err) < 0)
        return -1;
    bare = bare && !weights;
    if (bare && opt->config)
        return err_set(err, ERR_USAGE, "--config: %s has its own", c->path);
    if (bare ? source_open_bare(&c->source, c->path, err) < 0
             : source_open(&c->source, c->path, &options, err) < 0)
        return -1;
    c->drawn = opt->draw;
    mesh_one(&c->mesh);
    if (!opt->no_model && !c->source.single) {
        if (!c->source.config && c->source.unmade)
            return err_set(err, ERR_INPUT,
                           "%s; --config of tp-shard names the model's config.json",
                           c->source.unmade);
        if (!c->source.config)
            return err_set(
                err, ERR_INPUT, "%s: missing%s", c->source.config_path,
                source_is_safetensors(&c->source)
                    ? ""
                    : "; it lies beside the weights, or --config of tp-shard "
                      "names it");
        if (model_open(&c->model, c->source.config_path, c->source.config,
                       opt->family_file, opt->family_path, err) < 0 ||
            (bare                                           ? promise(c, err)
             : renamed_apply(&c->source, c->model, err) < 0 ? -1
                                                            : unstack(c, err)) < 0)
            return -1;
    }
    c->nweights = c->source.n;
    list_tensors(c);
    return 0;
}

/* Gives the weights of the bound model the states that their source has by number. */
static int take_numbered(struct checkpoint *c, struct err *err)
{
    if (c->sharded || !c->source.progress.nparameters)
        return 0;
    if (numbered_apply(&c->source, c->model, err) < 0)
        return -1;
    list_tensors(c);
    return 0;
}

static void init_files(struct checkpoint *c)
{
    struct checkpoint_files *f = xcalloc(1, sizeof(*f));

    f->nparts = c->sharded ? c->manifest.nparts : 1;
    f->nfiles = c->sharded ? f->nparts : (int)c->source.ninputs;
    f->mode = 0777;
    f->fd = xmalloc((size_t)f->nfiles * sizeof(*f->fd));
    for (int i = 0; i < f->nfiles; i++)
        f->fd[i] = -1;
    f->crc = xcalloc((size_t)f->nparts, sizeof(*f->crc));
    f->read = xcalloc((size_t)f->nparts, sizeof(*f->read));
    c->files = f;
}

static int missing(const char *path, struct err *err)
{
    static const char *const letters =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._";
    size_t owner = strspn(path, letters);
    const char *name = path + owner + (path[owner] == '/');
    bool hub = path[0] != '.' && owner && path[owner] == '/' && *name &&
               !name[strspn(name, letters)];
    char *dir = fs_dirname_dup(path);
    bool found = true;

    if (hub && fs_find(&found, dir, err) < 0) {
        free(dir);
        return -1;
    }
    if (!found)
        err_set(err, ERR_INPUT,
                "%s: no such directory, and nothing is downloaded; "
                "'hf download %s --local-dir %s' fetches a model",
                path, path, name);
    else
        err_set(err, ERR_INPUT, "%s: no such file or directory", path);
    free(dir);
    return -1;
}

int checkpoint_find(const char *path, struct err *err)
{
    bool found;

    if (fs_find(&found, path, err) < 0)
        return -1;
    return found ? 0 : missing(path, err);
}

/* Gives C the tokens that OPT asks for. */
static int grow(struct checkpoint *c, const struct checkpoint_options *opt,
                struct err *err)
{
    if (grow_vocab(c, opt->vocab, opt, err) < 0)
        return -1;
    if (!c->grown)
        return 0;
    if (bind(c, err) < 0)
        return err_prefix(err, "%s", c->path);
    if (grow_rows(c, opt->vocab_zero, err) < 0 || untie(c, err) < 0)
        return -1;
    for (size_t i = 0; i < c->ntensors; i++)
        c->which[i] = -1;
    find_which(c);
    return 0;
}

int checkpoint_open(struct checkpoint **out, const char *path,
                    const struct checkpoint_options *opt, struct err *err)
{
    static const struct checkpoint_options none = { 0 };
    struct checkpoint *c = xcalloc(1, sizeof(*c));
    const char *given = path;
    int ret = -1;

    opt = opt ? opt : &none;
    if (checkpoint_find(path, err) < 0 || locate_model(&c->path, path, true, err) < 0)
        goto out;
    path = c->path;
    if (checkpoint_is_sharded(&c->sharded, path, err) < 0)
        goto out;
    if (c->sharded && (opt->config || opt->moments || opt->masters)) {
        err_set(err, ERR_USAGE, "--%s: %s has its own",
                opt->config    ? "config"
                : opt->moments ? "moments"
                               : "masters",
                path);
        goto out;
    }
    if (c->sharded ? open_sharded(c, opt, err) < 0 : open_source(c, opt, err) < 0)
        goto out;
    c->home = c->source.home ? c->source.home : c->path;
    if (c->sharded) {
        c->which = xmalloc(c->ntensors * sizeof(*c->which));
        for (size_t i = 0; i < c->ntensors; i++)
            c->which[i] = -1;
    }
    init_files(c);
    if (c->model && (bind(c, err) < 0 || untie(c, err) < 0)) {
        err_prefix(err, "%s", path);
        goto out;
    }
    if (c->model && take_numbered(c, err) < 0)
        goto out;
    if (c->model)
        find_which(c);
    if (c->model && bind_state(c, err) < 0) {
        err_prefix(err, "%s", path);
        goto out;
    }
    if (opt->vocab && grow(c, opt, err) < 0)
        goto out;
    if (opt->average && take_averages(c, err) < 0)
        goto out;
    *out = c;
    ret = 0;
out:
    if (ret < 0 && c->sharded && err->kind == ERR_INPUT && strcmp(given, c->path) != 0)
        steps_name_older(err, given);
    if (ret < 0)
        checkpoint_close(c);
    return ret;
}

static void free_cutters(struct checkpoint_files *f)
{
    for (int p = 0; f->cutter && p < f->nparts; p++)
        cutter_free(f->cutter[p]);
    free(f->cutter);
    f->cutter = NULL;
}

static void close_files(struct checkpoint_files *f)
{
    if (!f)
        return;
    for (int i = 0; i < f->nfiles; i++) {
        if (f->fd[i] >= 0)
            close(f->fd[i]);
        if (f->map && f->map[i].data)
            munmap(f->map[i].data, f->map[i].size);
    }
    free_cutters(f);
    for (size_t i = 0; i < f->nstandins; i++) {
        if (!f->standin[i].shared)
            close(f->standin[i].fd);
        free(f->standin[i].path);
    }
    free(f->standin);
    free(f->map);
    free(f->fd);
    free(f->offset);
    free(f->crc);
    free(f->read);
    free(f->spared);
    free(f);
}

void checkpoint_close(struct checkpoint *c)
{
    if (!c)
        return;
    close_files(c->files);
    grown_free(c->grown);
    model_free(c->model);
    source_clear(&c->source);
    manifest_clear(&c->manifest);
    free(c->tensor);
    free(c->which);
    free(c->path);
    free(c);
}

/* ---- files ---- */

struct cut_tensor checkpoint_cut_tensor(const struct checkpoint *c, size_t i,
                                        enum dtype dtype)
{
    const struct tensor *t = &c->tensor[i];

    return (struct cut_tensor){
        .name = t->name,
        .model = c->which[i],
        .lacks = checkpoint_lacks(c, i),
        .ndim = t->ndim,
        .shape = t->shape,
        .from = t->dtype,
        .to = dtype,
        .group = c->which[i] < 0 ? 0 : quant_index_group(c->model, (size_t)c->which[i])
    };
}

static const char *file_name(const struct checkpoint *c, int f)
{
    return c->sharded ? c->manifest.file[f].name : c->source.input[f].name;
}

static char *file_path_dup(const struct checkpoint *c, int f)
{
    return c->sharded ? fs_join_dup(c->path, c->manifest.file[f].name)
                      : xstrdup(c->source.input[f].path);
}

static int open_file(struct checkpoint *c, int i, struct err *err);

/* The descriptor of input INPUT, as source_read asks for it. */
static int input_fd(void *arg, int input, const char **name, struct err *err)
{
    struct checkpoint *c = arg;

    *name = file_name(c, input);
    return open_file(c, input, err) < 0 ? -1 : c->files->fd[input];
}

/* Reads N bytes at OFFSET of tensor I in shard PART. */
static int read_tensor(struct checkpoint *c, size_t i, int part, uint64_t offset,
                       void *buf, size_t n, struct err *err)
{
    const struct checkpoint_files *f = c->files;

    if (!c->sharded) {
        const size_t stored = grown_stored(c->grown, i, offset, n);

        if (stored < n)
            grown_fill(c->grown, i, offset + stored, (unsigned char *)buf + stored,
                       n - stored);
        return stored
                   ? source_read(&c->tensor[i], offset, buf, stored, input_fd, c, err)
                   : 0;
    }
    return fs_pread(f->fd[part], buf, n,
                    f->offset[i * (size_t)f->nparts + (size_t)part] + offset,
                    file_name(c, part), err);
}

static int read_from_files(void *arg, int part, uint64_t offset, void *buf, size_t n,
                           struct err *err)
{
    struct checkpoint *c = arg;

    return read_tensor(c, c->files->tensor, part, offset, buf, n, err);
}

int checkpoint_read(struct checkpoint *c, size_t i, uint64_t offset, void *buf,
                    size_t n, struct err *err)
{
    return read_tensor(c, i, 0, offset, buf, n, err);
}

static int make_cutters(struct checkpoint *c, struct err *err)
{
    struct checkpoint_files *f = c->files;
    int coord[MESH_NAXES];

    f->cutter = xcalloc((size_t)f->nparts, sizeof(struct cutter *));
    for (int p = 0; p < f->nparts; p++) {
        manifest_part_coord(c->manifest.mesh, p, coord);
        if (cutter_open(&f->cutter[p], c->model, &c->mesh, coord, err) < 0) {
            err->kind = ERR_INPUT;
            free_cutters(f);
            return -1;
        }
        if (c->manifest.version == MANIFEST_BY_UNIT)
            cutter_set_order(f->cutter[p], SLICE_CUTS_BY_UNIT);
    }
    f->offset = xmalloc(c->ntensors * (size_t)f->nparts * sizeof(*f->offset));
    for (size_t i = 0; i < c->ntensors * (size_t)f->nparts; i++)
        f->offset[i] = NOT_THERE;
    return 0;
}

/* Checks the entry of tensor I in shard P's header against the manifest. */
static int check_entry(struct checkpoint *c, size_t i, int p,
                       const struct tensor *found, const char *path, struct err *err)
{
    struct cut_tensor t = checkpoint_cut_tensor(c, i, c->tensor[i].dtype);
    uint64_t shape[TENSOR_MAX_DIMS], bytes;
    bool held;

    if (cut_part_bytes(&bytes, &held, &c->files->side, p, &t, t.to, err) < 0)
        return err_prefix(err, "%s", path);
    if (held != manifest_holds(&c->manifest.tensor[i], p))
        return err_set(err, ERR_INPUT,
                       "%s: %s: the manifest and the family disagree on "
                       "whether part %d holds it",
                       path, t.name, p);
    if (!held)
        return found ? err_set(err, ERR_INPUT, "%s: %s does not belong to this part",
                               path, t.name)
                     : 0;
    if (!found)
        return err_set(err, ERR_INPUT, "%s: tensor %s is missing", path, t.name);
    cut_part_shape(shape, &c->files->side, p, &t);
    if (found->dtype != t.to || found->ndim != t.ndim ||
        memcmp(found->shape, shape, (size_t)t.ndim * sizeof(*shape)) ||
        found->size != bytes)
        return err_set(err, ERR_INPUT,
                       "%s: tensor %s has another type or shape than the "
                       "manifest says",
                       path, t.name);
    c->files->offset[i * (size_t)c->files->nparts + (size_t)p] = found->offset;
    return 0;
}

/* Reads the header of the open shard file P and finds its tensors. */
static int locate(struct checkpoint *c, int p, const char *path, struct err *err)
{
    struct tensor_index index = { 0 };
    struct safetensors st;
    size_t held = 0;
    int ret = -1;

    if (safetensors_read(&st, NULL, c->files->fd[p], path, err) < 0)
        return -1;
    if (st.size != c->manifest.file[p].size) {
        err_set(err, ERR_INPUT, "%s: %" PRIu64 " bytes; the manifest says %" PRIu64,
                path, st.size, c->manifest.file[p].size);
        goto out;
    }
    tensor_index_init(&index, st.tensor, st.n);
    for (size_t i = 0; i < c->ntensors; i++) {
        long at = tensor_index_find(&index, c->manifest.tensor[i].name);

        if (check_entry(c, i, p, at < 0 ? NULL : &st.tensor[at], path, err) < 0)
            goto out;
        held += at >= 0;
    }
    if (held != st.n) {
        err_set(err, ERR_INPUT, "%s: has tensors that the manifest does not name",
                path);
        goto out;
    }
    ret = 0;
out:
    tensor_index_clear(&index);
    safetensors_clear(&st);
    return ret;
}

/* Closes a file of the source if MOST_OPEN are open. */
static void spare_one(struct checkpoint_files *f)
{
    if (f->nopen < MOST_OPEN)
        return;
    while (f->fd[f->hand] < 0)
        f->hand = (f->hand + 1) % f->nfiles;
    close(f->fd[f->hand]);
    f->fd[f->hand] = -1;
    f->hand = (f->hand + 1) % f->nfiles;
    f->nopen--;
}

/* Is FD still what was input I when the source was opened?  Where its tensors lie is
 * known from then. */
static int check_input(const struct checkpoint *c, int i, int fd, struct err *err)
{
    const struct source_input *in = &c->source.input[i];
    struct stat st;

    if (fstat(fd, &st) < 0)
        return err_errno(err, "%s", in->path);
    return (uint64_t)st.st_size == in->size &&
                   (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec ==
                       in->mtime_ns
               ? 0
               : err_set(err, ERR_INPUT, "%s: was changed while it was read", in->path);
}

int checkpoint_unchanged(const struct checkpoint *c, struct err *err)
{
    const struct checkpoint_files *f = c->files;

    for (int i = 0; !c->sharded && i < f->nfiles; i++)
        if (f->fd[i] >= 0 && check_input(c, i, f->fd[i], err) < 0)
            return -1;
    return 0;
}

static int open_file(struct checkpoint *c, int i, struct err *err)
{
    struct checkpoint_files *f = c->files;
    struct stat st;
    char *path;
    int ret = 0;

    if (f->fd[i] >= 0)
        return 0;
    if (!c->sharded)
        spare_one(f);
    path = file_path_dup(c, i);
    f->fd[i] = fs_open_regular(path, err);
    if (f->fd[i] < 0) {
        ret = -1;
    } else if ((c->sharded ? locate(c, i, path, err)
                           : check_input(c, i, f->fd[i], err)) < 0) {
        close(f->fd[i]);
        f->fd[i] = -1;
        ret = -1;
    } else {
        f->mode &= fstat(f->fd[i], &st) == 0 ? st.st_mode : 0;
        f->nopen++;
    }
    free(path);
    return ret;
}

int checkpoint_open_files(struct checkpoint *c, int p, struct err *err)
{
    struct checkpoint_files *f = c->files;

    if (c->sharded && !f->cutter && make_cutters(c, err) < 0)
        return -1;
    f->side = (struct cut_side){
        .nparts = f->nparts, .cutter = f->cutter, .io = read_from_files, .arg = c
    };
    for (int i = 0; i < f->nfiles; i++)
        if ((p < 0 || !c->sharded || p == i) && open_file(c, i, err) < 0)
            return -1;
    return 0;
}

static int stand_in(struct checkpoint *c, size_t i, const struct tensor *by,
                    const char *path, struct err *err)
{
    struct checkpoint_files *f = c->files;
    const struct standin *last = f->nstandins ? &f->standin[f->nstandins - 1] : NULL;
    const bool shared = last && !strcmp(last->path, path);
    int fd = shared ? last->fd : fs_open_regular(path, err);

    if (fd < 0)
        return -1;
    f->standin = xrealloc(f->standin, (f->nstandins + 1) * sizeof(*f->standin));
    f->standin[f->nstandins++] = (struct standin){ .tensor = i,
                                                   .dtype = by->dtype,
                                                   .offset = by->offset,
                                                   .fd = fd,
                                                   .shared = shared,
                                                   .path = xstrdup(path) };
    return 0;
}

/* What stands in place of tensor I of the sharded C; NULL: nothing does. */
static const struct standin *standin_of(const struct checkpoint *c, size_t i)
{
    const struct checkpoint_files *f = c->files;

    for (size_t k = 0; k < f->nstandins; k++)
        if (f->standin[k].tensor == i)
            return &f->standin[k];
    return NULL;
}

enum dtype checkpoint_dtype(const struct checkpoint *c, size_t i)
{
    const struct standin *s = standin_of(c, i);

    return s ? s->dtype : c->tensor[i].dtype;
}

int checkpoint_replace(struct checkpoint *c, size_t i, const struct tensor *by,
                       const char *path, struct err *err)
{
    struct checkpoint_files *f = c->files;
    struct tensor *t = &c->tensor[i];
    int input;

    if (c->sharded)
        return stand_in(c, i, by, path, err);
    if (form_add_input(&c->source, path, path, &input, NULL, err) < 0)
        return -1;
    c->replaced += c->source.ninputs - (size_t)f->nfiles;
    f->nfiles = (int)c->source.ninputs;
    f->fd = xrealloc(f->fd, (size_t)f->nfiles * sizeof(*f->fd));
    f->fd[input] = -1;
    t->dtype = by->dtype;
    t->input = input;
    t->offset = by->offset;
    t->size = by->size;
    t->stride = NULL;
    t->boxes = NULL;
    t->blocks = NULL;
    return 0;
}

mode_t checkpoint_mode(const struct checkpoint *c)
{
    return c->files->mode;
}

/* Is PATH, with links resolved, the directory OUTPUT, or does it lie in it? */
static int find_in(bool *found, const char *path, const char *output, struct err *err)
{
    size_t n = strlen(output);
    char *real;

    if (fs_resolve(&real, path, err) < 0)
        return -1;
    *found = real && !strncmp(real, output, n) && (!real[n] || real[n] == '/');
    free(real);
    return 0;
}

int checkpoint_spares(const struct checkpoint *c, const char *path, struct err *err)
{
    char *output;
    bool found;
    int ret;

    if (fs_resolve(&output, path, err) < 0)
        return -1;
    if (!output)
        return 0;
    ret = find_in(&found, c->path, output, err);
    for (int i = 0; i < c->files->nfiles && ret == 0 && !found; i++) {
        char *file = file_path_dup(c, i);

        ret = find_in(&found, file, output, err);
        free(file);
    }
    free(output);
    if (ret == 0 && found)
        ret = err_set(err, ERR_USAGE, "%s: is what is read, or holds it", path);
    return ret;
}

/* Checks the CRC-32 of tensor I's bytes in shard P against the manifest. */
static int check_crc(const struct checkpoint *c, size_t i, int p, uint32_t crc,
                     struct err *err)
{
    if (crc == c->manifest.tensor[i].crc[p])
        return 0;
    return err_set(err, ERR_INPUT,
                   "%s/%s: tensor %s is damaged: its CRC-32 is %08" PRIx32
                   ", the manifest's %08" PRIx32,
                   c->path, c->manifest.file[p].name, c->tensor[i].name, crc,
                   c->manifest.tensor[i].crc[p]);
}

int checkpoint_copy(struct checkpoint *c, struct cut *cut, size_t i, enum dtype dtype,
                    const struct cut_side *to, uint32_t *whole_crc, uint32_t *to_crc,
                    uint64_t *overflows, struct err *err)
{
    struct checkpoint_files *f = c->files;
    struct cut_tensor t = checkpoint_cut_tensor(c, i, dtype);

    if (checkpoint_open_files(c, -1, err) < 0)
        return -1;
    f->tensor = i;
    if (cut_copy(cut, &t, &f->side, to, f->crc, f->read, to_crc, overflows, err) < 0)
        return -1;
    if (!c->sharded && whole_crc)
        *whole_crc = f->crc[0];
    if (c->sharded && !f->spared)
        f->spared = xcalloc(c->ntensors * (size_t)f->nparts, sizeof(*f->spared));
    for (int p = 0; c->sharded && p < f->nparts; p++) {
        f->spared[i * (size_t)f->nparts + (size_t)p] =
            !f->read[p] && manifest_holds(&c->manifest.tensor[i], p);
        if (f->read[p] && check_crc(c, i, p, f->crc[p], err) < 0)
            return -1;
    }
    return 0;
}

int checkpoint_copy_wanted(struct checkpoint *c, struct cut *cut, size_t i,
                           enum dtype dtype, const struct cut_side *to, uint32_t *share,
                           uint32_t *to_crc, uint64_t *overflows, struct err *err)
{
    struct checkpoint_files *f = c->files;
    struct cut_tensor t = checkpoint_cut_tensor(c, i, dtype);

    if (checkpoint_open_files(c, -1, err) < 0)
        return -1;
    f->tensor = i;
    if (cut_copy(cut, &t, &f->side, to, share, f->read, to_crc, overflows, err) < 0)
        return -1;
    for (int p = 0; c->sharded && to->wanted[0] && p < f->nparts; p++)
        if (f->read[p])
            share[p] ^= c->manifest.tensor[i].crc[p];
    return 0;
}

/* Reads tensor I of shard P and checks its CRC-32 against the manifest. */
static int check_copy(struct checkpoint *c, size_t i, int p, char *buf, size_t room,
                      struct err *err)
{
    struct cut_tensor t = checkpoint_cut_tensor(c, i, c->tensor[i].dtype);
    uint32_t crc = 0;
    uint64_t bytes;
    bool held;

    if (cut_part_bytes(&bytes, &held, &c->files->side, p, &t, t.to, err) < 0)
        return -1;
    c->files->tensor = i;
    for (uint64_t at = 0; at < bytes; at += room) {
        size_t n = bytes - at < room ? (size_t)(bytes - at) : room;

        if (read_from_files(c, p, at, buf, n, err) < 0)
            return -1;
        crc = hash_crc32(crc, buf, n);
    }
    return check_crc(c, i, p, crc, err);
}

void checkpoint_check_spared(struct checkpoint *c,
                             void (*finding)(void *arg, const char *text), void *arg)
{
    enum { ROOM = 1 << 18 };
    const struct checkpoint_files *f = c->files;
    char *buf = f->spared ? xmalloc(ROOM) : NULL;

    for (size_t k = 0; f->spared && k < c->ntensors * (size_t)f->nparts; k++) {
        struct err err = { 0 };

        if (f->spared[k] &&
            check_copy(c, k / (size_t)f->nparts, (int)(k % (size_t)f->nparts), buf,
                       ROOM, &err) < 0)
            finding(arg, err.text);
    }
    free(buf);
}

int checkpoint_copy_rows(struct checkpoint *c, struct cut *cut, size_t i,
                         uint64_t first, uint64_t rows, const struct cut_side *to,
                         struct err *err)
{
    struct cut_tensor t = checkpoint_cut_tensor(c, i, c->tensor[i].dtype);

    if (checkpoint_open_files(c, -1, err) < 0)
        return -1;
    c->files->tensor = i;
    t.first = first;
    t.rows = rows;
    return cut_copy(cut, &t, &c->files->side, to, NULL, NULL, NULL, NULL, err);
}

/* ---- tied tensors that are both stored ---- */

static bool same_place(const struct tensor *a, const struct tensor *b)
{
    if (a->boxes || b->boxes || a->input != b->input || a->offset != b->offset ||
        !a->stride != !b->stride)
        return false;
    return !a->stride ||
           !memcmp(a->stride, b->stride, (size_t)a->ndim * sizeof(*a->stride));
}

/* Opens the files of tensor I of the unsharded C. */
static int open_tensor(struct checkpoint *c, size_t i, struct err *err)
{
    const struct boxes *b = c->tensor[i].boxes;

    if (!b)
        return open_file(c, c->tensor[i].input, err);
    for (size_t k = 0; k < b->n; k++)
        if (b->box[k].input != BOXES_ZEROS && open_file(c, b->box[k].input, err) < 0)
            return -1;
    return 0;
}

/* Compares the bytes of tensors A and B of the unsharded C, up to the first that
 * differ. */
static int compare_stored(struct checkpoint *c, size_t a, size_t b, bool *same,
                          struct err *err)
{
    const size_t room = 1 << 20; /* a multiple of every element's width */
    uint64_t size = c->tensor[a].size;
    char *of_a = xmalloc(room), *of_b = xmalloc(room);
    int ret = -1;

    if (open_tensor(c, a, err) < 0 || open_tensor(c, b, err) < 0)
        goto out;
    for (uint64_t at = 0; at < size && *same; at += room) {
        size_t n = size - at < room ? (size_t)(size - at) : room;

        c->files->tensor = a;
        if (read_from_files(c, 0, at, of_a, n, err) < 0)
            goto out;
        c->files->tensor = b;
        if (read_from_files(c, 0, at, of_b, n, err) < 0)
            goto out;
        *same = !memcmp(of_a, of_b, n);
    }
    ret = 0;
out:
    free(of_a);
    free(of_b);
    return ret;
}

/* Do the shards that hold both have the same bytes?  Tensors that were not tied may
 * have no such shard. */
static bool same_shards(const struct checkpoint *c, size_t a, size_t b)
{
    const struct manifest_tensor *x = &c->manifest.tensor[a],
                                 *y = &c->manifest.tensor[b];
    bool any = false, same = true;

    for (int p = 0; p < c->manifest.nparts; p++)
        if (manifest_holds(x, p) && manifest_holds(y, p)) {
            any = true;
            same &= x->crc[p] == y->crc[p];
        }
    return any && same;
}

static int are_equal(struct checkpoint *c, size_t a, size_t b, bool *same,
                     struct err *err)
{
    const struct tensor *x = &c->tensor[a], *y = &c->tensor[b];

    *same = x->dtype == y->dtype && x->ndim == y->ndim &&
            !memcmp(x->shape, y->shape, (size_t)x->ndim * sizeof(*x->shape));
    if (*same && c->sharded)
        *same = same_shards(c, a, b);
    if (!*same || c->sharded || c->drawn || same_place(x, y))
        return 0;
    return compare_stored(c, a, b, same, err);
}

/* The config ties tensors, but the files have both, and they differ: then they are two.
 */
static int untie(struct checkpoint *c, struct err *err)
{
    const struct model *m = c->model;

    for (size_t t = 0; t < m->ntensors; t++) {
        int to = m->tensor[t].tied < 0 ? -1 : m->tensor[model_root(m, t)].source;
        bool same = true;

        if (m->tensor[t].source < 0 || to < 0)
            continue;
        if (are_equal(c, (size_t)m->tensor[t].source, (size_t)to, &same, err) < 0)
            return -1;
        if (!same)
            model_untie(c->model, t);
    }
    return 0;
}

/* ---- values of carried tensors ---- */

enum { MOST_CARRIED = 64 }; /* bytes of a tensor whose value is checked */

static int to_memory(void *arg, int part, uint64_t offset, void *buf, size_t n,
                     struct err *err)
{
    (void)part;
    (void)err;
    memcpy((char *)arg + offset, buf, n);
    return 0;
}

/* Equal but for the rounding to a type of 16 bits. */
static bool is_about(double x, double want)
{
    return fabs(x - want) <= fabs(want) / 64;
}

static int check_carried(struct checkpoint *c, struct cut *cut, size_t i, double want,
                         struct err *err)
{
    const struct tensor *t = &c->tensor[i];
    uint64_t n = 1; /* the tensors of a manifest have no size */
    char bytes[MOST_CARRIED];
    const struct cut_side to = { .nparts = 1, .io = to_memory, .arg = bytes };

    for (int k = 0; k < t->ndim && n; k++)
        n = t->shape[k] <= MOST_CARRIED / n ? n * t->shape[k] : MOST_CARRIED;
    if (!dtype_is_float(t->dtype) || dtype_bits(t->dtype) < 16 ||
        n * (uint64_t)dtype_bits(t->dtype) / 8 > sizeof(bytes))
        return err_set(err, ERR_INPUT, "%s: tensor %s is not a few numbers", c->path,
                       t->name);
    if (checkpoint_copy(c, cut, i, t->dtype, &to, NULL, NULL, NULL, err) < 0)
        return -1;
    for (uint64_t k = 0; k < n; k++)
        if (!is_about(dtype_get(t->dtype, bytes, k), want))
            return err_set(err, ERR_INPUT,
                           "%s: tensor %s is %g, but family %s computes with %g",
                           c->path, t->name, dtype_get(t->dtype, bytes, k),
                           c->model->family, want);
    return 0;
}

int checkpoint_check_carried(struct checkpoint *c, struct err *err)
{
    struct cut *cut = cut_new();
    int ret = 0;

    for (size_t i = 0; i < c->nweights && ret == 0; i++) {
        double want;

        if (c->which[i] >= 0)
            continue;
        ret = model_carried(c->model, c->tensor[i].name, &want, err);
        if (ret > 0)
            ret = check_carried(c, cut, i, want, err);
    }
    cut_free(cut);
    return ret;
}

/* ---- loading a rank's shard ---- */

struct loader {
    struct checkpoint *ckpt;
    struct cutter *cutter;
    struct cut *cut;
    int part; /* shard of the files when the meshes are equal, else -1 */
};

static bool same_stages(const struct mesh *a, const struct mesh *b)
{
    size_t n = (size_t)a->size[MESH_PP];

    if (!a->stages || !b->stages)
        return a->stages == b->stages;
    return !memcmp(a->stages, b->stages, n * sizeof(*a->stages));
}

/* Is MESH the mesh of the files, ignoring sp and dp?  A file with the whole vocabulary
 * serves any vocabulary sharding. */
static bool same_parts(const struct checkpoint *c, const struct mesh *mesh)
{
    return c->sharded && mesh->size[MESH_TP] == c->mesh.size[MESH_TP] &&
           mesh->size[MESH_EP] == c->mesh.size[MESH_EP] &&
           mesh->size[MESH_PP] == c->mesh.size[MESH_PP] &&
           mesh->pad_vocab == c->mesh.pad_vocab && same_stages(mesh, &c->mesh);
}

int loader_open(struct loader **out, struct checkpoint *c, const struct mesh *mesh,
                const int coord[MESH_NAXES], struct err *err)
{
    struct loader *l = xcalloc(1, sizeof(*l));

    l->ckpt = c;
    l->part = -1;
    if (same_parts(c, mesh))
        l->part = (coord[MESH_PP] * mesh->size[MESH_EP] + coord[MESH_EP]) *
                      mesh->size[MESH_TP] +
                  coord[MESH_TP];
    if (cutter_open(&l->cutter, c->model, mesh, coord, err) < 0 ||
        checkpoint_open_files(c, l->part, err) < 0) {
        loader_close(l);
        return -1;
    }
    cutter_set_order(l->cutter, SLICE_BY_UNIT);
    l->cut = cut_new();
    *out = l;
    return 0;
}

void loader_close(struct loader *l)
{
    if (!l)
        return;
    cut_free(l->cut);
    cutter_free(l->cutter);
    free(l);
}

int loader_bytes(struct loader *l, size_t t, uint64_t *bytes, struct err *err)
{
    size_t i = (size_t)l->ckpt->model->tensor[t].source;
    struct cut_tensor ct =
        checkpoint_cut_tensor(l->ckpt, i, checkpoint_dtype(l->ckpt, i));
    struct cut_side side = { .nparts = 1, .cutter = &l->cutter };
    bool held;

    return cut_part_bytes(bytes, &held, &side, 0, &ct, ct.to, err);
}

void loader_slice(struct loader *l, size_t t, struct slice *out)
{
    cutter_slice(l->cutter, t, out);
}

static int write_to_memory(void *arg, int part, uint64_t offset, void *buf, size_t n,
                           struct err *err)
{
    (void)part;
    (void)err;
    memcpy((char *)arg + offset, buf, n);
    return 0;
}

/* Reads from the loader's own shard, the only part of this source. */
static int read_own_part(void *arg, int part, uint64_t offset, void *buf, size_t n,
                         struct err *err)
{
    const struct loader *l = arg;

    (void)part;
    return read_from_files(l->ckpt, l->part, offset, buf, n, err);
}

static bool same_runs(const struct runs *a, const struct runs *b)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (a->v[i].start != b->v[i].start || a->v[i].count != b->v[i].count)
            return false;
    return true;
}

/* Does the shard file store tensor T in the order that the program needs? */
static bool is_as_wanted(const struct loader *l, size_t t)
{
    struct slice file, wanted;

    cutter_slice(l->ckpt->files->cutter[l->part], t, &file);
    cutter_slice(l->cutter, t, &wanted);
    if (!file.cut && !wanted.cut)
        return true;
    for (int k = 0; k < wanted.ndim; k++)
        if (!same_runs(file.runs[k], wanted.runs[k]))
            return false;
    return file.cut == wanted.cut;
}

/* Map FILE, unless that was tried before or it is another machine's, where what is gone
 * is found out too late. */
static const struct mapped *map_file(struct checkpoint *c, int file)
{
    struct checkpoint_files *f = c->files;
    char *path = file_path_dup(c, file);
    struct mapped *m;
    struct stat st;
    struct err ignored;

    if (!f->map)
        f->map = xcalloc((size_t)f->nfiles, sizeof(*f->map));
    m = &f->map[file];
    if (!m->tried && !fs_is_remote(path) && open_file(c, file, &ignored) == 0 &&
        fstat(f->fd[file], &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0) {
        void *data =
            mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, f->fd[file], 0);

        if (data != MAP_FAILED) {
#ifdef MADV_HUGEPAGE
            /* what is not cached is read in huge pages, if the file system has them */
            madvise(data, (size_t)st.st_size, MADV_HUGEPAGE);
#endif
            *m = (struct mapped){ .data = data, .size = (size_t)st.st_size };
        }
    }
    m->tried = true;
    free(path);
    return m;
}

/* Are the part's elements of the whole tensor T all that lie from the *first-th on? */
static bool is_one_run(struct loader *l, size_t t, uint64_t *first)
{
    const struct model_tensor *mt = &l->ckpt->model->tensor[t];
    struct slice s;

    cutter_slice(l->cutter, t, &s);
    *first = 0;
    if (s.pad || !s.held)
        return false;
    for (int k = 0; k < s.ndim; k++) {
        if (s.runs[k]->n != 1 || (k && s.runs[k]->count != mt->axis[k]->size))
            return false;
        if (k == 0)
            *first = s.runs[k]->v[0].start;
        else
            *first *= mt->axis[k]->size;
    }
    return true;
}

const void *loader_map(struct loader *l, size_t t, uint64_t bytes)
{
    struct checkpoint *c = l->ckpt;
    size_t i = (size_t)c->model->tensor[t].source;
    const struct tensor *of = &c->tensor[i];
    uint64_t unit = (uint64_t)dtype_bits(of->dtype) / 8, first = 0, offset;
    const struct mapped *m;

    if (!bytes || c->drawn || standin_of(c, i) ||
        grown_stored(c->grown, i, 0, SIZE_MAX) < SIZE_MAX ||
        dtype_bits(of->dtype) % 8 ||
        (c->sharded ? l->part < 0 || !is_as_wanted(l, t)
                    : of->boxes || of->stride || !is_one_run(l, t, &first)))
        return NULL;
    offset = c->sharded
                 ? c->files->offset[i * (size_t)c->files->nparts + (size_t)l->part]
                 : of->offset + first * unit;
    m = map_file(c, c->sharded ? l->part : of->input);
    return m->data && offset % unit == 0 && offset <= m->size &&
                   bytes <= m->size - offset
               ? m->data + offset
               : NULL;
}

int checkpoint_check_part(const struct checkpoint *c, size_t t, int part, uint32_t crc,
                          struct err *err)
{
    return check_crc(c, (size_t)c->model->tensor[t].source, part, crc, err);
}

int loader_part(const struct loader *l)
{
    return l->part;
}

const char *checkpoint_mapped(const struct checkpoint *c, const void *at)
{
    const struct checkpoint_files *f = c ? c->files : NULL;

    for (int i = 0; f && f->map && i < f->nfiles; i++)
        if (f->map[i].data && (const unsigned char *)at >= f->map[i].data &&
            (size_t)((const unsigned char *)at - f->map[i].data) < f->map[i].size)
            return file_name(c, i);
    return NULL;
}

static int read_standin(void *arg, int part, uint64_t offset, void *buf, size_t n,
                        struct err *err)
{
    const struct standin *s = arg;

    (void)part;
    return fs_pread(s->fd, buf, n, s->offset + offset, s->path, err);
}

/* Reads the loader's part of tensor I, in place of which S stands, to BUF. */
static int load_standin(struct loader *l, size_t i, const struct standin *s, void *buf,
                        struct err *err)
{
    struct cut_tensor ct = checkpoint_cut_tensor(l->ckpt, i, s->dtype);
    struct cut_side from = { .nparts = 1,
                             .io = read_standin,
                             .arg = (void *)(uintptr_t)s };
    struct cut_side to = {
        .nparts = 1, .cutter = &l->cutter, .io = write_to_memory, .arg = buf
    };

    ct.from = s->dtype;
    return cut_copy(l->cut, &ct, &from, &to, NULL, NULL, NULL, NULL, err);
}

int loader_read(struct loader *l, size_t t, void *buf, struct err *err)
{
    return loader_read_state(l, t, (size_t)l->ckpt->model->tensor[t].source, buf, err);
}

int loader_read_state(struct loader *l, size_t t, size_t i, void *buf, struct err *err)
{
    struct checkpoint *c = l->ckpt;
    struct checkpoint_files *f = c->files;
    struct cut_side to = {
        .nparts = 1, .cutter = &l->cutter, .io = write_to_memory, .arg = buf
    };
    struct cut_side from = {
        .nparts = 1, .io = read_own_part, .arg = l, .replicas = true
    };
    struct cut_tensor ct = checkpoint_cut_tensor(
        c, i, c->sharded || i < c->nweights ? c->tensor[i].dtype : DTYPE_F32);
    const struct standin *standin = standin_of(c, i);
    uint64_t bytes;
    uint32_t crc;
    bool held;

    if (standin)
        return load_standin(l, i, standin, buf, err);
    if (l->part < 0)
        return checkpoint_copy(c, l->cut, i, ct.to, &to, NULL, NULL, NULL, err);
    if (cut_part_bytes(&bytes, &held, &to, 0, &ct, ct.to, err) < 0)
        return -1;
    if (!bytes)
        return 0;
    f->tensor = i;
    from.cutter = &f->cutter[l->part];
    if (is_as_wanted(l, t)) {
        if (read_from_files(c, l->part, 0, buf, (size_t)bytes, err) < 0)
            return -1;
        crc = hash_crc32(0, buf, (size_t)bytes);
    } else if (cut_copy(l->cut, &ct, &from, &to, &crc, NULL, NULL, NULL, err) < 0) {
        return -1;
    }
    return check_crc(c, i, l->part, crc, err);
}
