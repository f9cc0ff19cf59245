/* exportgguf - GGUF, as llama.cpp loads it
 *
 * One file, model.gguf, with the config and the tokenizer as metadata.  Weights keep
 * their types, or have that of --dtype; F32 are those that llama.cpp's conversion keeps
 * so: vectors, norms, routers, and tables of positions and types.  In Q8_0 a matrix
 * whose rows are no whole blocks is F16, as there.  Facts: llama.cpp's
 * convert_hf_to_gguf.py and gguf-py 0.19. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/ggml.h"
#include "lib/base/mem.h"
#include "lib/ckpt/ggufconfig.h"
#include "lib/ckpt/gguftokens.h"
#include "lib/ckpt/ggufwriter.h"
#include "lib/reshard/exportforms.h"
#include "lib/reshard/placed.h"
#include "lib/reshard/smallfile.h"

static const char FILE_NAME[] = "model.gguf";

enum { STACK_EXPERTS = 2, QUANTIZATION_VERSION = 2 };

/* What general.file_type says. */
enum file_type { FILE_F32 = 0, FILE_F16 = 1, FILE_Q8_0 = 7, FILE_BF16 = 32 };

/* A stored tensor: how, and where its data are. */
struct stored {
    enum dtype dtype; /* of its elements as they come; F32 of blocks */
    bool blocks;
    uint64_t at; /* from the first byte of data */
};

struct gguf_export {
    struct placed set;
    struct stored *stored; /* [set.n] */
    struct ggufconfig_factors factors[GGUFCONFIG_FACTORS];
    uint64_t factors_at[GGUFCONFIG_FACTORS];
    struct ggufwriter w;
    struct str header;
};

/* ---- types ---- */

/* Is the tensor F32 whatever the type of the others is? */
static bool is_single(const struct placed_tensor *t)
{
    static const char *const parts[] = { "_norm.weight", "ffn_gate_inp",
                                         "position_embd", "token_types" };

    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
        if (strstr(t->name, parts[i]))
            return true;
    return t->ndim < 2 || !str_ends(t->name, ".weight");
}

static int choose_type(const struct exporting *e, const struct placed *set, size_t i,
                       struct stored *out, struct err *err)
{
    const struct placed_tensor *t = &set->tensor[i];
    size_t first = set->part[t->first].from;
    enum dtype type = exporting_type(e, first);

    if (!dtype_is_float(type) || dtype_bits(type) < 16 || dtype_bits(type) > 32)
        return err_set(err, ERR_NO, "%s: tensor %s: of type %s, which is not written",
                       e->ckpt->path, e->ckpt->tensor[first].name, dtype_name(type));
    *out = (struct stored){ .dtype = is_single(t) ? DTYPE_F32 : type };
    if (!e->opt->codes || is_single(t))
        return 0;
    out->blocks = t->shape[t->ndim - 1] % GGML_Q8_NUMBERS == 0;
    out->dtype = out->blocks ? DTYPE_F32 : DTYPE_F16;
    return out->blocks && set->part[t->first].view.transposed
               ? err_set(err, ERR_NO,
                         "%s: tensor %s: is stored transposed, and not in "
                         "blocks",
                         e->ckpt->path, e->ckpt->tensor[first].name)
               : 0;
}

static uint32_t type_number(const struct stored *s)
{
    return s->blocks               ? GGML_Q8_TYPE
           : s->dtype == DTYPE_F32 ? GGUF_TYPE_F32
           : s->dtype == DTYPE_F16 ? GGUF_TYPE_F16
                                   : GGUF_TYPE_BF16;
}

/* The type of most numbers. */
static enum file_type file_type(const struct exporting *e, const struct gguf_export *g)
{
    uint64_t most[3] = { 0 };

    if (e->opt->codes)
        return FILE_Q8_0;
    for (size_t i = 0; i < g->set.n; i++)
        most[g->stored[i].dtype == DTYPE_F32   ? 0
             : g->stored[i].dtype == DTYPE_F16 ? 1
                                               : 2] += g->set.tensor[i].elements;
    return most[2] > most[1] && most[2] > most[0] ? FILE_BF16
           : most[1] > most[0]                    ? FILE_F16
                                                  : FILE_F32;
}

/* ---- the tokenizer ---- */

/* Reads the small file NAME; *f is all zero if there is none. */
static int read_small(struct smallfile *f, const struct exporting *e, const char *name,
                      struct err *err)
{
    *f = (struct smallfile){ 0 };
    for (size_t i = 0; i < smallfile_count(e->ckpt); i++)
        if (!strcmp(smallfile_name(e->ckpt, i), name))
            return smallfile_read(f, e->ckpt, i, err);
    return 0;
}

static int read_json(struct json_doc *doc, struct smallfile *f,
                     const struct exporting *e, const char *name, struct err *err)
{
    if (read_small(f, e, name, err) < 0)
        return -1;
    return f->text ? json_parse_config(doc, name, f->text, f->n, err) : 0;
}

static int add_tokenizer(struct exporting *e, struct gguf_export *g, uint64_t rows,
                         struct err *err)
{
    struct smallfile f[2] = { 0 }, chat = { 0 };
    struct json_doc doc[2] = { 0 };
    char *path = fs_join_dup(e->ckpt->home, "tokenizer.json");
    struct gguftokens t = { .config = e->config.root, .path = path };
    int ret = -1;

