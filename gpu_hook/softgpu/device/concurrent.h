/* Concurrent launches: all launches at a compute engine run at once, as those of processes under
 * one MPS server do. They slow each other down where they want more multiprocessors than there are.
 * All functions run under the machine's lock, in simulated time. */
#ifndef SOFTGPU_CONCURRENT_H
#define SOFTGPU_CONCURRENT_H

#include "device/requests.h"

/* The same contracts as turns_advance and turns_earliest_end. */
uint32_t concurrent_advance(struct machine *machine, unsigned device, uint64_t until);
uint64_t concurrent_earliest_end(const struct machine *machine, const struct engine *engine, int index);

#endif
