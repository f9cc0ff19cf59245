/* drafting - the draft of a program that generates text: options, and a model's opening
 */
#ifndef CMD_TP_RUN_DRAFTING_H
#define CMD_TP_RUN_DRAFTING_H

#include "cmd/tp-run/session.h"
#include "lib/run/draft.h"

struct drafting {
    const char *what; /* "lookup", or a model's directory; NULL: no draft */
    int most;         /* drafted tokens of a text in a step; 0: DRAFTS_MOST */
    struct checkpoint *checkpoint; /* of a model */
};

#define DRAFTING_OPTIONS(d)                                               \
    { OPT_STRING, '\0', "draft", &(d).what, "WHAT", NULL, NULL, NULL },   \
    {                                                                     \
        OPT_COUNT, '\0', "draft-tokens", &(d).most, "N", NULL, NULL, NULL \
    }

/* Before session_run: checks the options, and opens the model beside that of S.
 * Collective over the ranks of a launcher.  Call drafting_close also after a failure.
 */
MUST_CHECK int drafting_open(struct drafting *d, const struct session *s,
                             struct err *err);
void drafting_close(struct drafting *d);
/* What a text may have drafted in a step; 0: there is no draft. */
size_t drafting_most(const struct drafting *d);
/* On every rank, when R is open with LIMITS: on rank 0, *OUT becomes the drafter, else
 * NULL.  DRAWS: some tokens are drawn; VOCAB: ids that texts may have. */
MUST_CHECK int drafting_start(struct drafter **out, const struct drafting *d,
                              const struct session *s, const struct runner *r,
                              const struct engine_limits *limits, bool draws,
                              uint64_t vocab, struct err *err);
/* session_report, with the memory of OF, which may be NULL. */
MUST_CHECK int drafting_report(const struct session *s, const struct runner *r,
                               const struct drafter *of, struct comm *comm,
                               struct err *err);
/* Under -v: says what OF did for the texts of S. */
void drafting_note(const struct session *s, const struct drafter *of,
                   const struct scheduler *scheduler);

#endif
