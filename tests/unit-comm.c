/* unit-comm - ranks that exchange values, and ranks that fail */
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/mem.h"
#include "lib/comm/comm.h"
#include "lib/run/launch.h"
#include "tests/tap.h"

enum { BIG = 200000 }; /* elements: several slots, the last not full */

/* Element I of rank RANK's share. */
static float element(int rank, size_t i)
{
    return 1.0f / (float)(3 * rank + 1) + (float)(i % 977) * 1e-3f;
}

/* ---- what every rank does; an error names what was wrong ---- */

static int sums(struct comm *c, size_t n, struct err *err)
{
    float *x = xcalloc(n + 1, sizeof(*x));
    double *d = xcalloc(n + 1, sizeof(*d));
    int ret = -1;

    for (size_t i = 0; i < n; i++)
        d[i] = (double)(x[i] = element(c->rank, i));
    if (c->ops->sum_f32(c, x, n, err) < 0 || c->ops->sum_f64(c, d, n, err) < 0)
        goto out;
    for (size_t i = 0; i < n; i++) {
        float want = element(0, i); /* in rank order, to the bit */
        double wide = (double)want;

        for (int r = 1; r < c->size; r++) {
            want += element(r, i);
            wide += (double)element(r, i);
        }
        if (x[i] != want || d[i] != wide) {
            err_set(err, ERR_INPUT, "rank %d: sum %zu is wrong", c->rank, i);
            goto out;
        }
    }
    ret = 0;
out:
    free(x);
    free(d);
    return ret;
}

static int gathers(struct comm *c, size_t n, struct err *err)
{
    float *mine = xcalloc(n + 1, sizeof(*mine));
    float *all = xcalloc(n * (size_t)c->size + 1, sizeof(*all));
    int ret = -1;

    for (size_t i = 0; i < n; i++)
        mine[i] = element(c->rank, i);
    if (c->ops->gather(c, mine, all, n * sizeof(*mine), err) < 0)
        goto out;
    for (int r = 0; r < c->size; r++)
        for (size_t i = 0; i < n; i++)
            if (all[(size_t)r * n + i] != element(r, i)) {
                err_set(err, ERR_INPUT, "rank %d: gathered wrong", c->rank);
                goto out;
            }
    ret = 0;
out:
    free(mine);
    free(all);
    return ret;
}

static int broadcasts(struct comm *c, size_t n, struct err *err)
{
    float *x = xcalloc(n + 1, sizeof(*x));
    int root = c->size - 1, ret = -1;

    for (size_t i = 0; i < n; i++)
        x[i] = element(c->rank, i);
    if (c->ops->broadcast(c, x, n * sizeof(*x), root, err) < 0)
        goto out;
    for (size_t i = 0; i < n; i++)
        if (x[i] != element(root, i)) {
            err_set(err, ERR_INPUT, "rank %d: broadcast wrong", c->rank);
            goto out;
        }
    ret = 0;
out:
    free(x);
    return ret;
}

/* Everybody sends to everybody, far more than there is room for, before anybody
 * receives; and takes it in other pieces. */
static int messages(struct comm *c, size_t n, struct err *err)
{
    float *x = xcalloc(n + 1, sizeof(*x));
    int ret = -1;

    for (size_t i = 0; i < n; i++)
        x[i] = element(c->rank, i);
    for (int r = 0; r < c->size; r++)
        for (int k = 0; k < 3 && r != c->rank; k++)
            if (c->ops->send(c, x, n * sizeof(*x), r, err) < 0)
                goto out;
    for (int r = 0; r < c->size; r++)
        for (size_t i = 0; i < 3 * n && r != c->rank; i++) {
            size_t some = i % n < n / 2 ? n / 2 : 1;

            if (c->ops->receive(c, x, some * sizeof(*x), r, err) < 0)
                goto out;
            for (size_t k = 0; k < some; k++)
                if (x[k] != element(r, (i + k) % n)) {
                    err_set(err, ERR_INPUT, "rank %d: message wrong", c->rank);
                    goto out;
                }
            i += some - 1;
        }
    ret = c->ops->flush(c, err);
out:
    free(x);
    return ret;
}

