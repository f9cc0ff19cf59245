/* megatrondir - reads checkpoints of Megatron-LM */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/ckpt/dcpdir.h"
#include "lib/ckpt/foreignforms.h"
#include "lib/ckpt/megatronargs.h"
#include "lib/ckpt/numberedstate.h"
#include "lib/ckpt/pickle.h"

static const char LATEST[] = "latest_checkpointed_iteration.txt", RANK[] = "mp_rank_",
                  STATES[] = "model_optim_rng.pt", DISTRIBUTED[] = "distrib_optim.pt",
                  COMMON[] = "common.pt";

enum { MOST_WORD = 64, MOST_RANKS = 1 << 16, MOST_LAYERS = 1 << 20 };

/* A directory mp_rank_TT[_PPP]. */
struct rank {
    char *name;
    int tp, pp;
};

struct reader {
    struct source *s;
    char *dir; /* of the ranks */
    struct rank *rank;
    size_t n, cap;
    int stages, shards; /* pipeline, tensor */
    int *layers;        /* [stages] layers of each, once its first rank is read */
    size_t raw_cap;
    uint64_t read;
};

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

/* "mp_rank_TT" or "mp_rank_TT_PPP"; false for other names. */
static bool parse_rank(struct rank *r, const char *name)
{
    const char *s = name + strlen(RANK);
    char *tp, *pp;
    bool good;

    if (!str_starts(name, RANK))
        return false;
    tp = xstrndup(s, strcspn(s, "_"));
    s += strlen(tp);
    pp = xstrdup(*s == '_' ? s + 1 : "0");
    good = str_int(tp, &r->tp) && str_int(pp, &r->pp) && r->tp >= 0 && r->pp >= 0 &&
           r->tp < MOST_RANKS && r->pp < MOST_RANKS;
    free(tp);
    free(pp);
    return good;
}

static int find_torch_dist(bool *found, const char *dir, struct err *err)
{
    bool metadata;

    if (fs_find_in(&metadata, dir, ".metadata", err) < 0 ||
        fs_find_in(found, dir, "metadata.json", err) < 0)
        return -1;
    *found = *found && metadata;
    return 0;
}

static int has_ranks(bool *found, const char *dir, struct err *err)
{
    char **names;
    size_t n;

    *found = false;
    if (fs_list(&names, &n, dir, err) < 0)
        return -1;
    for (size_t i = 0; i < n && !*found; i++)
        *found = str_starts(names[i], RANK) && !str_ends(names[i], ".pt");
    fs_list_free(names, n);
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
    return *found ? 0 : has_ranks(found, path, err);
}

/* ---- ranks of legacy ---- */

static int compare_ranks(const void *a, const void *b)
{
    const struct rank *x = a, *y = b;

    if (x->pp != y->pp)
        return x->pp < y->pp ? -1 : 1;
    return (x->tp > y->tp) - (x->tp < y->tp);
}

