/* The ledger of memory pools. A pool keeps memory beyond its frees, so the hook charges for it what
 * the driver has reserved, not the sum of its allocations. It never charges for a pool of another
 * process. */
#ifndef ALIQUOT_POOLS_H
#define ALIQUOT_POOLS_H

#include "interpose/driver.h"

#include <stdbool.h>
#include <stdint.h>

struct pool;

/* One allocation that is under way. */
struct pool_use {
    struct pool *pool; /* NULL: nothing is charged for it */
    int device;
    uint64_t bytes;   /* that the pool's books gain */
    uint64_t growing; /* charged because the pool will have to grow */
};

/* Reserve the charge before the driver's call. `handle` NULL: the pool that the stream's device
 * allocates from. False: over quota. */
bool pools_reserve(struct pool_use *use, CUmemoryPool handle, CUstream stream, uint64_t bytes);

/* Commit after the call succeeded: charge the pool's real growth. False: over quota; the caller
 * frees, then calls pools_release. */
bool pools_commit(struct pool_use *use);

/* Release the charge of an allocation that was freed, or was never made. */
void pools_release(struct pool *pool, uint64_t bytes, uint64_t growing);

/* Refund what pools with more than their allocations have released. Called after a call that may
 * have found the device full. */
void pools_refresh(void);

/* Refund after a synchronization, at which a pool releases what it holds beyond its threshold. The
 * driver is not asked about a pool that keeps all. */
void pools_synchronized(void);
bool pools_are_loose(void); /* whether any pool has a threshold; one load */

CUresult pools_set_attribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value);

/* Refund for every pool, after a driver call that is not seen in detail. */
void pools_refresh_all(void);

/* Charge the quota. Where that is short, the device's pools first release what they hold unused, as
 * they do for a driver out of memory. False: over quota. */
bool pools_charge(int device, uint64_t bytes);

/* Called for each pool of our own. The helper releases what such pools hold unused on a device, and
 * returns whether it found any. */
void pools_set_helper(bool (*helper)(int device));

/* Wait until freed memory that the quota does not hold is gone from the device. */
void pools_await_release(int device);

/* Make the device's pools release what they hold unused. */
void pools_trim(int device);

/* Make and end pools. */
CUresult pools_create(CUmemoryPool *pool, const CUmemPoolProps *properties);
CUresult pools_import(CUmemoryPool *pool, void *handle, CUmemAllocationHandleType type,
                      unsigned long long flags);
CUresult pools_destroy(CUmemoryPool handle);

/* Called in the child of a fork. */
void pools_reset(void);

#endif
