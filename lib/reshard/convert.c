/* convert - splits, merges or reshards a checkpoint in one pass
 *
 * Tensors are copied in the order of the source's files and data, each read once.
 * After each tensor a journal line records its number and the CRC-32s that were
 * computed.  A later run trusts a line only after it has read the written bytes
 * back. */
#include "lib/reshard/convert.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/hash.h"
#include "lib/base/jsonlex.h"
#include "lib/base/mem.h"
#include "lib/ckpt/outdir.h"
#include "lib/ckpt/safetensors.h"
#include "lib/reshard/describe.h"
#include "lib/reshard/partset.h"
#include "lib/reshard/rankconfig.h"
#include "lib/reshard/smallfile.h"
#include "lib/reshard/target.h"

enum { READ_BACK = 1 << 20, SAMPLES = 8, SAMPLE = 1 << 12 };

struct convert {
    const struct convert_options *opt;
    struct convert_result *result;
    struct outdir out;
    struct target to;
    struct rankconfig configs;
    uint32_t *whole_crc; /* [ntensors] of the bytes read, from an unsharded
                          * source */
    uint32_t *share;     /* [ntensors * nshares] of some rank files: cut.h */
    size_t nshares;
    uint32_t
        sample; /* CRC-32 of some bytes of each input, when files are made by jobs */
    struct manifest_file *small; /* small files; names borrowed from the source */
    size_t nsmall;
};

/* ---- small files ---- */

/* The type of the weights after a merge, if it differs from the original's; else
 * NULL. */
static const enum dtype *merged_type(const struct convert *c)
{
    const struct checkpoint *k = c->to.from;

    if (c->opt->mesh || c->opt->dtype || (k->sharded && !k->manifest.cast))
        return c->opt->mesh ? NULL : c->opt->dtype;
    for (size_t i = 0; i < k->ntensors; i++)
        if (k->which[i] >= 0 && dtype_is_float(c->to.dtype[i]) &&
            dtype_bits(c->to.dtype[i]) >= 16)
            return &c->to.dtype[i];
    return NULL;
}

/* Writes F and lists it. */
static int write_small(struct convert *c, struct smallfile *f, struct err *err)
{
    c->small[c->nsmall++] = (struct manifest_file){ f->name, f->n, f->crc, -1 };
    return outdir_write(&c->out, f->name, f->text, f->n, f->mode, err);
}

static int copy_small(struct convert *c, size_t i, struct err *err)
{
    const enum dtype *type = merged_type(c);
    struct smallfile f;
    int ret;

    if (c->opt->change && str_starts(smallfile_name(c->to.from, i), "adapter_"))
        return 0; /* the one that is merged would be applied again */
    if (smallfile_read(&f, c->to.from, i, err) < 0)
        return -1;
    if (type && !strcmp(f.name, "config.json"))
        smallfile_retype(&f, *type);
    ret = write_small(c, &f, err);
    smallfile_clear(&f);
    return ret;
}

static int copy_all_small(struct convert *c, struct err *err)
{
    size_t n = smallfile_count(c->to.from);
    struct smallfile index;
    int ret = 0;

    c->small = xcalloc(n + 1, sizeof(*c->small));
    for (size_t i = 0; i < n; i++)
        if (copy_small(c, i, err) < 0)
            return -1;
    if (smallfile_index(&index, c->to.from))
        ret = write_small(c, &index, err);
    smallfile_clear(&index);
    return ret;
}

/* ---- the journal ---- */

/* Takes a sample of an unsharded source: SAMPLES places of each input, the first and
 * the last bytes among them.  Jobs that make parts of one output do not compare times,
 * and a checkpoint that was overwritten between them has the same names and sizes. */
