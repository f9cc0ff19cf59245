/* family - family files: read, inherited, flattened
 *
 * A family file describes one architecture (shardutils-family(5)).  A library is the
 * built-in families and those a user adds; a family is one of them with what it extends
 * folded in.  Every entry remembers the file, line and column it came from, so that
 * later errors can name them. */
#ifndef LIB_MODEL_FAMILY_H
#define LIB_MODEL_FAMILY_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

#include "lib/base/err.h"
#include "lib/base/json.h"
#include "lib/base/str.h"

/* One named thing of a family and where it stands. */
struct family_entry {
    const char *key;
    const struct json *json;
    const struct json_doc *doc;
};

struct family_table {
    struct family_entry *v;
    size_t n, cap;
};

/* "name = text", applied when WHEN (NULL: always) is true, and there is the tensor
 * NEEDS (NULL: none). */
struct family_line {
    char *name, *text;
    const char *when, *needs, *lacks;
    const struct json *json; /* the string that holds the line */
    const struct json_doc *doc;
    int skip; /* bytes of the string before TEXT, for columns */
};

struct family_section {
    const char *name; /* a capture's name: repeated over its values */
    struct family_line *line;
    size_t n, cap;
};

struct family {
    const char *name, *summary;
    const struct json *example; /* a config.json to check the family with, or NULL */
    const struct json *types;   /* values of model_type that its file serves, or NULL */
    const struct json *policies; /* parallelformers' names of such models, or NULL */
    struct family_table symbols, captures, deal, rope, tensors, carry, part_config;
    struct family_table config; /* keys that are not read, and their values */
    struct family_table torch;  /* operations that PyTorch's models have otherwise */
    struct family_section *section;
    size_t nsections;
    bool own;                   /* from a user's file, not built in */
    struct family_state *state; /* private: the documents behind the pointers */
};

struct family_library;

/* The built-in families and every *.json in the directories and files of PATH
 * (colon-separated, or NULL). A user's family hides a built-in one of its name.  A file
 * that cannot be read or is no family is passed over, and told by the next function. */
MUST_CHECK int family_library_open(struct family_library **out, const char *path,
                                   struct err *err);
void family_library_free(struct family_library *lib);
/* Why the I'th file of the path that was passed over is none: "FILE:LINE:COL: cause";
 * NULL when there are no more. */
const char *family_library_fault(const struct family_library *lib, size_t i);
size_t family_library_count(const struct family_library *lib);
const char *family_library_name(const struct family_library *lib,
                                size_t i); /* sorted */

/* The family called NAME, the one that CONFIG asks for (CONFIG_NAME is for messages),
 * or the one in FILE.  Unknown names and model types are ERR_INPUT and name the nearest
 * known. */
MUST_CHECK int family_find(struct family **out, const struct family_library *lib,
                           const char *name, struct err *err);
MUST_CHECK int family_match(struct family **out, const struct family_library *lib,
                            const cJSON *config, const char *config_name,
                            struct err *err);
MUST_CHECK int family_read(struct family **out, const struct family_library *lib,
                           const char *file, struct err *err);
/* A family from TEXT, which is copied; FILE is its name for messages. */
MUST_CHECK int family_parse(struct family **out, const struct family_library *lib,
                            const char *file, const char *text, struct err *err);
void family_free(struct family *f);

/* Append the flattened family as JSON: itself a family file that extends nothing. */
void family_print(struct str *out, const struct family *f);

const struct family_entry *family_get(const struct family_table *t, const char *key);

/* ERR_INPUT "FILE:LINE:COL: " and the cause, at byte OFFSET of the entry's string. */
int family_error(const struct json_doc *doc, const struct json *j, size_t offset,
                 struct err *err, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* The families compiled in; the list ends with .name NULL. */
struct family_builtin {
    const char *name; /* "llama.json" */
    const char *text;
};
extern const struct family_builtin family_builtins[];

#endif
