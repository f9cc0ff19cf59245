/* clock - monotonic time in seconds, for measuring */
#ifndef LIB_BASE_CLOCK_H
#define LIB_BASE_CLOCK_H

/* Seconds since an arbitrary moment; the clock never goes backwards. */
double clock_seconds(void);

#endif
