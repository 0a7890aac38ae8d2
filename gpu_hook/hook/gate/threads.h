/* One record for each thread of the program that uses the device: whether it is inside a call that touches device
 * memory, and what it launched. Written by its thread alone, with plain stores; others read it. */
#ifndef ALIQUOT_THREADS_H
#define ALIQUOT_THREADS_H

#include "accounting/devices.h"
#include "gate/gate.h"

#include <stdbool.h>
#include <stdint.h>

struct thread_record {
    uint32_t inside; /* calls, one in another; the forwarders' assembly counts it, so it comes first */
    int32_t id;      /* of the thread, as the kernel knows it */
    bool is_taken;   /* a later thread goes on with the launches of an ended one */
    struct thread_record *next;
    uint64_t uncounted; /* launches where the hook is off */
    uint64_t launches[DEVICES_MAX];
};

/* NULL: this thread has none yet. */
extern __thread struct thread_record *threads_own __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* Of the current device; NULL: not known. */
extern __thread uint64_t *threads_counter __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* This thread's record. NULL: no memory for one. */
struct thread_record *threads_take(void);

uint64_t threads_launches(int device);

/* How many threads are inside a call now. Looks for those that ended inside without a word. */
unsigned threads_inside(void);

/* A thread of the program is about to take a lock that the mover holds for the length of a move: unmarked, it would wait
 * for a move that may wait for it. Says so once in the log; threads of the hook have no record and are not concerned. */
void threads_check_marked(const char *function);

/* In the child of a fork, in the fork handler, and at its own cuInit. */
void threads_reset(void);

/* Whoever stops all calls makes the gate's word another than 0, then has every thread of the process pass a barrier
 * (membarrier), then looks at the marks: so here the mark comes first, the look second, and no fence between them. */
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

/* True: this thread is marked, and nothing asks it to wait. False: nothing is changed. */
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
