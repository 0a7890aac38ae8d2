/* Memory pools, for the rest of the library. A pool reserves device memory in chunks, is charged
 * for all of them, and hands out parts. */
#ifndef SOFTGPU_POOLS_H
#define SOFTGPU_POOLS_H

#include <stdint.h>

/* Waits for the frees that are pending on the device; 1 if there were any, so room may have
 * come. */
int pools_wait_for_frees(unsigned physical);
/* The same, and gives the device back all that its pools hold unused. */
int pools_make_room(unsigned physical);
/* Called after the host has waited for a stream, an event or a context: gives back what pools hold
 * beyond their thresholds. */
void pools_synchronised(void);
/* Called at the end of a device's primary context, with which all goes that the device holds in
 * this process. */
void pools_close_device(unsigned physical);
/* Frees a pool's allocation at once; 0, or -1 when none starts at `address`. */
int pool_free_now(uint64_t address);
/* Called in a forked child: drops the parent's memory. */
void pools_forget(void);
/* Bytes that a pool reserves at a time, at least: a multiple of 2 MiB. */
void pools_set_chunk(uint64_t bytes);

#endif