    if (read_json(&doc[0], &f[0], e, "tokenizer.json", err) < 0 ||
        read_json(&doc[1], &f[1], e, "tokenizer_config.json", err) < 0 ||
        read_small(&chat, e, "chat_template.jinja", err) < 0)
        goto out;
    t.tokenizer = doc[0].root;
    t.settings = doc[1].root;
    t.chat = chat.text ? chat.text : json_string(json_get(t.settings, "chat_template"));
    ret = gguf_tokens_write(&g->w, &t, rows, err);
out:
    for (int i = 0; i < 2; i++) {
        if (doc[i].root)
            json_clear(&doc[i]);
        smallfile_clear(&f[i]);
    }
    smallfile_clear(&chat);
    free(path);
    return ret;
}

/* ---- layout ---- */

/* Describes the stored tensors, and those of factors, in the header. */
static int add_tensors(struct exporting *e, struct gguf_export *g, struct err *err)
{
    for (size_t i = 0; i < g->set.n; i++) {
        const struct placed_tensor *t = &g->set.tensor[i];
        struct stored *s = &g->stored[i];
        uint64_t bytes = s->blocks ? t->elements / GGML_Q8_NUMBERS * GGML_Q8_BYTES
                                   : t->elements * (uint64_t)dtype_bits(s->dtype) / 8;

        if (t->ndim > GGUF_MOST_AXES || strlen(t->name) > GGUF_MOST_NAME)
            return err_set(err, ERR_NO, "%s: %s: too many axes, or too long a name",
                           e->ckpt->path, t->name);
        s->at =
            ggufwriter_tensor(&g->w, t->name, t->ndim, t->shape, type_number(s), bytes);
        e->total += t->elements * (uint64_t)dtype_bits(s->dtype) / 8;
    }
    for (int k = 0; k < GGUFCONFIG_FACTORS && g->factors[k].name; k++) {
        uint64_t n = g->factors[k].n;

        g->factors_at[k] = ggufwriter_tensor(&g->w, g->factors[k].name, 1, &n,
                                             GGUF_TYPE_F32, n * sizeof(float));
    }
    return 0;
}

static int lay_out(struct exporting *e, struct err *err)
{
    struct gguf_export *g = e->own = xcalloc(1, sizeof(*g));
    uint64_t rows = 0;

    if (placed_make(&g->set, e->ckpt, "gguf", STACK_EXPERTS, err) < 0)
        return -1;
    g->stored = xcalloc(g->set.n + 1, sizeof(*g->stored));
    for (size_t i = 0; i < g->set.n; i++) {
        if (choose_type(e, &g->set, i, &g->stored[i], err) < 0)
            return -1;
        if (!strcmp(g->set.tensor[i].name, "token_embd.weight"))
            rows = g->set.tensor[i].shape[0];
    }
    if (gguf_config_write(&g->w, g->factors, e->config.root,
                          model_config_name(e->ckpt->model), exporting_window(e),
                          err) < 0)
        return -1;
    ggufwriter_u32(&g->w, "general", "file_type", file_type(e, g));
    ggufwriter_u32(&g->w, "general", "quantization_version", QUANTIZATION_VERSION);
    if (add_tokenizer(e, g, rows, err) < 0 || add_tensors(e, g, err) < 0)
        return -1;
    ggufwriter_header(&g->header, &g->w);
    return 0;
}

static void name_files(struct exporting *e)
{
    exporting_own(e, FILE_NAME);
}

/* ---- writing ---- */

static int write_tensors(struct exporting *e, struct gguf_export *g, int fd,
                         const char *path, struct err *err)
{
    for (size_t i = 0; i < g->set.nparts; i++) {
        const struct placed_part *q = &g->set.part[i];
        const struct exporting_place p = { .fd = fd,
                                           .path = path,
                                           .at = g->header.len + g->stored[q->to].at,
                                           .dtype = g->stored[q->to].dtype,
                                           .view = &q->view,
                                           .lead = q->lead,
                                           .rows = g->set.tensor[q->to].rows,
                                           .blocks = g->stored[q->to].blocks };

        if (exporting_copy(e, q->from, &p, NULL, err) < 0)
            return -1;
    }
    for (int k = 0; k < GGUFCONFIG_FACTORS && g->factors[k].name; k++)
        if (fs_pwrite(fd, g->factors[k].v, g->factors[k].n * sizeof(float),
                      g->header.len + g->factors_at[k], path, err) < 0)
            return -1;
    return 0;
}

static int write_all(struct exporting *e, struct err *err)
{
    struct gguf_export *g = e->own;
    char *path = fs_join_dup(e->out.partial, FILE_NAME);
    int fd = outdir_create(&e->out, FILE_NAME, err), ret = -1;

    if (fd >= 0 && fs_pwrite(fd, g->header.s, g->header.len, 0, path, err) == 0)
        ret = write_tensors(e, g, fd, path, err);
    /* the data end with padding */
    if (ret == 0 && ftruncate(fd, (off_t)(g->header.len + g->w.end)) < 0)
        ret = err_errno(err, "%s", path);
    ret = exporting_close(e, &e->out, fd, path, ret, err);
    free(path);
    return ret;
}

static void clear(struct exporting *e)
{
    struct gguf_export *g = e->own;

    if (!g)
        return;
    placed_clear(&g->set);
    free(g->stored);
    for (int k = 0; k < GGUFCONFIG_FACTORS; k++)
        free(g->factors[k].v);
    ggufwriter_clear(&g->w);
    str_clear(&g->header);
    free(g);
}

const struct export_form export_gguf_form = { .name = "gguf",
                                              .plain = true,
                                              .name_files = name_files,
                                              .lay_out = lay_out,
                                              .write = write_all,
                                              .clear = clear };
