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

const char MANIFEST_FORMAT[] = "shardutils-checkpoint";
const char *const manifest_axes[MANIFEST_AXES] = { "tp", "sp", "ep", "dp", "pp" };
const char *const manifest_kinds[MANIFEST_KINDS] = { "master", "slot", "average" };
const char *const manifest_forms[MANIFEST_FORMS] = { "like", "rows", "columns" };

/* The checksum is the last member, has a fixed form, and covers all bytes before it. */
static const char TAIL[] = "\"crc32\":\"00000000\"}\n";
enum { TAIL_DIGITS = 9, TAIL_LENGTH = sizeof(TAIL) - 1 };
static const uint64_t MAX_BYTES = UINT64_C(4) << 30;
enum { MAX_PARTS = 1 << 20, MAX_STATES = 64 };

int manifest_nparts(const int mesh[MANIFEST_AXES])
{
    return mesh[MANIFEST_TP] * mesh[MANIFEST_EP] * mesh[MANIFEST_PP];
}

void manifest_part_coord(const int mesh[MANIFEST_AXES], int p, int coord[MANIFEST_AXES])
{
    coord[MANIFEST_TP] = p % mesh[MANIFEST_TP];
    coord[MANIFEST_SP] = 0;
    coord[MANIFEST_EP] = p / mesh[MANIFEST_TP] % mesh[MANIFEST_EP];
    coord[MANIFEST_DP] = 0;
    coord[MANIFEST_PP] = p / mesh[MANIFEST_TP] / mesh[MANIFEST_EP];
}

/* "FIRST-tp0-pp0LAST", with "-ep0" when ep > 1. */
static char *part_name_dup(const char *first, const int mesh[MANIFEST_AXES], int p,
                           const char *last)
{
    int c[MANIFEST_AXES];

    manifest_part_coord(mesh, p, c);
    if (mesh[MANIFEST_EP] > 1)
        return str_dupf("%s-tp%d-pp%d-ep%d%s", first, c[MANIFEST_TP], c[MANIFEST_PP],
                        c[MANIFEST_EP], last);
    return str_dupf("%s-tp%d-pp%d%s", first, c[MANIFEST_TP], c[MANIFEST_PP], last);
}

char *manifest_part_name_dup(const int mesh[MANIFEST_AXES], int p)
{
    return part_name_dup("rank", mesh, p, ".safetensors");
}

char *manifest_config_dir_dup(const int mesh[MANIFEST_AXES], int p)
{
    return part_name_dup("hf", mesh, p, "");
}

/* ---- reading ---- */

struct reader {
    struct jsonlex lex;
    struct manifest *m;
    size_t source_cap, file_cap, tensor_cap;
    bool listed; /* "states" was read */
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
                    return jsonlex_error(&r->lex, err, "the mesh lacks %s",
                                         manifest_axes[a]);
            r->m->nparts = manifest_nparts(r->m->mesh);
            return 0;
        }
        while (a < MANIFEST_AXES && !key_is(r, manifest_axes[a]))
            a++;
        if (a == MANIFEST_AXES)
            return jsonlex_error(&r->lex, err, "unknown axis '%s'", r->lex.text.s);
        if (r->m->mesh[a])
            return jsonlex_error(&r->lex, err, "axis %s twice", manifest_axes[a]);
        if (read_u64(r, &size, err) < 0)
            return -1;
        if (size < 1 || size > MAX_PARTS || (product *= size) > MAX_PARTS)
            return jsonlex_error(&r->lex, err, "axis %s is out of range",
                                 manifest_axes[a]);
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

/* Numbers in a form of their own: a reader without it would take them for others. */
static int refuse_format(struct reader *r, const struct manifest_tensor *t,
                         struct err *err)
{
    const char *format = NULL;

    if (read_text(r, &format, err) < 0)
        return -1;
    return jsonlex_error(&r->lex, err,
                         "tensor %s is in the format '%s', which this program does "
                         "not know",
                         t->name ? t->name : "", format);
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
        } else if (key_is(r, "format")) {
            ret = refuse_format(r, t, err);
        } else {
            ret = skip_value(r, err);
        }
        if (ret < 0)
            return -1;
    }
    return -1;
}

/* ---- training state ---- */

static int add_state(struct manifest *m, struct manifest_state state, const char *path,
                     struct err *err)
{
    if (m->nstates == MAX_STATES)
        return err_set(err, ERR_INPUT, "%s: more than %d kinds of training state", path,
                       MAX_STATES);
    m->state = xrealloc(m->state, (m->nstates + 1) * sizeof(*m->state));
    m->state[m->nstates++] = state;
    return 0;
}

static const struct manifest_state *find_state(const struct manifest_state *state,
                                               size_t n, const char *role)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(state[i].role, role))
            return &state[i];
    return NULL;
}

