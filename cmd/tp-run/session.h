/* session - shared by the commands of tp-run: model options, tokenizer, ranks */
#ifndef CMD_TP_RUN_SESSION_H
#define CMD_TP_RUN_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "cmd/cmd.h"
#include "cmd/meshopt.h"
#include "cmd/tp-run/launcher.h"
#include "lib/device/optimizers.h"
#include "lib/run/choice.h"
#include "lib/run/runner.h"
#include "lib/text/tokenizer.h"

/* Set by options. */
struct session_options {
    struct mesh_options mesh;
    const char *family, *config, *sp_mode, *launcher, *backend, *comm, *kv_dtype, *base;
    struct opt_list adapters; /* [NAME=]DIR[@WEIGHT] */
    const char *devices;      /* "0,2": of the backend; NULL: all */
    int threads, timeout;     /* timeout in seconds; 0: none */
    bool json, quiet;
    uint64_t vocab;  /* tokens that the model shall have; 0: its own */
    bool vocab_zero; /* the new ones' rows are 0 */
    bool average;    /* a training's averages of weights */
    bool draw;       /* weights are initialized at random, not read */
    bool memory, same_bits;
    int compute;     /* enum session_compute */
    int weights;     /* enum weights_form */
    bool share_gpu;  /* several ranks may use one GPU */
    bool unfused;    /* each operation of a program by itself */
    bool no_adapter; /* the model is run without the adapter beside it */
    /* Set by commands: */
    bool no_choice; /* texts cannot choose an adapter */
    bool moments;   /* with the states of another trainer's optimizer */
    bool trains;    /* one adapter at most, which is trained */
};

/* The type in which products are computed. */
enum session_compute { COMPUTE_F32, COMPUTE_BF16, COMPUTE_F16 /* train */ };
extern const char *const session_compute_names[];
extern const char *const session_weights_names[]; /* by enum weights_form */

enum { RANK_TIMEOUT_S = 300 }; /* default */

#define SESSION_DEFAULTS          \
    {                             \
        .timeout = RANK_TIMEOUT_S \
    }
/* How requests share the KV cache: fields of B. */
#define BATCHING_OPTIONS(b)                                                            \
    { OPT_COUNT, '\0', "requests", &(b).requests, "N", NULL, NULL, NULL },             \
        { OPT_COUNT, '\0', "cache-tokens", &(b).cache_tokens, "N", NULL, NULL, NULL }, \
    {                                                                                  \
        OPT_FLAG, '\0', "no-prefix-cache", &(b).no_sharing, NULL, NULL, NULL, NULL     \
    }
#define SESSION_OPTIONS(o)                                                             \
    { OPT_COUNT,    '\0', "tp",                                                        \
      &(o).mesh.tp, "N",  "tensor-parallel ranks (default: the checkpoint's)",         \
      NULL,         NULL },                                                            \
        { OPT_COUNT, '\0', "pp", &(o).mesh.pp, "N", NULL, NULL, NULL },                \
        { OPT_COUNT, '\0', "sp", &(o).mesh.sp, "N", NULL, NULL, NULL },                \
        { OPT_STRING, '\0', "sp-mode", &(o).sp_mode, "MODE", NULL, NULL, NULL },       \
        { OPT_COUNT, '\0', "ep", &(o).mesh.ep, "N", NULL, NULL, NULL },                \
        { OPT_COUNT, '\0', "dp", &(o).mesh.dp, "N", NULL, NULL, NULL },                \
        { OPT_STRING, '\0', "mesh", &(o).mesh.spec, "SPEC", NULL, NULL, NULL },        \
        { OPT_STRING, '\0', "family", &(o).family, "FILE", NULL, NULL, NULL },         \
        { OPT_STRING, '\0', "config", &(o).config, "FILE", NULL, NULL, NULL },         \
        { OPT_COUNT, '\0', "threads", &(o).threads, "N", NULL, NULL, NULL },           \
        { OPT_STRING, '\0', "backend", &(o).backend, "NAME", NULL, NULL, NULL },       \
        { OPT_STRING, '\0', "devices", &(o).devices, "LIST", NULL, NULL, NULL },       \
        { OPT_FLAG, '\0', "json", &(o).json, NULL, NULL, NULL, NULL },                 \
        { OPT_STRING, '\0', "kv-dtype", &(o).kv_dtype, "TYPE", NULL, NULL, NULL },     \
        { OPT_FLAG, '\0', "deterministic", &(o).same_bits, NULL, NULL, NULL, NULL },   \
        { OPT_CHOICE,                                                                  \
          '\0',                                                                        \
          "compute",                                                                   \
          &(o).compute,                                                                \
          "TYPE",                                                                      \
          NULL,                                                                        \
          session_compute_names,                                                       \
          NULL },                                                                      \
        { OPT_CHOICE,                                                                  \
          '\0',                                                                        \
          "weights",                                                                   \
          &(o).weights,                                                                \
          "TYPE",                                                                      \
          NULL,                                                                        \
          session_weights_names,                                                       \
          NULL },                                                                      \
        { OPT_STRING, '\0', "launcher", &(o).launcher, "WHO", NULL, NULL, NULL },      \
        { OPT_STRING, '\0', "comm", &(o).comm, "HOW", NULL, NULL, NULL },              \
        { OPT_FLAG, '\0', "share-gpu", &(o).share_gpu, NULL, NULL, NULL, NULL },       \
        { OPT_INT, '\0', "rank-timeout", &(o).timeout, "SECONDS", NULL, NULL, NULL },  \
        { OPT_LIST, '\0', "adapter", &(o).adapters, "DIR", NULL, NULL, NULL },         \
        { OPT_STRING, '\0', "base", &(o).base, "MODEL", NULL, NULL, NULL },            \
        { OPT_FLAG, '\0', "ignore-adapter", &(o).no_adapter, NULL, NULL, NULL, NULL }, \
        { OPT_FLAG, '\0', "unfused", &(o).unfused, NULL, NULL, NULL, NULL },           \
        { OPT_FLAG, '\0', "report-memory", &(o).memory, NULL, NULL, NULL, NULL },      \
    {                                                                                  \
        OPT_FLAG, 'q', "quiet", &(o).quiet, NULL, "no progress", NULL, NULL            \
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
    char *located, *base; /* the adapter that MODEL is, and its model; or NULL */
    struct mesh mesh;
    int local_ranks;               /* ranks on this machine */
    int *devices;                  /* of --devices */
    struct runner_machine machine; /* of a rank; .ops is set by session_choose */
    enum optimizer_kind optimizer; /* of a program that trains */
    struct choice_asked asked;
    struct choice choice;
    const char *path;            /* as it was given */
    struct tokenizer *tokenizer; /* NULL: the model has none, or */
    struct err no_tokenizer;     /* it cannot be used because of this */
    struct grammars *grammars;   /* with a tokenizer */
    struct ids stop;             /* ids that end a text */
    bool source;                 /* encoder-decoder model; its text begins with */
    int32_t start;               /* this id */
    struct row_spaces rows;      /* of its programs, and the inputs that they read, */
    bool reads[FEEDS_MOST];      /* set by session_choose */
    uint64_t context;            /* maximum number of tokens in a sequence */
    bool replaces; /* bytes that are not UTF-8 become U+FFFD instead of an error */
};

