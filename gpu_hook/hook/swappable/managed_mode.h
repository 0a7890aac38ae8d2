/* Residency mode `managed`: linear allocations are CUDA unified memory, which the driver pages.
 * This module knows their ranges, where they should be, and how to move them as a whole. The driver
 * moves single pages by itself, so one kernel may use more than the device has. The program sees
 * device memory. */
#ifndef ALIQUOT_MANAGED_MODE_H
#define ALIQUOT_MANAGED_MODE_H

#include "interpose/driver.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Return whether an allocation of this size on this device is to be unified memory. Needs the
 * agent's page. */
bool managed_mode_wants(int device, size_t bytes);

/* Return what the allocation takes from the quota. */
uint64_t managed_mode_rounded(size_t bytes);

CUresult managed_mode_allocate(int device, CUcontext context, size_t bytes, CUdeviceptr *address);

/* Forget the range before the driver frees it: another thread may get the address before the call
 * returns. */
CUresult managed_mode_free(CUdeviceptr address);

/* Forget a range that the driver freed with this context. */
void managed_mode_forget(CUdeviceptr address, CUcontext context);

/* Return whether any exists, by one load: for questions about pointers. */
bool managed_mode_is_used(void);

struct managed_view {
    CUdeviceptr start;
    size_t bytes;
    int device;
    CUcontext context;
    uint64_t id;
};
/* False: the address is in none. */
bool managed_mode_find(CUdeviceptr address, struct managed_view *view);

/* Prefetch all ranges to the host, or back to their devices, and wait for it. Called on the mover's
 * thread while calls are stopped. Where it fails nothing is lost: the driver brings in the pages
 * that are touched. */
CUresult managed_mode_move(bool out);

/* Called in the child of a fork. */
void managed_mode_reset(void);

#endif
