/* form - what the forms of checkpoints have in common
 *
 * A form is a layout of files: a Hugging Face directory, a checkpoint of
 * torch.distributed.checkpoint, and so on.  Each is a struct source_ops; the list is in
 * source.c.  A form that is not safetensors is presented as the equivalent safetensors
 * files. */
#ifndef LIB_CKPT_FORM_H
#define LIB_CKPT_FORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/ckpt/source.h"
#include "lib/ckpt/tensor.h"

struct source_ops {
    const char *name;       /* for messages, such as "a Hugging Face directory" */
    const char *const *own; /* [to NULL] names of its files that describe weights, and
                             * are not carried; NULL: none but those that are read */
    /* Does PATH, a directory if IS_DIR, have this form?  Decided by names only,
     * that of a file also by its first bytes. */
    int (*probe)(bool *found, const char *path, bool is_dir, struct err *err);
    /* Fills *s, whose .path is set: inputs, files, tensors and, if it is still NULL and
     * the form has one, the config.  The caller clears *s in any case. */
    int (*open)(struct source *s, const char *path, struct err *err);
};

extern const struct source_ops hubdir_ops, hubfile_ops;

/* Adds the file PATH, called NAME in messages and by the user, to the inputs of S and
 * sets *input to its index, and *fd, which the caller closes, unless it is NULL. */
MUST_CHECK int form_add_input(struct source *s, const char *name, const char *path,
                              int *input, int *fd, struct err *err);
/* Sets *out to a copy of NAME that lives as long as S.  ERR_INPUT, which names PATH,
 * when the names, or what S keeps in its pool, take more than READ bytes of files can
 * account for. */
MUST_CHECK int form_keep_name(struct source *s, const char **out, const char *name,
                              uint64_t read, const char *path, struct err *err);
/* Adds a zip archive of torch.save to those whose checksums can be verified. */
void form_add_archive(struct source *s, int input, uint64_t offset, uint64_t size);
/* Adds the training state T of the weight WEIGHT in ROLE, a string constant; its arrays
 * must live as long as S.  Errors as form_keep_name. */
MUST_CHECK int form_add_state(struct source *s, const struct tensor *t,
                              const char *weight, const char *role, uint64_t read,
                              const char *path, struct err *err);
/* The role of a weight's f32 master. */
#define FORM_MASTER "param"
/* Puts the masters among the states of S in the place of the weights that they are of,
 * of the N at T, and takes them from the states.  ERR_INPUT when one has another shape.
 */
MUST_CHECK int form_use_masters(struct source *s, struct tensor *t, size_t n,
                                struct err *err);
/* Appends copies of the N tensors at T, which are in file FILE; *cap is the capacity of
 * s->tensor.  Boxes are not copied. */
void form_add_tensors(struct source *s, const struct tensor *t, size_t n, size_t file,
                      size_t *cap);
/* The same for the tensors of file I, which has no safetensors header yet: orders them,
 * widest elements first, and makes the header. */
MUST_CHECK int form_present_file(struct source *s, size_t i, const struct tensor *t,
                                 size_t n, size_t *cap, struct err *err);
/* If T's boxes are one range of one file, T says so itself, and has no boxes. */
void form_join_boxes(struct tensor *t);
/* Presents the N tensors at T as model.safetensors, or as several files of at most
 * FORM_FILE_BYTES each.  ERR_INPUT when two have one name. */
MUST_CHECK int form_present(struct source *s, const struct tensor *t, size_t n,
                            struct err *err);

/* Presents s->raw, for whoever has no model to rename them by (renamed.h): the shards
 * of several ranks as "rank-R.NAME". */
MUST_CHECK int form_present_shards(struct source *s, struct err *err);

/* Largest file that is made of several tensors; transformers 4 has the same limit. */
#define FORM_FILE_BYTES UINT64_C(5000000000)

#endif
