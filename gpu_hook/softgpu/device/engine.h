/* Simulated time. The compute engine of a device is in the shared file, and all processes contend
 * for it; a copy engine per direction takes bytes / link speed. Times are CLOCK_MONOTONIC
 * nanoseconds. */
#ifndef SOFTGPU_ENGINE_H
#define SOFTGPU_ENGINE_H

#include "device/machine.h"

enum copy_direction { COPY_TO_DEVICE = 0, COPY_TO_HOST = 1 };

/* The demand of a launch on the engine. */
struct demand {
    uint64_t ready, nanoseconds;
    int32_t priority; /* a stream's: less goes first */
    int *is_expected; /* the flag of its announcement, which is cleared */
};

/* Runs a launch. Returns when it ended in simulated time, which is about now. */
uint64_t engine_run(struct attachment *attachment, unsigned device, const struct demand *demand);
/* Announces a launch that follows a running one: the process keeps the engine between them. */
void engine_expect(struct attachment *attachment, unsigned device);
/* Withdraws the announcement. */
void engine_unexpect(struct attachment *attachment, unsigned device);
/* Gives the engine's time out up to now, if the lock is free: called before busy times are read. */
void engine_settle(struct attachment *attachment, unsigned device);
uint64_t engine_copy(struct attachment *attachment, unsigned device, enum copy_direction direction, uint64_t ready, uint64_t bytes);

#endif
