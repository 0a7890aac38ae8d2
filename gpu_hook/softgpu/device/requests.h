/* Launches at a compute engine: all under the machine's lock. No wall clock and no threads:
 * engine.c has those. */
#ifndef SOFTGPU_REQUESTS_H
#define SOFTGPU_REQUESTS_H

#include "device/layout.h"

#define REQUESTS_NOBODY MACHINE_SLOTS /* no slot */
#define EACH_QUEUED(engine, i) (int i = requests_from(engine, 0); i >= 0; i = requests_from(engine, i + 1))

/* Puts a launch at the engine; its index, or -1 when there is no room. */
int requests_post(struct engine *engine, const struct request *request);
/* Takes a launch that is done off the engine. */
void requests_collect(struct engine *engine, int index);
/* Marks it done at the engine's clock. */
void requests_finish(struct engine *engine, int index);
/* The first queued one from `index` on, or -1. */
int requests_from(const struct engine *engine, int index);
/* When the first of all will be ready; UINT64_MAX without any. */
uint64_t requests_first_ready(const struct engine *engine);
/* The number of launches of a slot that follow its running ones. */
uint32_t requests_expected(const struct engine *engine, uint32_t slot);
/* Whether its next launch follows one that is done while its thread has not woken yet. */
int requests_is_awaited(const struct engine *engine, uint32_t slot);
void requests_forget(struct engine *engine, uint32_t slot); /* a slot's process is gone */
/* a holder of the lock died in the midst of it */
void requests_repair(struct engine *engine);
void requests_reset(struct engine *engine);                 /* called while no process uses it */

#endif
