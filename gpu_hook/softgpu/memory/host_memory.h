/* Page-locked host memory: what cuMemHostAlloc allocated and cuMemHostRegister registered. */
#ifndef SOFTGPU_HOST_MEMORY_H
#define SOFTGPU_HOST_MEMORY_H

#include <stdint.h>

#include "driver/contexts.h"

struct host_range {
    uint64_t start, bytes;
    unsigned flags;
    int is_registered; /* the program's own memory */
    struct context *context;
    uint64_t id;
};

int host_memory_find(uint64_t address, struct host_range *found); /* 0, or -1 */

#endif
