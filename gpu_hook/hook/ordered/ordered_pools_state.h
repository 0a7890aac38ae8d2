/* The state of our pools, which their files share. */
#ifndef ALIQUOT_ORDERED_POOLS_STATE_H
#define ALIQUOT_ORDERED_POOLS_STATE_H

#include "ordered/ordered_heap.h"
#include "ordered/ordered_pools.h"

#include <pthread.h>

#define ORDERED_PIECE 512u        /* a pool divides its memory in steps of this */

struct ordered_pools {
    /* Guards all below. No thread waits for residency, or for credit, while it holds it. */
    pthread_mutex_t mutex;
    struct ordered_heap *all; /* destroyed ones too, while they hold anything */
    uint32_t used, loose;     /* numbers of heaps; read without the mutex too */
    uint64_t last_identity;
};

extern struct ordered_pools ordered __attribute__((visibility("hidden")));

/* All below are called with the mutex. */

/* NULL: the pool is the driver's. */
struct ordered_heap *ordered_heap_of(CUmemoryPool pool);
struct ordered_heap *ordered_heap_for(const struct ordered_request *request);
void ordered_note_loose(struct ordered_heap *heap);
/* Make idle what streams have reached. Not while any stream captures. */
void ordered_settle(struct ordered_heap *heap);
/* Unlink and free a destroyed heap that holds nothing. */
void ordered_end_if_empty(struct ordered_heap *heap);

/* Called without the mutex: release chunks that were taken from a heap. */
void ordered_release(struct ordered_chunk *chunks);

/* Called without the mutex, by a thread that is held or inside: release what is idle on the
 * device. Returns whether anything was. */
bool ordered_release_idle(int device);

#endif
