/* unit-comm - ranks that exchange values, and ranks that fail */
#include <inttypes.h>
#include <signal.h>
#include <stdint.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/mem.h"
#include "lib/comm/comm.h"
#include "lib/run/launch.h"
#include "tests/all-ranks.h"
#include "tests/tap.h"

/* ---- what every rank does; an error names what was wrong ---- */

static int exchange(void *arg, struct comm *c, struct err *err)
{
    (void)arg;
    return exchange_all(c, err);
}

static int overlap(void *arg, struct comm *c, struct err *err)
{
    const unsigned *seed = arg;

    return overlap_all(c, *seed, err);
}

static int start_alone(void *arg, struct comm *c, struct err *err)
{
    (void)arg;
    return wait_otherwise(c, err);
}

/* Wait for a sum that never comes. */
static int wait_for_all(struct comm *c, struct err *err)
{
    float x = 0;

    return comm_run(c, comm_all_reduce(&x, 1), err);
}

static int rank_1_fails(void *arg, struct comm *c, struct err *err)
{
    (void)arg;
    return c->rank == 1 ? err_set(err, ERR_INPUT, "rank 1 says why")
                        : wait_for_all(c, err);
}

static int rank_1_is_killed(void *arg, struct comm *c, struct err *err)
{
    (void)arg;
    if (c->rank == 1)
        raise(SIGKILL);
    return wait_for_all(c, err);
}

/* As its write to a pipe that nobody reads does. */
static int rank_1_writes_to_nobody(void *arg, struct comm *c, struct err *err)
{
    (void)arg;
    if (c->rank == 1) {
        signal(SIGPIPE, SIG_DFL);
        raise(SIGPIPE);
    }
    return wait_for_all(c, err);
}

static int rank_1_exits(void *arg, struct comm *c, struct err *err)
{
    (void)arg;
    if (c->rank == 1)
        _exit(9);
    return wait_for_all(c, err);
}

/* Has started what it never ends. */
static int rank_1_is_killed_after_starts(void *arg, struct comm *c, struct err *err)
{
    enum { LONG = 1000000 };
    float *x = xcalloc(3 * LONG, sizeof(*x));
    int ret = 0;

    (void)arg;
    for (int i = 0; i < 3 && ret == 0; i++)
        ret = comm_start(c, comm_all_reduce(x + i * LONG, LONG), err);
    if (c->rank == 1)
        raise(SIGKILL);
    for (int i = 0; i < 3 && ret == 0; i++)
        ret = comm_wait(c, err);
    free(x);
    return ret;
}

/* Rank 1 expects more of rank 0 than that sends. */
static int counts_disagree(void *arg, struct comm *c, struct err *err)
{
    size_t out[] = { 1, 1 }, in[] = { c->rank ? 2 : 1, 1 };
    float from[2] = { 0 }, to[3];

    (void)arg;
    return comm_run(c,
                    comm_all_to_all(from, (struct comm_parts){ .count = out }, to,
                                    (struct comm_parts){ .count = in }, sizeof(*to)),
                    err);
}

static int asks_to_end(void *arg, struct comm *c, struct err *err)
{
    (void)arg;
    if (c->rank == 0)
        kill(getppid(), SIGTERM);
    for (;;)
        if (c->rank == 0)
            pause();
        else if (wait_for_all(c, err) < 0)
            return -1;
}

/* A rank that hears no request to end. */
static int refuses_to_end(void *arg, struct comm *c, struct err *err)
{
    (void)arg;
    if (c->rank == 1)
        return err_set(err, ERR_INPUT, "rank 1 says why");
    signal(SIGTERM, SIG_IGN);
    for (;;)
        pause();
}

/* ---- the checks ---- */

static void ranks_exchange(int n)
{
    struct err err = { .text = "" };
    int sig, ret = launch_ranks(n, exchange, NULL, &sig, &err);

    if (!tap_ok(ret == 0, "%d ranks exchange sums, parts and messages, also in groups",
                n))
        printf("# %s\n", err.text);
}

static void ranks_overlap(int n)
{
    struct err err = { .text = "" };
    int sig, ret = 0;
    unsigned seed = 0;

    for (; seed < 4 && ret == 0; seed++)
        ret = launch_ranks(n, overlap, &seed, &sig, &err);
    if (!tap_ok(ret == 0, "%d ranks have several collectives under way, of all sizes",
                n))
        printf("# seed %u: %s\n", seed - 1, err.text);
    if (!tap_ok(launch_ranks(n, start_alone, NULL, &sig, &err) == 0,
                "%d ranks start without waiting, and go on whatever they wait for", n))
        printf("# %s\n", err.text);
}

