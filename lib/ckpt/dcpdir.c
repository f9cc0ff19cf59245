/* dcpdir - reads checkpoints of torch.distributed.checkpoint (DCP) */
#include "lib/ckpt/dcpdir.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/ckpt/boxes.h"
#include "lib/ckpt/dcp.h"
#include "lib/ckpt/dcpgroups.h"
#include "lib/ckpt/pickle.h"
#include "lib/ckpt/unpickle.h"

enum {
    MAX_METADATA = 1 << 30,
    MOST_FIELDS = 64 /* of a record of .metadata; PyTorch has fewer than ten */
};

/* Directories that accelerate makes. */
static const char ACCELERATE[] = "pytorch_model_fsdp_0", OPTIMIZER[] = "optimizer_0";

/* Meta's name of the table, which tells torchtitan's checkpoints. */
static const char META_TABLE[] = "tok_embeddings.weight";

/* An entry of storage_data: where an item is. */
struct item {
    const char *name;              /* of its tensor */
    const struct pickled *offsets; /* of its box, a tuple; NULL: no tensor */
    const struct pickled *info;    /* the record _StorageInfo */
    bool used;
};

/* An entry of planner_data: the keys that lead to a tensor. */
struct path {
    const char *name;
    const struct pickled *keys; /* a tuple */
};

/* A file of items, mapped while the directory is opened. */
struct items {
    const char *name;
    unsigned char *data;
    uint64_t size, listed; /* bytes; bytes of the items found so far */
    int input;
};

struct reader {
    struct source *s;
    const char *dir;
    char *path; /* of .metadata */
    struct unpickle m;
    struct item *item; /* sorted by name and offsets */
    size_t nitems;
    struct path *paths; /* sorted by name */
    size_t npaths;
    struct items *file; /* sorted by name */
    size_t nfiles, files_cap;
    struct tensor *tensor;
    size_t n, cap;
    uint64_t visits; /* boxes looked at */
    bool only_state; /* the directory of an optimizer */
    struct dcpgroups groups;
};

/* ---- the parts of .metadata ---- */

static int malformed(const struct reader *r, const char *what, struct err *err)
{
    return err_set(err, ERR_INPUT, "%s: %s", r->path, what);
}

/* The attribute NAME of the record V; NULL when it has none or far too many. */
static const struct pickled *field(const struct pickled *v, const char *name)
{
    const struct pickled *state =
        pickled_is(v, PICKLED_RECORD) ? v->record.state : NULL;

    return pickled_is(state, PICKLED_DICT) && state->list.n <= 2 * MOST_FIELDS
               ? pickled_get(state, name)
               : NULL;
}

static int compare_numbers(const struct pickled *a, const struct pickled *b)
{
    if (!a || !b || a->list.n != b->list.n)
        return !a ? -(b != NULL) : !b ? 1 : a->list.n < b->list.n ? -1 : 1;
    for (size_t i = 0; i < a->list.n; i++) {
        int64_t x = a->list.v[i]->number, y = b->list.v[i]->number;

        if (x != y)
            return x < y ? -1 : 1;
    }
    return 0;
}

static int compare_items(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    int order = strcmp(x->name, y->name);

    return order ? order : compare_numbers(x->offsets, y->offsets);
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(((const struct path *)a)->name, ((const struct path *)b)->name);
}

/* Is V a tuple of at most TENSOR_MAX_DIMS nonnegative numbers? */
static bool is_sizes(const struct pickled *v)
{
    if (!pickled_is(v, PICKLED_TUPLE) || v->list.n > TENSOR_MAX_DIMS)
        return false;
    for (size_t i = 0; i < v->list.n; i++)
        if (v->list.v[i]->kind != PICKLED_NUMBER || v->list.v[i]->number < 0)
            return false;
    return true;
}

static uint64_t *keep_sizes(struct reader *r, const struct pickled *v)
{
    uint64_t *kept = pool_take(&r->s->pool, (v->list.n + 1) * sizeof(*kept), 8);

    for (size_t i = 0; i < v->list.n; i++)
        kept[i] = (uint64_t)v->list.v[i]->number;
    return kept;
}

