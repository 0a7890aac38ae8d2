/* Simulated time. The compute engine of a device is one queue of slices in the shared file, for which all processes
 * contend; a copy engine per direction takes bytes / link speed. Times are CLOCK_MONOTONIC nanoseconds. */
#ifndef SOFTGPU_ENGINE_H
#define SOFTGPU_ENGINE_H

#include "machine.h"

enum copy_direction { COPY_TO_DEVICE = 0, COPY_TO_HOST = 1 };

/* Runs for `nanoseconds` of device time, from `ready` at the earliest; returns when it ended. */
uint64_t engine_run(struct seat *seat, unsigned device, uint64_t ready, uint64_t nanoseconds);
uint64_t engine_copy(struct seat *seat, unsigned device, enum copy_direction direction, uint64_t ready, uint64_t bytes);
/* Busy nanoseconds of a device or of a slot's device in [since, until]; the bins reach back 6.4 s. */
uint64_t engine_busy(const struct bin bins[MACHINE_BINS], uint64_t since, uint64_t until);

#endif
