/* adapter - low-rank adapters of a model, as PEFT writes them */
#include "lib/run/adapter.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/rng.h"
#include "lib/ckpt/manifest.h"
#include "lib/ckpt/safetensors.h"
#include "lib/model/expr.h"
#include "lib/model/family.h"
#include "lib/model/feed.h"
#include "lib/program/packable.h"
#include "lib/run/adapterstack.h"

static const char PREFIX[] = "base_model.model.";
static const char *const sides[2] = { ".lora_A.weight", ".lora_B.weight" };
/* of an embedding, whose A has a column for each id */
static const char *const tables[2] = { ".lora_embedding_A", ".lora_embedding_B" };
static const char MAGNITUDE[] = ".lora_magnitude_vector";

struct adapter {
    struct adapter *next;
    char *name; /* or NULL */
    int chosen; /* as in struct model_adapter */
    double weight;
    bool merges;
    struct adapter_config config; /* of a new one: .text alone */
    char *dir, *path;             /* and of the weights; NULL: it is new, */
    struct manifest manifest;     /* of a checkpoint of tp-run train; else empty */
    uint64_t seed;                /* and A is drawn with this */
    bool opened;                  /* stored is */
    int fd;
    struct safetensors stored;
    size_t first; /* in model.adapter */
    struct pair {
        const struct tensor *side[2];   /* A, B; NULL: new */
        const struct tensor *magnitude; /* or NULL */
        struct adapter_stack of;     /* of experts that share them; .swapped: SIDE has
                                      * PEFT's B and A */
    } * pair;                        /* [n] */
    size_t n, nmagnitudes, nmatched; /* of the file's tensors: A and B */
    struct stack {
        const struct tensor *of; /* the B that was read last */
        char *data;
    } * stack;
    struct saved {
        size_t tensor;           /* of the model */
        const struct tensor *by; /* NULL: new, it begins as the model's */
    } * saved; /* [nsaved]: modules_to_save, which stand in place of the model's */
    size_t nsaved, ncopies; /* copies: of the model's, which say nothing */
};

/* ---- what a command line says ---- */

int adapter_spec_parse(struct adapter_spec *out, const char *text, struct err *err)
{
    const char *sign = strchr(text, '='), *at;
    bool found;
    char *end;

    *out = (struct adapter_spec){ .weight = 1 };
    if (fs_find(&found, text, err) < 0)
        return -1;
    if (!found && sign && sign - text == (ptrdiff_t)strcspn(text, "/@=")) {
        if (sign == text)
            return err_set(err, ERR_USAGE, "--adapter: %s: expected a name before '='",
                           text);
        out->name = xstrndup(text, (size_t)(sign - text));
        text = sign + 1;
        if (fs_find(&found, text, err) < 0)
            return -1;
    }
    at = found ? NULL : strrchr(text, '@');
    if (at) {
        out->weight = strtod(at + 1, &end);
        if (end == at + 1 || *end || !isfinite(out->weight))
            return err_set(err, ERR_USAGE,
                           "--adapter: '%s' is no weight: expected "
                           "[NAME=]DIR[@WEIGHT]",
                           at + 1);
    }
    out->dir = at ? xstrndup(text, (size_t)(at - text)) : xstrdup(text);
    return 0;
}

void adapter_spec_clear(struct adapter_spec *s)
{
    free(s->dir);
    free(s->name);
    *s = (struct adapter_spec){ 0 };
}

/* ---- the tensors ---- */

/* The tensor of A's module, whose name has N bytes, that ends with END; NULL: there is
 * none. */
static const struct tensor *beside(const struct tensor_index *index,
                                   const struct tensor *a, size_t n, const char *end)
{
    char *name = str_dupf("%.*s%s", (int)n, a->name, end);
    long at = tensor_index_find(index, name);

    free(name);
    return at < 0 ? NULL : &index->tensor[at];
}

/* Does another tensor have the values of T? */
static bool has_ties(const struct model *m, long t)
{
    for (size_t i = 0; i < m->ntensors; i++)
        if (m->tensor[i].tied == (int)t)
            return true;
    return false;
}

/* Finds the weight of the module NAME, N bytes, in M, an embedding if TABLE: *t, and
 * whether it is [in][out]. */
static int find_weight(size_t *t, bool *turned, const struct adapter *a,
                       const struct model *m, const enum packable *how, bool table,
                       const char *name, size_t n, struct err *err)
{
    char *weight = str_dupf("%.*s.weight", (int)n, name);
    long at = model_match(m, weight);
    int ret = -1;

    if (at < 0) {
        err_set(err, ERR_INPUT, "%s: %.*s: the model has no such module", a->path,
                (int)n, name);
    } else if (m->tensor[at].ndim != 2 || m->tensor[at].tied >= 0 ||
               (table ? has_ties(m, at) : how[at] == PACKABLE_NOT)) {
        err_set(err, ERR_NO,
                "%s: %.*s: more than one product reads its weight, or none does: an "
                "adapter of it is not read",
                a->path, (int)n, name);
    } else if (!a->merges && table) {
        err_set(err, ERR_NO,
                "%s: %.*s: an adapter of an embedding is not applied beside the model: "
                "tp-shard merge --adapter makes a model of both",
                a->path, (int)n, name);
    } else {
        *t = (size_t)at;
        *turned = table || how[at] == PACKABLE_COLS;
        ret = 0;
    }
    free(weight);
    return ret;
}

static int check_shape(const struct adapter *a, const struct tensor *t,
                       const uint64_t want[2], struct err *err)
{
    if (t->dtype != DTYPE_F32 && t->dtype != DTYPE_BF16 && t->dtype != DTYPE_F16)
        return err_set(err, ERR_INPUT, "%s: tensor %s: cannot compute with type %s",
                       a->path, t->name, dtype_name(t->dtype));
    if (t->ndim != 2 || t->shape[0] != want[0] || t->shape[1] != want[1])
        return err_set(err, ERR_INPUT, "%s: tensor %s is not [%llu, %llu]", a->path,
                       t->name, (unsigned long long)want[0],
                       (unsigned long long)want[1]);
    return 0;
}

/* DoRA (Liu et al. 2024): a weight becomes its direction times the magnitudes T. */
static int check_magnitude(const struct adapter *a, const struct tensor *t,
                           uint64_t out, struct err *err)
{
    if (a->weight < 1 || a->weight > 1)
        return err_set(err, ERR_NO, "%s: DoRA (use_dora) has no weight: give no @%g",
                       a->path, a->weight);
    return (t->dtype != DTYPE_F32 && t->dtype != DTYPE_BF16 && t->dtype != DTYPE_F16) ||
                   t->ndim != 1 || t->shape[0] != out
               ? err_set(err, ERR_INPUT, "%s: tensor %s is not [%" PRIu64 "] f32",
                         a->path, t->name, out)
               : 0;
}