static int take_sample(struct convert *c, struct err *err)
{
    const struct checkpoint *k = c->to.from;
    char buf[SAMPLE];

    for (size_t i = 0; !k->sharded && i < k->source.ninputs; i++) {
        const struct source_input *in = &k->source.input[i];
        size_t n = in->size < SAMPLE ? (size_t)in->size : SAMPLE;
        uint64_t step = (in->size - n) / (SAMPLES - 1);
        int fd = fs_open_regular(in->path, err), ret = fd < 0 ? -1 : 0;

        for (int s = 0; s < SAMPLES && ret == 0; s++) {
            uint64_t at = s + 1 < SAMPLES ? step * (uint64_t)s : in->size - n;

            ret = fs_pread(fd, buf, n, at, in->path, err);
            if (ret == 0)
                c->sample = hash_crc32(c->sample, buf, n);
        }
        if (fd >= 0)
            close(fd);
        if (ret < 0)
            return -1;
    }
    return 0;
}

/* A line that identifies the request: the source and the output.  ANYWHERE: also of a
 * copy of the source on another machine, whose files have other times. */
static char *identity_dup(const struct convert *c, bool anywhere)
{
    const struct checkpoint *k = c->to.from;
    struct str s = { 0 };

    str_addf(&s, "%s %s version=%d", c->opt->mesh ? "cut" : "merge",
             k->sharded ? "sharded" : "whole", MANIFEST_VERSION);
    if (c->opt->some && !anywhere)
        str_addf(&s, " files=%d-%d", c->opt->first, c->opt->last);
    for (int a = 0; c->opt->mesh && a < MESH_NAXES; a++)
        str_addf(&s, " %s=%d", mesh_axis_names[a], c->to.mesh.size[a]);
    for (int i = 0; c->opt->mesh && c->to.mesh.stages && i < c->to.mesh.size[MESH_PP];
         i++)
        str_addf(&s, "%s%d", i ? "," : " stages=", c->to.mesh.stages[i]);
    if (c->opt->mesh && c->to.mesh.pad_vocab)
        str_addf(&s, " pad_vocab=%" PRIu64, c->to.mesh.pad_vocab);
    if (c->opt->mesh && c->to.mesh.keep_vocab)
        str_add(&s, " keep_vocab");
    if (c->opt->rank_configs)
        str_add(&s, " rank_configs");
    if (k->averaged)
        str_add(&s, " average");
    if (c->opt->change)
        str_addf(&s, " %s", c->opt->change->identity);
    str_addf(&s, " dtype=%s", c->opt->dtype ? dtype_name(*c->opt->dtype) : "kept");
    if (k->model)
        str_addf(&s, " family=%08" PRIx32,
                 hash_crc32(0, model_family_text(k->model),
                            strlen(model_family_text(k->model))));
    for (size_t i = 0; !k->sharded && i < k->source.ninputs; i++) {
        str_addc(&s, ' ');
        str_add_json(&s, k->source.input[i].name);
        str_addf(&s, ":%" PRIu64, k->source.input[i].size);
        if (!anywhere)
            str_addf(&s, ":%" PRId64, k->source.input[i].mtime_ns);
    }
    if (!k->sharded && anywhere)
        str_addf(&s, " contents=%08" PRIx32, c->sample);
    if (!k->sharded && k->source.config)
        str_addf(&s, " config=%08" PRIx32,
                 hash_crc32(0, k->source.config, strlen(k->source.config)));
    for (size_t i = 0; k->sharded && i < k->manifest.nfiles; i++) {
        str_addc(&s, ' ');
        str_add_json(&s, k->manifest.file[i].name);
        str_addf(&s, ":%" PRIu64 ":%08" PRIx32, k->manifest.file[i].size,
                 k->manifest.file[i].crc);
    }
    return str_steal(&s);
}

/* A line that identifies the exact state of the source's files.  The identity has sizes
 * and modification times; a change with the old time restored still changes the inode
 * or its change time. */
static char *stamp_dup(const struct convert *c)
{
    const struct checkpoint *k = c->to.from;
    struct str s = { 0 };

    str_add(&s, "files");
    for (size_t i = 0; !k->sharded && i < k->source.ninputs; i++)
        str_addf(&s, " %" PRIu64 ":%" PRId64, k->source.input[i].inode,
                 k->source.input[i].ctime_ns);
    return str_steal(&s);
}

