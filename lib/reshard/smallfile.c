/* smallfile - the small files of a checkpoint: configuration, tokenizer, licence */
#include "lib/reshard/smallfile.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/base/fs.h"
#include "lib/base/hash.h"
#include "lib/base/jsonlex.h"
#include "lib/base/mem.h"

static const char CONFIG[] = "config.json";

/* Is the config one that was given or made, so that no file beside the weights is it?
 */
static bool has_own_config(const struct checkpoint *c)
{
    for (size_t i = 0; i < c->source.nsmall; i++)
        if (!strcmp(c->source.small[i], CONFIG))
            return false;
    return !c->sharded && c->source.config && !source_is_safetensors(&c->source);
}

size_t smallfile_count(const struct checkpoint *c)
{
    return c->sharded ? c->manifest.nfiles - (size_t)c->manifest.nparts
                      : c->source.nsmall + c->source.nmade + has_own_config(c);
}

/* File I as the manifest of a sharded C lists it. */
static const struct manifest_file *listed(const struct checkpoint *c, size_t i)
{
    return &c->manifest.file[(size_t)c->manifest.nparts + i];
}

/* The text of file I, which lies nowhere, of what the form makes; NULL: it lies beside
 * the weights. */
static const char *made_text(const struct checkpoint *c, size_t i)
{
    if ((c->grown || c->source.reconfigured) && i < c->source.nsmall &&
        !strcmp(c->source.small[i], CONFIG))
        return c->source.config;
    if (c->sharded || i < c->source.nsmall)
        return NULL;
    i -= c->source.nsmall;
    return i < c->source.nmade ? c->source.made[i].text : c->source.config;
}

const char *smallfile_name(const struct checkpoint *c, size_t i)
{
    if (c->sharded)
        return listed(c, i)->name;
    if (i < c->source.nsmall)
        return c->source.small[i];
    i -= c->source.nsmall;
    return i < c->source.nmade ? c->source.made[i].name : CONFIG;
}

bool smallfile_has(const struct checkpoint *c, const char *name)
{
    for (size_t i = 0; i < smallfile_count(c); i++)
        if (!strcmp(smallfile_name(c, i), name))
            return true;
    return false;
}

int smallfile_read(struct smallfile *out, const struct checkpoint *c, size_t i,
                   struct err *err)
{
    const char *name = smallfile_name(c, i);
    char *path = fs_join_dup(c->home, name);
    struct stat st;
    int ret;

    *out = (struct smallfile){ .name = name };
    if (made_text(c, i)) {
        out->text = xstrdup(made_text(c, i));
        out->n = strlen(out->text);
        out->crc = hash_crc32(0, out->text, out->n);
        out->mode = 0666;
        free(path);
        return 0;
    }
    ret = fs_read_regular(&out->text, &out->n, path, UINT32_MAX, err);
    if (ret == 0 && stat(path, &st) < 0)
        ret = err_errno(err, "%s", path);
    if (ret == 0) {
        out->mode = st.st_mode;
        out->crc = hash_crc32(0, out->text, out->n);
        if (c->sharded &&
            (out->crc != listed(c, i)->crc || out->n != listed(c, i)->size))
            ret = err_set(err, ERR_INPUT, "%s: is not the file that the manifest lists",
                          path);
    }
    free(path);
    if (ret < 0)
        smallfile_clear(out);
    return ret;
}

bool smallfile_index(struct smallfile *out, const struct checkpoint *c)
{
    *out = (struct smallfile){ .name = "model.safetensors.index.json" };
    if (c->sharded)
        return false;
    out->text = source_index_dup(&c->source);
    if (!out->text)
        return false;
    out->n = strlen(out->text);
    out->crc = hash_crc32(0, out->text, out->n);
    out->mode = checkpoint_mode(c);
    return true;
}

void smallfile_retype(struct smallfile *f, enum dtype type)
{
    struct str out = { 0 };
    struct jsonlex lex;
    size_t copied = 0;

    jsonlex_init(&lex, "config.json", f->text, f->n);
    while (jsonlex_next(&lex, NULL) == 0 && lex.token != JSONLEX_END) {
        if (lex.token != JSONLEX_KEY || lex.depth != 1 ||
            (strcmp(lex.text.s, "dtype") != 0 &&
             strcmp(lex.text.s, "torch_dtype") != 0))
            continue;
        if (jsonlex_next(&lex, NULL) < 0 || lex.token != JSONLEX_STRING)
            continue;
        str_addn(&out, f->text + copied, lex.start - copied);
        str_add_json(&out, dtype_pytorch(type));
        copied = lex.end;
    }
    jsonlex_clear(&lex);
    str_addn(&out, f->text + copied, f->n - copied);
    free(f->text);
    f->n = out.len;
    f->text = str_steal(&out);
    f->crc = hash_crc32(0, f->text, f->n);
}

void smallfile_clear(struct smallfile *f)
{
    free(f->text);
    f->text = NULL;
    f->n = 0;
}
