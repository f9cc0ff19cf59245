/* source - a model's weights as another program left them
 *
 * The forms that are known are listed in source.c; form.h says what one is.  Whatever
 * the form, a source has tensors, in the order of its files and of their data, and
 * source_read reads any range of one, be it one range of a file or many of many.
 *
 * A form that is not safetensors is presented as the equivalent safetensors files:
 * their names, their headers, and the data in the order of the tensors.  A merge writes
 * those files. */
#ifndef LIB_CKPT_SOURCE_H
#define LIB_CKPT_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/pool.h"
#include "lib/ckpt/boxes.h"
#include "lib/ckpt/trainprogress.h"
#include "lib/ckpt/tensor.h"

struct safetensors;

/* A file on disk that is read. */
struct source_input {
    const char *name; /* relative to the source's directory */
    const char *path;
    uint64_t size;    /* bytes */
    int64_t mtime_ns; /* time of the last change of contents, to detect changes */
    int64_t ctime_ns; /* and of the inode */
    uint64_t inode;
};

/* A file of the safetensors form. */
struct source_file {
    const char *name;   /* "model-00001-of-00002.safetensors" */
    const char *origin; /* the name of the input of the same index, if this file is made
                         * of that one, of torch.save, alone; else NULL */
    uint64_t whole;     /* bytes */
    uint64_t data;      /* offset of the first data byte */
    char
        *header; /* without the length, if the file is not an input itself; else NULL */
};

/* A zip archive of torch.save in an input, which has checksums of its members. */
struct source_archive {
    int input;
    uint64_t offset, size;
};

/* A tensor that a file's metadata says is stored under another name, as safetensors'
 * save_model writes tied ones; any other entry of the metadata has the same form. */
struct source_alias {
    const char *name, *stored;
};

/* A small file that the form makes of what it has. */
struct source_text {
    const char *name; /* "tokenizer.json" */
    char *text;
};
enum { SOURCE_MOST_MADE = 2 };

struct source {
    const struct source_ops *ops; /* its form */
    char *path;                   /* as given */
    bool single;                  /* a single file: no config, no small files */
    char *config;                 /* text of config.json; NULL when there is none */
    char *config_path;
    bool reconfigured; /* it is not what the file has */
    int fours;         /* 1: matrices are in bitsandbytes' 4 bits, 2: their scales in 8;
                        * they are presented as numbers (fourbit.h) */
    bool given;        /* by the user */
    char *unmade; /* why the form, which describes the model otherwise, gives no config;
                   * NULL: it does, or has no description */
    struct source_text made[SOURCE_MOST_MADE];
    size_t nmade;
    char *untokenized; /* why no tokenizer is made of the form's own; or NULL */
    char *home;        /* the directory of the files that are carried */
    const char
        *dialect;       /* whose names the tensors have: "meta"; NULL: Hugging Face's */
    struct tensor *raw; /* of a dialect: all shards of all tensors, .file is the number
                         * of the rank; NULL: .tensor has them */
    size_t nraw;
    const char *stripped; /* part of all names that was left out (renamed.h), or NULL */
    const char *note;     /* what else is to be said of what was read, or NULL */
    struct source_input *input;
    size_t ninputs;
    struct source_file
        *file; /* unless .header is set, each is the input of its index */
    size_t nfiles;
    struct tensor *tensor; /* .file indexes file, .input indexes input */
    size_t n;
    struct tensor *state; /* training state, if it was asked for: .name is the weight's,
                           * a full stop and the role */
    const char **role;    /* [nstates] of each: exp_avg, exp_avg_sq */
    int *group;           /* [nstates] and its group in .progress; -1: not known */
    size_t nstates;
    struct progress progress; /* of the training, if its state was asked for */
    struct source_archive *archive;
    size_t narchives;
    struct source_alias *alias;
    size_t naliases;
    char **small; /* names of the other files that are carried unchanged to what is made
                   * of the source: NAME, or DIR/NAME */
    size_t nsmall;
    char **left; /* names of those that are not: weights of other forms, files beyond
                  * the limits below or deeper, and what is no regular file */
    size_t nleft;
    char *shadowed;   /* path of an index that names other weights than the single file
                       * that is read; NULL: none */
    struct pool pool; /* private, as the next */
    size_t input_cap, archive_cap, state_cap, role_cap, group_cap;
    bool moments;   /* read the training state, too */
    bool masters;   /* read an optimizer's f32 masters in place of weights */
    bool mastered;  /* such are its weights */
    uint64_t named; /* bytes of names */
};

