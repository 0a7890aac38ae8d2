#include "base/guest_thread.h"

#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define STACK_BYTES (256u << 10) /* the program's static TLS is taken from it */
#define STOP_PAUSE_NANOSECONDS 1000000
#define STOP_TRIES 2000

static struct {
    uint32_t is_over; /* the program exits */
    uint32_t inside;  /* threads between guest_threads_enter and guest_threads_leave */
} state;

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
    /* the program's static TLS alone is larger; its default has room for that */
    if (failure == EINVAL)
        failure = create(0, run, argument);
    pthread_sigmask(SIG_SETMASK, &previous, NULL);
    return failure;
}

/* Counted before the check: either this thread sees that the program ends, or guest_threads_stop
 * sees this thread. */
bool guest_threads_enter(void)
{
    __atomic_fetch_add(&state.inside, 1, __ATOMIC_SEQ_CST);
    if (!__atomic_load_n(&state.is_over, __ATOMIC_SEQ_CST))
        return true;
    guest_threads_leave();
    return false;
}

void guest_threads_leave(void)
{
    __atomic_fetch_sub(&state.inside, 1, __ATOMIC_RELEASE);
}

bool guest_threads_are_over(void)
{
    return __atomic_load_n(&state.is_over, __ATOMIC_ACQUIRE) != 0;
}

void guest_threads_stop(void)
{
    const struct timespec pause = {0, STOP_PAUSE_NANOSECONDS};
    __atomic_store_n(&state.is_over, 1, __ATOMIC_SEQ_CST);
    for (int tries = 0; tries < STOP_TRIES && __atomic_load_n(&state.inside, __ATOMIC_SEQ_CST);
         tries++)
        nanosleep(&pause, NULL);
    uint32_t left = __atomic_load_n(&state.inside, __ATOMIC_ACQUIRE);
    if (left)
        LOG("event=exit_beside_threads count=%u "
            "note=\"threads of the hook are in the driver still\"",
            left);
}

void guest_threads_reset(void)
{
    state.is_over = state.inside = 0;
}
