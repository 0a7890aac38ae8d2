/* Plain device memory that other processes have access to: its pages lie in files without a name. A
 * large allocation has a file of its own. Small ones share a file, and with it, as on hardware, the
 * 2 MiB around them. */
#ifndef SOFTGPU_SHARES_H
#define SOFTGPU_SHARES_H

#include <stdint.h>

#include "device/backing.h"

/* The place where another process finds the memory. */
struct share_place {
    int descriptor; /* in this process */
    uint64_t identity;
    uint64_t offset; /* in the file, of the first byte to map */
    uint64_t start;  /* this process's address of that byte */
    uint64_t bytes;  /* to map */
};

/* Makes an allocation's memory shared, if it is not yet; 0, or -1 without memory or descriptors.
 * Takes the window's lock. */
int shares_make(uint64_t start, uint64_t bytes, struct share_place *place);
/* Called under the window's lock: [start, end) was freed, in a free range [free_start, free_end).
 * Gives its pages back, and keeps what importers see of it apart from the next allocation there. */
void shares_release(uint64_t start, uint64_t end, uint64_t free_start, uint64_t free_end);
/* Called in a forked child, under the window's lock: drops the parent's memory. */
void shares_forget(void);

#endif
