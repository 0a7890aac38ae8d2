/* The number of blocks that fit on an SM, and the duration of work on a part of a device. */
#ifndef SOFTGPU_OCCUPANCY_H
#define SOFTGPU_OCCUPANCY_H

#include <stddef.h>
#include <stdint.h>

struct green;

int occupancy_blocks(int block_threads, size_t dynamic_shared_bytes);

/* The duration, on a green context, of a launch of that many blocks of so many threads that takes
 * `nanoseconds` on the whole device: more waves take longer. */
uint64_t occupancy_nanoseconds(const struct green *green, uint64_t nanoseconds, uint64_t blocks, unsigned block_threads,
                           size_t shared_bytes);


#endif
