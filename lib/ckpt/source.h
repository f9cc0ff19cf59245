/* source - a Hugging Face directory, or one file of tensors
 *
 * A directory has config.json and model.safetensors, or model.safetensors.index.json
 * with the shards it names, or else pytorch_model.bin, or its index.  Symbolic links
 * are followed, as hub caches are made of them; a shard's name in the index must be a
 * plain file name, or the index is refused before anything is opened by it.  Tensors
 * come in the order of the files and, in each, of their data.
 *
 * A file of torch.save has a form as a safetensors file: a name, a header, and the data
 * in the order of the tensors.  That is what its name and header are here, and what a
 * merge writes. */
#ifndef LIB_CKPT_SOURCE_H
#define LIB_CKPT_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/pool.h"
#include "lib/ckpt/tensor.h"

struct source_file {
    const char *name;   /* "model-00001-of-00002.safetensors" */
    const char *origin; /* the file's own name; NULL when it is that */
    const char *path;   /* NULL: there is none yet, only its header */
    uint64_t size;      /* bytes of the file on disk */
    uint64_t whole;     /* bytes of its safetensors form: the same, but for a pickle */
    uint64_t data;      /* offset of the first data byte in that form */
    char *header;       /* of a pickle's form, without the length; else NULL */
    int64_t mtime_ns;   /* of its last change, to notice one */
    int64_t ctime_ns;   /* and of its inode's */
    uint64_t inode;
};

struct source {
    char *path;   /* as it was given */
    bool single;  /* one file: no config, no small files */
    char *config; /* text of config.json; NULL when there is none */
    char *config_path;
    struct source_file *file;
    size_t nfiles;
    struct tensor *tensor; /* .file indexes file */
    size_t n;
    char **small; /* names of the small files that are copied as they are */
    size_t nsmall;
    struct pool pool; /* private */
};

/* Open PATH.  Errors: ERR_INPUT names file and cause.  On failure *s needs no
 * clearing. */
MUST_CHECK int source_open(struct source *s, const char *path, struct err *err);
void source_clear(struct source *s);

/* Are there weights in the directory DIR? */
bool source_has_weights(const char *dir);
/* Open a directory that has a config.json and no weights: .file[0] and .tensor are the
 * caller's to fill, by source_promise. */
MUST_CHECK int source_open_bare(struct source *s, const char *path, struct err *err);
/* The N tensors at T, whose names stay, are what its one file is to have. */
MUST_CHECK int source_promise(struct source *s, const struct tensor *t, size_t n,
                              struct err *err);

/* Have the N tensors at T, whose .file, .offset and .stride are those of S's files of
 * torch.save, in the place of all of theirs; other files' stay. */
MUST_CHECK int source_set_pickled(struct source *s, const struct tensor *t, size_t n,
                                  struct err *err);

/* The text of the index that a merge of S needs and S has not (a fresh one): that of
 * several files of torch.save.  NULL otherwise. */
char *source_index_dup(const struct source *s);

/* The safetensors header of file I as it stands (a fresh text, NUL-terminated; *n
 * bytes). */
MUST_CHECK int source_header(char **text, size_t *n, const struct source *s, size_t i,
                             struct err *err);

/* The CRC-32 of file I as it lies on the disk. */
MUST_CHECK int source_crc32(uint32_t *crc, const struct source *s, size_t i,
                            struct err *err);

/* The weight files that the N bytes of an index at TEXT name, in order, each once; PATH
 * is for messages.  Free with fs_list_free. */
MUST_CHECK int source_parse_index(char ***names, size_t *nnames, const char *path,
                                  const char *text, size_t n, struct err *err);

#endif
