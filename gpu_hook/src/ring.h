/* The process's page-locked memory that copies go through: made at the first copy, kept for the next ones, outside the
 * user's quota of page-locked memory. Where little can be locked it is smaller, where nothing can it is pageable. */
#ifndef ALIQUOT_RING_H
#define ALIQUOT_RING_H

#include <stdbool.h>
#include <stddef.h>

struct ring {
    char *memory; /* NULL: not even pageable memory */
    size_t bytes;
    bool is_locked;
};

/* At least `least`, at most `wanted` bytes if they can be had. With contexts_hold and a current context. */
struct ring ring_take(size_t wanted, size_t least);

/* In the child of a fork, which has none. */
void ring_reset(void);

#endif
