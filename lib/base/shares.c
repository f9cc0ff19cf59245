/* shares - a range of independent work, done by several threads */
#include "lib/base/shares.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "lib/base/mem.h"

struct share {
    shares_task *run;
    void *arg;
    int number;
    uint64_t from, end;
    pthread_t thread;
    bool begun;
};

static uint64_t length_of(uint64_t n, uint64_t unit, int shares)
{
    uint64_t each = n / (uint64_t)shares + (n % (uint64_t)shares > 0);

    return (each + unit - 1) / unit * unit;
}

int shares_of(uint64_t n, uint64_t unit, int threads)
{
    uint64_t units = n / unit + (n % unit > 0);
    int most = threads < SHARES_MOST ? threads : SHARES_MOST, shares;

    if (units <= 1 || most <= 1)
        return 1;
    shares = units < (uint64_t)most ? (int)units : most;
    /* whole units may leave nothing to the last ones */
    return (int)((n - 1) / length_of(n, unit, shares) + 1);
}

static void *run_share(void *arg)
{
    struct share *s = arg;

    s->run(s->arg, s->number, s->from, s->end);
    return NULL;
}

void shares_run(uint64_t n, uint64_t unit, int threads, shares_task *run, void *arg)
{
    int shares = shares_of(n, unit, threads);
    uint64_t each = length_of(n, unit, shares);
    struct share *all = xcalloc((size_t)shares, sizeof(*all));

    for (int i = 0; i < shares; i++) {
        struct share *s = &all[i];

        *s = (struct share){ .run = run, .arg = arg, .number = i };
        s->from = (uint64_t)i * each;
        s->end = n - s->from < each ? n : s->from + each;
        s->begun = i > 0 && pthread_create(&s->thread, NULL, run_share, s) == 0;
    }
    for (int i = 0; i < shares; i++)
        if (all[i].begun)
            pthread_join(all[i].thread, NULL);
        else
            run_share(&all[i]);
    free(all);
}