/* Two ranks in one process, which need not wait for the scheduler: what one gives is
 * there before the other asks.  More pieces than 16 bits count. */
static void counters_go_round(void)
{
    enum { PIECES = 70000 };
    struct err err = { .text = "" };
    struct comm *c[2];
    struct shm *shm;
    int i = 0, ret;

    tap_ok(shm_open_group(&shm, 2, &err) == 0, "a group of two ranks in one process");
    for (int r = 0; r < 2; r++)
        c[r] = comm_shm_open(shm, r);
    alarm(60);
    for (; i < PIECES; i++) {
        int given = i, taken = -1;

        ret = comm_start(c[0], comm_broadcast(&given, sizeof(given), 0), &err);
        if (ret < 0 ||
            comm_run(c[1], comm_broadcast(&taken, sizeof(taken), 0), &err) < 0 ||
            comm_wait(c[0], &err) < 0 || taken != i)
            break;
    }
    alarm(0);
    if (!tap_ok(i == PIECES, "they exchange more than their counters count"))
        printf("# %d: %s\n", i, err.text);
    for (int r = 0; r < 2; r++)
        c[r]->ops->close(c[r]);
    shm_close_group(shm);
}

/* The KEY of all shared, anonymous memory of this process, in bytes. */
static uint64_t of_smaps(const char *key)
{
    FILE *f = fopen("/proc/self/smaps", "r");
    char line[512], perms[8], format[40];
    bool ours = false;
    uint64_t kib, sum = 0;

    snprintf(format, sizeof(format), "%s: %%" SCNu64 " kB", key);
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "%*x-%*x %7s", perms) == 1)
            ours = perms[3] == 's' && strstr(line, "/dev/zero");
        else if (ours && sscanf(line, format, &kib) == 1)
            sum += kib << 10;
    if (f)
        fclose(f);
    return sum;
}

/* Sums of N elements, more often than would fill the slots, of two ranks of this
 * process. */
static bool fill_slots(struct comm *const c[2], float *x, size_t n)
{
    int i = 0;

    while (i < 4 && comm_start(c[0], comm_all_reduce(x, n), NULL) == 0 &&
           comm_start(c[1], comm_all_reduce(x + n, n), NULL) == 0 &&
           comm_wait(c[0], NULL) == 0 && comm_wait(c[1], NULL) == 0)
        i++;
    return i == 4;
}

/* Two ranks in one process write all that they say to hold, and no more of what is
 * mapped. */
static void memory_is_told(void)
{
    enum { COUNTERS = 1 << 16 }; /* bytes before the slots, at most */
    static const int both[] = { 0, 1 };
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n;
    struct comm *c[2], *part[2], *self = comm_self_open();
    struct comm_memory m, one;
    struct shm *shm;
    uint64_t there;
    char *buf;

    if (!tap_ok(shm_open_group(&shm, 2, NULL) == 0, "two ranks share memory"))
        return;
    for (int r = 0; r < 2; r++)
        c[r] = comm_shm_open(shm, r);
    comm_held(c[0], &one);
    tap_ok(c[0]->ops->group(c[0], both, 2, &part[0], NULL) == 0 &&
               c[1]->ops->group(c[1], both, 2, &part[1], NULL) == 0,
           "and make a group");
    comm_held(part[1], &m);
    tap_ok(m.slots == 2 * one.slots && m.mapped == one.mapped && m.rings == one.rings,
           "whose slots are added");
    tap_ok((m.mapped + page - 1) / page * page == of_smaps("Size"),
           "what is mapped is told");
    n = one.slots / sizeof(float);
    alarm(60);
    buf = xcalloc(1, m.rings > 2 * one.slots ? m.rings : 2 * one.slots);
    tap_ok(fill_slots(c, (float *)(void *)buf, n) &&
               fill_slots(part, (float *)(void *)buf, n),
           "all slots are used");
    for (int r = 0; r < 2; r++)
        tap_ok(c[r]->ops->send(c[r], buf, m.rings, !r, NULL) == 0 &&
                   c[!r]->ops->receive(c[!r], buf, m.rings, r, NULL) == 0,
               "and the ring from %d to %d", r, !r);
    alarm(0);
    there = of_smaps("Rss");
    if (!tap_ok(there >= 2 * (m.slots + m.rings) &&
                    there < 2 * (m.slots + m.rings) + COUNTERS,
                "that is what is written"))
        printf("# %zu, not twice %zu and %zu\n", (size_t)there, (size_t)m.slots,
               (size_t)m.rings);
    comm_held(self, &m);
    tap_ok(!m.mapped && !m.slots && !m.rings, "a rank alone holds nothing");
    self->ops->close(self);
    for (int r = 0; r < 2; r++) {
        part[r]->ops->close(part[r]);
        c[r]->ops->close(c[r]);
    }
    shm_close_group(shm);
    free(buf);
}

