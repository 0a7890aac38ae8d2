/* How many blocks fit on an SM, and how long work takes on a part of a device. */
#ifndef SOFTGPU_OCCUPANCY_H
#define SOFTGPU_OCCUPANCY_H

#include <stddef.h>
#include <stdint.h>

struct green;

int occupancy_blocks(int block_threads, size_t dynamic_shared_bytes);

/* What `nanoseconds` on the whole device become for that many blocks of so many threads: more waves take longer. */
uint64_t occupancy_nanoseconds(const struct green *green, uint64_t nanoseconds, uint64_t blocks, unsigned block_threads,
                           size_t shared_bytes);


#endif
