/* inputs - the texts that a command of tp-run is given */
#ifndef CMD_TP_RUN_INPUTS_H
#define CMD_TP_RUN_INPUTS_H

#include "cmd/tp-run/session.h"

struct input {
    char *name; /* of the file, with the line's number where it is one line of many */
    struct ids ids, types; /* types: one for each id, or none */
    struct ids marks;      /* MARKS for each id, or none */
    struct ids source;     /* for a model that reads one */
    size_t pair[2];        /* where the second text of a pair lies in ids; or 0, 0 */
    size_t choices;        /* of the first of so many inputs that a line makes; or 0 */
    size_t line;           /* of its file, from 1; 0: not one line of many */
    bool bad;              /* a line that cannot be used, which was told; no ids */
};

enum input_format { INPUT_AUTO, INPUT_TEXT, INPUT_JSON };

/* What the text of an input is to a model that reads a source. */
enum input_use {
    INPUT_PROMPT, /* the source, when none is named; what is made begins with the
                     model's start id */
    INPUT_TARGET, /* predicted from the source, after the start id */
    INPUT_GIVEN   /* all that it reads, the start id among them */
};

struct inputs {
    struct input *v;
    size_t n;
    size_t nbad; /* lines that cannot be used: in the end the status is ERR_INPUT */
    int format;  /* enum input_format, of files of lines */
    int invalid; /* enum input_invalid, of bytes that are not UTF-8 */
};
enum input_invalid { INVALID_REFUSE, INVALID_REPLACE };

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

/* Inputs are read at the front, where standard input is, and shared. */

/* Add the text TEXT[len], or the ids that it lists. */
MUST_CHECK int inputs_add_text(struct inputs *in, const struct session *s,
                               const char *name, const char *text, size_t len,
                               struct err *err);
/* The same of two texts, as the tokenizer joins them. */
MUST_CHECK int inputs_add_pair(struct inputs *in, const struct session *s,
                               const char *name, const char *text, const char *pair,
                               struct err *err);
MUST_CHECK int inputs_add_ids(struct inputs *in, const struct session *s,
                              const char *name, const char *list, struct err *err);
/* Add the text or the list of ids in the file PATH ("-": standard input). */
MUST_CHECK int inputs_add_file(struct inputs *in, const struct session *s,
                               const char *path, bool is_ids, struct err *err);
/* Add each line of the file PATH as the format says: JSON (a text, or an object with
 * "text" or "ids", "source" or "source_ids", "token_types" and
 * "bbox"; "pair" is a second text
 * beside the first, "question" and "context" are the two, and each of the list
 * "choices" is a second text for an input of its own), or the text that it
 * is; INPUT_AUTO takes the file as JSON when its first line is whole JSON that begins
 * with '{' or '"', and is ERR_USAGE when it only begins so.  Empty lines are passed
 * over. A line that is wrong by itself is told, and is a bad input. */
MUST_CHECK int inputs_add_lines(struct inputs *in, const struct session *s,
                                const char *path, struct err *err);
/* Every input must have a source when the model reads one, and none else. */
MUST_CHECK int inputs_use(struct inputs *in, const struct session *s,
                          enum input_use use, struct err *err);
/* Input I cannot be used, as *err says: a line of many is told and made a bad input,
 * and the others go on (0); any other input ends the run (-1). */
MUST_CHECK int inputs_refuse(struct inputs *in, const struct session *s, size_t i,
                             struct err *err);
/* Print what --json says of the bad input I. */
void inputs_print_bad(const struct inputs *in, size_t i);
/* STATUS, but for ERR_INPUT when all went well and there are bad inputs. */
int inputs_status(const struct inputs *in, int status);
/* With RET, whether the front has read them: its inputs become those of all ranks. */
MUST_CHECK int inputs_share(struct inputs *in, const struct session *s, int ret,
                            struct err *err);
void inputs_clear(struct inputs *in);

#endif
