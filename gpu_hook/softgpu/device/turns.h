/* Time slices: whose turn it is on a compute engine. Processes take turns while several have launches at the engine; within
 * a slice the launches of a process run by priority, then in turn. Under the machine's lock, in simulated time. */
#ifndef SOFTGPU_TURNS_H
#define SOFTGPU_TURNS_H

#include "device/requests.h"

/* Gives out the engine's time up to `until`. The slot whose next launch must be known before it can go on, or NOBODY. */
uint32_t turns_advance(struct machine *machine, unsigned device, uint64_t until);
/* When a launch may be done at the earliest, as things stand. */
uint64_t turns_earliest_end(const struct machine *machine, const struct engine *engine, int index);

#endif
