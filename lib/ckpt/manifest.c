/* manifest - checkpoint.json, the manifest of a sharded checkpoint */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/hash.h"
#include "lib/base/jsonlex.h"
#include "lib/base/mem.h"
#include "lib/ckpt/manifest.h"

const char MANIFEST_NAME[] = "checkpoint.json";

static const char FORMAT[] = "shardutils-checkpoint";
static const char *const AXES[MANIFEST_AXES] = { "tp", "sp", "ep", "dp", "pp" };
enum { TP, SP, EP, DP, PP };

/* The checksum is the last member, has a fixed form, and covers all bytes before it. */
static const char TAIL[] = "\"crc32\":\"00000000\"}\n";
enum { TAIL_DIGITS = 9, TAIL_LENGTH = sizeof(TAIL) - 1, FLUSH_AT = 1 << 16 };
static const uint64_t MAX_BYTES = UINT64_C(4) << 30;
enum { MAX_PARTS = 1 << 20 };

int manifest_nparts(const int mesh[MANIFEST_AXES])
{
    return mesh[TP] * mesh[EP] * mesh[PP];
}

void manifest_part_coord(const int mesh[MANIFEST_AXES], int p, int coord[MANIFEST_AXES])
{
    coord[TP] = p % mesh[TP];
    coord[SP] = 0;
    coord[EP] = p / mesh[TP] % mesh[EP];
    coord[DP] = 0;
    coord[PP] = p / mesh[TP] / mesh[EP];
}

/* "FIRST-tp0-pp0LAST", with "-ep0" when ep > 1. */
static char *part_name_dup(const char *first, const int mesh[MANIFEST_AXES], int p,
                           const char *last)
{
    int c[MANIFEST_AXES];

    manifest_part_coord(mesh, p, c);
    if (mesh[EP] > 1)
        return str_dupf("%s-tp%d-pp%d-ep%d%s", first, c[TP], c[PP], c[EP], last);
    return str_dupf("%s-tp%d-pp%d%s", first, c[TP], c[PP], last);
}

char *manifest_part_name_dup(const int mesh[MANIFEST_AXES], int p)
{
    return part_name_dup("rank", mesh, p, ".safetensors");
}

char *manifest_config_dir_dup(const int mesh[MANIFEST_AXES], int p)
{
    return part_name_dup("hf", mesh, p, "");
}

/* ---- writing ---- */

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

