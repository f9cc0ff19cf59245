/* inputs - the input texts of a command */
#ifndef CMD_TP_RUN_INPUTS_H
#define CMD_TP_RUN_INPUTS_H

#include "cmd/tp-run/session.h"
#include "lib/run/engine.h"

struct input {
    char *name; /* of the file, with the line number if the file has many inputs */
    struct ids ids;
    struct ids source; /* encoder input, for encoder-decoder models */
    struct named {     /* other inputs, by model_feeds: named.h */
        void *v;       /* [n][columns], of 4 bytes each; NULL: it is not there */
        size_t n;      /* rows */
    } named[FEEDS_MOST];
    size_t rows[ROWS_MOST]; /* of all its tokens, after inputs_use */
    int adapter;            /* that its line chooses, as of a segment */
    size_t pair[2];         /* range of the second text of a pair in ids; or 0, 0 */
    size_t choices;         /* in the first of several inputs made from one line: their
                             * number; else 0 */
    size_t letters;         /* of a choice that goes on from its text: its characters, 0
                             * where it was given as ids */
    size_t line;    /* line number in the file, or of an element in its array, from 1;
                     * 0: the input is not a line */
    bool bad;       /* an unusable line, already reported; has no ids */
    bool empty;     /* a line without text, for which .keeps_empty asks; has no ids */
    char *id;       /* on rank 0: the JSON value that its object calls "id", or NULL */
    char *why;      /* on rank 0, of a bad line: the cause */
    char *settings; /* on rank 0, where .is_setting is set: the JSON object of the
                     * line, if it says how its text is generated (sampling.h) */
    char *prompt; /* on rank 0, of a chat, or where .keeps_text is set: its text; NULL:
                   * it was given as ids */
};

enum input_format { INPUT_AUTO, INPUT_TEXT, INPUT_JSON };

/* The role of an input's text for an encoder-decoder model. */
enum input_use {
    INPUT_PROMPT, /* the encoder input, unless a source is given; the output begins
                     with the start id */
    INPUT_TARGET, /* the decoder's text; the start id is prepended */
    INPUT_GIVEN,  /* the decoder's text, including the start id */
    INPUT_SHIFTED /* the same, or without a source the encoder input, and the decoder's
                   * text is that, shifted by the start id */
};

struct inputs {
    struct input *v;
    size_t n;
    size_t nbad; /* unusable lines: the final status is ERR_INPUT */
    size_t nempty;
    int format;       /* enum input_format */
    int invalid;      /* enum input_invalid: treatment of bytes that are not UTF-8 */
    bool keeps_empty; /* a line of text without a character is an input */
    bool keeps_text;  /* sets .prompt of inputs that are one text */
    bool continues; /* an element of "choices" goes on from the text, or ids, or is the
                     * answer to a source; its range in ids is .pair */
    /* tells whether a member of a JSON line says how its text is generated; or NULL */
    bool (*is_setting)(const char *name);
};
enum input_invalid { INVALID_REFUSE, INVALID_REPLACE };

#define INPUT_TENSORS_OPTION(given)                                                 \
    {                                                                               \
        OPT_LIST, '\0', "input-tensors", &(given).tensors, "FILE", NULL, NULL, NULL \
    }
#define INPUT_FORMAT_OPTION(in)                                         \
    {                                                                   \
        OPT_CHOICE, '\0', "input-format", &(in).format, "FORMAT", NULL, \
            input_format_names, NULL                                    \
    }
#define INPUT_INVALID_OPTION(in)                                                      \
    {                                                                                 \
        OPT_CHOICE, '\0', "invalid", &(in).invalid, "HOW", NULL, input_invalid_names, \
            NULL                                                                      \
    }
extern const char *const input_format_names[], *const input_invalid_names[];

/* Takes ownership of ONE if RET is 0, otherwise releases it; returns RET. */
int inputs_add(struct inputs *in, struct input *one, int ret);
void inputs_drop(struct input *one);
/* session_encode, with NAME in the error. */
MUST_CHECK int inputs_encode(const struct session *s, struct ids *out, const char *name,
                             const char *text, size_t len, struct err *err);
/* Sets .prompt where IN keeps texts. */
void inputs_keep_text(const struct inputs *in, struct input *one, const char *text,
                      size_t len);
/* Reports *err for input I and clears its contents. */
void inputs_make_bad(struct inputs *in, const struct session *s, size_t i,
                     struct err *err);

/* Rank 0 reads all inputs, because it has standard input, and broadcasts them. */

/* Adds the text TEXT[len]. */
MUST_CHECK int inputs_add_text(struct inputs *in, const struct session *s,
                               const char *name, const char *text, size_t len,
                               struct err *err);
