/* nanogptdir - reads the checkpoints of nanoGPT */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/ckpt/foreignforms.h"
#include "lib/ckpt/numberedstate.h"
#include "lib/ckpt/pickle.h"

static const char FILE_NAME[] = "ckpt.pt", ARGS[] = "model_args",
                  COMPILED[] = "_orig_mod.", TABLE[] = "transformer.wte.weight",
                  HEAD[] = "lm_head.weight";

enum { MOST_NUMBER = 1 << 30, GPT2_END = 50256 /* id of <|endoftext|> */ };

struct reader {
    struct source *s;
    const char *path;
    const struct pickled *args;
    size_t cap;
    uint64_t read;
    int input;
    bool tied;
};

static int probe(bool *found, const char *path, bool is_dir, struct err *err)
{
    *found = false;
    return is_dir ? fs_find_in(found, path, FILE_NAME, err) : 0;
}

/* ---- tensors ---- */

/* What torch.compile puts before a name is left out. */
static int add_tensor(struct reader *r, const char *name, const struct pickled *v,
                      struct err *err)
{
    struct tensor t;

    if (str_starts(name, COMPILED))
        name += strlen(COMPILED);
    if (pickle_tensor(&t, v, &r->s->pool, r->path, name, err) < 0 ||
        form_keep_name(r->s, &t.name, name, r->read, r->path, err) < 0)
        return -1;
    t.input = r->input;
    r->s->raw = xgrow(r->s->raw, &r->cap, r->s->nraw + 1, sizeof(*r->s->raw));
    r->s->raw[r->s->nraw++] = t;
    return 0;
}

static struct tensor *find(const struct reader *r, const char *name)
{
    for (size_t i = 0; i < r->s->nraw; i++)
        if (!strcmp(r->s->raw[i].name, name))
            return &r->s->raw[i];
    return NULL;
}

/* The head of nanoGPT is its table, which is stored under both names.  One that is not
 * is kept. */
static void drop_tied(struct reader *r)
{
    const struct tensor *table = find(r, TABLE);
    struct tensor *head = find(r, HEAD);

    r->tied = !head || (table && head->offset == table->offset &&
                        head->dtype == table->dtype && head->ndim == table->ndim &&
                        !memcmp(head->shape, table->shape,
                                (size_t)head->ndim * sizeof(*head->shape)));
    if (head && r->tied)
        memmove(head, head + 1,
                (size_t)(&r->s->raw[--r->s->nraw] - head) * sizeof(*head));
}

/* ---- moments ---- */

/* Adds the moments of the optimizer, which knows the parameters by number. */
static int add_moments(struct reader *r, const struct pickled *root, struct err *err)
{
    const struct pickled *optimizer = pickled_get(root, "optimizer");
    struct tensor *param = xmalloc((r->s->nraw + 1) * sizeof(*param));
    struct numberedstate *state = NULL;
    size_t nparams = 0, n = 0;
    int ret;

    for (size_t i = 0; i < r->s->nraw; i++) /* but not the masks that old ones store */
        if (r->s->raw[i].ndim < 3)
            param[nparams++] = r->s->raw[i];
    ret = pickled_is(optimizer, PICKLED_DICT)
              ? numberedstate_read(&state, &n, optimizer, param, nparams, r->path, err)
              : 0;
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < NUMBEREDSTATE_NROLES && ret == 0; k++) {
            const char *weight = param[state[i].param].name;
            const struct pickled *v =
                pickled_get(state[i].state, numberedstate_roles[k]);
            struct tensor t;

            if (!pickled_is(v, PICKLED_TENSOR))
                continue;
            ret = pickle_tensor(&t, v, &r->s->pool, r->path, weight, err);
            t.input = r->input;
            if (ret == 0)
                ret = form_add_state(r->s, &t, weight, numberedstate_roles[k], r->read,
                                     r->path, err);
        }
    free(state);
    free(param);
    return ret;
}

