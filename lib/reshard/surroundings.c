/* surroundings - what lies in a model's directory beside the weights that are read */
#include "lib/reshard/surroundings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/json.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/ckpt/pickle.h"

/* How a file of git LFS that was not fetched begins: its specification, version 1. */
static const char LFS_POINTER[] = "version https://git-lfs.github.com/spec/v1";

enum { MAX_JSON = 1 << 24 };

struct around {
    struct inspection *out;
    const char *dir;
    char *const *weights;
    size_t nweights;
    bool whole, tokenizer, code;
};

static bool ends_with_one(const char *name, const char *const *suffix)
{
    for (; *suffix; suffix++)
        if (str_ends(name, *suffix))
            return true;
    return false;
}

static bool is_read(const struct around *a, const char *name)
{
    for (size_t i = 0; i < a->nweights; i++)
        if (!strcmp(a->weights[i], name))
            return true;
    return false;
}

/* Is NAME a shard such as model-00001-of-00003.safetensors? */
static bool is_shard(const char *name)
{
    const char *of = strstr(name, "-of-");

    return of && of > name && strspn(of + 4, "0123456789") >= 1 &&
           (str_ends(name, ".safetensors") || str_ends(name, ".bin"));
}

static bool is_weights(const char *name)
{
    static const char *const suffix[] = { ".safetensors", ".bin",     ".pt",
                                          ".pth",         ".ckpt",    ".gguf",
                                          ".h5",          ".msgpack", ".onnx",
                                          ".npz",         ".distcp",  NULL };

    return ends_with_one(name, suffix);
}

static bool is_tokenizer(const char *name)
{
    static const char *const names[] = { "tokenizer.json", "tokenizer.model",
                                         "vocab.txt",      "vocab.json",
                                         "spiece.model",   "sentencepiece.bpe.model",
                                         "source.spm",     "tiktoken.model",
                                         "tekken.json",    NULL };

    for (size_t i = 0; names[i]; i++)
        if (!strcmp(name, names[i]))
            return true;
    return str_ends(name, ".tiktoken");
}

/* ---- pickles ---- */

static bool starts_with_one(const char *name, const char *const *prefix)
{
    for (; *prefix; prefix++)
        if (str_starts(name, *prefix))
            return true;
    return false;
}

/* What follows when a pickle that is not read as weights names the global NAME. */
static enum inspection_level level_of(const char *name)
{
    static const char *const known[] = { "torch.",
                                         "numpy.",
                                         "collections.",
                                         "transformers.",
                                         "accelerate.",
                                         "peft.",
                                         "trl.",
                                         "deepspeed.",
                                         "megatron.",
                                         "argparse.",
                                         "pathlib.",
                                         "datetime.",
                                         "omegaconf.",
                                         "_codecs.",
                                         "fractions.",
                                         "torchvision",
                                         "lightning",
                                         "pytorch_lightning.",
                                         NULL };
    static const char *const runs[] = { "os.",
                                        "posix.",
                                        "nt.",
                                        "subprocess.",
                                        "sys.",
                                        "socket.",
                                        "shutil.",
                                        "builtins.eval",
                                        "builtins.exec",
                                        "builtins.compile",
                                        "builtins.getattr",
                                        "builtins.__import__",
                                        "builtins.open",
                                        "__builtin__.eval",
                                        "__builtin__.exec",
                                        "__builtin__.execfile",
                                        "__builtin__.compile",
                                        "__builtin__.getattr",
                                        "__builtin__.__import__",
                                        "__builtin__.open",
                                        "importlib.",
                                        "runpy.",
                                        "webbrowser.",
                                        "pty.",
                                        "ctypes.",
                                        "code.",
                                        "pip.",
                                        "pdb.",
                                        "bdb.",
                                        "timeit.",
                                        "asyncio.",
                                        "multiprocessing.",
                                        "operator.",
                                        "functools.",
                                        "types.",
                                        NULL };

