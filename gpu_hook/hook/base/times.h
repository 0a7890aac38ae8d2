/* Points in time, on CLOCK_MONOTONIC, which cannot be set. */
#ifndef ALIQUOT_TIMES_H
#define ALIQUOT_TIMES_H

#include <stdint.h>
#include <time.h>

#define TIMES_SECOND 1000000000

static inline uint64_t times_now_nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * TIMES_SECOND + (uint64_t)now.tv_nsec;
}

static inline struct timespec times_after(unsigned milliseconds)
{
    uint64_t then = times_now_nanoseconds() + (uint64_t)milliseconds * 1000000;
    return (struct timespec){(time_t)(then / TIMES_SECOND), (long)(then % TIMES_SECOND)};
}

/* tv_sec is negative when it is past. */
static inline struct timespec times_until(const struct timespec *when)
{
    int64_t left =
        (int64_t)when->tv_sec * TIMES_SECOND + when->tv_nsec - (int64_t)times_now_nanoseconds();
    if (left < 0)
        return (struct timespec){-1, 0};
    return (struct timespec){(time_t)(left / TIMES_SECOND), (long)(left % TIMES_SECOND)};
}

static inline uint64_t times_nanoseconds(const struct timespec *length)
{
    return (uint64_t)length->tv_sec * TIMES_SECOND + (uint64_t)length->tv_nsec;
}

#endif
