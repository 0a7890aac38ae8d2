/* The entrance to CUDA. A process that begins CUDA is unknown to the agent until it has registered:
 * meanwhile it holds a lock on a file of the kernel's folder, which the agent looks for before it
 * moves the kernel to another device. While the kernel moves, no further process enters. */
#ifndef ALIQUOT_ENTRANCE_H
#define ALIQUOT_ENTRANCE_H

#include <stdbool.h>

/* Called before the real cuInit: wait while the kernel moves, and take the lock. False: the user's
 * interrupt ended the wait, or the agent left in the middle of a move, and does not come back;
 * entrance_leave is not due. */
bool entrance_enter(void);

/* Called after the real cuInit. Where it failed, the process holds nothing of a device. */
void entrance_leave(bool has_begun);

/* The agent knows this process. */
void entrance_registered(void);

#endif