/* Adds the adapter whose A is TENSOR to M. */
static int add_pair(struct adapter *a, struct model *m, const enum packable *how,
                    const struct tensor_index *index, const struct tensor *tensor,
                    struct err *err)
{
    bool table = str_ends(tensor->name, tables[0]);
    size_t n = strlen(tensor->name) - strlen((table ? tables : sides)[0]), t;
    const char *name = tensor->name + strlen(PREFIX);
    const struct tensor *up = beside(index, tensor, n, (table ? tables : sides)[1]);
    const struct tensor *magnitude = beside(index, tensor, n, MAGNITUDE);
    uint64_t rank = tensor->ndim == 2 ? tensor->shape[0] : 0;
    const struct axis *axis[2];
    struct model_adapter *made;
    double scale = 0;
    bool turned;
    char *module;
    int ret;

    if (!up)
        return err_set(err, ERR_INPUT, "%s: tensor %s lacks its lora_B", a->path,
                       tensor->name);
    n -= strlen(PREFIX);
    if (!rank || rank > UINT32_MAX)
        return err_set(err, ERR_INPUT, "%s: tensor %s has no rank", a->path,
                       tensor->name);
    if (find_weight(&t, &turned, a, m, how, table, name, n, err) < 0)
        return -1;
    for (size_t i = 0; i < a->n; i++)
        if (m->adapter[a->first + i].tensor == t)
            return err_set(err, ERR_INPUT, "%s: tensors %s and %s are of one module",
                           a->path, a->pair[i].side[0]->name, tensor->name);
    for (size_t i = 0; i < m->nadapters && a->chosen; i++)
        if (m->adapter[i].tensor == t && m->adapter[i].chosen == a->chosen &&
            (m->adapter[i].magnitudes || magnitude))
            return err_set(err, ERR_NO,
                           "%s: tensor %s: an adapter with DoRA (use_dora) shares its "
                           "name with no other of the module",
                           a->path, tensor->name);
    axis[0] = m->tensor[t].axis[turned];
    axis[1] = m->tensor[t].axis[!turned];
    if (check_shape(a, tensor, (const uint64_t[2]){ rank, axis[1]->size }, err) < 0 ||
        check_shape(a, up, (const uint64_t[2]){ axis[0]->size, rank }, err) < 0)
        return -1;
    if (magnitude && check_magnitude(a, magnitude, axis[0]->size, err) < 0)
        return -1;
    module = xstrndup(name, n);
    ret = adapter_config_check_rank(&a->config, module, tensor, err);
    if (ret == 0)
        ret = adapter_config_scale(&scale, &a->config, module, rank, err);
    free(module);
    if (ret == 0 && !(fabs(scale * a->weight) <= (double)FLT_MAX))
        ret = err_set(err, ERR_INPUT, "%s: lora_alpha times @%g is more than f32 holds",
                      a->path, a->weight);
    if (ret < 0)
        return -1;
    made = model_adapt(m, t, turned, rank, scale * a->weight);
    made->chosen = a->chosen;
    made->from = a->first;
    made->magnitudes = magnitude;
    a->pair = xrealloc(a->pair, (a->n + 1) * sizeof(*a->pair));
    a->pair[a->n++] = (struct pair){ { tensor, up }, .magnitude = magnitude };
    a->nmagnitudes += magnitude != NULL;
    a->nmatched += 2;
    return 0;
}

/* ---- experts in one pair (target_parameters) ---- */

/* The parameter of a module of experts, NAME[n], that A and B adapt: its name, which
 * the caller frees, its *pieces, *count of them, and the rank; NULL: none. */
static char *find_stack(struct model_piece **pieces, size_t *count, uint64_t *rank,
                        const struct model *m, const struct adapter_config *config,
                        const char *name, size_t n, const struct tensor *a,
                        const struct tensor *b)
{
    const char *word;

    for (size_t k = 0; (word = adapter_config_parameter(config, k)); k++) {
        const char *dot = strrchr(word, '.');
        char *full = str_dupf("%.*s.%s", (int)n, name, dot ? dot + 1 : word);

        for (uint64_t experts = 2; experts <= a->shape[0]; experts++) {
            uint64_t shape[3] = { experts, b->shape[0], a->shape[1] };

            if (a->shape[0] % experts)
                continue;
            *pieces = model_unstack(m, full, 3, shape, count);
            *rank = a->shape[0] / experts;
            if (*pieces)
                return full;
        }
        free(full);
    }
    return NULL;
}

/* Adds an adapter for PIECE, of all COUNT pieces of the parameter NAME. */
static int add_piece(struct adapter *a, struct model *m, const enum packable *how,
                     const struct model_piece *piece, uint64_t experts, uint64_t rank,
                     const char *name, const struct tensor *const side[2],
                     struct err *err)
{
    size_t n = strlen(piece->name) - strlen(".weight"), t;
    struct model_adapter *made;
    double scale;
    bool turned;

    if (find_weight(&t, &turned, a, m, how, false, piece->name, n, err) < 0 ||
        adapter_config_scale(&scale, &a->config, name, rank, err) < 0)
        return -1;
    if (!(fabs(scale * a->weight) <= (double)FLT_MAX))
        return err_set(err, ERR_INPUT,
                       "%s: lora_alpha times @%g is more than f32 holds", a->path,
                       a->weight);
    if (turned)
        return err_set(err, ERR_NO, "%s: %s: a matrix by columns is not read", a->path,
                       name);
    made = model_adapt(m, t, false, rank, scale * a->weight);
    made->chosen = a->chosen;
    made->from = a->first;
    a->pair = xrealloc(a->pair, (a->n + 1) * sizeof(*a->pair));
    a->pair[a->n++] = (struct pair){ .side = { side[0], side[1] },
                                     .of = { .experts = experts,
                                             .expert = piece->expert,
                                             .first = piece->first,
                                             .rows = piece->rows } };
    return 0;
}

/* Has tensor T of M the matrices of all experts of a layer?  Others of three axes are
 * one matrix, as XLNet's. */
static bool has_experts(const struct model *m, size_t t)
{
    const struct model_tensor *own = &m->tensor[t];
    const int sym = own->ndim == 3 ? own->axis[0]->leaf[0].digit[0].sym : -1;

    return sym >= 0 && model_dealt_over(m, sym) == MESH_EP;
}

/* The parameter of a module of experts, NAME[n], that A and B adapt, if it is one
 * tensor of M, *t: its name, which the caller frees; NULL: none. */
static char *find_slices(size_t *t, bool *swapped, const struct model *m,
                         const enum packable *how, const struct adapter_config *config,
                         const char *name, size_t n, const struct tensor *a,
                         const struct tensor *b)
{
    const char *word;
    double x;

    *swapped = model_number(m, "lora_swaps", &x) && x > 0;
    for (size_t k = 0; (word = adapter_config_parameter(config, k)); k++) {
        const char *dot = strrchr(word, '.');
        char *full = str_dupf("%.*s.%s", (int)n, name, dot ? dot + 1 : word);
        long at = model_match(m, full);
        const struct model_tensor *own = at < 0 ? NULL : &m->tensor[at];

        if (own && has_experts(m, (size_t)at) && how[at] != PACKABLE_NOT &&
            a->shape[0] % own->axis[0]->size == 0) {
            const bool turned = how[at] == PACKABLE_COLS;
            const uint64_t in = own->axis[1 + !turned]->size;
            const uint64_t out = own->axis[1 + turned]->size;

            *t = (size_t)at;
            if (a->shape[1] == (*swapped ? out : in) &&
                b->shape[0] == (*swapped ? in : out))
                return full;
        }
        free(full);
    }
    return NULL;
}

