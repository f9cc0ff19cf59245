/* inputs - the texts that a command of tp-run is given */
#ifndef CMD_TP_RUN_INPUTS_H
#define CMD_TP_RUN_INPUTS_H

#include "cmd/tp-run/session.h"

struct input {
    char *name; /* of the file, with the line's number where it is one line of many */
    struct ids ids, types; /* types: one for each id, or none */
    struct ids source;     /* for a model that reads one */
};

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
};

/* Inputs are read at the front, where standard input is, and shared. */

/* Add the text TEXT[len], or the ids that it lists. */
int inputs_add_text(struct inputs *in, const struct session *s, const char *name,
                    const char *text, size_t len, struct err *err);
int inputs_add_ids(struct inputs *in, const struct session *s, const char *name,
                   const char *list, struct err *err);
/* Add the text or the list of ids in the file PATH ("-": standard input). */
int inputs_add_file(struct inputs *in, const struct session *s, const char *path,
                    bool is_ids, struct err *err);
/* Add each line of the file PATH: JSON when the first begins with '{' or '"' (a text,
 * or an object with "text" or "ids", "source" or "source_ids", and "token_types"), else
 * the text that it is.  Empty lines are passed over. */
int inputs_add_lines(struct inputs *in, const struct session *s, const char *path,
                     struct err *err);
/* Every input must have a source when the model reads one, and none else. */
int inputs_use(struct inputs *in, const struct session *s, enum input_use use,
               struct err *err);
/* With RET, whether the front has read them: its inputs become those of all ranks. */
int inputs_share(struct inputs *in, const struct session *s, int ret, struct err *err);
void inputs_clear(struct inputs *in);

#endif