/* GPT-2 has a bias beside every other weight; what computes without is the same with
 * zeros. */
static int add_zeros(struct reader *r, struct err *err)
{
    size_t n = r->s->nraw;

    for (size_t i = 0; i < n; i++) {
        struct tensor t = r->s->raw[i];
        uint64_t *start = pool_take(&r->s->pool, sizeof(*start), 8);
        const struct box box = { BOXES_ZEROS, 0, start, t.shape, NULL, NULL };
        char *name;
        int ret;

        if (!str_ends(t.name, ".weight") || !t.ndim || !strcmp(t.name, TABLE) ||
            !strcmp(t.name, "transformer.wpe.weight") || !strcmp(t.name, HEAD))
            continue;
        *start = 0;
        name = str_dupf("%.*sbias", (int)(strlen(t.name) - strlen("weight")), t.name);
        ret = form_keep_name(r->s, &t.name, name, r->read, r->path, err);
        free(name);
        t.ndim = 1;
        t.stride = NULL;
        if (ret < 0 || !dtype_bytes(&t.size, t.dtype, t.shape[0]) ||
            boxes_new(&t.boxes, &r->s->pool, 1, t.shape, &box, 1, r->path, t.name,
                      err) < 0)
            return -1;
        r->s->raw = xgrow(r->s->raw, &r->cap, r->s->nraw + 1, sizeof(*r->s->raw));
        r->s->raw[r->s->nraw++] = t;
        for (int k = 0; k < NUMBEREDSTATE_NROLES && r->s->nstates; k++)
            if (form_add_state(r->s, &t, t.name, numberedstate_roles[k], r->read,
                               r->path, err) < 0)
                return -1;
    }
    r->s->note = "has no biases; those that GPT-2 has become zeros";
    return 0;
}

/* ---- the config ---- */

/* The first key of the arguments that is not nanoGPT's own; NULL: none. */
static const char *find_strange(const struct pickled *args)
{
    static const char *const known[] = { "n_layer",    "n_head", "n_embd",
                                         "block_size", "bias",   "vocab_size",
                                         "dropout",    NULL };

    for (size_t i = 0; i + 1 < args->list.n; i += 2) {
        int k = 0;

        while (known[k] && !pickled_text_is(args->list.v[i], known[k]))
            k++;
        if (!known[k])
            return pickled_is(args->list.v[i], PICKLED_TEXT) ? args->list.v[i]->text.s
                                                             : "a key that is no text";
    }
    return NULL;
}

static bool unsaid(struct reader *r, const char *name)
{
    r->s->unmade = str_dupf("%s: %s do not say %s", r->path, ARGS, name);
    return false;
}

static bool add_number(struct reader *r, struct str *text, const char *key,
                       const char *name)
{
    const struct pickled *v = pickled_get(r->args, name);

    if (!pickled_is(v, PICKLED_NUMBER) || v->number < 1 || v->number > MOST_NUMBER)
        return unsaid(r, name);
    str_addf(text, ",\"%s\":%" PRId64, key, v->number);
    return true;
}

/* Adds the settings of a training that goes on. */
static bool add_dropout(struct reader *r, struct str *text)
{
    static const char *const keys[] = { "attn_pdrop", "resid_pdrop", "embd_pdrop" };
    const struct pickled *v = pickled_get(r->args, "dropout");
    double x = pickled_is(v, PICKLED_REAL)     ? v->real
               : pickled_is(v, PICKLED_NUMBER) ? (double)v->number
                                               : -1;

    if (!(x >= 0 && x <= 1))
        return unsaid(r, "dropout");
    for (int k = 0; k < 3; k++) {
        str_addf(text, ",\"%s\":", keys[k]);
        str_add_double(text, x);
    }
    return true;
}

/* Makes the config.json that the arguments mean.  nn.GELU is exact, and the epsilon is
 * a constant of nanoGPT's layer norm. */