/* Adds adapters for the slices of M's tensor T, the parameter NAME. */
static int add_slices(struct adapter *a, struct model *m, size_t t, bool turned,
                      bool swapped, const char *name,
                      const struct tensor *const side[2], struct err *err)
{
    const uint64_t experts = m->tensor[t].axis[0]->size;
    const uint64_t rows = m->tensor[t].axis[1 + turned]->size;
    const uint64_t rank = side[0]->shape[0] / experts;
    double scale;

    if (adapter_config_scale(&scale, &a->config, name, rank, err) < 0)
        return -1;
    if (!(fabs(scale * a->weight) <= (double)FLT_MAX))
        return err_set(err, ERR_INPUT,
                       "%s: lora_alpha times @%g is more than f32 holds", a->path,
                       a->weight);
    for (uint64_t e = 0; e < experts; e++) {
        struct model_adapter *made = model_adapt(m, t, turned, rank, scale * a->weight);

        made->expert = e + 1;
        made->chosen = a->chosen;
        made->from = a->first;
        a->pair = xrealloc(a->pair, (a->n + 1) * sizeof(*a->pair));
        a->pair[a->n++] = (struct pair){
            .side = { side[swapped], side[!swapped] },
            .of = { .experts = experts, .expert = e, .rows = rows, .swapped = swapped }
        };
    }
    return 0;
}

/* Adds the adapters of experts whose A is TENSOR to M: *found, if they are. */
static int add_stack(bool *found, struct adapter *a, struct model *m,
                     const enum packable *how, const struct tensor_index *index,
                     const struct tensor *tensor, struct err *err)
{
    static const char layer[] = ".base_layer";
    size_t n = strlen(tensor->name) - strlen(sides[0]), count = 0, kept;
    const struct tensor *side[2] = { tensor, beside(index, tensor, n, sides[1]) };
    const char *name = tensor->name + strlen(PREFIX);
    struct model_piece *piece = NULL;
    bool slices = false, swapped;
    uint64_t rank = 0;
    size_t whole = 0;
    char *full;
    int ret = 0;

    *found = false;
    n -= strlen(PREFIX);
    while (n > strlen(layer) &&
           !strncmp(name + n - strlen(layer), layer, strlen(layer)))
        n -= strlen(layer);
    if (!side[1] || tensor->ndim != 2 || side[1]->ndim != 2 ||
        side[1]->shape[1] != tensor->shape[0])
        return 0;
    full = find_stack(&piece, &count, &rank, m, &a->config, name, n, tensor, side[1]);
    if (!full) {
        full =
            find_slices(&whole, &swapped, m, how, &a->config, name, n, tensor, side[1]);
        slices = full;
    }
    if (!full && adapter_config_parameter(&a->config, 0) && n >= strlen("experts") &&
        !strncmp(name + n - strlen("experts"), "experts", strlen("experts")))
        return err_set(err, ERR_NO,
                       "%s: tensor %s: adapts experts (target_parameters) that are not "
                       "this model's, or of other shapes",
                       a->path, tensor->name);
    if (!full)
        return 0;
    *found = true;
    kept = a->n;
    for (int k = 0; k < 2 && ret == 0; k++)
        ret = check_shape(a, side[k], side[k]->shape, err);
    if (slices && ret == 0)
        ret = add_slices(a, m, whole, how[whole] == PACKABLE_COLS, swapped, full, side,
                         err);
    for (size_t i = 0; i < count && ret == 0; i++)
        ret = add_piece(a, m, how, &piece[i], tensor->shape[0] / rank, rank, full, side,
                        err);
    for (size_t i = 0; i < kept && ret == 0; i++)
        if (m->adapter[a->first + i].tensor == m->adapter[a->first + kept].tensor)
            ret = err_set(err, ERR_INPUT, "%s: tensors %s and %s are of one parameter",
                          a->path, a->pair[i].side[0]->name, tensor->name);
    a->nmatched += 2;
    for (size_t i = 0; i < count; i++)
        free(piece[i].name);
    free(piece);
    free(full);
    return ret;
}

/* The model's tensor that T stands for; PEFT writes a copy of an adapted embedding or
 * head, as its module's base_layer, which *copy becomes.  -1: there is none. */
static long find_own(const struct model *m, const struct tensor *t, bool *copy)
{
    static const char layer[] = ".base_layer";
    const char *name = t->name + strlen(PREFIX), *base = strstr(name, layer);
    char *own = base
                    ? str_dupf("%.*s%s", (int)(base - name), name, base + strlen(layer))
                    : xstrdup(name);
    long at = model_match(m, own);

    *copy = base;
    free(own);
    return at;
}

/* Sets *same: T has the bytes of C's tensor I. */
static int compare_own(bool *same, const struct adapter *a, struct checkpoint *c,
                       size_t i, const struct tensor *t, struct err *err)
{
    enum { SOME = 1 << 16 };
    char *x = xmalloc(2 * SOME);
    int ret = 0;

    *same = !c->sharded && !c->grown && !c->tensor[i].blocks &&
            c->tensor[i].dtype == t->dtype && c->tensor[i].size == t->size;
    if (*same)
        ret = checkpoint_open_files(c, -1, err);
    for (uint64_t done = 0, n; *same && done < t->size && ret == 0; done += n) {
        n = t->size - done < SOME ? t->size - done : SOME;
        ret = fs_pread(a->fd, x, (size_t)n, t->offset + done, a->path, err);
        if (ret == 0)
            ret = checkpoint_read(c, i, done, x + SOME, (size_t)n, err);
        *same = ret == 0 && !memcmp(x, x + SOME, (size_t)n);
    }
    free(x);
    return ret;
}

/* T stands in place of a tensor of C's model. */
static int add_saved(struct adapter *a, struct checkpoint *c, const struct tensor *t,
                     struct err *err)
{
    const struct model *m = c->model;
    bool copy, same = false;
    long at = find_own(m, t, &copy);
    const struct model_tensor *own = at < 0 ? NULL : &m->tensor[at];
    bool alike = own && own->ndim == t->ndim;

    if (copy && own && own->source >= 0 && !c->drawn &&
        compare_own(&same, a, c, (size_t)own->source, t, err) < 0)
        return -1;
    if (same) {
        a->ncopies++;
        return 0;
    }

