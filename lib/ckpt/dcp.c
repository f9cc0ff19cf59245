/* dcp - writes checkpoints of torch.distributed.checkpoint (DCP)
 *
 * Pickle: protocol 2 for an item, 4 for the metadata. */
#include "lib/ckpt/dcp.h"

#include <string.h>

#include "lib/base/fs.h"
#include "lib/ckpt/pickler.h"

const char DCP_METADATA[] = ".metadata", DCP_ITEMS[] = "__0_0.distcp";

enum { PIECE = 1 << 16 /* of .metadata, per write */ };

int dcp_item_place(struct dcp_item *item, uint64_t offset, struct err *err)
{
    uint64_t elements = 1;

    if (!item->object) {
        if (!dtype_pytorch(item->dtype))
            return err_set(err, ERR_NO, "%s: PyTorch has no type %s", item->name,
                           dtype_name(item->dtype));
        for (int k = 0; k < item->ndim; k++)
            elements *= item->shape[k]; /* no overflow: checked when they were read */
        pickler_begin(&item->save.pickle, 2);
        pickler_tensor(&item->save.pickle, 0, item->dtype, item->ndim, item->shape);
        pickler_end(&item->save.pickle);
        torchsave_add(&item->save, elements * (uint64_t)dtype_bits(item->dtype) / 8);
    }
    torchsave_place(&item->save, offset);
    return 0;
}

/* ---- metadata ---- */

static const char METADATA[] = "torch.distributed.checkpoint.metadata";

/* Writes a TensorStorageMetadata: properties, size, and one chunk. */
static void put_tensor(struct str *s, const struct dcp_item *item)
{
    pickler_begin_object(s, METADATA, "TensorStorageMetadata");
    pickler_text(s, "properties");
    pickler_global(s, METADATA, "TensorProperties");
    str_add(s, ")\x81(");
    pickler_global(s, "torch", dtype_pytorch(item->dtype));
    pickler_global(s, "torch.serialization", "_get_layout");
    pickler_text(s, "torch.strided");
    str_add(s, "\x85R\x89");
    pickler_global(s, METADATA, "_MEM_FORMAT_ENCODING");
    pickler_int(s, 0);
    str_add(s, "\x85R\x89tb");
    pickler_text(s, "size");
    pickler_size(s, item->shape, item->ndim);
    pickler_text(s, "chunks");
    str_addc(s, ']');
    pickler_begin_object(s, METADATA, "ChunkStorageMetadata");
    pickler_text(s, "offsets");
    pickler_size(s, NULL, item->ndim);
    pickler_text(s, "sizes");
    pickler_size(s, item->shape, item->ndim);
    pickler_end_object(s);
    str_addc(s, 'a');
    pickler_end_object(s);
}

static void put_place(struct str *s, const struct dcp_item *item)
{
    pickler_begin_object(s, METADATA, "MetadataIndex");
    pickler_text(s, "fqn");
    pickler_text(s, item->name);
    pickler_text(s, "index");
    if (item->object) {
        pickler_none(s);
    } else {
        pickler_int(s, 0);
        pickler_text(s, "offset");
        pickler_size(s, NULL, item->ndim);
    }
    pickler_end_object(s);
    pickler_begin_object(s, "torch.distributed.checkpoint.filesystem", "_StorageInfo");
    pickler_text(s, "relative_path");
    pickler_text(s, DCP_ITEMS);
    pickler_text(s, "offset");
    pickler_count(s, item->save.offset);
    pickler_text(s, "length");
    pickler_count(s, item->save.length);
    pickler_end_object(s);
}

/* Writes .metadata in pieces: a model may have 100,000 tensors. */
struct writer {
    int fd;
    const char *path;
    struct str piece;
};

static int flush(struct writer *w, size_t limit, struct err *err)
{
    if (w->piece.len <= limit)
        return 0;
    if (fs_write(w->fd, w->piece.s, w->piece.len, w->path, err) < 0)
        return -1;
    str_reset(&w->piece);
    return 0;
}

/* Writes an entry of planner_data: the path of keys to an item. */
static void put_path(struct str *s, const struct dcp_item *item)
{
    pickler_text(s, item->name);
    if (!item->key) {
        pickler_text(s, item->name);
        str_add(s, "\x85");
        return;
    }
    str_addc(s, '(');
    for (int k = 0; k < item->nkeys; k++) {
        int number;

        if (item->key[k][0] == '#' && str_int(item->key[k] + 1, &number))
            pickler_int(s, number);
        else
            pickler_text(s, item->key[k]);
    }
    str_addc(s, 't');
}

static void put_named(struct str *s, const struct dcp_item *item)
{
    pickler_text(s, item->name);
    if (!item->object) {
        put_tensor(s, item);
        return;
    }
    pickler_begin_object(s, METADATA, "BytesStorageMetadata");
    pickler_end_object(s);
}

int dcp_metadata_write(int fd, const char *path, const struct dcp_item *item, size_t n,
                       bool paths, struct err *err)
{
    static const struct {
        const char *name;
        void (*put)(struct str *s, const struct dcp_item *item);
    } members[] = { { "state_dict_metadata", put_named },
                    { "planner_data", put_path },
                    { "storage_data", put_place } };
    struct writer w = { .fd = fd, .path = path };
    int ret = -1;

    pickler_begin(&w.piece, 4);
    pickler_begin_object(&w.piece, METADATA, "Metadata");
    for (size_t m = 0; m < sizeof(members) / sizeof(*members); m++) {
        pickler_text(&w.piece, members[m].name);
        if (members[m].put == put_path && !paths) {
            pickler_none(&w.piece);
            continue;
        }
        pickler_begin_dict(&w.piece);
        for (size_t i = 0; i < n; i++) {
            members[m].put(&w.piece, &item[i]);
            if (flush(&w, PIECE, err) < 0)
                goto out;
        }
        pickler_end_dict(&w.piece);
    }
    pickler_end_object(&w.piece);
    pickler_end(&w.piece);
    ret = flush(&w, 0, err);
out:
    str_clear(&w.piece);
    return ret;
}
