/* adapter - low-rank adapters of a model, as PEFT writes them */
#include "lib/run/adapter.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/json.h"
#include "lib/base/mem.h"
#include "lib/ckpt/safetensors.h"
#include "lib/program/packable.h"

enum { MOST_CONFIG = 1 << 20 };

static const char PREFIX[] = "base_model.model.";
static const char *const sides[2] = { ".lora_A.weight", ".lora_B.weight" };

struct adapter {
    char *text, *config, *path; /* the config's text and path; the weights' path */
    struct json_doc doc;        /* of the config */
    bool parsed, opened;        /* doc is; stored is */
    int fd;
    struct safetensors stored;
    size_t first; /* in model.adapter */
    struct pair {
        const struct tensor *side[2]; /* A, B */
    } * pair;                         /* [n] */
    size_t n;
};

/* ---- the config ---- */

static bool is_in(const char *const *list, const char *word)
{
    while (*list && strcmp(*list, word) != 0)
        list++;
    return *list;
}

static bool is_nothing(const struct json *j)
{
    return j->type == JSON_NULL || j->type == JSON_FALSE ||
           ((j->type == JSON_ARRAY || j->type == JSON_OBJECT ||
             j->type == JSON_STRING) &&
            !j->n);
}

/* Settings that only training reads, or that the tensors tell. */
static const char *const told[] = { "peft_type",
                                    "r",
                                    "lora_alpha",
                                    "use_rslora",
                                    "rank_pattern",
                                    "alpha_pattern",
                                    "target_modules",
                                    "exclude_modules",
                                    "layers_to_transform",
                                    "layers_pattern",
                                    "fan_in_fan_out",
                                    "lora_dropout",
                                    "task_type",
                                    "inference_mode",
                                    "base_model_name_or_path",
                                    "revision",
                                    "peft_version",
                                    "auto_mapping",
                                    "loftq_config",
                                    "runtime_config",
                                    "qalora_group_size",
                                    "ensure_weight_tying",
                                    "megatron_core",
                                    NULL };

/* Initializations that leave the model's own weights alone. */
static const char *const plain_starts[] = { "gaussian", "orthogonal", "eva", NULL };

static int check_config(const struct adapter *a, struct err *err)
{
    const struct json *root = a->doc.root, *type = json_get(root, "peft_type");
    const struct json *rs = json_get(root, "use_rslora");

    if (root->type != JSON_OBJECT)
        return json_error(&a->doc, root, err, "not an adapter's config");
    if (!type || !json_string(type) || strcmp(type->text, "LORA") != 0)
        return err_set(err, ERR_NO, "%s: peft_type %s: only LORA is read", a->config,
                       type && json_string(type) ? type->text : "is not given");
    if (rs && rs->type != JSON_TRUE && rs->type != JSON_FALSE && rs->type != JSON_NULL)
        return json_error(&a->doc, rs, err, "use_rslora is neither true nor false");
    for (const struct json *j = root->first; j; j = j->next) {
        if (is_in(told, j->key) || is_nothing(j) ||
            (!strcmp(j->key, "bias") && json_string(j) && !strcmp(j->text, "none")) ||
            (!strcmp(j->key, "init_lora_weights") &&
             (j->type == JSON_TRUE ||
              (json_string(j) && is_in(plain_starts, j->text)))))
            continue;
        return err_set(err, ERR_NO, "%s: %s: an adapter with this setting is not read",
                       a->config, j->key);
    }
    return 0;
}

/* Is the module NAME one that PATTERN, a key of rank_pattern or alpha_pattern, names:
 * it or its end after a full stop.  Only names are read, not PEFT's expressions. */
static bool names(const char *pattern, const char *name)
{
    size_t n = strlen(pattern), all = strlen(name);

    return n <= all && !strcmp(name + all - n, pattern) &&
           (n == all || name[all - n - 1] == '.');
}

/* What the config states of the module NAME: the first member of PATTERNS that names
 * it, or the config's member KEY; NULL: nothing.  *other becomes a member of PATTERNS
 * before it that is not a name, or NULL. */
static const struct json *stated(const struct adapter *a, const char *patterns,
                                 const char *key, const char *name,
                                 const struct json **other)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.";
    const struct json *pattern = json_get(a->doc.root, patterns);

    *other = NULL;
    for (const struct json *k = pattern ? pattern->first : NULL; k; k = k->next) {
        if (!k->key || k->key[strspn(k->key, plain)])
            *other = k;
        else if (names(k->key, name))
            return k;
    }
    return json_get(a->doc.root, key);
}

/* Sets *scale of the module NAME: lora_alpha / RANK, or / sqrt(RANK) with use_rslora.
 */
