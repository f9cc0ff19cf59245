/* joblog - what ran, in the columns of GNU parallel's --joblog */
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/output.h"
#include "lib/base/str.h"
#include "lib/sweep/job/joblog.h"

static const char HEADING[] = "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\t"
                              "Exitval\tSignal\tCommand\n";

int joblog_open(const char *path, struct err *err)
{
    int fd = output_append(path, err);
    struct stat st;

    if (fd < 0)
        return -1;
    if (fstat(fd, &st) < 0) {
        err_errno(err, "%s", path);
        close(fd);
        return -1;
    }
    if (!S_ISREG(st.st_mode) || st.st_size > 0)
        return fd;
    if (fs_write(fd, HEADING, sizeof(HEADING) - 1, path, err) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

int joblog_add(int fd, const char *path, const struct joblog_entry *e, struct err *err)
{
    struct str line = { 0 };
    int exit_value = e->killed ? -1 : WIFEXITED(e->status) ? WEXITSTATUS(e->status) : 0;
    int sig = WIFSIGNALED(e->status) ? WTERMSIG(e->status) : 0, ret;

    str_addf(&line, "%d\t:\t%.3f\t%10.3f\t0\t%" PRIu64 "\t%d\t%d\t", e->number,
             e->start, e->seconds, e->output_bytes, exit_value, sig);
    for (const char *p = e->command; *p; p++)
        str_addc(&line, *p == '\n' || *p == '\t' ? ' ' : *p); /* one line, one column */
    str_addc(&line, '\n');
    ret = fs_write(fd, line.s, line.len, path, err);
    str_clear(&line);
    return ret;
}
