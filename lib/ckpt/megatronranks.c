/* megatronranks - Megatron-LM's legacy form: a file a rank */
#include "lib/ckpt/megatronranks.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/ckpt/form.h"
#include "lib/ckpt/megatronargs.h"
#include "lib/ckpt/megatronstates.h"
#include "lib/ckpt/pickle.h"

static const char RANK[] = "mp_rank_", STATES[] = "model_optim_rng.pt";
static const char LOCAL_EXPERTS[] = ".local_experts.", EXPERTS[] = ".experts.";

enum { MOST_RANKS = 1 << 16, MOST_NUMBER = 1 << 20, MOST_PARTS = 3 };

/* A directory mp_rank_TT[_PPP][_EEE]. */
struct rank {
    char *name;
    int part[MOST_PARTS]; /* its numbers */
    int nparts;
    int tp, pp, ep;
    bool
        gives[MEGATRON_NSETS]; /* its weights are read: no other rank before has them */
};

/* Into how many ranks a run is cut; expert tensor ranks cut an expert. */
struct layout {
    int tp, pp, ep, expert_tp;
};

struct reader {
    struct source *s;
    const char *dir; /* of the ranks */
    struct rank *rank;
    size_t n, cap;
    struct layout layout;
    int *layers; /* [pp] layers of each stage, once its first rank is read */
    int experts; /* on each expert rank; 0: none was read yet */
    size_t raw_cap;
    uint64_t read;
};

/* ---- the arguments of the run ---- */

/* The number V, or FALLBACK. */
static double number_of(const struct pickled *v, double fallback)
{
    if (pickled_is(v, PICKLED_NUMBER))
        return (double)v->number;
    return pickled_is(v, PICKLED_REAL) ? v->real : fallback;
}

/* The number of the argument NAME in ARGS, of a checkpoint's dictionary, or FALLBACK.
 */
static double argument(const struct pickled *args, const char *name, double fallback)
{
    const struct pickled *set =
        pickled_is(args, PICKLED_RECORD) && pickled_is(args->record.state, PICKLED_DICT)
            ? args->record.state
            : NULL;

    return set ? number_of(pickled_get(set, name), fallback) : fallback;
}

/* ---- directories ---- */

int megatron_has_ranks(bool *found, const char *dir, struct err *err)
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

/* Reads the numbers of a directory's name; false for other names. */
static bool parse_rank(struct rank *r, const char *name)
{
    const char *s = name + strlen(RANK);

    *r = (struct rank){ .nparts = 0 };
    if (!str_starts(name, RANK))
        return false;
    for (;;) {
        char *part = xstrndup(s, strcspn(s, "_"));
        bool good = r->nparts < MOST_PARTS && str_int(part, &r->part[r->nparts]) &&
                    r->part[r->nparts] >= 0 && r->part[r->nparts] < MOST_RANKS;

        s += strlen(part);
        free(part);
        if (!good)
            return false;
        r->nparts++;
        if (!*s++)
            return true;
    }
}

static int compare_ranks(const void *a, const void *b)
{
    const struct rank *x = a, *y = b;

    if (x->pp != y->pp)
        return x->pp < y->pp ? -1 : 1;
    if (x->tp != y->tp)
        return x->tp < y->tp ? -1 : 1;
    return (x->ep > y->ep) - (x->ep < y->ep);
}

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
    }
    fs_list_free(names, n);
    return r->n ? 0
                : err_set(err, ERR_INPUT, "%s: no %s*, no metadata.json", r->dir, RANK);
}

/* Sets *out to the number of ranks that ARGS say, or FALLBACK. */
static int read_size(int *out, const struct pickled *args, const char *name,
                     int fallback, const char *path, struct err *err)
{
    double x = argument(args, name, fallback);

    if (!(x >= 1 && x < MOST_RANKS && x == (double)(int)x))
        return err_set(err, ERR_INPUT, "%s: %s of %g", path, name, x);
    *out = (int)x;
    return 0;
}

/* Reads into how many ranks the run was cut from the arguments in the first rank's
 * file; without arguments the directories tell. */