    for (int k = 0; alike && k < t->ndim; k++)
        alike = own->axis[k]->size == t->shape[k];
    for (size_t i = 0; own && i < m->ntensors; i++)
        if (m->tensor[i].tied == (int)at)
            own = NULL;
    if (at < 0)
        return err_set(err, ERR_INPUT, "%s: tensor %s: the model has no such tensor",
                       a->path, t->name);
    if (!own || own->tied >= 0 || own->source < 0)
        return err_set(err, ERR_NO,
                       "%s: tensor %s: the model's is tied to another one: nothing "
                       "stands in its place alone",
                       a->path, t->name);
    if (!alike)
        return err_set(err, ERR_INPUT, "%s: tensor %s has another shape than %s",
                       a->path, t->name, own->name);
    if (t->dtype != DTYPE_F32 && t->dtype != DTYPE_BF16 && t->dtype != DTYPE_F16)
        return err_set(err, ERR_INPUT, "%s: tensor %s: cannot compute with type %s",
                       a->path, t->name, dtype_name(t->dtype));
    if (a->name || a->weight < 1 || a->weight > 1)
        return err_set(err, ERR_NO,
                       "%s: tensor %s stands in place of the model's, for all texts: "
                       "give the adapter without a name and a weight",
                       a->path, t->name);
    for (const struct adapter *other = c->adapter; other; other = other->next)
        for (size_t i = 0; i < other->nsaved; i++)
            if (other->saved[i].tensor == (size_t)at)
                return err_set(err, ERR_NO, "%s: tensor %s is that of %s, too", a->path,
                               t->name, other->path);
    a->saved = xrealloc(a->saved, (a->nsaved + 1) * sizeof(*a->saved));
    a->saved[a->nsaved++] = (struct saved){ (size_t)at, t };
    return 0;
}

static int add_all(struct adapter *a, struct checkpoint *c, const enum packable *how,
                   struct err *err)
{
    struct model *m = c->model;
    struct tensor_index index;
    const struct tensor *twice =
        tensor_index_init(&index, a->stored.tensor, a->stored.n);
    int ret = 0;

    if (twice)
        ret = err_set(err, ERR_INPUT, "%s: tensor %s is stored twice", a->path,
                      twice->name);
    for (size_t i = 0; i < a->stored.n && ret == 0; i++) {
        const struct tensor *t = &a->stored.tensor[i];
        bool known = str_starts(t->name, PREFIX);

        if (known && (str_ends(t->name, sides[1]) || str_ends(t->name, tables[1]) ||
                      str_ends(t->name, MAGNITUDE)))
            continue;
        if (known && !strstr(t->name, ".lora_"))
            ret = add_saved(a, c, t, err);
        else if (!known ||
                 (!str_ends(t->name, sides[0]) && !str_ends(t->name, tables[0])))
            ret = err_set(err, ERR_NO, "%s: tensor %s: only LoRA's matrices are read",
                          a->path, t->name);
        else {
            bool stacked = false;

            if (str_ends(t->name, sides[0]))
                ret = add_stack(&stacked, a, m, how, &index, t, err);
            if (ret == 0 && !stacked)
                ret = add_pair(a, m, how, &index, t, err);
        }
    }
    tensor_index_clear(&index);
    if (ret == 0 && !a->stored.n)
        return err_set(err, ERR_INPUT, "%s: no lora_A: an adapter without matrices",
                       a->path);
    if (ret == 0 &&
        a->nmatched + a->nmagnitudes + a->nsaved + a->ncopies != a->stored.n)
        return err_set(err, ERR_INPUT, "%s: a lora_B lacks its lora_A", a->path);
    return ret;
}

static int open_files(struct adapter *a, const char *dir, struct err *err)
{
    char *path = fs_join_dup(dir, "adapter_config.json");
    int ret = adapter_config_read(&a->config, path, err);
    bool found;

    free(path);
    if (ret < 0)
        return -1;
    a->dir = xstrdup(dir);
    a->path = fs_join_dup(dir, "adapter_model.safetensors");
    a->fd = fs_open_regular(a->path, err);
    if (a->fd < 0 || safetensors_read(&a->stored, NULL, a->fd, a->path, err) < 0)
        return -1;
    a->opened = true;
    path = fs_join_dup(dir, MANIFEST_NAME);
    ret = fs_find(&found, path, err);
    if (ret == 0 && found)
        ret = manifest_read(&a->manifest, path, err);
    free(path);
    return ret;
}

/* Appends A to those of C. */
static void join(struct checkpoint *c, struct adapter *a)
{
    struct adapter **end = &c->adapter;

    while (*end)
        end = &(*end)->next;
    *end = a;
}

/* Gives A the number of its name, a new one where C's adapters have it not. */
static int take_name(struct adapter *a, struct checkpoint *c, const char *name,
                     struct err *err)
{
    int n = 0;

    if (!name)
        return 0;
    a->name = xstrdup(name);
    a->chosen = adapter_find(c->adapter, name);
    if (a->chosen)
        return 0;
    while (adapter_name(c->adapter, n + 1))
        n++;
    a->chosen = n + 1;
    return feeds_offer(c->model, a->chosen, err);
}

int adapter_open(struct checkpoint *c, const struct adapter_spec *spec, struct err *err)
{
    struct adapter *a = xcalloc(1, sizeof(*a));
    enum packable *how = NULL;
    int ret = -1;

    a->fd = -1;
    a->stack = xcalloc(1, sizeof(*a->stack));
    a->first = c->model->nadapters;
    a->weight = spec->weight;
    a->merges = spec->merges;
    if (open_files(a, spec->dir, err) < 0 || take_name(a, c, spec->name, err) < 0)
        goto out;
    how = packable_new(c->model, err);
    if (!how || add_all(a, c, how, err) < 0)
        goto out;
    join(c, a);
    ret = 0;
out:
    free(how);
    if (ret < 0)
        adapter_close(a);
    return ret;
}

void adapter_close(struct adapter *a)
{
    if (!a)
        return;
    adapter_close(a->next);
    if (a->opened)
        safetensors_clear(&a->stored);
    if (a->fd >= 0)
        close(a->fd);
    if (a->stack)
        free(a->stack->data);
    free(a->stack);
    free(a->pair);
    free(a->saved);
    adapter_config_clear(&a->config);
    manifest_clear(&a->manifest);
    free(a->dir);
    free(a->path);
    free(a->name);
    free(a);
}

static int replace(struct checkpoint *c, const struct adapter *a,
                   const struct saved *saved, struct err *err)
{
    size_t i = (size_t)c->model->tensor[saved->tensor].source;
    enum dtype type = c->tensor[i].dtype;

    if (c->grown)
        return err_set(err, ERR_NO,
                       "%s: tensor %s stands in place of the model's, which is given "
                       "more rows: tp-shard merge --adapter makes a model of both",
                       a->path, saved->by->name);
    if (c->tensor[i].blocks ||
        (type != DTYPE_F32 && type != DTYPE_BF16 && type != DTYPE_F16))
        return err_set(err, ERR_NO,
                       "%s: tensor %s stands in place of the model's, which is "
                       "quantized",
                       a->path, saved->by->name);
    return checkpoint_replace(c, i, saved->by, a->path, err);
}

int adapter_replace(struct checkpoint *c, struct err *err)
{
    for (const struct adapter *a = c->adapter; a; a = a->next)
        for (size_t i = 0; i < a->nsaved; i++)
            if (a->saved[i].by && replace(c, a, &a->saved[i], err) < 0)
                return -1;
    return 0;
}

double adapter_weight(const struct adapter *a)
{
    return a->weight;
}