static int note_tensor(struct convert *c, size_t i, struct err *err)
{
    struct str s = { 0 };
    int ret;

    str_addf(&s, "%zu %08" PRIx32, i, c->whole_crc[i]);
    for (int p = 0; p < c->to.nparts; p++)
        if (target_place(&c->to, i, p) != TARGET_NOT_THERE)
            str_addf(&s, " %08" PRIx32,
                     c->to.crc[i * (size_t)c->to.nparts + (size_t)p]);
    for (size_t k = 0; k < c->nshares; k++)
        str_addf(&s, " %08" PRIx32, c->share[i * c->nshares + k]);
    ret = outdir_note(&c->out, s.s, err);
    str_clear(&s);
    return ret;
}

/* Reads a hexadecimal word of the journal at *s; false when there is none. */
static bool take_word(const char **s, uint32_t *out)
{
    char *end;
    unsigned long value;

    if (**s != ' ')
        return false;
    value = strtoul(*s + 1, &end, 16);
    if (end != *s + 9)
        return false;
    *s = end;
    *out = (uint32_t)value;
    return true;
}

/* The number of the file with tensor I of part P. */
static size_t file_number(const struct convert *c, size_t i, int p)
{
    return (size_t)(target_file(&c->to, i, p) - c->to.file);
}

/* Do the bytes of tensor I in shard P match CRC? */
static bool written_before(struct convert *c, size_t i, int p, uint32_t crc, char *buf)
{
    struct target_file *f = target_file(&c->to, i, p);
    uint64_t bytes, at = target_place(&c->to, i, p);
    uint32_t found = 0;
    bool held;

    if (target_part_bytes(&c->to, i, p, &bytes, &held, NULL) < 0)
        return false;
    for (uint64_t done = 0; done < bytes;) {
        size_t n = bytes - done < READ_BACK ? (size_t)(bytes - done) : READ_BACK;

        if (fs_pread(f->fd, buf, n, at + done, f->path, NULL) < 0)
            return false;
        found = hash_crc32(found, buf, n);
        done += n;
    }
    if (found != crc)
        return false;
    c->to.crc[i * (size_t)c->to.nparts + (size_t)p] = crc;
    c->to.done += bytes;
    return true;
}

static int discard(void *arg, int part, uint64_t offset, void *buf, size_t n,
                   struct err *err)
{
    (void)arg;
    (void)part;
    (void)offset;
    (void)buf;
    (void)n;
    (void)err;
    return 0;
}

/* Does the source still have the bytes of tensor I that were copied? */
static bool read_before(struct convert *c, struct cut *cut, size_t i)
{
    const struct cut_side nowhere = { .nparts = 1, .io = discard };
    struct checkpoint *k = c->to.from;
    uint32_t crc = 0;

    return k->sharded || (checkpoint_copy(k, cut, i, k->tensor[i].dtype, &nowhere, &crc,
                                          NULL, NULL, NULL) == 0 &&
                          crc == c->whole_crc[i]);
}

/* Is LINE of the journal valid and true?  Then its tensor is *I. */
static bool holds(struct convert *c, struct cut *cut, const char *line, char *buf,
                  size_t *i)
{
    char *end;
    const char *s;
    uint32_t crc;

    *i = strtoul(line, &end, 10);
    s = end;
    if (end == line || *i >= c->to.n || !take_word(&s, &c->whole_crc[*i]))
        return false;
    for (int p = 0; p < c->to.nparts; p++)
        if (target_place(&c->to, *i, p) != TARGET_NOT_THERE &&
            (!take_word(&s, &crc) || (target_wants(&c->to, file_number(c, *i, p)) &&
                                      !written_before(c, *i, p, crc, buf))))
            return false;
    for (size_t k = 0; k < c->nshares; k++)
        if (!take_word(&s, &c->share[*i * c->nshares + k]))
            return false;
    return !c->out.touched || (!c->share && read_before(c, cut, *i));
}

