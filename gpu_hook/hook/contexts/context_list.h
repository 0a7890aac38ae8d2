/* The contexts that the program made by cuCtxCreate, with their devices. The driver knows the
 * primary ones. Guarded by the mutex of contexts.c. */
#ifndef ALIQUOT_CONTEXT_LIST_H
#define ALIQUOT_CONTEXT_LIST_H

#include "interpose/driver.h"

#include <stdbool.h>
#include <stddef.h>

struct live_context {
    CUcontext context;
    CUdevice device;
    unsigned uses; /* in addition to the first one */
};

/* Add a context. Without memory for it, context_list_is_whole is false from then on. */
void context_list_add(CUcontext context, CUdevice device);

/* Remove a context, if it is listed. */
void context_list_remove(CUcontext context);

/* Count one more use of the context, and one less. True: that was the last use, and the context has
 * ended. A context that is not listed, because no call that the hook sees made it or there was no
 * memory, is taken to live on. */
void context_list_attach(CUcontext context);
bool context_list_detach(CUcontext context);

/* Copy at most `room` of them. Returns the number. */
size_t context_list_read(struct live_context *list, size_t room);

size_t context_list_count(void);
bool context_list_is_whole(void);

/* Called in the child of a fork. */
void context_list_reset(void);

#endif
