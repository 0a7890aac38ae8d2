/* Checkpoints of processes, as drivers have them since 12.8: another process locks one, takes its memory off the devices,
 * and brings it back. What is saved stays where it is, in the process's own memory, as with a real driver; the devices
 * forget it. Contents, addresses and handles are untouched by all of this. */
#ifndef SOFTGPU_CHECKPOINT_H
#define SOFTGPU_CHECKPOINT_H

#include <stdint.h>

#include "device/machine.h"

/* At cuInit: from now on this process can be locked. */
void checkpoint_attend(void);
/* A work was queued (+1), or is done (-1). */
void checkpoint_count_work(int change);
/* From now on no checkpoint of this process succeeds. */
void checkpoint_forbid(enum slot_unsaveable why);

#endif
