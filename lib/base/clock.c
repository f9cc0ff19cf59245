/* clock - monotonic time in seconds, for measuring */
#include "lib/base/clock.h"

#include <time.h>

double clock_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
