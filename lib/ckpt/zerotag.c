/* zerotag - where a checkpoint of DeepSpeed is: its tag's directory and the ranks'
 * files
 */
#include "lib/ckpt/zerotag.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

enum { MOST_TAG = 4096, MOST_RANKS = 1 << 20 };

static const char LATEST[] = "latest";

/* ---- names ---- */

/* If NAME is zero_pp_rank_D_mp_rank_00 or mp_rank_00 and the end WHAT: sets *rank to D
 * or 0. */
static bool is_file(const char *name, const char *what, int *rank, int *part)
{
    static const char *const heads[] = { "bf16_zero_pp_rank_%7d_mp_rank_%7d%n",
                                         "zero_pp_rank_%7d_mp_rank_%7d%n" };
    int used = 0;

    for (size_t i = 0; i < 2; i++)
        if (sscanf(name, heads[i], rank, part, &used) == 2)
            break;
    if (!used) {
        *rank = 0;
        if (sscanf(name, "mp_rank_%7d%n", part, &used) != 1)
            return false;
    }
    name += used + (name[used] == '_');
    return *rank >= 0 && *rank < MOST_RANKS && !strcmp(name, what);
}

static int compare_files(const void *a, const void *b)
{
    const struct zerotag_file *x = a, *y = b;

    return x->rank != y->rank ? (x->rank < y->rank ? -1 : 1) : strcmp(x->name, y->name);
}

static void add_file(struct zerotag_files *f, const char *name, int rank)
{
    f->v = xgrow(f->v, &f->cap, f->n + 1, sizeof(*f->v));
    f->v[f->n++] = (struct zerotag_file){ xstrdup(name), rank };
}

void zerotag_files_clear(struct zerotag_files *f)
{
    for (size_t i = 0; i < f->n; i++)
        free(f->v[i].name);
    free(f->v);
    *f = (struct zerotag_files){ 0 };
}

/* The files must be those of ranks 0 to n - 1, each once. */
static int check_ranks(const char *dir, struct zerotag_files *f, struct err *err)
{
    if (f->n)
        qsort(f->v, f->n, sizeof(*f->v), compare_files);
    for (size_t i = 0; i < f->n; i++)
        if (f->v[i].rank != (int)i)
            return i && f->v[i].rank == f->v[i - 1].rank
                       ? err_set(err, ERR_INPUT, "%s: both %s and %s", dir,
                                 f->v[i - 1].name, f->v[i].name)
                       : err_set(err, ERR_INPUT,
                                 "%s: no file like %s of data-parallel rank %zu", dir,
                                 f->v[i].name, i);
    return 0;
}

int zerotag_count_parts(int *parts, bool *layers, const char *dir, char *const *names,
                        size_t n, struct err *err)
{
    *layers = false;
    *parts = 1;
    for (size_t i = 0; i < n; i++) {
        int rank, part, layer, used = 0;

        if (is_file(names[i], "model_states.pt", &rank, &part) && part >= *parts)
            *parts = part + 1;
        if (str_starts(names[i], "layer_") && strstr(names[i], "_expert_"))
            return err_set(err, ERR_INPUT,
                           "%s/%s: of an expert, which DeepSpeed stores apart, and "
                           "which is not read",
                           dir, names[i]);
        if (sscanf(names[i], "layer_%7d-%n", &layer, &used) != 1 || !used)
            continue;
        *layers = true;
        if (strcmp(names[i] + used, "model_states.pt") != 0)
            return err_set(err, ERR_INPUT,
                           "%s/%s: of a tensor-parallel rank, which is not read", dir,
                           names[i]);
    }
    if (*parts > 1 && !*layers)
        return err_set(err, ERR_INPUT,
                       "%s: of %d tensor-parallel ranks, which are not read", dir,
                       *parts);
    return 0;
}

int zerotag_list(struct zerotag_files *models, struct zerotag_files *optims,
                 const char *dir, int wanted, char *const *names, size_t n,
                 struct err *err)
{
    bool universal = false, whole = false;

    for (size_t i = 0; i < n; i++) {
        universal |= !strcmp(names[i], "zero");
        whole |= !strcmp(names[i], "mp_rank_00_model_states.pt");
    }
    for (size_t i = 0; i < n; i++) {
        int rank, part;
        bool model = is_file(names[i], "model_states.pt", &rank, &part);

        /* the universal form may have the model states twice, for stage 3, too */
        if (universal && whole && str_starts(names[i], "zero_pp_rank_"))
            continue;
        if ((model || is_file(names[i], "optim_states.pt", &rank, &part)) &&
            part == wanted)
            add_file(model ? models : optims, names[i], rank);
    }
    if (check_ranks(dir, models, err) < 0)
        return -1;
    return check_ranks(dir, optims, err);
}

/* ---- the tag ---- */

static bool is_states(const char *name)
{
    int rank, part;

    return is_file(name, "model_states.pt", &rank, &part);
}

/* Sets *dir, which the caller frees, to the directory of the tag that the file LATEST
 * of PATH names, if it has model states; else NULL. */
static int follow(char **dir, const char *path, const char *latest, struct err *err)
{
    char *file = fs_join_dup(path, latest), *tag = NULL;
    bool found = false;
    struct stat st;
    size_t n;
    int ret = 0;

    *dir = NULL;
    /* other programs have directories, links and long files of that name */
    if (stat(file, &st) < 0)
        ret = errno == ENOENT || errno == ENOTDIR ? 0 : err_errno(err, "%s", file);
    else if (S_ISREG(st.st_mode) && st.st_size <= MOST_TAG)
        ret = fs_read_optional(&tag, &n, file, MOST_TAG, err);
    if (ret == 0 && tag) {
        tag[strcspn(tag, "\r\n")] = '\0';
        if (fs_is_plain_name(tag)) {
            *dir = fs_join_dup(path, tag);
            ret = fs_dir_has(&found, *dir, is_states, err);
        }
    }
    if (!found) {
        free(*dir);
        *dir = NULL;
    }
    free(tag);
    free(file);
    return ret;
}

int zerotag_find(char **dir, const char **note, const char *path, struct err *err)
{
    bool found = false;

    *note = NULL;
    if (follow(dir, path, LATEST, err) < 0)
        return -1;
    if (!*dir) {
        if (follow(dir, path, "latest_universal", err) < 0 ||
            (*dir && fs_find_in(&found, path, LATEST, err) < 0))
            return -1;
        if (found)
            *note = "the tag that 'latest' names is not here; that of "
                    "'latest_universal' is read";
    }
    if (*dir)
        return 0;
    if (fs_dir_has(&found, path, is_states, err) < 0)
        return -1;
    *dir = found ? xstrdup(path) : NULL;
    return 0;
}
