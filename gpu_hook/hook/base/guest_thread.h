/* Threads of the hook's own in the user's process: detached, and deaf to signals, which are meant for the program's. At the
 * program's exit they leave the driver alone, which is torn down then. */
#ifndef ALIQUOT_GUEST_THREAD_H
#define ALIQUOT_GUEST_THREAD_H

#include <stdbool.h>

/* Returns 0 or an errno. The thread names itself. */
int guest_thread_start(void *(*run)(void *), void *argument);

/* Around what a thread of the hook does with the driver. False: the program exits, and the thread calls it no more. */
bool guest_threads_enter(void);
void guest_threads_leave(void);

/* One load: between the two, a thread that is long at it looks now and then, and comes to an end. */
bool guest_threads_are_over(void);

/* At the program's exit, before the driver's own end. Waits until no thread is between the two; for one that is stuck in
 * the driver, two seconds. */
void guest_threads_stop(void);

/* In the child of a fork, in the fork handler: the threads are the parent's. */
void guest_threads_reset(void);

#endif
