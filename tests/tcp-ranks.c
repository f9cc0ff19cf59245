/* tcp-ranks - ranks that TCP connects: tcp-ranks PORT RANKS
 *
 * As many processes meet at localhost, which strangers disturb, and do what all-ranks
 * does.  Then one of them is killed, and one that is missing is not waited for.  More
 * than 16 meet, and sum and gather once. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/comm/tcp.h"
#include "tests/all-ranks.h"
#include "tests/tap.h"

static int port, nranks;
static const char *secret;

typedef int work(struct comm *world, struct err *err);

static int exchange(struct comm *world, struct err *err)
{
    int ret = exchange_all(world, err);

    for (unsigned seed = 0; seed < 4 && ret == 0; seed++)
        ret = overlap_all(world, seed, err);
    return ret < 0 || wait_otherwise(world, err) < 0 ? -1 : 0;
}

static int die(struct comm *world, struct err *err)
{
    float x = 0;

    if (world->rank == 1)
        raise(SIGKILL);
    return comm_run(world, comm_all_reduce(&x, 1), err);
}

/* Rank 1 ends; the others wait for it. */
static int leave(struct comm *world, struct err *err)
{
    float x = 0;

    return world->rank == 1 ? 0 : comm_run(world, comm_all_reduce(&x, 1), err);
}

/* More than sockets hold, to a rank that begins to read late; the sender ends first. */
static int send_much(struct comm *world, struct err *err)
{
    enum { BYTES = 40 << 20 };
    char *all = malloc(BYTES);
    int ret = 0;

    memset(all, world->rank + 1, BYTES);
    if (world->rank == 0)
        ret = world->ops->send(world, all, BYTES, 1, err) < 0 ||
                      world->ops->flush(world, err) < 0
                  ? -1
                  : 0;
    if (world->rank == 1) {
        usleep(200000);
        ret = world->ops->receive(world, all, BYTES, 0, err);
        if (ret == 0 && (all[0] != 1 || all[BYTES - 1] != 1))
            ret = err_set(err, ERR_INPUT, "other bytes have come");
    }
    free(all);
    return ret;
}

/* The ranks but 1 send the next one more than that should hold; all sum first and then
 * take it. */
static int send_ahead(struct comm *world, struct err *err)
{
    enum { PIECE = 3 << 20, PIECES = 30, MOST_KIB = 80 << 10 };
    int next = (world->rank + 1) % nranks, before = (world->rank + nranks - 1) % nranks;
    char *piece = malloc(PIECE);
    struct rusage use;
    float x = 1;
    int ret = 0;

    for (int i = 0; i < PIECES && ret == 0; i++) {
        memset(piece, i, PIECE);
        ret = world->rank == 1 ? 0 : world->ops->send(world, piece, PIECE, next, err);
    }
    if (ret == 0)
        ret = comm_run(world, comm_all_reduce(&x, 1), err);
    getrusage(RUSAGE_SELF, &use);
    if (ret == 0 && world->rank == 1 && use.ru_maxrss > MOST_KIB)
        ret = err_set(err, ERR_INPUT, "%ld KiB are in use", use.ru_maxrss);
    for (int i = 0; i < PIECES && ret == 0 && before != 1; i++) {
        ret = world->ops->receive(world, piece, PIECE, before, err);
        if (ret == 0 && (piece[0] != i || piece[PIECE - 1] != i))
            ret = err_set(err, ERR_INPUT, "piece %d is another", i);
    }
    free(piece);
    return ret < 0 || world->ops->flush(world, err) < 0 ? -1 : 0;
}

/* For groups of any size. */
static int sum_once(struct comm *world, struct err *err)
{
    float x = (float)world->rank, want = (float)(nranks * (nranks - 1) / 2);
    int all[256], ret;

    ret = comm_run(world, comm_all_reduce(&x, 1), err);
    if (ret == 0)
        ret = comm_run(world, comm_all_gather(&world->rank, all, sizeof(int)), err);
    for (int r = 0; r < nranks && ret == 0; r++)
        if (x != want || all[r] != r)
            ret = err_set(err, ERR_INPUT, "%g, %d of rank %d", x, all[r], r);
    return ret;
}

/* A rank's process; status: its error's kind, and the text on its standard output. */
static int run_rank(int rank, const char *job, work *what, int limit_s)
{
    struct tcp_meeting m = { "localhost", port, job, secret, rank, nranks, limit_s };
    struct err err = { .text = "" };
    struct comm *world = NULL;
    int ret = tcp_meet(&world, &m, &err);

    if (ret == 0)
        ret = what(world, &err);
    if (world)
        world->ops->close(world);
    if (ret < 0 && write(STDOUT_FILENO, err.text, strlen(err.text)) < 0)
        return 99;
    return ret < 0 ? (int)err.kind : 0;
}

static struct rank {
    pid_t pid;
    int out, status;
    char text[1024];
} ranks[256];

