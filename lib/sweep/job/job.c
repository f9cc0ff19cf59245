/* job - trials as processes: a directory, a process group, reports */
#define _GNU_SOURCE /* vfork, memrchr */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/output.h"
#include "lib/sweep/job/job.h"

enum { REPORT_BYTES = 1 << 20 };

/* When PID started, by /proc/PID/stat, whose second field may hold anything; false when
 * it has ended, be it waited for or not. */
static bool start_time(char out[32], pid_t pid)
{
    char *path = str_dupf("/proc/%d/stat", (int)pid), *text = NULL, *p, *save = NULL;
    int field = 2;
    bool found = false;

    if (fs_read_file(&text, NULL, path, 1 << 16, NULL) == 0 &&
        (p = strrchr(text, ')'))) {
        for (p = strtok_r(p + 1, " \n", &save); p; p = strtok_r(NULL, " \n", &save))
            if (++field == 3 && (*p == 'Z' || *p == 'X')) {
                break;
            } else if (field == 22) {
                snprintf(out, 32, "%s", p);
                found = true;
                break;
            }
    }
    free(text);
    free(path);
    return found;
}

char *job_identity_dup(pid_t pid)
{
    char host[256] = "", start[32], *boot = NULL, *out;

    if (!pid)
        pid = getpid();
    if (!start_time(start, pid))
        return NULL;
    gethostname(host, sizeof(host) - 1);
    if (fs_read_file(&boot, NULL, "/proc/sys/kernel/random/boot_id", 256, NULL) < 0)
        boot = xstrdup("-");
    boot[strcspn(boot, "\n")] = '\0';
    out = str_dupf("%s %s %d %s", host, boot, (int)pid, start);
    free(boot);
    return out;
}

/* Whether IDENTITY is of this host; then *same says whether its process is there. */
static bool is_ours(const char *identity, bool *same)
{
    char host[256] = "", *now;
    size_t n;
    int pid;

    gethostname(host, sizeof(host) - 1);
    n = strlen(host);
    if (strncmp(identity, host, n) || identity[n] != ' ' ||
        sscanf(identity + n, " %*s %d", &pid) != 1 || pid < 1)
        return false;
    now = job_identity_dup(pid);
    *same = now && !strcmp(now, identity); /* another boot or start: another process */
    free(now);
    return true;
}

bool job_is_dead(const char *identity)
{
    bool same;

    return is_ours(identity, &same) && !same;
}

bool job_is_alive(const char *identity)
{
    bool same;

    return is_ours(identity, &same) && same;
}

char *job_which(const char *program, const char *path)
{
    char *copy, *save = NULL, *found = NULL;

    if (strchr(program, '/'))
        return access(program, X_OK) == 0 && !fs_is_dir(program) ? xstrdup(program)
                                                                 : NULL;
    copy = xstrdup(path ? path : "/usr/bin:/bin");
    for (char *dir = strtok_r(copy, ":", &save); dir && !found;
         dir = strtok_r(NULL, ":", &save)) {
        char *full = fs_join_dup(dir, program);

        if (access(full, X_OK) == 0 && !fs_is_dir(full))
            found = full;
        else
            free(full);
    }
    free(copy);
    return found;
}

/* In the child, which has the parent's memory until execve: it changes nothing there,
 * and any failure ends it. */
_Noreturn static void become(int out, int err, char *const *words,
                             char *const *environment)
{
    static const int restored[] = { SIGINT,  SIGTERM, SIGHUP, SIGCHLD,
                                    SIGPIPE, SIGUSR1, SIGXFSZ };
    sigset_t none;
    int in = open("/dev/null", O_RDONLY);

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    for (size_t i = 0; i < sizeof(restored) / sizeof(*restored); i++)
        signal(restored[i], SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (in < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0)
        _exit(126);
    execve(words[0], words, environment);
    dprintf(2, "%s: %s\n", words[0], strerror(errno));
    _exit(127);
}

/* fork would copy the page tables of all trials in memory, for each trial. */
static pid_t start_process(int out, int err, char *const *words,
                           char *const *environment)
{
    pid_t pid = vfork();

    if (pid == 0)
        become(out, err, words, environment);
    return pid;
}

static int open_output(const char *dir, const char *name, struct err *err)
{
    char *path = fs_join_dup(dir, name);
    int fd = output_create(path, err);

    free(path);
    return fd;
}

/* What an earlier run of the same trial left must not count for this one. */
static void forget(const struct job *job)
{
    static const char *const names[] = { "result.json", "report" };

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        char *path = fs_join_dup(job->dir, names[i]);

        unlink(path);
        free(path);
    }
}

int job_start(struct job *job, char *const *words, char *const *environment,
              const char *params, struct err *err)
{
    char *path = fs_join_dup(job->dir, "params.json");
    int dir = output_dir(job->dir, OUTPUT_MAKE, err), out = -1, error = -1, ret = -1;
    struct timespec now;
    pid_t pid;

    clock_gettime(CLOCK_REALTIME, &now);
    if (dir < 0 || output_write(path, params, strlen(params), false, err) < 0)
        goto out;
    forget(job);
    job->report_at = 0;
    out = open_output(job->dir, "stdout", err);
    error = out < 0 ? -1 : open_output(job->dir, "stderr", err);
    if (error < 0)
        goto out;
    pid = start_process(out, error, words, environment);
    if (pid < 0) {
        err_errno(err, "trial %d", job->number);
        goto out;
    }
    job->pid = pid;
    job->start = clock_seconds();
    job->start_time = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    job->killed = 0;
    job->timed_out = false;
    ret = 0;
out:
    if (dir >= 0)
        close(dir);
    if (out >= 0)
        close(out);
    if (error >= 0)
        close(error);
    free(path);
    return ret;
}

void job_kill(struct job *job, int sig)
{
    if (job->pid > 0)
        kill(-job->pid, sig);
}

void job_clear(struct job *job)
{
    free(job->dir);
    free(job->command);
    *job = (struct job){ 0 };
}

static char *report_path_dup(const struct job *job)
{
    return fs_join_dup(job->dir, "report");
}

bool job_reported(const struct job *job)
{
    char *path = job->dir ? report_path_dup(job) : NULL;
    uint64_t size = 0;
    bool more = path && fs_size(&size, path, NULL) == 0 && size > job->report_at;

    free(path);
    return more;
}

char *job_reports_dup(struct job *job)
{
    char *path = report_path_dup(job), *text = NULL, *end;
    FILE *fp = fopen(path, "rb");
    size_t n = 0;

    free(path);
    if (!fp)
        return NULL;
    if (fseeko(fp, (off_t)job->report_at, SEEK_SET) == 0) {
        text = xmalloc(REPORT_BYTES + 1);
        n = fread(text, 1, REPORT_BYTES, fp);
    }
    fclose(fp);
    for (size_t i = 0; i < n; i++)
        if (!text[i]) /* ends no line */
            text[i] = ' ';
    end = n ? memrchr(text, '\n', n) : NULL;
    if (!end) {
        free(text);
        return NULL;
    }
    *end = '\0';
    job->report_at += (uint64_t)(end - text) + 1;
    return text;
}