static int read_layout(struct reader *r, struct err *err)
{
    char *name = fs_join_dup(r->rank[0].name, STATES),
         *path = fs_join_dup(r->dir, name);
    const struct pickled *args;
    struct pickle_values v = { 0 };
    struct layout *l = &r->layout;
    int fd = fs_open_regular(path, err), ret = -1;

    if (fd < 0 || pickle_values_read(&v, fd, path, err) < 0)
        goto out;
    args = pickled_is(v.root, PICKLED_DICT) ? pickled_get(v.root, "args") : NULL;
    *l = (struct layout){ 1, 1, 1, 1 };
    for (size_t i = 0; i < r->n; i++) {
        const struct rank *k = &r->rank[i];

        l->tp = k->part[0] >= l->tp ? k->part[0] + 1 : l->tp;
        l->pp = k->nparts > 1 && k->part[1] >= l->pp ? k->part[1] + 1 : l->pp;
        l->ep = k->nparts > 2 && k->part[2] >= l->ep ? k->part[2] + 1 : l->ep;
    }
    if (read_size(&l->tp, args, "tensor_model_parallel_size", l->tp, path, err) == 0 &&
        read_size(&l->pp, args, "pipeline_model_parallel_size", l->pp, path, err) ==
            0 &&
        read_size(&l->ep, args, "expert_model_parallel_size", l->ep, path, err) == 0 &&
        read_size(&l->expert_tp, args, "expert_tensor_parallel_size", l->tp, path,
                  err) == 0)
        ret = 0;
    if (ret == 0 && l->tp % l->expert_tp)
        ret = err_set(err, ERR_INPUT,
                      "%s: experts are cut over %d ranks and the rest over %d, which "
                      "leaves several files one name",
                      path, l->expert_tp, l->tp);
out:
    pickle_values_clear(&v);
    if (fd >= 0)
        close(fd);
    free(name);
    free(path);
    return ret;
}

/* Gives the numbers of each name their meaning: the stage is there if there are
 * several, and likewise the expert rank. */
static int place_ranks(struct reader *r, struct err *err)
{
    const struct layout *l = &r->layout;

    for (size_t i = 0; i < r->n; i++) {
        struct rank *k = &r->rank[i];

        if (k->nparts != 1 + (l->pp > 1) + (l->ep > 1))
            return err_set(
                err, ERR_INPUT,
                "%s/%s: a rank of a run of %d tensor ranks, %d stages and %d "
                "expert ranks has another name",
                r->dir, k->name, l->tp, l->pp, l->ep);
        k->tp = k->part[0];
        k->pp = l->pp > 1 ? k->part[1] : 0;
        k->ep = l->ep > 1 ? k->part[k->nparts - 1] : 0;
        if (k->tp >= l->tp || k->pp >= l->pp || k->ep >= l->ep)
            return err_set(
                err, ERR_INPUT,
                "%s/%s: of a run of %d tensor ranks, %d stages and %d expert "
                "ranks",
                r->dir, k->name, l->tp, l->pp, l->ep);
    }
    qsort(r->rank, r->n, sizeof(*r->rank), compare_ranks);
    return 0;
}

/* The index of the shard of SET that rank K has. */
static size_t shard_of(const struct reader *r, const struct rank *k, int set)
{
    const struct layout *l = &r->layout;
    size_t pp = (size_t)k->pp, ep = (size_t)k->ep;

    return set == MEGATRON_DENSE ? pp * (size_t)l->tp + (size_t)k->tp
                                 : (pp * (size_t)l->ep + ep) * (size_t)l->expert_tp +
                                       (size_t)(k->tp % l->expert_tp);
}

/* Decides which rank gives the shards of SET: the first that has each. */
static int choose_ranks(struct reader *r, int set, struct err *err)
{
    const struct layout *l = &r->layout;
    uint64_t shards = set == MEGATRON_DENSE
                          ? (uint64_t)l->tp * (uint64_t)l->pp
                          : (uint64_t)l->pp * (uint64_t)l->ep * (uint64_t)l->expert_tp;
    size_t missing = 0, found = 0;
    bool *has;

    if (shards <= r->n) {
        has = xcalloc((size_t)shards + 1, sizeof(*has));
        for (size_t i = 0; i < r->n; i++) {
            size_t at = shard_of(r, &r->rank[i], set);

            r->rank[i].gives[set] = !has[at];
            found += !has[at];
            has[at] = true;
        }
        while (has[missing])
            missing++;
        free(has);
    }
    if (found == shards)
        return 0;
    if (shards > r->n)
        return err_set(
            err, ERR_INPUT,
            "%s: %zu directories of ranks, where %" PRIu64
            " of %d tensor ranks, %d stages and %d expert ranks are expected",
            r->dir, r->n, shards, l->tp, l->pp, l->ep);
    return err_set(err, ERR_INPUT, "%s: no directory of %s %zu of stage %zu", r->dir,
                   set == MEGATRON_DENSE ? "tensor rank" : "expert rank",
                   set == MEGATRON_DENSE
                       ? missing % (size_t)l->tp
                       : missing / (size_t)l->expert_tp % (size_t)l->ep,
                   missing / (size_t)(shards / (uint64_t)l->pp));
}