static void put_head(struct str *b, const struct manifest *m)
{
    str_addf(b, "{\"format\":\"%s\",\"version\":%d,\n\"mesh\":{", FORMAT,
             MANIFEST_VERSION);
    for (int a = 0; a < MANIFEST_AXES; a++)
        str_addf(b, "%s\"%s\":%d", a ? "," : "", AXES[a], m->mesh[a]);
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
        str_addf(b, ",\"part\":%d,\"tp\":%d,\"ep\":%d,\"pp\":%d", f->part, c[TP], c[EP],
                 c[PP]);
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

/* ---- reading ---- */

struct reader {
    struct jsonlex lex;
    struct manifest *m;
    size_t source_cap, file_cap, tensor_cap;
};

static int want(struct reader *r, enum jsonlex_token token, const char *what,
                struct err *err)
{
    if (jsonlex_next(&r->lex, err) < 0)
        return -1;
    if (r->lex.token != token)
        return jsonlex_error(&r->lex, err, "expected %s", what);
    return 0;
}

static int read_text(struct reader *r, const char **out, struct err *err)
{
    if (want(r, JSONLEX_STRING, "a string", err) < 0)
        return -1;
    if (strlen(r->lex.text.s) != r->lex.text.len)
        return jsonlex_error(&r->lex, err, "a NUL character in a string");
    *out = pool_strndup(&r->m->pool, r->lex.text.s, r->lex.text.len);
    return 0;
}

static int read_u64(struct reader *r, uint64_t *out, struct err *err)
{
    if (want(r, JSONLEX_NUMBER, "a whole number", err) < 0)
        return -1;
    if (!str_u64(r->lex.text.s, out))
        return jsonlex_error(&r->lex, err, "expected a whole number");
    return 0;
}

/* Parses the current string as a CRC-32. */
static int parse_crc(struct reader *r, uint32_t *out, struct err *err)
{
    const char *s = r->lex.text.s;
    uint32_t value = 0;

    if (r->lex.token != JSONLEX_STRING || r->lex.text.len != 8 ||
        strspn(s, "0123456789abcdef") != 8)
        return jsonlex_error(&r->lex, err, "expected a CRC-32 of 8 hexadecimal digits");
    for (int i = 0; i < 8; i++)
        value = value << 4 | (uint32_t)(s[i] <= '9' ? s[i] - '0' : s[i] - 'a' + 10);
    *out = value;
    return 0;
}

static int read_crc(struct reader *r, uint32_t *out, struct err *err)
{
    return jsonlex_next(&r->lex, err) < 0 ? -1 : parse_crc(r, out, err);
}

static int skip_value(struct reader *r, struct err *err)
{
    return jsonlex_next(&r->lex, err) < 0 ? -1 : jsonlex_skip(&r->lex, err);
}

static bool key_is(const struct reader *r, const char *key)
{
    return !strcmp(r->lex.text.s, key);
}

/* Reads a name that becomes a path below the checkpoint or the merged directory, with
 * at most MOST directories. */
static int read_name(struct reader *r, const char **out, int most, struct err *err)
{
    int slashes = 0;

    if (read_text(r, out, err) < 0)
        return -1;
    for (const char *s = *out; (s = strchr(s, '/')); s++)
        slashes++;
    if (!fs_is_plain_name(*out) || slashes > most)
        return jsonlex_error(&r->lex, err, "'%s' is not a plain file name", *out);
    return 0;
}

static int read_mesh(struct reader *r, struct err *err)
{
    uint64_t product = 1;

    if (want(r, JSONLEX_OBJECT, "the mesh", err) < 0)
        return -1;
    while (jsonlex_next(&r->lex, err) == 0) {
        uint64_t size;
        int a = 0;

        if (r->lex.token == JSONLEX_OBJECT_END) {
            for (a = 0; a < MANIFEST_AXES; a++)
                if (!r->m->mesh[a])
                    return jsonlex_error(&r->lex, err, "the mesh lacks %s", AXES[a]);
            r->m->nparts = manifest_nparts(r->m->mesh);
            return 0;
        }
        while (a < MANIFEST_AXES && !key_is(r, AXES[a]))
            a++;
        if (a == MANIFEST_AXES)
            return jsonlex_error(&r->lex, err, "unknown axis '%s'", r->lex.text.s);
        if (r->m->mesh[a])
            return jsonlex_error(&r->lex, err, "axis %s twice", AXES[a]);
        if (read_u64(r, &size, err) < 0)
            return -1;
        if (size < 1 || size > MAX_PARTS || (product *= size) > MAX_PARTS)
            return jsonlex_error(&r->lex, err, "axis %s is out of range", AXES[a]);
        r->m->mesh[a] = (int)size;
    }
    return -1;
}

static int read_origin(struct reader *r, struct manifest_source *s, struct err *err)
{
    if (want(r, JSONLEX_OBJECT, "an object", err) < 0)
        return -1;
    while (jsonlex_next(&r->lex, err) == 0) {
        int ret;

        if (r->lex.token == JSONLEX_OBJECT_END)
            return 0;
        if (key_is(r, "name"))
            ret = read_name(r, &s->origin, 0, err);
        else if (key_is(r, "size"))
            ret = read_u64(r, &s->origin_size, err);
        else if (key_is(r, "crc32"))
            ret = read_crc(r, &s->origin_crc, err);
        else
            ret = skip_value(r, err);
        if (ret < 0)
            return -1;
    }
    return -1;
}

static int read_source(struct reader *r, struct err *err)
{
    struct manifest *m = r->m;
    struct manifest_source *s;

    m->source = xgrow(m->source, &r->source_cap, m->nsources + 1, sizeof(*m->source));
    s = &m->source[m->nsources++];
    *s = (struct manifest_source){ 0 };
    while (jsonlex_next(&r->lex, err) == 0) {
        int ret;

        if (r->lex.token == JSONLEX_OBJECT_END)
            return s->name && s->header
                       ? 0
                       : jsonlex_error(&r->lex, err, "a source without name or header");
        if (key_is(r, "name")) {
            ret = read_name(r, &s->name, 0, err);
        } else if (key_is(r, "size")) {
            ret = read_u64(r, &s->size, err);
        } else if (key_is(r, "crc32")) {
            ret = read_crc(r, &s->crc, err);
        } else if (key_is(r, "header")) {
            ret = want(r, JSONLEX_STRING, "a string", err);
            if (ret == 0) {
                s->header_len = r->lex.text.len;
                s->header = pool_strndup(&m->pool, r->lex.text.s, s->header_len);
            }
        } else if (key_is(r, "origin")) {
            ret = read_origin(r, s, err);
        } else {
            ret = skip_value(r, err);
        }
        if (ret < 0)
            return -1;
    }
    return -1;
}

static int read_file(struct reader *r, struct err *err)
{
    struct manifest *m = r->m;
    struct manifest_file *f;
    uint64_t part = 0;

    m->file = xgrow(m->file, &r->file_cap, m->nfiles + 1, sizeof(*m->file));
    f = &m->file[m->nfiles++];
    *f = (struct manifest_file){ .part = -1 };
    while (jsonlex_next(&r->lex, err) == 0) {
        int ret;

        if (r->lex.token == JSONLEX_OBJECT_END && !f->name)
            return jsonlex_error(&r->lex, err, "a file without a name");
        if (r->lex.token == JSONLEX_OBJECT_END && f->part >= 0 && strchr(f->name, '/'))
            return jsonlex_error(&r->lex, err, "'%s' is not a plain file name",
                                 f->name);
        if (r->lex.token == JSONLEX_OBJECT_END)
            return 0;
        if (key_is(r, "name")) {
            ret = read_name(r, &f->name, 1, err);
        } else if (key_is(r, "size")) {
            ret = read_u64(r, &f->size, err);
        } else if (key_is(r, "crc32")) {
            ret = read_crc(r, &f->crc, err);
        } else if (key_is(r, "part")) {
            ret = read_u64(r, &part, err);
            if (ret == 0 && part >= (uint64_t)m->nparts)
                ret = jsonlex_error(&r->lex, err, "part is out of range");
            f->part = (int)part;
        } else {
            ret = skip_value(r, err);
        }
        if (ret < 0)
            return -1;
    }
    return -1;
}

static int read_shape(struct reader *r, struct manifest_tensor *t, struct err *err)
{
    uint64_t shape[TENSOR_MAX_DIMS], *kept;
    int n = 0;

    if (want(r, JSONLEX_ARRAY, "a shape", err) < 0)
        return -1;
    while (jsonlex_next(&r->lex, err) == 0) {
        if (r->lex.token == JSONLEX_ARRAY_END) {
            kept = pool_take(&r->m->pool, (size_t)n * sizeof(*kept), sizeof(*kept));
            memcpy(kept, shape, (size_t)n * sizeof(*kept));
            t->shape = kept;
            t->ndim = n;
            return 0;
        }
        if (n == TENSOR_MAX_DIMS || r->lex.token != JSONLEX_NUMBER ||
            !str_u64(r->lex.text.s, &shape[n++]))
            return jsonlex_error(&r->lex, err, "bad shape");
    }
    return -1;
}

static int read_axes(struct reader *r, struct manifest_tensor *t, int *count,
                     struct err *err)
{
    const char *text[TENSOR_MAX_DIMS], **kept;
    int n = 0;

    if (want(r, JSONLEX_ARRAY, "axis expressions", err) < 0)
        return -1;
    while (jsonlex_next(&r->lex, err) == 0) {
        if (r->lex.token == JSONLEX_ARRAY_END) {
            kept = pool_take(&r->m->pool, (size_t)n * sizeof(*kept), sizeof(*kept));
            memcpy(kept, text, (size_t)n * sizeof(*kept));
            t->axis = kept;
            *count = n;
            return 0;
        }
        if (n == TENSOR_MAX_DIMS || r->lex.token != JSONLEX_STRING)
            return jsonlex_error(&r->lex, err, "bad axis expressions");
        text[n++] = pool_strndup(&r->m->pool, r->lex.text.s, r->lex.text.len);
    }
    return -1;
}

static int read_crcs(struct reader *r, struct manifest_tensor *t, struct err *err)
{
    size_t nparts = (size_t)r->m->nparts, words = (nparts + 63) / 64, p = 0;
    uint32_t *crc = pool_take(&r->m->pool, nparts * sizeof(*crc), sizeof(*crc));
    uint64_t *held = pool_take(&r->m->pool, words * sizeof(*held), sizeof(*held));

    memset(crc, 0, nparts * sizeof(*crc));
    memset(held, 0, words * sizeof(*held));
    if (want(r, JSONLEX_ARRAY, "an array of CRC-32s", err) < 0)
        return -1;
    for (;;) {
        if (jsonlex_next(&r->lex, err) < 0)
            return -1;
        if (r->lex.token == JSONLEX_ARRAY_END || p == nparts)
            break;
        if (r->lex.token != JSONLEX_NULL) {
            if (parse_crc(r, &crc[p], err) < 0)
                return -1;
            held[p / 64] |= UINT64_C(1) << p % 64;
        }
        p++;
    }
    if (r->lex.token != JSONLEX_ARRAY_END || p != nparts)
        return jsonlex_error(&r->lex, err, "not one CRC-32 for each of %zu parts",
                             nparts);
    t->crc = crc;
    t->held = held;
    return 0;
}

static int read_tensor(struct reader *r, struct err *err)
{
    struct manifest *m = r->m;
    struct manifest_tensor *t;
    bool typed = false;
    int naxes = 0;

    m->tensor = xgrow(m->tensor, &r->tensor_cap, m->ntensors + 1, sizeof(*m->tensor));
    t = &m->tensor[m->ntensors++];
    *t = (struct manifest_tensor){ 0 };
    while (jsonlex_next(&r->lex, err) == 0) {
        int ret;

        if (r->lex.token == JSONLEX_OBJECT_END) {
            if (!t->name || !t->role || !t->shape || !t->crc || !typed ||
                (t->axis && naxes != t->ndim))
                return jsonlex_error(&r->lex, err, "an incomplete tensor");
            return 0;
        }
        if (key_is(r, "name")) {
            ret = read_text(r, &t->name, err);
        } else if (key_is(r, "role")) {
            ret = read_text(r, &t->role, err);
        } else if (key_is(r, "dtype")) {
            ret = want(r, JSONLEX_STRING, "a dtype", err);
            typed = true;
            if (ret == 0 && !dtype_parse(&t->dtype, r->lex.text.s))
                ret = jsonlex_error(&r->lex, err, "unknown dtype '%s'", r->lex.text.s);
        } else if (key_is(r, "shape")) {
            ret = read_shape(r, t, err);
        } else if (key_is(r, "axes")) {
            ret = read_axes(r, t, &naxes, err);
        } else if (key_is(r, "crc32")) {
            ret = read_crcs(r, t, err);
        } else {
            ret = skip_value(r, err);
        }
        if (ret < 0)
            return -1;
    }
    return -1;
}

/* Reads an array of objects with ITEM. */
static int read_array(struct reader *r, int (*item)(struct reader *, struct err *),
                      struct err *err)
{
    if (!r->m->nparts)
        return jsonlex_error(&r->lex, err, "the mesh must come first");
    if (want(r, JSONLEX_ARRAY, "an array", err) < 0)
        return -1;
    while (jsonlex_next(&r->lex, err) == 0) {
        if (r->lex.token == JSONLEX_ARRAY_END)
            return 0;
        if (r->lex.token != JSONLEX_OBJECT)
            return jsonlex_error(&r->lex, err, "expected an object");
        if (item(r, err) < 0)
            return -1;
    }
    return -1;
}

static int read_format(struct reader *r, struct err *err)
{
    if (want(r, JSONLEX_STRING, "the format's name", err) < 0)
        return -1;
    return key_is(r, FORMAT) ? 0 : jsonlex_error(&r->lex, err, "not a %s", FORMAT);
}

static int read_version(struct reader *r, struct err *err)
{
    uint64_t version;

    if (read_u64(r, &version, err) < 0)
        return -1;
    if (version < MANIFEST_BY_UNIT || version > MANIFEST_VERSION)
        return jsonlex_error(&r->lex, err,
                             "version %" PRIu64 "; this program reads %d to %d",
                             version, MANIFEST_BY_UNIT, MANIFEST_VERSION);
    r->m->version = (int)version;
    return 0;
}

static int read_bool(struct reader *r, bool *out, struct err *err)
{
    if (jsonlex_next(&r->lex, err) < 0)
        return -1;
    if (r->lex.token != JSONLEX_TRUE && r->lex.token != JSONLEX_FALSE)
        return jsonlex_error(&r->lex, err, "expected true or false");
    *out = r->lex.token == JSONLEX_TRUE;
    return 0;
}

static int read_cast(struct reader *r, struct err *err)
{
    return read_bool(r, &r->m->cast, err);
}

static int read_keeping(struct reader *r, struct err *err)
{
    return read_bool(r, &r->m->keep_vocab, err);
}

static int read_padding(struct reader *r, struct err *err)
{
    return read_u64(r, &r->m->pad_vocab, err);
}

static int read_stages(struct reader *r, struct err *err)
{
    int pp = r->m->mesh[MANIFEST_AXES - 1], n = 0, *stages;

    if (!r->m->nparts)
        return jsonlex_error(&r->lex, err, "the mesh must come first");
    if (want(r, JSONLEX_ARRAY, "the layers of each stage", err) < 0)
        return -1;
    stages = pool_take(&r->m->pool, (size_t)pp * sizeof(*stages), sizeof(*stages));
    while (jsonlex_next(&r->lex, err) == 0) {
        if (r->lex.token == JSONLEX_ARRAY_END) {
            if (n < pp)
                return jsonlex_error(&r->lex, err, "fewer stages than the mesh has");
            r->m->stages = stages;
            return 0;
        }
        if (n == pp || r->lex.token != JSONLEX_NUMBER ||
            !str_int(r->lex.text.s, &stages[n]) || stages[n++] < 0)
            return jsonlex_error(&r->lex, err, "bad stage");
    }
    return -1;
}

/* Reads a CRC-32 for each shard. */
static int read_rank_configs(struct reader *r, struct err *err)
{
    size_t nparts = (size_t)r->m->nparts, n = 0;
    uint32_t *crc;

    if (!nparts)
        return jsonlex_error(&r->lex, err, "the mesh must come first");
    if (want(r, JSONLEX_ARRAY, "an array of CRC-32s", err) < 0)
        return -1;
    crc = pool_take(&r->m->pool, nparts * sizeof(*crc), sizeof(*crc));
    while (jsonlex_next(&r->lex, err) == 0) {
        if (r->lex.token == JSONLEX_ARRAY_END && n == nparts) {
            r->m->rank_config = crc;
            return 0;
        }
        if (r->lex.token == JSONLEX_ARRAY_END || n == nparts)
            return jsonlex_error(&r->lex, err, "not one CRC-32 for each of %zu parts",
                                 nparts);
        if (parse_crc(r, &crc[n++], err) < 0)
            return -1;
    }
    return -1;
}

static int read_config(struct reader *r, struct err *err)
{
    return read_text(r, &r->m->config, err);
}

/* Reads the text of the object WHAT. */
static int read_object(struct reader *r, const char *what, const char **out,
                       struct err *err)
{
    size_t start;

    if (want(r, JSONLEX_OBJECT, what, err) < 0)
        return -1;
    start = r->lex.start;
    if (jsonlex_skip(&r->lex, err) < 0)
        return -1;
    *out = pool_strndup(&r->m->pool, r->lex.begin + start, r->lex.end - start);
    return 0;
}

static int read_family(struct reader *r, struct err *err)
{
    return read_object(r, "the family", &r->m->family, err);
}

static int read_training(struct reader *r, struct err *err)
{
    return read_object(r, "a training", &r->m->training, err);
}

static int read_sources(struct reader *r, struct err *err)
{
    return read_array(r, read_source, err);
}

static int read_files(struct reader *r, struct err *err)
{
    return read_array(r, read_file, err);
}

static int read_tensors(struct reader *r, struct err *err)
{
    return read_array(r, read_tensor, err);
}

static const struct {
    const char *key;
    int (*read)(struct reader *r, struct err *err);
} members[] = {
    { "format", read_format },
    { "version", read_version },
    { "mesh", read_mesh },
    { "cast", read_cast },
    { "config", read_config },
    { "family", read_family },
    { "source", read_sources },
    { "files", read_files },
    { "tensors", read_tensors },
    { "crc32", skip_value },
    /* optional members */
    { "pad_vocab", read_padding },
    { "keep_vocab", read_keeping },
    { "rank_configs", read_rank_configs },
    { "stages", read_stages },
    { "training", read_training },
};
enum { NMEMBERS = sizeof(members) / sizeof(*members), OPTIONAL = 5 };

static int read_members(struct reader *r, struct err *err)
{
    unsigned seen = 0;

    if (want(r, JSONLEX_OBJECT, "an object", err) < 0)
        return -1;
    for (;;) {
        size_t i = 0;

        if (jsonlex_next(&r->lex, err) < 0)
            return -1;
        if (r->lex.token == JSONLEX_OBJECT_END)
            break;
        while (i < NMEMBERS && !key_is(r, members[i].key))
            i++;
        if (i == NMEMBERS) {
            if (skip_value(r, err) < 0)
                return -1;
            continue;
        }
        if (seen >> i & 1)
            return jsonlex_error(&r->lex, err, "duplicate key \"%s\"", members[i].key);
        seen |= 1u << i;
        if (members[i].read(r, err) < 0)
            return -1;
    }
    for (size_t i = 0; i < NMEMBERS - OPTIONAL; i++)
        if (!(seen >> i & 1))
            return err_set(err, ERR_INPUT, "%s: no \"%s\"", r->lex.name,
                           members[i].key);
    return want(r, JSONLEX_END, "the end", err);
}

static int check_checksum(const char *path, const char *text, size_t n, struct err *err)
{
    char tail[TAIL_LENGTH + 1];
    const char *at = text + n - TAIL_LENGTH;

    if (n < TAIL_LENGTH || memcmp(at, TAIL, TAIL_DIGITS))
        return err_set(err, ERR_INPUT,
                       "%s: does not end in its checksum: truncated or "
                       "not a checkpoint's manifest",
                       path);
    snprintf(tail, sizeof(tail), "\"crc32\":\"%08" PRIx32 "\"}\n",
             hash_crc32(0, text, n - TAIL_LENGTH));
    if (memcmp(at, tail, TAIL_LENGTH))
        return err_set(err, ERR_INPUT, "%s: its checksum does not match its text",
                       path);
    return 0;
}

/* Checks that every shard has exactly one file and no tensor occurs twice. */
static int check_parts(const struct manifest *m, const char *path, struct err *err)
{
    bool *seen = xcalloc((size_t)m->nparts, sizeof(*seen));
    int ret = 0;

    for (size_t i = 0; i < m->nfiles && ret == 0; i++) {
        int p = m->file[i].part;

        if (p >= 0 && (seen[p] || (size_t)p != i))
            ret =
                err_set(err, ERR_INPUT, "%s: part %d is listed out of order", path, p);
        if (p >= 0)
            seen[p] = true;
    }
    for (int p = 0; p < m->nparts && ret == 0; p++)
        if (!seen[p])
            ret = err_set(err, ERR_INPUT, "%s: no file for part %d", path, p);
    free(seen);
    return ret;
}

int manifest_parse(struct manifest *m, const char *path, const char *text, size_t n,
                   struct err *err)
{
    struct manifest made = { 0 };
    struct reader r = { .m = &made };
    int ret = -1;

    if (check_checksum(path, text, n, err) < 0)
        return -1;
    jsonlex_init(&r.lex, path, text, n);
    if (read_members(&r, err) == 0 && check_parts(&made, path, err) == 0) {
        *m = made;
        ret = 0;
    } else {
        manifest_clear(&made);
    }
    jsonlex_clear(&r.lex);
    return ret;
}

int manifest_read(struct manifest *m, const char *path, struct err *err)
{
    char *text;
    size_t n;
    int ret;

    if (fs_read_regular(&text, &n, path, MAX_BYTES, err) < 0)
        return -1;
    ret = manifest_parse(m, path, text, n, err);
    free(text);
    return ret;
}

void manifest_clear(struct manifest *m)
{
    free(m->source);
    free(m->file);
    free(m->tensor);
    pool_clear(&m->pool);
    *m = (struct manifest){ 0 };
}
