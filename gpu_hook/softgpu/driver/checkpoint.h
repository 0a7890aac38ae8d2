/* Checkpoints of processes, as drivers have them since 12.8. Another process locks one, takes its
 * memory off the devices, and brings it back. As with a real driver, the saved bytes stay in the
 * memory of the process itself, and the devices forget them. Contents, addresses and handles do not
 * change. */
#ifndef SOFTGPU_CHECKPOINT_H
#define SOFTGPU_CHECKPOINT_H

#include <stdint.h>

#include "device/machine.h"

/* Called by cuInit: other processes can lock this one from now on. */
void checkpoint_attend(void);
/* Counts a work item that was queued (+1) or is done (-1). */
void checkpoint_count_work(int change);
/* Makes every later checkpoint of this process fail. */
void checkpoint_forbid(enum slot_unsaveable why);

#endif
