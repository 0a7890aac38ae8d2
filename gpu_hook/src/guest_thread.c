#include "guest_thread.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>

#define STACK_BYTES (256u << 10) /* static TLS of the program comes out of it */

/* 0 bytes of stack: the program's own default. */
static int create(size_t stack_bytes, void *(*run)(void *), void *argument)
{
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    if (stack_bytes)
        pthread_attr_setstacksize(&attributes, stack_bytes);
    int failure = pthread_create(&thread, &attributes, run, argument);
    pthread_attr_destroy(&attributes);
    return failure;
}

int guest_thread_start(void *(*run)(void *), void *argument)
{
    sigset_t all, previous;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &previous);
    int failure = create(STACK_BYTES, run, argument);
    if (failure == EINVAL) /* the program's static TLS alone is larger; its default has room for that */
        failure = create(0, run, argument);
    pthread_sigmask(SIG_SETMASK, &previous, NULL);
    return failure;
}