/* ---- names ---- */

/* The number after WHAT in NAME, or -1; *at is where it stands. */
static int number_after(const char *what, const char *name, size_t *at, size_t *digits)
{
    const char *found = strstr(name, what);
    char *text;
    int number = -1;

    if (!found)
        return -1;
    *at = (size_t)(found - name) + strlen(what);
    *digits = strspn(name + *at, "0123456789");
    text = xstrndup(name + *at, *digits);
    if (!*digits || !str_int(text, &number) || number >= MOST_NUMBER)
        number = -1;
    free(text);
    return number;
}

/* NAME with FIRST added to the number after WHAT, if there is one; the caller frees it.
 */
static char *renumber(const char *name, const char *what, int first)
{
    size_t at = 0, digits = 0;
    int number = number_after(what, name, &at, &digits);

    return number < 0 ? xstrdup(name)
                      : str_dupf("%.*s%d%s", (int)at, name, first + number,
                                 name + at + digits);
}

/* The part of a rank's weights that NAME belongs to. */
static int set_of(const char *name)
{
    return strstr(name, EXPERTS) ? MEGATRON_EXPERTS : MEGATRON_DENSE;
}

/* ---- weights ---- */

/* Notes how many layers the stage and experts the rank have that has MODEL. */
static int count(struct reader *r, const struct rank *rank, const struct pickled *model,
                 const char *path, struct err *err)
{
    int experts = 0;

    for (size_t i = 0; i + 1 < model->list.n; i += 2) {
        const struct pickled *key = model->list.v[i];
        size_t at, digits;
        int layer, expert;

        if (!pickled_is(key, PICKLED_TEXT))
            continue;
        layer = number_after(".layers.", key->text.s, &at, &digits);
        expert = number_after(LOCAL_EXPERTS, key->text.s, &at, &digits);
        if (layer >= r->layers[rank->pp])
            r->layers[rank->pp] = layer + 1;
        experts = expert >= experts ? expert + 1 : experts;
    }
    if (experts && r->experts && experts != r->experts)
        return err_set(err, ERR_INPUT, "%s: %d experts, where other ranks have %d",
                       path, experts, r->experts);
    r->experts = experts ? experts : r->experts;
    return 0;
}

/* Adds the tensor V, called NAME on RANK of its stage, whose first layer is FIRST. */
static int add_tensor(struct reader *r, const struct rank *rank, int first, int input,
                      const char *name, const struct pickled *v, const char *path,
                      struct err *err)
{
    char *layered = renumber(name, ".layers.", first);
    char *global = renumber(layered, LOCAL_EXPERTS, rank->ep * r->experts);
    struct tensor t;
    int ret = pickle_tensor(&t, v, &r->s->pool, path, name, err);

    if (ret == 0)
        ret = form_keep_name(r->s, &t.name, global, r->read, path, err);
    if (ret == 0) {
        t.input = input;
        t.file = set_of(name) == MEGATRON_EXPERTS ? rank->tp % r->layout.expert_tp
                                                  : rank->tp;
        r->s->raw = xgrow(r->s->raw, &r->raw_cap, r->s->nraw + 1, sizeof(*r->s->raw));
        r->s->raw[r->s->nraw++] = t;
    }
    free(global);
    free(layered);
    return ret;
}

/* What else would be read wrongly without a word: versions 0 (without a number) and 1
 * store q, k and v in other orders (Megatron-LM's fix_query_key_value_ordering), and a
 * rank of another run has other weights. */
