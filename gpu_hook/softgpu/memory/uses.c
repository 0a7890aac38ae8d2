/* A count of uses, and a stop that waits for it to reach 0. */
#include "memory/uses.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

static struct {
    pthread_mutex_t mutex; /* held while stopped */
    atomic_int count;
    atomic_int is_stopped;
} uses = {.mutex = PTHREAD_MUTEX_INITIALIZER};

void uses_begin(void)
{
    for (;;) {
        atomic_fetch_add_explicit(&uses.count, 1, memory_order_seq_cst);
        if (!atomic_load_explicit(&uses.is_stopped, memory_order_seq_cst))
            return;
        atomic_fetch_sub_explicit(&uses.count, 1, memory_order_release);
        pthread_mutex_lock(&uses.mutex);
        pthread_mutex_unlock(&uses.mutex);
    }
}

void uses_end(void)
{
    atomic_fetch_sub_explicit(&uses.count, 1, memory_order_release);
}

void uses_stop(void)
{
    pthread_mutex_lock(&uses.mutex);
    atomic_store_explicit(&uses.is_stopped, 1, memory_order_seq_cst);
    while (atomic_load_explicit(&uses.count, memory_order_seq_cst))
        sched_yield();
}

void uses_resume(void)
{
    atomic_store_explicit(&uses.is_stopped, 0, memory_order_release);
    pthread_mutex_unlock(&uses.mutex);
}
