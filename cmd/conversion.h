/* conversion - checkpoints opened and written, the same in every program */
#ifndef CMD_CONVERSION_H
#define CMD_CONVERSION_H

#include "cmd/cmd.h"
#include "lib/model/keys.h"
#include "lib/reshard/checkpoint.h"
#include "lib/reshard/convert.h"

/* SHARDUTILS_FAMILY_PATH, or NULL; CMD warns of each file on it that is no family. */
const char *family_path(const struct cmd *cmd);
/* How a checkpoint that the user names is opened. */
struct open_options {
    const char *family, *config; /* --family and --config, or NULL */
    bool moments, masters;       /* --moments, --masters */
    bool any_moments;            /* those there are */
    bool average;                /* --average */
};

/* Open PATH as O says (NULL: as it is), with the families of family_path. */
MUST_CHECK int open_checkpoint(const struct cmd *cmd, struct checkpoint **out,
                               const char *path, const struct open_options *o,
                               struct err *err);
/* The same to be cut: a family from the user's file must also type, since the cut
 * checkpoint keeps it. */
MUST_CHECK int open_to_cut(const struct cmd *cmd, struct checkpoint **out,
                           const char *path, const struct open_options *o,
                           struct err *err);

/* Say what the reader of a source has to say, a line each: another set of weights
 * beside the single file that is read, as transformers reads it; a prefix of all names
 * that was left out; and what it chose or made. */
void warn_source(const struct cmd *cmd, const struct checkpoint *c);
/* Say so in one line if tensors that the config ties differ in the files. */
void warn_untied(const struct cmd *cmd, const struct model *m);

/* Check the keys of M's config as keys_check does, and warn with one line of CMD (NULL:
 * not at all) of those that are ignored, and as warn_untied does. */
MUST_CHECK int check_config(const struct cmd *cmd, const struct model *m,
                            enum keys_need need, struct err *err);

/* convert, or an export that is called like it. */
typedef int converter(struct checkpoint *ckpt, const char *path,
                      const struct convert_options *opt, struct convert_result *result,
                      struct err *err);

/* How the commands that write a checkpoint are asked to do it. */
struct write_options {
    bool force, quiet, dry;
};

/* Rows of an option table. */
#define FAMILY_OPTION(family)                                 \
    {                                                         \
        OPT_STRING, '\0', "family", &(family), "FILE",        \
            "the model family: a name, or a FILE", NULL, NULL \
    }

#define CONFIG_OPTION(config)                                       \
    {                                                               \
        OPT_STRING, '\0', "config", &(config), "FILE",              \
            "the model's config.json, or its directory", NULL, NULL \
    }

#define MOMENTS_OPTION(moments)                            \
    {                                                      \
        OPT_FLAG, '\0', "moments", &(moments), NULL,       \
            "take an optimizer's moments, too", NULL, NULL \
    }

#define MASTERS_OPTION(masters)                                   \
    {                                                             \
        OPT_FLAG, '\0', "masters", &(masters), NULL,              \
            "take an optimizer's f32 weights instead", NULL, NULL \
    }

#define AVERAGE_OPTION(average)                                 \
    {                                                           \
        OPT_FLAG, '\0', "average", &(average), NULL,            \
            "take a training's averages of weights", NULL, NULL \
    }

#define WRITE_OPTIONS(w)                                                               \
    {                                                                                  \
        OPT_FLAG, 'f', "force", &(w).force, NULL, "replace an earlier output",         \
        NULL,     NULL                                                                 \
    },                                                                                 \
        { OPT_FLAG, 'n', "dry-run", &(w).dry, NULL, "check everything, write nothing", \
          NULL,     NULL },                                                            \
    {                                                                                  \
        OPT_FLAG, 'q', "quiet", &(w).quiet, NULL, "show no progress", NULL, NULL       \
    }

/* Run HOW as W asks, with progress on a terminal, and say what was done; returns the
 * exit status. */
int run_convert(const struct cmd *cmd, struct checkpoint *ckpt, const char *output,
                converter *how, struct convert_options *opt,
                const struct write_options *w);

#endif
