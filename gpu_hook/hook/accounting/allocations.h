/* The table of what this process has allocated and what is charged for it. It charges nothing;
 * callers do. The cost of a change does not grow with the number of live allocations. */
#ifndef ALIQUOT_ALLOCATIONS_H
#define ALIQUOT_ALLOCATIONS_H

#include <stdbool.h>
#include <stdint.h>

enum allocation_kind {
    ALLOCATION_NONE = 0,
    ALLOCATION_LINEAR, /* ends with its context; managed memory too */
    ALLOCATION_SWAPPABLE, /* linear, freed by swappable.c */
    ALLOCATION_PAGED,   /* linear, of residency mode `managed` */
    /* stream-ordered: charged by its pool; the driver decides whether it outlives a context */
    ALLOCATION_POOL,
    ALLOCATION_ORDERED, /* the same, from a pool of ours, which is charged as a whole */
    ALLOCATION_ARRAY,  /* an array or a mipmapped one; ends with its context */
    /* page-locked: allocated or registered; the driver decides whether it outlives its context */
    ALLOCATION_HOST,
    ALLOCATION_HANDLE, /* of the virtual-memory API */
};

/* Keys are unique within a space. */
enum allocation_space { SPACE_POINTER, SPACE_ARRAY, SPACE_HOST, SPACE_HANDLE };

struct allocation {
    uint64_t key; /* device or host pointer, array, or handle */
    uint64_t bytes;
    void *context;  /* NULL for handles */
    int32_t device; /* CUdevice, or QUOTA_HOST */
    enum allocation_kind kind;
    uint32_t pin_reasons; /* one bit of enum aliquot_pin_reason, or PIN_NONE */
    uint32_t sweep; /* allocations.c's: the last one that offered this record; a caller's is 0 */
    void *pool;       /* of ALLOCATION_POOL; the block of ALLOCATION_ORDERED */
};

/* Add a record. False: there is no memory for it. A stale record of the same key, whose memory
 * was freed without the hook, is returned in `replaced` (kind ALLOCATION_NONE: there was none). */
bool allocations_add(const struct allocation *allocation, struct allocation *replaced);

/* Remove a record and return it. False: there is none. */
bool allocations_take(uint64_t key, enum allocation_space space, struct allocation *taken);

/* Offer every allocation to `is_gone`, and remove those for which it returns true and which no
 * other thread has removed meanwhile: these come to `taken`. Both are called with no lock held,
 * because a driver's answer may take long. One thread at a time. */
void allocations_sweep(bool (*is_gone)(const struct allocation *, const void *argument),
                       void (*taken)(const struct allocation *), const void *argument);

/* Called in the child of a fork: forget everything. */
void allocations_reset(void);

#endif
