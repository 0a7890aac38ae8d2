/* Stream-ordered memory that can leave: in residency mode `vmm` the hook serves a device's pools
 * from swappable memory of its own, by the rules of the driver's pools. A pool keeps the driver's
 * handle, under which the driver's own pool stays, mostly empty. Pools whose memory other processes
 * may open, and allocations that a capture forbids, are left to the driver. */
#ifndef ALIQUOT_ORDERED_POOLS_H
#define ALIQUOT_ORDERED_POOLS_H

#include "accounting/allocations.h"
#include "interpose/driver.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Return whether any of our pools was used, by one load. */
bool ordered_is_used(void);

struct ordered_request {
    CUdeviceptr *pointer;
    size_t bytes;
    CUmemoryPool pool; /* NULL: the one that the stream's device allocates from */
    CUstream stream;
    bool is_per_thread; /* NULL means the thread's own default stream */
};

/* Allocate, between guard_enter and guard_leave. False: the driver's pool is to serve. */
bool ordered_allocate(const struct ordered_request *request, CUresult *result);

/* Free what `allocation` recorded, in the stream's order; or now, as cuMemFree does. */
void ordered_free_async(const struct allocation *allocation, CUstream stream, bool is_per_thread);
CUresult ordered_free_now(const struct allocation *allocation);

/* The context of the memory's pool is gone, and the memory with it. */
void ordered_forget(const struct allocation *allocation);

/* A context ended, and with it the work of its streams; `device`: the one whose primary context it
 * was, so that nothing of its pools is left, or -1. Called while the process is held. */
void ordered_context_ended(CUcontext context, int device);

/* The stream is about to capture, or it ends: nothing can be recorded in it later. */
void ordered_stream_closes(CUstream stream, bool ends);

/* After a synchronization: release what pools hold beyond their thresholds. `are_loose`: one load. */
bool ordered_are_loose(void);
void ordered_synchronized(void);

/* Release all that no stream may use, on the mover's thread, while nothing is in use. */
void ordered_trim(int device);

/* Entry points of pools, after the driver's own answer. */
void ordered_created(CUmemoryPool pool, const CUmemPoolProps *properties);
void ordered_destroyed(CUmemoryPool pool);
void ordered_trimmed(CUmemoryPool pool, uint64_t keep);
void ordered_attribute_set(CUmemoryPool pool, CUmemPool_attribute attribute, const void *value);
void ordered_add_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value);

struct ordered_view {
    CUdeviceptr start;
    size_t bytes;
    int device;
    CUmemoryPool pool;
    uint64_t id;
    bool is_beyond; /* in a chunk of ours, and nothing that the program may know of */
};
/* False: the address is in no chunk of ours. */
bool ordered_find(CUdeviceptr address, struct ordered_view *view);

/* Called in the child of a fork. */
void ordered_reset(void);

#endif
