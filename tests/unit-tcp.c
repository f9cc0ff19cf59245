/* unit-tcp - what ranks say to each other by TCP, and what false ones may say */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/mem.h"
#include "lib/comm/hello.h"
#include "lib/comm/tcp.h"
#include "tests/tap.h"

static const struct hello_job job = { "a job", "a secret" };
static const unsigned char nonces[2][HELLO_NONCE] = { "one", "another" };

/* ---- the hello ---- */

/* Gives G the N bytes at P, EACH at a time; returns its last step. */
static enum hello_step say(struct hello_guest *g, const void *p, size_t n, size_t each)
{
    enum hello_step step = HELLO_MORE;

    for (size_t at = 0; at < n && step == HELLO_MORE;) {
        void *to;
        size_t room = hello_room(g, &to), some = n - at < each ? n - at : each;

        some = some < room ? some : room;
        memcpy(to, (const char *)p + at, some);
        at += some;
        step = hello_took(g, &job, some);
    }
    return step;
}

static void greeting(void)
{
    struct hello_job others[] = { { "a job", "a secreT" }, { "a job", NULL } };
    struct hello_guest g;
    struct hello h;
    struct hello_proof p;
    struct hello_answer a;
    bool all = true, none = false;

    for (size_t each = 1; each <= sizeof(h); each += each < 3 ? 1 : 50) {
        hello_make(&h, &job, 3, 8, 77, nonces[0]);
        hello_expect(&g, nonces[1]);
        all &= say(&g, &h, sizeof(h), each) == HELLO_ASKED &&
               hello_prove(&p, &job, &h, &g.challenge) &&
               say(&g, &p, sizeof(p), each) == HELLO_PROVEN;
        hello_reply(&a, &job, &g, HELLO_ADMITTED, 8);
        all &= hello_read(&a, &job, &h, &g.challenge) == HELLO_ADMITTED;
    }
    tap_ok(all, "a rank proves itself and is admitted, in whatever pieces");
    tap_ok(ntohl(g.hello.rank) == 3 && ntohl(g.hello.nranks) == 8 &&
               ntohl(g.hello.port) == 77,
           "with its numbers");

    a.code[0] ^= 1;
    tap_ok(hello_read(&a, &job, &h, &g.challenge) == 0,
           "an admission without the right code is none");
    memset(a.code, 0, sizeof(a.code));
    tap_ok(hello_read(&a, &job, &h, &g.challenge) == 0, "nor one without a code");
    hello_reply(&a, &job, &g, HELLO_TAKEN, 8);
    tap_ok(hello_read(&a, &job, &h, &g.challenge) == HELLO_TAKEN,
           "a refusal needs none");
    a.verdict = htonl(HELLO_TAKEN + 1);
    tap_ok(hello_read(&a, &job, &h, &g.challenge) == 0, "an unknown verdict is none");

    for (size_t i = 0; i < 2; i++) {
        hello_expect(&g, nonces[1]);
        (void)say(&g, &h, sizeof(h), 1000);
        none |= !hello_prove(&p, &others[i], &h, &g.challenge) ||
                say(&g, &p, sizeof(p), 1000) != HELLO_FALSE;
    }
    tap_ok(!none, "the proof of another secret, or of none, is false");
    hello_expect(&g, nonces[1]);
    (void)say(&g, &h, sizeof(h), 1000);
    hello_prove(&p, &job, &h, &g.challenge);
    hello_expect(&g, nonces[0]);
    tap_ok(say(&g, &h, sizeof(h), 1000) == HELLO_ASKED &&
               say(&g, &p, sizeof(p), 1000) == HELLO_FALSE,
           "and so is one that answered another challenge");
    hello_expect(&g, nonces[1]);
    h.rank = htonl(4);
    tap_ok(say(&g, &h, sizeof(h), 1000) == HELLO_ASKED &&
               say(&g, &p, sizeof(p), 1000) == HELLO_FALSE,
           "or that was made for another rank");
    memcpy(h.job, "a jobs", 7);
    hello_expect(&g, nonces[1]);
    tap_ok(say(&g, &h, sizeof(h), 1000) == HELLO_FOREIGN &&
               hello_is_foreign(&g.challenge) &&
               !hello_prove(&p, &job, &h, &g.challenge),
           "a rank of another job is told");
    memset(h.job, 'a', sizeof(h.job));
    hello_expect(&g, nonces[1]);
    tap_ok(say(&g, &h, sizeof(h), 1000) == HELLO_FOREIGN,
           "also one whose name has no end");
    h.magic[7] ^= 1;
    hello_expect(&g, nonces[1]);
    tap_ok(say(&g, &h, 7, 1) == HELLO_MORE &&
               say(&g, &h.magic[7], 1, 1) == HELLO_STRANGER,
           "a stranger is known by its first wrong byte");
}