/* A wait for what another rank does not do ends when the group is given up. */
static void wait_ends(void)
{
    struct err err = { .text = "" };
    struct shm *shm;
    float *x = xcalloc(1000000, sizeof(*x));
    struct comm *c;

    tap_ok(shm_open_group(&shm, 2, &err) == 0, "a group of two ranks");
    c = comm_shm_open(shm, 0);
    tap_ok(comm_start(c, comm_all_reduce(x, 1000000), &err) == 0 &&
               comm_start(c, comm_all_reduce(x, 0), &err) == 0,
           "a sum is started where nobody else is");
    shm_abort(shm);
    tap_ok(comm_wait(c, &err) == -1 && err.kind == ERR_SYSTEM,
           "its wait ends with an error");
    tap_is(err.text, "rank 0: another rank is gone", "that says why");
    c->ops->close(c);
    shm_close_group(shm);
    free(x);
}

/* RANK_MAIN on N ranks ends with KIND and TEXT, within 5 seconds, with no child left.
 */
static void failure_is_told(const char *name, int n, rank_main main_of_rank,
                            int want_signal, enum err_kind kind, const char *text)
{
    struct err err = { .text = "" };
    time_t start = time(NULL);
    int sig, ret = launch_ranks(n, main_of_rank, NULL, &sig, &err);

    tap_ok(ret == -1 && err.kind == kind && sig == want_signal,
           "%s: the kind of failure", name);
    tap_is(err.text, text, name);
    tap_ok(time(NULL) - start <= 5 && waitpid(-1, NULL, WNOHANG) == -1,
           "%s: nobody is left after 5 seconds", name);
}

/* ---- processes that meet ---- */

enum { STRANGER = 65534 }; /* a user id */

static const char *meeting(void)
{
    static char name[40];

    snprintf(name, sizeof(name), "unit-comm-%ld", (long)getpid());
    return name;
}

/* A process that meets as RANK of NRANKS, after all ends of the pipe BEHIND are closed
 * if it is not NULL; it exits with 0 if it has met. */
static pid_t start_rank(int rank, int nranks, const int *behind)
{
    const char *name = meeting();
    struct err err = { .text = "" };
    struct shm *shm;
    char byte;
    pid_t pid = fork();

    if (pid)
        return pid;
    if (behind) {
        close(behind[1]);
        if (read(behind[0], &byte, 1) != 0)
            _exit(9);
    }
    _exit(shm_meet(&shm, name, rank, nranks, 10, &err) < 0);
}

/* Rank 0 of two meets others that are not rank 1 of two. */
static void meets_wrong(const char *what, int rank, int nranks, int twice,
                        const char *text)
{
    struct err err = { .text = "" };
    struct shm *shm = NULL;
    pid_t others[2] = { start_rank(rank, nranks, NULL), 0 };

    if (twice)
        others[1] = start_rank(rank, nranks, NULL);
    tap_ok(shm_meet(&shm, meeting(), 0, twice ? 3 : 2, 10, &err) < 0 &&
               err.kind == ERR_INPUT,
           "%s is refused", what);
    tap_is(err.text, text, "with who it is");
    for (int i = 0; i < 1 + twice; i++) {
        kill(others[i], SIGKILL);
        waitpid(others[i], NULL, 0);
    }
}

/* The end of a connection to, or from, a process that meets, of a stranger. */
static int strange_end(const char *name, bool listens, const int *ready)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0), from;
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1);

    len += (socklen_t)snprintf(a.sun_path + 1, sizeof(a.sun_path) - 1,
                               "shardutils-0-%s", name);
    if (fd < 0 || setuid(STRANGER) < 0)
        return -1;
    if (!listens) {
        while (connect(fd, (struct sockaddr *)&a, len) < 0)
            usleep(10000);
        return fd;
    }
    if (bind(fd, (struct sockaddr *)&a, len) < 0 || listen(fd, 1) < 0)
        return -1;
    close(ready[1]);
    from = accept(fd, NULL, NULL);
    close(fd);
    return from;
}

