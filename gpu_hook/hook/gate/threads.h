/* One record for each thread of the program that uses the device: whether the thread is inside a
 * call that touches device memory, and how many launches it made. The thread alone writes its
 * record, with plain stores; other threads read it. */
#ifndef ALIQUOT_THREADS_H
#define ALIQUOT_THREADS_H

#include "accounting/devices.h"
#include "gate/gate.h"

#include <stdbool.h>
#include <stdint.h>

struct thread_record {
    /* calls, one in another; the forwarders' assembly counts it, so it comes first */
    uint32_t inside;
    int32_t id;      /* of the thread, as the kernel knows it */
    bool is_taken;   /* a later thread goes on with the launches of an ended one */
    struct thread_record *next;
    uint64_t uncounted; /* launches where the hook is off */
    uint64_t launches[DEVICES_MAX];
};

/* This thread's record. NULL: it has none yet. */
extern __thread struct thread_record *threads_own
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* This thread's counter of launches on the current device. NULL: the device is not known. */
extern __thread uint64_t *threads_counter
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* Return this thread's record, made if need be. NULL: there is no memory for one. */
struct thread_record *threads_take(void);

uint64_t threads_launches(int device);

/* Return how many threads are inside a call now. Threads that ended inside one are found and not
 * counted. */
unsigned threads_inside(void);

/* Log once that a thread of the program takes a lock unmarked which the mover holds for the length
 * of a move: the thread would wait for a move that may wait for it. The hook's own threads have no
 * record and are not concerned. */
void threads_check_marked(const char *function);

/* Called in the child of a fork: in the fork handler, and at the child's own cuInit. */
void threads_reset(void);

/* Mark this thread before it reads the gate. A mover that stops all calls sets the gate's word, has
 * every thread of the process pass a barrier (membarrier), and then reads the marks. So the mark
 * comes first here, the read second, and no fence stands between them. */
static inline void threads_mark(struct thread_record *own)
{
    __atomic_store_n(&own->inside, own->inside + 1, __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

static inline void threads_unmark(struct thread_record *own)
{
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    __atomic_store_n(&own->inside, own->inside - 1, __ATOMIC_RELEASE);
}

/* Mark this thread if the gate is open. False: nothing is changed. */
static inline bool threads_try_mark(struct thread_record *own)
{
    if (__builtin_expect(!own, 0))
        return false;
    threads_mark(own);
    if (__builtin_expect(gate_is_open(), 1))
        return true;
    threads_unmark(own);
    return false;
}

#endif