/* Limits of the files that are carried: bytes of one, bytes and number of all.  An
 * adapter's weights are carried whatever their size. */
#define SOURCE_MAX_SMALL (UINT64_C(256) << 20)
#define SOURCE_MAX_ALL   (UINT64_C(512) << 20)
enum { SOURCE_MOST_SMALL = 1000 };

struct source_options {
    const char *config; /* the config.json to use, or its directory, or NULL */
    bool moments;       /* read an optimizer's moments, too, if the form has them */
    bool any_moments;   /* the same, and having none is no error */
    bool masters;       /* and in place of weights its f32 masters of them */
};

/* Opens PATH; OPT may be NULL.  A config that is given is used;
 * otherwise it lies in PATH or, for a form that has none of its own, in
 * PATH/huggingface or the directory above.  ERR_INPUT names file and cause.  On failure
 * *s needs no clearing. */
MUST_CHECK int source_open(struct source *s, const char *path,
                           const struct source_options *opt, struct err *err);
void source_clear(struct source *s);

/* Is PATH in a form of a training framework, rather than Hugging Face's or unknown? */
MUST_CHECK int source_find_foreign(bool *found, const char *path, struct err *err);
/* Does the directory DIR have weights? */
MUST_CHECK int source_find_weights(bool *found, const char *dir, struct err *err);
/* Opens a directory with a config.json and without weights.  The caller then sets
 * .file[0] and .tensor with source_promise. */
MUST_CHECK int source_open_bare(struct source *s, const char *path, struct err *err);
/* The single file will have the N tensors at T, whose names must outlive *s. */
MUST_CHECK int source_promise(struct source *s, const struct tensor *t, size_t n,
                              struct err *err);

/* Replaces all tensors of S, whose files are all of torch.save (a directory has files
 * of one form), by the N tensors at T, whose .file, .offset and .stride refer to
 * them. */
MUST_CHECK int source_set_pickled(struct source *s, const struct tensor *t, size_t n,
                                  struct err *err);

/* Reads N bytes at OFFSET of the row-major form of tensor T, both multiples of its
 * element unless its bytes lie together; FD opens inputs. */
MUST_CHECK int source_read(const struct tensor *t, uint64_t offset, void *buf, size_t n,
                           boxes_fd *fd, void *arg, struct err *err);
/* Are its files safetensors already, so that a merge has nothing to do? */
bool source_is_safetensors(const struct source *s);
/* The name of the file with the tensor T, which lies in one: that of the safetensors
 * form if the file stands for an input. */
const char *source_file_of(const struct source *s, const struct tensor *t);
/* The text of the small file NAME that the form of S makes; NULL: it makes none. */
const char *source_made(const struct source *s, const char *name);
/* The path to name in a message about T: its file, or the source. */
const char *source_place(const struct source *s, const struct tensor *t);

/* The index that a merge of S needs in addition, when S has several files of
 * torch.save; else NULL.  The caller frees it. */
char *source_index_dup(const struct source *s);

/* The safetensors header of file I, n bytes and a NUL; the caller frees it. */
MUST_CHECK int source_header(char **text, size_t *n, const struct source *s, size_t i,
                             struct err *err);

/* The CRC-32 of input I. */
MUST_CHECK int source_crc32(uint32_t *crc, const struct source *s, size_t i,
                            struct err *err);

/* Appends the entries of the metadata of ST to the *n at *ALIAS. */
void source_add_aliases(struct source_alias **alias, size_t *n, struct pool *pool,
                        const struct safetensors *st);
/* Appends the entries of the metadata in a safetensors header, N bytes at TEXT, to the
 * *n at *ALIAS, which the caller frees; the strings are in POOL.  PATH is for messages.
 */
MUST_CHECK int source_header_aliases(struct source_alias **alias, size_t *nalias,
                                     struct pool *pool, const char *path,
                                     const char *text, size_t n, struct err *err);

#endif
