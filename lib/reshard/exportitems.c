/* exportitems - the items of a checkpoint of torch.distributed.checkpoint */
#include "lib/reshard/exportitems.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/hash.h"
#include "lib/base/mem.h"

static size_t add(struct exportitems *x, const char *const *key, int nkeys)
{
    struct str name = { 0 };
    const char **keys =
        pool_take(&x->pool, (size_t)nkeys * sizeof(*keys), _Alignof(char *));

    for (int k = 0; k < nkeys; k++) {
        keys[k] = pool_strdup(&x->pool, key[k]);
        str_addf(&name, "%s%s", k ? "." : "", key[k] + (key[k][0] == '#'));
    }
    x->item = xgrow(x->item, &x->cap, x->n + 1, sizeof(*x->item));
    x->number = xgrow(x->number, &x->number_cap, x->n + 1, sizeof(*x->number));
    x->item[x->n] = (struct dcp_item){ .name = pool_strdup(&x->pool, str_text(&name)),
                                       .key = nkeys > 1 ? keys : NULL,
                                       .nkeys = nkeys };
    x->number[x->n] = 0;
    str_clear(&name);
    return x->n++;
}

size_t exportitems_tensor(struct exportitems *x, const char *const *key, int nkeys,
                          enum dtype dtype, int ndim, const uint64_t *shape)
{
    size_t i = add(x, key, nkeys);
    uint64_t *kept = pool_take(&x->pool, (size_t)ndim * sizeof(*kept) + 8, 8);

    if (ndim)
        memcpy(kept, shape, (size_t)ndim * sizeof(*kept));
    x->item[i].dtype = dtype;
    x->item[i].ndim = ndim;
    x->item[i].shape = kept;
    return i;
}

size_t exportitems_number(struct exportitems *x, const char *const *key, int nkeys,
                          float value)
{
    size_t i = exportitems_tensor(x, key, nkeys, DTYPE_F32, 0, NULL);

    x->number[i] = value;
    return i;
}

size_t exportitems_object(struct exportitems *x, const char *const *key, int nkeys,
                          struct str *pickle)
{
    size_t i = add(x, key, nkeys);

    x->item[i].object = true;
    x->item[i].save.pickle = *pickle;
    *pickle = (struct str){ 0 };
    return i;
}

void exportitems_copy(struct exportitems *x, size_t item, size_t from,
                      const struct placed *set, const struct placed_part *p)
{
    x->copy = xgrow(x->copy, &x->copy_cap, x->ncopies + 1, sizeof(*x->copy));
    x->copy[x->ncopies++] =
        (struct exportcopy){ .from = from,
                             .item = item,
                             .view = p ? &p->view : NULL,
                             .lead = p ? p->lead : 0,
                             .rows = p ? set->tensor[p->to].rows : 0 };
}

int exportitems_place(struct exportitems *x, struct exporting *e, struct err *err)
{
    uint64_t end = 0;

    for (size_t i = 0; i < x->n; i++) {
        if (dcp_item_place(&x->item[i], end, err) < 0)
            return err_prefix(err, "%s", e->ckpt->path);
        end += x->item[i].save.length;
        if (!x->item[i].object)
            e->total += x->item[i].save.storage[0].bytes;
    }
    return 0;
}

/* ---- writing ---- */

struct writing {
    struct exportitems *x;
    struct exporting *e;
    char *path;
    int fd;
    bool *summed; /* [n] the checksum of the item is known */
};

static int compare_copies(const void *a, const void *b)
{
    const struct exportcopy *x = a, *y = b;

    return x->from != y->from ? (x->from < y->from ? -1 : 1)
                              : (x->item > y->item) - (x->item < y->item);
}

static int write_copies(struct writing *w, struct err *err)
{
    struct exportitems *x = w->x;

    if (x->ncopies)
        qsort(x->copy, x->ncopies, sizeof(*x->copy), compare_copies);
    for (size_t i = 0; i < x->ncopies; i++) {
        const struct exportcopy *c = &x->copy[i];
        struct dcp_item *item = &x->item[c->item];
        const struct exporting_place p = { .fd = w->fd,
                                           .path = w->path,
                                           .at = item->save.storage[0].at,
                                           .dtype = item->dtype,
                                           .view = c->view,
                                           .lead = c->lead,
                                           .rows = c->rows };

        w->summed[c->item] = !c->view;
        if (exporting_copy(w->e, c->from, &p, &item->save.storage[0].crc, err) < 0)
            return -1;
    }
    return 0;
}

/* Writes what surrounds the storage of item I. */
static int write_item(struct writing *w, size_t i, struct err *err)
{
    struct dcp_item *item = &w->x->item[i];
    struct torchsave_storage *s = item->object ? NULL : item->save.storage;

    if (s && !item->ndim && !w->summed[i]) {
        if (fs_pwrite(w->fd, &w->x->number[i], sizeof(float), s->at, w->path, err) < 0)
            return -1;
        s->crc = hash_crc32(0, &w->x->number[i], sizeof(float));
    } else if (s && !w->summed[i] &&
               exporting_checksum(&s->crc, w->fd, w->path, s->at, s->bytes, err) < 0) {
        return -1;
    }
    for (size_t k = 0; k <= item->save.n; k++)
        if (exporting_gap(&item->save, k, w->fd, w->path, err) < 0)
            return -1;
    return 0;
}

static int write_metadata(struct exportitems *x, struct exporting *e, struct err *err)
{
    char *path = fs_join_dup(e->out.partial, DCP_METADATA);
    int fd = outdir_create(&e->out, DCP_METADATA, err), ret = -1;

    if (fd >= 0)
        ret = dcp_metadata_write(fd, path, x->item, x->n, !x->flat, err);
    ret = exporting_close(e, &e->out, fd, path, ret, err);
    free(path);
    return ret;
}

int exportitems_write(struct exportitems *x, struct exporting *e, struct err *err)
{
    struct writing w = { .x = x,
                         .e = e,
                         .path = fs_join_dup(e->out.partial, DCP_ITEMS),
                         .fd = outdir_create(&e->out, DCP_ITEMS, err),
                         .summed = xcalloc(x->n + 1, sizeof(*w.summed)) };
    int ret = w.fd < 0 ? -1 : write_copies(&w, err);

    for (size_t i = 0; i < x->n && ret == 0; i++)
        ret = write_item(&w, i, err);
    ret = exporting_close(e, &e->out, w.fd, w.path, ret, err);
    free(w.path);
    free(w.summed);
    return ret < 0 ? -1 : write_metadata(x, e, err);
}

void exportitems_clear(struct exportitems *x)
{
    for (size_t i = 0; i < x->n; i++)
        torchsave_clear(&x->item[i].save);
    free(x->item);
    free(x->number);
    free(x->copy);
    pool_clear(&x->pool);
    *x = (struct exportitems){ 0 };
}
