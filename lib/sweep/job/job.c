/* job - trials as processes: a directory, a process group, reports */
#define _GNU_SOURCE /* vfork, memrchr */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/output.h"
#include "lib/sweep/job/job.h"

enum { REPORT_BYTES = 1 << 20, CHECKPOINT_BYTES = 1 << 16 };

enum presence { GONE, THERE, UNKNOWN };

/* When PID started, by /proc/PID/stat, whose second field may hold anything; GONE when
 * it has ended, be it waited for or not. */
static enum presence start_time(char out[32], pid_t pid)
{
    char *path = str_dupf("/proc/%d/stat", (int)pid), *p, *save = NULL;
    char text[4096];
    int field = 2, fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    enum presence answer =
        n < 0 && (errno == ENOENT || errno == ESRCH) ? GONE : UNKNOWN;

    if (fd >= 0)
        close(fd);
    free(path);
    text[n < 0 ? 0 : n] = '\0';
    p = strrchr(text, ')');
    for (p = p ? strtok_r(p + 1, " \n", &save) : NULL; p;
         p = strtok_r(NULL, " \n", &save))
        if (++field == 3 && (*p == 'Z' || *p == 'X'))
            return GONE;
        else if (field == 22) {
            snprintf(out, 32, "%s", p);
            return THERE;
        }
    return answer;
}

/* *out is the identity of PID, owned, when it is THERE. */
static enum presence identify(char **out, pid_t pid)
{
    char host[256] = "", start[32], *boot = NULL;
    enum presence answer = start_time(start, pid);

    if (answer != THERE)
        return answer;
    gethostname(host, sizeof(host) - 1);
    if (fs_read_optional(&boot, NULL, "/proc/sys/kernel/random/boot_id", 256, NULL) < 0)
        return UNKNOWN;
    if (!boot)
        boot = xstrdup("-");
    boot[strcspn(boot, "\n")] = '\0';
    *out = str_dupf("%s %s %d %s", host, boot, (int)pid, start);
    free(boot);
    return THERE;
}

char *job_identity_dup(void)
{
    char *out;

    return identify(&out, getpid()) == THERE ? out : NULL;
}

/* Whether IDENTITY is of this host; then *answer says whether its process is there. */
static bool is_ours(const char *identity, enum presence *answer)
{
    char host[256] = "", *now;
    size_t n;
    int pid;

    gethostname(host, sizeof(host) - 1);
    n = strlen(host);
    if (strncmp(identity, host, n) || identity[n] != ' ' ||
        sscanf(identity + n, " %*s %d", &pid) != 1 || pid < 1)
        return false;
    *answer = identify(&now, pid);
    if (*answer != THERE)
        return true;
    if (strcmp(now, identity) != 0) /* another boot or start: another process */
        *answer = GONE;
    free(now);
    return true;
}

bool job_is_dead(const char *identity)
{
    enum presence answer;

    return is_ours(identity, &answer) && answer == GONE;
}

bool job_is_alive(const char *identity)
{
    enum presence answer;

    return is_ours(identity, &answer) && answer != GONE;
}

/* Can PATH be executed?  A directory cannot; what may not be looked at cannot either.
 */
static int find_program(bool *found, const char *path, struct err *err)
{
    bool is_dir;

    *found = access(path, X_OK) == 0;
    if (!*found)
        return errno == ENOENT || errno == ENOTDIR || errno == EACCES
                   ? 0
                   : err_errno(err, "%s", path);
    if (fs_find_dir(&is_dir, path, err) < 0)
        return -1;
    *found = !is_dir;
    return 0;
}

int job_which(char **out, const char *program, const char *path, struct err *err)
{
    char *copy, *save = NULL;
    bool found = false;
    int ret = 0;

    *out = NULL;
    if (strchr(program, '/')) {
        ret = find_program(&found, program, err);
        *out = found ? xstrdup(program) : NULL;
        return ret;
    }
    copy = xstrdup(path ? path : "/usr/bin:/bin");
    for (char *dir = strtok_r(copy, ":", &save); dir && ret == 0 && !found;
         dir = strtok_r(NULL, ":", &save)) {
        char *full = fs_join_dup(dir, program);

        ret = find_program(&found, full, err);
        if (ret == 0 && found)
            *out = full;
        else
            free(full);
    }
    free(copy);
    return ret;
}

/* In the child, which has the parent's memory until execve: it changes nothing there,
 * and any failure ends it. */
_Noreturn static void become(int in, int out, int err, char *const *words,
                             char *const *environment, const struct limits *limits,
                             int slot)
{
    static const int restored[] = { SIGINT,  SIGTERM, SIGHUP, SIGCHLD,
                                    SIGPIPE, SIGUSR1, SIGXFSZ };
    sigset_t none;

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    for (size_t i = 0; i < sizeof(restored) / sizeof(*restored); i++)
        signal(restored[i], SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0)
        _exit(126);
    if (limits->cpus &&
        sched_setaffinity(0, sizeof(*limits->cpus),
                          (const cpu_set_t *)(const void *)&limits->cpus[slot]) < 0) {
        dprintf(2, "processors of slot %d: %s\n", slot, strerror(errno));
        _exit(126);
    }
    if (limits->memory_bytes) {
        const struct rlimit most = { limits->memory_bytes, limits->memory_bytes };

        if (setrlimit(RLIMIT_DATA, &most) < 0) {
            dprintf(2, "limit of memory: %s\n", strerror(errno));
            _exit(126);
        }
    }
    execve(words[0], words, environment);
    dprintf(2, "%s: %s\n", words[0], strerror(errno));
    _exit(127);
}

