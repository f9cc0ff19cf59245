/* family - family files: reading, inheritance, flattening
 *
 * A family file describes one architecture (shardutils-family(5)).  A library holds the
 * built-in families and those of the user.  A struct family is one of them, merged with
 * the families that it extends.  Every entry keeps its file, line and column for error
 * messages. */
#ifndef LIB_MODEL_FAMILY_H
#define LIB_MODEL_FAMILY_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

#include "lib/base/err.h"
#include "lib/base/json.h"
#include "lib/base/str.h"

/* A named member of a family and the place where it is defined. */
struct family_entry {
    const char *key;
    const struct json *json;
    const struct json_doc *doc;
};

struct family_table {
    struct family_entry *v;
    size_t n, cap;
};

/* "name = text".  It applies if WHEN (NULL: always) is true, the model has the tensor
 * NEEDS and lacks the tensor LACKS (NULL: no such condition). */
struct family_line {
    char *name, *text;
    const char *needs, *lacks;
    const struct json *when; /* the condition, a string; NULL: always */
    const struct json *json; /* the string that holds the line */
    const struct json_doc *doc;
    int skip; /* bytes of the string before TEXT; for columns of errors */
};

struct family_section {
    const char *name; /* if it is a capture's name, the lines repeat over its values */
    struct family_line *line;
    size_t n, cap;
};

struct family {
    const char *name, *summary;
    const struct json *example;  /* a config.json for checks of the family, or NULL */
    const struct json *types;    /* the model_type values that it matches, or NULL */
    const struct json *policies; /* parallelformers' names of these models, or NULL */
    struct family_table symbols, captures, deal, rope, tensors, carry, part_config;
    struct family_table config; /* config keys that it does not read: accepted values */
    struct family_table inputs; /* what a text brings by name: feed.h */
    struct family_table torch;  /* operations that PyTorch has otherwise */
    const struct json *within;  /* where its keys are, or NULL: see family_config */
    const struct json *order;   /* keys of its tensors as optimizers number them
                                 * (order.h),   or NULL */
    struct family_table names;  /* how other frameworks store its tensors: names.h */
    struct family_section *section;
    size_t nsections;
    bool own;                   /* from a user's file */
    struct family_state *state; /* private: the documents behind the pointers */
};

struct family_library;

/* Opens the built-in families and every *.json in the directories and files of PATH
 * (colon-separated, or NULL).  A user's family hides a built-in one of the same name. A
 * file that cannot be read, or is not a family, is skipped; see
 * family_library_fault. */
MUST_CHECK int family_library_open(struct family_library **out, const char *path,
                                   struct err *err);
void family_library_free(struct family_library *lib);
/* The error of the I'th skipped file: "FILE:LINE:COL: cause"; NULL after the last. */
const char *family_library_fault(const struct family_library *lib, size_t i);
size_t family_library_count(const struct family_library *lib);
const char *family_library_name(const struct family_library *lib,
                                size_t i); /* sorted */

/* The family called NAME, the family that matches CONFIG (CONFIG_NAME is its file name
 * for messages), or the family in FILE.  An unknown name or model_type is ERR_INPUT;
 * for a name the message suggests the nearest one. */
MUST_CHECK int family_find(struct family **out, const struct family_library *lib,
                           const char *name, struct err *err);
MUST_CHECK int family_match(struct family **out, const struct family_library *lib,
                            const cJSON *config, const char *config_name,
                            struct err *err);
/* Puts the keys of the model that lies within another one, in the object "within"
 * names, where the keys of a model are: into CONFIG.  model_type, architectures and
 * tie_word_embeddings stay those of the outer model, if it has them.  Keys that the
 * inner one lacks get the defaults of its model_type. */
void family_config(const struct family *f, cJSON *config);
MUST_CHECK int family_read(struct family **out, const struct family_library *lib,
                           const char *file, struct err *err);
/* Parses TEXT, which is copied; FILE is its name in messages. */
MUST_CHECK int family_parse(struct family **out, const struct family_library *lib,
                            const char *file, const char *text, struct err *err);
void family_free(struct family *f);

/* Appends the flattened family as JSON: a family file that extends nothing. */
void family_print(struct str *out, const struct family *f);

const struct family_entry *family_get(const struct family_table *t, const char *key);

/* The error CAUSE of reading the string J from byte OFFSET on: with a column it becomes
 * "FILE:LINE:COL: cause"; one that has its place already stays as it is.  Returns -1.
 */
int family_place(const struct json_doc *doc, const struct json *j, size_t offset,
                 const struct err *cause, struct err *err);
/* Sets ERR_INPUT "FILE:LINE:COL: cause" for byte OFFSET of the string J; returns -1. */
int family_error(const struct json_doc *doc, const struct json *j, size_t offset,
                 struct err *err, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* The families that are compiled in; .name NULL ends the list. */
struct family_builtin {
    const char *name; /* "llama.json" */
    const char *text;
};
extern const struct family_builtin family_builtins[];

#endif
