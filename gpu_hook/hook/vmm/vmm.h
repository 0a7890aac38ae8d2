/* Entry points of the virtual-memory API. A handle's memory is charged once, on the device or the host where it lies, until
 * its last reference and its last mapping are gone. */
#ifndef ALIQUOT_VMM_H
#define ALIQUOT_VMM_H

#include "interpose/driver.h"

#include <stdbool.h>

/* Around a driver's call that changes what handles are used for: a handle's or an address's value may be used again as
 * soon as the driver let it go. *acts: whether the hook does. vmm_begin is false where an interrupt ended its wait: then
 * the call answers out of memory, and vmm_end is not due. */
bool vmm_begin(bool *acts) __attribute__((warn_unused_result));
CUresult vmm_end(bool acts, CUresult result);

/* The lock alone, where the hook acts already. */
void vmm_lock(void);
void vmm_unlock(void);

/* In the child of a fork. */
void vmm_reset(void);

#endif
