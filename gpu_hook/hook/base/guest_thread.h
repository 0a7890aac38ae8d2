/* The hook's own threads in the user's process. They are detached, and block signals, which are
 * meant for the program's threads. At the program's exit they leave the driver alone, which is torn
 * down then. */
#ifndef ALIQUOT_GUEST_THREAD_H
#define ALIQUOT_GUEST_THREAD_H

#include <stdbool.h>

/* Start a thread, which names itself. Returns 0 or an errno. */
int guest_thread_start(void *(*run)(void *), void *argument);

/* Start the one thread that a program's start pays for, on a stack of the library's own data, which
 * no system call has to map. */
int guest_thread_start_early(void *(*run)(void *), void *argument);

/* Called by that thread, soon: make the end of its stack a page that cannot be touched, as other
 * threads have it. */
void guest_thread_guard_stack(void);

/* Called around driver calls of a hook thread. False: the program exits, and the thread makes no
 * more driver calls. */
bool guest_threads_enter(void);
void guest_threads_leave(void);

/* Return whether the program exits, by one load. A thread that takes long between the two checks
 * it now and then, and stops. */
bool guest_threads_are_over(void);

/* Called at the program's exit, before the driver's own end. Waits until no thread is between the
 * two; two seconds for one that is stuck in the driver. */
void guest_threads_stop(void);

/* Called in the child of a fork, in the fork handler: the threads are the parent's. */
void guest_threads_reset(void);

#endif