/* Lists the items of STORAGE, the dictionary storage_data. */
static int list_items(struct reader *r, const struct pickled *storage, struct err *err)
{
    r->item = xmalloc((storage->list.n / 2 + 1) * sizeof(*r->item));
    for (size_t i = 0; i + 1 < storage->list.n; i += 2) {
        const struct pickled *key = storage->list.v[i], *name = field(key, "fqn");
        const struct pickled *offsets = field(key, "offset");

        if (!pickled_is(name, PICKLED_TEXT) ||
            (offsets && offsets->kind != PICKLED_NONE && !is_sizes(offsets)))
            return malformed(r, "an index of an item without a name", err);
        r->item[r->nitems++] = (struct item){
            .name = name->text.s,
            .offsets = pickled_is(offsets, PICKLED_TUPLE) ? offsets : NULL,
            .info = storage->list.v[i + 1],
        };
    }
    if (r->nitems)
        qsort(r->item, r->nitems, sizeof(*r->item), compare_items);
    return 0;
}

/* Lists the paths of PLANNER, the dictionary planner_data, which may be missing. */
static int list_paths(struct reader *r, const struct pickled *planner, struct err *err)
{
    if (!pickled_is(planner, PICKLED_DICT))
        return 0;
    r->paths = xmalloc((planner->list.n / 2 + 1) * sizeof(*r->paths));
    for (size_t i = 0; i + 1 < planner->list.n; i += 2) {
        const struct pickled *key = planner->list.v[i], *keys = planner->list.v[i + 1];

        if (key->kind != PICKLED_TEXT || keys->kind != PICKLED_TUPLE || !keys->list.n)
            return malformed(r, "a path that is no tuple of keys", err);
        r->paths[r->npaths++] = (struct path){ key->text.s, keys };
    }
    if (r->npaths)
        qsort(r->paths, r->npaths, sizeof(*r->paths), compare_paths);
    return 0;
}

/* ---- names ---- */

static const struct path *find_path(const struct reader *r, const char *name)
{
    const struct path key = { .name = name };

    return r->npaths ? bsearch(&key, r->paths, r->npaths, sizeof(key), compare_paths)
                     : NULL;
}

static bool is_one_of(const struct pickled *key, const char *const *names)
{
    for (; *names; names++)
        if (pickled_text_is(key, *names))
            return true;
    return false;
}

static const char *const STATES[] = { "state_dict", "model_state_dict", "model",
                                      "module", NULL };
static const char *const OPTIMIZERS[] = { "optimizer", "optim", "optimizers",
                                          "optimizer_state_dict", NULL };

/* How many keys lead to the model's dictionary: 0 if the path is not in one. */
static size_t state_depth(const struct path *p)
{
    size_t app = p && pickled_text_is(p->keys->list.v[0], "app");

    return p && p->keys->list.n > app + 1 && is_one_of(p->keys->list.v[app], STATES)
               ? app + 1
               : 0;
}

/* Belongs the tensor NAME to an optimizer?  Without paths, its name tells. */
static bool is_optimizer(const struct path *p, const char *name)
{
    size_t app = p && p->keys->list.n > 1 && pickled_text_is(p->keys->list.v[0], "app");

    if (p)
        return p->keys->list.n > app + 1 && is_one_of(p->keys->list.v[app], OPTIMIZERS);
    if (str_starts(name, "chained_") && strchr(name, '.')) /* of several, Megatron */
        name = strchr(name, '.') + 1;
    return str_starts(name, "optimizer.") || str_starts(name, "optim.");
}

/* Joins the keys of P from DEPTH on; without a path the name is NAME. */
static int make_name(struct reader *r, const char **out, const struct path *p,
                     size_t depth, const char *name, struct err *err)
{
    uint64_t read = unpickle_read(&r->m);
    struct str s = { 0 };
    int ret;

    if (!p)
        str_add(&s, name);
    for (size_t i = depth; p && i < p->keys->list.n && s.len <= read; i++) {
        const struct pickled *key = p->keys->list.v[i];

        if (i > depth)
            str_addc(&s, '.');
        if (key->kind == PICKLED_TEXT)
            str_add(&s, key->text.s);
        else if (key->kind == PICKLED_NUMBER)
            str_addf(&s, "%" PRId64, key->number);
    }
    ret = form_keep_name(r->s, out, str_text(&s), read, r->path, err);
    str_clear(&s);
    return ret;
}

