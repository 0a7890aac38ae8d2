/* Elastic allocations: linear memory whose address stays for its whole life, while the chunks of physical memory behind it
 * may leave the device and come back. Owns their table; cuMemAlloc makes them where the kernel's residency mode is `vmm`.
 * Charges nothing, and waits for nobody: callers do. */
#ifndef ALIQUOT_SWAPPABLE_H
#define ALIQUOT_SWAPPABLE_H

#include "swappable/swappable_chunks.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reserves, creates, maps and opens; or undoes it all and says why. While the process is resident and calls pass. */
CUresult elastic_allocate(int device, CUcontext context, size_t bytes, CUdeviceptr *address);

/* Lets go of an allocation of which nobody knows yet, with the process held where it is. */
void elastic_undo(CUdeviceptr address);

/* Frees what `allocation` recorded, as cuMemFree does: waits for the work of its context, wakes nobody. The charge is
 * refunded then, or when captures that forbid to wait are over. An error is the context's, and nothing is freed. */
CUresult elastic_free(const struct allocation *allocation);

/* The same in the stream's order, as cuMemFreeAsync does with any linear memory. */
CUresult elastic_free_async(const struct allocation *allocation, CUstream stream,
                            CUresult (*record)(CUevent, CUstream));

/* The same of one whose context has ended; it is let go by elastic_sweep, when the caller holds no lock. */
void elastic_orphan(const struct allocation *allocation);
void elastic_sweep(void);
void elastic_forget_context(CUcontext context); /* it has ended: what is freed and waits for it need not */
bool elastic_has_dying(void); /* one load */

/* A context began or ended. All is opened to a device that the program uses from now on; and what the copy of memory needs
 * that outlives its contexts is made in another one, before the device is full again. By a thread whose call is marked. */
void elastic_contexts_changed(void);

/* Whether any exists: one load, for questions about pointers. */
bool elastic_is_used(void);

struct elastic_view {
    CUdeviceptr start;
    size_t bytes;
    int device;
    CUcontext context;
    uint64_t id;
    bool syncs;
    bool is_beyond; /* past what was asked for, or freed: nothing that the program may know of */
};
/* False: the address is in no elastic allocation. */
bool elastic_find(CUdeviceptr address, struct elastic_view *view);

/* From now on it stays on its device; `reason`: a bit of enum aliquot_staying. With the process held where it is. False:
 * there is none, or it is out. */
bool elastic_hold(CUdeviceptr address, uint32_t reason);

/* Remembers SYNC_MEMOPS for each swap-in. False: no such allocation. */
bool elastic_set_syncs(CUdeviceptr address, bool syncs);

/* For pieces.c: the table, with its lock. */
struct spans *elastic_lock(void);
void elastic_unlock(void);

/* In the child of a fork. */
void elastic_reset(void);

#endif
