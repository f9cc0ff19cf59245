/* hubshards - reads torch.distributed.checkpoint in safetensors files
 *
 * HuggingFaceStorageWriter leaves shard-RRRRR-model-IIIII-of-NNNNN.safetensors, part I
 * of rank R's pieces, numbered from 1.  The metadata entry DCP_SHARDING_INFO is JSON:
 * {tensor: {"saved_offsets": [first index along each axis]}}.  No file has the whole
 * shape, which is where the pieces end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/json.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/ckpt/boxes.h"
#include "lib/ckpt/dcpdir.h"
#include "lib/ckpt/safetensors.h"

static const char INFO[] = "DCP_SHARDING_INFO", BELOW[] = "sharded";

/* A file's name, and what it says. */
struct file {
    char *name;
    int rank, part, parts;
};

/* A piece of a tensor. */
struct piece {
    struct tensor t;       /* of its own shape */
    const uint64_t *start; /* [t.ndim] */
    size_t nth;            /* of all pieces */
};

/* Where the pieces of a file begin. */
struct places {
    struct json_doc doc;
    const struct json **member; /* sorted by key */
    size_t n;
};

struct reader {
    struct source *s;
    const char *dir;
    struct file *file; /* by rank and part */
    size_t nfiles, files_cap;
    struct piece *piece;
    size_t n, cap;
    uint64_t read; /* bytes of headers */
};

/* ---- the files ---- */

static bool parse_name(struct file *f, const char *name)
{
    int used = 0;

    return sscanf(name, "shard-%7d-model-%7d-of-%7d.safetensors%n", &f->rank, &f->part,
                  &f->parts, &used) == 3 &&
           used && !name[used] && f->rank > 0 && f->part > 0 && f->part <= f->parts;
}

static int compare_files(const void *a, const void *b)
{
    const struct file *x = a, *y = b;

    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return (x->part > y->part) - (x->part < y->part);
}

