/* Shared by the two files of entry points of the virtual-memory API. */
#ifndef ALIQUOT_VMM_ACCESS_H
#define ALIQUOT_VMM_ACCESS_H

#include "vmm/handles.h"

/* As vmm_begin, for what needs no memory on the device: wakes nobody. */
bool vmm_hold(bool *is_resident);

/* What the driver calls it: with the lock, while the process is resident. *handle NULL: not of this process. */
CUmemGenericAllocationHandle vmm_real(CUmemGenericAllocationHandle name, struct handle **handle);

/* With the lock: everything in the range stays from now on; `reason`: a bit of enum aliquot_staying. */
void vmm_hold_range(CUdeviceptr start, size_t bytes, uint32_t reason);

#endif
