/* spin - waiting for another thread or process without sleeping at once */
#ifndef LIB_BASE_SPIN_H
#define LIB_BASE_SPIN_H

#include <sched.h>
#include <stdbool.h>

static inline void spin_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Look LOOKS times whether READY(ARG), then YIELDS times with the processor offered to
 * others between; false if it is time to sleep in the kernel. */
static inline bool spin_until(int looks, int yields, bool (*ready)(const void *arg),
                              const void *arg)
{
    for (int i = 0; i < looks; i++) {
        if (ready(arg))
            return true;
        spin_pause();
    }
    for (int i = 0; i < yields; i++) {
        if (ready(arg))
            return true;
        sched_yield();
    }
    return false;
}

#endif
