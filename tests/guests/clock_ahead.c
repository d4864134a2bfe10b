// SPDX-License-Identifier: Apache-2.0
// Preloaded, it lets a program see CLOCK_REALTIME ahead by CLOCK_AHEAD_MS milliseconds: a machine whose clock is wrong.
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now)
{
    long failed = syscall(SYS_clock_gettime, clock, now);
    const char *ahead = getenv("CLOCK_AHEAD_MS");
    if (failed == 0 && clock == CLOCK_REALTIME && ahead != NULL) {
        long ns = now->tv_nsec + (atol(ahead) % 1000) * 1000000L;
        now->tv_sec += atol(ahead) / 1000 + ns / 1000000000L;
        now->tv_nsec = ns % 1000000000L;
    }
    return (int)failed;
}
