/* clock - a time to measure by */
#ifndef LIB_BASE_CLOCK_H
#define LIB_BASE_CLOCK_H

/* Seconds since some moment before this process began; they never go back. */
double clock_seconds(void);

#endif