static void make_config(struct reader *r)
{
    const char *strange = find_strange(r->args);
    const struct pickled *ids = pickled_get(r->args, "vocab_size");
    const struct tensor *table = find(r, TABLE);
    const char *type = table ? dtype_pytorch(table->dtype) : NULL;
    struct str text = { 0 };

    if (strange) {
        r->s->unmade = str_dupf("%s: %s say %s, which nanoGPT does not know", r->path,
                                ARGS, strange);
        return;
    }
    str_addf(&text,
             "{\"architectures\":[\"GPT2LMHeadModel\"],\"model_type\":\"gpt2\","
             "\"activation_function\":\"gelu\",\"layer_norm_epsilon\":1e-05,"
             "\"tie_word_embeddings\":%s",
             r->tied ? "true" : "false");
    if (pickled_is(ids, PICKLED_NUMBER) && ids->number <= GPT2_END)
        str_add(&text, ",\"bos_token_id\":null,\"eos_token_id\":null");
    if (type)
        str_addf(&text, ",\"torch_dtype\":\"%s\"", type);
    if (add_number(r, &text, "n_layer", "n_layer") &&
        add_number(r, &text, "n_head", "n_head") &&
        add_number(r, &text, "n_embd", "n_embd") &&
        add_number(r, &text, "n_positions", "block_size") &&
        add_number(r, &text, "vocab_size", "vocab_size") && add_dropout(r, &text)) {
        str_add(&text, "}\n");
        r->s->config = str_steal(&text);
        free(r->s->config_path);
        r->s->config_path = xstrdup(r->path);
    }
    str_clear(&text);
}

/* ---- opening ---- */

static int read_values(struct reader *r, const struct pickle_values *v, struct err *err)
{
    const struct pickled *model = pickled_get(v->root, "model"), *bias;

    r->args = pickled_get(v->root, ARGS);
    if (!pickled_is(model, PICKLED_DICT) || !pickled_is(r->args, PICKLED_DICT))
        return err_set(err, ERR_INPUT,
                       "%s: no dictionaries 'model' and '%s', as nanoGPT has", r->path,
                       ARGS);
    for (size_t i = 0; i + 1 < model->list.n; i += 2) {
        const struct pickled *key = model->list.v[i], *of = model->list.v[i + 1];

        if (pickled_is(key, PICKLED_TEXT) && pickled_is(of, PICKLED_TENSOR) &&
            add_tensor(r, key->text.s, of, err) < 0)
            return -1;
    }
    drop_tied(r);
    if (r->s->moments && add_moments(r, v->root, err) < 0)
        return -1;
    bias = pickled_get(r->args, "bias");
    if (!r->s->config && pickled_is(bias, PICKLED_NUMBER))
        make_config(r);
    else if (!r->s->config)
        unsaid(r, "bias");
    return pickled_is(bias, PICKLED_NUMBER) && !bias->number ? add_zeros(r, err) : 0;
}

static int open_directory(struct source *s, const char *dir, struct err *err)
{
    char *path = fs_join_dup(dir, FILE_NAME);
    struct reader r = { .s = s, .path = path };
    struct pickle_values v;
    int fd = -1, ret = -1;

    s->dialect = "nanogpt";
    if (form_add_input(s, FILE_NAME, path, &r.input, &fd, err) == 0 &&
        pickle_values_read(&v, fd, path, err) == 0) {
        form_add_archive(s, r.input, 0, s->input[r.input].size);
        r.read = unpickle_read(&v.m);
        ret = read_values(&r, &v, err);
        pickle_values_clear(&v);
    }
    if (fd >= 0)
        close(fd);
    free(path);
    return ret < 0 ? -1 : form_present_shards(s, err);
}

const struct source_ops nanogpt_ops = { .name = "a checkpoint of nanoGPT",
                                        .probe = probe,
                                        .open = open_directory };