static int list_files(struct reader *r, struct err *err)
{
    char **names;
    size_t n;
    int ret = 0;

    if (fs_list(&names, &n, r->dir, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        struct file f;

        if (!parse_name(&f, names[i]))
            continue;
        f.name = xstrdup(names[i]);
        r->file = xgrow(r->file, &r->files_cap, r->nfiles + 1, sizeof(*r->file));
        r->file[r->nfiles++] = f;
    }
    fs_list_free(names, n);
    if (r->nfiles)
        qsort(r->file, r->nfiles, sizeof(*r->file), compare_files);
    for (size_t i = 0; i < r->nfiles && ret == 0; i++) {
        int last = i ? r->file[i - 1].rank : 0;

        if (r->file[i].parts != r->file[0].parts)
            ret = err_set(err, ERR_INPUT, "%s: both %s and %s: which ones?", r->dir,
                          r->file[0].name, r->file[i].name);
        else if (r->file[i].rank > last + 1)
            ret = err_set(err, ERR_INPUT, "%s: no file shard-%05d-model-*", r->dir,
                          last + 1);
    }
    return ret;
}

static bool is_ours(const char *name)
{
    struct file f;

    return parse_name(&f, name);
}

/* Sets *dir, which the caller frees, to PATH or the directory `sharded` in it; NULL:
 * neither has such files. */
static int find_directory(char **dir, const char *path, struct err *err)
{
    char *below = fs_join_dup(path, BELOW);
    bool here, there = false;
    int ret = fs_dir_has(&here, path, is_ours, err);

    if (ret == 0 && !here)
        ret = fs_dir_has(&there, below, is_ours, err);
    *dir = ret < 0 ? NULL : here ? xstrdup(path) : there ? xstrdup(below) : NULL;
    free(below);
    return ret;
}

static int probe(bool *found, const char *path, bool is_dir, struct err *err)
{
    char *dir = NULL;

    *found = false;
    if (is_dir && find_directory(&dir, path, err) < 0)
        return -1;
    *found = dir != NULL;
    free(dir);
    return 0;
}

/* ---- where pieces begin ---- */

static int compare_members(const void *a, const void *b)
{
    return strcmp((*(const struct json *const *)a)->key,
                  (*(const struct json *const *)b)->key);
}

static int compare_key(const void *key, const void *member)
{
    return strcmp(key, (*(const struct json *const *)member)->key);
}

static int read_places(struct places *p, const struct safetensors *st, const char *path,
                       struct err *err)
{
    const char *text = NULL;

    for (size_t i = 0; i < st->nnotes; i++)
        if (!strcmp(st->note[i].key, INFO))
            text = st->note[i].value;
    if (!text)
        return err_set(err, ERR_INPUT, "%s: no %s, which says where its pieces belong",
                       path, INFO);
    if (json_parse(&p->doc, path, text, strlen(text), err) < 0) {
        err_prefix(err, "%s", INFO);
        return -1;
    }
    if (p->doc.root->type == JSON_OBJECT) {
        p->member = xmalloc((p->doc.root->n + 1) * sizeof(*p->member));
        for (const struct json *j = p->doc.root->first; j; j = j->next)
            p->member[p->n++] = j;
        if (p->n)
            qsort(p->member, p->n, sizeof(*p->member), compare_members);
    }
    return 0;
}

/* Sets *start to the offsets of T. */
static int find_start(struct reader *r, const uint64_t **start, const struct places *p,
                      const struct tensor *t, const char *path, struct err *err)
{
    const struct json **at =
        p->n ? bsearch(t->name, p->member, p->n, sizeof(*p->member), compare_key)
             : NULL;
    const struct json *offsets = at ? json_get(*at, "saved_offsets") : NULL, *j;
    uint64_t *out = pool_take(&r->s->pool, ((size_t)t->ndim + 1) * sizeof(*out), 8);
    int k = 0;

    for (j = offsets && offsets->type == JSON_ARRAY ? offsets->first : NULL;
         j && k < t->ndim && json_u64(j, &out[k]); j = j->next)
        k++;
    if (!offsets || j || k < t->ndim)
        return err_set(err, ERR_INPUT, "%s: %s: %s does not say where it belongs", path,
                       t->name, INFO);
    *start = out;
    return 0;
}

/* ---- pieces ---- */

static int add_piece(struct reader *r, const struct tensor *t, int input,
                     const struct places *places, const char *path, struct err *err)
{
    uint64_t *shape = pool_take(&r->s->pool, ((size_t)t->ndim + 1) * sizeof(*shape), 8);
    struct piece *p;

    r->piece = xgrow(r->piece, &r->cap, r->n + 1, sizeof(*r->piece));
    p = &r->piece[r->n];
    *p = (struct piece){ .t = *t, .nth = r->n };
    if (t->ndim)
        memcpy(shape, t->shape, (size_t)t->ndim * sizeof(*shape));
    p->t.shape = shape;
    p->t.input = input;
    if (find_start(r, &p->start, places, t, path, err) < 0 ||
        form_keep_name(r->s, &p->t.name, t->name, r->read, path, err) < 0)
        return -1;
    r->n++;
    return 0;
}

static int read_file(struct reader *r, const struct file *f, struct err *err)
{
    char *path = fs_join_dup(r->dir, f->name);
    struct safetensors st;
    struct places places = { 0 };
    int fd, input, ret = -1;

    if (form_add_input(r->s, f->name, path, &input, &fd, err) < 0)
        goto out;
    ret = safetensors_read(&st, NULL, fd, path, err);
    close(fd);
    if (ret < 0)
        goto out;
    r->read += st.data;
    ret = read_places(&places, &st, path, err);
    for (size_t i = 0; i < st.n && ret == 0; i++)
        ret = add_piece(r, &st.tensor[i], input, &places, path, err);
    if (places.doc.root)
        json_clear(&places.doc);
    free(places.member);
    safetensors_clear(&st);
out:
    free(path);
    return ret;
}

static int compare_pieces(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;
    int order = strcmp(x->t.name, y->t.name);

    return order ? order : (x->nth > y->nth) - (x->nth < y->nth);
}

/* Makes a tensor of the N pieces at P. */
static int join(struct reader *r, struct tensor *t, const struct piece *p, size_t n,
                struct err *err)
{
    uint64_t *shape =
        pool_take(&r->s->pool, ((size_t)p->t.ndim + 1) * sizeof(*shape), 8);
    struct box *box = xmalloc(n * sizeof(*box));
    uint64_t elements = 1;
    size_t kept = 0;
    int ret = -1;

    memset(shape, 0, ((size_t)p->t.ndim + 1) * sizeof(*shape));
    for (size_t i = 0; i < n; i++) {
        if (p[i].t.dtype != p->t.dtype || p[i].t.ndim != p->t.ndim) {
            err_set(err, ERR_INPUT, "%s: %s: of another type or shape than in %s",
                    r->s->input[p[i].t.input].path, p->t.name,
                    r->s->input[p->t.input].name);
            goto out;
        }
        for (int k = 0; k < p->t.ndim; k++) {
            uint64_t end;

            if (!mem_add(&end, p[i].start[k], p[i].t.shape[k]))
                end = UINT64_MAX;
            shape[k] = end > shape[k] ? end : shape[k];
        }
        if (p[i].t.size)
            box[kept++] = (struct box){ .input = p[i].t.input,
                                        .offset = p[i].t.offset,
                                        .start = p[i].start,
                                        .size = p[i].t.shape };
    }
    *t = p->t;
    t->shape = shape;
    for (int k = 0; k < t->ndim; k++)
        if (!mem_mul(&elements, elements, shape[k]))
            elements = UINT64_MAX;
    if (!dtype_bytes(&t->size, t->dtype, elements)) {
        err_set(err, ERR_INPUT, "%s: %s: its size overflows", r->dir, t->name);
        goto out;
    }
    ret = boxes_new(&t->boxes, &r->s->pool, t->ndim, shape, box, kept, r->dir, t->name,
                    err);
    if (ret == 0)
        form_join_boxes(t);
out:
    free(box);
    return ret;
}

/* A tensor, and the first of its pieces. */
struct made {
    struct tensor t;
    size_t nth;
};

static int compare_made(const void *a, const void *b)
{
    const struct made *x = a, *y = b;

    return (x->nth > y->nth) - (x->nth < y->nth);
}

/* Presents the tensors in the order of their first pieces. */
static int present(struct reader *r, struct err *err)
{
    struct made *made = xmalloc((r->n + 1) * sizeof(*made));
    struct tensor *t = xmalloc((r->n + 1) * sizeof(*t));
    size_t n = 0;
    int ret = 0;

    if (r->n)
        qsort(r->piece, r->n, sizeof(*r->piece), compare_pieces);
    for (size_t i = 0, k; i < r->n && ret == 0; i = k) {
        for (k = i + 1; k < r->n && !strcmp(r->piece[i].t.name, r->piece[k].t.name);)
            k++;
        made[n].nth = r->piece[i].nth;
        ret = join(r, &made[n++].t, &r->piece[i], k - i, err);
    }
    if (n)
        qsort(made, n, sizeof(*made), compare_made);
    for (size_t i = 0; i < n; i++)
        t[i] = made[i].t;
    if (ret == 0)
        ret = form_present(r->s, t, n, err);
    free(made);
    free(t);
    return ret;
}

static int open_directory(struct source *s, const char *path, struct err *err)
{
    struct reader r = { .s = s };
    char *dir = NULL;
    int ret = find_directory(&dir, path, err);

    if (ret == 0 && !dir)
        ret = err_set(err, ERR_INPUT, "%s: no shard-*-model-*.safetensors", path);
    r.dir = dir;
    if (ret == 0)
        ret = list_files(&r, err);
    for (size_t i = 0; i < r.nfiles && ret == 0; i++)
        ret = read_file(&r, &r.file[i], err);
    if (ret == 0)
        ret = present(&r, err);
    for (size_t i = 0; i < r.nfiles; i++)
        free(r.file[i].name);
    free(r.file);
    free(r.piece);
    free(dir);
    return ret;
}

const struct source_ops hubshards_ops = {
    .name = "a checkpoint of torch.distributed.checkpoint in safetensors files",
    .probe = probe,
    .open = open_directory
};