const struct adapter *adapter_next(const struct adapter *a)
{
    return a->next;
}

int adapter_find(const struct adapter *a, const char *name)
{
    for (; a; a = a->next)
        if (a->name && !strcmp(a->name, name))
            return a->chosen;
    return 0;
}

int adapter_chosen(const struct adapter *a)
{
    return a->chosen;
}

const char *adapter_name(const struct adapter *a, int i)
{
    for (; a; a = a->next)
        if (a->name && a->chosen == i)
            return a->name;
    return NULL;
}

const char *adapter_config(const struct adapter *a)
{
    return a->config.text;
}

const char *adapter_file(const struct adapter *a, uint64_t *size)
{
    *size = a->opened ? a->stored.size : 0;
    return a->path;
}

/* ---- a new adapter ---- */

/* Is the module NAME one of the names in LIST, or does it end with one? */
static bool is_listed(const char *name, const char *list)
{
    size_t all = strlen(name);

    for (const char *p = list; *p;) {
        size_t n = strcspn(p, ",");

        if (n && n <= all && !memcmp(name + all - n, p, n) &&
            (n == all || name[all - n - 1] == '.'))
            return true;
        p += n + (p[n] == ',');
    }
    return false;
}

/* Can an adapter adapt tensor T of M, which products read as HOW says? */
static bool can_adapt(const struct model *m, size_t t, enum packable how)
{
    return how != PACKABLE_NOT && (m->tensor[t].ndim == 2 || has_experts(m, t)) &&
           m->tensor[t].tied < 0;
}

/* Does one of the names in LIST mean tensor T of M: its module, or, where it has all
 * experts of a layer, the tensor itself, of which a name has the module's end, too? */
static bool is_named(const struct model *m, size_t t, const char *list)
{
    const bool experts = has_experts(m, t);
    char *name = experts ? model_parameter_dup(m, t) : model_module_dup(m, t);
    bool found = false;

    for (const char *p = list; *p && !found;) {
        size_t n = strcspn(p, ",");
        char *one = xstrndup(p, n);

        found = (!experts || strchr(one, '.')) && is_listed(name, one);
        free(one);
        p += n + (p[n] == ',');
    }
    free(name);
    return found;
}

/* Says why no tensor of M that can have an adapter is called ONE. */
static int refuse_name(const struct model *m, const char *one, struct err *err)
{
    err_set(err, ERR_USAGE, "--lora: the model has no module called '%s'", one);
    for (size_t t = 0; t < m->ntensors; t++) {
        char *module = model_module_dup(m, t), *own = model_parameter_dup(m, t);

        if (has_experts(m, t) && (is_listed(own, one) || is_listed(module, one)))
            err_set(err, ERR_USAGE,
                    "--lora: %s: all experts of a layer lie in one tensor, %s: give "
                    "the end of this name with that of its module",
                    one, own);
        else if (str_ends(m->tensor[t].name, ".weight") && is_listed(module, one))
            err_set(err, ERR_USAGE,
                    "--lora: %s: more than one product reads its weight, or none does: "
                    "it cannot have an adapter",
                    one);
        free(module);
        free(own);
    }
    return -1;
}

/* Refuses a name of LIST that no adapted module has. */
static int check_names(const struct adapter *a, const struct model *m, const char *list,
                       struct err *err)
{
    int ret = 0;

    for (const char *p = list; *p && ret == 0;) {
        size_t n = strcspn(p, ",");
        char *one = xstrndup(p, n);
        bool found = false;

        for (size_t i = a->first; i < m->nadapters && !found; i++)
            found = is_named(m, m->adapter[i].tensor, one);
        if (!found)
            ret = refuse_name(m, one, err);
        free(one);
        p += n + (p[n] == ',');
    }
    return ret;
}

/* The names that W asks for, or the family's: its symbol "lora". */
static int find_names(char **out, const struct adapter_wish *w, const struct model *m,
                      struct err *err)
{
    struct expr_value v;

    if (w->names) {
        *out = xstrdup(w->names);
        return 0;
    }
    if (!family_get(&model_family(m)->symbols, "lora"))
        return err_set(err, ERR_USAGE,
                       "--lora: PEFT names no modules of a %s: give their names, "
                       "such as --lora %" PRIu64 ":all-linear",
                       m->family, w->rank);
    if (model_eval(m, "lora", 4, -1, &v, err) < 0)
        return -1;
    if (v.kind != EXPR_WORD)
        return err_set(err, ERR_INPUT, "family %s: lora is no text", m->family);
    *out = xstrndup(v.word, v.len);
    return 0;
}

/* Is the module that has the tensor called NAME, or one around it, called as one of the
 * names in LIST, or does its name end so, as PEFT has it?  *MARK[k]: name k was met. */
static bool is_saved(const char *name, const char *list, bool *mark)
{
    bool found = false;
    int k = 0;

    for (const char *p = list; *p; k++) {
        size_t n = strcspn(p, ",");

        for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.')) {
            size_t all = (size_t)(dot - name);

            if (n && n <= all && !memcmp(dot - n, p, n))
                mark[k] = found = true;
        }
        p += n + (p[n] == ',');
    }
    return found;
}

/* Does M have classes of texts or of tokens, which PEFT calls SEQ_CLS and TOKEN_CLS? */
static bool classifies(const struct model *m)
{
    static const char *const heads[] = { "classify", "scored", "tag", "tagged" };
    bool found = false;
    double x;

    if ((model_number(m, "answers", &x) && x > 0) ||
        (model_number(m, "choices", &x) && x > 0))
        return false;
    for (size_t i = 0; i < sizeof(heads) / sizeof(*heads); i++)
        found |= model_number(m, heads[i], &x) && x > 0;
    return found;
}

/* Heads that PEFT trains with an adapter of a classifier, as they begin at random. */
static const char *const class_heads[] = { "classifier", "score" };
enum { CLASS_HEADS = sizeof(class_heads) / sizeof(*class_heads) };

bool adapter_saves(const struct model *m, size_t t, const char *list)
{
    bool *mark = xcalloc((list ? strlen(list) : 0) + 1, sizeof(*mark));
    char *name = adapter_saved_dup(m, t);
    bool is = list && is_saved(name + strlen(PREFIX), list, mark);

    for (int i = 0; i < CLASS_HEADS && !is && classifies(m); i++)
        is = is_saved(name + strlen(PREFIX), class_heads[i], mark);
    free(name);
    free(mark);
    return is;
}

/* ERR_NO: tensor T of C's model, which has a name in W's list of modules to save,
 * cannot stand in place of the model's. */
static int check_saved(const struct adapter *a, const struct model *m, size_t t,
                       struct err *err)
{
    static const char option[] = "--modules-to-save";
    const struct model_tensor *own = &m->tensor[t];

    for (size_t i = a->first; i < m->nadapters; i++)
        if (m->adapter[i].tensor == t)
            return err_set(err, ERR_USAGE, "%s: %s has an adapter (--lora)", option,
                           own->name);
    if (own->tied >= 0 || has_ties(m, (long)t))
        return err_set(err, ERR_NO,
                       "%s: tensor %s is tied to another one: nothing stands in its "
                       "place alone",
                       option, own->name);
    if (own->expert >= 0 || own->ndim > 2)
        return err_set(err, ERR_NO,
                       "%s: tensor %s is of experts, which stay as they are", option,
                       own->name);
    return 0;
}

