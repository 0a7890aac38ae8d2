/* Copies and fills of any shape, as work for streams. Whether a place is on the device is seen from
 * its address. */
#ifndef SOFTGPU_COPIES_H
#define SOFTGPU_COPIES_H

#include <stdint.h>

#include <cuda.h>

#include "memory/places.h"
#include "memory/window.h"

struct work_item;

/* With `is_async` it may return before the copy is done, when no pageable host memory takes
 * part. */
CUresult copy_shape(struct place to, struct place from, struct shape shape, CUstream stream, int is_async);
/* The checks of copy_shape on a stream of the device, without a copy. */
CUresult copy_check(struct place to, struct place from, struct shape shape, unsigned device);
/* Fills rows with a pattern of 1, 2 or 4 bytes; `width` counts elements. */
CUresult fill_shape(struct place to, uint32_t value, unsigned element_bytes, struct shape shape, CUstream stream,
                    int is_async);
/* Called by work whose turn has come: a host view of device or host memory. 0, or -1 when device
 * memory is not mapped there, or the device (by its index in the machine) lacks these rights. */
int place_reach(uint64_t address, uint64_t bytes, unsigned device, enum rights rights, void **view);
/* The work item of a copy or a fill by a device, checked as at the call; NULL when it would move
 * nothing. */
CUresult copy_work(struct place to, struct place from, struct shape shape, unsigned device, struct work_item **work);
CUresult fill_work(struct place to, uint32_t value, unsigned element_bytes, struct shape shape, unsigned device,
                   struct work_item **work);
/* The same of a descriptor; a copy of nothing is a NULL work. */
CUresult work_of_copy(const CUDA_MEMCPY3D *copy, unsigned device, struct work_item **work);

#endif