static int find_scale(double *scale, const struct adapter *a, const char *name,
                      uint64_t rank, struct err *err)
{
    const struct json *rs = json_get(a->doc.root, "use_rslora"), *other;
    const struct json *j = stated(a, "alpha_pattern", "lora_alpha", name, &other);
    double alpha;

    if (other)
        return err_set(err, ERR_NO, "%s: alpha_pattern: %s: only names are read",
                       a->config, other->key ? other->key : "a list");
    if (!j || !json_double(j, &alpha) || !isfinite(alpha))
        return json_error(&a->doc, j, err, "lora_alpha is no number");
    *scale = alpha / (json_is_true(rs) ? sqrt((double)rank) : (double)rank);
    if (fabs(*scale) > (double)FLT_MAX)
        return json_error(&a->doc, j, err,
                          "lora_alpha %s of %s is more than f32 can hold", j->text,
                          name);
    return 0;
}

/* Refuses a rank that the config states of the module NAME if it is not that of T, its
 * lora_A.  Where an expression may be what states it, the tensor tells. */
static int check_rank(const struct adapter *a, const char *name, const struct tensor *t,
                      struct err *err)
{
    const struct json *other, *j = stated(a, "rank_pattern", "r", name, &other);
    const char *key = j == json_get(a->doc.root, "r") ? "r" : "rank_pattern";
    double rank;

    if (!j || other)
        return 0;
    if (!json_double(j, &rank))
        return json_error(&a->doc, j, err, "%s of %s is no number", key, name);
    if (rank != (double)t->shape[0])
        return json_error(&a->doc, j, err, "%s is %s, but tensor %s has rank %" PRIu64,
                          key, j->text, t->name, t->shape[0]);
    return 0;
}

/* ---- the tensors ---- */

/* The tensor beside A, "...lora_A.weight", on the other side; NULL: there is none. */
static const struct tensor *beside(const struct tensor_index *index,
                                   const struct tensor *a, size_t n)
{
    char *name = str_dupf("%.*s%s", (int)n, a->name, sides[1]);
    long at = tensor_index_find(index, name);

    free(name);
    return at < 0 ? NULL : &index->tensor[at];
}

/* Finds the weight of the module NAME, N bytes, in M: *t, and whether it is [in][out].
 */