/* ---- items ---- */

/* The file of items NAME, mapped on first use. */
static int open_items(struct reader *r, struct items **out, const char *name,
                      struct err *err)
{
    size_t low = 0, high = r->nfiles;
    struct items made = { .name = name };
    char *path;
    int fd, ret;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(name, r->file[middle].name);

        *out = &r->file[middle];
        if (!order)
            return 0;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    if (!fs_is_plain_name(name))
        return err_set(err, ERR_INPUT, "%s: '%s' is not a file of this directory",
                       r->path, name);
    path = fs_join_dup(r->dir, name);
    ret = form_add_input(r->s, name, path, &made.input, &fd, err);
    if (ret == 0) {
        made.size = r->s->input[made.input].size;
        made.data = made.size
                        ? mmap(NULL, (size_t)made.size, PROT_READ, MAP_PRIVATE, fd, 0)
                        : MAP_FAILED;
        if (made.data == MAP_FAILED)
            ret = made.size ? err_errno(err, "%s", path)
                            : err_set(err, ERR_INPUT, "%s: empty", path);
        close(fd);
    }
    free(path);
    if (ret < 0)
        return -1;
    r->file = xgrow(r->file, &r->files_cap, r->nfiles + 1, sizeof(*r->file));
    memmove(r->file + low + 1, r->file + low, (r->nfiles++ - low) * sizeof(*r->file));
    r->file[low] = made;
    *out = &r->file[low];
    return 0;
}

/* Finds the item of the box at OFFSETS of tensor NAME: its file and range. */
static int find_item(struct reader *r, const char *name, const struct pickled *offsets,
                     struct items **file, uint64_t *offset, uint64_t *length,
                     struct err *err)
{
    const struct item key = { .name = name, .offsets = offsets };
    struct item *found =
        r->nitems ? bsearch(&key, r->item, r->nitems, sizeof(key), compare_items)
                  : NULL;
    const struct pickled *path, *at, *n, *changed;

    if (!found)
        return err_set(err, ERR_INPUT, "%s: %s: a piece is stored nowhere", r->path,
                       name);
    if (found->used)
        return err_set(err, ERR_INPUT, "%s: %s: two pieces overlap", r->path, name);
    found->used = true;
    path = field(found->info, "relative_path");
    at = field(found->info, "offset");
    n = field(found->info, "length");
    changed = field(found->info, "transform_descriptors");
    if (changed && changed->kind != PICKLED_NONE)
        return err_set(err, ERR_INPUT,
                       "%s: %s: stored by a transformation, such as compression, which "
                       "is not read",
                       r->path, name);
    if (!pickled_is(path, PICKLED_TEXT) || !pickled_is(at, PICKLED_NUMBER) ||
        !pickled_is(n, PICKLED_NUMBER) || at->number < 0 || n->number < 0)
        return err_set(err, ERR_INPUT, "%s: %s: an item without a place", r->path,
                       name);
    if (open_items(r, file, path->text.s, err) < 0)
        return -1;
    *offset = (uint64_t)at->number;
    *length = (uint64_t)n->number;
    if (*offset > (*file)->size || *length > (*file)->size - *offset)
        return err_set(
            err, ERR_INPUT,
            "%s/%s: %" PRIu64 " bytes; %s is to lie at %" PRIu64 " to %" PRIu64, r->dir,
            (*file)->name, (*file)->size, name, *offset, *offset + *length);
    (*file)->listed += *length;
    if ((*file)->listed > (*file)->size)
        return err_set(err, ERR_INPUT, "%s/%s: its items overlap", r->dir,
                       (*file)->name);
    return 0;
}

