/* Which primary context stands behind a CUcontext that the program has of a green context of its own. Memory that was
 * allocated in such a context is the primary one's, and outlives the green context; a handle of one that has ended may not be
 * used. Written under the mutex of contexts.c. */
#ifndef ALIQUOT_GREEN_OWNERS_H
#define ALIQUOT_GREEN_OWNERS_H

#include "interpose/driver.h"

/* The primary context of a green one's, any other as it is. For any thread, without the mutex. */
CUcontext green_owner(CUcontext context);

/* The program has this CUcontext of its green context. */
void green_owners_remember(CUgreenCtx green, CUcontext context);

/* The green context has ended. Returns the CUcontext that the program had of it, or NULL; that stays known, for its memory. */
CUcontext green_owners_end(CUgreenCtx green);

/* A primary context has ended, and its green ones with it. NULL: nothing. */
void green_owners_forget_primary(CUcontext primary);

/* The handle is another context's from now on. */
void green_owners_forget(CUcontext context);

/* In the child of a fork, in the fork handler, and at its own cuInit. */
void green_owners_reset(void);

#endif