    return starts_with_one(name, runs)    ? INSPECTION_ERROR
           : starts_with_one(name, known) ? INSPECTION_NOTE
                                          : INSPECTION_WARNING;
}

static int inspect_pickle(struct around *a, const char *name, const char *path,
                          struct err *err)
{
    static const char names[] = "its pickle names ";
    struct err cause = { 0 };
    struct pickle p;
    const char *global;
    int fd = fs_open_regular(path, &cause);

    if (fd < 0)
        return inspection_take(a->out, INSPECTION_WARNING, name, path, &cause, err);
    if (pickle_read(&p, fd, path, &cause) == 0) {
        pickle_clear(&p);
    } else if (cause.kind != ERR_INPUT) {
        close(fd);
        *err = cause;
        return -1;
    } else if ((global = strstr(cause.text, names)) != NULL) {
        global += strlen(names);
        inspection_add(a->out, level_of(global), name, NULL, "a pickle that names %s%s",
                       global,
                       level_of(global) == INSPECTION_NOTE
                           ? ""
                           : ": whoever loads it runs what it says");
    }
    close(fd);
    return 0;
}

/* ---- one file ---- */

/* Looks at the first bytes of the file NAME; *OTHER: it is not what it is called. */
static int inspect_begin(struct around *a, const char *name, const char *path,
                         bool *other, struct err *err)
{
    static const char *const needed[] = { ".safetensors", ".bin",   ".pt",  ".pth",
                                          ".json",        ".model", ".txt", NULL };
    char *text;
    size_t n;

    *other = false;
    if (fs_read_part(&text, &n, path, 0, sizeof(LFS_POINTER), err) < 0)
        return -1;
    if (!text)
        return 0;
    if (str_starts(text, LFS_POINTER)) {
        inspection_add(
            a->out,
            is_weights(name) || is_tokenizer(name) || str_ends(name, ".json")
                ? INSPECTION_ERROR
                : INSPECTION_WARNING,
            name, NULL,
            "a pointer of git LFS, not the file ('git lfs pull' fetches it)");
        *other = true;
    } else if (!n && ends_with_one(name, needed)) {
        inspection_add(a->out, INSPECTION_ERROR, name, NULL, "empty");
        *other = true;
    }
    free(text);
    return 0;
}

static void inspect_name(struct around *a, const char *name)
{
    static const char *const partial[] = { ".incomplete", ".part",    ".aria2",
                                           ".crdownload", ".partial", ".tmp",
                                           ".lock",       NULL };

    if (ends_with_one(name, partial))
        inspection_add(a->out, INSPECTION_WARNING, name, NULL,
                       "left by a download or a write that did not end");
    else if (str_ends(name, ".py")) {
        a->code = true;
        inspection_add(a->out, INSPECTION_WARNING, name, NULL,
                       "code, which loaders that trust it run");
    } else if (is_shard(name) && !is_read(a, name)) {
        inspection_add(a->out, INSPECTION_WARNING, name, NULL,
                       "a stray shard: it is not among the weights that are read");
    } else if (is_weights(name) && !is_read(a, name) && !str_starts(name, "adapter_")) {
        inspection_add(a->out, INSPECTION_NOTE, name, NULL,
                       "weights or state that are not read");
    }
}

/* Looks at file NAME, which may be DIR/FILE. */
static int inspect_file(struct around *a, const char *name, struct err *err)
{
    static const char *const pickled[] = { ".bin", ".pt",     ".pth", ".ckpt",
                                           ".pkl", ".pickle", NULL };
    char *path = fs_join_dup(a->dir, name);
    struct stat st;
    bool other = false;
    int ret = 0;

    if (stat(path, &st) < 0) {
        if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP)
            inspection_add(a->out, INSPECTION_ERROR, name, NULL,
                           "a link that leads nowhere");
        else
            inspection_add(a->out, INSPECTION_WARNING, name, NULL, "%s",
                           strerror(errno));
    } else if (S_ISREG(st.st_mode)) {
        a->tokenizer |= is_tokenizer(name);
        if (access(path, R_OK) < 0)
            inspection_add(a->out, INSPECTION_WARNING, name, NULL, "%s",
                           strerror(errno));
        else
            ret = inspect_begin(a, name, path, &other, err);
        if (ret == 0 && !other)
            inspect_name(a, name);
        if (ret == 0 && !other && ends_with_one(name, pickled) && !is_read(a, name))
            ret = inspect_pickle(a, name, path, err);
    } else if (!S_ISDIR(st.st_mode)) {
        inspection_add(a->out, INSPECTION_WARNING, name, NULL,
                       "neither a file nor a directory");
    }
    free(path);
    return ret;
}

