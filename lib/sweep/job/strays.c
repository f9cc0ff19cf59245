/* strays - processes of a trial that have left its process group */
#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/sweep/job/strays.h"

enum { ENVIRONMENT = 4 << 20, CHILDREN = 1 << 20, ROUNDS = 100 };

void strays_adopt(void)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

/* Whether HPO_TRIAL_DIR of PID is DIR, or, if INSIDE, in DIR. */
static bool belongs(pid_t pid, const char *dir, bool inside)
{
    static const char name[] = "HPO_TRIAL_DIR=";
    char *path = str_dupf("/proc/%d/environ", (int)pid), *text = NULL;
    size_t n = 0, len = strlen(dir);
    bool yes = false;

    if (fs_read_part(&text, &n, path, 0, ENVIRONMENT, NULL) < 0 || !text)
        n = 0;
    for (size_t i = 0; i < n && !yes; i += strlen(text + i) + 1)
        yes = str_starts(text + i, name) &&
              !strncmp(text + i + strlen(name), dir, len) &&
              text[i + strlen(name) + len] == (inside ? '/' : '\0');
    free(text);
    free(path);
    return yes;
}

static bool is_kept(pid_t pid, const pid_t *keep, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (keep[i] == pid)
            return true;
    return false;
}

/* How many children were sent SIGKILL. */
static int end_some(const char *dir, bool inside, const pid_t *keep, size_t n)
{
    char *path = str_dupf("/proc/self/task/%d/children", (int)getpid()), *text = NULL;
    char *save = NULL;
    size_t len;
    int ended = 0, pid;

    if (fs_read_part(&text, &len, path, 0, CHILDREN, NULL) < 0)
        text = NULL;
    for (char *w = text ? strtok_r(text, " \n", &save) : NULL; w;
         w = strtok_r(NULL, " \n", &save)) {
        if (!str_int(w, &pid) || pid < 1 || is_kept(pid, keep, n) ||
            !belongs(pid, dir, inside))
            continue;
        if (waitpid(pid, NULL, WNOHANG) == pid)
            continue;
        kill(pid, SIGKILL);
        ended++;
    }
    free(text);
    free(path);
    return ended;
}

void strays_end(const char *dir, bool inside, const pid_t *keep, size_t n)
{
    const struct timespec nap = { .tv_nsec = 2000000 };

    for (int i = 0; i < ROUNDS && end_some(dir, inside, keep, n) > 0; i++)
        nanosleep(&nap, NULL);
}

bool strays_signal(const char *dir, int sig)
{
    DIR *proc = opendir("/proc");
    struct dirent *e;
    bool left = false;
    int pid;

    while (proc && (e = readdir(proc)))
        if (str_int(e->d_name, &pid) && pid > 1 && pid != getpid() &&
            belongs(pid, dir, false))
            left |= kill(pid, sig) == 0;
    if (proc)
        closedir(proc);
    return left;
}