/* Sets DONE[i] for each tensor that a valid journal line of an earlier run covers. */
static int take_up(struct convert *c, struct cut *cut, bool *done, struct err *err)
{
    char *buf = xmalloc(READ_BACK);
    int ret = 0;

    for (const char *line = c->out.done; *line && ret == 0;
         line = strchr(line, '\n') + 1) {
        uint64_t before = c->to.done;
        size_t i;

        if (!holds(c, cut, line, buf, &i)) {
            c->to.done = before;
            continue;
        }
        done[i] = true;
        if (c->out.touched)
            ret = note_tensor(c, i, err);
    }
    c->result->continued = c->to.done;
    free(buf);
    return ret;
}

/* ---- copying ---- */

/* Copies tensor I to the files that are made. */
static int copy_tensor(struct convert *c, struct cut *cut, size_t i, struct err *err)
{
    uint32_t *to_crc = &c->to.crc[i * (size_t)c->to.nparts];

    c->to.tensor = i;
    if (c->share)
        return checkpoint_copy_wanted(c->to.from, cut, i, c->to.dtype[i], &c->to.side,
                                      &c->share[i * c->nshares], to_crc,
                                      &c->result->overflows, err);
    return checkpoint_copy(c->to.from, cut, i, c->to.dtype[i], &c->to.side,
                           &c->whole_crc[i], to_crc, &c->result->overflows, err);
}

static int copy_tensors(struct convert *c, struct err *err)
{
    bool *done = xcalloc(c->to.from->ntensors, sizeof(*done));
    struct cut *cut = cut_new();
    int ret = -1;

    if (take_up(c, cut, done, err) < 0)
        goto out;
    for (size_t i = 0; i < c->to.n; i++) {
        if (done[i] || (!c->opt->mesh && !target_wants(&c->to, file_number(c, i, 0))))
            continue;
        if (copy_tensor(c, cut, i, err) < 0 || note_tensor(c, i, err) < 0)
            goto out;
    }
    ret = 0;
out:
    cut_free(cut);
    free(done);
    return ret;
}

/* The CRC-32 of the unsharded source's file F, given its raw header. */
static uint32_t source_crc(void *arg, size_t f, const char *header, size_t n)
{
    const struct convert *c = arg;
    const struct checkpoint *k = c->to.from;
    unsigned char length[8];
    uint32_t crc;

    safetensors_put_length(length, n);
    crc = hash_crc32(hash_crc32(0, length, sizeof(length)), header, n);
    for (size_t i = 0; i < k->nweights; i++)
        if (k->tensor[i].file == (int)f)
            crc = hash_crc32_join(crc, c->whole_crc[i], k->tensor[i].size);
    return crc;
}

/* ---- the manifest ---- */

static int add_sources(struct convert *c, struct manifest *m, struct err *err)
{
    const struct checkpoint *k = c->to.from;

    if (describe_sources(m, k, source_crc, c, err) < 0)
        return -1;
    for (size_t f = 0; !k->sharded && f < m->nsources; f++)
        if (m->source[f].origin && (!c->opt->some || !c->opt->first) &&
            source_crc32(&m->source[f].origin_crc, &k->source, f, err) < 0)
            return -1;
    return 0;
}

static int add_files(struct convert *c, struct manifest *m, struct err *err)
{
    m->file = xcalloc(c->to.nfiles + c->nsmall, sizeof(*m->file));
    for (size_t f = 0; f < c->to.nfiles; f++) {
        m->file[f] =
            (struct manifest_file){ c->to.file[f].name, c->to.file[f].size, 0, (int)f };
        if (target_wants(&c->to, f) && target_crc(&c->to, f, &m->file[f].crc, err) < 0)
            return -1;
    }
    if (c->nsmall)
        memcpy(m->file + c->to.nfiles, c->small, c->nsmall * sizeof(*c->small));
    m->nfiles = c->to.nfiles + c->nsmall;
    return 0;
}