/* Sets *box to the piece CHUNK of the tensor T, whose data are in an item. */
static int find_box(struct reader *r, struct box *box, const struct tensor *t,
                    const char *name, const struct pickled *offsets,
                    const struct pickled *sizes, struct err *err)
{
    struct items *file = NULL;
    uint64_t offset = 0, length = 0;
    struct pickle p;
    char *what;
    int ret;

    if (find_item(r, name, offsets, &file, &offset, &length, err) < 0)
        return -1;
    what = str_dupf("%s/%s: %s", r->dir, file->name, name);
    ret = pickle_parse(&p, what, file->data + offset, length, err);
    if (ret == 0) {
        const struct tensor *found = p.n == 1 ? p.tensor : NULL;

        *box = (struct box){ .input = file->input,
                             .start = keep_sizes(r, offsets),
                             .size = keep_sizes(r, sizes) };
        if (!found || found->dtype != t->dtype || found->ndim != (int)sizes->list.n ||
            memcmp(found->shape, box->size, sizes->list.n * sizeof(*box->size)) != 0) {
            ret = err_set(err, ERR_INPUT,
                          "%s: has another type or shape than .metadata says", what);
        } else {
            box->offset = offset + found->offset;
            if (p.archive)
                form_add_archive(r->s, file->input, offset, length);
            if (found->stride) {
                uint64_t *stride = pool_take(
                    &r->s->pool, sizes->list.n * sizeof(*stride), sizeof(*stride));

                memcpy(stride, found->stride, sizes->list.n * sizeof(*stride));
                box->stride = stride;
            }
        }
        pickle_clear(&p);
    }
    free(what);
    return ret;
}

/* ---- tensors ---- */

/* The type in the TensorProperties of META: the first of a tuple, or an attribute. */
static bool find_dtype(enum dtype *out, const struct pickled *meta)
{
    const struct pickled *v = field(meta, "properties"), *of;

    of = pickled_is(v, PICKLED_RECORD) ? v->record.state : NULL;
    v = pickled_is(of, PICKLED_TUPLE) && of->list.n ? of->list.v[0] : field(v, "dtype");
    if (!pickled_is(v, PICKLED_GLOBAL) || v->global.global != PICKLED_ELEMENT_TYPE)
        return false;
    *out = v->global.dtype;
    return true;
}

static bool is_empty(const struct pickled *sizes)
{
    for (size_t i = 0; i < sizes->list.n; i++)
        if (!sizes->list.v[i]->number)
            return true;
    return false;
}

/* Finds the pieces of T in the list CHUNKS. */
static int find_boxes(struct reader *r, struct tensor *t, const char *name,
                      const struct pickled *chunks, struct err *err)
{
    struct box *box = xmalloc((chunks->list.n + 1) * sizeof(*box));
    size_t n = 0;
    int ret = -1;

    r->visits += chunks->list.n;
    if (r->visits > unpickle_read(&r->m)) {
        malformed(r, "more pieces than it can list", err);
        goto out;
    }
    for (size_t i = 0; i < chunks->list.n; i++) {
        const struct pickled *offsets = field(chunks->list.v[i], "offsets");
        const struct pickled *sizes = field(chunks->list.v[i], "sizes");

        if (!is_sizes(offsets) || !is_sizes(sizes) ||
            offsets->list.n != (size_t)t->ndim || sizes->list.n != (size_t)t->ndim) {
            err_set(err, ERR_INPUT, "%s: %s: a piece without offsets and sizes",
                    r->path, name);
            goto out;
        }
        if (is_empty(sizes))
            continue;
        if (find_box(r, &box[n++], t, name, offsets, sizes, err) < 0)
            goto out;
    }
    if (boxes_new(&t->boxes, &r->s->pool, t->ndim, t->shape, box, n, r->path, name,
                  err) < 0)
        goto out;
    form_join_boxes(t);
    ret = 0;
out:
    free(box);
    return ret;
}

