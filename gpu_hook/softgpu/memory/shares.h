/* Plain device memory that other processes have been given: its pages lie in files without a name. A large allocation
 * has a file of its own; small ones share a file, and with it, as on hardware, the 2 MiB around them. */
#ifndef SOFTGPU_SHARES_H
#define SOFTGPU_SHARES_H

#include <stdint.h>

#include "device/backing.h"

/* Where another process finds the memory. */
struct share_place {
    int descriptor; /* in this process */
    uint64_t identity;
    uint64_t offset; /* in the file, of the first byte to map */
    uint64_t start;  /* this process's address of that byte */
    uint64_t bytes;  /* to map */
};

/* Makes the allocation's memory shared, if it is not; 0, or -1 without memory or descriptors. Takes the window's lock. */
int shares_make(uint64_t start, uint64_t bytes, struct share_place *place);
/* Under the window's lock: [start, end) is free, in a free range [free_start, free_end). Gives its pages back, and keeps
 * what importers see of it apart from what will be allocated there next. */
void shares_release(uint64_t start, uint64_t end, uint64_t free_start, uint64_t free_end);
/* In a forked child, under the window's lock: lets go of the parent's memory. */
void shares_forget(void);

#endif