static void add_tensors(struct convert *c, struct manifest *m)
{
    const struct checkpoint *k = c->to.from;

    m->tensor = xcalloc(k->ntensors, sizeof(*m->tensor));
    for (size_t i = 0; i < k->ntensors; i++) {
        struct manifest_tensor *t = &m->tensor[m->ntensors++];
        uint64_t *held = describe_held(m);

        for (int p = 0; p < c->to.nparts; p++)
            if (target_place(&c->to, i, p) != TARGET_NOT_THERE)
                held[p / 64] |= UINT64_C(1) << p % 64;
        *t = (struct manifest_tensor){ .name = k->tensor[i].name,
                                       .role = checkpoint_role(k, i),
                                       .shape = k->tensor[i].shape,
                                       .axis = describe_axes(m, k, i,
                                                             checkpoint_lacks(k, i)),
                                       .crc = &c->to.crc[i * (size_t)c->to.nparts],
                                       .held = held,
                                       .dtype = c->to.dtype[i],
                                       .ndim = k->tensor[i].ndim };
    }
}

static int write_manifest(struct convert *c, struct err *err)
{
    const struct checkpoint *k = c->to.from;
    struct manifest m = { .nparts = c->to.nparts,
                          .stages = c->to.mesh.stages,
                          .pad_vocab = c->to.mesh.pad_vocab,
                          .keep_vocab = c->to.mesh.keep_vocab,
                          .training = k->sharded ? k->manifest.training : NULL,
                          .cast = c->opt->dtype || (k->sharded && k->manifest.cast),
                          .config = k->sharded ? k->manifest.config : k->source.config,
                          .family = model_family_text(k->model),
                          .rank_config = c->configs.crc };
    int ret = -1;

    memcpy(m.mesh, c->to.mesh.size, sizeof(m.mesh));
    if (add_sources(c, &m, err) == 0 && add_files(c, &m, err) == 0) {
        add_tensors(c, &m);
        ret = manifest_list_states(&m, k->manifest.state, k->manifest.nstates, k->path,
                                   err);
    }
    if (ret == 0)
        ret =
            describe_write(&m, &c->out, c->opt->some ? PARTSET_MANIFEST : MANIFEST_NAME,
                           checkpoint_mode(k), err);
    manifest_clear(&m);
    return ret;
}

/* ---- the whole ---- */

/* If neither types nor values were ever changed, a merge must reproduce the original's
 * files exactly. */
static int check_merged(struct convert *c, struct err *err)
{
    for (size_t f = 0; f < c->to.nfiles; f++) {
        const struct manifest_source *s = &c->to.from->manifest.source[f];
        uint32_t crc;

        if (!target_wants(&c->to, f))
            continue;
        if (target_crc(&c->to, f, &crc, err) < 0)
            return -1;
        if (crc != s->crc)
            return err_set(err, ERR_INPUT,
                           "%s: %s would have the CRC-32 %08" PRIx32
                           " where the original had %08" PRIx32,
                           c->to.from->path, s->name, crc, s->crc);
    }
    return 0;
}

/* Records what this part has. */
static int write_record(struct convert *c, struct err *err)
{
    char *request = identity_dup(c, true);
    struct partset_record r = { .request = request,
                                .first = c->opt->first,
                                .last = c->opt->last,
                                .of = (int)c->to.nfiles,
                                .file =
                                    xcalloc(c->to.nfiles + c->nsmall, sizeof(*r.file)),
                                .share = c->share,
                                .ntensors = c->share ? c->to.from->ntensors : 0,
                                .nshares = c->nshares };
    int ret = 0;

    for (size_t f = 0; f < c->to.nfiles && ret == 0; f++) {
        struct partset_file *to = &r.file[r.nfiles];

        if (!target_wants(&c->to, f))
            continue;
        *to = (struct partset_file){ .name = c->to.file[f].name,
                                     .size = c->to.file[f].size };
        ret = target_crc(&c->to, f, &to->crc, err);
        r.nfiles++;
    }
    for (size_t i = 0; i < c->nsmall; i++)
        r.file[r.nfiles++] = (struct partset_file){ c->small[i].name, c->small[i].size,
                                                    c->small[i].crc, true };
    if (ret == 0)
        ret = partset_write(&c->out, &r, err);
    free(r.file);
    free(request);
    return ret;
}