static int check_settings(const struct reader *r, const struct pickled *root,
                          const char *path, struct err *err)
{
    static const char *const names[] = { "tensor_model_parallel_size",
                                         "pipeline_model_parallel_size",
                                         "expert_model_parallel_size" };
    const int sizes[] = { r->layout.tp, r->layout.pp, r->layout.ep };
    double version = number_of(pickled_get(root, "checkpoint_version"), 0);

    if (!(version >= 2))
        return err_set(
            err, ERR_INPUT,
            "%s: checkpoint_version %g has q, k and v in an order of its own, "
            "which is not read; 2 and 3 are",
            path, version);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        double x = argument(pickled_get(root, "args"), names[i], sizes[i]);

        if (x != sizes[i])
            return err_set(err, ERR_INPUT, "%s: %s of %g, where another rank has %d",
                           path, names[i], x, sizes[i]);
    }
    return 0;
}

/* Adds the weights of MODEL that no rank before RANK has. */
static int add_weights(struct reader *r, const struct rank *rank, int first, int input,
                       const struct pickled *model, const char *path, struct err *err)
{
    size_t tensors = 0;

    if (count(r, rank, model, path, err) < 0)
        return -1;
    for (size_t i = 0; i + 1 < model->list.n; i += 2) {
        const struct pickled *key = model->list.v[i], *of = model->list.v[i + 1];

        if (!pickled_is(key, PICKLED_TEXT) || !pickled_is(of, PICKLED_TENSOR))
            continue;
        tensors++;
        if (rank->gives[set_of(key->text.s)] &&
            add_tensor(r, rank, first, input, key->text.s, of, path, err) < 0)
            return -1;
    }
    return tensors ? 0
                   : err_set(err, ERR_INPUT,
                             "%s: no tensors in its dictionary 'model': of a version "
                             "before Megatron Core, which is not read",
                             path);
}

/* Adds the states of the optimizer in ROOT of the weights from FIRST on. */
static int add_states(struct reader *r, const struct rank *rank, size_t first,
                      const struct pickled *root, int input, const char *path,
                      struct err *err)
{
    struct megatron_weights w[MEGATRON_NSETS] = { { 0 } };
    int ret;

    for (int set = 0; set < MEGATRON_NSETS; set++) /* those of the source may move */
        w[set] = (struct megatron_weights){
            .t = xmalloc((r->s->nraw - first + 1) * sizeof(*w[set].t)),
            .here = rank->gives[set],
        };
    for (size_t i = first; i < r->s->nraw; i++) {
        struct megatron_weights *to = &w[set_of(r->s->raw[i].name)];

        to->t[to->n++] = r->s->raw[i];
    }
    ret = megatron_add_states(r->s, r->dir, rank->name, root, w, input, &r->read, path,
                              err);
    for (int set = 0; set < MEGATRON_NSETS; set++)
        free(w[set].t);
    return ret;
}

/* Reads RANK, whose stage begins with the layer FIRST. */
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
    if (ret == 0)
        ret = add_weights(r, rank, first, input, model, path, err);
    if (ret == 0 && (r->s->moments || r->s->masters))
        ret = add_states(r, rank, before, v.root, input, path, err);
    if (ret == 0 && rank == r->rank && !r->s->config)
        megatron_config(r->s, pickled_get(v.root, "args"), (uint64_t)r->layout.tp,
                        path);
    pickle_values_clear(&v);
out:
    if (fd >= 0)
        close(fd);
    free(name);
    free(path);
    return ret;
}

static int read_all(struct reader *r, struct err *err)
{
    int first = 0;

    if (list_ranks(r, err) < 0 || read_layout(r, err) < 0 || place_ranks(r, err) < 0)
        return -1;
    for (int set = 0; set < MEGATRON_NSETS; set++)
        if (choose_ranks(r, set, err) < 0)
            return -1;
    r->layers = xcalloc((size_t)r->layout.pp, sizeof(*r->layers));
    for (size_t i = 0; i < r->n; i++) {
        if (i && r->rank[i].pp != r->rank[i - 1].pp)
            first += r->layers[r->rank[i - 1].pp];
        if (read_rank(r, &r->rank[i], first, err) < 0)
            return -1;
    }
    if (r->s->masters && form_use_masters(r->s, r->s->raw, r->s->nraw, err) < 0)
        return -1;
    return form_present_shards(r->s, err);
}

int megatron_read_ranks(struct source *s, const char *dir, struct err *err)
{
    struct reader r = { .s = s, .dir = dir };
    int ret = read_all(&r, err);

    for (size_t i = 0; i < r.n; i++)
        free(r.rank[i].name);
    free(r.rank);
    free(r.layers);
    return ret;
}