/* Lists the ranks, by stage, and checks that none is missing. */
static int list_ranks(struct reader *r, struct err *err)
{
    char **names;
    size_t n;

    if (fs_list(&names, &n, r->dir, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        struct rank found;

        if (!parse_rank(&found, names[i]))
            continue;
        found.name = xstrdup(names[i]);
        r->rank = xgrow(r->rank, &r->cap, r->n + 1, sizeof(*r->rank));
        r->rank[r->n++] = found;
        r->shards = found.tp >= r->shards ? found.tp + 1 : r->shards;
        r->stages = found.pp >= r->stages ? found.pp + 1 : r->stages;
    }
    fs_list_free(names, n);
    if (!r->n)
        return err_set(err, ERR_INPUT, "%s: no %s*, no metadata.json", r->dir, RANK);
    qsort(r->rank, r->n, sizeof(*r->rank), compare_ranks);
    for (size_t i = 0; i < r->n; i++)
        if (r->rank[i].tp != (int)(i % (size_t)r->shards) ||
            r->rank[i].pp != (int)(i / (size_t)r->shards))
            return err_set(err, ERR_INPUT,
                           "%s: %s where the directory of tensor rank %zu of stage %zu "
                           "is expected",
                           r->dir, r->rank[i].name, i % (size_t)r->shards,
                           i / (size_t)r->shards);
    if (r->n != (size_t)r->shards * (size_t)r->stages)
        return err_set(err, ERR_INPUT,
                       "%s: %zu directories of ranks, where %d tensor ranks of %d "
                       "stages are expected",
                       r->dir, r->n, r->shards, r->stages);
    return 0;
}

/* The number after "layers." in NAME, or -1; *at is where it stands. */
static int layer_of(const char *name, size_t *at, size_t *digits)
{
    const char *layers = strstr(name, ".layers.");
    char *number;
    int layer = -1;

    if (!layers)
        return -1;
    *at = (size_t)(layers - name) + strlen(".layers.");
    *digits = strspn(name + *at, "0123456789");
    number = xstrndup(name + *at, *digits);
    if (!*digits || !str_int(number, &layer) || layer >= MOST_LAYERS)
        layer = -1;
    free(number);
    return layer;
}

/* Adds the tensor V, called NAME on rank R of its stage, whose first layer is FIRST. */
static int add_tensor(struct reader *r, const struct rank *rank, int first, int input,
                      const char *name, const struct pickled *v, const char *path,
                      struct err *err)
{
    size_t at = 0, digits = 0;
    int layer = layer_of(name, &at, &digits);
    struct tensor t;
    char *global;
    int ret;

    if (pickle_tensor(&t, v, &r->s->pool, path, name, err) < 0)
        return -1;
    if (layer >= r->layers[rank->pp])
        r->layers[rank->pp] = layer + 1;
    global = layer < 0 ? xstrdup(name)
                       : str_dupf("%.*s%d%s", (int)at, name, first + layer,
                                  name + at + digits);
    ret = form_keep_name(r->s, &t.name, global, r->read, path, err);
    free(global);
    t.input = input;
    t.file = rank->tp;
    r->s->raw = xgrow(r->s->raw, &r->raw_cap, r->s->nraw + 1, sizeof(*r->s->raw));
    r->s->raw[r->s->nraw++] = t;
    return ret;
}

/* ---- moments of legacy ---- */

/* Adds MOMENT of WEIGHT in ROLE, a tensor of its own. */
static int add_moment(struct reader *r, const struct tensor *weight, const char *role,
                      const struct pickled *moment, int input, const char *path,
                      struct err *err)
{
    struct tensor t;

    if (!pickled_is(moment, PICKLED_TENSOR))
        return 0;
    if (pickle_tensor(&t, moment, &r->s->pool, path, weight->name, err) < 0)
        return -1;
    t.input = input;
    t.file = weight->file;
    return form_add_state(r->s, &t, weight->name, role, r->read, path, err);
}

/* Adds the moments of the N weights at W in V, an optimizer's state by number. */
static int add_numbered(struct reader *r, const struct tensor *w, size_t n,
                        const struct pickled *v, int input, const char *path,
                        struct err *err)
{
    struct numberedstate *state;
    size_t nstates;
    int ret = 0;

    if (numberedstate_read(&state, &nstates, v, w, n, path, err) < 0)
        return -1;
    for (size_t i = 0; i < nstates; i++)
        for (int k = 0; k < NUMBEREDSTATE_NROLES && ret == 0; k++)
            ret = add_moment(r, &w[state[i].param], numberedstate_roles[k],
                             pickled_get(state[i].state, numberedstate_roles[k]), input,
                             path, err);
    free(state);
    return ret;
}

/* Adds the moments of the N weights at W in the flat vector V: the weights in reverse
 * order, each from a multiple of 64 elements on (Megatron Core's
 * param_and_grad_buffer.py, of one bucket). */
static int add_flat(struct reader *r, const struct tensor *w, size_t n,
                    const char *role, const struct pickled *v, int input,
                    const char *path, struct err *err)
{
    struct tensor t;
    uint64_t at = 0;

    if (!pickled_is(v, PICKLED_TENSOR))
        return err_set(err, ERR_INPUT, "%s: no vector %s", path, role);
    if (pickle_tensor(&t, v, &r->s->pool, path, role, err) < 0)
        return -1;
    if (t.ndim != 1 || t.stride)
        return err_set(err, ERR_INPUT, "%s: %s is no flat vector", path, role);
    for (size_t i = n; i-- > 0;) {
        uint64_t elements = 1;
        struct tensor part = w[i];

        for (int k = 0; k < part.ndim; k++) /* of a tensor that was read */
            elements *= part.shape[k];
        at = (at + 63) / 64 * 64;
        if (at > t.shape[0] || elements > t.shape[0] - at)
            break;
        part.dtype = t.dtype;
        part.stride = NULL;
        part.input = input;
        part.offset = t.offset + at * ((uint64_t)dtype_bits(t.dtype) / 8);
        part.size = elements * ((uint64_t)dtype_bits(t.dtype) / 8);
        if (form_add_state(r->s, &part, w[i].name, role, r->read, path, err) < 0)
            return -1;
        at += elements;
        if (!i && at == t.shape[0])
            return 0;
    }
    return err_set(err, ERR_INPUT,
                   "%s: %s has %" PRIu64 " elements, which are not those of the "
                   "weights in one bucket; moments in several are not read",
                   path, role, t.shape[0]);
}

/* Adds the moments of the N weights at W that the distributed optimizer's file of RANK
 * has, {buffer: {types: {exp_avg, ...}}}; without the file there are none. */
static int add_distributed(struct reader *r, const struct rank *rank,
                           const struct tensor *w, size_t n, struct err *err)
{
    char *name = fs_join_dup(rank->name, DISTRIBUTED),
         *path = fs_join_dup(r->dir, name);
    const struct pickled *of = NULL;
    struct pickle_values v = { 0 };
    bool found;
    int fd = -1, input, ret = fs_find_in(&found, r->dir, name, err);

    if (ret < 0 || !found)
        goto out;
    ret = form_add_input(r->s, name, path, &input, &fd, err);
    if (ret == 0)
        ret = pickle_values_read(&v, fd, path, err);
    if (ret < 0)
        goto out;
    if (v.archive)
        form_add_archive(r->s, input, 0, v.size);
    r->read += unpickle_read(&v.m);
    for (size_t i = 0; pickled_is(v.root, PICKLED_DICT) && i + 1 < v.root->list.n;
         i += 2) {
        const struct pickled *buffer = v.root->list.v[i + 1];

        if (!pickled_is(buffer, PICKLED_DICT))
            continue;
        if (of || buffer->list.n != 2 || !pickled_is(buffer->list.v[1], PICKLED_DICT)) {
            ret = err_set(err, ERR_INPUT,
                          "%s: of several buffers, such as one of experts, which are "
                          "not read",
                          path);
            goto out;
        }
        of = buffer->list.v[1];
    }
    for (int k = 0; k < NUMBEREDSTATE_NROLES && ret == 0; k++)
        ret = add_flat(r, w, n, numberedstate_roles[k],
                       pickled_get(of, numberedstate_roles[k]), input, path, err);
out:
    pickle_values_clear(&v);
    if (fd >= 0)
        close(fd);
    free(name);
    free(path);
    return ret;
}

/* Adds the moments of the weights from FIRST on, which are RANK's.  The optimizer's
 * dictionary has PyTorch's inside, without state where that is distributed. */
static int add_moments(struct reader *r, const struct rank *rank, size_t first,
                       const struct pickled *root, int input, const char *path,
                       struct err *err)
{
    const struct pickled *v = pickled_get(root, "optimizer");
    const struct pickled *inner =
        pickled_is(v, PICKLED_DICT) ? pickled_get(v, "optimizer") : NULL;
    size_t n = r->s->nraw - first;
    struct tensor *w;
    int ret;

    v = inner ? inner : v;
    if (!v || v->kind == PICKLED_NONE)
        return 0;
    if (!pickled_is(v, PICKLED_DICT))
        return err_set(err, ERR_INPUT,
                       "%s: several optimizers, such as one of experts, which are not "
                       "read",
                       path);
    w = xmalloc((n + 1) * sizeof(*w)); /* those of the source may move */
    memcpy(w, r->s->raw + first, n * sizeof(*w));
    ret = pickled_is(pickled_get(v, "state"), PICKLED_DICT)
              ? add_numbered(r, w, n, v, input, path, err)
              : add_distributed(r, rank, w, n, err);
    free(w);
    return ret;
}

/* ---- legacy ---- */

/* The number V, or FALLBACK. */
static double number_of(const struct pickled *v, double fallback)
{
    if (pickled_is(v, PICKLED_NUMBER))
        return (double)v->number;
    return pickled_is(v, PICKLED_REAL) ? v->real : fallback;
}

/* What else would be read wrongly without a word: versions 0 (without a number) and 1
 * store q, k and v in other orders (Megatron-LM's fix_query_key_value_ordering), and
 * the number after the tensor rank is that of experts where there is one stage. */
static int check_settings(const struct reader *r, const struct pickled *root,
                          const char *path, struct err *err)
{
    double version = number_of(pickled_get(root, "checkpoint_version"), 0);
    const struct pickled *args = pickled_get(root, "args");
    const struct pickled *set =
        pickled_is(args, PICKLED_RECORD) && pickled_is(args->record.state, PICKLED_DICT)
            ? args->record.state
            : NULL;
    double stages = r->stages, shards = r->shards, experts = 1;

    if (set) {
        stages = number_of(pickled_get(set, "pipeline_model_parallel_size"), stages);
        shards = number_of(pickled_get(set, "tensor_model_parallel_size"), shards);
        experts = number_of(pickled_get(set, "expert_model_parallel_size"), experts);
    }
    if (!(version >= 2))
        return err_set(
            err, ERR_INPUT,
            "%s: checkpoint_version %g has q, k and v in an order of its own, "
            "which is not read; 2 and 3 are",
            path, version);
    if (experts != 1)
        return err_set(err, ERR_INPUT,
                       "%s: cut over %g expert ranks, which is not read of this form; "
                       "torch_dist is",
                       path, experts);
    if (stages != r->stages)
        return err_set(err, ERR_INPUT, "%s: of %g pipeline stages, but %d are here",
                       path, stages, r->stages);
    if (shards != r->shards)
        return err_set(err, ERR_INPUT, "%s: of %g tensor ranks, but %d are here", path,
                       shards, r->shards);
    return 0;
}

/* Reads the weights of RANK. */
static int read_rank(struct reader *r, const struct rank *rank, int first,
                     struct err *err)
{
    char *name = fs_join_dup(rank->name, STATES), *path = fs_join_dup(r->dir, name);
    const struct pickled *model;
    struct pickle_values v;
    size_t before = r->s->nraw;
    int fd = -1, input, ret = -1;

    if (form_add_input(r->s, name, path, &input, &fd, err) < 0 ||
        pickle_values_read(&v, fd, path, err) < 0)
        goto out;
    if (v.archive)
        form_add_archive(r->s, input, 0, v.size);
    r->read += unpickle_read(&v.m);
    model = pickled_is(v.root, PICKLED_DICT) ? pickled_get(v.root, "model") : NULL;
    ret = pickled_is(model, PICKLED_DICT)
              ? check_settings(r, v.root, path, err)
              : err_set(err, ERR_INPUT, "%s: no dictionary 'model'", path);
    for (size_t i = 0; ret == 0 && i + 1 < model->list.n; i += 2) {
        const struct pickled *key = model->list.v[i], *of = model->list.v[i + 1];

        if (pickled_is(key, PICKLED_TEXT) && pickled_is(of, PICKLED_TENSOR))
            ret = add_tensor(r, rank, first, input, key->text.s, of, path, err);
    }
    if (ret == 0 && r->s->nraw == before)
        ret = err_set(err, ERR_INPUT,
                      "%s: no tensors in its dictionary 'model': of a version before "
                      "Megatron Core, which is not read",
                      path);
    if (ret == 0 && r->s->moments)
        ret = add_moments(r, rank, before, v.root, input, path, err);
    if (ret == 0 && rank == r->rank && !r->s->config)
        megatron_config(r->s, pickled_get(v.root, "args"), (uint64_t)r->shards, path);
    pickle_values_clear(&v);
out:
    if (fd >= 0)
        close(fd);
    free(name);
    free(path);
    return ret;
}

static int read_legacy(struct reader *r, struct err *err)
{
    int first = 0;

    if (list_ranks(r, err) < 0)
        return -1;
    r->layers = xcalloc((size_t)r->stages, sizeof(*r->layers));
    for (size_t i = 0; i < r->n; i++) {
        /* layers are numbered from 0 in each stage */
        if (i && !r->rank[i].tp)
            first += r->layers[r->rank[i].pp - 1];
        if (read_rank(r, &r->rank[i], first, err) < 0)
            return -1;
    }
    return form_present_shards(r->s, err);
}

/* ---- torch_dist ---- */

/* Makes a config of what torch_dist stores beside the tensors, if it is there. */
static int read_common(struct reader *r, struct err *err)
{
    char *path = fs_join_dup(r->dir, COMMON);
    struct pickle_values v;
    struct err cause = { 0 };
    bool found;
    int fd = -1, input, ret = fs_find_in(&found, r->dir, COMMON, err);

    if (ret < 0 || !found)
        goto out;
    ret = form_add_input(r->s, COMMON, path, &input, &fd, err);
    if (ret < 0)
        goto out;
    ret = pickle_values_read(&v, fd, path, &cause);
    if (ret == 0) {
        megatron_config(r->s, pickled_get(v.root, "args"), 1, path);
        pickle_values_clear(&v);
    } else if (cause.kind == ERR_INPUT) { /* weights do not depend on it */
        r->s->unmade = xstrdup(cause.text);
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

static int read_torch_dist(struct reader *r, struct err *err)
{
    if (dcpdir_ops.open(r->s, r->dir, err) < 0)
        return -1;
    return r->s->config ? 0 : read_common(r, err);
}

static int open_directory(struct source *s, const char *path, struct err *err)
{
    struct reader r = { .s = s };
    bool torch_dist = false;
    int ret = -1;

    if (follow(&r.dir, path, err) < 0)
        return -1;
    if (!r.dir)
        r.dir = xstrdup(path);
    s->dialect = "megatron";
    if (find_torch_dist(&torch_dist, r.dir, err) == 0)
        ret = torch_dist ? read_torch_dist(&r, err) : read_legacy(&r, err);
    for (size_t i = 0; i < r.n; i++)
        free(r.rank[i].name);
    free(r.rank);
    free(r.layers);
    free(r.dir);
    return ret;
}

const struct source_ops megatron_ops = { .name = "a checkpoint of Megatron-LM",
                                         .probe = probe,
                                         .open = open_directory };
