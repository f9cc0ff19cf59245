/* session - what the commands of tp-run share: the model's options, its words, its
 * ranks */
#ifndef CMD_TP_RUN_SESSION_H
#define CMD_TP_RUN_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "cmd/cmd.h"
#include "cmd/meshopt.h"
#include "cmd/tp-run/launcher.h"
#include "lib/run/runner.h"
#include "lib/text/tokenizer.h"

/* Set by options. */
struct session_options {
    struct mesh_options mesh;
    const char *family, *sp_mode, *launcher, *backend, *comm, *kv_dtype;
    const char
        *usual_backend;   /* where none is asked for; NULL: the best that there is */
    int threads, timeout; /* seconds; 0: never */
    bool json, quiet;
    bool draw; /* weights are drawn, not read */
    bool memory, same_bits;
    bool share_gpu; /* several ranks may use one */
};

enum { RANK_TIMEOUT_S = 300 }; /* by default */

#define SESSION_DEFAULTS          \
    {                             \
        .timeout = RANK_TIMEOUT_S \
    }
#define SESSION_OPTIONS(o)                                                            \
    { OPT_COUNT,    '\0', "tp",                                                       \
      &(o).mesh.tp, "N",  "tensor-parallel ranks (default: the checkpoint's)",        \
      NULL,         NULL },                                                           \
        { OPT_COUNT, '\0', "pp", &(o).mesh.pp, "N", "pipeline stages", NULL, NULL },  \
        { OPT_COUNT, '\0', "sp", &(o).mesh.sp, "N", NULL, NULL, NULL },               \
        { OPT_STRING, '\0', "sp-mode", &(o).sp_mode, "MODE", NULL, NULL, NULL },      \
        { OPT_COUNT, '\0', "ep", &(o).mesh.ep, "N", NULL, NULL, NULL },               \
        { OPT_COUNT, '\0', "dp", &(o).mesh.dp, "N", NULL, NULL, NULL },               \
        { OPT_STRING,     '\0',   "mesh",                                             \
          &(o).mesh.spec, "SPEC", "the layout, such as tp=2,pp=2",                    \
          NULL,           NULL },                                                     \
        { OPT_STRING, '\0', "family", &(o).family, "FILE", NULL, NULL, NULL },        \
        { OPT_COUNT, '\0', "threads", &(o).threads, "N", NULL, NULL, NULL },          \
        { OPT_STRING, '\0', "backend", &(o).backend, "NAME", NULL, NULL, NULL },      \
        { OPT_FLAG, '\0', "json", &(o).json, NULL, "print JSON", NULL, NULL },        \
        { OPT_STRING, '\0', "kv-dtype", &(o).kv_dtype, "TYPE", NULL, NULL, NULL },    \
        { OPT_FLAG, '\0', "deterministic", &(o).same_bits, NULL, NULL, NULL, NULL },  \
        { OPT_STRING, '\0', "launcher", &(o).launcher, "WHO", NULL, NULL, NULL },     \
        { OPT_STRING, '\0', "comm", &(o).comm, "HOW", NULL, NULL, NULL },             \
        { OPT_FLAG, '\0', "share-gpu", &(o).share_gpu, NULL, NULL, NULL, NULL },      \
        { OPT_INT, '\0', "rank-timeout", &(o).timeout, "SECONDS", NULL, NULL, NULL }, \
        { OPT_FLAG, '\0', "report-memory", &(o).memory, NULL, NULL, NULL, NULL },     \
    {                                                                                 \
        OPT_FLAG, 'q', "quiet", &(o).quiet, NULL, "no progress", NULL, NULL           \
    }

struct ids {
    int32_t *v;
    size_t n, cap;
};

struct session {
    const struct cmd *cmd;
    struct session_options opt;
    struct launcher launcher;
    struct checkpoint *checkpoint;
    struct mesh mesh;
    int local_ranks;               /* that share this machine */
    struct runner_machine machine; /* of a rank */
    struct tokenizer *tokenizer;   /* NULL: the model has none, or */
    struct err no_tokenizer;       /* why it cannot be used */
    struct ids stop;               /* ids that end a text */
    bool source;      /* the model reads a source, and a text begins with */
    int32_t start;    /* this id */
    uint64_t context; /* most tokens of a sequence */
    bool replaces;    /* text that is not UTF-8 is read with U+FFFD, not refused */
};

/* Open the model at PATH.  Release with session_close, also after a failure. */
MUST_CHECK int session_open(struct session *s, const struct cmd *cmd,
                            const struct session_options *opt, const char *path,
                            struct err *err);
void session_close(struct session *s);
/* Cores that this process may use. */
int session_cores(void);
/* Run MAIN on all ranks; the program's exit status. */
int session_run(struct session *s, rank_main main, void *arg);

/* With --report-memory: what each rank has allocated, a line of JSON for each on
 * standard error.  All ranks call it. */
MUST_CHECK int session_report(const struct session *s, const struct runner *r,
                              struct comm *comm, struct err *err);

/* Refuse a model that predicts no tokens: one of hidden states, labels or scores. */
MUST_CHECK int session_need_lm(const struct session *s, struct err *err);

/* Add the ids that end a text by the files of the model in DIR: generation_config.json
 * counts, and config.json where it says nothing. */
MUST_CHECK int session_stop_ids(struct ids *stop, const char *dir, struct err *err);

void ids_add(struct ids *ids, int32_t id);
void ids_clear(struct ids *ids);
/* Parse "1,2,3" (commas or white space), each below the model's vocabulary; or token
 * types, below their number.  WHAT is for messages. */
MUST_CHECK int session_parse_ids(const struct session *s, struct ids *out,
                                 const char *text, const char *what, struct err *err);
MUST_CHECK int session_parse_types(const struct session *s, struct ids *out,
                                   const char *text, const char *what, struct err *err);
MUST_CHECK int session_encode(const struct session *s, struct ids *out,
                              const char *text, size_t len, struct err *err);
/* The same of two texts, with a token type for each id where the model has types; RANGE
 * is where the second text's ids lie. */
MUST_CHECK int session_encode_pair(const struct session *s, struct ids *out,
                                   struct ids *types, size_t range[2], const char *text,
                                   const char *pair, struct err *err);
void ids_print_json(struct str *out, const struct ids *ids);

#endif
