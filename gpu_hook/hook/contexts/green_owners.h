/* The primary context of each CUcontext that the program has of a green context of its own. Memory
 * that is allocated in such a context belongs to the primary one and outlives the green context.
 * The handle of an ended green context may not be used. Written under the mutex of contexts.c. */
#ifndef ALIQUOT_GREEN_OWNERS_H
#define ALIQUOT_GREEN_OWNERS_H

#include "interpose/driver.h"

/* Return the primary context of a green one's CUcontext, and any other unchanged. Called by any
 * thread, without the mutex. */
CUcontext green_owner(CUcontext context);

/* Note the CUcontext that the program has of its green context. */
void green_owners_remember(CUgreenCtx green, CUcontext context);

/* Note that the green context has ended. Returns the CUcontext that the program had of it, or NULL;
 * that stays known, for its memory. */
CUcontext green_owners_end(CUgreenCtx green);

/* Forget the green contexts of a primary one that has ended. NULL: nothing. */
void green_owners_forget_primary(CUcontext primary);

/* Forget a handle, which is another context's from now on. */
void green_owners_forget(CUcontext context);

/* Called in the child of a fork: in the fork handler, and at the child's own cuInit. */
void green_owners_reset(void);

#endif
