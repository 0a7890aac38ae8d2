/* How many blocks fit on an SM. */
#ifndef SOFTGPU_OCCUPANCY_H
#define SOFTGPU_OCCUPANCY_H

#include <stddef.h>

int occupancy_blocks(int block_threads, size_t dynamic_shared_bytes);

#endif