/* Reads the tensor NAME, which META describes; SHOWN is its name for the user. */
static int read_tensor(struct reader *r, struct tensor *out, const char *name,
                       const char *shown, const struct pickled *meta, struct err *err)
{
    const struct pickled *size = field(meta, "size"), *chunks = field(meta, "chunks");
    struct tensor t = { .name = shown };
    uint64_t elements = 1;

    if (!find_dtype(&t.dtype, meta) || !is_sizes(size) ||
        !pickled_is(chunks, PICKLED_LIST))
        return err_set(err, ERR_INPUT, "%s: %s: a tensor without type, size or pieces",
                       r->path, name);
    t.ndim = (int)size->list.n;
    t.shape = keep_sizes(r, size);
    for (int k = 0; k < t.ndim; k++)
        if (!mem_mul(&elements, elements, t.shape[k]))
            return err_set(err, ERR_INPUT, "%s: %s: its shape overflows", r->path,
                           name);
    if (!dtype_bytes(&t.size, t.dtype, elements))
        return err_set(err, ERR_INPUT, "%s: %s: its size overflows", r->path, name);
    if (find_boxes(r, &t, name, chunks, err) < 0)
        return -1;
    *out = t;
    return 0;
}

/* Reads what the item NAME of the optimizer, which has no boxes or one, says of the
 * training: a setting of a group, or the updates of a parameter. */
static int read_progress(struct reader *r, const char *name,
                         const struct pickled *offsets, struct err *err)
{
    const char *key = NULL, *setting = NULL;
    struct items *file = NULL;
    struct pickle_values v;
    uint64_t offset, length;
    double updates;
    char *what;
    size_t len;
    int ret;

    if (!offsets && !dcpgroups_split(name, &key, &len, &setting))
        return 0;
    if (find_item(r, name, offsets, &file, &offset, &length, err) < 0)
        return -1;
    what = str_dupf("%s/%s: %s", r->dir, file->name, name);
    ret = pickle_values_parse(&v, what, file->data + offset, length, err);
    if (ret == 0) {
        if (key)
            dcpgroups_set(&r->groups, key, len, setting, v.root);
        else if (pickle_number(&v, v.root, &updates))
            progress_see(&r->s->progress, updates);
        pickle_values_clear(&v);
    }
    free(what);
    return ret;
}

/* Is META that of a tensor without axes, in one piece?  Then *offsets is the place. */
static bool is_number(const struct pickled *meta, const struct pickled **offsets)
{
    const struct pickled *size = field(meta, "size"), *chunks = field(meta, "chunks");

    if (!is_sizes(size) || size->list.n || !pickled_is(chunks, PICKLED_LIST) ||
        chunks->list.n != 1)
        return false;
    *offsets = field(chunks->list.v[0], "offsets");
    return is_sizes(*offsets);
}

/* Sets *role and *weight, which the caller frees, if NAME is that of a moment or a
 * master: optimizer.state.WEIGHT.exp_avg, or as Megatron has it
 * optimizer.state.exp_avg.WEIGHT.  *role is NULL for any other, such as the number of
 * the step. */
static void parse_moment(const char **role, char **weight, const char *name)
{
    static const struct {
        const char *name, *role;
    } roles[] = { { "exp_avg", "exp_avg" },
                  { "exp_avg_sq", "exp_avg_sq" },
                  { "param", FORM_MASTER }, /* of Megatron's optimizers, the */
                  { "fp32_param", FORM_MASTER } /* distributed and the other */ };
    const char *state = strstr(name, ".state."), *dot = strrchr(name, '.');

    *role = NULL;
    state = state ? state + strlen(".state.") : NULL;
    for (size_t i = 0;
         i < sizeof(roles) / sizeof(*roles) && state && !*role && state < dot; i++) {
        size_t n = strlen(roles[i].name);

        if (!strcmp(dot + 1, roles[i].name))
            *weight = xstrndup(state, (size_t)(dot - state));
        else if (!strncmp(state, roles[i].name, n) && state[n] == '.')
            *weight = xstrdup(state + n + 1);
        else
            continue;
        *role = roles[i].role;
    }
}

/* Adds the moment or master NAME, if it is asked for; any other tensor of an optimizer
 * is left. */
