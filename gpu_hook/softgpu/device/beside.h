/* Side by side: all launches at a compute engine run at once, as those of processes under one MPS server do, and stretch each
 * other where they want more multiprocessors than there are. Under the machine's lock, in simulated time. */
#ifndef SOFTGPU_BESIDE_H
#define SOFTGPU_BESIDE_H

#include "device/requests.h"

/* As turns_advance and turns_earliest_end. */
uint32_t beside_advance(struct machine *machine, unsigned device, uint64_t until);
uint64_t beside_earliest_end(const struct machine *machine, const struct engine *engine, int index);

#endif
