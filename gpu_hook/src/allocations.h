/* The table of this process's live device allocations; its only owner. Charges nothing: callers do. The cost of a
 * change does not grow with the number live. */
#ifndef ALIQUOT_ALLOCATIONS_H
#define ALIQUOT_ALLOCATIONS_H

#include <stdbool.h>
#include <stdint.h>

enum allocation_kind {
    ALLOCATION_NONE = 0,
    ALLOCATION_LINEAR, /* dies with its context */
    ALLOCATION_POOL,   /* stream-ordered: whether it outlives its context is the driver's affair */
    ALLOCATION_HANDLE, /* of the virtual-memory API: key is the handle */
};

struct allocation {
    uint64_t key; /* device pointer or handle; unique within linear and pool together, and within handles */
    uint64_t bytes;
    void *context; /* NULL for handles */
    int32_t device; /* CUdevice */
    enum allocation_kind kind;
    uint32_t references; /* of a handle: releases that are still due */
    uint32_t mappings;   /* of a handle */
};

/* Returns false when there is no memory for the record. A stale record of the same key, whose memory was freed
 * behind our back, is handed out in `replaced` (kind ALLOCATION_NONE: there was none). */
bool allocations_add(const struct allocation *allocation, struct allocation *replaced);

/* Removes the record of a pointer, or of a handle, and returns it. False: not ours. */
bool allocations_take(uint64_t key, bool is_handle, struct allocation *taken);

/* Offers every allocation of a context to `takes`, and removes those for which it returns true. */
void allocations_take_context(const void *context, bool (*takes)(const struct allocation *));

/* In the child of a fork: forgets everything. */
void allocations_reset(void);

#endif