static int add_moment(struct reader *r, const char *name, const struct pickled *meta,
                      struct err *err)
{
    const struct pickled *offsets;
    const char *role;
    struct tensor t;
    char *weight = NULL;
    int ret;

    parse_moment(&role, &weight, name);
    if (!role && strstr(name, "optimizer.distributed."))
        return err_set(err, ERR_INPUT,
                       "%s: %s: a bucket of the optimizer's ranks (Megatron's "
                       "dp_reshardable), which is not read; fully_reshardable is",
                       r->path, name);
    if (!role && r->s->moments && str_ends(name, ".step") && is_number(meta, &offsets))
        return read_progress(r, name, offsets, err);
    if (!role)
        return 0;
    ret = !strcmp(role, FORM_MASTER) ? r->s->masters : r->s->moments;
    if (!ret) {
        free(weight);
        return 0;
    }
    ret = read_tensor(r, &t, name, name, meta, err);
    if (ret == 0)
        ret =
            form_add_state(r->s, &t, weight, role, unpickle_read(&r->m), r->path, err);
    free(weight);
    return ret;
}

/* Adds the tensor NAME to the weights, with its keys from DEPTH of PATH on. */
static int add_weight(struct reader *r, const char *name, const struct path *path,
                      size_t depth, const struct pickled *meta, struct err *err)
{
    const char *shown;
    struct tensor t;

    if (make_name(r, &shown, path, depth, name, err) < 0 ||
        read_tensor(r, &t, name, shown, meta, err) < 0)
        return -1;
    r->tensor = xgrow(r->tensor, &r->cap, r->n + 1, sizeof(*r->tensor));
    r->tensor[r->n++] = t;
    return 0;
}

/* Adds the tensors of STATE, the dictionary state_dict_metadata. */
static int add_tensors(struct reader *r, const struct pickled *state, struct err *err)
{
    bool inner = false;

    for (size_t i = 0; i + 1 < state->list.n && !inner; i += 2)
        inner = pickled_is(state->list.v[i], PICKLED_TEXT) &&
                pickled_is_a(state->list.v[i + 1], "TensorStorageMetadata") &&
                state_depth(find_path(r, state->list.v[i]->text.s)) > 0;
    for (size_t i = 0; i + 1 < state->list.n; i += 2) {
        const struct pickled *key = state->list.v[i], *meta = state->list.v[i + 1];
        const struct path *path;
        size_t depth;

        if (key->kind != PICKLED_TEXT)
            return malformed(r, "a tensor without a name", err);
        if (pickled_is_a(meta, "BytesStorageMetadata")) {
            if (r->s->moments && is_optimizer(find_path(r, key->text.s), key->text.s) &&
                read_progress(r, key->text.s, NULL, err) < 0)
                return -1;
            continue;
        }
        if (!pickled_is_a(meta, "TensorStorageMetadata"))
            return err_set(err, ERR_INPUT, "%s: %s: is neither a tensor nor bytes",
                           r->path, key->text.s);
        path = find_path(r, key->text.s);
        depth = state_depth(path);
        if (is_optimizer(path, key->text.s)) {
            if ((r->s->moments || r->s->masters) &&
                add_moment(r, key->text.s, meta, err) < 0)
                return -1;
            continue;
        }
        if (r->only_state || (inner && !depth))
            continue;
        if (add_weight(r, key->text.s, path, depth, meta, err) < 0)
            return -1;
    }
    if (r->s->masters && form_use_masters(r->s, r->tensor, r->n, err) < 0)
        return -1;
    for (size_t i = 0; i < r->n && !r->s->dialect; i++)
        if (!strcmp(r->tensor[i].name, META_TABLE))
            r->s->dialect = "meta";
    if (!r->n && !r->only_state)
        return malformed(r, "no weights: the state of an optimizer, or of nothing",
                         err);
    return 0;
}

/* ---- opening ---- */

