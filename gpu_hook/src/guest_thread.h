/* Threads of the hook's own in the user's process: detached, and deaf to signals, which are meant for the program's. */
#ifndef ALIQUOT_GUEST_THREAD_H
#define ALIQUOT_GUEST_THREAD_H

/* Returns 0 or an errno. The thread names itself. */
int guest_thread_start(void *(*run)(void *), void *argument);

#endif