static void start_rank(struct rank *r, int rank, const char *job, work *what,
                       int limit_s)
{
    int pipes[2];

    if (pipe(pipes) < 0)
        exit(1);
    fflush(stdout);
    r->pid = fork();
    if (r->pid == 0) {
        dup2(pipes[1], STDOUT_FILENO);
        alarm(120);
        _exit(run_rank(rank, job, what, limit_s));
    }
    close(pipes[1]);
    r->out = pipes[0];
}

static void end_rank(struct rank *r)
{
    ssize_t n = read(r->out, r->text, sizeof(r->text) - 1);

    r->text[n > 0 ? n : 0] = '\0';
    close(r->out);
    waitpid(r->pid, &r->status, 0);
}

static bool ended(const struct rank *r, int status)
{
    if (WIFEXITED(r->status) && WEXITSTATUS(r->status) == status)
        return true;
    printf("# status %x: %s\n", (unsigned)r->status, r->text);
    return false;
}

/* A connection to the ranks' port; waits until there is somebody. */
static int stranger(void)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

    for (int i = 0; i < 500; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);

        if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
            return fd;
        close(fd);
        usleep(10000);
    }
    return -1;
}

static bool all_end(int status)
{
    bool all = true;

    for (int r = 0; r < nranks; r++) {
        end_rank(&ranks[r]);
        all = ended(&ranks[r], status) && all;
    }
    return all;
}

static void meet_among_strangers(void)
{
    char junk[TCP_HELLO + 5000], hello[TCP_HELLO] = "shardtc2";
    int fd[100];

    for (size_t i = 0; i < sizeof(junk); i++)
        junk[i] = (char)(i * 37 + 1);
    start_rank(&ranks[0], 0, "a job", exchange, 60);
    for (int i = 0; i < 100; i++) {
        fd[i] = stranger(); /* some say nothing, some rubbish, some too little */
        if (i % 3 == 1)
            (void)!send(fd[i], junk, sizeof(junk), MSG_NOSIGNAL);
        if (i % 3 == 2)
            (void)!send(fd[i], hello, 20, MSG_NOSIGNAL);
    }
    tap_ok(fd[99] >= 0, "strangers connect to rank 0");
    for (int i = 3; i < 100; i++) /* the first three stay */
        close(fd[i]);
    for (int r = 1; r < nranks; r++)
        start_rank(&ranks[r], r, "a job", exchange, 60);
    tap_ok(all_end(0), "%d ranks meet all the same, and exchange what all-ranks does",
           nranks);
    for (int i = 0; i < 3; i++)
        close(fd[i]);
}

static void run_all(work *what)
{
    for (int r = 0; r < nranks; r++)
        start_rank(&ranks[r], r, "a job", what, 60);
}

static void many_meet(void)
{
    for (int r = 0; r < nranks; r++)
        start_rank(&ranks[r], r, "a job", sum_once, 60);
    tap_ok(all_end(0), "%d ranks meet, sum and gather", nranks);
}

/* ---- those that are no rank ---- */

static bool give(int fd, const void *p, size_t n)
{
    return send(fd, p, n, MSG_NOSIGNAL) == (ssize_t)n;
}

static bool take(int fd, void *p, size_t n)
{
    return recv(fd, p, n, MSG_WAITALL) == (ssize_t)n;
}

/* What a process has said that was admitted. */
struct said {
    struct hello hello;
    struct hello_proof proof;
};

/* Says that it is rank RANK of SIZE; as REPEATED if it is not NULL.  Returns rank 0's
 * verdict, 0 if there is none. */
static enum hello_verdict claim(int rank, int size, const struct said *repeated,
                                struct said *said)
{
    static const unsigned char nonce[HELLO_NONCE] = "nobody knows";
    struct hello_job job = { "a job", secret };
    struct hello_challenge challenge;
    struct hello_answer answer;
    struct said own;
    int fd = stranger();
    bool answered;

    hello_make(&own.hello, &job, rank, size, 1, nonce);
    if (repeated)
        own = *repeated;
    answered = give(fd, &own.hello, sizeof(own.hello)) &&
               take(fd, &challenge, sizeof(challenge)) &&
               (repeated || hello_prove(&own.proof, &job, &own.hello, &challenge)) &&
               give(fd, &own.proof, sizeof(own.proof)) &&
               take(fd, &answer, sizeof(answer));
    close(fd);
    if (said)
        *said = own;
    return answered ? ntohl(answer.verdict) : 0;
}