/* Has M a module called NAME, or whose name ends so, that has no adapter? */
static bool has_module(const struct adapter *a, const struct model *m, const char *name)
{
    bool found = false, adapted = false, mark;

    for (size_t t = 0; t < m->ntensors; t++) {
        char *full = adapter_saved_dup(m, t);

        if (!m->tensor[t].frozen && is_saved(full + strlen(PREFIX), name, &mark)) {
            found = true;
            for (size_t i = a->first; i < m->nadapters; i++)
                adapted |= m->adapter[i].tensor == t;
        }
        free(full);
    }
    return found && !adapted;
}

/* The modules to save: those of LIST, or NULL, and the head of a classifier.  The
 * caller frees it; NULL: there are none. */
static char *saved_dup(const struct adapter *a, const struct model *m, const char *list)
{
    struct str out = { 0 };

    str_add(&out, list ? list : "");
    for (int i = 0; i < CLASS_HEADS && classifies(m); i++)
        if (has_module(a, m, class_heads[i]) &&
            !(list && is_listed(class_heads[i], list)))
            str_addf(&out, "%s%s", out.len ? "," : "", class_heads[i]);
    if (!out.len)
        str_clear(&out);
    return out.len ? str_steal(&out) : NULL;
}

/* The tensors of the modules that LIST names are trained, too. */
static int save_all(struct adapter *a, const struct model *m, const char *list,
                    struct err *err)
{
    bool *mark = xcalloc(strlen(list) + 1, sizeof(*mark));
    int ret = 0, k = 0;

    for (size_t t = 0; t < m->ntensors && ret == 0; t++) {
        char *name = adapter_saved_dup(m, t);

        if (!m->tensor[t].frozen && is_saved(name + strlen(PREFIX), list, mark)) {
            ret = check_saved(a, m, t, err);
            a->saved = xrealloc(a->saved, (a->nsaved + 1) * sizeof(*a->saved));
            a->saved[a->nsaved++] = (struct saved){ .tensor = t };
        }
        free(name);
    }
    for (const char *p = list; *p && ret == 0; k++) {
        size_t n = strcspn(p, ",");

        if (!mark[k])
            ret = err_set(err, ERR_USAGE,
                          "--modules-to-save: the model has no module called '%.*s'",
                          (int)n, p);
        p += n + (p[n] == ',');
    }
    free(mark);
    return ret;
}

/* Adds what W asks for of tensor T to M: an adapter, or one for each expert. */
static void adapt_tensor(struct adapter *a, struct model *m, size_t t, bool turned,
                         const struct adapter_wish *w)
{
    const double scale =
        w->alpha / (w->rslora ? sqrt((double)w->rank) : (double)w->rank);
    const uint64_t experts = has_experts(m, t) ? m->tensor[t].axis[0]->size : 0;
    double swaps;

    for (uint64_t e = 0; e < (experts ? experts : 1); e++) {
        struct model_adapter *made = model_adapt(m, t, turned, w->rank, scale);
        struct pair pair = { .of = { .experts = experts, .expert = e } };

        made->expert = experts ? e + 1 : 0;
        made->trained = true;
        made->from = a->first;
        made->dropout = w->dropout;
        made->magnitudes = w->dora;
        pair.of.swapped = experts && model_number(m, "lora_swaps", &swaps) && swaps > 0;
        a->pair = xrealloc(a->pair, (a->n + 1) * sizeof(*a->pair));
        a->pair[a->n++] = pair;
    }
}

/* The names of LIST that some adapted tensor has: of experts, or of modules.  The
 * caller frees it. */
static char *used_dup(const struct adapter *a, const struct model *m, const char *list,
                      bool experts)
{
    struct str out = { 0 };

    for (const char *p = list; *p;) {
        size_t n = strcspn(p, ",");
        char *one = xstrndup(p, n);
        bool found = false;

        for (size_t i = a->first; i < m->nadapters && !found; i++)
            found = (m->adapter[i].expert > 0) == experts &&
                    is_named(m, m->adapter[i].tensor, one);
        if (found)
            str_addf(&out, "%s%s", out.len ? "," : "", one);
        free(one);
        p += n + (p[n] == ',');
    }
    return out.len ? str_steal(&out) : xstrdup("");
}

/* The ends of the names of all modules that A adapts, once each. */
static char *ends_dup(const struct adapter *a, const struct model *m)
{
    struct str out = { 0 };

    for (size_t i = a->first; i < m->nadapters; i++) {
        char *module = model_module_dup(m, m->adapter[i].tensor);
        const char *dot = strrchr(module, '.');

        dot = dot ? dot + 1 : module;
        if (!out.len || !is_listed(dot, out.s))
            str_addf(&out, "%s%s", out.len ? "," : "", dot);
        free(module);
    }
    return out.len ? str_steal(&out) : xstrdup("");
}

/* Makes the text of A's config, as W asks for it. */
static void tell_config(struct adapter *a, const struct model *m,
                        const struct adapter_wish *w, const char *list, bool every,
                        const char *base)
{
    struct adapter_wish wish = *w;
    struct str text = { 0 };
    char *modules = every ? ends_dup(a, m) : used_dup(a, m, list, false);
    char *parameters = every ? xstrdup("") : used_dup(a, m, list, true);
    char *saved = saved_dup(a, m, w->saved);
    bool turned = false;

    for (size_t i = a->first; i < m->nadapters; i++)
        turned |= m->adapter[i].turned && !m->adapter[i].expert;
    wish.saved = saved;
    adapter_config_print(&text, &wish, base, modules, parameters, turned);
    a->config.text = str_steal(&text);
    free(modules);
    free(parameters);
    free(saved);
}

/* Adds adapters of the modules in LIST to M, and the modules to save. */
static int adapt_all(struct adapter *a, struct model *m, const enum packable *how,
                     const struct adapter_wish *w, const char *list, const char *base,
                     struct err *err)
{
    bool every = !strcmp(list, "all-linear");
    char *saved;
    int ret = 0;

    for (size_t t = 0; t < m->ntensors; t++)
        if (can_adapt(m, t, how[t]) &&
            (every ? m->tensor[t].section >= 0 && m->tensor[t].expert < 0 &&
                         m->tensor[t].ndim == 2
                   : is_named(m, t, list)))
            adapt_tensor(a, m, t, how[t] == PACKABLE_COLS, w);
    if (!every && check_names(a, m, list, err) < 0)
        return -1;
    tell_config(a, m, w, list, every, base);
    saved = saved_dup(a, m, w->saved);
    if (!a->n)
        ret = err_set(err, ERR_NO, "--lora: the model has no matrix to adapt");
    else if (saved)
        ret = save_all(a, m, saved, err);
    free(saved);
    return ret;
}

