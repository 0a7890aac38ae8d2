#include "base/guest_thread.h"

#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define STACK_BYTES (256u << 10) /* the program's static TLS is taken from it */
#define LARGEST_PAGE ((uintptr_t)65536)
#define STOP_PAUSE_NANOSECONDS 1000000
#define STOP_TRIES 2000

/* A common symbol lies behind all other data, and is aligned at run time: so what every start
 * touches stays together in two pages. */
char guest_thread_stack[STACK_BYTES + LARGEST_PAGE]
    __attribute__((common, visibility("hidden")));

static struct {
    uint32_t is_over; /* the program exits */
    uint32_t inside;  /* threads between guest_threads_enter and guest_threads_leave */
} state;

/* In every sanitizer's runtime. Such a runtime wants a larger stack, and tells the user so. */
extern void __sanitizer_print_stack_trace(void) __attribute__((weak, visibility("default")));

/* NULL: the thread needs a stack of its own. */
static void *early_stack(void)
{
    if (__sanitizer_print_stack_trace)
        return NULL;
    return (void *)(((uintptr_t)guest_thread_stack + LARGEST_PAGE - 1) & ~(LARGEST_PAGE - 1));
}

/* 0 bytes of stack: the program's own default. `stack` NULL: a new one. */
static int create(void *stack, size_t stack_bytes, void *(*run)(void *), void *argument)
{
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    if (stack)
        pthread_attr_setstack(&attributes, stack, stack_bytes);
    else if (stack_bytes)
        pthread_attr_setstacksize(&attributes, stack_bytes);
    int failure = pthread_create(&thread, &attributes, run, argument);
    pthread_attr_destroy(&attributes);
    return failure;
}

static int start(void *stack, void *(*run)(void *), void *argument)
{
    sigset_t all, previous;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &previous);
    int failure = create(stack, STACK_BYTES, run, argument);
    /* the program's static TLS alone is larger; its default has room for that */
    if (failure == EINVAL)
        failure = create(NULL, 0, run, argument);
    pthread_sigmask(SIG_SETMASK, &previous, NULL);
    return failure;
}

int guest_thread_start(void *(*run)(void *), void *argument)
{
    return start(NULL, run, argument);
}

int guest_thread_start_early(void *(*run)(void *), void *argument)
{
    return start(early_stack(), run, argument);
}

void guest_thread_guard_stack(void)
{
    if (early_stack())
        mprotect(early_stack(), (size_t)getpagesize(), PROT_NONE);
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
