/* The table of what this process has allocated and what is charged for it; its only owner. Charges nothing: callers do.
 * The cost of a change does not grow with the number live. */
#ifndef ALIQUOT_ALLOCATIONS_H
#define ALIQUOT_ALLOCATIONS_H

#include <stdbool.h>
#include <stdint.h>

enum allocation_kind {
    ALLOCATION_NONE = 0,
    ALLOCATION_LINEAR, /* dies with its context; managed memory too */
    ALLOCATION_ELASTIC, /* the same, and elastic.c's to free */
    ALLOCATION_PAGED,   /* linear, of residency mode `managed` */
    ALLOCATION_POOL,   /* stream-ordered: charged by its pool; whether it outlives a context is the driver's affair */
    ALLOCATION_ARRAY,  /* an array or a mipmapped one; dies with its context */
    ALLOCATION_HOST,   /* page-locked: allocated or registered; whether it outlives its context the driver knows */
    ALLOCATION_HANDLE, /* of the virtual-memory API */
};

/* Whose keys are unique among themselves. */
enum allocation_space { SPACE_POINTER, SPACE_ARRAY, SPACE_HOST, SPACE_HANDLE };

struct allocation {
    uint64_t key; /* device or host pointer, array, or handle */
    uint64_t bytes;
    void *context;  /* NULL for handles */
    int32_t device; /* CUdevice, or QUOTA_HOST */
    enum allocation_kind kind;
    uint32_t staying; /* one bit of enum aliquot_staying, or STAYING_NOT */
    void *pool;       /* of ALLOCATION_POOL */
};

/* Returns false when there is no memory for the record. A stale record of the same key, whose memory was freed
 * behind our back, is handed out in `replaced` (kind ALLOCATION_NONE: there was none). */
bool allocations_add(const struct allocation *allocation, struct allocation *replaced);

/* Removes a record and returns it. False: not ours. */
bool allocations_take(uint64_t key, enum allocation_space space, struct allocation *taken);

/* Offers every allocation to `takes`, and removes those for which it returns true. */
void allocations_take_all(bool (*takes)(const struct allocation *, const void *argument), const void *argument);

/* In the child of a fork: forgets everything. */
void allocations_reset(void);

#endif
