/* job - trials as processes: a directory, a process group, reports
 *
 * A trial's directory holds stdout, stderr, params.json and, when the command writes
 * them, result.json, report and checkpoint. */
#ifndef LIB_SWEEP_JOB_JOB_H
#define LIB_SWEEP_JOB_JOB_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/base/err.h"
#include "lib/base/str.h"
#include "lib/sweep/job/limits.h"

/* Seconds between SIGTERM and SIGKILL; and for a checkpoint besides. */
enum { JOB_GRACE = 10, JOB_SAVING = 600 };

/* The directory of a trial, of the directory for all and its number. */
#define JOB_DIR "%s/%06d"

struct job {
    pid_t pid; /* also its process group's id; 0: not running */
    int number, slot;
    int attempt;        /* of the point, from 0 */
    int tries;          /* of this trial before, in this run */
    char *dir;          /* owned */
    char *command;      /* what runs, for a log, or NULL; owned */
    char *checkpoint;   /* what it begins with, or NULL; owned */
    char **variables;   /* "NAME=VALUE" that it alone is told, NULL at the end; owned */
    double start;       /* seconds on the monotonic clock */
    double start_time;  /* seconds since the epoch */
    double killed;      /* when it was told to end, by clock_seconds(); 0 for never */
    bool timed_out;     /* which is why */
    bool flooded;       /* or it had put out too much */
    uint64_t report_at; /* bytes of the report file read */
    size_t judged;      /* reports that the pruner has seen */
    bool pruned;        /* its trial is: the command is to end */
    bool paused;        /* and to leave a checkpoint, for which there is time */
    bool infeasible;    /* says the check of its point: there is no command */
    int status;         /* as from waitpid, when it has ended */
};

/* What identifies a process beyond its number: "HOST BOOT PID START" of this one; NULL
 * where the system does not say. */
char *job_identity_dup(void);
/* Whether IDENTITY is of this host and its process is gone, or may be there: both are
 * false for another host, and a process is only gone when the system says so. */
bool job_is_dead(const char *identity);
bool job_is_alive(const char *identity);

/* The path of PROGRAM as the shell would find it, owned; *out is NULL when there is
 * none. */
MUST_CHECK int job_which(char **out, const char *program, const char *path,
                         struct err *err);

/* Start WORDS in directory job->dir's company: the directory is made, PARAMS (JSON) are
 * written, standard output and error go to files there, and ENVIRONMENT ("NAME=VALUE",
 * NULL-terminated) replaces the process's.  The working directory is the caller's.  The
 * process is confined to the processors and memory of LIMITS, in its slot.
 * result.json, report and checkpoint of an earlier start are removed. */
MUST_CHECK int job_start(struct job *job, char *const *words, char *const *environment,
                         const char *params, const struct limits *limits,
                         struct err *err);
/* Bytes of its standard output and error so far. */
uint64_t job_output_bytes(const struct job *job);
/* Cut both to MOST bytes. */
void job_cut_output(const struct job *job, uint64_t most);
/* Signal SIG to the whole process group. */
void job_kill(struct job *job, int sig);
void job_clear(struct job *job);

/* The path that the command wrote to the file `checkpoint`, seen from the working
 * directory, owned; *path is NULL where it wrote none. */
MUST_CHECK int job_checkpoint(char **path, const struct job *job, struct err *err);

/* Whether the report file has grown since, or cannot be looked at. */
bool job_reported(const struct job *job);
/* The next complete lines of the report file, at most a megabyte of them, the last
 * without its end; owned, *text is NULL when there are none. */
MUST_CHECK int job_reports(char **text, struct job *job, struct err *err);

#endif