/* fork would copy the page tables of all trials in memory, for each trial. */
static pid_t start_process(int in, int out, int err, char *const *words,
                           char *const *environment, const struct limits *limits,
                           int slot)
{
    pid_t pid = vfork();

    if (pid == 0)
        become(in, out, err, words, environment, limits, slot);
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
static int forget(const struct job *job, struct err *err)
{
    static const char *const names[] = { "result.json", "report", "checkpoint" };
    int ret = 0;

    for (size_t i = 0; i < sizeof(names) / sizeof(*names) && ret == 0; i++) {
        char *path = fs_join_dup(job->dir, names[i]);

        if (unlink(path) < 0 && errno != ENOENT)
            ret = err_errno(err, "%s", path);
        free(path);
    }
    return ret;
}

int job_start(struct job *job, char *const *words, char *const *environment,
              const char *params, const struct limits *limits, struct err *err)
{
    char *path = fs_join_dup(job->dir, "params.json");
    int dir = output_dir(job->dir, OUTPUT_MAKE, err);
    int in = -1, out = -1, error = -1, ret = -1;
    struct timespec now;
    pid_t pid;

    clock_gettime(CLOCK_REALTIME, &now);
    if (dir < 0 || output_write(path, params, strlen(params), false, err) < 0 ||
        forget(job, err) < 0)
        goto out;
    job->report_at = 0;
    in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (in < 0) {
        err_errno(err, "/dev/null");
        goto out;
    }
    out = open_output(job->dir, "stdout", err);
    error = out < 0 ? -1 : open_output(job->dir, "stderr", err);
    if (error < 0)
        goto out;
    pid = start_process(in, out, error, words, environment, limits, job->slot);
    if (pid < 0) {
        err_errno(err, "trial %d", job->number);
        goto out;
    }
    job->pid = pid;
    job->start = clock_seconds();
    job->start_time = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    job->killed = 0;
    job->timed_out = job->flooded = false;
    ret = 0;
out:
    if (dir >= 0)
        close(dir);
    if (in >= 0)
        close(in);
    if (out >= 0)
        close(out);
    if (error >= 0)
        close(error);
    free(path);
    return ret;
}

static const char *const outputs[] = { "stdout", "stderr" };

uint64_t job_output_bytes(const struct job *job)
{
    uint64_t sum = 0, size;

    for (size_t i = 0; i < sizeof(outputs) / sizeof(*outputs); i++) {
        char *path = fs_join_dup(job->dir, outputs[i]);

        if (fs_size(&size, path, NULL) == 0)
            sum += size;
        free(path);
    }
    return sum;
}

void job_cut_output(const struct job *job, uint64_t most)
{
    uint64_t size;

    for (size_t i = 0; i < sizeof(outputs) / sizeof(*outputs); i++) {
        char *path = fs_join_dup(job->dir, outputs[i]);
        int fd = fs_size(&size, path, NULL) == 0 && size > most
                     ? output_reopen(path, O_WRONLY, NULL)
                     : -1;

        bool cut = fd >= 0 && ftruncate(fd, (off_t)most) == 0;

        (void)cut; /* or it is as long as it was */
        if (fd >= 0)
            close(fd);
        free(path);
    }
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
    free(job->checkpoint);
    for (char **v = job->variables; v && *v; v++)
        free(*v);
    free(job->variables);
    *job = (struct job){ 0 };
}

int job_checkpoint(char **out, const struct job *job, struct err *err)
{
    char *path = fs_join_dup(job->dir, "checkpoint"), *text;
    int ret = fs_read_optional(&text, NULL, path, CHECKPOINT_BYTES, err);

    free(path);
    *out = NULL;
    if (ret < 0 || !text)
        return ret < 0 ? -1 : 0;
    text[strcspn(text, "\n")] = '\0';
    if (strlen(text) >= PATH_MAX)
        ret = err_set(err, ERR_INPUT, "%s/checkpoint: a path of %zu bytes", job->dir,
                      strlen(text));
    else if (*text)
        ret = fs_resolve(out, text, err);
    free(text);
    return ret < 0 ? -1 : 0;
}

static char *report_path_dup(const struct job *job)
{
    return fs_join_dup(job->dir, "report");
}

bool job_reported(const struct job *job)
{
    char *path = job->dir ? report_path_dup(job) : NULL;
    struct stat st;
    bool more = path && (stat(path, &st) < 0 ? errno != ENOENT && errno != ENOTDIR
                                             : (uint64_t)st.st_size > job->report_at);

    free(path);
    return more;
}

int job_reports(char **out, struct job *job, struct err *err)
{
    char *path = report_path_dup(job), *text = NULL, *end;
    size_t n = 0;
    int ret = fs_read_part(&text, &n, path, job->report_at, REPORT_BYTES, err);

    free(path);
    *out = NULL;
    if (ret < 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        if (!text[i]) /* ends no line */
            text[i] = ' ';
    end = n ? memrchr(text, '\n', n) : NULL;
    if (!end) {
        free(text);
        return 0;
    }
    *end = '\0';
    job->report_at += (uint64_t)(end - text) + 1;
    *out = text;
    return 0;
}