/* Who says that it is a rank that cannot be is told, and nobody else. */
static void false_ranks(void)
{
    char text[160];

    start_rank(&ranks[0], 0, "a job", sum_once, 60);
    tap_ok(claim(nranks + 70, nranks, NULL, NULL) == HELLO_NO_RANK &&
               claim(nranks, nranks, NULL, NULL) == HELLO_NO_RANK &&
               claim(0, nranks, NULL, NULL) == HELLO_NO_RANK &&
               claim(-1, -1, NULL, NULL) == HELLO_OTHER_SIZE &&
               claim(1, nranks + 1, NULL, NULL) == HELLO_OTHER_SIZE,
           "ranks that cannot be are refused");
    start_rank(&ranks[1], 1, "a job", sum_once, 60);
    usleep(200000);
    start_rank(&ranks[nranks], 1, "a job", sum_once, 60);
    end_rank(&ranks[nranks]);
    tap_ok(ended(&ranks[nranks], ERR_INPUT), "and so is the second process of a rank");
    tap_is(ranks[nranks].text,
           "another process is rank 1 already: rank 0 does not wait for it",
           "which is told why");
    for (int r = 2; r < nranks; r++)
        start_rank(&ranks[r], r, "a job", sum_once, 60);
    tap_ok(all_end(0), "while the others meet");

    start_rank(&ranks[0], 0, "a job", sum_once, 1);
    claim(nranks + 7, nranks, NULL, NULL);
    end_rank(&ranks[0]);
    snprintf(text, sizeof(text),
             "rank 1 has not connected (--rank-timeout); a process that connected as "
             "rank %d of %d was refused",
             nranks + 7, nranks);
    tap_is(ranks[0].text, text, "who waits in vain names who was refused");
}

static void secrets(void)
{
    struct said said;

    secret = "a secret";
    start_rank(&ranks[0], 0, "a job", sum_once, 60);
    secret = NULL;
    tap_ok(claim(1, nranks, NULL, NULL) == HELLO_UNPROVEN,
           "who does not know the job's secret is refused");
    secret = "a secre";
    start_rank(&ranks[1], 1, "a job", sum_once, 60);
    end_rank(&ranks[1]);
    tap_ok(ended(&ranks[1], ERR_INPUT), "and so is a rank that has another");
    tap_ok(strstr(ranks[1].text, " has another secret than rank 1 "
                                 "(SHARDUTILS_JOB_SECRET)"),
           "which is told why");
    secret = "a secret";
    tap_ok(claim(1, nranks, NULL, &said) == HELLO_ADMITTED, "who knows it is admitted");
    tap_ok(claim(1, nranks, &said, NULL) == HELLO_UNPROVEN,
           "who repeats what was said is not");
    for (int r = 2; r < nranks; r++)
        start_rank(&ranks[r], r, "a job", sum_once, 60);
    usleep(200000); /* they are all there, and it has gone */
    start_rank(&ranks[1], 1, "a job", sum_once, 60);
    tap_ok(all_end(0), "the ranks meet, also one whose first process has gone");
    secret = NULL;
}

int main(int argc, char **argv)
{
    bool told = true;

    if (argc < 3)
        return 2;
    port = (int)strtol(argv[1], NULL, 10);
    nranks = (int)strtol(argv[2], NULL, 10);
    if (nranks > 16) {
        many_meet();
        return tap_done();
    }
    meet_among_strangers();

    run_all(send_much);
    tap_ok(all_end(0), "what was sent arrives after its sender has ended");

    run_all(send_ahead);
    tap_ok(all_end(0), "what a rank has not taken waits with its sender");

    run_all(die);
    for (int r = 0; r < nranks; r++) {
        end_rank(&ranks[r]);
        if (r != 1) {
            told = ended(&ranks[r], ERR_SYSTEM) && told;
            told = strncmp(ranks[r].text, "rank 1 is gone: ", 16) == 0 && told;
        }
    }
    tap_ok(told, "when a rank is killed the others end, and name it");

    told = true;
    run_all(leave);
    for (int r = 0; r < nranks; r++) {
        end_rank(&ranks[r]);
        if (r != 1)
            told = ended(&ranks[r], ERR_SYSTEM) && told;
    }
    tap_ok(told, "nobody waits for a rank that has ended");

    start_rank(&ranks[0], 0, "a job", exchange, 1);
    end_rank(&ranks[0]);
    tap_ok(ended(&ranks[0], ERR_SYSTEM) &&
               !strcmp(ranks[0].text, "rank 1 has not connected (--rank-timeout)"),
           "a rank that never comes is not waited for longer than the limit");
    start_rank(&ranks[1], 1, "a job", exchange, 1);
    end_rank(&ranks[1]);
    tap_ok(ended(&ranks[1], ERR_SYSTEM) &&
               strstr(ranks[1].text, "rank 0 has not answered rank 1 at localhost"),
           "nor is rank 0");

    start_rank(&ranks[0], 0, "a job", exchange, 3);
    usleep(300000);
    start_rank(&ranks[1], 1, "another", exchange, 60);
    end_rank(&ranks[1]);
    tap_ok(ended(&ranks[1], ERR_SYSTEM) &&
               strstr(ranks[1].text, "another job uses port"),
           "a rank of another job is told at once");
    start_rank(&ranks[2], 0, "a job", exchange, 60);
    end_rank(&ranks[2]);
    tap_ok(ended(&ranks[2], ERR_SYSTEM) &&
               strstr(ranks[2].text, "another program uses port"),
           "a port in use is named");
    end_rank(&ranks[0]);
    tap_ok(ended(&ranks[0], ERR_SYSTEM), "and disturbs no one");
    false_ranks();
    secrets();
    return tap_done();
}
