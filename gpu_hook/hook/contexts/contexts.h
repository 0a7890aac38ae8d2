/* The contexts that are live. A thread that makes or ends one holds them meanwhile. */
#ifndef ALIQUOT_CONTEXTS_H
#define ALIQUOT_CONTEXTS_H

#include "contexts/context_list.h"

/* In the child of a fork. */
void contexts_reset(void);

/* While held, none begins or ends. */
void contexts_hold(void);
void contexts_release(void);

/* All that work can be under way in; those of a device's green contexts go with its primary one. The caller frees *list.
 * False: no memory, or there is one that is not known. While held. */
bool contexts_list(struct live_context **list, size_t *count);

/* A live one of the device, for work of the hook's own; NULL: there is none. While held. */
CUcontext contexts_find(CUdevice device);

/* Whether the device's primary context is active; and its handle, NULL where it is not. */
bool contexts_is_primary_active(CUdevice device);
CUcontext contexts_find_primary(CUdevice device);

#endif
