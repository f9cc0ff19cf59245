/* dcp - writes checkpoints of torch.distributed.checkpoint (DCP)
 *
 * Zip: APPNOTE.TXT 4.3.7 to 4.3.16; members are not compressed, and the raw storage
 * begins at a multiple of 64.  Pickle: protocol 2 for a tensor, 4 for the metadata.
 * Memo opcodes are omitted, because a reader does not need them. */
#include "lib/ckpt/dcp.h"

#include <string.h>

#include "lib/base/fs.h"
#include "lib/base/hash.h"

const char DCP_METADATA[] = ".metadata", DCP_ITEMS[] = "__0_0.distcp";

enum {
    LOCAL_SIZE = 30,
    CENTRAL_SIZE = 46,
    END_64_SIZE = 56,
    LOCATOR_64_SIZE = 20,
    END_SIZE = 22,
    EXTRA_64_SIZE = 20, /* the zip64 extra field: two sizes of eight bytes and its
                         * header */
    ALIGNMENT = 64,
    PIECE = 1 << 16 /* of .metadata, per write */
};

static const char PICKLE_NAME[] = "archive/data.pkl";
static const char ORDER_NAME[] = "archive/byteorder", ORDER[] = "little";
static const char DATA_NAME[] = "archive/data/0";
static const char VERSION_NAME[] = "archive/version", VERSION[] = "3\n";

/* ---- types ---- */

/* Older types have typed storages; the others use bytes (UntypedStorage). */
static const char *const storages[DTYPE_COUNT] = {
    [DTYPE_F64] = "DoubleStorage",       [DTYPE_F32] = "FloatStorage",
    [DTYPE_F16] = "HalfStorage",         [DTYPE_BF16] = "BFloat16Storage",
    [DTYPE_I64] = "LongStorage",         [DTYPE_I32] = "IntStorage",
    [DTYPE_I16] = "ShortStorage",        [DTYPE_I8] = "CharStorage",
    [DTYPE_U8] = "ByteStorage",          [DTYPE_BOOL] = "BoolStorage",
    [DTYPE_C64] = "ComplexFloatStorage",
};

/* ---- pickle ---- */

static void put(struct str *s, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        str_addc(s, (char)(i < 8 ? v >> 8 * i & 0xff : 0));
}

static void put_int(struct str *s, uint64_t v)
{
    if (v < 0x100) {
        str_addc(s, 'K');
        put(s, v, 1);
    } else if (v < 0x80000000) {
        str_addc(s, 'J');
        put(s, v, 4);
    } else { /* nine bytes, so that the sign bit is 0 */
        str_addc(s, (char)0x8a);
        put(s, 9, 1);
        put(s, v, 8);
        put(s, 0, 1);
    }
}

static void put_text(struct str *s, const char *text)
{
    size_t n = strlen(text);

    str_addc(s, 'X');
    put(s, n, 4);
    str_addn(s, text, n);
}

static void put_global(struct str *s, const char *module, const char *name)
{
    str_addf(s, "c%s\n%s\n", module, name);
}

/* Writes V[n] as a tuple. */
static void put_tuple(struct str *s, const uint64_t *v, int n)
{
    str_addc(s, '(');
    for (int i = 0; i < n; i++)
        put_int(s, v[i]);
    str_addc(s, 't');
}

/* Writes V[n], or N zeros when V is NULL, as a torch.Size. */
static void put_size(struct str *s, const uint64_t *v, int n)
{
    static const uint64_t zeros[64] = { 0 };

    put_global(s, "torch", "Size");
    put_tuple(s, v ? v : zeros, n);
    str_add(s, "\x85R");
}

/* Writes torch._utils._rebuild_tensor_v2(storage, 0, shape, strides, False,
 * OrderedDict()), or _rebuild_tensor_v3, which has the type as an additional
 * argument. */