int manifest_list_states(struct manifest *m, const struct manifest_state *known,
                         size_t nknown, const char *path, struct err *err)
{
    for (size_t i = 0; i < m->ntensors; i++) {
        const char *role = m->tensor[i].role;
        const struct manifest_state *s = find_state(known, nknown, role);
        struct manifest_state state;

        if (!strcmp(role, "weight") || find_state(m->state, m->nstates, role))
            continue;
        state =
            (struct manifest_state){ .role = role,
                                     .kind = !strcmp(role, "master") ? MANIFEST_MASTER
                                                                     : MANIFEST_SLOT };
        if (s)
            state = *s;
        if (add_state(m, state, path, err) < 0)
            return -1;
    }
    return 0;
}

enum manifest_form manifest_form_of(const struct manifest *m, const char *role)
{
    const struct manifest_state *s = find_state(m->state, m->nstates, role);

    return s ? s->form : MANIFEST_LIKE;
}

/* Parses the current string as the kind of the state ROLE. */
/* Reads one of the N NAMES to *out: what a training state's WHAT may be. */
static int parse_name(struct reader *r, const char *const *names, int n,
                      const char *what, int *out, struct err *err)
{
    const char *name = NULL;

    if (read_text(r, &name, err) < 0)
        return -1;
    for (*out = 0; *out < n; (*out)++)
        if (!strcmp(name, names[*out]))
            return 0;
    return jsonlex_error(&r->lex, err,
                         "training state of the %s '%s', which this program does "
                         "not know",
                         what, name);
}

static int read_state(struct reader *r, struct err *err)
{
    struct manifest_state s = { .role = NULL };
    int kind = MANIFEST_KINDS, form = MANIFEST_FORMS;

    while (jsonlex_next(&r->lex, err) == 0) {
        int ret;

        if (r->lex.token == JSONLEX_OBJECT_END) {
            if (!s.role || form == MANIFEST_FORMS || kind == MANIFEST_KINDS)
                return jsonlex_error(&r->lex, err, "an incomplete state");
            s.kind = (enum manifest_kind)kind;
            s.form = (enum manifest_form)form;
            if (!strcmp(s.role, "weight") ||
                find_state(r->m->state, r->m->nstates, s.role))
                return jsonlex_error(&r->lex, err, "state '%s' twice", s.role);
            return add_state(r->m, s, r->lex.name, err);
        }
        if (key_is(r, "role"))
            ret = read_text(r, &s.role, err);
        else if (key_is(r, "kind"))
            ret = parse_name(r, manifest_kinds, MANIFEST_KINDS, "kind", &kind, err);
        else if (key_is(r, "form"))
            ret = parse_name(r, manifest_forms, MANIFEST_FORMS, "form", &form, err);
        else
            ret = skip_value(r, err);
        if (ret < 0)
            return -1;
    }
    return -1;
}

/* In version 3 every role of a tensor is listed; before, none is. */
static int check_states(struct reader *r, struct err *err)
{
    struct manifest *m = r->m;
    const char *path = r->lex.name;

    if (m->version < MANIFEST_VERSION)
        return r->listed ? err_set(err, ERR_INPUT,
                                   "%s: \"states\" in a manifest of version %d", path,
                                   m->version)
                         : manifest_list_states(m, NULL, 0, path, err);
    for (size_t i = 0; i < m->ntensors; i++)
        if (strcmp(m->tensor[i].role, "weight") != 0 &&
            !find_state(m->state, m->nstates, m->tensor[i].role))
            return err_set(err, ERR_INPUT,
                           "%s: %s: its role '%s' is none of \"states\"", path,
                           m->tensor[i].name, m->tensor[i].role);
    for (size_t i = 0; i < m->ntensors && m->nbase; i++)
        if (!strcmp(m->tensor[i].role, "weight"))
            return err_set(err, ERR_INPUT,
                           "%s: %s: a weight beside a \"base\", which has the weights",
                           path, m->tensor[i].name);
    return 0;
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
    return key_is(r, MANIFEST_FORMAT)
               ? 0
               : jsonlex_error(&r->lex, err, "not a %s", MANIFEST_FORMAT);
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

static int read_states(struct reader *r, struct err *err)
{
    r->listed = true;
    return read_array(r, read_state, err);
}

static int read_bases(struct reader *r, struct err *err)
{
    struct manifest of_base = { .nparts = 1 }, *m = r->m;
    size_t cap = r->file_cap;
    int ret;

    r->m = &of_base;
    r->file_cap = 0;
    ret = read_array(r, read_file, err);
    r->m = m;
    r->file_cap = cap;
    if (ret == 0) {
        for (size_t i = 0; i < of_base.nfiles; i++)
            of_base.file[i].name = pool_strdup(&m->pool, of_base.file[i].name);
        m->base = of_base.file;
        m->nbase = of_base.nfiles;
        of_base.file = NULL;
    }
    manifest_clear(&of_base);
    return ret;
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
    { "states", read_states },
    { "base", read_bases },
};
enum { NMEMBERS = sizeof(members) / sizeof(*members), OPTIONAL = 7 };

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
    if (read_members(&r, err) == 0 && check_parts(&made, path, err) == 0 &&
        check_states(&r, err) == 0) {
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
    free(m->state);
    free(m->base);
    pool_clear(&m->pool);
    *m = (struct manifest){ 0 };
}
