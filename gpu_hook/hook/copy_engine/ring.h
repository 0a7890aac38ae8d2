/* The process's page-locked memory that copies go through, outside the user's quota of page-locked
 * memory. A small one is made before the first memory that can leave is allocated; a copy makes a larger one, and goes
 * through the small one where the driver has no room to lock more. Where nothing can be locked it is pageable. */
#ifndef ALIQUOT_RING_H
#define ALIQUOT_RING_H

#include "interpose/driver.h"

#include <stdbool.h>
#include <stddef.h>

struct ring {
    char *memory; /* NULL: not even pageable memory */
    size_t bytes;
    bool is_locked;
};

/* At least `least`, at most `wanted` bytes if they can be had. With contexts_hold and a current context. */
struct ring ring_take(size_t wanted, size_t least);

/* A registration ends with the context that it was made in, the memory does not. With contexts_hold. */
void ring_forget_context(CUcontext context);

/* In the child of a fork, which has none. */
void ring_reset(void);

#endif
