/* Entry points of the virtual-memory API. A handle's memory is charged once, on the device or the
 * host where it lies, until its last reference and its last mapping are gone. */
#ifndef ALIQUOT_VMM_H
#define ALIQUOT_VMM_H

#include "vmm/handles.h"

#include <stdbool.h>

/* Called around a driver's call that changes what handles are used for, because a handle's or an
 * address's value may be used again as soon as the driver has freed it. *acts: whether the hook
 * acts. vmm_begin is false where an interrupt ended its wait: then the call answers out of memory,
 * and vmm_end is not due. */
bool vmm_begin(bool *acts) __attribute__((warn_unused_result));
CUresult vmm_end(bool acts, CUresult result);

/* Begin a call that needs no memory on the device, as vmm_begin does, but wake no kernel. */
bool vmm_hold(bool *is_resident);

/* Return the driver's handle of a name. Called with the lock, while the process is resident.
 * *handle NULL: not of this process. */
CUmemGenericAllocationHandle vmm_real(CUmemGenericAllocationHandle name, struct handle **handle);

/* Pin everything in the range from now on. Called with the lock; `reason`: a bit of enum
 * aliquot_pin_reason. */
void vmm_hold_range(CUdeviceptr start, size_t bytes, uint32_t reason);

/* Take the lock alone, where the hook acts already. */
void vmm_lock(void);
void vmm_unlock(void);

/* Called in the child of a fork. */
void vmm_reset(void);

#endif