/* Does the output PATH have all files that are to be made, with their headers? */
static int find_made(struct convert *c, bool *made, const char *path, struct err *err)
{
    *made = true;
    for (size_t f = 0; f < c->to.nfiles && *made; f++) {
        const struct target_file *t = &c->to.file[f];
        char *file = fs_join_dup(path, t->name), *header = NULL;
        uint64_t size = 0;
        size_t n = 0;
        int ret = fs_find(made, file, err);

        if (ret == 0 && *made)
            ret = fs_size(&size, file, err);
        if (ret == 0 && *made)
            ret = fs_read_part(&header, &n, file, 0, t->header_size, err);
        if (ret == 0)
            *made = *made && size == t->size && n == t->header_size &&
                    hash_crc32(0, header, n) == t->header_crc;
        free(header);
        free(file);
        if (ret < 0)
            return -1;
    }
    return 0;
}

/* Is the part, or the whole output, there already? */
static int find_earlier(struct convert *c, const char *path, const char *part,
                        struct err *err)
{
    char *request = identity_dup(c, true);
    bool made, out;
    int ret = partset_is_made(&made, part, request, err);

    free(request);
    if (ret < 0 || fs_find(&out, path, err) < 0)
        return -1;
    if (out && !c->opt->force && find_made(c, &c->result->there, path, err) < 0)
        return -1;
    c->result->there |= made;
    return 0;
}

/* What is still missing of PATH after a part was made; puts it together if nothing is.
 */
static int gather(struct convert *c, const char *path, struct err *err)
{
    struct partset_result r;
    bool parts = true;
    char *part, *dir;
    int ret = 0;

    if (c->result->there) { /* of a complete output no parts are left */
        part = partset_part_dup(path, 0, 0);
        dir = fs_dirname_dup(part);
        ret = fs_find(&parts, dir, err);
        free(part);
        free(dir);
    }
    if (ret < 0 || !parts)
        return ret;
    if (partset_gather(&r, path, NULL, 0, c->opt->force, err) < 0)
        return -1;
    c->result->waits = !r.done;
    c->result->of = r.of;
    memcpy(c->result->missing, r.missing, sizeof(r.missing));
    return 0;
}

/* Names of the files that an earlier output may have, for outdir_open; the caller frees
 * the array. */
static const char **output_names(const struct convert *c, size_t *n)
{
    const struct checkpoint *k = c->to.from;
    size_t small = smallfile_count(k);
    size_t sources = k->sharded ? k->manifest.nsources : k->source.nfiles;
    const char **names = xmalloc((small + sources + c->to.nfiles + 2) * sizeof(*names));

    *n = 0;
    for (size_t i = 0; i < small; i++)
        names[(*n)++] = smallfile_name(k, i);
    for (size_t i = 0; !c->opt->mesh && i < sources; i++)
        names[(*n)++] =
            k->sharded ? k->manifest.source[i].name : k->source.file[i].name;
    for (size_t i = 0; c->opt->some && i < c->to.nfiles; i++)
        names[(*n)++] = c->to.file[i].name;
    if (c->opt->some) {
        names[(*n)++] = PARTSET_RECORD;
        names[(*n)++] = PARTSET_MANIFEST;
    }
    return names;
}

static int open_output(struct convert *c, const char *path, struct err *err)
{
    size_t n;
    const char **names = output_names(c, &n);
    char *identity = identity_dup(c, false), *stamp = stamp_dup(c);
    int ret = c->opt->dry ? outdir_check(path, c->opt->force, names, n, err)
                          : outdir_open(&c->out, path, identity, stamp, c->opt->force,
                                        names, n, err);

    free(identity);
    free(stamp);
    free(names);
    return ret;
}

static void clear(struct convert *c)
{
    target_clear(&c->to);
    rankconfig_clear(&c->configs);
    free(c->whole_crc);
    free(c->share);
    free(c->small);
    outdir_close(&c->out);
}

