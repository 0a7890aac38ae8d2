/* Copies a process's extents between their devices and the segments, through page-locked buffers.
 * Owns its threads for the length of one copy. Other modules decide when to copy, and unmap the
 * memory. */
#ifndef ALIQUOT_MOVER_H
#define ALIQUOT_MOVER_H

#include "interpose/driver.h"

#include <stddef.h>
#include <stdint.h>

struct extent; /* extents.h */

enum mover_direction { MOVER_OUT, MOVER_IN };

struct mover_timing {
    uint64_t bytes;                /* that were asked for */
    uint64_t prepare_nanoseconds;  /* ring, streams, threads */
    uint64_t copy_nanoseconds;     /* from the first copy to the last */
    uint64_t device_nanoseconds;   /* of all threads together: waiting for the device */
    uint64_t segment_nanoseconds;  /* of all threads together: copying to or from segments */
    uint32_t threads, streams;     /* of each device */
    uint32_t is_pageable;          /* nothing could be page-locked: slower */
    const char *failed_step;       /* NULL, or a word or two for the log and MOVED's text */
};

/* Make what a copy needs of the device's memory: streams, events, and a small ring with its
 * registration. Called before memory that can leave is allocated, by a thread whose call is marked.
 * Returns CUDA_ERROR_OUT_OF_MEMORY where the driver has no room for them, and then keeps nothing;
 * CUDA_SUCCESS otherwise, because the copy tries again what else failed. */
CUresult mover_prepare(int device);

/* Copy the extents. Returns 0 when every byte is there; a CUresult when the driver failed; a
 * negative errno when a segment or this machine's memory did (-ENOSPC, -EFBIG and -EDQUOT: the disk
 * of a spill file is full). Whatever it returns, no copy is under way any more, and the source is
 * unchanged. Called on a thread of the hook's own, whose current context it leaves unchanged, with
 * contexts_hold, calls stopped and the device drained; segments_keep was called. A device with
 * extents needs a live context: the copy makes none, and returns CUDA_ERROR_INVALID_CONTEXT. */
int mover_copy(const struct extent *extents, size_t count, enum mover_direction direction,
               struct mover_timing *timing);

#endif
