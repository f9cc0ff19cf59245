/* replay - the studies that the lines of a journal make
 *
 * Each line is one operation of Optuna's JournalStorage.  A replay follows all of them,
 * and fills one study, its target, on the way. */
#ifndef LIB_SWEEP_STORAGE_REPLAY_H
#define LIB_SWEEP_STORAGE_REPLAY_H

#include <time.h>

#include "lib/base/json.h"
#include "lib/sweep/storage/study.h"

/* Optuna's JournalOperation. */
enum replay_op {
    REPLAY_CREATE_STUDY,
    REPLAY_DELETE_STUDY,
    REPLAY_STUDY_USER_ATTR,
    REPLAY_STUDY_SYSTEM_ATTR,
    REPLAY_CREATE_TRIAL,
    REPLAY_TRIAL_PARAM,
    REPLAY_TRIAL_STATE,
    REPLAY_TRIAL_REPORT,
    REPLAY_TRIAL_USER_ATTR,
    REPLAY_TRIAL_SYSTEM_ATTR,
    REPLAY_DISCARD_TRIALS, /* of another implementation; Optuna passes it over */
    REPLAY_OPS
};

struct replay_study {
    char *name;
    bool deleted;
    int64_t trials;
};

/* Where a trial of the file is: its study and number there. */
struct replay_trial {
    int64_t study;
    int number;
    enum study_state state;
};

struct replay {
    const char *path; /* for messages; borrowed */
    int line;         /* lines applied */
    struct replay_study *study;
    size_t nstudies, studies_cap;
    struct replay_trial *trial; /* by id */
    size_t ntrials, trials_cap;
    struct study *target; /* with a name; its id is -1 until the study is met */
    bool local_times;     /* it has times without a zone */
    char hour[13];        /* private: the last hour of such a time, */
    time_t hour_start;    /* and when it began, 0 before any */
};

/* Apply the whole lines among N bytes of TEXT; *used becomes what they take.  ERR_INPUT
 * names file and line. */
MUST_CHECK int replay_lines(struct replay *r, const char *text, size_t n, size_t *used,
                            struct err *err);
/* Parse line NUMBER of PATH, N bytes that may have Python's NaN and Infinity, into
 * *DOC, which is zero or was filled before; release with json_clear. */
MUST_CHECK int replay_parse(struct json_doc *doc, const char *path, int number,
                            const char *line, size_t n, struct err *err);
/* Forget all that was applied; the target stays. */
void replay_forget(struct replay *r);
void replay_clear(struct replay *r);

#endif