static void tensor_pickle(struct str *s, const struct dcp_item *item)
{
    const char *storage = storages[item->dtype];
    uint64_t stride[64], count = 1;

    for (int k = item->ndim - 1; k >= 0; k--) {
        stride[k] = count;
        count *= item->shape[k];
    }
    str_add(s, "\x80\x02");
    put_global(s, "torch._utils",
               storage ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
    str_add(s, "((");
    put_text(s, "storage");
    put_global(s, storage ? "torch" : "torch.storage",
               storage ? storage : "UntypedStorage");
    put_text(s, "0");
    put_text(s, "cpu");
    put_int(s, storage ? count : item->bytes);
    str_add(s, "tQ");
    put_int(s, 0);
    put_tuple(s, item->shape, item->ndim);
    put_tuple(s, stride, item->ndim);
    str_addc(s, (char)0x89);
    put_global(s, "collections", "OrderedDict");
    str_add(s, ")R");
    if (!storage)
        put_global(s, "torch", dtype_pytorch(item->dtype));
    str_add(s, "tR.");
}

/* ---- zip ---- */

static bool is_large(uint64_t bytes)
{
    return bytes >= UINT32_MAX;
}

/* Writes the local header of a member of N bytes, with EXTRA bytes of padding in it. */
static void put_local(struct str *s, const char *name, uint32_t crc, uint64_t n,
                      uint64_t extra)
{
    bool large = is_large(n);

    put(s, 0x04034b50, 4);
    put(s, large ? 45 : 20, 2);
    put(s, 0, 8); /* flags, stored, time, date */
    put(s, crc, 4);
    put(s, large ? UINT32_MAX : n, 4);
    put(s, large ? UINT32_MAX : n, 4);
    put(s, strlen(name), 2);
    put(s, extra + (large ? EXTRA_64_SIZE : 0), 2);
    str_add(s, name);
    if (large) {
        put(s, 1, 2);
        put(s, EXTRA_64_SIZE - 4, 2);
        put(s, n, 8);
        put(s, n, 8);
    }
    if (extra) { /* PyTorch's padding field */
        str_add(s, "FB");
        put(s, extra - 4, 2);
        for (uint64_t i = 4; i < extra; i++)
            str_addc(s, 'Z');
    }
}

static void put_central(struct str *s, const char *name, uint32_t crc, uint64_t n,
                        uint64_t at)
{
    bool large = is_large(n) || is_large(at);

    put(s, 0x02014b50, 4);
    put(s, large ? 45 : 20, 2);
    put(s, large ? 45 : 20, 2);
    put(s, 0, 8);
    put(s, crc, 4);
    put(s, large ? UINT32_MAX : n, 4);
    put(s, large ? UINT32_MAX : n, 4);
    put(s, strlen(name), 2);
    put(s, large ? 28 : 0, 2);
    put(s, 0, 8); /* comment, disk, attributes: ten bytes */
    put(s, 0, 2);
    put(s, large ? UINT32_MAX : at, 4);
    str_add(s, name);
    if (large) {
        put(s, 1, 2);
        put(s, 24, 2);
        put(s, n, 8);
        put(s, n, 8);
        put(s, at, 8);
    }
}

/* Padding in the header of the raw storage, which begins at AT of the file, so that the
 * storage begins at a multiple of ALIGNMENT.  A padding field has at least four
 * bytes. */
static uint64_t padding(uint64_t at, uint64_t bytes)
{
    uint64_t end =
        at + LOCAL_SIZE + strlen(DATA_NAME) + (is_large(bytes) ? EXTRA_64_SIZE : 0);
    uint64_t extra = (ALIGNMENT - end % ALIGNMENT) % ALIGNMENT;

    return extra && extra < 4 ? extra + ALIGNMENT : extra;
}

/* Writes the members before the raw storage, and its header. */
static void put_head(struct str *s, const struct dcp_item *item)
{
    struct str pickle = { 0 };

    tensor_pickle(&pickle, item);
    put_local(s, PICKLE_NAME, hash_crc32(0, pickle.s, pickle.len), pickle.len, 0);
    str_addn(s, pickle.s, pickle.len);
    put_local(s, ORDER_NAME, hash_crc32(0, ORDER, strlen(ORDER)), strlen(ORDER), 0);
    str_add(s, ORDER);
    put_local(s, DATA_NAME, item->crc, item->bytes,
              padding(item->offset + s->len, item->bytes));
    str_clear(&pickle);
}

void dcp_item_head(struct str *out, const struct dcp_item *item)
{
    str_reset(out);
    put_head(out, item);
}

void dcp_item_tail(struct str *out, const struct dcp_item *item)
{
    uint64_t version = item->data - item->offset + item->bytes, directory, size;
    struct str pickle = { 0 };
    uint64_t order;

    str_reset(out);
    put_local(out, VERSION_NAME, hash_crc32(0, VERSION, strlen(VERSION)),
              strlen(VERSION), 0);
    str_add(out, VERSION);
    directory = version + out->len;
    tensor_pickle(&pickle, item);
    order = LOCAL_SIZE + strlen(PICKLE_NAME) + pickle.len;
    put_central(out, PICKLE_NAME, hash_crc32(0, pickle.s, pickle.len), pickle.len, 0);
    put_central(out, ORDER_NAME, hash_crc32(0, ORDER, strlen(ORDER)), strlen(ORDER),
                order);
    put_central(out, DATA_NAME, item->crc, item->bytes,
                order + LOCAL_SIZE + strlen(ORDER_NAME) + strlen(ORDER));
    put_central(out, VERSION_NAME, hash_crc32(0, VERSION, strlen(VERSION)),
                strlen(VERSION), version);
    size = version + out->len - directory;
    put(out, 0x06064b50, 4); /* end of the directory: zip64 form, then the usual form */
    put(out, END_64_SIZE - 12, 8);
    put(out, 45, 2);
    put(out, 45, 2);
    put(out, 0, 8);
    put(out, 4, 8);
    put(out, 4, 8);
    put(out, size, 8);
    put(out, directory, 8);
    put(out, 0x07064b50, 4);
    put(out, 0, 4);
    put(out, directory + size, 8);
    put(out, 1, 4);
    put(out, 0x06054b50, 4);
    put(out, 0, 4);
    put(out, 4, 2);
    put(out, 4, 2);
    put(out, size, 4);
    put(out, is_large(directory) ? UINT32_MAX : directory, 4);
    put(out, 0, 2);
    str_clear(&pickle);
}

int dcp_item_place(struct dcp_item *item, uint64_t offset, struct err *err)
{
    struct str s = { 0 };
    uint64_t elements = 1;

    if (!dtype_pytorch(item->dtype))
        return err_set(err, ERR_NO, "%s: PyTorch has no type %s", item->name,
                       dtype_name(item->dtype));
    for (int k = 0; k < item->ndim; k++)
        elements *= item->shape[k]; /* no overflow: checked when they were read */
    item->offset = offset;
    item->bytes = elements * (uint64_t)dtype_bits(item->dtype) / 8;
    dcp_item_head(&s, item);
    item->data = offset + s.len;
    dcp_item_tail(&s, item);
    item->length = item->data + item->bytes + s.len - offset;
    str_clear(&s);
    return 0;
}

/* ---- metadata ---- */

static const char METADATA[] = "torch.distributed.checkpoint.metadata";

/* Begins an object of class NAME of MODULE; its state is the dictionary that follows,
 * up to end_object. */
static void begin_object(struct str *s, const char *module, const char *name)
{
    put_global(s, module, name);
    str_add(s, ")\x81}(");
}

static void end_object(struct str *s)
{
    str_add(s, "ub");
}

/* Writes a TensorStorageMetadata: properties, size, and one chunk. */
static void put_tensor(struct str *s, const struct dcp_item *item)
{
    begin_object(s, METADATA, "TensorStorageMetadata");
    put_text(s, "properties");
    put_global(s, METADATA, "TensorProperties");
    str_add(s, ")\x81(");
    put_global(s, "torch", dtype_pytorch(item->dtype));
    put_global(s, "torch.serialization", "_get_layout");
    put_text(s, "torch.strided");
    str_add(s, "\x85R\x89");
    put_global(s, METADATA, "_MEM_FORMAT_ENCODING");
    put_int(s, 0);
    str_add(s, "\x85R\x89tb");
    put_text(s, "size");
    put_size(s, item->shape, item->ndim);
    put_text(s, "chunks");
    str_addc(s, ']');
    begin_object(s, METADATA, "ChunkStorageMetadata");
    put_text(s, "offsets");
    put_size(s, NULL, item->ndim);
    put_text(s, "sizes");
    put_size(s, item->shape, item->ndim);
    end_object(s);
    str_addc(s, 'a');
    end_object(s);
}

static void put_place(struct str *s, const struct dcp_item *item)
{
    begin_object(s, METADATA, "MetadataIndex");
    put_text(s, "fqn");
    put_text(s, item->name);
    put_text(s, "index");
    put_int(s, 0);
    put_text(s, "offset");
    put_size(s, NULL, item->ndim);
    end_object(s);
    begin_object(s, "torch.distributed.checkpoint.filesystem", "_StorageInfo");
    put_text(s, "relative_path");
    put_text(s, DCP_ITEMS);
    put_text(s, "offset");
    put_int(s, item->offset);
    put_text(s, "length");
    put_int(s, item->length);
    end_object(s);
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

/* Writes an entry of planner_data: the path of keys to a tensor, here only its name. */
static void put_path(struct str *s, const struct dcp_item *item)
{
    put_text(s, item->name);
    put_text(s, item->name);
    str_add(s, "\x85");
}

static void put_named_tensor(struct str *s, const struct dcp_item *item)
{
    put_text(s, item->name);
    put_tensor(s, item);
}

int dcp_metadata_write(int fd, const char *path, const struct dcp_item *item, size_t n,
                       struct err *err)
{
    static const struct {
        const char *name;
        void (*put)(struct str *s, const struct dcp_item *item);
    } members[] = { { "state_dict_metadata", put_named_tensor },
                    { "planner_data", put_path },
                    { "storage_data", put_place } };
    struct writer w = { .fd = fd, .path = path };
    int ret = -1;

    str_add(&w.piece, "\x80\x04");
    begin_object(&w.piece, METADATA, "Metadata");
    for (size_t m = 0; m < sizeof(members) / sizeof(*members); m++) {
        put_text(&w.piece, members[m].name);
        str_add(&w.piece, "}(");
        for (size_t i = 0; i < n; i++) {
            members[m].put(&w.piece, &item[i]);
            if (flush(&w, PIECE, err) < 0)
                goto out;
        }
        str_addc(&w.piece, 'u');
    }
    end_object(&w.piece);
    str_addc(&w.piece, '.');
    ret = flush(&w, 0, err);
out:
    str_clear(&w.piece);
    return ret;
}
