/* Simulated time. The compute engine of a device is in the shared file, and all processes contend for it; a copy engine per
 * direction takes bytes / link speed. Times are CLOCK_MONOTONIC nanoseconds. */
#ifndef SOFTGPU_ENGINE_H
#define SOFTGPU_ENGINE_H

#include "device/machine.h"

enum copy_direction { COPY_TO_DEVICE = 0, COPY_TO_HOST = 1 };

/* What a launch asks of the engine. */
struct demand {
    uint64_t ready, nanoseconds;
    int32_t priority; /* a stream's: less goes first */
    uint32_t sms;     /* that it can fill */
    int *is_expected; /* where it was said that it comes; cleared */
};

/* Runs it; returns when it ended, in simulated time: about now. */
uint64_t engine_run(struct seat *seat, unsigned device, const struct demand *demand);
/* A launch follows right behind one that runs: the process does not give up the engine between them. */
void engine_expect(struct seat *seat, unsigned device);
/* It will not come after all. */
void engine_unexpect(struct seat *seat, unsigned device);
/* Gives the engine's time out up to now, if the lock is free: for who reads busy times. */
void engine_settle(struct seat *seat, unsigned device);
uint64_t engine_copy(struct seat *seat, unsigned device, enum copy_direction direction, uint64_t ready, uint64_t bytes);

#endif
