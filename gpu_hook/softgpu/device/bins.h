/* Busy time in bins of 100 ms: what NVML's utilisation is computed from. */
#ifndef SOFTGPU_BINS_H
#define SOFTGPU_BINS_H

#include "device/machine.h"

/* Called under the machine's lock; reading needs none. */
void bins_add(struct bin bins[MACHINE_BINS], uint64_t start, uint64_t end);
/* Busy nanoseconds of a device or of a slot's device in [since, until]; the bins reach back 6.4
 * s. */
uint64_t bins_busy(const struct bin bins[MACHINE_BINS], uint64_t since, uint64_t until);

#endif