static int find_weight(size_t *t, bool *turned, const struct adapter *a,
                       const struct model *m, const enum packable *how,
                       const char *name, size_t n, struct err *err)
{
    char *weight = str_dupf("%.*s.weight", (int)n, name);
    long at = model_match(m, weight);
    int ret = -1;

    if (at < 0) {
        err_set(err, ERR_INPUT, "%s: %.*s: the model has no such module", a->path,
                (int)n, name);
    } else if (how[at] == PACKABLE_NOT || m->tensor[at].expert >= 0 ||
               m->tensor[at].ndim != 2) {
        err_set(err, ERR_NO,
                "%s: %.*s: more than one product reads its weight, or none does: an "
                "adapter of it is not read",
                a->path, (int)n, name);
    } else {
        *t = (size_t)at;
        *turned = how[at] == PACKABLE_COLS;
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

/* Adds the adapter whose A is TENSOR to M. */
static int add_pair(struct adapter *a, struct model *m, const enum packable *how,
                    const struct tensor_index *index, const struct tensor *tensor,
                    struct err *err)
{
    size_t n = strlen(tensor->name) - strlen(sides[0]), t;
    const char *name = tensor->name + strlen(PREFIX);
    const struct tensor *up = beside(index, tensor, n);
    uint64_t rank = tensor->ndim == 2 ? tensor->shape[0] : 0;
    const struct axis *axis[2];
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
    if (find_weight(&t, &turned, a, m, how, name, n, err) < 0)
        return -1;
    for (size_t i = 0; i < a->n; i++)
        if (m->adapter[a->first + i].tensor == t)
            return err_set(err, ERR_INPUT, "%s: tensors %s and %s are of one module",
                           a->path, a->pair[i].side[0]->name, tensor->name);
    axis[0] = m->tensor[t].axis[turned];
    axis[1] = m->tensor[t].axis[!turned];
    if (check_shape(a, tensor, (const uint64_t[2]){ rank, axis[1]->size }, err) < 0 ||
        check_shape(a, up, (const uint64_t[2]){ axis[0]->size, rank }, err) < 0)
        return -1;
    module = xstrndup(name, n);
    ret = check_rank(a, module, tensor, err);
    if (ret == 0)
        ret = find_scale(&scale, a, module, rank, err);
    free(module);
    if (ret < 0)
        return -1;
    model_adapt(m, t, turned, rank, scale);
    a->pair = xrealloc(a->pair, (a->n + 1) * sizeof(*a->pair));
    a->pair[a->n++] = (struct pair){ { tensor, up } };
    return 0;
}

static int add_all(struct adapter *a, struct model *m, const enum packable *how,
                   struct err *err)
{
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

        if (known && str_ends(t->name, sides[1]))
            continue;
        if (!known || !str_ends(t->name, sides[0]))
            ret = err_set(err, ERR_NO, "%s: tensor %s: only LoRA's matrices are read",
                          a->path, t->name);
        else
            ret = add_pair(a, m, how, &index, t, err);
    }
    tensor_index_clear(&index);
    if (ret == 0 && !a->stored.n)
        return err_set(err, ERR_INPUT, "%s: no lora_A: an adapter without matrices",
                       a->path);
    if (ret == 0 && 2 * a->n != a->stored.n)
        return err_set(err, ERR_INPUT, "%s: a lora_B lacks its lora_A", a->path);
    return ret;
}

static int open_files(struct adapter *a, const char *dir, struct err *err)
{
    size_t n;

    a->config = fs_join_dup(dir, "adapter_config.json");
    a->path = fs_join_dup(dir, "adapter_model.safetensors");
    if (fs_read_regular(&a->text, &n, a->config, MOST_CONFIG, err) < 0 ||
        json_parse_config(&a->doc, a->config, a->text, n, err) < 0)
        return -1;
    a->parsed = true;
    if (check_config(a, err) < 0)
        return -1;
    a->fd = fs_open_regular(a->path, err);
    if (a->fd < 0 || safetensors_read(&a->stored, NULL, a->fd, a->path, err) < 0)
        return -1;
    a->opened = true;
    return 0;
}

int adapter_open(struct adapter **out, struct checkpoint *c, const char *dir,
                 struct err *err)
{
    struct adapter *a = xcalloc(1, sizeof(*a));
    enum packable *how = NULL;
    int ret = -1;

    a->fd = -1;
    a->first = c->model->nadapters;
    if (open_files(a, dir, err) < 0)
        goto out;
    how = packable_new(c->model, err);
    if (!how || add_all(a, c->model, how, err) < 0)
        goto out;
    c->adapter = *out = a;
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
    if (a->opened)
        safetensors_clear(&a->stored);
    if (a->parsed)
        json_clear(&a->doc);
    if (a->fd >= 0)
        close(a->fd);
    free(a->pair);
    free(a->text);
    free(a->config);
    free(a->path);
    free(a);
}

const char *adapter_config(const struct adapter *a)
{
    return a->text;
}

const char *adapter_file(const struct adapter *a, uint64_t *size)
{
    *size = a->stored.size;
    return a->path;
}

/* ---- a rank's shards ---- */

static const struct tensor *tensor_of(const struct adapter *a, const struct weight *w)
{
    return a->pair[(size_t)w->adapter - 1 - a->first].side[w->up];
}

enum dtype adapter_dtype(const struct adapter *a, const struct weight *w)
{
    return tensor_of(a, w)->dtype;
}

/* Refuses a number of ROW, row I of T, that is NaN or infinite. */
static int check_finite(const struct adapter *a, const struct tensor *t, uint64_t i,
                        const void *row, struct err *err)
{
    for (uint64_t k = 0; k < t->shape[1]; k++) {
        double x = dtype_get(t->dtype, row, k);

        if (!isfinite(x))
            return err_set(err, ERR_INPUT,
                           "%s: tensor %s: %s at [%" PRIu64 ", %" PRIu64 "]", a->path,
                           t->name, isnan(x) ? "NaN" : "infinity", i, k);
    }
    return 0;
}

int adapter_load(const struct adapter *a, const struct program *p,
                 const struct weight *w, void *to, struct err *err)
{
    const struct tensor *t = tensor_of(a, w);
    struct share *share = model_shares(p->model, &p->mesh, p->coord);
    size_t unit = (size_t)dtype_bits(t->dtype) / 8, cols = (size_t)t->shape[1];
    const struct axis *axis[2];
    struct runs runs[2];
    char *row = NULL, *at = to;
    int ret = -1;

    model_adapter_axes(p->model, (size_t)w->adapter - 1, w->up, axis);
    for (int k = 0; k < 2; k++)
        axis_runs(&runs[k], axis[k], &p->model->scope, share);
    row = mem_alloc(cols * unit + 1, t->name, err);
    if (!row)
        goto out;
    for (size_t r = 0; r < runs[0].n; r++)
        for (uint64_t i = 0; i < runs[0].v[r].count; i++) {
            uint64_t at_row = runs[0].v[r].start + i;
            uint64_t offset = t->offset + at_row * cols * unit;

            if (fs_pread(a->fd, row, cols * unit, offset, a->path, err) < 0 ||
                check_finite(a, t, at_row, row, err) < 0)
                goto out;
            for (size_t k = 0; k < runs[1].n; k++) {
                size_t n = (size_t)runs[1].v[k].count * unit;

                memcpy(at, row + runs[1].v[k].start * unit, n);
                at += n;
            }
        }
    ret = 0;
out:
    free(row);
    free(share);
    runs_clear(&runs[0]);
    runs_clear(&runs[1]);
    return ret;
}
