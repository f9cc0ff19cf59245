/* answers - a file of answers that an interrupted run can continue
 *
 * The first line of FILE.partial has the settings, as a JSON object; then each input's
 * answer is a line, in the order of the inputs, and ends with the CRC-32 of its input.
 * A line is written at once.  The file gets its name FILE when all answers are in it.
 */
#ifndef CMD_TP_RUN_ANSWERS_H
#define CMD_TP_RUN_ANSWERS_H

#include "cmd/tp-run/inputs.h"

struct answers {
    const struct session *session;
    const char *path;
    char *partial;
    int fd;       /* -1: nothing is written any more */
    size_t n;     /* answers in it */
    bool is_done; /* FILE itself has all of them */
};

/* Opens PATH.partial for the answers to IN under SETTINGS, one line of JSON.  RESUME:
 * keeps the whole lines that it has, of which there are then A->n; a torn last one is
 * cut.  ERR_INPUT: they were made under other settings or for other inputs. */
MUST_CHECK int answers_open(struct answers *a, const struct session *s,
                            const char *path, bool resume, const char *settings,
                            const struct inputs *in, struct err *err);
/* Writes the answer to the next input, IN: LINE is a JSON object; its last
 * member is added. */
MUST_CHECK int answers_add(struct answers *a, const struct input *in, struct str *line,
                           struct err *err);
/* Gives the file its name. */
MUST_CHECK int answers_finish(struct answers *a, struct err *err);
/* Closes it; without answers_finish, it can be continued. */
void answers_close(struct answers *a);

#endif