/* Looks at what is in the directory BELOW (or "") of the model's. */
static int inspect_names(struct around *a, const char *below, struct err *err)
{
    char *path = *below ? fs_join_dup(a->dir, below) : xstrdup(a->dir), **names = NULL;
    size_t n = 0;
    int ret = 0;

    if (*below && access(path, R_OK | X_OK) < 0)
        inspection_add(a->out, INSPECTION_WARNING, below, NULL, "%s", strerror(errno));
    else
        ret = fs_list(&names, &n, path, err);
    for (size_t i = 0; i < n && ret == 0; i++) {
        char *name = *below ? fs_join_dup(below, names[i]) : xstrdup(names[i]);
        char *file = fs_join_dup(a->dir, name);
        struct stat st;

        if (!strcmp(names[i], ".git") || !strcmp(names[i], ".cache"))
            ret = 0;
        else if (!*below && lstat(file, &st) == 0 && S_ISDIR(st.st_mode))
            ret = inspect_names(a, names[i], err);
        else
            ret = inspect_file(a, name, err);
        free(name);
        free(file);
    }
    fs_list_free(names, n);
    free(path);
    return ret;
}

/* ---- what the files say ---- */

/* The model that the adapter's config in TEXT names is its base, as a finding says it.
 */
static int inspect_adapter_config(struct around *a, const char *name, const char *path,
                                  const char *text, size_t n, struct err *err)
{
    struct err cause = { 0 };
    const struct json *base;
    struct json_doc doc;

    if (json_parse_config(&doc, path, text, n, &cause) < 0)
        return inspection_take(a->out, INSPECTION_ERROR, name, path, &cause, err);
    base = json_get(doc.root, "base_model_name_or_path");
    inspection_add(a->out, a->whole ? INSPECTION_ERROR : INSPECTION_NOTE, name, NULL,
                   a->whole ? "an adapter of %s lies beside the weights: some "
                              "loaders apply it, others do not"
                            : "an adapter of %s, not a model",
                   base && json_string(base) ? base->text
                                             : "a model that it does not name");
    json_clear(&doc);
    return 0;
}

static int inspect_adapter(struct around *a, struct err *err)
{
    static const char name[] = "adapter_config.json";
    char *path = fs_join_dup(a->dir, name);
    struct err cause = { 0 };
    char *text;
    size_t n;
    int ret = fs_read_optional(&text, &n, path, MAX_JSON, &cause);

    if (ret < 0)
        ret = inspection_take(a->out, INSPECTION_ERROR, name, path, &cause, err);
    else if (text)
        ret = inspect_adapter_config(a, name, path, text, n, err);
    free(text);
    free(path);
    return ret;
}

int surroundings_inspect(struct inspection *out, const char *dir, char *const *weights,
                         size_t n, bool whole, struct err *err)
{
    struct around a = {
        .out = out, .dir = dir, .weights = weights, .nweights = n, .whole = whole
    };

    if (inspect_names(&a, "", err) < 0 || inspect_adapter(&a, err) < 0)
        return -1;
    if (!a.tokenizer && whole)
        inspection_add(out, INSPECTION_WARNING, "tokenizer.json", NULL,
                       "missing, and no other tokenizer is there");
    return 0;
}
