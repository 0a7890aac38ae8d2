/* Time slices of a compute engine. Processes take turns while several have launches at the engine.
 * Within a slice the launches of a process run by priority, then in turn. All functions run under
 * the machine's lock, in simulated time. */
#ifndef SOFTGPU_TURNS_H
#define SOFTGPU_TURNS_H

#include "device/requests.h"

/* Gives out the engine's time up to `until`. Returns the slot whose next launch must be known
 * before the engine can go on, or REQUESTS_NOBODY. */
uint32_t turns_advance(struct machine *machine, unsigned device, uint64_t until);
/* The earliest time at which a launch may be done, by what is posted now. */
uint64_t turns_earliest_end(const struct machine *machine, const struct engine *engine, int index);

#endif
