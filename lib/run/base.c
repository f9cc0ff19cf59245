/* base - the model beside which an adapter was trained */
#include "lib/run/base.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/hash.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/run/adapterconfig.h"

static int sum_file(uint32_t *crc, const char *path, struct err *err)
{
    enum { CHUNK = 1 << 20 };
    int fd = fs_open_regular(path, err), ret = 0;
    char *buf;
    ssize_t n;

    if (fd < 0)
        return -1;
    buf = xmalloc(CHUNK);
    *crc = 0;
    while ((n = read(fd, buf, CHUNK)) > 0)
        *crc = hash_crc32(*crc, buf, (size_t)n);
    if (n < 0)
        ret = err_errno(err, "%s", path);
    close(fd);
    free(buf);
    return ret;
}

/* File I of C, without its CRC-32 unless that is known: then true. */
static bool list_file(struct manifest_file *out, const struct checkpoint *c, size_t i)
{
    const struct manifest *m = &c->manifest;

    if (!c->sharded) {
        const struct source_input *f = &c->source.input[i];

        *out = (struct manifest_file){ f->name, f->size, 0, -1 };
        return false;
    }
    *out = m->training ? m->file[i]
           : m->source[i].origin
               ? (struct manifest_file){ m->source[i].origin, m->source[i].origin_size,
                                         m->source[i].origin_crc, -1 }
               : (struct manifest_file){ m->source[i].name, m->source[i].size,
                                         m->source[i].crc, -1 };
    return true;
}

static size_t count_files(const struct checkpoint *c)
{
    const struct manifest *m = &c->manifest;

    return !c->sharded   ? c->source.ninputs - c->replaced
           : m->training ? (size_t)m->nparts
                         : m->nsources;
}

int base_identify(struct manifest_file **out, size_t *n, struct pool *pool,
                  const struct checkpoint *c, struct err *err)
{
    size_t count = count_files(c);
    struct manifest_file *file = xcalloc(count + 1, sizeof(*file));

    for (size_t i = 0; i < count; i++) {
        bool known = list_file(&file[i], c, i);

        file[i].name = pool_strdup(pool, file[i].name);
        file[i].part = -1;
        if (!known && sum_file(&file[i].crc, c->source.input[i].path, err) < 0) {
            free(file);
            return -1;
        }
    }
    *out = file;
    *n = count;
    return 0;
}

static int differs(const char *dir, const struct manifest_file *want,
                   const struct checkpoint *c, const char *how, struct err *err)
{
    return err_set(err, ERR_INPUT,
                   "%s: was trained beside another model than %s: %s %s; its %s had "
                   "%" PRIu64 " bytes with the CRC-32 %08" PRIx32,
                   dir, c->path, want->name, how, want->name, want->size, want->crc);
}

static int compare(const struct manifest *m, const struct checkpoint *c,
                   const char *dir, struct err *err)
{
    size_t n = count_files(c);

    for (int pass = 0; pass < 2; pass++)
        for (size_t k = 0; k < m->nbase; k++) {
            const struct manifest_file *want = &m->base[k];
            struct manifest_file file = { 0 };
            bool known = false, found = false;
            size_t i = 0;

            for (; i < n && !found; i++) {
                known = list_file(&file, c, i);
                found = !strcmp(file.name, want->name);
            }
            if (!found)
                return differs(dir, want, c, "is not there", err);
            if (file.size != want->size)
                return differs(dir, want, c, "has another size", err);
            if (!pass)
                continue;
            if (!known && sum_file(&file.crc, c->source.input[i - 1].path, err) < 0)
                return -1;
            if (file.crc != want->crc)
                return differs(dir, want, c, "has another content", err);
        }
    return 0;
}

int base_check(const struct checkpoint *c, const char *dir, struct err *err)
{
    char *path = fs_join_dup(dir, MANIFEST_NAME);
    struct manifest m;
    bool found;
    int ret = fs_find(&found, path, err);

    if (ret == 0 && found && !c->drawn) {
        ret = manifest_read(&m, path, err);
        if (ret == 0) {
            ret = compare(&m, c, dir, err);
            manifest_clear(&m);
        }
    }
    free(path);
    return ret;
}

int base_is_adapter(bool *is, const char *path, struct err *err)
{
    bool dir, adapter = false, config = false;

    *is = false;
    if (fs_find_dir(&dir, path, err) < 0)
        return -1;
    if (!dir)
        return 0;
    if (fs_find_in(&adapter, path, "adapter_config.json", err) < 0 ||
        fs_find_in(&config, path, "config.json", err) < 0)
        return -1;
    *is = adapter && !config;
    return 0;
}

int base_find(char **out, const char *dir, struct err *err)
{
    char *path = fs_join_dup(dir, "adapter_config.json");
    struct adapter_config config;
    const char *base;
    bool found = false;
    int ret = adapter_config_read(&config, path, err);

    if (ret < 0)
        goto out;
    base = adapter_config_base(&config);
    if (!base || !*base) {
        ret = err_set(err, ERR_INPUT,
                      "%s: an adapter, which names no base_model_name_or_path: give "
                      "its model with --base",
                      dir);
        goto out;
    }
    ret = fs_find(&found, base, err);
    if (ret == 0 && !found)
        ret = err_set(err, ERR_INPUT,
                      "%s: an adapter of %s, which is not here: give its model with "
                      "--base",
                      dir, base);
    if (ret == 0)
        *out = xstrdup(base);
out:
    adapter_config_clear(&config);
    free(path);
    return ret;
}