/* Exits with 0 if the process at the other end closes without a word. */
static pid_t start_stranger(bool listens, const int *ready)
{
    const int hello[] = { 1, 2 };
    const char *name = meeting();
    char byte;
    int fd;
    pid_t pid = fork();

    if (pid)
        return pid;
    alarm(20);
    close(ready[0]);
    fd = strange_end(name, listens, ready);
    if (fd < 0)
        _exit(9);
    if (!listens)
        (void)!write(fd, hello, sizeof(hello));
    _exit(read(fd, &byte, 1) > 0);
}

static void strangers_get_nothing(void)
{
    struct err err = { .text = "" };
    struct shm *shm = NULL;
    int behind[2], status = -1;
    pid_t stranger, other;
    char byte;

    if (geteuid() != 0) {
        tap_ok(true, "another user's processes meet nobody # SKIP needs root");
        return;
    }
    if (pipe(behind) < 0)
        abort();
    stranger = start_stranger(false, behind);
    other = start_rank(1, 2, behind);
    close(behind[0]);
    close(behind[1]);
    if (!tap_ok(shm_meet(&shm, meeting(), 0, 2, 10, &err) == 0,
                "rank 0 meets rank 1 behind another user's process"))
        printf("# %s\n", err.text);
    shm_close_group(shm);
    waitpid(other, NULL, 0);
    waitpid(stranger, &status, 0);
    tap_is_int(status, 0, "which gets no memory");
    if (pipe(behind) < 0)
        abort();
    stranger = start_stranger(true, behind);
    close(behind[1]);
    (void)!read(behind[0], &byte, 1);
    close(behind[0]);
    tap_ok(shm_meet(&shm, meeting(), 1, 2, 1, &err) < 0 && err.kind == ERR_SYSTEM,
           "another user's process is no rank 0");
    waitpid(stranger, &status, 0);
    tap_is_int(status, 0, "and hears nothing");
}

static void processes_meet(void)
{
    struct err err = { .text = "" };
    struct shm *shm = NULL;
    pid_t other = start_rank(1, 2, NULL);
    int status = -1;

    if (!tap_ok(shm_meet(&shm, meeting(), 0, 2, 10, &err) == 0, "two processes meet"))
        printf("# %s\n", err.text);
    waitpid(other, &status, 0);
    tap_is_int(status, 0, "both know it");
    shm_close_group(shm);
    meets_wrong("a rank of another job's size", 1, 3, 0,
                "a process connects as rank 1 of 3, but there are 2 ranks");
    meets_wrong("a rank that there is none of", 2, 2, 0,
                "a process connects as rank 2 of 2, but there are 2 ranks");
    meets_wrong("a second process of a rank", 1, 3, 1,
                "a process connects as rank 1 of 3, but there are 3 ranks and that "
                "rank has connected");
    strangers_get_nothing();
}

int main(void)
{
    processes_meet();
    for (int n = 1; n <= 8; n = n < 4 ? n + 1 : n * 2)
        ranks_exchange(n);
    for (int n = 1; n <= 5; n++)
        ranks_overlap(n);
    counters_go_round();
    memory_is_told();
    wait_ends();
    failure_is_told("a rank's own error is passed on", 4, rank_1_fails, 0, ERR_INPUT,
                    "rank 1 says why");
    failure_is_told("a killed rank is named", 4, rank_1_is_killed, 0, ERR_SYSTEM,
                    "rank 1 was killed by signal 9 (SIGKILL)");
    failure_is_told("a rank whose output nobody reads ends all by its signal", 4,
                    rank_1_writes_to_nobody, SIGPIPE, ERR_SYSTEM,
                    "rank 1 was killed by signal 13 (SIGPIPE)");
    failure_is_told("a rank killed with collectives under way is named", 4,
                    rank_1_is_killed_after_starts, 0, ERR_SYSTEM,
                    "rank 1 was killed by signal 9 (SIGKILL)");
    failure_is_told("counts of an all-to-all that disagree are told", 2,
                    counts_disagree, 0, ERR_SYSTEM,
                    "rank 1: another count of elements is expected than rank 0 sends");
    failure_is_told("a rank that exits is named", 4, rank_1_exits, 0, ERR_SYSTEM,
                    "rank 1 ended with status 9");
    failure_is_told("a signal ends all ranks", 4, asks_to_end, SIGTERM, ERR_SYSTEM,
                    "ended by signal 15 (SIGTERM)");
    failure_is_told("a rank that does not listen is killed", 4, refuses_to_end, 0,
                    ERR_INPUT, "rank 1 says why");
    return tap_done();
}
