#include "driver/strict.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "driver/enter.h"
#include "device/log.h"

#define TEARDOWN_NANOSECONDS 20000000 /* for other threads' calls to meet */

static struct {
    atomic_int is_on;
    pthread_t exiting; /* written before WATCH_TORN_DOWN */
} strict;

/* The exiting thread is answered, a call of any other is the end. */
static CUresult answer_after_teardown(const char *function)
{
    if (pthread_equal(strict.exiting, pthread_self()))
        return CUDA_ERROR_DEINITIALIZED;
    log_failure("event=strict reason=\"a call after the driver's teardown began\" function=%s", function);
    abort();
}

static void tear_down(void)
{
    const struct timespec length = {0, TEARDOWN_NANOSECONDS};
    strict.exiting = pthread_self();
    enter_torn_down(answer_after_teardown);
    nanosleep(&length, NULL);
}

void strict_begin(void)
{
    if (!atomic_exchange(&strict.is_on, 1))
        atexit(tear_down);
}

void strict_on_dead_context(const void *context)
{
    if (context == NULL || !atomic_load_explicit(&strict.is_on, memory_order_relaxed))
        return;
    log_failure("event=strict reason=\"a context is named that has ended\" context=%p", context);
    abort();
}