/* Adds a pair of texts, joined by the tokenizer. */
MUST_CHECK int inputs_add_pair(struct inputs *in, const struct session *s,
                               const char *name, const char *text, const char *pair,
                               struct err *err);
MUST_CHECK int inputs_add_ids(struct inputs *in, const struct session *s,
                              const char *name, const char *list, struct err *err);
/* Adds an input whose ids and other inputs are the tensors of the safetensors file
 * PATH, by their names. */
MUST_CHECK int inputs_add_tensors(struct inputs *in, const struct session *s,
                                  const char *path, struct err *err);
/* Adds the text, or the list of ids, in the file PATH ("-": standard input).  A byte
 * order mark is no part of it.  A file of text whose first line is a JSON object, or
 * any with INPUT_JSON, is read as inputs_add_lines does, unless IN has INPUT_TEXT. */
MUST_CHECK int inputs_add_file(struct inputs *in, const struct session *s,
                               const char *path, bool is_ids, struct err *err);
/* Adds each line of the file PATH in the format of IN.  A line of JSON is a text or an
 * object: "text" or "ids", with "source" or "source_ids", and the model's other inputs
 * by name (named.h); "pair" is the second text of a pair; "question" and "context" are
 * a pair; each element of the list "choices" is the second text of an input of its own.
 * INPUT_AUTO selects JSON when the first line begins with '{' or '"' and is valid JSON;
 * ERR_USAGE when it only begins so.  A file *.json, or any with INPUT_JSON, may also be
 * one array, each element of which stands for a line; with INPUT_AUTO an array of
 * objects in another file is ERR_USAGE.  A byte order mark is skipped, and so are empty
 * lines, except those of text where .keeps_empty is set.  An unusable line is reported
 * and becomes a bad input. */
MUST_CHECK int inputs_add_lines(struct inputs *in, const struct session *s,
                                const char *path, struct err *err);
/* Checks that every input has a source if the model is an encoder-decoder, and none
 * otherwise; applies USE. */
MUST_CHECK int inputs_use(struct inputs *in, const struct session *s,
                          enum input_use use, struct err *err);
/* Adds the line ONE of a file and takes ownership of it.  RET is the status of reading
 * it: if that failed with ERR_INPUT, the line is reported and becomes a bad input. */
MUST_CHECK int inputs_take(struct inputs *in, const struct session *s,
                           struct input *one, int ret, struct err *err);
/* Reports that input I cannot be used because of *err.  If it is a line of a file, it
 * becomes a bad input and the function returns 0; otherwise it returns -1. */
MUST_CHECK int inputs_refuse(struct inputs *in, const struct session *s, size_t i,
                             struct err *err);
/* Sets *err because WHAT, such as "logits", of input I is NaN or infinite after its
 * first TOKENS tokens, and returns -1.  Reads the checkpoint: ERR_INPUT names the file,
 * tensor and place of a weight that is no finite number; ERR_NO if there is none. Every
 * rank that calls it ends with the same status. */
MUST_CHECK int inputs_not_finite(const struct inputs *in, const struct session *s,
                                 size_t i, const char *what, size_t tokens,
                                 struct err *err);
/* Sizes of the inputs that can be used, by which the limits of a step are chosen. */
struct inputs_sizes {
    size_t longest, tokens; /* of one input, and of all */
    size_t source, sources; /* the same of their sources */
    size_t rows[ROWS_MOST]; /* most of one input */
};
/* Sets limits->rows for steps of limits->segments inputs. */
void inputs_limit(const struct inputs_sizes *s, struct engine_limits *limits);
struct inputs_sizes inputs_sizes(const struct inputs *in);
/* Adds ',"file":NAME' to a JSON object, and of a line its number and its "id". */
void inputs_add_place(struct str *out, const struct input *in);
/* Adds the line's "id" alone, with a comma before it, if it has one. */
void inputs_add_id(struct str *out, const struct input *in);
/* Adds, or prints, the --json object of the bad or empty input I, and a line feed. */
void inputs_add_bad(struct str *out, const struct inputs *in, size_t i);
void inputs_print_bad(const struct inputs *in, size_t i);
/* Returns STATUS, or ERR_INPUT if STATUS is 0 and there are bad inputs. */
int inputs_status(const struct inputs *in, int status);
/* Broadcasts rank 0's inputs to all ranks; RET is rank 0's status of reading them. */
MUST_CHECK int inputs_share(struct inputs *in, const struct session *s, int ret,
                            struct err *err);
void inputs_clear(struct inputs *in);

#endif
