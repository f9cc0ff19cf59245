/* shares - a range of independent work, done by several threads */
#ifndef LIB_BASE_SHARES_H
#define LIB_BASE_SHARES_H

#include <stdint.h>

enum {
    SHARES_MOST = 64,      /* threads of one call, at most */
    SHARES_LEAST = 1 << 18 /* numbers to convert that are worth a thread */
};

/* Does [FROM, END), share number SHARE. */
typedef void shares_task(void *arg, int share, uint64_t from, uint64_t end);

/* How many shares shares_run makes of N, in whole UNITs, for THREADS threads; at least
 * 1. */
int shares_of(uint64_t n, uint64_t unit, int threads);
/* Calls RUN for each share of [0, N), all at once, and waits for them; what finds no
 * thread runs on this one. */
void shares_run(uint64_t n, uint64_t unit, int threads, shares_task *run, void *arg);

#endif
