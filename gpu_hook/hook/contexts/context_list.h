/* The contexts that the program made by name, with their devices; primary ones are the driver's to tell. Guarded by the
 * mutex of contexts.c. */
#ifndef ALIQUOT_CONTEXT_LIST_H
#define ALIQUOT_CONTEXT_LIST_H

#include "interpose/driver.h"

#include <stdbool.h>
#include <stddef.h>

struct live_context {
    CUcontext context;
    CUdevice device;
    unsigned uses; /* beside the first one */
};

/* No memory for it: then context_list_is_whole is false for ever. */
void context_list_add(CUcontext context, CUdevice device);

/* Of one that is not there: nothing. */
void context_list_remove(CUcontext context);

/* Counts one more use of the context, and one less. True: that was the last use, and the context has ended. A context that
 * is not listed, because no call made it that the hook sees or there was no memory, is taken to live on. */
void context_list_attach(CUcontext context);
bool context_list_detach(CUcontext context);

/* Copies at most `room` of them. Returns the number. */
size_t context_list_read(struct live_context *list, size_t room);

size_t context_list_count(void);
bool context_list_is_whole(void);

/* In the child of a fork. */
void context_list_reset(void);

#endif
