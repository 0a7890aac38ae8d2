/* The contexts that are live. A thread that makes or ends one holds them meanwhile. */
#ifndef ALIQUOT_CONTEXTS_H
#define ALIQUOT_CONTEXTS_H

#include "contexts/context_list.h"

/* Called in the child of a fork. */
void contexts_reset(void);

/* Hold the contexts: meanwhile none begins or ends. */
void contexts_hold(void);
void contexts_release(void);

/* List the contexts that work can be under way in; a device's green contexts are covered by its
 * primary one. The caller frees *list. False: no memory, or a context is not known. Called while
 * held. */
bool contexts_list(struct live_context **list, size_t *count);

/* Return a live context of the device, for work of the hook's own; NULL: there is none. Called
 * while held. */
CUcontext contexts_find(CUdevice device);

/* Whether the device's primary context is active; and its handle, NULL where it is not. */
bool contexts_is_primary_active(CUdevice device);
CUcontext contexts_find_primary(CUdevice device);

#endif
