/* Entry points that make, change and end contexts: an ended context takes its linear allocations with it. */
#ifndef ALIQUOT_CONTEXTS_H
#define ALIQUOT_CONTEXTS_H

#include "driver.h"

/* In the child of a fork. */
void contexts_reset(void);

/* While held, none begins or ends. */
void contexts_hold(void);
void contexts_release(void);

/* A live one of the device, for work of the hook's own; NULL: there is none. While held. */
CUcontext contexts_find(CUdevice device);

#endif
