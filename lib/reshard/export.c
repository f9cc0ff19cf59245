/* export - writes a checkpoint in the format of other frameworks */
#include "lib/reshard/export.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/ckpt/dcp.h"
#include "lib/ckpt/outdir.h"

struct export
{
    struct checkpoint *ckpt;
    const struct convert_options *opt;
    struct convert_result *result;
    struct outdir out;
    struct dcp_item *item; /* [ntensors] */
    struct dcp_item *now;  /* being written */
    char *path;            /* of the file of items */
    int fd;
    uint64_t total, done;
};

static int write_item(void *arg, int part, uint64_t offset, void *buf, size_t n,
                      struct err *err)
{
    struct export *x = arg;

    (void)part;
    if (fs_pwrite(x->fd, buf, n, x->now->data + offset, x->path, err) < 0)
        return -1;
    x->done += n;
    if (x->opt->progress)
        x->opt->progress(x->opt->arg, x->done, x->total);
    return 0;
}

static int lay_out(struct export *x, struct err *err)
{
    const struct checkpoint *c = x->ckpt;
    uint64_t end = 0;

    x->item = xcalloc(c->nweights + 1, sizeof(*x->item));
    for (size_t i = 0; i < c->nweights; i++) {
        enum dtype t = c->tensor[i].dtype;
        bool cast = x->opt->dtype && c->which[i] >= 0 && dtype_is_float(t) &&
                    dtype_bits(t) >= 16;

        x->item[i] = (struct dcp_item){ .name = c->tensor[i].name,
                                        .dtype = cast ? *x->opt->dtype : t,
                                        .ndim = c->tensor[i].ndim,
                                        .shape = c->tensor[i].shape };
        if (dcp_item_place(&x->item[i], end, err) < 0)
            return err_prefix(err, "%s", c->path);
        end += x->item[i].length;
        x->total += x->item[i].bytes;
    }
    return 0;
}

static int write_tensor(struct export *x, struct cut *cut, size_t i, struct err *err)
{
    const struct cut_side to = { .nparts = 1, .io = write_item, .arg = x };
    struct dcp_item *item = x->now = &x->item[i];
    struct str s = { 0 };
    int ret = -1;

    if (checkpoint_copy(x->ckpt, cut, i, item->dtype, &to, NULL, &item->crc,
                        &x->result->overflows, err) < 0)
        return -1;
    dcp_item_head(&s, item);
    if (fs_pwrite(x->fd, s.s, s.len, item->offset, x->path, err) < 0)
        goto out;
    dcp_item_tail(&s, item);
    ret = fs_pwrite(x->fd, s.s, s.len, item->data + item->bytes, x->path, err);
out:
    str_clear(&s);
    return ret;
}

static int write_items(struct export *x, struct err *err)
{
    struct cut *cut = cut_new();
    int ret = -1;

    x->path = fs_join_dup(x->out.partial, DCP_ITEMS);
    x->fd = outdir_create(&x->out, DCP_ITEMS, err);
    if (x->fd < 0)
        goto out;
    for (size_t i = 0; i < x->ckpt->nweights; i++)
        if (write_tensor(x, cut, i, err) < 0)
            goto out;
    if (outdir_share(&x->out, x->fd, checkpoint_mode(x->ckpt), x->path, err) < 0)
        goto out;
    ret = fsync(x->fd) < 0 ? err_errno(err, "%s", x->path) : 0;
out:
    cut_free(cut);
    return ret;
}

static int write_metadata(struct export *x, struct err *err)
{
    char *path = fs_join_dup(x->out.partial, DCP_METADATA);
    int fd = outdir_create(&x->out, DCP_METADATA, err), ret = -1;

    if (fd < 0 || dcp_metadata_write(fd, path, x->item, x->ckpt->nweights, err) < 0 ||
        outdir_share(&x->out, fd, checkpoint_mode(x->ckpt), path, err) < 0)
        goto out;
    ret = fsync(fd) < 0 ? err_errno(err, "%s", path) : 0;
out:
    if (fd >= 0)
        close(fd);
    free(path);
    return ret;
}

int export_dcp(struct checkpoint *ckpt, const char *path,
               const struct convert_options *opt, struct convert_result *result,
               struct err *err)
{
    const char *const ours[] = { DCP_METADATA, DCP_ITEMS };
    struct export x = { .ckpt = ckpt,
                        .opt = opt,
                        .result = result,
                        .fd = -1,
                        .out = { .dir = -1, .journal = -1 } };
    int ret = -1;

    *result = (struct convert_result){ 0 };
    if (checkpoint_open_files(ckpt, -1, err) < 0 ||
        checkpoint_spares(ckpt, path, err) < 0 || lay_out(&x, err) < 0 ||
        outdir_open(&x.out, path, "export dcp", "", opt->force, ours, 2, err) < 0 ||
        write_items(&x, err) < 0 || write_metadata(&x, err) < 0 ||
        outdir_finish(&x.out, err) < 0)
        goto out;
    result->bytes = x.total;
    ret = 0;
out:
    if (x.fd >= 0)
        close(x.fd);
    outdir_close(&x.out);
    free(x.path);
    free(x.item);
    return ret;
}
