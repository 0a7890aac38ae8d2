/* If a thread of the program is cancelled (pthread_cancel) where the hook writes, waits or
 * sleeps, it would take the hook's locks and its place in lists with it, and hold every other
 * thread for ever. In such a function its cancellation waits until the function's end. */
#ifndef ALIQUOT_CANCELLATION_H
#define ALIQUOT_CANCELLATION_H

#include <pthread.h>

static inline int cancellation_defer(void)
{
    int previous;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &previous);
    return previous;
}

static inline void cancellation_restore(const int *previous)
{
    pthread_setcancelstate(*previous, NULL);
}

/* A declaration: holds until the end of its block. */
#define DEFER_CANCELLATION                                                           \
    int cancellation_before __attribute__((cleanup(cancellation_restore), unused)) = \
        cancellation_defer()

#endif
