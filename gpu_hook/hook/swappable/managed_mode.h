/* Residency mode `managed`: linear allocations are CUDA unified memory, which the driver pages. Knows their ranges, where
 * they should be, and how they move as a whole; the driver moves the rest by itself, and so one kernel may use more than
 * the device has. To the program they look like device memory. */
#ifndef ALIQUOT_MANAGED_MODE_H
#define ALIQUOT_MANAGED_MODE_H

#include "interpose/driver.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether an allocation of this size on this device is to be unified memory. Needs the agent's page. */
bool managed_mode_wants(int device, size_t bytes);

/* What it takes from the quota. */
uint64_t managed_mode_rounded(size_t bytes);

CUresult managed_mode_allocate(int device, CUcontext context, size_t bytes, CUdeviceptr *address);

/* Forgets it before the driver lets go: the address may be another thread's by the time that the call returns. */
CUresult managed_mode_free(CUdeviceptr address);

/* The driver has freed it with this context. */
void managed_mode_forget(CUdeviceptr address, CUcontext context);

/* Whether any exists: one load, for questions about pointers. */
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

/* Prefetches all of them to the host, or back to their devices, and waits for it. Called on the mover's thread while calls
 * are stopped. Nothing is lost where it fails: the driver brings in what is touched. */
CUresult managed_mode_move(bool out);

/* In the child of a fork. */
void managed_mode_reset(void);

#endif