static int read_metadata(struct reader *r, char **text, struct err *err)
{
    const struct pickled *state, *storage;
    struct pickled *root;
    size_t n;

    if (fs_read_regular(text, &n, r->path, MAX_METADATA, err) < 0)
        return -1;
    unpickle_init(&r->m, r->path, (const unsigned char *)*text, n);
    r->m.records = true;
    if (unpickle_run(&r->m, &root, err) < 0)
        return -1;
    state = field(root, "state_dict_metadata");
    storage = field(root, "storage_data");
    if (!pickled_is_a(root, "Metadata") || !pickled_is(state, PICKLED_DICT) ||
        !pickled_is(storage, PICKLED_DICT))
        return malformed(r, "not the metadata of torch.distributed.checkpoint", err);
    if (list_items(r, storage, err) < 0 ||
        list_paths(r, field(root, "planner_data"), err) < 0)
        return -1;
    return add_tensors(r, state, err);
}

static void clear(struct reader *r)
{
    for (size_t i = 0; i < r->nfiles; i++)
        munmap(r->file[i].data, (size_t)r->file[i].size);
    free(r->file);
    free(r->item);
    free(r->paths);
    dcpgroups_clear(&r->groups);
    free(r->tensor);
    free(r->path);
    unpickle_clear(&r->m);
}

static int open_metadata(struct source *s, const char *dir, bool only_state,
                         struct err *err)
{
    struct reader r = { .s = s,
                        .dir = dir,
                        .path = fs_join_dup(dir, DCP_METADATA),
                        .only_state = only_state };
    char *text = NULL;
    int ret = -1, input;

    if (form_add_input(s, DCP_METADATA, r.path, &input, NULL, err) == 0 &&
        read_metadata(&r, &text, err) == 0) {
        dcpgroups_finish(&r.groups, s);
        ret = only_state ? 0 : form_present(s, r.tensor, r.n, err);
    }
    clear(&r);
    free(text);
    return ret;
}

/* Sets *dir, which the caller frees, to the directory of .metadata: PATH, or what
 * accelerate makes in it; NULL: neither. */
static int find_directory(char **dir, const char *path, struct err *err)
{
    char *below = fs_join_dup(path, ACCELERATE);
    bool here, there = false;
    int ret = fs_find_in(&here, path, DCP_METADATA, err);

    if (ret == 0 && !here)
        ret = fs_find_in(&there, below, DCP_METADATA, err);
    *dir = ret < 0 ? NULL : here ? xstrdup(path) : there ? xstrdup(below) : NULL;
    free(below);
    return ret;
}

/* Has the directory PATH files of items? */
static int find_items(bool *found, const char *path, struct err *err)
{
    char **names;
    size_t n;

    *found = false;
    if (fs_list(&names, &n, path, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        *found |= str_ends(names[i], ".distcp");
    fs_list_free(names, n);
    return 0;
}

static int probe(bool *found, const char *path, bool is_dir, struct err *err)
{
    char *dir = NULL;

    *found = false;
    if (!is_dir)
        return 0;
    if (find_directory(&dir, path, err) < 0)
        return -1;
    *found = dir != NULL;
    free(dir);
    return *found ? 0 : find_items(found, path, err);
}

/* Reads the optimizer of accelerate's directory PATH, if it is one. */
static int open_optimizer(struct source *s, const char *path, struct err *err)
{
    char *dir = fs_join_dup(path, OPTIMIZER);
    bool found = false;
    int ret = fs_find_in(&found, dir, DCP_METADATA, err);

    if (ret == 0 && found)
        ret = open_metadata(s, dir, true, err);
    free(dir);
    return ret;
}

static int open_directory(struct source *s, const char *path, struct err *err)
{
    char *dir = NULL;
    int ret;

    if (find_directory(&dir, path, err) < 0)
        return -1;
    if (!dir)
        return err_set(err, ERR_INPUT,
                       "%s: unfinished: it has .distcp files, but no %s, which is "
                       "written last",
                       path, DCP_METADATA);
    ret = open_metadata(s, dir, false, err);
    free(dir);
    if (ret == 0 && s->moments)
        ret = open_optimizer(s, path, err);
    return ret;
}

const struct source_ops dcpdir_ops = {
    .name = "a checkpoint of torch.distributed.checkpoint",
    .probe = probe,
    .open = open_directory
};