/* ---- a false rank ---- */

enum { MESSAGES = 0, SUMS = 1, BYE = 4, ROOM = 6, MIB = 1 << 20 };

struct lie {
    const char *name;
    uint32_t group, channel, bytes;
    int group_step; /* between frames */
    bool payload;
};

static bool give(int fd, const void *p, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t sent = send(fd, (const char *)p + at, n - at, MSG_NOSIGNAL);

        if (sent <= 0)
            return false;
        at += (size_t)sent;
    }
    return true;
}

/* Repeats the lie until nobody listens, at most 2 GiB of it. */
static void tell_lies(int fd, const struct lie *lie)
{
    char *junk = xcalloc(MIB, 1);
    uint32_t group = lie->group;

    for (int i = 0; i < 2048 * (lie->bytes > 1000 ? 1 : 100); i++) {
        uint32_t head[3] = { htonl(group), htonl(lie->channel), htonl(lie->bytes) };

        if (!give(fd, head, sizeof(head)) ||
            (lie->payload && !give(fd, junk, lie->bytes)))
            break;
        group += (uint32_t)lie->group_step;
    }
    _exit(0);
}

/* Rank 0 waits for a word of rank 1, which says something else without an end. */
static void hear_lies(const struct lie *lie)
{
    int pair[2], fd[2];
    struct rusage before, after;
    struct err err = { .text = "" };
    struct comm *world;
    int32_t word;
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
        abort();
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        close(pair[0]);
        tell_lies(pair[1], lie);
    }
    close(pair[1]);
    fd[0] = -1;
    fd[1] = pair[0];
    getrusage(RUSAGE_SELF, &before);
    world = tcp_open(0, 2, fd);
    alarm(60);
    tap_ok(world->ops->receive(world, &word, sizeof(word), 1, &err) < 0 &&
               err.kind == ERR_SYSTEM,
           "a rank that sends %s ends the job", lie->name);
    tap_is(err.text, "rank 1 is gone: Protocol error", "with one line");
    getrusage(RUSAGE_SELF, &after);
    tap_ok(after.ru_maxrss - before.ru_maxrss < 300 * 1024 &&
               after.ru_utime.tv_sec + after.ru_stime.tv_sec - before.ru_utime.tv_sec -
                       before.ru_stime.tv_sec <
                   5,
           "and costs it less than 300 MiB and 5 seconds");
    world->ops->close(world);
    alarm(0);
    waitpid(pid, NULL, 0);
}

static void false_rank(void)
{
    static const struct lie lies[] = {
        { "more than a frame holds", 0, MESSAGES, MIB + 1, 0, false },
        { "a frame without end", 0, MESSAGES, 0xffffffff, 0, false },
        { "an empty frame", 0, MESSAGES, 0, 0, false },
        { "in a channel that there is not", 0, ROOM + 4, 4, 0, true },
        { "an end with bytes", 0, BYE, 4, 0, true },
        { "room that it does not have", 0, ROOM, 1, 0, false },
        { "what nobody waits for", 0, SUMS, MIB, 0, true },
        { "byte by byte what nobody waits for", 0, SUMS, 1, 0, true },
        { "to groups that there are not", 1, SUMS, 1, 1, true },
        { "much to groups that there are not", 1, SUMS, MIB, 1, true },
    };

    for (size_t i = 0; i < sizeof(lies) / sizeof(*lies); i++)
        hear_lies(&lies[i]);
}

int main(void)
{
    greeting();
    false_rank();
    return tap_done();
}