/* Why CKPT cannot be converted as OPT says. */
static int check_request(const struct checkpoint *ckpt,
                         const struct convert_options *opt, struct err *err)
{
    if (!ckpt->model)
        return err_set(err, ERR_INPUT, "%s: a single file has no config.json to cut by",
                       ckpt->path);
    if (!opt->mesh && !opt->change && !ckpt->sharded &&
        source_is_safetensors(&ckpt->source))
        return err_set(err, ERR_INPUT, "%s: not a sharded checkpoint (no %s)",
                       ckpt->path, MANIFEST_NAME);
    if (opt->dtype && model_code_bits(ckpt->model))
        return err_set(err, ERR_INPUT,
                       "%s: its weights are stored in %d bits, which have no type %s; "
                       "tp-shard merge gives them back",
                       ckpt->path, model_code_bits(ckpt->model),
                       dtype_name(*opt->dtype));
    return 0;
}

/* May the output PATH be made of parts? */
static int check_whole(const struct convert *c, const char *path, struct err *err)
{
    size_t n;
    const char **names = output_names(c, &n);
    int ret = outdir_check(path, c->opt->force, names, n, err);

    free(names);
    return ret < 0 || c->opt->dry ? ret : partset_prepare(path, err);
}

/* Lays out the files and opens the output PATH, or PART of it. */
static int begin(struct convert *c, const char *path, const char *part, struct err *err)
{
    struct checkpoint *k = c->to.from;

    if (checkpoint_open_files(k, -1, err) < 0 || checkpoint_spares(k, path, err) < 0)
        return -1;
    if (c->opt->some &&
        (target_begin(&c->to, NULL, err) < 0 || take_sample(c, err) < 0))
        return -1;
    if (c->opt->some && (find_earlier(c, path, part, err) < 0 || c->result->there))
        return c->result->there ? 0 : -1;
    if (c->opt->some && check_whole(c, path, err) < 0)
        return -1;
    if (open_output(c, part ? part : path, err) < 0)
        return -1;
    return target_begin(&c->to, c->opt->dry ? NULL : &c->out, err);
}

static int write_all(struct convert *c, struct err *err)
{
    const struct checkpoint *k = c->to.from;

    if (copy_tensors(c, err) < 0 || checkpoint_unchanged(k, err) < 0 ||
        copy_all_small(c, err) < 0 ||
        (c->opt->rank_configs && rankconfig_write(&c->configs, &c->out, err) < 0))
        return -1;
    if (!c->opt->mesh && k->sharded && !c->opt->dtype && !c->opt->change &&
        !k->manifest.cast && !k->manifest.training && check_merged(c, err) < 0)
        return -1;
    if (target_sync(&c->to, err) < 0 || (c->opt->mesh && write_manifest(c, err) < 0) ||
        (c->opt->some && write_record(c, err) < 0))
        return -1;
    return outdir_finish(&c->out, err);
}

int convert(struct checkpoint *ckpt, const char *path,
            const struct convert_options *opt, struct convert_result *result,
            struct err *err)
{
    struct convert c = { .opt = opt,
                         .result = result,
                         .out = { .dir = -1, .journal = -1 } };
    char *part = opt->some ? partset_part_dup(path, opt->first, opt->last) : NULL;
    int ret = -1;

    *result = (struct convert_result){ 0 };
    if (check_request(ckpt, opt, err) < 0)
        goto out;
    if (target_init(&c.to, ckpt, opt->mesh, opt->dtype, err) < 0 ||
        (opt->rank_configs && rankconfig_make(&c.configs, ckpt, opt->mesh, err) < 0))
        goto out;
    if (opt->some)
        target_choose(&c.to, opt->first, opt->last);
    if (opt->some && opt->mesh) {
        c.nshares = ckpt->sharded ? (size_t)ckpt->manifest.nparts : 1;
        c.share = xcalloc(ckpt->ntensors * c.nshares + 1, sizeof(*c.share));
    }
    c.to.change = opt->change;
    c.to.progress = opt->progress;
    c.to.arg = opt->arg;
    c.whole_crc = xcalloc(ckpt->ntensors, sizeof(*c.whole_crc));
    if (begin(&c, path, part, err) < 0)
        goto out;
    if (!opt->dry && !result->there && write_all(&c, err) < 0)
        goto out;
    result->bytes = c.to.total;
    ret = opt->some && !opt->dry ? gather(&c, path, err) : 0;
out:
    clear(&c);
    free(part);
    return ret;
}
