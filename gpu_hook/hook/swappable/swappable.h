/* Swappable allocations: linear memory whose address stays for its whole life, while the chunks of
 * physical memory behind it may leave the device and come back. This module owns their table.
 * cuMemAlloc makes them where the kernel's residency mode is `vmm`. Callers charge, and callers
 * wait. */
#ifndef ALIQUOT_SWAPPABLE_H
#define ALIQUOT_SWAPPABLE_H

#include "swappable/swappable_chunks.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reserve addresses, create chunks, map them and open them to devices; or undo it all and return
 * the driver's error. Called while the process is resident and calls pass. */
CUresult swappable_allocate(int device, CUcontext context, size_t bytes, CUdeviceptr *address);

/* Free an allocation that the program has not been given yet. Called while the process is held
 * where it is. */
void swappable_undo(CUdeviceptr address);

/* Free what `allocation` recorded, as cuMemFree does: wait for the work of its context, and wake no
 * kernel. The charge is refunded then, or when captures that forbid to wait are over. An error is
 * the context's; then nothing is freed. */
CUresult swappable_free(const struct allocation *allocation);

/* Free in the stream's order, as cuMemFreeAsync does with any linear memory. */
CUresult swappable_free_async(const struct allocation *allocation, CUstream stream,
                            CUresult (*record)(CUevent, CUstream));

/* Free an allocation whose context has ended. swappable_sweep completes the free when the caller
 * holds no lock. */
void swappable_free_contextless(const struct allocation *allocation);
void swappable_sweep(void);
/* A context has ended: pending frees need not wait for its work. */
void swappable_forget_context(CUcontext context);
bool swappable_has_pending_frees(void); /* one load */

/* Called after a context began or ended, by a thread whose call is marked. Opens all allocations to
 * each device that the program uses from now on. Prepares copies anew in another context before the
 * device is full again, where the context that they were prepared in has ended. */
void swappable_contexts_changed(void);

/* Return whether any exists, by one load: for questions about pointers. */
bool swappable_is_used(void);

struct swappable_view {
    CUdeviceptr start;
    size_t bytes;
    int device;
    CUcontext context;
    uint64_t id;
    bool syncs;
    bool is_beyond; /* past what was asked for, or freed: nothing that the program may know of */
};
/* False: the address is in no swappable allocation. */
bool swappable_find(CUdeviceptr address, struct swappable_view *view);

/* Pin the allocation to its device; `reason`: a bit of enum aliquot_pin_reason. Called while the
 * process is held where it is. False: there is none, or it is swapped out. */
bool swappable_hold(CUdeviceptr address, uint32_t reason);

/* Remember SYNC_MEMOPS, which each swap-in restores. False: no such allocation. */
bool swappable_set_syncs(CUdeviceptr address, bool syncs);

/* For extents.c: lock the table and return it. */
struct spans *swappable_lock(void);
void swappable_unlock(void);

/* Called in the child of a fork. */
void swappable_reset(void);

#endif
