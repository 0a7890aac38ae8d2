/* The contexts that the program made by name, with their devices; primary ones are the driver's to tell. Guarded by the
 * mutex of contexts.c. */
#ifndef ALIQUOT_CONTEXT_LIST_H
#define ALIQUOT_CONTEXT_LIST_H

#include "driver.h"

#include <stdbool.h>
#include <stddef.h>

struct live_context {
    CUcontext context;
    CUdevice device;
};

/* No memory for it: then context_list_is_whole is false for ever. */
void context_list_add(CUcontext context, CUdevice device);

/* Of one that is not there: nothing. */
void context_list_remove(CUcontext context);

/* Copies at most `room` of those that the driver still knows; the others are forgotten. Returns the number. */
size_t context_list_read(struct live_context *list, size_t room);

size_t context_list_count(void);
bool context_list_is_whole(void);

/* In the child of a fork. */
void context_list_reset(void);

#endif