static int make(struct adapter *a, struct model *m, const struct adapter_wish *w,
                const char *base, struct err *err)
{
    enum packable *how = NULL;
    char *list = NULL;
    int ret = -1;

    a->fd = -1;
    a->weight = 1;
    a->seed = w->seed;
    a->first = m->nadapters;
    if (find_names(&list, w, m, err) < 0)
        return -1;
    how = packable_new(m, err);
    if (how)
        ret = adapt_all(a, m, how, w, list, base, err);
    free(how);
    free(list);
    return ret;
}

int adapter_make(struct checkpoint *c, const struct adapter_wish *w, const char *base,
                 struct err *err)
{
    struct adapter *a = xcalloc(1, sizeof(*a));

    if (make(a, c->model, w, base, err) < 0) {
        adapter_close(a);
        return -1;
    }
    join(c, a);
    return 0;
}

int adapter_foretell(struct model *m, const struct adapter_wish *w, struct err *err)
{
    struct adapter *a = xcalloc(1, sizeof(*a));
    int ret = make(a, m, w, "", err);

    if (ret == 0)
        adapter_freeze(a, m);
    adapter_close(a);
    return ret;
}

void adapter_freeze(const struct adapter *a, struct model *m)
{
    for (size_t t = 0; t < m->ntensors; t++)
        m->tensor[t].frozen = true;
    for (size_t i = 0; i < a->nsaved; i++)
        m->tensor[a->saved[i].tensor].frozen = false;
}

int adapter_train(const struct adapter *a, struct model *m, struct err *err)
{
    for (size_t i = 0; i < a->n; i++)
        if (a->pair[i].of.experts && !m->adapter[a->first + i].expert)
            return err_set(err, ERR_NO,
                           "%s: tensor %s: matrices that several of an expert share "
                           "(target_parameters) are not trained on: --lora makes new "
                           "ones for each",
                           a->path, a->pair[i].side[0]->name);
    for (size_t i = 0; i < a->n; i++) {
        m->adapter[a->first + i].trained = true;
        m->adapter[a->first + i].dropout = adapter_config_dropout(&a->config);
    }
    return 0;
}

const char *adapter_training(const struct adapter *a)
{
    return a->manifest.training;
}

const char *adapter_dir(const struct adapter *a)
{
    return a->dir;
}

char *adapter_tensor_dup(const struct model *m, size_t i, enum adapter_part part)
{
    const struct model_adapter *own = &m->adapter[i];
    char *module = own->expert ? model_parameter_dup(m, own->tensor)
                               : model_module_dup(m, own->tensor);
    char *name = str_dupf("%s%s", PREFIX, module);

    free(module);
    module = own->expert ? str_dupf("%s.%" PRIu64, name, own->expert - 1) : NULL;
    if (module)
        free(name);
    name = module ? module : name;
    module =
        str_dupf("%s%s", name, part == ADAPTER_MAGNITUDE ? MAGNITUDE : sides[part]);
    free(name);
    return module;
}

char *adapter_saved_dup(const struct model *m, size_t t)
{
    const char *name = m->tensor[t].name, *dot = strrchr(name, '.');
    char *module = model_module_dup(m, t);
    char *full = str_dupf("%s%s%s", PREFIX, module, dot ? dot : "");

    free(module);
    return full;
}

/* ---- a rank's shards ---- */

/* The one of A and those after it that has adapter I of the model. */
static const struct adapter *owner(const struct adapter *a, size_t i)
{
    while (i >= a->first + a->n)
        a = a->next;
    return a;
}

/* NULL: it is new. */
static const struct tensor *tensor_of(const struct adapter *a, size_t i,
                                      enum adapter_part part)
{
    const struct pair *p = &a->pair[i - a->first];

    return part == ADAPTER_NORM        ? NULL
           : part == ADAPTER_MAGNITUDE ? p->magnitude
                                       : p->side[part];
}

char *adapter_shared_dup(const struct adapter *a, const struct model *m, size_t i,
                         enum adapter_part part, struct adapter_stack *of)
{
    const struct pair *p;
    char *module, *name;

    a = owner(a, i);
    p = &a->pair[i - a->first];
    *of = p->of;
    if (!p->of.experts)
        return NULL;
    if (p->side[part])
        return xstrdup(p->side[part]->name);
    module = adapter_stack_module_dup(m, i);
    name =
        str_dupf("%s%s%s", PREFIX, module, sides[(part == ADAPTER_A) == p->of.swapped]);
    free(module);
    return name;
}

bool adapter_saves_any(const struct adapter *a)
{
    return a->nsaved;
}

bool adapter_stores(const struct adapter *a, size_t i, enum adapter_part part)
{
    return tensor_of(owner(a, i), i, part);
}

enum dtype adapter_dtype(const struct adapter *a, const struct weight *w)
{
    size_t i = (size_t)w->adapter - 1;
    const struct tensor *t = tensor_of(owner(a, i), i, w->part);

    return t ? t->dtype : DTYPE_F32;
}

/* Appends the place of element I of T: "[2, 3]". */
static void add_place(struct str *out, const struct tensor *t, uint64_t i)
{
    uint64_t inner = 1;

    for (int k = 1; k < t->ndim; k++)
        inner *= t->shape[k];
    str_add(out, "[");
    for (int k = 0; k < t->ndim; k++) {
        str_addf(out, "%s%" PRIu64, k ? ", " : "", i / inner);
        i %= inner;
        inner /= k + 1 < t->ndim ? t->shape[k + 1] : 1;
    }
    str_add(out, "]");
}

/* Reads elements [FIRST, FIRST + N) of T, of A's file, to TO, and refuses any that is
 * NaN or infinite. */
static int read_elements(const struct adapter *a, const struct tensor *t,
                         uint64_t first, uint64_t n, void *to, struct err *err)
{
    const uint64_t unit = (uint64_t)dtype_bits(t->dtype) / 8;
    struct str place = { 0 };
    uint64_t k = 0;
    double x = 0;

    if (fs_pread(a->fd, to, (size_t)(n * unit), t->offset + first * unit, a->path,
                 err) < 0)
        return -1;
    while (k < n && isfinite(x = dtype_get(t->dtype, to, k)))
        k++;
    if (k == n)
        return 0;
    add_place(&place, t, first + k);
    err_set(err, ERR_INPUT, "%s: tensor %s: %s at %s", a->path, t->name,
            isnan(x) ? "NaN" : "infinity", place.s);
    str_clear(&place);
    return -1;
}

/* The same, as f32. */
static int read_wide(const struct adapter *a, const struct tensor *t, uint64_t first,
                     uint64_t n, float *to, struct err *err)
{
    enum { SOME = 4096 };
    float raw[SOME];
    int ret = 0;

    for (uint64_t done = 0, some; done < n && ret == 0; done += some) {
        some = n - done < SOME ? n - done : SOME;
        ret = read_elements(a, t, first + done, some, raw, err);
        if (ret == 0)
            (void)dtype_to_f32(t->dtype, raw, to + done, (size_t)some);
    }
    return ret;
}

