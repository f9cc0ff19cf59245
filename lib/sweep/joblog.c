/* joblog - what ran, in the columns of GNU parallel's --joblog */
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/sweep/joblog.h"

static const char HEADING[] = "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\t"
                              "Exitval\tSignal\tCommand\n";

int joblog_open(const char *path, struct err *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    struct stat st;

    if (fd < 0)
        return err_errno(err, "%s", path);
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > 0)
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

    str_addf(&line, "%d\t:\t%.3f\t%10.3f\t0\t%" PRIu64 "\t%d\t%d\t%s\n", e->number,
             e->start, e->seconds, e->output_bytes, exit_value, sig, e->command);
    ret = fs_write(fd, line.s, line.len, path, err);
    str_clear(&line);
    return ret;
}

void joblog_command(struct str *out, char *const *words)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789_-+=./:,@%";

    for (char *const *w = words; *w; w++) {
        if (w > words)
            str_addc(out, ' ');
        if (**w && !(*w)[strspn(*w, plain)]) {
            str_add(out, *w);
            continue;
        }
        str_addc(out, '\'');
        for (const char *p = *w; *p; p++)
            if (*p == '\'')
                str_add(out, "'\\''");
            else
                str_addc(out, *p == '\n' || *p == '\t' ? ' ' : *p);
        str_addc(out, '\'');
    }
}
