/* A count of accesses in progress, and a stop that waits until it reaches 0. */
#include "memory/accesses.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

static struct {
    pthread_mutex_t mutex; /* held while stopped */
    atomic_int count;
    atomic_int is_stopped;
} accesses = {.mutex = PTHREAD_MUTEX_INITIALIZER};

void accesses_begin(void)
{
    for (;;) {
        atomic_fetch_add_explicit(&accesses.count, 1, memory_order_seq_cst);
        if (!atomic_load_explicit(&accesses.is_stopped, memory_order_seq_cst))
            return;
        atomic_fetch_sub_explicit(&accesses.count, 1, memory_order_release);
        pthread_mutex_lock(&accesses.mutex);
        pthread_mutex_unlock(&accesses.mutex);
    }
}

void accesses_end(void)
{
    atomic_fetch_sub_explicit(&accesses.count, 1, memory_order_release);
}

void accesses_stop(void)
{
    pthread_mutex_lock(&accesses.mutex);
    atomic_store_explicit(&accesses.is_stopped, 1, memory_order_seq_cst);
    while (atomic_load_explicit(&accesses.count, memory_order_seq_cst))
        sched_yield();
}

void accesses_resume(void)
{
    atomic_store_explicit(&accesses.is_stopped, 0, memory_order_release);
    pthread_mutex_unlock(&accesses.mutex);
}
