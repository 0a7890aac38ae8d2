/* Whose turn it is on a compute engine, in simulated time. Processes take turns of a time slice while several have launches
 * at the engine; within a slice the launches of a process run by the priority of their streams, then in turn. Knows no
 * wall clock and no threads: engine.c calls it under the machine's lock. */
#ifndef SOFTGPU_TURNS_H
#define SOFTGPU_TURNS_H

#include "machine.h"

#define TURNS_NOBODY MACHINE_SLOTS

/* Gives out the engine's time up to `until`. The slot whose next launch must be known before it can go on, or NOBODY. */
uint32_t turns_advance(struct machine *machine, unsigned device, uint64_t until);
/* Puts a launch at the engine; its index, or -1 when there is no room. */
int turns_post(struct engine *engine, const struct request *request);
/* Takes a launch that is done off the engine. */
void turns_collect(struct engine *engine, int index);
/* When a launch may be done at the earliest, as things stand. */
uint64_t turns_earliest_end(const struct machine *machine, const struct engine *engine, int index);
void turns_forget(struct engine *engine, uint32_t slot); /* a slot's process is gone */
void turns_repair(struct engine *engine);                /* a holder of the lock died in the midst of it */
void turns_reset(struct engine *engine);                 /* nobody uses it */

#endif
