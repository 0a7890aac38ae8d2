/* The shared parts of the null driver's files. */
#ifndef NULL_DRIVER_H
#define NULL_DRIVER_H

#include <stddef.h>

/* Of the current context; -1: none. */
int null_device(void);
/* Takes memory of a device; 0, or -1 when it has no more. */
int null_take(int device, size_t bytes);
void null_give(int device, size_t bytes);
/* A handle of the virtual-memory API is mapped, for good. */
void null_map(unsigned long long handle);

#endif
