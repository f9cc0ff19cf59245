/* manifestwriter - writes checkpoint.json (see manifest.h) */
#include <inttypes.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/hash.h"
#include "lib/base/str.h"
#include "lib/ckpt/manifest.h"

enum { FLUSH_AT = 1 << 16 }; /* bytes */

struct writer {
    struct str buf;
    const char *path;
    int fd;
    uint32_t crc;
};

static int flush(struct writer *w, size_t at_least, struct err *err)
{
    if (w->buf.len < at_least || !w->buf.len)
        return 0;
    w->crc = hash_crc32(w->crc, w->buf.s, w->buf.len);
    if (fs_write(w->fd, w->buf.s, w->buf.len, w->path, err) < 0)
        return -1;
    str_reset(&w->buf);
    return 0;
}

static void put_state(struct str *b, const struct manifest_state *s, bool first)
{
    str_add(b, first ? ",\n\"states\":[\n{\"role\":" : ",\n{\"role\":");
    str_add_json(b, s->role);
    str_addf(b, ",\"kind\":\"%s\",\"form\":\"%s\"}", manifest_kinds[s->kind],
             manifest_forms[s->form]);
}

static void put_head(struct str *b, const struct manifest *m)
{
    str_addf(b, "{\"format\":\"%s\",\"version\":%d,\n\"mesh\":{", MANIFEST_FORMAT,
             m->nstates || m->nbase ? MANIFEST_VERSION : MANIFEST_STATELESS);
    for (int a = 0; a < MANIFEST_AXES; a++)
        str_addf(b, "%s\"%s\":%d", a ? "," : "", manifest_axes[a], m->mesh[a]);
    str_addc(b, '}');
    for (int i = 0; m->stages && i < m->mesh[MANIFEST_AXES - 1]; i++)
        str_addf(b, "%s%d", i ? "," : ",\n\"stages\":[", m->stages[i]);
    if (m->stages)
        str_addc(b, ']');
    if (m->pad_vocab)
        str_addf(b, ",\n\"pad_vocab\":%" PRIu64, m->pad_vocab);
    if (m->keep_vocab)
        str_add(b, ",\n\"keep_vocab\":true");
    if (m->training)
        str_addf(b, ",\n\"training\":%s", m->training);
    for (size_t i = 0; i < m->nstates; i++)
        put_state(b, &m->state[i], !i);
    if (m->nstates)
        str_addc(b, ']');
    for (size_t i = 0; i < m->nbase; i++) {
        str_add(b, i ? ",\n{\"name\":" : ",\n\"base\":[\n{\"name\":");
        str_add_json(b, m->base[i].name);
        str_addf(b, ",\"size\":%" PRIu64 ",\"crc32\":\"%08" PRIx32 "\"}",
                 m->base[i].size, m->base[i].crc);
    }
    if (m->nbase)
        str_addc(b, ']');
    str_addf(b, ",\n\"cast\":%s,\n\"config\":", m->cast ? "true" : "false");
    str_add_json(b, m->config);
    str_addf(b, ",\n\"family\":%s", m->family);
}

static void put_source(struct str *b, const struct manifest_source *s)
{
    str_add(b, "{\"name\":");
    str_add_json(b, s->name);
    str_addf(b, ",\"size\":%" PRIu64 ",\"crc32\":\"%08" PRIx32 "\"", s->size, s->crc);
    str_add(b, ",\"header\":");
    str_add_jsonn(b, s->header, s->header_len);
    if (s->origin) {
        str_add(b, ",\"origin\":{\"name\":");
        str_add_json(b, s->origin);
        str_addf(b, ",\"size\":%" PRIu64 ",\"crc32\":\"%08" PRIx32 "\"}",
                 s->origin_size, s->origin_crc);
    }
    str_addc(b, '}');
}

static void put_file(struct str *b, const struct manifest *m,
                     const struct manifest_file *f)
{
    int c[MANIFEST_AXES];

    str_add(b, "{\"name\":");
    str_add_json(b, f->name);
    str_addf(b, ",\"size\":%" PRIu64 ",\"crc32\":\"%08" PRIx32 "\"", f->size, f->crc);
    if (f->part >= 0) {
        manifest_part_coord(m->mesh, f->part, c);
        str_addf(b, ",\"part\":%d,\"tp\":%d,\"ep\":%d,\"pp\":%d", f->part,
                 c[MANIFEST_TP], c[MANIFEST_EP], c[MANIFEST_PP]);
    }
    str_addc(b, '}');
}

static void put_tensor(struct str *b, const struct manifest_tensor *t, int nparts)
{
    str_add(b, "{\"name\":");
    str_add_json(b, t->name);
    str_add(b, ",\"role\":");
    str_add_json(b, t->role);
    str_addf(b, ",\"dtype\":\"%s\",\"shape\":[", dtype_name(t->dtype));
    for (int k = 0; k < t->ndim; k++)
        str_addf(b, "%s%" PRIu64, k ? "," : "", t->shape[k]);
    str_addc(b, ']');
    if (t->axis) {
        str_add(b, ",\"axes\":[");
        for (int k = 0; k < t->ndim; k++) {
            if (k)
                str_addc(b, ',');
            str_add_json(b, t->axis[k]);
        }
        str_addc(b, ']');
    }
    str_add(b, ",\"crc32\":[");
    for (int p = 0; p < nparts; p++) {
        if (p)
            str_addc(b, ',');
        if (manifest_holds(t, p))
            str_addf(b, "\"%08" PRIx32 "\"", t->crc[p]);
        else
            str_add(b, "null");
    }
    str_add(b, "]}");
}

static int write_members(struct writer *w, const struct manifest *m, struct err *err)
{
    struct str *b = &w->buf;

    put_head(b, m);
    str_add(b, ",\n\"source\":[");
    for (size_t i = 0; i < m->nsources; i++) {
        str_add(b, i ? ",\n" : "\n");
        put_source(b, &m->source[i]);
        if (flush(w, FLUSH_AT, err) < 0)
            return -1;
    }
    str_add(b, "],\n\"files\":[");
    for (size_t i = 0; i < m->nfiles; i++) {
        str_add(b, i ? ",\n" : "\n");
        put_file(b, m, &m->file[i]);
    }
    for (int p = 0; m->rank_config && p < m->nparts; p++)
        str_addf(b, "%s\"%08" PRIx32 "\"", p ? "," : "],\n\"rank_configs\":[",
                 m->rank_config[p]);
    str_add(b, "],\n\"tensors\":[");
    for (size_t i = 0; i < m->ntensors; i++) {
        str_add(b, i ? ",\n" : "\n");
        put_tensor(b, &m->tensor[i], m->nparts);
        if (flush(w, FLUSH_AT, err) < 0)
            return -1;
    }
    str_add(b, "],\n");
    if (flush(w, 0, err) < 0)
        return -1;
    str_addf(b, "\"crc32\":\"%08" PRIx32 "\"}\n", w->crc);
    return flush(w, 0, err);
}

int manifest_write(const struct manifest *m, int fd, const char *path, struct err *err)
{
    struct writer w = { .path = path, .fd = fd };
    int ret = write_members(&w, m, err);

    if (ret == 0 && fsync(fd) < 0)
        ret = err_errno(err, "%s", path);
    str_clear(&w.buf);
    return ret;
}
