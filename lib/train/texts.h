/* texts - tokenizes files of text or JSON lines, document by document
 *
 * A file whose name ends in .jsonl, .ndjson or .json has JSON lines, one document per
 * object, and so has a file, or standard input ("-"), whose first line that is not
 * empty is a JSON object; any other file is text.  A file *.json may also be one array
 * of objects, which is held in memory.  Any may be compressed with gzip or zstd, with
 * or without ".gz" or ".zst" at the end of its name. */
#ifndef LIB_TRAIN_TEXTS_H
#define LIB_TRAIN_TEXTS_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/text/tokenizer.h"
#include "lib/train/chats.h"
#include "lib/train/squad.h"

/* AUTO: as above, by name and first line. */
enum texts_format { TEXTS_AUTO, TEXTS_TEXT, TEXTS_JSON };

/* The labels that JSON lines must have: none (they are not looked for), "label",
 * "labels", "prompt", "chosen" and "rejected" with their likelihoods, or "source" and
 * "target". */
enum texts_labels {
    TEXTS_NO_LABELS,
    TEXTS_LABEL,
    TEXTS_LABELS,
    TEXTS_PAIRS,
    TEXTS_TARGETS,
    TEXTS_ANSWERS, /* "prompt", "chosen" and "rejected" alone */
    TEXTS_VALUE,   /* "label": a number, or a list of one for each class */
    TEXTS_VALUES,  /* "labels": the same */
    TEXTS_SPAN, /* "start_positions" and "end_positions", or "question", "context" and
                 * "answers" */
    TEXTS_CHOICES, /* from here on rated.c's: "choices", and "label", which is right */
    TEXTS_JUDGED,  /* "prompt", "completion" and "label", with their likelihoods */
    TEXTS_DRAWN,   /* "ids", "advantage" and "old_logprobs", or what generate prints */
    TEXTS_TAUGHT   /* "ids", "teacher_ids" and "teacher_logprobs" */
};

struct texts_options {
    const struct tokenizer *tokenizer; /* NULL: only "ids" can be read */
    int32_t end_id;                    /* appended to each text; -1: none */
    uint64_t vocab;                    /* ids are smaller; 0: no limit, */
    uint64_t source_vocab;             /* and those of a source */
    size_t source_most;                /* most tokens of a source; 0: no limit */
    int threads;                       /* threads of the tokenization; 0: one */
    bool strict;                       /* prompts and chats are an error */
    const struct chat *chat;           /* template of chats; NULL: there is none, */
    const char *no_chat;               /* because of this; or NULL */
    bool last_answer;                  /* as in chats_options */
    int format;                        /* enum texts_format */
    enum texts_labels labels;
    bool unscored;   /* likelihoods and advantages are not looked for */
    bool references; /* of drawn texts likelihoods by a reference are needed */
    bool unscaled;   /* advantages are not divided by the deviation of rewards */
    uint32_t types;  /* token types of the model; 0: it has none */
    const char *const *class_name; /* [classes]: a label may be the name of a class; or
                                    * NULL: they have none */
    size_t classes;
};

/* A document of several of a sample. */
struct texts_part {
    size_t start, given; /* its first token, and the tokens of its prompt */
};

struct texts_document {
    const char *line; /* [length]: the object that it is of, with JSON lines */
    size_t length;
    uint32_t number; /* of its line in the file */
    const int32_t *id;
    size_t n;             /* at least 1 */
    size_t given;         /* the first tokens, a prompt without loss */
    const uint8_t *learn; /* [n]: 0 of tokens without loss; NULL: all others have one */
    const int32_t *label; /* [nlabels]: one, or one for each token; -1: none */
    size_t nlabels;
    const double *value; /* [nvalues]: labels that are numbers */
    size_t nvalues;
    const int32_t *source; /* [nsource]: what an encoder reads */
    size_t nsource;
    const int32_t *types;          /* [n]; or NULL: all are 0 */
    const struct texts_part *part; /* [parts]: where a sample has documents, */
    size_t parts;
    bool continues;      /* in which the tokens after those given are learned */
    double reference[2]; /* the negative log-likelihoods of two of them */
    const struct squad_text *quoted; /* of a question; or NULL */
};

/* Calls SEE for each document of the file PATH, in order for any number of threads.
 * ERR_INPUT is "PATH:LINE: cause". */
MUST_CHECK int texts_read(const char *path, const struct texts_options *options,
                          int (*see)(void *arg, const struct texts_document *document,
                                     struct err *err),
                          void *arg, struct err *err);
/* The same of the object TEXT[length], line NUMBER of file NAME. */
MUST_CHECK int texts_read_line(const struct texts_options *options, const char *name,
                               uint32_t number, const char *text, size_t length,
                               int (*see)(void *arg,
                                          const struct texts_document *document,
                                          struct err *err),
                               void *arg, struct err *err);

#endif
