/* The ledger of memory pools. A pool keeps memory beyond its frees, so what is charged for it is what the driver says
 * that it has reserved, not the sum of its allocations. Never charges for a pool of another process. */
#ifndef ALIQUOT_POOLS_H
#define ALIQUOT_POOLS_H

#include "interpose/driver.h"

#include <stdbool.h>
#include <stdint.h>

struct pool;

/* One allocation on its way. */
struct pool_use {
    struct pool *pool; /* NULL: nothing is charged for it */
    int device;
    uint64_t bytes;   /* that the pool's books gain */
    uint64_t growing; /* charged because the pool will have to grow */
};

/* Before the driver's call. `handle` NULL: the pool that the stream's device allocates from. False: over quota. */
bool pools_take(struct pool_use *use, CUmemoryPool handle, CUstream stream, uint64_t bytes);

/* After it succeeded: charges what the pool has really grown by. False: over quota; the caller frees, then pools_drop. */
bool pools_keep(struct pool_use *use);

/* An allocation was freed, or never came to be. */
void pools_drop(struct pool *pool, uint64_t bytes, uint64_t growing);

/* Gives back what pools have released that hold more than their allocations, after a call that may have found the device
 * full. */
void pools_refresh(void);

/* The same after a synchronization, at which a pool releases what it holds beyond its threshold, and no other pool does:
 * nothing is asked about one that keeps all. */
void pools_synchronized(void);
bool pools_are_loose(void); /* one load: whether there is such a pool */

CUresult pools_set_attribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value);

/* The same for every pool, when the driver did something that is not seen in detail. */
void pools_refresh_all(void);

/* Charges the quota; where that is short, the device's pools first release what they hold unused, as they do for a driver
 * out of memory. False: over quota. */
bool pools_charge(int device, uint64_t bytes);

/* After something was freed that the quota does not hold: waits until it is gone from the device. */
void pools_release(int device);

/* Makes the device's pools release what they hold unused. */
void pools_trim(int device);

/* Calls that make and end pools. */
CUresult pools_create(CUmemoryPool *pool, const CUmemPoolProps *properties);
CUresult pools_import(CUmemoryPool *pool, void *handle, CUmemAllocationHandleType type, unsigned long long flags);
CUresult pools_destroy(CUmemoryPool handle);

/* In the child of a fork. */
void pools_reset(void);

#endif