/* Reads all of T, the B of experts, to A's stack. */
static int read_stack(const struct adapter *a, const struct tensor *t, struct err *err)
{
    struct stack *s = a->stack;

    if (s->of == t)
        return 0;
    s->of = NULL;
    free(s->data);
    s->data = mem_alloc(t->size + 1, t->name, err);
    if (!s->data || read_elements(a, t, 0, t->shape[0] * t->shape[1], s->data, err) < 0)
        return -1;
    s->of = t;
    return 0;
}

/* The rank of each of the experts whose matrices P has. */
static uint64_t stack_rank(const struct pair *p)
{
    return p->side[p->of.swapped]->shape[0] / p->of.experts;
}

/* Row I of PART of adapter NUMBER, COLS numbers as they are stored, to ROW. */
static int read_side(const struct adapter *a, size_t number, enum adapter_part part,
                     uint64_t i, void *row, uint64_t cols, struct err *err)
{
    const struct pair *p = &a->pair[number - a->first];
    const struct tensor *t = tensor_of(a, number, part);
    size_t unit = (size_t)dtype_bits(t->dtype) / 8;

    if (!p->of.experts || part > ADAPTER_B)
        return read_elements(a, t, i * cols, cols, row, err);
    if (part == ADAPTER_A && !p->of.swapped)
        return read_elements(
            a, t, adapter_stack_place(&p->of, part, stack_rank(p), t->shape[1], i, 0),
            cols, row, err);
    if (read_stack(a, t, err) < 0)
        return -1;
    for (uint64_t k = 0; k < cols; k++) {
        uint64_t at =
            adapter_stack_place(&p->of, part, stack_rank(p), t->shape[1], i, k);

        memcpy((char *)row + k * unit, a->stack->data + at * unit, unit);
    }
    return 0;
}

int adapter_read(const struct adapter *a, size_t i, enum adapter_part part, float *to,
                 struct err *err)
{
    const struct tensor *t;
    const struct pair *p;
    uint64_t rows, cols;
    void *row;
    int ret = 0;

    a = owner(a, i);
    t = tensor_of(a, i, part);
    p = &a->pair[i - a->first];
    if (!p->of.experts)
        return read_wide(a, t, 0, t->shape[0] * t->shape[1], to, err);
    rows = stack_rank(p);
    cols = part == ADAPTER_B ? rows : p->of.swapped ? t->shape[0] : t->shape[1];
    rows = part == ADAPTER_B ? p->of.rows : rows;
    row = mem_alloc(cols * sizeof(float) + 1, t->name, err);
    if (!row)
        return -1;
    for (uint64_t r = 0; r < rows && ret == 0; r++) {
        ret = read_side(a, i, part, r, row, cols, err);
        if (ret == 0)
            (void)dtype_to_f32(t->dtype, row, to + r * cols, (size_t)cols);
    }
    free(row);
    return ret;
}

int adapter_magnitudes(const struct adapter *a, size_t i, float **out, struct err *err)
{
    const struct tensor *t;

    *out = NULL;
    a = owner(a, i);
    t = a->pair[i - a->first].magnitude;
    if (!t)
        return 0;
    *out = mem_alloc(t->shape[0] * sizeof(**out) + 1, t->name, err);
    return *out ? read_wide(a, t, 0, t->shape[0], *out, err) : -1;
}

int adapter_read_saved(const struct adapter *a, bool *found, size_t t, uint64_t first,
                       float *to, size_t n, struct err *err)
{
    for (; a; a = a->next)
        for (size_t i = 0; i < a->nsaved; i++)
            if (a->saved[i].tensor == t && a->saved[i].by) {
                *found = true;
                return read_wide(a, a->saved[i].by, first, n, to, err);
            }
    *found = false;
    return 0;
}

/* Row I of a new matrix of COLS columns: A is uniform within 1 / sqrt(COLS), as PEFT's
 * kaiming_uniform_ with a = sqrt(5) draws it, whatever the layout; B is 0. */
static void draw_row(const struct adapter *a, const struct program *p,
                     const struct weight *w, uint64_t i, float *row, uint64_t cols)
{
    char *name = adapter_tensor_dup(p->model, (size_t)w->adapter - 1, w->part);
    double bound = 1 / sqrt((double)cols);
    uint64_t stream = 0xCBF29CE484222325;
    struct rng rng;

    for (const char *s = name; *s; s++)
        stream = (stream ^ (unsigned char)*s) * 0x100000001B3;
    free(name);
    for (uint64_t k = 0; k < cols; k++) {
        uint64_t at = i * cols + k;

        if (k == 0 || at % 4 == 0) {
            rng_init(&rng, a->seed, stream);
            rng.counter = at / 4;
            for (uint64_t skip = at % 4; skip > 0; skip--)
                rng_u32(&rng);
        }
        row[k] =
            w->part == ADAPTER_B
                ? 0
                : (float)(bound * (2 * ((double)rng_u32(&rng) + 0.5) * 0x1p-32 - 1));
    }
}

/* Row I of W's matrix, or its vector, to ROW; of the norms and of new magnitudes, which
 * follow from the weights, ones. */
static int read_row(const struct adapter *a, const struct program *p,
                    const struct weight *w, uint64_t i, void *row, uint64_t cols,
                    struct err *err)
{
    const struct tensor *t = tensor_of(a, (size_t)w->adapter - 1, w->part);
    float *to = row;

    if (t)
        return read_side(a, (size_t)w->adapter - 1, w->part, i, row, cols, err);
    if (w->part <= ADAPTER_B)
        draw_row(a, p, w, i, row, cols);
    for (uint64_t k = 0; k < cols && w->part > ADAPTER_B; k++)
        to[k] = 1;
    return 0;
}

int adapter_load(const struct adapter *a, const struct program *p,
                 const struct weight *w, void *to, struct err *err)
{
    struct share *share = model_shares(p->model, &p->mesh, p->coord);
    size_t unit = (size_t)dtype_bits(adapter_dtype(a, w)) / 8, cols;
    struct run one = { .count = 1, .owned = true };
    struct runs runs[2] = { { .v = &one, .n = 1 } };
    const struct axis *axis[2];
    char *row = NULL, *at = to;
    int ret = -1, n;

    a = owner(a, (size_t)w->adapter - 1);
    n = model_adapter_axes(p->model, (size_t)w->adapter - 1, w->part, axis);
    cols = (size_t)axis[n - 1]->size;
    for (int k = 0; k < n; k++) /* a vector is one row */
        axis_runs(&runs[2 - n + k], axis[k], &p->model->scope, share);
    row = mem_alloc(cols * unit + 1, "a row of an adapter", err);
    if (!row)
        goto out;
    for (size_t r = 0; r < runs[0].n; r++)
        for (uint64_t i = 0; i < runs[0].v[r].count; i++) {
            if (read_row(a, p, w, runs[0].v[r].start + i, row, cols, err) < 0)
                goto out;
            for (size_t k = 0; k < runs[1].n; k++) {
                size_t some = (size_t)runs[1].v[k].count * unit;

                memcpy(at, row + runs[1].v[k].start * unit, some);
                at += some;
            }
        }
    ret = 0;
out:
    free(row);
    free(share);
    if (n > 1)
        runs_clear(&runs[0]);
    runs_clear(&runs[1]);
    return ret;
}