/* Sets *out to the number of the adapters called NAME; ERR_INPUT: there are none. */
MUST_CHECK int session_adapter(const struct session *s, int *out, const char *name,
                               struct err *err);
/* Opens the model at PATH.  Call session_close also after a failure. */
MUST_CHECK int session_open(struct session *s, const struct cmd *cmd,
                            const struct session_options *opt, const char *path,
                            struct err *err);
/* Chooses the backend that runs programs with each of the N OPTIONS (one to generate,
 * one to train): the one that is asked for, else the first that can; says so if it is
 * not the first.  ERR_NO: it cannot, or none can.  Collective over the ranks of a
 * launcher. */
MUST_CHECK int session_choose(struct session *s, const struct program_options *options,
                              size_t n, struct err *err);
void session_close(struct session *s);
/* Opens the model at PATH, which is to work with texts of the model of S: its tokenizer
 * has the same tokens.  The caller closes *OUT.  Collective over the ranks of a
 * launcher. */
MUST_CHECK int session_open_beside(const struct session *s, struct checkpoint **out,
                                   const char *path, struct err *err);
/* Number of cores available to this process. */
int session_cores(void);
/* Runs MAIN on all ranks, after session_choose; returns the program's exit status. */
int session_run(struct session *s, rank_main main, void *arg);

/* For --report-memory: prints what each rank has allocated as a line of JSON on
 * standard error.  Collective. */
MUST_CHECK int session_report(const struct session *s, const struct runner *r,
                              struct comm *comm, struct err *err);
/* The same, with the memory of MORE on this rank; or NULL. */
MUST_CHECK int session_report_with(const struct session *s, const struct runner *r,
                                   const struct ledger *more, struct comm *comm,
                                   struct err *err);
/* The same of this rank's list MINE, to which the memory of COMM is added. */
MUST_CHECK int session_report_list(const struct session *s, struct ledger *mine,
                                   struct comm *comm, struct err *err);

/* A checksum that tells S's checkpoint from others, by shapes, configuration and
 * samples of the weights. */
MUST_CHECK int session_identity(uint32_t *crc, const struct session *s,
                                struct err *err);
/* ERR_INPUT for a model without a language model head. */
MUST_CHECK int session_need_lm(const struct session *s, struct err *err);

/* Adds the ids that end a text, from generation_config.json in DIR, or from config.json
 * if it names none. */
MUST_CHECK int session_stop_ids(struct ids *stop, const char *dir, struct err *err);

void ids_add(struct ids *ids, int32_t id);
void ids_clear(struct ids *ids);
/* Parses "1,2,3" (commas or white space): ids below the model's vocabulary, or token
 * types below their number.  WHAT is for messages. */
MUST_CHECK int session_parse_ids(const struct session *s, struct ids *out,
                                 const char *text, const char *what, struct err *err);
MUST_CHECK int session_parse_types(const struct session *s, struct ids *out,
                                   const char *text, const char *what, struct err *err);
MUST_CHECK int session_encode(const struct session *s, struct ids *out,
                              const char *text, size_t len, struct err *err);
/* The same for a pair of texts, with a token type per id if the model has types; RANGE
 * is the range of the second text's ids. */
MUST_CHECK int session_encode_pair(const struct session *s, struct ids *out,
                                   struct ids *types, size_t range[2], const char *text,
                                   const char *pair, struct err *err);
/* Appends ids of the tokenizer, which must be the model's. */
MUST_CHECK int session_add_tokens(const struct session *s, struct ids *out,
                                  const struct tokens *tokens, struct err *err);
/* Collective: the ids of the launcher's rank 0. */
MUST_CHECK int session_share_ids(const struct session *s, struct ids *ids,
                                 struct err *err);
void ids_print_json(struct str *out, const struct ids *ids);

#endif
