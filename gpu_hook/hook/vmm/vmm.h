/* Entry points of the virtual-memory API. A handle's memory is charged once, on the device or the host where it lies, until
 * its last reference and its last mapping are gone. */
#ifndef ALIQUOT_VMM_H
#define ALIQUOT_VMM_H

#include "vmm/handles.h"

#include <stdbool.h>

/* Around a driver's call that changes what handles are used for: a handle's or an address's value may be used again as
 * soon as the driver let it go. *acts: whether the hook does. vmm_begin is false where an interrupt ended its wait: then
 * the call answers out of memory, and vmm_end is not due. */
bool vmm_begin(bool *acts) __attribute__((warn_unused_result));
CUresult vmm_end(bool acts, CUresult result);

/* As vmm_begin, for what needs no memory on the device: wakes nobody. */
bool vmm_hold(bool *is_resident);

/* What the driver calls it: with the lock, while the process is resident. *handle NULL: not of this process. */
CUmemGenericAllocationHandle vmm_real(CUmemGenericAllocationHandle name, struct handle **handle);

/* With the lock: everything in the range stays from now on; `reason`: a bit of enum aliquot_staying. */
void vmm_hold_range(CUdeviceptr start, size_t bytes, uint32_t reason);

/* The lock alone, where the hook acts already. */
void vmm_lock(void);
void vmm_unlock(void);

/* In the child of a fork. */
void vmm_reset(void);

#endif
