/* The page-locked memory of the process that copies go through, outside the user's quota of
 * page-locked memory. A small ring is made before the first memory that can leave is allocated. A
 * copy makes a larger one, or uses the small one where the driver has no room to lock more. Where
 * nothing can be locked, the ring is pageable. */
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

/* Take at least `least`, at most `wanted` bytes if they can be had. Called with contexts_hold and a
 * current context. */
struct ring ring_take(size_t wanted, size_t least);

/* Forget the registration that was made in a context that ended; the memory stays. Called with
 * contexts_hold. */
void ring_forget_context(CUcontext context);

/* Called in the child of a fork, which has no ring. */
void ring_reset(void);

#endif
