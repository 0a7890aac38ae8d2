/* Copies a process's pieces between their devices and the segments, through the page-locked ring. Owns its
 * threads for the length of one copy; decides nothing about when, and unmaps nothing. */
#ifndef ALIQUOT_MOVER_H
#define ALIQUOT_MOVER_H

#include "interpose/driver.h"

#include <stddef.h>
#include <stdint.h>

struct piece; /* pieces.h */

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

/* Makes what a copy needs of the device's memory: streams, events, and a small ring with its registration. A driver
 * without room for them answers CUDA_ERROR_OUT_OF_MEMORY, and nothing stays; CUDA_SUCCESS otherwise: what else fails is
 * tried again by the copy. Called before memory that can leave is allocated, by a thread whose call is marked. */
CUresult mover_prepare(int device);

/* Returns 0 when every byte is there; a CUresult when the driver failed; a negative errno when a segment or this machine's
 * memory did (-ENOSPC, -EFBIG and -EDQUOT: the disk of a spill file is full). Whatever it returns, no copy is under way any
 * more, and what was copied from is as it was.
 *
 * With contexts_hold, calls stopped and the device drained; the segments are kept already (segments_keep). A device with
 * pieces needs a live context: none is made for this, CUDA_ERROR_INVALID_CONTEXT answers. On a thread of the hook's own,
 * whose current context it leaves as it was. */
int mover_copy(const struct piece *pieces, size_t count, enum mover_direction direction, struct mover_timing *timing);

#endif
