/* Memory pools: what the rest of the library does with them. A pool reserves device memory in chunks, is charged for the
 * whole of them, and hands out parts. */
#ifndef SOFTGPU_POOLS_H
#define SOFTGPU_POOLS_H

#include <stdint.h>

/* 1 if frees were pending on the device and are done now: room may have come. */
int pools_wait_for_frees(unsigned physical);
/* The same, and gives the device back all that its pools hold unused; 1 if room may have come. */
int pools_make_room(unsigned physical);
/* The host has waited for a stream, an event or a context: what pools hold beyond their thresholds goes back. */
void pools_synchronised(void);
/* The primary context of the device is gone, and with it all that the device holds in this process. */
void pools_close_device(unsigned physical);
/* Frees a pool's allocation at once; 0, or -1 when `address` is not the start of one. */
int pool_free_now(uint64_t address);
/* In a forked child: lets go of the parent's memory. */
void pools_forget(void);
/* Bytes that a pool reserves at a time, at least: a multiple of 2 MiB. */
void pools_set_chunk(uint64_t bytes);

#endif