/* Ranks of equal remainder by 2, and inside those groups the same once more. */
static int groups(struct comm *c, int depth, struct err *err)
{
    int member[8], n = 0, ret;
    struct comm *half;

    for (int r = c->rank % 2; r < c->size; r += 2)
        member[n++] = r;
    if (c->ops->group(c, member, n, &half, err) < 0)
        return -1;
    ret = half->size != n || half->rank != c->rank / 2
              ? err_set(err, ERR_INPUT, "rank %d: misplaced in its group", c->rank)
              : 0;
    if (ret == 0 && (sums(half, 5000, err) < 0 || sums(c, 3000, err) < 0 ||
                     messages(half, 3000, err) < 0))
        ret = -1;
    if (ret == 0 && depth)
        ret = groups(half, depth - 1, err);
    half->ops->close(half);
    return ret;
}

static int exchange_all(void *arg, struct comm *c, struct err *err)
{
    static const size_t sizes[] = { 0, 1, 7, 1000, BIG };

    (void)arg;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
        if (sums(c, sizes[i], err) < 0 || gathers(c, sizes[i], err) < 0 ||
            broadcasts(c, sizes[i], err) < 0)
            return -1;
    for (int i = 0; i < 300; i++) /* no rank runs ahead of another's reading */
        if (sums(c, 5, err) < 0)
            return -1;
    return messages(c, 100, err) < 0 ||
                   messages(c, c->size == 2 ? 8 * BIG : BIG, err) < 0
               ? -1
               : groups(c, 1, err);
}

/* Wait for a sum that never comes. */
static int wait_for_all(struct comm *c, struct err *err)
{
    float x = 0;

    return c->ops->sum_f32(c, &x, 1, err);
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

static int rank_1_exits(void *arg, struct comm *c, struct err *err)
{
    (void)arg;
    if (c->rank == 1)
        _exit(9);
    return wait_for_all(c, err);
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
    int sig, ret = launch_ranks(n, exchange_all, NULL, &sig, &err);

    if (!tap_ok(ret == 0, "%d ranks exchange sums, parts and messages, also in groups",
                n))
        printf("# %s\n", err.text);
}

/* RANK_MAIN on 4 ranks ends with KIND and TEXT, within 5 seconds, with no child left.
 */
static void failure_is_told(const char *name, rank_main main_of_rank, int want_signal,
                            enum err_kind kind, const char *text)
{
    struct err err = { .text = "" };
    time_t start = time(NULL);
    int sig, ret = launch_ranks(4, main_of_rank, NULL, &sig, &err);

    tap_ok(ret == -1 && err.kind == kind && sig == want_signal,
           "%s: the kind of failure", name);
    tap_is(err.text, text, name);
    tap_ok(time(NULL) - start <= 5 && waitpid(-1, NULL, WNOHANG) == -1,
           "%s: nobody is left after 5 seconds", name);
}

int main(void)
{
    for (int n = 1; n <= 8; n = n < 4 ? n + 1 : n * 2)
        ranks_exchange(n);
    failure_is_told("a rank's own error is passed on", rank_1_fails, 0, ERR_INPUT,
                    "rank 1 says why");
    failure_is_told("a killed rank is named", rank_1_is_killed, 0, ERR_SYSTEM,
                    "rank 1 was killed by signal 9 (SIGKILL)");
    failure_is_told("a rank that exits is named", rank_1_exits, 0, ERR_SYSTEM,
                    "rank 1 ended with status 9");
    failure_is_told("a signal ends all ranks", asks_to_end, SIGTERM, ERR_SYSTEM,
                    "ended by signal 15");
    failure_is_told("a rank that does not listen is killed", refuses_to_end, 0,
                    ERR_INPUT, "rank 1 says why");
    return tap_done();
}
